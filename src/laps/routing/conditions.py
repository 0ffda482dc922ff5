"""How full relays are and how much links lose, in steps that have lasted long enough to count.

Everybody who hears that a relay is full might leave it at the same time, and come back when it is
empty. Three things keep a network from swinging like that:

- A figure counts when it has differed by a step for a while: a short while where it is worse, and a
  long one where it is better.
- A flow that does not use a relay takes it only well below the limit at which it would leave it
  (MARGIN).
- Flows leave one after the other. Each has a draw, from 0 to 1, at each relay, and a tide at the
  relay rises while it is full: whoever has drawn less than the tide leaves. It stops as soon as the
  relay is full no longer, and falls more slowly still when it is well below the limit. Between the
  two it stands, and so does the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.types import NodeId, NodeMetrics

# A figure that differs by less is the same.
LOAD_STEP: Final = 0.05
LOSS_STEP: Final = 0.005

# Worse counts after two words of a relay about itself, better after some more: whoever left has
# made it better.
WORSE_S: Final = 3.0
BETTER_S: Final = 12.0

# A relay that a flow does not use has to be emptier than its limit by this much to be taken. What
# moves there makes it fuller.
MARGIN: Final = 0.2
# A relay that does less is taken by every class.
NOTABLE: Final = 0.25

# How often tides move, and by how much: all flows would have left in half a minute. They come back
# the sooner, the more room there is: in half a minute where the relay does hardly anything.
TIDE_S: Final = 2.0
RISE: Final = 1 / 16
FALL: Final = 1 / 8
LEAST_FALL: Final = 1 / 256


@dataclass(slots=True, eq=False)
class _Figure:
    """One figure: as it counts, as it is, and since when the two differ."""

    held: float
    latest: float
    differs_at: float = 0.0

    def heard(self, value: float, step: float, now: float) -> bool:
        """A new value has come; whether it is another than the one that counts."""
        was_worse, differed = self.latest > self.held, abs(self.latest - self.held) >= step
        self.latest = value
        if abs(value - self.held) < step:
            return False
        if not differed or (value > self.held) != was_worse:
            self.differs_at = now
        return True

    @property
    def due(self) -> float:
        """When it counts as it is, if it stays so."""
        return self.differs_at + (WORSE_S if self.latest > self.held else BETTER_S)


class Conditions:
    """How the relays and links of the network are."""

    def __init__(self) -> None:
        self.version = 0
        "Goes up whenever a figure counts as another."
        self._full: dict[NodeId, _Figure] = {}
        self._lost: dict[NodeId, dict[NodeId, _Figure]] = {}
        "By the node at the beginning of a link, and the one at its end."
        self._differing: dict[_Figure, NodeId] = {}
        "Figures that do not count as they are, for now, and the nodes that they are of."
        self._tides: dict[tuple[NodeId, float], float] = {}
        "By relay and limit: the share of flows with that limit that have to leave it."
        self._tide_at = 0.0
        "When they move next."

    def __len__(self) -> int:
        return len(self._full)

    def heard(self, metrics: NodeMetrics, now: float) -> None:
        """A node has told how it is."""
        node_id = metrics.source_node_id
        value = fullness(metrics)
        if (figure := self._full.get(node_id)) is None:
            self._full[node_id] = _Figure(value, value)
            self.version += 1
        else:
            self._note(figure, node_id, value, LOAD_STEP, now)
        before = self._lost.get(node_id, {})
        links = self._lost[node_id] = {}
        for item in metrics.reachability:
            if (link := before.get(item.node_id)) is None:
                link = _Figure(0.0, 0.0)
            self._note(link, node_id, item.loss, LOSS_STEP, now)
            if link.held or link.latest:
                links[item.node_id] = link
        if not links:
            del self._lost[node_id]
        for peer, link in before.items():
            if links.get(peer) is not link:
                self._differing.pop(link, None)

    def gone(self, node_id: NodeId) -> None:
        """Nothing is heard of a node any more."""
        if (figure := self._full.pop(node_id, None)) is not None:
            self._differing.pop(figure, None)
            self.version += 1
        for link in self._lost.pop(node_id, {}).values():
            self._differing.pop(link, None)
        for tide in [it for it in self._tides if it[0] == node_id]:
            del self._tides[tide]

    def tick(self, now: float) -> set[NodeId]:
        """Let figures count that have lasted; the nodes of those that ways may depend on."""
        due = [figure for figure in self._differing if figure.due <= now]
        concerned: set[NodeId] = set()
        for figure in due:
            node_id = self._differing.pop(figure)
            is_load = figure is self._full.get(node_id)
            if not is_load or max(figure.held, figure.latest) > NOTABLE:
                concerned.add(node_id)
            figure.held = figure.latest
        self.version += bool(concerned)
        return concerned | self._move_tides(now)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        due = min((figure.due for figure in self._differing), default=None)
        if not any(map(self._drift, self._tides)):
            return due
        return self._tide_at if due is None else min(due, self._tide_at)

    def _move_tides(self, now: float) -> set[NodeId]:
        """Let more flows leave, or come back; the relays that it concerns."""
        if not self._tides or now < self._tide_at:
            return set()
        self._tide_at = now + TIDE_S
        moved: set[NodeId] = set()
        for tide, level in list(self._tides.items()):
            if drift := self._drift(tide):
                moved.add(tide[0])
                self._tides[tide] = min(1.0, level + drift)
                if self._tides[tide] <= 0.0:
                    del self._tides[tide]
        return moved

    def _drift(self, tide: tuple[NodeId, float]) -> float:
        """By how much a tide moves next: as the relay is now, and as that counts."""
        node_id, most = tide
        figure = self._full.get(node_id)
        held, latest = (0.0, 0.0) if figure is None else (figure.held, figure.latest)
        if min(held, latest) > most:
            return RISE if self._tides[tide] < 1.0 else 0.0
        room = most - MARGIN - max(held, latest)
        return -max(FALL * room, LEAST_FALL) if room >= 0.0 else 0.0

    def concern(self, here: NodeId, way: Iterable[NodeId]) -> bool:
        """Whether a relay or a link on a way is other than empty and whole."""
        for node_id in way:
            if self.load(node_id) > NOTABLE or self.loss(here, node_id):
                return True
            here = node_id
        return False

    def load(self, node_id: NodeId) -> float:
        """How full a relay is, 0 to 1; 0 where nobody has said."""
        figure = self._full.get(node_id)
        return 0.0 if figure is None else figure.held

    def turns_away(self, node_id: NodeId, most: float, draw: float, *, is_used: bool) -> bool:
        """Whether a relay is too full for a flow with a limit; `is_used`: it passes it already."""
        load = self.load(node_id)
        level = self._tides.get((node_id, most))
        if level is None and load > most:
            self._tides[node_id, most] = level = 0.0
        if level is not None and draw < level:
            return True
        return not is_used and load > most - MARGIN

    def loss(self, a: NodeId, b: NodeId) -> float:
        """What a link loses, 0 to 1; 0 where nobody has said."""
        figure = self._lost.get(a, {}).get(b)
        return 0.0 if figure is None else figure.held

    def _note(
        self, figure: _Figure, node_id: NodeId, value: float, step: float, now: float
    ) -> None:
        if figure.heard(value, step, now):
            self._differing[figure] = node_id
        else:
            self._differing.pop(figure, None)


def fullness(metrics: NodeMetrics) -> float:
    """How much of what a relay can do it does: of its time, or of what it can send."""
    sends = metrics.egress_bps / metrics.capacity_bps if metrics.capacity_bps else 0.0
    return min(1.0, max(metrics.load, sends))


def draw(key: int, node_id: NodeId) -> float:
    """The draw of a flow, of a track with a key, at a relay: from 0 to less than 1.

    It is the same wherever it is asked for, and says nothing of other relays and other tracks.
    """
    mixed = (key ^ node_id * 0x9E3779B97F4A7C15) & _MASK
    for _ in range(2):
        mixed = (mixed ^ mixed >> 31) * 0xBF58476D1CE4E5B9 & _MASK
    return (mixed >> 11) / (1 << 53)


_MASK: Final = (1 << 64) - 1
