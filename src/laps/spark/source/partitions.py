"""How what a query reads is cut into tasks: a group each, and small ones together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from laps.types import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from laps.spark.source.reading import Range

FEW: Final = 32
"Up to so many groups have a task each: starting one takes 10 ms or more."
MANY: Final = 200
"More tasks than this make no batch quicker."
OBJECTS: Final = 2000
"In between, a task has so many objects: reading them takes about as long as starting it."


class Part(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.ranges = tuple(ranges)

    @property
    def count(self) -> int:
        """How many objects it has."""
        return sum(wanted.count or 0 for wanted in self.ranges)


def parts_of(ranges: Sequence[Range]) -> list[Part]:
    """A task for each range, or for some that follow each other where there are many."""
    if len(ranges) <= FEW:
        return [Part((wanted,)) for wanted in ranges]
    total = sum(wanted.count or 1 for wanted in ranges)
    goal = total / min(MANY, max(FEW, total // OBJECTS))
    parts: list[Part] = []
    taken: list[Range] = []
    sum_taken = 0
    for wanted in ranges:
        taken.append(wanted)
        sum_taken += wanted.count or 1
        # Measured from the beginning, so that what one has too much the next has less.
        if sum_taken >= goal * (len(parts) + 1):
            parts.append(Part(list(_joined(taken))))
            taken = []
    if taken:
        parts.append(Part(list(_joined(taken))))
    return parts


def _joined(ranges: Iterable[Range]) -> Iterable[Range]:
    """Groups that follow each other, as one range: one FETCH brings them all."""
    last: Range | None = None
    for wanted in ranges:
        if last is not None and _follows(last, wanted):
            count = None if last.count is None else last.count + (wanted.count or 0)
            last = replace(last, end=wanted.end, count=count)
            continue
        if last is not None:
            yield last
        last = wanted
    if last is not None:
        yield last


def _follows(last: Range, wanted: Range) -> bool:
    return (
        wanted.track == last.track
        and wanted.start == Location(last.end.group + 1, 0)
        and (wanted.count is None) == (last.count is None)
    )
