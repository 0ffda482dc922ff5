"""Python's collector, as a relay has it."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest

from laps.net import collector
from laps.net.collector import Collector

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
    kept = [Whole() for _ in range(1_000)]
    lost = [ref(Whole()) for _ in range(1_000)]
    watched.look()
    assert not any(it() for it in lost)
    assert all(it.part for it in kept)
    assert len(full_looks) == 2


def test_many_new_objects_are_never_looked_at_all_at_once(
    full_looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Collector()
    full_looks.clear()
    monkeypatch.setattr(collector, "MOST_OBJECTS", 50_000)
    kept: list[Whole] = []
    for _ in range(4):
        kept += [Whole() for _ in range(60_000)]
        watched.look()
    assert not full_looks
    assert gc.get_freeze_count() > 400_000
    lost = ref(Whole())
    watched.look()  # of what came since, everything is
    assert lost() is None
