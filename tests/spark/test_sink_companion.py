"""The process that publishes for a query: started, found again, killed, and gone when it should."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from laps.errors import LapsError
from laps.spark.sink import calling, companion
from laps.spark.sink.companion import Driver, Request, started
from laps.spark.sink.journal import read_state
from laps.spark.sink.place import Place
from laps.spark.sink.publisher import PublisherSettings
from laps.spark.source.options import Trust
from support.sinks import Relays, stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.spark

ME = Driver(os.getpid(), started(os.getpid()))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Relays(tmp_path_factory.mktemp("relay")) as relays:
        yield relays.start()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:  # which has to be made before it is
    """A place of its own, whose companion does not outlive the test."""
    # The path of a socket has to be short, and those of pytest are not.
    folder = Path(tempfile.mkdtemp(prefix="laps-test-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        yield Place(str(folder / "sink"))
        for lock in folder.glob("laps-*/*/lock"):
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(lock.read_text()), signal.SIGKILL)
    shutil.rmtree(folder)


def request(place: Place, url: str, number: int, count: int = 3, driver: Driver = ME) -> Request:
    rows = [("t", 0, b"%d" % n) for n in range(count)]
    settings = PublisherSettings((url,), Trust(), 5.0, 1 << 20)
    batch = stage(place, number, [rows])
    return Request(companion.PROTOCOL, place.url, settings, batch, driver, 0.0)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait as long as a busy machine may take, and not longer."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def pid_of(place: Place) -> int:
    return int((calling.companion_folder(place.url) / companion.LOCK).read_text())


def test_one_process_publishes_all_batches_of_a_sink(place: Place, url: str) -> None:
    assert calling.publish(request(place, url, 0))
    first = pid_of(place)
    assert calling.publish(request(place, url, 1))
    assert not calling.publish(request(place, url, 1))
    assert pid_of(place) == first

    os.kill(first, signal.SIGKILL)
    assert calling.publish(request(place, url, 2))
    assert pid_of(place) != first
    assert read_state(place).done == 2


def test_one_that_dies_over_a_batch_is_started_again(place: Place, url: str) -> None:
    calling.publish(request(place, url, 0))
    pid = pid_of(place)
    os.kill(pid, signal.SIGSTOP)  # so that it is there, and does not answer
    batch = request(place, url, 1, 2000)
    with ThreadPoolExecutor() as threads:
        publishing = threads.submit(calling.publish, batch)
        # Its socket has taken the call by now, or is about to: either way it dies over it.
        os.kill(pid, signal.SIGKILL)
        assert publishing.result()
    assert pid_of(place) != pid
    assert read_state(place).done == 1


def test_it_goes_when_its_driver_is_gone(place: Place, url: str) -> None:
    driver = subprocess.Popen(["sleep", "60"])
    alive = Driver(driver.pid, started(driver.pid))
    calling.publish(request(place, url, 0, driver=alive))
    pid = pid_of(place)
    driver.kill()
    driver.wait()
    wait_until(lambda: started(pid) == "")
    assert not place.folders("staged")
    assert not (calling.companion_folder(place.url) / companion.SOCKET).exists()


def test_it_makes_room_for_one_that_speaks_otherwise(
    place: Place, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calling.publish(request(place, url, 0))
    before = pid_of(place)
    newer = request(place, url, 1)
    asked: list[int] = []

    def ask(folder: Path, _: Request) -> companion.Answer | None:
        asked.append(pid_of(place))
        return answer(folder, replace(newer, protocol=newer.protocol + (len(asked) == 1)))

    answer = calling._ask
    monkeypatch.setattr(calling, "_ask", ask)
    assert calling.publish(newer)
    assert pid_of(place) != before


def test_what_it_finds_wrong_is_raised_where_the_batch_came_from(place: Place) -> None:
    relays = "moqt://127.0.0.1:1", "https://127.0.0.1:2/moq"
    nobody = replace(request(place, "", 0), settings=PublisherSettings(relays, Trust(), 5.0, 0))
    with pytest.raises(LapsError, match=r"no relay answers: moqt://127.*; https://127.*:2/moq: "):
        calling.publish(nobody)
    assert read_state(place).taken is None


def test_a_folder_that_others_can_open_is_refused(place: Place) -> None:
    folder = calling.companion_folder(place.url)
    folder.chmod(0o755)
    with pytest.raises(LapsError, match="is open to others"):
        calling.companion_folder(place.url)


def test_a_path_that_is_too_long_for_a_socket_is_named(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "x" * 90)
    with pytest.raises(LapsError, match="set TMPDIR to a shorter path"):
        calling.companion_folder(place.url)


def test_the_driver_is_the_nearest_java_above(tmp_path: Path) -> None:
    assert calling.driver_of(os.getpid()) == ME
    java = tmp_path / "java"
    java.symlink_to("/bin/sh")
    script = f"{sys.executable} -c 'import os; print(os.getpid(), flush=True); input()'; true"
    with subprocess.Popen(
        [java, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found = calling.driver_of(int(process.stdout.readline()))
        assert found == Driver(process.pid, started(process.pid))
        assert found.is_there
        process.communicate("\n")
    assert not found.is_there
