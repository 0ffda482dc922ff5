"""What happened at a relay, until it is told: bounded, and what did not fit is counted.

The last of it is kept besides, numbered, for whoever looks in and asks again for what is new.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from laps.types import format_node_id

if TYPE_CHECKING:
    from laps.infobase.nodes import Nodes
    from laps.types import NodeId

# Of one kind, between two times that the journal is read: a network that comes up is within it, and
# what happens more often says no more by each single time.
MAX_OF_KIND: Final = 200

# Nodes, at 3 µs each.
MOST_LOOKED_AT: Final = 2000

# A reason comes from whoever gives it.
MAX_TEXT: Final = 500

# Kept for who looks in: an hour of a large network, or a minute of one that falls apart.
MAX_RECENT: Final = 1000


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


@dataclass(frozen=True, slots=True)
class NumberedEvent:
    """One of the last events; the numbers count up from 1 since the relay began."""

    number: int
    event: Event


class Journal:
    """The events that have not been told yet, and the last ones whether told or not."""

    def __init__(self) -> None:
        self.dropped = 0
        "All that did not fit, since the relay began."
        self._events: list[Event] = []
        self._noted: Counter[str] = Counter()
        self._recent: deque[NumberedEvent] = deque(maxlen=MAX_RECENT)
        self._number = 0

    def __len__(self) -> int:
        return len(self._events)

    def note(self, now: float, name: str, subject: str, detail: str = "", reason: str = "") -> None:
        """Something has happened."""
        texts = (subject[:MAX_TEXT], detail[:MAX_TEXT], reason[:MAX_TEXT])
        event = Event(now, name, *texts)
        self._number += 1
        self._recent.append(NumberedEvent(self._number, event))
        self._noted[name] += 1
        if self._noted[name] > MAX_OF_KIND:
            self.dropped += 1
            return
        self._events.append(event)

    def recent(self, after: int = 0) -> list[NumberedEvent]:
        """The last events, those up to a number left out."""
        return [item for item in self._recent if item.number > after]

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


class PathWatch:
    """Which peer leads to each node, compared now and then: what has changed becomes an event."""

    def __init__(self, nodes: Nodes, journal: Journal) -> None:
        self._nodes = nodes
        self._journal = journal
        self._leads: dict[NodeId, NodeId] = {}
        "The peer that leads to each node, as last noted."

    def look(self, now: float) -> None:
        """Note what is another now; what has changed and changed back is no news.

        Where very much has changed, the rest is noted the next time.
        """
        for node_id in list(islice(self._nodes.moved, MOST_LOOKED_AT)):
            del self._nodes.moved[node_id]
            before, choice = self._leads.pop(node_id, None), self._nodes.best(node_id)
            peer, reason = None, "no way leads there any more"
            if choice is not None:
                peer, reason = choice.path.peer_id, choice.reason
                self._leads[node_id] = peer
            if before != peer:
                self._note(now, node_id, before, peer, reason)

    def _note(
        self, now: float, node_id: NodeId, before: NodeId | None, peer: NodeId | None, reason: str
    ) -> None:
        change = f"{_peer(before)} to {_peer(peer)}"
        self._journal.note(now, "path_changed", format_node_id(node_id), change, reason)


def _peer(node_id: NodeId | None) -> str:
    return "nobody" if node_id is None else format_node_id(node_id)
