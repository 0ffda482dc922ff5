"""What happened at a relay, until it is told: bounded, and what did not fit is counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

# Of one kind, between two times that the journal is read: a network that comes up is within it, and
# what happens more often says no more by each single time.
MAX_OF_KIND: Final = 200

# A reason comes from whoever gives it.
MAX_TEXT: Final = 500


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""

    at: float
    "By the relay's clock."
    name: str
    subject: str
    "The node, the track or the client it is about."
    detail: str = ""
    reason: str = ""


class Journal:
    """The events that have not been told yet."""

    def __init__(self) -> None:
        self.dropped = 0
        "All that did not fit, since the relay began."
        self._events: list[Event] = []
        self._noted: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._events)

    def note(self, now: float, name: str, subject: str, detail: str = "", reason: str = "") -> None:
        """Something has happened."""
        self._noted[name] += 1
        if self._noted[name] > MAX_OF_KIND:
            self.dropped += 1
            return
        texts = (subject[:MAX_TEXT], detail[:MAX_TEXT], reason[:MAX_TEXT])
        self._events.append(Event(now, name, *texts))

    def take(self, now: float) -> list[Event]:
        """What has happened since the last time, in order; and how much more."""
        events, self._events = self._events, []
        for name, count in self._noted.items():
            if count > MAX_OF_KIND:
                more = f"{count - MAX_OF_KIND} more"
                reason = f"more than {MAX_OF_KIND} at once are counted, and not told one by one"
                events.append(Event(now, "events_dropped", name, more, reason))
        self._noted.clear()
        return events
