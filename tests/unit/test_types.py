"""Node ids, tracks, sequences and addresses as values and as text."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.errors import ConfigError, InvalidText
from laps.types import (
    MAX_ADDRESS_LENGTH,
    Address,
    NodeId,
    NodeInfo,
    NodePathItem,
    NodeType,
    TrackKey,
    TrackName,
    format_node_id,
    hash_bytes,
    hash_namespace,
    hash_track,
    next_sequence,
    parse_node_id,
    sequence_newer,
    track_alias,
)

# No test times a wall clock, Hypothesis included.
quick = settings(deadline=None, max_examples=50)

node_ids = st.integers(0, 2**64 - 1).map(NodeId)


@pytest.mark.parametrize(
    ("text", "high", "low"),
    [
        ("1.2:1234", 0x0001_0002, 1234),
        ("1:1", 1, 1),
        ("100.2:9001.2001", 0x0064_0002, 0x2329_07D1),
        ("123456:789.100", 123456, 0x0315_0064),
        ("0:0", 0, 0),
        ("007:0.01", 7, 1),
        ("4294967295:65535.65535", 2**32 - 1, 2**32 - 1),
    ],
)
def test_node_id_text_is_read(text: str, high: int, low: int) -> None:
    assert parse_node_id(text) == high << 32 | low


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("1.2", "needs a colon: high:low, like 1.2:1234"),
        ("1:2:3", "two colons"),
        (":1", "has no high half"),
        ("1:", "has no low half"),
        (":", "has no high half"),
        ("a:1", "high half that is not made of digits"),
        ("1:0x1", "low half that is not made of digits"),
        ("-1:1", "high half that is not made of digits"),
        ("1:+1", "low half that is not made of digits"),
        (" 1:1", "high half that is not made of digits"),
        ("1:1\n", "low half that is not made of digits"),
        ("1_0:1", "high half that is not made of digits"),
        ("\N{ARABIC-INDIC DIGIT ONE}:1", "high half that is not made of digits"),
        ("\N{SUPERSCRIPT TWO}:1", "high half that is not made of digits"),
        ("1.:1", "high half that is not made of digits"),
        ("1:.1", "low half that is not made of digits"),
        ("1.2.3:1", "too many dots in its high half"),
        ("4294967296:1", "above 4294967295 in its high half"),
        ("1:65536.1", "above 65535 in its low half"),
        ("1:1.65536", "above 65535 in its low half"),
        ("1.1.1\n" * 999 + ":1", "too many dots in its high half"),
        (f"1:{'9' * 5000}", "above 4294967295 in its low half"),
    ],
)
def test_a_bad_node_id_is_named_with_the_way_out(text: str, words: str) -> None:
    with pytest.raises(InvalidText, match=re.escape(words)) as caught:
        parse_node_id(text)
    assert isinstance(caught.value, ConfigError)
    assert str(caught.value).startswith('node id "')
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 200


def test_a_bad_node_id_reads_as_a_sentence() -> None:
    with pytest.raises(InvalidText) as caught:
        parse_node_id("1.2")
    assert str(caught.value) == 'node id "1.2" needs a colon: high:low, like 1.2:1234'


@pytest.mark.parametrize(
    ("node_id", "text"),
    [
        (0x0001_0002_0000_04D2, "1.2:1234"),
        (0x0000_0001_0000_0001, "1:1"),
        (0x0000_FFFF_0001_0000, "65535:1.0"),
        (2**64 - 1, "65535.65535:65535.65535"),
        (0, "0:0"),
    ],
)
def test_a_half_prints_dotted_past_16_bits(node_id: int, text: str) -> None:
    assert format_node_id(NodeId(node_id)) == text


@quick
@given(node_ids)
def test_every_node_id_survives_its_text(node_id: NodeId) -> None:
    assert parse_node_id(format_node_id(node_id)) == node_id


@quick
@given(st.text(alphabet="0123456789.:", max_size=16))
def test_node_id_text_is_read_or_refused(text: str) -> None:
    try:
        node_id = parse_node_id(text)
    except InvalidText:
        return
    assert parse_node_id(format_node_id(node_id)) == node_id


def test_round_trips_add_up_along_the_path() -> None:
    hops = (NodePathItem(NodeId(2), 25_000), NodePathItem(NodeId(3), 50_000))
    assert NodeInfo(NodeId(1), NodeType.EDGE, path=hops).sum_srtt_us == 75_000
    assert NodeInfo(NodeId(1), NodeType.EDGE).sum_srtt_us == 0


def test_hash_is_xxh3_with_seed_0() -> None:
    # Published with the reference implementation of XXH3.
    assert hash_bytes(b"") == 0x2D06800538D394C2


def test_namespaces_hash_apart_wherever_they_are_cut() -> None:
    cuts = [(b"abc",), (b"a", b"bc"), (b"ab", b"c"), (b"a", b"b", b"c"), (b"abc", b""), ()]
    assert len({hash_namespace(cut) for cut in cuts}) == len(cuts)


def test_a_track_hashes_from_its_namespace_and_name() -> None:
    hashes = hash_track(TrackName((b"a", b"bc"), b"video"))
    assert hashes.namespace_hash == hash_bytes(b"\0\0\0\1a\0\0\0\2bc")
    assert hashes.name_hash == hash_bytes(b"video")
    both = hashes.namespace_hash.to_bytes(8, "big") + hashes.name_hash.to_bytes(8, "big")
    assert hashes.full_name_hash == hash_bytes(both)


def test_a_track_alias_fits_a_varint() -> None:
    assert track_alias(TrackKey(0xFFFF_FFFF_FFFF_FFFF)) == 2**62 - 1
    assert track_alias(TrackKey(0xC000_0000_0000_0005)) == 5


@pytest.mark.parametrize(
    ("a", "b", "newer"),
    [
        (1, 0, True),
        (0, 1, False),
        (5, 5, False),
        (0, 65535, True),
        (65535, 0, False),
        (32767, 0, True),
        (32768, 0, True),
        (0, 32768, False),
        (32769, 0, False),
        (100, 65000, True),
    ],
)
def test_sequences_wrap(a: int, b: int, newer: bool) -> None:
    assert sequence_newer(a, b) is newer


@quick
@given(st.integers(0, 65535), st.integers(0, 65535))
def test_of_two_sequences_that_differ_one_is_newer(a: int, b: int) -> None:
    assert sequence_newer(a, b) + sequence_newer(b, a) == (a != b)


@pytest.mark.parametrize(
    ("last", "seconds", "following"),
    [
        (None, 70_000, 70_000 % 65536),
        (7, 7, 8),
        (7, 8, 8),
        (7, 9, 9),
        (65535, 65535, 0),
        (40_000, 1000, 1000),
        (20_000, 1000, 20_001),
    ],
)
def test_a_sequence_follows_the_last_and_the_clock(
    last: int | None, seconds: int, following: int
) -> None:
    assert next_sequence(last, seconds) == following


@quick
@given(st.integers(0, 65535), st.integers(0, 2**40))
def test_what_is_said_next_is_newer(last: int, seconds: int) -> None:
    assert sequence_newer(next_sequence(last, seconds), last)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:33434", Address("127.0.0.1", 33434)),
        ("[::1]:33434", Address("::1", 33434)),
        ("[fe80::1%eth0]:1", Address("fe80::1%eth0", 1)),
        ("relay-1.example.net:0", Address("relay-1.example.net", 0)),
        ("localhost:65535", Address("localhost", 65535)),
    ],
)
def test_an_address_is_read_and_written(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "needs a port"),
        ("127.0.0.1", "needs a port"),
        ("[::1]", "needs a port"),
        (":33434", "needs a host"),
        ("host:", "needs a port from 0 to 65535"),
        ("host:65536", "needs a port from 0 to 65535"),
        ("host:-1", "needs a port from 0 to 65535"),
        ("host:\N{ARABIC-INDIC DIGIT ONE}", "needs a port from 0 to 65535"),
        (f"host:{'9' * 5000}", "needs a port from 0 to 65535"),
        ("::1:33434", "needs brackets around IPv6"),
        ("[127.0.0.1]:1", "no IPv6 address in its brackets"),
        ("[]:1", "no IPv6 address in its brackets"),
        ("[::1:1", "needs brackets around IPv6"),
        ("a b:1", "neither a name nor an IP"),
        ("https://relay:1", "neither a name nor an IP"),
        ("relay/x:1", "neither a name nor an IP"),
        ("1.2.3.256:1", "not an IPv4 address"),
        ("1.2:1", "not an IPv4 address"),
        (f"{'x' * 254}:1", "has a host longer than 253"),
        (f"[fe80::1%{'x' * 250}]:1", "has a host longer than 253"),
    ],
)
def test_a_bad_address_is_named_with_the_way_out(text: str, words: str) -> None:
    with pytest.raises(InvalidText, match=re.escape(words)) as caught:
        Address.parse(text)
    assert str(caught.value).startswith('address "')


def test_the_longest_address_has_its_bound() -> None:
    text = f"{'x' * 253}:65535"
    assert len(str(Address.parse(text))) == len(text) == MAX_ADDRESS_LENGTH


@pytest.mark.parametrize(
    ("text", "wildcard", "loopback", "dialable"),
    [
        ("0.0.0.0:1", True, False, False),
        ("[::]:1", True, False, False),
        ("127.0.0.1:1", False, True, True),
        ("127.8.0.1:1", False, True, True),
        ("[::1]:1", False, True, True),
        ("localhost:1", False, True, True),
        ("192.0.2.1:1", False, False, True),
        ("relay.example:1", False, False, True),
        ("relay.example:0", False, False, False),
        ("[fe80::1%eth0]:1", False, False, False),
    ],
)
def test_an_address_is_for_everybody_for_one_machine_or_to_listen_on(
    text: str, wildcard: bool, loopback: bool, dialable: bool
) -> None:
    address = Address.parse(text)
    assert (address.is_wildcard, address.is_loopback) == (wildcard, loopback)
    assert address.is_dialable is dialable
