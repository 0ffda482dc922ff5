"""What this relay asks others that need not be its neighbours: how far a track is, a range of it.

A request travels by RELAY_REQUEST from hop to hop to the node that has the track, and its answer by
RELAY_RESPONSE back; both hold a control message of MoQT draft 16. What a FETCH brings arrives on a
data stream of the track, for the asking node alone, and begins with draft 16's FETCH_HEADER.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

from laps.wire.extensions import MAX_HOPS, RelayRequest
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.messages import FetchCancel, RequestKind, RequestOk, SubscribeOk, TrackStatus

if TYPE_CHECKING:
    from laps.edge.context import Context
    from laps.types import NodeId, TrackName
    from laps.wire.moqt.messages import Fetch, Message, Publish, PublishDone

# Without an answer after this long there will be none.
ANSWER_S: Final = 5.0
# A question, or its answer, may be lost with a relay on its way: so it is asked again after this
# long, and each time after twice as long.
AGAIN_S: Final = 0.4


class Query(Protocol):
    """What a relay was asked, by whoever wants to know."""

    def answered(self, message: Message | None, now: float) -> None:
        """The answer; None when there will be none."""


class RelayQueries:
    """The requests of this relay to others."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ids = count(1)
        self._open: dict[int, tuple[NodeId, Query]] = {}
        "The node that was asked, and for whom."

    def ask(
        self,
        node_id: NodeId,
        message: Fetch | TrackStatus,
        query: Query,
        now: float,
        wait_s: float = ANSWER_S,
    ) -> int:
        """Ask a relay; the id of the request."""
        request_id = next(self._ids) & 0xFFFF_FFFF
        self._open[request_id] = node_id, query
        relay = self._context.relay
        payload = BETWEEN_RELAYS.encode(message)
        request = RelayRequest(MAX_HOPS, relay.id, node_id, request_id, payload)
        relay.reach.send(node_id, request)
        if isinstance(message, TrackStatus):  # or else whoever fetches asks again for what is left
            self._context.at(now + AGAIN_S, lambda now: self._repeat(request, 1, now))
        self._context.at(now + wait_s, lambda now: self._close(request_id, None, now))
        return request_id

    def _repeat(self, request: RelayRequest, turn: int, now: float) -> None:
        """Ask again what has not been answered, by another way if there is one."""
        if request.request_id in self._open:
            self._context.relay.reach.send(request.target_node_id, request, turn)
            wait_s = AGAIN_S * 2**turn
            self._context.at(now + wait_s, lambda now: self._repeat(request, turn + 1, now))

    def cancel(self, node_id: NodeId, request_id: int) -> None:
        """A FETCH is no longer wanted."""
        self._open.pop(request_id, None)
        relay, payload = self._context.relay, BETWEEN_RELAYS.encode(FetchCancel(request_id))
        relay.reach.send(node_id, RelayRequest(MAX_HOPS, relay.id, node_id, request_id, payload))

    def receive(self, source: NodeId, request_id: int, answer: Message, now: float) -> None:
        """An answer has arrived; only that of the node that was asked counts."""
        if request_id not in self._open or self._open[request_id][0] != source:
            return
        if isinstance(answer, SubscribeOk):  # it says more of a track than REQUEST_OK does
            kind, properties = RequestKind.TRACK_STATUS, answer.properties
            answer = RequestOk(answer.request_id, kind, answer.largest, None, properties)
        self._close(request_id, answer, now)

    def _close(self, request_id: int, answer: Message | None, now: float) -> None:
        asked = self._open.pop(request_id, None)
        if asked is not None:
            asked[1].answered(answer, now)

    def tell(self, track: TrackName, nodes: list[NodeId], news: PublishDone | Publish) -> None:
        """Tell relays with subscribers that a track has ended, or has begun anew."""
        relay = self._context.relay
        payload = BETWEEN_RELAYS.encode(TrackStatus(0, track)) + BETWEEN_RELAYS.encode(news)
        for node_id in nodes:
            relay.reach.send(node_id, RelayRequest(MAX_HOPS, relay.id, node_id, 0, payload))
