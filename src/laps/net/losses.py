"""What links lose, from as many packets as it takes to tell a loss from chance.

One packet lost of ten says little, and a link that carries audio, or nothing, sends no more than
that between two readings. So packets are gathered into samples of ENOUGH, over as many readings as
that takes, and the loss is that of the last whole sample and the one under way. Where there are
fewer packets than ENOUGH, those that are missing count as if they had arrived: one lost packet is
half a percent at most, less than any class bears.

A link that sends 1,000 packets a second is known after one reading, and one that sends 50 shows a
loss of 5 % after four seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.infobase.nodes import SessionId
    from laps.types import NodeId

ENOUGH: Final = 200
# A sample of a link that sends hardly anything ends after this many readings, a minute or more: it
# may have become another link since.
MOST_READINGS: Final = 30


class Sent(NamedTuple):
    """What a connection to a peer has counted since it began."""

    link_id: SessionId
    peer: NodeId
    packets: int
    lost_packets: int


@dataclass(slots=True)
class _Sample:
    packets: int = 0
    lost_packets: int = 0
    "Below 0 where packets came after all that had been taken for lost before."
    readings: int = 0

    @property
    def is_whole(self) -> bool:
        return self.packets >= ENOUGH or self.readings >= MOST_READINGS

    def add(self, packets: int, lost_packets: int) -> None:
        self.packets += packets
        self.lost_packets += lost_packets
        self.readings += 1


class Losses:
    """What the links to each peer lose."""

    def __init__(self) -> None:
        self._counted: dict[SessionId, tuple[int, int]] = {}
        self._samples: dict[NodeId, tuple[_Sample, _Sample]] = {}
        "The last whole one, and the one under way."

    def read(self, connections: Iterable[Sent]) -> dict[NodeId, float]:
        """The share of packets lost on the way to each peer, by all connections to it."""
        before, self._counted = self._counted, {}
        amounts: dict[NodeId, list[int]] = {}
        for it in connections:
            self._counted[it.link_id] = it.packets, it.lost_packets
            packets, lost_packets = before.get(it.link_id, (0, 0))
            amount = amounts.setdefault(it.peer, [0, 0])
            amount[0] += max(0, it.packets - packets)
            amount[1] += it.lost_packets - lost_packets
        samples, self._samples = self._samples, {}
        found: dict[NodeId, float] = {}
        for peer, (packets, lost_packets) in amounts.items():
            whole, under_way = samples.get(peer, (_Sample(), _Sample()))
            if under_way.is_whole:
                whole, under_way = under_way, _Sample()
            under_way.add(packets, lost_packets)
            self._samples[peer] = whole, under_way
            found[peer] = loss_of(
                whole.lost_packets + under_way.lost_packets, whole.packets + under_way.packets
            )
        return found


def loss_of(lost_packets: int, packets: int) -> float:
    """The share of packets lost, 0 to 1, of a sample that may be too small to tell."""
    return min(1.0, max(0, lost_packets) / max(packets, ENOUGH))
