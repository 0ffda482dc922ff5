"""How far a track is, by what each of its sources has sent.

Publishers of one track count alike, or one of them is mistaken, or means harm: an object in a group
far ahead must not hide from those who subscribe later what the others send. So the track is as far
as the hindmost of the sources that send now, and who has left counts no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from laps.types import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laps.tracks.cache import CachedTrack
    from laps.tracks.publication import Source

# Who has sent nothing for so much longer than the others has fallen behind, or has ended.
ACTIVE_S: Final = 10.0


class _Place(NamedTuple):
    """How far a source is."""

    location: Location
    at: float
    "When it came there."


class Positions:
    """How far each source of a track is."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[Source, _Place] = {}

    def heard(self, source: Source, location: Location, now: float) -> None:
        """A source has begun a stream, or sent a datagram."""
        place = self._places.get(source)
        if place is not None and place.location > location:
            location = place.location
        self._places[source] = _Place(location, now)

    def __iter__(self) -> Iterator[Source]:
        return iter(self._places)

    def groups(self) -> dict[Source, int]:
        """The largest group of each source."""
        return {source: place.location.group for source, place in self._places.items()}

    def clear(self) -> None:
        """The track has begun anew."""
        self._places.clear()

    def largest(self, cached: CachedTrack, sends: Callable[[Source], bool]) -> Location | None:
        """Where the hindmost of those that send now is; None where nobody does."""
        for source in [source for source in self._places if not sends(source)]:
            del self._places[source]
        if len(self._places) < 2:
            return None  # then all that is known is of one source
        found = {source: _refined(source, place, cached) for source, place in self._places.items()}
        newest = max(place.at for place in found.values())
        return min(place.location for place in found.values() if place.at >= newest - ACTIVE_S)


def _refined(source: Source, place: _Place, cached: CachedTrack) -> _Place:
    """With the objects of the group that a source is in."""
    location, at = place
    group = cached.groups.get(location.group)
    for stream in () if group is None else group.streams:
        if stream.source == source:
            last = stream.scan().last_object_id
            if last is not None:
                location = max(location, Location(location.group, last))
            at = max(at, stream.touched)
    return _Place(location, at)
