"""The examples run as they are, from top to bottom, in the session that tests share."""

from __future__ import annotations

import re
import runpy
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from laps.spark.pipeline.parquet_files import Place
from laps.spark.pipeline.tables import Table
from support import telemetry_frames as frames
from support.programs import relay_process

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "spark"


@pytest.fixture
def run(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run an example with arguments, and return what it printed."""
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)  # others go on with it

    def example(name: str, *args: object) -> str:
        monkeypatch.setattr(sys, "argv", [name, *map(str, args)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return example


def test_sensors_become_a_table_and_a_track_again(run: Callable[..., str], tmp_path: Path) -> None:
    with relay_process(tmp_path / "log", "--no-discovery") as relay:
        url = f"moqt://{relay.clients}"
        said = run("sensors.py", "--relay", url, "--averages", 4, "--to", tmp_path / "tables")
    counted = re.search(r"(\d+) averages came by the track, (\d+) are in", said)
    assert counted is not None, said
    assert int(counted[1]) == 4
    assert int(counted[2]) >= 4


def test_the_audience_of_a_network_is_shown(
    spark: SparkSession, run: Callable[..., str], tmp_path: Path
) -> None:
    now = datetime.now(UTC) - timedelta(seconds=30)
    place = Place.of(str(tmp_path))
    for kind, rows in {
        "node": [
            {"at": now, "node": node, "region": region}
            for node, region in (("1:1", "eu"), ("2:1", "us"))
        ],
        "tracks": [
            {
                "at": now,
                "node": "1:1",
                "namespace": "demo",
                "track": "clock",
                "origin": True,
                "egress": ["2:1"],
                "received_bytes": 1000,
            },
            {"at": now, "node": "2:1", "namespace": "demo", "track": "clock", "subscribers": 42},
        ],
    }.items():
        frame = spark.createDataFrame(frames.records(kind, *rows).to_pandas())
        Table(place, f"raw/{kind}").append(frame, "test", 0)
    said = run("audience.py", "--tables", tmp_path)
    assert re.search(r"demo clock *\|us *\|42", said)


def test_without_tables_the_audience_says_where_they_come_from(
    run: Callable[..., str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match="laps pipeline"):
        run("audience.py", "--tables", tmp_path)


def test_what_if_compares_the_loss_of_each_via(run: Callable[..., str]) -> None:
    said = run("what_if.py")
    assert "Via 3:2 lost" in said
    assert "node 2:2 cannot be reached" in said
