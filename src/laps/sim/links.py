"""A simulated wire: what QUIC does between two relays, as far as they can tell.

A cable joins two nodes and has a lane for each direction; QUIC connections run over it, each with
an end at either node. Streams are reliable: a chunk that is lost comes a retransmission later, and
holds back what follows on its own stream only. So streams overtake each other, and chunks of one
stream never do. Datagrams are lost for good. Writes are cut at random places, and what waits
behind a loss arrives as one piece.

A cable that is cut tells nobody: what is sent waits, as QUIC would send it again, until the cable
heals or each end gives up on its own.
"""

from __future__ import annotations

import struct
from functools import partial
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from laps.infobase.nodes import SessionId
from laps.routing.terms import ORDINARY
from laps.sim.lanes import Lane

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.sim.clock import Clock
    from laps.sim.lanes import Conditions
    from laps.types import NodeId, PeerMode

# How long an answer to a probe may take beyond the round trip, as in `net`.
PROBE_S: Final = 1.0

# As `net/liveness.py`: a link that something depends on is suspect, and then dead,
SILENT_S: Final = 0.5
DEAD_S: Final = 1.0
# and the two ends of it notice up to this far apart.
SPREAD_S: Final = 0.3
# Others are closed by the idle timeout. It is short against QUIC's usual 30 s, so that a run of a
# minute sees many silent deaths.
IDLE_TIMEOUT_S: Final = 5.0

# More data than this waiting for a narrow cable is dropped, as an egress queue would.
QUEUE_S: Final = 1.0

# As on a path of the usual MTU.
DATAGRAM_BYTES: Final = 1200

# As net resets what it drops.
DROPPED: Final = 0

# QUIC's smoothing of round trip times.
SRTT_GAIN: Final = 0.125

# As every control message begins: protocol_version(1) | message_type(2) | message_length(4)
_HEADER: Final = struct.Struct(">BHI")


class Host(Protocol):
    """The node at one end of a link: it is told what arrives there."""

    node_id: NodeId
    passed: frozenset[NodeId]
    "The nodes that what it deals with now has passed, itself included: what it sends has too."

    is_frozen: bool
    "Whether its process stands still: it neither reads nor sends, and no time passes for it."

    @property
    def contact(self) -> str:
        """As others dial it, whatever its id is by now."""

    @property
    def is_up(self) -> bool:
        """Whether anybody answers there."""

    def wait(self, call: Callable[[], None]) -> None:
        """Make a call when the process goes on."""

    def next_link_id(self) -> SessionId:
        """An id larger than those before."""

    def link_opened(self, link: LinkEnd) -> None:
        """The handshake is over."""

    def link_data(self, link: LinkEnd, stream_id: int, pieces: list[bytes], fin: bool) -> None:
        """Bytes of a stream, after those before; one piece is read after the other."""

    def link_datagram(self, link: LinkEnd, data: bytes) -> None:
        """A datagram."""

    def link_reset(self, link: LinkEnd, stream_id: int, code: int) -> None:
        """The peer gave a stream up."""

    def link_needed(self, link: LinkEnd) -> bool:
        """Whether anything depends on a link."""

    def link_silent(self, link: LinkEnd, *, silent: bool) -> None:
        """Nothing is heard of the other end; or it is heard again."""

    def link_lost(self, data: bytes) -> None:
        """The wire has lost a datagram by itself, which a relay is not told."""

    def link_writable(self, link: LinkEnd) -> None:
        """There is room for control messages again."""

    def link_closed(self, link: LinkEnd, reason: str) -> None:
        """The connection is over, once and whoever ended it."""


class Cable:
    """The way between two nodes; lane 0 leads from its first node to its second."""

    def __init__(
        self,
        clock: Clock,
        there: Conditions,
        back: Conditions,
        *,
        extended: float = 0.0,
        control_bytes: float = inf,
    ) -> None:
        """`extended` is the share of cables whose two ends agree on `laps-x1`.

        `control_bytes` of control messages may be on their way, before a relay is asked to wait.
        """
        self.clock = clock
        self.control_bytes = control_bytes
        self._is_extended = bool(extended) and clock.rng.random() < extended
        self.lanes = (Lane(clock, there), Lane(clock, back))
        self.is_cut = False
        self.sides: tuple[NodeId, ...] = ()
        "The nodes that it joins, by their ids in the topology."
        self.ends: list[LinkEnd] = []
        "Of the connections that are not yet forgotten on both sides."
        self._cuts = 0

    @property
    def rtt_s(self) -> float:
        """A round trip without chance or queue."""
        there, back = self.lanes
        return there.conditions.delay_s + back.conditions.delay_s

    def cut(self) -> None:
        """Lose everything from now on, without a word to anybody."""
        self.is_cut = True
        self._cuts += 1
        cuts = self._cuts
        for end in self.ends:
            end.give_up_later(lambda: self.is_cut and self._cuts == cuts)

    def heal(self) -> None:
        """Carry again; what waited is sent again, unless its connection is over."""
        self.is_cut = False
        for end in list(self.ends):
            end.resume()

    def connect(self, side: int, hosts: tuple[Host, Host], mode: PeerMode) -> LinkEnd:
        """A connection whose handshake is over at `side`, and at the other side a flight later."""
        near = LinkEnd(self, self.lanes[side], hosts[side], mode, dialled=True)
        far = LinkEnd(self, self.lanes[1 - side], hosts[1 - side], mode, dialled=False)
        near.other, far.other = far, near
        near.extended = far.extended = self._is_extended
        self.ends += (near, far)
        near.open(self.clock.now)
        far.open(self.clock.now + self.lanes[side].flight_s())
        return near

    def forget(self, end: LinkEnd) -> None:
        """Drop a connection that is over on both sides."""
        if end.is_over and end.other.is_over and end in self.ends:
            self.ends.remove(end)
            self.ends.remove(end.other)


class Outgoing:
    """The sending half of a stream."""

    __slots__ = (
        "_is_new",
        "_patience_s",
        "is_gone",
        "link",
        "order",
        "over",
        "passed",
        "ready_at",
        "stream_id",
        "tail",
        "urgent",
    )

    def __init__(self, link: LinkEnd, stream_id: int, ttl_s: float, *, urgent: bool) -> None:
        self.over = False
        self.stream_id = stream_id
        self.urgent = urgent
        self.order = ORDINARY
        "The place of its class of service, for whoever looks."
        self.is_gone = False
        "The receiver heard of its reset: what is still under way is lost."
        self.ready_at = link.other.opened_at
        "When the last chunk so far can be read: none before the other end is open."
        self.passed = link.host.passed
        self._patience_s = min(ttl_s, QUEUE_S)
        self.link = link
        self.tail: _Chunk | None = None
        "The last chunk, until it is read."
        self._is_new = False
        "The last chunk began with the last write: nothing that is sent comes between."

    def reorder(self, order: int) -> None:
        """As `LinkStream.reorder`."""
        self.order = order

    def write(self, data: bytes | memoryview, now: float, fin: bool = False) -> bool:
        """As `OutStream.write`; it is the last, if it is `fin`."""
        link = self.link
        if self.over or not link.is_open:
            self.over = True
            return False
        size, lane = len(data), link.lane
        if not self.urgent:
            lane.traffic.stream_bytes += size
            if lane.busy_until and lane.busy_until - link.cable.clock.now > self._patience_s:
                lane.traffic.dropped_streams += 1
                self.reset(DROPPED)
                return False
        if fin:
            self._end()
        # One byte cannot be cut; whether others are is drawn here, as nothing is called as often.
        if size < 2 or link.random() >= lane.conditions.split:
            if link.cable.is_cut or link.held:
                link.held.append(partial(self.arrive, bytes(data), fin, False))
            else:
                self.arrive(bytes(data), fin, False)
            return True
        pieces = link.pieces_of(bytes(data))
        waits, last = link.cable.is_cut or link.held, len(pieces) - 1
        for index, piece in enumerate(pieces):
            if waits:
                link.held.append(partial(self.arrive, piece, fin and index == last, index > 0))
            else:
                self.arrive(piece, fin and index == last, index > 0)
        return True

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.finish`."""
        return self.write(data, now, fin=True)

    def reset(self, code: int, now: float = 0.0) -> None:
        """As `OutStream.reset`."""
        if self.over:
            return
        self._end()
        self.link.transmit_frame(self._receive_reset, code)

    def abort(self, code: int) -> None:
        """As `LinkStream.abort`: nothing waits here."""
        self.reset(code)

    def arrive(self, data: bytes, fin: bool, apart: bool) -> None:
        """Put a chunk on its way, to be read no earlier than those before."""
        link, tail = self.link, self.tail
        arrival = link.lane.arrival(len(data), self.urgent, True)
        if arrival > self.ready_at:
            self.ready_at = arrival
        elif tail is not None and (self._is_new or not apart):
            if apart:
                tail.pieces.append(data)
            else:
                tail.pieces[-1] += data
                self._is_new = False
            tail.fin = fin
            return
        if self.urgent:
            link.lane.traffic.arrives(self.ready_at)
        self._is_new = True
        self.tail = chunk = _Chunk(self, [data], fin)
        link.cable.clock.call_at(self.ready_at, chunk.read)

    def _receive_reset(self, code: int) -> None:
        self.is_gone = True
        other = self.link.other
        other.host.link_reset(other, self.stream_id, code)

    def _end(self) -> None:
        self.over = True
        self.link.outgoing.pop(self.stream_id, None)


class _Chunk(Struct):
    """Bytes of a stream that become readable at one moment, in the pieces they are read in.

    There is one for each event of a run, nearly: a struct is made in half the time.
    """

    stream: Outgoing
    pieces: list[bytes]
    fin: bool

    def read(self) -> None:
        """The other end reads it, unless its process stands still."""
        stream = self.stream
        end = stream.link.other
        host = end.host
        if host.is_frozen:
            host.wait(self.read)
            return
        if stream.tail is self:
            stream.tail = None
        if end.is_open and not stream.is_gone:
            end.passed = stream.passed
            size = sum(map(len, self.pieces)) if stream.urgent else 0
            host.link_data(end, stream.stream_id, self.pieces, self.fin)
            if size:
                stream.link.control_read(size)


class LinkEnd:
    """One end of a connection, as a relay sees it."""

    other: LinkEnd

    def __init__(
        self, cable: Cable, lane: Lane, host: Host, mode: PeerMode, *, dialled: bool
    ) -> None:
        self.id = SessionId(0)
        self.opened_at = 0.0
        self.dialled = dialled
        self.extended = False
        self.remote = self.certificate = ""
        self.expected: NodeId | None = None
        self.mode = mode
        self.host = host
        self.cable = cable
        self.lane = lane
        "The one that leads away from here."
        self.random = cable.clock.rng.random
        self.is_open = False
        self.is_over = False
        self.is_silent = False
        self.passed: frozenset[NodeId] = frozenset()
        "The nodes that what arrives now has passed."
        self.outgoing: dict[int, Outgoing] = {}
        self.on_close: Callable[[], None] | None = None
        "Told after the relay is."
        self.held: list[Callable[[], None]] = []
        "What is sent when the cable carries again, in this order."
        self._lost: list[bytes] = []
        "Datagrams that were sent while the cable was cut."
        self._streams = [0, 0]
        self._unread = 0
        "Bytes of control messages that the peer has not read."
        self.srtt_us = 0
        "As `Link`: what follows, in whole microseconds."
        self._srtt_s = 0.0
        self.measure()

    # -- as `Link` -------------------------------------------------------------------------------

    def open_control(self) -> int:
        """As `Link`."""
        return self._open(unidirectional=False).stream_id

    @property
    def control_room(self) -> float:
        """As `Link`."""
        return self.cable.control_bytes - self._unread

    def send_control(self, stream_id: int, data: bytes) -> None:
        """As `Link`."""
        stream = self.outgoing.get(stream_id)
        if stream is None:
            # The other half of a stream that the peer opened.
            stream = self.outgoing[stream_id] = Outgoing(self, stream_id, inf, urgent=True)
        if stream.write(data, self.cable.clock.now):
            self._count_control(data)
            self._unread += len(data)

    def control_read(self, count: int) -> None:
        """The peer has read so much of what was sent on control streams."""
        had_room = self.control_room > 0
        self._unread -= count
        if self.is_open and not had_room and self.control_room > 0:
            self.host.link_writable(self)

    @property
    def pressed(self) -> bool:
        """As `Link`: a simulated wire takes everything at once."""
        return False

    def pressed_for(self, order: int) -> bool:
        """As `Link`."""
        return False

    def crowded_for(self, order: int) -> bool:
        """As `Link`."""
        return False

    @property
    def sent_bytes(self) -> int:
        """As `Link`; nobody asks where nothing is pressed."""
        return 0

    def open_stream(self, priority: int, ttl_us: int, order: int = ORDINARY) -> Outgoing:
        """As `Link`; a simulated wire sends in the order of writing, whatever the priority."""
        self.lane.traffic.streams += 1
        stream = self._open(unidirectional=True, ttl_s=ttl_us / 1e6 if ttl_us else inf)
        stream.order = order
        return stream

    def when_sent(self, call: Callable[[], None]) -> None:
        """As `Link`."""
        call()

    def send_datagram(self, data: bytes, priority: int, order: int = ORDINARY) -> None:
        """As `Link`."""
        lane, traffic = self.lane, self.lane.traffic
        if not self.is_open:
            return
        traffic.datagrams += 1
        traffic.datagram_bytes += len(data)
        too_large = len(data) > DATAGRAM_BYTES
        is_cut = self.cable.is_cut
        if too_large or is_cut or lane.waiting_s > QUEUE_S or lane.loses():
            traffic.lost_datagrams += 1
            if is_cut:
                self._lost.append(data)
            elif not too_large:
                self.host.link_lost(data)
            return
        arrival = max(lane.arrival(len(data)), self.other.opened_at)
        self.cable.clock.at(arrival, self._receive_datagram, data, self.host.passed)

    def end_stream(self, stream_id: int, code: int) -> None:
        """As `Link`."""
        if (stream := self.outgoing.get(stream_id)) is not None:
            stream.reset(code)
        opened_here = stream_id & 1 != self.dialled
        if not (stream_id & 2 and opened_here):
            self.transmit_frame(self._receive_stop, stream_id, code)

    def probe(self) -> None:
        """As `Link`; only who is gone, or behind a cut, gives no answer."""

        def check() -> None:
            if self.is_open and not self.is_answered:
                self.end("no answer to a probe")

        self.cable.clock.after(PROBE_S + 2 * self.cable.rtt_s, check)

    def close(self, code: int, reason: str) -> None:
        """As `Link`."""
        if not self.is_open:
            return
        self.is_open = False
        clock, other = self.cable.clock, self.other
        clock.after(0, self._over, f"we closed it with {code}: {reason}")
        if not self.cable.is_cut:
            arrival = max(clock.now + self.lane.flight_s(), other.opened_at)
            clock.at(arrival, other.end, f"the peer closed it with {code}: {reason}")

    # -- how it begins and ends ------------------------------------------------------------------

    def open(self, time: float) -> None:
        """Tell the node of this link when its handshake is over."""
        self.opened_at = time
        self.cable.clock.at(time, self._opened)

    @property
    def is_answered(self) -> bool:
        """Whether anything comes from the other end when it is asked."""
        other = self.other
        return not (self.cable.is_cut or other.is_over or other.host.is_frozen)

    def _opened(self) -> None:
        if self.host.is_frozen:
            self.host.wait(self._opened)
        elif not self.is_over:
            self.id = self.host.next_link_id()
            self.is_open = True
            self.host.link_opened(self)

    def end(self, reason: str) -> None:
        """The connection is over, by what came from outside."""
        if self.host.is_frozen:
            self.host.wait(partial(self.end, reason))
            return
        self.is_open = False
        self._over(reason)

    def vanish(self, *, noticed: bool) -> None:
        """The node crashed: nobody here is told, and the peer at once or after silence."""
        self.is_open = False
        self.is_over = True
        clock, other = self.cable.clock, self.other
        if noticed:
            clock.at(clock.now + self.lane.flight_s(), other.end, "the peer knows it no more")
        else:
            other.give_up_later(lambda: True)
        self.cable.forget(self)

    def give_up_later(self, still: Callable[[], bool]) -> None:
        """Be suspect, and then end, if the silence lasts and something depends on it."""

        clock = self.cable.clock
        began, late = clock.now, SPREAD_S * clock.rng.random()

        def look(silent_s: float) -> None:
            if not still() or self.is_over:
                return
            if self.host.is_frozen:  # it counts the time that it was there itself
                clock.after(SILENT_S, look, silent_s)
                return
            needed = self.is_open and self.host.link_needed(self)
            if clock.now - began >= IDLE_TIMEOUT_S or (needed and silent_s >= DEAD_S):
                self.end(f"nothing was heard for {clock.now - began:.1f} s")
                return
            if needed and silent_s == SILENT_S:
                self.is_silent = True
                self.host.link_silent(self, silent=True)
            # One that is needed from now on is asked first.
            clock.after(SILENT_S, look, DEAD_S if needed else SILENT_S)

        clock.after(SILENT_S + late, look, SILENT_S)

    def doubt(self) -> None:
        """The relay avoids it until it has answered; if it does not, it is given up in time."""
        if not self.is_silent:
            self.is_silent = True
            self.cable.clock.after(self.cable.rtt_s, self._answer)

    def _answer(self) -> None:
        if self.host.is_frozen:
            self.host.wait(self._answer)
        elif self.is_silent and self.is_open and self.is_answered:
            self.is_silent = False
            self.host.link_silent(self, silent=False)

    def resume(self) -> None:
        """The other end can be heard again: send what waited, or learn that nobody is there."""
        if self.cable.is_cut:
            return
        if self.host.is_frozen:
            self.host.wait(self.resume)
            return
        held, self.held = self.held, []
        lost, self._lost = self._lost, []
        if self.is_open:
            for frame in held:  # ahead of what the relay sends when it is told
                frame()
        if self.is_open and not (self.is_silent or self.other.is_silent or self.other.is_over):
            for data in lost:  # nobody has noticed, as with any other loss
                self.host.link_lost(data)
        if self.other.host.is_frozen:
            if self.other.is_over:  # it cannot even say that it knows of none
                self.give_up_later(lambda: True)
            return
        if self.is_silent and self.is_open and not self.other.is_over:
            self.is_silent = False
            self.host.link_silent(self, silent=False)
        if self.other.is_over and not self.is_over:
            clock = self.cable.clock
            clock.after(self.cable.rtt_s, self.end, "the peer knows it no more")

    def _over(self, reason: str) -> None:
        if self.is_over:
            return
        self.is_over = True
        for stream in self.outgoing.values():
            stream.over = True
        self.outgoing.clear()
        self.host.link_closed(self, reason)
        if self.on_close is not None:
            self.on_close()
        self.cable.forget(self)

    # -- what goes over it -----------------------------------------------------------------------

    def measure(self) -> bool:
        """Take a sample of the round trip time; whether that changed anything."""
        there, back = self.cable.lanes
        noise, before = self.lane.conditions.noise, self._srtt_s
        sample = there.conditions.delay_s + back.conditions.delay_s
        if noise:
            sample *= 1 + (2 * noise * self.random() - noise)
        after = before + SRTT_GAIN * (sample - before) if before else sample
        if after == before:
            return False
        self._srtt_s = after
        self.srtt_us = round(after * 1e6)
        return True

    def pieces_of(self, data: bytes) -> list[bytes]:
        """The pieces in which a write arrives that is cut."""
        # As `randrange` would draw them, in half the time.
        below, size = self.cable.clock.below, len(data)
        places = {1 + below(size - 1) for _ in range(1 + below(3))}
        if len(places) == 1:
            (place,) = places
            return [data[:place], data[place:]]
        return [data[i:j] for i, j in pairwise((0, *sorted(places), size))]

    def transmit_frame(self, receive: Callable[..., None], *args: object) -> None:
        """Have something received at the other end that is reliable and in no order."""
        if not self.is_open:
            return
        if self.cable.is_cut:
            self.held.append(partial(self.transmit_frame, receive, *args))
            return

        def arrive() -> None:
            if self.other.host.is_frozen:
                self.other.host.wait(arrive)
            elif self.other.is_open:
                receive(*args)

        arrival = max(self.lane.arrival(0, urgent=True, reliable=True), self.other.opened_at)
        self.lane.traffic.arrives(arrival)
        self.cable.clock.at(arrival, arrive)

    def _open(self, *, unidirectional: bool, ttl_s: float = inf) -> Outgoing:
        number = self._streams[unidirectional]
        self._streams[unidirectional] += 1
        # RFC 9000 section 2.1: bit 0 says who opened it, bit 1 whether it goes one way only.
        stream_id = number << 2 | unidirectional << 1 | (not self.dialled)
        stream = Outgoing(self, stream_id, ttl_s, urgent=not unidirectional)
        self.outgoing[stream_id] = stream
        return stream

    def _receive_datagram(self, data: bytes, passed: frozenset[NodeId]) -> None:
        if self.other.host.is_frozen:
            self.other.host.wait(partial(self._receive_datagram, data, passed))
        elif self.other.is_open:
            self.other.passed = passed
            self.other.host.link_datagram(self.other, data)

    def _receive_stop(self, stream_id: int, code: int) -> None:
        if (stream := self.other.outgoing.get(stream_id)) is not None:
            stream.reset(code)  # as QUIC answers by itself

    def _count_control(self, data: bytes) -> None:
        traffic = self.lane.traffic
        traffic.control_bytes += len(data)
        traffic.last_control_at = self.cable.clock.now
        messages, sizes = traffic.control_messages, traffic.bytes_by_type
        offset, end = 0, len(data) - _HEADER.size
        while offset <= end:
            _, kind, size = _HEADER.unpack_from(data, offset)
            messages[kind] += 1
            sizes[kind] += _HEADER.size + size
            traffic.last_control = kind
            offset += _HEADER.size + size
