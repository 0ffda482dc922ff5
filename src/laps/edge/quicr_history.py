"""What came before a QUICR subscription: asked for as a FETCH would be, and read back from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.wire.moqt.data import decode_stream_header
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.fetch import EndOfRange, FetchReader
from laps.wire.quicr.carried import quicr_priority
from laps.wire.quicr.messages import Fragment, Terms

if TYPE_CHECKING:
    from laps.edge.fetching import FetchServing
    from laps.edge.moqt_subscription import Rank
    from laps.edge.quicr_subscription import QuicrDelivery
    from laps.tracks.ports import OutStream
    from laps.tracks.track import LiveTrack
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Message


class History:
    """Asks for what came before a subscription: an `Asker` for `Fetches`, and its stream."""

    over = False

    def __init__(self, delivery: QuicrDelivery, serving: dict[int, FetchServing]) -> None:
        self.serving = serving
        self._delivery = delivery
        self._items = FetchReader(DRAFT16)
        self._head: bytes | None = b""

    # -- as `Asker` --------------------------------------------------------------------------------

    @property
    def dialect(self) -> Dialect:
        """As `Asker`."""
        return DRAFT16

    @property
    def has_room(self) -> bool:
        """As `Asker`."""
        return self._delivery.has_room

    def answer(self, message: Message) -> None:
        """As `Asker`."""

    def refuse(self, request_id: int, code: int, reason: str) -> None:
        """As `Asker`: there is nothing of it."""
        self._end()

    def open_fetch(self, track: LiveTrack, rank: Rank) -> OutStream:
        """As `Asker`."""
        return self

    def cancel(self) -> None:
        """Nobody wants it any more."""
        self.over = True
        serving = self.serving.get(self._delivery.request_id)
        if serving is not None:
            serving.cancel()

    # -- as `OutStream` ----------------------------------------------------------------------------

    def write(self, data: bytes | memoryview) -> bool:
        """As `OutStream`."""
        if self.over:
            return False
        if self._head is not None:
            self._head += bytes(data)
            _, length = decode_stream_header(self._head, DRAFT16)
            data, self._head = self._head[length:], None
        delivery = self._delivery
        for item in self._items.feed(data):
            if isinstance(item, EndOfRange):
                continue
            if item.status:
                delivery.status(item.group, item.object_id, item.status)
            else:
                fragment = Fragment(item.group, item.object_id, 0, item.payload, True)
                delivery.bring(fragment, Terms(priority=quicr_priority(item.priority)))
        delivery.pump()
        return True

    def finish(self, data: bytes | memoryview = b"") -> bool:
        """As `OutStream`."""
        if data:
            self.write(data)
        self._end()
        return True

    def reset(self, code: int) -> None:
        """As `OutStream`."""
        self._end()

    def _end(self) -> None:
        if not self.over:
            self.over = True
            self._delivery.history_over()
