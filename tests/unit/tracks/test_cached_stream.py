"""A few objects out of a long stream, found without reading all of it."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.tracks import cached_stream
from laps.tracks.cache import Cache, CachedTrack, CacheLimits
from laps.wire.moqt.data import SubgroupHeader
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.objects import ObjectReader
from support.moqt_streams import Obj, body
from support.relays import App

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.tracks.cached_stream import CachedStream


@pytest.fixture(autouse=True, scope="module")
def _small_steps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cached_stream, "CHECK_BYTES", 16)
        yield


def kept(data: bytes, cuts: list[int], pauses: list[float], trim_at: int = -1) -> CachedStream:
    """A stream that came in pieces, with pauses between; a second for each byte at most."""
    now = 0.0
    cache = Cache(CacheLimits(age_s=1e9), deque())
    stream = CachedTrack(cache).open(SubgroupHeader(0, 5, None), App(), now)
    places = [0, *sorted(set(cuts)), len(data)]
    for number, (start, end) in enumerate(pairwise(places)):
        if number == trim_at:
            stream.trim()
        elif pauses:
            stream.scan()
        stream.append(data[start:end], now)
        now += pauses[number % len(pauses)] if pauses else 0.0
    return stream


@given(
    ids=st.sets(st.integers(0, 60), min_size=1),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=7),
    cuts=st.lists(st.integers(1, 2000), max_size=40),
    pauses=st.lists(st.sampled_from([0.0, 0.05, 1.0]), max_size=5),
    oldest=st.floats(0, 10),
    first=st.integers(0, 62),
    length=st.none() | st.integers(0, 30),
    trim_at=st.integers(-1, 20),
)
def test_parts_are_what_the_whole_has(
    ids: set[int],
    sizes: list[int],
    cuts: list[int],
    pauses: list[float],
    oldest: float,
    first: int,
    length: int | None,
    trim_at: int,
) -> None:
    items = [Obj(number, bytes(sizes[number % len(sizes)])) for number in sorted(ids)]
    data = body(items)
    stream = kept(data, [cut for cut in cuts if cut < len(data)], pauses, trim_at)
    expected = brute_force(stream, oldest)
    assert [n for low, high in stream.ids(oldest) for n in range(low, high)] == sorted(expected)
    last = None if length is None else first + length
    part = {item.object_id: item.payload for item in stream.objects(oldest, first, last)}
    wanted = {
        n: payload for n, payload in expected.items() if n >= first and (last is None or n <= last)
    }
    assert part == wanted


def brute_force(stream: CachedStream, oldest: float) -> dict[int, bytes]:
    """All objects, read from the beginning, with the time of the chunk that made them whole."""
    reader = ObjectReader(stream.header, DRAFT16)
    if stream.dropped_id is not None:
        reader.resume(stream.dropped_id, 0)
    offset, found = stream.base, {}
    for chunk in stream.chunks:
        for item in reader.feed(chunk):
            if stream._time_of(offset) >= oldest:
                found[item.object_id] = item.payload
        offset += len(chunk)
    return found


def test_a_long_stream_is_not_read_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_stream, "CHECK_BYTES", 32 * 1024)
    data = body([Obj(number, bytes(100)) for number in range(20_000)])
    stream = kept(data, list(range(1300, len(data), 1300)), [])
    stream.scan()
    fed = 0
    feed = ObjectReader.feed

    def counting(self: ObjectReader, chunk: bytes) -> list[object]:
        nonlocal fed
        fed += len(chunk)
        return feed(self, chunk)  # type: ignore[return-value]

    monkeypatch.setattr(ObjectReader, "feed", counting)
    numbers = [item.object_id for item in stream.objects(0.0, 15_000, 15_010)]
    assert numbers == [*range(15_000, 15_011)]
    assert fed < 50_000
    assert list(stream.ids(0.0)) == [(0, 20_000)]
