"""`laps pub` and `laps sub` with QUICR, as a person runs them, with a relay between them."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from support.programs import LAPS, relay_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.programs import RelayProcess

# A program that hangs fails its test; none takes a tenth of it.
LIMIT_S = 30

LINES = b"".join(b"line %d\n" % number for number in range(300))


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    with relay_process(tmp_path_factory.mktemp("relay") / "relay.log") as running:
        yield running


def url(relay: RelayProcess, scheme: str = "quicr") -> str:
    return f"{scheme}://{relay.clients}"


def run(*args: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [LAPS, *args], input=given, capture_output=True, timeout=LIMIT_S, check=False
    )


def pub(where: str, space: str, name: str, *args: str, given: bytes = b"") -> bytes:
    published = run("pub", where, space, name, *args, given=given)
    assert published.returncode == 0, published.stderr.decode()
    assert published.stderr == b""
    return published.stdout


@contextmanager
def sub(where: str, space: str, name: str, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [LAPS, "sub", where, space, name, *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def pub_of(where: str, space: str, name: str, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """A publisher that reads what a test writes to it."""
    command = [LAPS, "pub", where, space, name, *args]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def write(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()


def end(process: subprocess.Popen[bytes]) -> None:
    """The end of its input."""
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.close()
    assert process.wait(LIMIT_S) == 0
    assert process.stderr.read() == b""


def line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def finished(process: subprocess.Popen[bytes]) -> bytes:
    output, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors.decode()
    assert errors == b""
    return output


@pytest.mark.parametrize(
    ("publisher", "subscriber"), [("quicr", "quicr"), ("quicr", "moqt"), ("moqt", "quicr")]
)
def test_lines_pass_between_the_protocols(
    relay: RelayProcess, publisher: str, subscriber: str
) -> None:
    name = f"{publisher}-{subscriber}"
    args = url(relay, subscriber), "demo/lines", name, "--from", "start"
    with sub(*args) as reading, pub_of(url(relay, publisher), "demo/lines", name) as writing:
        write(writing, b"first\n")
        assert line(reading) == b"first\n"
        write(writing, LINES)
        end(writing)
        assert finished(reading) == LINES
    later = run("sub", *args)
    assert (later.stdout, later.returncode) == (b"first\n" + LINES, 0)


def test_datagrams(relay: RelayProcess) -> None:
    where = url(relay), "demo/datagrams", "t"
    with (
        sub(*where, "--datagrams", "--from", "start") as reading,
        pub_of(*where, "--datagrams", "--rate", "1000") as writing,
    ):
        write(writing, b"first\n")
        assert line(reading) == b"first\n"
        write(writing, LINES)
        end(writing)
        assert finished(reading) == LINES


def test_blocks_larger_than_a_datagram_arrive_as_they_were(relay: RelayProcess) -> None:
    data = bytes(range(256)) * 400
    where = url(relay), "demo/blocks", "t"
    pub(*where, "--block", "10000", "--datagrams", "--rate", "100", given=data)
    read = run("sub", *where, "--from", "start", "--raw")
    assert (read.stdout, read.returncode) == (data, 0)


@pytest.mark.parametrize("datagrams", [(), ("--datagrams",)], ids=["stream", "datagrams"])
def test_all_tracks_below_a_namespace(relay: RelayProcess, datagrams: tuple[str, ...]) -> None:
    space = f"demo/all{len(datagrams)}"
    args = (url(relay), space, "*", "--from", "start", *datagrams)
    with pub_of(url(relay), space, "a") as first, sub(*args, "--count", "4") as reading:
        write(first, b"1\n2\n")
        lines = [line(reading), line(reading)]
        with pub_of(url(relay, "moqt"), f"{space}/deep", "b") as second:
            write(second, b"3\n\xff\n")
            lines += finished(reading).splitlines(keepends=True)
            here, deep = f"{space}/a\t".encode(), f"{space}/deep/b\t".encode()
            assert lines == [
                here + b"1\n",
                here + b"2\n",
                deep + b"3\n",
                deep + b"<1 bytes, not text>\n",
            ]
            told = run("sub", *args, "--count", "4", "--json")
            end(second)
        end(first)
    assert told.returncode == 0, told.stderr.decode()
    objects = [json.loads(text) for text in told.stdout.splitlines()]
    assert [item["text"] for item in objects if item["track"] == f"{space}/a"] == ["1", "2"]
    assert [item["bytes"] for item in objects if item["track"] == f"{space}/deep/b"] == [1, 1]


def test_what_was_sent_is_told(relay: RelayProcess) -> None:
    report = json.loads(
        pub(url(relay), "demo/end", "t", "--first-group", "7", "--json", given=b"1\n2\n")
    )
    assert (report["objects"], report["first"], report["last"]) == (2, [7, 0], [7, 1])
    read = run("sub", url(relay), "demo/end", "t", "--from", "start", "--json")
    first, second = map(json.loads, read.stdout.splitlines())
    assert first == {"group": 7, "object": 0, "subgroup": 0, "bytes": 1, "text": "1"}
    assert second["object"] == 1


def test_a_reader_that_has_enough_is_no_failure(relay: RelayProcess) -> None:
    where = url(relay), "demo/enough"
    with pub_of(*where, "t") as writing, sub(*where, "*", "--from", "start") as reading:
        write(writing, b"".join(b"%d\n" % number for number in range(10_000)))
        assert line(reading) == b"demo/enough/t\t0\n"
        assert reading.stdout is not None
        reading.stdout.close()
        assert reading.wait(LIMIT_S) == 0
        assert reading.stderr is not None
        assert reading.stderr.read() == b""
        end(writing)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("pub", "quicr://h", "a", "b", "--draft", "16"), b"--draft: QUICR has no such thing"),
        (("sub", "quicr://h", "a", "b", "--draft", "16"), b"--draft: QUICR has no such thing"),
        (("pub", "quicr://h", "a", "b", "--wait"), b"--wait: QUICR has no such thing"),
        (("sub", "quicr://h", "a", "b", "--no-wait"), b"give --timeout, or use moqt://"),
        (("sub", "quicr://h", "a", "b", "--from", "current"), b"give latest, next or start"),
        (("sub", "moqt://h", "a", "b", "--datagrams"), b"give a quicr:// URL"),
        (("sub", "a", "b", "--datagrams"), b"give a quicr:// URL"),
        (("sub", "quicr://h", "a", "*", "--raw"), b"exclude each other"),
        (("sub", "quicr://h", "a//b", "*"), b'namespace "a//b" has an empty part'),
        (("sub", "quicr://h/path", "a", "b"), b"has a path, and QUICR has none"),
        (("pub", "quicr://h", "a", "b", "--block", "16777217"), b"may have 16777216 bytes"),
    ],
)
def test_what_was_written_wrong_is_said(args: tuple[str, ...], words: bytes) -> None:
    refused = run(*args)
    assert refused.returncode == 2
    assert words in refused.stderr
    assert refused.stderr.count(b"\n") == 1


def test_what_went_wrong_is_said(relay: RelayProcess, tmp_path: Path) -> None:
    silent = run("sub", url(relay), "demo/nothing", "*", "--timeout", "0.1")
    assert silent.returncode == 1
    assert silent.stderr.startswith(b"laps: no object came for 0.1 s")
    nameless = run("pub", url(relay), "demo", "", given=b"1\n")
    assert nameless.returncode == 2
    assert b"a track whose parts are empty" in nameless.stderr
    (tmp_path / "relay.toml").write_text("[quicr]\nenabled = false\n")
    config = "--config", str(tmp_path / "relay.toml")
    with relay_process(tmp_path / "log", *config) as without:
        refused = run("sub", url(without), "demo", "t")
    assert refused.returncode == 1
    assert b"does not speak the protocol asked for" in refused.stderr


@pytest.mark.parametrize("command", ["pub", "sub"])
def test_help_shows_how_it_is_used(command: str) -> None:
    shown = run(command, "--help")
    assert shown.returncode == 0
    assert f"Example: laps {command} quicr://127.0.0.1".encode() in shown.stdout
