"""What a track may do on its way: the terms that policy sets for it, and what peers hear of them.

A relay that publishes a track decides by its terms. Where more than the document's order decides,
it also tells the next relay, with the set of nodes, what was decided: the terms, and for each node
the whole way that leads there. A relay on the way follows that way; where it cannot, it chooses
another within the same terms. So constraints hold at every hop, also where a relay has no policy.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laps.types import NodeId

ORDINARY: Final = 1
"The place in the order of classes of a track that nothing is said of."

ORDERS: Final = 4
"Classes have places from 0, the best, to 3."

Way = tuple["NodeId", ...]
"""The nodes that data passes after this one, the last of them the one that it is for."""


class Terms(Struct, frozen=True, gc=False):
    """What one track may do."""

    service: str = ""
    """The name of its class; empty where no policy is in force."""
    order: int = ORDINARY
    """Tracks of one priority leave a relay in this order, the lowest first."""
    inside: tuple[str, ...] = ()
    """Regions that its ways stay in; none means anywhere."""
    avoid: tuple[str, ...] = ()
    """Regions that its ways stay out of."""
    told: tuple[str, ...] | None = None
    """Regions whose relays hear of subscribes to it; None: all that may carry it."""
    max_loss: float = 0.1
    """A way that loses more is taken only if no other is acceptable."""
    max_load: float = 0.9
    """A way through a relay that is fuller is taken only if no other is acceptable."""
    stretch: float = inf
    """An acceptable way takes this many times the shortest round trip at most,"""
    slack_us: int = 0
    """and this much on top."""
    fan_out: int = 2
    """Copies that may be sent into a region by the publisher's own relay."""
    is_unknown: bool = False
    """The name of the track is not known, so that nothing can be said of it."""

    @property
    def is_bound(self) -> bool:
        """Whether ways exist that the track may not take."""
        return bool(self.inside or self.avoid or self.is_unknown)

    @property
    def is_exacting(self) -> bool:
        """Whether some of the ways that it may take are not acceptable, by their delay."""
        return self.stretch != inf


FREE: Final = Terms()
"""Of a track that nothing is said of."""


class Onward(Struct, frozen=True, gc=False):
    """What the next relay is told with a set: terms, and the ways that were decided."""

    service: str = ""
    order: int = ORDINARY
    inside: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    ways: tuple[tuple[Way, tuple[NodeId, ...]], ...] = ()
    """What lies between the next relay and the nodes of the set that are reached by it."""
    passed: tuple[NodeId, ...] = ()
    """The relays that data has passed, ours the last: none of them is to be passed again."""

    @property
    def terms(self) -> Terms:
        """As the next relay holds itself to them."""
        if not (self.service or self.inside or self.avoid or self.order != ORDINARY):
            return FREE
        return Terms(service=self.service, order=self.order, inside=self.inside, avoid=self.avoid)

    @property
    def says_nothing(self) -> bool:
        """Whether a relay that is not told of it does the same."""
        return not (self.inside or self.avoid or self.ways) and self.order == ORDINARY

    def hops(self) -> Mapping[NodeId, Way]:
        """By node: what lies between, as far as it is named."""
        return {node_id: way for way, nodes in self.ways for node_id in nodes}


NOTHING: Final = Onward()
"""What a relay is told that is told nothing."""
