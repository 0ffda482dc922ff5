"""Objects of MoQT as tests write them and find them: filters, subgroups, streams that came."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laps.types import Location
from laps.wire.buffer import Incomplete
from laps.wire.moqt.data import FetchHeader, SubgroupHeader, decode_stream_header
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.fetch import EndOfRange, FetchReader
from laps.wire.moqt.messages import Filter, FilterType
from laps.wire.moqt.object_fields import encode_object
from laps.wire.moqt.objects import Object, ObjectReader

if TYPE_CHECKING:
    from laps.edge.client import Rank
    from laps.wire.moqt.dialect import Dialect

LARGEST = Filter(FilterType.LARGEST_OBJECT)
NEXT_GROUP = Filter(FilterType.NEXT_GROUP)
DRAFTS = (DRAFT14, DRAFT16)
PAIRS = [(publisher, subscriber) for publisher in DRAFTS for subscriber in DRAFTS]


def start_at(group: int, object_id: int = 0) -> Filter:
    return Filter(FilterType.ABSOLUTE_START, Location(group, object_id))


def groups(first: int, last: int) -> Filter:
    return Filter(FilterType.ABSOLUTE_RANGE, Location(first, 0), last)


def namespace(text: str) -> tuple[bytes, ...]:
    return tuple(part.encode() for part in text.split("/")) if text else ()


@dataclass(frozen=True, slots=True)
class Obj:
    """An object to be written."""

    id: int
    payload: bytes = b""
    extensions: bytes = b""
    status: int = 0


def objects_of(*ids: int) -> list[Obj]:
    """Objects whose payload is their id."""
    return [Obj(number, b"%d" % number) for number in ids]


def body(items: tuple[Obj, ...] | list[Obj], has_extensions: bool = False, last: int = -1) -> bytes:
    """Objects as they follow a subgroup's header, or an object of id `last`."""
    parts = []
    for item in items:
        delta, last = item.id - last - 1, item.id
        parts.append(
            encode_object(delta, item.extensions, item.payload, item.status, has_extensions)
        )
    return b"".join(parts)


@dataclass(eq=False)
class InStream:
    """What an app got on one stream: an `OutStream` of the relay's."""

    dialect: Dialect
    rank: Rank
    ttl_us: int
    data: bytearray = field(default_factory=bytearray)
    finished: bool = False
    reset_code: int | None = None
    stopped: bool = False

    waits: bool = False

    @property
    def is_open(self) -> bool:
        return bool(self.data) or not self.over

    @property
    def over(self) -> bool:
        return self.finished or self.stopped or self.reset_code is not None

    def reorder(self, order: int) -> None:
        self.rank = (*self.rank[:2], order, *self.rank[3:])

    def write(self, data: bytes | memoryview, now: float = 0.0) -> bool:
        if self.over:
            return False
        self.data += data
        return True

    def finish(self, data: bytes | memoryview = b"", now: float = 0.0) -> bool:
        written = self.write(data)
        self.finished = self.finished or written
        return written

    def move(self, rank: Rank) -> None:
        self.rank = rank

    def reset(self, code: int, now: float = 0.0) -> None:
        assert not self.over, "a stream that is over is not reset"
        self.reset_code = code

    @property
    def header(self) -> SubgroupHeader | FetchHeader:
        return decode_stream_header(bytes(self.data), self.dialect)[0]

    @property
    def items(self) -> list[Object | EndOfRange]:
        """The objects that are whole."""
        try:
            header, length = decode_stream_header(bytes(self.data), self.dialect)
        except Incomplete:
            return []
        rest = bytes(self.data[length:])
        if isinstance(header, FetchHeader):
            fetch_reader = FetchReader(self.dialect)
            fetched = fetch_reader.feed(rest)
            if self.finished:
                fetch_reader.finish()
            return fetched
        reader = ObjectReader(header, self.dialect)
        found: list[Object | EndOfRange] = list(reader.feed(rest))
        if self.finished:
            reader.finish()
        return found

    @property
    def objects(self) -> list[Object]:
        return [item for item in self.items if isinstance(item, Object)]

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(item.group, item.object_id) for item in self.objects]
