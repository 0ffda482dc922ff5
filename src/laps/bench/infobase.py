"""`laps bench infobase`: what it takes to hold every subscribe of a network.

Each count is a process of its own, so that the memory one leaves behind is not there for the
next to use. Subscribes come as they do off the wire, as views of the messages they arrived in,
from all nodes in turn; only adding them is timed, not making them up, and by the time of the
processor, as whatever else the machine does is not the relay's. Two networks at each count:

    own tracks       every subscribe is of a track nobody else wants
    shared tracks    every node wants the same few

This module is also the program of the process: `python -m laps.bench.infobase 1000000 1000`.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Final

from laps.bench import process
from laps.bench.tables import table_of_figures
from laps.errors import LapsError
from laps.infobase.subscribes import Subscribes
from laps.types import NodeId, SubscribeInfo, TrackName, hash_track

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.table import Table

COUNTS: Final = (10_000, 100_000, 1_000_000, 4_000_000)
NODES: Final = 1_000
NETWORKS: Final = ("own tracks", "shared tracks")

# What is made up at a time: enough to time, too little to be seen in the memory.
BATCH: Final = 1_000

# The process of a count reports so often how many it has added.
REPORT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the project asks of itself."""

    entries: int
    """Of so many and more: of fewer, what each node costs is a good part."""
    most_bytes: float
    """For an entry, all in."""
    most_us: float
    """To add an entry."""


WANTED: Final = Wanted(entries=1_000_000, most_bytes=100.0, most_us=15.0)


@dataclass(frozen=True, slots=True)
class Result:
    """What so many subscribes took."""

    network: str
    entries: int
    nodes: int
    tracks: int
    seconds: float
    """Time of the processor, to add them all."""
    resident_mb: float
    """By how much the process grew."""

    @property
    def entries_per_s(self) -> float:
        """How fast they were added."""
        return self.entries / self.seconds

    @property
    def bytes_per_entry(self) -> float:
        """Of resident memory, with everything that is spent beside the entries."""
        return self.resident_mb * 1e6 / self.entries

    def holds(self) -> bool:
        """Whether it is what the project asks of itself, where that is of as many entries."""
        return self.entries < WANTED.entries or (
            self.seconds * 1e6 <= WANTED.most_us * self.entries
            and self.bytes_per_entry <= WANTED.most_bytes
        )


def measure(
    counts: Sequence[int] = COUNTS,
    nodes: int = NODES,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Result]:
    """Run every count on every network; `progress` is told what is under way."""
    return [_run(count, nodes, network, progress) for network in NETWORKS for count in counts]


def holds(results: Sequence[Result]) -> bool:
    """Whether all of it is what the project asks of itself."""
    return all(result.holds() for result in results)


def as_mapping(results: Sequence[Result]) -> list[dict[str, object]]:
    """The results for a program."""
    return [
        {
            **asdict(result),
            "seconds": round(result.seconds, 3),
            "resident_mb": round(result.resident_mb, 1),
            "entries_per_s": round(result.entries_per_s),
            "bytes_per_entry": round(result.bytes_per_entry, 1),
            "holds": result.holds(),
        }
        for result in results
    ]


def table(results: Sequence[Result]) -> Table:
    """The results for a person."""
    table = table_of_figures(
        f"Subscribes of {results[0].nodes:,} nodes in the information base of one relay",
        f"From {WANTED.entries:,} on the project asks of itself at most\n"
        f"{WANTED.most_bytes:g} bytes and {WANTED.most_us:g} µs each.",
    )
    table.add_column("", no_wrap=True)
    for name in ("subscribes", "tracks", "s", "thousand/s", "MB", "bytes each"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        table.add_row(
            result.network,
            f"{result.entries:,}",
            f"{result.tracks:,}",
            f"{result.seconds:.2f}",
            f"{result.entries_per_s / 1000:,.0f}",
            f"{result.resident_mb:,.1f}",
            f"{result.bytes_per_entry:,.0f}",
        )
    return table


def _run(count: int, nodes: int, network: str, progress: Callable[[str], None]) -> Result:
    progress(f"{count:,} subscribes, {network}")
    with process.Process("laps.bench.infobase", str(count), str(nodes), network) as running:
        while "seconds" not in (line := json.loads(running.line())):
            progress(f"{line['added']:,} of {count:,} subscribes, {network}")
    return Result(**line)


# -- what the process does -------------------------------------------------------------------------


def fill(
    count: int, nodes: int, network: str, progress: Callable[[int], None] = lambda _: None
) -> Result:
    """Add so many subscribes to an empty information base in this process."""
    tracks = count if network == "own tracks" else max(1, count // nodes)
    subscribes = Subscribes()
    messages = made_up(count, nodes, tracks)
    gc.collect()
    before, seconds, reported_at = resident_bytes(), 0.0, perf_counter()
    while batch := list(islice(messages, BATCH)):
        started = process_time()
        for info in batch:
            subscribes.add(info, 0.0)
        seconds += process_time() - started
        if perf_counter() - reported_at > REPORT_S:
            reported_at = perf_counter()
            progress(len(subscribes))
    grown = resident_bytes() - before
    if len(subscribes) != count or sum(1 for _ in subscribes.tracks()) != tracks:
        raise LapsError(f"{len(subscribes):,} of {count:,} subscribes are held")
    return Result(network, count, nodes, tracks, seconds, max(grown, 0) / 1e6)


def made_up(count: int, nodes: int, tracks: int) -> Iterator[SubscribeInfo]:
    """Subscribes as they come off the wire, of each node in turn; no two are the same."""
    for number in range(count):
        source = NodeId(1 << 48 | number % nodes)
        track = number // nodes if tracks < count else number
        name = TrackName((b"conference.example", b"room-%06d" % (track // 20)), b"cam-%07d" % track)
        hashes = hash_track(name)
        data = _subscribe(number, name)
        head = b"".join(
            (
                number.to_bytes(8),  # as long as the headers: what is kept must not keep them
                source.to_bytes(8),
                hashes.namespace_hash.to_bytes(8),
                hashes.name_hash.to_bytes(8),
                hashes.full_name_hash.to_bytes(8),
            )
        )
        yield SubscribeInfo(1, source, hashes, memoryview(head + data)[len(head) :])


def _subscribe(request_id: int, track: TrackName) -> bytes:
    # type(1) | length(2) | request_id(4) | parts(1) | part(1 + n) ... | name(1 + n) |
    # parameters(1) | token(2 + n) | forward(2) | subscriber_priority(3) | filter(3)
    parts = b"".join(bytes((len(part),)) + part for part in track.namespace)
    name = bytes((len(track.name),)) + track.name
    parameters = b"\x04\x03\x10\x03\x00token-example!\x0d\x01\x10\x40\x80\x01\x01\x02"
    ids = (request_id | 2 << 30).to_bytes(4)
    payload = ids + bytes((len(track.namespace),)) + parts + name + parameters
    return b"\x03" + len(payload).to_bytes(2) + payload


def resident_bytes() -> int:
    """How much memory this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _main(count: str, nodes: str = str(NODES), network: str = NETWORKS[0]) -> None:
    def say(what: dict[str, object]) -> None:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()

    say(asdict(fill(int(count), int(nodes), network, lambda added: say({"added": added}))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
