"""`laps lab` as a person runs it: processes of its own, which it leaves nothing of."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from laps import places
from laps.errors import LapsError
from laps.lab import processes
from laps.lab.doors import ask
from laps.lab.network import network_from_mapping
from laps.lab.running import Lab
from support.loopback import on_loop
from support.programs import LAPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Starting a handful of processes on a machine that is busy with other tests.
PATIENCE_S = 90.0

SMALL = ("--regions", "2", "--edges", "1", "--port", "0", "--no-dashboard")


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No lab of somebody else is found, nobody finds ours, and nothing stays of one we kill."""
    with tempfile.TemporaryDirectory(prefix="lab-", dir="/tmp") as short:  # sockets want it short
        monkeypatch.setenv(places.VARIABLE, f"{short}/place")
        monkeypatch.setenv("TMPDIR", short)
        yield Path(short)


def laps(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LAPS, *args], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def until(holds: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> Any:
    """Wait until something is so, and return it."""
    end = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < end, "it did not happen in time"
        assert process is None or process.poll() is None, "the lab has ended"
        time.sleep(0.1)
    return found


def status() -> dict[str, Any]:
    with suppress(LapsError):
        found: dict[str, Any] = ask({"do": "status"})["status"]
        return found
    return {}


def running() -> dict[str, Any]:
    """The lab, once it has seen which way each track goes."""
    found = status()
    known = [track["copies"] for track in found.get("tracks", ())]
    return found if found.get("phase") == "running" and all(known) else {}


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def pids_of(found: dict[str, Any]) -> list[int]:
    return [relay["pid"] for relay in found["relays"]]


@contextmanager
def lab(*args: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [LAPS, "lab", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def way_of(found: dict[str, Any], track: str) -> str:
    (way,) = (row["way"] for row in found["tracks"] if row["track"] == track)
    return str(way)


def test_a_lab_ends_by_itself_and_every_subscriber_has_received_every_object() -> None:
    shown = laps("lab", *SMALL, "--seconds", "2", "--json")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    found = json.loads(shown.stdout)
    assert found["problems"] == []
    roles = [relay["role"] for relay in found["relays"]]
    assert sorted(roles) == ["control", "control", "edge", "edge", "stub", "via", "via"]
    for subscriber in found["subscribers"]:
        assert subscriber["received"] >= 1
        assert subscriber["lost"] == subscriber["duplicates"] == subscriber["out_of_order"] == 0
        if subscriber["track"] == "video":
            assert subscriber["latency_p50_ms"] > 49  # there is a sea between
    assert {row["protocol"] for row in found["subscribers"]} == {"moqt", "quicr"}
    assert all(hop["copies"] == 1 for track in found["tracks"] for hop in track["copies"])
    assert any("2:200" in track["way"] for track in found["tracks"])
    for link in found["links"]:
        assert link["srtt_us"] >= 1900 * link["delay_ms"], link
    assert not any(map(is_alive, pids_of(found)))


def test_the_network_routes_around_what_is_killed_and_says_so() -> None:
    with lab(*SMALL, "--json") as process:
        before = until(running, process)
        via = next(name for name in ("1:100", "2:100") if name in way_of(before, "video"))
        other = {"1:100": "2:100", "2:100": "1:100"}[via]

        killed, cost = laps("lab", "kill", via).stdout.splitlines()
        assert killed == f"{via} was killed"
        assert cost.startswith("every subscriber received every object; the longest pause was "), (
            cost
        )
        around = f"1:1 > {other} > 2:1"
        after = until(
            lambda: (found := status()) and around in way_of(found, "video") and found, process
        )
        until(lambda: received(status()) > received(after), process)
        assert {relay["node"]: relay["state"] for relay in after["relays"]}[via] == "down"
        until(lambda: ("peer_down", via) in told(status()), process)
        until(lambda: any(event == "path_changed" for event, _ in told(status())), process)

        said = laps("lab", "delay", "1:1", other, "120ms")
        assert said.stdout == f"the link 1:1 to {other} takes 120 ms, each way\n"
        until(lambda: link(status(), "1:1", other)["srtt_us"] > 180_000, process)
        ask({"do": "drop", "a": other, "b": "1:1", "share": 0.01})
        assert link(status(), "1:1", other)["drop"] == 0.01

        wrong = laps("lab", "delay", "1:1", "2:1", "1ms")
        assert (wrong.returncode, wrong.stdout, len(wrong.stderr.splitlines())) == (2, "", 1)
        assert "no link between 1:1 and 2:1; 1:1 has links with 0:1, 0:2, " in wrong.stderr
        for asked, words in (
            ({"do": "kill", "node": "9:9"}, "no node 9:9 is in this lab; there are 0:1, 0:2, "),
            ({"do": "kill", "node": via}, f"{via} is down already"),
            ({"do": "start", "node": "1:1"}, "1:1 is running"),
            ({"do": "dance"}, "does not understand"),
        ):
            with pytest.raises(LapsError, match=words):
                ask(asked)
        with pytest.raises(LapsError, match=f"no lab has the process id 1; there is {process.pid}"):
            ask({"do": "heal"}, pid=1)

        assert f"started again: {via}" in ask({"do": "heal"})["said"]
        healed = until(
            lambda: (found := status()) and link(found, "1:1", via)["up"] and found, process
        )
        assert link(healed, "1:1", other)["delay_ms"] == link(before, "1:1", other)["delay_ms"]

        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_S)
        found = json.loads(out)
        # A stream that was on its way through the Via is cut: it is told who missed what.
        lost = {(row["track"], row["node"]) for row in found["subscribers"] if row["lost"]}
        assert process.returncode == (1 if lost else 0)
        assert len(found["faults"]) == 5
        for track, node in lost:
            assert any(f"{track} at {node}" in problem for problem in found["problems"])
        assert not any(map(is_alive, pids_of(found)))
        with pytest.raises(LapsError, match="no lab is running"):
            ask({"do": "heal"})


def received(found: dict[str, Any]) -> int:
    return min(int(row["received"]) for row in found["subscribers"] if row["track"] == "video")


def told(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(event["event"], event["subject"]) for event in found["events"]]


def link(found: dict[str, Any], a: str, b: str) -> dict[str, Any]:
    rows = [row for row in found.get("links", ()) if (row["a"], row["b"]) == (a, b)]
    return rows[0] if rows and rows[0]["srtt_us"] is not None else {"srtt_us": 0, "up": False}


def test_nothing_is_left_running_when_the_lab_itself_is_killed() -> None:
    with lab("--regions", "1", "--edges", "1", "--port", "0", "--no-dashboard") as process:
        found = until(lambda: (now := status()) and all(pids_of(now)) and now, process)
        assert all(map(is_alive, pids_of(found)))
        process.kill()
        process.wait()
        until(lambda: not any(map(is_alive, pids_of(found))))
        with pytest.raises(LapsError, match="no lab is running"):
            ask({"do": "status"})


def test_ctrl_c_before_anything_flows_stops_it_all(place: Path) -> None:
    with lab("--regions", "1", "--edges", "1", "--port", "0", "--no-dashboard") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("clients moqt://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == 0
    assert not list(place.glob("place/lab/*.json"))
    assert not list(place.glob("laps-lab-*"))


@on_loop
async def test_a_port_that_is_taken_meanwhile_is_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose, chosen = processes.free_ports, list[list[int]]()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))

        def free_ports(count: int) -> list[int]:
            ports = choose(count)
            if not chosen:
                ports[1] = taken.getsockname()[1]
            chosen.append(ports)
            return ports

        monkeypatch.setattr(processes, "free_ports", free_ports)
        made = Lab(network_from_mapping({"nodes": [{"id": "1:1"}]}, "test"), tmp_path)
        try:
            await asyncio.wait_for(made.start(dashboard=False), 18)
            assert len(chosen) == 2
            assert made.relays["1:1"].peers_port == chosen[1][1]
            assert made.relays["1:1"].state == "up"
        finally:
            await made.close()
