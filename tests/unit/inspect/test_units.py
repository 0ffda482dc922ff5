"""Amounts as people read them."""

from __future__ import annotations

import pytest

from laps.inspect import units


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
