"""The golden bytes of tests/vectors, read and written. Their README says how they are laid out."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from laps.errors import RemoteProtocolError
from laps.types import (
    AnnounceInfo,
    Candidate,
    Coordinates,
    DataDirection,
    FullLink,
    NamespaceInfo,
    NodeId,
    NodeInfo,
    NodeMetrics,
    NodePathItem,
    NodeType,
    PeerMode,
    Reachability,
    SnsId,
    SubscribeInfo,
    TrackHash,
    TrackKey,
    TrackName,
    hash_bytes,
    hash_track,
    parse_node_id,
    track_alias,
)
from laps.wire import extensions, interest, node_lists, peering, policy
from laps.wire.control import ControlDecoder, decode, encode
from laps.wire.extension_fields import ExtensionType
from laps.wire.extensions import EXTENDED_CODECS
from laps.wire.objects import (
    DatagramHeader,
    DataStreamDecoder,
    ExistingStreamHeader,
    NewStreamHeader,
    ObjectHeader,
    decode_datagram,
    decode_object_header,
    encode_datagram_header,
    encode_existing_stream_header,
    encode_new_stream_header,
)

VECTORS = Path(__file__).parents[2] / "vectors"

Meaning = dict[str, str]


@dataclass
class Case:
    name: str
    data: bytes
    meaning: Meaning


def read_cases(path: Path) -> list[Case]:
    cases = []
    for block in path.read_text().split("\n== ")[1:]:
        name, *lines = (line.partition("#")[0].strip() for line in block.splitlines())
        means = lines.index("means")
        pairs = (line.partition("=") for line in lines[means + 1 :] if line)
        meaning = {key.strip(): value.strip() for key, _, value in pairs}
        cases.append(Case(f"{path.stem}: {name}", bytes.fromhex("".join(lines[:means])), meaning))
    return cases


CASES = [case for path in sorted(VECTORS.glob("*.txt")) for case in read_cases(path)]


def with_key(key: str) -> pytest.MarkDecorator:
    cases = [case for case in CASES if key in case.meaning]
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


def number(text: str) -> int:
    return int(text, 0)


def node_ids(text: str) -> tuple[NodeId, ...]:
    return tuple(map(parse_node_id, text.split()))


def node_info(meaning: Meaning) -> NodeInfo:
    hops = (item.split("@") for item in meaning["path"].split())
    return NodeInfo(
        parse_node_id(meaning["id"]),
        NodeType[meaning["type"].upper()],
        meaning["contact"],
        float(meaning["longitude"]),
        float(meaning["latitude"]),
        tuple(NodePathItem(parse_node_id(hop), number(srtt_us)) for hop, srtt_us in hops),
    )


def node_list(meaning: Meaning) -> tuple[NodeInfo, ...]:
    listed: dict[str, Meaning] = {}
    for key, value in meaning.items():
        place, dot, field = key.partition(".")
        if dot:
            listed.setdefault(place, {})[field] = value
    return tuple(map(node_info, listed.values()))


def subscribe_info(meaning: Meaning) -> SubscribeInfo:
    return SubscribeInfo(
        number(meaning["sequence"]),
        parse_node_id(meaning["source_node_id"]),
        track_hash(meaning),
        bytes.fromhex(meaning["subscribe_data"]),
    )


def announce_info(meaning: Meaning) -> AnnounceInfo:
    return AnnounceInfo(
        parse_node_id(meaning["source_node_id"]),
        tuple(map(number, meaning["namespace_hashes"].split())),
        number(meaning["name_hash"]),
    )


def node_metrics(meaning: Meaning) -> NodeMetrics:
    reached = []
    for item in meaning["reachability"].split():
        node_id, _, measured = item.partition("@")
        srtt_us, _, loss = measured.partition("/")
        reached.append(Reachability(parse_node_id(node_id), number(srtt_us), float(loss)))
    return NodeMetrics(
        number(meaning["sequence"]),
        parse_node_id(meaning["source_node_id"]),
        float(meaning["load"]),
        number(meaning["capacity_bps"]),
        number(meaning["egress_bps"]),
        meaning["region"],
        tuple(meaning["tags"].split()),
        tuple(reached),
        node_ids(meaning["best_vias"]),
        meaning["client_address"],
        coordinates(meaning),
        candidates(meaning),
        full_links(meaning),
    )


def coordinates(meaning: Meaning) -> Coordinates | None:
    if (text := meaning.get("coordinates")) is None:
        return None
    return Coordinates(*map(float, text.split()))


def candidates(meaning: Meaning) -> tuple[Candidate, ...]:
    found = []
    for item in meaning.get("candidates", "").split():
        node_id, _, measured = item.partition("@")
        rtt_us, loss, bandwidth_bps = measured.split("/")
        figures = number(rtt_us), float(loss), number(bandwidth_bps)
        found.append(Candidate(parse_node_id(node_id), *figures))
    return tuple(found)


def full_links(meaning: Meaning) -> tuple[FullLink, ...]:
    found = []
    for item in meaning.get("full_links", "").split():
        node_id, _, full = item.partition("@")
        found.append(FullLink(parse_node_id(node_id), float(full)))
    return tuple(found)


def namespace_info(meaning: Meaning) -> NamespaceInfo:
    return NamespaceInfo(
        number(meaning["sequence"]),
        parse_node_id(meaning["source_node_id"]),
        tuple(map(bytes.fromhex, meaning["namespace"].split())),
        bytes.fromhex(meaning["name"]) if "name" in meaning else None,
    )


def track_hash(meaning: Meaning) -> TrackHash:
    return TrackHash(
        number(meaning["namespace_hash"]),
        number(meaning["name_hash"]),
        TrackKey(number(meaning["full_name_hash"])),
    )


def message(meaning: Meaning) -> peering.Message:
    match meaning["message"]:
        case "CONNECT":
            return peering.Connect(
                PeerMode[meaning["peer_mode"].upper()],
                DataDirection[meaning["data_direction"].upper()],
                node_info(meaning),
            )
        case "CONNECT_RESPONSE":
            info = node_info(meaning) if "id" in meaning else None
            return peering.ConnectResponse(number(meaning["response_code"]), info)
        case "NODE_INFO_ADV":
            return peering.NodeInfoAdv(node_info(meaning))
        case "NODE_INFO_WD":
            return peering.NodeInfoWd(node_info(meaning))
        case "SUBSCRIBE_INFO_ADV":
            return peering.SubscribeInfoAdv(subscribe_info(meaning))
        case "SUBSCRIBE_INFO_WD":
            return peering.SubscribeInfoWd(subscribe_info(meaning))
        case "ANNOUNCE_INFO_ADV":
            return peering.AnnounceInfoAdv(announce_info(meaning))
        case "ANNOUNCE_INFO_WD":
            return peering.AnnounceInfoWd(announce_info(meaning))
        case "SUBSCRIBE_NODE_SET_ADV":
            nodes = node_ids(meaning["nodes"])
            return peering.SubscribeNodeSetAdv(SnsId(number(meaning["sns_id"])), nodes)
        case "SUBSCRIBE_NODE_SET_WD":
            return peering.SubscribeNodeSetWd(SnsId(number(meaning["sns_id"])))
    return extension(meaning)


def silence(meaning: Meaning) -> peering.Message:
    if meaning["message"] == "NODE_SILENT":
        return extensions.NodeSilent(parse_node_id(meaning["node_id"]))
    return extensions.SetSilent(SnsId(number(meaning["sns_id"])))


def set_terms(meaning: Meaning) -> policy.SetTerms:
    ways = []
    for way in filter(None, meaning["ways"].split(";")):
        vias, _, nodes = way.partition(">")
        ways.append((node_ids(vias), node_ids(nodes)))
    return policy.SetTerms(
        SnsId(number(meaning["sns_id"])),
        meaning["service"],
        number(meaning["order"]),
        tuple(meaning["inside"].split()),
        tuple(meaning["avoid"].split()),
        tuple(ways),
        node_ids(meaning["passed"]),
    )


def policy_refusal(meaning: Meaning) -> policy.PolicyRefusal:
    return policy.PolicyRefusal(
        number(meaning["hops"]),
        parse_node_id(meaning["source_node_id"]),
        parse_node_id(meaning["target_node_id"]),
        TrackKey(number(meaning["full_name_hash"])),
        meaning["reason"],
    )


def subscribe_interest(meaning: Meaning) -> interest.SubscribeInterest:
    nodes = node_ids(meaning["servers"]), node_ids(meaning["near"])
    wants = interest.Wants[meaning["wants"]]
    flags = bool(number(meaning["serves"])), bool(number(meaning["digests"]))
    return interest.SubscribeInterest(wants, flags[0], *nodes, flags[1])


def subscribe_digest(meaning: Meaning) -> interest.SubscribeDigest:
    bits = number(meaning["bits"])
    sums = [0] * (1 << bits)
    for item in meaning["sums"].split():
        bucket, _, value = item.partition(":")
        sums[number(bucket)] = number(value)
    return interest.SubscribeDigest(bits, tuple(sums))


SIMPLE: dict[str, Callable[[Meaning], peering.Message]] = {
    "NODE_LIST_ADV": lambda it: node_lists.NodeListAdv(node_list(it)),
    "NODE_LIST_WD": lambda it: node_lists.NodeListWd(node_list(it)),
    "AUTHORIZATION": lambda it: extensions.Authorization(bytes.fromhex(it["token"])),
    "SET_TERMS": set_terms,
    "POLICY_REFUSAL": policy_refusal,
    "SUBSCRIBE_INTEREST": subscribe_interest,
    "SUBSCRIBE_DIGEST": subscribe_digest,
    "SUBSCRIBE_AGREED": lambda it: interest.SubscribeAgreed(
        number(it["bits"]), bytes.fromhex(it["same"])
    ),
}


def extension(meaning: Meaning) -> peering.Message:
    if (simple := SIMPLE.get(meaning["message"])) is not None:
        return simple(meaning)
    match meaning["message"]:
        case "NODE_METRICS":
            return extensions.NodeMetricsAdv(node_metrics(meaning))
        case "NAMESPACE_INFO_ADV":
            return extensions.NamespaceInfoAdv(namespace_info(meaning))
        case "NAMESPACE_INFO_WD":
            return extensions.NamespaceInfoWd(namespace_info(meaning))
        case "GOAWAY":
            return extensions.GoAway(number(meaning["grace_ms"]), meaning["contact"])
        case "RELAY_REQUEST":
            return extensions.RelayRequest(*relayed(meaning))
        case "RELAY_RESPONSE":
            return extensions.RelayResponse(*relayed(meaning))
        case "REPAIR_REQUEST":
            key, age_ms = number(meaning["full_name_hash"]), number(meaning["age_ms"])
            return extensions.RepairRequest(*route(meaning), TrackKey(key), age_ms, have(meaning))
        case "SET_SILENT" | "NODE_SILENT":
            return silence(meaning)
        case "SET_PRESSED":
            urgency = extensions.Urgency(number(meaning["urgency"]))
            return extensions.SetPressed(SnsId(number(meaning["sns_id"])), urgency)
        case "REPAIR_RESPONSE":
            sent, last_hop = number(meaning["sent"]), parse_node_id(meaning["last_hop"])
            return extensions.RepairResponse(*route(meaning), sent, last_hop)
    raise AssertionError(f"no such message: {meaning['message']}")


def relayed(meaning: Meaning) -> tuple[int, NodeId, NodeId, int, bytes]:
    return *route(meaning), bytes.fromhex(meaning["payload"])


def route(meaning: Meaning) -> tuple[int, NodeId, NodeId, int]:
    source, target = meaning["source_node_id"], meaning["target_node_id"]
    return (
        number(meaning["hops"]),
        parse_node_id(source),
        parse_node_id(target),
        number(meaning["request_id"]),
    )


def have(meaning: Meaning) -> tuple[extensions.Have, ...]:
    items = [item.split() for item in meaning["have"].split(",") if item]
    return tuple(
        extensions.Have(extensions.HaveKind(int(kind)), *map(int, numbers))
        for kind, *numbers in items
    )


def object_header(meaning: Meaning) -> ObjectHeader:
    lengths = (number(meaning["data_length"]), number(meaning["header_length"]))
    if meaning["object"] == "EXISTING_STREAM":
        return ExistingStreamHeader(*lengths)
    sns_id = SnsId(number(meaning["sns_id"]))
    full_name_hash = TrackKey(number(meaning["full_name_hash"]))
    if meaning["object"] == "DATAGRAM":
        return DatagramHeader(sns_id, full_name_hash, *lengths)
    priority, ttl_us = number(meaning["priority"]), number(meaning["ttl_us"])
    return NewStreamHeader(sns_id, full_name_hash, priority, ttl_us, *lengths)


def encode_header(header: ObjectHeader) -> bytes:
    match header:
        case DatagramHeader(sns_id, full_name_hash, data_length):
            return encode_datagram_header(sns_id, full_name_hash, data_length)
        case NewStreamHeader(sns_id, full_name_hash, priority, ttl_us, data_length):
            return encode_new_stream_header(sns_id, full_name_hash, priority, ttl_us, data_length)
        case ExistingStreamHeader(data_length):
            return encode_existing_stream_header(data_length)


@with_key("message")
def test_a_control_message_is_read(case: Case) -> None:
    whole = message(case.meaning), len(case.data)
    assert decode(case.data, codecs=EXTENDED_CODECS) == whole


@with_key("message")
def test_a_control_message_is_written(case: Case) -> None:
    canonical = case.meaning.get("encode") != "no"
    written = encode(message(case.meaning), codecs=EXTENDED_CODECS)
    assert (written == case.data) is canonical


@with_key("object")
def test_a_data_object_is_read(case: Case) -> None:
    header = decode_object_header(case.data)
    assert header == object_header(case.meaning)
    assert case.data[header.header_length :] == bytes.fromhex(case.meaning["data"])


@with_key("object")
def test_a_data_object_is_written(case: Case) -> None:
    canonical = case.meaning.get("encode") != "no"
    data = encode_header(object_header(case.meaning)) + bytes.fromhex(case.meaning["data"])
    assert (data == case.data) is canonical


def read_control(decoder: ControlDecoder, data: bytes) -> list[object]:
    decoder.feed(data)
    return list(decoder)


def arrive(case: Case) -> list[object]:
    """What the case's reader makes of its bytes; nothing while it waits for more."""
    match case.meaning["reader"]:
        case "control":
            return read_control(ControlDecoder(), case.data)
        case "extended":
            return read_control(ControlDecoder(codecs=EXTENDED_CODECS), case.data)
        case "stream":
            return list(DataStreamDecoder().feed(case.data))
        case "datagram":
            return [decode_datagram(case.data)]
    raise AssertionError(f"no such reader: {case.meaning['reader']}")


@with_key("error")
def test_what_is_wrong_is_refused_with_its_code(case: Case) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        arrive(case)
    assert caught.value.code == number(case.meaning["error"])


@with_key("incomplete")
def test_what_is_unfinished_waits(case: Case) -> None:
    assert arrive(case) == []


@with_key("tuple_hashes")
def test_a_track_is_hashed(case: Case) -> None:
    parts = tuple(bytes.fromhex(part) for part in case.meaning["namespace"].split())
    hashes = hash_track(TrackName(parts, bytes.fromhex(case.meaning["name"])))
    assert hashes == track_hash(case.meaning)
    assert track_alias(hashes.full_name_hash) == number(case.meaning["track_alias"])
    tuple_hashes = tuple(map(number, case.meaning["tuple_hashes"].split()))
    assert tuple(map(hash_bytes, parts)) == tuple_hashes


def test_every_message_and_object_has_vectors() -> None:
    messages = {case.meaning.get("message") for case in CASES} - {None}
    types = [*peering.MessageType, *ExtensionType]
    assert messages == {message_type.name for message_type in types}
    objects = {case.meaning.get("object") for case in CASES} - {None}
    assert objects == {"DATAGRAM", "NEW_STREAM", "EXISTING_STREAM"}
