"""The objects that a publisher has written last, for who asks for them later."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.types import Location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.wire.moqt.messages import KeyValue

# What an object takes beside its payload, roughly.
ENTRY_BYTES: Final = 250


@dataclass(slots=True)
class Entry:
    """An object as it was written."""

    sequence: int
    group: int
    subgroup: int | None
    "None: it went in a datagram."
    id: int
    payload: bytes
    extensions: tuple[KeyValue, ...] = ()
    priority: int | None = None
    status: int = 0
    has_extensions: bool = True
    "Whether the objects of its stream may have extensions, whichever of them does."
    ends_group: bool = False
    "Whether it is the last of its subgroup, and that has the largest object of the group."

    @property
    def location(self) -> Location:
        """Its place in the track."""
        return Location(self.group, self.id)


class History:
    """The newest objects of a track, up to a number of bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self.largest: Location | None = None
        self.dropped_up_to: Location | None = None
        "The largest location that was let go."
        self.dropped_sequence = 0
        "Of the last object that was let go."
        self.bytes = 0
        self.sequence = 0
        "Of the last object; the first is 1."
        self.limit = limit_bytes
        self._entries: OrderedDict[Location, Entry] = OrderedDict()

    def add(self, entry: Entry) -> None:
        """Keep an object, and let the oldest go for it."""
        place = entry.location
        self.sequence = entry.sequence
        if self.largest is None or place > self.largest:
            self.largest = place
        self._entries[place] = entry
        self.bytes += len(entry.payload) + ENTRY_BYTES
        while self.bytes > self.limit and self._entries:
            gone, old = self._entries.popitem(last=False)
            self.bytes -= len(old.payload) + ENTRY_BYTES
            self.dropped_sequence = old.sequence
            if self.dropped_up_to is None or gone > self.dropped_up_to:
                self.dropped_up_to = gone

    def __contains__(self, place: Location) -> bool:
        return place in self._entries

    def since(self, sequence: int) -> Iterator[Entry]:
        """What was written behind an object, in that order."""
        return (entry for entry in self._entries.values() if entry.sequence > sequence)

    def between(self, start: Location, last: Location, *, descending: bool = False) -> list[Entry]:
        """The objects of a range, both ends included; groups in either order."""
        found = [entry for place, entry in self._entries.items() if start <= place <= last]
        if descending:
            found.sort(key=lambda entry: (-entry.group, entry.id))
        else:
            found.sort(key=lambda entry: entry.location)
        return found

    def clear(self) -> None:
        """Keep nothing any more."""
        self._entries.clear()
        self.bytes = 0
