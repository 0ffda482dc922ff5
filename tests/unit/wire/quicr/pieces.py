"""Pieces of an object, those that contradict each other, and somebody who is told of them."""

from __future__ import annotations

import pytest

from laps.types import Location
from laps.wire.quicr.codes import QuicrCode
from laps.wire.quicr.messages import Fragment

PLACE = Location(3, 5)


def piece(start: int, end: int, last: bool = False, place: Location = PLACE) -> Fragment:
    """Some of an object that counts up from 0."""
    return Fragment(*place, start, bytes(range(start, end)), last)


def spans(fragments: list[Fragment]) -> list[tuple[int, int, bool]]:
    return [(item.offset, item.end, item.last) for item in fragments]


class Heard:
    """Somebody who is told what is new, and nothing else."""

    def __init__(self) -> None:
        self.bytes: dict[int, int] = {}
        self.ends: list[int] = []

    def add(self, fragments: list[Fragment]) -> None:
        for item in fragments:
            for at, byte in enumerate(bytes(item.data), item.offset):
                assert at not in self.bytes, f"byte {at} is not new"
                self.bytes[at] = byte
            if item.last:
                self.ends.append(item.end)
            assert item.data or item.last

    def payload(self) -> bytes:
        """All of it, if it can know that it is."""
        assert set(self.ends) == {len(self.bytes)}
        return bytes(self.bytes[at] for at in range(len(self.bytes)))


def conflicting() -> list[object]:
    protocol, large = QuicrCode.PROTOCOL_VIOLATION, QuicrCode.TOO_LARGE
    rows: list[tuple[str, list[Fragment], Fragment, QuicrCode]] = [
        ("past the end", [piece(4, 9, True)], piece(8, 10), protocol),
        ("all past the end", [piece(4, 9, True)], piece(12, 14), protocol),
        ("nothing, past the end", [piece(4, 9, True)], piece(10, 10), protocol),
        ("ends again, later", [piece(4, 9, True)], piece(9, 11, True), protocol),
        ("ends again, earlier", [piece(4, 9, True)], piece(0, 3, True), protocol),
        ("ends again, inside", [piece(4, 9, True)], piece(4, 8, True), protocol),
        ("ends again with nothing", [piece(4, 9, True)], piece(0, 0, True), protocol),
        ("ends ahead of what came", [piece(4, 9)], piece(0, 8, True), protocol),
        ("ends ahead with nothing", [piece(4, 9)], piece(8, 8, True), protocol),
        ("is empty and is not", [piece(0, 1)], piece(0, 0, True), protocol),
        ("too large", [piece(0, 20)], piece(20, 21), large),
        ("too large at once", [], piece(0, 21, True), large),
        ("far away", [], Fragment(*PLACE, 1 << 60, b"x", False), large),
        ("nothing, far away", [], Fragment(*PLACE, 21, b"", True), large),
        ("too large and past the end", [piece(4, 9, True)], piece(0, 21), large),
    ]
    return [pytest.param(*row[1:], id=row[0]) for row in rows]
