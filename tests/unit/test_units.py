"""Amounts as people read them."""

from __future__ import annotations

import pytest

from laps import units


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (512, "512 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (34_200_000, "34 MB"),
    ],
)
def test_sizes_are_in_steps_of_a_thousand(count: int | None, text: str) -> None:
    assert units.size(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "-"), (10, "80 bit/s"), (150_000, "1.2 Mbit/s"), (125e6, "1.0 Gbit/s")],
)
def test_rates_are_in_bits(count: float | None, text: str) -> None:
    assert units.rate(count) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "-"),
        (340, "340 µs"),
        (1_240, "1.2 ms"),
        (34_000, "34 ms"),
        (1_500_000, "1.5 s"),
        (-400, "-400 µs"),
    ],
)
def test_delays_have_two_digits_or_three(us: float | None, text: str) -> None:
    assert units.delay(us) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (-1, "0 s"), (90, "90 s"), (300, "5 min"), (7_300, "2 h"), (200_000, "2 d")],
)
def test_long_times_are_in_the_unit_that_fits(seconds: float | None, text: str) -> None:
    assert units.duration(seconds) == text


def test_shares_and_counts() -> None:
    assert units.share(None) == "-"
    assert units.share(0) == "0 %"
    assert units.share(0.0234) == "2.3 %"
    assert units.share(0.5) == "50 %"
    assert units.number(1234567) == "1,234,567"
    assert units.per_second(12.4) == "12/s"
    assert units.per_second(0.25) == "0.2/s"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("10s", 10), ("1.5m", 90), ("1h", 3600), ("7d", 604800)],
)
def test_units_of_durations_are_read(text: str, seconds: float) -> None:
    assert units.read_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "s", "1 s", "-1s", "1w", "1e3s", "٣s"])
def test_units_of_durations_are_refused(text: str) -> None:
    assert units.read_duration(text) is None


def test_units_of_durations_may_be_fewer() -> None:
    assert units.read_duration("1m", ("ms", "s")) is None


def test_units_of_plans_have_four_figures() -> None:
    assert units.bits(1_500_000_000) == "1.5 Gbit/s"
    assert units.bits(999) == "999 bit/s"
    assert units.load(2_000_000, 1_500_000_000) == "2 Mbit/s of 1.5 Gbit/s"
    assert units.load(2_000_000, 15_000_000) == "2 of 15 Mbit/s"
    assert units.path_delay(25_000) == "12.5 ms"


def test_units_have_nouns() -> None:
    assert units.many(1, "pair") == "1 pair"
    assert units.many(2_000, "pair") == "2,000 pairs"
    assert units.many(0, "copy", "copies") == "0 copies"
