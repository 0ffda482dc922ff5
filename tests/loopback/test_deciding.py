"""The examples of docs/policy.md, classes.md and deciding.md: labs that decide by themselves.

Every object has to come to every subscriber, also while a policy changes and sessions come and go.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from laps import places
from laps.errors import LapsError
from laps.lab.doors import ask
from support.programs import LAPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
POLICIES = ROOT / "examples" / "policy"
PATIENCE_S = 120.0


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No lab or relay of somebody else is found, and nobody finds ours."""
    with tempfile.TemporaryDirectory(prefix="lab-", dir="/tmp") as short:  # sockets want it short
        monkeypatch.setenv(places.VARIABLE, f"{short}/place")
        monkeypatch.setenv("TMPDIR", short)
        yield Path(short)


def laps(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LAPS, *args], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def shown(view: str, *args: str) -> list[dict[str, Any]]:
    """The rows of a view at all relays, each with the relay that has it."""
    answers = json.loads(laps("show", view, *args, "--json").stdout)["answers"]
    return [{"at_node": answer["node"], **row} for answer in answers for row in answer[view]]


@contextmanager
def lab(*args: str) -> Iterator[subprocess.Popen[str]]:
    command = [LAPS, "lab", *args, "--port", "0", "--no-dashboard", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(holds: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    """Wait until something is so, and return it."""
    end = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < end, "it did not happen in time"
        assert process.poll() is None, process.communicate()
        time.sleep(0.3)
    return found


def status() -> dict[str, Any]:
    with suppress(LapsError):
        found: dict[str, Any] = ask({"do": "status"})["status"]
        return found
    return {}


def ways() -> dict[str, str]:
    """The way of each track, while the lab runs and all are known."""
    found = status()
    tracks = found.get("tracks", ())
    if found.get("phase") != "running" or not all(row["copies"] for row in tracks):
        return {}
    return {row["track"]: row["way"] for row in tracks}


def end(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Stop it; every subscriber has every object."""
    process.terminate()
    out, err = process.communicate(timeout=PATIENCE_S)
    found: dict[str, Any] = json.loads(out)
    assert found["problems"] == [], err
    for row in found["subscribers"]:
        assert row["received"] >= 2
        assert row["lost"] == row["duplicates"] == row["out_of_order"] == 0, row
    return found


@pytest.mark.parametrize("name", ["seattle", "regions", "hospital", "classes"])
def test_an_example_refuses_nothing_that_its_lab_wants(name: str) -> None:
    files = POLICIES / f"{name}.toml", POLICIES / f"{name}.lab.toml"
    done = laps("policy", "check", str(files[0]), "--topology", str(files[1]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "each has a way" in done.stdout


def test_new_york_to_seattle_not_through_canada_and_a_policy_changed_under_traffic() -> None:
    policy, file = POLICIES / "seattle.toml", POLICIES / "seattle.lab.toml"
    with lab("--file", str(file), "--policy", str(policy)) as process:
        found = until(ways, process)
        assert found == {"gov": "1:1 > 4:1 > 2:1", "news": "1:1 > 2:1"}
        assert laps("lab", "policy").stdout == "every relay keeps to no policy\n"
        until(lambda: ways().get("gov") == "1:1 > 2:1", process)
        assert "keeps to" in laps("lab", "policy", str(policy)).stdout
        until(lambda: ways().get("gov") == "1:1 > 4:1 > 2:1", process)
        wrong = laps("lab", "policy", str(file))
        assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1)

        def explained() -> str:
            said = laps("explain", "lab/gov", "live", "--no-rate").stdout
            return " ".join(re.findall(r"[^\s│├└─]+", said))

        assert "class gold" in explained()
        # Relays are asked one after the other, and may change what they say meanwhile.
        refused = "1:1-2:1 passes ca, and the track stays out of ca"
        until(lambda: refused in explained(), process)
        end(process)


def test_three_regions_and_a_way_that_policy_names() -> None:
    policy, file = POLICIES / "regions.toml", POLICIES / "regions.lab.toml"
    with lab("--file", str(file), "--policy", str(policy)) as process:
        call = "2:1 > 2:100 > 1:100 > (1:1, 3:100 > 3:1)"
        until(lambda: ways().get("call") == call, process)
        assert ways()["archive"] == "1:1 > 1:100 > 2:100 > (2:1, 2:2)"
        classes = {row["name"]: row["service"] for row in shown("tracks") if row["origin"]}
        assert classes["live"] in ("gold", "bronze")
        digests = {
            answer["digest"]
            for answer in json.loads(laps("show", "policy", "--json").stdout)["answers"]
        }
        assert len(digests) == 1
        end(process)


def test_a_hospital_that_stays_inside_us_east() -> None:
    policy, file = POLICIES / "hospital.toml", POLICIES / "hospital.lab.toml"
    with lab("--file", str(file), "--policy", str(policy)) as process:
        found = until(ways, process)
        assert found["clinic"].startswith("1:9 > 1:1 > ")
        assert "2:" not in found["clinic"]
        (west,) = (row["clients_address"] for row in shown("nodes", "1:1") if row["node"] == "2:1")
        refused = laps("sub", f"moqt://{west}", "lab/clinic", "live", "--insecure")
        assert refused.returncode != 0
        assert "policy: 2:1 is in us-west, and the track stays inside us-east" in refused.stderr
        heard = {row["at_node"] for row in shown("subscribes") if row["namespace"] == "lab/clinic"}
        assert heard
        assert not heard & {"2:1", "2:100"}
        end(process)


def test_on_a_narrow_link_bronze_gives_way_and_gold_does_not_and_all_of_it_comes() -> None:
    policy, file = POLICIES / "classes.toml", POLICIES / "classes.lab.toml"
    with lab("--file", str(file), "--policy", str(policy)) as process:

        def waiting() -> dict[str, int]:
            rows = [row for row in shown("classes") if row["at_node"] == "1:1"]
            return {name: row["waiting_bytes"] for row in rows for name in row["classes"]}

        until(ways, process)
        until(lambda: waiting().get("bronze", 0) > 200_000, process)
        found = waiting()
        assert found["gold"] < found["bronze"]
        rows = {row["order"]: row for row in shown("classes") if row["at_node"] == "2:1"}
        assert [rows[order]["tracks"] for order in (0, 1, 2)] == [1, 1, 1]
        assert rows[0]["classes"] == ["gold"]
        subscribers = {row["track"]: row for row in end(process)["subscribers"]}
    late = {track: row["latency_p50_ms"] for track, row in subscribers.items()}
    assert late["call"] < late["archive"]
    assert late["lecture"] < late["archive"]


def test_a_via_is_engaged_on_demand_by_the_lab_s_twelve_relays_and_let_go(place: Path) -> None:
    four = place / "four.toml"
    four.write_text("[plan]\nfan_out_per_region = 4\n")
    hub = "1:1 > (1:2, 2:1, 2:2, 2:3, 2:4, 3:1, 3:2)"
    by_via = "1:1 > (1:2, 2:100 > (2:1, 2:2, 2:3, 2:4), 3:1, 3:2)"
    with lab("--file", str(ROOT / "examples" / "lab" / "on-demand.toml")) as process:
        until(lambda: ways().get("video") == by_via, process)
        session, via = sorted(shown("demand", "1:1"), key=lambda row: str(row["kind"]))
        assert (session["node"], session["state"]) == ("2:100", "up")
        assert (via["node"], via["region"], via["flows"]) == ("2:100", "New York", 1)
        (peer,) = (row for row in shown("peers", "1:1") if row["on_demand"])
        assert (peer["node"], peer["mode"]) == ("2:100", "data")
        said = laps("explain", "lab/video", "live", "--no-rate").stdout
        assert "a session on demand: 4 copies into New York where 2 may go" in said
        assert "keeps to" in laps("lab", "policy", str(four)).stdout
        until(lambda: ways().get("video") == hub, process)
        until(lambda: not [row for row in shown("peers", "1:1") if row["on_demand"]], process)
        assert laps("lab", "policy").returncode == 0
        # Whoever was let go is taken again when it helps again, but not at once.
        waiting = [row for row in shown("demand", "1:1") if row["state"] == "waiting"]
        assert [row["node"] for row in waiting] == ["2:100"]
        end(process)


@pytest.mark.nightly
def test_subscribers_of_a_region_are_moved_to_one_relay() -> None:
    file = ROOT / "examples" / "lab" / "moving.toml"
    with lab("--file", str(file)) as process:
        until(lambda: ways().get("video") == "1:1 > 2:1", process)
        moved = [row for row in shown("events") if row["event"] == "client_moved"]
        sent = {(row["at_node"], row["subject"]) for row in moved}
        assert sent == {("2:2", "2:1"), ("2:3", "2:1")}
        end(process)
