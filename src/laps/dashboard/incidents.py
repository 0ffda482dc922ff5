"""Events of all relays, those of one cause together, and what it led to in a line.

    1:100 is gone
        3 relays noticed within 0.6 s · 9 paths changed · 7 tracks were repaired, no object is lost

A cause is a relay that is gone or up again, or a link between two that is. Its neighbours tell of
that themselves; a path that changes names the relay it left or leads through now. Whatever else
happens close to a cause, such as a repair, is taken to follow from the latest one. An event that
has no cause stands alone.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    Row = dict[str, Any]

KEPT: Final = 300
"How many incidents are kept."

# What is shown of one; the rest is counted.
MAX_EVENTS: Final = 100

# What follows from a cause has happened by then: a repair asks for 2 s, and gives up after 4 more.
FOLLOWS_S: Final = 10.0

# The two ends of a link, and the clocks of two machines, are not further apart.
TOGETHER_S: Final = 5.0


class Cause(Enum):
    """What can bring events about."""

    GONE = "is gone"
    SILENT = "is silent"
    STOPPED = "was stopped"
    LINK = "lost each other"
    UP = "is up"
    NONE = ""


# From a cause to the events that tell of it, with the relay as their subject.
_TELLS: Final = {
    "unreachable": Cause.GONE,
    "peer_down": Cause.GONE,
    "peer_leaving": Cause.STOPPED,
    "link_silent": Cause.SILENT,
    "answers": Cause.UP,
    "peer_up": Cause.UP,
    "link_heard": Cause.UP,
}
# And with the relay as the one who tells.
_TELLS_OF_ITSELF: Final = {"stopping": Cause.STOPPED, "started": Cause.UP}

# Of several that relays tell of the last one is what happened.
_WORSE: Final = (Cause.SILENT, Cause.GONE, Cause.STOPPED)
_LOSSES: Final = (*_WORSE, Cause.LINK)

# Events that a person may have to act on.
_BAD: Final = frozenset(
    (
        "claim_refused",
        "client_closed",
        "events_dropped",
        "groups_dropped",
        "node_id_conflict",
        "objects_lost",
        "peer_refused",
        "plan_expired",
        "plan_refused",
    )
)
_GOOD: Final = frozenset(("plan_applied", "policy_applied", "repaired"))


@dataclass(slots=True, eq=False)
class Incident:
    """A cause, and the events that it brought about."""

    id: int
    at: float
    cause: Cause
    nodes: tuple[str, ...]
    "The relay that it is about, or the two of a link."
    number: int = 0
    "It has changed with this number."
    last_at: float = 0.0
    count: int = 0
    events: list[Row] = field(default_factory=list)

    @property
    def is_loss(self) -> bool:
        """Whether something is gone."""
        return self.cause in _LOSSES

    def row(self) -> Row:
        """It, for the page."""
        return {
            "id": self.id,
            "number": self.number,
            "at": self.at,
            "title": self._title(),
            "effect": " · ".join(self._effects()),
            "tone": self._tone(),
            "count": self.count,
            "events": self.events,
        }

    def _title(self) -> str:
        if self.cause is Cause.NONE:
            return ""
        return f"{' and '.join(self.nodes)} {self.cause.value}"

    def _tone(self) -> str:
        names = {row["event"] for row in self.events}
        if names & _BAD or self.is_loss:
            return "bad"
        return "good" if self.cause is Cause.UP or names & _GOOD else "calm"

    def _effects(self) -> Iterable[str]:
        """What followed, in words."""
        if self.cause is Cause.NONE:
            return
        noticed = {
            row["node"]: row["at"]
            for row in reversed(self.events)
            if row["event"] in _TELLS and row["node"] not in ("dashboard", *self.nodes)
        }
        if noticed and self.is_loss and self.cause is not Cause.LINK:
            within = max(noticed.values()) - min(noticed.values())
            words = f" within {within:.1f} s" if len(noticed) > 1 else ""
            yield f"{_many(len(noticed), 'relay')} noticed{words}"
        elif noticed and self.cause is Cause.UP:
            yield _many(len(noticed), "peer")
        if paths := sum(row["event"] == "path_changed" for row in self.events):
            yield f"{_many(paths, 'path')} changed"
        if tracks := sum(map(_tracks, self.events)):
            yield f"{_many(tracks, 'track')} repaired"
        if lost := sum(map(_lost, self.events)):
            yield f"{lost} or more objects lost"
        elif tracks:
            yield "no object is lost"


class Incidents:
    """What happened, of which a page asks for what is new."""

    def __init__(self) -> None:
        self._kept: deque[Incident] = deque(maxlen=KEPT)
        self._changes = 0
        self._count = 0

    def add(self, row: Row) -> None:
        """Something has happened: `at`, `node`, `event`, `subject`, `detail`, `reason`."""
        incident = self._incident(row)
        self._changes += 1
        incident.number = self._changes
        incident.count += 1
        incident.last_at = max(incident.last_at, row["at"])
        if len(incident.events) < MAX_EVENTS:
            incident.events.append(row)

    def after(self, number: int) -> list[Row]:
        """Those that are new or have changed since a number, oldest first."""
        return [incident.row() for incident in self._kept if incident.number > number]

    # -- which one it belongs to -------------------------------------------------------------------

    def _incident(self, row: Row) -> Incident:
        name, at = row["event"], row["at"]
        if name in _TELLS or name in _TELLS_OF_ITSELF:
            return self._of_relay(row)
        if name == "path_changed":
            before, _, now = row["detail"].partition(" to ")
            for node, is_loss in ((before, True), (now, False), (row["subject"], None)):
                if (found := self._open(node, at, is_loss)) is not None:
                    return found
        if name in ("path_changed", "repaired", "objects_lost"):
            for incident in reversed(self._kept):
                if incident.cause is not Cause.NONE and _is_near(incident, at):
                    return incident
        return self._begin(Cause.NONE, (), at)

    def _of_relay(self, row: Row) -> Incident:
        name, teller, at = row["event"], row["node"], row["at"]
        cause = _TELLS_OF_ITSELF.get(name) or _TELLS[name]
        about = teller if name in _TELLS_OF_ITSELF else row["subject"]
        is_loss = cause in _LOSSES
        found = self._open(about, at, is_loss)
        if found is None and (other := self._open(teller, at, is_loss)) is not None:
            if not is_loss:
                return other  # a relay that is up and its peers tell the same
            if _is_told_by(other, about, at):
                other.cause, other.nodes = Cause.LINK, tuple(sorted((teller, about)))
                return other
        if found is None:
            return self._begin(cause, (about,), at)
        if found.cause is Cause.LINK and teller not in found.nodes:
            found.cause, found.nodes = cause, (about,)  # a third one has lost it as well
        elif found.cause in _WORSE and _WORSE.index(cause) > _WORSE.index(found.cause):
            found.cause = cause
        return found

    def _open(self, node: str, at: float, is_loss: bool | None) -> Incident | None:
        """The latest about a relay that is not too long ago; a loss, or not, or either."""
        for incident in reversed(self._kept):
            if node in incident.nodes:
                fits = is_loss is None or incident.is_loss is is_loss
                return incident if fits and _is_near(incident, at) else None
        return None

    def _begin(self, cause: Cause, nodes: tuple[str, ...], at: float) -> Incident:
        self._count += 1
        incident = Incident(self._count, at, cause, nodes, last_at=at)
        self._kept.append(incident)
        return incident


def _is_near(incident: Incident, at: float) -> bool:
    return incident.at - TOGETHER_S <= at <= incident.last_at + FOLLOWS_S


def _is_told_by(incident: Incident, node: str, at: float) -> bool:
    """Whether one relay alone has told of a loss, just now: then it may be the link."""
    told = [row["node"] for row in incident.events if row["event"] in _TELLS]
    return set(told) == {node} and abs(at - incident.at) <= TOGETHER_S


def _tracks(row: Row) -> int:
    return _first_number(row["subject"]) if row["event"] == "repaired" else 0


def _lost(row: Row) -> int:
    return _first_number(row["detail"]) if row["event"] == "objects_lost" else 0


def _first_number(text: str) -> int:
    word = text.partition(" ")[0]
    return int(word) if word.isdecimal() else 0


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
