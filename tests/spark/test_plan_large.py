"""Large plans on Spark: the tasks are tested without it, in tests/unit/spark/planner."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

from laps import cli_plan
from laps.errors import ConfigError, LapsError
from laps.policy import policy_from_mapping
from laps.spark.planner import jobs, large, scale, store
from laps.spark.planner.explain import explain
from laps.spark.planner.generate import Size, generate_network, shares_of
from laps.spark.planner.options import find_options
from support import scale as without_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

POLICY = policy_from_mapping({}, "policy")
SIZE = Size(60, 2_000, 16_000)


@pytest.fixture(scope="module")
def planned(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> scale.Scaled:
    """A demand that was made up and planned; `folder` has it."""
    folder = tmp_path_factory.mktemp("planned")
    made = scale.plan_made_up(SIZE, POLICY, "policy", folder, None, Console(file=StringIO()))
    FOLDER.append(folder)
    return made


FOLDER: list[Path] = []


def as_planned(folder: Path, made: scale.Scaled) -> without_spark.Planned:
    options = find_options(made.network, POLICY.profiles)
    return without_spark.Planned(folder, options, POLICY, made.plan)


def test_a_demand_is_made_up_bucketed_and_planned(planned: scale.Scaled) -> None:
    folder = FOLDER[0]
    assert planned.subscriptions == 16_000
    assert planned.gathered is not None
    assert planned.gathered.tracks == 2_000
    assert planned.gathered.unknown == planned.gathered.repeated == 0
    assert planned.gathered.subscriptions + planned.gathered.at_origin == 16_000
    assert planned.plan.missing == ()
    assert planned.plan.planned.overloaded == ()
    assert planned.plan.priced > 0, "capacities bind in what is made up"
    assert planned.plan.gap <= 0.05
    assert [phase.name for phase in planned.made_up] == ["make up network", "make up demand"]
    assert {"bucket: spread", "bucket: gather", "sum", "solve", "assign"} <= {
        phase.name for phase in planned.phases
    }
    assert planned.peak_bytes is None or planned.peak_bytes > 100 << 20
    # What was in between is gone, and the folder explains itself.
    assert {path.name for path in folder.iterdir()} == {
        "infeasible",
        "links.parquet",
        "loads.parquet",
        "nodes.parquet",
        "plan",
        "policy.json",
        "subscriptions",
        "summary.json",
        "tracks",
    }
    summary = json.loads((folder / "summary.json").read_bytes())
    assert summary["plan"]["pairs"] == planned.plan.planned.pairs
    assert summary["rows_per_s"] > 0


def test_the_plan_is_the_one_that_is_made_without_spark(
    planned: scale.Scaled, tmp_path: Path
) -> None:
    network = generate_network(SIZE, POLICY, shares_of(POLICY))
    demand = without_spark.made_up(network, 2_000, 16_000)
    other = without_spark.plan(tmp_path, network, [demand])
    assert other.chosen() == as_planned(FOLDER[0], planned).chosen()
    assert other.large.cost == planned.plan.cost
    assert other.large.bound == pytest.approx(planned.plan.bound)
    assert other.large.today.p95_delay_us == planned.plan.today.p95_delay_us
    assert other.large.planned.p95_delay_us == planned.plan.planned.p95_delay_us


def test_the_same_tables_are_planned_again_in_buckets_or_not(
    planned: scale.Scaled, spark: SparkSession, tmp_path: Path
) -> None:
    folder, console = FOLDER[0], Console(file=StringIO())
    again = scale.plan_tables(folder, tmp_path / "again", POLICY, "policy", None, console)
    assert again.gathered is None
    wanted = as_planned(folder, planned).chosen()
    assert as_planned(tmp_path / "again", again).chosen() == wanted
    # As Spark writes tables: other files, other names, any order.
    tables = tmp_path / "tables"
    store.write_network(tables, planned.network)
    for table in ("tracks", "subscriptions"):
        rows = spark.read.parquet(str(folder / table)).orderBy("track", ascending=False)
        rows.write.parquet(str(tables / table))
    anew = scale.plan_tables(tables, tmp_path / "anew", POLICY, "policy", None, console)
    assert anew.gathered is not None
    assert as_planned(tmp_path / "anew", anew).chosen() == wanted


def test_a_track_of_a_large_plan_is_explained(planned: scale.Scaled) -> None:
    folder = FOLDER[0]
    row = pq.read_table(next(iter(sorted((folder / "plan").iterdir())))).to_pylist()[0]
    found = explain(folder, f"{row['track'] % 2**64:016x}")
    region = next(region for region in found.regions if region.name == row["region"])
    assert region.taken is not None
    assert region.taken.label == (row["via"] or "direct")
    assert len(region.relays) == row["relays"]
    assert region.taken.delay_us // 2 == row["delay_us"]


def test_subscriptions_of_unknown_tracks_are_an_error_that_says_so(
    planned: scale.Scaled, spark: SparkSession, tmp_path: Path
) -> None:
    store.write_network(tmp_path, planned.network)
    tracks = spark.read.parquet(str(FOLDER[0] / "tracks"))
    tracks.where("track > 0").write.parquet(str(tmp_path / "tracks"))
    rows = spark.read.parquet(str(FOLDER[0] / "subscriptions"))
    rows.write.parquet(str(tmp_path / "subscriptions"))
    with pytest.raises(LapsError, match=r"subscriptions are of tracks that .*tracks does not have"):
        scale.plan_tables(
            tmp_path, tmp_path / "out", POLICY, "policy", None, Console(file=StringIO())
        )


def test_a_table_that_is_missing_is_named(planned: scale.Scaled, tmp_path: Path) -> None:
    store.write_network(tmp_path, planned.network)
    with pytest.raises(ConfigError, match="tracks: there are no Parquet files"):
        scale.plan_tables(
            tmp_path, tmp_path / "out", POLICY, "policy", None, Console(file=StringIO())
        )


def test_a_file_that_is_broken_is_an_error_with_its_name(
    planned: scale.Scaled, tmp_path: Path
) -> None:
    for table in ("tracks", "subscriptions"):
        (tmp_path / table).mkdir()
        (tmp_path / table / "bucket-00000.parquet").write_bytes(b"PAR1 and then nothing")
    store.write_network(tmp_path, planned.network)
    with pytest.raises(LapsError, match=r"bucket-00000.parquet: cannot be read as Parquet"):
        scale.plan_tables(
            tmp_path, tmp_path / "out", POLICY, "policy", None, Console(file=StringIO())
        )


# -- the command -----------------------------------------------------------------------------------


def test_the_command_makes_up_plans_and_tells(spark: SparkSession, tmp_path: Path) -> None:
    size = "nodes=40,tracks=300,subscriptions=2500"
    runner = CliRunner()
    result = runner.invoke(cli_plan.plan, ["--generate", size, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "2,500 subscriptions planned in" in result.output
    assert "million rows/s" in result.output
    assert "lower bound" in result.output
    again = runner.invoke(
        cli_plan.plan, ["--tables", str(tmp_path), "--master", "local[2]", "--json"]
    )
    assert again.exit_code == 0, again.output
    told = json.loads(again.stdout)
    assert told["gap"] <= 0.05
    assert told["subscriptions"] == told["plan"]["deliveries"]


# -- jobs ------------------------------------------------------------------------------------------


def test_results_come_in_the_order_of_items_and_progress_is_told(spark: SparkSession) -> None:
    seen: list[int] = []
    found = jobs.run(spark, lambda n: n * n, list(range(7)), name="squares", progress=seen.append)
    assert found == [n * n for n in range(7)]
    assert seen == sorted(seen)
    assert jobs.run(spark, lambda n: n, [], name="nothing") == []


def test_what_a_person_can_mend_is_raised_as_it_was(spark: SparkSession) -> None:
    def refuse(number: int) -> int:
        raise ConfigError(f"item {number} is wrong: mend it")

    def open_nothing(number: int) -> int:
        return len(Path(f"/nowhere/{number}").read_text())

    with pytest.raises(ConfigError, match=r"^item 5 is wrong: mend it$"):
        jobs.run(spark, refuse, [5], name="refused")
    with pytest.raises(LapsError, match=r"^/nowhere/5: No such file or directory$"):
        jobs.run(spark, open_nothing, [5], name="opened")


def test_what_breaks_in_a_worker_is_one_line(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    def compute(number: int) -> int:
        raise ValueError(f"item {number} does not compute")

    def die(number: int) -> int:
        os._exit(number)

    with pytest.raises(LapsError, match=r"^broken: ValueError: item 5 does not compute$"):
        jobs.run(spark, compute, [5], name="broken")
    with pytest.raises(LapsError, match=r"^dead: a Python worker exited unexpectedly"):
        jobs.run(spark, die, [5], name="dead")
    assert capfd.readouterr().err == ""
    assert jobs.run(spark, abs, [-1], name="alive") == [1], "and others work on"


def test_work_folders_are_gone_even_after_an_error(tmp_path: Path) -> None:
    def work_and_fail() -> None:
        with large.work_folder(tmp_path) as work:
            (work / "something").touch()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work_and_fail()
    assert list(tmp_path.iterdir()) == []
