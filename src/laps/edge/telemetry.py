"""What a relay says of itself, published as tracks of its own, as a client's tracks are.

    laps/telemetry/<node>   links, tracks, node, events     an object a round, a group a minute

Every round the records of each kind become one object. It goes the way of any publisher's: into the
cache, to who subscribes here, and to the s-relays of others. Where nobody does, that is all. The
cache of these tracks is their history, with bounds of its own, and FETCH finds it there.

A Via has no clients, and is the o-relay of these four tracks alone. A Control server carries no
data, and has no telemetry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from laps.edge.track_records import TrackRecords
from laps.telemetry.encode import Encoder
from laps.telemetry.records import EVENTS, KINDS, LINKS, NODE, TRACKS, namespace_of, tracks_of
from laps.tracks.cache import Cache, CachedTrack, CacheLimits
from laps.tracks.ports import Answers, Unhurried
from laps.tracks.sinks import Nowhere
from laps.types import announce_info, format_node_id
from laps.wire.moqt.codes import DoneCode
from laps.wire.moqt.data import SubgroupHeader, encode_subgroup_header
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.messages import PublishDone
from laps.wire.moqt.object_fields import encode_object_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.edge.edge import Edge
    from laps.relay.ports import Senses
    from laps.relay.relay import Relay
    from laps.telemetry.records import Kind
    from laps.tracks.ports import OutStream
    from laps.tracks.track import Track
    from laps.types import NodeId, TrackHash

# A group is where readers join, and what is forgotten at once.
GROUP_S: Final = 60.0
GROUP_BYTES: Final = 1024 * 1024

# The least urgent that there is: whatever else a relay carries goes before what it says of itself.
PRIORITY: Final = 255

# Each kind has a part of the history to itself, so that the one that says most leaves the others
# theirs.
SHARES: Final = {"tracks": 0.5, "links": 0.25, "node": 0.125, "events": 0.125}

# What is not here, after the oldest group that is, never was.
LAST_GROUP: Final = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """What an operator decides about telemetry, and what it says of the relay besides."""

    history_s: float = 900.0
    "What is older is forgotten, a group at a time,"
    history_bytes: int = 16 * 1024 * 1024
    "and so is the oldest where there is more."
    region: str = ""
    capacity_bps: int = 0
    version: str = ""


class _Output:
    """One of the tracks, and what is written of it."""

    def __init__(self, kind: Kind, track: Track, first_group: int) -> None:
        self.encoder = Encoder(kind)
        self.track = track
        self.history = Cache(CacheLimits(), track.shared.events)
        self.group = first_group - 1
        self.began: float | None = None
        "When the group did that is being written."
        self.objects = 0
        self.size = 0
        self.most_bytes = GROUP_BYTES

    def is_over(self, now: float) -> bool:
        """Whether it is time for another group."""
        began = self.began
        return began is None or now - began >= GROUP_S or self.size >= self.most_bytes

    def bound(self, settings: TelemetrySettings) -> None:
        """Keep so much of it."""
        size = round(settings.history_bytes * SHARES[self.encoder.kind.name])
        # A group stays until its last object is old enough to go.
        age_s = settings.history_s + GROUP_S
        self.history.limits = CacheLimits(size, size, age_s)
        # What is being written is never what has to make room.
        self.most_bytes = min(GROUP_BYTES, size // 4)
        self.track.cached.limit_age(age_s)


class Telemetry(Unhurried):
    """The tracks that a relay publishes about itself: to the relay, a client that publishes."""

    echoes = False
    answers = Answers.NEVER

    def __init__(
        self, relay: Relay, edge: Edge, senses: Senses, settings: TelemetrySettings
    ) -> None:
        self.settings = settings
        self.node = format_node_id(relay.id)
        self.namespace = namespace_of(relay.id)
        self._relay = relay
        self._edge = edge
        self._senses = senses
        self._tracks = TrackRecords(relay)
        self._outputs: dict[str, _Output] = {}
        self._told_at = 0.0

    @property
    def running(self) -> bool:
        """Whether there are tracks."""
        return bool(self._outputs)

    # -- its life ----------------------------------------------------------------------------------

    def start(self, now: float, wall_us: int) -> None:
        """Offer the tracks. Groups count on from the milliseconds of the day they began."""
        self._told_at = now
        self._relay.tracks.shared.moved = {}
        self._relay.announce(
            self, announce_info(self._relay.id, self.namespace), now, (self.namespace, None)
        )
        for kind, name in zip(KINDS.values(), tracks_of(self._relay.id), strict=True):
            track = self._edge.context.track(name, now)
            output = self._outputs[kind.name] = _Output(kind, track, wall_us // 1000)
            track.cached.clear()
            track.cached = CachedTrack(output.history)
            output.bound(self.settings)
            track.is_own = True
            info = announce_info(self._relay.id, self.namespace, name.name)
            self._relay.announce(self, info, now, (self.namespace, name.name))

    def stop(self, now: float, reason: str) -> None:
        """Offer them no more, and forget what was said."""
        if not self.running:
            return
        outputs, self._outputs = list(self._outputs.values()), {}
        for output in outputs:
            self._end_group(output, now)
        self._relay.client_closed(self, now)
        for output in outputs:
            track = output.track
            track.is_own = False
            done = PublishDone(0, DoneCode.TRACK_ENDED, reason=reason)
            self._edge.endings.publisher_ended(track, done, now)
            track.cached = CachedTrack(self._relay.tracks.cache)
        self._relay.tracks.shared.moved = None
        self._relay.tracks.transit.clear()

    def leave(self, now: float) -> None:
        """The relay stops: nothing more comes for now. Readers may wait for it to come back."""
        for output in self._outputs.values():
            self._end_group(output, now)

    def configure(self, settings: TelemetrySettings) -> None:
        """Go on with other bounds."""
        self.settings = settings
        for output in self._outputs.values():
            output.bound(settings)

    # -- a round -----------------------------------------------------------------------------------

    def round(self, now: float, wall_us: int) -> Iterator[None]:
        """Say how things are, a little at a time: between two steps others may have their turn."""
        interval_us = round((now - self._told_at) * 1e6)
        self._told_at = now
        for output in self._outputs.values():
            output.history.expire(now)
        yield from self._senses.read()
        self._publish(LINKS, self._link_columns(wall_us, interval_us), now)
        yield
        yield from self._tracks.gather(now)
        columns = self._tracks.columns(wall_us, self.node)
        yield
        self._publish(TRACKS, columns, now)
        yield
        self._publish(NODE, self._node_columns(wall_us, interval_us), now)
        self._note_drops(now)
        self._relay.path_watch.look(now)
        self._publish(EVENTS, self._event_columns(now, wall_us), now)

    def _link_columns(self, wall_us: int, interval_us: int) -> list[Any]:
        links = sorted(self._senses.links, key=lambda link: link.peer)
        size = len(links)
        return [
            [wall_us] * size,
            [self.node] * size,
            [format_node_id(link.peer) for link in links],
            [interval_us] * size,
            [link.srtt_us for link in links],
            [link.loss for link in links],
            [link.sent_bytes for link in links],
            [link.received_bytes for link in links],
            [link.queue_bytes for link in links],
            [self._capacity_bps(link.peer) for link in links],
        ]

    def _capacity_bps(self, peer: NodeId) -> int:
        """What the slower end of a link says that it can send; 0 where neither does."""
        metrics = self._relay.extensions.metrics.get(peer)
        there = 0 if metrics is None else metrics.capacity_bps
        here = self.settings.capacity_bps
        return min(here, there) if here and there else here or there

    def _node_columns(self, wall_us: int, interval_us: int) -> list[Any]:
        relay, reading = self._relay, self._senses.node
        history = sum(output.history.size for output in self._outputs.values())
        row = (
            wall_us,
            self.node,
            relay.role.value,
            self.settings.region,
            relay.self_info.latitude,
            relay.self_info.longitude,
            interval_us,
            reading.load,
            reading.memory_bytes,
            self.settings.capacity_bps,
            reading.sent_bytes,
            reading.received_bytes,
            len(self._edge.clients),
            len(relay.peers),
            len(relay.tracks) + len(relay.tracks.transit),
            relay.tracks.cache.size + history,
            reading.dropped + sum(link.dropped for link in self._senses.links),
            self.settings.version,
        )
        return [[value] for value in row]

    def _event_columns(self, now: float, wall_us: int) -> list[Any]:
        events = self._relay.journal.take(now)
        return [
            [wall_us - round((now - event.at) * 1e6) for event in events],
            [self.node] * len(events),
            [event.name for event in events],
            [event.subject for event in events],
            [event.detail for event in events],
            [event.reason for event in events],
        ]

    # -- what is seen by looking -------------------------------------------------------------------

    def _note_drops(self, now: float) -> None:
        why = "it does not keep up with what it reads"
        for link in self._senses.links:
            if link.dropped:
                peer = format_node_id(link.peer)
                detail = f"{link.dropped} groups"
                self._relay.journal.note(now, "groups_dropped", peer, detail, why)
        if dropped := self._senses.node.dropped:
            why = "they do not keep up with what they read"
            self._relay.journal.note(now, "groups_dropped", "clients", f"{dropped} groups", why)

    # -- objects -----------------------------------------------------------------------------------

    def _publish(self, kind: Kind, columns: list[Any], now: float) -> None:
        """An object, if there is something to say; each group has one to begin with."""
        output = self._outputs.get(kind.name)
        if output is None:
            return  # it was stopped in the middle of a round
        if output.is_over(now):
            self._end_group(output, now)
            self._begin_group(output, now)
        elif not columns[0]:
            return
        head, tail = output.encoder.head, output.encoder.tail(columns)
        output.objects += 1
        output.size += len(head) + len(tail)
        # The head is the same object each time, and the history holds it once.
        for data in (encode_object_header(0, b"", len(head) + len(tail)), head, tail):
            self._write(output, data, now)
        cached = output.track.cached
        cached.known = [(min(cached.groups, default=LAST_GROUP), LAST_GROUP)]

    def _begin_group(self, output: _Output, now: float) -> None:
        output.group += 1
        output.began, output.objects, output.size = now, 0, 0
        header = SubgroupHeader(output.track.alias, output.group, 0, PRIORITY, end_of_group=True)
        self._write(output, encode_subgroup_header(header, BETWEEN_RELAYS), now)

    def _end_group(self, output: _Output, now: float) -> None:
        if output.began is not None:
            output.began = None
            self._write(output, b"", now, fin=True)

    def _write(self, output: _Output, data: bytes, now: float, *, fin: bool = False) -> None:
        self._relay.publish(
            self, output.track.hash, (output.track.alias, output.group), data, fin, PRIORITY, 0, now
        )

    # -- as `ports.Client` -------------------------------------------------------------------------

    def subscribe(self, track: TrackHash, subscribe_data: bytes) -> None:
        """As `ports.Client`: what is published goes to who wants it."""

    def unsubscribe(self, track: TrackHash) -> None:
        """As `ports.Client`."""

    def open_stream(self, track: TrackHash, priority: int, ttl_us: int) -> OutStream:
        """As `ports.Client`: it subscribes to nothing."""
        return Nowhere()

    def send_datagram(self, track: TrackHash, data: bytes, priority: int) -> None:
        """As `ports.Client`."""
