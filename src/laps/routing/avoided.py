"""Sessions that data had better not take: another way is preferred, if there is one.

    leaving     the peer has said that it is about to leave. It is still reached directly: every
                other way to it ends at the same node
    suspect     nothing is heard of the peer, so that whatever is sent there may be lost
    resting     it was dialled on demand, and is let go as soon as nothing goes that way any more

A path by such a session counts only where no other path is as good for data: it then is the only
hope, and nothing is lost by trying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.infobase.nodes import Choice
from laps.routing.selection import select

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from laps.infobase.nodes import PathCandidate, SessionId


class Avoided:
    """The sessions to avoid, and a selection that does."""

    def __init__(self) -> None:
        self.leaving: set[SessionId] = set()
        self.suspect: set[SessionId] = set()
        self.resting: set[SessionId] = set()

    def __len__(self) -> int:
        return len(self.leaving | self.suspect | self.resting)

    def leave(self, sessions: Iterable[SessionId]) -> None:
        """The peer at the other end has said that it leaves."""
        self.leaving.update(sessions)

    def discard(self, session: SessionId) -> None:
        """A session has ended."""
        self.leaving.discard(session)
        self.suspect.discard(session)
        self.resting.discard(session)

    def select(self, candidates: Collection[PathCandidate]) -> Choice | None:
        """The best path among those that are not avoided, or of all where none does as well."""
        best = select(candidates)
        if not (self.suspect or self.leaving or self.resting):
            return best
        if best is None or not self.avoids(best.path):
            return best
        for avoids in (self.avoids, self.is_suspect):
            other = select([path for path in candidates if not avoids(path)])
            if other is not None and other.path is best.path:
                return best
            if other is not None and other.path.carries_data >= best.path.carries_data:
                return Choice(other.path, "; ".join((other.reason, *self._others(candidates))))
        return best

    def avoids(self, path: PathCandidate) -> bool:
        """Whether another path is to be preferred."""
        return self.is_suspect(path) or self.leads_away(path)

    def is_suspect(self, path: PathCandidate) -> bool:
        """Whether nothing is heard of the peer that a path begins with."""
        return path.session in self.suspect

    def leads_away(self, path: PathCandidate) -> bool:
        """Whether a path goes beyond a peer that is about to leave, or by a link that is let go."""
        if path.session in self.resting:
            return True
        return path.session in self.leaving and bool(path.info.path)

    def _others(self, candidates: Collection[PathCandidate]) -> Iterator[str]:
        """In an operator's words."""
        if silent := sum(map(self.is_suspect, candidates)):
            yield f"{silent} by a link that is silent"
        resting = sum(path.session in self.resting for path in candidates)
        if leaving := sum(map(self.leads_away, candidates)) - resting:
            yield f"{leaving} by a peer that leaves"
        if resting:
            yield f"{resting} by a session that is no longer needed"
