"""libquicr, by the authors of the documents: its client `qclient`, and their relay `lapsRelay`.

They are programs in C++ that these tests do not build: `LAPS_QCLIENT` and `LAPS_CPP_RELAY` name
them. What they write on the wire is in `tests/vectors/moqt/draft16_libquicr.txt`, which always
runs.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

import pytest

from interop.clients import PATIENCE_S
from interop.relays import LAPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from interop.relays import Relay

# Often enough that nothing takes long, and slow enough for qclient's queue.
LINE_EVERY_S = 0.05

# "… Received message:  Group:0, Subgroup: 0 Object:1 - text"
RECEIVED = re.compile(r"Received message: .*Object:\d+ - (.*)")
LOST = re.compile(r"Connection failed|Connection disconnected|Failed to connect")


def named(variable: str, program: str, source: str) -> str:
    path = os.environ.get(variable)
    if path is None:
        pytest.skip(f"{variable} is to name {program}; {source} says how it is built")
    assert Path(path).is_file(), f"{variable}={path} is no file"
    return path


@pytest.fixture(scope="session")
def qclient() -> str:
    return named("LAPS_QCLIENT", "qclient", "https://github.com/Quicr/libquicr")


@pytest.fixture(scope="session")
def cpp_relay() -> str:
    return named("LAPS_CPP_RELAY", "lapsRelay", "https://github.com/Quicr/laps")


class Program:
    """A program that runs until the end of its test: what it prints, and what it is told."""

    def __init__(self, *words: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def says(self, pattern: str) -> bool:
        return any(re.search(pattern, line) for line in list(self.lines))

    @property
    def is_foreign(self) -> bool:
        """Whether it is a qclient."""
        return self.says(r"client\.cpp")

    @property
    def lost(self) -> bool:
        """Whether a qclient has lost its session."""
        return any(LOST.search(line) for line in list(self.lines))

    @property
    def objects(self) -> list[str]:
        """The payloads that it has got: qclient says more than those, `laps sub` nothing else."""
        found = (RECEIVED.search(line) for line in list(self.lines))
        return [it[1] for it in found if it] or [it for it in self.lines if it.startswith("line ")]

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()
        self._reader.join()


def _wait(done: Callable[[], bool], program: Program) -> None:
    end = monotonic() + PATIENCE_S
    while not done():
        assert monotonic() < end, program.lines[-5:]
        sleep(LINE_EVERY_S)


class Stage:
    """Programs at relays; all are stopped at the end."""

    def __init__(self, qclient: str) -> None:
        self._qclient = qclient
        self._running: list[Program] = []
        self._numbers = count()

    def run(self, *words: str) -> Program:
        program = Program(*words)
        self._running.append(program)
        return program

    def foreign(self, clients: str, transport: str, *words: str) -> Program:
        """qclient; a namespace has commas where ours has slashes."""
        kind = {"raw": "quic", "web": "webtransport"}[transport]
        return self.run(self._qclient, "-r", f"moq://{clients}/relay", "-t", kind, *words)

    def sub(self, url: str, namespace: str, *words: str) -> Program:
        return self.run(LAPS, "sub", "--insecure", url, namespace, "t", *words)

    def pub(self, url: str, namespace: str) -> Program:
        return self.run(LAPS, "pub", "--insecure", url, namespace, "t")

    def foreign_publisher(self, clients: str, transport: str, *words: str) -> Program:
        """qclient, when it may be subscribed to: before, it refuses, or fails for good."""
        program = self.foreign(clients, transport, *words)
        _wait(lambda: program.says("is ready to send"), program)
        return program

    def write_until(self, publisher: Program, done: Callable[[], bool], what: str) -> None:
        """Let it publish numbered lines until something is so."""
        end = monotonic() + PATIENCE_S
        while not done():
            assert monotonic() < end, (what, [it.lines[-5:] for it in self._running])
            publisher.tell(f"line {next(self._numbers)}")
            sleep(LINE_EVERY_S)

    def passes(self, publisher: Program, *readers: Program) -> None:
        """Every reader gets a few lines more, one after the other, and nobody is closed."""
        before = [len(reader.objects) for reader in readers]

        def done() -> bool:
            each = zip(readers, before, strict=True)
            return all(len(reader.objects) >= had + 4 for reader, had in each)

        self.write_until(publisher, done, "not everybody gets what is published")
        for reader, had in zip(readers, before, strict=True):
            numbers = [int(line.removeprefix("line ")) for line in reader.objects[had:]]
            if reader.is_foreign:
                # It reads one object for each piece of a stream, and leaves the rest when it ends.
                assert numbers == sorted(set(numbers))
            else:
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert not any(program.lost for program in self._running)

    def close(self) -> None:
        for program in self._running:
            program.stop()


@pytest.fixture
def stage(qclient: str) -> Iterator[Stage]:
    made = Stage(qclient)
    try:
        yield made
    finally:
        made.close()


def commas(namespace: str) -> str:
    return namespace.replace("/", ",")


def track(option: str, namespace: str) -> tuple[str, ...]:
    return f"--{option}_namespace", commas(namespace), f"--{option}_name", "t"


@pytest.mark.parametrize("transport", ["raw", "web"])
@pytest.mark.parametrize("announces", [False, True], ids=["PUBLISH", "PUBLISH_NAMESPACE"])
def test_what_it_publishes_reaches_everybody(
    transport: str, announces: bool, ends: tuple[Relay, Relay], room: str, stage: Stage
) -> None:
    here, there = ends
    how = ["--use_announce"] if announces else []
    publisher = stage.foreign_publisher(here.clients, transport, *track("pub", room), *how)
    readers = (
        stage.foreign(there.clients, transport, *track("sub", room)),
        stage.sub(there.raw, room, "--draft", "16"),
        stage.sub(there.web, room, "--draft", "14"),
    )
    stage.passes(publisher, *readers)


@pytest.mark.parametrize("transport", ["raw", "web"])
def test_what_we_publish_reaches_it(
    transport: str, ends: tuple[Relay, Relay], room: str, stage: Stage
) -> None:
    here, there = ends
    publisher = stage.pub(here.url(transport), room)
    watcher = stage.foreign(there.clients, transport, "--sub_announces", commas(room))
    stage.write_until(
        publisher, lambda: watcher.says("Received PUBLISH from relay"), "no PUBLISH was offered"
    )
    reader = stage.foreign(there.clients, transport, *track("sub", room))
    stage.passes(publisher, reader)
    assert not watcher.lost


def test_what_it_asks_in_its_own_way_closes_nobody(
    one_relay: Relay, room: str, stage: Stage
) -> None:
    """A joining FETCH without a filter, TRACK_STATUS without parameters, a FETCH."""
    publisher = stage.pub(one_relay.raw, room)
    ours = stage.sub(one_relay.raw, room)
    stage.passes(publisher, ours)
    at = one_relay.clients
    joining = stage.foreign(at, "raw", *track("sub", room), "--joining_fetch", "1")
    asking = stage.foreign(at, "raw", *track("sub", room), "--track_status")
    places = ("--start_group", "0", "--end_group", "1", "--start_object", "0")
    fetching = stage.foreign(at, "raw", *track("fetch", room), *places)
    stage.passes(publisher, ours, joining, asking)
    assert not fetching.lost


def test_what_it_cannot_be_fetched_from_goes_on(
    ends: tuple[Relay, Relay], room: str, stage: Stage
) -> None:
    """The objects that it sends for a FETCH cannot be read: whoever asked gets what is live."""
    here, there = ends
    publisher = stage.foreign_publisher(here.clients, "raw", *track("pub", room))
    reader = stage.foreign(here.clients, "raw", *track("sub", room))
    stage.passes(publisher, reader)
    late = stage.sub(there.raw, room, "--from", "start")
    stage.passes(publisher, reader, late)


# -- lapsRelay -------------------------------------------------------------------------------------


@contextmanager
def running(program: str, place: Path) -> Iterator[tuple[str, Program]]:
    """lapsRelay until the end of the block: where clients find it, and what it prints."""
    certificate, key = place / "cert.pem", place / "key.pem"
    made = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    files = ("-keyout", str(key), "-out", str(certificate), "-subj", "/CN=localhost")
    subprocess.run(["openssl", *made, *files], check=True, capture_output=True)
    ports = []
    for _ in range(2):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            ports.append(str(free.getsockname()[1]))
    listens = ("-b", "127.0.0.1", "-p", ports[0], "--peer_port", ports[1])
    relay = Program(program, *listens, "-c", str(certificate), "-k", str(key))
    try:
        yield f"127.0.0.1:{ports[0]}", relay
    finally:
        relay.stop()


def test_our_client_works_with_their_relay(
    cpp_relay: str, stage: Stage, room: str, tmp_path: Path
) -> None:
    with running(cpp_relay, tmp_path) as (clients, relay):
        publisher = stage.pub(f"moqt://{clients}", room)
        publisher.tell("line -1")  # it publishes when there is something
        _wait(lambda: relay.says("Received publish"), relay)
        ours = stage.sub(f"moqt://{clients}", room)
        theirs = stage.foreign(clients, "raw", *track("sub", room))
        stage.passes(publisher, ours, theirs)
