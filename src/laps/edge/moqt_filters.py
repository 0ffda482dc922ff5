"""Where a subscription begins, by its filter and by how far the track is."""

from __future__ import annotations

from typing import Final, NamedTuple

from laps.types import Location
from laps.wire.moqt.messages import Filter, FilterType

_FROM_LARGEST: Final = (FilterType.NEXT_GROUP, FilterType.LARGEST_OBJECT)


class Beginning(NamedTuple):
    """Where a subscription begins."""

    start: Location
    "Of what arrives from now on, objects before this are not wanted."
    since: Location
    "Of what is here, objects from this on are sent."


def beginning(wanted: Filter, largest: Location | None, *, joins_group: bool) -> Beginning:
    """What a new subscription is given.

    One that does not begin with the largest object takes whatever arrives within its range, also
    what comes late; what has been before it began is what FETCH is for.
    """
    if largest is None:
        return Beginning(wanted.start, wanted.start)
    following = Location(largest.group, largest.object + 1)
    if wanted.type is FilterType.NEXT_GROUP:
        start = Location(largest.group + 1, 0)
    elif wanted.type is FilterType.LARGEST_OBJECT:
        start = Location(largest.group, 0) if joins_group else following
    else:
        return Beginning(wanted.start, max(wanted.start, following))
    return Beginning(start, start)


def absolute(wanted: Filter, largest: Location | None) -> Filter:
    """A filter of an update, with where it begins by now."""
    if wanted.type is FilterType.LARGEST_OBJECT and largest is not None:
        return Filter(FilterType.ABSOLUTE_START, Location(largest.group, largest.object + 1))
    if wanted.type in _FROM_LARGEST:
        group = 0 if largest is None else largest.group
        return Filter(FilterType.ABSOLUTE_START, Location(group + 1, 0))
    return wanted
