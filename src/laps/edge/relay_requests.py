"""Requests between relays that are not neighbours: how far a track is, and a range of it.

A request travels by RELAY_REQUEST from hop to hop to the node that has the track, and its answer by
RELAY_RESPONSE back; both hold a control message of MoQT draft 16. What a FETCH brings comes on a
data stream of the track, for the asking node alone, and begins with draft 16's FETCH_HEADER. To the
relay that has the track, a relay that asks is much like a client.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

from laps.errors import RemoteProtocolError
from laps.types import Location, hash_track
from laps.wire.buffer import Incomplete
from laps.wire.extensions import MAX_HOPS, RelayRequest, RelayResponse
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.messages import (
    Fetch,
    FetchCancel,
    PublishDone,
    RequestError,
    RequestKind,
    RequestOk,
    StandaloneFetch,
    SubscribeOk,
    TrackStatus,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.edge.edge import Edge
    from laps.edge.fetching import FetchServing
    from laps.edge.moqt_subscription import Rank
    from laps.relay.relay import Relay
    from laps.tracks.ports import OutStream
    from laps.tracks.track import LiveTrack
    from laps.types import NodeId, TrackName
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Message

    Told = Callable[[Message | None, float], None]

# Without an answer after this long there will be none.
ANSWER_S: Final = 5.0


class RelayAsker:
    """Another relay, that asks as a client would."""

    dialect: Dialect = DRAFT16

    def __init__(self, tunnel: Tunnel, node_id: NodeId) -> None:
        self.serving: dict[int, FetchServing] = {}
        self.asked: dict[int, int] = {}
        "The tracks whose status it wants to know, by request id."
        self.node_id = node_id
        self._tunnel = tunnel

    @property
    def has_room(self) -> bool:
        """As `fetches.Asker`; `Tunnel.writable` follows when there is some again."""
        return self._tunnel.has_room(self.node_id)

    def answer(self, message: Message) -> None:
        """As `fetches.Asker`."""
        request_id: int = message.request_id  # type: ignore[union-attr, assignment]
        key = self.asked.pop(request_id, None)
        if isinstance(message, RequestOk) and key is not None:
            self._tunnel.told(self.node_id, key, message.largest)
        self._tunnel.respond(self.node_id, request_id, message)

    def refuse(self, request_id: int, code: int, reason: str) -> None:
        """As `fetches.Asker`."""
        self.asked.pop(request_id, None)
        error = RequestError(request_id, code, reason, kind=RequestKind.FETCH)
        self._tunnel.respond(self.node_id, request_id, error)

    def open_fetch(self, track: LiveTrack, rank: Rank) -> OutStream:
        """As `fetches.Asker`: a stream of the track, for that relay alone."""
        return self._tunnel.open_stream(self.node_id, track)


class Tunnel:
    """The requests of one relay to others, and theirs to it."""

    def __init__(self, relay: Relay, edge: Edge) -> None:
        self._relay = relay
        self._edge = edge
        self._ids = count(1)
        self._asked: dict[int, Told] = {}
        self._askers: dict[NodeId, RelayAsker] = {}
        relay.reach.take = self.receive

    # -- asking ------------------------------------------------------------------------------------

    def ask(self, node_id: NodeId, message: Fetch | TrackStatus, told: Told) -> int:
        """Ask a relay; `told` is called with its answer, or with None when there is none."""
        request_id = next(self._ids) & 0xFFFF_FFFF
        self._asked[request_id] = told
        request = RelayRequest(
            MAX_HOPS, self._relay.id, node_id, request_id, DRAFT16.encode(message)
        )
        self._relay.reach.send(node_id, request)
        now = self._relay.live.cache.now
        self._edge.at(now + ANSWER_S, lambda now: self._tell(request_id, None, now))
        return request_id

    def _tell(self, request_id: int, message: Message | None, now: float) -> None:
        told = self._asked.pop(request_id, None)
        if told is not None:
            told(message, now)

    def track_ended(self, track: TrackName, nodes: list[NodeId], done: PublishDone) -> None:
        """Tell relays with subscribers that a track is over."""
        payload = DRAFT16.encode(TrackStatus(0, track)) + DRAFT16.encode(done)
        for node_id in nodes:
            notice = RelayRequest(MAX_HOPS, self._relay.id, node_id, 0, payload)
            self._relay.reach.send(node_id, notice)

    # -- being asked -------------------------------------------------------------------------------

    def receive(self, message: RelayRequest | RelayResponse, now: float) -> None:
        """A message for this relay has come."""
        try:
            inner = _messages(message.payload)
        except (RemoteProtocolError, Incomplete):
            return  # of a later kind, perhaps; whoever asked hears nothing and goes on
        if isinstance(message, RelayResponse):
            answer = inner[0] if inner else None
            if isinstance(answer, SubscribeOk):
                kind, properties = RequestKind.TRACK_STATUS, answer.properties
                answer = RequestOk(answer.request_id, kind, answer.largest, None, properties)
            if answer is not None:
                self._tell(message.request_id, answer, now)
            return
        asker = self._askers.setdefault(
            message.source_node_id, RelayAsker(self, message.source_node_id)
        )
        match inner:
            case [TrackStatus(_, track, _), PublishDone() as done]:
                self._edge.ended_elsewhere(track, done, message.source_node_id, now)
            case [TrackStatus() as status]:
                self._status(asker, message.request_id, status, now)
            case [Fetch() as fetch] if isinstance(fetch.range, StandaloneFetch):
                wanted = fetch.range
                request = Fetch(message.request_id, wanted, fetch.priority, fetch.order)
                live = self._edge.track(wanted.track)
                self._edge.fetches.begin(asker, live, request, wanted.start, wanted.end, now)
            case [FetchCancel()]:
                if (serving := asker.serving.pop(message.request_id, None)) is not None:
                    serving.cancel()

    def _status(self, asker: RelayAsker, request_id: int, status: TrackStatus, now: float) -> None:
        asker.asked[request_id] = hash_track(status.track).full_name_hash
        self._edge.statuses.ask(asker, TrackStatus(request_id, status.track), now)

    def told(self, node_id: NodeId, key: int, largest: Location | None) -> None:
        """A relay hears how far a track is; its subscribe is here already, or on its way."""
        if node_id in self._relay.subscribes.sources(key):
            return
        place, told = (node_id, key), self._relay.reach.told
        told[place] = Location(0, -1) if largest is None else largest

        def forget(_: float) -> None:
            told.pop(place, None)

        self._edge.at(self._relay.live.cache.now + ANSWER_S, forget)

    def respond(self, node_id: NodeId, request_id: int, message: Message) -> None:
        """Answer a relay: with SUBSCRIBE_OK, since REQUEST_OK does not say what a track is like."""
        if isinstance(message, RequestOk):
            message = SubscribeOk(request_id, 0, message.largest, None, message.properties)
        response = RelayResponse(
            MAX_HOPS, self._relay.id, node_id, request_id, DRAFT16.encode(message)
        )
        self._relay.reach.send(node_id, response)

    def has_room(self, node_id: NodeId) -> bool:
        """Whether little waits on the way to a relay."""
        return self._relay.reach.has_room(node_id)

    def writable(self, now: float) -> None:
        """There may be room again on the ways to other relays."""
        for asker in self._askers.values():
            for serving in list(asker.serving.values()):
                serving.pump(now)

    def open_stream(self, node_id: NodeId, track: LiveTrack) -> OutStream:
        """A data stream to one relay."""
        return self._relay.reach.open_stream(node_id, track.hash.full_name_hash)


def _messages(payload: bytes) -> list[Message]:
    found: list[Message] = []
    offset = 0
    while offset < len(payload):
        kind, body, offset = DRAFT16.split(payload, offset)
        found.append(DRAFT16.decode(kind, body))
    return found
