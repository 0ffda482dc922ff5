"""The streaming job: telemetry of all relays into tables, one query for each kind of record.

    relays -> source `laps` -> Ingest -> raw/KIND, minute/KIND, late/KIND, raw/corrupt

A query reads each object once, and minutes are made of what it has written. Where a query is stands
in its checkpoint below the tables, and what it has written in the log of each table, so a job that
was killed at any point goes on as if nothing had happened.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow.fs as pafs
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from pyspark.sql import functions as F  # noqa: N812

from laps.errors import LapsError
from laps.spark.data_source import LapsDataSource
from laps.spark.pipeline.ingest import CORRUPT, Ingest
from laps.spark.pipeline.network import IDENTITY
from laps.spark.pipeline.tables import Table
from laps.spark.source.offsets import track_key
from laps.telemetry.records import KINDS, NAMESPACE
from laps.token_files import TokenFile
from laps.types import TrackName

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from laps.spark.pipeline.parquet_files import Place

CHECKPOINTS: Final = "_checkpoints"
"Where queries write down how far they are, below the tables."


@dataclass(frozen=True, slots=True)
class Reading:
    """Where telemetry is read, and how."""

    relay: str
    "URLs with commas between."
    insecure: bool = False
    fingerprint: str | None = None
    fail_on_data_loss: bool = False
    "A relay that is started again has lost its history, which is no reason to stop."
    token: str | bytes | TokenFile | None = field(default=None, repr=False)
    "What relays with keys are shown; it has to allow to subscribe below `laps`. None: LAPS_TOKEN."


@dataclass(frozen=True, slots=True)
class Progress:
    """What has come in since the job began."""

    rows: int
    batches: int
    late: int
    corrupt: int
    lost: int
    newest: datetime | None


def telemetry(spark: SparkSession, place: Place, kind: str, reading: Reading) -> DataFrame:
    """The stream of one kind of record: its columns, which object it was, how it came."""
    spark.dataSource.register(LapsDataSource)
    namespace = "/".join([part.decode() for part in NAMESPACE] + ["*"])
    options = {
        "relay": reading.relay,
        "namespace": namespace,
        "track": kind,
        "payload_format": "arrow",
        "payload_schema": KINDS[kind].ddl,
        "insecure": str(reading.insecure).lower(),
        "failOnDataLoss": str(reading.fail_on_data_loss).lower(),
        "startingOffsets": starting_offsets(spark, place, kind),
    }
    if reading.fingerprint is not None:
        options["fingerprint"] = reading.fingerprint
    options |= token_option(reading.token)
    columns = [column.name for column in KINDS[kind].columns]
    identity = [column.split()[0] for column in IDENTITY.split(", ")]
    stream = spark.readStream.format("laps").options(**options).load()
    return stream.select(*columns, *identity, CORRUPT)


def token_option(token: str | bytes | TokenFile | None) -> dict[str, str]:
    """The option of the source that has a token, or says where it is."""
    if token is None:
        return {}
    if isinstance(token, TokenFile):
        return {"tokenFile": str(token.path)}
    if isinstance(token, bytes):
        return {"token": urlsafe_b64encode(token).rstrip(b"=").decode()}
    return {"token": token}


def starting_offsets(spark: SparkSession, place: Place, kind: str) -> str:
    """Where a query without a checkpoint begins: at all that relays still hold.

    Where there are tables already, and only the checkpoint is gone, behind what they have.
    """
    raw = Table(place, f"raw/{kind}")
    if _has_checkpoint(place, kind) or not raw.exists():
        return "earliest"
    last = F.max(F.struct("group_id", "object_id")).alias("last")
    rows = raw.read(spark).groupBy("node").agg(last).collect()
    tracks = {(*NAMESPACE, row.node.encode()): row.last for row in rows}
    offsets = {
        track_key(TrackName(namespace, kind.encode())): [last.group_id, last.object_id + 1]
        for namespace, last in tracks.items()
    }
    return json.dumps(offsets) if offsets else "earliest"


@dataclass(slots=True)
class _Part:
    """One kind of record."""

    ingest: Ingest
    query: StreamingQuery
    lost: int = 0
    asked_at: int = -1
    "With so many batches its query was asked what is lost, which takes a while."

    def ask(self) -> int:
        if self.asked_at != self.ingest.tally.batches:
            self.asked_at = self.ingest.tally.batches
            self.lost = _lost(self.query)
        return self.lost


class Pipeline:
    """The queries of a job that runs."""

    def __init__(
        self,
        place: Place,
        streams: Mapping[str, DataFrame],
        *,
        every_s: float | None,
        compact_every: int = 0,
    ) -> None:
        """Start a query for each stream; without `every_s` they end when they have all there is."""
        self._parts: list[_Part] = []
        for kind, stream in streams.items():
            ingest = Ingest(place, kind, compact_every)
            writer = (
                stream.writeStream.queryName(f"laps {kind}")
                .foreachBatch(ingest)
                .option("checkpointLocation", f"{place.spark}/{CHECKPOINTS}/{kind}")
            )
            writer = (
                writer.trigger(availableNow=True)
                if every_s is None
                else writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
            )
            self._parts.append(_Part(ingest, writer.start()))

    @property
    def is_running(self) -> bool:
        """Whether all queries go on that have not come to their end."""
        active = [part.query.isActive for part in self._parts]
        return any(active) and self.failure() is None

    def failure(self) -> LapsError | None:
        """Why a query has ended before its time, in one line."""
        for part in self._parts:
            if part.query.isActive or (error := part.query.exception()) is None:
                continue
            cause = part.ingest.failure
            why = str(cause) if isinstance(cause, LapsError) else reason(str(cause or error))
            return LapsError(f"{part.ingest.kind}: {why}")
        return None

    def progress(self) -> Progress:
        """How far it is."""
        tallies = [part.ingest.tally for part in self._parts]
        return Progress(
            rows=sum(tally.rows for tally in tallies),
            batches=sum(tally.batches for tally in tallies),
            late=sum(tally.late for tally in tallies),
            corrupt=sum(tally.corrupt for tally in tallies),
            lost=sum(part.ask() for part in self._parts),
            newest=max((tally.newest for tally in tallies if tally.newest), default=None),
        )

    def stop(self) -> None:
        """End every query, behind the batch that it is at."""
        for part in self._parts:
            # A batch that begins right here is interrupted, and done again next time.
            part.ingest.idle.wait()
            part.query.stop()


def reason(text: str) -> str:
    """Why a query ended, of the pages that Spark writes about it: a line.

    What went wrong in Python stands at the end of the last traceback, and what did in Spark in the
    first line. Our own errors speak for themselves, others are named too.
    """
    told = text.partition("=== Streaming Query ===")[0].strip()
    in_python = _TRACEBACK.findall(told)
    if not in_python:
        return told.partition("\n")[0]
    kind, said = in_python[-1]
    return str(said if kind.startswith("laps.") else f"{kind.rpartition('.')[2]}: {said}")


_TRACEBACK: Final = re.compile(
    r"^.*Traceback \(most recent call last\):\n(?:[ \t].*\n)+([\w.]+): (.+)$", re.MULTILINE
)


def _lost(query: StreamingQuery) -> int:
    """Objects that relays no longer held when they were to be read, as the source counts them."""
    progress: Any = query.lastProgress
    if progress is None:
        return 0
    lost = 0
    for source in progress["sources"]:
        latest = source.get("latestOffset")
        latest = json.loads(latest) if isinstance(latest, str) else latest
        lost += latest.get("skipped", 0) if isinstance(latest, dict) else 0
    return lost


def _has_checkpoint(place: Place, kind: str) -> bool:
    try:
        files = pafs.PyFileSystem(DeltaStorageHandler(place.delta))
        found = files.get_file_info(f"{CHECKPOINTS}/{kind}/metadata")
    except (DeltaError, OSError):
        return False
    return bool(found.type != pafs.FileType.NotFound)
