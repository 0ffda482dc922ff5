"""What a relay tells its control peers of nodes and subscribes.

- A node is advertised to a control peer unless that peer is the node, or is in the path. A node
  that no data can reach from here is not advertised where data would follow: over a peering that
  carries data.
- The subscribes of a node go where the node is advertised, right after the advertisement, and to
  whoever advertises it to us: it may know the node by a peering for data alone. Whoever no longer
  knows a way to a node forgets its subscribes; whoever is told of it again, or tells of it again,
  is told of them again. So there is nothing to repair after a partition.
- Advertisements gather for a while. Withdrawals do not wait, and neither does the news that our way
  to a node now leads through the peer that we had advertised it to, or has become longer: whoever
  still believes in the old one may send us what we send to him, and a loop would last as long.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from laps.types import NodePathItem, NodeType
from laps.wire.peering import NodeInfoAdv, NodeInfoWd, SubscribeInfoAdv, SubscribeInfoWd

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.infobase.nodes import Choice, Nodes
    from laps.infobase.subscribes import Subscribes
    from laps.relay.extensions import Extensions
    from laps.relay.peers import Links, Peer
    from laps.types import NodeId, NodeInfo, SubscribeInfo

# A round trip that changed by less than a tenth, or by less than a millisecond, is the same.
SRTT_CHANGE: Final = 0.1
SRTT_CHANGE_US: Final = 1000


class Exchange:
    """The advertisements and withdrawals that go out."""

    def __init__(
        self,
        self_info: NodeInfo,
        nodes: Nodes,
        subscribes: Subscribes,
        links: Links,
        extensions: Extensions,
        gather_s: float,
    ) -> None:
        self._self_info = self_info
        self._nodes = nodes
        self._subscribes = subscribes
        self._links = links
        self._extensions = extensions
        self._gather_s = gather_s
        self._gathered: dict[NodeId, None] = {}
        self.flush_at: float | None = None
        "When what has gathered is to be sent."

    # -- nodes -------------------------------------------------------------------------------------

    def nodes_changed(self, node_ids: Iterable[NodeId], now: float) -> None:
        """The best paths to these nodes may be others: withdraw now, advertise soon."""
        if self._self_info.type is NodeType.STUB:
            return  # nobody learns of nodes from a Stub, nor of their subscribes
        for node_id in node_ids:
            for peer in self._control_peers():
                told = peer.told.get(node_id)
                if told is None:
                    continue
                info = self._advertisement(peer, node_id)
                if info is None:
                    self._withdraw(peer, node_id)
                elif len(info.path) > len(told.path):  # bad news travels fast
                    self._advertise(peer, node_id)
            self._gathered[node_id] = None
        if self._gathered and self.flush_at is None:
            self.flush_at = now + self._gather_s

    def flush(self) -> None:
        """Advertise what has gathered, where it is news."""
        gathered, self._gathered, self.flush_at = self._gathered, {}, None
        for peer in self._control_peers():
            for node_id in gathered:
                self._advertise(peer, node_id)

    def sync(self, peer: Peer) -> None:
        """Tell a peer everything, at the beginning of a control session."""
        peer.told.clear()
        for info in self._subscribes.of_source(self._self_info.id):
            self._links.send(peer, SubscribeInfoAdv(info))
        for node_id in list(self._nodes):
            self._advertise(peer, node_id)

    def _advertise(self, peer: Peer, node_id: NodeId) -> None:
        info = self._advertisement(peer, node_id)
        if info is None:
            return
        before = peer.told.get(node_id)
        if before is not None and not _is_news(before, info):
            return
        peer.told[node_id] = info
        self._links.send(peer, NodeInfoAdv(info))
        if before is None:
            for subscribe in self._subscribes.of_source(node_id):
                self._links.send(peer, SubscribeInfoAdv(subscribe))
            self._extensions.advertised(peer, node_id)

    def _withdraw(self, peer: Peer, node_id: NodeId) -> None:
        self._links.send(peer, NodeInfoWd(peer.told.pop(node_id)))

    def _advertisement(self, peer: Peer, node_id: NodeId) -> NodeInfo | None:
        """What to tell a peer of a node; None: nothing."""
        choice = self._nodes.best(node_id)
        if choice is None or not self._may_tell(peer, node_id, choice):
            return None
        path = choice.path
        session_srtt_us = path.srtt_us - path.info.sum_srtt_us
        item = NodePathItem(self._self_info.id, session_srtt_us)
        return replace(path.info, path=(*path.info.path, item))

    def _may_tell(self, peer: Peer, node_id: NodeId, choice: Choice) -> bool:
        path = choice.path
        if node_id == peer.node_id or path.info.type is NodeType.STUB:
            return False
        if any(item.node_id == peer.node_id for item in path.info.path):
            return False
        return path.carries_data or not peer.has_data

    def _control_peers(self) -> list[Peer]:
        peers = self._links.peers.values()
        return [peer for peer in peers if peer.control is not None and not peer.is_stub]

    # -- subscribes --------------------------------------------------------------------------------

    def flood(
        self, info: SubscribeInfo, *, added: bool, heard_from: Peer | None, stateless: bool = False
    ) -> None:
        """Pass a subscribe, or its withdrawal, to every control peer that is to have it.

        A relay without subscribe state cannot send it later, so it does not wait for the node to
        be advertised.
        """
        message = SubscribeInfoAdv(info) if added else SubscribeInfoWd(info)
        source = info.source_node_id
        for peer in self._control_peers():
            if peer is heard_from or peer.node_id == source:
                continue
            if source == self._self_info.id or peer.knows(source) or stateless:
                self._links.send(peer, message)

    def node_claimed(self, peer: Peer, node_id: NodeId) -> None:
        """A peer now knows a node by a way of its own, perhaps one that carries no subscribes."""
        if node_id not in peer.told and node_id != peer.node_id:
            for info in self._subscribes.of_source(node_id):
                self._links.send(peer, SubscribeInfoAdv(info))


def _is_news(before: NodeInfo, info: NodeInfo) -> bool:
    """Whether an advertisement says more than that round trips vary."""
    if replace(before, path=()) != replace(info, path=()):
        return True
    if [item.node_id for item in before.path] != [item.node_id for item in info.path]:
        return True
    return any(
        srtt_changed(old.srtt_us, new.srtt_us)
        for old, new in zip(before.path, info.path, strict=True)
    )


def srtt_changed(old_us: int, new_us: int) -> bool:
    """Whether a round trip has changed enough to speak of it."""
    change = abs(new_us - old_us)
    return change > SRTT_CHANGE_US and change > SRTT_CHANGE * old_us
