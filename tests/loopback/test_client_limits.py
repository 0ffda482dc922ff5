"""What a session may ask and send, up to its limits and past them: nothing is lost in silence."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

import laps
from laps.config import ClientsConfig, Config, PeeringConfig
from laps.errors import ObjectTooLarge
from laps.net.runner import Runner
from laps.types import Address
from support.loopback import on_loop, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from laps.client import Fetching, Session, Subscription

ANY = Address("127.0.0.1", 0)


@asynccontextmanager
async def relaying(
    *peers: Address, requests: int = ClientsConfig().requests
) -> AsyncIterator[Runner]:
    settings = Config(
        peering=PeeringConfig(listen=ANY, peers=peers),
        clients=ClientsConfig(listen=ANY, requests=requests),
    )
    runner = Runner(settings)
    try:
        yield runner
    finally:
        await runner.close()


def url_of(runner: Runner) -> str:
    assert runner.client_address is not None
    return f"moqt://{runner.client_address}"


async def sessions(stack: AsyncExitStack, runner: Runner, count: int) -> list[Session]:
    return [await stack.enter_async_context(laps.connect(url_of(runner))) for _ in range(count)]


@pytest.mark.parametrize("count", [10, 19, 21, 60])
@on_loop
async def test_requests_of_subscriptions_from_the_start_are_all_served(count: int) -> None:
    """Each needs a FETCH beside its SUBSCRIBE, and the relay allows 20 requests at once."""
    async with relaying(requests=20) as relay, AsyncExitStack() as stack:
        *publishers, reader = await sessions(stack, relay, 1 + (count + 9) // 10)
        tracks = [await publishers[n // 10].publish("demo", f"t{n}") for n in range(count)]
        for number, track in enumerate(tracks):
            await track.write(b"%d" % number)

        async def first(number: int) -> bytes:
            async with reader.subscribe("demo", f"t{number}", start="start") as objects:
                return (await anext(objects)).payload

        read = await asyncio.gather(*map(first, range(count)))
        assert read == [b"%d" % number for number in range(count)]


@on_loop
async def test_requests_of_subscriptions_that_stay_leave_room_for_fetches() -> None:
    async with relaying(requests=20) as relay, AsyncExitStack() as stack:
        one, two, reader = await sessions(stack, relay, 3)
        for number in range(25):
            track = await (one if number % 2 else two).publish("demo", f"t{number}")
            await track.write(b"%d" % number)
        objects = [reader.subscribe("demo", f"t{n}", start="start") for n in range(25)]
        read = [(await anext(item)).payload for item in objects[:19]]
        assert read == [b"%d" % number for number in range(19)]
        waiting = [asyncio.ensure_future(anext(item)) for item in objects[19:]]
        objects[0].close()  # and one that waits has its turn
        await until(lambda: any(item.done() for item in waiting))
        for item in objects[1:7]:
            item.close()
        assert [(await item).payload for item in waiting] == [b"%d" % n for n in range(19, 25)]


@on_loop
async def test_a_thousand_tracks_in_as_many_namespaces_get_out() -> None:
    async with relaying() as relay, AsyncExitStack() as stack:
        publisher, reader = await sessions(stack, relay, 2)
        tracks = [await publisher.publish(f"demo/{n}", "t") for n in range(1000)]
        for number, track in enumerate(tracks):
            await track.write(b"%d" % number)
        for number in range(0, 1000, 37):
            async with reader.subscribe(f"demo/{number}", "t", start="start") as objects:
                assert (await anext(objects)).payload == b"%d" % number
        namespaces = reader.namespaces("demo")
        seen = {str(await anext(namespaces)) for _ in range(1000)}
        assert seen == {f"demo/{number}" for number in range(1000)}
        await tracks[999].end()


@on_loop
async def test_publish_past_the_limit_waits_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with relaying(requests=3) as relay, AsyncExitStack() as stack:
        publisher, reader = await sessions(stack, relay, 2)
        tracks = [await publisher.publish("demo", f"t{n}") for n in range(3)]
        late = asyncio.ensure_future(publisher.publish("demo", "late"))
        await until(lambda: "the relay allows no more requests on this session" in caplog.text)
        assert "clients.requests there, 3" in caplog.text
        assert not late.done()
        await tracks[0].end()
        await (await late).write(b"here")
        async with reader.subscribe("demo", "late", start="start") as objects:
            assert (await anext(objects)).payload == b"here"


@on_loop
async def test_an_object_of_100_mb_passes_relays_that_do_not_keep_it() -> None:
    payload = bytes(range(250)) * 400_000
    async with AsyncExitStack() as stack:
        near = await stack.enter_async_context(relaying())
        assert near.peer_address is not None
        far = await stack.enter_async_context(relaying(near.peer_address))
        (publisher,) = await sessions(stack, near, 1)
        reader = await stack.enter_async_context(laps.connect(url_of(far), drafts=(14,)))
        track = await publisher.publish("demo", "large", first_group=0)
        objects = reader.subscribe("demo", "large")
        await objects.established()
        await track.write(payload)
        assert (await anext(objects)).payload == payload
        for relay in (near, far):
            cache = relay.relay.tracks.cache
            assert cache.size <= cache.limits.track_bytes
            assert cache.counters.large_objects == 1
        await track.write(b"and the next")
        assert (await anext(objects)).payload == b"and the next"


@pytest.mark.parametrize("fetched", [False, True])
@on_loop
async def test_an_object_of_more_than_the_reader_takes_is_an_error(fetched: bool) -> None:
    async with relaying() as relay, AsyncExitStack() as stack:
        publisher, reader = await sessions(stack, relay, 2)
        track = await publisher.publish("demo", "t", first_group=0)
        objects: Fetching | Subscription
        if fetched:
            await track.write(b"x" * 300_000)
            await publisher.track_status("demo", "t")
            objects = reader.fetch("demo", "t", max_object_bytes=200_000)
        else:
            objects = reader.subscribe("demo", "t", max_object_bytes=200_000)
            await objects.established()
            await track.write(b"x" * 300_000)
        with pytest.raises(ObjectTooLarge, match=r"300000 bytes.*200000.*max_object_bytes"):
            await anext(objects)
        async with reader.subscribe("demo", "t", start="start") as others:  # the session goes on
            assert len((await anext(others)).payload) == 300_000
