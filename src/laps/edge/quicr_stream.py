"""A stream of a track, on its way into a QUICR subscription: read object by object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from laps.tracks.streams import SOURCE_LOST
from laps.wire.moqt.codes import MoqtViolation
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.pieces import PieceReader
from laps.wire.quicr.messages import Fragment

if TYPE_CHECKING:
    from laps.edge.media_queue import MediaQueue
    from laps.wire.moqt.data import SubgroupHeader
    from laps.wire.quicr.messages import Terms


class StreamReader(Protocol):
    """The subscription that the objects are for."""

    queue: MediaQueue
    is_stopped: bool

    def take(self, fragment: Fragment, terms: Terms, until: float | None, now: float) -> None:
        """What has arrived of an object."""

    def status(self, group: int, object_id: int, status: int) -> None:
        """An object that says something of its group, and is none."""

    def pump(self, now: float) -> None:
        """Send what may be sent."""


class QuicrStream:
    """One such stream: an `OutStream`."""

    def __init__(
        self, subscription: StreamReader, header: SubgroupHeader, terms: Terms, first: int
    ) -> None:
        self._subscription = subscription
        self._header = header
        self._terms = terms
        self._first = first
        self._reader = PieceReader(BETWEEN_RELAYS, header.has_extensions)
        self._next_id = 0
        self._closed = False

    @property
    def over(self) -> bool:
        """As `OutStream.over`."""
        return self._closed or self._subscription.is_stopped

    def resume(self, last_id: int) -> None:
        """The stream begins after an object."""
        self._reader.resume(last_id)

    def write(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.write`."""
        if self.over:
            return False
        subscription, group = self._subscription, self._header.group
        try:
            pieces = self._reader.feed(data)
        except MoqtViolation:
            self.reset(0, now)
            return False
        for object_id, offset, part, last, status in pieces:
            if object_id < self._first:
                continue
            if status:
                subscription.status(group, object_id, status)
            else:
                fragment = Fragment(group, object_id, offset, part, last)
                subscription.take(fragment, self._terms, None, now)
            self._next_id = object_id + 1
        subscription.pump(now)
        return True

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.finish`."""
        if self.over or (data and not self.write(data, now)):
            return False
        if self._header.end_of_group and self._next_id:
            self._subscription.queue.ended(self._header.group, self._next_id)
        self._close(now)
        return True

    def reset(self, code: int, now: float) -> None:
        """As `OutStream.reset`."""
        self._close(now, cut=code == SOURCE_LOST)

    def _close(self, now: float, *, cut: bool = False) -> None:
        if not self.over:
            self._closed = True
            self._subscription.queue.closed(self._header.group, cut=cut)
            self._subscription.pump(now)
