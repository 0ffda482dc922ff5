"""Control servers on real sockets: who hears of what, servers that die and come, nothing missed."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import laps
from laps.relay.servers import REPLICAS, responsible
from laps.types import TrackName, hash_track
from support.loopback import on_loop, until
from support.runners import start

if TYPE_CHECKING:
    from laps.net.runner import Runner

TRACKS = [f"{number}" for number in range(12)]
KEYS = {it: hash_track(TrackName((b"demo",), it.encode())).full_name_hash for it in TRACKS}


class Served:
    """Control servers, each peered with each, and edges on a via, each with one in its file."""

    def __init__(self, stack: AsyncExitStack, servers: int, edges: int) -> None:
        self.stack = stack
        self.servers: list[Runner] = []
        for number in range(1, servers + 1):
            self.add_server(f"9:{number}")
        self.via = start(stack, "8:1", node__type="via", **self.one(0))
        self.edges = [
            start(stack, f"1:{number}", self.via, **self.one(number))
            for number in range(1, edges + 1)
        ]

    def add_server(self, node: str) -> Runner:
        peers = [str(server.peer_address) for server in self.servers]
        made = start(self.stack, node, node__type="control", peering__control=peers)
        self.servers.append(made)
        return made

    def one(self, number: int) -> dict[str, Any]:
        """The server that is in a relay's file: the others it learns of."""
        server = self.servers[number % len(self.servers)]
        return {"peering__control": [str(server.peer_address)]}

    def is_whole(self) -> bool:
        """Whether all have sessions with all servers, and the servers share."""
        ids = tuple(sorted(server.relay.id for server in self.servers))
        relays = [it.relay for it in (self.via, *self.edges)]
        return all(server.relay.interest.shares for server in self.servers) and all(
            relay.interest.is_served and relay.interest.concern.servers == ids for relay in relays
        )

    def keepers(self, runner: Runner, track: str) -> set[int]:
        """The servers that hold a relay's subscribe to a track."""
        own, key = runner.relay.id, KEYS[track]
        servers = (server.relay for server in self.servers)
        return {server.id for server in servers if server.subscribes.holds(own, key)}

    def is_shared(self, runner: Runner) -> bool:
        """Whether those hold what a relay wants that are to, and no others."""
        ids = tuple(sorted(server.relay.id for server in self.servers))
        return all(
            self.keepers(runner, track) == set(responsible(KEYS[track], ids)) for track in TRACKS
        )


@on_loop
async def test_four_servers_share_what_is_wanted_and_one_dies_and_another_comes() -> None:
    async with AsyncExitStack() as stack:
        it = Served(stack, servers=4, edges=3)
        await until(it.is_whole)
        home, near, idle = it.edges
        publisher = await stack.enter_async_context(laps.connect(f"moqt://{home.client_address}"))
        subscriber = await stack.enter_async_context(laps.connect(f"moqt://{near.client_address}"))
        tracks = [await publisher.publish("demo", track) for track in TRACKS]
        objects = [subscriber.subscribe("demo", track) for track in TRACKS]
        await until(lambda: it.is_shared(near))
        assert {len(it.keepers(near, track)) for track in TRACKS} == {REPLICAS}
        await until(lambda: all(home.relay.subscribes.sources(key) for key in KEYS.values()))
        assert not any(idle.relay.subscribes.sources(key) for key in KEYS.values())

        async def all_get(payload: bytes) -> None:
            for track in tracks:
                await track.write(payload, new_group=True)
            got = await asyncio.gather(*(anext(one) for one in objects))
            assert {bytes(one.payload) for one in got} == {payload}

        await all_get(b"four servers")
        await it.servers.pop(1).close()
        await all_get(b"one is gone")
        await until(lambda: it.is_shared(near))
        late = subscriber.subscribe("demo", TRACKS[0])
        it.add_server("9:8")
        await until(it.is_whole)
        await until(lambda: it.is_shared(near))
        await all_get(b"another has come")
        late.close()
        for one in objects:
            one.close()
        await until(lambda: not any(home.relay.subscribes.sources(key) for key in KEYS.values()))
        await until(lambda: not any(it.keepers(near, track) for track in TRACKS))


@on_loop
async def test_what_is_published_later_is_asked_for_at_once() -> None:
    async with AsyncExitStack() as stack:
        it = Served(stack, servers=2, edges=2)
        await until(it.is_whole)
        home, near = it.edges
        subscriber = await stack.enter_async_context(laps.connect(f"moqt://{near.client_address}"))
        objects = subscriber.subscribe("demo", "0")
        await until(lambda: len(it.keepers(near, "0")) == REPLICAS)
        assert not home.relay.subscribes.sources(KEYS["0"])
        publisher = await stack.enter_async_context(laps.connect(f"moqt://{home.client_address}"))
        track = await publisher.publish("demo", "0")
        await until(lambda: bool(home.relay.subscribes.sources(KEYS["0"])))
        await track.write(b"it came", new_group=True)
        assert bytes((await anext(objects)).payload) == b"it came"
        objects.close()
