"""The subscriber node sets that peers advertise to us, and the flows that arrive under them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.routing.forwarding import FromPeer

if TYPE_CHECKING:
    from laps.infobase.nodes import SessionId
    from laps.relay.peers import Links
    from laps.relay.timers import Timers
    from laps.routing.forwarding import Fib
    from laps.types import NodeId, SnsId


class IngressSets:
    """The sets that arrive, each a flow of its own."""

    def __init__(
        self, self_id: NodeId, fib: Fib, links: Links, timers: Timers, hold_s: float
    ) -> None:
        """A set that was withdrawn stays for `hold_s`, for the last of its data."""
        self._self_id = self_id
        self._fib = fib
        self._links = links
        self._timers = timers
        self._hold_s = hold_s
        self._sets: dict[SessionId, dict[SnsId, float | None]] = {}
        "By link; with the time they go, once withdrawn."

    def advertised(self, link_id: SessionId, sns_id: SnsId, nodes: tuple[NodeId, ...]) -> None:
        """A peer names the nodes of a set: each is given to the link that leads to it."""
        self._sets.setdefault(link_id, {})[sns_id] = None
        others = [node_id for node_id in nodes if node_id != self._self_id]
        key = FromPeer(link_id, sns_id)
        self._links.send_sns(self._fib.install(key, others, local=self._self_id in nodes))

    def withdrawn(self, link_id: SessionId, sns_id: SnsId, now: float) -> bool:
        """A peer withdraws a set; False if it is unknown, or withdrawn already.

        Data may arrive after its withdraw, as it may arrive before its set: wait as long.
        """
        sets = self._sets.get(link_id, {})
        if sns_id not in sets or sets[sns_id] is not None:
            return False
        at = sets[sns_id] = now + self._hold_s

        def remove(now: float) -> None:
            sets = self._sets.get(link_id, {})
            if sets.get(sns_id) == at:
                del sets[sns_id]
                self._links.send_sns(self._fib.remove(FromPeer(link_id, sns_id)))

        self._timers.at(at, remove)
        return True

    def close_link(self, link_id: SessionId) -> None:
        """A link is closed, and its sets go with it."""
        for sns_id in self._sets.pop(link_id, ()):
            self._links.send_sns(self._fib.remove(FromPeer(link_id, sns_id)))

    def all(self) -> list[tuple[SessionId, SnsId, bool]]:
        """Every set by its link, and whether it is withdrawn by now."""
        return [
            (link_id, sns_id, until is not None)
            for link_id, sets in self._sets.items()
            for sns_id, until in sets.items()
        ]
