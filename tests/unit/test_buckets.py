"""Token buckets: what is there at once, what comes with the time, and what is owed."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.buckets import Bucket


def test_bucket_has_a_burst_and_then_its_rate() -> None:
    bucket = Bucket(rate=10, burst=3)
    assert [bucket.take(1, 5.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.wait_s(5.0, 1) == pytest.approx(0.1)
    assert bucket.take(1, 5.1)
    assert not bucket.take(1, 5.1)
    assert [bucket.take(1, 99.0) for _ in range(4)] == [True, True, True, False]


def test_bucket_in_debt_waits_until_it_is_paid() -> None:
    bucket = Bucket(rate=1000, burst=100)
    assert bucket.wait_s(1.0) == 0
    bucket.spend(600, 1.0)
    wait_s = bucket.wait_s(1.0)
    assert wait_s == pytest.approx(0.51)  # the debt of 500, and ten milliseconds' worth
    assert bucket.wait_s(1.0 + wait_s) == 0


def test_bucket_without_a_rate_has_nothing() -> None:
    bucket = Bucket(rate=0, burst=5)
    assert not bucket.take(1, 1.0)
    assert bucket.wait_s(1e9) == inf


def test_bucket_is_full_again_when_nothing_is_missing() -> None:
    bucket = Bucket(rate=2, burst=2)
    assert bucket.is_full(1.0)
    bucket.take(1, 1.0)
    assert not bucket.is_full(1.4)
    assert bucket.is_full(1.5)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 50)), max_size=60))
def test_bucket_never_gives_more_than_its_rate_and_one_burst(
    asks: list[tuple[float, int]],
) -> None:
    bucket, now, given_ = Bucket(rate=20, burst=30), 0.0, 0
    for pause, amount in asks:
        now += pause
        given_ += amount * bucket.take(amount, now)
        assert given_ <= 30 + 20 * now + 1e-6


@given(st.lists(st.tuples(st.floats(0, 0.2), st.integers(1, 500)), max_size=60))
def test_bucket_shapes_to_its_rate_whatever_the_sizes(sizes: list[tuple[float, int]]) -> None:
    bucket, now, sent, largest = Bucket(rate=1000, burst=100), 0.0, 0, 0
    for pause, size in sizes:
        now += pause + bucket.wait_s(now + pause)
        bucket.spend(size, now)
        sent, largest = sent + size, max(largest, size)
        assert sent <= 100 + 1000 * now + largest + 1e-6
