"""A relay in the middle dies or stands still: subscribers get every object, and each once."""

from __future__ import annotations

import asyncio
import json
import signal
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from support.counting import publish_numbers, read_numbers
from support.loopback import on_loop, until
from support.programs import RelayProcess, relay_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Longer than it takes on any machine that these tests run on; what it takes is measured elsewhere.
LIMIT_S = 8.0


class Diamond:
    """Two Edges with two Vias between them, each a process of its own."""

    def __init__(self, near: RelayProcess, far: RelayProcess, vias: list[RelayProcess]) -> None:
        self.near, self.far, self.vias = near, far, vias

    def url(self, edge: RelayProcess, protocol: str) -> str:
        return f"{protocol}://{edge.clients}"

    def ways(self) -> int:
        """How many ways the Edges know to each other."""
        nodes = [ask(self.near, "nodes/8:4"), ask(self.far, "nodes/8:3")]
        return sum(len(node["alternates"]) + (node["best"] is not None) for node in nodes if node)

    def in_use(self) -> RelayProcess:
        """The Via that data takes from the near Edge to the far one."""
        flows = ask(self.near, "fib")["fib"]
        flow = next(flow for flow in flows if "8:4" in flow["targets"])
        (out,) = (out for out in flow["out"] if not out["old"])
        return {"8:1": self.vias[0], "8:2": self.vias[1]}[out["peer"]]


def ask(relay: RelayProcess, view: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"http://{relay.admin}/v1/{view}") as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError:
        return {}


@pytest.fixture
def diamond(tmp_path: Path) -> Iterator[Diamond]:
    with ExitStack() as stack:

        def relay(name: str, *args: str) -> RelayProcess:
            log = tmp_path / f"{name}.log"
            return stack.enter_context(relay_process(log, "--node-id", name, *args))

        vias = [relay(f"8:{number}", "--type", "via", "--reflect") for number in (1, 2)]
        peers = [arg for via in vias for arg in ("--peer", via.peers)]
        made = Diamond(relay("8:3", *peers), relay("8:4", *peers), vias)
        yield made
        for process in (made.near, made.far, *vias):
            process.kill()  # they have nobody left to take leave of


def pause(got: list[tuple[float, bytes]]) -> float:
    return max(later - sooner for (sooner, _), (later, _) in pairwise(got))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@on_loop
async def test_every_object_comes_once_when_the_via_in_use_dies(
    diamond: Diamond, how: signal.Signals
) -> None:
    stop = asyncio.Event()
    protocols = ("moqt", "quicr")
    written: dict[str, list[bytes]] = {protocol: [] for protocol in protocols}
    got: dict[str, list[tuple[float, bytes]]] = {protocol: [] for protocol in protocols}
    while diamond.ways() < 4:  # noqa: ASYNC110 - they are processes of their own
        await asyncio.sleep(0.05)
    tasks = [
        asyncio.ensure_future(task)
        for protocol in protocols
        for task in (
            read_numbers(diamond.url(diamond.far, protocol), protocol, got[protocol]),
            publish_numbers(diamond.url(diamond.near, protocol), protocol, written[protocol], stop),
        )
    ]
    async with asyncio.timeout(60):
        await until(lambda: all(len(it) >= 200 for it in got.values()))
        via = diamond.in_use()
        died = time.monotonic()
        via.process.send_signal(how)
        async with asyncio.timeout(LIMIT_S):
            await until(lambda: all(it[-1][0] > died + 3.0 for it in got.values()))
        if how is signal.SIGSTOP:
            via.process.send_signal(signal.SIGCONT)
            await asyncio.sleep(1.0)
        stop.set()
        await asyncio.gather(*tasks)
    for protocol in protocols:
        assert [data for _, data in got[protocol]] == written[protocol]
        assert pause(got[protocol]) < LIMIT_S


@on_loop
async def test_a_relay_that_stood_still_asks_its_peers_whether_they_still_know_it(
    tmp_path: Path,
) -> None:
    """Nothing depends on the link, so that nobody would notice before the idle timeout."""
    with (
        relay_process(tmp_path / "silent.log", "--node-id", "8:1") as silent,
        relay_process(tmp_path / "back.log", "--node-id", "8:2", "--peer", silent.peers) as back,
    ):
        try:
            await until(lambda: bool(ask(back, "peers")["peers"]))
            for relay in (silent, back):
                relay.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(1.5)  # longer than `peering.dead_after_s`
            back.process.send_signal(signal.SIGCONT)
            async with asyncio.timeout(LIMIT_S):
                await until(lambda: "no sign of life" in back.log.read_text())
        finally:
            silent.kill()
            back.kill()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[RelayProcess]]:
    """Edges that are all peers: two for publishers of the same, and one for the subscriber."""
    with ExitStack() as stack:
        made: list[RelayProcess] = []
        for number in (1, 2, 3):
            peers = [arg for other in made for arg in ("--peer", other.peers)]
            log = tmp_path / f"{number}.log"
            made.append(stack.enter_context(relay_process(log, "--node-id", f"8:{number}", *peers)))
        yield made
        for process in made:
            process.kill()


@on_loop
async def test_a_relay_whose_link_is_idle_hears_from_another_that_the_peer_is_silent(
    three: list[RelayProcess],
) -> None:
    """Only the second uses the first one; the third would notice after the idle timeout."""
    written: list[bytes] = []
    got: list[tuple[float, bytes]] = []
    stop = asyncio.Event()
    first, second, third = three
    tasks = [
        asyncio.ensure_future(read_numbers(f"moqt://{second.clients}", "track", got)),
        asyncio.ensure_future(publish_numbers(f"moqt://{first.clients}", "track", written, stop)),
    ]
    try:
        await until(lambda: len(got) >= 20)
        first.process.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(LIMIT_S):
            await until(lambda: "no sign of life" in third.log.read_text())
    finally:
        first.process.send_signal(signal.SIGCONT)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# Whoever began leads; the other stands by.
@pytest.mark.nightly
@pytest.mark.parametrize("dies", [0, 1])
@on_loop
async def test_of_two_publishers_one_may_die_with_its_relay(
    three: list[RelayProcess], dies: int
) -> None:
    written: list[bytes] = []
    twice: list[bytes] = []
    got: list[tuple[float, bytes]] = []
    stop = asyncio.Event()
    reader = asyncio.ensure_future(read_numbers(f"moqt://{three[2].clients}", "track", got))
    writers = [
        asyncio.ensure_future(
            publish_numbers(f"moqt://{relay.clients}", "track", out, stop, first_group=7)
        )
        for relay, out in zip(three, (written, twice), strict=False)
    ]
    async with asyncio.timeout(60):
        await until(lambda: len(got) >= 200)
        three[dies].kill()
        died = time.monotonic()
        await until(lambda: got[-1][0] > died + 2.0)
        stop.set()
        survivor = writers[1 - dies]
        await survivor
        await reader
    writers[dies].cancel()
    await asyncio.gather(writers[dies], return_exceptions=True)
    assert [data for _, data in got] == (twice, written)[dies]
    assert pause(got) < LIMIT_S
