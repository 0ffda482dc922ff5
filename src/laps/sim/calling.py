"""Peers that relays dial because they help: cables that are in no topology, laid when needed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from laps.errors import CloseCode
from laps.relay.on_demand import Dial
from laps.sim.dialling import HANDSHAKE_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.relay.on_demand import HangUp, OnDemand
    from laps.relay.relay import Relay
    from laps.sim.links import Cable, LinkEnd
    from laps.sim.node import SimNode
    from laps.types import NodeId

NOT_NEEDED: Final = "no longer needed"


class Calling:
    """What one node dials on demand."""

    def __init__(
        self,
        node: SimNode,
        nodes: Callable[[str], SimNode | None],
        cable: Callable[[NodeId, NodeId], Cable | None],
    ) -> None:
        """`nodes` by what others are told to dial; `cable` is what joins two nodes, or will."""
        self._node = node
        self._nodes = nodes
        self._cable = cable
        self._links: dict[str, LinkEnd] = {}

    def perform(self, relay: Relay) -> None:
        """Dial, and close, what a relay asks for."""
        sessions = relay.demand.sessions
        while sessions.calls:
            call = sessions.calls.popleft()
            if isinstance(call, Dial):
                self._dial(call, relay, sessions)
            else:
                self._hang_up(call)

    def _dial(self, call: Dial, relay: Relay, sessions: OnDemand) -> None:
        other = self._nodes(call.contact)
        clock = self._node.clock
        here = self._node.spec.id
        cable = None if other is None else self._cable(here, other.spec.id)
        if other is None or cable is None:
            clock.after(HANDSHAKE_TIMEOUT_S, self._failed, call, relay, sessions)
        else:
            clock.after(cable.rtt_s, self._shake_hands, call, relay, sessions, other, cable)

    def _shake_hands(
        self, call: Dial, relay: Relay, sessions: OnDemand, other: SimNode, cable: Cable
    ) -> None:
        if self._node.relay is not relay or self._node.is_frozen:
            return
        if not other.is_up or other.is_frozen or cable.is_cut:
            self._node.clock.after(HANDSHAKE_TIMEOUT_S, self._failed, call, relay, sessions)
            return
        side = cable.sides.index(self._node.spec.id)
        hosts = (self._node, other) if side == 0 else (other, self._node)
        link = self._links[call.contact] = cable.connect(side, hosts, call.mode)
        link.on_close = partial(self._closed, call, relay, sessions)
        self._node.clock.after(0, self._opened, call, relay, sessions, link)

    def _opened(self, call: Dial, relay: Relay, sessions: OnDemand, link: LinkEnd) -> None:
        if self._node.relay is relay:
            sessions.opened(call.contact, link.id, self._node.now)
            self._node.touched()

    def _closed(self, call: Dial, relay: Relay, sessions: OnDemand) -> None:
        self._links.pop(call.contact, None)
        self._failed(call, relay, sessions, "it was closed")

    def _failed(
        self, call: Dial, relay: Relay, sessions: OnDemand, reason: str = "nobody answers"
    ) -> None:
        if self._node.relay is relay:
            sessions.ended(call.contact, reason, self._node.now)
            self._node.touched()

    def _hang_up(self, call: HangUp) -> None:
        if (link := self._links.pop(call.contact, None)) is not None:
            link.close(CloseCode.GRACEFUL, NOT_NEEDED)
