"""The process that publishes for a query, and stays connected from batch to batch.

Spark commits each batch in whatever process it has at hand, and a publisher that comes and goes
with them would look to subscribers like a track that does. So the first commit starts this process,
and all of them tell it their batches, over a socket that only this user can open:

    commit  ->  length, JSON: Request   ->  companion
            <-  length, JSON: Answer    <-

It stays when the driver dies, for a while: a query that is started again finds it, and the batch
that was on its way is done. It goes when the driver has been gone for `linger_s`, or when no batch
has come for an hour; the next one then starts another, which goes on where the journal says. What
publishes a single write stays, too: a subscriber that waits for the track looks for it every second
or two, and finds nobody where a publisher came and left between.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec
import uvloop

from laps.errors import ConfigError, LapsError
from laps.spark.sink.journal import Journal
from laps.spark.sink.place import Place
from laps.spark.sink.publisher import Batch, Publisher, PublisherSettings

log = logging.getLogger(__name__)

PROTOCOL: Final = 2
"Of the requests: a companion of another one ends, for its successor to be started."

IDLE_S: Final = 3600.0
"Without a batch for this long it goes: nobody can tell a query that waits from one that stopped."

TICK_S: Final = 0.5

SOCKET: Final = "socket"
LOCK: Final = "lock"


@dataclass(frozen=True, slots=True)
class Driver:
    """The process of the driver; by its start it is told from a later one with the same number."""

    pid: int
    started: str

    @property
    def is_there(self) -> bool:
        """Whether it still runs."""
        return started(self.pid) == self.started


@dataclass(frozen=True, slots=True)
class Request:
    """A batch to be published."""

    protocol: int
    checkpoint: str
    settings: PublisherSettings
    batch: Batch
    driver: Driver
    linger_s: float
    "How long to stay when the driver is gone,"
    idle_s: float = IDLE_S
    "and when no batch comes, be it there or not."
    temporary: bool = False
    "Whether the checkpoint is of no use to anybody later."


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of it."""

    ok: bool
    published: bool = True
    "False: it had been before."
    error: str = ""
    config: bool = False
    "Whether a person wrote something wrong."
    stale: bool = False
    "This companion does not understand the request, and ends."


def started(pid: int) -> str:
    """When a process was started, in the kernel's own words; empty if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


class Companion:
    """Serves the commits of one sink."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._publisher: Publisher | None = None
        self._made_for: tuple[str, PublisherSettings] | None = None
        self._driver: Driver | None = None
        self._linger_s = 0.0
        self._idle_s = IDLE_S
        self._temporary = False
        self._last_seen = monotonic()
        "When the driver was last known to be there,"
        self._last_batch = monotonic()
        "and when it last sent a batch, or a batch ended."
        self._busy = 0
        self._over = asyncio.Event()

    async def serve(self) -> None:
        """Serve until nobody needs it."""
        path = self._folder / SOCKET
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._serve, path)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._over.set)
        keeping = asyncio.create_task(self._keep())
        try:
            await self._over.wait()
        finally:
            # Nobody may find it from here on: the next batch is for the next companion.
            path.unlink(missing_ok=True)
            server.close()
            keeping.cancel()
            if self._publisher is not None:
                await self._publisher.close(forget=self._temporary)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            size = int.from_bytes(await reader.readexactly(8), "big")
            answer = await self._answer(await reader.readexactly(size))
            data = msgspec.json.encode(answer)
            writer.write(len(data).to_bytes(8, "big") + data)
            await writer.drain()
            if answer.stale:
                self._over.set()
        except (OSError, asyncio.IncompleteReadError):
            pass  # who asked is gone; what it asked for is done all the same
        finally:
            writer.close()

    async def _answer(self, data: bytes) -> Answer:
        try:
            request = msgspec.json.decode(data, type=Request)
        except msgspec.MsgspecError:
            return Answer(ok=False, stale=True)
        if request.protocol != PROTOCOL:
            return Answer(ok=False, stale=True)
        self._busy += 1
        self._driver = request.driver
        self._linger_s, self._idle_s = request.linger_s, request.idle_s
        self._temporary = request.temporary
        try:
            publisher = await self._publisher_for(request)
            return Answer(ok=True, published=await publisher.publish(request.batch))
        except LapsError as error:
            log.warning("batch %s failed: %s", request.batch.number, error)
            return Answer(ok=False, error=str(error), config=isinstance(error, ConfigError))
        except Exception as error:
            log.exception("batch %s failed", request.batch.number)
            return Answer(ok=False, error=f"{type(error).__name__}: {error}")
        finally:
            self._busy -= 1
            self._last_batch = monotonic()

    async def _publisher_for(self, request: Request) -> Publisher:
        """The publisher there is, unless the query has been started again with other options."""
        wanted = request.checkpoint, request.settings
        if self._publisher is None or self._made_for != wanted:
            if self._publisher is not None:
                await self._publisher.close()
            place = Place(request.checkpoint)
            self._publisher = Publisher(request.settings, place, Journal(place))
            self._made_for = wanted
        return self._publisher

    async def _keep(self) -> None:
        while not self._is_idle():
            await asyncio.sleep(TICK_S)
            if self._publisher is not None:
                try:
                    await self._publisher.keep()
                except LapsError as error:
                    log.warning("%s", error)
        self._over.set()

    def _is_idle(self) -> bool:
        now = monotonic()
        if self._busy or self._driver is None or self._driver.is_there:
            self._last_seen = now
        if self._busy:
            return False
        return now > min(self._last_seen + self._linger_s, self._last_batch + self._idle_s)


def main() -> None:
    """Be the companion of the folder that is named."""
    folder = Path(sys.argv[1])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    with (folder / LOCK).open("a") as lock, contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        log.info("companion %d begins", os.getpid())
        uvloop.run(Companion(folder).serve())
        log.info("companion %d ends", os.getpid())
