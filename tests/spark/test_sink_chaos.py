"""The publisher and its relay are killed again and again: every object comes once all the same."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import laps
from laps.errors import LapsError
from laps.spark import bridge
from laps.spark.sink import calling
from laps.spark.sink.companion import LOCK, PROTOCOL, Driver, Request, started
from laps.spark.sink.place import Place
from laps.spark.sink.publisher import PublisherSettings
from laps.spark.source.options import Trust
from support.sinks import Relays, stage

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

RUN_S = 60.0
CATCH_UP_S = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    # The path of a socket has to be short, and those of pytest are not.
    made = Path(tempfile.mkdtemp(prefix="laps-test-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(made))
        yield made
    shutil.rmtree(made)


class Chaos(threading.Thread):
    """Kills the companion, or the first relay, at moments of its own."""

    def __init__(self, relays: Relays, url: str, companion: Path, seed: int) -> None:
        super().__init__()
        self._relays = relays
        self._url = url
        self._lock_file = companion / LOCK
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._first = 0

    def run(self) -> None:
        while not self._over.wait(self._random.uniform(0.5, 2.5)):
            match self._random.choice(["companion"] * 4 + ["lost", "leaves"]):
                case "companion":
                    self.kill_companion()
                case how:
                    process = self._relays.processes[self._first]
                    process.send_signal(signal.SIGKILL if how == "lost" else signal.SIGTERM)
                    process.wait()
                    self._first = len(self._relays.processes)
                    listen = self._url.removeprefix("moqt://")
                    self._relays.start(1, 2, listen=listen)

    def kill_companion(self) -> None:
        with suppress(OSError, ValueError):
            os.kill(int(self._lock_file.read_text()), signal.SIGKILL)

    def stop(self) -> None:
        self._over.set()
        self.join()


@pytest.mark.parametrize("seed", range(5))
def test_every_object_comes_once_whoever_is_killed(seed: int, folder: Path, tmp_path: Path) -> None:
    place = Place(str(folder / "sink"))
    seen: list[int] = []

    async def listen(url: str) -> None:
        async with laps.connect(url) as session:
            async for item in session.subscribe("demo/sink", "t", start="start"):
                seen.append(int(item.payload.split()[0]))  # noqa: PERF401 - it never ends

    with Relays(tmp_path) as relays:
        first, second, third = relays.start(), relays.start(0), relays.start(0, 1)
        task = asyncio.run_coroutine_threadsafe(listen(third), bridge.loop())
        chaos = Chaos(relays, first, calling.companion_folder(place.url), seed)
        chaos.start()
        try:
            written = publish_for_a_while(place, (first, second), random.Random(seed))
        finally:
            chaos.stop()
        deadline = time.monotonic() + CATCH_UP_S
        while len(seen) < written and time.monotonic() < deadline:
            time.sleep(0.1)
        assert sorted(seen) == list(range(written))
        task.cancel()
        chaos.kill_companion()


def publish_for_a_while(place: Place, relays: tuple[str, ...], random_: random.Random) -> int:
    """Publish batches as a query does, which begins the one that failed again; how many rows."""
    settings = PublisherSettings(relays, Trust(), 30.0, 1 << 20)
    driver = Driver(os.getpid(), started(os.getpid()))
    written = number = 0
    deadline = time.monotonic() + RUN_S
    while time.monotonic() < deadline:
        size = random_.choice([1, 50, 3000])
        rows = [("t", n // 100, b"%d " % n + bytes(200)) for n in range(written, written + size)]
        while True:
            batch = stage(place, number, [rows[: size // 2], rows[size // 2 :]])
            with suppress(LapsError):
                calling.publish(Request(PROTOCOL, place.url, settings, batch, driver, 0.0))
                break
        written, number = written + size, number + 1
    return written
