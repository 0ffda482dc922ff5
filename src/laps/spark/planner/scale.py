"""Planning at scale, of a demand that is made up or from tables, and what there is to say of it."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from laps import units
from laps.errors import ConfigError, LapsError
from laps.spark import session
from laps.spark.planner import large, layout, store
from laps.spark.planner.bucket import Gathered, count_rows
from laps.spark.planner.generate import generate_network, shares_of
from laps.spark.planner.jobs import Peak
from laps.spark.planner.network import under
from laps.spark.planner.options import find_options
from laps.spark.planner.render import summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rich.console import Console, RenderableType

    from laps.policy import Policy
    from laps.spark.planner.generate import Size
    from laps.spark.planner.network import Network
    from laps.spark.planner.outcome import LargePlan

GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """A large plan, and what it took."""

    plan: LargePlan
    policy: Policy
    network: Network
    subscriptions: int
    """Rows that were read."""
    gathered: Gathered | None
    """What became of them; None where the tables were in buckets already."""
    made_up: tuple[large.Phase, ...]
    phases: tuple[large.Phase, ...]
    peak_bytes: int | None
    """Of this process, Java and its workers together."""

    @property
    def seconds(self) -> float:
        """From tables to the plan; what is made up is not counted."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def rows_per_s(self) -> float:
        """How fast that is."""
        return self.subscriptions / self.seconds

    def to_mapping(self) -> dict[str, Any]:
        """The summary for a program."""
        return {
            "format": "laps-plan-summary/1",
            "policy": self.policy.digest,
            "nodes": self.network.size,
            "subscriptions": self.subscriptions,
            **({} if self.gathered is None else {"bucketed": asdict(self.gathered)}),
            **self.plan.to_mapping(),
            "seconds": round(self.seconds, 3),
            "rows_per_s": round(self.rows_per_s),
            "peak_bytes": self.peak_bytes,
            "phases": [asdict(phase) for phase in self.phases],
            "made_up": [asdict(phase) for phase in self.made_up],
        }


def plan_made_up(
    size: Size, policy: Policy, source: str, folder: Path, master: str | None, console: Console
) -> Scaled:
    """Make up a network and its demand in a folder, and plan it there."""
    raw = folder / "raw"
    spark = session(master, settings=large.SETTINGS)
    with _bars(console) as progress:
        watch = large.Watch(progress)
        with watch.phase("make up network"):
            network = under(policy, generate_network(size, policy, shares_of(policy)), source)
            store.write_network(folder, network)
        works = large.Works(spark, watch)
        try:
            large.make_up(works, folder, raw, size, shares_of(policy))
            return _plan(spark, raw, folder, network, policy, progress, tuple(watch.phases))
        finally:
            shutil.rmtree(raw, ignore_errors=True)


def plan_tables(
    tables: Path, folder: Path, policy: Policy, source: str, master: str | None, console: Console
) -> Scaled:
    """Plan the tables of one folder, in buckets or not, into another."""
    network = under(policy, store.read_network(tables), source)
    spark = session(master, settings=large.SETTINGS)
    with _bars(console) as progress:
        store.write_network(folder, network)
        return _plan(spark, tables, folder, network, policy, progress, ())


def _plan(
    spark: Any,
    tables: Path,
    folder: Path,
    network: Network,
    policy: Policy,
    progress: Callable[[str, int, int], None],
    made_up: tuple[large.Phase, ...],
) -> Scaled:
    watch = large.Watch(progress)
    works = large.Works(spark, watch)
    gathered = None
    with Peak() as peak:
        if large.count_buckets(tables):
            _adopt(tables, folder)
        else:
            gathered = large.bucket(works, tables, folder, network)
            if gathered.unknown:
                raise LapsError(
                    f"{tables}: {gathered.unknown:,} subscriptions are of tracks that "
                    f"{tables / 'tracks'} does not have: add them there"
                )
        with watch.phase("find options"):
            options = find_options(
                network,
                policy.profiles,
                candidates=policy.goals.candidates,
                long_haul_weight=policy.goals.long_haul_weight,
                origin_egress_weight=policy.goals.origin_egress_weight,
            )
        plan = large.plan(works, folder, options)
    rows = count_rows(sorted((tables / "subscriptions").glob("*.parquet")))
    scaled = Scaled(plan, policy, network, rows, gathered, made_up, tuple(watch.phases), peak.bytes)
    store.write_loads(folder, network, plan.planned.loads)
    layout.write_text(folder / "policy.json", json.dumps(policy.to_mapping(), indent=2) + "\n")
    layout.write_text(folder / "summary.json", json.dumps(scaled.to_mapping(), indent=2) + "\n")
    return scaled


def _adopt(tables: Path, folder: Path) -> None:
    """Have the same buckets in the folder of the plan, which then explains itself."""
    layout.clear(folder, ("tracks", "subscriptions"))
    for table in ("tracks", "subscriptions"):
        (folder / table).mkdir(parents=True, exist_ok=True)
        for path in sorted((tables / table).glob("bucket-*.parquet")):
            try:
                os.link(path, folder / table / path.name)
            except OSError:
                shutil.copyfile(path, folder / table / path.name)


def count_subscriptions(tables: Path) -> int:
    """How many rows the table has, 0 where there is no such table."""
    return count_rows(sorted((tables / "subscriptions").glob("*.parquet")))


# -- for people ------------------------------------------------------------------------------------


@contextmanager
def _bars(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for every phase."""
    columns = (
        TextColumn("{task.description:<16}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as shown:
        bars: dict[str, Any] = {}

        def progress(name: str, done: int, total: int) -> None:
            if name not in bars:
                bars[name] = shown.add_task(name, total=total)
            shown.update(bars[name], completed=done)
            if done == total:
                # A phase may come again, with a bar of its own.
                del bars[name]

        yield progress


def render(scaled: Scaled) -> list[RenderableType]:
    """What was decided, what it is worth, and what it took."""
    plan = scaled.plan
    shown: list[RenderableType] = [summary(plan.today, plan.planned)]
    shown.append(
        Text(
            f"cost {plan.cost:.6g} (weights x copies x Mbit/s); lower bound {plan.bound:.6g}, "
            f"gap {plan.gap:.2%}; {units.many(plan.priced, 'Via or link', 'Vias and links')} "
            "at the limit"
        )
    )
    shown += (
        Text(
            f"infeasible: {units.many(one.pairs, 'pair')}, {units.bits(one.bps)} not delivered: "
            f"{one.constraint}: {one.reason}. Would help: {one.way_out}"
        )
        for one in plan.missing
    )
    shown += (
        Text(f"overloaded: {load.name} has {units.load(load.load_bps, load.capacity_bps)}")
        for load in plan.planned.overloaded[:10]
    )
    shown.append(_phases(scaled))
    peak = "" if scaled.peak_bytes is None else f", peak memory {scaled.peak_bytes / GIB:.2f} GiB"
    shown.append(
        Text(
            f"{scaled.subscriptions:,} subscriptions planned in {scaled.seconds:.1f} s: "
            f"{scaled.rows_per_s / 1e6:.2f} million rows/s{peak}"
        )
    )
    return shown


def _phases(scaled: Scaled) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column("phase")
    shown.add_column("s", justify="right")
    shown.add_column("million rows/s", justify="right")
    for phase in (*scaled.made_up, *scaled.phases):
        speed = scaled.subscriptions / max(phase.seconds, 1e-9) / 1e6
        shown.add_row(phase.name, f"{phase.seconds:.1f}", f"{speed:.1f}")
    return shown


def require_writable(folder: Path) -> None:
    """ConfigError where nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".laps"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(f"--out {folder}: cannot be written: {error.strerror}") from None
