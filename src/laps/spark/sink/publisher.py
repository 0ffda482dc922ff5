"""The one publisher of a sink: batches go to a relay one after the other, each object once.

A batch is written down before it is sent, and again when the relay has acknowledged all of it.
What is left of it, should this process or its relay not live that long, is gone on with from there.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from time import monotonic, time
from typing import TYPE_CHECKING, Final

from laps.errors import LapsError, SessionClosed, SessionUnauthorized, TransportError
from laps.spark.sink.journal import Journal, Taken
from laps.spark.sink.numbering import Numbering, walk
from laps.spark.sink.sending import Leaving, Sender, Sending
from laps.spark.sink.staging import StagedFile, check_is_here
from laps.spark.sink.uplink import Uplink
from laps.spark.source.options import Trust  # noqa: TC001 - read when it is decoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from laps.spark.sink.place import Place

log = logging.getLogger(__name__)

RETRY_FIRST_S: Final = 0.1
RETRY_MOST_S: Final = 2.0

RETIRE_S: Final = 4.0
"A relay that leaves closes within 5 s; until then it passes on what it has."

STAGED: Final = "staged"
"The folder of all files that wait."


@dataclass(frozen=True, slots=True)
class PublisherSettings:
    """What does not change from batch to batch."""

    relays: tuple[str, ...]
    trust: Trust
    wait_s: float
    "How long relays may be away before a batch fails."
    history_bytes: int


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as Spark commits it."""

    number: int | None
    "None: it is not numbered, and is never the same as another."
    query: str | None
    folder: str
    "Where its files are."
    files: tuple[StagedFile, ...]
    group_objects: int
    priority: int
    end_tracks: bool = False

    @property
    def tracks(self) -> list[str]:
        """The keys of its tracks."""
        return list(dict.fromkeys(key for file in self.files for key in file.tracks))


class Publisher:
    """Publishes batches one after the other."""

    def __init__(self, settings: PublisherSettings, place: Place, journal: Journal) -> None:
        self._settings = settings
        self._place = place
        self._journal = journal
        self._uplink: Uplink | None = None
        self._relays = list(settings.relays)
        "In the order they are dialled in: one that was lost comes last."
        self._was_connected = False
        self._tail: list[Sending] = []
        "Batches that are done and have not settled."
        self._retiring: dict[Uplink, asyncio.Task[None]] = {}
        "Those that were left, and may have something to pass on."
        self._turn = asyncio.Lock()

    # -- batches -----------------------------------------------------------------------------------

    async def publish(self, batch: Batch) -> bool:
        """Publish a batch, or the rest of it; False if it was published before."""
        async with self._turn:
            self._sweep()
            self._journal.claim(batch.query)
            state = self._journal.state
            if batch.number is not None and batch.number <= state.done:
                log.info("batch %d was published before", batch.number)
                self._discard(batch, ())
                return False
            try:
                await self._publish(batch)
            except BaseException:
                # Streams may be open on it that are never gone on with.
                await self._abandon()
                raise
            return True

    async def _publish(self, batch: Batch) -> None:
        taken = self._journal.state.taken
        if taken is not None and taken.batch == batch.number:
            log.info("batch %d is gone on with at object %d", taken.batch, taken.settled)
            self._discard(batch, taken.files)
            sending = Sending(taken, batch.folder, began=True, settled=taken.settled)
        elif not batch.tracks:
            return
        else:
            sending = Sending(await self._take(batch), batch.folder)
        next_groups = await self._deliver(sending)
        if batch.end_tracks:
            await self._end(sending.taken)
            # Its end takes a group of its own.
            next_groups = {key: group + 1 for key, group in next_groups.items()}
        self._journal.finish(next_groups)
        self._tail.append(sending)
        self._remove_older(sending.taken.batch)

    async def _take(self, batch: Batch) -> Taken:
        """Write down what a batch is made of, and the numbers it takes."""
        for file in batch.files:
            if file.objects:
                check_is_here(self._place, file)
        state = self._journal.state
        next_groups = dict(state.next_groups)
        if state.taken is not None:
            next_groups |= self._given_up(state.taken)
        new = [key for key in batch.tracks if key not in next_groups]
        largest = await (await self._connected()).largest(new) if new else {}
        now = int(time() * 1000)  # as tracks of `laps.client` begin
        first_groups = {key: next_groups.get(key, now) for key in batch.tracks}
        for key, at in largest.items():
            first_groups[key] = max(first_groups[key], at.group + 1)
        taken = Taken(
            state.done + 1 if batch.number is None else batch.number,
            batch.files,
            first_groups,
            batch.group_objects,
            batch.priority,
        )
        self._journal.take(taken, next_groups)
        return taken

    def _given_up(self, taken: Taken) -> dict[str, int]:
        """The numbers behind those of a batch that nobody will ask for again."""
        log.warning("batch %d was not finished, and is given up", taken.batch)
        numbering = Numbering(taken.first_groups, taken.group_objects)
        try:
            for _ in walk(self._place, taken, numbering, payloads=False):
                pass
        except LapsError:  # its files are gone; an object can begin a group, and no more than one
            return {key: group + taken.objects for key, group in taken.first_groups.items()}
        self._remove(taken.files)
        return numbering.next_groups()

    # -- files -------------------------------------------------------------------------------------

    def _discard(self, batch: Batch, wanted: Iterable[StagedFile]) -> None:
        """Rows that came again: what they were the first time is what is published."""
        keep = {file.name for file in wanted}
        keep |= {file.name for sending in self._tail for file in sending.taken.files}
        self._remove(file for file in batch.files if file.name not in keep)
        self._place.remove_empty(batch.folder)

    def _sweep(self) -> None:
        """Remove the files of what has settled."""
        while self._tail and self._uplink and self._tail[0].settle(self._uplink.last_heard):
            self._drop(self._tail.pop(0))

    def _drop(self, sending: Sending) -> None:
        # The folder may have other files by now: of the same batch, should Spark begin it again.
        self._remove(sending.taken.files)
        self._place.remove_empty(sending.folder)

    def _remove(self, files: Iterable[StagedFile]) -> None:
        for file in files:
            if file.objects:
                self._place.remove(file.name)

    def _remove_older(self, number: int) -> None:
        """What tasks left that failed: of batches that Spark does not begin again."""
        keep = {sending.folder for sending in self._tail}
        for name in self._place.folders(STAGED):
            folder = f"{STAGED}/{name}"
            if name.isdecimal() and int(name) < number and folder not in keep:
                self._place.remove(folder)

    async def _end(self, taken: Taken) -> None:
        uplink = await self._connected()
        await uplink.publish(list(taken.first_groups))
        await uplink.end(taken.first_groups)

    # -- from relay to relay -----------------------------------------------------------------------

    async def _deliver(self, sending: Sending) -> dict[str, int]:
        """Send all of a batch, by as many relays as it takes; where its tracks go on."""
        while True:
            uplink = await self._connected()
            try:
                return await self._send(uplink, sending)
            except Leaving:
                sending.settled = sending.acknowledged
                sending.marks.clear()
                await self._move(uplink)
            except (SessionClosed, TransportError) as error:
                if uplink.alive:
                    raise
                log.warning("%s is lost: %s", uplink.url, error)
                sending.lost(uplink.last_heard)

    async def _send(self, uplink: Uplink, sending: Sending) -> dict[str, int]:
        taken = self._journal.state.taken
        is_current = taken is not None and taken.batch == sending.taken.batch
        if sending.began and is_current:
            sending.taken = self._journal.resume()
        elif sending.began:
            sending.taken = replace(sending.taken, resumed=sending.taken.resumed + 1)

        def progress(settled: int) -> None:
            if is_current:
                self._journal.settle(settled)

        return await Sender(uplink, self._place, sending, progress).send()

    async def _connected(self) -> Uplink:
        """The uplink there is, or another, with all on it that may have been lost with the last."""
        while True:
            uplink = self._uplink
            if uplink is not None and uplink.alive:
                return uplink
            if uplink is not None:
                self._relays = [url for url in self._relays if url != uplink.url]
                self._relays += [url for url in self._settings.relays if url == uplink.url]
                await self._abandon()
            self._uplink = uplink = await self._dial(self._relays)
            self._was_connected = True
            try:
                for sending in self._tail:
                    await self._send(uplink, sending)
            except (SessionClosed, TransportError, Leaving) as error:
                log.warning("%s is lost: %s", uplink.url, error)
                await uplink.close()

    async def _dial(self, relays: Sequence[str]) -> Uplink:
        """A relay that answers; as long as none has been reached, none is waited for."""
        settings = self._settings
        deadline = monotonic() + (settings.wait_s if self._was_connected else 0.0)
        wait = RETRY_FIRST_S
        while True:
            try:
                return await Uplink.open(relays, settings.trust, settings.history_bytes)
            except (TransportError, SessionUnauthorized) as error:
                if monotonic() + wait > deadline:
                    raise
                log.info("%s; dialling again", error)
            await asyncio.sleep(wait)
            wait = min(2 * wait, RETRY_MOST_S)

    async def _move(self, old: Uplink) -> None:
        """A relay leaves: go where it points, or to the next, and let it finish."""
        target = old.going_to
        others = [url for url in self._settings.relays if url != old.url]
        log.info("%s leaves", old.url)
        self._uplink = await self._dial([*([target] if target else []), *others, old.url])
        self._retiring[old] = asyncio.create_task(self._retire(old))

    async def _retire(self, old: Uplink) -> None:
        await asyncio.sleep(RETIRE_S)
        await old.close()
        del self._retiring[old]

    async def keep(self) -> None:
        """Between batches: stay with a relay, and go to the next when it is lost or leaves."""
        uplink = self._uplink
        if uplink is None or self._turn.locked():
            return
        async with self._turn:
            self._sweep()
            if not uplink.alive:
                await self._connected()
            elif uplink.going_to is not None:
                await self._move(uplink)

    async def _abandon(self) -> None:
        """Leave the relay there is; what has not settled on it has to be looked after again."""
        uplink, self._uplink = self._uplink, None
        if uplink is not None:
            for sending in list(self._tail):
                if sending.lost(uplink.last_heard):
                    self._tail.remove(sending)
                    self._drop(sending)
            await uplink.close()

    async def close(self, *, forget: bool = False) -> None:
        """Leave; for subscribers tracks go on, and another publisher may come.

        With `forget` it begins anew, wherever relays say that tracks are.
        """
        async with self._turn:
            await self._abandon()
            for uplink, task in self._retiring.items():
                task.cancel()
                await uplink.close()
            for sending in self._tail:
                self._drop(sending)
            self._tail.clear()
            self._remove_older(self._journal.state.done)
            if forget:
                self._journal.remove()
                # Unless somebody has begun to stage the next batch.
                self._place.remove_empty(STAGED)
                self._place.remove_empty("")
