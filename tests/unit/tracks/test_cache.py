"""What a relay keeps of tracks: bytes as they came, in bounds, and what is known of them."""

from __future__ import annotations

import gc
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.ranges import LAST_OBJECT, without
from laps.tracks.again import recent
from laps.tracks.cache import MOST_IN_A_TURN, Cache, CachedGroup, CachedTrack, CacheLimits
from laps.tracks.cached_stream import Resume
from laps.tracks.known import Known
from laps.tracks.sinks import Cut
from laps.types import Location
from laps.wire.moqt.data import DatagramObject, ObjectStatus, SubgroupHeader, encode_datagram
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.messages import SubscribeOk, TrackProperties
from laps.wire.moqt.objects import Object, ObjectReader
from support.moqt import MoqtNet, stage
from support.moqt_streams import InStream, Obj, body, objects_of
from support.relays import App, track_hash

if TYPE_CHECKING:
    from laps.tracks.cached_stream import CachedStream


SOURCE = App()


class Kept:
    """A cache with one track, and what time it is."""

    def __init__(self, **limits: float) -> None:
        self.now = 0.0
        self.events: deque[object] = deque()
        self.cache = Cache(CacheLimits(**limits), self.events)  # type: ignore[arg-type]
        self.track = CachedTrack(self.cache)

    def open(self, group: int, *items: Obj, subgroup: int | None = 0) -> CachedStream:
        stream = self.track.open(SubgroupHeader(0, group, subgroup), SOURCE, self.now)
        if items:
            stream.append(body(items), self.now)
        return stream

    def stream(self, group: int, *items: Obj, subgroup: int | None = 0) -> CachedStream:
        stream = self.open(group, *items, subgroup=subgroup)
        stream.ended(fin=True)
        return stream

    def objects(self, group: int, oldest: float = 0.0) -> list[int]:
        """The ids of the objects that are there of a group."""
        return list(self.track.groups[group].objects(self.now, oldest))

    def check(self) -> None:
        """All that is counted is there."""
        groups = [group for group in self.cache.order if group.track is self.track]
        assert list(self.track.groups.values()) == sorted(groups, key=lambda group: group.id) or (
            set(self.track.groups.values()) == set(groups)
        )
        sizes = []
        for group in groups:
            streams = sum(stream.size for stream in group.streams)
            assert streams == sum(len(c) for s in group.streams for c in s.chunks)
            datagrams = sum(len(data) for _, data in group.datagrams.values())
            fetched = sum(len(i.payload) + len(i.extensions) for _, i in group.fetched.values())
            assert group.size == streams + datagrams + fetched
            sizes.append(group.size)
        assert self.track.size == self.cache.size == sum(sizes)


def big(number: int, size: int = 100) -> Obj:
    return Obj(number, bytes(size))


# -- bounds ----------------------------------------------------------------------------------------


def test_a_track_keeps_its_youngest_groups() -> None:
    kept = Kept(track_bytes=1000)
    for group in range(30):
        kept.stream(group, big(0))
        assert kept.track.size <= 1000
        kept.check()
    assert max(kept.track.groups) == 29
    assert min(kept.track.groups) > 15
    assert kept.cache.counters.evicted_groups == min(kept.track.groups)
    assert kept.track.largest() == Location(29, 0)


def test_the_youngest_group_is_kept_as_long_as_there_is_room_for_it() -> None:
    for limits in ({"track_bytes": 1000}, {"total_bytes": 1000}):
        kept = Kept(**limits)
        before = kept.open(4, *(big(number) for number in range(6)))
        under_way = kept.open(5, big(0, 800))
        for number in range(1, 3):  # past the bound, while both are under way
            under_way.append(body([big(number, 50)], last=number - 1), kept.now)
        before.ended(fin=True)
        under_way.ended(fin=True)
        kept.check()
        assert kept.objects(5) == [0, 1, 2]
        assert kept.track.size <= 1000


def test_all_tracks_together_have_a_bound() -> None:
    kept = Kept(total_bytes=1000)
    other = CachedTrack(kept.cache)
    other.open(SubgroupHeader(0, 7), SOURCE, kept.now).append(body([big(0)]), kept.now)
    other.groups[7].streams[0].ended(fin=True)
    for group in range(30):
        kept.stream(group, big(0))
        assert kept.cache.size <= 1000
    assert other.groups == {}
    assert other.size == 0
    assert other.largest() == Location(7, 0)  # it has been, all the same


def test_a_stream_without_end_is_cut_at_an_object() -> None:
    kept = Kept(track_bytes=1000)
    stream = kept.open(0, big(0))
    for number in range(1, 50):
        for piece in range(0, 103, 25):
            data = body([big(number)], last=number - 1)[piece : piece + 25]
            stream.append(data, kept.now)
        assert kept.track.size <= 1100
        kept.check()
        ids = [item.object_id for item in stream.objects(0.0)]
        assert ids == list(range(number + 1 - len(ids), number + 1))
        assert ids
    assert kept.cache.counters.trimmed_streams > 3
    assert kept.track.largest() == Location(0, 49)


@pytest.mark.parametrize("step", [7, 50, 90])
def test_an_object_that_is_too_large_is_not_kept(step: int) -> None:
    kept = Kept(track_bytes=100)
    stream = kept.open(0)
    data = body([big(0, 20), big(1, 500), big(2, 10), big(3, 5)])
    for at in range(0, len(data), step):
        stream.append(data[at : at + step], kept.now)
        assert kept.track.size <= 100
        kept.check()
        if stream.scan().complete_id == 0 and at > 200:
            assert stream.under_way() is None  # it is not worth waiting for
    assert kept.cache.counters.large_objects == 1
    assert kept.track.largest() == Location(0, 3)
    assert kept.objects(0) == [2, 3]
    assert stream.first_id == 2
    assert list(stream.ids(0.0)) == [(2, 4)]


@pytest.mark.parametrize("joins_at", [3, 200, 600, 1002])
def test_late_joiners_pass_over_an_object_that_is_not_kept(joins_at: int) -> None:
    net = MoqtNet()
    relay = net.relay("1:1", cache=CacheLimits(track_bytes=100))
    pub, first, late = (net.app(relay) for _ in range(3))
    alias = pub.publish("demo/t")
    first.subscribe("demo/t")
    stream = pub.open(alias, 0)
    data = body([big(0, 1000), big(1, 10)])
    stream.write_bytes(data[:joins_at])
    late.subscribe("demo/t")
    for at in range(joins_at, len(data), 40):
        stream.write_bytes(data[at : at + 40])
    stream.write_bytes(b"", fin=True)
    assert first.places == [(0, 0), (0, 1)]
    assert late.places == [(0, 1)]
    assert relay.tracks.cache.size <= 100


def test_a_late_joiner_holds_nothing_of_an_object_that_it_is_not_given() -> None:
    stream = InStream(DRAFT16, (0, 0, 1, 0, 0, 0), 0)
    cut = Cut(stream, b"", 1, False)
    data = body([big(0, 10_000), Obj(1, b"next")])
    for at in range(0, len(data), 100):
        cut.write(data[at : at + 100], 0.0)
        assert sum(map(len, cut._kept)) <= 200
    assert stream.data.endswith(b"next")


def test_objects_of_any_size_are_read_from_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ObjectReader.__init__, "__defaults__", (50,))
    kept = Kept()
    kept.stream(0, big(0, 200))
    assert kept.objects(0) == [0]


def test_what_is_cut_has_the_right_ids_and_subgroup() -> None:
    kept = Kept(track_bytes=300)
    stream = kept.open(0, subgroup=None)
    for number in range(5, 20, 3):
        last = -1 if number == 5 else number - 3
        stream.append(body([big(number)], last=last), kept.now)
    assert {item.subgroup for item in stream.objects(0.0)} == {5}
    assert [item.object_id for item in stream.objects(0.0)][-1] == 17
    assert stream.subgroup == 5


def test_groups_expire_unless_they_are_under_way() -> None:
    kept = Kept(age_s=10)
    kept.stream(0, big(0))
    stream = kept.open(1, big(0))
    kept.cache.expire(9.0)
    assert set(kept.track.groups) == {0, 1}
    kept.cache.expire(11.0)
    assert set(kept.track.groups) == {1}
    stream.ended(fin=True)
    kept.cache.expire(12.0)
    assert kept.track.groups == {}
    assert kept.track.largest() == Location(1, 0)
    assert kept.cache.counters.expired_groups == 2
    kept.check()


def test_objects_of_one_stream_expire_one_after_another() -> None:
    kept = Kept(age_s=10)
    stream = kept.open(0, big(0))
    kept.now = 8.0
    stream.append(body([big(1)], last=0), kept.now)
    kept.now = 12.0
    assert kept.objects(0, kept.track.oldest(kept.now, 0)) == [1]
    assert kept.objects(0) == [0, 1]


def test_a_publisher_may_want_less_and_not_more() -> None:
    net, pub, _ = stage()
    for ms, age_s in ((5000, 5.0), (10**9, 60.0), (None, 60.0)):
        pub.publish(f"demo/{ms}", properties=TrackProperties(max_cache_ms=ms))
        live = net.relays["1:1"].tracks.get(track_hash(f"demo/{ms}").full_name_hash)
        assert live is not None
        assert live.cached.max_age_s == age_s


def test_what_comes_of_a_group_that_was_dropped_is_not_counted() -> None:
    kept = Kept()
    stream = kept.open(0, big(0))
    kept.track.clear()
    stream.append(bytes(100), kept.now)
    assert kept.cache.size == 0
    stream.ended(fin=True)
    kept.check()


def test_everything_is_let_go_when_a_track_starts_over() -> None:
    kept = Kept()
    kept.stream(5, big(0))
    kept.track.group(6, kept.now).add_datagram(0, bytes(10), kept.now)
    kept.track.group(7, kept.now).add_object(Object(7, 0, 0, 1, 0, b"", bytes(10)), kept.now)
    kept.track.known.append((1, 2))
    kept.track.clear()
    kept.check()
    assert kept.track.largest() is None
    assert kept.track.known == []


def test_late_joiners_join_a_stream_that_was_cut() -> None:
    net = MoqtNet()
    relay = net.relay("1:1", cache=CacheLimits(track_bytes=1000))
    pub = net.app(relay)
    alias = pub.publish("demo/t")
    stream = pub.open(alias, 0, subgroup=None)
    apps = []
    for number in range(3, 40):
        data = body([big(number, 90)], last=-1 if number == 3 else number - 1)
        stream.write_bytes(data[:20])
        apps.append(net.app(relay))
        apps[-1].subscribe("demo/t")
        stream.write_bytes(data[20:])
    stream.write_bytes(body([Obj(40, b"last")], last=39), fin=True)
    for number, app in enumerate(apps, start=3):
        assert app.last(SubscribeOk).largest == Location(0, number)
        assert app.places == [(0, n) for n in range(number + 1, 40)] + [(0, 40)]
        assert {item.subgroup for item in app.subgroups[0].objects} == {3}
    assert relay.tracks.cache.counters.trimmed_streams


# -- objects ---------------------------------------------------------------------------------------


def test_objects_of_all_kinds_are_found() -> None:
    kept = Kept()
    kept.stream(0, *objects_of(0, 2))
    kept.stream(0, *objects_of(1), subgroup=1)
    item = DatagramObject(0, 0, 4, 7, payload=b"datagram")
    group = kept.track.groups[0]
    group.add_datagram(4, encode_datagram(item, DRAFT16), kept.now)
    group.add_object(Object(0, 9, 3, 1, 0, b"", b"fetched"), kept.now)
    found = group.objects(kept.now)
    assert {key: item.payload for key, item in found.items()} == {
        0: b"0",
        1: b"1",
        2: b"2",
        3: b"fetched",
        4: b"datagram",
    }
    assert found[4].datagram
    assert group.largest() == 4
    kept.check()


@dataclass(eq=False)
class Looking:
    """Waits for more of a stream, and then looks what is under way."""

    stream: CachedStream
    called: list[int | None] = field(default_factory=list)

    def resume(self, now: float) -> None:
        self.called.append(self.stream.under_way())


@pytest.mark.parametrize("cut", range(1, 12))
def test_an_object_under_way_is_not_there_yet(cut: int) -> None:
    kept = Kept()
    stream = kept.open(0)
    data = body(objects_of(0, 1, 2))
    whole = [n for n in range(3) if len(body(objects_of(*range(n + 1)))) <= cut]
    stream.append(data[:cut], kept.now)
    assert kept.objects(0) == whole
    under_way = stream.under_way()
    waiter = Looking(stream)
    stream.waiting.append(waiter)
    stream.append(data[cut:], kept.now)
    if cut < len(data):
        assert list(kept.events) == [Resume(waiter)]
        waiter.resume(kept.now)
        assert waiter.called == [None]
    assert under_way in (None, len(whole))


def test_the_end_of_a_group_is_known_in_both_ways() -> None:
    kept = Kept()
    kept.stream(0, *objects_of(0, 1))
    assert kept.track.groups[0].end() is None
    kept.stream(1, *objects_of(0, 1), Obj(2, status=ObjectStatus.END_OF_GROUP))
    assert kept.track.groups[1].end() == 2
    ended = kept.track.open(SubgroupHeader(0, 2, end_of_group=True), SOURCE, kept.now)
    ended.append(body(objects_of(0, 1)), kept.now)
    assert kept.track.groups[2].end() is None
    ended.ended(fin=True)
    assert kept.track.groups[2].end() == 2


def test_what_cannot_be_read_ends_what_is_known() -> None:
    kept = Kept()
    stream = kept.open(0, *objects_of(0))
    stream.append(b"\x00\x00\x07", kept.now)
    stream.append(bytes(40), kept.now)
    assert kept.objects(0) == [0]
    assert kept.track.groups[0].end() is None
    assert kept.track.largest() == Location(0, 0)
    assert stream.under_way() is None
    assert stream.trim() > 0
    kept.check()


# -- what is known ---------------------------------------------------------------------------------


def places(kept: Kept, start: Location, last: Location) -> set[tuple[int, int]]:
    """The places of gaps, as far as this test looks."""
    found = set()
    for first, upto in Known(kept.track).gaps(start, last, kept.now):
        assert start <= first <= upto <= last
        for group in range(first.group, upto.group + 1):
            begin = first.object if group == first.group else 0
            end = min(upto.object if group == upto.group else LAST_OBJECT, 7)
            found |= {(group, number) for number in range(begin, end + 1)}
    return found


spans = st.tuples(st.integers(0, 5), st.integers(0, 5)).map(sorted)


@given(
    groups=st.dictionaries(
        st.integers(0, 5),
        st.tuples(st.sets(st.integers(0, 5)), st.booleans(), st.booleans()),
        max_size=4,
    ),
    asked=st.lists(spans, max_size=2),
    start=st.tuples(st.integers(0, 5), st.integers(0, 6)),
    last=st.tuples(st.integers(0, 5), st.integers(0, 6)),
)
def test_gaps_are_what_is_neither_here_nor_known_not_to_be(
    groups: dict[int, tuple[set[int], bool, bool]],
    asked: list[list[int]],
    start: tuple[int, int],
    last: tuple[int, int],
) -> None:
    if last < start:
        start, last = last, start
    kept = Kept()
    here: set[tuple[int, int]] = set()
    ends: dict[int, int] = {}
    for group, (ids, ended, fin) in groups.items():
        header = SubgroupHeader(0, group, 0, end_of_group=ended)
        stream = kept.track.open(header, SOURCE, kept.now)
        stream.append(body(objects_of(*sorted(ids))), kept.now)
        if fin:
            stream.ended(fin=True)
        here |= {(group, number) for number in ids}
        followed = fin and any(other > group for other in groups)
        # The last group of the range ends with the range itself.
        if ids and fin and (ended or (followed and group != last[0])):
            ends[group] = max(ids) + 1
    kept.track.known += [(first, upto) for first, upto in asked]
    wanted = set()
    for group in range(start[0], last[0] + 1):
        for number in range(8):
            place = (group, number)
            known = (
                place in here
                or any(first <= group <= upto for first, upto in asked)
                or number >= ends.get(group, 8)
            )
            if start <= place <= last and not known:
                wanted.add(place)
    assert places(kept, Location(*start), Location(*last)) == wanted


@given(
    gap=st.tuples(spans, spans),
    known=st.tuples(spans, spans),
)
def test_what_is_left_of_a_gap(
    gap: tuple[list[int], list[int]], known: tuple[list[int], list[int]]
) -> None:
    def a_range(raw: tuple[list[int], list[int]]) -> tuple[Location, Location]:
        first, last = sorted(Location(g, o) for g, o in zip(*raw, strict=True))
        return first, last

    def inside(place: Location, ranges: list[tuple[Location, Location]]) -> bool:
        return any(first <= place <= last for first, last in ranges)

    outer, inner = a_range(gap), a_range(known)
    left = without([outer], inner)
    for group in range(7):
        for number in (*range(7), LAST_OBJECT):
            place = Location(group, number)
            assert inside(place, left) == (inside(place, [outer]) and not inside(place, [inner]))


# -- what expires, some at a time ------------------------------------------------------------------


def test_expiry_of_very_many_groups_is_cut_into_pieces() -> None:
    kept = Kept(age_s=10)
    groups = 2 * MOST_IN_A_TURN + 10
    for group in range(groups):
        kept.stream(group, big(0))
    assert kept.cache.expire(11.0) is False
    assert len(kept.track.groups) == groups - MOST_IN_A_TURN
    assert kept.cache.expire(11.0) is False
    assert kept.cache.expire(11.0) is True
    assert (kept.track.groups, kept.cache.size) == ({}, 0)


def test_expiry_looks_at_nothing_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(age_s=10)
    for group in range(20):
        kept.stream(group, big(0))
    monkeypatch.setattr(CachedGroup, "live", property(lambda _: pytest.fail("it was looked at")))
    for second in range(10):
        assert kept.cache.expire(float(second)) is True


def test_expiry_follows_when_the_last_group_is_kept_no_more() -> None:
    kept = Kept(age_s=10)
    kept.track.keeps_last = True
    kept.stream(0, big(0))
    kept.cache.expire(20.0)
    kept.cache.expire(40.0)
    assert set(kept.track.groups) == {0}
    kept.now = 41.0
    kept.stream(1, big(0))
    kept.cache.expire(42.0)
    assert set(kept.track.groups) == {1}
    kept.cache.expire(99.0)
    assert set(kept.track.groups) == {1}
    kept.track.keeps_last = False
    kept.cache.expire(100.0)
    assert kept.track.groups == {}


def test_expiry_follows_a_shorter_age() -> None:
    kept = Kept(age_s=60)
    kept.stream(0, big(0))
    kept.track.limit_age(5.0)
    kept.cache.expire(6.0)
    assert kept.track.groups == {}


def test_what_leaves_the_cache_is_freed_at_once() -> None:
    """A stream refers to its group; the other way round nothing is left."""
    kept = Kept(age_s=10)
    kept.stream(0, big(0))
    kept.stream(1, big(0))
    group = kept.track.groups[0]
    kept.cache.expire(20.0)
    assert 0 not in kept.track.groups
    assert gc.get_referrers(group) == []


# -- sent once more --------------------------------------------------------------------------------


def groups_of(kept: Kept, since: float) -> list[int]:
    found = recent(kept.track, since, 1_000_000, kept.now)
    return [it[0].id if isinstance(it, tuple) else it.header.group for it in found]


def test_what_others_may_have_let_go_is_not_sent_again() -> None:
    kept = Kept(age_s=10.0)
    kept.stream(1, big(0))
    kept.now = 1.0
    kept.stream(2, big(0))
    kept.now = 9.0
    assert groups_of(kept, 0.0) == [1, 2]
    kept.now = 10.2  # group 1 is here still, as nobody has looked
    assert groups_of(kept, 0.0) == [2]


def test_the_last_of_a_group_that_is_older_than_what_is_kept_is_sent_again() -> None:
    kept = Kept(age_s=10.0)
    stream = kept.open(1, big(0))
    kept.now = 30.0
    stream.append(body([big(1)]), kept.now)
    stream.ended(fin=True)
    kept.now = 31.0
    assert groups_of(kept, 29.0) == [1]


def test_a_group_that_is_kept_however_old_it_is_is_sent_again() -> None:
    kept = Kept(age_s=10.0)
    kept.track.keeps_last = True
    kept.stream(1, big(0))
    kept.now = 30.0
    assert groups_of(kept, 0.0) == [1]
