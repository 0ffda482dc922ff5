"""A subscription in QUICR: what an application is given of what relays send, and do not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from laps.client import Location, RequestRefused, SessionClosed
from laps.client.quicr import subscription as subscription_module
from laps.client.quicr.asking import RENEW_S
from laps.errors import ConfigError, LapsError
from laps.wire.quicr.messages import (
    Fragment,
    Intent,
    PublishIntent,
    PublishIntentOk,
    RelayRedirect,
    Response,
    StartPoint,
    Subscribe,
    SubscribeCancel,
    SubscribeReply,
)
from support.quicr_sessions import ELSEWHERE, QuicrMeeting, items, rest, take
from support.sessions import on_loop

EXPIRED = SubscribeReply(Response.EXPIRED, "not renewed")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Relays that are left are not waited for."""
    monkeypatch.setattr(subscription_module, "QUIET_S", 0.03)
    monkeypatch.setattr(subscription_module, "RETRY_FIRST_S", 0.001)


# -- on a stream -----------------------------------------------------------------------------------


@on_loop
async def test_objects_come_as_fragments_until_the_stream_ends() -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t", markers=True)
        stream = await meeting.asked()
        relay = meeting.relay
        assert relay.last(Subscribe) == Subscribe(b"demo/t", 0, Intent.IMMEDIATE, None)
        await objects.established()
        relay.say(stream, StartPoint(Location(5, 2)), Fragment(5, 2, 0, b"ab", False))
        relay.say(stream, Fragment(5, 2, 2, b"cd", False), Fragment(5, 2, 4, b"", True))
        relay.objects_on(stream, (5, 3, b""), (6, 0, b"x"))
        relay.session.close(stream)
        *got, end = [item async for item in objects]
        assert [(item.group, item.id, item.payload) for item in got] == [
            (5, 2, b"abcd"),
            (5, 3, b""),
            (6, 0, b"x"),
        ]
        assert (end.location, bool(end.status)) == (Location(6, 1), True)
        await meeting.settle()
        assert relay.closed == {stream.id: True}
        assert not relay.session.streams


@pytest.mark.parametrize(
    ("start", "intent"),
    [
        ("latest", Intent.IMMEDIATE),
        ("next", Intent.WAIT_UP),
        ("start", Intent.CATCH_UP),
        (Location(3, 1), Intent.CATCH_UP),
    ],
)
@on_loop
async def test_intents(start: Any, intent: Intent) -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t", start=start)
        stream = await meeting.asked()
        assert meeting.relay.last(Subscribe).intent is intent
        meeting.relay.say(stream, StartPoint(Location(3, 0)))
        meeting.relay.objects_on(stream, *items(3, 0, 1))
        first = 1 if isinstance(start, tuple) else 0
        assert await take(objects, 2 - first) == items(3, *range(first, 2))


@on_loop
async def test_a_gap_is_passed_over() -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t")
        stream = await meeting.asked()
        relay = meeting.relay
        relay.objects_on(stream, *items(0, 0, 1))
        relay.say(stream, StartPoint(Location(0, 5)))
        relay.objects_on(stream, *items(0, 5))
        relay.say(stream, StartPoint(Location(9, 0)))
        relay.objects_on(stream, *items(9, 0))
        assert await take(objects, 4) == items(0, 0, 1, 5) + items(9, 0)


@on_loop
async def test_an_object_that_is_not_completed_is_thrown_away() -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t")
        stream = await meeting.asked()
        relay = meeting.relay
        relay.say(stream, Fragment(0, 0, 0, b"part", False), StartPoint(Location(0, 1)))
        relay.objects_on(stream, *items(0, 1))
        relay.say(stream, Fragment(0, 2, 0, b"part", False), StartPoint(Location(1, 0)))
        relay.say(stream, Fragment(1, 0, 0, b"wh", False), Fragment(1, 0, 2, b"ole", True))
        relay.session.close(stream)
        assert await rest(objects) == [*items(0, 1), (1, 0, b"whole")]
        assert objects.buffer.bytes == 0


@on_loop
async def test_a_start_point_at_the_object_that_has_begun_breaks_the_rules() -> None:
    async with QuicrMeeting(reconnect_s=0) as meeting:
        objects = meeting.session.subscribe("demo", "t")
        stream = await meeting.asked()
        fragment = Fragment(0, 3, 0, b"part", False)
        meeting.relay.say(stream, StartPoint(Location(0, 3)), fragment, StartPoint(Location(0, 3)))
        with pytest.raises(SessionClosed, match="lies behind what came"):
            await anext(objects)


@pytest.mark.parametrize("late", [False, True])
@on_loop
async def test_what_is_refused_says_why(late: bool) -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t")
        relay = meeting.relay
        await meeting.until(lambda: relay.heard_of(Subscribe))
        stream = relay.stream_of(Subscribe)
        if late:
            relay.say(stream, SubscribeReply(Response.OK))
            await objects.established()
        relay.say(stream, SubscribeReply(Response.FAIL, "not here"))
        relay.session.close(stream)
        with pytest.raises(RequestRefused, match="a subscription to demo t was refused") as refused:
            await anext(objects)
        assert refused.value.reason == "not here"


@on_loop
async def test_it_is_renewed_and_cancelled() -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t", start="start")
        stream = await meeting.asked()
        tick = meeting.relay.wire.tick
        assert tick is not None
        for now in (100.0, 101.0, 100.0 + RENEW_S, 101.0 + RENEW_S, 100.0 + 2 * RENEW_S):
            tick(now)
        await meeting.settle()
        asked = meeting.relay.heard_of(Subscribe)
        assert asked == [Subscribe(b"demo/t", 0, Intent.CATCH_UP, None)] * 3
        meeting.relay.say(stream, SubscribeReply(Response.OK))
        await objects.established()
        objects.close()
        await meeting.settle()
        assert meeting.relay.last(SubscribeCancel).name == b"demo/t"
        assert meeting.relay.closed == {stream.id: True}
        assert await rest(objects) == []


@on_loop
async def test_a_full_buffer_leaves_the_connection_unread() -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t", buffer_bytes=10_000)
        stream = await meeting.asked()
        await objects.established()
        relay = meeting.relay
        sent = [(0, number, bytes(1000)) for number in range(50)]
        relay.objects_on(stream, *sent)
        await meeting.settle()
        assert (relay.wire.paused, objects.buffer.bytes < 15_000) == (True, True)
        assert await take(objects, 50) == sent
        await meeting.settle()
        paused: bool = relay.wire.paused
        assert (paused, objects.buffer.bytes) == (False, 0)


# -- it ends, and the track does not ---------------------------------------------------------------


@on_loop
async def test_what_has_expired_is_asked_for_again() -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t", start="start")
        stream = await meeting.asked()
        relay = meeting.relay
        relay.objects_on(stream, *items(0, 0, 1))
        relay.say(stream, EXPIRED)
        relay.session.close(stream)
        again = await meeting.asked(2)
        assert relay.last(Subscribe).intent is Intent.CATCH_UP
        assert again.since is None  # the publisher may have begun anew
        relay.objects_on(again, *items(0, 0, 1, 2))
        assert await take(objects, 3) == items(0, 0, 1, 2)


@on_loop
async def test_what_has_expired_goes_on_and_no_further_back_than_it_began() -> None:
    """The first one asks where the track is."""
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t")
        stream = await meeting.asked()
        relay = meeting.relay
        relay.say(stream, StartPoint(Location(4, 1)))
        relay.objects_on(stream, *items(4, 1))
        relay.say(stream, EXPIRED)
        probe = await meeting.asked(2)
        assert relay.last(Subscribe).intent is Intent.IMMEDIATE
        relay.say(probe, StartPoint(Location(4, 3)))
        again = await meeting.asked(3)
        assert relay.last(Subscribe).intent is Intent.CATCH_UP
        assert again.since is None
        relay.objects_on(again, *items(0, 0))
        relay.say(again, StartPoint(Location(4, 0)))
        relay.objects_on(again, *items(4, 0, 1, 2, 3))
        assert await take(objects, 3) == items(4, 1, 2, 3)
        assert objects.buffer.bytes == 0


@on_loop
async def test_a_publisher_that_begins_anew_is_heard_from_its_first_object() -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t")
        stream = await meeting.asked()
        relay = meeting.relay
        relay.say(stream, StartPoint(Location(4, 0)))
        relay.objects_on(stream, *items(4, 0))
        relay.say(stream, EXPIRED)
        probe = await meeting.asked(2)
        relay.objects_on(probe, *items(0, 0))
        again = await meeting.asked(3)
        relay.objects_on(again, (0, 0, b"new"), (0, 1, b"new"))
        assert await take(objects, 3) == [*items(4, 0), (0, 0, b"new"), (0, 1, b"new")]
        assert objects.buffer.bytes == 0


@pytest.mark.parametrize("how", ["reset", "inside"])
@on_loop
async def test_a_stream_that_breaks_off_is_not_the_end(how: str) -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t", start="start")
        stream = await meeting.asked()
        relay = meeting.relay
        relay.objects_on(stream, *items(0, 0))
        if how == "reset":
            relay.session.abandon(stream, 6)
        else:
            relay.say(stream, Fragment(0, 1, 0, b"part", False))
            relay.session.close(stream)
        again = await meeting.asked(2)
        relay.objects_on(again, *items(0, 0, 1))
        relay.session.close(again)
        assert await rest(objects) == items(0, 0, 1)


@on_loop
async def test_a_lost_connection_is_caught_up_with() -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t")
        stream = await meeting.asked()
        meeting.relay.say(stream, StartPoint(Location(2, 1)))
        meeting.relay.objects_on(stream, *items(2, 1, 2))
        assert await take(objects, 2) == items(2, 1, 2)
        meeting.relay.lose()
        stream = await meeting.asked(relays=2)
        assert meeting.relay.last(Subscribe).intent is Intent.CATCH_UP
        meeting.relay.say(stream, StartPoint(Location(1, 0)))
        meeting.relay.objects_on(stream, *items(1, 0), *items(2, 0, 1, 2, 3))
        assert await take(objects, 1) == items(2, 3)


@on_loop
async def test_a_connection_that_is_lost_ahead_of_the_first_object() -> None:
    """What is published meanwhile is wanted, and what came before the subscription is not."""
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t")
        stream = await meeting.asked()
        meeting.relay.say(stream, StartPoint(Location(2, 1)))
        await objects.established()
        await meeting.settle()
        meeting.relay.lose()
        stream = await meeting.asked(relays=2)
        assert meeting.relay.last(Subscribe).intent is Intent.CATCH_UP
        meeting.relay.say(stream, StartPoint(Location(2, 0)))
        meeting.relay.objects_on(stream, *items(2, 0, 1, 2))
        assert await take(objects, 2) == items(2, 1, 2)
        assert objects.buffer.bytes == 0


@on_loop
async def test_what_a_lost_connection_has_lost_for_good_is_passed_over() -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t")
        stream = await meeting.asked()
        meeting.relay.objects_on(stream, *items(0, 0))
        assert await take(objects, 1) == items(0, 0)
        meeting.relay.lose()
        stream = await meeting.asked(relays=2)
        meeting.relay.say(stream, StartPoint(Location(7, 3)))
        meeting.relay.objects_on(stream, *items(7, 3))
        assert await take(objects, 1) == items(7, 3)


# -- a relay leaves --------------------------------------------------------------------------------


@on_loop
async def test_the_old_relay_serves_until_the_new_one_has_joined() -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t", start="start")
        old = await meeting.asked()
        first = meeting.relay
        first.objects_on(old, *items(0, 0))
        first.say(old, *ELSEWHERE)
        new = await meeting.asked(relays=2)
        second = meeting.relay
        assert second.last(Subscribe).intent is Intent.IMMEDIATE
        second.say(new, StartPoint(Location(0, 3)))
        second.objects_on(new, *items(0, 3))
        assert await take(objects, 1) == items(0, 0)
        first.objects_on(old, *items(0, 1, 2))
        assert await take(objects, 3) == items(0, 1, 2, 3)
        await meeting.until(lambda: not first.wire.established)
        second.objects_on(new, *items(0, 4))
        second.session.close(new)
        assert await rest(objects) == items(0, 4)


@on_loop
async def test_what_the_old_relay_does_not_bring_is_caught_up_with() -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t", start="start")
        old = await meeting.asked()
        first = meeting.relay
        first.objects_on(old, *items(0, 0))
        first.say(old, *ELSEWHERE)
        new = await meeting.asked(relays=2)
        second = meeting.relay
        second.say(new, StartPoint(Location(0, 3)))
        second.objects_on(new, *items(0, 3))
        again = await meeting.asked(2, relays=2)
        assert second.last(Subscribe).intent is Intent.CATCH_UP
        second.objects_on(again, *items(0, 0, 1, 2, 3, 4))
        second.session.close(again)
        assert await rest(objects) == items(0, 0, 1, 2, 3, 4)


@on_loop
async def test_a_track_that_ends_at_the_old_relay_has_ended() -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t", start="start")
        old = await meeting.asked()
        first = meeting.relay
        first.objects_on(old, *items(0, 0))
        first.say(old, *ELSEWHERE)
        await meeting.asked(relays=2)
        first.objects_on(old, *items(0, 1))
        first.session.close(old)
        assert await rest(objects) == items(0, 0, 1)


@pytest.mark.parametrize("address", ["", "nowhere", "192.0.2.1:0", "\x00:7", "0.0.0.0:0", "[::1"])
@on_loop
async def test_where_to_go_may_be_no_address(address: str) -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t")
        stream = await meeting.asked()
        meeting.relay.say(stream, RelayRedirect(address))
        meeting.relay.objects_on(stream, *items(0, 0))
        assert await take(objects, 1) == items(0, 0)
        assert len(meeting.relays) == 1
        meeting.relay.say(stream, *ELSEWHERE)  # it thinks better of it
        await meeting.asked(relays=2)
        assert meeting.relay.target.host == "192.0.2.9"


@on_loop
async def test_where_nobody_answers_the_old_relay_is_kept() -> None:
    async with QuicrMeeting(reconnect_s=0.05) as meeting:
        meeting.unreachable.add("192.0.2.9")
        objects = meeting.session.subscribe("demo", "t")
        stream = await meeting.asked()
        meeting.relay.say(stream, *ELSEWHERE)
        await meeting.until(lambda: "192.0.2.9" in meeting.dialled)
        await asyncio.sleep(0.1)
        meeting.relay.objects_on(stream, *items(0, 0))
        assert await take(objects, 1) == items(0, 0)
        meeting.relay.lose()
        stream = await meeting.asked(relays=2)
        assert meeting.relay.target.host == "relay.example"


# -- masks -----------------------------------------------------------------------------------------


@on_loop
async def test_each_track_of_a_mask_is_a_subscription() -> None:
    async with QuicrMeeting() as meeting:
        tracks = meeting.session.subscribe_all("demo", start="start", datagrams=True)
        await meeting.asked()
        relay = meeting.relay
        asked = relay.last(Subscribe)
        assert (asked.name, bool(asked.mask), asked.intent) == (b"demo/", True, Intent.CATCH_UP)
        stream = relay.offer(b"demo/a", datagrams=False)
        found = await anext(tracks)
        await meeting.settle()
        assert relay.last(PublishIntentOk) == PublishIntentOk(None)
        relay.objects_on(stream, *items(0, 0))
        assert await take(found, 1) == items(0, 0)
        relay.offer(b"other/a")
        relay.offer(b"demo/a")  # it is there already
        await meeting.until(lambda: len(relay.heard_of(SubscribeCancel)) == 2)
        relay.offer(b"demo/b", datagrams=True)
        second = await anext(tracks)
        await meeting.settle()
        assert relay.last(PublishIntentOk).datagram_stream_id is not None
        assert second.track.name == b"b"
        tracks.close()
        assert await rest(found) == []


@on_loop
async def test_tracks_of_a_mask_go_on_behind_a_lost_connection() -> None:
    async with QuicrMeeting() as meeting:
        tracks = meeting.session.subscribe_all("demo")
        await meeting.asked()
        stream = meeting.relay.offer(b"demo/a")
        found = await anext(tracks)
        meeting.relay.objects_on(stream, *items(0, 0))
        assert await take(found, 1) == items(0, 0)
        meeting.relay.lose()
        await meeting.until(lambda: len(meeting.relays) == 2)
        relay = meeting.relay
        await meeting.until(lambda: len(relay.heard_of(Subscribe)) == 2)
        by_name = next(n for n, m in relay.heard if isinstance(m, Subscribe) and not m.mask)
        own = relay.session.streams[by_name]
        relay.say(own, SubscribeReply(Response.OK))
        relay.objects_on(own, *items(0, 0, 1))
        assert await take(found, 1) == items(0, 1)
        assert {message.intent for message in relay.heard_of(Subscribe)} == {Intent.CATCH_UP}


@on_loop
async def test_a_mask_that_is_refused() -> None:
    async with QuicrMeeting() as meeting:
        tracks = meeting.session.subscribe_all("demo")
        await meeting.until(lambda: meeting.relay.heard_of(Subscribe))
        stream = meeting.relay.stream_of(Subscribe)
        meeting.relay.say(stream, SubscribeReply(Response.FAIL, "too many"))
        with pytest.raises(RequestRefused, match="all below 'demo/' was refused"):
            await anext(tracks)


# -- what is not there -----------------------------------------------------------------------------


@on_loop
async def test_options_that_quicr_lacks() -> None:
    async with QuicrMeeting() as meeting:
        session = meeting.session
        for options, words in (
            ({"start": "current"}, "cannot begin with the current group"),
            ({"start": "soon"}, '"soon" is not known'),
            ({"wait": False}, "wait=False cannot be"),
            ({"priority": 1}, "have no priority"),
        ):
            with pytest.raises(ConfigError, match=words):
                session.subscribe("demo", "t", **options)
        with pytest.raises(ConfigError, match="a place is of one track"):
            session.subscribe_all("demo", start=Location(1, 1))
        with pytest.raises(ConfigError, match="mask 0 stands for one track"):
            session.subscribe_all(name=bytes(16))
        for call in (session.fetch, session.namespaces):
            with pytest.raises(LapsError, match=r"or connect with moqt://relay\.example:1"):
                call("demo", "t")
        with pytest.raises(LapsError, match="QUICR has no TRACK_STATUS"):
            await session.track_status("demo", "t")
        await meeting.settle()
        assert meeting.relay.heard_of(PublishIntent) == []
