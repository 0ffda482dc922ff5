"""What a report shows of each view: its columns, in words and units for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from laps import units
from laps.spark.pipeline.report import show_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from laps.spark.pipeline.report import Report, Row


def printable(text: object) -> str:
    """A name that came from the network, without what would move the cursor or hide something."""
    return "".join(char if char.isprintable() else "\ufffd" for char in str(text))


def milliseconds(us: float | None) -> str:
    """Microseconds as milliseconds."""
    return units.figures(None if us is None else us / 1000)


def percent(share: float | None) -> str:
    """A share of 1 as percent."""
    return units.figures(None if share is None else share * 100)


@dataclass(frozen=True, slots=True)
class Shown:
    """A column as it is shown."""

    title: str
    text: Callable[[Row], str]
    is_number: bool = True
    is_minor: bool = False
    "It is left out where a terminal is too narrow for all of them."


@dataclass(frozen=True, slots=True)
class Section:
    """A view as it is shown."""

    view: str
    title: str
    columns: tuple[Shown, ...]
    empty: str
    "What to say where it has no rows."


def _name(title: str, *columns: str, between: str = "/", is_minor: bool = False) -> Shown:
    def text(row: Row) -> str:
        parts = [printable(row[column]) for column in columns if row[column] is not None]
        return between.join(parts) or units.NOTHING

    return Shown(title, text, is_number=False, is_minor=is_minor)


def _time(title: str, column: str) -> Shown:
    def text(row: Row) -> str:
        at: datetime = row[column]
        return f"{at:%m-%d %H:%M:%S}"

    return Shown(title, text)


def _of(
    title: str, column: str, show: Callable[[Any], str] = units.prefixed, *, is_minor: bool = False
) -> Shown:
    return Shown(title, lambda row: show(row[column]), is_minor=is_minor)


_LINK: Final = _name("link", "node", "peer", between=" → ")


def _track(row: Row) -> str:
    if row["namespace"] or row["track"]:
        return printable(f"{row['namespace']}/{row['track']}")
    return f"#{row['track_hash'] & (1 << 64) - 1:016x}"  # no relay has said its name


_TRACK: Final = Shown("track", _track, is_number=False)
_BETWEEN: Final = _name("regions", "region", "peer_region", between=" → ", is_minor=True)

SECTIONS: Final = (
    Section(
        "relays",
        "Relays, the busiest first",
        (
            _name("relay", "node"),
            _name("role", "role"),
            _name("region", "region"),
            _of("load %", "load", percent),
            _of("p95", "load_p95", percent),
            _of("out bit/s", "sent_bps"),
            _of("used %", "utilisation", percent, is_minor=True),
            _of("clients", "clients"),
            _of("peers", "peers", is_minor=True),
            _of("tracks", "tracks"),
            _of("memory B", "memory_bytes", is_minor=True),
            _of("drops", "dropped", is_minor=True),
            _of("starts", "starts", is_minor=True),
            Shown("", lambda row: "silent" if row["silent"] else "", is_number=False),
        ),
        "No relay has said anything about itself.",
    ),
    Section(
        "links",
        "Links, the busiest first",
        (
            _LINK,
            _BETWEEN,
            _of("sRTT ms", "srtt_us", milliseconds),
            _of("p50", "srtt_us_p50", milliseconds),
            _of("p95", "srtt_us_p95", milliseconds),
            _of("loss %", "loss", percent),
            _of("mean", "loss_avg", percent, is_minor=True),
            _of("out bit/s", "sent_bps"),
            _of("used %", "utilisation", percent),
            _of("p50", "utilisation_p50", percent, is_minor=True),
            _of("p95", "utilisation_p95", percent),
            _of("queue B", "queue_bytes", is_minor=True),
            Shown("", lambda row: "" if row["now"] else "gone", is_number=False),
        ),
        "No relay had a peer.",
    ),
    Section(
        "tracks_by_rate",
        "Tracks, the fastest first",
        (
            _TRACK,
            _of("bit/s", "rate_bps"),
            _of("subscribers", "subscribers"),
            _of("copies", "copies"),
            Shown(
                "o-relay", lambda row: printable(", ".join(row["origins"])) or units.NOTHING, False
            ),
        ),
        "No relay carried a track.",
    ),
    Section(
        "tracks_by_audience",
        "Tracks, the most read first",
        (
            _TRACK,
            _of("subscribers", "subscribers"),
            _of("at most", "peak"),
            _of("bit/s", "rate_bps"),
            _of("relays", "relays"),
            _of("copies", "copies"),
            _of("fan-out", "fan_out"),
        ),
        "No relay carried a track.",
    ),
    Section(
        "regions",
        "Audience by region",
        (
            _name("region", "region"),
            _of("subscriptions", "subscribers"),
            _of("at most", "peak"),
            _of("tracks", "tracks"),
            _of("relays", "relays"),
        ),
        "Nobody read a track.",
    ),
    Section(
        "audience",
        "Audience by track and region",
        (
            _TRACK,
            _name("region", "region"),
            _of("subscribers", "subscribers"),
            _of("at most", "peak"),
            _of("relays", "relays"),
        ),
        "Nobody read a track.",
    ),
    Section(
        "copies",
        "Copies on links",
        (
            _LINK,
            _BETWEEN,
            _of("tracks", "tracks"),
            _of("at most", "tracks_peak"),
            _of("bit/s", "copies_bps"),
        ),
        "No relay sent a track to another.",
    ),
    Section(
        "fan_out",
        "Fan-out: how many copies relays send of a track",
        (
            _of("copies", "copies"),
            _of("tracks at o-relays", "at_origin"),
            _of("at all relays", "at_relays"),
        ),
        "No relay carries a track now.",
    ),
    Section(
        "path_changes",
        "Paths that changed",
        (
            _name("at", "node"),
            _name("to", "subject"),
            _of("times", "changes"),
            _time("last", "at"),
            _name("from → to", "detail"),
            _name("because", "reason"),
            Shown("", lambda row: "flapping" if row["flapping"] else "", is_number=False),
        ),
        "No path changed.",
    ),
)


def summary(report: Report) -> list[str]:
    """The network in a few lines."""
    totals = report.totals
    silent = f" ({totals.silent} silent)" if totals.silent else ""
    asked = f"{report.since:%Y-%m-%d %H:%M} to {show_time(report.until)}"
    things = [
        f"{units.many(totals.relays, 'relay')}{silent}",
        units.many(totals.links, "link direction"),
        units.many(totals.tracks, "track"),
        units.many(totals.subscriptions, "subscription"),
    ]
    lines = [f"{asked}; now: {report.as_of:%H:%M:%S}", ", ".join(things)]
    kinds = [f"{kind} {records:,}" for kind, records in totals.records.items()]
    lines.append(f"records: {', '.join(kinds)}")
    late, counted = sum(totals.late.values()), sum(totals.records[kind] for kind in totals.late)
    lines.append(f"late: {late:,} of {counted:,}, which minutes are without")
    if totals.corrupt:
        lines.append(f"corrupt: {totals.corrupt:,}, kept in raw/corrupt")
    return lines


def spark_line(values: Sequence[float]) -> str:
    """A line over time in one row of text."""
    marks = "▁▂▃▄▅▆▇█"
    if not values:
        return ""
    low, high = min(values), max(values)
    step = (high - low) / (len(marks) - 1)
    return "".join(marks[round((value - low) / step)] if step else marks[0] for value in values)


def render(report: Report, width: int = 80) -> Group:
    """The report for a terminal of so many columns."""
    parts: list[RenderableType] = [Text(line) for line in summary(report)]
    if delays := report.views["delay"]:
        shown = _thinned([row["srtt_us_p95"] for row in delays], 40)
        parts.append(Text(f"sRTT p95 over time: {spark_line(shown)}  last {_delay(delays[-1])}"))
    for section in SECTIONS:
        parts += ["", *_table(section, report.views[section.view], width)]
    return Group(*parts)


def _delay(row: Row) -> str:
    return f"{milliseconds(row['srtt_us_p50'])} ms, p95 {milliseconds(row['srtt_us_p95'])} ms"


def _thinned(values: Sequence[float], most: int) -> list[float]:
    """At most so many of them, each the largest of its neighbours."""
    step = -(-len(values) // most)
    return [max(values[start : start + step]) for start in range(0, len(values), step)]


def _table(section: Section, rows: Sequence[Row], width: int) -> list[RenderableType]:
    if not rows:
        return [Text.assemble((section.title, "bold"), f": {section.empty}")]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    columns = fitting(columns_of(section, rows), rows, width)
    for column in columns:
        # Of what does not fit then, names go on in the next line, and numbers stay whole.
        table.add_column(
            column.title,
            justify="right" if column.is_number else "left",
            no_wrap=column.is_number,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(column.text(row)) for column in columns))
    return [Text(section.title, "bold"), table]


def columns_of(section: Section, rows: Sequence[Row]) -> list[Shown]:
    """The columns that have something to show: a remark without a title may have nothing."""
    return [c for c in section.columns if c.title or any(c.text(row) for row in rows)]


def fitting(columns: Sequence[Shown], rows: Sequence[Row], width: int) -> list[Shown]:
    """As many of the columns as fit, the minor ones left out from the right."""
    kept = list(columns)
    for column in reversed(columns):
        needed = sum(max(len(c.title), *(len(c.text(row)) for row in rows)) + 2 for c in kept)
        if needed <= width:
            break
        if column.is_minor:
            kept.remove(column)
    return kept
