"""The program as a person runs it."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from laps.net.tls import self_signed

if TYPE_CHECKING:
    from collections.abc import Iterator

LAPS = str(Path(sys.executable).with_name("laps"))
ANY = "127.0.0.1:0"


def laps(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LAPS, *args], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


def test_help_shows_how_each_command_is_used() -> None:
    assert laps("--version").stdout.startswith("laps ")
    commands = [
        ("relay",),
        ("lab",),
        ("sim",),
        ("sim", "sweep"),
        *(("bench", name) for name in ("quic", "infobase", "hops", "relay", "failover")),
    ]
    for command in commands:
        shown = laps(*command, "--help")
        assert shown.returncode == 0
        assert f"Example: laps {' '.join(command)}" in shown.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_relay_says_where_it_listens_and_stops_when_asked(number: signal.Signals) -> None:
    with subprocess.Popen(
        [LAPS, "relay", "--node-id", "1.2:3", "--listen", ANY, "--peer-listen", ANY],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        ready = (
            r"ready node=1\.2:3 clients=127\.0\.0\.1:\d+ peers=127\.0\.0\.1:\d+ "
            r"sha256=[0-9a-f]{64} admin=127\.0\.0\.1:\d+ auth=everybody\n"
        )
        assert re.fullmatch(ready, line)
        process.send_signal(number)
        assert process.wait(timeout=20) == 0
        assert process.stderr.read() == ""


def test_a_relay_reads_its_configuration_again_and_survives_a_bad_one(tmp_path: Path) -> None:
    config = tmp_path / "laps.toml"
    listen = '[clients]\nlisten = "127.0.0.1:0"\n'
    config.write_text('[node]\ntype = "stub"\n' + listen)
    with subprocess.Popen(
        [LAPS, "relay", "--config", str(config), "--node-id", "5:5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("ready node=5:5 clients=127.0.0.1:")
        config.write_text("[node\n")
        process.send_signal(signal.SIGHUP)
        assert "the configuration stays as it is" in process.stderr.readline()
        config.write_text('[node]\ntype = "stub"\nregion = "north"\n' + listen)
        process.send_signal(signal.SIGHUP)
        assert "[node] has changed: restart the relay" in process.stderr.readline()
        process.terminate()
        assert process.wait(timeout=20) == 0


def test_a_relay_begins_again_when_its_type_has_changed(tmp_path: Path) -> None:
    config = tmp_path / "laps.toml"
    listen = "".join(f'[{part}]\nlisten = "{ANY}"\n' for part in ("clients", "peering"))
    config.write_text('[node]\ntype = "edge"\n' + listen)
    with subprocess.Popen(
        [LAPS, "relay", "--config", str(config), "--admin", ANY],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        as_edge = process.stdout.readline()
        config.write_text('[node]\ntype = "control"\nregion = "north"\n' + listen)
        process.send_signal(signal.SIGHUP)
        as_control = process.stdout.readline()
        assert re.sub("clients=[^ ]*", "clients=none", as_edge) == as_control
        said = process.stderr.readline() + process.stderr.readline()
        assert "node.type was edge and is control: the relay begins again" in said
        assert "[node] has changed: restart the relay for all but the type to count" in said
        config.write_text('[node]\ntype = "edge"\n' + listen)
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == as_edge
        process.terminate()
        assert process.wait(timeout=20) == 0


def test_bad_input_is_one_line_and_status_2(busy_port: int, tmp_path: Path) -> None:
    config = tmp_path / "laps.toml"
    config.write_text("[quic]\nidle_timeout = 3\n")
    identity = self_signed(["a"])
    certificate = tmp_path / "cert.pem"
    certificate.write_bytes(identity.certificate)
    pem = str(certificate)
    for args, words in (
        (("--node-id", "1.2"), 'node.id = "1.2": needs a colon: high:low, like 1.2:1234'),
        (("--peer-listen", f"127.0.0.1:{busy_port}"), f"127.0.0.1:{busy_port} is in use"),
        (("--peer-listen", "192.0.2.9:1"), "is not loopback, so peers have to prove who they are"),
        (("--peer-listen", "192.0.2.9:1", "--no-peer-auth"), "not an address of this machine"),
        (("--peer-auth",), "needs peering.keys: `laps token key` makes keys"),
        (("--peer-key", "/no/such.jwk"), "/no/such.jwk: cannot be read"),
        (("--peer-listen", "nowhere"), "nowhere"),
        (
            ("--tls-cert", "/no/such.pem", "--tls-key", "/no/such.key"),
            "/no/such.pem cannot be read",
        ),
        (("--tls-cert", pem), "needs its private key"),
        (
            ("--tls-cert", str(certificate), "--tls-key", str(certificate)),
            "is not PEM with a private",
        ),
        (("--config", "/no/such.toml"), "/no/such.toml: cannot be read"),
        (("--config", str(tmp_path)), "cannot be read: Is a directory"),
        (
            ("--config", str(config)),
            "quic.idle_timeout = 3: unknown key, did you mean idle_timeout_s",
        ),
        (("--type", "hub"), 'must be one of "edge", "via", "stub", "control"'),
        (("--peer", "127.0.0.1:0"), "cannot be dialled"),
        (("--latitude", "91"), "must be a number from -90 to 90"),
    ):
        shown = laps("relay", *args)
        assert shown.returncode == 2, args
        assert shown.stdout == ""
        assert words in shown.stderr
        assert len(shown.stderr.splitlines()) == 1
    assert laps("relay", "--no-such-flag").returncode == 2
    assert laps("bench", "quic", "--only", "nothing").returncode == 2


def test_the_benchmark_speaks_json() -> None:
    shown = laps(
        "bench", "quic", "--only", "datagrams", "--rounds", "1", "--seconds", "0.1", "--json"
    )
    assert shown.returncode == 0, shown.stderr
    (result,) = json.loads(shown.stdout)
    assert result["case"] == "datagrams"
    assert result["laps"] > 0
    assert set(result["ratios"]) <= {"qh3", "aioquic"}


@pytest.mark.nightly
def test_the_bench_of_hops_starts_five_relays_and_compares() -> None:
    shown = laps("bench", "hops", "--seconds", "0.5", "--json")
    result = json.loads(shown.stdout)
    assert result["objects"] > 10
    assert 0 < result["edge_1_p50_ms"] < result["edge_2_p50_ms"] < result["stub_p50_ms"]


def test_the_bench_of_the_infobase_counts_what_entries_cost() -> None:
    shown = laps("bench", "infobase", "--count", "5000", "--json")
    assert shown.returncode == 0, shown.stderr
    assert all(result["entries"] == 5000 for result in json.loads(shown.stdout))


@pytest.mark.nightly
def test_the_bench_of_a_relay_measures_and_says_what_was_wanted() -> None:
    shown = laps(
        "bench", "relay", "--only", "unpaced", "--only", "memory", "--seconds", "0.2", "--json"
    )
    figures = {row["what"]: row for row in json.loads(shown.stdout)}
    assert figures["a relay at rest"]["most"] == 70
    assert figures["1,000 idle subscriptions more"]["figure"] > 0
    assert figures["1,000 bytes, sent to each of 16"]["figure"] > 0
    assert shown.returncode == (0 if all(row["holds"] for row in figures.values()) else 1)
    assert laps("bench", "relay", "--only", "nothing").returncode == 2


@pytest.mark.nightly
def test_the_bench_of_failover_kills_a_relay_and_nothing_is_missing() -> None:
    shown = laps("bench", "failover", "--kills", "1", "--json")
    figures = {row["what"]: row["figure"] for row in json.loads(shown.stdout)}
    assert figures["objects lost"] == figures["objects twice"] == 0
    assert 0 < figures["detection, p50"] <= figures["repair, max"]


def test_sim_answers_what_if() -> None:
    topology = Path(__file__).parents[2] / "examples" / "sim" / "two-regions.toml"
    args = ("sim", str(topology), "--seed", "7", "--faults", "crash:1:1@2", "--seconds", "5")
    shown = laps(*args, "--json")
    report = json.loads(shown.stdout)
    assert report["nodes"] == 7
    assert report["delivered"] > 0
    assert report["duplicates"] == 0
    assert laps(*args, "--json").stdout == shown.stdout  # the same seed, the same run
    for wrong, words in (
        (("sim", "/no/such.toml"), "/no/such.toml: cannot be read"),
        (("sim", str(topology), "--faults", "boom:1@3"), 'fault "boom:1@3"'),
    ):
        refused = laps(*wrong)
        assert refused.returncode == 2
        assert words in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
