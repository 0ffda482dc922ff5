"""What an operator is told of a simulation."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from laps.errors import ConfigError
from laps.sim.generators import ring, with_clients
from laps.sim.report import Report, run

TOPOLOGY = with_clients(ring(3), 1, 2, seed=1)


@pytest.fixture(scope="module")
def report() -> Report:
    return run(TOPOLOGY, seed=7, faults="flap:1:1-1:2@1", seconds=3)


def test_a_run_says_what_it_took_and_what_came_of_it(report: Report) -> None:
    assert report.violations == ()
    assert [one.what for one in report.converged] == ["start", "flap 1:1-1:2"]
    assert all(0 < one.convergence_s < 10 for one in report.converged)
    assert report.control_messages["CONNECT"] == report.control_messages["CONNECT_RESPONSE"] == 4
    assert report.wanted == report.delivered + report.lost
    assert report.delivered > 0
    assert (report.duplicates, report.looped) == (0, 0)
    assert len(report.loads) == 2 * report.links == 6


def test_the_same_seed_gives_the_same_report(report: Report) -> None:
    assert run(TOPOLOGY, seed=7, faults="flap:1:1-1:2@1", seconds=3) == report
    assert run(TOPOLOGY, seed=8, faults="flap:1:1-1:2@1", seconds=3) != report


def test_the_mapping_is_json(report: Report) -> None:
    mapping = json.loads(json.dumps(report.to_mapping()))
    assert mapping["seed"] == 7
    assert mapping["converged"][1]["what"] == "flap 1:1-1:2"
    assert mapping["loads"][0]["source"] == "1:1"


def test_the_tables_read_well(report: Report) -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(report.render())
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "3 nodes, 3 links, seed 7" in text
    assert "flap 1:1-1:2" in text
    assert f"{report.lost} lost" in text
    assert "what does not hold" not in text


def test_a_fault_that_cannot_be_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="names 7:7, which is no node of this network"):
        run(TOPOLOGY, seed=1, faults="crash:7:7@1")
