"""`laps bench auth`: what it costs a relay to ask clients for tokens.

    clients -> relay without keys        the same clients, in turns: the processor time of the one
    clients -> relay with keys           relay for each session and object, beside that of the other

Both relays are as an operator starts them, on the first core, and their clients on the second.
Turns are short, and four make a comparison: without, with, with, without, or the other way round.
What drifts by itself, and what else the machine does, is then on both sides. Each round starts both
relays anew, since two that do the same differ by one or two percent for as long as they run, by
where their memory happens to lie. The figure is the median of all comparisons, which a few that
something else disturbed do not move.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import uvloop

import laps
from laps.auth.issue import Terms, issue_jwt
from laps.auth.key_files import write_keys
from laps.auth.keys import generate, write_jwk
from laps.auth.tokens import Algorithm
from laps.bench.relay_process import RelayProcess, worked_s
from laps.bench.tables import Figure
from laps.errors import LapsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laps.auth.keys import Key

RELAY_CORE: Final = 0
CLIENT_CORE: Final = 1

# Sessions that are set up at the same time.
AT_ONCE: Final = 8
OBJECT: Final = bytes(1000)
NAMESPACE: Final = "bench"

# What tokens may cost a handshake, and what they may seem to cost an object, which is nothing: two
# relays that do the same differ by this much.
MOST_OF_A_HANDSHAKE: Final = 1.05
MOST_OF_AN_OBJECT: Final = 1.02


# Comparisons of each case in a round.
COMPARED: Final = 8

# Before the first turn of a relay: what is imported first, and what Python makes faster once it has
# run often enough, is not measured.
WARM_UP: Final = 64


@dataclass(slots=True)
class _Case:
    """What the turns of one case took, of each comparison and each relay by itself."""

    what: str
    unit: str
    most: float
    open_us: list[float] = field(default_factory=list)
    guarded_us: list[float] = field(default_factory=list)

    def figures(self) -> list[Figure]:
        pairs = zip(self.guarded_us, self.open_us, strict=True)
        ratios = [guarded / plain for guarded, plain in pairs]
        # Of a single comparison there is no spread.
        low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        each = f"µs of the relay {self.unit}"
        return [
            Figure(self.what, "without keys", median(self.open_us), each),
            Figure(self.what, "with keys", median(self.guarded_us), each),
            Figure(self.what, "a second of a core, with keys", 1e6 / median(self.guarded_us), ""),
            Figure(self.what, "with keys by without", median(ratios), "", most=self.most),
            Figure(self.what, "half of the comparisons: from", low, ""),
            Figure(self.what, "half of the comparisons: to", high, ""),
        ]


def measure(
    sessions: int, objects: int, rounds: int, progress: Callable[[str], None]
) -> list[Figure]:
    """Turns of so many sessions, and so many objects, with both relays, started in each round."""
    bench = _Bench(sessions, objects)
    with TemporaryDirectory() as folder, _on_core(CLIENT_CORE):
        keys = Path(folder) / "bench.pub.json"
        write_keys({keys: write_jwk(bench.key, private=False)}, force=False)
        args = ("--no-discovery", "--no-admin")
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            with (
                RelayProcess(RELAY_CORE, *args) as plain,
                RelayProcess(RELAY_CORE, *args, "--auth", str(keys)) as guarded,
            ):
                uvloop.run(bench.round(plain, guarded))
    return [figure for case in bench.cases for figure in case.figures()]


class _Bench:
    """What is compared, and what was found."""

    def __init__(self, sessions: int, objects: int) -> None:
        self.key = generate(Algorithm.EDDSA, "bench")
        self.known = _Case("sessions, one token for all", "a session", MOST_OF_A_HANDSHAKE)
        self.new = _Case("sessions, a token for each", "a session", MOST_OF_A_HANDSHAKE)
        self.carried = _Case("objects of 1,000 bytes", "an object", MOST_OF_AN_OBJECT)
        self.cases = (self.known, self.new, self.carried)
        self._sessions = sessions
        self._objects = objects
        self._numbers = count()
        "Of tokens: no two are the same."
        self._one = _sign(self.key, next(self._numbers))

    async def round(self, plain: RelayProcess, guarded: RelayProcess) -> None:
        """All comparisons, with two relays that have just been started."""
        for relay in (plain, guarded):
            await _connect(relay, [self._one] * WARM_UP)
            await _connect(relay, self._new_tokens(WARM_UP))
            await _carry(relay, self._one, self._objects)
        for _ in range(COMPARED):
            for case in self.cases:
                await self._compare(case, plain, guarded)

    async def _compare(self, case: _Case, plain: RelayProcess, guarded: RelayProcess) -> None:
        order = [plain, guarded, guarded, plain]
        if len(case.open_us) % 2:
            order = [guarded, plain, plain, guarded]
        spent_us = {plain: 0.0, guarded: 0.0}
        for relay in order:
            spent_us[relay] += await self._turn(case, relay) / 2
        case.open_us.append(spent_us[plain])
        case.guarded_us.append(spent_us[guarded])

    async def _turn(self, case: _Case, relay: RelayProcess) -> float:
        """What a turn takes of a relay's time, in microseconds for each session or object."""
        if case is self.carried:
            return await _carry(relay, self._one, self._objects)
        is_known = case is self.known
        tokens = [self._one] * self._sessions if is_known else self._new_tokens(self._sessions)
        before = worked_s(relay.pid)
        await _connect(relay, tokens)
        return (worked_s(relay.pid) - before) * 1e6 / self._sessions

    def _new_tokens(self, number: int) -> list[str]:
        return [_sign(self.key, next(self._numbers)) for _ in range(number)]


def _sign(key: Key, number: int) -> str:
    """A token that no other is the same as."""
    below = ((NAMESPACE.encode(),),)
    terms = Terms(below, below, expires=int(time.time()) + 3600, id=f"bench-{number}")
    return issue_jwt(terms, key)


async def _connect(relay: RelayProcess, tokens: list[str]) -> None:
    """A session for each token, some at a time."""
    waiting = iter(tokens)

    async def work() -> None:
        for token in waiting:
            async with laps.connect(f"moqt://127.0.0.1:{relay.port}", token=token):
                pass

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


async def _carry(relay: RelayProcess, token: str, number: int) -> float:
    """Objects from a publisher to a subscriber, and the microseconds that the relay takes for each.

    Their sessions are set up before.
    """
    url = f"moqt://127.0.0.1:{relay.port}"
    async with laps.connect(url, token=token) as source, laps.connect(url, token=token) as reader:
        track = await source.publish(NAMESPACE, "track")
        await track.write(OBJECT)
        objects = reader.subscribe(NAMESPACE, "track", start="start")
        await anext(objects)

        async def write() -> None:
            for _ in range(number):
                await track.write(OBJECT)

        before = worked_s(relay.pid)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(write())
            for index in range(number):
                if len((await anext(objects)).payload) != len(OBJECT):
                    raise LapsError(f"object {index} is another than the one that was written")
        return (worked_s(relay.pid) - before) * 1e6 / number


@contextmanager
def _on_core(core: int) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(before)[core % len(before)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
