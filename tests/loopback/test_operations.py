"""docs/operations.md: its commands run, and its tables are those of the program."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import httpx
import typer
from prometheus_client.parser import text_string_to_metric_families

from laps.cli import _complete, app
from support.documents import ROOT, Reader

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs" / "operations.md"
METRIC = re.compile(r"\b((?:laps|process)_[a-z_]+)\b")


def section(title: str) -> str:
    """What the page has under a heading, down to the next of its rank."""
    text = PAGE.read_text()
    rank = re.search(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    assert rank is not None
    rest = text[rank.end() :]
    end = re.search(rf"^#{{1,{len(rank[1])}}} ", rest, re.MULTILINE)
    return rest if end is None else rest[: end.start()]


def scraped(url: str) -> set[str]:
    """The names of all metrics that a relay has, as they are stored."""
    names: set[str] = set()
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics").text):
        # The parser takes the ending off; what is asked for in rules has it.
        names.add(f"{family.name}_total" if family.type == "counter" else family.name)
    return names


def test_every_command_of_the_page_runs_and_every_metric_is_on_it(tmp_path: Path) -> None:
    with Reader(tmp_path, [PAGE]) as reader:
        reader.read(PAGE)
        assert len(reader.done) > 6
        names = scraped(reader.here("http://127.0.0.1:4435"))
    told = set(METRIC.findall(section("Metrics")))
    assert told == names
    rules = (ROOT / "examples" / "prometheus" / "alerts.yml").read_text()
    asked = {
        name for line in rules.splitlines() if " expr" not in line for name in METRIC.findall(line)
    }
    assert asked
    assert asked <= names


def test_every_alert_is_on_the_page_and_no_other() -> None:
    rules = (ROOT / "examples" / "prometheus" / "alerts.yml").read_text()
    there = re.findall(r"- alert: (\w+)", rules)
    assert there == re.findall(r"^\| `(\w+)`", section("Alerts"), re.MULTILINE)


def test_the_alert_of_lost_peers_sees_a_relay_that_has_none() -> None:
    """A count of no series is no number: without another side the rule cannot hold at zero."""
    rules = (ROOT / "examples" / "prometheus" / "alerts.yml").read_text()
    rule = rules.partition("- alert: LapsPeerLost")[2].partition("- alert:")[0]
    now, _, before = rule.partition("\n          < ")
    assert re.search(r"count by \(instance\) \(laps_peer_connections\) or 0 \* .*up", now)
    assert before.startswith("max_over_time(")  # and stays, however long ago it was lost
    assert "offset" not in before


def flags_of(command: Any) -> set[str]:
    """The flags of a command and of those below it."""
    below = getattr(command, "commands", {}).values()
    own = {
        flag
        for option in command.params
        if option.param_type_name == "option"
        for flag in (*option.opts, *option.secondary_opts)
    }
    return own.union(*map(flags_of, below)) - {"--help"}


def test_every_flag_is_on_the_page_and_no_other() -> None:
    relay, others = section("Flags").split("The other commands of an operator")
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(re.findall(r"`(--?[a-z-]+)", relay)) == flags_of(commands["relay"])
    _complete()
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    named = ("dashboard", "discover", "explain", "lab", "show", "trace")
    there = set[str]().union(*(flags_of(commands[name]) for name in named))
    assert set(re.findall(r"`(--?[a-z-]+)", others)) == there
