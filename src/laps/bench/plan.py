"""`laps bench plan`: the kernel on Spark beside DuckDB and Polars, on the same bucketed files.

A demand is made up and bucketed once. Then each adds up the cells of the planner: what all s-relays
of a track in a region allow together, and four sums for each combination of o-relay, region,
profile, mask and class of n. The answers are compared number by number, so nobody is fast by doing
less. The time of `laps` is that of the whole Spark job, the session being up, as it is to plan.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from laps.bench.plan_rivals import NAMES
from laps.bench.tables import table_of_figures
from laps.errors import LapsError
from laps.policy import policy_from_mapping
from laps.spark import session
from laps.spark.planner import large, tasks
from laps.spark.planner.cells import together
from laps.spark.planner.generate import generate_network, shares_of
from laps.spark.planner.jobs import Peak
from laps.spark.planner.options import find_options
from laps.spark.planner.store import write_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.table import Table

    from laps.spark.planner.cells import Shape
    from laps.spark.planner.generate import Size
    from laps.spark.planner.options import Options

WANTED: Final = 2.0
"""How many times as fast as the better of the others the project asks itself to be."""


@dataclass(frozen=True, slots=True)
class Reached:
    """What one of them took."""

    name: str
    seconds: float
    """The median of all rounds."""
    peak_bytes: int | None
    problem: str = ""
    """Why there is no figure."""


@dataclass(frozen=True, slots=True)
class Result:
    """All of them on the same files."""

    subscriptions: int
    tracks: int
    nodes: int
    cells: int
    bucketing_s: float
    reached: tuple[Reached, ...]
    """`laps` first."""

    @property
    def ratio(self) -> float | None:
        """The time of the better of the others over ours."""
        others = [one.seconds for one in self.reached[1:] if not one.problem]
        return min(others) / self.reached[0].seconds if others else None

    def holds(self) -> bool:
        """Whether it is what the project asks of itself."""
        return self.ratio is not None and self.ratio >= WANTED


def measure(size: Size, rounds: int, progress: Callable[[str], None] = lambda _: None) -> Result:
    """Make up a demand, bucket it, and let everybody add it up."""
    rivals = [name for name in NAMES if find_spec(name) is not None]
    if not rivals:
        raise LapsError(
            "laps bench plan measures beside DuckDB and Polars, and there is neither: "
            "pip install --group bench, in the source tree, or pip install duckdb polars"
        )
    policy = policy_from_mapping({}, "policy")
    spark = session(settings=large.SETTINGS)
    with tempfile.TemporaryDirectory(prefix="laps-bench-plan-") as temporary:
        folder = Path(temporary)
        watch = large.Watch(lambda name, done, total: progress(f"{name}: {done} of {total}"))
        works = large.Works(spark, watch)
        progress("making up the network")
        network = generate_network(size, policy, shares_of(policy))
        write_network(folder, network)
        large.make_up(works, folder, folder / "raw", size, shares_of(policy))
        made_up = watch.seconds
        gathered = large.bucket(works, folder / "raw", folder, network)
        bucketing_s = watch.seconds - made_up
        options = find_options(network, policy.profiles)
        with _laid_out(folder, options) as (bench, names):
            reached, cells = _laps(works, folder, bench, names, rounds)
            found = [reached]
            for name in rivals:
                progress(f"{name}: {rounds} times")
                found.append(_rival(name, folder, rounds, names.shape, cells))
    return Result(
        gathered.subscriptions,
        gathered.tracks,
        size.nodes,
        len(cells[0]),
        bucketing_s,
        tuple(found),
    )


@contextmanager
def _laid_out(folder: Path, options: Options) -> Iterator[tuple[Path, tasks.Names]]:
    bench = folder / "bench"
    bench.mkdir()
    names = large.lay_out(bench, options)
    begins = np.searchsorted(names.shape.class_of, np.arange(names.shape.classes))
    np.save(bench / "begins.npy", begins.clip(1))
    yield bench, names


def _laps(
    works: large.Works, folder: Path, bench: Path, names: tasks.Names, rounds: int
) -> tuple[Reached, tuple[Any, Any]]:
    shares = works.shares(large.count_buckets(folder))
    cells: tuple[Any, Any] = (np.empty(0), np.empty(0))
    before = len(works.watch.phases)
    with Peak() as peak:
        for _ in range(rounds):
            with works.watch.phase("laps"):
                work = partial(tasks.add_cells, folder, bench, names)
                parts = []
                for path in works.run("laps: sum", work, shares):
                    found = tasks.added_up(path)
                    parts.append((found["cell"], found["sums"]))
                cells = together(parts)
    seconds = [phase.seconds for phase in works.watch.phases[before:] if phase.name == "laps"]
    return Reached("laps", median(seconds), peak.bytes), cells


def _rival(name: str, folder: Path, rounds: int, shape: Shape, cells: tuple[Any, Any]) -> Reached:
    command = [sys.executable, "-m", "laps.bench.plan_rivals", name, str(folder), str(rounds)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
    if process.returncode:
        last = process.stderr.strip().splitlines()[-1:] or ["no memory, perhaps"]
        return Reached(name, 0.0, None, f"ended with status {process.returncode}: {last[0]}")
    told = json.loads(process.stdout.strip().splitlines()[-1])
    with np.load(folder / "bench" / f"{name}.npz") as found:
        _compare(name, shape, {key: found[key] for key in found.files}, cells)
    label = f"{name} {told['version']}"
    return Reached(label, median(told["seconds"]), told["peak_bytes"])


def _compare(name: str, shape: Shape, found: dict[str, Any], cells: tuple[Any, Any]) -> None:
    """LapsError if the answer is another."""
    mask = found["mask"].astype(np.int64)
    low = (mask & (1 << shape.candidates) - 1) | mask >> 7 << shape.candidates
    number = found["origin"].astype(np.int64)
    for size, part in (
        (shape.regions, found["region"]),
        (shape.profiles, found["profile"]),
        (shape.masks, low),
        (shape.classes, found["class"]),
    ):
        number = number * size + part.astype(np.int64)
    order = np.argsort(number)
    sums = np.stack([found[key][order] for key in ("pairs", "copies", "rate", "egress")])
    if not np.array_equal(number[order], cells[0]):
        raise LapsError(f"{name} finds {len(number):,} cells, and laps others: {len(cells[0]):,}")
    if not np.allclose(sums.astype(np.float64), cells[1], rtol=1e-12, atol=0):
        worst = np.abs(sums / cells[1] - 1).max()
        raise LapsError(f"{name} has other sums than laps, by up to {worst:.2g} of them")


def as_mapping(result: Result) -> dict[str, object]:
    """The result for a program."""
    ratio = None if result.ratio is None else round(result.ratio, 3)
    return {**asdict(result), "ratio": ratio, "wanted": WANTED, "holds": result.holds()}


def table(result: Result) -> Table:
    """The result for a person."""
    ratio = "" if result.ratio is None else f"{result.ratio:.2f}"
    shown = table_of_figures(
        f"{result.subscriptions:,} subscriptions of {result.tracks:,} tracks at "
        f"{result.nodes:,} relays: {result.cells:,} cells",
        f"The same sums of all. The better of the others over laps: {ratio} "
        f"({WANTED:g}).\nBucketing, once, took {result.bucketing_s:.1f} s.",
    )
    shown.add_column("", no_wrap=True)
    for name in ("s", "million rows/s", "peak GiB"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("")
    for one in result.reached:
        shown.add_row(one.name, *_figures(one, result.subscriptions), one.problem)
    return shown


def _figures(one: Reached, rows: int) -> Sequence[str]:
    if one.problem:
        return "-", "-", "-"
    peak = "-" if one.peak_bytes is None else f"{one.peak_bytes / (1 << 30):.2f}"
    return f"{one.seconds:.2f}", f"{rows / one.seconds / 1e6:.1f}", peak
