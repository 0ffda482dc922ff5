"""What a peer may make a relay hold is bounded, and one message does no harm to the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.errors import CloseCode
from laps.relay.settings import PeerLimits
from laps.types import (
    AnnounceInfo,
    NamespaceInfo,
    NodeInfo,
    NodePathItem,
    NodeType,
    SnsId,
    parse_node_id,
)
from laps.wire.control import encode
from laps.wire.extensions import EXTENDED_CODECS, NamespaceInfoAdv
from laps.wire.node_lists import NodeListAdv
from laps.wire.peering import (
    MAX_PATH_NODES,
    AnnounceInfoAdv,
    NodeInfoAdv,
    SubscribeInfoAdv,
    SubscribeInfoWd,
    SubscribeNodeSetAdv,
)
from support.relays import App, Net, Puppet, subscribe_info

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from laps.wire.peering import Message

FEW = PeerLimits(nodes=5, subscribes=5, namespaces=5, announces=5, sets=5)


def meet(node_type: NodeType = NodeType.EDGE) -> tuple[Net, Relay, Puppet]:
    net = Net()
    relay, puppet = net.relay("1:1", limits=FEW), net.puppet("2:1", node_type)
    net.wire(puppet, relay, extended=True)
    net.run(10.0)
    return net, relay, puppet


def message(kind: str, number: int) -> Message:
    source = parse_node_id("2:1")
    match kind:
        case "nodes":
            path = (NodePathItem(source, 5),)
            return NodeInfoAdv(NodeInfo(parse_node_id(f"3:{number}"), NodeType.EDGE, path=path))
        case "subscribes":
            return SubscribeInfoAdv(subscribe_info("2:1", f"a/{number}", 1))
        case "namespaces":
            return NamespaceInfoAdv(NamespaceInfo(1, source, (b"%d" % number,)))
        case "announces":
            return AnnounceInfoAdv(AnnounceInfo(source, (number,)))
        case _:
            return SubscribeNodeSetAdv(SnsId(number), (parse_node_id("1:1"),))


def say(puppet: Puppet, *messages: Message) -> None:
    for one in messages:
        puppet.say_bytes(encode(one, codecs=EXTENDED_CODECS))


@pytest.mark.parametrize("kind", ["nodes", "subscribes", "namespaces", "announces", "sets"])
def test_a_peer_that_tells_of_too_much_is_closed(kind: str) -> None:
    _, relay, puppet = meet(NodeType.STUB if kind == "announces" else NodeType.EDGE)
    say(puppet, *(message(kind, number) for number in range(1, 6)))
    assert relay.counters.peers_over_limit == 0
    say(puppet, message(kind, 6))
    assert puppet.closed is not None
    code, reason = puppet.closed
    assert code == CloseCode.GRACEFUL
    assert f"more than 5 {kind}: peering.most_{kind}" in reason
    assert relay.counters.peers_over_limit == 1


def test_the_nodes_of_a_list_are_counted() -> None:
    _, relay, puppet = meet()
    say(puppet, nodes_listed(1, 5), nodes_listed(1, 5))
    assert len(relay.nodes) == 6
    assert relay.counters.peers_over_limit == 0
    say(puppet, nodes_listed(4, 6))
    assert puppet.closed is not None
    assert "more than 5 nodes: peering.most_nodes" in puppet.closed[1]


def nodes_listed(first: int, last: int) -> Message:
    messages = (message("nodes", number) for number in range(first, last + 1))
    return NodeListAdv(tuple(it.node_info for it in messages if isinstance(it, NodeInfoAdv)))


@pytest.mark.parametrize("kind", ["nodes", "subscribes", "namespaces", "announces", "sets"])
def test_what_is_said_again_is_not_more(kind: str) -> None:
    _, _, puppet = meet(NodeType.STUB if kind == "announces" else NodeType.EDGE)
    say(puppet, *(message(kind, number % 4 + 1) for number in range(20)))
    assert puppet.closed is None


def test_what_was_withdrawn_leaves_room() -> None:
    _, relay, puppet = meet()
    for number in range(30):
        say(puppet, SubscribeInfoAdv(subscribe_info("2:1", f"a/{number}", 1)))
        say(puppet, SubscribeInfoWd(subscribe_info("2:1", f"a/{number}", 2)))
    assert puppet.closed is None
    assert len(relay.subscribes) == 0


def test_a_contact_that_is_a_story_is_refused() -> None:
    _, relay, puppet = meet()
    path = (NodePathItem(puppet.id, 5),)
    short = NodeInfoAdv(NodeInfo(parse_node_id("3:1"), NodeType.EDGE, "x" * 1024, path=path))
    say(puppet, short)
    assert len(relay.nodes) == 2
    body = encode(short)
    # One byte more, and both lengths say so.
    grown = bytearray(body.replace(b"x" * 1024, b"x" * 1025))
    grown[3:7] = (len(grown) - 7).to_bytes(4)
    at = grown.index(b"xx") - 2
    grown[at : at + 2] = (0x4000 | 1025).to_bytes(2)
    puppet.say_bytes(bytes(grown))
    assert puppet.closed is not None
    assert puppet.closed[0] == CloseCode.INVALID_ENCODING
    assert "contact: 1025 bytes" in puppet.closed[1]


def test_a_path_of_the_greatest_length_is_taken_and_not_passed_on() -> None:
    net, relay, puppet = meet()
    listener = net.puppet("2:2")
    net.wire(listener, relay)
    hops = (*(NodePathItem(parse_node_id(f"4:{low}"), 1) for low in range(1, MAX_PATH_NODES)),)
    far = NodeInfo(parse_node_id("3:1"), NodeType.EDGE, path=(*hops, NodePathItem(puppet.id, 5)))
    say(puppet, NodeInfoAdv(far))
    net.run(5.0)
    assert relay.nodes.best(far.id) is not None
    assert far.id not in {m.node_info.id for m in listener.heard_of(NodeInfoAdv)}


def test_a_message_that_cannot_be_written_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net, relay, puppet = meet()
    monkeypatch.setattr("laps.wire.peering.MAX_CONTACT_BYTES", 10_000)
    path = (NodePathItem(puppet.id, 5),)
    say(
        puppet,
        NodeInfoAdv(NodeInfo(parse_node_id("3:1"), NodeType.EDGE, "x" * 5000, path=path)),
        NodeInfoAdv(NodeInfo(parse_node_id("3:2"), NodeType.EDGE, "", path=path)),
    )
    monkeypatch.undo()
    listener = net.puppet("2:2")
    net.wire(listener, relay)
    net.subscribe(relay, App(), "a/x")
    net.run(5.0)
    assert listener.closed is None
    told = {message.node_info.id for message in listener.heard_of(NodeInfoAdv)}
    assert parse_node_id("3:2") in told
    assert len(listener.heard_of(SubscribeInfoAdv)) == 1
    assert relay.counters.unsendable_messages > 0
