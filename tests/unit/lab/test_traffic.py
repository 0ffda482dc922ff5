"""What publishers write, and what is counted of what subscribers receive."""

from __future__ import annotations

import json
from array import array

import pytest

from laps.lab.traffic import SHAPES, Account, payload, percentile


def received(*numbers: int) -> Account:
    account = Account()
    for number in numbers:
        account.take(number, 1)
    return account


def test_video_is_two_megabits_a_second_with_a_large_first_object() -> None:
    second = [len(payload("video", number, 1.5)) for number in range(30)]
    assert second[0] == 60_000
    assert max(second[1:]) < 10_000
    assert 8 * sum(second) == pytest.approx(2_000_000, rel=0.01)
    assert SHAPES["video"].per_s == SHAPES["video"].per_group == 30


@pytest.mark.parametrize("kind", ["clock", "video", "sensor", "audio"])
def test_every_object_begins_with_its_number_and_time(kind: str) -> None:
    made = payload(kind, 7, 1.5)  # type: ignore[arg-type]
    said = json.loads(made.partition(b"\n")[0])
    assert (said["number"], said["at"]) == (7, 1.5)


def test_an_account_begins_where_the_subscription_does() -> None:
    account = received(30, 31, 32)
    assert (account.first, account.received, account.missing) == (30, 3, set())
    assert account.lost(33) == []
    assert account.lost(35) == [range(33, 35)]


def test_gaps_are_known_by_their_numbers() -> None:
    account = received(0, 1, 4, 5, 9)
    assert account.lost(11) == [range(2, 4), range(6, 9), range(10, 11)]
    assert account.received == 5


def test_what_comes_late_is_no_loss_but_out_of_order() -> None:
    account = received(0, 2, 1, 3)
    assert (account.received, account.late, account.duplicates) == (4, 1, 0)
    assert account.lost(4) == []


def test_what_comes_twice_is_counted_once() -> None:
    account = received(0, 1, 1, 2, 0)
    assert (account.received, account.duplicates) == (3, 2)


def test_percentiles() -> None:
    values = array("d", range(1, 101))
    assert percentile(values, 0.5) == 51
    assert percentile(values, 0.99) == 100
    assert percentile(array("d"), 0.5) is None
