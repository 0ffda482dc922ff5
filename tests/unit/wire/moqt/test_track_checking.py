"""What is remembered of a track to find contradictions is bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.wire.moqt.codes import MalformedTrack
from laps.wire.moqt.data import ObjectStatus
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.track_checking import (
    MOST_GAPS,
    MOST_GROUPS,
    MOST_SUBGROUPS,
    PRIOR_OBJECT_GAP,
    TrackChecker,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.wire.moqt.objects import Object


class Nothing:
    """A publisher of which nothing is kept."""

    def objects(self, group: int, subgroup: int) -> Iterator[Object]:
        return iter(())

    def has_any(self, group: int, first: int, end: int) -> bool:
        return False

    def datagram(self, group: int, object_id: int) -> bytes | None:
        return None


def test_groups_of_long_ago_are_forgotten() -> None:
    checker = TrackChecker(Nothing())
    checker.ended(0, 3)
    with pytest.raises(MalformedTrack, match="after the end of its group"):
        checker.group(0).take(4)
    for group in range(1, MOST_GROUPS + 1):
        checker.ended(group, 3)
    checker.group(0).take(4)
    with pytest.raises(MalformedTrack):
        checker.group(MOST_GROUPS).take(4)


def test_the_end_of_a_track_counts_for_every_group_after_it() -> None:
    checker = TrackChecker(Nothing())
    checker.ended_by(ObjectStatus.END_OF_TRACK, 7, 2)
    checker.group(7).take(1)
    checker.group(6).take(100)
    for group, number in ((7, 2), (8, 0), (1000, 0)):
        with pytest.raises(MalformedTrack):
            checker.group(group).take(number)


def test_of_too_many_gaps_the_first_are_forgotten() -> None:
    checker = TrackChecker(Nothing())
    for number in range(2, 2 * MOST_GAPS + 4, 2):
        checker.check_extensions(0, number, -1, [(PRIOR_OBJECT_GAP, 1)], DRAFT16)
    checker.group(0).take(1)
    with pytest.raises(MalformedTrack, match="not to exist"):
        checker.group(0).take(2 * MOST_GAPS + 1)


def test_of_too_many_subgroups_nobody_knows_whether_they_come_again() -> None:
    group = TrackChecker(Nothing()).group(0)
    assert not any(group.begin(number) for number in range(MOST_SUBGROUPS + 1))
    assert group.begin(0)
    assert not group.begin(MOST_SUBGROUPS)
