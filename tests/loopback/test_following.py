"""How a query follows its tracks and reads ranges of them, over real QUIC and without Spark."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

import laps
from laps.client import Fetching, QuicConfig, RequestRefused, Subscription
from laps.config import CacheConfig, ClientsConfig, Config, PeeringConfig, RelayConfig
from laps.errors import HandshakeFailed, LapsError
from laps.net.runner import Runner
from laps.spark.errors import DataLost
from laps.spark.source import connecting, following
from laps.spark.source.connecting import Connection, connect_first
from laps.spark.source.following import Following
from laps.spark.source.offsets import Position, to_json
from laps.spark.source.options import Trust, read_options
from laps.spark.source.reading import Range, RangeReader
from laps.types import Address, Location, TrackName
from support.loopback import on_loop, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from laps.client import Object, Track
    from laps.spark.source.offsets import Positions
    from laps.spark.source.options import ReadOptions

ANY = Address("127.0.0.1", 0)
NOBODY = "moqt://127.0.0.1:1"
TRACK = TrackName((b"demo",), b"t")


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits ten seconds for a relay that is not there."""
    monkeypatch.setattr(connecting, "LIVELY", QuicConfig(handshake_timeout_s=0.3))


@asynccontextmanager
async def relaying(*peers: Runner, cache_bytes: int | None = None) -> AsyncIterator[Runner]:
    addresses = tuple(peer.peer_address for peer in peers if peer.peer_address is not None)
    cache = CacheConfig() if cache_bytes is None else CacheConfig(track_bytes=cache_bytes)
    runner = Runner(
        Config(
            peering=PeeringConfig(listen=ANY, peers=addresses),
            relay=RelayConfig(drain_s=0.05, node_advertise_s=0.05),
            clients=ClientsConfig(listen=ANY, drain_s=0.05, subscribe_wait_s=0.1),
            cache=cache,
        )
    )
    try:
        yield runner
    finally:
        await runner.close()


def url_of(runner: Runner) -> str:
    return f"moqt://{runner.client_address}"


def options(*relays: Runner | str, **said: str) -> ReadOptions:
    urls = [relay if isinstance(relay, str) else url_of(relay) for relay in relays]
    said = {"namespace": "demo", "track": "t", "settle_ms": "50", "wait_s": "2"} | said
    said = {name: text for name, text in said.items() if text}
    return read_options({"relay": ",".join(urls), **said}, streaming=True)


@asynccontextmanager
async def following_of(*relays: Runner | str, **said: str) -> AsyncIterator[Following]:
    made = Following(options(*relays, **said))
    try:
        yield made
    finally:
        await made.close()


async def reaches(made: Following, **counts: int) -> Positions:
    """Wait until tracks have so many settled objects, and no more."""
    found: Positions = {}

    def are_there() -> bool:
        nonlocal found
        found = made.latest({}, None)
        return {track.name.decode(): p.count for track, p in found.items()} == counts

    await until(are_there)
    return found


async def write(track: Track, *numbers: int, every: int = 5) -> None:
    for number in numbers:
        await track.write(b"%d" % number, new_group=number % every == 0)


async def lose(made: Following | Connection) -> str:
    """The connection to the relay breaks; which one it was."""
    connection = made if isinstance(made, Connection) else made._connections[0]
    session = connection._session
    assert session is not None
    assert session._channel is not None
    session._channel.close(reason="lost")
    return session.url


# -- relays ----------------------------------------------------------------------------------------


@on_loop
async def test_the_first_relay_that_answers_is_taken() -> None:
    async with relaying() as one, relaying() as other:
        session = await connect_first([NOBODY, url_of(one), url_of(other)], Trust())
        assert session.url == url_of(one)
        await session.close()


@on_loop
async def test_relays_that_do_not_answer_are_all_named() -> None:
    with pytest.raises(HandshakeFailed) as caught:
        await connect_first([NOBODY, "moqt://nobody.invalid:2"], Trust(), head_start_s=0.01)
    assert str(caught.value).startswith(f"no relay answers: {NOBODY}: ")
    assert '; moqt://nobody.invalid:2: URL "moqt://nobody.invalid:2": host' in str(caught.value)


@on_loop
async def test_a_relay_that_was_lost_is_the_last_to_be_asked_again() -> None:
    async with relaying() as one, relaying() as other:
        connection = Connection([url_of(one), url_of(other)], Trust())
        first = await connection.session()
        assert await connection.session() is first
        for expected in (other, one):
            await lose(connection)
            assert (await connection.session()).url == url_of(expected)
        await connection.close()


# -- following -------------------------------------------------------------------------------------


@on_loop
async def test_what_was_there_and_what_comes_is_settled() -> None:
    async with relaying() as relay, laps.connect(url_of(relay)) as session:
        track = await session.publish("demo", "t", first_group=7)
        await write(track, *range(12))
        async with following_of(relay, startingOffsets="earliest") as made:
            assert await made.begin() == {}
            assert to_json(made.latest({}, None)) == {"demo t": [9, 2, 12]}
            await write(track, *range(12, 20))
            assert to_json(await reaches(made, t=20)) == {"demo t": [10, 5, 20]}


@pytest.fixture
def _slow_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Fetching.some

    async def some(self: Fetching, *bounds: int) -> list[Object]:
        await asyncio.sleep(1.0)
        return await original(self, *bounds)

    monkeypatch.setattr(Fetching, "some", some)


@pytest.mark.usefixtures("_slow_fetch")
@on_loop
async def test_a_track_that_is_there_may_take_its_time_to_be_read() -> None:
    async with relaying() as relay, laps.connect(url_of(relay)) as session:
        await write(await session.publish("demo", "t"), *range(12))
        async with following_of(relay, startingOffsets="earliest", wait_s="1") as made:
            await made.begin()
            assert sum(position.count for position in made.latest({}, None).values()) == 12


@on_loop
async def test_who_begins_at_the_end_sees_what_comes() -> None:
    async with relaying() as relay, laps.connect(url_of(relay)) as session:
        track = await session.publish("demo", "t", first_group=7)
        await write(track, *range(7))
        async with following_of(relay) as made:
            start = await made.begin()
            assert to_json(start) == {"demo t": [8, 2, 0]}
            assert made.latest(start, None) == start
            await write(track, *range(7, 10))
            assert to_json(await reaches(made, t=3)) == {"demo t": [8, 5, 3]}


@on_loop
async def test_tracks_below_a_prefix_are_found_whenever_they_come() -> None:
    async with relaying() as relay, laps.connect(url_of(relay)) as session:
        await write(await session.publish("demo/a", "old"), 0, 1)
        async with following_of(relay, track="", startingOffsets="latest") as made:
            start = await made.begin()
            assert [track.name for track in start] == [b"old"]
            await write(await session.publish("demo/b", "new"), 0, 1, 2)
            found = await reaches(made, old=0, new=3)
            assert len(found) == 2


@pytest.fixture
def _three_tracks_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "TRACKS_PER_SESSION", 3)


@pytest.mark.usefixtures("_three_tracks_each")
@on_loop
async def test_many_tracks_share_sessions() -> None:
    async with relaying() as relay, laps.connect(url_of(relay)) as session:
        for number in range(8):
            await write(await session.publish("demo", f"t{number}"), 0)
        async with following_of(relay, track="", startingOffsets="earliest") as made:
            await made.begin()
            assert len(made.latest({}, None)) == 8
            assert len(made._connections) == 3


@on_loop
async def test_the_next_relay_goes_on_where_the_first_was_lost() -> None:
    async with (
        relaying() as origin,
        relaying(origin) as one,
        relaying(origin) as other,
        laps.connect(url_of(origin)) as session,
    ):
        track = await session.publish("demo", "t", first_group=0)
        await write(track, *range(10))
        async with following_of(one, other, startingOffsets="earliest") as made:
            await made.begin()
            await reaches(made, t=10)
            assert await lose(made) == url_of(one)
            await write(track, *range(10, 30))
            assert to_json(await reaches(made, t=30)) == {"demo t": [5, 5, 30]}
            assert made.counters() == {"late": 0, "skipped": 0}
            assert await lose(made) == url_of(other)


@on_loop
async def test_relays_that_are_all_gone_are_an_error_in_time() -> None:
    async with laps_with_track() as (relay, _):
        made = Following(options(relay, wait_s="1", startingOffsets="earliest"))
        await made.begin()
        await relay.close()
        await lose(made)
        await until(lambda: made._error is not None)
        with pytest.raises(HandshakeFailed, match=f"no relay answers: {url_of(relay)}"):
            made.check()
        await made.close()


@asynccontextmanager
async def laps_with_track() -> AsyncIterator[tuple[Runner, Track]]:
    async with relaying() as relay:
        async with laps.connect(url_of(relay), reconnect=False) as session:
            track = await session.publish("demo", "t", first_group=0)
            await write(track, *range(10))
            await session.close()
        yield relay, track


@pytest.fixture
def _lossy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the driver is slow, and its relay drops what waits for it."""
    losing(monkeypatch, lambda item: item.id in (2, 3) or item.group == 2)


@pytest.mark.usefixtures("_lossy")
@on_loop
async def test_what_the_subscription_loses_is_fetched() -> None:
    async with relaying() as relay, laps.connect(url_of(relay)) as session:
        track = await session.publish("demo", "t", first_group=0)
        await write(track, 0)
        async with following_of(relay, startingOffsets="earliest") as made:
            await made.begin()
            await write(track, *range(1, 25))
            assert to_json(await reaches(made, t=25)) == {"demo t": [4, 5, 25]}


def losing(monkeypatch: pytest.MonkeyPatch, lost: Callable[[Object], bool]) -> None:
    original = Subscription.some

    async def some(self: Subscription, *bounds: int) -> list[Object]:
        while items := await original(self, *bounds):
            if kept := [item for item in items if not lost(item)]:
                return kept
        return []

    monkeypatch.setattr(Subscription, "some", some)


@pytest.fixture
def _refused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a relay ends a subscription that is too far behind."""
    original, refusals = Subscription.some, [RequestRefused("the rest", 6, "too far behind")]

    async def some(self: Subscription, *bounds: int) -> list[Object]:
        items = await original(self, *bounds)
        if items and refusals:
            raise refusals.pop()
        return items

    monkeypatch.setattr(Subscription, "some", some)


@pytest.mark.usefixtures("_refused_once")
@on_loop
async def test_a_subscription_that_is_ended_is_followed_by_another() -> None:
    async with relaying() as relay, laps.connect(url_of(relay)) as session:
        track = await session.publish("demo", "t", first_group=0)
        await write(track, 0)
        async with following_of(relay, startingOffsets="earliest") as made:
            await made.begin()
            await write(track, *range(1, 20))
            assert to_json(await reaches(made, t=20)) == {"demo t": [3, 5, 20]}


@on_loop
async def test_what_comes_late_is_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async with relaying() as relay, laps.connect(url_of(relay)) as session:
        track = await session.publish("demo", "t", first_group=0)
        first = track.group(0, 0, last=False)
        await first.write(b"a", object_id=0)
        async with following_of(relay, startingOffsets="earliest") as made:
            await made.begin()
            await first.write(b"c", object_id=2)
            await reaches(made, t=2)
            await track.group(0, 1, last=False).write(b"b", object_id=1)
            await until(lambda: made.counters()["late"] == 1)
            assert to_json(made.latest({}, None)) == {"demo t": [0, 3, 2]}
            assert "demo t: object (0, 1) came when the query was at (0, 3)" in caplog.text


@on_loop
async def test_a_query_that_stands_still_sees_nothing_that_came_later() -> None:
    async with relaying() as relay, laps.connect(url_of(relay)) as session:
        track = await session.publish("demo/a", "t", first_group=0)
        await write(track, *range(7))
        async with following_of(relay, track="", startingOffsets="earliest") as made:
            await made.stand_still()
            await write(track, *range(7, 20))
            await write(await session.publish("demo/b", "u"), 0)
            await made.begin()
            await reaches(made, t=7)
            assert to_json(made.latest({}, 5)) == {"demo/a t": [0, 5, 5]}
            end = made.latest({}, None)
            assert made.latest(end, None) == end


@on_loop
async def test_a_track_that_has_ended_is_read_and_waited_for() -> None:
    async with (
        laps_with_track() as (relay, _),
        following_of(relay, startingOffsets="earliest") as made,
        laps.connect(url_of(relay)) as session,
    ):
        await made.begin()
        await reaches(made, t=10)
        await write(await session.publish("demo", "t", first_group=9), 0, 1)
        await reaches(made, t=12)


@on_loop
async def test_a_track_that_nobody_publishes_is_an_error_unless_it_was_read_before() -> None:
    async with relaying() as relay:
        async with following_of(relay, wait_s="0.1") as made:
            with pytest.raises(LapsError, match='track "demo t" is not known'):
                await made.begin()
        async with following_of(relay, wait_s="0.1") as made:
            start = {TRACK: Position(Location(5, 0), 100)}
            await made.resume(start)
            assert made.latest(start, None) == start


# -- ranges ----------------------------------------------------------------------------------------


async def read(
    said: ReadOptions, wanted: Range, connection: Connection | None = None
) -> list[tuple[int, int]]:
    made = connection or Connection(said.relays, said.trust)
    try:
        found = RangeReader(said, wanted, made).objects()
        return [item.location async for items in found for item in items]
    finally:
        await made.close()


def whole(*groups: int, each: int = 5) -> list[tuple[int, int]]:
    return [(group, number) for group in groups for number in range(each)]


@on_loop
async def test_a_range_is_read() -> None:
    async with relaying() as relay, laps.connect(url_of(relay)) as session:
        await write(await session.publish("demo", "t", first_group=0), *range(20))
        await settled(relay, Location(3, 4))
        said = options(relay)
        assert await read(said, span((1, 0), (2, 0), 5)) == whole(1)
        assert await read(said, span((0, 3), (2, 1), 8)) == [(0, 3), (0, 4), *whole(1), (2, 0)]
        assert await read(said, span((2, 0), (2, 0), 0)) == []


def span(start: tuple[int, int], end: tuple[int, int], count: int | None, **more: Any) -> Range:
    return Range(TRACK, Location(*start), Location(*end), count, **more)


async def settled(relay: Runner, largest: Location) -> None:
    def has_come() -> bool:
        live = relay.relay.tracks
        return any(track.largest() == largest for track in live)

    await until(has_come)


@on_loop
async def test_objects_that_no_relay_has_are_lost_and_said_to_be() -> None:
    async with relaying() as relay, laps.connect(url_of(relay)) as session:
        await write(await session.publish("demo", "t", first_group=0), *range(10))
        await settled(relay, Location(1, 4))
        with pytest.raises(DataLost) as caught:
            await read(options(relay), span((0, 0), (2, 0), 12))
        assert (
            'objects of track "demo t" are lost: from (0, 0) up to (2, 0) was to be read, and '
            "relays hold 10 objects of it, and there were 12"
        ) in str(caught.value)
        lenient = options(relay, failOnDataLoss="false")
        assert await read(lenient, span((0, 0), (2, 0), 12)) == whole(0, 1)


@on_loop
async def test_what_one_relay_lacks_another_has() -> None:
    async with (
        relaying(cache_bytes=65536) as small,
        relaying(small) as large,
        laps.connect(url_of(small)) as session,
        following_of(large, startingOffsets="earliest") as made,
    ):
        track = await session.publish("demo", "t", first_group=0, history_bytes=0)
        await track.write(b"0")
        await made.begin()
        for number in range(1, 200):
            await track.write(bytes(1000), new_group=number % 5 == 0)
        await reaches(made, t=200)
        # It has let go what was early, and the other has not.
        with pytest.raises(DataLost):
            await read(options(small), span((0, 0), (40, 0), 200))
        places = await read(options(small, large), span((0, 0), (40, 0), 200))
        assert sorted(places) == whole(*range(40))


@on_loop
async def test_a_relay_that_is_lost_in_the_middle_is_followed_by_the_next() -> None:
    async with relaying() as one, relaying(one) as other, laps.connect(url_of(one)) as session:
        track = await session.publish("demo", "t", first_group=0)
        for number in range(2000):
            await track.write(bytes(5000), new_group=number % 500 == 0)
        await settled(one, Location(3, 499))
        said = options(one, other)
        connection = Connection(said.relays, said.trust)
        found: list[tuple[int, int]] = []
        relays = set()
        reader = RangeReader(said, span((0, 0), (3, 500), 2000), connection)
        async for items in reader.objects():
            if not found:
                assert await lose(connection) == url_of(one)
            found += [item.location for item in items]
            relays.add(reader.relay)
        await connection.close()
        assert found == whole(0, 1, 2, 3, each=500)
        assert relays == {url_of(one), url_of(other)}


@on_loop
async def test_relays_that_are_all_gone_cost_the_task() -> None:
    with pytest.raises(HandshakeFailed, match="no relay answers"):
        await read(options(NOBODY, wait_s="0"), span((0, 0), (1, 0), 1))
