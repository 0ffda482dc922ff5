"""The objects of a track from several feeds, each in order, as one.

A feed gives everything that there is from where it begins to where it has come. So there is a place
up to which all is covered:

    covered  =========>|
    one feed    -------------->          begins before it: passes, and moves it on
    another               ......-->      begins behind it: what it brings is held

What is held passes when the first feed has come to where the other begins, or when nobody can fill
what lies between any more.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from laps.types import Location

if TYPE_CHECKING:
    from laps.client.values import Object

FIRST: Final = Location(0, 0)


@dataclass(slots=True, eq=False)
class Branch:
    """What one feed has brought."""

    start: Location | None = None
    "Where it begins; None until that is known."
    position: Location = FIRST
    "How far it has come."
    joined: bool = False
    "What it brings passes."
    over: bool = False
    "Nothing more comes of it."
    held: deque[Object] = field(default_factory=deque)


class Merge:
    """The feeds of one subscription."""

    def __init__(self) -> None:
        self.covered: Location | None = None
        "All that lies before it has passed; None: nothing is known yet."
        self.branches: list[Branch] = []

    def open(self) -> Branch:
        """A feed has begun."""
        branch = Branch()
        self.branches.append(branch)
        return branch

    def add(
        self, branch: Branch, start: Location, position: Location, items: list[Object]
    ) -> list[Object]:
        """What a feed has brought, and how far it has come; what passes now, of all feeds."""
        branch.start, branch.position = start, position
        if self.covered is None:
            self.covered = start
        if branch.joined or start <= self.covered:
            branch.joined = True
            self.covered = max(self.covered, position)
            return [*items, *self._spread()]
        branch.held.extend(items)
        return []

    def _spread(self) -> list[Object]:
        """Where one feed has come to, another may begin."""
        passing: list[Object] = []
        found = True
        while found and self.covered is not None:
            found = False
            for branch in self.branches:
                if not branch.joined and branch.start is not None and branch.start <= self.covered:
                    branch.joined = found = True
                    self.covered = max(self.covered, branch.position)
                    passing += branch.held
                    branch.held.clear()
        self._tidy()
        return passing

    def jump(self) -> list[Object]:
        """Nobody fills what lies ahead of the first feed that is held: go on there."""
        starts = [b.start for b in self.branches if not b.joined and b.start is not None]
        if starts:
            self.covered = min(starts) if self.covered is None else max(self.covered, min(starts))
        return self._spread()

    def drop(self, branch: Branch) -> None:
        """A feed is over; what it has brought stays until its turn."""
        branch.over = True
        self._tidy()

    def _tidy(self) -> None:
        self.branches = [branch for branch in self.branches if branch.held or not branch.over]
