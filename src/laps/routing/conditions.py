"""How full relays and links are, and what links lose, in steps that have lasted to count.

Everybody who hears that a relay is full might leave it at the same time, and come back when it is
empty. Three things keep a network from swinging like that:

- A figure counts when it has differed by a step for a while: a short while where it is worse, and a
  long one where it is better.
- A flow that does not use a relay or a link takes it only well below the limit at which it would
  leave it (MARGIN).
- Flows leave one after the other, come back more slowly, and the more rarely the oftener that was
  too much (`tides`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.infobase.metrics import NOTABLE
from laps.routing.tides import FALL, LEAST_FALL, RISE, TIDE_S, Tide
from laps.types import NodeId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.types import NodeMetrics

    Place = NodeId | tuple[NodeId, NodeId]
    "A relay, or a link by the nodes at its beginning and its end."

# A figure that differs by less is the same.
LOAD_STEP: Final = 0.05
LOSS_STEP: Final = 0.005

# Worse counts after two words of a relay about itself, better after some more: whoever left has
# made it better.
WORSE_S: Final = 3.0
BETTER_S: Final = 12.0

# A place that a flow does not use has to be emptier than its limit by this much to be taken. What
# moves there makes it fuller.
MARGIN: Final = 0.2


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


_Links = dict[NodeId, dict[NodeId, _Figure]]
"A figure of each link, by the node at its beginning and the one at its end."


class Conditions:
    """How the relays and links of the network are."""

    def __init__(self) -> None:
        self.version = 0
        "Goes up whenever a figure counts as another."
        self._full: dict[NodeId, _Figure] = {}
        self._lost: _Links = {}
        self._narrow: _Links = {}
        "How full links are."
        self._differing: dict[_Figure, tuple[NodeId, ...]] = {}
        "Figures that do not count as they are, for now, and the nodes that they are of."
        self._tides: dict[tuple[Place, float], Tide] = {}
        "By place and limit."
        self._high: set[Place] = set()
        "Places with a tide that some flows have to leave, or to keep away from."
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
            self._note(figure, (node_id,), value, LOAD_STEP, now)
        lost = {it.node_id: it.loss for it in metrics.reachability}
        self._hear_links(self._lost, node_id, lost, LOSS_STEP, now)
        if metrics.full_links or node_id in self._narrow:
            # Of a link that is not named nobody knows that it is full; one that is gone is neither.
            full = dict.fromkeys(lost, 0.0)
            full |= {it.node_id: it.full for it in metrics.full_links if it.node_id in lost}
            self._hear_links(self._narrow, node_id, full, LOAD_STEP, now)

    def gone(self, node_id: NodeId) -> None:
        """Nothing is heard of a node any more."""
        if (figure := self._full.pop(node_id, None)) is not None:
            self._differing.pop(figure, None)
            self.version += 1
        for table in (self._lost, self._narrow):
            for link in table.pop(node_id, {}).values():
                self._differing.pop(link, None)
        for tide in [it for it in self._tides if node_id in _nodes_of(it[0])]:
            del self._tides[tide]
        self._high = {place for place, _ in self._tides if place in self._high}

    def tick(self, now: float) -> set[NodeId]:
        """Let figures count that have lasted; the nodes of those that ways may depend on."""
        due = [figure for figure in self._differing if figure.due <= now]
        concerned: set[NodeId] = set()
        for figure in due:
            nodes = self._differing.pop(figure)
            if len(nodes) > 1 or max(figure.held, figure.latest) > NOTABLE:
                concerned.update(nodes)
            figure.held = figure.latest
        self.version += bool(concerned)
        return concerned | self._move_tides(now)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        due = [figure.due for figure in self._differing]
        for (place, most), tide in self._tides.items():
            if (at := tide.due_at(self._drift(place, most), self._tide_at)) is not None:
                due.append(at)
        return min(due, default=None)

    def _move_tides(self, now: float) -> set[NodeId]:
        """Let more flows leave, or come back; the nodes that it concerns."""
        if not self._tides or now < self._tide_at:
            return set()
        self._tide_at = now + TIDE_S
        moved: set[NodeId] = set()
        for key, tide in list(self._tides.items()):
            drift = self._drift(*key)
            if tide.move(drift, now):
                moved.update(_nodes_of(key[0]))
            elif tide.is_over(drift, now):
                del self._tides[key]
        if moved:
            self._high = {place for (place, _), tide in self._tides.items() if tide.level > 0.0}
        return moved

    def _drift(self, place: Place, most: float) -> float:
        """By how much a tide moves next: as its place is now, and as that counts."""
        if isinstance(place, tuple):
            figure = self._narrow.get(place[0], {}).get(place[1])
        else:
            figure = self._full.get(place)
        held, latest = (0.0, 0.0) if figure is None else (figure.held, figure.latest)
        if min(held, latest) > most:
            return RISE
        room = most - MARGIN - max(held, latest)
        return -max(FALL * room, LEAST_FALL) if room >= 0.0 else 0.0

    def concern(self, here: NodeId, way: Iterable[NodeId]) -> bool:
        """Whether a relay or a link on a way is other than empty and whole, or was a while ago."""
        for node_id in way:
            if self.load(node_id) > NOTABLE or self.loss(here, node_id):
                return True
            if self._narrow and self.link_load(here, node_id) > NOTABLE:
                return True
            if self._high and not self._high.isdisjoint((node_id, (here, node_id))):
                return True
            here = node_id
        return False

    def load(self, node_id: NodeId) -> float:
        """How full a relay is, 0 to 1; 0 where nobody has said."""
        figure = self._full.get(node_id)
        return 0.0 if figure is None else figure.held

    def link_load(self, a: NodeId, b: NodeId) -> float:
        """How full a link is, 0 to 1; 0 where nobody has said."""
        figure = self._narrow.get(a, {}).get(b)
        return 0.0 if figure is None else figure.held

    def loss(self, a: NodeId, b: NodeId) -> float:
        """What a link loses, 0 to 1; 0 where nobody has said."""
        figure = self._lost.get(a, {}).get(b)
        return 0.0 if figure is None else figure.held

    def turns_away(self, node_id: NodeId, most: float, draw: float, *, is_used: bool) -> bool:
        """Whether a relay is too full for a flow with a limit; `is_used`: it passes it already."""
        return self._is_closed(node_id, self.load(node_id), most, draw, is_used=is_used)

    def link_turns_away(
        self, a: NodeId, b: NodeId, most: float, draw: float, *, is_used: bool
    ) -> bool:
        """Whether a link is too full for a flow with a limit; `is_used`: it takes it already."""
        return self._is_closed((a, b), self.link_load(a, b), most, draw, is_used=is_used)

    def _is_closed(
        self, place: Place, load: float, most: float, draw: float, *, is_used: bool
    ) -> bool:
        tide = self._tides.get((place, most))
        if tide is None and load > most:
            tide = self._tides[place, most] = Tide()
        if tide is not None and draw < tide.level:
            return True
        return not is_used and load > most - MARGIN

    def _hear_links(
        self, table: _Links, node_id: NodeId, said: dict[NodeId, float], step: float, now: float
    ) -> None:
        """A node has told a figure of each of its links."""
        before = table.get(node_id, {})
        links = table[node_id] = {}
        for peer, value in said.items():
            if (link := before.get(peer)) is None:
                link = _Figure(0.0, 0.0)
            self._note(link, (node_id, peer), value, step, now)
            if link.held or link.latest:
                links[peer] = link
        if not links:
            del table[node_id]
        for peer, link in before.items():
            if links.get(peer) is not link:
                self._differing.pop(link, None)

    def _note(
        self, figure: _Figure, nodes: tuple[NodeId, ...], value: float, step: float, now: float
    ) -> None:
        if figure.heard(value, step, now):
            self._differing[figure] = nodes
        else:
            self._differing.pop(figure, None)


def _nodes_of(place: Place) -> tuple[NodeId, ...]:
    return place if isinstance(place, tuple) else (place,)


def fullness(metrics: NodeMetrics) -> float:
    """How much of what a relay can do it does: of its time, or of what it can send."""
    sends = metrics.egress_bps / metrics.capacity_bps if metrics.capacity_bps else 0.0
    return min(1.0, max(metrics.load, sends))


def link_draw(key: int, a: NodeId, b: NodeId) -> float:
    """The draw of a flow at a link."""
    return draw(key, NodeId(a * 0xD6E8FEB86659FD93 + b & _MASK))


def draw(key: int, node_id: NodeId) -> float:
    """The draw of a flow, of a track with a key, at a relay: from 0 to less than 1.

    It is the same wherever it is asked for, and says nothing of other relays and other tracks.
    """
    mixed = (key ^ node_id * 0x9E3779B97F4A7C15) & _MASK
    for _ in range(2):
        mixed = (mixed ^ mixed >> 31) * 0xBF58476D1CE4E5B9 & _MASK
    return (mixed >> 11) / (1 << 53)


_MASK: Final = (1 << 64) - 1
