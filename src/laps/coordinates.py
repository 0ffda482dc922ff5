"""Network coordinates: where nodes are by their round trips, and what the globe says of them.

Vivaldi (Dabek et al., 2004) in three dimensions and a height. Each node has a place of its own, and
each round trip that it measures moves it a little: towards the other node where it came back sooner
than the two places say, and away from it where it came back later. What a node knows well moves
little, and what comes from a node that knows itself badly moves others little. After some dozens of
round trips the places of all nodes tell the round trip between any two, also of two that never met.

The height is what each packet of a node takes before it is under way, such as its line to the
nearest exchange: no place in space can tell it, since it does not become less in any direction.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Final

from laps.types import Coordinates

if TYPE_CHECKING:
    from random import Random

# How much one round trip counts, at most: the constants of the paper.
ERROR_WEIGHT: Final = 0.25
STEP_WEIGHT: Final = 0.25

# A node is never sure of itself to the last: round trips change.
LEAST_ERROR: Final = 0.02
HEIGHT_LEAST_MS: Final = 0.01

# Nobody is thrown further by one round trip: what one node says is not taken for the truth.
MOST_STEP_MS: Final = 50.0
# What no packet on earth takes: the process slept, or somebody lies.
MOST_RTT_MS: Final = 1000.0

# What one node says of itself may be a lie. A round trip that agrees with the places much less than
# those of the other nodes do is left aside, unless most of the latest are like that: then it is
# this node that is elsewhere.
LATEST: Final = 24
ENOUGH: Final = 8
ALWAYS_TAKEN: Final = 0.25
OUTLYING: Final = 4.0

MOST_MS: Final = 1000.0
"As far from the middle as a place may be."

NOWHERE: Final = Coordinates(0.0, 0.0, 0.0, HEIGHT_LEAST_MS, 1.0)
"Where everybody begins."

LIGHT_KM_PER_MS: Final = 299.792458
"In a vacuum: nothing is faster, in whatever cable."
EARTH_KM: Final = 6371.0

# What cables do on average: light takes half as long again in them, and they are not straight.
USUAL_KM_PER_MS: Final = 200.0
DETOUR: Final = 1.5


def distance_ms(a: Coordinates, b: Coordinates) -> float:
    """The round trip between two places."""
    return _apart(a, b) + a.height_ms + b.height_ms


class Vivaldi:
    """The place of one node, as round trips move it."""

    def __init__(self, rng: Random) -> None:
        self.place = NOWHERE
        self.samples = 0
        self.outliers = 0
        "Round trips that were left aside."
        self._wrong: deque[float] = deque(maxlen=LATEST)
        "By how much of each of the latest round trips the places were wrong."
        self._rng = rng

    def sample(self, other: Coordinates, rtt_ms: float) -> None:
        """A round trip to a node, and where that node says it is."""
        if not 0 < rtt_ms <= MOST_RTT_MS:
            return
        self.samples += 1
        here = self.place
        apart = _apart(here, other)
        expected = apart + here.height_ms + other.height_ms
        weight = here.error / (here.error + max(other.error, LEAST_ERROR))
        disagrees = abs(expected - rtt_ms) / max(expected, rtt_ms)
        is_outlier = self._is_outlier(disagrees)
        self._wrong.append(disagrees)
        if is_outlier:
            self.outliers += 1
            return
        wrong = min(1.0, abs(expected - rtt_ms) / rtt_ms)
        counts = ERROR_WEIGHT * weight
        error = min(1.0, max(LEAST_ERROR, wrong * counts + here.error * (1 - counts)))
        step = STEP_WEIGHT * weight * (rtt_ms - expected)
        step = max(-MOST_STEP_MS, min(MOST_STEP_MS, step))
        along = self._direction(here, other, apart)
        height = here.height_ms
        if apart > 0:
            height += (here.height_ms + other.height_ms) * step / apart
            height = min(max(height, HEIGHT_LEAST_MS), rtt_ms)
        x, y, z = (_within(at + step * part) for at, part in zip(_point(here), along, strict=True))
        self.place = Coordinates(x, y, z, height, error)

    def _is_outlier(self, disagrees: float) -> bool:
        """Whether a round trip agrees with the places much less than the latest ones."""
        if disagrees <= ALWAYS_TAKEN or len(self._wrong) < ENOUGH:
            return False
        return disagrees > OUTLYING * median(self._wrong)

    def _direction(
        self, here: Coordinates, other: Coordinates, apart: float
    ) -> tuple[float, float, float]:
        """Away from the other node; of two at one place each goes somewhere."""
        if apart > 1e-6:
            pairs = zip(_point(here), _point(other), strict=True)
            dx, dy, dz = ((mine - its) / apart for mine, its in pairs)
            return dx, dy, dz
        around, up = self._rng.uniform(0, 2 * math.pi), self._rng.uniform(-1, 1)
        flat = math.sqrt(1 - up * up)
        return flat * math.cos(around), flat * math.sin(around), up


def _point(it: Coordinates) -> tuple[float, float, float]:
    return it.x_ms, it.y_ms, it.z_ms


def _apart(a: Coordinates, b: Coordinates) -> float:
    return math.dist(_point(a), _point(b))


def _within(value: float) -> float:
    return max(-MOST_MS, min(MOST_MS, value))


# -- on the globe ----------------------------------------------------------------------------------


def on_globe_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """The way over ground between two places, each a latitude and a longitude in degrees."""
    north, south = math.radians(a[0]), math.radians(b[0])
    east = math.radians(b[1] - a[1])
    half = math.sin((south - north) / 2) ** 2
    half += math.cos(north) * math.cos(south) * math.sin(east / 2) ** 2
    return 2 * EARTH_KM * math.asin(math.sqrt(min(1.0, half)))


def least_ms(km: float) -> float:
    """What no round trip over such a distance can take less than, whatever it passes."""
    return 2 * km / LIGHT_KM_PER_MS


def usual_ms(km: float) -> float:
    """About what a round trip over such a distance takes."""
    return 2 * DETOUR * km / USUAL_KM_PER_MS
