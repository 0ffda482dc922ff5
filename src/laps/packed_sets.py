"""Sets of 64-bit numbers by a key: most have a few members, some a million.

A few are in a row of a `Packed`, one after another. Those that are too many for it are in order, in
arrays of up to `MOST_IN_ARRAY`; an array that is full is cut in two, so none is copied that is
large. Both take some 9 bytes for a member.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Final

from laps.packed import MOST_BYTES, Packed
from laps.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# To make room for one in the middle takes less than a microsecond.
MOST_IN_ARRAY: Final = 1024

MOST_IN_ROW: Final = MOST_BYTES // 8

_PACK: Final = Struct("=Q").pack


class PackedSets:
    """A set of numbers for each key that has any."""

    __slots__ = ("_large", "_rows")

    def __init__(self) -> None:
        self._rows = Packed()
        "An empty row where the set is a large one."
        self._large: Table[int, SortedNumbers] = Table()

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: int) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[int]:
        """Every key; the table may change meanwhile."""
        return iter(self._rows)

    def get(self, key: int) -> Iterable[int]:
        """The members of a key, none if it has no set; the set may change meanwhile."""
        row = self._rows.get(key)
        if row is None:
            return ()
        return _members(row) if row else iter(self._large[key])

    def whole(self, key: int) -> frozenset[int]:
        """The members of a key at once."""
        row = self._rows.get(key)
        if row is None:
            return frozenset()
        return frozenset(_members(row)) if row else self._large[key].whole()

    def add(self, key: int, member: int) -> bool:
        """Whether it is the first of its key."""
        row, packed = self._rows.get(key), _PACK(member)
        if row is None:
            self._rows.insert(key, packed)
            return True
        if not row:
            self._large[key].add(member)
        elif packed in row and member in _members(row):  # the first is fast, and may be by chance
            return False
        elif len(row) < MOST_IN_ROW * len(packed):
            self._rows.replace(key, row + packed)
        else:
            self._rows.replace(key, b"")
            self._large[key] = SortedNumbers((*_members(row), member))
        return False

    def discard(self, key: int, member: int) -> bool:
        """Whether it was the last of its key."""
        row = self._rows.get(key)
        if row is None:
            return False
        if row == _PACK(member):
            self._rows.pop(key)
            return True
        if row:
            left = [it for it in _members(row) if it != member]
        else:
            large = self._large[key]
            large.discard(member)
            if len(large) > MOST_IN_ROW // 2:
                return False
            del self._large[key]
            left = list(large)
        self._rows.replace(key, b"".join(map(_PACK, left)))
        return False


class SortedNumbers:
    """A set of numbers in order. Whoever goes through it may change it meanwhile.

    What is there from the beginning to the end is seen once.
    """

    __slots__ = ("_arrays", "_count", "_least")

    def __init__(self, numbers: Iterable[int]) -> None:
        """Of a few."""
        self._arrays = [array("Q", sorted(numbers))]
        self._least = [0]
        "Of each array, what its numbers are not below, and those of the one before are."
        self._count = len(self._arrays[0])

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        least: int | None = 0
        while least is not None:
            which = bisect_right(self._least, least) - 1
            numbers = self._arrays[which]
            following = self._least[which + 1 : which + 2]
            yield from numbers[bisect_left(numbers, least) :]
            least = following[0] if following else None

    def whole(self) -> frozenset[int]:
        """All of them at once."""
        return frozenset(chain.from_iterable(self._arrays))

    def add(self, number: int) -> None:
        """One more, if it is not there."""
        which = bisect_right(self._least, number) - 1
        numbers = self._arrays[which]
        at = bisect_left(numbers, number)
        if at < len(numbers) and numbers[at] == number:
            return
        numbers.insert(at, number)
        self._count += 1
        if len(numbers) > MOST_IN_ARRAY:
            middle = MOST_IN_ARRAY // 2
            self._least.insert(which + 1, numbers[middle])
            self._arrays[which : which + 1] = [numbers[:middle], numbers[middle:]]

    def discard(self, number: int) -> None:
        """One fewer, if it is there."""
        which = bisect_right(self._least, number) - 1
        numbers = self._arrays[which]
        at = bisect_left(numbers, number)
        if at == len(numbers) or numbers[at] != number:
            return
        del numbers[at]
        self._count -= 1
        if which and len(numbers) + len(self._arrays[which - 1]) < MOST_IN_ARRAY // 2:
            self._arrays[which - 1] += numbers
            del self._arrays[which], self._least[which]


def _members(row: bytes) -> Sequence[int]:
    return memoryview(row).cast("Q")
