"""The client library with a relay, over real QUIC and WebTransport."""

from __future__ import annotations

import asyncio
import re
import textwrap
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec.structs import replace

import laps
from laps.client import (
    Location,
    NamespaceEvent,
    ObjectStatus,
    RequestRefused,
    SessionClosed,
    subscription,
)
from laps.config import ClientsConfig, Config, PeeringConfig, RelayConfig
from laps.errors import ConfigError, DatagramTooLarge, HandshakeFailed, LapsError
from laps.names import track_text
from laps.net.clients import Clients
from laps.net.runner import Runner
from laps.net.webtransport import Accepted
from laps.types import Address, TrackName, hash_track
from laps.wire.moqt.dialect import DRAFT16
from support.loopback import limits, on_loop, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from laps.client import Connecting, Object, Session, Subscription, Track

ANY = Address("127.0.0.1", 0)
PAGE = Path(__file__).parents[2] / "docs" / "client.md"

ways = pytest.mark.parametrize(
    ("scheme", "draft"),
    [("moqt", 16), ("moqt", 14), ("https", 16), ("https", 14)],
    ids=lambda value: str(value),
)


TRACK = TrackName((b"demo",), b"t")


def config(port: int = 0, *peers: Address, redirect: Address | None = None) -> Config:
    return Config(
        peering=PeeringConfig(listen=ANY, peers=peers),
        relay=RelayConfig(drain_s=0.05, node_advertise_s=0.05),
        clients=ClientsConfig(listen=Address("127.0.0.1", port), drain_s=1.0, redirect=redirect),
    )


@asynccontextmanager
async def relaying(settings: Config | None = None) -> AsyncIterator[Runner]:
    runner = Runner(settings or config())
    try:
        yield runner
    finally:
        await runner.close()


def url_of(runner: Runner, scheme: str = "moqt") -> str:
    assert runner.client_address is not None
    return f"{scheme}://{runner.client_address}/moq"


def connecting(runner: Runner, scheme: str = "moqt", **options: Any) -> Connecting:
    return laps.connect(url_of(runner, scheme), **options)


@asynccontextmanager
async def two(
    runner: Runner, scheme: str = "moqt", **options: Any
) -> AsyncIterator[tuple[Session, Session]]:
    async with (
        connecting(runner, scheme, **options) as publisher,
        connecting(runner, scheme, **options) as subscriber,
    ):
        yield publisher, subscriber


async def take(objects: Subscription, count: int) -> list[bytes]:
    return [(await anext(objects)).payload for _ in range(count)]


async def rest(objects: Subscription) -> list[Object]:
    return [item async for item in objects]


def numbered(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


async def write(track: Track, *numbers: int, every: int = 3) -> None:
    for number in numbers:
        await track.write(b"%d" % number, new_group=number % every == 0)


# -- publishing and subscribing --------------------------------------------------------------------


@ways
@on_loop
async def test_a_track_is_published_and_read(scheme: str, draft: int) -> None:
    async with relaying() as relay, two(relay, scheme, drafts=(draft,)) as (here, there):
        assert here.draft == there.draft == draft
        track = await here.publish("demo/clock", "seconds", priority=7, first_group=5)
        objects = there.subscribe("demo/clock", "seconds", start="start")
        await objects.established()
        assert await track.write(b"one") == Location(5, 0)
        assert await track.write(b"two") == Location(5, 1)
        extensions = ((2, 77), (3, b"odd"))
        await track.write(b"three", new_group=True, extensions=extensions)
        read = [await anext(objects) for _ in range(3)]
        await track.datagram(b"four")
        read.append(await anext(objects))
        large = bytes(range(256)) * 4096
        await track.write(large)
        read.append(await anext(objects))
        await track.end()
        assert await rest(objects) == []
    assert [item.location for item in read] == [(5, 0), (5, 1), (6, 0), (7, 0), (8, 0)]
    assert [item.payload for item in read] == [b"one", b"two", b"three", b"four", large]
    assert read[2].extensions == extensions
    assert [item.subgroup for item in read] == [0, 0, 0, None, 0]
    assert {item.priority for item in read if item.subgroup is not None} == {7}
    assert all(item.status is ObjectStatus.NORMAL for item in read)


@on_loop
async def test_who_asks_for_one_draft_alone_speaks_it_where_the_relay_names_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unnamed(clients: Clients, _: object) -> Accepted:
        return Accepted(clients._accept_in(DRAFT16, "/"))

    monkeypatch.setattr(Clients, "_choose", unnamed)
    async with relaying() as relay, two(relay, "https", drafts=(16,)) as (here, there):
        track = await here.publish("demo", "t")
        await track.write(b"0")
        assert await take(there.subscribe("demo", "t", start="start"), 1) == [b"0"]


@on_loop
async def test_a_relay_that_names_no_draft_and_speaks_another_is_told_of() -> None:
    settings = msgspec.structs.replace(config(), clients=ClientsConfig(listen=ANY, drafts=(14,)))
    async with relaying(settings) as relay:
        with pytest.raises(HandshakeFailed, match="named no draft: does it speak 16"):
            async with connecting(relay, "https", drafts=(16,)):
                pass


@on_loop
async def test_drafts_of_both_sides_may_differ() -> None:
    async with (
        relaying() as relay,
        connecting(relay, drafts=(14,)) as here,
        connecting(relay, "https") as there,
    ):
        assert (here.draft, there.draft) == (14, 16)
        track = await here.publish("demo", "t")
        objects = there.subscribe("demo", "t")
        await objects.established()
        await track.write(b"x", extensions=((4, 1),))
        await track.end()
        (item,) = await rest(objects)
        assert (item.payload, item.extensions) == (b"x", ((4, 1),))


@on_loop
async def test_explicit_groups_subgroups_and_ids() -> None:
    async with relaying() as relay, two(relay) as (here, there):
        track = await here.publish("demo", "layers")
        objects = there.subscribe("demo", "layers", ordered=False)
        await objects.established()
        low = track.group(3, 0, last=False)
        high = track.group(3, 1, priority=200, extensions=True)
        await low.write(b"0", object_id=0)
        await high.write(b"1", object_id=1, extensions=((2, 1),))
        await high.write(b"4", object_id=4)
        await low.write(b"6", object_id=6)
        low.end()
        high.end()
        await track.end()
        read = {(i.group, i.subgroup, i.id): (i.payload, i.extensions) for i in await rest(objects)}
    assert read == {
        (3, 0, 0): (b"0", ()),
        (3, 0, 6): (b"6", ()),
        (3, 1, 1): (b"1", ((2, 1),)),
        (3, 1, 4): (b"4", ()),
    }


@on_loop
async def test_nothing_is_lost_of_a_publisher_that_does_not_pace_itself() -> None:
    count, size = 4000, 5000
    async with relaying() as relay, two(relay) as (here, there):
        track = await here.publish("demo", "flood", first_group=0)
        objects = there.subscribe("demo", "flood", start="start")
        reading = asyncio.ensure_future(rest(objects))
        await objects.established()
        for number in range(count):
            await track.write(number.to_bytes(4) + bytes(size - 4), new_group=number % 50 == 0)
        await track.end()
        read = await reading
    assert [int.from_bytes(item.payload[:4]) for item in read] == list(range(count))


@on_loop
async def test_thousands_of_tiny_groups_arrive_in_order() -> None:
    async with relaying() as relay, two(relay) as (here, there):
        track = await here.publish("demo", "tiny", first_group=0)
        objects = there.subscribe("demo", "tiny", start="start")
        reading = asyncio.ensure_future(rest(objects))
        await objects.established()
        for _ in range(2000):
            await track.write(b"x", new_group=True)
        await track.end()
        assert [item.group for item in await reading] == list(range(2000))


@on_loop
async def test_a_datagram_that_is_too_large_is_refused_in_words() -> None:
    async with relaying() as relay, connecting(relay) as here:
        track = await here.publish("demo", "t")
        with pytest.raises(DatagramTooLarge, match="write it to a stream instead"):
            await track.datagram(bytes(5000))
        await track.datagram(bytes(500))


@on_loop
async def test_a_publisher_may_wait_for_the_first_subscriber() -> None:
    async with relaying() as relay, two(relay) as (here, there):
        track = await here.publish("demo", "shy", push=False)
        assert not track.wanted
        objects = there.subscribe("demo", "shy")
        await track.wait_wanted()
        await write(track, 1, 2)
        assert await take(objects, 2) == numbered(1, 2)
        objects.close()
        await until(lambda: not track.wanted)
        await write(track, 3)
        again = there.subscribe("demo", "shy", start="start")
        assert await take(again, 3) == numbered(1, 2, 3)


@on_loop
async def test_a_waiting_subscription_gets_the_object_of_a_publisher_that_leaves_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Who sleeps between two questions sleeps longer than the test may last.
    monkeypatch.setattr(subscription, "RETRY_FIRST_S", 600.0)
    settings = config()
    settings = replace(settings, clients=replace(settings.clients, subscribe_wait_s=0.6))
    async with relaying(settings) as relay, two(relay) as (here, there):
        # A namespace for each: who publishes in one is asked for what is wanted of it.
        names = [f"brief-{number}" for number in range(8)]
        subscriptions = [there.subscribe(name, "track") for name in names]
        reading = [asyncio.create_task(rest(objects)) for objects in subscriptions]
        counters, tracks = relay.edge.counters, relay.edge.relay.tracks
        await until(lambda: counters.refused_requests >= len(names) == tracks.wanted())
        for name in names:
            track = await here.publish(name, "track")
            await track.write(b"x")
            await track.end()
        for read in await asyncio.gather(*reading):
            assert [item.payload for item in read] == [b"x"]


@on_loop
async def test_a_track_is_published_once_by_a_session() -> None:
    async with relaying() as relay, connecting(relay) as here:
        track = await here.publish("demo", "t")
        with pytest.raises(ConfigError, match="demo t is published by this session already"):
            await here.publish("demo", "t")
        await track.write(b"x")
        await track.end()
        again = await here.publish("demo", "t")
        await again.write(b"y")
        with pytest.raises(LapsError, match="demo t has ended"):
            await track.write(b"z")


# -- where a subscription begins -------------------------------------------------------------------


@on_loop
async def test_from_the_start_every_object_comes_once_and_in_order() -> None:
    async with relaying() as relay, two(relay) as (here, there):
        track = await here.publish("demo", "t", first_group=0)
        await write(track, *range(50))
        objects = there.subscribe("demo", "t", start="start")
        writing = asyncio.ensure_future(write(track, *range(50, 400)))
        read = await take(objects, 400)
        await writing
    assert read == numbered(*range(400))


@on_loop
async def test_latest_next_current_and_a_location() -> None:
    wanted: dict[Any, list[int]] = {
        "latest": [5, 6, 7],
        "next": [6, 7],
        "current": [3, 4, 5, 6, 7],
        (0, 2): [2, 3, 4, 5, 6, 7],
        (2, 1): [7],
    }
    async with relaying() as relay, connecting(relay) as here, AsyncExitStack() as stack:
        track = await here.publish("demo", "t", first_group=0)
        await write(track, *range(5))  # groups 0 (0 1 2) and 1 (3 4)
        await until(lambda: largest(relay) == Location(1, 1))
        objects = {}
        for start in wanted:
            reader = await stack.enter_async_context(connecting(relay))
            objects[start] = reader.subscribe("demo", "t", start=start)
            info = await objects[start].established()
            assert info.largest == Location(1, 1)
        await write(track, 5, 6, 7)  # 2 (6 7)
        for start, numbers in wanted.items():
            assert await take(objects[start], len(numbers)) == numbered(*numbers), start


def largest(relay: Runner) -> Location | None:
    """Of the track that a test is about, if it is there."""
    live = relay.relay.tracks.get(hash_track(TRACK).full_name_hash)
    return None if live is None else live.largest()


@on_loop
async def test_a_subscriber_may_come_first_and_misses_nothing() -> None:
    async with relaying() as relay, two(relay) as (here, there):
        objects = there.subscribe("demo", "later")
        with pytest.raises(RequestRefused):
            await there.track_status("demo", "later")
        # The relay has refused at least once by the time the track is there.
        await until(lambda: relay.edge.counters.refused_requests >= 2)
        track = await here.publish("demo", "later", first_group=0)
        await write(track, *range(20))
        assert await take(objects, 20) == numbered(*range(20))


@on_loop
async def test_who_does_not_wait_is_refused_in_words() -> None:
    async with relaying() as relay, connecting(relay) as there:
        objects = there.subscribe("demo", "nothing", wait=False)
        with pytest.raises(RequestRefused, match="a subscription to demo nothing was refused"):
            await anext(objects)
        with pytest.raises(RequestRefused):
            await objects.established()


@on_loop
async def test_a_track_that_has_ended_is_read_from_what_relays_keep() -> None:
    async with relaying() as relay, two(relay) as (here, there):
        track = await here.publish("demo", "t", first_group=0)
        await write(track, *range(10))
        await track.end()
        for start, first in (("start", 0), ((1, 1), 4)):
            objects = there.subscribe("demo", "t", start=start)  # type: ignore[arg-type]
            assert [item.payload for item in await rest(objects)] == numbered(*range(first, 10))


@on_loop
async def test_leaving_the_loop_ends_the_subscription() -> None:
    async with relaying() as relay, two(relay) as (here, there):
        track = await here.publish("demo", "t")

        async def first() -> bytes:
            async for item in there.subscribe("demo", "t", start="start"):
                return item.payload
            return b""

        await write(track, 1, 2)
        assert await first() == b"1"
        await until(lambda: not any(client.subscriptions for client in relay.edge.clients))
        assert await first() == b"1"  # and it can be subscribed to again


@on_loop
async def test_a_slow_reader_holds_back_no_more_than_its_buffer() -> None:
    async with relaying() as relay, two(relay) as (here, there):
        track = await here.publish("demo", "t", first_group=0)
        objects = there.subscribe("demo", "t", start="start", buffer_bytes=50_000)
        await objects.established()
        for number in range(300):
            await track.write(bytes(10_000), new_group=number % 10 == 0)
        channel = await there.channel()
        await until(lambda: channel.inbound.pool.paused)
        assert objects.buffer.bytes < 200_000
        # An answer is read all the same,
        assert (await there.track_status("demo", "t")).largest is not None
        # and so is a fetch in the middle of it.
        async for item in there.fetch("demo", "t", start=(0, 0), end=(0, 3)):
            assert item.group == 0
        assert len(await take(objects, 300)) == 300


# -- fetching, namespaces, status ------------------------------------------------------------------


@ways
@on_loop
async def test_a_range_is_fetched(scheme: str, draft: int) -> None:
    async with relaying() as relay, two(relay, scheme, drafts=(draft,)) as (here, there):
        track = await here.publish("demo", "t", first_group=0)
        await write(track, *range(10))
        await until(lambda: largest(relay) == Location(3, 0))

        async def fetch(**options: Any) -> list[bytes]:
            return [item.payload async for item in there.fetch("demo", "t", **options)]

        assert await fetch() == numbered(*range(10))
        assert await fetch(start=(0, 1), end=(1, 2)) == numbered(1, 2, 3, 4)
        assert await fetch(start=(1, 0), end=(1, 0)) == numbered(3, 4, 5)
        backwards = await fetch(start=(0, 0), end=(1, 0), descending=True)
        assert backwards == numbered(3, 4, 5, 0, 1, 2)
        with pytest.raises(RequestRefused, match="a fetch of demo t was refused"):
            await fetch(start=(9, 0))


@on_loop
async def test_a_publisher_answers_for_what_the_relay_has_forgotten() -> None:
    async with relaying() as relay, two(relay) as (here, there):
        track = await here.publish("demo", "t", first_group=0)
        await write(track, *range(9))
        await until(lambda: largest(relay) == Location(2, 2))
        relay.relay.tracks.track(hash_track(TRACK), 0.0).cached.clear()
        await write(track, 9)
        read = [item.payload async for item in there.fetch("demo", "t", end=(2, 0))]
        assert read == numbered(*range(9))


@ways
@on_loop
async def test_namespaces_come_and_go(scheme: str, draft: int) -> None:
    async with relaying() as relay, two(relay, scheme, drafts=(draft,)) as (here, there):
        first = await here.publish("demo/a", "t")
        await here.publish("other/b", "t")
        async with there.namespaces("demo") as events:
            assert await anext(events) == NamespaceEvent((b"demo", b"a"), True)
            await here.publish("demo/c/d", "t")
            assert await anext(events) == NamespaceEvent((b"demo", b"c", b"d"), True)
            await first.write(b"x")
            await first.end()
            event = await anext(events)
            assert (str(event), event.added) == ("demo/a", False)


@ways
@on_loop
async def test_tracks_come_and_go_and_are_read_in_the_same_session(scheme: str, draft: int) -> None:
    async with relaying() as relay, two(relay, scheme, drafts=(draft,)) as (here, there):
        first = await here.publish("demo/a", "t", first_group=0)
        await here.publish("other/b", "t")
        # The two connections are read in any order, and only what the relay knows is listed.
        await until(lambda: relay.relay.extensions.namespaces.has((b"other", b"b")))
        async with there.tracks("demo") as events:
            await events.listed()
            assert [track_text(track) for track in events.known] == ["demo/a t"]
            assert (await anext(events)).added
            objects = there.subscribe("demo/a", "t")
            await objects.established()
            await write(first, 0, 1)
            assert await take(objects, 2) == numbered(0, 1)
            await here.publish("demo/c/d", "u")
            assert str(await anext(events)) == "demo/c/d u"
            await first.end()
            event = await anext(events)
            assert (str(event), event.added) == ("demo/a t", False)
            assert await rest(objects) == []


@ways
@on_loop
async def test_the_status_of_a_track(scheme: str, draft: int) -> None:
    async with relaying() as relay, two(relay, scheme, drafts=(draft,)) as (here, there):
        with pytest.raises(RequestRefused, match="the status of demo t was refused"):
            await there.track_status("demo", "t")
        track = await here.publish("demo", "t", first_group=0)
        await write(track, 0, 1, 2, 3)
        await until(lambda: largest(relay) == Location(1, 0))
        assert (await there.track_status("demo", "t")).largest == Location(1, 0)


# -- when relays go --------------------------------------------------------------------------------


async def lose(session: Session) -> None:
    """The connection breaks, as far as a session can tell."""
    channel = await session.channel()
    channel.close(reason="a test breaks it")
    await asyncio.shield(channel.over)


@on_loop
async def test_a_subscription_goes_on_behind_a_lost_connection() -> None:
    async with relaying() as relay, two(relay) as (here, there):
        track = await here.publish("demo", "t", first_group=0)
        objects = there.subscribe("demo", "t", start="start")
        await write(track, *range(10))
        assert await take(objects, 10) == numbered(*range(10))
        for first in (10, 25, 40):
            await lose(there)
            await write(track, *range(first, first + 15))
            assert await take(objects, 15) == numbered(*range(first, first + 15))
        await track.end()
        assert await rest(objects) == []


@on_loop
async def test_a_publisher_goes_on_behind_a_lost_connection() -> None:
    async with relaying() as relay, two(relay) as (here, there):
        track = await here.publish("demo", "t", first_group=0)
        objects = there.subscribe("demo", "t", start="start")
        await objects.established()
        await write(track, *range(10))
        for first in (10, 25, 40):
            await lose(here)
            await write(track, *range(first, first + 15))
        await track.end()
        assert [item.payload for item in await rest(objects)] == numbered(*range(55))


@on_loop
async def test_a_relay_may_be_started_again() -> None:
    async with relaying() as first:
        assert first.client_address is not None
        port = first.client_address.port
        async with two(first) as (here, there):
            track = await here.publish("demo", "t", first_group=0)
            objects = there.subscribe("demo", "t", start="start")
            await write(track, *range(10))
            assert await take(objects, 10) == numbered(*range(10))
            await first.close()
            async with relaying(config(port)):
                await write(track, *range(10, 20))
                assert await take(objects, 10) == numbered(*range(10, 20))
                await track.end()
                assert await rest(objects) == []


@ways
@on_loop
async def test_a_relay_that_leaves_is_followed_without_a_gap(scheme: str, draft: int) -> None:
    async with relaying() as second:
        assert second.peer_address is not None
        leaving = config(0, second.peer_address, redirect=second.client_address)
        async with relaying(leaving) as first:
            await until(lambda: bool(first.relay.peers) and bool(second.relay.peers))
            async with two(first, scheme, drafts=(draft,)) as (here, there):
                track = await here.publish("demo", "t", first_group=0)
                objects = there.subscribe("demo", "t", start="start")
                await write(track, *range(10))
                assert await take(objects, 10) == numbered(*range(10))
                closing = asyncio.ensure_future(first.close())
                await write(track, *range(10, 30))
                await closing
                await write(track, *range(30, 60))
                assert await take(objects, 50) == numbered(*range(10, 60))
                assert here.url == there.url == url_of(first, scheme)
                await track.end()
                assert await rest(objects) == []


@on_loop
async def test_without_reconnecting_a_lost_connection_is_an_error() -> None:
    async with relaying() as relay, connecting(relay, reconnect=False) as session:
        track = await session.publish("demo", "t")
        objects = session.subscribe("demo", "t")
        events = session.namespaces("demo")
        await anext(events)
        await objects.established()
        await lose(session)
        with pytest.raises(SessionClosed, match="a test breaks it"):
            await rest(objects)
        with pytest.raises(SessionClosed, match="a test breaks it"):
            await anext(events)
        with pytest.raises(SessionClosed, match="a test breaks it"):
            await track.write(b"x")
        with pytest.raises(SessionClosed, match="a test breaks it"):
            await session.track_status("demo", "t")


@on_loop
async def test_a_relay_that_stays_away_is_given_up() -> None:
    quic = limits(handshake_timeout_s=0.1)
    async with relaying() as relay, connecting(relay, reconnect_s=0.1, quic=quic) as session:
        objects = session.subscribe("demo", "t")
        await relay.close()
        with pytest.raises(SessionClosed, match=r"no relay was found for 0\.1 s: no answer from"):
            await rest(objects)


# -- connecting ------------------------------------------------------------------------------------


@on_loop
async def test_a_session_may_be_awaited_and_closed() -> None:
    async with relaying() as relay:
        session = await connecting(relay)
        track = await session.publish("demo", "t")
        await track.write(b"x")
        await session.close()
        with pytest.raises(SessionClosed, match="the session was closed"):
            await session.publish("demo", "u")


@on_loop
async def test_a_host_is_found_by_its_name() -> None:
    async with relaying() as relay:
        assert relay.client_address is not None
        url = f"moqt://localhost:{relay.client_address.port}"
        async with laps.connect(url) as session:
            assert session.connected


@on_loop
async def test_a_certificate_is_taken_by_its_fingerprint_only() -> None:
    async with relaying() as relay:
        sha256 = relay.identity.fingerprint
        async with connecting(relay, fingerprint=sha256) as session:
            assert session.connected
        with pytest.raises(HandshakeFailed, match="no connection to"):
            await connecting(relay, fingerprint="0" * 64)


@on_loop
async def test_nobody_there_and_nobody_who_understands() -> None:
    with pytest.raises(HandshakeFailed, match="is a relay listening there"):
        await laps.connect("moqt://127.0.0.1:9", quic=limits(handshake_timeout_s=0.1))
    async with relaying() as relay:
        assert relay.peer_address is not None
        with pytest.raises(HandshakeFailed, match="does not speak the protocol asked for"):
            await laps.connect(f"moqt://{relay.peer_address}")
    with pytest.raises(ConfigError, match=r'host "nowhere\.invalid" is not known'):
        await laps.connect("moqt://nowhere.invalid:4443")


@pytest.mark.parametrize("scheme", ["moqt", "quicr"])
@on_loop
async def test_several_relays_are_tried_in_their_order(scheme: str) -> None:
    nobody = f"{scheme}://127.0.0.1:9"
    quick = limits(handshake_timeout_s=0.2, idle_timeout_s=1.0, keepalive_s=0.3)
    with pytest.raises(HandshakeFailed, match=r"none of the relays answers: .*:9.*; .*:9"):
        await laps.connect([nobody, nobody], quic=quick)
    async with relaying() as other:
        url = f"{scheme}://{other.client_address}"
        async with relaying() as relay:
            first = f"{scheme}://{relay.client_address}"
            urls = [first, url]
            session = await laps.connect([nobody, *urls], quic=quick)
            assert session.url == session.relay_url == first
            await session.close()
            session = await laps.connect(urls, quic=quick)
            track = await session.publish("demo", "t")
            await track.write(b"a")
        # The relay has stopped, and the next one is there.
        await until(lambda: session.connected and session.relay_url == url)
        async with laps.connect(url, quic=quick) as reader:
            objects = reader.subscribe("demo", "t", start="start")
            assert (await anext(objects)).payload == b"a"
            await track.write(b"b")
            assert (await anext(objects)).payload == b"b"
            objects.close()
        await session.close()


@on_loop
async def test_requests_that_have_to_wait_are_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = Config(
        peering=PeeringConfig(listen=ANY), clients=ClientsConfig(listen=ANY, requests=2)
    )
    async with relaying(settings) as relay, laps.connect(url_of(relay)) as session:
        readers = [asyncio.ensure_future(anext(session.subscribe("demo", f"t{n}"))) for n in "1234"]
        await until(lambda: "the relay allows no more requests" in caplog.text)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    assert caplog.text.count("the relay allows no more requests") == 1


# -- the page for application developers -----------------------------------------------------------


@on_loop
async def test_every_example_of_the_page_works(capsys: pytest.CaptureFixture[str]) -> None:
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    examples = [example for example in found if "127.0.0.1" in example]  # others are fragments
    assert len(examples) == 7
    async with relaying() as relay:
        address = str(relay.client_address)
        for example in examples:
            code = example.replace("127.0.0.1:33435", address)
            names: dict[str, Any] = {}
            exec("async def run():\n" + textwrap.indent(code, "    "), names)
            await names["run"]()
    printed = capsys.readouterr().out
    assert "b'12:00:04'" in printed
    assert "demo/rooms/1 is there" in printed
    assert "demo/rooms/1 chat is there" in printed
