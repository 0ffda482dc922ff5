"""Families of networks that take no time; their processes import them from here."""

from __future__ import annotations

import os

from laps.errors import LapsError
from laps.sim.families import Family


def odd_ones_fail(seed: int) -> list[str]:
    return [f"{seed} is odd", *("more",) * 9] if seed % 2 else []


def stranger_things_happen(seed: int) -> list[str]:
    if seed == 1:
        raise LapsError("never at rest")
    if seed == 2:
        raise ZeroDivisionError
    if seed == 3:
        os._exit(7)
    return []


ODD = Family("odd", "Every second one fails.", odd_ones_fail)
STRANGE = Family("strange", "Not all of them come to an end.", stranger_things_happen)
