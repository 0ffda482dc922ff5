"""The client library in QUICR with real relays: what comes where, and what happens in between."""

from __future__ import annotations

import asyncio
import re
import textwrap
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

import pytest

import laps
from laps.client import Location, RequestRefused
from laps.config import Config, override
from laps.errors import ConfigError, HandshakeFailed, LapsError
from laps.net.runner import Runner
from laps.wire.quicr.codes import QuicrCode
from support.loopback import on_loop, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from laps.client import Object
    from laps.tracks.track import Track
    from laps.types import Address, TrackName

ROOM, NAME = "conference/room", "camera"
PAGE = Path(__file__).parents[2] / "docs" / "client.md"

# Empty, one byte, one more than a datagram between relays takes, several fragments, many.
SIZES = (0, 1, 1_081, 70_000, 1_000_000)


class Lab:
    """Relays and sessions that are closed at the end, whatever happens."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._relays = 0

    def relay(
        self, *peers: Runner, redirect: Address | None = None, port: int = 0, **settings: Any
    ) -> Runner:
        self._relays += 1
        values: dict[str, Any] = {
            "node.id": f"9:{self._relays}",
            "peering.listen": "127.0.0.1:0",
            "clients.listen": f"127.0.0.1:{port}",
            "peering.peers": [str(peer.peer_address) for peer in peers],
            "relay.node_advertise_s": 0.05,
            "relay.unsubscribe_s": 0.1,
            "relay.drain_s": 0.05,
            "clients.drain_s": 1.0,
            "discovery.enabled": False,
            **{key.replace("__", "."): value for key, value in settings.items()},
        }
        if redirect is not None:
            values["clients.redirect"] = str(redirect)
        runner = Runner(override(Config(), values, "test"))
        self._stack.push_async_callback(runner.close)
        return runner

    async def line(self, count: int, **settings: Any) -> list[Runner]:
        """Relays in a row, each of which knows the way to all."""
        relays: list[Runner] = []
        for _ in range(count):
            relays.append(self.relay(*relays[-1:], **settings))
        for relay in relays:
            others = {other.relay.id for other in relays if other is not relay}
            await until(lambda relay=relay, others=others: others <= set(known(relay)))  # type: ignore[misc]
        return relays

    async def session(self, relay: Runner, scheme: str = "quicr", **options: Any) -> Any:
        url = f"{scheme}://{relay.client_address}"
        return await self._stack.enter_async_context(laps.connect(url, **options))


class Named(Protocol):
    """A track of an application's."""

    @property
    def full_name(self) -> TrackName: ...


def kept(relay: Runner, track: Named) -> Track:
    """What a relay has of a track."""
    return relay.edge.context.track(track.full_name, monotonic())


def known(relay: Runner) -> list[object]:
    nodes = relay.relay.nodes
    return [node_id for node_id in nodes if nodes.best(node_id) is not None]


@asynccontextmanager
async def lab() -> AsyncIterator[Lab]:
    async with AsyncExitStack() as stack:
        yield Lab(stack)


async def begun(relay: Runner, count: int) -> None:
    """So many subscriptions at a relay have found their tracks."""

    def found() -> int:
        clients = relay.edge.clients
        return sum(
            one.is_established for client in clients for one in client.subscriptions.values()
        )

    await until(lambda: found() == count)


async def take(subscription: Any, count: int) -> list[bytes]:
    return [(await anext(subscription)).payload for _ in range(count)]


async def rest(subscription: Any) -> list[Object]:
    return [item async for item in subscription]


def payload(size: int) -> bytes:
    return (bytes(range(256)) * (size // 256 + 1))[:size]


def numbered(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


async def put(track: Any, *numbers: int, every: int = 5, pause_s: float = 0.0) -> None:
    """Objects in the way that the track was published for."""
    write = track.datagram if getattr(track, "datagrams", False) else track.write
    for number in numbers:
        await write(b"%d" % number, new_group=number % every == 0)
        if pause_s:
            await asyncio.sleep(pause_s)


modes = pytest.mark.parametrize("datagrams", [False, True], ids=["stream", "datagrams"])


# -- from one protocol to the other ----------------------------------------------------------------


@pytest.mark.parametrize("relays", [1, 3])
@pytest.mark.parametrize("in_datagrams", [False, True], ids=["stream", "datagrams"])
@on_loop
async def test_what_quicr_publishes_reaches_everybody(relays: int, in_datagrams: bool) -> None:
    async with lab() as net:
        line = await net.line(relays)
        stream = (await net.session(line[-1])).subscribe(ROOM, NAME, start="start")
        pieces = (await net.session(line[-1])).subscribe(
            ROOM, NAME, start="start", datagrams=True, patience_s=5.0
        )
        moqt = (await net.session(line[-1], "moqt")).subscribe(ROOM, NAME, start="start")
        await stream.established()
        await pieces.established()
        writer = await net.session(line[0])
        track = await writer.publish(ROOM, NAME, datagrams=in_datagrams)
        write = track.datagram if in_datagrams else track.write
        sent: dict[Location, bytes] = {}
        for number, size in enumerate(SIZES):
            sent[await write(payload(size), new_group=number % 2 == 0)] = payload(size)
            for reader in (stream, pieces, moqt):
                item = await anext(reader)
                assert (len(item.payload), item.payload) == (size, sent[item.location])
        await track.end()
        for reader in (stream, pieces, moqt):
            assert await rest(reader) == []
        assert pieces.lost == 0


@pytest.mark.parametrize("relays", [1, 3])
@pytest.mark.parametrize("scheme", ["moqt", "https"])
@on_loop
async def test_what_moqt_publishes_reaches_quicr(relays: int, scheme: str) -> None:
    async with lab() as net:
        line = await net.line(relays)
        stream = (await net.session(line[-1])).subscribe(ROOM, NAME, start="start")
        pieces = (await net.session(line[-1])).subscribe(
            ROOM, NAME, start="start", datagrams=True, patience_s=5.0
        )
        await stream.established()
        await pieces.established()
        writer = await net.session(line[0], scheme)
        track = await writer.publish(ROOM, NAME)
        sent: dict[Location, bytes] = {}
        for number, size in enumerate(SIZES):
            sent[await track.write(payload(size), new_group=number % 2 == 0)] = payload(size)
            for reader in (stream, pieces):
                item = await anext(reader)
                assert (len(item.payload), item.payload) == (size, sent[item.location])
        sent[await track.datagram(b"in a datagram")] = b"in a datagram"
        for reader in (stream, pieces):
            item = await anext(reader)
            assert item.payload == sent[item.location] == b"in a datagram"
        await track.end()
        for reader in (stream, pieces):
            assert await rest(reader) == []


@modes
@on_loop
async def test_many_objects_at_a_moderate_rate_come_completely_and_in_order(
    datagrams: bool,
) -> None:
    async with lab() as net:
        near, _, far = await net.line(3)
        reader = await net.session(far)
        objects = reader.subscribe(ROOM, NAME, start="start", datagrams=datagrams)
        await objects.established()
        track = await (await net.session(near)).publish(ROOM, NAME, datagrams=datagrams)
        for first in range(0, 600, 20):
            await put(track, *range(first, first + 20), every=20)
            await asyncio.sleep(0.02)
        await track.end()
        assert [item.payload for item in await rest(objects)] == numbered(*range(600))
        assert objects.lost == 0


# -- where a subscription begins -------------------------------------------------------------------


@pytest.mark.parametrize("relays", [1, 3])
@modes
@on_loop
async def test_a_subscription_begins_where_it_says(relays: int, datagrams: bool) -> None:
    async with lab() as net:
        line = await net.line(relays)
        track = await (await net.session(line[0])).publish(
            ROOM, NAME, first_group=3, datagrams=datagrams
        )
        await put(track, *range(12))  # groups 3 and 4, and two objects of group 5
        near = kept(line[0], track)
        await until(lambda: near.largest() == (5, 1))

        async def subscribe(start: Any) -> Any:
            session = await net.session(line[-1])
            return session.subscribe(ROOM, NAME, start=start, datagrams=datagrams)

        everything, place = await subscribe("start"), await subscribe(Location(4, 3))
        latest, following = await subscribe("latest"), await subscribe("next")
        assert await take(everything, 12) == numbered(*range(12))
        assert await take(place, 4) == numbered(8, 9, 10, 11)
        await begun(line[-1], 4)  # they are granted at once, and begin when the track is found
        await put(track, *range(12, 20))
        assert await take(latest, 8) == numbered(*range(12, 20))
        assert await take(following, 5) == numbered(*range(15, 20))
        assert await take(everything, 8) == numbered(*range(12, 20))
        assert await take(place, 8) == numbered(*range(12, 20))
        await track.end()
        for reader in (everything, place, latest, following):
            assert await rest(reader) == []


@modes
@on_loop
async def test_what_is_left_of_a_track_that_has_ended_can_be_read(datagrams: bool) -> None:
    async with lab() as net:
        (relay,) = await net.line(1)
        writer, reader = await net.session(relay), await net.session(relay)
        track = await writer.publish(ROOM, NAME, datagrams=datagrams)
        await put(track, *range(12))
        await track.end()
        objects = reader.subscribe(ROOM, NAME, start="start", datagrams=datagrams)
        assert [item.payload for item in await rest(objects)] == numbered(*range(12))


# -- its end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("relays", [1, 3])
@pytest.mark.parametrize("reading", [False, True], ids=["to-stream", "to-datagrams"])
@modes
@on_loop
async def test_the_end_comes_though_the_publisher_leaves_at_once(
    datagrams: bool, reading: bool, relays: int
) -> None:
    async with lab() as net:
        line = await net.line(relays)
        objects = (await net.session(line[-1])).subscribe(
            ROOM, NAME, start="start", datagrams=reading, markers=True
        )
        empty = (await net.session(line[-1])).subscribe(ROOM, "empty", datagrams=reading)
        for reader in (objects, empty):
            await reader.established()
        async with laps.connect(f"quicr://{line[0].client_address}") as writer:
            track: Any = await writer.publish(ROOM, NAME, datagrams=datagrams)  # type: ignore[call-arg]
            await writer.publish(ROOM, "empty", datagrams=datagrams)  # type: ignore[call-arg]
            await begun(line[-1], 2)
            await put(track, *range(7))
        *got, end = await rest(objects)
        assert [item.payload for item in got] == numbered(*range(7))
        assert end.status
        assert await rest(empty) == []


# -- masks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("relays", [1, 3])
@modes
@on_loop
async def test_all_tracks_below_a_prefix(relays: int, datagrams: bool) -> None:
    async with lab() as net:
        line = await net.line(relays)
        writer, other = await net.session(line[0]), await net.session(line[0], "moqt")
        early = await writer.publish("hall/a", "early", datagrams=datagrams)
        await put(early, 0, 1, 2)
        await writer.publish("elsewhere", "t", datagrams=False)
        reader = await net.session(line[-1])
        tracks = reader.subscribe_all("hall", start="start", datagrams=datagrams)
        first = await anext(tracks)
        assert first.track.name == b"early"
        assert await take(first, 3) == numbered(0, 1, 2)
        late = await other.publish("hall/b/c", "late")
        await put(late, 0, 1, 2)
        second = await anext(tracks)
        assert second.track.namespace == (b"hall", b"b", b"c")
        assert await take(second, 3) == numbered(0, 1, 2)
        await put(early, 3, 4)
        assert await take(first, 2) == numbered(3, 4)
        await early.end()
        assert await rest(first) == []
        again = await writer.publish("hall/a", "early", datagrams=datagrams)
        third = await anext(tracks)
        await put(again, 5)
        assert await take(third, 1) == numbered(5)
        tracks.close()
        assert await rest(second) == []


@on_loop
async def test_a_mask_over_binary_names() -> None:
    async with lab() as net:
        (relay,) = await net.line(1)
        writer, reader = await net.session(relay), await net.session(relay)
        base = bytes(range(200, 216))
        tracks = reader.subscribe_all(name=base, mask=8, start="start")
        await tracks.established()
        inside = await writer.publish("quicr", (base[:-1] + b"\x00").hex())
        outside = await writer.publish("quicr", (base[:-2] + b"\x00\x00").hex())
        await put(outside, 0)
        await put(inside, 1)
        found = await anext(tracks)
        assert found.track == inside.full_name
        assert await take(found, 1) == numbered(1)


# -- as long as it lasts ---------------------------------------------------------------------------


@modes
@on_loop
async def test_what_expires_is_subscribed_to_again_and_misses_nothing(datagrams: bool) -> None:
    """The library renews every five seconds: here that is too late."""
    async with lab() as net:
        (relay,) = await net.line(1, quicr__subscription_s=0.3)
        writer = await net.session(relay)
        track = await writer.publish(ROOM, NAME, datagrams=datagrams)
        await put(track, 0, 1, 2)
        await until(lambda: kept(relay, track).largest() is not None)
        reader = await net.session(relay)
        objects = reader.subscribe(ROOM, NAME, datagrams=datagrams)
        below = (await net.session(relay)).subscribe_all(ROOM, datagrams=datagrams)
        await objects.established()
        found = await anext(below)
        await begun(relay, 2)
        await put(track, *range(3, 40), pause_s=0.05)
        assert await take(objects, 37) == numbered(*range(3, 40))
        assert await take(found, 37) == numbered(*range(3, 40))
        assert relay.edge.quicr.expired >= 4


@on_loop
async def test_what_is_renewed_does_not_expire() -> None:
    async with lab() as net:
        (relay,) = await net.line(1, quicr__subscription_s=7.0)
        objects = (await net.session(relay)).subscribe(ROOM, NAME)
        await objects.established()
        await until(lambda: relay.edge.quicr.renewed > 1)  # ten seconds, and so past the seven
        assert relay.edge.quicr.expired == 0


@on_loop
async def test_a_publisher_that_begins_anew_is_heard_from_its_first_object() -> None:
    async with lab() as net:
        (relay,) = await net.line(1)
        objects = (await net.session(relay)).subscribe(ROOM, NAME)
        await objects.established()
        for text in (b"old", b"new"):
            url = f"quicr://{relay.client_address}"
            session = await laps.connect(url.replace("quicr", "moqt"))
            track = await session.publish(ROOM, NAME, first_group=7)
            for number in range(4):
                await track.write(text + b"%d" % number, new_group=number % 2 == 0)
            assert await take(objects, 4) == [text + b"%d" % number for number in range(4)]
            await session.close(end_tracks=False)
            live = kept(relay, track)
            await until(lambda live=live: not relay.edge.context.is_offered(live))  # type: ignore[misc]


# -- what is refused -------------------------------------------------------------------------------


@on_loop
async def test_names_are_refused_in_words() -> None:
    async with lab() as net:
        (relay,) = await net.line(1)
        session = await net.session(relay)
        for namespace, name in (((b"a/b",), b"c"), ("a", b"\xff"), ("a", ""), ("a", "x\n")):
            with pytest.raises(ConfigError, match="has no name in QUICR: connect with moqt://"):
                session.subscribe(namespace, name)
            with pytest.raises(ConfigError, match="has no name in QUICR"):
                await session.publish(namespace, name)
        with pytest.raises(ConfigError, match="the name has 128 bits"):
            session.subscribe_all(name=bytes(16), mask=129)


@on_loop
async def test_a_relay_that_has_enough_streams_says_so() -> None:
    async with lab() as net:
        (relay,) = await net.line(1, clients__requests=2)
        session = await net.session(relay)
        first = [session.subscribe(ROOM, f"t{number}") for number in range(2)]
        for objects in first:
            await objects.established()
        with pytest.raises(RequestRefused, match="streams are open: close some"):
            await anext(session.subscribe(ROOM, "t2"))
        track = await session.publish(ROOM, "t3")
        await track.write(b"sent ahead of the answer")
        with pytest.raises(RequestRefused, match="publishing conference/room t3 was refused"):
            await track.end()


@on_loop
async def test_a_relay_without_quicr_says_so() -> None:
    async with lab() as net:
        (relay,) = await net.line(1, quicr__enabled=False)
        with pytest.raises(HandshakeFailed, match="does not speak the protocol asked for"):
            await laps.connect(f"quicr://{relay.client_address}")


@on_loop
async def test_what_quicr_lacks_is_said() -> None:
    async with lab() as net:
        (relay,) = await net.line(1)
        session = await net.session(relay)
        with pytest.raises(LapsError, match=f"connect with moqt://{relay.client_address}"):
            session.fetch(ROOM, NAME)
        with pytest.raises(ConfigError, match="wait=False cannot be"):
            session.subscribe(ROOM, NAME, wait=False)


# -- slow readers ----------------------------------------------------------------------------------


@on_loop
async def test_a_slow_reader_holds_back_no_more_than_its_buffer() -> None:
    """The publisher is slowed down, or what is too much is dropped: it goes on where it can."""
    async with lab() as net:
        (relay,) = await net.line(1)
        slow = (await net.session(relay)).subscribe(
            ROOM, NAME, start="start", buffer_bytes=1_000_000
        )
        await slow.established()
        track = await (await net.session(relay)).publish(ROOM, NAME, history_bytes=0)

        async def write() -> None:
            for number in range(100):
                await track.write(b"%4d" % number + bytes(500_000), new_group=True)
            await track.end()

        writing = asyncio.ensure_future(write())
        await until(lambda: slow.buffer.bytes > 1_000_000)
        await asyncio.sleep(0.5)  # long enough for all 50 MB: they do not come
        assert slow.buffer.bytes < 6_000_000
        got = [int(item.payload[:4]) async for item in slow]
        await writing
        assert got == sorted(set(got))
        assert got[-1] == 99


@on_loop
async def test_a_slow_reader_slows_no_other_session() -> None:
    async with lab() as net:
        (relay,) = await net.line(1)
        slow = (await net.session(relay)).subscribe(ROOM, "slow", buffer_bytes=100_000)
        fast = (await net.session(relay)).subscribe(ROOM, NAME)
        for reader in (slow, fast):
            await reader.established()
        writer = await net.session(relay)
        flood = await writer.publish(ROOM, "slow", datagrams=True)
        track = await writer.publish(ROOM, NAME)
        for number in range(200):
            await flood.datagram(bytes(10_000))
            await track.write(b"%d" % number)
        assert await take(fast, 200) == numbered(*range(200))


# -- when relays go --------------------------------------------------------------------------------


@modes
@on_loop
async def test_a_relay_may_be_started_again(datagrams: bool) -> None:
    async with lab() as net:
        first = net.relay()
        assert first.client_address is not None
        here, there, latest = [await net.session(first) for _ in range(3)]
        objects = there.subscribe(ROOM, NAME, start="start", datagrams=datagrams)
        newest = latest.subscribe(ROOM, NAME, datagrams=datagrams)
        for reader in (objects, newest):
            await reader.established()
        track = await here.publish(ROOM, NAME, datagrams=datagrams)
        await put(track, *range(10))
        assert await take(objects, 10) == numbered(*range(10))
        assert await take(newest, 10) == numbered(*range(10))
        await first.close()
        second = net.relay(port=first.client_address.port)
        await until(lambda: all(s.connected for s in (here, there, latest)))
        await until(lambda: len(kept(second, track).subscribers) == 2)
        await put(track, *range(10, 20))
        assert await take(objects, 10) == numbered(*range(10, 20))
        assert await take(newest, 10) == numbered(*range(10, 20))
        await track.end()
        assert await rest(objects) == []
        assert await rest(newest) == []


@on_loop
async def test_a_session_that_was_closed_for_its_silence_can_still_publish() -> None:
    async with lab() as net:
        relay = net.relay(quic__handshake_timeout_s=0.1)
        session = await net.session(relay)
        await until(lambda: any(c.code == QuicrCode.SILENT for c in relay.closes.last))
        track = await session.publish(ROOM, NAME)
        objects = (await net.session(relay)).subscribe(ROOM, NAME, start="start")
        await put(track, *range(3))
        assert await take(objects, 3) == numbered(*range(3))
        assert relay.edge.counters.violations == 0


@on_loop
async def test_a_lost_connection_leaves_no_gap() -> None:
    """Of the publisher, and then of subscribers, while objects are published."""
    async with lab() as net:
        (relay,) = await net.line(1)
        here, there, latest = [await net.session(relay) for _ in range(3)]
        track = await here.publish(ROOM, NAME)
        await put(track, *range(10))
        objects = there.subscribe(ROOM, NAME, start="start")
        assert await take(objects, 10) == numbered(*range(10))
        newest, waiting = latest.subscribe(ROOM, NAME), latest.subscribe(ROOM, "quiet")
        for reader in (newest, waiting):
            await reader.established()
        await begun(relay, 2)  # nobody publishes the quiet one
        for number, session in enumerate((here, there, latest, here)):
            first = 10 + 20 * number
            await put(track, *range(first, first + 10))
            session._channel.transport.close(1, "test")
            await put(track, *range(first + 10, first + 20))
        await track.end()
        assert [item.payload for item in await rest(objects)] == numbered(*range(10, 90))
        assert [item.payload for item in await rest(newest)] == numbered(*range(10, 90))


@pytest.mark.parametrize("reading", [False, True], ids=["to-stream", "to-datagrams"])
@modes
@on_loop
async def test_a_relay_that_leaves_is_followed_without_a_gap(
    datagrams: bool, reading: bool
) -> None:
    async with lab() as net:
        second = net.relay()
        first = net.relay(second, redirect=second.client_address)
        await until(lambda: bool(first.relay.peers) and bool(second.relay.peers))
        here, there = await net.session(first), await net.session(first)
        objects = there.subscribe(ROOM, NAME, start="start", datagrams=reading)
        below = (await net.session(first)).subscribe_all(ROOM, start="start", datagrams=reading)
        await objects.established()
        track = await here.publish(ROOM, NAME, datagrams=datagrams)
        await put(track, *range(10))
        assert await take(objects, 10) == numbered(*range(10))
        found = await anext(below)
        closing = asyncio.ensure_future(first.close())
        await put(track, *range(10, 40), pause_s=0.01)
        await closing
        assert here.url != f"quicr://{second.client_address}"
        await put(track, *range(40, 60), pause_s=0.005)
        await track.end()
        assert [item.payload for item in await rest(objects)] == numbered(*range(10, 60))
        assert [item.payload for item in await rest(found)] == numbered(*range(60))
        assert objects.lost == 0


# -- the page for application developers -----------------------------------------------------------


@on_loop
async def test_every_quicr_example_of_the_page_works(capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 3
    async with lab() as net:
        (relay,) = await net.line(1)
        address = str(relay.client_address)
        for example in examples:
            code = example.replace("127.0.0.1:33435", address)
            names: dict[str, Any] = {}
            exec("async def run():\n" + textwrap.indent(code, "    "), names)
            await names["run"]()
    printed = capsys.readouterr().out
    assert "b'12:00:04'" in printed
