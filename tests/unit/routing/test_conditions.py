"""What relays say of themselves counts when it has lasted: so a network does not swing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import pytest

from laps.infobase.metrics import NOTABLE
from laps.routing.conditions import (
    BETTER_S,
    LOAD_STEP,
    LOSS_STEP,
    WORSE_S,
    Conditions,
    draw,
    fullness,
    link_draw,
)
from laps.routing.tides import TIDE_S
from laps.types import FullLink, NodeId, NodeMetrics, Reachability

A, B = NodeId(1), NodeId(2)


def metrics(load: float, loss: float = 0.0, node_id: NodeId = A, **fields: int) -> NodeMetrics:
    said = {"capacity_bps": 0, "egress_bps": 0, **fields}
    links = (Reachability(B, 10_000, loss),)
    return NodeMetrics(1, node_id, load, said["capacity_bps"], said["egress_bps"], "", (), links)


class Heard:
    """One relay's figures, as it tells them each second."""

    def __init__(self, load: float = 0.3, loss: float = 0.0) -> None:
        self.now = 100.0
        self.conditions = Conditions()
        self.conditions.heard(metrics(load, loss), self.now)
        self.conditions.tick(self.now)

    def say(self, seconds: float, load: float = 0.3, loss: float = 0.0) -> None:
        for _ in range(round(seconds)):
            self.now += 1.0
            self.conditions.heard(metrics(load, loss), self.now)
            self.conditions.tick(self.now)


def test_the_first_word_of_a_relay_counts_at_once_and_that_of_a_link_when_it_has_lasted() -> None:
    heard = Heard(0.9, 0.1)
    assert heard.conditions.load(A) == 0.9
    assert heard.conditions.loss(A, B) == 0.0
    heard.say(WORSE_S + 1, 0.9, 0.1)
    assert heard.conditions.loss(A, B) == 0.1
    assert heard.conditions.load(B) == heard.conditions.loss(B, A) == 0.0


@pytest.mark.parametrize(("load", "wait_s"), [(0.8, WORSE_S), (0.1, BETTER_S)])
def test_worse_counts_after_a_while_and_better_after_a_longer_one(
    load: float, wait_s: float
) -> None:
    heard = Heard(0.4)
    heard.say(wait_s, load)
    assert heard.conditions.load(A) == 0.4
    heard.say(1, load)
    assert heard.conditions.load(A) == load


def test_what_differs_by_less_than_a_step_is_the_same() -> None:
    heard = Heard(0.4)
    version = heard.conditions.version
    heard.say(100, 0.4 + 0.9 * LOAD_STEP, 0.9 * LOSS_STEP)
    assert (heard.conditions.load(A), heard.conditions.loss(A, B)) == (0.4, 0.0)
    assert heard.conditions.version == version
    assert heard.conditions.deadline() is None


def test_a_figure_that_goes_up_and_down_counts_as_it_was() -> None:
    heard = Heard(0.4)
    for _ in range(30):
        heard.say(WORSE_S - 1, 0.9)
        heard.say(WORSE_S - 1, 0.4)
    assert heard.conditions.load(A) == 0.4


def test_one_that_turns_from_worse_to_better_begins_anew() -> None:
    heard = Heard(0.4)
    heard.say(WORSE_S - 1, 0.9)
    heard.say(BETTER_S - 1, 0.1)
    assert heard.conditions.load(A) == 0.4
    heard.say(2, 0.1)
    assert heard.conditions.load(A) == 0.1


def test_those_are_named_that_a_way_may_depend_on() -> None:
    conditions = Conditions()
    conditions.heard(metrics(0.0), 0.0)
    conditions.heard(metrics(0.8 * NOTABLE), 0.0)
    assert conditions.tick(WORSE_S + 1) == set()
    conditions.heard(metrics(0.9), 10.0)
    assert conditions.deadline() == 10.0 + WORSE_S
    assert conditions.tick(10.0 + WORSE_S) == {A}
    assert conditions.concern(B, (A,))
    assert not conditions.concern(A, (B,))


def test_a_relay_that_is_gone_is_forgotten_with_its_links() -> None:
    heard = Heard(0.9, 0.5)
    heard.say(1, 0.1, 0.1)
    heard.conditions.gone(A)
    assert (heard.conditions.load(A), heard.conditions.loss(A, B)) == (0.0, 0.0)
    assert heard.conditions.deadline() is None
    assert len(heard.conditions) == 0


@pytest.mark.parametrize(
    ("load", "capacity_bps", "egress_bps", "full"),
    [(0.4, 0, 10**9, 0.4), (0.1, 1000, 800, 0.8), (0.9, 1000, 800, 0.9), (0.5, 100, 300, 1.0)],
)
def test_a_relay_is_as_full_as_the_fuller_of_its_time_and_its_line(
    load: float, capacity_bps: int, egress_bps: int, full: float
) -> None:
    said = metrics(load, capacity_bps=capacity_bps, egress_bps=egress_bps)
    assert fullness(said) == full


def test_draws_are_spread_evenly_and_say_nothing_of_each_other() -> None:
    here = sorted(draw(key, A) for key in range(1000))
    assert 0.0 <= here[0] < 0.01
    assert 0.99 < here[-1] < 1.0
    assert max(b - a for a, b in pairwise(here)) < 0.02
    pairs = [(draw(key, A) < 0.5, draw(key, B) < 0.5) for key in range(1000)]
    assert all(
        200 < pairs.count((one, other)) < 300
        for one, other in product((False, True), (False, True))
    )
    assert draw(7, A) == draw(7, A)


class Tide:
    """How many of many flows a relay turns away, as time passes."""

    def __init__(self) -> None:
        self.heard = Heard(0.1)
        self.conditions = self.heard.conditions

    def pass_time(self, seconds: float, load: float) -> None:
        """The relay says each second how full it is, and flows are decided."""
        for _ in range(round(seconds)):
            self.heard.say(1, load)
            self.away()

    def away(self, *, is_used: bool = True) -> int:
        """How many of a hundred flows it turns away."""
        return sum(
            self.conditions.turns_away(A, 0.8, flow / 100, is_used=is_used) for flow in range(100)
        )


def test_flows_leave_a_full_relay_one_after_the_other_until_it_is_full_no_more() -> None:
    tide = Tide()
    assert tide.away() == 0
    tide.pass_time(WORSE_S + 1, 0.95)
    seen = [tide.away()]
    for _ in range(5):
        tide.pass_time(TIDE_S, 0.95)
        seen.append(tide.away())
    assert seen[0] < 10
    assert all(5 <= b - a <= 7 for a, b in pairwise(seen))
    tide.pass_time(5 * BETTER_S, 0.75)
    assert tide.away() == seen[-1]
    assert tide.conditions.deadline() is None, "the tide stands"


def test_flows_come_back_more_slowly_and_only_where_there_is_much_room() -> None:
    tide = Tide()
    tide.pass_time(20, 0.95)
    before = tide.away()
    assert before > 30
    tide.pass_time(BETTER_S + 6, 0.55)
    assert before - 4 <= tide.away() < before
    before = tide.away()
    tide.pass_time(BETTER_S + 6, 0.1)
    assert before - 30 <= tide.away() < before - 6
    tide.pass_time(60, 0.1)
    assert tide.away() == 0
    assert tide.conditions.deadline() is None


def test_a_full_relay_keeps_all_away_by_and_by_and_is_never_taken_by_others() -> None:
    tide = Tide()
    tide.pass_time(WORSE_S + 1, 0.95)
    assert tide.away(is_used=False) == 100
    tide.pass_time(40, 0.95)
    assert tide.away() == 100
    assert tide.conditions.deadline() is None
    tide.pass_time(20, 0.75)
    assert tide.away(is_used=False) == 100, "its load is not well below the limit"


def test_each_class_has_a_tide_of_its_own_and_all_go_with_the_relay() -> None:
    tide = Tide()
    for _ in range(20):
        tide.pass_time(1, 0.9)
        assert not tide.conditions.turns_away(A, 1.0, 0.0, is_used=True)
    assert tide.conditions.turns_away(A, 0.8, 0.1, is_used=True)
    tide.conditions.gone(A)
    assert not tide.conditions.turns_away(A, 0.8, 0.0, is_used=True)
    assert tide.conditions.deadline() is None


def test_a_way_is_of_concern_as_long_as_flows_keep_away_from_it() -> None:
    tide = Tide()
    tide.pass_time(20, 0.95)
    tide.pass_time(BETTER_S + 2, 0.1)
    assert tide.conditions.load(A) < NOTABLE
    assert tide.away() > 0
    assert tide.conditions.concern(B, (A,)), "whoever looked at its load alone would come back"
    tide.pass_time(60, 0.1)
    assert not tide.conditions.concern(B, (A,))


class Line:
    """One link that a relay says of each second how full it is."""

    def __init__(self) -> None:
        self.now = 100.0
        self.conditions = Conditions()

    def say(self, seconds: float, full: float) -> set[NodeId]:
        concerned: set[NodeId] = set()
        for _ in range(round(seconds)):
            self.now += 1.0
            links = (FullLink(B, full),) if full > NOTABLE else ()
            self.conditions.heard(replace(metrics(0.1), full_links=links), self.now)
            concerned |= self.conditions.tick(self.now)
            self.away()
        return concerned

    def away(self, *, is_used: bool = True) -> int:
        """How many of a hundred flows it turns away."""
        return sum(
            self.conditions.link_turns_away(A, B, 0.8, flow / 100, is_used=is_used)
            for flow in range(100)
        )


def test_a_link_that_is_full_is_left_like_a_relay_that_is() -> None:
    line = Line()
    assert line.say(10, 0.9) >= {A, B}, "a way by either end may lead over it"
    assert line.conditions.link_load(A, B) == 0.9
    assert line.conditions.link_load(B, A) == 0.0
    assert line.conditions.concern(A, (B,))
    assert not line.conditions.concern(B, (A,))
    assert 0 < line.away() < 50
    assert line.away(is_used=False) == 100
    line.say(40, 0.9)
    assert line.away() == 100
    line.say(90, 0.0)
    assert line.away() == line.away(is_used=False) == 0
    assert not line.conditions.concern(A, (B,))


def test_a_link_that_is_no_longer_named_is_empty_after_a_while_and_one_that_is_gone_at_once() -> (
    None
):
    line = Line()
    line.say(10, 0.9)
    line.say(BETTER_S - 1, 0.0)
    assert line.conditions.link_load(A, B) == 0.9
    line.say(2, 0.0)
    assert line.conditions.link_load(A, B) == 0.0
    line.say(10, 0.9)
    line.conditions.heard(NodeMetrics(1, A, 0.1, 0, 0, full_links=(FullLink(B, 0.9),)), line.now)
    assert line.conditions.link_load(A, B) == 0.0
    line.say(10, 0.9)
    line.conditions.gone(B)
    line.conditions.gone(A)
    assert line.conditions.link_load(A, B) == 0.0
    assert line.conditions.deadline() is None


def test_the_draw_at_a_link_is_another_than_at_its_relays_and_than_the_way_back() -> None:
    same = sum(
        (link_draw(key, A, B) < 0.5) == (other < 0.5)
        for key in range(1000)
        for other in (draw(key, A), draw(key, B), link_draw(key, B, A))
    )
    assert 1400 < same < 1600
