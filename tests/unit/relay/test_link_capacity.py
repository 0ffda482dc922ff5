"""What a link carries is learned where data waited for it, and grows old slowly."""

from __future__ import annotations

import pytest

from laps.relay.link_capacity import GROW_S, KEEP_S, LinkCapacity

EACH_S = 2.0


class Narrow:
    """A link that carries so much, and a relay that has so much to send."""

    def __init__(self, carries: float) -> None:
        self.link = LinkCapacity()
        self.carries = carries
        self.now = 100.0

    def offer(self, rate: float, seconds: float = EACH_S) -> float | None:
        end, full = self.now + seconds, None
        while self.now < end:
            self.now += EACH_S
            sent = min(rate, self.carries) * EACH_S
            full = self.link.read(sent, EACH_S if rate > self.carries else 0.0, EACH_S, self.now)
        return full


def test_link_capacity_is_not_known_before_data_waited_for_it() -> None:
    link = Narrow(1000)
    assert link.offer(0, 60) is None
    assert link.offer(900, 60) is None
    assert link.link.most(link.now) is None


def test_link_that_data_waits_for_is_full_and_then_as_full_as_it_sends() -> None:
    link = Narrow(1000)
    assert link.offer(5000, 10) == 1.0
    assert link.link.most(link.now) == 1000
    assert link.offer(600, 20) == pytest.approx(0.6)
    assert link.offer(0, 20) == 0.0


def test_link_whose_data_waits_for_a_part_of_the_time_shows_nothing() -> None:
    link = LinkCapacity()
    assert link.read(1000, 1.0, EACH_S, 2.0) is None
    assert link.read(0, EACH_S, EACH_S, 4.0) is None, "it stood still"
    assert link.read(0, EACH_S, EACH_S, 6.0) is None


def test_link_capacity_is_not_what_the_queues_on_the_way_take_at_first() -> None:
    link = LinkCapacity()
    assert link.read(3000, EACH_S, EACH_S, 2.0) is None
    assert link.read(2000, EACH_S, EACH_S, 4.0) == 1.0
    assert link.most(4.0) == 1000


def test_link_capacity_is_the_highest_of_the_last_minutes() -> None:
    link = Narrow(1000)
    link.offer(5000, 4)
    link.carries = 400
    assert link.offer(5000, KEEP_S - 10) == 1.0
    assert link.link.most(link.now) == 1000
    assert link.offer(5000, 30) == 1.0
    assert link.link.most(link.now) == 400


def test_link_that_was_long_no_bottleneck_is_held_to_carry_more_by_and_by() -> None:
    link = Narrow(1000)
    link.offer(5000, 4)
    assert link.offer(800, KEEP_S - 10) == pytest.approx(0.8)
    assert link.offer(800, GROW_S + 10) == pytest.approx(0.4, abs=0.01)
    assert link.offer(800, GROW_S) == pytest.approx(0.2, abs=0.01)
    assert link.offer(1500, 6) == 1.0
    assert link.link.most(link.now) == 1000


def test_link_that_sends_more_than_it_was_held_to_carry_is_another() -> None:
    link = Narrow(1000)
    link.offer(5000, 4)
    link.carries = 10_000
    assert link.offer(1050, 20) == 1.0
    assert link.offer(2000, 20) is None


def test_link_that_sends_in_bursts_is_as_full_as_on_average() -> None:
    link = Narrow(1000)
    link.offer(5000, 4)
    link.offer(300, 20)
    for rate in (900, 0, 0) * 5:
        full = link.offer(rate)
    assert full == pytest.approx(0.3)


def test_link_that_a_flow_has_just_moved_to_is_not_full_for_a_moment_of_waiting() -> None:
    link = Narrow(1000)
    link.offer(5000, 4)
    link.offer(300, 20)
    full = link.offer(3000, 4)
    assert full is not None
    assert full < 0.8
    assert link.offer(3000, 2) == 1.0
