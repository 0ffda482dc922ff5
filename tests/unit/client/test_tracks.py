"""Tracks below a prefix, and what a reader is told beside the objects: ends and unknown ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.client import Location, ObjectStatus, RequestRefused, SessionClosed, TrackEvent
from laps.types import TrackName
from laps.wire.moqt.codes import DoneCode, RequestCode
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.messages import (
    Fetch,
    FetchOk,
    NamespaceOptions,
    Publish,
    PublishDone,
    PublishOk,
    RequestError,
    RequestOk,
    Subscribe,
    SubscribeNamespace,
    SubscribeOk,
    TrackStatus,
    Unsubscribe,
)
from support.sessions import END_OF_TRACK, Meeting, on_loop

if TYPE_CHECKING:
    from laps.client import Tracks
    from laps.wire.moqt.dialect import Dialect
    from support.sessions import FakeRelay

NAME = TrackName((b"demo", b"room"), b"t")
OTHER = TrackName((b"demo",), b"u")
ALIAS = 7

both = pytest.mark.parametrize("dialect", [DRAFT14, DRAFT16], ids=repr)


async def watched(meeting: Meeting, number: int = 1) -> tuple[Tracks, FakeRelay]:
    events = meeting.session.tracks("demo")
    await accept(meeting, number)
    return events, meeting.relay


async def accept(meeting: Meeting, number: int = 1) -> None:
    await meeting.until(lambda: len(meeting.relays) == number)
    relay = meeting.relay
    await meeting.until(lambda: relay.heard_of(SubscribeNamespace))
    message = relay.last(SubscribeNamespace)
    assert message.prefix == (b"demo",)
    relay.say(RequestOk(message.request_id))


def offer(relay: FakeRelay, track: TrackName, alias: int = ALIAS) -> int:
    return relay.session.request(Publish(0, track, alias, forward=False))


@both
@on_loop
async def test_tracks_below_a_prefix_come_and_go(dialect: Dialect) -> None:
    async with Meeting(dialect) as meeting:
        events, relay = await watched(meeting)
        if dialect is DRAFT16:
            message = relay.last(SubscribeNamespace)
            assert (message.options, message.forward) == (NamespaceOptions.PUBLISH, False)
        request_id = offer(relay, NAME)
        assert await anext(events) == TrackEvent(NAME, True)
        assert list(events.known) == [NAME]
        relay.say(PublishDone(request_id, DoneCode.TRACK_ENDED, 0))
        event = await anext(events)
        assert (event.track, event.added, str(event)) == (NAME, False, "demo/room t")
        assert not events.known


@both
@on_loop
async def test_no_objects_are_asked_for(dialect: Dialect) -> None:
    async with Meeting(dialect) as meeting:
        events, relay = await watched(meeting)
        request_id = offer(relay, NAME)
        await anext(events)
        await meeting.until(lambda: relay.heard_of(PublishOk))
        answer = relay.last(PublishOk)
        assert (answer.request_id, answer.forward) == (request_id, False)


@both
@on_loop
async def test_a_track_that_was_told_of_can_be_read_in_the_same_session(dialect: Dialect) -> None:
    async with Meeting(dialect) as meeting:
        events, relay = await watched(meeting)
        request_id = offer(relay, NAME)
        await anext(events)
        objects = meeting.session.subscribe("demo/room", "t")
        await meeting.until(lambda: relay.heard_of(Subscribe))
        relay.say(SubscribeOk(relay.last(Subscribe).request_id, ALIAS))
        relay.stream(ALIAS, 0, (0, b"a"))
        assert (await anext(objects)).payload == b"a"
        # Its end is told twice, once to each.
        relay.say(PublishDone(request_id, DoneCode.TRACK_ENDED, 0))
        relay.stream(ALIAS, 1, (0, b"b"))
        assert (await anext(events)).added is False
        assert (await anext(objects)).payload == b"b"


@on_loop
async def test_what_was_there_at_the_beginning_is_listed() -> None:
    async with Meeting() as meeting:
        events, relay = await watched(meeting)
        offer(relay, NAME)
        offer(relay, OTHER, 8)
        await meeting.until(lambda: relay.heard_of(TrackStatus))
        relay.say(RequestError(relay.last(TrackStatus).request_id, RequestCode.DOES_NOT_EXIST))
        await events.listed()
        assert events.known == (NAME, OTHER)


@on_loop
async def test_a_prefix_that_is_refused_is_not_listed() -> None:
    async with Meeting() as meeting:
        events = meeting.session.tracks("demo")
        await meeting.until(lambda: meeting.relay.heard_of(SubscribeNamespace))
        meeting.relay.say(RequestError(0, RequestCode.UNAUTHORIZED, "no"))
        with pytest.raises(RequestRefused, match="tracks below 'demo' was refused"):
            await events.listed()
        with pytest.raises(RequestRefused, match="tracks below 'demo' was refused"):
            await anext(events)


@on_loop
async def test_a_session_that_is_lost_is_not_listed() -> None:
    async with Meeting(reconnect_s=0) as meeting:
        events, relay = await watched(meeting)
        relay.lose()
        with pytest.raises(SessionClosed):
            await events.listed()


@on_loop
async def test_tracks_are_not_told_twice_by_the_next_relay() -> None:
    async with Meeting() as meeting:
        events, relay = await watched(meeting)
        offer(relay, NAME)
        await anext(events)
        relay.lose()
        await accept(meeting, 2)
        offer(meeting.relay, NAME)
        offer(meeting.relay, OTHER, 8)
        assert await anext(events) == TrackEvent(OTHER, True)


@on_loop
async def test_who_stops_watching_leaves_nothing_behind() -> None:
    async with Meeting() as meeting:
        events, relay = await watched(meeting)
        request_id = offer(relay, NAME)
        await anext(events)
        events.close()
        await meeting.settle()
        assert [message.request_id for message in relay.heard_of(Unsubscribe)] == [request_id]
        assert not relay.session.outgoing
        # And what nobody watches for is refused.
        offer(relay, OTHER, 8)
        await meeting.until(lambda: relay.heard_of(RequestError))
        assert relay.last(RequestError).code == RequestCode.UNINTERESTED


# -- the ends of groups ----------------------------------------------------------------------------


async def subscribed(meeting: Meeting, *, markers: bool) -> object:
    objects = meeting.session.subscribe("demo", "u", markers=markers)
    await meeting.until(lambda: meeting.relay.heard_of(Subscribe))
    meeting.relay.say(SubscribeOk(meeting.relay.last(Subscribe).request_id, ALIAS))
    await objects.established()
    return objects


@both
@pytest.mark.parametrize("markers", [True, False])
@on_loop
async def test_the_end_of_a_group_that_its_header_names_is_a_marker(
    dialect: Dialect, markers: bool
) -> None:
    async with Meeting(dialect) as meeting:
        relay = meeting.relay
        objects = await subscribed(meeting, markers=markers)
        relay.stream(ALIAS, 0, (0, b"a"), (2, b"b"), end_of_group=True)
        relay.stream(ALIAS, 1, (0, b"c"))
        relay.stream(ALIAS, 2, (0, b"d"), (1, END_OF_TRACK), end_of_group=True)
        relay.say(PublishDone(0, DoneCode.TRACK_ENDED, 3))
        read = [(item.location, item.status) async for item in objects]  # type: ignore[attr-defined]
        normal, group, track = (
            ObjectStatus.NORMAL,
            ObjectStatus.END_OF_GROUP,
            ObjectStatus.END_OF_TRACK,
        )
        everything = [
            ((0, 0), normal),
            ((0, 2), normal),
            ((0, 3), group),
            ((1, 0), normal),
            ((2, 0), normal),
            ((2, 1), track),
        ]
        assert read == [item for item in everything if markers or item[1] is normal]


@on_loop
async def test_an_object_behind_the_end_of_its_group_comes_all_the_same() -> None:
    async with Meeting() as meeting:
        objects = await subscribed(meeting, markers=True)
        meeting.relay.stream(ALIAS, 0, (0, b"a"), end_of_group=True)
        meeting.relay.stream(ALIAS, 0, (1, b"b"), subgroup=1)
        meeting.relay.stream(ALIAS, 0, (2, b"c"), subgroup=2)
        read = [await anext(objects) for _ in range(4)]  # type: ignore[call-overload]
        assert [item.payload for item in read if item.status is ObjectStatus.NORMAL] == [
            b"a",
            b"b",
            b"c",
        ]


# -- what is fetched -------------------------------------------------------------------------------


@on_loop
async def test_ranges_that_a_relay_does_not_know_are_told() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        fetch = meeting.session.fetch("demo", "u", start=(1, 2), end=(9, 0))
        await meeting.until(lambda: relay.heard_of(Fetch))
        request_id = relay.last(Fetch).request_id
        relay.fetch_stream(
            request_id, (3, 4, None), (3, 5, b"a"), (3, 6, b"b"), (3, 8, None), (5, 0, b"c")
        )
        relay.say(FetchOk(request_id, Location(5, 1)))
        assert [item.payload async for item in fetch] == [b"a", b"b", b"c"]
        assert fetch.unknown == [((1, 2), (3, 4)), ((3, 7), (3, 8))]
        assert fetch.end == (5, 1)


@on_loop
async def test_what_has_come_can_be_taken_at_once() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        fetch = meeting.session.fetch("demo", "u")
        await meeting.until(lambda: relay.heard_of(Fetch))
        request_id = relay.last(Fetch).request_id
        relay.fetch_stream(request_id, *((0, number, b"x" * 100) for number in range(10)))
        relay.say(FetchOk(request_id, Location(0, 10)))
        sizes = [len(await fetch.some(4)), len(await fetch.some(10, 1)), len(await fetch.some())]
        assert sizes == [4, 1, 5]
        assert await fetch.some() == []


@on_loop
async def test_a_fetch_that_breaks_off_and_is_then_refused_is_not_complete() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        fetch = meeting.session.fetch("demo", "u")
        await meeting.until(lambda: relay.heard_of(Fetch))
        stream = relay.fetch_stream(relay.last(Fetch).request_id, (0, 0, b"a"), fin=False)
        assert (await anext(fetch)).payload == b"a"
        relay.reset(stream)
        await meeting.until(lambda: len(relay.heard_of(Fetch)) == 2)
        again = relay.last(Fetch)
        relay.say(RequestError(again.request_id, RequestCode.INTERNAL_ERROR, "not known here"))
        with pytest.raises(RequestRefused, match="not known here"):
            await anext(fetch)
