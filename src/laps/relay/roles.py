"""What each role of relay may do, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from laps.types import NodeType


class Role(Enum):
    """The four roles; a Control server is one in configuration only, and a Via on the wire."""

    EDGE = "edge"
    VIA = "via"
    STUB = "stub"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Rules:
    """One row of the table."""

    node_type: NodeType
    accepts_peers: bool
    "Whether others may dial it."
    accepts_clients: bool
    carries_data: bool
    "Whether data may pass, between peers or to its own clients."
    keeps_subscribes: bool
    "Whether it holds everybody's subscribes; a Via that reflects does too."
    peers_with: frozenset[NodeType]


_ALL: Final = frozenset(NodeType)
_INFRASTRUCTURE: Final = frozenset({NodeType.EDGE, NodeType.VIA})

RULES: Final = {
    Role.EDGE: Rules(
        NodeType.EDGE,
        accepts_peers=True,
        accepts_clients=True,
        carries_data=True,
        keeps_subscribes=True,
        peers_with=_ALL,
    ),
    Role.VIA: Rules(
        NodeType.VIA,
        accepts_peers=True,
        accepts_clients=False,
        carries_data=True,
        keeps_subscribes=False,
        peers_with=_INFRASTRUCTURE,
    ),
    Role.STUB: Rules(
        NodeType.STUB,
        accepts_peers=False,
        accepts_clients=True,
        carries_data=True,
        keeps_subscribes=False,
        peers_with=frozenset({NodeType.EDGE}),
    ),
    Role.CONTROL: Rules(
        NodeType.VIA,
        accepts_peers=True,
        accepts_clients=False,
        carries_data=False,
        keeps_subscribes=True,
        peers_with=_INFRASTRUCTURE,
    ),
}
