"""One QUIC connection without sockets or clocks: qh3's engine, with what it lacks mended.

qh3 is a Rust core behind a Python face. The face is kept for the TLS handshake; once that is
over, packets, events and streams go straight to and from the core. Everything here leans on
private names of exactly qh3 2.1.0, which is why the version is pinned and why all of it stands
in this file, `events.py`, `handshake.py` and `lost_ends.py`. What is mended, each with a test of
its own in `tests/unit/net/test_engine.py`:

- a client with a zero-length connection id (Chromium, always) fails the handshake: `handshake.Face`
- stream limits are fixed at 100 and 103: `handshake.Face`, `handshake.Bridge`
- opening a stream past the peer's limit breaks the counters: `open_stream`
- writes are never refused: `write`
- the receive window opens by itself: `pause_reading`
- a datagram larger than a packet wedges the connection for good: `send_datagram`
- datagrams ignore the congestion window: `send_datagram`
- the code of an application's close is not told apart from a transport error: `_deliver_rare`
- no common ALPN is reported as a handshake failure, not as what it is: `_receive_crypto`
- hostile handshake bytes make TLS raise, and even panic, in the caller: `_receive_crypto`
- padding after a client's first packet (picoquic, aioquic) is not counted, so that the answer is
  too short for a client to take (RFC 9000 sections 8.1, 14.1): `handshake.AddressLimit`, `transmit`
- a stream that ends while its repetition waits breaks the connection: `events.Events`
- a stream that is repeated after 1,024 others have ended comes twice: `events.Events`
- the end of a stream is not repeated where the data before it was lost as well: `lost_ends`
- the face spends a third of the sending time in wrappers and log hooks: `transmit`, `receive`

The order in which to pump it: `receive` or `handle_timer`, then `transmit` until it returns
nothing, then ask `timer`.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from qh3.quic import events
from qh3.quic.packet import QuicErrorCode, QuicFrameType
from qh3.quic.tls_bridge import QuicTlsBridgeError

from laps.errors import (
    ConnectionClosed,
    DatagramTooLarge,
    RemoteProtocolError,
    SendBufferFull,
    StreamLimitReached,
)
from laps.names import visible
from laps.net import reset
from laps.net.events import Event, Events
from laps.net.handshake import Address, AddressLimit, Face
from laps.net.lost_ends import END_LOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from qh3._hazmat import QuicConnectionCore
    from qh3.quic.configuration import QuicConfiguration

    from laps.config import QuicConfig
    from laps.net.reset import Resets

log = logging.getLogger(__name__)

BytesLike = bytes | bytearray | memoryview

# Our own ids are all of one length, so that a short header, which does not say how long its id
# is, can be routed. Eight bytes is what qh3 issues for spare ids of a core that began with eight.
CONNECTION_ID_BYTES: Final = 8

# The most that header (1), longest peer connection id (20), packet number (4), seal (16), frame
# type (1) and frame length (2) can take from a packet that carries one DATAGRAM frame.
DATAGRAM_OVERHEAD_BYTES: Final = 44

# A close reason travels in one packet together with everything else in it.
MAX_REASON_BYTES: Final = 512

# What a reader that is paused may be sent beyond its flow control window before packets are
# dropped: DATAGRAM frames and frame headers count against no window.
PAUSED_SLACK_BYTES: Final = 1 << 20

# RFC 9001 section 8.1: what a server answers when no ALPN is common.
NO_APPLICATION_PROTOCOL: Final = QuicErrorCode.CRYPTO_ERROR + 120


@dataclass(frozen=True, slots=True)
class Stats:
    """What the transport knows about the path; the core's own figures, unsmoothed by us."""

    srtt_us: int
    latest_rtt_us: int
    lost_packets: int
    probe_timeouts: int
    congestion_window_bytes: int
    in_flight_bytes: int
    sent_bytes: int
    received_bytes: int
    udp_payload_bytes: int
    sent_packets: int = 0


class Receiver(Protocol):
    """What a connection tells its user, who may answer by raising a RemoteProtocolError.

    That closes the connection with the error's code.
    """

    def stream_data(self, stream_id: int, data: bytes, fin: bool) -> None:
        """Bytes of a stream, in order; `fin` with the last ones."""

    def stream_reset(self, stream_id: int, code: int) -> None:
        """The peer gave up sending on the stream."""

    def stop_sending(self, stream_id: int, code: int) -> None:
        """The peer no longer reads the stream; the engine has reset it already."""

    def datagram(self, data: bytes) -> None:
        """One DATAGRAM frame."""

    def writable(self) -> None:
        """There is the room, or the stream to open, that a refusal or `wake_below` asked for."""

    def closed(self, close: ConnectionClosed) -> None:
        """The connection is over; nothing else follows. Called exactly once."""


def _never(_: object) -> NoReturn:
    raise AssertionError("a connection that is closed has nothing to tell")


class Engine:
    """A QUIC connection: datagrams in, calls on its receiver out; writes in, datagrams out."""

    def __init__(
        self,
        configuration: QuicConfiguration,
        limits: QuicConfig,
        completed: Callable[[str], Receiver],
        *,
        original_destination_cid: bytes | None = None,
        retry_source_cid: bytes | None = None,
        client_cid: bytes | None = None,
        resets: Resets | None = None,
    ) -> None:
        """`completed` is called with the ALPN when the handshake is over, and names the receiver.

        A server also says which id the client first sent to, how the client calls itself, and
        whose tokens it gives out for stateless resets.
        """
        self.limits = limits
        self.receiver: Receiver | None = None
        self.alpn = ""
        self.close_state: ConnectionClosed | None = None
        self.terminated = False
        self.issued_cids: list[bytes] = []
        self.retired_cids: list[bytes] = []
        self.dropped_packets = 0
        self.sent_packets = 0
        self._face = Face(
            configuration,
            limits,
            self._drain,
            original_destination_cid,
            retry_source_cid,
            nameless_client=client_cid == b"",
            resets=resets,
        )
        self._limit = None if self._face.address_proved else AddressLimit()
        self._completed = completed
        self._core: QuicConnectionCore | None = None  # the face's, once the handshake is over
        self._alpn_offered = bool(configuration.alpn_protocols)
        self._held: tuple[bytes, Address] | None = None
        self._paused = False
        self._paused_bytes = 0
        self._delivering = False
        self._events = Events(self._deliver_rare)
        self._unsent: set[int] = set()
        self._buffered = 0
        self._wake_below = -1
        self._datagram_budget: int | None = None
        self._datagram_limit = 0

    @property
    def cid(self) -> bytes:
        """The id the peer addresses us by, to begin with."""
        return self._face.host_cid

    @property
    def established(self) -> bool:
        """Whether the handshake is over and the connection not."""
        return self._core is not None and self.close_state is None

    @property
    def authenticated(self) -> bool:
        """Whether any packet so far was sealed with the right keys."""
        core = self._face.core
        return core is not None and core.received_authenticated_packet

    def peer_certificate(self) -> bytes | None:
        """The certificate the peer showed, as DER."""
        certificate = self._face.get_peercert()
        return None if certificate is None else certificate.public_bytes()

    @property
    def peer_window_bytes(self) -> int:
        """How much the peer let be sent ahead of what it reads when the connection began."""
        return self._face.peer_window_bytes

    # -- packets ---------------------------------------------------------------------------------

    def connect(self, addr: Address, now: float) -> None:
        """Begin the handshake as a client."""
        self._face.connect(addr, now)

    def receive(self, datagrams: list[bytes], addr: Address, now: float) -> None:
        """Take UDP datagrams that came from one address and tell the receiver what they bring."""
        if self._paused:
            self._paused_bytes += sum(map(len, datagrams))
            if self._paused_bytes > self.limits.connection_window_bytes + PAUSED_SLACK_BYTES:
                self.dropped_packets += len(datagrams)
                return
        core = self._core
        try:
            if core is None:
                for data in datagrams:
                    self._receive_in_handshake(data, addr, now)
                return
            report = core.receive_many_datagrams(datagrams, addr, now)
            self._events.received(core, report[5])
        except BaseException as error:
            self._fail("receiving packets", error)
        self._drain()

    def transmit(self, now: float, most: int) -> tuple[list[bytes], Address] | None:
        """Up to `most` datagrams for one address; None when there is nothing to send now."""
        core = self._core or self._face.core
        if core is None or self.terminated:
            return None
        self._datagram_budget = None
        if self._events.ends and self.close_state is None:
            for stream_id in self._events.lost_ends(core, now):
                self.reset_stream(stream_id, END_LOST)
        poll = core.poll_transmit
        try:
            packet = self._next_held() or poll(now)
            if packet is None or not self._may_send(packet):
                self._held = packet
                self._events.sent(core, 0, all_sent=packet is None)
                return None
            datagrams, addr = [packet[0]], packet[1]
            for _ in range(most - 1):
                if (packet := poll(now)) is None:
                    break
                if packet[1] != addr or not self._may_send(packet):
                    self._held = packet  # a path being validated, or the address's limit
                    break
                datagrams.append(packet[0])
            self.sent_packets += len(datagrams)
            self._events.sent(core, len(datagrams), all_sent=packet is None)
        except BaseException as error:
            self._fail("building a packet", error)
            return None
        return datagrams, addr

    def _receive_in_handshake(self, data: bytes, addr: Address, now: float) -> None:
        if self._limit is not None:
            self._limit.received(addr, len(data))
        self._face.receive_datagram(data, addr, now)
        if self._face.address_proved:
            self._limit = None

    def _next_held(self) -> tuple[bytes, Address] | None:
        """A packet that could not be sent before, unless there is a better use for the room."""
        held, self._held = self._held, None
        # What tells the client that it is over may be small enough to be sent all the same.
        return None if self._limit is not None and self.close_state is not None else held

    def _may_send(self, packet: tuple[bytes, Address]) -> bool:
        return self._limit is None or self._limit.take(packet[1], len(packet[0]))

    def timer(self) -> float | None:
        """When `handle_timer` wants to be called."""
        core = self._core or self._face.core
        if core is None or self.terminated or self._waits_for_room():
            return None
        timer, due = core.get_timer(), self._events.ends.due
        if timer is None or due is None:
            return due if timer is None else timer[1]
        return min(timer[1], due)

    def _waits_for_room(self) -> bool:
        """Whether a packet waits until more bytes come from an address without proof.

        Probing then is of no use, and each probe would double the time to the next one. What comes
        makes room, and a timer that fell due in between is served at once (RFC 9002, 6.2.2.1).
        """
        return self._limit is not None and self._held is not None and self.close_state is None

    def handle_timer(self, now: float) -> None:
        """Do what has fallen due: acknowledgements, probes, the idle timeout."""
        core = self._core or self._face.core
        if core is None or self.terminated:
            return
        try:
            core.handle_timer(now)
        except BaseException as error:
            self._fail("serving a timer", error)
        self._drain()

    # -- streams and datagrams -------------------------------------------------------------------

    def open_stream(self, *, unidirectional: bool) -> int:
        """A new stream's id. StreamLimitReached is followed by `writable` when there is one."""
        core = self._living_core()
        bidi_limit, uni_limit, bidi_opened, uni_opened = core.stream_limits
        limit, opened = (uni_limit, uni_opened) if unidirectional else (bidi_limit, bidi_opened)
        if opened >= limit:
            self.wake_below(self.limits.send_buffer_bytes)
            kind = "unidirectional" if unidirectional else "bidirectional"
            raise StreamLimitReached(f"the peer allows {limit} {kind} streams and all are used")
        try:
            return core.open_stream(unidirectional)
        except RuntimeError:
            raise _closing() from None

    def write(self, stream_id: int, data: BytesLike, *, fin: bool = False) -> bool:
        """Queue bytes on a stream; False if the stream is over.

        The bytes are copied by QUIC before this returns. SendBufferFull is followed by `writable`.
        """
        core = self._living_core()
        size = len(data) if isinstance(data, bytes) else memoryview(data).nbytes
        if size and self._buffered + size > self.limits.send_buffer_bytes and self._buffered:
            self.wake_below(self.limits.send_buffer_bytes // 2)
            raise SendBufferFull(
                f"{self._buffered} bytes wait for the network already: the limit is "
                f"{self.limits.send_buffer_bytes}"
            )
        try:
            core.send_stream(stream_id, data, fin)
        except (ValueError, RuntimeError):
            return False  # the stream is over, or the peer's close is among what is being read
        if size:
            self._unsent.add(stream_id)
            self._buffered += size
        if fin:
            self._events.ends.written(stream_id, core)
        return True

    def reset_stream(self, stream_id: int, code: int) -> None:
        """Give up sending on a stream; nothing happens if it is over already."""
        self._events.ends.over(stream_id)
        with suppress(ValueError, RuntimeError):
            self._living_core().reset_stream(stream_id, code)

    def stop_stream(self, stream_id: int, code: int) -> None:
        """Ask the peer to stop sending on a stream; nothing happens if it has ended."""
        with suppress(ValueError, RuntimeError):
            self._living_core().stop_sending(stream_id, code)

    @property
    def datagram_limit_bytes(self) -> int:
        """The largest payload `send_datagram` takes on this path; 0 if the peer takes none."""
        core = self._living_core()
        path = core.active_path[5] - DATAGRAM_OVERHEAD_BYTES
        peer = self._face.peer_datagram_bytes - 3  # frame type and length
        return max(0, min(path, peer))

    def send_datagram(self, data: bytes) -> bool:
        """Queue a DATAGRAM frame; False if the congestion window has no room for it now."""
        core = self._living_core()
        if self._datagram_budget is None:
            self._datagram_limit = self.datagram_limit_bytes
            in_flight = core.bytes_in_flight
            # With nothing in flight no acknowledgement will come to open the window.
            floor = 0 if in_flight else self._datagram_limit + DATAGRAM_OVERHEAD_BYTES
            self._datagram_budget = max(core.congestion_window - in_flight, floor)
        if len(data) > self._datagram_limit:
            raise DatagramTooLarge(
                f"a datagram of {len(data)} bytes does not fit: "
                + (
                    f"this path carries {self._datagram_limit}"
                    if self._datagram_limit
                    else "the peer takes no datagrams"
                )
            )
        cost = len(data) + DATAGRAM_OVERHEAD_BYTES
        if cost > self._datagram_budget:
            self.wake_below(self.limits.send_buffer_bytes)
            return False
        self._datagram_budget -= cost
        try:
            core.send_datagram(data)
        except RuntimeError:
            raise _closing() from None
        return True

    def ping(self) -> None:
        """Make the peer answer, so that neither side takes silence for death."""
        self._living_core().send_ping(0)

    # -- bounds ----------------------------------------------------------------------------------

    @property
    def buffered_bytes(self) -> int:
        """Stream bytes handed to QUIC and not yet sent once, as of the last `settle`."""
        return self._buffered

    def settle(self) -> None:
        """After sending: find out what is still unsent, and tell a refused writer of new room."""
        core = self._core
        if core is None:
            return
        if self._unsent:
            size_of, total, unsent = core.get_send_buffer_size, 0, set()
            for stream_id in self._unsent:
                if size := size_of(stream_id):
                    total += size
                    unsent.add(stream_id)
            self._unsent = unsent
            self._buffered = total
        if self._events.release(core):
            self._drain()
        if self._buffered <= self._wake_below:
            self._wake()

    def wake_below(self, buffered_bytes: int) -> None:
        """Call the receiver's `writable`, once, when no more than this waits to be sent."""
        self._wake_below = max(self._wake_below, buffered_bytes)

    def _wake(self) -> None:
        self._wake_below = -1
        if self.receiver is not None and self.close_state is None:
            self._tell(self.receiver.writable)

    def pause_reading(self) -> None:
        """Leave what arrives unread: the peer's windows close and it has to wait."""
        if self.established:
            self._paused = True

    def resume_reading(self) -> None:
        """Read on, beginning with what was left unread."""
        self._paused = False
        self._paused_bytes = 0
        self._drain()

    @property
    def reading_paused(self) -> bool:
        """Whether events are being left unread."""
        return self._paused

    def stats(self) -> Stats:
        """What the transport knows about the path."""
        core = self._core or self._face.core
        if core is None:
            return Stats(0, 0, 0, 0, 0, 0, 0, 0, 0)
        path = core.active_path
        return Stats(
            srtt_us=round((core.smoothed_rtt or 0.0) * 1e6),
            latest_rtt_us=round((core.latest_rtt or 0.0) * 1e6),
            lost_packets=core.loss_total,
            probe_timeouts=core.pto_total,
            congestion_window_bytes=core.congestion_window,
            in_flight_bytes=core.bytes_in_flight,
            sent_bytes=path[3],
            received_bytes=path[4],
            udp_payload_bytes=path[5],
            sent_packets=self.sent_packets,
        )

    @property
    def carried_per_s(self) -> float:
        """How many bytes go out in a second, about: a congestion window each round trip."""
        core = self._core or self._face.core
        if core is None or not core.smoothed_rtt:
            return inf
        return float(core.congestion_window / core.smoothed_rtt)

    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received, as `stats` has them and for a fifth of what those take."""
        core = self._core or self._face.core
        if core is None:
            return 0, 0
        path = core.active_path
        return path[3], path[4]

    # -- the end ---------------------------------------------------------------------------------

    def close(self, code: int, reason: str, *, application: bool = True) -> None:
        """End the connection, telling the peer why."""
        if self.close_state is not None:
            return
        core = self._core or self._face.core
        text = reason.encode()[:MAX_REASON_BYTES]
        if core is None:
            self.terminated = True
        else:
            with suppress(RuntimeError, ValueError):
                core.close(code, None if application else int(QuicFrameType.PADDING), text)
        self._ended(ConnectionClosed(code, reason, application=application, by_peer=False))

    @property
    def peer_reset_token(self) -> bytes | None:
        """The end of a datagram by which the peer says that it knows the connection no more."""
        return self._face.peer_reset_token

    def receive_reset(self) -> None:
        """Such a datagram came: it is over at once, and nothing more is sent."""
        self.terminated = True
        self._ended(ConnectionClosed(0, reset.REASON, application=False, by_peer=True))

    def release(self) -> None:
        """Let go of QUIC, TLS and the receiver, once nothing is sent or received any more.

        Each of them refers back to the engine. Without this they would stay in memory until
        Python's collector looks at everything there is, which is rare.
        """
        self._core = self.receiver = self._held = None
        self._completed = _never
        self._events = Events(_never)
        self._face.release()

    def _fail(self, doing: str, error: BaseException) -> None:
        """The core failed, which its users never see: this connection ends, and no other.

        Nothing more is asked of the core. A Rust panic comes as a BaseException and leaves it
        locked for good, so that even closing it would panic.
        """
        _reraise_unless_of_qh3(error)
        log.error("QUIC engine failed %s: %s", doing, error)
        self.terminated = True
        code = int(QuicErrorCode.INTERNAL_ERROR)
        self._ended(ConnectionClosed(code, "internal error", application=False, by_peer=False))

    def _ended(self, close: ConnectionClosed) -> None:
        if self.close_state is None:
            self.close_state = close
            self._paused = False
            self._events.ends.due = None
            self._unsent.clear()
            self._buffered = 0
            if self.receiver is not None:
                self._tell(self.receiver.closed, close)

    def _tell(self, call: Callable[..., None], *args: object) -> None:
        """Call a receiver outside of `_drain`; its failure is our defect and costs no one else."""
        try:
            call(*args)
        except Exception:
            log.exception("the receiver of a connection failed")
            self.close(int(QuicErrorCode.INTERNAL_ERROR), "internal error", application=False)

    def _living_core(self) -> QuicConnectionCore:
        core = self._core
        if core is None or self.close_state is not None:
            if self.close_state is not None:
                raise self.close_state.again()
            raise ConnectionClosed(0, "not connected yet", by_peer=False, application=False)
        return core

    # -- events of the core ----------------------------------------------------------------------

    def _drain(self) -> None:
        core = self._core or self._face.core
        if core is None or self.terminated or self._delivering:
            return
        if self._paused and core.state != "connected":
            self._paused = False
        self._delivering = True
        try:
            while not self._deliver_safely(core):
                pass
        finally:
            self._delivering = False

    def _deliver_safely(self, core: QuicConnectionCore) -> bool:
        """As `_deliver`; False if the receiver failed, and there may be more."""
        try:
            self._deliver(core)
        except RemoteProtocolError as error:
            self.close(error.code, str(error))
            return False
        except Exception:
            # A receiver that fails is our defect; it costs its own connection and no other.
            log.exception("the receiver of a connection failed")
            self.close(int(QuicErrorCode.INTERNAL_ERROR), "internal error", application=False)
            return False
        return True

    def _deliver(self, core: QuicConnectionCore) -> None:
        events = self._events
        while not self._paused and events.gather(core):
            while not self._paused and (came := events.next_stream()) is not None:
                if (receiver := self.receiver) is not None and self.close_state is None:
                    receiver.stream_data(*came)
            if not self._paused and (late := events.late) is not None:
                events.late = None
                if late[0] != "datagram":
                    self._deliver_rare(late)
                elif (receiver := self.receiver) is not None and self.close_state is None:
                    receiver.datagram(late[1])

    def _deliver_rare(self, event: Event) -> None:
        match event[0]:
            case "stream_reset" if self.receiver is not None and self.close_state is None:
                self.receiver.stream_reset(event[1], event[2])
            case "stop_sending" if self.receiver is not None and self.close_state is None:
                self.receiver.stop_sending(event[1], event[2])
            case "streams_available":
                if self._wake_below >= 0:
                    self._wake()
            case "crypto_data":
                self._receive_crypto(event)
            case "handshake_done":
                self._face.confirm()
            case "connection_id_issued":
                self.issued_cids.append(event[1])
            case "connection_id_retired":
                self.retired_cids.append(event[1])
            case "peer_closed":
                _, application, code, _, reason = event
                text = visible(reason.decode("utf-8", "replace"))
                self._ended(ConnectionClosed(code, text, application=application, by_peer=True))
            case "protocol_error":
                self._ended(ConnectionClosed(event[1], event[3], application=False, by_peer=False))
            case "connection_terminated":
                self.terminated = True
                text = visible(event[3].decode("utf-8", "replace"))
                self._ended(ConnectionClosed(event[1], text, application=False, by_peer=False))

    def _receive_crypto(self, event: tuple[Any, ...]) -> None:
        face = self._face
        try:
            face.receive_crypto(event[1], event[2], event[3])
        except QuicTlsBridgeError as error:
            code = error.error_code
            if "ALPN" in error.reason_phrase:
                code = NO_APPLICATION_PROTOCOL
            self.close(int(code), error.reason_phrase, application=False)
            return
        except BaseException as error:
            # qh3's TLS was not written for hostile bytes: a key share that is no key, for one,
            # is a Rust panic. Whatever they make it raise stays with this connection.
            _reraise_unless_of_qh3(error)
            log.info("handshake failed: %r", error)
            self.close(
                int(QuicErrorCode.PROTOCOL_VIOLATION),
                f"handshake bytes make no sense: {error}",
                application=False,
            )
            return
        if face.complete and self._core is None:
            while (completed := face.next_event()) is not None:
                if isinstance(completed, events.HandshakeCompleted):
                    self._complete(completed.alpn_protocol or "")

    def _complete(self, alpn: str) -> None:
        if self._alpn_offered and not alpn:
            self.close(int(NO_APPLICATION_PROTOCOL), "no ALPN chosen", application=False)
            return
        self._core = self._face.core
        self.alpn = alpn
        self.receiver = self._completed(alpn)


def _reraise_unless_of_qh3(error: BaseException) -> None:
    """Let through what ends a program; a panic in Rust only looks like that, and has no name."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error


def _closing() -> ConnectionClosed:
    """The core has read of the peer's close, and nobody has been told yet."""
    return ConnectionClosed(0, "it is being closed", by_peer=True, application=False)
