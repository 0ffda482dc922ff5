"""Clients that load a relay: one publisher and many subscribers, in one process.

This module is the program of the process: `python -m laps.bench.relay_clients CORE LOAD`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from statistics import median, quantiles
from time import monotonic
from typing import Final

import uvloop

from laps.bench.process import pin
from laps.bench.relay_process import cpu_s, rss_bytes, waited_s
from laps.bench.relay_sessions import (
    ExactSubscriber,
    Load,
    Publisher,
    Session,
    Subscriber,
    TimingSubscriber,
)
from laps.errors import LapsError

# Nothing is counted before congestion windows are open.
WARM_UP_S: Final = 0.7

# How long subscribers wait for what was sent, without anything new, before they call it lost.
PATIENCE_S: Final = 2.0

Result = dict[str, float]


async def run(load: Load) -> Result:
    """Connect, send for a while, and count."""
    publisher = Publisher(load)
    kind = TimingSubscriber if load.rate else ExactSubscriber if load.exact else Subscriber
    subscribers = [kind(load) for _ in range(load.subscribers)]
    for subscriber in subscribers:
        await subscriber.open(load.subscribe_port or load.port, bare=load.bare)
    await publisher.open(load.port, bare=load.bare)
    if not load.bare:
        await publisher.publish()
        for subscriber in subscribers:
            await subscriber.subscribe()
    publisher.start()
    await asyncio.sleep(WARM_UP_S)
    before = _now(load.pid, subscribers)
    for subscriber in subscribers:
        subscriber.delays.clear()
    await asyncio.sleep(load.seconds)
    after = _now(load.pid, subscribers)
    result = {name: after[name] - before[name] for name in after}
    delays = sorted(delay for subscriber in subscribers for delay in subscriber.delays)
    publisher.stop()
    await _drained(publisher, subscribers)
    for session in (publisher, *subscribers):
        if session.close is not None:
            raise LapsError(f"the relay closed a session: {session.close}")
    result["sent"] = publisher.sent
    result["lost"] = publisher.sent * len(subscribers) - sum(s.objects for s in subscribers)
    result["resets"] = sum(subscriber.resets for subscriber in subscribers)
    if len(delays) > 1:
        result["p50_us"] = median(delays) * 1e6
        result["p99_us"] = quantiles(delays, n=100)[98] * 1e6
    return result


def _now(pid: int, subscribers: list[Subscriber]) -> Result:
    return {
        "time_s": monotonic(),
        "cpu_s": cpu_s(pid),
        "waited_s": waited_s(pid),
        "bytes": sum(subscriber.bytes for subscriber in subscribers),
        "objects": sum(subscriber.objects for subscriber in subscribers),
    }


async def _drained(publisher: Publisher, subscribers: list[Subscriber]) -> None:
    """Wait until everything has come, or nothing comes any more."""
    wanted = publisher.sent * len(subscribers)
    last, since = -1, monotonic()
    while (objects := sum(s.objects for s in subscribers)) < wanted:
        if objects != last:
            last, since = objects, monotonic()
        elif monotonic() - since > PATIENCE_S:
            return
        await asyncio.sleep(0.02)


async def run_idle(load: Load) -> Result:
    """Subscribe to tracks that are published and silent; what that takes of the relay's memory."""
    publisher = Session()
    await publisher.open(load.port, bare=False)
    for number in range(load.idle_subscriptions):
        await publisher.publish(number)
    sessions = [Session() for _ in range(load.subscribers)]
    for session in sessions:
        await session.open(load.port, bare=False)
    await asyncio.sleep(load.seconds)
    before = rss_bytes(load.pid)
    request_ids = dict.fromkeys(sessions, 0)
    for number in range(load.idle_subscriptions):
        session = sessions[number % len(sessions)]
        request_ids[session] = await session.subscribe(number, request_ids[session])
    await asyncio.sleep(load.seconds)
    return {"bytes": rss_bytes(load.pid) - before}


async def _main(load: Load) -> None:
    result = await (run_idle(load) if load.idle_subscriptions else run(load))
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    pin(int(sys.argv[1]))
    uvloop.run(_main(Load(**json.loads(sys.argv[2]))))
