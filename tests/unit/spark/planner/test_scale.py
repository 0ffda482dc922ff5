from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from laps import cli_plan
from laps.bench import plan as bench_plan
from laps.errors import ConfigError, LapsError
from laps.spark.planner.cells import Shape
from laps.spark.planner.generate import Size
from laps.spark.planner.jobs import Peak

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--generate", "nodes=x"], "nodes is a whole number"),
        (["--generate", "", "--tables", "here"], "--generate: makes up a network"),
        (["--generate", "", "--key", "k.pem"], "--key: not for a plan of this size"),
        (["--generate", "", "--picture", "p.svg"], "--picture: not for a plan of this size"),
        (["--generate", "", "--master", "spark://x:7077"], "--master spark://x:7077: give --out"),
        (["--master", "local[2]"], "--master: give --tables DIR or --generate SIZE"),
    ],
)
def test_arguments_that_do_not_go_together_are_named(arguments: list[str], problem: str) -> None:
    result = CliRunner().invoke(cli_plan.plan, arguments)
    assert isinstance(result.exception, ConfigError)
    assert problem in str(result.exception)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "below"
    result = CliRunner().invoke(
        cli_plan.plan, ["--generate", "nodes=40,tracks=9,subscriptions=9", "--out", str(place)]
    )
    assert isinstance(result.exception, ConfigError)
    assert f"--out {place}: cannot be written: Not a directory" in str(result.exception)


def test_peak_memory_counts_what_is_there_only_for_a_while() -> None:
    with Peak() as peak:
        held = np.ones(30_000_000)
        assert held.sum() == 30_000_000
        # What it had at most is looked at once more when it ends.
        del held
        much = np.ones(25_000_000)
    if peak.bytes is None:
        pytest.skip("this system does not tell")
    assert peak.bytes > much.nbytes


# -- the benchmark ---------------------------------------------------------------------------------

SHAPE = Shape(10, 2, 1, 3, np.array([0, 0, 1]))
CELLS = (np.array([33, 70]), np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]))


def answer(**changed: Any) -> dict[str, Any]:
    """The cells above, as others give them: in another order, and masks with their own bits."""
    return {
        "origin": np.array([1, 0]),
        "region": np.array([0, 1]),
        "profile": np.array([0, 0], np.int8),
        "mask": np.array([3, 0], np.uint8),
        "class": np.array([0, 1]),
        "pairs": np.array([2, 1]),
        "copies": np.array([4, 3]),
        "rate": np.array([6.0, 5.0]),
        "egress": np.array([8.0, 7.0]),
    } | changed


def test_answers_are_compared_number_by_number() -> None:
    bench_plan._compare("other", SHAPE, answer(), CELLS)
    with pytest.raises(LapsError, match="other has other sums than laps"):
        bench_plan._compare("other", SHAPE, answer(egress=np.array([8.0, 7.1])), CELLS)
    with pytest.raises(LapsError, match="other finds 2 cells, and laps others: 2"):
        bench_plan._compare("other", SHAPE, answer(origin=np.array([1, 2])), CELLS)


def test_the_benchmark_says_how_to_install_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_plan, "find_spec", lambda name: None)
    with pytest.raises(LapsError, match="pip install --group bench"):
        bench_plan.measure(Size(40, 10, 10), 1)


def reached(*seconds: float, problem: str = "") -> bench_plan.Result:
    names = ("laps", "duckdb", "polars")
    found = [
        bench_plan.Reached(name, one, 1, "" if name == "laps" else problem)
        for name, one in zip(names, seconds, strict=False)
    ]
    return bench_plan.Result(10, 5, 2, 3, 1.0, tuple(found))


def test_it_holds_where_laps_is_twice_as_fast_as_the_better_one() -> None:
    assert reached(1.0, 9.0, 2.0).holds()
    assert not reached(1.0, 9.0, 1.9).holds()
    assert not reached(1.0, 9.0, 9.0, problem="no memory").holds(), "nothing to compare with"
    assert "4.50" in str(bench_plan.table(reached(2.0, 9.0)).caption)
