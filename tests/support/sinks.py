"""Batches for the sink without Spark, relays, and a publisher that is killed at a moment."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from laps.spark.sink import sending, staging
from laps.spark.sink.journal import Journal
from laps.spark.sink.objects import Partition
from laps.spark.sink.options import Columns, SinkOptions
from laps.spark.sink.place import Place
from laps.spark.sink.publisher import Batch, Publisher, PublisherSettings
from laps.spark.sink.uplink import Uplink
from laps.spark.source.offsets import track_key
from laps.spark.source.options import Trust
from support.programs import ANY, LAPS, READY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COLUMNS = Columns("payload", (), None, "track", None, None, ("key",))


def stage(
    place: Place,
    number: int,
    partitions: Sequence[Sequence[tuple[str, int, bytes]]],
    namespace: str = "demo/sink",
) -> Batch:
    """A batch of rows, each with a track, a grouping key and a payload."""
    settings = SinkOptions((), namespace=namespace)
    folder = f"staged/{number}"
    files = []
    for index, rows in enumerate(partitions):
        partition = Partition(settings, COLUMNS)
        writer = staging.StagingWriter(place, f"{folder}/{index}-{os.urandom(4).hex()}.arrow")
        tracks, keys, payloads = zip(*rows, strict=True) if rows else ((), (), ())
        columns = {
            "track": pa.array(tracks, pa.string()),
            "key": pa.array(keys, pa.int64()),
            "payload": pa.array(payloads, pa.binary()),
        }
        for made in partition.objects(pa.record_batch(columns)):
            writer.write(made)
        writer.close()
        keys_ = tuple(track_key(track) for track in partition.tracks)
        name = writer._name
        files.append(staging.StagedFile(name, writer.objects, keys_, writer.extensions))
    return Batch(number, None, folder, tuple(files), settings.group_objects, settings.priority)


def publisher(place: Place, *relays: str, wait_s: float = 10.0) -> Publisher:
    """A publisher with the journal in a place."""
    return Publisher(PublisherSettings(relays, Trust(), wait_s, 1 << 20), place, Journal(place))


class Relays:
    """Relays that know of each other at once, and may be killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._config = folder / "relay.toml"
        self._config.write_text("[relay]\nnode_advertise_s = 0.05\n[cache]\nage_s = 600.0\n")
        self._peers: list[str] = []
        self.processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def start(self, *peers: int, listen: str = ANY) -> str:
        """Start another that dials some of those before it; its URL."""
        command = [LAPS, "relay", "--config", str(self._config), "--listen", listen]
        command += ["--peer-listen", ANY, "--node-id", f"9:{len(self.processes) + 1}"]
        for peer in peers:
            command += ["--peer", self._peers[peer]]
        log = self._folder / f"relay-{len(self.processes)}.log"
        with log.open("w") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self.processes.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = READY.fullmatch(line)
        assert ready is not None, line or log.read_text()
        self._peers.append(ready[2])
        return f"moqt://{ready[1]}"

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def publish_and_die(place: Path, relay: str, batch: Batch, moment: str) -> None:
    """Publish in a process that is killed at a moment; it has to be."""
    # Forked from one that has imported all this, which takes longest.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_publish, args=(str(place), relay, batch, moment))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    process.close()


def _die(*_: object, **__: object) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


async def _die_when_sent(writing: Any, item: Any) -> None:
    await _write(writing, item)
    if item.number == 700:
        # What has been written so far is on its way, and the relay is about to have it.
        for line in writing._uplink._lines:
            await line.channel.flushed()
        _die()


_write: Any = sending.Writing.write


def _publish(place: str, relay: str, batch: Batch, moment: str) -> None:
    where: dict[str, tuple[type, str, Any]] = {
        "before it is written down": (Journal, "take", _die),
        "before it is sent": (Uplink, "publish", _die),
        "while it is sent": (sending.Writing, "write", _die_when_sent),
        "before its end is written down": (Journal, "finish", _die),
    }
    if moment in where:
        setattr(*where[moment])
    asyncio.run(publisher(Place(place), relay).publish(batch))
    _die()  # before Spark is told
