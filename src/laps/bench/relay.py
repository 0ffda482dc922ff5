"""`laps bench relay`: what one relay does for its clients, on loopback.

The relay is a process of its own on the first core, started as an operator starts it, and all of
its clients are one process on the second:

    publisher -> relay -> 1 to 64 subscribers

A publisher that is told no rate writes as fast as QUIC takes it. Beside the relay, in turn with it,
stands the shortest loop that copies streams on the same QUIC engine: what the relay takes longer
than that is what MoQT, priorities and the cache cost.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from statistics import median
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from laps.bench.process import Process
from laps.bench.relay_process import RelayProcess, rss_bytes
from laps.bench.relay_sessions import Load
from laps.bench.tables import Figure, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.table import Table

    from laps.bench.relay_clients import Result

RELAY_CORE: Final = 0
CLIENT_CORE: Final = 1

SUBSCRIBERS: Final = (1, 4, 16, 64)
MANY: Final = 16
"As many subscribers as most cases have."

LARGE_BYTES: Final = 64 * 1024
SMALL_BYTES: Final = (1000, 100)
RATES: Final = (1000.0, 100.0)
IDLE_SUBSCRIPTIONS: Final = 1000
IDLE_SESSIONS: Final = 4

# The relay and the loop beside it take turns so often, and the medians are compared.
ROUNDS: Final = 3

# How long a relay that nobody uses is left alone before its memory is looked at.
REST_S: Final = 1.0


def measure(seconds: float, only: list[str], progress: Callable[[str], None]) -> list[Figure]:
    """Run the cases; `progress` is told what is under way."""
    figures: list[Figure] = []
    for name, case in CASES.items():
        if not only or name in only:
            figures += case(seconds, progress)
    return figures


def holds(figures: list[Figure]) -> bool:
    """Whether all is as wanted."""
    return all(figure.holds() for figure in figures)


def table(figures: list[Figure]) -> Table:
    """The results for a person."""
    return table_of(
        figures,
        "One relay on loopback, the relay and its clients on a core each",
        "Processor: the relay's seconds for each gigabyte delivered. Small objects are "
        "deliveries\nto all together. The bare loop copies streams, and does nothing else.",
    )


# -- the cases -------------------------------------------------------------------------------------


def _fan_out(seconds: float, progress: Callable[[str], None]) -> Iterator[Figure]:
    row = partial(Figure, "fan-out")
    shape = {"object_bytes": LARGE_BYTES, "objects_per_group": 16}
    for number in SUBSCRIBERS:
        to = f"64 KiB to {number}"
        compared = number == MANY
        relay, bare = [], []
        for turn in range(ROUNDS if compared else 1):
            progress(f"{number} subscribers, turn {turn + 1}")
            relay.append(_through_relay(seconds=seconds, subscribers=number, **shape))
            if compared:
                progress(f"{number} subscribers, the bare loop, turn {turn + 1}")
                bare.append(_through_loop(seconds=seconds, subscribers=number, **shape))
        rate, cost = median(map(_mbit_s, relay)), median(map(_cpu_per_gb, relay))
        yield row(to, rate, "Mbit/s")
        yield row(f"{to}, processor", cost, "s/GB", most=3.2 if compared else None)
        if compared:
            bare_rate, bare_cost = median(map(_mbit_s, bare)), median(map(_cpu_per_gb, bare))
            yield row(f"{to}, bare loop", bare_rate, "Mbit/s")
            yield row(f"{to}, bare loop, processor", bare_cost, "s/GB")
            yield row(f"{to}, relay / loop", rate / bare_rate, "", least=0.85)


def _small_objects(seconds: float, progress: Callable[[str], None]) -> Iterator[Figure]:
    row = partial(Figure, "small objects")
    for size in SMALL_BYTES:
        for per_group, words, least in (
            (10_000, "long streams", 400_000 if size == SMALL_BYTES[-1] else None),
            (1, "one a stream", 10_000),
        ):
            progress(f"{size} bytes, {words}")
            result = _through_relay(
                seconds=seconds, subscribers=MANY, object_bytes=size, objects_per_group=per_group
            )
            rate = result["objects"] / result["time_s"]
            yield row(f"{size:,} bytes to {MANY}, {words}", rate, "/s", least=least)


def _latency(seconds: float, progress: Callable[[str], None]) -> Iterator[Figure]:
    row = partial(Figure, "latency")
    for rate in RATES:
        load = partial(Load, seconds=seconds, rate=rate, objects_per_group=100)
        words = f"{rate:,.0f}/s of 1,000 bytes"
        progress(f"{words}, 1 relay")
        with RelayProcess(RELAY_CORE) as relay:
            result = _load(load(port=relay.port, pid=relay.pid))
        wanted = 250.0 if rate == RATES[0] else None
        yield row(f"{words}, 1 relay, p50", result["p50_us"], "µs", most=wanted)
        yield row(f"{words}, 1 relay, p99", result["p99_us"], "µs")
        progress(f"{words}, 3 relays")
        with ExitStack() as stack:
            via = stack.enter_context(RelayProcess(RELAY_CORE, "--type", "via", "--reflect"))
            first, last = (
                stack.enter_context(RelayProcess(RELAY_CORE, "--peer", via.peer_address))
                for _ in range(2)
            )
            result = _load(load(port=first.port, pid=first.pid, subscribe_port=last.port))
        yield row(f"{words}, 3 relays, p50", result["p50_us"], "µs")
        yield row(f"{words}, 3 relays, p99", result["p99_us"], "µs")


def _memory(seconds: float, progress: Callable[[str], None]) -> Iterator[Figure]:
    row = partial(Figure, "memory")
    progress("a relay at rest")
    with RelayProcess(RELAY_CORE) as relay:
        sleep(REST_S)
        yield row("a relay at rest", rss_bytes(relay.pid) / 1e6, "MB", most=70.0)
        progress(f"{IDLE_SUBSCRIPTIONS:,} idle subscriptions")
        result = _load(
            Load(
                relay.port,
                relay.pid,
                REST_S,
                subscribers=IDLE_SESSIONS,
                idle_subscriptions=IDLE_SUBSCRIPTIONS,
            )
        )
        words = f"{IDLE_SUBSCRIPTIONS:,} idle subscriptions more"
        yield row(words, result["bytes"] / 1e6, "MB", most=20.0)


def _unpaced(seconds: float, progress: Callable[[str], None]) -> Iterator[Figure]:
    row = partial(Figure, "unpaced")
    progress(f"{MANY} subscribers")
    result = _through_relay(seconds=seconds, subscribers=MANY, exact=True)
    yield row(f"1,000 bytes, sent to each of {MANY}", result["sent"], "")
    yield row("lost", result["lost"], "", most=0)


CASES: Final[dict[str, Callable[[float, Callable[[str], None]], Iterator[Figure]]]] = {
    "fan-out": _fan_out,
    "small objects": _small_objects,
    "latency": _latency,
    "memory": _memory,
    "unpaced": _unpaced,
}


# -- how a load is run -----------------------------------------------------------------------------


def _through_relay(**shape: Any) -> Result:
    with RelayProcess(RELAY_CORE) as relay:
        return _load(Load(port=relay.port, pid=relay.pid, **shape))


def _through_loop(**shape: Any) -> Result:
    with Process("laps.bench.fanout", str(RELAY_CORE)) as loop:
        pid, port = map(int, loop.line().split())
        return _load(Load(port=port, pid=pid, bare=True, **shape))


def _load(load: Load) -> Result:
    with Process("laps.bench.relay_clients", str(CLIENT_CORE), json.dumps(asdict(load))) as clients:
        result: Result = json.loads(clients.line())
        return result


def _mbit_s(result: Result) -> float:
    return result["bytes"] * 8e-6 / result["time_s"]


def _cpu_per_gb(result: Result) -> float:
    return result["cpu_s"] / max(result["bytes"], 1) * 1e9
