"""What other relays ask of this one: how far a track is, a range of it; and that a track has ended.

To the relay that has the track, a relay that asks is much like a client. `relay_queries` is the
other side of it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from laps.edge.relay_queries import ANSWER_S
from laps.errors import RemoteProtocolError
from laps.types import Location, hash_track
from laps.wire.buffer import Incomplete
from laps.wire.extensions import MAX_HOPS, RelayRequest, RelayResponse
from laps.wire.moqt.codes import RequestCode
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.messages import (
    Fetch,
    FetchCancel,
    Publish,
    PublishDone,
    RequestError,
    RequestKind,
    RequestOk,
    StandaloneFetch,
    SubscribeOk,
    TrackStatus,
)

if TYPE_CHECKING:
    from laps.edge.client import Rank, Serving
    from laps.edge.context import Context
    from laps.edge.endings import Endings
    from laps.edge.fetching import Fetches
    from laps.edge.relay_queries import RelayQueries
    from laps.edge.track_status import Statuses
    from laps.tracks.ports import OutStream
    from laps.tracks.track import Track
    from laps.types import NodeId, TrackKey, TrackName
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Message


class RelayAsker:
    """Another relay, that asks as a client would."""

    dialect: Dialect = BETWEEN_RELAYS

    def __init__(self, context: Context, node_id: NodeId) -> None:
        self.serving: dict[int, Serving] = {}
        self._context = context
        self._relay = context.relay
        self._node_id = node_id
        self._asked: dict[int, TrackKey] = {}
        "The tracks whose status it wants to know, by request id."

    def asks_status(self, request_id: int, key: TrackKey) -> None:
        """It wants to know how far a track is."""
        self._asked[request_id] = key

    @property
    def is_busy(self) -> bool:
        """Whether it waits for something."""
        return bool(self.serving or self._asked)

    def has_room_for(self, order: int) -> bool:
        """As `Asker.has_room_for`; `RelayRequests.writable` follows when there is some again."""
        return self._relay.reach.has_room_for(self._node_id, order)

    def answer(self, message: Message, now: float) -> None:
        """As `Asker.answer`."""
        request_id: int = message.request_id  # type: ignore[union-attr, assignment]
        key = self._asked.pop(request_id, None)
        if isinstance(message, RequestOk):
            if key is not None:
                self._remember(key, message.largest, now)
            # REQUEST_OK does not say what a track is like.
            message = SubscribeOk(request_id, 0, message.largest, None, message.properties)
        self._respond(request_id, message)

    def refuse(self, request_id: int, code: int, reason: str, now: float) -> None:
        """As `Asker.refuse`."""
        self._asked.pop(request_id, None)
        error = RequestError(request_id, code, reason, kind=RequestKind.FETCH)
        self._respond(request_id, error)

    def open_fetch(self, track: Track, rank: Rank) -> OutStream:
        """As `Asker.open_fetch`: a stream of the track, for that relay alone."""
        return self._relay.reach.open_stream(self._node_id, track.key)

    def fetch_served(self, request_id: int) -> None:
        """As `Asker.fetch_served`: the end of the stream says so."""

    def _remember(self, key: TrackKey, largest: Location | None, now: float) -> None:
        """It hears how far a track is; its subscribe is on its way, or here already.

        One that is here may be of the time before it was restarted. It may have asked twice, and
        have heard the first answer or the second.
        """
        place, told = (self._node_id, key), self._relay.reach.told
        largest = Location(0, -1) if largest is None else largest
        told[place] = min(largest, told.get(place, largest))

        def forget(_: float) -> None:
            told.pop(place, None)

        self._context.at(now + ANSWER_S, forget)

    def _respond(self, request_id: int, message: Message) -> None:
        relay, payload = self._relay, BETWEEN_RELAYS.encode(message)
        response = RelayResponse(MAX_HOPS, relay.id, self._node_id, request_id, payload)
        relay.reach.send(self._node_id, response)


class RelayRequests:
    """The requests of other relays, and their answers to ours."""

    def __init__(
        self,
        context: Context,
        queries: RelayQueries,
        fetches: Fetches,
        statuses: Statuses,
        endings: Endings,
    ) -> None:
        self._context = context
        self._queries = queries
        self._fetches = fetches
        self._statuses = statuses
        self._endings = endings
        self._askers: dict[NodeId, RelayAsker] = {}

    def receive(self, message: RelayRequest | RelayResponse, now: float) -> None:
        """A message for this relay has arrived."""
        try:
            inner = _messages(message.payload)
        except (RemoteProtocolError, Incomplete):
            return  # of a later kind, perhaps; whoever asked hears nothing and goes on
        if isinstance(message, RelayResponse):
            if inner:
                self._queries.receive(message.source_node_id, message.request_id, inner[0], now)
            return
        node_id = message.source_node_id
        asker = self._askers.get(node_id)
        if asker is None:
            asker = self._askers[node_id] = RelayAsker(self._context, node_id)
        self._serve(asker, message, inner, now)
        # Of those that asked before, two are looked at for each that asks: so idle ones go, but for
        # those that were under way when the last one asked.
        for oldest in list(islice(self._askers, 2)):
            if (idle := self._askers.pop(oldest)).is_busy:
                self._askers[oldest] = idle

    def __len__(self) -> int:
        """How many relays are remembered, because something of theirs is under way."""
        return len(self._askers)

    def _serve(
        self, asker: RelayAsker, request: RelayRequest, inner: list[Message], now: float
    ) -> None:
        request_id = request.request_id
        source, claims = request.source_node_id, self._context.relay.claims
        match inner:
            case [TrackStatus(_, name, _), PublishDone() | Publish()] if not claims.serves(
                source, name
            ):
                claims.refuse_end(source, now)
            case [TrackStatus(_, name, _), PublishDone() as done]:
                self._endings.ended_elsewhere(name, done, source, now)
            case [TrackStatus(_, name, _), Publish()]:
                self._endings.begun_anew_elsewhere(name)
            case [TrackStatus(_, name, _)] | [Fetch(range=StandaloneFetch(track=name))] if (
                reason := self._against(name, source)
            ) is not None:
                asker.refuse(request_id, RequestCode.UNAUTHORIZED, reason, now)
            case [TrackStatus(_, name, _)]:
                asker.asks_status(request_id, hash_track(name).full_name_hash)
                status = TrackStatus(request_id, name)
                self._statuses.ask(asker, status, now, source)
            case [Fetch() as fetch] if isinstance(fetch.range, StandaloneFetch):
                wanted = fetch.range
                own = Fetch(request_id, wanted, fetch.priority, fetch.order)
                track = self._context.track(wanted.track, now)
                self._fetches.begin(asker, track, own, wanted.start, wanted.end, now)
            case [FetchCancel()]:
                if (serving := asker.serving.pop(request_id, None)) is not None:
                    serving.cancel(now)

    def _against(self, name: TrackName, source: NodeId) -> str | None:
        """Why a relay may not have a track; a Stub may have what clients of ours may."""
        relay, policy = self._context.relay, self._context.authority.policy
        if policy is not None and relay.reach.stub(source) is not None:
            return policy.refusal(name, is_published=False)
        return relay.refusals.against(name, source)

    def review(self, now: float) -> None:
        """Another policy is in force: answers of tracks that may not be here any more end."""
        for asker in self._askers.values():
            for request_id, serving in list(asker.serving.items()):
                name = serving.track.name
                reason = None if name is None else self._context.relay.refusals.here(name)
                if reason is not None:
                    serving.cancel(now)
                    asker.refuse(request_id, RequestCode.UNAUTHORIZED, reason, now)

    def writable(self, now: float) -> None:
        """There may be room again on the ways to other relays."""
        for asker in self._askers.values():
            for serving in list(asker.serving.values()):
                serving.pump(now)


def _messages(payload: bytes) -> list[Message]:
    found: list[Message] = []
    offset = 0
    while offset < len(payload):
        kind, body, offset = BETWEEN_RELAYS.split(payload, offset)
        found.append(BETWEEN_RELAYS.decode(kind, body))
    return found
