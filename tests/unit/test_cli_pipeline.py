from datetime import UTC, datetime, timedelta

import pytest

from laps.cli_pipeline import Pace, parse_duration, parse_range, parse_time, show
from laps.errors import ConfigError
from laps.spark.pipeline.job import Progress

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("10s", 10), ("1.5m", 90), ("1h", 3600), ("7d", 604800), (" 0s ", 0)],
)
def test_a_length_of_time_is_read(text: str, seconds: float) -> None:
    assert parse_duration("--last", text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "10", "h", "-1h", "1w", "1h30m", "1e9s", "99999999999s"])
def test_what_is_no_length_of_time_is_named_with_the_way_out(text: str) -> None:
    with pytest.raises(ConfigError, match=r'^--last ".*" is no length of time: write it like 10s'):
        parse_duration("--last", text)


def test_a_length_of_time_can_be_too_long() -> None:
    with pytest.raises(ConfigError, match=r'^--last "999999999d" is too long'):
        parse_range("999999999d", None, None, NOON)
    with pytest.raises(ConfigError, match="is too long"):
        parse_range("999999d", None, None, NOON)


def test_a_time_is_in_utc_unless_it_says_otherwise() -> None:
    assert parse_time("--since", "2026-08-01T12:00") == NOON
    assert parse_time("--since", "2026-08-01 14:00:00+02:00") == NOON
    with pytest.raises(ConfigError, match=r'--since "yesterday" is no time: write it like 2026'):
        parse_time("--since", "yesterday")


def test_the_time_that_is_asked_for() -> None:
    hour = timedelta(hours=1)
    assert parse_range(None, None, None, NOON) == (NOON - hour, NOON)
    assert parse_range("2h", None, None, NOON) == (NOON - 2 * hour, NOON)
    assert parse_range(None, "2026-08-01T11:00", None, NOON) == (NOON - hour, NOON)
    assert parse_range("1h", None, "2026-08-01T11:00", NOON) == (NOON - 2 * hour, NOON - hour)


@pytest.mark.parametrize(
    ("last", "since", "until"),
    [
        ("1h", "2026-08-01T11:00", None),
        (None, "2026-08-01T13:00", None),
        (None, "2026-08-01T11:00", "2026-08-01T11:00"),
        ("0s", None, None),
    ],
)
def test_a_time_that_is_none_is_refused(
    last: str | None, since: str | None, until: str | None
) -> None:
    with pytest.raises(ConfigError, match=r"give one of them|is not before"):
        parse_range(last, since, until, NOON)


def test_the_line_of_progress_says_how_far_it_is() -> None:
    nothing = Progress(rows=0, batches=0, late=0, corrupt=0, lost=0, newest=None)
    assert show(nothing, 0, NOON) == (
        "0 rows in, 0 rows/s, 0 batches, late 0, waiting for the first records"
    )
    some = Progress(12_345, 24, 17, 1, 2, NOON - timedelta(seconds=2.1))
    assert show(some, 811.6, NOON) == (
        "12,345 rows in, 812 rows/s, 24 batches, late 17, corrupt 1, lost 2, lag 2.1 s"
    )
    ahead = Progress(1, 1, 0, 0, 0, NOON + timedelta(seconds=5))
    assert show(ahead, 1, NOON).endswith("lag 0.0 s")


def test_rows_a_second_are_of_the_last_while() -> None:
    pace = Pace(over_s=10)
    assert pace.of(0, 100) == 0
    assert pace.of(5, 600) == 100
    assert pace.of(15, 600) == 0  # of the last ten seconds, in which nothing came
    assert pace.of(20, 2100) == 100
