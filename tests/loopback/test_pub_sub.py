"""`laps pub` and `laps sub` as a person runs them, with a relay between them."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from support.programs import LAPS, relay_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.programs import RelayProcess

# A program that hangs fails its test; none takes a tenth of it.
LIMIT_S = 60


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    with relay_process(tmp_path_factory.mktemp("relay") / "relay.log") as running:
        yield running


def url(relay: RelayProcess, scheme: str = "moqt") -> str:
    return f"{scheme}://{relay.clients}"


def run(*args: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [LAPS, *args], input=given, capture_output=True, timeout=LIMIT_S, check=False
    )


def pub(
    relay: RelayProcess, name: str, *args: str, given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    published = run("pub", url(relay), "demo/tests", name, *args, given=given)
    assert published.returncode == 0, published.stderr.decode()
    assert published.stderr == b""
    return published


@contextmanager
def sub(relay: RelayProcess, name: str, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [LAPS, "sub", url(relay), "demo/tests", name, *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def finished(process: subprocess.Popen[bytes]) -> bytes:
    output, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors.decode()
    assert errors == b""
    return output


def test_lines_go_from_standard_input_to_standard_output(relay: RelayProcess) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(1000))
    with sub(relay, "lines", "--from", "start") as subscriber:
        published = pub(relay, "lines", given=lines)
        assert published.stdout == b""
        assert finished(subscriber) == lines


@pytest.mark.parametrize("draft", ["14", "16"])
@pytest.mark.parametrize("scheme", ["moqt", "https"])
def test_either_draft_over_either_transport(relay: RelayProcess, scheme: str, draft: str) -> None:
    where = (url(relay, scheme), "demo/tests", f"{scheme}{draft}", "--draft", draft)
    assert run("pub", *where, "--first-group", "0", given=b"a\n\nlast").returncode == 0
    read = run("sub", *where, "--from", "start")
    assert (read.stdout, read.returncode) == (b"a\n\nlast\n", 0)


def test_blocks_arrive_byte_by_byte_as_they_were(relay: RelayProcess) -> None:
    data = bytes(range(256)) * 1000
    pub(relay, "blocks", "--block", "10000", given=data)
    read = run("sub", url(relay), "demo/tests", "blocks", "--from", "start", "--raw")
    assert (read.stdout, read.returncode) == (data, 0)


def test_a_file_is_an_object_and_a_group(relay: RelayProcess, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("some text")
    (tmp_path / "bytes").write_bytes(b"\xff\x00")
    files = ("--file", str(tmp_path / "text"), "--file", str(tmp_path / "bytes"))
    published = pub(relay, "files", *files, "--first-group", "7", "--json")
    report = json.loads(published.stdout)
    assert (report["objects"], report["bytes"]) == (2, 11)
    assert (report["first"], report["last"]) == ([7, 0], [8, 0])
    shown = run("sub", url(relay), "demo/tests", "files", "--from", "start")
    assert shown.stdout == b"some text\n<2 bytes, not text>\n"
    told = run("sub", url(relay), "demo/tests", "files", "--from", "start", "--json")
    first, second = map(json.loads, told.stdout.splitlines())
    assert first == {"group": 7, "object": 0, "subgroup": 0, "bytes": 9, "text": "some text"}
    assert second["base64"] == "/wA="


def test_groups_grow_from_run_to_run(relay: RelayProcess) -> None:
    reports: list[dict[str, Any]] = []
    for _ in range(2):
        published = pub(relay, "runs", "--group-every", "2", "--json", given=b"1\n2\n3\n")
        reports.append(json.loads(published.stdout))
    first, second = reports
    assert first["last"][0] == first["first"][0] + 1
    assert second["first"] > first["last"]


def test_so_many_objects_are_enough(relay: RelayProcess) -> None:
    with sub(relay, "count", "--count", "3", "--from", "start") as subscriber:
        pub(relay, "count", "--rate", "100", given=b"1\n2\n3\n4\n5\n")
        assert finished(subscriber) == b"1\n2\n3\n"


def test_a_publisher_waits_for_the_first_subscriber(relay: RelayProcess) -> None:
    command = [LAPS, "pub", url(relay), "demo/tests", "wait", "--wait"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as publisher:
        assert publisher.stdin is not None
        publisher.stdin.write(b"1\n2\n")
        publisher.stdin.close()
        with sub(relay, "wait") as subscriber:
            assert finished(subscriber) == b"1\n2\n"
        assert publisher.wait(LIMIT_S) == 0


def test_datagrams(relay: RelayProcess) -> None:
    with sub(relay, "datagrams", "--count", "1", "--json") as subscriber:
        where = (url(relay), "demo/tests", "datagrams", "--wait", "--datagrams")
        assert run("pub", *where, given=b"small\n").returncode == 0
        assert json.loads(finished(subscriber))["subgroup"] is None
    refused = run("pub", url(relay), "demo/tests", "large", "--datagrams", given=bytes(5000))
    assert refused.returncode == 1
    assert b"laps: an object of 5000 bytes makes a datagram of" in refused.stderr


def test_ctrl_c_ends_the_track(relay: RelayProcess) -> None:
    command = [LAPS, "pub", url(relay), "demo/tests", "stop"]
    with (
        sub(relay, "stop", "--from", "start") as subscriber,
        subprocess.Popen(command, stdin=subprocess.PIPE) as publisher,
    ):
        assert publisher.stdin is not None
        assert subscriber.stdout is not None
        publisher.stdin.write(b"1\n")
        publisher.stdin.flush()
        assert subscriber.stdout.readline() == b"1\n"
        publisher.send_signal(signal.SIGINT)
        assert publisher.wait(LIMIT_S) == 0
        assert finished(subscriber) == b""


def test_a_reader_that_has_enough_is_no_failure(relay: RelayProcess) -> None:
    pub(relay, "many", given=b"".join(b"%d\n" % number for number in range(50_000)))
    with sub(relay, "many", "--from", "start") as subscriber:
        assert subscriber.stdout is not None
        assert subscriber.stdout.readline() == b"0\n"
        subscriber.stdout.close()
        assert subscriber.wait(LIMIT_S) == 0
        assert subscriber.stderr is not None
        assert subscriber.stderr.read() == b""


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (("sub", "relay.example:1", "a", "b"), 2, b'scheme "relay.example" is not known: write it'),
        (("sub", "moqt://", "a", "b"), 2, b"names no host"),
        (("pub", "moqt://127.0.0.1:1", "a//b", "c"), 2, b'namespace "a//b" has an empty part'),
        (("pub", "moqt://h:1", "a", "b", "--block", "1", "--file", "x"), 2, b"exclude each other"),
        (("sub", "moqt://h:1", "a", "b", "--raw", "--json"), 2, b"exclude each other"),
        (("sub", "moqt://127.0.0.1:1", "a", "b", "--draft", "9"), 2, b"those spoken are 14 and 16"),
    ],
)
def test_what_was_written_wrong_is_said(args: tuple[str, ...], status: int, words: bytes) -> None:
    refused = run(*args)
    assert refused.returncode == status
    assert words in refused.stderr
    assert refused.stderr.count(b"\n") == 1


def test_what_went_wrong_is_said(relay: RelayProcess) -> None:
    nobody = run("sub", url(relay), "demo/tests", "nothing", "--no-wait")
    assert nobody.returncode == 1
    assert nobody.stderr.startswith(b"laps: a subscription to demo/tests nothing was refused")
    silent = run("sub", url(relay), "demo/tests", "nothing", "--timeout", "0.1")
    assert silent.returncode == 1
    assert silent.stderr.startswith(b"laps: no object came for 0.1 s")
    not_for_clients = run("sub", f"moqt://{relay.peers}", "a", "b")
    assert not_for_clients.returncode == 1
    assert b"does not speak the protocol asked for" in not_for_clients.stderr
    missing = run("pub", url(relay), "demo/tests", "files", "--file", "/no/such/file")
    assert missing.returncode == 2
    assert b"--file /no/such/file: cannot be read" in missing.stderr


@pytest.mark.parametrize("command", ["pub", "sub"])
def test_help_shows_how_it_is_used(command: str) -> None:
    shown = run(command, "--help")
    assert shown.returncode == 0
    assert f"Example: laps {command} moqt://127.0.0.1:33435".encode() in shown.stdout
