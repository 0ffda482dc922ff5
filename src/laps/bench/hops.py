"""`laps bench hops`: what each relay on the way adds to the delay of an object.

Five relays, each a process of its own on loopback:

    publisher -> Edge 1 -> Via 1 -> Via 2 -> Edge 2 -> Stub
                   |                          |         |
              subscriber                 subscriber  subscriber

A publisher at Edge 1 sends an object a few milliseconds apart, each with the time in it, and the
subscribers, which read the same clock, compare. What Edge 2 sees later than Edge 1 is the delay of
three hops, and what the Stub sees later than Edge 2 that of a fourth.

This module is also the program of each process: `python -m laps.bench.hops NAME CONFIG…`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import ExitStack
from statistics import median, quantiles
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

import uvloop
from rich import box
from rich.table import Table

from laps.bench.process import Process, answer
from laps.config import Config, override
from laps.errors import LapsError
from laps.net.runner import Runner
from laps.tracks.ports import Answers, Unhurried
from laps.types import AnnounceInfo, TrackName, hash_bytes
from laps.wire.subscribe import encode_subscribe

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.types import TrackHash

TRACK: Final = TrackName((b"bench",), b"hops")
OBJECT_BYTES: Final = 1000
EVERY_S: Final = 0.005

# How long five processes may take to find each other.
READY_S: Final = 20.0

# The median that a hop may add, in milliseconds.
WANTED_MS: Final = 1.0

Result = dict[str, float]


def measure(seconds: float, progress: Callable[[str], None]) -> Result:
    """Start the five relays, let objects pass, and compare when they arrived."""
    progress("starting five relays")
    with ExitStack() as stack:

        def start(name: str, *peers: str) -> tuple[Process, str]:
            settings = json.dumps({"peering.peers": peers})
            process = stack.enter_context(Process("laps.bench.hops", name, settings))
            return process, process.line()

        _, at_via2 = start("via 2")
        _, at_via1 = start("via 1", at_via2)
        edge2, at_edge2 = start("edge 2", at_via2)
        edge1, _ = start("edge 1", at_via1)
        stub, _ = start("stub", at_edge2)
        end = monotonic() + READY_S
        while stub.ask()["objects"] < 1:
            if monotonic() > end:
                raise LapsError("the five relays did not find each other in time")
            sleep(0.1)
        progress(f"objects pass for {seconds:g} s")
        for process in (edge1, edge2, stub):
            process.ask()  # what was measured while routes were still forming is left out
        sleep(seconds)
        seen = [process.ask() for process in (edge1, edge2, stub)]
    here, there, behind = seen
    return {
        "objects": behind["objects"],
        "edge_1_p50_ms": here["p50_ms"],
        "edge_2_p50_ms": there["p50_ms"],
        "stub_p50_ms": behind["p50_ms"],
        "stub_p99_ms": behind["p99_ms"],
        "per_hop_p50_ms": (there["p50_ms"] - here["p50_ms"]) / 3,
        "stub_hop_p50_ms": behind["p50_ms"] - there["p50_ms"],
    }


def holds(result: Result) -> bool:
    """Whether a hop adds no more than is wanted."""
    return max(result["per_hop_p50_ms"], result["stub_hop_p50_ms"]) < WANTED_MS


def table(result: Result) -> Table:
    """The result for a person."""
    made = Table(
        title="One way through edge, via, via, edge and stub on loopback",
        caption=f"{result['objects']:,.0f} objects of {OBJECT_BYTES:,} bytes. "
        f"In brackets: the most the project allows itself.",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    made.add_column("median delay")
    made.add_column("ms", justify="right")
    for name, words in (
        ("edge_1_p50_ms", "at the publisher's own Edge"),
        ("edge_2_p50_ms", "three hops on"),
        ("stub_p50_ms", "at the Stub, four hops on"),
    ):
        made.add_row(words, f"{result[name]:.3f}")
    for name, words in (
        ("per_hop_p50_ms", "added by each hop"),
        ("stub_hop_p50_ms", "added by the hop to the Stub"),
    ):
        made.add_row(words, f"{result[name]:.3f} ({WANTED_MS:g})")
    made.add_row("at the Stub, 99 of 100 within", f"{result['stub_p99_ms']:.3f}")
    return made


# -- the processes ---------------------------------------------------------------------------------


class _App(Unhurried):
    """A publisher and a subscriber at one relay."""

    echoes = False
    answers = Answers.NEVER

    def __init__(self, runner: Runner) -> None:
        self._relay = runner.relay
        self._number = 0
        self._delays: list[float] = []
        self._publishing: asyncio.Task[None] | None = None

    def start(self, name: str) -> None:
        """Publish at Edge 1, and subscribe everywhere."""
        now = monotonic()
        self._relay.subscribe(self, TRACK, encode_subscribe(TRACK), now)
        if name == "edge 1":
            namespace = tuple(hash_bytes(part) for part in TRACK.namespace)
            self._relay.announce(self, AnnounceInfo(self._relay.id, namespace), now)

    def measured(self) -> dict[str, float]:
        """The delays since the last time it was asked."""
        delays, self._delays = sorted(self._delays), []
        if len(delays) < 2:
            return {"objects": len(delays), "p50_ms": 0.0, "p99_ms": 0.0}
        p99 = quantiles(delays, n=100)[98]
        return {"objects": len(delays), "p50_ms": median(delays) * 1e3, "p99_ms": p99 * 1e3}

    # As `relay.ports.Client`.

    def subscribe(self, track: TrackHash, subscribe_data: bytes) -> None:
        self._publishing = asyncio.ensure_future(self._publish(track))

    def unsubscribe(self, track: TrackHash) -> None:
        if self._publishing is not None:
            self._publishing.cancel()

    def open_stream(self, track: TrackHash, priority: int, ttl_us: int) -> _Arriving:
        return _Arriving(self._delays.append)

    def send_datagram(self, track: TrackHash, data: bytes, priority: int) -> None:
        pass

    async def _publish(self, track: TrackHash) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            self._number += 1
            now = monotonic()
            data = f"{now:.9f} ".encode().ljust(OBJECT_BYTES, b".")
            self._relay.publish(self, track, self._number, data, True, 1, 0, now)


class _Arriving:
    """A stream to the subscriber: when it is whole, its delay is known."""

    def __init__(self, report: Callable[[float], None]) -> None:
        self._report = report
        self._data = b""
        self.over = False

    def write(self, data: bytes | memoryview, now: float) -> bool:
        self._data += data
        return True

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        self._data += data
        self.over = True
        self._report(monotonic() - float(self._data.split(b" ", 1)[0]))
        return True

    def reset(self, code: int, now: float) -> None:
        self.over = True


async def _relay(name: str, settings: str) -> None:
    role = name.split()[0]
    values = {
        "node.type": role,
        "peering.listen": "127.0.0.1:0",
        "clients.listen": "127.0.0.1:0",
        "relay.reflect": True,
        "relay.drain_s": 0.1,
    }
    config = override(Config(), values | json.loads(settings), "laps bench hops")
    runner = Runner(config)
    app = _App(runner)
    if runner.relay.rules.accepts_clients:
        app.start(name)
    await answer(str(runner.peer_address), app.measured)
    await runner.close()


if __name__ == "__main__":
    uvloop.run(_relay(*sys.argv[1:]))
