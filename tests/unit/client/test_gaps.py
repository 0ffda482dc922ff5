"""What a reader is told that it has missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from laps.client import Gap, Location, ObjectsMissing
from laps.client.gaps import PRIOR_GROUP_ID_GAP, PRIOR_OBJECT_ID_GAP, Gaps
from laps.client.seen import Seen
from laps.errors import ConfigError
from laps.wire.moqt.codes import DoneCode
from laps.wire.moqt.messages import Fetch, FetchOk, PublishDone, Subscribe, SubscribeOk
from support.sessions import END_OF_TRACK, Meeting, on_loop

if TYPE_CHECKING:
    from laps.client import Subscription

ALIAS = 7


class Reader:
    """Is given objects, and looks at what is missing."""

    def __init__(self, at: Location | None = None) -> None:
        self.seen = Seen()
        self.gaps = Gaps(self.seen)
        self.open: set[int] = set()
        if at is not None:
            self.seen.start(at)
            self.gaps.start(at)

    def take(self, group: int, *ids: int) -> None:
        for number in ids:
            self.seen.add(group, number, b"")
            if group != self.gaps.group:
                self.gaps.moved(Location(group, number), self.open)

    def missing(self, *, ended: bool = False) -> list[tuple[Any, Any, int | None]]:
        found = self.gaps.so_far(self.open, ended=ended)
        return [(tuple(g.start), g.end and tuple(g.end), g.objects) for g in found]


def test_gaps_are_none_where_numbers_follow_each_other() -> None:
    reader = Reader()
    for group in range(1000, 2000):
        reader.take(group, 0, 1, 2)
    assert not reader.gaps
    assert reader.missing(ended=True) == []


def test_gaps_inside_of_a_group_are_counted_when_its_turn_is_over() -> None:
    reader = Reader()
    reader.take(5, 0, 1, 4, 5, 7)
    assert reader.missing() == []
    reader.take(6, 0)
    assert reader.missing() == [((5, 2), (5, 4), 2), ((5, 6), (5, 7), 1)]
    reader.take(5, 3, 2, 6)  # late, and there all the same
    assert reader.missing() == []


def test_gaps_of_groups_are_of_unknown_size() -> None:
    reader = Reader()
    reader.take(5, 0)
    reader.take(8, 0)
    assert reader.missing() == [((6, 0), (8, 0), None)]
    reader.take(7, 0)
    assert reader.missing() == [((6, 0), (7, 0), None)]


def test_gaps_are_not_told_of_groups_that_are_on_their_way() -> None:
    reader = Reader()
    reader.take(5, 0, 2)
    reader.open = {5, 6}
    reader.take(8, 0)
    assert reader.missing() == [((7, 0), (8, 0), None)]
    reader.open.clear()
    reader.take(9, 0)
    assert reader.missing() == [
        ((5, 1), (5, 2), 1),
        ((7, 0), (8, 0), None),
    ]
    assert reader.missing(ended=True)[0] == ((5, 1), (5, 2), 1)


def test_gaps_at_the_end_of_a_stream_that_was_given_up() -> None:
    reader = Reader()
    reader.take(5, 0, 1)
    reader.gaps.closed(5, 0, complete=False)
    assert reader.missing() == [((5, 2), (6, 0), None)]
    reader.take(6, 0)
    reader.take(8, 0)
    assert reader.missing() == [((5, 2), (6, 0), None), ((7, 0), (8, 0), None)]
    # A publisher that is back sends the rest on another stream.
    reader.take(5, 2)
    reader.gaps.closed(5, 0, complete=True)
    reader.take(9, 0)
    assert reader.missing() == [((7, 0), (8, 0), None)]


def test_gaps_are_none_of_a_stream_that_was_sent_again_before_it_was_given_up() -> None:
    """The relay it came from has died, and the rest came by another way."""
    reader = Reader()
    reader.take(5, 0, 1, 2)
    reader.gaps.closed(5, 0, complete=True)
    reader.gaps.closed(5, 0, complete=False)
    reader.take(6, 0)
    assert reader.missing(ended=True) == []


def test_gaps_up_to_the_end_of_a_group_that_is_known() -> None:
    reader = Reader()
    reader.take(5, 0, 1)
    reader.gaps.closed(5, 1, complete=False)
    reader.gaps.ended(Location(5, 4))
    reader.take(6, 0)
    assert reader.missing() == [((5, 2), (5, 4), 2)]


def test_gaps_are_not_what_a_publisher_leaves_out_and_says_so() -> None:
    reader = Reader()
    reader.take(5, 0, 1)
    reader.gaps.explained(Location(9, 3), ((PRIOR_GROUP_ID_GAP, 3), (PRIOR_OBJECT_ID_GAP, 3)))
    reader.take(9, 3)
    reader.take(10, 0, 2)
    reader.gaps.does_not_exist(Location(10, 1))
    reader.take(11, 0)
    assert reader.missing() == []


def test_gaps_are_not_what_a_fetch_did_not_bring_but_what_it_does_not_know() -> None:
    reader = Reader(Location(5, 2))
    reader.gaps.fetch(Location(5, 2), Location(20, 3))
    reader.take(6, 1)
    reader.take(10, 4)
    reader.gaps.lost(Location(11, 0), Location(12, 5))
    reader.take(20, 3)
    reader.take(22, 0)
    assert reader.missing() == [((11, 0), (12, 6), None), ((21, 0), (22, 0), None)]


def test_gaps_before_the_first_object_are_none_of_who_takes_what_there_is() -> None:
    reader = Reader()
    reader.gaps.start(None)
    reader.gaps.fetch(Location(0, 0), Location(20, 3))
    reader.gaps.lost(Location(0, 0), Location(17, 5))
    assert not reader.gaps
    reader.take(17, 6)
    assert not reader.gaps
    reader.take(20, 3)
    assert reader.missing(ended=True) == []


def test_gaps_are_bounded() -> None:
    reader = Reader()
    for group in range(0, 6000, 2):
        reader.take(group, 0)
    assert len(reader.missing()) == 1000


def test_gaps_in_words() -> None:
    assert str(Gap(Location(4, 1), Location(4, 2), 1)) == "1 object from group 4, object 1"
    assert str(Gap(Location(4, 1), Location(4, 3), 2)) == "2 objects from group 4, object 1"
    assert str(Gap(Location(4, 1), None, None)) == "all from group 4, object 1"
    words = "from group 4, object 1 to group 6, object 0"
    assert str(Gap(Location(4, 1), Location(6, 0), None)) == words


# -- in a session ----------------------------------------------------------------------------------


async def subscribed(meeting: Meeting, largest: Location | None, **options: Any) -> Subscription:
    objects = meeting.session.subscribe("demo", "t", **options)
    await meeting.until(lambda: meeting.relay.heard_of(Subscribe))
    meeting.relay.say(SubscribeOk(meeting.relay.last(Subscribe).request_id, ALIAS, largest))
    await objects.established()
    return objects


async def read(objects: Subscription, count: int) -> list[bytes]:
    return [(await anext(objects)).payload for _ in range(count)]


@on_loop
async def test_gaps_of_streams_that_were_reset() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        objects = await subscribed(meeting, Location(4, 2))
        stream = relay.stream(ALIAS, 5, (0, b"a"), (1, b"b"), fin=False)
        await read(objects, 2)
        relay.reset(stream)
        await meeting.settle()
        assert objects.gaps == [Gap(Location(5, 2), Location(6, 0), None)]
        relay.stream(ALIAS, 7, (0, b"c"), (2, b"d"), end_of_group=True)
        relay.stream(ALIAS, 8, (0, b"e"))
        await read(objects, 3)
        assert objects.gaps == [
            Gap(Location(5, 2), Location(7, 0), None),
            Gap(Location(7, 1), Location(7, 2), 1),
        ]


@on_loop
async def test_gaps_end_a_strict_reader_after_what_came_before() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        objects = await subscribed(meeting, Location(4, 2), strict=True)
        relay.stream(ALIAS, 5, (0, b"a"), (1, b"b"))
        relay.stream(ALIAS, 6, (0, b"c"))
        relay.stream(ALIAS, 8, (0, b"not given"))
        assert await read(objects, 3) == [b"a", b"b", b"c"]
        words = "demo t has a gap: from group 7, object 0 to group 8, object 0"
        with pytest.raises(ObjectsMissing, match=words):
            await anext(objects)
        assert objects.gaps == [Gap(Location(7, 0), Location(8, 0), None)]
        await meeting.settle()
        with pytest.raises(ConfigError, match="strict=True needs ordered=True"):
            meeting.session.subscribe("demo", "t", strict=True, ordered=False)


@on_loop
async def test_gaps_are_no_matter_of_a_fetch_that_says_all() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        objects = await subscribed(meeting, Location(9, 0), start="start", strict=True)
        await meeting.until(lambda: relay.heard_of(Fetch))
        fetch = relay.last(Fetch).request_id
        items = [(2, 7, None), (3, 1, b"a"), (5, 0, b"b"), (9, 0, b"c")]
        relay.fetch_stream(fetch, *items)
        relay.say(FetchOk(fetch, Location(9, 1)))
        assert await read(objects, 3) == [b"a", b"b", b"c"]
        assert objects.gaps == []
        relay.stream(ALIAS, 10, (0, b"d"))
        relay.stream(ALIAS, 11, (0, END_OF_TRACK))
        relay.say(PublishDone(relay.last(Subscribe).request_id, DoneCode.TRACK_ENDED, 2))
        assert [item.payload async for item in objects] == [b"d"]


@on_loop
async def test_gaps_that_a_fetch_tells_of_end_a_strict_reader() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        objects = await subscribed(meeting, Location(9, 0), start=(3, 0), strict=True)
        await meeting.until(lambda: relay.heard_of(Fetch))
        fetch = relay.last(Fetch).request_id
        relay.fetch_stream(fetch, (3, 0, b"a"), (6, 4, None), (9, 0, b"not given"))
        relay.say(FetchOk(fetch, Location(9, 1)))
        assert await read(objects, 1) == [b"a"]
        with pytest.raises(ObjectsMissing, match="from group 3, object 1 to group 6, object 5"):
            await anext(objects)


@on_loop
async def test_gaps_are_what_a_lost_connection_has_cost() -> None:
    async with Meeting() as meeting:
        objects = await subscribed(meeting, Location(4, 2))
        meeting.relay.stream(ALIAS, 5, (0, b"a"), fin=False)
        await read(objects, 1)
        meeting.relay.lose()
        await meeting.until(lambda: len(meeting.relays) == 2)
        relay = meeting.relay
        await meeting.until(lambda: relay.heard_of(Subscribe))
        relay.say(SubscribeOk(relay.last(Subscribe).request_id, ALIAS, Location(9, 0)))
        await meeting.until(lambda: relay.heard_of(Fetch))
        fetch = relay.last(Fetch).request_id
        relay.fetch_stream(fetch, (6, 2, None), (9, 0, b"b"))
        relay.say(FetchOk(fetch, Location(9, 1)))
        await read(objects, 1)
        assert objects.gaps == [Gap(Location(5, 1), Location(6, 3), None)]


def test_gaps_at_the_end_of_a_track(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laps.client.lane.LINGER_S", 0.01)

    @on_loop
    async def run() -> None:
        async with Meeting() as meeting:
            relay = meeting.relay
            objects = await subscribed(meeting, Location(4, 2))
            relay.stream(ALIAS, 5, (0, b"a"), (2, b"b"))
            relay.say(PublishDone(relay.last(Subscribe).request_id, DoneCode.TRACK_ENDED, 3))
            assert [item.payload async for item in objects] == [b"a", b"b"]
            assert objects.gaps == [
                Gap(Location(5, 1), Location(5, 2), 1),
                Gap(Location(5, 3), None, None),
            ]

    run()
