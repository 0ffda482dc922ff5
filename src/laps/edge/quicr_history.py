"""What came before a QUICR subscription: asked for as a FETCH would be, and read back from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from laps.wire.moqt.data import decode_stream_header
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.fetch import EndOfRange, FetchReader
from laps.wire.quicr.carried import quicr_priority
from laps.wire.quicr.messages import Fragment, Terms

if TYPE_CHECKING:
    from laps.edge.client import Rank, Serving
    from laps.tracks.ports import OutStream
    from laps.tracks.track import Track
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Message


class HistoryReader(Protocol):
    """The subscription that what came before is for."""

    request_id: int

    @property
    def has_room(self) -> bool:
        """Whether little waits to be sent."""

    def bring(self, fragment: Fragment, terms: Terms, now: float) -> None:
        """An object of the time before."""

    def status(self, group: int, object_id: int, status: int) -> None:
        """An object that says something of its group, and is none."""

    def pump(self, now: float) -> None:
        """Send what may be sent, as far as there is room."""

    def history_closed(self, now: float) -> None:
        """What came before has been brought, as far as it could be."""


class QuicrHistory:
    """Asks for what came before a subscription: an `Asker` for `Fetches`, and its stream."""

    def __init__(self, reader: HistoryReader, serving: dict[int, Serving]) -> None:
        self.over = False
        self.serving = serving
        self._reader = reader
        self._items = FetchReader(BETWEEN_RELAYS)
        self._head: bytes | None = b""

    # -- as `Asker` --------------------------------------------------------------------------------

    @property
    def dialect(self) -> Dialect:
        """As `Asker`."""
        return BETWEEN_RELAYS

    def has_room_for(self, order: int) -> bool:
        """As `Asker`."""
        return self._reader.has_room

    def answer(self, message: Message, now: float) -> None:
        """As `Asker.answer`: what follows it is what counts."""

    def refuse(self, request_id: int, code: int, reason: str, now: float) -> None:
        """As `Asker.refuse`: there is nothing of it."""
        self._close(now)

    def open_fetch(self, track: Track, rank: Rank) -> OutStream:
        """As `Asker.open_fetch`."""
        return self

    def fetch_served(self, request_id: int) -> None:
        """As `Asker.fetch_served`: the end of the stream says so."""

    def cancel(self, now: float) -> None:
        """Nobody wants it any more."""
        self.over = True
        serving = self.serving.get(self._reader.request_id)
        if serving is not None:
            serving.cancel(now)

    # -- as `OutStream` ----------------------------------------------------------------------------

    def write(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream`."""
        if self.over:
            return False
        if self._head is not None:
            self._head += bytes(data)
            _, length = decode_stream_header(self._head, BETWEEN_RELAYS)
            data, self._head = self._head[length:], None
        reader = self._reader
        for item in self._items.feed(data):
            if isinstance(item, EndOfRange):
                continue
            if item.status:
                reader.status(item.group, item.object_id, item.status)
            else:
                fragment = Fragment(item.group, item.object_id, 0, item.payload, True)
                reader.bring(fragment, Terms(priority=quicr_priority(item.priority)), now)
        reader.pump(now)
        return True

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream`."""
        if data:
            self.write(data, now)
        self._close(now)
        return True

    def reset(self, code: int, now: float) -> None:
        """As `OutStream`."""
        self._close(now)

    def _close(self, now: float) -> None:
        if not self.over:
            self.over = True
            self._reader.history_closed(now)
