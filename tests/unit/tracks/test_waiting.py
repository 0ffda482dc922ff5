"""An offer finds the tracks that somebody waits for, by the beginnings of their namespaces."""

from __future__ import annotations

from laps.tracks.shared import Waiting
from laps.types import TrackKey, TrackName

DEEP = TrackName((b"a", b"b"), b"x")
SHALLOW = TrackName((b"a",), b"x")
OTHER = TrackName((b"c",), b"x")


def test_waiting_finds_what_is_below_a_namespace_and_nothing_else() -> None:
    waiting = Waiting()
    for key, name in enumerate((DEEP, SHALLOW, OTHER)):
        waiting.add(TrackKey(key), name)
    assert waiting.below(()) == [0, 1, 2]
    assert waiting.below((b"a",)) == [0, 1]
    assert waiting.below((b"a", b"b")) == [0]
    assert waiting.below((b"b",)) == []


def test_waiting_keeps_nothing_of_what_is_answered() -> None:
    waiting = Waiting()
    for _ in range(2):
        waiting.add(TrackKey(1), DEEP)
    waiting.add(TrackKey(2), None)
    assert len(waiting) == 1
    for key in (1, 1, 2):
        waiting.discard(TrackKey(key))
    assert (len(waiting), waiting.below(()), waiting._below) == (0, [], {})
