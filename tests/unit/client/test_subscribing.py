"""A subscription: what the relay hears, and what the application is given."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from laps.client import (
    Location,
    NamespaceEvent,
    ObjectStatus,
    RequestRefused,
    SessionClosed,
    inbound,
    lane,
    subscription,
)
from laps.types import TrackName
from laps.wire.moqt.codes import DoneCode, RequestCode
from laps.wire.moqt.data import DatagramObject, encode_datagram
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.messages import (
    UNKNOWN_STREAM_COUNT,
    Fetch,
    FetchCancel,
    FetchOk,
    Filter,
    FilterType,
    Goaway,
    JoiningFetch,
    NamespaceOptions,
    PublishDone,
    RequestError,
    RequestOk,
    StandaloneFetch,
    Subscribe,
    SubscribeNamespace,
    SubscribeOk,
    Unsubscribe,
)
from support.sessions import END_OF_TRACK, Meeting, on_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from laps.client import Object
    from laps.wire.moqt.dialect import Dialect

NAME = TrackName((b"demo",), b"t")
ALIAS = 7

both = pytest.mark.parametrize("dialect", [DRAFT14, DRAFT16], ids=repr)


async def take(objects: Any, count: int) -> list[tuple[int, int, bytes]]:
    items = [await anext(objects) for _ in range(count)]
    return [(item.group, item.id, item.payload) for item in items]


async def rest(objects: AsyncIterator[Object]) -> list[tuple[int, int, bytes]]:
    return [(item.group, item.id, item.payload) async for item in objects]


async def subscribed(
    meeting: Meeting, largest: Location | None = None, **options: Any
) -> subscription.Subscription:
    """A subscription that the relay has accepted."""
    objects = meeting.session.subscribe("demo", "t", **options)
    await meeting.until(lambda: meeting.relay.heard_of(Subscribe))
    meeting.relay.say(SubscribeOk(meeting.relay.last(Subscribe).request_id, ALIAS, largest))
    await objects.established()
    return objects


@both
@on_loop
async def test_objects_come_as_they_are_published(dialect: Dialect) -> None:
    async with Meeting(dialect) as meeting:
        relay = meeting.relay
        objects = await subscribed(meeting, Location(4, 2))
        message = relay.last(Subscribe)
        assert (message.track, message.filter.type) == (NAME, FilterType.LARGEST_OBJECT)
        stream = relay.stream(ALIAS, 4, (3, b"a"), fin=False)
        relay.more(stream, (4, b"b"), (6, b""), last=3, fin=True)
        relay.stream(ALIAS, 5, (0, b"c"), subgroup=1)
        assert await take(objects, 4) == [(4, 3, b"a"), (4, 4, b"b"), (4, 6, b""), (5, 0, b"c")]
        data = encode_datagram(DatagramObject(ALIAS, 6, 0, payload=b"d"), relay.dialect)
        relay.channel.datagram(data)
        item = await anext(objects)
        assert (item.location, item.payload, item.subgroup) == (Location(6, 0), b"d", None)


@pytest.mark.parametrize(
    ("start", "wanted"),
    [("latest", FilterType.LARGEST_OBJECT), ("next", FilterType.NEXT_GROUP)],
)
@on_loop
async def test_where_it_begins_is_said(start: Any, wanted: FilterType) -> None:
    async with Meeting() as meeting:
        await subscribed(meeting, Location(4, 2), start=start)
        assert meeting.relay.last(Subscribe).filter == Filter(wanted)
        assert not meeting.relay.heard_of(Fetch)


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        ("start", JoiningFetch(0, 0, relative=False)),
        ("current", JoiningFetch(0, 4, relative=False)),
        ((3, 0), JoiningFetch(0, 3, relative=False)),
        ((3, 5), StandaloneFetch(NAME, Location(3, 5), Location(4, 3))),
    ],
)
@on_loop
async def test_what_came_before_is_fetched_and_comes_first(start: Any, wanted: Any) -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        objects = await subscribed(meeting, Location(4, 2), start=start)
        await meeting.until(lambda: relay.heard_of(Fetch))
        fetch = relay.last(Fetch)
        assert fetch.range == wanted
        assert fetch.priority == 127
        relay.stream(ALIAS, 4, (3, b"live"))
        relay.fetch_stream(fetch.request_id, (3, 5, b"x"), (4, 0, b"y"), (4, 2, b"z"))
        relay.say(FetchOk(fetch.request_id, Location(4, 3)))
        read = await take(objects, 3 if start == "current" else 4)
        assert read[-3:] == [(4, 0, b"y"), (4, 2, b"z"), (4, 3, b"live")]


@on_loop
async def test_a_fetch_that_breaks_off_goes_on() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        objects = await subscribed(meeting, Location(4, 2), start="start")
        await meeting.until(lambda: relay.heard_of(Fetch))
        first = relay.last(Fetch).request_id
        stream = relay.fetch_stream(first, (4, 0, b"a"), fin=False)
        relay.reset(stream)
        await meeting.until(lambda: len(relay.heard_of(Fetch)) == 2)
        again = relay.last(Fetch)
        assert again.range == StandaloneFetch(NAME, Location(4, 1), Location(4, 3))
        relay.fetch_stream(again.request_id, (4, 1, b"b"))
        relay.say(FetchOk(again.request_id, Location(4, 3)))
        assert await take(objects, 2) == [(4, 0, b"a"), (4, 1, b"b")]


@on_loop
async def test_a_relay_that_serves_no_fetch_says_so() -> None:
    async with Meeting() as meeting:
        objects = await subscribed(meeting, Location(4, 2), start="start")
        await meeting.until(lambda: meeting.relay.heard_of(Fetch))
        request_id = meeting.relay.last(Fetch).request_id
        meeting.relay.say(RequestError(request_id, RequestCode.NOT_SUPPORTED, "no FETCH here"))
        with pytest.raises(RequestRefused, match=r"what came before of demo t .*no FETCH here"):
            await rest(objects)


@on_loop
async def test_a_track_that_is_not_there_yet_is_asked_for_again() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        objects = meeting.session.subscribe("demo", "t", start="next")
        for number in range(2):
            await meeting.until(lambda: len(relay.heard_of(Subscribe)) == number + 1)  # noqa: B023
            message = relay.last(Subscribe)
            relay.say(RequestError(message.request_id, RequestCode.DOES_NOT_EXIST))
        await meeting.until(lambda: len(relay.heard_of(Subscribe)) == 3)
        message = relay.last(Subscribe)
        assert message.filter.type is FilterType.LARGEST_OBJECT
        relay.say(SubscribeOk(message.request_id, ALIAS, Location(2, 0)))
        # What was published meanwhile is not missed.
        await meeting.until(lambda: relay.heard_of(Fetch))
        fetch = relay.last(Fetch)
        assert fetch.range == JoiningFetch(message.request_id, 0, relative=False)
        relay.fetch_stream(fetch.request_id, (1, 0, b"a"), (2, 0, b"b"))
        relay.say(FetchOk(fetch.request_id, Location(2, 1)))
        assert await take(objects, 2) == [(1, 0, b"a"), (2, 0, b"b")]


@on_loop
async def test_other_refusals_are_final() -> None:
    async with Meeting() as meeting:
        objects = meeting.session.subscribe("demo", "t")
        await meeting.until(lambda: meeting.relay.heard_of(Subscribe))
        meeting.relay.say(RequestError(0, RequestCode.UNAUTHORIZED, "not you"))
        with pytest.raises(RequestRefused, match="a subscription to demo t was refused") as caught:
            await rest(objects)
        assert (caught.value.code, caught.value.reason) == (RequestCode.UNAUTHORIZED, "not you")


@on_loop
async def test_streams_wait_for_the_answer_that_explains_them() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        objects = meeting.session.subscribe("demo", "t")
        await meeting.until(lambda: relay.heard_of(Subscribe))
        relay.stream(ALIAS, 0, (0, b"early"))
        data = encode_datagram(DatagramObject(ALIAS, 1, 0, payload=b"early too"), relay.dialect)
        await meeting.settle()
        relay.channel.datagram(data)
        relay.say(SubscribeOk(0, ALIAS))
        assert await take(objects, 2) == [(0, 0, b"early"), (1, 0, b"early too")]


@on_loop
async def test_streams_that_nobody_explains_are_given_up() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        first = relay.stream(99, 0, (0, b"?"), fin=False)
        await meeting.settle()
        relay.channel.inbound.expire(relay.channel.loop.time() + inbound.HOLD_S)
        assert relay.stopped == [first]
        assert relay.channel.inbound.counters.unknown_streams == 1
        large = relay.stream(99, 0, (0, bytes(inbound.HOLD_BYTES)), fin=False)
        await meeting.settle()
        assert relay.stopped == [first, large]


@on_loop
async def test_it_ends_with_the_track_when_all_streams_are_read() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        objects = await subscribed(meeting)
        first = relay.stream(ALIAS, 0, (0, b"a"), fin=False)
        relay.say(PublishDone(0, DoneCode.TRACK_ENDED, 2))
        relay.more(first, (1, b"b"), last=0, fin=True)
        await meeting.settle()
        assert not objects._intake.ended
        relay.stream(ALIAS, 1, (0, b"c"), (1, END_OF_TRACK))
        assert await rest(objects) == [(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c")]
        assert not relay.heard_of(Unsubscribe)


@on_loop
async def test_markers_are_given_to_who_wants_them() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        objects = await subscribed(meeting, markers=True)
        relay.stream(ALIAS, 0, (0, b"a"), (1, END_OF_TRACK))
        relay.say(PublishDone(0, DoneCode.TRACK_ENDED, 1))
        statuses = [item.status async for item in objects]
        assert statuses == [ObjectStatus.NORMAL, ObjectStatus.END_OF_TRACK]


@pytest.mark.parametrize("count", [UNKNOWN_STREAM_COUNT, 5])
def test_a_count_that_is_never_reached_is_not_waited_for(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "LINGER_S", 0.001)

    @on_loop
    async def run() -> None:
        async with Meeting() as meeting:
            objects = await subscribed(meeting)
            meeting.relay.stream(ALIAS, 0, (0, b"a"))
            meeting.relay.say(PublishDone(0, DoneCode.TRACK_ENDED, count))
            assert await rest(objects) == [(0, 0, b"a")]

    run()


def test_the_end_of_a_track_may_come_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "LINGER_S", 0.001)

    @on_loop
    async def run() -> None:
        async with Meeting() as meeting:
            objects = await subscribed(meeting)
            meeting.relay.stream(ALIAS, 0, (0, b"a"), (1, END_OF_TRACK))
            assert await rest(objects) == [(0, 0, b"a")]
            await meeting.settle()
            assert meeting.relay.heard[-1] == Unsubscribe(0)

    run()


@on_loop
async def test_another_end_is_an_error() -> None:
    async with Meeting() as meeting:
        objects = await subscribed(meeting)
        meeting.relay.say(PublishDone(0, DoneCode.TOO_FAR_BEHIND, 0, "too slow"))
        with pytest.raises(RequestRefused, match=r"the rest of demo t .*too slow"):
            await rest(objects)


@on_loop
async def test_one_that_expired_is_made_again() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        objects = await subscribed(meeting, Location(0, 0))
        relay.say(PublishDone(0, DoneCode.EXPIRED, 0))
        await meeting.until(lambda: len(relay.heard_of(Subscribe)) == 2)
        relay.say(SubscribeOk(relay.last(Subscribe).request_id, ALIAS, Location(0, 0)))
        relay.stream(ALIAS, 0, (1, b"b"))
        assert await take(objects, 1) == [(0, 1, b"b")]


@on_loop
async def test_groups_that_overtake_each_other_are_put_in_order() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        objects = await subscribed(meeting)
        first, second, third = (relay.new_stream() for _ in range(3))
        relay.stream(ALIAS, 2, (0, b"c"), stream_id=third)
        relay.stream(ALIAS, 1, (0, b"b"), stream_id=second)
        await meeting.settle()
        assert objects.buffer.bytes > 0
        relay.stream(ALIAS, 0, (0, b"a"), stream_id=first)
        assert await take(objects, 3) == [(0, 0, b"a"), (1, 0, b"b"), (2, 0, b"c")]


@on_loop
async def test_who_does_not_care_for_order_need_not_wait() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        objects = await subscribed(meeting, ordered=False)
        first, second = relay.new_stream(), relay.new_stream()
        relay.stream(ALIAS, 1, (0, b"b"), stream_id=second)
        assert await take(objects, 1) == [(1, 0, b"b")]
        relay.stream(ALIAS, 0, (0, b"a"), stream_id=first)
        assert await take(objects, 1) == [(0, 0, b"a")]


@on_loop
async def test_a_slow_reader_leaves_the_connection_unread() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        objects = await subscribed(meeting, buffer_bytes=10_000)
        for group in range(20):
            relay.stream(ALIAS, group, (0, bytes(3000)))
        await meeting.settle()
        assert relay.wire.paused
        assert objects.buffer.bytes < 15_000
        # Somebody who waits for an answer gets it.
        asking = asyncio.ensure_future(meeting.session.track_status("demo", "t"))
        await meeting.until(lambda: not relay.wire.paused)
        relay.say(RequestOk(2, largest=Location(9, 9)))
        assert (await asking).largest == Location(9, 9)
        assert len(await take(objects, 20)) == 20
        assert not relay.wire.paused


@on_loop
async def test_closing_takes_back_what_is_not_answered() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        objects = meeting.session.subscribe("demo", "t")
        await meeting.until(lambda: relay.heard_of(Subscribe))
        objects.close()
        relay.say(SubscribeOk(0, ALIAS))  # it crosses
        await meeting.settle()
        assert relay.heard[-1] == Unsubscribe(0)
        assert relay.channel.alive
        assert await rest(objects) == []
        with pytest.raises(asyncio.CancelledError):
            await objects.established()


@on_loop
async def test_closing_stops_streams_that_are_under_way() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        objects = await subscribed(meeting)
        stream = relay.stream(ALIAS, 0, (0, b"a"), fin=False)
        assert await take(objects, 1) == [(0, 0, b"a")]
        objects.close()
        relay.more(stream, (1, b"b"), last=0)
        late = relay.stream(ALIAS, 1, (0, b"c"), fin=False)
        await meeting.settle()
        assert relay.stopped == [stream, late]


# -- fetches ---------------------------------------------------------------------------------------


@both
@on_loop
async def test_a_fetch(dialect: Dialect) -> None:
    async with Meeting(dialect) as meeting:
        relay = meeting.relay
        objects = meeting.session.fetch("demo", "t", start=(1, 0), end=(2, 1))
        await meeting.until(lambda: relay.heard_of(Fetch))
        wanted = relay.last(Fetch).range
        assert wanted == StandaloneFetch(NAME, Location(1, 0), Location(2, 1))
        relay.fetch_stream(0, (1, 0, b"a"), (2, 0, b"b"))
        relay.say(FetchOk(0, Location(2, 1), end_of_track=True))
        assert await rest(objects.__aiter__()) == [(1, 0, b"a"), (2, 0, b"b")]
        assert objects.end_of_track


@on_loop
async def test_a_fetch_that_is_not_wanted_any_more_is_cancelled() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        async with meeting.session.fetch("demo", "t") as objects:
            await meeting.until(lambda: relay.heard_of(Fetch))
            stream = relay.fetch_stream(0, (1, 0, b"a"), fin=False)
            assert await take(objects, 1) == [(1, 0, b"a")]
        await meeting.settle()
        assert relay.heard[-1] == FetchCancel(0)
        assert relay.stopped == [stream]


@on_loop
async def test_a_fetch_goes_on_at_the_next_relay() -> None:
    async with Meeting() as meeting:
        first = meeting.relay
        objects = meeting.session.fetch("demo", "t")
        await meeting.until(lambda: first.heard_of(Fetch))
        first.fetch_stream(0, (1, 0, b"a"), (1, 1, b"b"), fin=False)
        await meeting.settle()
        first.lose()
        await meeting.until(lambda: len(meeting.relays) == 2 and meeting.relay.heard_of(Fetch))
        wanted = meeting.relay.last(Fetch).range
        assert isinstance(wanted, StandaloneFetch)
        assert wanted.start == Location(1, 2)
        meeting.relay.fetch_stream(0, (1, 2, b"c"))
        meeting.relay.say(FetchOk(0, Location(1, 3)))
        assert [p for _, _, p in await rest(objects.__aiter__())] == [b"a", b"b", b"c"]


# -- from relay to relay ---------------------------------------------------------------------------


@on_loop
async def test_a_subscription_goes_on_where_it_was() -> None:
    async with Meeting() as meeting:
        first = meeting.relay
        objects = await subscribed(meeting)
        first.stream(ALIAS, 0, (0, b"a"), (1, b"b"))
        first.stream(ALIAS, 1, (0, b"c"), fin=False)
        assert len(await take(objects, 3)) == 3
        first.lose()
        await meeting.until(lambda: len(meeting.relays) == 2 and meeting.relay.heard_of(Subscribe))
        second = meeting.relay
        second.say(SubscribeOk(0, ALIAS, Location(2, 0)))
        await meeting.until(lambda: second.heard_of(Fetch))
        fetch = second.last(Fetch)
        assert fetch.range == StandaloneFetch(NAME, Location(1, 1), Location(2, 1))
        # A publisher that was lost too may have sent some of it again.
        second.fetch_stream(fetch.request_id, (1, 0, b"c"), (1, 1, b"d"), (2, 0, b"e"))
        second.say(FetchOk(fetch.request_id, Location(2, 1)))
        second.stream(ALIAS, 2, (0, b"e"), (1, b"f"))
        assert await take(objects, 3) == [(1, 1, b"d"), (2, 0, b"e"), (2, 1, b"f")]


@on_loop
async def test_a_subscription_goes_on_at_a_relay_that_does_not_know_the_largest_object() -> None:
    async with Meeting() as meeting:
        first = meeting.relay
        objects = await subscribed(meeting)
        first.stream(ALIAS, 0, (0, b"a"), fin=False)
        assert await take(objects, 1) == [(0, 0, b"a")]
        first.lose()
        await meeting.until(lambda: len(meeting.relays) == 2 and meeting.relay.heard_of(Subscribe))
        second = meeting.relay
        second.say(SubscribeOk(0, ALIAS, None))
        await meeting.settle()
        assert not second.heard_of(Fetch)
        second.stream(ALIAS, 1, (0, b"c"), (1, b"d"))
        await meeting.until(lambda: second.heard_of(Fetch))
        fetch = second.last(Fetch)
        assert fetch.range == StandaloneFetch(NAME, Location(0, 1), Location(1, 1))
        second.fetch_stream(fetch.request_id, (0, 1, b"b"), (1, 0, b"c"))
        second.say(FetchOk(fetch.request_id, Location(1, 1)))
        assert await take(objects, 3) == [(0, 1, b"b"), (1, 0, b"c"), (1, 1, b"d")]


@on_loop
async def test_a_subscription_is_made_again_at_a_relay_that_is_sent_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscription, "FIRST_S", 0.01)
    async with Meeting() as meeting:
        first = meeting.relay
        objects = await subscribed(meeting)
        first.stream(ALIAS, 0, (0, b"a"), fin=False)
        assert await take(objects, 1) == [(0, 0, b"a")]
        first.lose()
        await meeting.until(lambda: len(meeting.relays) == 2 and meeting.relay.heard_of(Subscribe))
        second = meeting.relay
        second.say(SubscribeOk(0, ALIAS, None))
        await meeting.until(lambda: len(second.heard_of(Subscribe)) == 2)
        again = second.last(Subscribe)
        second.say(SubscribeOk(again.request_id, ALIAS + 1, Location(0, 1)))
        await meeting.until(lambda: second.heard_of(Fetch))
        fetch = second.last(Fetch)
        assert fetch.range == StandaloneFetch(NAME, Location(0, 1), Location(0, 2))
        second.fetch_stream(fetch.request_id, (0, 1, b"b"))
        second.say(FetchOk(fetch.request_id, Location(0, 2)))
        assert await take(objects, 1) == [(0, 1, b"b")]


@on_loop
async def test_the_rest_of_a_group_that_the_next_relay_is_not_sent_is_fetched() -> None:
    async with Meeting() as meeting:
        first = meeting.relay
        objects = await subscribed(meeting)
        first.stream(ALIAS, 0, (0, b"a"), (1, b"b"), fin=False)
        assert await take(objects, 2) == [(0, 0, b"a"), (0, 1, b"b")]
        first.lose()
        await meeting.until(lambda: len(meeting.relays) == 2 and meeting.relay.heard_of(Subscribe))
        second = meeting.relay
        second.say(SubscribeOk(0, ALIAS, Location(0, 1)))
        await meeting.settle()
        assert not second.heard_of(Fetch)
        second.stream(ALIAS, 1, (0, b"d"))
        await meeting.until(lambda: second.heard_of(Fetch))
        fetch = second.last(Fetch)
        assert fetch.range == StandaloneFetch(NAME, Location(0, 2), Location(1, 1))
        second.fetch_stream(fetch.request_id, (0, 2, b"c"), (1, 0, b"d"))
        second.say(FetchOk(fetch.request_id, Location(1, 1)))
        assert await take(objects, 2) == [(0, 2, b"c"), (1, 0, b"d")]


@on_loop
async def test_nothing_is_fetched_where_the_next_relay_goes_on_with_the_group() -> None:
    async with Meeting() as meeting:
        first = meeting.relay
        objects = await subscribed(meeting)
        first.stream(ALIAS, 0, (0, b"a"), (1, b"b"), fin=False)
        assert await take(objects, 2) == [(0, 0, b"a"), (0, 1, b"b")]
        first.lose()
        await meeting.until(lambda: len(meeting.relays) == 2 and meeting.relay.heard_of(Subscribe))
        second = meeting.relay
        second.say(SubscribeOk(0, ALIAS, Location(0, 1)))
        second.stream(ALIAS, 0, (2, b"c"))
        assert await take(objects, 1) == [(0, 2, b"c")]
        assert not second.heard_of(Fetch)


@on_loop
async def test_a_subscription_ends_where_the_track_has_ended_while_it_moved() -> None:
    async with Meeting() as meeting:
        first = meeting.relay
        objects = await subscribed(meeting)
        first.stream(ALIAS, 0, (0, b"a"), fin=False)
        assert await take(objects, 1) == [(0, 0, b"a")]
        first.lose()
        await meeting.until(lambda: len(meeting.relays) == 2 and meeting.relay.heard_of(Subscribe))
        second = meeting.relay
        second.say(RequestError(0, RequestCode.DOES_NOT_EXIST, "nobody publishes it"))
        await meeting.until(lambda: second.heard_of(Fetch))
        fetch = second.last(Fetch)
        assert isinstance(fetch.range, StandaloneFetch)
        assert fetch.range.start == Location(0, 1)
        second.fetch_stream(fetch.request_id, (0, 1, b"b"))
        second.say(FetchOk(fetch.request_id, Location(0, 2), end_of_track=True))
        assert await rest(objects) == [(0, 1, b"b")]


@on_loop
async def test_a_subscription_ends_at_a_relay_where_nothing_more_comes() -> None:
    async with Meeting() as meeting:
        first = meeting.relay
        objects = await subscribed(meeting)
        first.stream(ALIAS, 0, (0, b"a"))
        assert await take(objects, 1) == [(0, 0, b"a")]
        first.lose()
        await meeting.until(lambda: len(meeting.relays) == 2 and meeting.relay.heard_of(Subscribe))
        second = meeting.relay
        second.say(SubscribeOk(0, ALIAS, None), PublishDone(0, DoneCode.TRACK_ENDED, 0))
        assert await rest(objects) == []


@on_loop
async def test_a_relay_that_leaves_serves_until_the_next_one_does() -> None:
    async with Meeting() as meeting:
        first = meeting.relay
        objects = await subscribed(meeting)
        first.stream(ALIAS, 0, (0, b"a"))
        first.say(Goaway(b"moqt://other.example:2"))
        await meeting.until(lambda: len(meeting.relays) == 2 and meeting.relay.heard_of(Subscribe))
        second = meeting.relay
        first.stream(ALIAS, 1, (0, b"b"))
        assert await take(objects, 2) == [(0, 0, b"a"), (1, 0, b"b")]
        second.say(SubscribeOk(0, ALIAS, Location(2, 0)))
        await meeting.until(lambda: second.heard_of(Fetch))
        assert not first.heard_of(Unsubscribe)
        fetch = second.last(Fetch)
        second.fetch_stream(fetch.request_id, (1, 0, b"b"), (2, 0, b"c"))
        second.say(FetchOk(fetch.request_id, Location(2, 1)))
        first.stream(ALIAS, 2, (0, b"c"))
        second.stream(ALIAS, 2, (1, b"d"))
        assert await take(objects, 2) == [(2, 0, b"c"), (2, 1, b"d")]
        await meeting.until(lambda: first.heard_of(Unsubscribe))
        await meeting.until(lambda: not first.channel.alive)


async def moved(meeting: Meeting, objects: subscription.Subscription) -> Any:
    """Another relay has it, and the client has fetched the second object of group 1 there."""
    first = meeting.relay
    first.stream(ALIAS, 0, (0, b"a"), (1, b"b"), (2, b"c"))
    first.stream(ALIAS, 1, (0, b"d"))
    assert len(await take(objects, 4)) == 4
    first.lose()
    await meeting.until(lambda: len(meeting.relays) == 2 and meeting.relay.heard_of(Subscribe))
    second = meeting.relay
    second.say(SubscribeOk(0, ALIAS, Location(1, 1)))
    await meeting.until(lambda: second.heard_of(Fetch))
    fetch = second.last(Fetch)
    second.fetch_stream(fetch.request_id, (1, 1, b"e"))
    second.say(FetchOk(fetch.request_id, Location(1, 2)))
    assert await take(objects, 1) == [(1, 1, b"e")]
    await meeting.until(lambda: objects._lane is not None and not objects._lane.sequencer.held)
    return second


@on_loop
async def test_the_rest_of_a_group_comes_before_the_next_though_that_is_here_first() -> None:
    """The next relay joins the track in the middle of it: the rest comes by another way."""
    async with Meeting() as meeting:
        objects = await subscribed(meeting)
        second = await moved(meeting, objects)
        second.stream(ALIAS, 2, (0, b"g"))
        second.stream(ALIAS, 1, (2, b"f"))
        assert await take(objects, 2) == [(1, 2, b"f"), (2, 0, b"g")]


@on_loop
async def test_a_group_with_as_many_objects_as_the_one_before_is_not_waited_for() -> None:
    async with Meeting() as meeting:
        objects = await subscribed(meeting, patience_s=60.0)
        second = await moved(meeting, objects)
        second.stream(ALIAS, 1, (2, b"f"))
        second.stream(ALIAS, 2, (0, b"g"), (1, b"h"), (2, b"i"))
        assert len(await take(objects, 4)) == 4
        second.lose()
        await meeting.until(lambda: len(meeting.relays) == 3 and meeting.relay.heard_of(Subscribe))
        third = meeting.relay
        third.say(SubscribeOk(0, ALIAS, Location(2, 2)))
        third.stream(ALIAS, 3, (0, b"j"))
        await meeting.until(lambda: third.heard_of(Fetch))
        third.say(FetchOk(third.last(Fetch).request_id, Location(3, 0)))
        third.fetch_stream(third.last(Fetch).request_id)
        assert await take(objects, 1) == [(3, 0, b"j")]


@on_loop
async def test_a_track_that_ends_while_its_relay_leaves_has_ended() -> None:
    async with Meeting() as meeting:
        first = meeting.relay
        objects = await subscribed(meeting)
        first.say(Goaway())
        await meeting.until(lambda: len(meeting.relays) == 2 and meeting.relay.heard_of(Subscribe))
        first.stream(ALIAS, 0, (0, b"a"))
        first.say(PublishDone(0, DoneCode.TRACK_ENDED, 1))
        assert await rest(objects) == [(0, 0, b"a")]


@on_loop
async def test_a_relay_that_leaves_may_end_a_subscription_before_the_next_one_answers() -> None:
    """That is no end of the track: it goes on at the next relay."""
    async with Meeting() as meeting:
        first = meeting.relay
        objects = await subscribed(meeting)
        first.stream(ALIAS, 0, (0, b"a"))
        assert await take(objects, 1) == [(0, 0, b"a")]
        first.say(Goaway())
        await meeting.until(lambda: len(meeting.relays) == 2 and meeting.relay.heard_of(Subscribe))
        first.say(PublishDone(0, DoneCode.GOING_AWAY, 1))
        await meeting.until(lambda: not first.channel.inbound.inflows)
        second = meeting.relay
        second.say(SubscribeOk(0, ALIAS, Location(1, 0)))
        await meeting.until(lambda: second.heard_of(Fetch))
        fetch = second.last(Fetch)
        second.fetch_stream(fetch.request_id, (1, 0, b"b"))
        second.say(FetchOk(fetch.request_id, Location(1, 1)))
        assert await take(objects, 1) == [(1, 0, b"b")]
        assert len(second.heard_of(Subscribe)) == 1


@on_loop
async def test_a_publisher_that_begins_anew_is_heard() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        objects = await subscribed(meeting)
        for group in range(3):
            relay.stream(ALIAS, group, (0, b"old %d" % group))
        relay.stream(ALIAS, 1, (0, b"old 1"))  # once more: nothing new
        relay.stream(ALIAS, 0, (0, b"new 0"))
        relay.stream(ALIAS, 1, (0, b"new 1"))
        read = [payload for _, _, payload in await take(objects, 5)]
        assert read == [b"old 0", b"old 1", b"old 2", b"new 0", b"new 1"]


@on_loop
async def test_a_session_that_does_not_return_is_closed() -> None:
    async with Meeting(reconnect_s=0) as meeting:
        objects = await subscribed(meeting)
        fetching = meeting.session.fetch("demo", "t")
        events = meeting.session.namespaces("demo")
        await meeting.until(lambda: meeting.relay.heard_of(SubscribeNamespace))
        meeting.relay.lose()
        for reader in (objects, fetching, events):
            with pytest.raises(SessionClosed, match=r"closed by the peer: .*gone"):
                await anext(reader)
        with pytest.raises(SessionClosed):
            await meeting.session.publish("demo", "t")


# -- namespaces ------------------------------------------------------------------------------------


@both
@on_loop
async def test_namespaces_below_a_prefix(dialect: Dialect) -> None:
    async with Meeting(dialect) as meeting:
        relay = meeting.relay
        events = meeting.session.namespaces("demo")
        await meeting.until(lambda: relay.heard_of(SubscribeNamespace))
        message = relay.last(SubscribeNamespace)
        assert message.prefix == (b"demo",)
        if dialect is DRAFT16:
            assert message.options is NamespaceOptions.NAMESPACE
        relay.say(RequestOk(message.request_id))
        said = relay.session.tell_namespace(message.request_id, (b"demo", b"a"))
        assert await anext(events) == NamespaceEvent((b"demo", b"a"), True)
        relay.session.tell_namespace_gone(message.request_id, (b"demo", b"a"), said)
        assert await anext(events) == NamespaceEvent((b"demo", b"a"), False)
        events.close()
        await meeting.settle()
        assert message.request_id not in relay.session.incoming


@on_loop
async def test_namespaces_are_not_told_twice_by_the_next_relay() -> None:
    async with Meeting() as meeting:
        events = meeting.session.namespaces("demo")
        for number, told in enumerate([(b"a", b"b"), (b"b", b"c")]):
            await meeting.until(lambda: len(meeting.relays) == number + 1)  # noqa: B023
            relay = meeting.relay
            await meeting.until(lambda: relay.heard_of(SubscribeNamespace))  # noqa: B023
            relay.say(RequestOk(0))
            for part in told:
                relay.session.tell_namespace(0, (b"demo", part))
            await meeting.settle()
            if number == 0:
                relay.lose()
        assert [str(await anext(events)) for _ in range(3)] == ["demo/a", "demo/b", "demo/c"]


@on_loop
async def test_a_prefix_that_is_refused() -> None:
    async with Meeting() as meeting:
        events = meeting.session.namespaces("demo")
        await meeting.until(lambda: meeting.relay.heard_of(SubscribeNamespace))
        meeting.relay.say(RequestError(0, RequestCode.UNAUTHORIZED, "no"))
        with pytest.raises(RequestRefused, match="namespaces below 'demo' was refused"):
            await anext(events)
