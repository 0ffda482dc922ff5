import functools
import io
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from laps import units
from laps.errors import LapsError
from laps.spark.pipeline.page import page, write_page
from laps.spark.pipeline.plots import fan_out_bins, pictures
from laps.spark.pipeline.report import Report, Totals
from laps.spark.pipeline.sections import (
    SECTIONS,
    fitting,
    milliseconds,
    percent,
    printable,
    render,
    spark_line,
    summary,
)

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script>[red]$x_1$\x1b[31m&"

Row = dict[str, Any]


def relay(node: str, **rest: Any) -> Row:
    names = ("load", "sent_bps", "utilisation", "memory_bytes", "clients", "peers", "tracks")
    usual = dict.fromkeys(names, 0) | {"load_p95": 0.5, "dropped": 0, "starts": 1, "silent": False}
    return usual | {"node": node, "role": "edge", "region": "eu"} | rest


def link(node: str, peer: str, **rest: Any) -> Row:
    names = (
        "srtt_us",
        "srtt_us_p50",
        "srtt_us_p95",
        "loss",
        "loss_avg",
        "sent_bps",
        "sent_bps_p95",
    )
    more = ("utilisation", "utilisation_p50", "utilisation_p95", "queue_bytes")
    usual = dict.fromkeys(names, 1.0) | dict.fromkeys(more)
    return (
        usual
        | {"node": node, "peer": peer, "region": "eu", "peer_region": None, "now": True}
        | rest
    )


def track(name: str, namespace: str = "n") -> Row:
    return {
        "namespace": namespace,
        "track": name,
        "track_hash": -1,
        "rate_bps": 1.5e6,
        "origins": ["1:1"],
        "peak": 3,
        "copies_peak": 5,
        "subscribers": 3,
        "copies": 4,
        "fan_out": 3,
        "relays": 3,
    }


def minute(number: int) -> Row:
    return {
        "minute": NOON + timedelta(minutes=number),
        "links": 1,
        "srtt_us_p50": 1000,
        "srtt_us_p95": 1000 * (number + 1),
        "srtt_us_max": 9000,
        "loss": 0.0,
    }


def report(name: str = "1:1", **views: list[Row]) -> Report:
    usual: dict[str, list[Row]] = {
        "relays": [relay(name), relay("1:2", silent=True)],
        "links": [link(name, "1:2"), link("1:2", name, now=False)],
        "matrix": [link(name, "1:2")],
        "tracks_by_rate": [track(name)],
        "tracks_by_audience": [track(name)],
        "regions": [{"region": name, "subscribers": 2, "peak": 3, "tracks": 1, "relays": 1}],
        "audience": [
            {"namespace": "n", "track": name, "track_hash": 1, "region": None}
            | {"subscribers": 1, "peak": 2, "relays": 1}
        ],
        "copies": [
            {"node": name, "peer": "b", "region": "", "peer_region": "us", "tracks": 1}
            | {"tracks_peak": 2, "copies_bps": 8.0}
        ],
        "fan_out": [{"copies": 0, "at_origin": 0, "at_relays": 1}],
        "path_changes": [
            {"node": name, "subject": "9:9", "changes": 3, "at": NOON, "detail": name}
            | {"reason": "fewer hops", "flapping": True, "most_at_once": 3}
        ],
        "delay": [minute(number) for number in range(5)],
    }  # fmt: skip
    totals = Totals(
        relays=2,
        silent=1,
        links=2,
        tracks=1,
        subscriptions=2,
        records={"links": 1_200_000, "tracks": 34, "node": 5, "events": 0},
        late={"links": 17, "tracks": 0},
        corrupt=0,
    )
    return Report(
        NOON, NOON + timedelta(hours=1), NOON + timedelta(minutes=4), totals, usual | views
    )


@functools.cache
def usual_pictures() -> dict[str, str]:
    return pictures(report())


@functools.cache
def hostile_page() -> str:
    return page(report(HOSTILE))


def text_of(made: Report, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(render(made, width))
    return out.getvalue()


# -- words and numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0, "0"),
        (7, "7"),
        (999, "999"),
        (0.1234, "0.123"),
        (1000, "1 k"),
        (76_543.2, "76.5 k"),
        (1.08e6, "1.08 M"),
        (999_400_000, "999 M"),
        (12e12, "12 T"),
    ],
)
def test_an_amount_has_three_figures(value: float | None, shown: str) -> None:
    assert units.prefixed(value) == shown


def test_times_and_shares_have_their_units() -> None:
    assert (milliseconds(1570), milliseconds(2_500_000), milliseconds(None)) == (
        "1.57",
        "2500",
        "-",
    )
    assert (percent(0.0123), percent(1), percent(None)) == ("1.23", "100", "-")


def test_a_name_from_the_network_cannot_move_the_cursor() -> None:
    assert printable("plant/7 \N{DEGREE SIGN}C") == "plant/7 \N{DEGREE SIGN}C"
    assert printable("a\x1b[2Jb\nc\u202e") == "a\ufffd[2Jb\ufffdc\ufffd"


def test_a_line_over_time_goes_from_its_lowest_to_its_highest() -> None:
    assert spark_line([5, 12, 19]) == "▁▅█"
    assert spark_line([3, 3]) == "▁▁"
    assert spark_line([]) == ""


def test_the_summary_says_how_many_came_late() -> None:
    lines = summary(report())
    assert lines[0] == "2026-08-01 12:00 to 2026-08-01 13:00:00 UTC; now: 12:04:00"
    assert lines[1] == "2 relays (1 silent), 2 link directions, 1 track, 2 subscriptions"
    assert lines[2] == "records: links 1,200,000, tracks 34, node 5, events 0"
    assert lines[3] == "late: 17 of 1,200,034, which minutes are without"


# -- the terminal ----------------------------------------------------------------------------------


def test_every_view_is_shown_with_its_remarks() -> None:
    shown = text_of(report(), width=140)
    for section in SECTIONS:
        assert section.title in shown
        assert section.empty not in shown
    for remark in ("silent", "gone", "flapping", "1:1 → 1:2", ["eu", "→", "us"][0], "1.5 M"):
        assert remark in shown


def test_a_track_whose_name_no_relay_knows_is_shown_by_its_hash() -> None:
    assert "#ffffffffffffffff" in text_of(report(tracks_by_rate=[track("", "")]))
    assert "/only a name" in text_of(report(tracks_by_rate=[track("only a name", "")]))


def test_what_is_empty_says_so() -> None:
    views: dict[str, list[Row]] = {name: [] for name in report().views}
    shown = text_of(report("1:1", **views), width=140)
    for section in SECTIONS:
        assert f"{section.title}: {section.empty}" in shown


def test_a_narrow_terminal_leaves_out_what_matters_less() -> None:
    rows = report().views["relays"]
    [section] = [section for section in SECTIONS if section.view == "relays"]
    assert len(fitting(section.columns, rows, 200)) == len(section.columns)
    narrow = [column.title for column in fitting(section.columns, rows, 75)]
    assert "load %" in narrow
    assert "memory B" not in narrow
    assert all(len(line) <= 80 for line in text_of(report()).splitlines())


def test_names_from_the_network_are_only_names_on_a_terminal() -> None:
    shown = text_of(report(HOSTILE), width=200)
    assert "[red]$x_1$" in shown
    assert "\x1b" not in shown


# -- the page --------------------------------------------------------------------------------------


def test_the_page_needs_nothing_beside_it() -> None:
    made = hostile_page()
    for reference in ("<script", "src=", "<link", "@import", "url(http", 'href="http'):
        assert reference not in made
    assert made.count("<svg") == 6
    assert "currentColor" in made
    assert "color-scheme: light dark" in made


def test_names_from_the_network_are_only_names_on_the_page() -> None:
    made = page(report(HOSTILE))
    assert "<script" not in made
    assert "\x1b" not in made
    for svg in pictures(report(HOSTILE)).values():
        ET.fromstring(svg)
    assert "$x_1$" in made  # it is not mathematics


def test_pictures_are_the_same_for_the_same_rows_and_drawn_of_something_only() -> None:
    assert pictures(report()) == usual_pictures()
    nothing: dict[str, list[Row]] = {name: [] for name in report().views}
    assert pictures(report("1:1", **nothing)) == {}


def test_two_pictures_on_a_page_do_not_share_names() -> None:
    drawn = usual_pictures()
    # Shapes and clips are named by what they are and a salt; the rest is named axes_1 and so on.
    names = [set(re.findall(r'id="([mp][0-9a-f]{10})"', svg)) for svg in drawn.values()]
    assert all(names)
    assert sum(len(some) for some in names) == len(set().union(*names))


def test_many_copies_are_shown_in_steps() -> None:
    rows = [
        {"copies": 0, "at_origin": 1, "at_relays": 2},
        {"copies": 9, "at_origin": 3, "at_relays": 4},
        {"copies": 16, "at_origin": 5, "at_relays": 6},
        {"copies": 33, "at_origin": 7, "at_relays": 8},
    ]
    names, at_origin, at_relays = fan_out_bins(rows)
    assert names == [*map(str, range(9)), "9-16", "17-32", "33-64"]
    assert at_origin == [1, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 7]
    assert at_relays[9:] == [10, 0, 8]


def test_a_page_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laps.spark.pipeline.page.pictures", lambda report: usual_pictures())
    file = tmp_path / "report.html"
    write_page(report(), file)
    assert file.read_text().endswith("</html>\n")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(LapsError, match=r"cannot be written to .*: No such file or directory"):
        write_page(report(), tmp_path / "no" / "report.html")


def test_a_report_for_programs_has_plain_values() -> None:
    made = report(links=[link("a", "b", sent_bps=float("nan"))]).to_mapping()
    assert made["since"] == "2026-08-01T12:00:00+00:00"
    assert made["views"]["links"][0]["sent_bps"] is None
    assert made["late"] == {"links": 17, "tracks": 0}
