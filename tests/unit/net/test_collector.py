"""Python's collector, as a relay has it."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest

from laps.net.collector import FULL_LOOKS, MOST_OBJECTS, Collector

if TYPE_CHECKING:
    from collections.abc import Iterator


class Whole:
    """What refers to a part that refers to it."""

    def __init__(self) -> None:
        self.part = [self]


@pytest.fixture
def full_looks() -> Iterator[list[int]]:
    """Grows with every look at all objects; afterwards the collector is as it was."""
    looks: list[int] = []

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and info["generation"] == 2:
            looks.append(1)

    thresholds = gc.get_threshold()
    gc.callbacks.append(note)
    yield looks
    gc.callbacks.remove(note)
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_what_is_left_over_is_found_while_there_are_few_objects(full_looks: list[int]) -> None:
    watched = Collector()
    full_looks.clear()
    kept = [Whole() for _ in range(1_000)]
    lost = [ref(Whole()) for _ in range(1_000)]
    for _ in range(FULL_LOOKS):
        watched.look()
    assert not any(it() for it in lost)
    assert all(it.part for it in kept)
    assert len(full_looks) == 1


def test_many_new_objects_are_never_looked_at_all_at_once(full_looks: list[int]) -> None:
    watched = Collector()
    full_looks.clear()
    kept: list[Whole] = []
    for _ in range(2 * FULL_LOOKS):
        kept += [Whole() for _ in range(MOST_OBJECTS)]
        watched.look()
    assert not full_looks
    assert gc.get_freeze_count() > len(kept)
    lost = ref(Whole())
    for _ in range(FULL_LOOKS):  # of what came since, everything is
        watched.look()
    assert lost() is None


def test_objects_that_take_the_place_of_others_are_counted(full_looks: list[int]) -> None:
    """The collector itself counts what is new less what is freed, and sees nothing of this."""
    kept = [Whole() for _ in range(4 * MOST_OBJECTS)]
    watched = Collector()
    full_looks.clear()
    for number in range(2 * MOST_OBJECTS):
        kept[number].part.clear()
        kept[number] = Whole()
    watched.look()
    assert sum(len(gc.get_objects(generation)) for generation in range(3)) < MOST_OBJECTS
    assert not full_looks
