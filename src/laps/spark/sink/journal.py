"""What the sink has published, and what it is about to: written down ahead of publishing.

    take     a batch has these files, and its groups begin with these numbers    then it is sent
    settle   up to this object no relay is to be asked any more
    finish   all of it has arrived; the next batch goes on with these numbers    then Spark is told

A batch that comes again is published from the files that were taken first, under the same numbers,
whatever its rows are now. There are two files, written in turns, and each says whether it is
whole: one that a crash has cut off leaves the other.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec

from laps.errors import LapsError
from laps.spark.sink.staging import StagedFile  # noqa: TC001 - read when it is decoded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laps.spark.sink.place import Place

log = logging.getLogger(__name__)

SLOTS: Final = ("journal-0", "journal-1")


class Superseded(LapsError):  # noqa: N818 - a name says what happened
    """Another publisher goes on with the same journal."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A batch that is being published."""

    batch: int
    files: tuple[StagedFile, ...]
    "In the order of their partitions."
    first_groups: dict[str, int]
    "By the key of each track."
    group_objects: int
    priority: int
    settled: int = 0
    "So many of its objects are where nothing can be lost of them any more."
    resumed: int = 0
    "How often it was begun again."

    @property
    def objects(self) -> int:
        """How many it has."""
        return sum(file.objects for file in self.files)

    @property
    def has_extensions(self) -> bool:
        """Whether any of its objects has extension headers."""
        return any(file.extensions for file in self.files)


@dataclass(frozen=True, slots=True)
class State:
    """All that is written down."""

    serial: int = 0
    owner: str = ""
    "Who writes: another one has to stop."
    query: str | None = None
    "The query whose batches these are, as Spark numbers them."
    done: int = -1
    "The last batch that was published."
    next_groups: dict[str, int] = field(default_factory=dict)
    taken: Taken | None = None


class Journal:
    """The journal of one sink."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._owner = uuid4().hex
        self.state = read_state(place)

    def claim(self, query: str | None) -> None:
        """Be the one who writes; LapsError if the journal is of another query."""
        state = self.state = read_state(self._place)
        if query is not None and state.query not in (None, query):
            raise LapsError(
                f"the journal in {self._place.url} is of the query {state.query}, and this is "
                f"{query}, whose batches have the same numbers and other rows: give this one a "
                "checkpoint of its own, or remove that folder if the other is gone for good"
            )
        query = query or state.query
        if (state.owner, state.query) != (self._owner, query):
            self._store(replace(state, owner=self._owner, query=query), claim=True)

    def take(self, taken: Taken, next_groups: Mapping[str, int]) -> None:
        """A batch is about to be published; one that was not finished is given up."""
        self._store(replace(self.state, taken=taken, next_groups=dict(next_groups)))

    def settle(self, settled: int) -> None:
        """So many of its objects need not be asked for any more."""
        self._store(replace(self.state, taken=replace(self._taken, settled=settled)))

    def resume(self) -> Taken:
        """It is begun again, on another connection."""
        taken = replace(self._taken, resumed=self._taken.resumed + 1)
        self._store(replace(self.state, taken=taken))
        return taken

    def finish(self, next_groups: Mapping[str, int]) -> None:
        """All of it has arrived."""
        groups = self.state.next_groups | dict(next_groups)
        self._store(replace(self.state, done=self._taken.batch, next_groups=groups, taken=None))

    def remove(self) -> None:
        """Nobody will go on with it."""
        for slot in SLOTS:
            self._place.remove(slot)

    @property
    def _taken(self) -> Taken:
        assert self.state.taken is not None  # noqa: S101 - it is called for one that is
        return self.state.taken

    def _store(self, state: State, *, claim: bool = False) -> None:
        stored = read_state(self._place)
        if not claim and stored.owner != self._owner:
            raise Superseded(
                "another publisher has taken over this sink: is the query running twice?"
            )
        state = replace(state, serial=max(self.state.serial, stored.serial) + 1)
        self._place.write(SLOTS[state.serial % 2], _encode(state))
        self.state = state


def read_state(place: Place) -> State:
    """What is written down in a place; LapsError if nobody can tell."""
    written = [data for slot in SLOTS if (data := place.read(slot)) is not None]
    found = [state for data in written if (state := _decode(data)) is not None]
    # The very first entry may be cut off: then nothing has been published.
    if not found and len(written) == len(SLOTS):
        raise LapsError(
            f"the journal in {place.url} cannot be read, so nobody knows what was published: "
            "remove the folder to begin anew"
        )
    return max(found, key=lambda state: state.serial, default=State())


def _encode(state: State) -> bytes:
    text = msgspec.json.encode(state)
    return hashlib.sha256(text).hexdigest().encode() + b"\n" + text


def _decode(data: bytes) -> State | None:
    digest, _, text = data.partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != digest:
        log.warning("an entry of the journal was cut off: the one before it counts")
        return None
    return msgspec.json.decode(text, type=State)
