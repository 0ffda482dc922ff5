"""Sessions whose peer is about to leave: what is beyond it is reached another way, if there is one.

A path through such a session counts only where no other path is as good for data. The peer itself
is still reached directly: every other way to it ends at the same node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.infobase.nodes import Choice
from laps.routing.selection import select

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from laps.infobase.nodes import PathCandidate, SessionId


class Draining:
    """The sessions that are about to end, and a selection that avoids them."""

    def __init__(self) -> None:
        self._sessions: set[SessionId] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session: SessionId) -> bool:
        return session in self._sessions

    def add(self, sessions: Iterable[SessionId]) -> None:
        """The peer at the other end has said that it leaves."""
        self._sessions.update(sessions)

    def discard(self, session: SessionId) -> None:
        """A session has ended."""
        self._sessions.discard(session)

    def select(self, candidates: Collection[PathCandidate]) -> Choice | None:
        """The best path among those that stay, or of all where none of them does as well."""
        best = select(candidates)
        if not self._sessions or best is None or not self.leads_away(best.path):
            return best
        staying = [path for path in candidates if not self.leads_away(path)]
        other = select(staying)
        if other is None or (best.path.carries_data and not other.path.carries_data):
            return best
        leaving = len(candidates) - len(staying)
        return Choice(other.path, f"{other.reason}; {leaving} by a peer that leaves")

    def leads_away(self, path: PathCandidate) -> bool:
        """Whether a path goes beyond a peer that is about to leave."""
        return path.session in self._sessions and bool(path.info.path)
