"""`laps dashboard` as a person runs it, on a real relay."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from support.dashboards import SAID, dashboard_process
from support.programs import ANY, LAPS, relay_process

if TYPE_CHECKING:
    from pathlib import Path

DEADLINE_S = 15.0


def picture(url: str) -> dict[str, Any]:
    """What the page sees, once it has been told of every relay."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        seen: dict[str, Any] = httpx.get(f"{url}api/picture", trust_env=False).json()
        answered = "has not answered yet" not in " ".join(seen["problems"])
        if answered or time.monotonic() > deadline:
            return seen
        time.sleep(0.05)


def laps(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LAPS, *args], capture_output=True, text=True, timeout=60, check=False)


def test_it_shows_the_relays_that_are_named(tmp_path: Path) -> None:
    given = ("--node-id", "1:1", "--admin", ANY, "--no-discovery")
    with (
        relay_process(tmp_path / "log", *given) as relay,
        dashboard_process("--admin", f"http://{relay.admin}/") as url,
    ):
        seen = picture(url)
        assert [(row["id"], row["state"]) for row in seen["nodes"]] == [("1:1", "live")]
        assert seen["problems"] == []
        about = httpx.get(f"{url}api/relay?node=1:1&view=node", trust_env=False).json()
        assert about["clients_address"] == relay.clients


def test_a_relay_with_a_token_is_asked_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "relay.toml"
    config.write_text('[admin]\nlisten = "127.0.0.1:0"\ntoken = "open-sesame"\n')
    given = ("--config", str(config), "--node-id", "1:1", "--no-discovery")
    with relay_process(tmp_path / "log", *given) as relay:
        with dashboard_process("--admin", relay.admin) as url:
            (problem,) = picture(url)["problems"]
            assert problem.endswith("wants a token: give it with --token or LAPS_ADMIN_TOKEN")
        monkeypatch.setenv("LAPS_ADMIN_TOKEN", "open-sesame")
        with dashboard_process("--admin", relay.admin) as url:
            assert picture(url)["nodes"][0]["state"] == "live"


def test_it_stops_when_asked_while_a_page_is_open() -> None:
    command = [LAPS, "dashboard", "--admin", "127.0.0.1:1", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = SAID.fullmatch(process.stdout.readline())
        assert said is not None
        with httpx.Client(trust_env=False) as client:
            assert client.get(said[1]).status_code == 200
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) == 0


def test_a_port_that_is_taken_is_said_and_another_one_used() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [LAPS, "dashboard", "--admin", "127.0.0.1:1", "--port", port]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            said = SAID.fullmatch(process.stdout.readline())
            assert said is not None
            process.terminate()
            _, errors = process.communicate(timeout=20)
    assert errors == f"laps: port {port} is taken; the dashboard is on {said[1]}\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--admin", "ftp://127.0.0.1"), 'admin address "ftp://127.0.0.1" is no URL'),
        (("--host", "0.0.0.0"), "--viewer-token"),
        (("--host", "no.such.host.invalid", "--viewer-token", "x"), "no.such.host.invalid"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(args: tuple[str, ...], words: str) -> None:
    ended = laps("dashboard", "--port", "0", *args)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_help_shows_how_it_is_used() -> None:
    shown = laps("dashboard", "--help")
    assert shown.returncode == 0
    assert "Example: laps dashboard --admin http://127.0.0.1:33436 --open" in shown.stdout
