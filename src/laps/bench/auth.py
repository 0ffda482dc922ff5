"""`laps bench auth`: what it costs a relay to ask clients for tokens.

    clients -> relay without keys        the same clients, in turns: the processor time of the one
    clients -> relay with keys           relay for each session and object, beside that of the other

Both relays are as an operator starts them, on the first core, and their clients on the second. The
time of a turn is compared with that of the turn beside it, so that what else the machine does, and
what drifts, is on both sides.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
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


@dataclass(slots=True)
class _Turns:
    """What the turns of one case took."""

    what: str
    unit: str
    most: float
    open_us: list[float] = field(default_factory=list)
    guarded_us: list[float] = field(default_factory=list)

    def figures(self) -> list[Figure]:
        pairs = zip(self.guarded_us, self.open_us, strict=True)
        ratio = median(guarded / plain for guarded, plain in pairs)
        each = f"µs of the relay {self.unit}"
        return [
            Figure(self.what, "without keys", median(self.open_us), each),
            Figure(self.what, "with keys", median(self.guarded_us), each),
            Figure(self.what, "a second of a core, with keys", 1e6 / median(self.guarded_us), ""),
            Figure(self.what, "with keys by without", ratio, "", most=self.most),
        ]


def measure(
    sessions: int, objects: int, rounds: int, progress: Callable[[str], None]
) -> list[Figure]:
    """Turns of so many sessions, and so many objects, with both relays."""
    key = generate(Algorithm.EDDSA, "bench")
    with TemporaryDirectory() as folder, _on_core(CLIENT_CORE):
        keys = Path(folder) / "bench.pub.json"
        write_keys({keys: write_jwk(key, private=False)}, force=False)
        args = ("--no-discovery", "--no-admin")
        with (
            RelayProcess(RELAY_CORE, *args) as plain,
            RelayProcess(RELAY_CORE, *args, "--auth", str(keys)) as guarded,
        ):
            return uvloop.run(_measure(plain, guarded, key, (sessions, objects, rounds), progress))


async def _measure(
    plain: RelayProcess,
    guarded: RelayProcess,
    key: Key,
    amounts: tuple[int, int, int],
    progress: Callable[[str], None],
) -> list[Figure]:
    sessions, objects, rounds = amounts
    one = _sign(key, 0)
    cases = (
        _Turns("sessions, one token for all", "a session", MOST_OF_A_HANDSHAKE),
        _Turns("sessions, a token for each", "a session", MOST_OF_A_HANDSHAKE),
        _Turns("objects of 1,000 bytes", "an object", MOST_OF_AN_OBJECT),
    )
    await _connect(plain, [one] * AT_ONCE)  # what is imported first is not measured
    await _connect(guarded, [one] * AT_ONCE)
    for number in range(rounds):
        progress(f"turn {number + 1} of {rounds}")
        first = number * sessions + 1
        each = [_sign(key, first + count) for count in range(sessions)]
        for case, tokens in zip(cases, ([one] * sessions, each, None), strict=True):
            # Without, with, with, without: what drifts by itself is on both sides.
            relays = (plain, guarded) if number % 2 == 0 else (guarded, plain)
            for relay in relays:
                before = worked_s(relay.pid)
                if tokens is None:
                    await _carry(relay, one, objects)
                else:
                    await _connect(relay, tokens)
                spent = (worked_s(relay.pid) - before) * 1e6
                taken = case.open_us if relay is plain else case.guarded_us
                taken.append(spent / (objects if tokens is None else sessions))
    return [figure for case in cases for figure in case.figures()]


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


async def _carry(relay: RelayProcess, token: str, count: int) -> None:
    """Objects from a publisher to a subscriber, all of them."""
    url = f"moqt://127.0.0.1:{relay.port}"
    async with laps.connect(url, token=token) as source, laps.connect(url, token=token) as reader:
        track = await source.publish(NAMESPACE, "track")
        await track.write(OBJECT)
        objects = reader.subscribe(NAMESPACE, "track", start="start")
        await anext(objects)

        async def write() -> None:
            for _ in range(count):
                await track.write(OBJECT)

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(write())
            for number in range(count):
                if len((await anext(objects)).payload) != len(OBJECT):
                    raise LapsError(f"object {number} is another than the one that was written")


@contextmanager
def _on_core(core: int) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(before)[core % len(before)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
