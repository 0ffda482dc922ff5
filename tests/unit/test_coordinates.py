"""Network coordinates: that they come to tell round trips, and what they do with odd ones."""

from __future__ import annotations

import math
from random import Random
from statistics import median

import pytest

from laps.coordinates import (
    LEAST_ERROR,
    MOST_MS,
    MOST_STEP_MS,
    NOWHERE,
    Vivaldi,
    distance_ms,
    least_ms,
    on_globe_km,
    usual_ms,
)
from laps.types import Coordinates

NEW_YORK, SEATTLE = (40.71, -74.01), (47.61, -122.33)
SYDNEY, LISBON = (-33.87, 151.21), (38.72, -9.14)

LINKS = 8
"To how many others each node measures."


class World:
    """Nodes at places that nobody tells them, each with a line of its own to an exchange."""

    def __init__(self, seed: int, size: int = 40) -> None:
        rng = self.rng = Random(seed)
        self.nodes = [Vivaldi(Random(rng.random())) for _ in range(size)]
        self._lines = [rng.uniform(1, 10) for _ in self.nodes]
        self._at = [tuple(rng.uniform(-50, 50) for _ in range(3)) for _ in self.nodes]
        self._links = [rng.sample([j for j in range(size) if j != i], LINKS) for i in range(size)]

    def rtt_ms(self, i: int, j: int) -> float:
        return math.dist(self._at[i], self._at[j]) + self._lines[i] + self._lines[j]

    def measure(self, rounds: int) -> None:
        """Each node measures to all that it has a link to, and up to a twentieth too long."""
        for _ in range(rounds):
            for i, node in enumerate(self.nodes):
                for j in self._links[i]:
                    node.sample(self.nodes[j].place, self.rtt_ms(i, j) * self.rng.uniform(1, 1.05))

    def error(self) -> float:
        """Of the round trip between two nodes, most of which never met: the median share."""
        errors = []
        for i, one in enumerate(self.nodes):
            for j, other in enumerate(self.nodes[:i]):
                said, real = distance_ms(one.place, other.place), self.rtt_ms(i, j)
                errors.append(abs(said - real) / real)
        return median(errors)


@pytest.mark.parametrize("seed", range(10))
def test_coordinates_come_to_tell_round_trips_between_nodes_that_never_met(seed: int) -> None:
    world = World(seed)
    world.measure(30)
    assert world.error() < 0.2
    assert median(node.place.error for node in world.nodes) < 0.3


def test_coordinates_of_one_who_comes_late_move_and_the_others_hardly() -> None:
    world = World(1)
    world.measure(60)
    settled = world.nodes[1].place
    late = world.nodes[0] = Vivaldi(Random(7))
    world.nodes[1].sample(late.place, 500.0)
    assert math.dist(_point(settled), _point(world.nodes[1].place)) < MOST_STEP_MS / 4
    world.measure(20)
    assert world.error() < 0.2
    assert late.samples == 20 * LINKS


@pytest.mark.parametrize("rtt_ms", [0.0, -1.0, 1001.0, math.inf, math.nan])
def test_coordinates_of_a_round_trip_that_is_none_stay(rtt_ms: float) -> None:
    node = Vivaldi(Random(1))
    node.sample(Coordinates(1, 2, 3, 1, 0.5), rtt_ms)
    assert node.place == NOWHERE
    assert node.samples == 0


def test_coordinates_at_one_place_part_in_some_direction() -> None:
    one, other = Vivaldi(Random(1)), Vivaldi(Random(2))
    for _ in range(200):
        one.sample(other.place, 10.0)
        other.sample(one.place, 10.0)
    assert distance_ms(one.place, other.place) == pytest.approx(10.0, rel=0.1)


def test_coordinates_that_somebody_lies_about_throw_nobody_far() -> None:
    node = Vivaldi(Random(1))
    far = Coordinates(MOST_MS, -MOST_MS, MOST_MS, MOST_MS, 0.0)
    before = node.place
    for _ in range(1000):
        node.sample(far, 0.001)
        assert math.dist(_point(before), _point(node.place)) <= MOST_STEP_MS + 1e-6
        before = node.place
        assert max(map(abs, _point(before))) <= MOST_MS
        assert 0 < before.height_ms <= MOST_MS
        assert LEAST_ERROR <= before.error <= 1


@pytest.mark.parametrize("liars", [0, 1, 3])
def test_coordinates_of_the_others_stay_true_while_some_lie(liars: int) -> None:
    rng = Random(1)
    points = [(rng.uniform(0, 100), rng.uniform(0, 60)) for _ in range(13)]
    nodes = [Vivaldi(Random(number)) for number in range(13 - liars)]
    lie = Coordinates(MOST_MS, MOST_MS, -MOST_MS, 0.01, 0.0)
    for _ in range(400):
        for number, node in enumerate(nodes):
            other = rng.randrange(13)
            if other != number:
                place = nodes[other].place if other < len(nodes) else lie
                node.sample(place, 2 + math.dist(points[number], points[other]))
    wrong = [
        abs(distance_ms(a.place, b.place) / (2 + math.dist(points[one], points[two])) - 1)
        for one, a in enumerate(nodes)
        for two, b in enumerate(nodes[:one])
    ]
    assert median(wrong) < 0.1
    assert all(node.place.error < 0.3 for node in nodes)
    assert all(node.outliers > 0 for node in nodes) is (liars > 0)


def test_coordinates_follow_a_node_that_is_elsewhere_by_now() -> None:
    points = [(float(10 * number), float(number * number)) for number in range(8)]
    nodes, rng = [Vivaldi(Random(number)) for number in range(8)], Random(2)

    def meet(rounds: int) -> None:
        for _ in range(rounds):
            for number, node in enumerate(nodes):
                other = rng.randrange(8)
                if other != number:
                    rtt_ms = 2 + math.dist(points[number], points[other])
                    node.sample(nodes[other].place, rtt_ms)

    meet(300)
    points[0] = (200.0, -50.0)
    meet(600)
    for number in range(1, 8):
        there_ms = distance_ms(nodes[0].place, nodes[number].place)
        assert there_ms == pytest.approx(2 + math.dist(points[0], points[number]), rel=0.25)


def test_the_globe() -> None:
    assert on_globe_km(NEW_YORK, SEATTLE) == pytest.approx(3870, rel=0.01)
    assert on_globe_km(LISBON, SYDNEY) == pytest.approx(18_180, rel=0.01)
    assert on_globe_km((90, 0), (-90, 77)) == pytest.approx(20_015, rel=0.01)
    assert on_globe_km(NEW_YORK, NEW_YORK) == 0
    # Nobody has ever measured less than 50 ms between them: light would need 26.
    assert least_ms(3870) == pytest.approx(25.8, rel=0.01)
    assert usual_ms(3870) == pytest.approx(58, rel=0.01)


def _point(it: Coordinates) -> tuple[float, float, float]:
    return it.x_ms, it.y_ms, it.z_ms
