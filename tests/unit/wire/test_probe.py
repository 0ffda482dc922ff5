"""Probes and their answers, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qh3._hazmat import pull_quic_header
from qh3.quic.packet import encode_quic_version_negotiation

from laps.wire.probe import ID_BYTES, NUMBERS, PROBE_BYTES, decode_answer, encode_probe

KEY = bytes(range(32))
NUMBER = 0x0102030405060708

# As HMAC-SHA256 of the number under the key gives them: tag(32) = version, first, source, ….
HEADER = bytes.fromhex(
    "e5"  # first: a long header
    "ba5a2a6a"  # version: reserved
    "10 576b1410186c3981688e0e7a399afadc"  # destination_id
    "10 0102030405060708 0e68ee7da29eca52"  # source_id: number, tag
)


def ids_of(probe: bytes) -> tuple[bytes, bytes]:
    """The ids of destination and source."""
    return probe[6 : 6 + ID_BYTES], probe[7 + ID_BYTES : 7 + 2 * ID_BYTES]


def answer_to(probe: bytes, versions: bytes = b"\0\0\0\1") -> bytes:
    """What RFC 9000 section 17.2.1 says of it."""
    destination, source = ids_of(probe)
    size = bytes((ID_BYTES,))
    return b"\xc3" + bytes(4) + size + source + size + destination + versions


def test_a_probe_is_as_long_as_a_first_packet_has_to_be() -> None:
    probe = encode_probe(NUMBER, KEY)
    assert len(probe) == PROBE_BYTES
    assert not any(probe[7 + 2 * ID_BYTES :])


def test_a_probe_byte_by_byte() -> None:
    assert encode_probe(NUMBER, KEY)[: len(HEADER)].hex() == HEADER.hex()


@given(st.integers(0, NUMBERS - 1), st.binary(min_size=1, max_size=64))
@settings(deadline=None, max_examples=50)
def test_an_answer_names_its_probe(number: int, key: bytes) -> None:
    probe = encode_probe(number, key)
    version = int.from_bytes(probe[1:5])
    assert probe[0] & 0xC0 == 0xC0
    assert version & 0x0F0F0F0F == 0x0A0A0A0A
    assert decode_answer(answer_to(probe), key) == number


def test_another_implementation_reads_and_answers_it() -> None:
    probe = encode_probe(NUMBER, KEY)
    header = pull_quic_header(probe, 0, 8)
    destination, source = header[3], header[4]
    assert (destination, source) == ids_of(probe)
    answer = encode_quic_version_negotiation(destination, source, [1])
    assert len(answer) < len(probe) / 10
    assert decode_answer(answer, KEY) == NUMBER


def test_what_nobody_answered_with_is_no_answer() -> None:
    probe = encode_probe(NUMBER, KEY)
    answer = answer_to(probe)
    assert decode_answer(answer, KEY[::-1]) is None, "to a probe of somebody else"
    assert decode_answer(probe, KEY) is None
    for size in range(len(answer)):
        assert decode_answer(answer[:size], KEY) is None
    for at in range(5, len(answer) - 4):
        changed = bytearray(answer)
        changed[at] ^= 1
        assert decode_answer(bytes(changed), KEY) is None, f"byte {at}"
    assert decode_answer(b"\x43" + answer[1:], KEY) is None, "a short header"


@given(st.binary(max_size=100))
@settings(deadline=None, max_examples=200)
def test_noise_is_no_answer(noise: bytes) -> None:
    assert decode_answer(noise, KEY) is None
    assert decode_answer(b"\xc0\0\0\0\0" + noise, KEY) is None


@pytest.mark.parametrize("number", [0, 1, NUMBERS - 1])
def test_all_numbers_are_as_good(number: int) -> None:
    assert decode_answer(answer_to(encode_probe(number, KEY)), KEY) == number
