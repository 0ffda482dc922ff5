"""A record gives a subscribe back as it came, whatever its data is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.infobase.records import Records, sequence_of
from laps.packed import MOST_BYTES
from laps.types import NodeId, SubscribeInfo, TrackHash, TrackName, hash_track
from laps.wire.buffer import encode_varint
from laps.wire.subscribe import encode_subscribe

NODE = NodeId(1 << 40)
TRACK = TrackName((b"conference", b"room-1"), b"camera")


def info(data: bytes, hashes: TrackHash, sequence: int = 7) -> SubscribeInfo:
    return SubscribeInfo(sequence, NODE, hashes, data)


def of(track: TrackName, request_id: int = 0) -> SubscribeInfo:
    return info(encode_subscribe(track, request_id), hash_track(track))


def comes_back(records: Records, subscribe: SubscribeInfo) -> bytes:
    """The record of it."""
    track = subscribe.track_hash.full_name_hash
    record = records.pack(subscribe)
    assert len(record) <= MOST_BYTES
    assert records.unpack(NODE, track, record) == subscribe
    assert records.hashes(track, record) == subscribe.track_hash
    assert records.namespace_hash(record) == subscribe.track_hash.namespace_hash
    assert sequence_of(record) == subscribe.sequence
    return record


HASHES = st.integers(0, 2**64 - 1)
PARTS = st.one_of(st.binary(max_size=5), st.binary(min_size=60, max_size=70))
NAMES = st.builds(
    TrackName,
    st.lists(PARTS, max_size=4).map(tuple),
    st.one_of(PARTS, st.binary(min_size=220, max_size=260)),
)


@given(NAMES, st.integers(0, 2**62 - 1), st.binary(max_size=40), st.integers(0, 0xFFFF))
def test_records_of_subscribes_come_back(
    track: TrackName, request_id: int, tail: bytes, sequence: int
) -> None:
    message = encode_subscribe(track, request_id)[3:] + tail
    data = b"\x03" + len(message).to_bytes(2) + message
    comes_back(Records(), info(data, hash_track(track), sequence))
    # A relay may send more bytes than the message says, or fewer.
    comes_back(Records(), info(data + b"x", hash_track(track), sequence))
    comes_back(Records(), info(data[:-1], hash_track(track), sequence))


@given(st.binary(max_size=60), HASHES, HASHES)
def test_records_of_any_bytes_come_back(data: bytes, namespace_hash: int, name_hash: int) -> None:
    hashes = TrackHash(namespace_hash, name_hash, hash_track(TRACK).full_name_hash)
    comes_back(Records(), info(data, hashes))
    comes_back(Records(), info(b"\x03" + len(data).to_bytes(2) + data, hashes))


@given(HASHES, HASHES)
def test_records_keep_hashes_that_do_not_fit_the_names(namespace_hash: int, name_hash: int) -> None:
    hashes = TrackHash(namespace_hash, name_hash, hash_track(TRACK).full_name_hash)
    comes_back(Records(), info(encode_subscribe(TRACK), hashes))


@pytest.mark.parametrize("width", [2, 4, 8])
def test_records_keep_lengths_that_are_longer_than_they_need_be(width: int) -> None:
    def long(size: int) -> bytes:
        return (size | {2: 1, 4: 2, 8: 3}[width] << 8 * width - 2).to_bytes(width)

    parts = b"".join(long(len(it)) + it for it in (*TRACK.namespace, TRACK.name))
    message = encode_varint(0) + encode_varint(2) + parts + b"\0"
    records, hashes = Records(), hash_track(TRACK)
    record = comes_back(records, info(b"\x03" + len(message).to_bytes(2) + message, hashes))
    assert TRACK.name in record


@pytest.mark.parametrize("size", [65_000, 65_535, 200_000])
def test_records_of_very_long_data_are_short_and_share_it(size: int) -> None:
    records, hashes = Records(), hash_track(TRACK)
    one, other = (comes_back(records, info(bytes(size), hashes, it)) for it in (1, 2))
    assert (one[2:], len(records._forms)) == (other[2:], 1)


def test_records_of_a_very_long_message_have_its_name_only() -> None:
    body = encode_subscribe(TRACK)[3:] + bytes(65_000)
    long = info(b"\x03" + len(body).to_bytes(2) + body, hash_track(TRACK))
    assert len(comes_back(Records(), long)) < 20


def test_records_share_what_is_the_same_in_a_namespace() -> None:
    records = Records()
    names = [TrackName(TRACK.namespace, b"camera-%d" % it) for it in range(50)]
    made = [comes_back(records, of(name, it)) for it, name in enumerate(names)]
    assert (len(records._forms), len(set(made))) == (1, 50)
    comes_back(records, of(TrackName((b"other",), b"camera")))
    assert len(records._forms) == 2
    for record in made:
        records.release(record)
    assert len(records._forms) == 1


def test_records_number_forms_anew_when_they_are_given_up() -> None:
    records = Records()
    namespaces = [TrackName((b"%d" % it,), b"camera") for it in range(10)]
    made = [records.pack(of(name)) for name in namespaces]
    for record in made[3:6]:
        records.release(record)
    assert len(records._forms) == 7
    again = [comes_back(records, of(name)) for name in namespaces[3:6]]
    assert (len(records._forms), len(records._forms._uses)) == (10, 10)
    assert all(
        records.unpack(NODE, hash_track(name).full_name_hash, record) == of(name)
        for name, record in zip(namespaces[:3], made[:3], strict=True)
    )
    for record in (*made[:3], *made[6:], *again):
        records.release(record)
    assert (len(records._forms), len(records._forms._uses)) == (0, 0)
