"""What waits by class, and for whom it is too much."""

from __future__ import annotations

import random

import pytest

from laps.config import EgressConfig
from laps.net.backlog import Backlog, ByClass
from laps.routing.terms import ORDERS

CONFIG = EgressConfig(queue_bytes=1000, pressure_bytes=100)


def backlog(*waiting: int) -> Backlog:
    made = Backlog(CONFIG, ByClass())
    for order, size in enumerate(waiting):
        made.add(order, size)
    made.review(is_paced=False)
    return made


@pytest.mark.parametrize(
    ("waiting", "pressed", "crowded"),
    [
        ((0, 0, 0, 0), ORDERS, ORDERS),
        ((0, 100, 0, 0), ORDERS, ORDERS),
        ((0, 101, 0, 0), 1, ORDERS),
        ((60, 0, 60, 0), 2, ORDERS),
        ((101, 0, 0, 0), 0, ORDERS),
        ((0, 0, 501, 0), 2, 2),
        ((101, 0, 0, 500), 0, 3),
        ((501, 0, 0, 0), 0, 0),
    ],
)
def test_a_class_is_pressed_by_itself_and_by_those_before_it(
    waiting: tuple[int, ...], pressed: int, crowded: int
) -> None:
    made = backlog(*waiting)
    assert (made.pressed_from, made.crowded_from) == (pressed, crowded)


def test_each_holds_until_it_is_half_of_what_it_was() -> None:
    made = backlog(0, 501)
    for size, held in ((-250, (1, 1)), (-2, (1, ORDERS)), (-198, (1, ORDERS)), (-2, (4, 4))):
        made.add(1, size)
        made.review(is_paced=False)
        assert (made.pressed_from, made.crowded_from) == held


def test_one_that_is_held_to_its_share_is_never_crowded() -> None:
    made = Backlog(CONFIG, ByClass())
    made.add(1, 900)
    assert made.review(is_paced=True)
    assert (made.pressed_from, made.crowded_from) == (1, ORDERS)


@pytest.mark.parametrize("seed", range(20))
def test_a_review_is_called_for_whenever_it_would_say_something_new(seed: int) -> None:
    """It is left out as long as more of a class says nothing that is not known."""
    rng = random.Random(seed)
    made = Backlog(CONFIG, ByClass())
    for _ in range(300):
        order = rng.randrange(ORDERS)
        size = rng.randint(1, 80)
        if rng.random() < 0.5 and made.by_order[order] >= size:
            made.add(order, -size)
            made.review(is_paced=False)
            continue
        made.add(order, size)
        called = made.may_press(order)
        assert made.review(is_paced=False) <= called
        assert made.total == sum(made.by_order)
        assert made.pressed_from <= made.crowded_from
