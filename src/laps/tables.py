"""Tables of millions that grow a little at a time.

A dict that is full is copied whole into a larger one: at a million entries that takes some 30 ms,
and a relay has half a dozen tables that reach that size with the same message. A `Table` is a
number of dicts, its parts. A key belongs to the part that its hash names:

    parts 0 … n-1        hash & mask, or, where there is no such part yet, hash & half the mask

Each time that it has grown by `PART` entries, one part is cut in two, in turn (linear hashing). So
it is never copied whole, and one entry more costs at most a part. It gives parts up again as it
shrinks. A small table is one dict.

Entries are in no order. Whoever goes through a table may change it meanwhile: it is seen a part at
a time, each as it is when its turn comes. What is there from the beginning to the end is seen once.
What comes or goes meanwhile may be seen or not, and what has gone may be seen all the same.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, Generic, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Iterator

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")

# Entries to a part: to cut one in two takes 0.1 ms.
PART: Final = 1024

_MISSING: Final = object()


class Table(Generic[K, V]):
    """A mapping without order, of any size."""

    __slots__ = ("_count", "_mask", "_parts")

    def __init__(self, first: dict[K, V] | None = None) -> None:
        """`first` is a dict that has become large: the table takes it as its own."""
        self._parts: list[dict[K, V]] = [{} if first is None else first]
        self._mask = 0
        self._count = len(self._parts[0])

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: object) -> bool:
        if not self._mask:
            return key in self._parts[0]
        number, parts = hash(key) & self._mask, self._parts
        return key in parts[number if number < len(parts) else number & self._mask >> 1]

    def __getitem__(self, key: K) -> V:
        return self._part(key)[key]

    @overload
    def get(self, key: K) -> V | None: ...

    @overload
    def get(self, key: K, default: D) -> V | D: ...

    def get(self, key: K, default: D | None = None) -> V | D | None:
        """The value of a key, or the default."""
        if not self._mask:
            return self._parts[0].get(key, default)
        number, parts = hash(key) & self._mask, self._parts
        part = parts[number if number < len(parts) else number & self._mask >> 1]
        return part.get(key, default)

    def __setitem__(self, key: K, value: V) -> None:
        number, parts = hash(key) & self._mask, self._parts
        part = parts[number if number < len(parts) else number & self._mask >> 1]
        before = len(part)
        part[key] = value
        if len(part) != before:
            self._count += 1
            if self._count > PART * len(parts):
                self._split()

    def __delitem__(self, key: K) -> None:
        del self._part(key)[key]
        self._shrink()

    @overload
    def pop(self, key: K) -> V: ...

    @overload
    def pop(self, key: K, default: D) -> V | D: ...

    def pop(self, key: K, default: object = _MISSING) -> object:
        """Take a key out; its value, or the default."""
        found = self._part(key).pop(key, _MISSING)
        if found is _MISSING:
            if default is _MISSING:
                raise KeyError(key)
            return default
        self._shrink()
        return found

    def popitem(self) -> tuple[K, V]:
        """Take any entry out."""
        while not self._parts[-1]:  # an empty one is no work to merge
            if len(self._parts) == 1:
                raise KeyError("the table is empty")
            self._merge()
        item = self._parts[-1].popitem()
        self._shrink()
        return item

    def setdefault(self, key: K, default: V) -> V:
        """The value of a key, which is the default if it had none."""
        found = self._part(key).get(key, _MISSING)
        if found is _MISSING:
            self[key] = default
            return default
        return found  # type: ignore[return-value]

    def clear(self) -> None:
        """Take everything out."""
        self._parts, self._mask, self._count = [{}], 0, 0

    def __iter__(self) -> Iterator[K]:
        for part in tuple(self._parts):
            yield from tuple(part)

    def values(self) -> Iterator[V]:
        """Every value."""
        for part in tuple(self._parts):
            yield from tuple(part.values())

    def items(self) -> Iterator[tuple[K, V]]:
        """Every key with its value."""
        for part in tuple(self._parts):
            yield from tuple(part.items())

    # -- parts -------------------------------------------------------------------------------------

    def _part(self, key: K) -> dict[K, V]:
        number, parts = hash(key) & self._mask, self._parts
        return parts[number if number < len(parts) else number & self._mask >> 1]

    def _split(self) -> None:
        """One part more: it takes its own from the part that stood for it."""
        number, parts = len(self._parts), self._parts
        if number > self._mask:
            self._mask = self._mask << 1 | 1
        mask, low = self._mask, number & self._mask >> 1
        kept: dict[K, V] = {}
        moved: dict[K, V] = {}
        for key, value in parts[low].items():
            (moved if hash(key) & mask == number else kept)[key] = value
        # The old one stays as it is, for whoever goes through the table.
        parts[low] = kept
        parts.append(moved)

    def _shrink(self) -> None:
        """An entry has gone; few enough are left for one part fewer."""
        self._count -= 1
        if len(self._parts) > 1 and self._count < PART // 4 * len(self._parts):
            self._merge()

    def _merge(self) -> None:
        """One part fewer: what it had goes back to where it came from."""
        last = self._parts.pop()
        number = len(self._parts)
        low = number & self._mask >> 1
        if number == (self._mask >> 1) + 1:
            self._mask >>= 1
        self._parts[low] = self._parts[low] | last
