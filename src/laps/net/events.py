"""What a qh3 core has to tell, put together by stream, and not asked for where that is dangerous.

Streams take turns packet by packet, and the core tells of each piece. Who passes bytes on to many
pays for each piece as many times: so pieces of a stream that have come already are made one.

The danger: a core prepares up to 16 frames ahead, and keeps those that the congestion window has no
room for. When one of them repeats what only seemed lost, the acknowledgement of the original may
end its stream. The core forgets a stream when it is asked for the event that says so; and when it
then comes to the frame, it fails for good with "reserved stream is missing". So what comes while
frames may wait is not asked for until as many packets have left. A probe, sent where nothing was
acknowledged for long, prepares a frame of each stream that has something to send.

And a core remembers the last 1,024 streams that ended. When the acknowledgement of one is lost and
it is repeated after so many others, the core takes it for a new one: all of it would come twice. So
what has ended is remembered here, in ranges.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from laps.net.lost_ends import END_LOST, LostEnds
from laps.ranges import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from qh3._hazmat import QuicConnectionCore

Event = tuple[Any, ...]
"Its kind, and what belongs to that."

# How much is put together before it is handed on.
GATHER_BYTES: Final = 256 * 1024

# Events that have to wait until what came before them is handed on.
ORDERED: Final = frozenset(
    {"datagram", "stream_reset", "peer_closed", "protocol_error", "connection_terminated"}
)

# How many frames a core prepares ahead, unless it probes.
PREPARED_FRAMES: Final = 16

# No packet is larger: with so much room in the window, no frame waits for it.
MAX_PACKET_BYTES: Final = 65_535


class Events:
    """The events of one core, in the order in which they are to be handed on."""

    def __init__(self, at_once: Callable[[Event], None]) -> None:
        """`at_once` is told of what needs no order, while the rest is being put together."""
        self.late: Event | None = None
        "An event that comes behind the streams gathered."
        self.ends = LostEnds()
        self._at_once = at_once
        self.repeated_streams = 0
        "Streams that came once more after their end, and were passed over."
        self._reading: set[int] = set()
        "Streams that have begun and not ended."
        self._over = Numbers(), Numbers(), Numbers(), Numbers()
        "Streams that have ended, by the four kinds of ids: as many ranges as others are open."
        self._streams: dict[int, list[bytes]] = {}
        self._ended: set[int] = set()
        self._frames_wait = False
        self._probes = 0
        "How many the core had sent when no frame waited."
        self._packets = 0
        "How many have been sent."
        self._came = self._taken = self._safe = 0
        "How many events the core had, how many were taken, and how many of them may be."
        self._held: deque[tuple[int, int]] = deque()
        "Counts of packets after which so many events are safe."

    # -- what makes taking dangerous ---------------------------------------------------------------

    def received(self, core: QuicConnectionCore, number: int) -> None:
        """The core has taken packets, and has so many events more."""
        before = self._came
        self._came += number
        if self._frames_wait and number and (core.loss_total or core.pto_total):
            if not self._held:
                self._safe = before
            frames = PREPARED_FRAMES
            if core.pto_total != self._probes:
                frames += sum(core.active_local_streams)
            self._held.append((self._packets + frames, self._came))

    def sent(self, core: QuicConnectionCore, packets: int, *, all_sent: bool) -> None:
        """The core has given packets, and says that it has no more, or was not asked."""
        self._packets += packets
        self._frames_wait = not all_sent or _is_full(core)
        if not self._frames_wait:
            self._probes = core.pto_total

    def release(self, core: QuicConnectionCore) -> bool:
        """After sending: whether events may be taken now that could not be before."""
        held = self._held
        if not held:
            return False
        if not self._frames_wait or core.state != "connected":
            held.clear()
            return True
        before = self._safe
        while held and held[0][0] <= self._packets:
            self._safe = held.popleft()[1]
        return not held or self._safe != before

    def lost_ends(self, core: QuicConnectionCore, now: float) -> list[int]:
        """Before sending: the streams whose end will not be sent again."""
        return self.ends.find(core, now, all_sent=not self._frames_wait)

    # -- taking ------------------------------------------------------------------------------------

    def gather(self, core: QuicConnectionCore) -> bool:  # noqa: C901 - every chunk comes by here
        """Put together what came, up to an event that has to wait for it; False if nothing did."""
        if self._streams or self.late is not None:
            return True
        next_event, streams, size, taken = core.next_event, self._streams, 0, 0
        reading, over = self._reading, self._over
        most = self._safe - self._taken if self._held else -1
        while size < GATHER_BYTES and taken != most:
            event = next_event()
            if event is None:
                self._taken, taken = self._came, 0
                break
            taken += 1
            kind = event[0]
            if kind == "stream_data":
                _, stream_id, data, fin = event
                if fin:
                    if not over[stream_id & 3].add(stream_id >> 2):
                        self.repeated_streams += 1
                        continue
                    reading.discard(stream_id)
                    self._ended.add(stream_id)
                elif stream_id not in reading:
                    if stream_id >> 2 in over[stream_id & 3]:
                        continue
                    reading.add(stream_id)
                if (chunks := streams.get(stream_id)) is None:
                    streams[stream_id] = [data]
                else:
                    chunks.append(data)
                size += len(data)
            elif kind in ORDERED:
                if kind == "stream_reset":
                    if self._is_repeated(event[1]):
                        continue
                    self.ends.over(event[1])
                    if event[2] == END_LOST:
                        streams.setdefault(event[1], [b""])
                        self._ended.add(event[1])
                        continue
                self.late = event
                break
            elif kind == "stream_finished":
                self.ends.over(event[1])
            else:
                self._at_once(event)
        self._taken += taken
        return bool(streams) or self.late is not None

    def _is_repeated(self, stream_id: int) -> bool:
        """A stream ends: whether it had ended before."""
        if not self._over[stream_id & 3].add(stream_id >> 2):
            self.repeated_streams += 1
            return True
        self._reading.discard(stream_id)
        return False

    def next_stream(self) -> tuple[int, bytes, bool] | None:
        """What came of a stream, and whether it ends with it; those that came first go first."""
        if not self._streams:
            return None
        stream_id = next(iter(self._streams))
        chunks = self._streams.pop(stream_id)
        fin = stream_id in self._ended
        if fin:
            self._ended.discard(stream_id)
        return stream_id, chunks[0] if len(chunks) == 1 else b"".join(chunks), fin


def _is_full(core: QuicConnectionCore) -> bool:
    """Whether the congestion window has no room for a packet."""
    room = core.congestion_window - core.bytes_in_flight
    return room < MAX_PACKET_BYTES and bool(room < core.active_path[5])
