"""More control messages than a link takes at once, on real sockets."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from laps.config import Config, override
from laps.net import quic
from laps.net import runner as runner_module
from laps.net.runner import Runner
from laps.types import NamespaceInfo, SubscribeInfo
from support.loopback import on_loop, until
from support.relays import track_hash

if TYPE_CHECKING:
    from laps.types import Address

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "REDIAL_FIRST_S", 0.02)
    monkeypatch.setattr(quic, "TICK_S", 0.05)


def start(stack: AsyncExitStack, low: int, *peers: Address | None, queue_bytes: int) -> Runner:
    values: dict[str, Any] = {
        "node.id": f"9:{low}",
        "peering.listen": "127.0.0.1:0",
        "clients.listen": "127.0.0.1:0",
        "peering.peers": [str(peer) for peer in peers],
        "relay.node_advertise_s": 0.05,
        "relay.drain_s": 0.05,
        "egress.queue_bytes": queue_bytes,
        "discovery.enabled": False,
    }
    runner = Runner(override(Config(), values, "test"))
    stack.push_async_callback(runner.close)
    return runner


def fill(runner: Runner, subscribes: int, namespaces: int) -> None:
    """As if its clients wanted and offered so much."""
    relay, now = runner.relay, time.monotonic()
    for number in range(subscribes):
        info = SubscribeInfo(7, relay.id, track_hash(f"room/{number}"), bytes(80))
        relay.subscribes.add(info, now)
    for number in range(namespaces):
        offer = NamespaceInfo(7, relay.id, (b"room", b"%d" % number))
        relay.extensions.namespaces.add(offer, now)


async def join(subscribes: int, namespaces: int, queue_bytes: int) -> None:
    """A peer learns of all there is, loses its link in the middle, and so does a third."""
    async with AsyncExitStack() as stack:
        first = start(stack, 1, queue_bytes=queue_bytes)
        fill(first, subscribes, namespaces)
        second = start(stack, 2, first.peer_address, queue_bytes=queue_bytes)
        await until(lambda: len(second.relay.subscribes) > subscribes // 3)
        (link,) = second.links.values()
        link.close(1, "flap")
        third = start(stack, 3, second.peer_address, queue_bytes=queue_bytes)

        def complete() -> bool:
            # Beside these, each relay offers what it publishes of itself.
            return all(
                len(runner.relay.subscribes) == subscribes
                and runner.relay.extensions.namespaces.count(first.relay.id) >= namespaces
                for runner in (second, third)
            )

        await until(complete)
        reasons = [c.reason for runner in (first, second, third) for c in runner.closes.last]
        assert set(reasons) == {"flap"}


@on_loop
async def test_more_subscribes_than_a_link_takes_at_once_reach_a_new_peer() -> None:
    await join(20_000, 2_000, queue_bytes=MIB)


@pytest.mark.nightly
def test_more_subscribes_than_a_link_takes_by_default_reach_a_new_peer() -> None:
    # Longer than a test that is run by default may take.
    uvloop.run(join(200_000, 20_000, queue_bytes=16 * MIB))
