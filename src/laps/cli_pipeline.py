"""`laps pipeline` and `laps report`: telemetry into tables, and what the tables say."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from collections import deque
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from laps.errors import ConfigError, InvalidText, LapsError
from laps.token_files import HELP, METAVAR, read_option
from laps.units import read_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from laps.spark.pipeline.job import Pipeline, Progress
    from laps.spark.pipeline.parquet_files import Place

TABLES = "./laps-tables"

# How often the line on a terminal is renewed, and written anew where there is none.
PROGRESS_S = 0.2
LOG_S = 10.0

# What views in tables are of; a report can be of any other time.
VIEWED = timedelta(hours=1)

out = Console()
err = Console(stderr=True)

log = logging.getLogger(__name__)

Master = Annotated[
    str | None,
    typer.Option(
        metavar="MASTER", help="Where Spark runs; on all cores of this machine if absent."
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more on standard error.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.command(
        epilog="Example: laps pipeline --relay moqt://127.0.0.1:33435 --to ./laps-tables\n\n"
        "Example: laps pipeline --relay moqt://relay.example:33435 --token @pipeline.jwt"
    )(pipeline)
    app.command(epilog="Example: laps report --last 15m --html report.html")(report)


# -- laps pipeline ---------------------------------------------------------------------------------


def pipeline(
    relay: Annotated[
        str, typer.Option(metavar="URL[,URL]", help="Where to read; the next if one is lost.")
    ],
    to: Annotated[
        str,
        typer.Option("--to", metavar="PATH", help="A path, or s3a://, gs://, abfss://, hdfs://."),
    ] = TABLES,
    master: Master = None,
    trigger: Annotated[
        str, typer.Option(metavar="TIME", help="How often a batch is taken, like 10s.")
    ] = "10s",
    once: Annotated[
        bool, typer.Option("--once", help="Take what relays have now, and end.")
    ] = False,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Stop by itself after this long.")
    ] = None,
    compact_every: Annotated[
        int, typer.Option(min=0, metavar="N", help="Merge small files every N batches; 0: never.")
    ] = 60,
    views_every: Annotated[
        str, typer.Option(metavar="TIME", help="How often the views are renewed; 0s: never.")
    ] = "60s",
    fail_on_loss: Annotated[
        bool, typer.Option("--fail-on-loss", help="End if relays no longer hold what is next.")
    ] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="Take any certificate.")] = False,
    fingerprint: Annotated[
        str | None,
        typer.Option(metavar="SHA256", help="Take this certificate, as the ready line has it."),
    ] = None,
    token: Annotated[
        str | None, typer.Option(metavar=METAVAR, help=HELP, show_default=False)
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Read what all relays say about themselves into tables, until it is stopped (Ctrl-C).

    It goes on where it was when it is started again, however it ended. `laps report` shows what
    is in the tables.
    """
    every_s = None if once else parse_duration("--trigger", trigger).total_seconds()
    views_s = parse_duration("--views-every", views_every).total_seconds()
    shown = read_option(token)
    _need_spark()
    from laps.spark.pipeline.job import Pipeline, Reading, telemetry
    from laps.spark.pipeline.parquet_files import Place
    from laps.telemetry.records import KINDS

    place = Place.of(to)
    reading = Reading(relay, insecure, fingerprint, fail_on_loss, shown)
    with _spark(master, "laps pipeline", verbose) as spark, _stopped() as stop:
        streams = {kind: telemetry(spark, place, kind, reading) for kind in KINDS}
        job = Pipeline(place, streams, every_s=every_s, compact_every=compact_every)
        try:
            _watch(spark, place, job, stop, seconds, views_s)
        finally:
            job.stop()
        if (failure := job.failure()) is not None:
            raise failure
        if views_s and not stop.is_set():
            _renew_views(spark, place)
        progress = job.progress()
        _print_line(
            f"{progress.rows:,} rows in {progress.batches:,} batches written to {place}, "
            f"late {progress.late:,}, corrupt {progress.corrupt:,}, lost {progress.lost:,}"
        )


def _watch(
    spark: SparkSession,
    place: Place,
    job: Pipeline,
    stop: threading.Event,
    seconds: float | None,
    views_s: float,
) -> None:
    """Show how far it is, and renew the views, until it ends or is to end."""
    began = said = viewed = time.monotonic()
    pace = Pace()
    with Live(console=err, transient=True, auto_refresh=err.is_terminal) as live:
        while job.is_running and not stop.wait(PROGRESS_S):
            now = time.monotonic()
            if seconds is not None and now - began >= seconds:
                break
            progress = job.progress()
            line = show(progress, pace.of(now, progress.rows), datetime.now(UTC))
            if err.is_terminal:
                live.update(Spinner("dots", Text(line)))
            elif now - said >= LOG_S:
                err.print(line, markup=False, highlight=False, soft_wrap=True)
                said = now
            if views_s and now - viewed >= views_s:
                _renew_views(spark, place)
                viewed = time.monotonic()


def _renew_views(spark: SparkSession, place: Place) -> None:
    from laps.spark.pipeline.network import write_views
    from laps.spark.pipeline.tables import NoTable

    now = datetime.now(UTC)
    try:
        write_views(spark, place, now - VIEWED, now)
    except NoTable:
        return  # no relay has said anything yet
    except LapsError as error:
        log.warning("the views stay as they are for now: %s", error)


class Pace:
    """Rows a second, over the last while."""

    def __init__(self, over_s: float = 15.0) -> None:
        self._over_s = over_s
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, now: float, rows: int) -> float:
        """With so many rows by now."""
        self._seen.append((now, rows))
        while len(self._seen) > 2 and self._seen[1][0] <= now - self._over_s:
            self._seen.popleft()
        began, before = self._seen[0]
        return (rows - before) / (now - began) if now > began else 0.0


def show(progress: Progress, pace: float, now: datetime) -> str:
    """How far it is, in a line."""
    parts = [
        f"{progress.rows:,} rows in",
        f"{pace:,.0f} rows/s",
        f"{progress.batches:,} batches",
        f"late {progress.late:,}",
    ]
    if progress.corrupt:
        parts.append(f"corrupt {progress.corrupt:,}")
    if progress.lost:
        parts.append(f"lost {progress.lost:,}")
    if progress.newest is None:
        parts.append("waiting for the first records")
    else:
        parts.append(f"lag {max(0.0, (now - progress.newest).total_seconds()):.1f} s")
    return ", ".join(parts)


# -- laps report -----------------------------------------------------------------------------------


def report(
    tables: Annotated[
        str, typer.Option("--from", metavar="PATH", help="The tables of laps pipeline.")
    ] = TABLES,
    last: Annotated[
        str | None, typer.Option(metavar="TIME", help="The time up to now, like 15m; 1h if absent.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Like 2026-08-01T12:00, in UTC.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="The same; now if absent.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with pictures too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="Rows of each table.")] = 10,
    master: Master = None,
    verbose: Verbose = False,
) -> None:
    """Show what is in the tables: relays, links, tracks, their audience, what has changed."""
    begin, end = parse_range(last, since, until, datetime.now(UTC))
    _need_spark()
    from laps.spark.pipeline.page import write_page
    from laps.spark.pipeline.parquet_files import Place
    from laps.spark.pipeline.report import make
    from laps.spark.pipeline.sections import render
    from laps.spark.pipeline.tables import require_any

    place = Place.of(tables)
    require_any(place)  # before Spark is started for nothing
    with _spark(master, "laps report", verbose) as spark:
        with err.status("asking the tables"):
            made = make(spark, place, begin, end, top)
        if html is not None:
            write_page(made, html)
    if as_json:
        _print_line(json.dumps(made.to_mapping(), indent=2))
    else:
        out.print(render(made, out.width))
    if html is not None:
        err.print(f"the page is {html}", markup=False, highlight=False, soft_wrap=True)


def parse_range(
    last: str | None, since: str | None, until: str | None, now: datetime
) -> tuple[datetime, datetime]:
    """The time that is asked for."""
    if last is not None and since is not None:
        raise ConfigError("--last and --since both say where to begin: give one of them")
    end = now if until is None else parse_time("--until", until)
    if since is not None:
        begin = parse_time("--since", since)
    else:
        try:
            begin = end - parse_duration("--last", last or "1h")
        except OverflowError:
            raise InvalidText("--last", last or "", "is too long") from None
    if begin >= end:
        raise ConfigError(f"--since {since or last} is not before --until {until or 'now'}")
    return begin, end


def parse_time(option: str, text: str) -> datetime:
    """A time as a person writes it, in UTC unless it says otherwise."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidText(option, text, "is no time: write it like 2026-08-01T12:00") from None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def parse_duration(option: str, text: str) -> timedelta:
    """A length of time as a person writes it: 500ms, 10s, 15m, 1h, 7d."""
    seconds = read_duration(text.strip())
    if seconds is None:
        raise InvalidText(option, text, "is no length of time: write it like 10s, 15m, 1h or 7d")
    return timedelta(seconds=seconds)


# -- both ------------------------------------------------------------------------------------------


def _need_spark() -> None:
    try:
        import laps.spark  # noqa: F401
    except ModuleNotFoundError as error:
        raise LapsError(str(error)) from None


@contextmanager
def _spark(master: str | None, name: str, verbose: bool) -> Iterator[SparkSession]:
    import laps.spark

    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    spark = laps.spark.session(master, name=name)
    try:
        if not verbose:
            # What ends a query is said in one line, not in the pages that Spark has for it.
            spark.sparkContext.setLogLevel("OFF")
        yield spark
    finally:
        spark.stop()


@contextmanager
def _stopped() -> Iterator[threading.Event]:
    """Set by the first Ctrl-C or SIGTERM; the second one ends the program at once."""
    stop = threading.Event()
    before: dict[signal.Signals, Any] = {}

    def on_signal(number: int, frame: object) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()
        err.print("laps: stopping behind the current batch (again: at once)", highlight=False)

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        for number, action in before.items():
            signal.signal(number, action)


def _print_line(line: str) -> None:
    out.print(line, markup=False, highlight=False, soft_wrap=True)
