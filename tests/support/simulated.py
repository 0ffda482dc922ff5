"""Clients of both kinds at the nodes of a simulated network."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from support.moqt import App
from support.quicr import QuicrApp

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.edge.edge import Edge
    from laps.relay.relay import Relay
    from laps.sim.network import Network
    from laps.sim.node import SimNode
    from laps.wire.moqt.dialect import Dialect


class Site:
    """A simulated node, as clients take it."""

    def __init__(self, network: Network, node: SimNode) -> None:
        self._network = network
        self._node = node
        self._posted: deque[Callable[[], object]] = deque()
        self._running = False

    @property
    def now(self) -> float:
        return self._network.clock.now

    @property
    def relay(self) -> Relay:
        assert self._node.relay is not None
        return self._node.relay

    def edge(self, relay: Relay) -> Edge:
        assert self._node.edge is not None
        return self._node.edge

    def post(self, call: Callable[[], object]) -> None:
        self._posted.append(call)
        if not self._running:
            self._network.clock.after(0, self.run)

    def run(self) -> None:
        if self._running:
            return
        self._running = True
        while self._posted:
            self._posted.popleft()()
        self._running = False
        self._node.touched()

    def quicr(self) -> QuicrApp:
        return QuicrApp(self, self.relay)  # type: ignore[arg-type]

    def moqt(self, dialect: Dialect) -> App:
        return App(self, self.relay, dialect).start()  # type: ignore[arg-type]
