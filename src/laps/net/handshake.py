"""The handshake of a QUIC connection: qh3's Python face, mended. `engine.py` says why it is so."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from qh3 import tls
from qh3._hazmat import Buffer, QuicConnectionCore
from qh3.quic.connection import QuicConnection
from qh3.quic.crypto import derive_key_iv_hp
from qh3.quic.packet import (
    QuicFrameType,
    QuicProtocolVersion,
    pull_quic_transport_parameters,
    push_quic_transport_parameters,
)
from qh3.quic.tls_bridge import QuicTlsBridge

if TYPE_CHECKING:
    from collections.abc import Callable

    from qh3.quic.configuration import QuicConfiguration

    from laps.config import QuicConfig
    from laps.net.reset import Resets

Address = tuple[str, int] | tuple[str, int, int, int]

# RFC 9001 section 5.2: the salt of the Initial keys of QUIC version 1.
_INITIAL_SALT: Final = bytes.fromhex("38762cf7f55934b34d179ae6a4c80cadccbb7f0a")

# A long header, the fixed bit and packet type 2 (RFC 9000 section 17.2).
_HANDSHAKE_PACKET: Final = 0xE0

# RFC 9000 section 8.1: how much may be sent to an address without proof, for each byte from it.
AMPLIFICATION: Final = 3

# A client has one address in its handshake, two if its NAT forgets it in the middle. Whoever sends
# from more of them pays out of none.
MAX_UNPROVED_ADDRESSES: Final = 4


class AddressLimit:
    """What a server may send before its client has proved to be where its packets come from.

    Whole datagrams count, both ways: also the padding after a packet, and packets nobody can read.
    """

    def __init__(self) -> None:
        self._room: dict[Address, int] = {}

    def received(self, addr: Address, size: int) -> None:
        """A datagram of `size` bytes came from `addr`."""
        if addr in self._room or len(self._room) < MAX_UNPROVED_ADDRESSES:
            self._room[addr] = self._room.get(addr, 0) + AMPLIFICATION * size

    def take(self, addr: Address, size: int) -> bool:
        """Whether a datagram may be sent to `addr` now; it is counted if so."""
        room = self._room.get(addr, 0)
        if size > room:
            return False
        self._room[addr] = room - size
        return True


def _install_initial_keys(core: QuicConnectionCore, initial_dcid: bytes) -> None:
    """A server's, for a client that first sent to this id."""
    suite = tls.CipherSuite.AES_128_GCM_SHA256
    secret = tls.hkdf_extract(256, _INITIAL_SALT, initial_dcid)
    for direction, label in (("receive", b"client in"), ("send", b"server in")):
        key, iv, hp = derive_key_iv_hp(
            cipher_suite=suite,
            secret=tls.hkdf_expand_label(256, secret, label, b"", 32),
            version=QuicProtocolVersion.VERSION_1,
        )
        core.install_packet_key(direction, 0, ("aes-128-gcm", "aes-128-ecb"), key, iv, hp, 0)


def encode_refusal(initial_dcid: bytes, client_cid: bytes, code: int, reason: str) -> bytes:
    """The packet that turns a client away at its first one (RFC 9000 section 5.2.2).

    It takes 40 microseconds and leaves nothing behind, so that it can be the answer of a server
    that has no room for more.
    """
    core = QuicConnectionCore(
        is_client=False,
        version=int(QuicProtocolVersion.VERSION_1),
        local_addr=("0.0.0.0", 0),  # noqa: S104 - a placeholder, as is the next
        remote_addr=("0.0.0.0", 0),  # noqa: S104
        source_cid=os.urandom(8),
        destination_cid=client_cid,
        peer_address_validated=True,
        active_connection_id_limit=2,
        max_datagram_size=1200,
        probe_datagram_size=False,
        idle_timeout=None,
        ack_delay_exponent=3,
        max_datagram_frame_size=None,
        peer_max_datagram_frame_size=None,
        connection_receive_window=0,
        connection_send_limit=0,
        stream_receive_window=0,
        stream_send_limit_bidi_local=0,
        stream_send_limit_bidi_remote=0,
        stream_send_limit_uni=0,
        max_stream_reassembly=0,
        local_max_streams_bidi=0,
        local_max_streams_uni=0,
        peer_max_streams_bidi=0,
        peer_max_streams_uni=0,
        initial_rtt=0.1,
        max_ack_delay=0.025,
        initial_time=0.0,
    )
    _install_initial_keys(core, initial_dcid)
    core.close(code, int(QuicFrameType.PADDING), reason.encode())
    packet = core.poll_transmit(0.0)
    return b"" if packet is None else packet[0]


class Bridge(QuicTlsBridge):
    """The TLS half, saying our stream limits instead of qh3's."""

    def __init__(self, *args: Any, limits: QuicConfig, **kwargs: Any) -> None:
        self._limits = limits
        super().__init__(*args, **kwargs)

    def serialize_transport_parameters(self) -> bytes:
        """What qh3 would say, with our limits in place of its own."""
        parameters = pull_quic_transport_parameters(
            Buffer(data=super().serialize_transport_parameters())
        )
        parameters.initial_max_streams_bidi = self._limits.max_streams_bidi
        parameters.initial_max_streams_uni = self._limits.max_streams_uni
        buffer = Buffer(capacity=3 * self.configuration.max_datagram_size)
        push_quic_transport_parameters(buffer, parameters)
        return buffer.data


def _nothing() -> None:
    """Nothing is left to be told."""


class Face(QuicConnection):
    """qh3's Python face, kept for the handshake: it makes the core, runs TLS and installs keys."""

    def __init__(
        self,
        configuration: QuicConfiguration,
        limits: QuicConfig,
        drain: Callable[[], None],
        original_destination_cid: bytes | None,
        retry_source_cid: bytes | None,
        nameless_client: bool,
        resets: Resets | None,
    ) -> None:
        super().__init__(
            configuration=configuration,
            original_destination_connection_id=original_destination_cid,
            retry_source_connection_id=retry_source_cid,
        )
        self._limits = limits
        self._drain = drain
        self._tls: Bridge
        self._nameless_client = nameless_client
        self._resets = resets
        self.address_proved = self._is_client or retry_source_cid is not None
        "Whether the peer is where its packets come from: `AddressLimit` is for those not proved."

    def release(self) -> None:
        """Let go of the core and of TLS, whose two halves refer to each other."""
        if self._tls is not None:
            del self._tls.tls
        self._core = self._tls = None  # type: ignore[assignment]  # nobody asks for them again
        self._drain = _nothing

    def _create_core(self, remote_addr: Address, initial_dcid: bytes, now: float) -> None:
        configuration, limits = self._configuration, self._limits
        destination_cid = initial_dcid
        if self._nameless_client:
            # The core adopts a peer's id only if it has one, and would go on addressing the
            # client by the id the client chose for us. Built without any, it addresses nobody,
            # which is right; but then it must know the chosen id as its own, or it drops what
            # the client sends, and needs the Initial keys that follow from it.
            self.host_cid = initial_dcid
            destination_cid = b""
        assert self._version is not None  # noqa: S101 - set before any core is made
        self._core = QuicConnectionCore(
            is_client=self._is_client,
            version=self._version,
            local_addr=("0.0.0.0", 0),  # noqa: S104 - a placeholder, nothing is bound to it
            remote_addr=remote_addr,
            source_cid=self.host_cid,
            destination_cid=destination_cid,
            # Its own limit counts the packets of a datagram and not the padding after them:
            # `AddressLimit` is in its place.
            peer_address_validated=True,
            active_connection_id_limit=2 if self._is_client else 8,
            max_datagram_size=configuration.max_datagram_size,
            probe_datagram_size=configuration.probe_datagram_size,
            idle_timeout=configuration.idle_timeout,
            ack_delay_exponent=3,
            max_datagram_frame_size=configuration.max_datagram_frame_size or None,
            peer_max_datagram_frame_size=None,
            connection_receive_window=configuration.max_data,
            connection_send_limit=0,
            stream_receive_window=configuration.max_stream_data,
            stream_send_limit_bidi_local=0,
            stream_send_limit_bidi_remote=0,
            stream_send_limit_uni=0,
            max_stream_reassembly=configuration.max_stream_data,
            local_max_streams_bidi=limits.max_streams_bidi,
            local_max_streams_uni=limits.max_streams_uni,
            peer_max_streams_bidi=0,
            peer_max_streams_uni=0,
            initial_rtt=configuration.initial_rtt,
            max_ack_delay=0.025,
            initial_time=now,
        )
        if self._nameless_client:
            _install_initial_keys(self._core, initial_dcid)
        self._applied_transport_parameters = None
        self._pre_handshake_state_replayed = False

    def _create_tls(self, remote_source_cid: bytes | None) -> QuicTlsBridge:
        self._tls = Bridge(
            self._configuration,
            limits=self._limits,
            version=self._version,
            local_initial_source_connection_id=self.host_cid,
            remote_initial_source_connection_id=(
                b"" if self._nameless_client else remote_source_cid
            ),
            original_destination_connection_id=self._original_destination_connection_id,
            retry_source_connection_id=self._retry_source_connection_id,
            stateless_reset_token=self._resets.token(self.host_cid) if self._resets else None,
            version_change_handler=self._set_version,
        )
        return self._tls

    def _drain_core(self) -> None:
        self._drain()

    def _learn_remote_source_cid(self, data: bytes) -> None:
        """Called for each packet with the right seal."""
        super()._learn_remote_source_cid(data)
        # Only who received our Initial has the keys of a Handshake packet (RFC 9000 section 8.1).
        if data[0] & 0xF0 == _HANDSHAKE_PACKET:
            self.address_proved = True

    def receive_crypto(self, epoch: int, offset: int, data: bytes) -> None:
        """Hand handshake bytes to TLS, and what TLS answers to the core."""
        version = self._require_core().version
        self._tls.receive_crypto(tls.Epoch(epoch), data, offset, version=version)
        self._drain_tls()

    def confirm(self) -> None:
        """The server has confirmed the handshake."""
        self._handshake_confirmed = True
        self._require_core().handshake_confirmed()

    @property
    def core(self) -> QuicConnectionCore | None:
        """The core of now: Retry makes a new one."""
        return self._core

    @property
    def complete(self) -> bool:
        """Whether the handshake is over."""
        return self._handshake_complete

    @property
    def peer_reset_token(self) -> bytes | None:
        """What a peer that knows nothing of the connection any more ends it with."""
        parameters = self._applied_transport_parameters
        return None if parameters is None else parameters.stateless_reset_token

    @property
    def peer_window_bytes(self) -> int:
        """How much the peer lets be sent ahead of what it reads: of a stream, and of all."""
        parameters = self._applied_transport_parameters
        if parameters is None:
            return 0
        of_streams = (
            parameters.initial_max_stream_data_uni,
            parameters.initial_max_stream_data_bidi_local,
            parameters.initial_max_stream_data_bidi_remote,
        )
        return min(parameters.initial_max_data or 0, max(each or 0 for each in of_streams))

    @property
    def peer_datagram_bytes(self) -> int:
        """The largest DATAGRAM frame the peer takes; 0 is none at all."""
        return self._remote_max_datagram_frame_size or 0
