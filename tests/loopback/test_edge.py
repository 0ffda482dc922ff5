"""Clients at several relays, over real QUIC: what reaches whom, and what a relay does about it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

import pytest

import laps
from laps.client import Location, RequestRefused
from laps.config import QuicConfig
from laps.net.quic import Endpoint
from laps.net.tls import Trust
from laps.wire.moqt.codes import SessionCode
from laps.wire.quicr.codes import QuicrCode
from support.engines import Recorder
from support.loopback import on_loop, until
from support.runners import start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from laps.client import Object, Session, Subscription
    from laps.net.runner import Runner
    from laps.tracks.track import Track
    from laps.types import TrackName

ROOM, NAME = "conference/room", "camera"


class Lab:
    """Relays and sessions that are closed at the end, whatever happens."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._relays = 0

    def relay(self, *peers: Runner, role: str = "edge", **settings: Any) -> Runner:
        self._relays += 1
        settings = {"node__type": role, "clients__drain_s": 0.5, **settings}
        return start(self._stack, f"8:{self._relays}", *peers, **settings)

    async def line(self, *roles: str, **settings: Any) -> list[Runner]:
        """Relays in a row, each of which knows the way to all."""
        relays: list[Runner] = []
        for role in roles:
            relays.append(self.relay(*relays[-1:], role=role, **settings))
        inner = [relay for relay in relays if relay.config.node.type != "stub"]
        for relay in inner:
            others = {other.relay.id for other in inner if other is not relay}
            await until(lambda relay=relay, others=others: others <= set(known(relay)))  # type: ignore[misc]
        for relay in relays:
            if relay.config.node.type == "stub":
                await until(lambda relay=relay: bool(relay.relay.peers))  # type: ignore[misc]
        return relays

    async def session(self, relay: Runner, **options: Any) -> Session:
        return await self._stack.enter_async_context(
            laps.connect(f"moqt://{relay.client_address}", **options)
        )


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


async def take(subscription: Subscription, count: int) -> list[Object]:
    return [await anext(subscription) for _ in range(count)]


def places(objects: list[Object]) -> list[tuple[int, int]]:
    return [(item.group, item.id) for item in objects]


@pytest.mark.parametrize(
    "roles", [("edge",), ("edge", "edge"), ("edge", "via", "edge"), ("edge", "via", "edge", "stub")]
)
@on_loop
async def test_a_track_passes_from_its_first_object_to_its_end(roles: tuple[str, ...]) -> None:
    """The subscriber is first, and waits."""
    async with lab() as net:
        relays = await net.line(*roles, relay__reflect=True)
        reader = await net.session(relays[-1])
        subscription = reader.subscribe(ROOM, NAME, start="start")
        writer = await net.session(relays[0])
        track = await writer.publish(ROOM, NAME, first_group=0)
        for number in range(20):
            await track.write(b"%d" % number, new_group=number % 5 == 0)
        await track.end()
        found = [item async for item in subscription]
        assert places(found) == [(n // 5, n % 5) for n in range(20)]
        assert [item.payload for item in found] == [b"%d" % n for n in range(20)]


@pytest.mark.parametrize("roles", [("edge", "edge"), ("edge", "via", "edge", "stub")])
@on_loop
async def test_a_late_subscriber_far_away_gets_the_group_that_is_open(
    roles: tuple[str, ...],
) -> None:
    async with lab() as net:
        relays = await net.line(*roles, relay__reflect=True)
        writer = await net.session(relays[0])
        track = await writer.publish(ROOM, NAME, first_group=7)
        await track.write(b"old", new_group=True)
        for _ in range(3):
            await track.write(b"early")
        first = await net.session(relays[0])
        await until(lambda: kept(relays[0], track).largest() == (7, 3))
        far = await net.session(relays[-1])
        whole, latest = far.subscribe(ROOM, NAME, start="start"), first.subscribe(ROOM, NAME)
        assert (await whole.established()).largest == Location(7, 3)
        await latest.established()
        await track.write(b"new")
        assert places(await take(whole, 5)) == [(7, n) for n in range(5)]
        assert places(await take(latest, 1)) == [(7, 4)]


@on_loop
async def test_namespaces_of_every_relay_are_seen_at_every_other() -> None:
    async with lab() as net:
        relays = await net.line("edge", "via", "edge", "stub", relay__reflect=True)
        edge, _, far, stub = relays
        readers = [(await net.session(relay)).namespaces("conference") for relay in (edge, stub)]
        writer = await net.session(far)
        await writer.publish("conference/far", NAME)
        at_stub = await net.session(stub)
        await at_stub.publish("conference/home", NAME)
        seen = [
            {(await anext(events)).namespace, (await anext(events)).namespace} for events in readers
        ]
        far_name, home = (b"conference", b"far"), (b"conference", b"home")
        assert seen[0] == {far_name, home}
        assert seen[1] == {far_name, home}
        await writer.close()
        for events in readers:
            gone = await anext(events)
            assert (gone.namespace, gone.added) == (far_name, False)


@pytest.mark.parametrize("roles", [("edge",), ("edge", "via", "edge"), ("edge", "edge", "stub")])
@on_loop
async def test_a_range_that_no_relay_has_comes_from_the_publisher_once(
    roles: tuple[str, ...],
) -> None:
    async with lab() as net:
        relays = await net.line(*roles, relay__reflect=True, cache__bytes=0)
        writer = await net.session(relays[0])
        track = await writer.publish(ROOM, NAME, first_group=0)
        for number in range(6):
            await track.write(b"%d" % number, new_group=number % 2 == 0)
        reader = await net.session(relays[-1])
        await until(lambda: kept(relays[0], track).largest() == (2, 1))

        async def fetch() -> list[tuple[int, int]]:
            whole = reader.fetch(ROOM, NAME, start=(0, 0), end=(1, 0))
            return places([item async for item in whole])

        both = await asyncio.gather(fetch(), fetch())
        assert list(both) == [[(0, 0), (0, 1), (1, 0), (1, 1)]] * 2
        counters = relays[-1].edge.fetches.counters
        assert (counters.errands, counters.shared) == (1, 1)


@on_loop
async def test_what_a_relay_has_is_not_asked_for_again() -> None:
    async with lab() as net:
        near, far = await net.line("edge", "edge")
        writer = await net.session(near)
        track = await writer.publish(ROOM, NAME, first_group=0)
        reader = await net.session(far)
        subscription = reader.subscribe(ROOM, NAME, start="start")
        await subscription.established()
        for number in range(6):
            await track.write(b"%d" % number, new_group=number % 2 == 0)
        await take(subscription, 6)
        found = [item async for item in reader.fetch(ROOM, NAME, start=(0, 1), end=(1, 0))]
        assert places(found) == [(0, 1), (1, 0), (1, 1)]
        assert far.edge.fetches.counters.errands == 0


@on_loop
async def test_a_slow_subscriber_loses_old_groups_and_slows_nobody() -> None:
    """It falls behind within its bound; past it the oldest groups go, and it goes on later."""
    size, groups = 64 * 1024, 500  # twice what QUIC's windows let through unread
    async with lab() as net:
        (relay,) = await net.line(
            "edge", egress__queue_bytes=1 << 20, egress__pressure_bytes=1 << 18
        )
        writer = await net.session(relay)
        quick = (await net.session(relay)).subscribe(ROOM, NAME, start="start")
        # Patient: on a busy machine the rest of a group may take longer than a second.
        slow = (await net.session(relay)).subscribe(
            ROOM, NAME, start="start", buffer_bytes=1 << 16, patience_s=30.0
        )
        track = await writer.publish(ROOM, NAME, first_group=0)
        await slow.established()
        reading = asyncio.ensure_future(take(quick, groups))
        for _ in range(groups):
            await track.write(bytes(size), new_group=True)
            await asyncio.sleep(0)
        assert places(await reading) == [(n, 0) for n in range(groups)]
        dropped = [link.egress.counters for link in relay.clients.connections]
        assert sum(counters.overflowed_streams for counters in dropped) > 0
        queued = [link.egress.queued_bytes for link in relay.clients.connections]
        assert max(queued) <= 1 << 20
        await track.end()
        found = [item.group async for item in slow]
        assert found == sorted(set(found))
        assert found[-1] == groups - 1
        assert len(found) < groups


@on_loop
async def test_an_unpaced_publisher_waits_for_the_relay_and_nothing_is_lost() -> None:
    size, count, readers = 64 * 1024, 400, 4
    async with lab() as net:
        (relay,) = await net.line("edge")
        subscriptions = [
            (await net.session(relay)).subscribe(ROOM, NAME, start="start") for _ in range(readers)
        ]
        writer = await net.session(relay)
        track = await writer.publish(ROOM, NAME, first_group=0, history_bytes=0)
        for subscription in subscriptions:
            await subscription.established()
        reading = asyncio.gather(*(take(subscription, count) for subscription in subscriptions))
        for _ in range(count):
            await track.write(bytes(size), new_group=True)
        for found in await reading:
            assert places(found) == [(n, 0) for n in range(count)]


@on_loop
async def test_a_publisher_that_comes_back_is_heard_by_those_who_stayed() -> None:
    async with lab() as net:
        near, far = await net.line("edge", "edge")
        subscription = (await net.session(far)).subscribe(ROOM, NAME, start="start")
        for first_group in (10, 20, 30):
            writer = await net.session(near)
            track = await writer.publish(ROOM, NAME, first_group=first_group)
            await track.write(b"here", new_group=True)
            assert places(await take(subscription, 1)) == [(first_group, 0)]
            await writer.close(end_tracks=False)
            live = kept(near, track)
            await until(lambda live=live: not live.answering)  # type: ignore[misc]


@on_loop
async def test_several_publishers_of_one_track_are_one_to_its_subscribers() -> None:
    async with lab() as net:
        near, far = await net.line("edge", "edge")
        tracks = [
            await (await net.session(relay)).publish(ROOM, NAME, first_group=0)
            for relay in (near, far)
        ]
        subscription = (await net.session(far)).subscribe(ROOM, NAME, start="start")
        await subscription.established()
        for _ in range(10):
            for track in tracks:
                await track.write(b"the same", new_group=True)
        assert places(await take(subscription, 10)) == [(n, 0) for n in range(10)]


@on_loop
async def test_a_client_reads_its_own_track_back() -> None:
    async with lab() as net:
        (relay,) = await net.line("edge")
        session = await net.session(relay)
        subscription = session.subscribe(ROOM, NAME, start="start")
        track = await session.publish(ROOM, NAME, first_group=0, push=False)
        await subscription.established()
        await track.write(b"echo", new_group=True)
        assert places(await take(subscription, 1)) == [(0, 0)]


@on_loop
async def test_a_relay_that_stops_sends_its_clients_to_another() -> None:
    async with lab() as net:
        near = net.relay()
        going = net.relay(near, clients__redirect=str(near.client_address))
        await until(lambda: bool(near.relay.peers))
        writer = await net.session(near)
        track = await writer.publish(ROOM, NAME, first_group=0)
        reader = await net.session(going)
        subscription = reader.subscribe(ROOM, NAME, start="start")
        await subscription.established()
        found: list[Object] = []
        leaving: asyncio.Future[None] | None = None
        for number in range(60):
            await track.write(b"%d" % number, new_group=number % 5 == 0)
            found += await take(subscription, 1)
            if number == 20:
                leaving = asyncio.ensure_future(going.close())
        assert places(found) == [(n // 5, n % 5) for n in range(60)]
        assert leaving is not None
        await leaving
        await track.write(b"after it is gone")
        assert places(await take(subscription, 1)) == [(11, 5)]


@on_loop
async def test_a_track_that_nobody_publishes_is_refused_after_a_while() -> None:
    async with lab() as net:
        near, _ = await net.line("edge", "edge", clients__subscribe_wait_s=0.05)
        session = await net.session(near)
        with pytest.raises(RequestRefused, match="nobody publishes"):
            await session.subscribe(ROOM, NAME, wait=False).established()
        with pytest.raises(RequestRefused):
            await session.track_status(ROOM, NAME)
        with pytest.raises(RequestRefused):
            _ = [item async for item in session.fetch(ROOM, NAME, end=(1, 0))]


@on_loop
async def test_the_end_of_a_track_is_heard_at_every_relay() -> None:
    async with lab() as net:
        relays = await net.line("edge", "via", "edge", "stub", relay__reflect=True)
        writer = await net.session(relays[0])
        track = await writer.publish(ROOM, NAME, first_group=0)
        subscriptions = []
        for relay in (relays[0], relays[2], relays[3]):
            subscription = (await net.session(relay)).subscribe(ROOM, NAME, start="start")
            await subscription.established()
            subscriptions.append(subscription)
        await track.write(b"last", new_group=True)
        await track.end()
        for subscription in subscriptions:
            assert places([item async for item in subscription]) == [(0, 0)]


@pytest.mark.parametrize("alpn", ["moqt-16", "moq-00", "h3", "quicr-01"])
@on_loop
async def test_a_connection_that_never_becomes_a_session_is_closed(alpn: str) -> None:
    async with lab() as net:
        relay = net.relay(quic__handshake_timeout_s=0.1)
        assert relay.client_address is not None
        dialler = Endpoint.dialler("127.0.0.1", QuicConfig())
        address = relay.client_address
        try:
            connection = await dialler.connect(
                address.host, address.port, [alpn], Trust(anyone=True), lambda _: Recorder()
            )
            close = await connection.wait_closed()
            assert close.by_peer
            codes = {"h3": 0x100, "quicr-01": QuicrCode.SILENT}
            assert close.code == codes.get(alpn, SessionCode.CONTROL_MESSAGE_TIMEOUT)
        finally:
            await dialler.close(0, "")


@on_loop
async def test_a_range_larger_than_any_queue_comes_whole_from_another_relay() -> None:
    size, count = 64 * 1024, 320
    async with lab() as net:
        near, far = await net.line("edge", "edge", egress__queue_bytes=1 << 21)
        writer = await net.session(near)
        track = await writer.publish(ROOM, NAME, first_group=0, history_bytes=0)
        for _ in range(count):
            await track.write(bytes(size), new_group=True)
        await until(lambda: kept(near, track).largest() == (count - 1, 0))
        reader = await net.session(far)
        whole = [item async for item in reader.fetch(ROOM, NAME, start=(0, 0), end=(count - 1, 0))]
        assert places(whole) == [(n, 0) for n in range(count)]
        assert {len(item.payload) for item in whole} == {size}
