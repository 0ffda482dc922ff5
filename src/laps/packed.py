"""Tables of tens of millions of short values, at a few bytes more than what is in them.

An entry of a dict takes some 100 bytes beside what it holds: an object for the key, one for the
value, and a row of the dict. Here some `FULL` entries share one object, a page:

    page    count(1) | row * count | value * count
    row     key(8) | length(1)

The newest has the first row and the last value, so one is added at both ends. A page is an
immutable `bytes` that is made anew when it changes: to copy a kilobyte takes a tenth of a
microsecond. A key belongs to the page that its low bits name, and pages are cut in two one
after the other as the table grows (linear hashing, as in `laps.tables`):

    pages 0 … n-1        key & mask, or, where there is no such page yet, key & half the mask

Keys are hashes of names, so pages are about equally full. Whoever chooses keys that meet in one
page gains nothing: what a page has no room for is kept in a dict.

A page is in a dict of 256, by its number: Python's garbage collector looks into lists and not into
dicts of numbers and bytes, so a table of any size costs it nothing.
"""

from __future__ import annotations

from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Final

from laps.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

# Entries to a page. What a page costs, some 90 bytes, is shared by so many; all of them are copied
# for one that comes or goes.
FULL: Final = 24

# What the number before it can say.
MOST_IN_PAGE: Final = 255
MOST_BYTES: Final = 255

_BLOCK_BITS: Final = 8
_IN_BLOCK: Final = (1 << _BLOCK_BITS) - 1

_PACK_KEY: Final = Struct("=Q").pack
_KEY_AND_LENGTH: Final = Struct("=QB")
_HEAD: Final = Struct("=BQB")  # with the count
_ROW: Final = _KEY_AND_LENGTH.size
_BYTE: Final = tuple(bytes((number,)) for number in range(256))
_EMPTY: Final = _BYTE[0]

Row = tuple[int, bytes]


class Packed:
    """A mapping from numbers of 64 bits to at most 255 bytes; in order while it is one page.

    Whoever goes through it may change it meanwhile, as with a `Table`: what is there from the
    beginning to the end is seen once.
    """

    __slots__ = ("_blocks", "_count", "_crowded", "_mask", "_pages")

    def __init__(self) -> None:
        self._blocks: list[dict[int, bytes]] = [{0: _EMPTY}]
        self._pages = 1
        self._mask = 0
        self._count = 0
        self._crowded: Table[int, bytes] | None = None
        "What full pages had no room for."

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: int) -> bool:
        page = self._page(self._number(key))
        return _position(page, key) >= 0 or (self._crowded is not None and key in self._crowded)

    # What `_number`, `_page` and `_position` do stands in these two as well: each call is a tenth
    # of what they take.

    def get(self, key: int) -> bytes | None:
        """The value of a key, or None."""
        number = key & self._mask
        if number >= self._pages:
            number = key & self._mask >> 1
        page = self._blocks[number >> _BLOCK_BITS][number & _IN_BLOCK]
        at = page.find(_PACK_KEY(key), 1)
        if (at % _ROW != 1 or at > _ROW * page[0]) and (at < 0 or (at := _position(page, key)) < 0):
            return None if self._crowded is None else self._crowded.get(key)
        end = len(page) - sum(page[_ROW:at:_ROW])
        return page[end - page[at + 8] : end]

    def insert(self, key: int, value: bytes) -> None:
        """A key that is not in the table."""
        number = key & self._mask
        if number >= self._pages:
            number = key & self._mask >> 1
        block, slot = self._blocks[number >> _BLOCK_BITS], number & _IN_BLOCK
        page = block[slot]
        if page[0] < MOST_IN_PAGE:
            block[slot] = _HEAD.pack(page[0] + 1, key, len(value)) + page[1:] + value
        else:
            if self._crowded is None:
                self._crowded = Table()
            self._crowded[key] = value
        self._count += 1
        if self._count > FULL * self._pages:
            self._split()

    def replace(self, key: int, value: bytes) -> None:
        """Another value for a key that is in the table."""
        number = self._number(key)
        block, slot = self._blocks[number >> _BLOCK_BITS], number & _IN_BLOCK
        page = block[slot]
        if (at := _position(page, key)) >= 0:
            end = len(page) - sum(page[_ROW:at:_ROW])
            start = end - page[at + 8]
            head = page[: at + 8] + _BYTE[len(value)] + page[at + _ROW : start]
            block[slot] = head + value + page[end:]
        elif self._crowded is None or key not in self._crowded:
            raise KeyError(key)
        else:
            self._crowded[key] = value

    def pop(self, key: int) -> bytes | None:
        """Take a key out; its value, or None."""
        number = self._number(key)
        page = self._page(number)
        if (at := _position(page, key)) >= 0:
            end = len(page) - sum(page[_ROW:at:_ROW])
            start = end - page[at + 8]
            value: bytes | None = page[start:end]
            count = _BYTE[page[0] - 1]
            self._put(number, count + page[1:at] + page[at + _ROW : start] + page[end:])
        else:
            value = None if self._crowded is None else self._crowded.pop(key, None)
            if value is None:
                return None
            self._crowded = self._crowded or None
        self._shrink()
        return value

    def popitem(self) -> Row:
        """Take any entry out."""
        if not self._count:
            raise KeyError("the table is empty")
        if self._crowded is not None:
            row = self._crowded.popitem()
            self._crowded = self._crowded or None
        else:
            while not (page := self._page(self._pages - 1))[0]:
                self._merge()
            key, size = _KEY_AND_LENGTH.unpack_from(page, 1)
            start = len(page) - size
            row = key, page[start:]
            self._put(self._pages - 1, _BYTE[page[0] - 1] + page[1 + _ROW : start])
        self._shrink()
        return row

    def __iter__(self) -> Iterator[int]:
        return map(itemgetter(0), self.items())

    def items(self) -> Iterator[Row]:
        """Every key with its value."""
        pages, mask = self._pages, self._mask
        for number in range(pages):
            # Of a page that has been cut in two since the last bit of the mask counts.
            is_cut = number > mask >> 1 or number + (mask >> 1) + 1 < pages
            yield from self._alike(number, mask if is_cut else mask >> 1, pages)
        if self._crowded is not None:
            yield from self._crowded.items()

    # -- pages -------------------------------------------------------------------------------------

    def _number(self, key: int) -> int:
        number = key & self._mask
        return number if number < self._pages else key & self._mask >> 1

    def _page(self, number: int) -> bytes:
        return self._blocks[number >> _BLOCK_BITS][number & _IN_BLOCK]

    def _put(self, number: int, page: bytes) -> None:
        self._blocks[number >> _BLOCK_BITS][number & _IN_BLOCK] = page

    def _alike(self, number: int, mask: int, pages: int) -> list[Row]:
        """The entries of a page as it was cut when there were so many pages."""
        if pages == self._pages:
            return _rows(self._page(number))
        if self._number(number) != number:  # it has been merged into another
            rows = _rows(self._page(self._number(number)))
            return [row for row in rows if row[0] & mask == number]
        found: list[Row] = []
        for part in range(number, self._pages, mask + 1):
            found += [row for row in _rows(self._page(part)) if row[0] & mask == number]
        return found

    def _split(self) -> None:
        """One page more: it takes its own from the page that stood for it."""
        number = self._pages
        if number > self._mask:
            self._mask = self._mask << 1 | 1
        low, bit = number & self._mask >> 1, (self._mask >> 1) + 1
        page = self._page(low)
        heads: tuple[list[bytes], list[bytes]] = [], []
        values: tuple[list[bytes], list[bytes]] = [], []
        at, end = 1, len(page)
        for key, size in _KEY_AND_LENGTH.iter_unpack(page[1 : 1 + _ROW * page[0]]):
            which = key & bit > 0
            heads[which].append(page[at : at + _ROW])
            values[which].append(page[end - size : end])
            at, end = at + _ROW, end - size
        if not number & _IN_BLOCK:
            self._blocks.append({})
        self._pages += 1
        for which, it in enumerate((low, number)):
            count = _BYTE[len(heads[which])]
            self._put(it, b"".join((count, *heads[which], *reversed(values[which]))))

    def _shrink(self) -> None:
        """An entry has gone; few enough are left for one page fewer."""
        self._count -= 1
        if self._pages > 1 and self._count < FULL // 4 * self._pages:
            self._merge()

    def _merge(self) -> None:
        """One page fewer, if what it has finds room where it came from."""
        number = self._pages - 1
        low = number & self._mask >> 1
        page, last = self._page(low), self._page(number)
        if page[0] + last[0] > MOST_IN_PAGE:
            return
        rows = 1 + _ROW * page[0], 1 + _ROW * last[0]
        count = _BYTE[page[0] + last[0]]
        # The rows of the one that has the newer values come first.
        joined = last[1 : rows[1]] + page[1 : rows[0]] + page[rows[0] :] + last[rows[1] :]
        self._put(low, count + joined)
        block = self._blocks[-1]
        del block[number & _IN_BLOCK]
        if not block:
            self._blocks.pop()
        self._pages = number
        if number == (self._mask >> 1) + 1:
            self._mask >>= 1


def _position(page: bytes, key: int) -> int:
    """Where in a page the row of a key is, or -1."""
    packed, end = _PACK_KEY(key), 1 + _ROW * page[0]
    at = page.find(packed, 1, end)
    while at >= 0 and at % _ROW != 1:  # the end of one row and the beginning of the next
        at = page.find(packed, at + 1, end)
    return at


def _rows(page: bytes) -> list[Row]:
    """The entries of a page, the oldest first."""
    rows, end = [], len(page)
    for key, size in _KEY_AND_LENGTH.iter_unpack(page[1 : 1 + _ROW * page[0]]):
        start = end - size
        rows.append((key, page[start:end]))
        end = start
    rows.reverse()
    return rows
