"""Who may ask next, where a relay allows only so many requests at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from laps.client import slots
from laps.client.slots import Need
from laps.types import Location
from laps.wire.moqt.codes import RequestCode
from laps.wire.moqt.messages import (
    Fetch,
    FetchOk,
    Publish,
    RequestError,
    Subscribe,
    SubscribeOk,
    Unsubscribe,
)
from support.sessions import Meeting, on_loop

if TYPE_CHECKING:
    import pytest

    from support.sessions import FakeRelay


def names(relay: FakeRelay) -> list[bytes]:
    return [message.track.name for message in relay.heard_of(Subscribe)]


@on_loop
async def test_slots_are_kept_for_the_fetches_of_subscriptions() -> None:
    async with Meeting(requests=4) as meeting:
        relay = meeting.relay
        readers = [meeting.session.subscribe("demo", name, start="start") for name in "abcdef"]
        await meeting.settle()
        assert names(relay) == [b"a", b"b", b"c"]
        for alias, message in enumerate(relay.heard_of(Subscribe)):
            relay.say(SubscribeOk(message.request_id, alias, Location(0, 0)))
        for number in range(3):  # one after the other has the fourth slot
            await meeting.until(lambda: len(relay.heard_of(Fetch)) > number)  # noqa: B023
            assert len(relay.heard_of(Fetch)) == number + 1
            fetch = relay.last(Fetch)
            relay.fetch_stream(fetch.request_id, (0, 0, b"x"))
            relay.say(FetchOk(fetch.request_id, Location(0, 1)))
            relay.session.finish(fetch.request_id)
        for reader in readers[:3]:
            assert (await anext(reader)).payload == b"x"
        assert len(names(relay)) == 3
        readers[1].close()
        await meeting.until(lambda: len(names(relay)) == 4)
        assert names(relay)[3] == b"d"
        assert len(relay.heard_of(Unsubscribe)) == 1


@on_loop
async def test_slots_are_all_for_publishers_where_nobody_subscribes() -> None:
    async with Meeting(requests=3) as meeting:
        for name in "abc":
            await meeting.session.publish("demo", name)
        await meeting.settle()
        assert len(meeting.relay.heard_of(Publish)) == 3
        assert not meeting.relay.channel.may_publish()


@on_loop
async def test_slots_that_nobody_takes_go_to_the_next() -> None:
    async with Meeting(requests=1) as meeting:
        channel, relay = meeting.relay.channel, meeting.relay
        await meeting.session.publish("demo", "a")
        tasks = [asyncio.ensure_future(channel.slots.take(Need.PUBLISH)) for _ in range(3)]
        await meeting.settle()
        assert channel.asking
        tasks[0].cancel()
        await meeting.settle()
        relay.say(RequestError(0, RequestCode.UNAUTHORIZED))
        await meeting.settle()
        assert await tasks[1]
        channel.slots.review()
        assert await tasks[2]  # the one before has asked for nothing
        assert not channel.asking


@on_loop
async def test_slots_of_a_relay_that_is_lost_or_left_are_waited_for_no_longer() -> None:
    async with Meeting(requests=1) as meeting:
        channel = meeting.relay.channel
        await meeting.session.publish("demo", "a")
        lasting = asyncio.ensure_future(channel.slots.take(Need.SUBSCRIBE))
        passing = asyncio.ensure_future(channel.slots.take(Need.PASSING))
        await meeting.settle()
        channel.leave()
        assert not await lasting
        assert not await channel.slots.take(Need.PUBLISH)
        assert not passing.done()
        meeting.relay.lose()
        assert not await passing
        assert not await channel.slots.take(Need.PASSING)


def test_questions_that_are_repeated_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "REPEAT_S", 0.01)

    @on_loop
    async def run() -> None:
        async with Meeting() as meeting:
            loop = asyncio.get_running_loop()
            began = loop.time()
            await asyncio.gather(*(meeting.relay.channel.slots.repeat() for _ in range(6)))
            assert loop.time() - began >= 0.05 - 0.001

    run()
