"""The extension messages there and back, and who may see them."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.errors import InvalidEncoding, InvalidMessageType, LocalProtocolError
from laps.types import (
    MAX_ADDRESS_LENGTH,
    Candidate,
    Coordinates,
    FullLink,
    NamespaceInfo,
    NodeId,
    NodeInfo,
    NodeMetrics,
    NodePathItem,
    NodeType,
    Reachability,
    SnsId,
    TrackKey,
)
from laps.wire.buffer import VARINT_MAX, encode_varint
from laps.wire.control import decode, encode
from laps.wire.extension_fields import ExtensionType
from laps.wire.extensions import (
    EXTENDED_CODECS,
    MAX_BEST_VIAS,
    MAX_FULL_NAME_LENGTH,
    MAX_HAVE,
    MAX_NAMESPACE_PARTS,
    MAX_REACHABILITY,
    MAX_REGION_LENGTH,
    MAX_TAG_LENGTH,
    MAX_TAGS,
    MAX_TOKEN_LENGTH,
    Authorization,
    GoAway,
    Have,
    HaveKind,
    NamespaceInfoAdv,
    NamespaceInfoWd,
    NodeMetricsAdv,
    NodeSilent,
    RelayRequest,
    RelayResponse,
    RepairRequest,
    RepairResponse,
    SetPressed,
    SetSilent,
    Urgency,
    check_full_name,
)
from laps.wire.interest import (
    MAX_NEAR,
    MAX_SERVERS,
    SubscribeAgreed,
    SubscribeDigest,
    SubscribeInterest,
    Wants,
)
from laps.wire.metric_fields import MAX_CANDIDATES, MAX_COORDINATE_MS, MAX_FULL_LINKS
from laps.wire.node_lists import NodeListAdv, NodeListWd
from laps.wire.peering import CODECS, Message, MessageType
from laps.wire.policy import PolicyRefusal, SetTerms

# No test times a wall clock, Hypothesis included.
quick = settings(deadline=None, max_examples=50)

SOURCE = NodeId(1)

u64 = st.integers(0, 2**64 - 1)
node_ids = u64.map(NodeId)
sequences = st.integers(0, 2**16 - 1)
fractions = st.floats(0, 1)
shares = st.floats(0, 1, width=32)
places_ms = st.floats(-MAX_COORDINATE_MS, MAX_COORDINATE_MS, width=32)
heights_ms = st.floats(0, MAX_COORDINATE_MS, width=32)
node_metrics = st.builds(
    NodeMetrics,
    sequences,
    node_ids,
    fractions,
    u64,
    u64,
    st.text(max_size=16),
    st.lists(st.text(max_size=16), max_size=3).map(tuple),
    st.lists(st.builds(Reachability, node_ids, u64, fractions), max_size=3).map(tuple),
    st.lists(node_ids, max_size=3).map(tuple),
    st.text(max_size=64),
    st.none() | st.builds(Coordinates, *[places_ms] * 3, heights_ms, shares),
    st.lists(
        st.builds(
            Candidate,
            node_ids,
            st.integers(0, 2**32 - 1),
            shares,
            st.integers(0, 2**32 - 1).map(lambda kbps: 1000 * kbps),
        ),
        max_size=MAX_CANDIDATES,
    ).map(tuple),
    st.lists(st.builds(FullLink, node_ids, shares), max_size=3).map(tuple),
)
namespace_infos = st.builds(
    NamespaceInfo,
    sequences,
    node_ids,
    st.lists(st.binary(max_size=80), max_size=4).map(tuple),
    st.none() | st.binary(max_size=80),
)
varints = st.integers(0, VARINT_MAX)
relayed = (
    st.integers(0, 255),
    node_ids,
    node_ids,
    st.integers(0, 2**32 - 1),
    st.binary(max_size=64),
)
regions = st.lists(st.text(max_size=16), max_size=3).map(tuple)
vias = st.lists(node_ids, max_size=3).map(tuple)
node_infos = st.builds(
    NodeInfo,
    node_ids,
    st.sampled_from(NodeType),
    st.text(max_size=16),
    st.floats(-180, 180),
    st.floats(-90, 90),
    st.lists(st.builds(NodePathItem, node_ids, st.integers(0, 2**64 - 1)), max_size=3).map(tuple),
)
node_lists = st.lists(node_infos, max_size=3).map(tuple)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Authorization, st.binary(min_size=1, max_size=64)),
    st.builds(NodeMetricsAdv, node_metrics),
    st.builds(NamespaceInfoAdv, namespace_infos),
    st.builds(NamespaceInfoWd, namespace_infos),
    st.builds(GoAway, st.integers(0, 2**32 - 1), st.text(max_size=64)),
    st.builds(RelayRequest, *relayed),
    st.builds(RelayResponse, *relayed),
    st.builds(
        RepairRequest,
        *relayed[:4],
        st.integers(0, 2**64 - 1).map(TrackKey),
        st.integers(0, 2**32 - 1),
        st.lists(st.builds(Have, st.sampled_from(HaveKind), *[varints] * 3), max_size=5).map(tuple),
    ),
    st.builds(SetSilent, st.integers(0, 2**32 - 1).map(SnsId)),
    st.builds(NodeSilent, st.integers(0, 2**64 - 1).map(NodeId)),
    st.builds(NodeListAdv, node_lists),
    st.builds(NodeListWd, node_lists),
    st.builds(SetPressed, st.integers(0, 2**32 - 1).map(SnsId), st.sampled_from(Urgency)),
    st.builds(SubscribeInterest, st.sampled_from(Wants), st.booleans(), vias, vias, st.booleans()),
    st.integers(6, 8).flatmap(
        lambda bits: st.lists(
            st.integers(0, 2**64 - 1), min_size=1 << bits, max_size=1 << bits
        ).map(lambda sums: SubscribeDigest(bits, tuple(sums)))
    ),
    st.integers(6, 12).flatmap(
        lambda bits: st.binary(min_size=1 << bits >> 3, max_size=1 << bits >> 3).map(
            lambda same: SubscribeAgreed(bits, same)
        )
    ),
    st.builds(RepairResponse, *relayed[:4], st.integers(0, 2**32 - 1), node_ids),
    st.builds(
        SetTerms,
        st.integers(0, 2**32 - 1).map(SnsId),
        st.text(max_size=16),
        st.integers(0, 255),
        regions,
        regions,
        st.lists(st.tuples(vias, vias), max_size=3).map(tuple),
        st.lists(node_ids, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(
        PolicyRefusal,
        st.integers(0, 255),
        node_ids,
        node_ids,
        st.integers(0, 2**64 - 1).map(TrackKey),
        st.text(max_size=64),
    ),
)


HAVE = Have(HaveKind.ALL, 0, 0, 0)


def metrics(**fields: object) -> NodeMetricsAdv:
    values = {"load": 0.5, "capacity_bps": 2, "egress_bps": 1} | fields
    return NodeMetricsAdv(NodeMetrics(1, SOURCE, **values))  # type: ignore[arg-type]


def namespace(*parts: bytes, name: bytes | None = None) -> NamespaceInfoAdv:
    return NamespaceInfoAdv(NamespaceInfo(1, SOURCE, parts, name))


@quick
@given(messages, st.binary(max_size=8), st.binary(max_size=8))
def test_every_extension_survives_the_wire(message: Message, before: bytes, after: bytes) -> None:
    data = encode(message, codecs=EXTENDED_CODECS)
    decoded = decode(before + data + after, len(before), codecs=EXTENDED_CODECS)
    assert decoded == (message, len(before) + len(data))


@quick
@given(messages)
def test_a_plain_peer_neither_gets_nor_sends_one(message: Message) -> None:
    with pytest.raises(LocalProtocolError, match="not a message that this peer knows"):
        encode(message)
    with pytest.raises(InvalidMessageType):
        decode(encode(message, codecs=EXTENDED_CODECS))


def test_the_extensions_stand_beside_the_document() -> None:
    assert set(EXTENDED_CODECS) == {*MessageType, *ExtensionType}
    assert {key: EXTENDED_CODECS[key] for key in CODECS} == CODECS
    assert min(ExtensionType) == 64


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (metrics(load=1.01), "NODE_METRICS: load 1.01 is outside 0 to 1"),
        (metrics(load=float("nan")), "load nan is outside 0 to 1"),
        (metrics(capacity_bps=2**64), "NODE_METRICS: "),
        (metrics(region="x" * (MAX_REGION_LENGTH + 1)), "region_len 65 is more than 64"),
        (metrics(region="\ud800"), "surrogates"),
        (metrics(tags=("x",) * (MAX_TAGS + 1)), "tag_count 33 is more than 32"),
        (metrics(tags=("ü" * (MAX_TAG_LENGTH // 2 + 1),)), "tag_len 66 is more than 64"),
        (metrics(reachability=(Reachability(SOURCE, 1, -0.1),)), "loss -0.1 is outside 0 to 1"),
        (
            metrics(reachability=(Reachability(SOURCE, 1, 0),) * (MAX_REACHABILITY + 1)),
            "reachability_count 257 is more than 256",
        ),
        (metrics(best_vias=(SOURCE,) * (MAX_BEST_VIAS + 1)), "best_via_count 17 is more than 16"),
        (
            metrics(client_address="x" * (MAX_ADDRESS_LENGTH + 1)),
            "NODE_METRICS: client_address_len 260 is more than 259",
        ),
        (metrics(full_links=(FullLink(SOURCE, 1.5),)), "full 1.5 is outside 0 to 1"),
        (
            metrics(full_links=(FullLink(SOURCE, 1),) * (MAX_FULL_LINKS + 1)),
            "full_links 257 is more than 256",
        ),
        (namespace(*[b""] * (MAX_NAMESPACE_PARTS + 1)), "part_count 33 is more than 32"),
        (
            namespace(b"x" * MAX_FULL_NAME_LENGTH, name=b"y"),
            "NAMESPACE_INFO_ADV: the full name's length 4097 is more than 4096",
        ),
        (NamespaceInfoWd(NamespaceInfo(2**16, SOURCE, ())), "NAMESPACE_INFO_WD: "),
        (GoAway(2**32), "GOAWAY: "),
        (Authorization(b""), "AUTHORIZATION: the token is empty"),
        (
            Authorization(b"x" * (MAX_TOKEN_LENGTH + 1)),
            "AUTHORIZATION: the token's length 8193 is more than 8192",
        ),
        (RelayRequest(256, SOURCE, SOURCE, 0, b""), "RELAY_REQUEST: "),
        (RelayResponse(0, SOURCE, SOURCE, 2**32, b""), "RELAY_RESPONSE: "),
        (
            RepairRequest(0, SOURCE, SOURCE, 0, TrackKey(0), 0, (HAVE,) * (MAX_HAVE + 1)),
            "REPAIR_REQUEST: have_count 1001 is more than 1000",
        ),
        (SetSilent(SnsId(2**32)), "SET_SILENT: "),
        (NodeSilent(NodeId(2**64)), "NODE_SILENT: "),
        (SetPressed(SnsId(2**32), Urgency.NONE), "SET_PRESSED: "),
        (
            SubscribeInterest(Wants.ALL, servers=(SOURCE,) * (MAX_SERVERS + 1)),
            "SUBSCRIBE_INTEREST: server_count 65 is more than 64",
        ),
        (
            SubscribeInterest(Wants.OFFERED, near=(SOURCE,) * (MAX_NEAR + 1)),
            "SUBSCRIBE_INTEREST: near_count 65 is more than 64",
        ),
        (RepairResponse(0, SOURCE, SOURCE, 0, 2**32, SOURCE), "REPAIR_RESPONSE: "),
        (GoAway(1, "x" * (MAX_ADDRESS_LENGTH + 1)), "contact_len 260 is more than 259"),
    ],
)
def test_what_a_peer_would_refuse_is_never_written(message: Message, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words):
        encode(message, codecs=EXTENDED_CODECS)


@pytest.mark.parametrize(
    "message",
    [
        metrics(
            load=1,
            region="x" * MAX_REGION_LENGTH,
            tags=("x" * MAX_TAG_LENGTH,) * MAX_TAGS,
            reachability=(Reachability(SOURCE, 2**64 - 1, 1),) * MAX_REACHABILITY,
            best_vias=(SOURCE,) * MAX_BEST_VIAS,
            client_address="x" * MAX_ADDRESS_LENGTH,
        ),
        namespace(*[b"x" * 128] * MAX_NAMESPACE_PARTS, name=b""),
        GoAway(2**32 - 1, "x" * MAX_ADDRESS_LENGTH),
    ],
)
def test_everything_fits_up_to_its_bound(message: Message) -> None:
    data = encode(message, codecs=EXTENDED_CODECS)
    assert decode(data, codecs=EXTENDED_CODECS) == (message, len(data))


def test_a_name_too_long_is_refused_part_by_part_and_as_a_whole() -> None:
    head, most = b"\0\1" + bytes(8), MAX_FULL_NAME_LENGTH
    for parts, words in (
        (b"\1" + encode_varint(most + 1) + bytes(most + 1), "part_len 4097 is more than 4096"),
        (b"\2" + encode_varint(most) + bytes(most) + b"\1a", "full name's length 4097 is more"),
    ):
        body = head + parts + b"\0"
        with pytest.raises(InvalidEncoding, match=words):
            decode(b"\1\0\x41" + len(body).to_bytes(4) + body, codecs=EXTENDED_CODECS)


def test_a_count_takes_no_memory_before_its_items_are_there() -> None:
    data = bytearray(encode(metrics(), codecs=EXTENDED_CODECS))
    data[-3:-2] = b"\x41\x00"  # a reachability_count of 256
    data[3:7] = (len(data) - 7).to_bytes(4)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidEncoding, match="256 needs 6144 bytes and 2 are left"):
            decode(bytes(data), codecs=EXTENDED_CODECS)
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()


def test_what_is_read_outlives_the_bytes_it_came_in() -> None:
    data = bytearray(encode(namespace(b"a", name=b"b"), codecs=EXTENDED_CODECS))
    decoded = decode(memoryview(data), codecs=EXTENDED_CODECS)
    data[:] = bytes(len(data))
    assert decoded is not None
    assert decoded[0] == namespace(b"a", name=b"b")


def test_a_name_can_be_checked_before_it_is_said() -> None:
    check_full_name((b"a",) * MAX_NAMESPACE_PARTS, None)
    with pytest.raises(InvalidEncoding, match="part_count 33"):
        check_full_name((b"a",) * (MAX_NAMESPACE_PARTS + 1), None)
