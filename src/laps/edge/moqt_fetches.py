"""FETCH of a MoQT client: of a range, or of what comes before one of its subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.types import Location
from laps.wire.moqt.codes import RequestCode
from laps.wire.moqt.messages import JoiningFetch, StandaloneFetch
from laps.wire.moqt.tolerance import Tolerance

if TYPE_CHECKING:
    from laps.edge.edge import Edge
    from laps.edge.fetching import Asker
    from laps.edge.moqt_subscription import MoqtSubscription
    from laps.sessions.moqt import MoqtSession
    from laps.wire.moqt.messages import Fetch


class MoqtFetches:
    """What one MoqtClient fetches."""

    def __init__(self, edge: Edge, client: Asker, session: MoqtSession) -> None:
        self._edge = edge
        self._client = client
        self._session = session

    def fetch(self, message: Fetch, subscriptions: dict[int, MoqtSubscription], now: float) -> None:
        """Answer a FETCH, as soon as it is known what it is of."""
        wanted, request_id = message.range, message.request_id
        if isinstance(wanted, StandaloneFetch):
            track = self._edge.context.track(wanted.track, now)
            self._edge.fetches.begin(self._client, track, message, wanted.start, wanted.end, now)
            return
        subscription = subscriptions.get(wanted.joining_id)
        if subscription is None:
            reason = f"request {wanted.joining_id} is no subscription of this session"
            self._client.refuse(request_id, RequestCode.INVALID_JOINING_REQUEST_ID, reason, now)
            return
        if not subscription.can_be_joined:
            reason = "a joining FETCH goes with a subscription from the largest object on"
            self._session.tolerate(Tolerance.MISPLACED_JOIN, reason)
            self._client.refuse(request_id, RequestCode.INVALID_JOINING_REQUEST_ID, reason, now)
            return
        if subscription.is_established:
            self.join(message, subscription, now)
        else:
            subscription.joining.append(message)

    def join(self, message: Fetch, subscription: MoqtSubscription, now: float) -> None:
        """A FETCH up to where a subscription begins, once that is known."""
        request_id, wanted = message.request_id, message.range
        if request_id not in self._session.incoming:
            return  # it was cancelled
        largest = subscription.largest
        if not subscription.is_established or largest is None:
            reason = "nothing of the track came before the subscription"
            self._client.refuse(request_id, RequestCode.INVALID_RANGE, reason, now)
            return
        assert isinstance(wanted, JoiningFetch)  # noqa: S101 - the other kind waits for nothing
        group = max(0, largest.group - wanted.start) if wanted.relative else wanted.start
        end = Location(largest.group, largest.object + 1)
        track = subscription.track
        self._edge.fetches.begin(self._client, track, message, Location(group, 0), end, now)
