"""Plans of any size on Spark: twice through bucketed tables, and a solution on cells in between.

    bucket    tables in any order become buckets (once; later plans use them again)
    sum       pairs are added up by cell; so is what hub and spoke takes today
    slice     cells that are large beside what is short are added up in slices, if there are any
    solve     capacity, on cells, in this process
    assign    every pair gets its option; the plan is written, and everything is added up exactly

Links are loaded by estimate until `assign` has added them up. If one is past its limit then, it is
solved again with that much less, and assigned again; what is left after that is said, not hidden.

Tasks are told file names and numbers of buckets, and read and write the files themselves: on a
cluster the folder has to be one that all its machines have under the same path.
"""

from __future__ import annotations

import shutil
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from laps.errors import ConfigError
from laps.spark.planner import jobs, layout, tasks
from laps.spark.planner.audience import chunks_of
from laps.spark.planner.bucket import Gathered, buckets_for, count_rows, pieces_of
from laps.spark.planner.cells import EGRESS, PAIRS, SUMS, cells_of, shape_of, together
from laps.spark.planner.kernel import places
from laps.spark.planner.outcome import add_results, cost_alone, planned, today
from laps.spark.planner.prices import coarse, short, solve
from laps.spark.planner.resources import find_slots
from laps.spark.planner.slicing import MOST, SLICES, choice_of, sliced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from laps.spark.planner.cells import Cells
    from laps.spark.planner.generate import Size
    from laps.spark.planner.kernel import Floats
    from laps.spark.planner.network import Network
    from laps.spark.planner.options import Options
    from laps.spark.planner.outcome import LargePlan
    from laps.spark.planner.prices import Solution
    from laps.spark.planner.resources import Slots

SETTINGS: Final = {
    # Rows never come near Java: it hands out tasks.
    "spark.driver.memory": "1g",
    "spark.locality.wait": "0",
}
"For `laps.spark.session`."

# Tasks for each core: enough to see them end, and few enough that what each adds up is little.
_TASKS_PER_CORE: Final = 4

# A task takes a while to begin and to end, so it is given some buckets at least.
_BUCKETS_PER_TASK: Final = 8

# How often what links really carry may turn out to be too much.
_ATTEMPTS: Final = 4
_TIGHTER: Final = 2e-3


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the work, and how long it took."""

    name: str
    seconds: float


class Watch:
    """Times phases, and tells whoever looks how far they are."""

    def __init__(
        self, progress: Callable[[str, int, int], None] = lambda name, done, total: None
    ) -> None:
        self._progress = progress
        self.phases: list[Phase] = []

    @contextmanager
    def phase(self, name: str, total: int = 1) -> Iterator[Callable[[int], None]]:
        """A part of the work; what it yields is told how much of the total is done."""
        began = time.perf_counter()
        self._progress(name, 0, total)
        # That all of it is done is said once, when it is over.
        yield lambda done: self._progress(name, min(done, total - 1), total)
        self._progress(name, total, total)
        self.phases.append(Phase(name, time.perf_counter() - began))

    @property
    def seconds(self) -> float:
        """Of all phases."""
        return sum(phase.seconds for phase in self.phases)


class Works:
    """Spark, and how work is put on it."""

    def __init__(self, spark: SparkSession, watch: Watch) -> None:
        self.spark = spark
        self.watch = watch

    @property
    def task_count(self) -> int:
        """How many tasks a phase has."""
        return self.spark.sparkContext.defaultParallelism * _TASKS_PER_CORE

    def run(self, name: str, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Do a phase: an item in each task."""
        with self.watch.phase(name, len(items)) as progress:
            return jobs.run(self.spark, work, items, name=name, progress=progress)

    def shares(self, buckets: int) -> list[tasks.Share]:
        """All buckets, dealt out."""
        cores = self.task_count // _TASKS_PER_CORE
        count = min(self.task_count, buckets, max(cores, buckets // _BUCKETS_PER_TASK))
        return [tasks.Share(n, tuple(range(n, buckets, count))) for n in range(count)]


@contextmanager
def work_folder(folder: Path) -> Iterator[Path]:
    """A place for what is in between, which is gone afterwards. Its name is never used again."""
    work = folder / f"work-{uuid.uuid4().hex[:12]}"
    work.mkdir(parents=True)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


# -- making up -------------------------------------------------------------------------------------


def make_up(
    works: Works, folder: Path, raw: Path, size: Size, shares: Sequence[float], seed: int = 1
) -> int:
    """Write tracks and subscriptions, in no order, for the network that `folder` has."""
    for table in ("tracks", "subscriptions"):
        (raw / table).mkdir(parents=True, exist_ok=True)
    work = partial(tasks.make_up, folder, raw, tuple(shares), seed)
    return sum(works.run("make up demand", work, chunks_of(size.tracks, size.subscriptions)))


# -- bucketing -------------------------------------------------------------------------------------


def bucket(works: Works, raw: Path, folder: Path, network: Network) -> Gathered:
    """Put the tables `tracks` and `subscriptions` of one folder into buckets in another."""
    files = {table: _files(raw, table) for table in ("tracks", "subscriptions")}
    count = buckets_for(count_rows(files["subscriptions"]))
    for table in files:
        (folder / table).mkdir(parents=True, exist_ok=True)
    layout.clear(folder, tuple(files))
    with work_folder(folder) as work:
        np.save(work / "place.npy", places(network))
        parts = [
            tasks.Part(number, table, tuple(pieces))
            for table in files
            for number, pieces in enumerate(pieces_of(files[table], works.task_count))
        ]
        found = works.run("bucket: spread", partial(tasks.spread, work, count), parts)
        runs = {
            table: tuple(run for run, part in zip(found, parts, strict=True) if part.table == table)
            for table in files
        }
        gather = partial(tasks.gather, folder, work, runs)
        gathered = works.run("bucket: gather", gather, works.shares(count))
    return sum(gathered, Gathered())


def _files(folder: Path, table: str) -> list[Path]:
    files = sorted((folder / table).glob("*.parquet"))
    if not files:
        raise ConfigError(f"{folder / table}: there are no Parquet files: it is a folder of them")
    return files


def count_buckets(folder: Path) -> int:
    """How many buckets the tables of a folder have; 0 where they are not bucketed."""
    counts = {
        table: len(list((folder / table).glob("bucket-*.parquet")))
        for table in ("tracks", "subscriptions")
    }
    if len(set(counts.values())) > 1:
        raise ConfigError(
            f"{folder}: tracks have {counts['tracks']} buckets and subscriptions "
            f"{counts['subscriptions']}: bucket both tables again"
        )
    return counts["tracks"]


# -- planning --------------------------------------------------------------------------------------


def plan(works: Works, folder: Path, options: Options) -> LargePlan:
    """Plan the bucketed tables of a folder, and write the plan beside them."""
    for table in ("plan", "infeasible"):
        (folder / table).mkdir(parents=True, exist_ok=True)
    layout.clear(folder, ("plan", "infeasible"))
    with work_folder(folder) as work:
        return _Planning(works, folder, work, options).done()


def lay_out(work: Path, options: Options) -> tasks.Names:
    """Put what tasks look up where they find it."""
    network = options.network
    save(
        work,
        region=network.region,
        place=places(network),
        is_edge=network.is_edge,
        allowed=options.allowed,
        fan_out=np.array([profile.fan_out for profile in options.profiles], np.int32),
        srtt_us=options.paths.srtt_us,
    )
    nodes = tuple(node.id for node in network.nodes)
    return tasks.Names(nodes, network.regions, shape_of(options))


def save(work: Path, **arrays: Any) -> None:
    """Write arrays, each under its name."""
    for name, array in arrays.items():
        # By another name first: a worker may have the old one mapped.
        made = work / f".{name}.npy"
        np.save(made, array)
        made.replace(work / f"{name}.npy")


class _Planning:
    """One plan while it is made."""

    def __init__(self, works: Works, folder: Path, work: Path, options: Options) -> None:
        self._works = works
        self._folder = folder
        self._work = work
        self._options = options
        self._names = lay_out(work, options)
        self._shape = self._names.shape
        self._shares = works.shares(count_buckets(folder))

    def done(self) -> LargePlan:
        """All of it."""
        cells, flow, delays = self._sum()
        slots = find_slots(self._options, flow.reshape(self._shape.nodes, -1).sum(axis=0))
        least = cost_alone(slots, cells)
        before = today(slots, cells, flow, delays)
        cells = self._sliced(slots, cells)
        within = slots.limits.copy()
        for attempt in range(1, _ATTEMPTS + 1):
            with self._works.watch.phase("solve"):
                solution = solve(slots, cells, within)
                self._lay_out(slots, cells, solution)
            work = partial(
                tasks.assign, self._folder, self._work, self._names, solution.left_out_price
            )
            result = add_results(self._works.run("assign", work, self._shares))
            with self._works.watch.phase("check"):
                plan = planned(slots, solution, result, before, least)
            loads = plan.planned.loads
            past = (slots.limits > 0) & (loads > slots.limits)
            if not past.any():
                break
            # The more often, the less it is allowed.
            within[past] *= (slots.limits[past] / loads[past]) ** attempt * (1 - _TIGHTER)
        return plan

    def _sum(self) -> tuple[Cells, Floats, Floats]:
        work = partial(tasks.add_up, self._folder, self._work, self._names)
        parts, flow, delays = [], np.zeros(self._shape.nodes**2), np.zeros(1)
        for path in self._works.run("sum", work, self._shares):
            found = tasks.added_up(path)
            parts.append((found["cell"], found["sums"]))
            flow += found["flow"]
            delays = delays + found["delays"]
        return cells_of(self._options, self._shape, *together(parts)), flow, delays

    def _sliced(self, slots: Slots, cells: Cells) -> Cells:
        """Cells that are large beside something that is short, in slices."""
        with self._works.watch.phase("look"):
            past = short(slots, cells, slots.limits)
            which = np.zeros(len(cells), np.bool_)
            if past.any():
                which = coarse(slots, cells, past, slots.limits) & (cells.sums[PAIRS] > 1)
            if which.sum() > MOST:
                least = np.partition(cells.sums[EGRESS][which], -MOST)[-MOST]
                which &= cells.sums[EGRESS] >= least
        if not which.any():
            return cells
        save(self._work, split=cells.number[which])
        work = partial(tasks.slice_up, self._folder, self._work, self._names)
        sums = np.zeros((int(which.sum()), SLICES, SUMS))
        for path in self._works.run("slice", work, self._shares):
            sums += tasks.added_up(path)["sums"].reshape(sums.shape)
        return sliced(cells, which, sums)

    def _lay_out(self, slots: Slots, cells: Cells, solution: Solution) -> None:
        """Put where tasks find it: what cells take, and what rows cost at the prices."""
        choice = choice_of(self._shape, slots, cells, solution)
        save(self._work, code=choice.code, split=choice.split, of_slice=choice.of_slice)
        limited = np.flatnonzero(solution.prices)
        fixed, each, onward = slots.at_prices(limited, solution.prices[limited])
        touched = slots.touched(onward)
        save(self._work, via=slots.via, fixed=fixed, each=each, onward=onward, touched=touched)
        (self._work / "priced").unlink(missing_ok=True)
        if solution.priced:
            (self._work / "priced").touch()
