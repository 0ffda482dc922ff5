"""What a QUICR client publishes: fragments become streams and datagrams as relays carry them.

In stream mode a group is a stream of MoQT's draft 16, its subgroup named after the first object in
it, so that a group that two relays carry parts of, because its publisher moved from one to the
other, is two subgroups. MoQT says how long an object is ahead of it, and a fragment does not: an
object in several fragments goes on when it is whole. In datagram mode each fragment is a datagram,
at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.types import Location
from laps.wire.moqt.data import ObjectStatus, SubgroupHeader, encode_subgroup_header
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.object_fields import encode_object
from laps.wire.quicr.carried import CARRIED_BYTES, encode_carried, moqt_priority
from laps.wire.quicr.codes import QuicrCode, QuicrViolation
from laps.wire.quicr.fragments import MAX_OBJECT_BYTES, recut
from laps.wire.quicr.messages import DEFAULT_PRIORITY

if TYPE_CHECKING:
    from laps.edge.moqt_publishing import Source
    from laps.edge.quicr import QuicrClient
    from laps.sessions.quicr import ControlStream
    from laps.wire.quicr.messages import Fragment, Terms

# A stream says nothing of priorities.
PRIORITY: Final = moqt_priority(DEFAULT_PRIORITY)


# What one client may have begun on all its streams: two of the largest objects.
MAX_PARTS_BYTES: Final = 2 * MAX_OBJECT_BYTES


class Posting:
    """A track that a client publishes, on one control stream."""

    def __init__(self, client: QuicrClient, stream: ControlStream, source: Source) -> None:
        self.stream = stream
        self.source = source
        self.datagram_stream_id: int | None = None
        self._client = client
        self._parts: list[bytes] = []
        self._size = 0
        self._group: int | None = None
        "The group whose stream is open,"
        self._last_id = -1
        "and the last object on it."
        self._streams = 0
        self._said = False
        "It has said where it begins, or has begun."
        self._before = source.track.largest()
        "What was here of the track: a publisher that is back may send some of it again."
        self._seen: tuple[int, dict[int, bytes]] | None = None
        "What was here of a group."

    # -- on the stream -----------------------------------------------------------------------------

    def start(self) -> None:
        """START_POINT: what had begun does not go on."""
        self._said = True
        self._drop_parts()

    def fragment(self, fragment: Fragment, now: float) -> None:
        """The next fragment, in order."""
        payload = bytes(fragment.data)
        if self._size + len(payload) > MAX_OBJECT_BYTES:
            problem = f"an object of more than {MAX_OBJECT_BYTES} bytes is not taken"
            raise QuicrViolation(QuicrCode.TOO_LARGE, problem)
        if not fragment.last:
            self._hold(payload)
            return
        if self._parts:
            payload = b"".join((*self._parts, payload))
            self._drop_parts()
        place = Location(fragment.group, fragment.object_id)
        if not self._said and self._before is not None and self._before.group:
            self._before = None  # it begins anew, as who goes on would have said where
        self._said = True
        if not self._is_known(place, 0, payload, last=True):
            self._publish(place, payload, now)

    def _hold(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        self._client.part_bytes += len(part)
        if self._client.part_bytes > MAX_PARTS_BYTES:
            problem = f"more than {MAX_PARTS_BYTES} bytes of objects that are not whole"
            raise QuicrViolation(QuicrCode.TOO_LARGE, problem)

    def _drop_parts(self) -> None:
        self._client.part_bytes -= self._size
        self._parts.clear()
        self._size = 0

    def _is_known(
        self, place: Location, offset: int, data: bytes | memoryview, *, last: bool
    ) -> bool:
        """Whether an object was here before this publisher was; or another one in its place."""
        if self._before is None or place > self._before:
            return False
        if self._seen is None or self._seen[0] != place.group:
            group = self.source.track.cached.groups.get(place.group)
            objects = {} if group is None else group.objects()
            self._seen = place.group, {key: item.payload for key, item in objects.items()}
        before = self._seen[1].get(place.object)
        if before is None:
            return False
        end = offset + len(data)
        if before[offset:end] != data or last != (end == len(before)):
            self._before = None  # it does not go on: it has begun anew, with the same numbers
            return False
        self._client.edge.relay.live.counters.duplicates += 1
        return True

    def _publish(self, place: Location, payload: bytes, now: float) -> None:
        group, object_id = place
        if self._group is not None and group != self._group:
            follows = group == self._group + 1 and not object_id
            self.end_group(now, ObjectStatus.END_OF_GROUP if follows else None)
        head = b""
        if self._group is None:
            self._streams += 1
            self._group, self._last_id = group, -1
            header = SubgroupHeader(self.source.track.alias, group, object_id, PRIORITY)
            head = encode_subgroup_header(header, DRAFT16)
        delta = object_id - self._last_id - 1
        self._last_id = object_id
        self._write(head + encode_object(delta, b"", payload), fin=False, now=now)

    def close(self, now: float, status: ObjectStatus | None) -> None:
        """Nothing more comes: an object that is not whole is none."""
        self._drop_parts()
        self.end_group(now, status)

    def end_group(self, now: float, status: ObjectStatus | None) -> None:
        """End the stream of the group, with what is known of the end."""
        if self._group is None:
            return
        data = b"" if status is None else encode_object(0, b"", b"", status)
        self._write(data, fin=True, now=now)
        self._group = None

    def _write(self, data: bytes, *, fin: bool, now: float) -> None:
        key = (self.stream.id, self._streams)
        track, ttl_us = self.source.track.hash, self.source.ttl_us
        relay = self._client.edge.relay
        relay.publish(self._client, track, key, data, fin, PRIORITY, ttl_us, now)

    # -- in datagrams ------------------------------------------------------------------------------

    def datagram(self, fragment: Fragment, terms: Terms, now: float) -> None:
        """A fragment in a datagram, in any order."""
        place = Location(fragment.group, fragment.object_id)
        if self._group is not None and place > Location(self._group, self._last_id):
            self.end_group(now, None)  # it began on its stream, and goes on in datagrams
        if self._is_known(place, fragment.offset, fragment.data, last=fragment.last):
            return
        track = self.source.track
        relay = self._client.edge.relay
        priority = moqt_priority(terms.priority)
        for part in recut(fragment, CARRIED_BYTES):
            data = encode_carried(track.alias, part, terms)
            relay.publish_datagram(self._client, track.hash, data, priority, now)
