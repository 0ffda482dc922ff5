"""Which peer leads to each node, looked at now and then: what has changed is noted as an event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.types import format_node_id

if TYPE_CHECKING:
    from laps.infobase.nodes import Nodes
    from laps.relay.journal import Journal
    from laps.types import NodeId


class PathWatch:
    """Compares the paths of now with those of the last look."""

    def __init__(self, nodes: Nodes, journal: Journal) -> None:
        self._nodes = nodes
        self._journal = journal
        self._leads: dict[NodeId, NodeId] = {}
        "The peer that leads to each node, as last noted."

    def look(self, now: float) -> None:
        """Note what is another now; what has changed and changed back is no news."""
        before, self._leads = self._leads, {}
        for node_id in self._nodes:
            if (choice := self._nodes.best(node_id)) is None:
                continue
            peer = self._leads[node_id] = choice.path.peer_id
            if before.get(node_id) != peer:
                self._note(now, node_id, before.get(node_id), peer, choice.reason)
        for node_id in before.keys() - self._leads.keys():
            self._note(now, node_id, before[node_id], None, "no way leads there any more")

    def _note(
        self, now: float, node_id: NodeId, before: NodeId | None, peer: NodeId | None, reason: str
    ) -> None:
        change = f"{_peer(before)} to {_peer(peer)}"
        self._journal.note(now, "path_changed", format_node_id(node_id), change, reason)


def _peer(node_id: NodeId | None) -> str:
    return "nobody" if node_id is None else format_node_id(node_id)
