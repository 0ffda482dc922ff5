"""Which peers a Via that stops names in its place: GOAWAY has a contact for that.

Clients of an Edge are sent elsewhere one by one, and their relays tell that they are there. What a
Via passes on has nobody who does that: its peers had best know another one, and are told the one
that is nearest to us, so that it is near them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.relay.locating import FULL
from laps.routing.conditions import fullness
from laps.types import NodeType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.relay.extensions import Extensions
    from laps.relay.weighing import Weighing
    from laps.types import NodeId, NodeInfo

NOBODY: Final = ""


def successor(self_info: NodeInfo, weighing: Weighing, extensions: Extensions) -> str:
    """The contact of the nearest Via that takes our place; empty where there is none."""
    if self_info.type is not NodeType.VIA:
        return NOBODY
    own_region = weighing.policy.region_of(self_info.id)

    def key(node_id: NodeId) -> tuple[bool, int, NodeId]:
        best = weighing.nodes.best(node_id)
        srtt_us = 0 if best is None else best.path.srtt_us
        return weighing.policy.region_of(node_id) != own_region, srtt_us, node_id

    best = min(_candidates(self_info.id, weighing, extensions), key=key, default=None)
    info = None if best is None else weighing.nodes.info(best)
    return NOBODY if info is None else info.contact


def _candidates(self_id: NodeId, weighing: Weighing, extensions: Extensions) -> Iterator[NodeId]:
    """The Vias that carry data for others, stay, and have room."""
    for metrics in weighing.metrics:
        node_id = metrics.source_node_id
        info = weighing.nodes.info(node_id)
        if info is None or info.type is not NodeType.VIA or node_id == self_id:
            continue
        # A Control server calls itself Via, and has no links for data.
        if not (info.contact and metrics.reachability and fullness(metrics) <= FULL):
            continue
        if extensions.is_leaving(node_id) or not weighing.policy.may_be_via(node_id):
            continue
        yield node_id
