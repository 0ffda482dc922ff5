"""A stream of a subgroup that another source is sending already: held in readiness.

Two publishers of a track, or two ways to one, are two sources of the same objects. The first stream
of a subgroup counts. What the other has beside it is held until it is known whether the first has
it too:

    before the last whole object of the first     it is sent apart, if nobody has brought it
    after it                                      it waits; where the first breaks off or ends, the
                                                  rest goes on as a stream of its own

Nothing is looked at while data flows: half a second is little beside what a group lasts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from laps.tracks.mending import Rest, place_in
from laps.tracks.streams import SOURCE_LOST, IncomingStream, StreamOwner
from laps.wire.buffer import encode_varint
from laps.wire.moqt.boundaries import BoundaryScanner
from laps.wire.moqt.codes import MoqtViolation
from laps.wire.moqt.data import encode_subgroup_header
from laps.wire.moqt.dialect import BETWEEN_RELAYS

if TYPE_CHECKING:
    from laps.tracks.cached_stream import CachedStream
    from laps.wire.moqt.boundaries import Boundary

# What is held is looked through this often while more arrives,
LOOK_S: Final = 0.5
# and beyond this much: what the first stream has brought as well is let go.
HELD_BYTES: Final = 256 * 1024
# Who is so far ahead of the first is no second source of the same, and is given up.
MAX_BYTES: Final = 8 * 1024 * 1024


class StandbyOwner(StreamOwner, Protocol):
    """The track that a stream is of."""

    def kept_of(self, group: int, subgroup: int) -> list[CachedStream]:
        """What is kept of a subgroup, from whatever source."""


class Standby:
    """An `OutStream` that holds what it is given until it is needed."""

    def __init__(
        self, owner: StandbyOwner, stream: IncomingStream, first: IncomingStream | None, now: float
    ) -> None:
        """`stream` is held, and `first` the one that counts; None if that has ended."""
        self.over = False
        self._owner = owner
        self._stream = stream
        self._first = first
        self._header = replace(stream.header, subgroup=stream.subgroup)
        self._scanner = BoundaryScanner(BETWEEN_RELAYS, stream.header.has_extensions)
        self._held = bytearray()
        self._base = 0
        "Where in the stream what is held begins."
        self._objects: deque[Boundary] = deque()
        "Those that are held, as far as was looked."
        self._look_at = now + LOOK_S
        self._fin = False
        self._compared = first is not None
        "Whether its first object was looked at, which tells if it is the same as what has ended."
        self._rest: IncomingStream | Rest | None = None
        "What it goes on as, from the first object that nobody has brought."

    @property
    def size(self) -> int:
        """How much is held."""
        return len(self._held)

    def write(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.write`."""
        if self._rest is not None:
            self._rest.write(data, now)
            self.over = self._rest.over
        elif not self.over:
            self._held += data
            if self._leads or len(self._held) > HELD_BYTES or now >= self._look_at:
                self.look(now)
        return not self.over

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.finish`."""
        self._fin = True
        if self._rest is not None:
            self._rest.finish(data, now)
            self.over = True
        else:
            self.write(data, now)
        return not self.over

    def reset(self, code: int, now: float) -> None:
        """As `OutStream.reset`: its own source has given it up."""
        if self._rest is not None and not self._rest.over:
            self._rest.reset(code, now)
        self._give_up()

    def take_over(self, now: float) -> None:
        """The first stream brings nothing more: go on after its last whole object."""
        if not self.over and self._rest is None:
            self.look(now)
            self._first = None
            self.look(now)

    @property
    def _leads(self) -> bool:
        """Whether nothing more comes of the first, or not from where it came."""
        return self._first is None or self._first.is_broken

    def _give_up(self) -> None:
        self.over = True
        self._held.clear()
        self._objects.clear()

    def look(self, now: float) -> None:
        """Let go of what was brought by others, and send what was not."""
        if not self.over and self._rest is None:
            self._look(now)

    def _look(self, now: float) -> None:
        self._look_at = now + LOOK_S
        scanner = self._scanner
        try:
            self._objects += scanner.feed(bytes(self._held[scanner.offset - self._base :]))
        except MoqtViolation:
            self._give_up()
            return
        kept = self._owner.kept_of(self._header.group, self._stream.subgroup)
        if not self._compared:
            if not scanner.complete_objects and len(self._held) <= HELD_BYTES:
                return
            self._compared = True
            first = memoryview(bytes(self._held[: self._objects[0][4]] if self._objects else b""))
            if any(it.contradicts(self._header, first) for it in kept):
                self._give_up()
                return
        seen, missing = self._seen_id(kept), bytearray()
        last, end = -1, min((it.end_id for it in kept if it.end_id is not None), default=None)
        while self._objects and (
            self._objects[0][0] <= seen or (end is not None and self._objects[0][0] >= end)
        ):
            object_id, _, id_end, _, object_end, _ = self._objects[0]
            if (end is None or object_id < end) and not any(it.has(object_id) for it in kept):
                if object_end > scanner.offset:
                    break  # not whole yet
                after_id = self._held[id_end - self._base : object_end - self._base]
                missing += encode_varint(object_id - last - 1) + after_id
                last = object_id
            self._objects.popleft()
        if missing:
            self._send_apart(missing, now)
        if self._leads and self._objects and self._objects[0][0] > seen:
            self._lead(now)
            return
        self._let_go()
        if self._fin and self._first is not None and self._first.is_broken:
            self._end(self._first, now)
        if len(self._held) > MAX_BYTES or (self._fin and self._first is None):
            self._give_up()

    def _seen_id(self, kept: list[CachedStream]) -> int:
        """Up to which object it is known what the others have brought."""
        if self._first is not None:
            cached = self._first.cached
            return -1 if cached is None else cached.scan().complete_id
        return max((it.scan().complete_id for it in kept), default=-1)

    def _let_go(self) -> None:
        """Nothing is held before the first object that waits."""
        scanner = self._scanner
        if self._objects:
            upto = self._objects[0][1]
        else:
            upto = scanner.next_object_offset if scanner.payload_end is None else scanner.offset
        del self._held[: upto - self._base]
        self._base = upto

    def _send_apart(self, objects: bytearray, now: float) -> None:
        """Objects that the first has left out, on a stream of their own.

        It ends at once, so that it is all there for a late joiner. It does not say where its group
        ends.
        """
        part = self._made()
        part.is_part = True
        header = replace(self._header, end_of_group=False)
        part.finish(encode_subgroup_header(header, BETWEEN_RELAYS) + objects, now)

    def _lead(self, now: float) -> None:
        """What is held comes next."""
        if self._first is None:
            self._go_on(now)
        elif not self._mend(self._first, now):
            self._first.close(SOURCE_LOST, now)  # and then it is asked to take over

    def _go_on(self, now: float) -> None:
        """All from here on is of this stream alone."""
        object_id, _, id_end, *_ = self._objects[0]
        held = bytes(self._held[id_end - self._base :])
        self._held.clear()
        self._objects.clear()
        self._rest = self._made()
        self._rest.is_rest = True
        head = encode_subgroup_header(self._header, BETWEEN_RELAYS)
        whole = head + encode_varint(object_id) + held
        if self._fin:
            self._rest.finish(whole, now)
            self.over = True
        else:
            self._rest.write(whole, now)

    def _mend(self, broken: IncomingStream, now: float) -> bool:
        """Have the first go on with what is held; False if the two do not fit."""
        out = place_in(broken, self._stream)
        if out is None:
            return False
        object_id, _, id_end, *_ = self._objects[0]
        rest = encode_varint(object_id - out.last_id - 1) + self._held[id_end - self._base :]
        if not out.fits(rest):
            return False
        self._rest = out
        broken.go_on_from(self._stream.source)
        self._held.clear()
        self._objects.clear()
        if self._fin:
            self._rest.finish(rest, now)
            self.over = True
        else:
            self._rest.write(rest, now)
        return True

    def _end(self, broken: IncomingStream, now: float) -> None:
        """Have the first end, if all that it lacks is the end."""
        out = place_in(broken, self._stream)
        if out is not None and out.last_id == self._scanner.complete_id:
            broken.go_on_from(self._stream.source)
            out.finish(b"", now)
            self._give_up()

    def _made(self) -> IncomingStream:
        it = self._stream
        return IncomingStream(self._owner, it.source, it.priority, it.ttl_us, it.exclude)
