"""What a relay says of the tracks it carries: those that moved, and all of them in their turn.

A relay may carry a hundred thousand tracks and most of them may be silent. So a round tells of the
tracks that carried something or have another subscriber, and looks at a part of all others, so that
each of them is told of within a minute. A round takes as long as its bounds allow, however many
tracks there are: past them a track waits for the next one, and its record is of the longer time.
"""

from __future__ import annotations

from itertools import chain, islice
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from laps.names import track_texts
from laps.routing.flows import FromClient
from laps.telemetry.records import TRACKS, is_telemetry
from laps.types import format_node_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.infobase.nodes import SessionId
    from laps.relay.relay import Relay
    from laps.tracks.meter import Meter
    from laps.tracks.track import Track
    from laps.types import TrackKey

# What a round may tell: a batch of 200 KB, and some milliseconds of the processor,
MAX_ROWS: Final = 2000
# with names of a hundred bytes: they may have four thousand.
MAX_NAME_BYTES: Final = 200_000
# Of these the ones that moved may take so much, and leave the rest for those whose turn it is.
MOVED_SHARE: Final = 0.75

# All tracks are looked at within this time, each round at a part of them and at so many at least;
ROTATION_S: Final = 50.0
MIN_LOOK: Final = 100
# those that have not been told of for this long are then, for who has not read before.
REFRESH_S: Final = 30.0

# So much is done between two chances for others: half a millisecond.
STREAMS_A_TURN: Final = 2000
TRACKS_A_TURN: Final = 150

# Telemetry's own tracks are not told of: with a reader of a thousand relays they would be most.
_HIDDEN: Final = ("", "laps")


class TrackRecords:
    """The records of the tracks of one relay."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._columns: list[list[Any]] = []
        self._name_bytes = 0
        self._rotation: Iterator[TrackKey] = iter(())
        self._egress_names: dict[frozenset[SessionId], tuple[str, ...]] = {}
        self._part = 0
        "How many tracks are looked at in this round because it is their turn."
        self._gathered_at = 0.0

    def gather(self, now: float) -> Iterator[None]:
        """Look at what has changed, a little at a time; `columns` has it then."""
        self._begin(now)
        tracks, data = self._relay.tracks, self._relay.data
        shared = tracks.shared
        streams = data.open_streams()
        for first in range(0, len(streams), STREAMS_A_TURN):
            data.settle(streams[first : first + STREAMS_A_TURN])
            yield
        moved, shared.moved = shared.moved or {}, {}
        meters = list(moved)
        for first in range(0, len(meters), TRACKS_A_TURN):
            if self._is_full(MOVED_SHARE):
                shared.moved = dict.fromkeys(meters[first:]) | shared.moved
                break
            self._look(meters[first : first + TRACKS_A_TURN], now)
            yield
        left, anew = self._part, False
        while left > 0 and not self._is_full():
            keys = list(islice(self._rotation, min(left, TRACKS_A_TURN)))
            left -= len(keys)
            if keys:
                self._look_in_turn(keys, now)
                yield
            elif anew:
                break
            else:
                anew = True
                self._rotation = chain(tracks.keys(), tracks.transit)

    def columns(self, wall_us: int, node: str) -> list[list[Any]]:
        """What was gathered, by column, for a batch of this time."""
        size = len(self._columns[0])
        return [[wall_us] * size, [node] * size, *self._columns]

    # -- how it works ------------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        tracks, passed = self._relay.tracks, now - self._gathered_at
        share = min(1.0, passed / ROTATION_S)
        self._part = max(MIN_LOOK, ceil((len(tracks) + len(tracks.transit)) * share))
        self._gathered_at = now
        self._columns = [[] for _ in TRACKS.columns[2:]]
        self._name_bytes = 0
        self._egress_names.clear()  # peers come and go

    def _is_full(self, share: float = 1.0) -> bool:
        size = len(self._columns[0])
        return size >= share * MAX_ROWS or self._name_bytes >= share * MAX_NAME_BYTES

    def _look_in_turn(self, keys: list[TrackKey], now: float) -> None:
        tracks, fib = self._relay.tracks, self._relay.fib
        meters: list[Meter] = []
        for key in keys:
            track = tracks.get(key)
            meter = tracks.transit.get(key) if track is None else track.meter
            if meter is None or meter.told_at == now:
                continue  # it is no longer there, or has been told of just now
            for flow in [flow for flow in meter.flows if fib.get(flow.key) is not flow]:
                del meter.flows[flow]
                meter.routed = -1
            meters.append(meter)
            if track is None and not meter.flows:
                del tracks.transit[key]
        self._look(meters, now)

    def _look(self, meters: list[Meter], now: float) -> None:
        """Tell of the tracks that there is something to tell of."""
        tracks, routed = self._relay.tracks, self._relay.fib.changes
        # A tuple for each would be a thousand more for the garbage collector to look at.
        add = [column.append for column in self._columns]
        for meter in meters:
            key = meter.key
            track = tracks.get(key)
            names = meter.names or self._names(meter, track)
            if names is _HIDDEN:
                continue
            if meter.routed != routed:
                self._route(meter)
            subscribers = 0 if track is None else len(track.subscribers)
            origin = meter.asked or (track is not None and bool(track.publishers))
            received = meter.received - meter.told_received
            sent = meter.sent - meter.told_sent
            if (
                not received
                and not sent
                and subscribers == meter.told_subscribers
                and origin == meter.told_origin
                and meter.egress == meter.told_egress
                and now - meter.told_at < REFRESH_S
            ):
                continue
            namespace, name = names
            self._name_bytes += len(namespace) + len(name)
            add[0](namespace)
            add[1](name)
            add[2](key - (key >> 63 << 64))
            add[3](int((now - meter.told_at) * 1e6 + 0.5))
            add[4](origin)
            add[5](subscribers)
            add[6](meter.egress)
            add[7](received)
            add[8](sent)
            meter.told_at = now
            meter.told_received, meter.told_sent = meter.received, meter.sent
            meter.told_subscribers, meter.told_origin = subscribers, origin
            meter.told_egress = meter.egress

    def _route(self, meter: Meter) -> None:
        """Where a track goes has changed, or that of another."""
        fib, track = self._relay.fib, self._relay.tracks.get(meter.key)
        asked = [] if track is None else [it for it in track.publishers.values() if it.wanted]
        links = {link for flow in meter.flows for link in flow.outs}
        for publication in asked:
            if (flow := fib.get(FromClient(publication.publisher, meter.key))) is not None:
                links.update(flow.outs)
        meter.asked = bool(asked)
        meter.egress = self._egress(frozenset(links)) if links else ()
        meter.routed = fib.changes

    def _names(self, meter: Meter, track: Track | None) -> tuple[str, str]:
        if track is None or track.name is None:
            return "", ""  # relays pass hashes on, and nobody here has said the name
        if is_telemetry(track.name.namespace):
            meter.names = _HIDDEN
        else:
            meter.names = track_texts(track.name)
        return meter.names

    def _egress(self, links: frozenset[SessionId]) -> tuple[str, ...]:
        names = self._egress_names.get(links)
        if names is None:
            nodes = {
                node for link in links if (node := self._relay.links.node_of(link)) is not None
            }
            names = self._egress_names[links] = tuple(sorted(map(format_node_id, nodes)))
        return names
