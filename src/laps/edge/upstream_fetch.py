"""Ranges that are asked for elsewhere: of a publisher, or of the relay that has one.

Whoever wants a part of a range that has been asked for waits for it with the others. What comes is
kept until all of them have it, whether or not the cache has room, and is remembered if it has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from laps.ranges import LAST_OBJECT, after, beyond, last_of, without
from laps.types import Location
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.fetch import EndOfRange, FetchReader
from laps.wire.moqt.messages import (
    Fetch,
    FetchCancel,
    FetchOk,
    RequestError,
    StandaloneFetch,
    TrackProperties,
)
from laps.wire.moqt.translate import translate_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.edge.client import AnyClient
    from laps.edge.edge import Edge
    from laps.edge.fetching import FetchCounters, FetchServing
    from laps.edge.moqt import MoqtClient
    from laps.ranges import Range
    from laps.tracks.track import LiveTrack
    from laps.types import NodeId
    from laps.wire.moqt.messages import Message
    from laps.wire.moqt.objects import Object

# A FETCH that goes on to somebody else has this long to come back.
ERRAND_S: Final = 10.0

# And may bring this much at a time: it is held until it has been sent on.
MAX_ERRAND_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True, eq=False)
class Errand:
    """A range that is being asked for elsewhere."""

    track: LiveTrack
    start: Location
    end: Location
    client: MoqtClient | None
    "The publisher that is asked; None if it is another relay."
    node_id: NodeId | None = None
    request_id: int = -1
    reader: FetchReader | None = None
    answer: FetchOk | None = None
    finished: bool = False
    objects: dict[int, dict[int, Object]] = field(default_factory=dict)
    "What has come, by group and id: the cache may not have room for it."
    size: int = 0
    waiters: list[FetchServing] = field(default_factory=list)
    at: Location = field(init=False)
    "Behind the last that has come."
    unknown: list[Range] = field(default_factory=list)
    "What who was asked does not know of."

    def __post_init__(self) -> None:
        self.at = self.start

    @property
    def answered_end(self) -> Location:
        """Where what was asked for ends, as far as there was anything."""
        return self.end if self.answer is None else min(self.end, self.answer.end, key=beyond)

    def answered(self) -> list[Range]:
        """What is known by the answer: objects, and that there are no others."""
        known = [(self.start, last_of(self.answered_end))]
        for span in self.unknown:
            known = without(known, span)
        return known

    def covers(self, start: Location, end: Location) -> bool:
        """Whether a range is part of it."""
        return self.start <= start and beyond(end) <= beyond(self.end)


class Errands:
    """The FETCHes of a relay's own."""

    def __init__(self, edge: Edge, counters: FetchCounters) -> None:
        self._edge = edge
        self.counters = counters
        self._all: list[Errand] = []

    def send(self, serving: FetchServing, start: Location, end: Location, now: float) -> bool:
        """Have a range asked for; False if there is nobody to ask."""
        track = serving.track
        for errand in self._all:
            if errand.track is track and errand.covers(start, end):
                self.counters.shared += 1
                errand.waiters.append(serving)
                return True
        errand = Errand(track, start, end, None, waiters=[serving])
        if not self._dispatch(errand, now):
            return False
        self.counters.errands += 1
        self._all.append(errand)
        track.pins += 1
        self._edge.at(now + ERRAND_S, lambda now: self._over(errand, now, well=False))
        return True

    def _dispatch(self, errand: Errand, now: float) -> bool:
        track = errand.track
        if track.name is None:
            return False
        request = Fetch(0, StandaloneFetch(track.name, errand.start, errand.end))
        publisher = self._edge.publisher(track)
        if publisher is not None:
            errand.client = publisher
            errand.reader = FetchReader(publisher.session.dialect)
            errand.request_id = publisher.session.request(request)
            return True
        nodes = self._edge.elsewhere(track)
        if nodes:
            errand.node_id = nodes[0]
            errand.reader = FetchReader(BETWEEN_RELAYS)
            errand.request_id = self._edge.tunnel.ask(nodes[0], request, self._told(errand))
            return True
        return False

    def _told(self, errand: Errand) -> Callable[[Message | None, float], None]:
        def told(message: Message | None, now: float) -> None:
            if isinstance(message, FetchOk):
                self._answered(errand, message, now)
            elif message is None or isinstance(message, RequestError):
                self._over(errand, now, well=False)

        return told

    def answered(self, client: MoqtClient, message: FetchOk, now: float) -> None:
        """A publisher will send what we asked for."""
        errand = self._find(client, message.request_id)
        if errand is not None:
            self._answered(errand, message, now)

    def _answered(self, errand: Errand, message: FetchOk, now: float) -> None:
        errand.answer = message
        if errand.track.properties == TrackProperties():  # nobody has said anything of it yet
            errand.track.describe(message.properties)
        if message.end.object:  # or else it says how far it goes, and not how far there is
            errand.track.cached.saw(last_of(message.end))
        if errand.finished:
            self._over(errand, now, well=True)

    def refused(self, client: MoqtClient, message: RequestError, now: float) -> None:
        """A publisher will not."""
        errand = self._find(client, message.request_id)
        if errand is not None:
            self._over(errand, now, well=False)

    def receive(
        self, client: MoqtClient, request_id: int, data: bytes, fin: bool, now: float
    ) -> bool:
        """Bytes of what we asked a publisher for; False if nobody wants them."""
        errand = self._find(client, request_id)
        return errand is not None and self._receive(errand, data, fin, now)

    def receive_from_relay(self, request_id: int, data: bytes, fin: bool, now: float) -> bool:
        """Bytes of what we asked another relay for."""
        for errand in self._all:
            if errand.node_id is not None and errand.request_id == request_id:
                return self._receive(errand, data, fin, now)
        return False

    def _receive(self, errand: Errand, data: bytes, fin: bool, now: float) -> bool:
        reader = errand.reader
        if reader is None:
            return False
        dialect = BETWEEN_RELAYS if errand.client is None else errand.client.session.dialect
        for item in reader.feed(data):
            place = Location(item.group, item.object_id)
            begin, errand.at = errand.at, after(place)
            if isinstance(item, EndOfRange):
                if item.unknown:
                    errand.unknown.append((begin, place))
                continue
            found = translate_object(item, dialect, BETWEEN_RELAYS)
            if found is not None:
                errand.size += len(found.payload)
                errand.objects.setdefault(found.group, {})[found.object_id] = found
                errand.track.cached.saw(place)
        if errand.size > MAX_ERRAND_BYTES:
            self._over(errand, now, well=False)
            return False
        if fin:
            reader.finish()
            errand.finished = True
            if errand.answer is not None:
                self._over(errand, now, well=True)
        return True

    def reset(self, client: MoqtClient, request_id: int, now: float) -> None:
        """A publisher gave up sending what we asked for."""
        errand = self._find(client, request_id)
        if errand is not None:
            self._over(errand, now, well=False)

    def client_closed(self, client: AnyClient, now: float) -> None:
        """A publisher is gone."""
        for errand in [errand for errand in self._all if errand.client is client]:
            self._over(errand, now, well=False)

    def _find(self, client: MoqtClient, request_id: int) -> Errand | None:
        for errand in self._all:
            if errand.client is client and errand.request_id == request_id:
                return errand
        return None

    def _over(self, errand: Errand, now: float, *, well: bool) -> None:
        if errand not in self._all:
            return
        self._all.remove(errand)
        errand.track.pins -= 1
        if well:
            if not errand.unknown:
                self._remember(errand)
            if errand.client is not None:
                errand.client.session.finish(errand.request_id)
        elif errand.client is not None and errand.request_id in errand.client.session.outgoing:
            errand.client.session.send(FetchCancel(errand.request_id))
        for serving in errand.waiters:
            if not serving.over:
                serving.resume(errand, now, well=well)

    def _remember(self, errand: Errand) -> None:
        """What a publisher has been asked for is known: what it did not send is not there."""
        cached = errand.track.cached
        if any(item.datagram for items in errand.objects.values() for item in items.values()):
            return  # for how long these are of use is known to who has them from their publisher
        for group_id, objects in errand.objects.items():
            for item in objects.values():
                cached.group(group_id).add_object(item)
        if any(group_id not in cached.groups for group_id in errand.objects):
            return  # there is no room for it
        first = errand.start.group + (errand.start.object > 0)
        end = errand.answered_end
        last = end.group if end.object == 0 else end.group - 1
        if first <= last:
            known = [(Location(first, 0), Location(last, LAST_OBJECT))]
            # One that came after what was here knows nothing of it.
            for lost in cached.past.lost(known, errand.objects):
                known = without(known, lost)
            for low, high in known:
                whole = low.group + (low.object > 0), high.group - (high.object < LAST_OBJECT)
                if whole[0] <= whole[1]:
                    cached.known.append(whole)
        for group_id in (errand.start.group, end.group):
            group = cached.groups.get(group_id)
            if group is not None and errand.start.object == 0 and end.object == 0:
                group.whole = True
