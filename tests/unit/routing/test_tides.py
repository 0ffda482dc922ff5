"""Flows that are a large part of what a relay carries come to rest, or move ever more rarely.

A relay is as full as the flows that pass it, says so every two seconds, and each flow then takes
the first relay that does not turn it away, as `Router` does.
"""

from __future__ import annotations

import pytest

from laps.routing.conditions import Conditions, draw
from laps.routing.tides import FORGET_S, HOLD_S, MOST_HOLD_S, RISE, SOON_S, Tide
from laps.types import NodeId, NodeMetrics

RELAYS = [NodeId((1 << 32) + number) for number in (8, 9)]
LIMIT = 0.9
HOUR_S = 3600


class Parallel:
    """Flows that each may pass either of two relays; all begin at the first."""

    def __init__(self, flows: list[float], seed: int) -> None:
        self.flows = flows
        self.keys = [draw_key(seed, number) for number in range(len(flows))]
        self.at = [RELAYS[0]] * len(flows)
        self.conditions = Conditions()
        self.now = 0.0
        self.changed_at: list[float] = []

    def load(self, relay: NodeId) -> float:
        return sum(each for each, at in zip(self.flows, self.at, strict=True) if at == relay)

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            if self.now % 2 == 0:
                for relay in RELAYS:
                    said = NodeMetrics(1, relay, min(1.0, self.load(relay)), 0, 0)
                    self.conditions.heard(said, self.now)
            if self.conditions.tick(self.now) or self.now < 3:
                for number in range(len(self.flows)):
                    self.decide(number)

    def decide(self, number: int) -> None:
        key, current = self.keys[number], self.at[number]

        def weight(relay: NodeId) -> tuple[int, float, NodeId]:
            mine, is_used = draw(key, relay), relay == current
            if not self.conditions.turns_away(relay, LIMIT, mine, is_used=is_used):
                return 0, 0.0, relay
            return (1, 0.0, relay) if is_used else (2, self.conditions.load(relay), relay)

        self.at[number] = min(RELAYS, key=weight)
        if self.at[number] != current:
            self.changed_at.append(self.now)

    def changes(self, since_s: float, until_s: float) -> int:
        return sum(since_s <= at < until_s for at in self.changed_at)


def draw_key(seed: int, number: int) -> int:
    return int(draw(1000 * seed + number, NodeId(77)) * (1 << 53)) << 11


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("flows", [[0.95], [0.6] * 2, [0.5] * 3], ids=str)
def test_flows_that_are_too_much_for_a_relay_move_ever_more_rarely(
    flows: list[float], seed: int
) -> None:
    pair = Parallel(flows, seed)
    pair.pass_time(5 * HOUR_S)
    first = pair.changes(0, 600)
    assert 0 < first <= 10
    # It doubles from then on, and so there are a few more in the rest of the hour,
    assert pair.changes(600, HOUR_S) <= 8
    # and then no more than the longest hold allows: each time that flows come back, and leave.
    for hour in range(1, 5):
        assert pair.changes(hour * HOUR_S, (hour + 1) * HOUR_S) <= 2 * HOUR_S / MOST_HOLD_S


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("flows", [[0.45] * 4, [0.18] * 10, [0.08] * 20], ids=str)
def test_flows_that_two_relays_can_share_come_to_rest(flows: list[float], seed: int) -> None:
    pair = Parallel(flows, seed)
    pair.pass_time(HOUR_S)
    assert 0 < pair.changes(0, HOUR_S) <= len(flows) + 8
    assert pair.changes(HOUR_S / 2, HOUR_S) == 0


def rise_and_fall(tide: Tide, now: float) -> float:
    """A place is too full, then nearly empty until flows have come back; when they have."""
    tide.move(RISE, now)
    emptied_at = now = now + 2.0
    while not tide.move(-RISE, now):
        now += 2.0
    assert now - emptied_at == pytest.approx(tide.hold_s, abs=2.0)
    return now


def test_a_hold_doubles_each_time_that_flows_came_back_too_soon() -> None:
    tide, now, holds = Tide(), 0.0, []
    for _ in range(8):
        now = rise_and_fall(tide, now) + 10.0
        holds.append(tide.hold_s)
    assert holds == [0.0, HOLD_S, 120.0, 240.0, 480.0, 960.0, MOST_HOLD_S, MOST_HOLD_S]


def test_a_hold_fades_while_flows_are_back_and_there_is_room() -> None:
    tide, now = Tide(), 0.0
    for _ in range(7):
        now = rise_and_fall(tide, now) + 10.0
    now = rise_and_fall(tide, now)
    tide.move(RISE, now + 2 * SOON_S)
    assert tide.hold_s == MOST_HOLD_S / 4
    now = rise_and_fall(tide, now + 2 * SOON_S + 2)
    tide.move(RISE, now + 6 * SOON_S)
    assert tide.hold_s == 0.0


def test_a_tide_is_forgotten_when_it_has_long_been_low() -> None:
    tide = Tide()
    assert tide.is_over(0.0, 0.0)
    now = rise_and_fall(tide, 0.0)
    assert tide.level == 0.0
    assert not tide.is_over(-RISE, now + SOON_S)
    assert not tide.is_over(RISE, now + 2 * FORGET_S)
    assert tide.is_over(-RISE, now + 2 * FORGET_S)
