"""Tracks that are fetched: groups of three objects, and what a relay asks a publisher for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.wire.moqt.messages import Fetch, StandaloneFetch
from laps.wire.moqt.objects import Object
from support.moqt_streams import objects_of

if TYPE_CHECKING:
    from laps.types import Location
    from support.moqt import App


def fill(pub: App, *numbers: int) -> int:
    """Groups of three objects, each ended."""
    alias = pub.publish("demo/t")
    for group in numbers:
        pub.stream(alias, group, *objects_of(0, 1, 2), end_of_group=True)
    return alias


def whole(first: int, last: int) -> list[tuple[int, int]]:
    return [(group, number) for group in range(first, last + 1) for number in range(3)]


def fetched(*places: tuple[int, int], subgroup: int = 0) -> list[Object]:
    return [Object(g, subgroup, o, 128, 0, b"", b"%d.%d" % (g, o)) for g, o in places]


def errands(pub: App) -> list[tuple[Location, Location]]:
    """The ranges that the relay has asked for."""
    ranges = [message.range for message in pub.heard_of(Fetch)]
    return [(r.start, r.end) for r in ranges if isinstance(r, StandaloneFetch)]
