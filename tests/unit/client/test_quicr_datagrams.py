"""A subscription in QUICR that comes in datagrams: in any order, twice, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.client import Location
from laps.client.quicr import subscription as subscription_module
from laps.wire.quicr.messages import Fin, Fragment, Intent, StartPoint, Subscribe
from support.quicr_sessions import ELSEWHERE, QuicrMeeting, items, rest, take
from support.sessions import on_loop

if TYPE_CHECKING:
    from typing import Any


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Relays that are left are not waited for."""
    monkeypatch.setattr(subscription_module, "QUIET_S", 0.03)


async def in_datagrams(meeting: QuicrMeeting, **options: Any) -> tuple[Any, Any, int]:
    objects = meeting.session.subscribe("demo", "t", datagrams=True, **options)
    stream = await meeting.asked()
    datagram_id = meeting.relay.last(Subscribe).datagram_stream_id
    assert datagram_id is not None
    await objects.established()
    return objects, stream, datagram_id


@on_loop
async def test_datagrams_are_put_in_order() -> None:
    async with QuicrMeeting() as meeting:
        objects, stream, number = await in_datagrams(meeting)
        relay = meeting.relay
        relay.say(stream, StartPoint(Location(4, 0)))
        large = bytes(range(256)) * 20
        pieces = [*items(4, 2), (4, 1, large), *items(4, 0, 2)]
        relay.objects_in_datagrams(number, *pieces)
        relay.objects_in_datagrams(number, *items(5, 0), before=3)
        relay.say(stream, Fin(Location(5, 1)))
        relay.session.close(stream)
        expected = [*items(4, 0), (4, 1, large), *items(4, 2), *items(5, 0)]
        assert await rest(objects) == expected
        assert objects.lost == 0
        assert objects.buffer.bytes == 0


@on_loop
async def test_what_is_lost_is_waited_for_and_counted() -> None:
    async with QuicrMeeting() as meeting:
        objects, stream, number = await in_datagrams(meeting, patience_s=0.02)
        relay = meeting.relay
        relay.say(stream, StartPoint(Location(4, 0)))
        relay.objects_in_datagrams(number, *items(4, 0, 2))
        assert await take(objects, 2) == items(4, 0, 2)
        assert objects.lost == 1
        relay.objects_in_datagrams(number, *items(4, 1))  # late
        assert await take(objects, 1) == items(4, 1)
        assert objects.lost == 0
        relay.objects_in_datagrams(number, *items(5, 0), before=5)
        assert await take(objects, 1) == items(5, 0)
        assert objects.lost == 2  # the last two of group 4
        relay.say(stream, Fin(Location(5, 3)))
        assert await rest(objects) == []
        assert objects.lost == 4


@on_loop
async def test_unordered_everything_comes_at_once_and_once() -> None:
    async with QuicrMeeting() as meeting:
        objects, stream, number = await in_datagrams(meeting, ordered=False, patience_s=0.02)
        relay = meeting.relay
        relay.say(stream, StartPoint(Location(4, 0)))
        relay.objects_in_datagrams(number, *items(4, 3, 1, 3, 0, 1))
        assert await take(objects, 3) == items(4, 3, 1, 0)
        await meeting.until(lambda: objects.lost == 1)
        relay.say(stream, Fin(Location(4, 4)))
        assert await rest(objects) == []
        assert objects.buffer.bytes == 0


@on_loop
async def test_datagrams_that_overtake_the_start_point() -> None:
    async with QuicrMeeting() as meeting:
        objects, stream, number = await in_datagrams(meeting)
        relay = meeting.relay
        relay.objects_in_datagrams(number, *items(4, 1, 2))
        relay.say(stream, StartPoint(Location(4, 0)))
        relay.objects_in_datagrams(number, *items(4, 0))
        assert await take(objects, 3) == items(4, 0, 1, 2)


@on_loop
async def test_datagrams_without_a_start_point_begin_with_what_there_is() -> None:
    async with QuicrMeeting() as meeting:
        objects, _, number = await in_datagrams(meeting, patience_s=0.02)
        meeting.relay.objects_in_datagrams(number, *items(4, 1, 2))
        assert await take(objects, 2) == items(4, 1, 2)
        assert objects.lost == 0


@on_loop
async def test_a_gap_that_is_said_is_no_loss() -> None:
    async with QuicrMeeting() as meeting:
        objects, stream, number = await in_datagrams(meeting)
        relay = meeting.relay
        relay.objects_in_datagrams(number, *items(0, 0))
        relay.say(stream, StartPoint(Location(3, 0)))
        relay.objects_in_datagrams(number, *items(3, 0))
        assert await take(objects, 2) == items(0, 0) + items(3, 0)
        assert objects.lost == 0


@on_loop
async def test_fragments_on_the_stream_count_in_datagram_mode_too() -> None:
    async with QuicrMeeting() as meeting:
        objects, stream, number = await in_datagrams(meeting)
        relay = meeting.relay
        relay.objects_in_datagrams(number, *items(0, 1))
        relay.objects_on(stream, *items(0, 0))
        assert await take(objects, 2) == items(0, 0, 1)


@on_loop
async def test_a_lost_connection_in_datagram_mode() -> None:
    async with QuicrMeeting() as meeting:
        objects, stream, number = await in_datagrams(meeting, patience_s=0.05)
        meeting.relay.say(stream, StartPoint(Location(2, 0)))
        meeting.relay.objects_in_datagrams(number, *items(2, 0, 1, 3))
        assert await take(objects, 2) == items(2, 0, 1)
        meeting.relay.lose()
        stream = await meeting.asked(relays=2)
        assert stream.since == Location(2, 2)  # it may still come
        again = meeting.relay.last(Subscribe)
        assert again.intent is Intent.CATCH_UP
        assert again.datagram_stream_id is not None
        meeting.relay.objects_in_datagrams(again.datagram_stream_id, *items(1, 0))
        meeting.relay.objects_in_datagrams(again.datagram_stream_id, *items(2, 0, 1, 2, 3, 4))
        got = await take(objects, 3)
        assert sorted(got) == items(2, 2, 3, 4)
        assert objects.lost == 0


@on_loop
async def test_a_relay_that_leaves_in_datagram_mode() -> None:
    async with QuicrMeeting() as meeting:
        objects, old, number = await in_datagrams(meeting, patience_s=0.05)
        first = meeting.relay
        first.objects_in_datagrams(number, *items(0, 0))
        first.say(old, *ELSEWHERE)
        new = await meeting.asked(relays=2)
        second = meeting.relay
        again = second.last(Subscribe).datagram_stream_id
        assert again is not None
        second.say(new, StartPoint(Location(0, 2)))
        second.objects_in_datagrams(again, *items(0, 2, 3))
        first.objects_in_datagrams(number, *items(0, 1, 2))
        assert await take(objects, 4) == items(0, 0, 1, 2, 3)
        assert objects.lost == 0


@on_loop
async def test_datagrams_that_nobody_knows_are_counted() -> None:
    async with QuicrMeeting() as meeting:
        objects, _, number = await in_datagrams(meeting)
        relay = meeting.relay
        relay.objects_in_datagrams(number + 77, *items(0, 0))
        relay.bring(lambda: relay.channel.datagram(b"\xff"))
        relay.datagram(number, Fragment(0, 0, 0, b"abc", True))
        relay.datagram(number, Fragment(0, 1, 5, b"x", True))
        relay.datagram(number, Fragment(0, 1, 9, b"past the end", False))
        relay.objects_in_datagrams(number, *items(0, 2))
        await meeting.settle()
        assert relay.channel.unknown_datagrams == 1
        assert relay.channel.malformed_datagrams == 1
        assert await take(objects, 1) == [(0, 0, b"abc")]
