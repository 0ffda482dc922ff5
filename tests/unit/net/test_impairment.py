"""A lane of an impaired path, under a clock that is an argument."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from laps.config import Impairment
from laps.net import impairment
from laps.net.impairment import Lane
from laps.types import Address

if TYPE_CHECKING:
    import pytest

PEER = Address("127.0.0.1", 40001)


def lane(**values: float) -> Lane:
    made = Lane(("127.0.0.1", 40001), Random(7))
    made.change(Impairment(peer=PEER, **values))
    return made


def test_what_is_sent_arrives_after_the_delay_and_together() -> None:
    path = lane(delay_ms=40)
    path.put([b"a", b"b"], 1.0)
    assert path.take(1.039) == []
    assert path.take(1.040) == [b"a", b"b"]
    assert path.take(9.0) == []
    assert path.passed == 2


def test_a_lane_says_when_the_first_arrives() -> None:
    path = lane(delay_ms=40)
    path.put([b"a"], 1.0)
    path.put([b"b"], 2.0)
    assert path.due == 1.040


def test_jitter_makes_datagrams_later_and_never_overtaking() -> None:
    path = lane(delay_ms=10, jitter_ms=30)
    sent = [number.to_bytes(2) for number in range(200)]
    waits = []
    for number, data in enumerate(sent):
        path.put([data], number / 1000)
    arrived = []
    for number in range(400):
        for data in path.take(number / 1000):
            waits.append(number - int.from_bytes(data))
            arrived.append(data)
    assert arrived == sent
    assert min(waits) >= 10 - 1
    assert max(waits) <= 40
    assert len(set(waits)) > 5


def test_a_narrow_path_takes_its_time_and_drops_what_it_has_no_room_for() -> None:
    path = lane(delay_ms=40, bandwidth_mbit=8)  # a megabyte a second
    for _ in range(300):
        path.put([bytes(1000)], 1.0)
    assert path.overflowed == 50
    assert len(path.take(1.0 + 0.040 + 0.100)) == 100
    path.put([b"later"], 1.2)
    assert len(path.take(1.0 + 0.040 + 0.260)) == 151
    path.change(Impairment(peer=PEER, delay_ms=40))
    path.put([bytes(1000)] * 300, 2.0)
    assert len(path.take(2.040)) == 300


def test_a_share_is_dropped_and_counted() -> None:
    path = lane(drop=0.2)
    for _ in range(100):
        path.put([b"x"] * 20, 0.0)
    assert len(path.take(0.0)) == 2000 - path.dropped
    assert 300 < path.dropped < 500


def test_a_path_that_is_cut_lets_nothing_through() -> None:
    path = lane(drop=1.0)
    path.put([b"x"], 0.0)
    assert path.due is None
    assert path.dropped == 1


def test_a_shorter_delay_counts_behind_what_is_on_its_way() -> None:
    path = lane(delay_ms=100)
    path.put([b"slow"], 0.0)
    path.change(None)
    path.put([b"quick"], 0.01)
    assert path.take(0.05) == []
    assert path.take(0.1) == [b"slow", b"quick"]


def test_a_full_lane_drops_what_comes_on_top(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impairment, "LANE_BYTES", 10)
    path = lane(delay_ms=1)
    path.put([b"12345678"], 0.0)
    path.put([b"123"], 0.0)
    assert path.overflowed == 1
    assert path.take(1.0) == [b"12345678"]
    path.put([b"123"], 1.0)
    assert path.take(2.0) == [b"123"]
