"""`laps bench peering`: a relay joins a network of many subscribes, over real sockets.

One process holds everything, as if 1,000 nodes were beyond it; another joins it with nothing. When
half has arrived the link breaks, and all is told again. What is measured:

    half, s        from the start of the joining relay until it has half of the subscribes
    whole, s       from the break until it has everything
    holder, MB     what the one that tells grew by while it did: the tables have no second copy
    stall, s       the longest time that either did nothing else

This module is also the program of both processes: `python -m laps.bench.peering hold 100000 5000`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

import uvloop

from laps.bench.infobase import made_up, resident_bytes
from laps.bench.process import Process, answer
from laps.bench.tables import table_of_figures
from laps.config import Config, override
from laps.errors import CloseCode, LapsError
from laps.infobase.nodes import SessionId
from laps.net.runner import Runner
from laps.types import NamespaceInfo, NodeId, NodeInfo, NodePathItem, NodeType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

COUNTS: Final = (100_000, 2_000_000)
NODES: Final = 1_000
# One namespace for so many subscribes.
SUBSCRIBES_PER_NAMESPACE: Final = 20

# A relay that has not been told everything by then will not be.
MOST_S: Final = 900.0
# How often the loop is looked at, to see how long it did something else.
LOOK_S: Final = 0.02

# A millisecond for each message, or more, is no dump any more but a crawl.
MOST_MESSAGE_S: Final = 0.001
# Beside the tables: what waits in QUIC and in queues, and the keys of one node at a time.
MOST_GROWTH_MB: Final = 100.0


@dataclass(frozen=True, slots=True)
class Result:
    """What it took to join."""

    subscribes: int
    namespaces: int
    half_s: float
    whole_s: float
    holder_mb: float
    """By how much the holder grew."""
    joiner_mb: float
    """The size of the one that joined."""
    holder_stall_s: float
    joiner_stall_s: float

    def holds(self) -> bool:
        """Whether it is what the project asks of itself."""
        fast = self.whole_s <= MOST_MESSAGE_S * (self.subscribes + self.namespaces)
        return fast and self.holder_mb <= MOST_GROWTH_MB


def measure(
    counts: Sequence[int] = COUNTS, progress: Callable[[str], None] = lambda _: None
) -> list[Result]:
    """Join a network of each size; `progress` is told what is under way."""
    return [_join(count, progress) for count in counts]


def table(results: Sequence[Result]) -> Table:
    """The results for a person."""
    table = table_of_figures(
        f"A relay joins a network of {NODES:,} nodes, and its link breaks half way",
        f"The project asks of itself at most {MOST_GROWTH_MB:g} MB more at the one that tells.",
    )
    for name in ("subscribes", "namespaces", "half, s", "whole, s", "holder, MB", "stalls, s"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        table.add_row(
            f"{result.subscribes:,}",
            f"{result.namespaces:,}",
            f"{result.half_s:.1f}",
            f"{result.whole_s:.1f}",
            f"+{result.holder_mb:,.0f}",
            f"{result.holder_stall_s:.2f}, {result.joiner_stall_s:.2f}",
        )
    return table


def as_mapping(results: Sequence[Result]) -> list[dict[str, object]]:
    """The results for a program."""
    return [{**asdict(result), "holds": result.holds()} for result in results]


def _join(count: int, progress: Callable[[str], None]) -> Result:
    names = count // SUBSCRIBES_PER_NAMESPACE
    progress(f"{count:,} subscribes are made up")
    with Process(__name__, "hold", str(count), str(names)) as holder:
        port = holder.line()
        before = holder.ask()
        started = time.monotonic()
        with Process(__name__, "join", port, str(count // 2)) as joiner:
            joiner.line()
            half = whole = None
            while whole is None:
                time.sleep(0.1)
                seen, spent = joiner.ask(), time.monotonic() - started
                progress(f"{seen['subscribes']:,.0f} of {count:,} subscribes after {spent:.0f} s")
                if half is None and seen["broken_at"]:
                    half = spent
                if half and seen["subscribes"] == count and seen["namespaces"] >= names:
                    whole = spent - half
                if spent > MOST_S:
                    raise LapsError(f"{seen['subscribes']:,.0f} of {count:,} after {MOST_S:g} s")
            after = holder.ask()
    return Result(
        count,
        names,
        half or 0.0,
        whole,
        after["most_mb"] - before["mb"],
        seen["mb"],
        after["stall_s"],
        seen["stall_s"],
    )


# -- what the processes do -------------------------------------------------------------------------


class _Look:
    """How long a loop was away, and how large the process became."""

    def __init__(self) -> None:
        self.stall_s = 0.0
        self.most_mb = 0.0

    async def run(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(LOOK_S)
            self.stall_s = max(self.stall_s, time.monotonic() - before - LOOK_S)
            self.most_mb = max(self.most_mb, resident_bytes() / 1e6)

    def figures(self) -> dict[str, float]:
        mb = resident_bytes() / 1e6
        return {"stall_s": self.stall_s, "mb": mb, "most_mb": max(self.most_mb, mb)}


def _runner(low: int, *peers: str) -> Runner:
    values = {
        "node.id": f"9:{low}",
        "peering.listen": "127.0.0.1:0",
        "clients.listen": "127.0.0.1:0",
        "peering.peers": list(peers),
        "relay.drain_s": 0.1,
        "discovery.enabled": False,
        "telemetry.enabled": False,
    }
    return Runner(override(Config(), values, "the benchmark"))


def fill(runner: Runner, count: int, names: int) -> None:
    """As if a peer had told of so many nodes, and of all that they want and offer."""
    relay, now, session = runner.relay, time.monotonic(), SessionId(0)
    by = NodePathItem(NodeId(1), 1000)
    relay.nodes.open_session(session, by.node_id, 1000, now, carries_data=True)
    for number in range(NODES):
        node = NodeId(1 << 48 | number)
        relay.nodes.add(session, NodeInfo(node, NodeType.EDGE, path=(by,)))
    messages = made_up(count, NODES, count)
    while batch := list(islice(messages, 1000)):
        for info in batch:
            relay.subscribes.add(info, now)
    for number in range(names):
        namespace = (b"conference.example", b"room-%06d" % number)
        offer = NamespaceInfo(1, NodeId(1 << 48 | number % NODES), namespace)
        relay.extensions.namespaces.add(offer, now)


async def _hold(count: int, names: int) -> None:
    runner = _runner(1)
    fill(runner, count, names)
    look = _Look()
    watching = asyncio.ensure_future(look.run())
    await answer(str(runner.peer_address), look.figures)
    watching.cancel()


async def _join_there(port: str, half: int) -> None:
    runner = _runner(2, port)
    look, broken = _Look(), 0.0

    async def flap() -> None:
        nonlocal broken
        while len(runner.relay.subscribes) < half:  # noqa: ASYNC110 - no asyncio object tells it
            await asyncio.sleep(LOOK_S)
        broken = time.monotonic()
        for link in list(runner.links.values()):
            link.close(CloseCode.GRACEFUL, "the link breaks half way")

    tasks = [asyncio.ensure_future(look.run()), asyncio.ensure_future(flap())]

    def figures() -> dict[str, float]:
        held = {
            "subscribes": float(len(runner.relay.subscribes)),
            "namespaces": float(len(runner.relay.extensions.namespaces)),
        }
        return {**look.figures(), **held, "broken_at": broken}

    await answer("here", figures)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    if sys.argv[1] == "hold":
        uvloop.run(_hold(int(sys.argv[2]), int(sys.argv[3])))
    else:
        uvloop.run(_join_there(sys.argv[2], int(sys.argv[3])))
