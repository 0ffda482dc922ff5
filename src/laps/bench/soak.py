"""`laps bench soak`: relays under connects, leaves and churn for as long as you like, watched.

Publishers of four tracks, at a tenth of a second's pace, some of whom leave and come back under the
same name; readers that stay, and readers that come, read for a moment and leave. On one relay, and
on three in a row. What is measured, of each relay:

    third, MB      its memory after the first third, when caches and tables are full
    end, MB        and at the end
    growth         from one to the other, in per cent
    left, MB       when everybody has left and what was kept has expired

and of the readers that stayed, how many objects were missing.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

import laps
from laps.bench.relay_process import RelayProcess, rss_bytes
from laps.bench.tables import table_of_figures
from laps.errors import LapsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

TRACKS: Final = 4
READERS: Final = 8
OBJECT_BYTES: Final = 5_000
PACE_S: Final = 0.1
# A new group for so many objects.
GROUP_OBJECTS: Final = 10
VISITS_PER_S: Final = 2.0
VISIT_OBJECTS: Final = 5
# A publisher leaves, and comes back, after so many objects.
STAY_OBJECTS: Final = 600

MOST_GROWTH: Final = 0.05


@dataclass(frozen=True, slots=True)
class Result:
    """How one relay fared."""

    relays: int
    relay: int
    third_mb: float
    end_mb: float
    left_mb: float
    visits: int
    objects: int
    """What the readers that stayed received in all."""
    missing: int

    @property
    def growth(self) -> float:
        """From the end of the first third to the end."""
        return self.end_mb / self.third_mb - 1

    def holds(self) -> bool:
        """Whether it is what the project asks of itself."""
        return self.growth <= MOST_GROWTH and not self.missing


@dataclass(slots=True)
class _Counts:
    visits: int = 0
    failed: int = 0
    objects: int = 0
    missing: int = 0
    last: dict[tuple[int, int], int] = field(default_factory=dict)
    "The number of the last object of a track that a reader has."


def measure(minutes: float, progress: Callable[[str], None] = lambda _: None) -> list[Result]:
    """Soak one relay, and then three, for so long each."""
    return [result for relays in (1, 3) for result in _soak(relays, minutes * 60, progress)]


def _soak(relays: int, seconds: float, progress: Callable[[str], None]) -> list[Result]:
    with ExitStack() as stack:
        row: list[RelayProcess] = []
        for number in range(relays):
            peer = ["--peer", row[-1].peer_address] if row else []
            process = RelayProcess(number, "--node-id", f"9:{number + 1}", *peer)
            row.append(stack.enter_context(process))
        third, end, counts = asyncio.run(_run(row, seconds, progress))
        progress(f"{relays} relays: everybody has left")
        time.sleep(70.0 if seconds > 60 else 1.0)  # what is kept has expired by then
        left = [_megabytes(process) for process in row]
    return [
        Result(relays, number + 1, *figures, counts.visits, counts.objects, counts.missing)
        for number, figures in enumerate(zip(third, end, left, strict=True))
    ]


async def _run(
    row: list[RelayProcess], seconds: float, progress: Callable[[str], None]
) -> tuple[list[float], list[float], _Counts]:
    counts, until = _Counts(), time.monotonic() + seconds
    first, last = (f"moqt://127.0.0.1:{process.port}" for process in (row[0], row[-1]))
    tasks = [asyncio.ensure_future(_publish(first, track, until)) for track in range(TRACKS)]
    await asyncio.sleep(min(1.0, seconds / 10))
    tasks += [
        asyncio.ensure_future(_read(last, number, number % TRACKS, until, counts))
        for number in range(READERS)
    ]
    tasks.append(asyncio.ensure_future(_visit([first, last], until, counts)))
    third: list[float] = []
    while (left := until - time.monotonic()) > 0:
        sizes = [_megabytes(process) for process in row]
        if not third and left < seconds * 2 / 3:
            third = sizes
        memory = ", ".join(f"{size:.0f}" for size in sizes)
        progress(f"{len(row)} relays: {left:.0f} s left, {counts.visits} visits, {memory} MB")
        await asyncio.sleep(min(2.0, seconds / 20))
    end = [_megabytes(process) for process in row]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return third or end, end, counts


async def _publish(url: str, number: int, until: float) -> None:
    """Publish a track, leave in the middle, and go on under the same name."""
    written = 0
    while time.monotonic() < until:
        async with laps.connect(url) as session:
            track = await session.publish("soak", f"track-{number}")
            for _ in range(STAY_OBJECTS):
                payload = written.to_bytes(8) + bytes(OBJECT_BYTES - 8)
                await track.write(payload, new_group=written % GROUP_OBJECTS == 0)
                written += 1
                await asyncio.sleep(PACE_S)
            await track.end()


async def _read(url: str, reader: int, number: int, until: float, counts: _Counts) -> None:
    """Read a track as long as the soak takes."""
    while time.monotonic() < until:
        async with laps.connect(url) as session:
            # From its start: who has to subscribe again finds what it missed in the cache.
            async for item in session.subscribe("soak", f"track-{number}", start="start"):
                count = int.from_bytes(item.payload[:8])
                last = counts.last.get((reader, number))
                if last is not None and count > last + 1:
                    counts.missing += count - last - 1
                counts.last[reader, number] = max(count, last or 0)
                counts.objects += 1


async def _visit(urls: list[str], until: float, counts: _Counts) -> None:
    """Readers that come and go."""
    visiting: set[asyncio.Task[None]] = set()
    chance = random.Random(1)  # noqa: S311 - any visitor will do
    while time.monotonic() < until:
        url, number = chance.choice(urls), chance.randrange(TRACKS)
        task = asyncio.ensure_future(_visit_once(url, number, counts))
        visiting.add(task)
        task.add_done_callback(visiting.discard)
        await asyncio.sleep(chance.expovariate(VISITS_PER_S))
    await asyncio.gather(*visiting, return_exceptions=True)


async def _visit_once(url: str, number: int, counts: _Counts) -> None:
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(10), laps.connect(url) as session:
                seen = 0
                async for _ in session.subscribe("soak", f"track-{number}", start="current"):
                    seen += 1
                    if seen == VISIT_OBJECTS:
                        break
    except LapsError:
        counts.failed += 1
    counts.visits += 1


def _megabytes(process: RelayProcess) -> float:
    return rss_bytes(process.pid) / 1e6


def as_mapping(results: list[Result]) -> list[dict[str, object]]:
    """For programs."""
    return [
        {**asdict(result), "growth": result.growth, "holds": result.holds()} for result in results
    ]


def table(results: list[Result]) -> Table:
    """For people."""
    caption = "memory after the first third, at the end, and when everybody has left"
    found = table_of_figures("relays under connects, leaves and churn", caption)
    for head in ("relays", "relay", "third, MB", "end, MB", "growth", "left, MB", "visits"):
        found.add_column(head, justify="right")
    found.add_column("missing", justify="right")
    for it in results:
        sizes = f"{it.third_mb:.0f}", f"{it.end_mb:.0f}", f"{it.growth:+.1%}", f"{it.left_mb:.0f}"
        found.add_row(
            str(it.relays), str(it.relay), *sizes, str(it.visits), f"{it.missing} of {it.objects}"
        )
    return found
