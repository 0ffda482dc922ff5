"""`laps plan` and its arguments."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from laps import cli_plan
from laps.client.sealed import parse_key, read_key
from laps.errors import ConfigError, LapsError
from laps.spark.planner.document import FILE

EXAMPLES = Path(__file__).parents[4] / "examples" / "plan"
TOPOLOGY, POLICY = str(EXAMPLES / "topology.toml"), str(EXAMPLES / "policy.toml")


def run(*args: str, status: int = 0) -> str:
    result = CliRunner().invoke(cli_plan.plan, args)
    if isinstance(result.exception, LapsError):
        raise result.exception
    assert result.exit_code == status, result.output
    return result.stdout


def test_a_plan_is_shown_beside_today() -> None:
    shown = run("--topology", TOPOLOGY, "--policy", POLICY)
    assert re.search(r"sports/final/audio +eu +via 3:2 +3 +81 ms +1.09", shown)
    assert re.search(r"long-haul copies +19 +9 +-53%", shown)
    assert re.search(r"p95 delay +79 ms +81 ms +\+3%", shown)
    assert re.search(r"overloaded links and Vias +1 +0 +-100%", shown)
    assert "the best there is; lower bound 51.05, gap 0.00%\n" in shown


def test_a_plan_for_a_program_has_every_assignment() -> None:
    said = json.loads(run("--topology", TOPOLOGY, "--policy", POLICY, "--json"))
    assert len(said["assignments"]) == said["plan"]["pairs"] == 11
    assert said["infeasible"] == []
    direct = next(one for one in said["assignments"] if one["via"] is None)
    assert direct["long_haul_copies"] == direct["origin_egress"] == 1


def test_what_is_infeasible_is_listed_and_the_exit_status_says_so(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\ntracks = "clinic/*"\ninside = ["us-east"]\n')
    shown = run("--topology", TOPOLOGY, "--policy", str(policy), status=1)
    (line,) = [line for line in shown.splitlines() if line.startswith("infeasible: ")]
    assert line.startswith("infeasible: clinic/ward-7/vitals in eu (2 s-relays): region rules: ")
    assert "Would help: let the track go to eu" in line


def test_a_plan_is_written_drawn_signed_and_explained(tmp_path: Path) -> None:
    key, folder = tmp_path / "planner.pem", tmp_path / "plan"
    public = run("keygen", str(key)).strip()
    assert parse_key(public).public_bytes_raw() == read_key(key).public_key().public_bytes_raw()
    assert key.stat().st_mode & 0o777 == 0o600
    picture = tmp_path / "plan.svg"
    args = ("--topology", TOPOLOGY, "--policy", POLICY, "--out", str(folder))
    run(*args, "--picture", str(picture), "--key", str(key), "--valid", "2")
    assert picture.exists()
    assert (folder / "summary.json").exists()

    said = json.loads(run("verify", str(folder / FILE), "--key", public, "--json"))
    assert said["tracks"] == 5
    assert said["expires_at"] - said["issued_at"] == pytest.approx(7200)
    assert not said["expired"]
    assert "5 tracks" in run("verify", str(folder / FILE), "--key", f"{key}.pub")

    shown = run("explain", "sports/final/audio", "--plan", str(folder))
    assert shown.startswith("sports/final/audio: 8 Mbit/s from 1:2 in us-west; class bronze: 3 ")
    assert re.search(r"via 3:2 +1\.1 +1 +1 +81 ms +1\.09 +taken", shown)
    as_json = json.loads(run("explain", "sports/final/audio", "--plan", str(folder), "--json"))
    assert [region["taken"] for region in as_json["regions"]] == ["3:2", "2:1"]


def test_a_document_that_was_changed_or_is_another_s_is_not_taken(tmp_path: Path) -> None:
    key, folder = tmp_path / "planner.pem", tmp_path / "plan"
    public = run("keygen", str(key)).strip()
    run("--topology", TOPOLOGY, "--out", str(folder), "--key", str(key))
    other = run("keygen", str(tmp_path / "other.pem")).strip()
    with pytest.raises(LapsError, match="is followed"):
        run("verify", str(folder / FILE), "--key", other)
    sealed = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(sealed.replace(b'"direct"', b'"9:9"', 1))
    with pytest.raises(LapsError, match="the signature does not fit"):
        run("verify", str(folder / FILE), "--key", public)
    with pytest.raises(ConfigError, match="is there already"):
        run("keygen", str(key))


def test_a_plan_that_has_expired_is_neither_verified_nor_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, folder = tmp_path / "planner.pem", tmp_path / "plan"
    public = run("keygen", str(key)).strip()
    run("--topology", TOPOLOGY, "--out", str(folder), "--key", str(key), "--valid", "1")
    later = time.time() + 3601
    monkeypatch.setattr(time, "time", lambda: later)
    with pytest.raises(LapsError, match=r"the plan expired at 20\d\d-.* UTC: plan again"):
        run("verify", str(folder / FILE), "--key", public)
    with pytest.raises(LapsError, match=r"the plan expired at"):
        run("publish", str(folder / FILE), "moqt://127.0.0.1:1", "--key", public)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "laps plan needs a network: give --topology FILE, or --tables DIR; "),
        (("--topology", "nowhere.toml"), "nowhere.toml: cannot be read: No such file"),
        (("--topology", TOPOLOGY, "--policy", "nowhere.toml"), "nowhere.toml: cannot be read: "),
        (("--tables", "nowhere"), "--tables nowhere: there are none: give a folder with "),
        (
            ("--topology", TOPOLOGY, "--publish", "moqt://127.0.0.1:1"),
            "--publish: relays follow signed plans only: give --key FILE; ",
        ),
        (("--topology", TOPOLOGY, "--serve"), "--serve: give --publish URL"),
        (("--topology", TOPOLOGY, "--picture", "a.gif"), "--picture a.gif: end its name in .png"),
        (("--tables", "a/../b", "--out", "b"), "--out b: the tables are there: give another"),
        (
            ("--topology", TOPOLOGY, "--key", "nokey", "--out", "b"),
            "nokey: No such file or directory: `laps plan",
        ),
        (("verify", TOPOLOGY, "--key", "nokey"), "--key nokey: is neither a public key, ed25519:"),
        (("verify", "nofile", "--key", "ed25519:" + "A" * 43 + "="), "nofile: No such file or"),
        (("explain", "a/b", "--plan", "nowhere"), "nowhere/policy.json: No such file or directory"),
    ],
)
def test_wrong_arguments_are_named_with_the_way_out(args: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(*args)
    assert str(caught.value).startswith(words)


def test_a_signed_plan_that_would_go_nowhere_is_refused_before_anything_is_planned(
    tmp_path: Path,
) -> None:
    run("keygen", str(tmp_path / "planner.pem"))
    with pytest.raises(ConfigError, match="--key: the signed plan goes nowhere: give --out DIR"):
        run("--topology", "nowhere.toml", "--key", str(tmp_path / "planner.pem"))


@pytest.mark.parametrize(
    "command", [(), *((name,) for name in ("explain", "tables", "keygen", "verify", "publish"))]
)
def test_help_has_an_example_of_each_command(command: tuple[str, ...]) -> None:
    shown = " ".join(run(*command, "--help").split())
    assert f"Example: laps plan {' '.join(command)}" in shown
