"""Fragments between relays, in datagrams of MoQT's draft 16."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.errors import LocalProtocolError
from laps.types import SnsId, TrackKey
from laps.wire.buffer import VARINT_MAX, encode_varint
from laps.wire.moqt.codes import MoqtViolation
from laps.wire.moqt.data import (
    DatagramObject,
    decode_datagram,
    encode_datagram,
    realias_datagram,
)
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.keyvalues import encode_pairs
from laps.wire.moqt.translate import translate_datagram
from laps.wire.objects import decode_datagram as decode_between_peers
from laps.wire.objects import encode_datagram_header
from laps.wire.quicr.carried import (
    CARRIED_BYTES,
    FRAGMENT_EXTENSION,
    carried_of,
    datagram_rank,
    encode_carried,
    moqt_priority,
    quicr_priority,
)
from laps.wire.quicr.messages import DEFAULT_PRIORITY, Fragment, Terms
from unit.wire.quicr.strategies import EDGES, fragments, terms, varints

# What a DATAGRAM frame has room for in the 1,200 bytes that QUIC promises of a packet.
ROOM = 1200 - 44

FRAGMENT = Fragment(7, 3, 100, b"ab", True)
TERMS = Terms(500, 4, True, 0)


def datagram(*pairs: tuple[int, int | bytes], priority: int | None = 5) -> DatagramObject:
    return DatagramObject(2, 7, 3, priority, encode_pairs(pairs, delta=True), payload=b"ab")


def between_peers(data: bytes) -> bytes:
    return encode_datagram_header(SnsId(0xFFFF_FFFF), TrackKey((1 << 64) - 1), len(data)) + data


# -- round trips -----------------------------------------------------------------------------------


@given(varints, fragments, terms)
def test_what_is_written_is_read(alias: int, fragment: Fragment, said: Terms) -> None:
    data = encode_carried(alias, fragment, said)
    came = decode_datagram(data, DRAFT16)
    assert carried_of(came) == (fragment, said)
    assert (came.alias, came.group, came.object_id) == (alias, fragment.group, fragment.object_id)
    assert came.priority == moqt_priority(said.priority)
    assert came.status is None
    assert not came.end_of_group


@settings(max_examples=50)
@given(varints, fragments, terms)
def test_relays_pass_it_on_as_it_is(alias: int, fragment: Fragment, said: Terms) -> None:
    data = realias_datagram(encode_carried(1, fragment, said), alias)
    assert data == encode_carried(alias, fragment, said)
    header, payload = decode_between_peers(between_peers(data))
    assert header.data_length == len(data)
    assert carried_of(decode_datagram(payload, DRAFT16)) == (fragment, said)
    # Nor does a draft 14 on the way take anything from it.
    old = translate_datagram(data, DRAFT16, DRAFT14, alias)
    assert old is not None
    assert translate_datagram(old, DRAFT14, DRAFT16, alias) == data


def test_the_extension_is_a_number_of_our_own() -> None:
    assert FRAGMENT_EXTENSION == 0x3C51
    assert FRAGMENT_EXTENSION % 2 == 1  # its value is bytes


# -- sizes -----------------------------------------------------------------------------------------


def test_the_largest_fragment_passes_every_path_whatever_is_said_of_it() -> None:
    data = bytes(CARRIED_BYTES)
    sizes = set()
    for number, object_id, offset in product(EDGES, (0, 1, 64, VARINT_MAX), (0, 1, VARINT_MAX)):
        for last, discardable, priority in ((False, False, 0), (True, True, 7)):
            fragment = Fragment(number, object_id, offset >> 1, data, last)
            said = Terms(number, priority, discardable, number)
            sizes.add(len(between_peers(encode_carried(number, fragment, said))))
    # type | alias | group | object | priority | length | 7c51 | length
    # | offset_and_fin | best_before | flags | nb_objects_previous_group
    head = 1 + 8 + 8 + 8 + 1 + 1 + 2 + 1 + (8 + 8 + 1 + 8)
    assert head <= 56
    # header_length | type | sns_id | track_full_name_hash | data_length
    peering = 1 + 1 + 8 + 8 + 2
    assert max(sizes) == peering + head + CARRIED_BYTES
    assert max(sizes) <= ROOM


@given(varints, fragments, terms)
def test_no_header_is_longer_than_the_longest(alias: int, fragment: Fragment, said: Terms) -> None:
    whole = replace(fragment, data=bytes(CARRIED_BYTES))
    assert len(between_peers(encode_carried(alias, whole, said))) <= ROOM


def test_what_is_usual_costs_little() -> None:
    # An hour of video: 108,000 objects in groups of 2 s, with half a second to live.
    fragment, said = Fragment(1800, 59, 30_000, b"", False), Terms(500, 4, False, 60)
    head = 1 + 2 + 2 + 1 + 1 + 1 + 2 + 1 + (4 + 2 + 1 + 1)
    assert len(between_peers(encode_carried(1000, fragment, said))) == 19 + head


# -- what is no fragment ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(DatagramObject(2, 7, 3, payload=b"ab"), id="no extensions"),
        pytest.param(datagram((2, 5), (0x0D, b"x")), id="others"),
        pytest.param(datagram((FRAGMENT_EXTENSION - 1, 5)), id="one less"),
        pytest.param(datagram((FRAGMENT_EXTENSION + 2, b"\0\0\4\0")), id="two more"),
        pytest.param(datagram((FRAGMENT_EXTENSION, b"")), id="empty"),
        pytest.param(datagram((FRAGMENT_EXTENSION, b"\0")), id="no best_before"),
        pytest.param(datagram((FRAGMENT_EXTENSION, b"\0\x40")), id="best_before cut off"),
        pytest.param(datagram((FRAGMENT_EXTENSION, b"\0\0")), id="no flags"),
        pytest.param(datagram((FRAGMENT_EXTENSION, b"\0\0\4")), id="no number of objects"),
        pytest.param(datagram((FRAGMENT_EXTENSION, b"\0\0\4\x80")), id="number cut off"),
        pytest.param(datagram((FRAGMENT_EXTENSION, b"\xc0\0\0\0\0\0\0")), id="place cut off"),
    ],
)
def test_whole_objects_are_no_fragments(item: DatagramObject) -> None:
    assert carried_of(item) is None
    data = encode_datagram(item, DRAFT16)
    assert carried_of(decode_datagram(data, DRAFT16)) is None


def test_extensions_that_do_not_read_are_a_violation_of_moqt() -> None:
    with pytest.raises(MoqtViolation):
        carried_of(DatagramObject(2, 7, 3, extensions=b"\x7c\x51\x05\0"))


def test_what_a_fragment_says_of_itself_counts() -> None:
    # The priority of the datagram is for those who do not read fragments.
    value = b"\0\0\x0a\x05"
    assert carried_of(datagram((FRAGMENT_EXTENSION, value), priority=0)) == (
        Fragment(7, 3, 0, b"ab", False),
        Terms(0, 2, True, 5),
    )


def test_no_fragment_is_written_that_nobody_could_read() -> None:
    for fragment, said in (
        (replace(FRAGMENT, offset=1 << 61), TERMS),
        (replace(FRAGMENT, group=-1), TERMS),
        (FRAGMENT, replace(TERMS, priority=8)),
        (FRAGMENT, replace(TERMS, best_before_ms=-1)),
        (FRAGMENT, replace(TERMS, objects_before=1 << 62)),
    ):
        with pytest.raises(LocalProtocolError):
            encode_carried(1, fragment, said)


# -- priorities ------------------------------------------------------------------------------------


def test_priorities_are_counted_both_ways() -> None:
    assert [moqt_priority(number) for number in range(8)] == [0, 32, 64, 96, 128, 160, 192, 224]
    assert [quicr_priority(moqt_priority(number)) for number in range(8)] == list(range(8))
    assert [quicr_priority(number) for number in (0, 31, 32, 127, 128, 255)] == [0, 0, 1, 3, 4, 7]
    assert quicr_priority(None) == DEFAULT_PRIORITY == 4


def rank(said: Terms) -> int:
    return datagram_rank(encode_carried(1, FRAGMENT, said))


def test_urgent_datagrams_stand_first_and_those_that_may_be_discarded_last() -> None:
    kept = [rank(Terms(priority=number)) for number in range(8)]
    dropped = [rank(Terms(priority=number, discardable=True)) for number in range(8)]
    objects = [
        datagram_rank(encode_datagram(datagram((2, 1), priority=number), DRAFT16))
        for number in (0, 1, 128, 254, 255)
    ]
    assert objects == [0, 1, 128, 254, 255]
    assert kept == [moqt_priority(number) for number in range(8)]
    assert all(one < next_ for one, next_ in pairwise([*kept, *dropped]))
    assert max(objects) < min(dropped)


def test_a_datagram_without_a_rank_has_that_of_most() -> None:
    plain = encode_datagram(datagram((2, 1), priority=None), DRAFT16)
    assert datagram_rank(plain) == moqt_priority(DEFAULT_PRIORITY)
    for data in (b"", b"\x3f", b"\x01\x02\x07", plain[:-3], b"\x05\2\7\x80\2\x7c\x51"):
        assert datagram_rank(data) == moqt_priority(DEFAULT_PRIORITY)
        assert datagram_rank(memoryview(data)) == moqt_priority(DEFAULT_PRIORITY)


@settings(max_examples=200)
@given(st.one_of(st.binary(max_size=40), st.binary(max_size=12).map(lambda value: sized(value))))
def test_any_bytes_have_a_rank(data: bytes) -> None:
    assert 0 <= datagram_rank(data) < 512


def sized(value: bytes) -> bytes:
    """A datagram whose fragment says this of itself."""
    raw = b"\x7c\x51" + encode_varint(len(value)) + value
    return b"\x05\2\7\x80" + encode_varint(len(raw)) + raw
