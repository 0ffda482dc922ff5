"""Real relays on real QUIC, in one process, and what a test has them do."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from laps.config import config_from_mapping, override
from laps.net.runner import Runner
from laps.types import AnnounceInfo, hash_bytes, hash_track
from laps.wire.subscribe import encode_subscribe
from support.relays import App, track_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


def start(
    stack: AsyncExitStack,
    node_id: str,
    *peers: Runner,
    origins: Sequence[dict[str, Any]] = (),
    **settings: Any,
) -> Runner:
    """A relay that wastes no time and is closed at the end; `node__type` is the key `node.type`."""
    config = config_from_mapping({"origins": list(origins)}, "test")
    values: dict[str, Any] = {
        "node.id": node_id,
        "peering.listen": "127.0.0.1:0",
        "clients.listen": "127.0.0.1:0",
        "peering.peers": [str(peer.peer_address) for peer in peers],
        "relay.node_advertise_s": 0.05,
        "relay.unsubscribe_s": 0.1,
        "relay.drain_s": 0.05,
        **{key.replace("__", "."): value for key, value in settings.items()},
    }
    runner = Runner(override(config, values, "test"))
    stack.push_async_callback(runner.close)
    return runner


class Lab:
    """Relays that are closed at the end, whatever happens."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.relays: list[Runner] = []

    async def relay(self, role: str, *peers: Runner, **settings: Any) -> Runner:
        node_id = f"9:{len(self.relays) + 1}"
        runner = start(self._stack, node_id, *peers, node__type=role, **settings)
        self.relays.append(runner)
        return runner

    def keep(self, runner: Runner) -> None:
        """Close it at the end."""
        self._stack.push_async_callback(runner.close)
        self.relays.append(runner)


@asynccontextmanager
async def lab() -> AsyncIterator[Lab]:
    async with AsyncExitStack() as stack:
        yield Lab(stack)


def subscribe(runner: Runner, app: App, track: str) -> None:
    name = track_name(track)
    runner.relay.subscribe(app, name, encode_subscribe(name), time.monotonic())
    runner._arm()


def announce(runner: Runner, app: App, namespace: str) -> None:
    parts = tuple(hash_bytes(part.encode()) for part in namespace.split("/"))
    runner.relay.announce(app, AnnounceInfo(runner.relay.id, parts), time.monotonic())
    runner._arm()


def publish(
    runner: Runner, app: App, track: str, key: object, data: bytes, *, fin: bool = True
) -> None:
    hashes = hash_track(track_name(track))
    runner.relay.publish(app, hashes, key, data, fin, 3, 0, time.monotonic())
