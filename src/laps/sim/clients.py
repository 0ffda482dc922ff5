"""Applications at simulated relays: a publisher that can be checked, a subscriber that checks.

A publisher's streams are MoQT draft-16 subgroups, a group each, and its datagrams are draft-16
object datagrams. Every payload begins with who published it, in which group and as which object,
so that a subscriber knows what it got without knowing the way it came.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from laps.tracks.ports import Answers, Unhurried
from laps.types import AnnounceInfo, NodeId, TrackHash, TrackName, hash_bytes, hash_track
from laps.types import track_alias as alias_of
from laps.wire.buffer import Incomplete, decode_varint, encode_varint
from laps.wire.subscribe import encode_subscribe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laps.relay.relay import Relay
    from laps.sim.clock import Clock
    from laps.sim.topology import Publisher as PublisherSpec
    from laps.sim.topology import Subscriber as SubscriberSpec

# subgroup header, draft 16: with a subgroup id, no extensions, with a priority
# type(i)=0x14 | track_alias(i) | group_id(i) | subgroup_id(i) | publisher_priority(8)
# Publishers of one track count their groups each for itself: the subgroup tells them apart, as the
# object id does in datagrams. It is never 0, which a relay may write in a shorter way.
SUBGROUP_TYPE: Final = 0x14

# object in a subgroup: object_id_delta(i) | payload_length(i) | payload
# object datagram, draft 16: type(i)=0 | track_alias(i) | group_id(i) | object_id(i) | priority(8)
DATAGRAM_TYPE: Final = 0x00

# payload: publisher(4) | group(4) | object(4) | filler
_PAYLOAD: Final = struct.Struct(">III")

PRIORITY: Final = 128

# A client that lost its relay is back this long after the relay is.
RETURN_S: Final = 0.2


class ObjectId(Struct, frozen=True, cache_hash=True):
    """One object of one publisher, wherever it goes; it is looked up at every node on the way."""

    publisher: int
    track: int
    "The full name hash."
    group: int
    number: int
    is_datagram: bool


class Place(Protocol):
    """The node a client is at."""

    clock: Clock
    relay: Relay | None
    "None while it is down."
    node_id: NodeId
    is_frozen: bool
    "Whether the relay stands still."

    @property
    def now(self) -> float:
        """What the relay's clock shows."""

    def wait(self, call: Callable[[], None]) -> None:
        """Make a call when the relay goes on."""

    def flowed(self) -> None:
        """The relay was given data: it may want to be called again."""

    def touched(self) -> None:
        """The relay was called: it may want to be called again."""


def track_of(namespace: list[str], name: str) -> TrackName:
    """A track of a topology."""
    return TrackName(tuple(part.encode() for part in namespace), name.encode())


# --- publishing ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Flow:
    """A track that somebody asked a publisher for."""

    track: TrackHash
    group: int
    number: int = 0
    "The next object of the group."


class Publisher(Unhurried):
    """Announces, and publishes each track while the relay asks for it."""

    echoes = False
    answers = Answers.NEVER

    def __init__(self, number: int, spec: PublisherSpec, place: Place) -> None:
        self.number = number
        self.spec = spec
        self.published: dict[ObjectId, float] = {}
        "Every object, and when the first of its group was published."
        self.published_at: dict[ObjectId, float] = {}
        "Every object, and when it was published itself."
        self.abandoned: set[tuple[int, int]] = set()
        "Tracks and groups that were given up in the middle, as nobody wanted them any more."
        self.violations: list[str] = []
        self._place = place
        self._flows: dict[TrackHash, _Flow] = {}
        self._groups: dict[TrackHash, int] = {}
        self._is_attached = False
        parts = tuple(hash_bytes(part.encode()) for part in spec.namespace)
        name_hash = 0 if spec.name is None else hash_bytes(spec.name.encode())
        name = None if spec.name is None else spec.name.encode()
        self._names = tuple(part.encode() for part in spec.namespace), name
        self._hashes = parts, name_hash

    @property
    def _announce(self) -> AnnounceInfo:
        return AnnounceInfo(self._place.node_id, *self._hashes)

    def attach(self) -> None:
        """Come to the relay, as far as it is up."""
        if (relay := self._place.relay) is not None and not self._is_attached:
            self._is_attached = True
            relay.announce(self, self._announce, self._place.now, self._names)
            self._place.touched()

    def leave(self) -> None:
        """End what is being published, and say goodbye."""
        relay, now = self._place.relay, self._place.now
        if relay is not None and self._is_attached:
            for flow in self._flows.values():
                if flow.number:
                    relay.publish(self, flow.track, self._key(flow), b"", True, PRIORITY, 0, now)
            relay.unannounce(self, self._announce, now, self._names)
            relay.client_closed(self, now)
            self._place.touched()
        self.lost()

    def lost(self) -> None:
        """The relay is gone, and what it had asked for with it."""
        for flow in self._flows.values():
            if flow.number:
                self._groups[flow.track] = flow.group + 1
        self._flows.clear()
        self._is_attached = False

    # -- as `Client` -----------------------------------------------------------------------------

    def subscribe(self, track: TrackHash, subscribe_data: bytes) -> None:
        """As `Client`."""
        if track in self._flows:
            self.violations.append(f"publisher {self.number} was asked twice for one track")
            return
        flow = self._flows[track] = _Flow(track, self._groups.get(track, 0))
        self._place.clock.after(0, self._publish, flow)

    def unsubscribe(self, track: TrackHash) -> None:
        """As `Client`."""
        flow = self._flows.pop(track, None)
        if flow is None:
            self.violations.append(f"publisher {self.number} was asked to stop what it never began")
        elif flow.number:
            self._groups[track] = flow.group + 1
            self.abandoned.add(self._key(flow))
            self._place.clock.after(0, self._abandon, self._key(flow))

    def open_stream(self, track: TrackHash, priority: int, ttl_us: int) -> Incoming:
        """As `Client`."""
        self.violations.append(f"publisher {self.number} was sent a stream")
        return Incoming(alias_of(track.full_name_hash), lambda *_: None, self.violations)

    def send_datagram(self, track: TrackHash, data: bytes, priority: int) -> None:
        """As `Client`."""
        self.violations.append(f"publisher {self.number} was sent a datagram")

    # -- what it publishes -----------------------------------------------------------------------

    def _publish(self, flow: _Flow) -> None:
        """The next object, and the one after it in a while."""
        place, relay = self._place, self._place.relay
        if relay is None or self._flows.get(flow.track) is not flow:
            return
        if place.is_frozen:  # what is written waits with it
            place.wait(partial(self._publish, flow))
            return
        now = place.now
        if place.clock.rng.random() < self.spec.datagrams:
            self._publish_datagram(relay, flow, now)
        else:
            self._publish_in_stream(relay, flow, now)
        place.flowed()
        place.clock.after(1 / self.spec.objects_per_s, self._publish, flow)

    def _publish_in_stream(self, relay: Relay, flow: _Flow, now: float) -> None:
        alias = alias_of(flow.track.full_name_hash)
        data = b""
        if flow.number == 0:
            head = (SUBGROUP_TYPE, alias, flow.group, self.number + 1)
            data = b"".join(map(encode_varint, head))
            data += bytes([PRIORITY])
        payload = self._payload(flow, is_datagram=False)
        data += encode_varint(0) + encode_varint(len(payload)) + payload
        key = self._key(flow)
        flow.number += 1
        last = flow.number == self.spec.objects_per_group
        if last:
            self._next_group(flow)
        relay.publish(self, flow.track, key, data, last, PRIORITY, 0, now)

    def _publish_datagram(self, relay: Relay, flow: _Flow, now: float) -> None:
        """A group of its own, so that objects of streams stay without gaps."""
        if flow.number:  # the group under way goes on with the next object
            self._publish_in_stream(relay, flow, now)
            return
        alias = alias_of(flow.track.full_name_hash)
        head = b"".join(map(encode_varint, (DATAGRAM_TYPE, alias, flow.group, self.number)))
        data = head + bytes([PRIORITY]) + self._payload(flow, is_datagram=True)
        self._next_group(flow)
        relay.publish_datagram(self, flow.track, data, now)

    def _payload(self, flow: _Flow, *, is_datagram: bool) -> bytes:
        now = self._place.clock.now
        full_name_hash = flow.track.full_name_hash
        made = ObjectId(self.number, full_name_hash, flow.group, flow.number, is_datagram)
        first = ObjectId(self.number, full_name_hash, flow.group, 0, is_datagram)
        self.published[made] = self.published.get(first, now)
        self.published_at[made] = now
        head = _PAYLOAD.pack(self.number, flow.group, flow.number)
        return head + bytes(self.spec.object_bytes)

    def _next_group(self, flow: _Flow) -> None:
        flow.group += 1
        flow.number = 0
        self._groups[flow.track] = flow.group

    def _abandon(self, key: tuple[int, int]) -> None:
        if (relay := self._place.relay) is not None:
            relay.publish_reset(self, key, 0, self._place.now)
            self._place.touched()

    def _key(self, flow: _Flow) -> tuple[int, int]:
        return flow.track.full_name_hash, flow.group


# --- subscribing -----------------------------------------------------------------------------


class Subscriber(Unhurried):
    """Wants one track, and looks closely at what comes."""

    echoes = False
    answers = Answers.NEVER

    def __init__(self, number: int, spec: SubscriberSpec, place: Place) -> None:
        self.number = number
        self.spec = spec
        self.track = track_of(spec.namespace, spec.name)
        self.track_hash = hash_track(self.track)
        self.got: dict[ObjectId, float] = {}
        "Every object, and when it came."
        self._got_here: set[ObjectId] = set()
        "Since it last subscribed: who comes back is given groups that are open from the beginning."
        self.duplicates: list[ObjectId] = []
        self.violations: list[str] = []
        self.resets = 0
        self.is_subscribed = False
        self._place = place
        self._alias = alias_of(self.track_hash.full_name_hash)

    @property
    def node_id(self) -> NodeId:
        """Where it is."""
        return self._place.node_id

    def attach(self) -> None:
        """Subscribe, as far as the relay is up."""
        if (relay := self._place.relay) is not None and not self.is_subscribed:
            self.is_subscribed = True
            self._got_here.clear()
            relay.subscribe(self, self.track, encode_subscribe(self.track), self._place.now)
            self._place.touched()

    def unsubscribe_now(self) -> None:
        """Want no more, and stay connected."""
        if (relay := self._place.relay) is not None and self.is_subscribed:
            self.is_subscribed = False
            relay.unsubscribe(self, self.track, self._place.now)
            self._place.touched()

    def leave(self) -> None:
        """Say goodbye."""
        if (relay := self._place.relay) is not None and self.is_subscribed:
            relay.client_closed(self, self._place.now)
            self._place.touched()
        self.lost()

    def lost(self) -> None:
        """The relay is gone."""
        self.is_subscribed = False

    # -- as `Client` -----------------------------------------------------------------------------

    def subscribe(self, track: TrackHash, subscribe_data: bytes) -> None:
        """As `Client`."""
        self.violations.append(f"subscriber {self.number} was asked for a track")

    def unsubscribe(self, track: TrackHash) -> None:
        """As `Client`."""
        self.violations.append(f"subscriber {self.number} was asked to stop a track")

    def open_stream(self, track: TrackHash, priority: int, ttl_us: int) -> Incoming:
        """As `Client`."""
        self._expect(track)
        return Incoming(self._alias, self._receive, self.violations)

    def send_datagram(self, track: TrackHash, data: bytes, priority: int) -> None:
        """As `Client`."""
        self._expect(track)
        if (found := read_datagram(data)) is None:
            self.violations.append(f"subscriber {self.number} got a datagram it cannot read")
        else:
            self._receive(*found, True)

    def _expect(self, track: TrackHash) -> None:
        if not self.is_subscribed or track != self.track_hash:
            self.violations.append(f"subscriber {self.number} got what it is not subscribed to")

    def _receive(self, publisher: int, group: int, number: int, is_datagram: bool) -> None:
        found = ObjectId(publisher, self.track_hash.full_name_hash, group, number, is_datagram)
        if found in self._got_here:
            self.duplicates.append(found)
        self._got_here.add(found)
        self.got.setdefault(found, self._place.clock.now)


class Receive(Protocol):
    """Takes what an object says of itself."""

    def __call__(self, publisher: int, group: int, number: int, is_datagram: bool, /) -> None:
        """Take it."""


class Incoming:
    """A stream to a subscriber, read however it is cut; as `OutStream` of its relay."""

    def __init__(self, alias: int, receive: Receive, violations: list[str]) -> None:
        self.over = False
        self.code: int | None = None
        "What it was reset with."
        self._reader = SubgroupReader(alias)
        self._receive = receive
        self._violations = violations

    def write(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.write`."""
        if self.over:
            return False
        try:
            found = self._reader.read(data)
        except ValueError as error:
            self._violations.append(str(error))
            self.over = True
            return False
        for publisher, group, number in found:
            self._receive(publisher, group, number, False)
        return True

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.finish`."""
        written = self.write(data, now)
        if written and self._reader.is_inside:
            self._violations.append("a stream ended inside an object")
        self.over = True
        return written

    def reset(self, code: int, now: float) -> None:
        """As `OutStream.reset`."""
        self.over = True
        self.code = code


class SubgroupReader:
    """Finds the objects of a publisher's stream."""

    def __init__(self, alias: int | None = None) -> None:
        """`alias` is what the header has to say, if that is known."""
        self.alias = alias
        self._unread = b""
        self._wanted = 0
        "How many bytes have to be unread before there is anything to find in them."
        self._group: int | None = None
        self._next = 0

    @property
    def is_inside(self) -> bool:
        """Whether the bytes so far end in the middle of something."""
        return bool(self._unread) or self._group is None

    def read(self, data: bytes | memoryview) -> Sequence[tuple[int, int, int]]:
        """Publisher, group and number of each object that these bytes complete."""
        view, start = self._unread + data, 0
        if len(view) <= self._wanted:
            self._unread = view
            return ()
        found: list[tuple[int, int, int]] = []
        try:
            if self._group is None:
                start = self._read_header(view)
            while len(view) - start > self._wanted:
                made, start = self._read_object(view, start)
                found.append(made)
        except Incomplete:
            pass
        self._unread = view[start:]
        return found

    @property
    def is_between(self) -> bool:
        """Whether the bytes so far end with an object."""
        return self._next > 0 and not self._unread

    def passes(self, group: int, number: int) -> bool:
        """Whether this is what follows the last object; then it counts as read."""
        if group != self._group or number != self._next:
            return False
        self._next += 1
        return True

    def _read_header(self, view: bytes) -> int:
        """Read what a stream begins with; where that ends."""
        kind, offset = decode_varint(view)
        alias, offset = decode_varint(view, offset)
        group, offset = decode_varint(view, offset)
        _, offset = decode_varint(view, offset)
        if offset == len(view):
            raise Incomplete
        if kind != SUBGROUP_TYPE or self.alias not in (None, alias):
            raise ValueError(f"a stream starts with type {kind} and alias {alias}")
        self.alias = alias
        self._group = group
        return offset + 1

    def _read_object(self, view: bytes, at: int) -> tuple[tuple[int, int, int], int]:
        """Publisher, group and number of the object at a place, and where it ends."""
        if view[at] < 0x40 and len(view) > at + 2 and view[at + 1] & 0xC0 == 0x40:
            # as nearly all are
            delta, size, start = view[at], (view[at + 1] & 0x3F) << 8 | view[at + 2], at + 3
        else:
            delta, start = decode_varint(view, at)
            size, start = decode_varint(view, start)
        if (delta and self._next) or size < _PAYLOAD.size:
            raise ValueError(f"an object has delta {delta} and {size} bytes")
        end = start + size
        if len(view) < end:
            self._wanted = end - at - 1
            raise Incomplete
        self._wanted = 0
        made = _, group, number = _PAYLOAD.unpack_from(view, start)
        # A stream that goes on with one that broke off begins behind what that had.
        self._next = self._next or delta
        if group != self._group or number != self._next:
            expected = f"object {self._next} of group {self._group}"
            raise ValueError(f"a stream has object {number} of group {group}, not {expected}")
        self._next += 1
        return made, end


def read_datagram(data: bytes) -> tuple[int, int, int] | None:
    """Publisher, group and number of a datagram's object, or None if it is none."""
    try:
        kind, offset = decode_varint(data)
        for _ in ("alias", "group", "object"):
            _, offset = decode_varint(data, offset)
    except Incomplete:
        return None
    if kind != DATAGRAM_TYPE or len(data) < offset + 1 + _PAYLOAD.size:
        return None
    publisher, group, number = _PAYLOAD.unpack_from(data, offset + 1)
    return publisher, group, number
