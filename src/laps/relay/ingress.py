"""The subscriber node sets that peers advertise to us, and the flows that arrive under them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from laps.relay.pieces import MOST_IN_A_TURN
from laps.routing.flows import FromPeer
from laps.routing.terms import NOTHING
from laps.tables import Table

if TYPE_CHECKING:
    from laps.infobase.nodes import SessionId
    from laps.relay.peers import Links
    from laps.relay.sets import Sets
    from laps.relay.timers import Timers
    from laps.routing.forwarding import Fib
    from laps.routing.terms import Onward
    from laps.tracks.shared import Shared
    from laps.types import NodeId, SnsId


class IngressSets:
    """The sets that arrive, each a flow of its own."""

    def __init__(
        self,
        self_id: NodeId,
        fib: Fib,
        sets: Sets,
        links: Links,
        timers: Timers,
        shared: Shared,
        hold_s: float,
    ) -> None:
        """A set that was withdrawn stays for `hold_s`, for the last of its data."""
        self._shared = shared
        self._self_id = self_id
        self._fib = fib
        self._flows = sets
        self._links = links
        self._timers = timers
        self._hold_s = hold_s
        self._sets: dict[SessionId, Table[SnsId, float | None]] = {}
        "By link; with the time they go, once withdrawn."
        self._terms: dict[SessionId, tuple[SnsId, Onward]] = {}
        "What peers said last of a set that they are about to advertise."
        self._closed: deque[tuple[SessionId, Table[SnsId, float | None]]] = deque()
        "Sets of links that are closed."

    def terms_said(self, link_id: SessionId, sns_id: SnsId, onward: Onward) -> None:
        """A peer tells what holds for a set; its advertisement is the next that it says of it."""
        self._terms[link_id] = sns_id, onward

    def advertised(
        self, link_id: SessionId, sns_id: SnsId, nodes: tuple[NodeId, ...], now: float
    ) -> None:
        """A peer names the nodes of a set: each is given to the link that leads to it."""
        sets = self._sets.get(link_id)
        if sets is None:
            sets = self._sets[link_id] = Table()
        sets[sns_id] = None
        others = [node_id for node_id in nodes if node_id != self._self_id]
        source = FromPeer(link_id, sns_id)
        known = self._fib.get(source)
        told = NOTHING if known is None else known.told
        if link_id in self._terms and self._terms[link_id][0] == sns_id:
            _, told = self._terms.pop(link_id)
        flow = self._fib.install(source, others, local=self._self_id in nodes, told=told)
        if flow.local and flow.track is not None:
            self._shared.comes_by(flow.track, source)
        self._flows.changed(now)

    def count(self, link_id: SessionId) -> int:
        """How many sets a link has."""
        return len(self._sets.get(link_id, ()))

    def withdrawn(self, link_id: SessionId, sns_id: SnsId, now: float) -> bool:
        """A peer withdraws a set; False if it is unknown, or withdrawn already.

        Data may arrive after its withdraw, as it may arrive before its set: wait as long.
        """
        sets = self._sets.get(link_id)
        if sets is None or sns_id not in sets or sets[sns_id] is not None:
            return False
        at = sets[sns_id] = now + self._hold_s
        if (flow := self._fib.get(FromPeer(link_id, sns_id))) is not None:
            flow.withdrawn = True

        def remove(now: float) -> None:
            sets = self._sets.get(link_id)
            if sets is not None and sets.get(sns_id) == at:
                del sets[sns_id]
                self._remove(link_id, sns_id, sudden=False)

        self._timers.at(at, remove)
        return True

    def close_link(self, link_id: SessionId, now: float) -> None:
        """A link is closed, and its sets go with it, by and by: nothing arrives under them."""
        self._terms.pop(link_id, None)
        if sets := self._sets.pop(link_id, None):
            self._closed.append((link_id, sets))
            self.tick(now)

    def tick(self, now: float) -> None:
        """Remove some of what was left by links that are closed."""
        left = MOST_IN_A_TURN
        while self._closed and left:
            link_id, sets = self._closed[0]
            sns_id, _ = sets.popitem()
            self._remove(link_id, sns_id, sudden=True)
            left -= 1
            if not sets:
                self._closed.popleft()

    def _remove(self, link_id: SessionId, sns_id: SnsId, *, sudden: bool) -> None:
        source = FromPeer(link_id, sns_id)
        if sudden:
            self._flows.source_silent(source)
        flow = self._fib.get(source)
        self._links.send_sns(self._fib.remove(source))
        self._shared.lost(source, sudden=sudden)
        self._shared.feeds_no_more(source, None if flow is None else flow.track)

    def of_link(self, link_id: SessionId) -> list[FromPeer]:
        """The sets of a link."""
        return [FromPeer(link_id, sns_id) for sns_id in self._sets.get(link_id, ())]

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        return 0.0 if self._closed else None

    def all(self) -> list[tuple[SessionId, SnsId, bool]]:
        """Every set by its link, and whether it is withdrawn by now."""
        return [
            (link_id, sns_id, until is not None)
            for link_id, sets in self._sets.items()
            for sns_id, until in sets.items()
        ]
