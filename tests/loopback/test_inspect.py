"""`laps show`, `laps explain` and `laps trace` of real relays: an Edge, a Via and an Edge."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import typer
from typer.testing import CliRunner

from laps import cli_inspect, places
from laps.errors import ConfigError, LapsError
from laps.inspect.columns import VIEWS
from laps.inspect.names import track_of
from laps.relay.tracing import MAX_TRACES
from support.programs import ANY, LAPS, RelayProcess, relay_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TRACK = ("demo/clock", "ticks")
HASH = track_of(TRACK).hash
WAIT_S = 30.0

app = typer.Typer()
cli_inspect.register(app)


@dataclass(frozen=True)
class Line:
    """1:1 has a publisher, 1:2 is a Via, 1:3 has two subscribers."""

    near: RelayProcess
    via: RelayProcess
    far: RelayProcess


def laps(*words: str) -> str:
    """What a command says; it has to go well."""
    result = CliRunner().invoke(app, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def read(*words: str) -> Any:
    return json.loads(laps(*words, "--json"))


def eventually(holds: Callable[[], bool]) -> None:
    """Wait for something to become so, for as long as a slow machine may need."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@contextmanager
def ticking(address: str, name: str) -> Iterator[None]:
    """A publisher of fifty small objects a second, five to a group."""
    command = [LAPS, "pub", f"moqt://{address}", TRACK[0], name, "--group-every", "5"]
    over = threading.Event()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, bufsize=1
    ) as process:
        pipe = process.stdin
        assert pipe is not None

        def feed() -> None:
            number = 0
            while not over.wait(0.02):
                number += 1
                pipe.write(f"tick {number}\n")

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            yield
        finally:
            over.set()
            feeder.join()
            pipe.close()
            process.wait(timeout=20)


@contextmanager
def reading(address: str, name: str = TRACK[1]) -> Iterator[None]:
    command = [LAPS, "sub", f"moqt://{address}", TRACK[0], name]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(timeout=20)


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    folder = tmp_path_factory.mktemp("line")
    before = os.environ.get(places.VARIABLE)
    os.environ[places.VARIABLE] = str(folder / "place")
    config = folder / "relay.toml"
    config.write_text("[relay]\ndrain_s = 0.1\n[clients]\ndrain_s = 0.1\n")
    common = ("--config", str(config), "--no-discovery", "--admin", ANY)
    with ExitStack() as stack:

        def start(node: str, *args: str) -> RelayProcess:
            log = folder / f"{node.replace(':', '-')}.log"
            return stack.enter_context(relay_process(log, "--node-id", node, *common, *args))

        try:
            via = start("1:2", "--type", "via", "--reflect")
            near, far = (start(node, "--peer", via.peers) for node in ("1:1", "1:3"))
            made = Line(near, via, far)
            eventually(lambda: read("show", "nodes", "1:1")["answers"][0]["total"] == 2)
            stack.enter_context(ticking(near.clients, TRACK[1]))
            for _ in range(2):
                stack.enter_context(reading(far.clients))
            eventually(_flows)
            yield made
        finally:
            if before is None:
                del os.environ[places.VARIABLE]
            else:
                os.environ[places.VARIABLE] = before
            # Readers and the publisher first, as they were last to come.
            stack.close()


def _flows() -> bool:
    rows = {
        answer["node"]: row
        for answer in read("show", "tracks", "--filter", HASH)["answers"]
        for row in answer["tracks"]
    }
    return (
        set(rows) == {"1:1", "1:2", "1:3"}
        and rows["1:3"]["subscribers"] == 2
        and rows["1:3"]["received_bytes"] > 0
    )


# -- laps show -------------------------------------------------------------------------------------


def test_the_overview_counts_what_there_is(line: Line) -> None:
    text = laps("show")
    assert text.startswith("3 relays (2 edge, 1 via); 2 links; 1 track and ")
    for relay in (line.near, line.via, line.far):
        assert relay.admin in text


def test_every_view_is_a_table_that_fits_a_page(line: Line) -> None:
    for view in VIEWS:
        text = laps("show", view)
        assert max(map(len, text.splitlines())) <= cli_inspect.PAGE_WIDTH, view
        assert "Traceback" not in text


def test_a_node_is_found_among_the_relays_of_this_machine(line: Line) -> None:
    peers = read("show", "peers", "1:2")
    assert [answer["node"] for answer in peers["answers"]] == ["1:2"]
    assert {row["node"] for row in peers["answers"][0]["peers"]} == {"1:1", "1:3"}
    text = laps("show", "peers", "1:2")
    assert text.splitlines()[0].split()[0] == "peer"
    assert "via" not in text


def test_relays_are_found_by_their_addresses(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.VARIABLE, "/nonexistent/place")
    assert "1:1" in laps("show", "peers", "--admin", line.via.admin)
    monkeypatch.setenv("LAPS_ADMIN", f"{line.near.admin} http://{line.far.admin}")
    assert [answer["node"] for answer in read("show", "tracks")["answers"]] == ["1:1", "1:3"]


def test_rates_are_of_what_flows_now(line: Line) -> None:
    text = laps("show", "tracks", "1:3", "--filter", HASH, "--rates")
    assert "bit/s" in text
    assert "demo/clock ticks" in text


# -- laps explain ----------------------------------------------------------------------------------


def test_the_tree_of_a_track_is_explained_hop_by_hop(line: Line) -> None:
    story = read("explain", *TRACK)
    assert story["hash"] == HASH
    assert story["notes"] == story["defects"] == []
    [near] = story["trees"]
    [via] = near["to"]
    [far] = via["to"]
    assert [hop["node"] for hop in (near, via, far)] == ["1:1", "1:2", "1:3"]
    assert [hop["role"] for hop in (near, via, far)] == ["edge", "via", "edge"]
    assert (near["publishers"], far["subscribers"]) == (1, 2)
    assert via["why"][0]["reason"] == far["why"][0]["reason"] == "only path"
    assert far["sum_us"] == via["srtt_us"] + far["srtt_us"] > 0
    assert all(hop["bytes_per_s"] > 0 for hop in (near, via, far))


def test_the_same_is_drawn_for_people(line: Line) -> None:
    text = laps("explain", " ".join(TRACK))
    assert text.index("1:1 edge") < text.index("1:2 via") < text.index("1:3 edge")
    for fact in ("1 publisher", "2 subscribers", "only path", "bit/s", " ms"):
        assert fact in text


def test_a_relay_that_is_not_asked_is_marked_and_passed(line: Line) -> None:
    where = ("--admin", line.near.admin, "--admin", line.far.admin)
    story = read("explain", HASH, "--no-rate", *where)
    [via] = story["trees"][0]["to"]
    assert (via["node"], via["asked"]) == ("1:2", False)
    assert [(hop["node"], hop["asked"]) for hop in via["to"]] == [("1:3", True)]
    alone = read("explain", HASH, "--no-rate", "--admin", line.near.admin)
    [via] = alone["trees"][0]["to"]
    assert [(hop["node"], hop["asked"]) for hop in via["to"]] == [("1:3", False)]


def test_the_way_between_two_nodes_is_explained(line: Line) -> None:
    story = read("explain", "1:1", "1:3")
    assert [(step["node"], step["peer"]) for step in story["steps"]] == [
        ("1:1", "1:2"),
        ("1:2", "1:3"),
    ]
    assert "only path" in laps("explain", "1:3", "1:1")


def test_telemetry_that_nobody_reads_is_offered_and_does_not_flow(line: Line) -> None:
    text = laps("explain", "laps/telemetry/1:2", "node", "--no-rate")
    assert "nobody subscribes to it, so nothing flows; 1:2 offers it" in text


# -- laps trace ------------------------------------------------------------------------------------


def traced(*words: str) -> tuple[list[Any], Any]:
    *objects, summary = map(json.loads, laps("trace", *words, "--json").splitlines())
    return objects, summary["summary"]


def test_objects_are_followed_over_every_hop(line: Line) -> None:
    objects, summary = traced(*TRACK, "--objects", "40")
    assert len(objects) == 40
    hops = {(hop["from"], hop["to"]): hop for hop in summary["hops"] if "through" not in hop}
    assert set(hops) == {("1:1", "1:2"), ("1:2", "1:3")}
    for hop in hops.values():
        assert 0 < hop["p50_us"] <= hop["p99_us"] <= hop["most_us"]
        assert hop["negative"] == hop["again"] == 0
    whole = [item for item in objects if len(item["hops"]) == 2 and len(item["arrivals"]) == 3]
    assert whole
    for item in whole:
        first, *_, last = item["arrivals"]
        assert [arrival["from"] for arrival in item["arrivals"]] == [None, "1:1", "1:2"]
        spent = sum(hop["delay_us"] for hop in item["hops"])
        assert spent == pytest.approx((last["at"] - first["at"]) * 1e6, abs=5)


def test_a_trace_for_people_ends_with_figures_of_each_hop(line: Line) -> None:
    text = laps("trace", *TRACK, "--objects", "30")
    assert "following demo/clock ticks at 1:1 1:2 1:3" in text
    assert "30 objects were seen" in text
    assert "p50" in text
    assert "1:1 → 1:2 " in text
    assert "1:1 ⇒ 1:3" in text


def test_a_trace_ends_with_its_track_and_picks_up_who_joins(line: Line) -> None:
    with ExitStack() as stack:
        publisher = stack.enter_context(ExitStack())
        publisher.enter_context(ticking(line.near.clients, "other"))
        stack.enter_context(reading(line.near.clients, "other"))
        eventually(lambda: bool(_rows("other").get("1:1", {}).get("received_bytes")))
        command = [LAPS, "trace", TRACK[0], "other", "--json"]
        process = stack.enter_context(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert {item["node"] for item in first["arrivals"]} == {"1:1"}
        stack.enter_context(reading(line.far.clients, "other"))
        joined: set[str] = set()
        while joined < {"1:1", "1:2", "1:3"}:
            joined = {item["node"] for item in json.loads(process.stdout.readline())["arrivals"]}
        publisher.close()
        last, errors = process.communicate(timeout=WAIT_S)
        assert (process.returncode, errors) == (0, "")
        assert "the track has ended" in json.loads(last.splitlines()[-1])["summary"]["ended"]


def _rows(name: str) -> dict[str, Any]:
    return {
        answer["node"]: row
        for answer in read("show", "tracks", "--filter", name)["answers"]
        for row in answer["tracks"]
        if row["name"] == name
    }


def test_the_telemetry_of_a_relay_can_be_traced(line: Line) -> None:
    objects, _ = traced("laps/telemetry/1:2", "node", "--objects", "1")
    assert [item["node"] for item in objects[0]["arrivals"]] == ["1:2"]


def test_a_relay_has_no_trace_left_when_readers_are_gone(line: Line) -> None:
    host, port = line.via.admin.split(":")
    request = f"GET /v1/trace?track={HASH} HTTP/1.1\r\nHost: {line.via.admin}\r\n\r\n"
    for _ in range(MAX_TRACES + 1):
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as reader:
            reader.sendall(request.encode())
            assert reader.recv(12) == b"HTTP/1.1 200"
    laps("trace", *TRACK, "--objects", "1")


def test_a_trace_of_what_is_no_track_is_refused(line: Line) -> None:
    answer = httpx.get(f"http://{line.via.admin}/v1/trace?track=nothing")
    assert answer.status_code == 400
    assert "16 hexadecimal digits" in answer.json()["error"]


# -- what goes wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("show", "peers", "9:9"), 1, "no relay 9:9 was found; those that answer: 1:1, 1:2, 1:3"),
        (("show", "peers", "9"), 2, 'node id "9" needs a colon'),
        (("show", "pears"), 2, 'there is no view "pears": it is one of nodes, peers'),
        (("show", "--admin", "127.0.0.1:1"), 1, "no relay answers at http://127.0.0.1:1"),
        (("explain", "no/such", "track"), 1, "no track no/such track is known"),
        (("explain", "1:1", "9:9"), 1, "no way leads from 1:1 to 9:9"),
        (("trace", "no/such", "track"), 1, "no track no/such track is known"),
        (("trace", "nothing"), 2, 'track "nothing" has no name'),
    ],
)
def test_what_goes_wrong_says_so_and_how_to_go_on(
    line: Line, words: tuple[str, ...], status: int, said: str
) -> None:
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, LapsError)
    assert str(error).startswith(said)
    assert isinstance(error, ConfigError) == (status == 2)


def test_at_the_terminal_it_is_one_line_and_a_status(line: Line) -> None:
    command = [LAPS, "show", "peers", "9:9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("laps: no relay 9:9 was found")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_without_a_relay_it_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(places.VARIABLE, str(tmp_path))
    assert "start one with `laps relay`" in str(CliRunner().invoke(app, ["show"]).exception)


def test_a_token_is_asked_for_and_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "place"))
    config = tmp_path / "relay.toml"
    config.write_text('[admin]\nlisten = "127.0.0.1:0"\ntoken = "open-sesame"\n')
    args = ("--config", str(config), "--node-id", "7:7", "--no-discovery")
    with relay_process(tmp_path / "log", *args):
        result = CliRunner().invoke(app, ["show"])
        assert "give it with --token" in str(result.exception)
        monkeypatch.setenv("LAPS_ADMIN_TOKEN", "wrong")
        result = CliRunner().invoke(app, ["show"])
        assert "the one given is not the relay's" in str(result.exception)
        result = CliRunner().invoke(app, ["show", "--token", "open-sesame"])
        assert "is seen by everybody on this machine" in str(result.exception)
        assert "LAPS_ADMIN_TOKEN" in str(result.exception)
        (tmp_path / "token").write_text("open-sesame\n")
        assert "7:7" in laps("show", "--token", f"@{tmp_path / 'token'}")
        monkeypatch.setenv("LAPS_ADMIN_TOKEN", "open-sesame")
        monkeypatch.setenv("LAPS_TOKEN", "of-a-client")
        assert "7:7" in laps("show")
