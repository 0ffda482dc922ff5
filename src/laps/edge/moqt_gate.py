"""What a MoqtClient asks for goes through here: it is taken, refused, or waits for an origin.

name_refusal      the name cannot be
MoqtAccess        tokens do not allow it, or an origin has to be asked
WaitingRequests   those that wait, until `released`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.edge.decisions import Decision
from laps.edge.moqt_names import name_refusal
from laps.edge.moqt_waiting import WaitingRequests
from laps.wire.moqt.codes import DoneCode, RequestCode
from laps.wire.moqt.messages import Publish, RequestError, RequestUpdate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.edge.client import EdgeClient
    from laps.edge.edge import Edge
    from laps.edge.moqt_access import MoqtAccess
    from laps.edge.moqt_names import Refusal
    from laps.edge.moqt_published_streams import PublishedStreams
    from laps.sessions.moqt import MoqtSession
    from laps.wire.moqt.messages import Message


class MoqtGate:
    """What one client asks for."""

    def __init__(
        self,
        edge: Edge,
        client: EdgeClient,
        session: MoqtSession,
        access: MoqtAccess,
        streams: PublishedStreams,
    ) -> None:
        self._edge = edge
        self._client = client
        self._session = session
        self._access = access
        self._streams = streams
        self._waiting = WaitingRequests()

    def admits(self, message: Message, now: float) -> bool:
        """Whether a message is to be acted on now."""
        if self._waiting.follows(message):
            return False
        if self._ended_by(message, now):
            return False
        context = self._edge.context
        refusal = name_refusal(message, context, now) or self._access.refusal(message, now)
        self._edge.reviews.expect(self._client)
        if refusal is None:
            return True
        if isinstance(refusal, Decision):
            self._wait(message, refusal)
        else:
            self._refuse(message, refusal, now)
        return False

    def released(self, decision: Decision, now: float) -> Iterator[Message]:
        """An origin has answered: the messages that waited for it, to be taken one by one."""
        for request_id in self._waiting.decided(decision):
            for message in self._waiting.take(request_id):
                if isinstance(message, RequestUpdate) and not self._access.is_pending(
                    message.existing_id
                ):
                    reason = f"request {message.existing_id} was refused"
                    code = RequestCode.DOES_NOT_EXIST
                    self._client.refuse(message.request_id, code, reason, now)
                else:
                    yield message

    def _wait(self, message: Message, decision: Decision) -> None:
        self._waiting.add(message, decision)
        decision.waiting[self._client] = None
        if isinstance(message, Publish):
            self._streams.wait_for(message.alias)

    def _ended_by(self, message: Message, now: float) -> bool:
        """Whether a message ends a request that waits, and means nothing to anybody else."""
        is_new = False
        for request_id, first in self._waiting.ended_by(message):
            decision = self._access.withdrawn(request_id)
            if decision is not None and not self._waiting.decided(decision):
                decision.waiting.pop(self._client, None)
            if isinstance(first, Publish):
                self._streams.flush(first.alias, now)
            is_new = not isinstance(first, RequestUpdate)
        return is_new

    def _refuse(self, message: Message, refusal: Refusal, now: float) -> None:
        """Refuse a request; what it updates goes no further, as the drafts have it."""
        self._edge.counters.refused_requests += 1
        self._session.send(RequestError(*refusal))
        if isinstance(message, Publish):
            self._session.drop_alias(message.alias, refusal.request_id)
            self._streams.flush(message.alias, now)
        if isinstance(message, RequestUpdate) and refusal.retry_ms is None:
            for subscription in list(self._client.subscriptions.values()):
                if subscription.request_id == message.existing_id:
                    self._client.end(subscription, DoneCode.UPDATE_FAILED, refusal.reason, now)
