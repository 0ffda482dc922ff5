"""Control that moves to another link: what still arrives on the first one is older.

Both sides have dialled. The peer sends nodes on the link that is established first, then on the one
that the lower node id dialled, and nothing keeps the two connections in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from laps.relay.peers import SAME_TIME_S
from laps.types import NodeInfo, NodePathItem, NodeType, format_node_id, parse_node_id
from laps.wire.control import encode
from laps.wire.peering import NodeInfoAdv, NodeInfoWd, SubscribeInfoAdv
from support.relays import Net, subscribe_info

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from laps.wire.peering import Message
    from support.relays import Puppet, Wire

FAR = parse_node_id("3:1")


def far(*path: str, node: str = "3:1") -> NodeInfo:
    """A node that the peer leads to, by these nodes."""
    items = tuple(NodePathItem(parse_node_id(hop), 1000) for hop in (*path, "1:2"))
    return NodeInfo(parse_node_id(node), NodeType.EDGE, path=items)


@dataclass
class Peering:
    """A relay and its peer, the link that control leaves, and the one that it moves to."""

    net: Net
    relay: Relay
    peer: Puppet
    first: Wire
    second: Wire

    def send(self, wire: Wire, message: Message) -> None:
        """The peer sends a message by one of the two."""
        end = wire.here if wire.here.relay is self.peer else wire.there
        end.send_control(0, encode(message))
        self.net.run()

    @property
    def path(self) -> list[str] | None:
        """How the relay reaches the far node; None: not at all."""
        choice = self.relay.nodes.best(FAR)
        path = None if choice is None else choice.path.info.path
        return None if path is None else [format_node_id(item.node_id) for item in path]


@pytest.fixture(params=["1:1", "1:3"])
def peering(request: pytest.FixtureRequest) -> Peering:
    """The peer is 1:2: the higher node id of the two, and then the lower."""
    net = Net()
    relay, peer = net.relay(request.param), net.puppet("1:2")
    low, high = (relay, peer) if relay.id < peer.id else (peer, relay)
    return Peering(net, relay, peer, net.wire(high, low), net.wire(low, high))


def test_control_moves_and_a_late_advertisement_replaces_nothing(peering: Peering) -> None:
    peering.send(peering.second, NodeInfoAdv(far()))
    peering.send(peering.first, NodeInfoAdv(far("2:1")))
    assert peering.path == ["1:2"]
    peering.first.cut()
    assert peering.path == ["1:2"]


def test_control_moves_and_a_late_withdraw_leaves_what_came_since(peering: Peering) -> None:
    peering.send(peering.second, NodeInfoAdv(far()))
    peering.send(peering.first, NodeInfoAdv(far("2:1")))
    peering.send(peering.first, NodeInfoWd(far("2:1")))
    assert peering.path == ["1:2"]
    peering.second.cut()
    assert peering.path is None


def test_control_moves_and_a_late_withdraw_counts_for_its_own_link(peering: Peering) -> None:
    peering.send(peering.first, NodeInfoAdv(far()))
    peering.send(peering.second, NodeInfoAdv(far(node="3:2")))
    assert peering.path == ["1:2"]
    peering.send(peering.first, NodeInfoWd(far()))
    assert peering.path is None


def test_control_moves_and_a_node_withdrawn_since_does_not_come_back(peering: Peering) -> None:
    peering.send(peering.second, NodeInfoAdv(far()))
    peering.send(peering.second, NodeInfoWd(far()))
    peering.send(peering.first, NodeInfoAdv(far("2:1")))
    assert peering.path is None


def test_control_moves_back_before_we_see_that_its_link_is_closed(peering: Peering) -> None:
    peering.send(peering.second, NodeInfoAdv(far()))
    peering.send(peering.first, NodeInfoAdv(far("2:1")))
    peering.send(peering.first, SubscribeInfoAdv(subscribe_info("3:1", "a/x", 1)))
    peering.second.cut()
    assert peering.path == ["2:1", "1:2"]
    assert len(peering.relay.subscribes) == 1


def test_control_moves_and_what_comes_much_later_is_not_late(peering: Peering) -> None:
    peering.send(peering.second, NodeInfoAdv(far()))
    peering.net.run(SAME_TIME_S + 0.1)
    peering.send(peering.first, NodeInfoAdv(far("2:1")))
    assert peering.path == ["2:1", "1:2"]
