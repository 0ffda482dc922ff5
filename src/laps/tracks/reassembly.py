"""Objects that come in fragments, each in a datagram: passed on at once, and put together here.

What is new of a fragment goes to those who take fragments. An object that is whole goes into the
cache, and to those who want whole ones. What is not whole is held, within bounds, for whoever comes
meanwhile, and until it is of no use any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from laps.types import Location
from laps.wire.quicr.fragments import Reassembler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.ranges import Range
    from laps.tracks.cached_stream import Waiter
    from laps.wire.quicr.messages import Fragment, Terms

# What is missing after so long is lost.
HOLD_S: Final = 10.0


@dataclass(slots=True)
class _Held:
    """What is known of an object that is not whole."""

    began: float
    "When the first fragment arrived."
    until: float
    "It is given up then."
    best_before: float | None
    "It is of no use any more then, where its publisher said so."
    terms: Terms

    def terms_at(self, now: float) -> Terms:
        """What was said of it, without the time it has been here."""
        if self.best_before is None:
            return self.terms
        return replace(self.terms, best_before_ms=max(1, round((self.best_before - now) * 1000)))


class TrackFragments:
    """The objects of one track that are not whole."""

    def __init__(self, limit_bytes: int) -> None:
        self.reassembler = Reassembler(limit_bytes)
        self.waiting: list[Waiter] = []
        "Resumed when the next object is whole."
        self._held: dict[Location, _Held] = {}

    @property
    def size(self) -> int:
        """How much is held."""
        return self.reassembler.size

    def add(
        self, fragment: Fragment, terms: Terms, now: float
    ) -> tuple[list[Fragment], bytes | None, Terms]:
        """What is new, the object if it is whole now, and what was said of it.

        QuicrViolation if the fragment cannot be one of its object.
        """
        place = Location(fragment.group, fragment.object_id)
        held = self._held.get(place)
        if held is None:
            held = _held(terms, now)
        elif held.until < now:
            self.reassembler.forget(place)
        try:
            new, payload = self.reassembler.add(fragment)
        finally:
            if place in self.reassembler.open:
                self._held[place] = held
            else:
                self._held.pop(place, None)
            if len(self._held) > len(self.reassembler.open):  # others made room for it
                still = self.reassembler.open
                self._held = {place: held for place, held in self._held.items() if place in still}
        return new, payload, held.terms_at(now)

    def held(self, begin: Location, now: float) -> Iterator[tuple[list[Fragment], Terms]]:
        """What is here of objects that are not whole, from a location on."""
        for place in sorted(self.reassembler.open):
            held = self._held[place]
            if place >= begin and held.until >= now:
                assembly = self.reassembler.open[place]
                yield list(assembly.fragments(*place)), held.terms_at(now)

    def youngest(self, span: Range) -> float | None:
        """When the last of the objects in a range began that are not whole; None if all are."""
        first, last = span
        return max(
            (held.began for place, held in self._held.items() if first <= place <= last),
            default=None,
        )

    def expire(self, now: float) -> int:
        """Give up what did not become whole in time; how many objects."""
        past = [place for place, held in self._held.items() if held.until < now]
        for place in past:
            del self._held[place]
            self.reassembler.forget(place)
        return len(past)

    def clear(self) -> None:
        """The publisher begins anew."""
        self.reassembler.clear()
        self._held.clear()


def _held(terms: Terms, now: float) -> _Held:
    if not terms.best_before_ms:
        return _Held(now, now + HOLD_S, None, terms)
    best_before = now + terms.best_before_ms / 1000
    return _Held(now, min(now + HOLD_S, best_before), best_before, terms)
