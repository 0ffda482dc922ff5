"""Stand-ins for what decides ways, for tests of what follows from a decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.routing.flows import Route
from laps.routing.terms import FREE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.routing.flows import Flow, LinkId
    from laps.routing.terms import Onward, Terms
    from laps.types import NodeId


class NoRoutes:
    """Nothing leaves this relay."""

    def route(self, flow: Flow, node_id: NodeId) -> Route:
        return Route(None, None, "")

    def terms(self, flow: Flow) -> Terms:
        return FREE

    def forbids(self, flow: Flow, route: Route) -> bool:
        return False

    def onward(self, flow: Flow, link: LinkId, nodes: Iterable[NodeId]) -> Onward | None:
        return None

    def onward_again(self, flow: Flow, link: LinkId, told: Onward | None) -> Onward | None:
        return told
