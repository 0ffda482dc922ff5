"""A batch on its way to one relay: all of it, or what the relay lacks of it.

What may have been sent before is gone on with in one way, whoever sent it and to whatever relay:

    settled      up to here nothing can be lost any more: not looked at again
    the rest     the relay is asked what it has of it, and is sent what it has not

An object has settled when its relay has been heard of for a while after acknowledging it, since a
relay that dies takes along what it has not passed on. So a live subscriber at another relay may be
sent an object again, in the same place, and drops it; one that is sent nothing would miss it.

What is sent again goes in a subgroup of its own: a relay may still hold the stream that broke off.
And nothing of a group older than the newest that a relay has goes first on a new connection: from
that a relay would conclude that the track begins anew.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Final

from laps.client import Location, ObjectStatus
from laps.spark.sink.numbering import Numbering, walk
from laps.spark.sink.objects import extension_pairs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from laps.client import Subgroup
    from laps.spark.sink.journal import Taken
    from laps.spark.sink.numbering import Numbered
    from laps.spark.sink.place import Place
    from laps.spark.sink.uplink import Uplink

log = logging.getLogger(__name__)

WINDOW_BYTES: Final = 8 * 1024 * 1024
WINDOW_OBJECTS: Final = 20_000
"So much is sent before all of it has to be acknowledged: what a crash leaves to be asked for."

SETTLED_S: Final = 1.0
"A relay passes on what it has acknowledged within this time, or is slow enough to make us wait."


class Leaving(Exception):  # noqa: N818 - a name says what happened
    """The relay asks us to go; all that it was sent is acknowledged."""


@dataclass(slots=True, eq=False)
class Sending:
    """How far a batch has come."""

    taken: Taken
    folder: str
    "Where its files are."
    began: bool = False
    "Some of it may have been sent."
    acknowledged: int = 0
    settled: int = 0
    marks: list[tuple[float, int]] = field(default_factory=list)
    "When so many of its objects had been acknowledged."

    def mark(self, count: int) -> None:
        """So many are acknowledged."""
        self.acknowledged = count
        self.marks.append((monotonic(), count))

    def settle(self, last_heard: float) -> bool:
        """Count what has settled, as far as the relay has been heard of; whether that is all."""
        while self.marks and self.marks[0][0] <= last_heard - SETTLED_S:
            self.settled = self.marks.pop(0)[1]
        return self.settled >= self.taken.objects

    def lost(self, last_heard: float) -> bool:
        """Its relay is gone, with what had not settled; whether all had."""
        settled = self.settle(last_heard)
        self.marks.clear()
        return settled


class Sender:
    """Sends one batch to one relay."""

    def __init__(
        self, uplink: Uplink, place: Place, sending: Sending, progress: Callable[[int], None]
    ) -> None:
        """`progress` is told how many objects have settled, when that changes."""
        self._uplink = uplink
        self._place = place
        self._sending = sending
        self._taken = sending.taken
        self._progress = progress
        self._writing = Writing(uplink, sending.taken)

    async def send(self) -> dict[str, int]:
        """Send all that is to be sent; the next group of each track.

        SessionClosed if the relay is lost, Leaving if it wants to be.
        """
        start = 0
        if self._sending.began:
            start = await self._recover(self._sending.settled)
        self._sending.began = True
        numbering = self._numbering()
        writing = self._writing
        async for chunk in self._walk(numbering, start):
            await writing.prepare(chunk)
            for item in chunk:
                await writing.write(item)
                if writing.is_full:
                    await self._acknowledged(item.number + 1)
                    if self._uplink.going_to is not None:
                        raise Leaving
        writing.end()
        await self._acknowledged(self._taken.objects)
        return numbering.next_groups()

    async def _acknowledged(self, count: int) -> None:
        await self._uplink.acknowledged()
        self._writing.begin_window()
        before = self._sending.settled
        self._sending.settle(self._uplink.last_heard)
        self._sending.mark(count)
        if self._sending.settled != before:
            self._progress(self._sending.settled)

    # -- what has been sent before -----------------------------------------------------------------

    async def _recover(self, start: int) -> int:
        """Send what the relay lacks of what may have been sent; where nothing has been."""
        found = await self._find(start)
        if found.end == start:
            return start
        log.info("of %d objects the relay lacks %d", found.end - start, found.missing)
        # What comes first is of the newest group there is, be it a word that the group has ended.
        await self._uplink.publish(found.complete)
        for track, at in found.complete.items():
            self._writing.mark_end(track, at)
        await self._send_some(self._writing, found, start, found.is_missing_new)
        if found.behind:
            older = Writing(self._uplink, self._taken)
            await self._send_some(older, found, start, found.is_missing_old)
            older.end()
        await self._acknowledged(found.end)
        return found.end

    async def _find(self, start: int) -> Found:
        """Ask the relay what it has."""
        firsts: dict[str, Location] = {}
        async for chunk in self._walk(self._numbering(), start, payloads=False):
            for item in chunk:
                if item.track not in firsts:
                    firsts[item.track] = Location(item.group, item.id)
        largest = {
            track: at
            for track, at in (await self._uplink.largest(list(firsts))).items()
            if at >= firsts[track]
        }
        held = await self._uplink.held(
            {track: (firsts[track], at) for track, at in largest.items()}
        )
        found = Found(largest, held, start)
        async for chunk in self._walk(self._numbering(), start, payloads=False):
            for item in chunk:
                found.look_at(item)
        return found

    async def _send_some(
        self, writing: Writing, found: Found, start: int, wanted: Callable[[Numbered], bool]
    ) -> None:
        async for chunk in self._walk(self._numbering(), start):
            items = [item for item in chunk if item.number < found.end and wanted(item)]
            await writing.prepare(items)
            for item in items:
                await writing.write(item)
            if chunk[-1].number + 1 >= found.end:
                break

    # -- objects -----------------------------------------------------------------------------------

    def _numbering(self) -> Numbering:
        return Numbering(self._taken.first_groups, self._taken.group_objects)

    async def _walk(
        self, numbering: Numbering, start: int, *, payloads: bool = True
    ) -> AsyncIterator[list[Numbered]]:
        chunks = walk(self._place, self._taken, numbering, start=start, payloads=payloads)
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
            yield chunk


class Found:
    """What a relay has of a batch, from some object on."""

    def __init__(
        self, largest: dict[str, Location], held: dict[str, set[tuple[int, int]]], start: int
    ) -> None:
        self.end = start
        "Behind the last object that the relay may have."
        self.missing = 0
        self.behind: set[str] = set()
        "Tracks that lack something of a group that is not the newest."
        self.complete: dict[str, Location] = {}
        "Of tracks whose newest group is all there: the place behind its last object."
        self._largest = largest
        self._held = held

    def look_at(self, item: Numbered) -> None:
        """The next object of the batch."""
        at = self._largest.get(item.track)
        if at is None:
            return
        place = item.group, item.id
        if place > at:
            # The first behind the largest tells whether that was the last of its group.
            if item.group == at.group:
                self.complete.pop(item.track, None)
            return
        self.end = item.number + 1
        if place not in self._held[item.track]:
            self.missing += 1
            if item.group < at.group:
                self.behind.add(item.track)
        elif place == at:
            self.complete[item.track] = Location(item.group, item.id + 1)

    def is_missing_new(self, item: Numbered) -> bool:
        """Whether to send an object of the newest group, or of a track that lacks nothing older.

        Where something older is to follow, one of the newest group has to go ahead, and if it is
        one that is there already.
        """
        at = self._largest.get(item.track)
        if at is None or item.track not in self.behind:
            return self._is_missing(item)
        if item.group < at.group:
            return False
        is_anchor = (item.group, item.id) == at and item.track not in self.complete
        return is_anchor or self._is_missing(item)

    def is_missing_old(self, item: Numbered) -> bool:
        """Whether to send an object of an older group."""
        at = self._largest.get(item.track)
        return at is not None and item.group < at.group and self._is_missing(item)

    def _is_missing(self, item: Numbered) -> bool:
        return (item.group, item.id) not in self._held.get(item.track, ())


class Writing:
    """The streams of a batch on one connection: of each track one at a time, that of its group."""

    def __init__(self, uplink: Uplink, taken: Taken) -> None:
        self._uplink = uplink
        self._taken = taken
        self._open: dict[str, Subgroup] = {}
        self._bytes = 0
        self._objects = 0

    @property
    def is_full(self) -> bool:
        """Whether so much was written that it has to be acknowledged."""
        return self._bytes >= WINDOW_BYTES or self._objects >= WINDOW_OBJECTS

    def begin_window(self) -> None:
        """All has been."""
        self._bytes = self._objects = 0

    async def prepare(self, items: Iterable[Numbered]) -> None:
        """See to it that the tracks of these objects are published."""
        await self._uplink.publish({item.track: None for item in items})

    async def write(self, item: Numbered) -> None:
        """Send an object; waits while the relay is slower than we are."""
        subgroup = self._open.get(item.track)
        if subgroup is None or subgroup.group != item.group:
            if subgroup is not None:
                subgroup.end()
            subgroup = self._begin(item.track, item.group, item.priority)
        extensions = extension_pairs(item.extensions) if item.extensions else ()
        await subgroup.write(item.payload, object_id=item.id, extensions=extensions)
        self._bytes += len(item.payload)
        self._objects += 1

    def _begin(self, track: str, group: int, priority: int) -> Subgroup:
        subgroup = self._open[track] = self._uplink.track(track).group(
            group,
            self._taken.resumed,
            priority=priority,
            extensions=self._taken.has_extensions,
            last=True,
        )
        return subgroup

    def mark_end(self, track: str, behind: Location) -> None:
        """Say that a group has ended: the connection may have been lost ahead of that word."""
        subgroup = self._begin(track, behind.group, self._taken.priority)
        subgroup.put(b"", behind.object, (), ObjectStatus.END_OF_GROUP)

    def end(self) -> None:
        """All groups are complete."""
        for subgroup in self._open.values():
            subgroup.end()
        self._open.clear()
