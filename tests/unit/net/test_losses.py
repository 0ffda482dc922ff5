"""What links lose is told from enough packets, so that one lost packet is not a lossy link."""

from __future__ import annotations

import pytest

from laps.infobase.nodes import SessionId
from laps.net.losses import ENOUGH, MOST_READINGS, Losses, Sent, loss_of
from laps.policy import DEFAULT_CLASSES
from laps.types import NodeId

PEER, OTHER = NodeId(1), NodeId(2)
STRICTEST = min(it.max_loss for it in DEFAULT_CLASSES.values())


class Link:
    """A connection that counts, and is read again and again."""

    def __init__(self) -> None:
        self.losses = Losses()
        self.sent = Sent(SessionId(1), PEER, 0, 0)

    def carry(self, packets: int, lost: int = 0) -> float:
        counted = self.sent.packets + packets, self.sent.lost_packets + lost
        self.sent = Sent(SessionId(1), PEER, *counted)
        return self.losses.read([self.sent])[PEER]


@pytest.mark.parametrize(
    ("lost", "packets", "loss"),
    [(0, 0, 0.0), (1, 0, 1 / ENOUGH), (2, 100, 2 / ENOUGH), (100, 1000, 0.1), (-1, 1000, 0.0),
     (900, 300, 1.0)],
)  # fmt: skip
def test_loss_is_a_share_of_the_packets_sent(lost: int, packets: int, loss: float) -> None:
    assert loss_of(lost, packets) == pytest.approx(loss)


@pytest.mark.parametrize("packets", [1, 3, 20, 100])
def test_loss_of_one_packet_on_a_quiet_link_is_less_than_any_class_bears(packets: int) -> None:
    link = Link()
    for _ in range(5):
        link.carry(packets)
    assert 0.0 < link.carry(packets, 1) <= 1 / ENOUGH < STRICTEST
    assert all(link.carry(packets) <= 1 / ENOUGH for _ in range(500))
    assert link.carry(packets) == 0.0


@pytest.mark.parametrize(("packets", "readings"), [(2000, 1), (200, 2), (100, 2), (20, 10)])
def test_loss_of_five_percent_is_seen_as_soon_as_there_are_enough_packets(
    packets: int, readings: int
) -> None:
    link = Link()
    seen = [link.carry(packets, packets // 20) for _ in range(2 * readings)]
    assert seen[readings - 1] == pytest.approx(0.05)
    assert seen[-1] == pytest.approx(0.05)


def test_loss_that_has_ended_is_forgotten_after_two_samples() -> None:
    link = Link()
    link.carry(1000, 50)
    assert link.carry(1000) == pytest.approx(0.025)
    assert link.carry(1000) == 0.0


def test_loss_of_a_link_that_carries_hardly_anything_is_seen_and_is_of_the_last_minutes() -> None:
    link = Link()
    seen = [link.carry(4, 2) for _ in range(3 * MOST_READINGS)]
    assert seen[-1] > 0.3
    after = [link.carry(2) for _ in range(2 * MOST_READINGS + 1)]
    assert after[-1] == 0.0


def test_loss_is_that_of_all_connections_to_a_peer_since_each_began() -> None:
    losses = Losses()
    both = [Sent(SessionId(1), PEER, 100, 10), Sent(SessionId(2), PEER, 300, 0)]
    assert losses.read([*both, Sent(SessionId(3), OTHER, 1000, 0)]) == {PEER: 0.025, OTHER: 0.0}
    again = [Sent(SessionId(1), PEER, 200, 10), Sent(SessionId(4), PEER, 300, 0)]
    assert losses.read(again) == {PEER: pytest.approx(10 / 800)}


def test_loss_that_was_none_after_all_is_taken_off_again() -> None:
    link = Link()
    link.carry(100, 10)
    assert link.carry(300, -10) == 0.0
