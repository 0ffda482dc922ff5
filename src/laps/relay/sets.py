"""When flows are settled, and peers told of their subscriber node sets.

A flow that changes is settled at once, unless it has many targets and peers were told of it just
before: then what else changes gathers for a moment, so that a thousand s-relays that join a track
within a second are some dozens of messages. And where very much changes, as when a neighbour is
lost that ten thousand flows went to, a turn of the loop settles some of them, and the next turn
goes on. Whoever is about to send data settles the flow first.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from laps.relay.pieces import MOST_IN_A_TURN
from laps.wire.extensions import SetSilent

if TYPE_CHECKING:
    from laps.relay.peers import Links
    from laps.routing.flows import Flow, FlowKey, FromPeer, Reached
    from laps.routing.forwarding import Fib

# As long as a frame: whoever joins waits for the next one in any case.
GATHER_S: Final = 0.02
# A set of fewer nodes is a small message.
GATHER_FROM: Final = 16


class Sets:
    """Settles flows, and tells the peers."""

    def __init__(self, fib: Fib, links: Links) -> None:
        self._fib = fib
        self._links = links
        self._gathering: dict[Flow, float] = {}
        "Flows of which peers were told just before, and when they are told again."

    def flow(self, key: FlowKey) -> Flow | None:
        """A flow that data is about to take."""
        flow = self._fib.get(key)
        if flow is not None and (not flow.settled or self._fib.is_spreading):
            self._links.send_sns(self._fib.settle(flow))
        return flow

    def changed(self, now: float) -> None:
        """Something has changed: tell the peers now, if it is little."""
        if len(self._fib.unsettled) <= MOST_IN_A_TURN:
            self._settle(now)

    def tick(self, now: float) -> None:
        """Go on with what is left."""
        for flow in list(islice(self._gathering, MOST_IN_A_TURN)):
            if self._gathering[flow] > now:
                break
            del self._gathering[flow]
            self._tell(flow, now)
        if self._fib.is_spreading:
            self._fib.spread(MOST_IN_A_TURN - len(self._fib.unsettled))
        self._settle(now)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        if self._fib.unsettled or self._fib.is_spreading:
            return 0.0
        return next(iter(self._gathering.values())) if self._gathering else None

    @property
    def is_idle(self) -> bool:
        """Whether peers have been told of everything."""
        return not (self._fib.unsettled or self._fib.is_spreading or self._gathering)

    def source_silent(self, source: FromPeer) -> None:
        """Nothing is heard of where a set comes from: tell those that it is passed on to."""
        flow = self._fib.get(source)
        for link_id, sns_id in () if flow is None else flow.current():
            peer_link = self._links.peer_links.get(link_id)
            if peer_link is not None and peer_link.link.extended:
                self._links.send_on(peer_link, SetSilent(sns_id))

    @property
    def has_reached(self) -> bool:
        """Whether `take_reached` has something."""
        return bool(self._fib.reached)

    def take_reached(self) -> list[Reached]:
        """Targets of our own publishers whose way is another or none."""
        reached = self._fib.reached.copy()
        self._fib.reached.clear()
        return reached

    def _settle(self, now: float) -> None:
        for flow in list(islice(self._fib.unsettled, MOST_IN_A_TURN)):
            few = len(flow.targets) < GATHER_FROM
            if few or flow.lost or flow.settled_at + GATHER_S <= now:
                self._tell(flow, now)
            else:
                del self._fib.unsettled[flow]
                self._gathering.setdefault(flow, now + GATHER_S)

    def _tell(self, flow: Flow, now: float) -> None:
        updates = self._fib.settle(flow)
        if updates:
            flow.settled_at = now
            self._links.send_sns(updates)
