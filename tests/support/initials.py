"""First packets of clients, made byte by byte, where no client makes them of the size wanted."""

from __future__ import annotations

from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import QuicProtocolVersion


def _extension(kind: int, body: bytes) -> bytes:
    return kind.to_bytes(2, "big") + len(body).to_bytes(2, "big") + body


def initial(packet_bytes: int, datagram_bytes: int) -> bytes:
    """An Initial packet of a given size with a ClientHello in it, and zeros after the packet."""
    destination_cid, source_cid = b"chosenid", b"nameself"
    header = b"\xc0" + bytes.fromhex("00000001") + b"\x08" + destination_cid + b"\x08" + source_cid
    header += b"\0"  # no token

    def hello(padding: int) -> bytes:
        extensions = (
            _extension(0x2B, b"\x02\x03\x04")  # TLS 1.3
            + _extension(0x0A, b"\x00\x02\x00\x1d")  # X25519
            + _extension(0x33, b"\x00\x24\x00\x1d\x00\x20" + b"\x09" + bytes(31))
            + _extension(0x0D, b"\x00\x06\x04\x03\x08\x07\x08\x04")
            + _extension(0x10, b"\x00\x05\x04laps")
            + _extension(0x39, b"\x0f\x08" + source_cid)
            + _extension(0x15, bytes(padding))
        )
        body = b"\x03\x03" + bytes(32) + b"\0" + b"\x00\x02\x13\x01" + b"\x01\0"
        body += len(extensions).to_bytes(2, "big") + extensions
        return b"\x01" + len(body).to_bytes(3, "big") + body

    def plain(padding: int) -> bytes:
        crypto = hello(padding)
        return b"\x06\x00" + (0x4000 | len(crypto)).to_bytes(2, "big") + crypto

    overhead = len(header) + 2 + 2 + 16  # length, packet number, seal
    payload = plain(packet_bytes - overhead - len(plain(0)))
    header += (0x4000 | 2 + len(payload) + 16).to_bytes(2, "big") + b"\0\0"
    header = bytes([header[0] | 1]) + header[1:]  # a packet number of two bytes
    keys = CryptoPair()
    keys.setup_initial(cid=destination_cid, is_client=True, version=QuicProtocolVersion.VERSION_1)
    packet = keys.encrypt_packet(header, payload, 0)
    assert len(packet) == packet_bytes
    return packet.ljust(datagram_bytes, b"\0")
