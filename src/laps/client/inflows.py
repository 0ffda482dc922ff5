"""A subscription and a fetch of ours on one channel, and who is told what comes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from laps.errors import ObjectTooLarge
from laps.wire.moqt.fetch import FetchReader
from laps.wire.moqt.messages import FetchCancel, FetchOk, RequestError, SubscribeOk, Unsubscribe
from laps.wire.moqt.objects import PayloadTooLarge

if TYPE_CHECKING:
    from laps.client.channel import Channel
    from laps.sessions.requests import Answer
    from laps.wire.moqt.fetch import FetchItem
    from laps.wire.moqt.messages import Fetch, PublishDone, Subscribe
    from laps.wire.moqt.objects import Object


class SubscriptionSink(Protocol):
    """Who is told what comes of a subscription."""

    def answered(self, answer: SubscribeOk | RequestError) -> None:
        """The relay's answer."""

    def opened(self, group: int, stream_id: int) -> None:
        """A stream of a group has begun."""

    def objects(self, items: list[Object]) -> None:
        """Objects of one stream, or one of a datagram."""

    def closed(self, group: int, subgroup: int | None, *, complete: bool, goes_on: bool) -> None:
        """A stream of a group has ended.

        `complete`: it was not given up. `goes_on`: it was, and another may bring the rest.
        """

    def done(self, message: PublishDone) -> None:
        """The relay has ended the subscription; streams may still be under way."""

    def failed(self, error: Exception) -> None:
        """What comes cannot be read."""

    def lost(self) -> None:
        """The connection is over."""


class FetchSink(Protocol):
    """Who is told what comes of a fetch."""

    def answered(self, answer: FetchOk | RequestError) -> None:
        """The relay's answer, perhaps behind the first objects."""

    def items(self, items: list[FetchItem]) -> None:
        """Objects, and marks for those that are missing."""

    def ended(self, complete: bool) -> None:
        """The stream is over; incomplete if it was reset, or the connection is over."""

    def failed(self, error: Exception) -> None:
        """What comes cannot be read."""


class Inflow:
    """A subscription on one channel."""

    def __init__(
        self, channel: Channel, sink: SubscriptionSink, message: Subscribe, max_object_bytes: int
    ) -> None:
        self.channel = channel
        self.sink = sink
        self.max_object_bytes = max_object_bytes
        self.streams = 0
        "How many streams have begun."
        self.open = 0
        "How many of them have not ended."
        self.alias: int | None = None
        inbound = channel.inbound
        inbound.expect_alias(None)
        self.request_id = channel.request(message, self._answered)
        inbound.inflows[self.request_id] = self

    def _answered(self, answer: Answer) -> None:
        if isinstance(answer, SubscribeOk):
            self.alias = answer.alias
            self.channel.inbound.expect_alias(answer.alias)
            self.sink.answered(answer)
        elif isinstance(answer, RequestError):
            self.channel.inbound.inflows.pop(self.request_id, None)
            self.sink.answered(answer)

    def close(self, *, tell: bool = True) -> None:
        """Nothing more is wanted of it."""
        inbound = self.channel.inbound
        if inbound.inflows.pop(self.request_id, None) is None:
            return
        self.channel.forget(self.request_id)
        if self.alias is not None:
            self.channel.session.drop_alias(self.alias)
            inbound.drop_alias(self.alias)
        if self.channel.alive:
            if tell:
                self.channel.session.send(Unsubscribe(self.request_id))
            inbound.abandon(self)


class FetchInflow:
    """A fetch on one channel."""

    def __init__(
        self, channel: Channel, sink: FetchSink, message: Fetch, max_object_bytes: int
    ) -> None:
        self.channel = channel
        self.sink = sink
        self._reader = FetchReader(channel.dialect, max_object_bytes)
        self._halves = 2
        "The answer and the stream: either may be the last to come."
        self.request_id = channel.request(message, self._answered)
        channel.inbound.fetches[self.request_id] = self

    def _answered(self, answer: Answer) -> None:
        if isinstance(answer, RequestError):
            self.channel.inbound.fetches.pop(self.request_id, None)
            self.sink.answered(answer)
        elif isinstance(answer, FetchOk):
            self._half_done()
            self.sink.answered(answer)

    def receive(self, data: bytes, fin: bool) -> None:
        """Bytes of the stream that answers it."""
        try:
            items = self._reader.feed(data)
        except PayloadTooLarge as error:
            self.sink.failed(ObjectTooLarge(f"{error}: max_object_bytes"))
            return
        if items:
            self.sink.items(items)
        if fin:
            self._reader.finish()
            # Whoever took the objects may have closed it.
            if self.channel.inbound.fetches.get(self.request_id) is self:
                self.stream_ended(complete=True)

    def stream_ended(self, *, complete: bool) -> None:
        """All has come, or nothing more does."""
        self.channel.inbound.fetches.pop(self.request_id, None)
        self._half_done()
        self.sink.ended(complete)

    def _half_done(self) -> None:
        self._halves -= 1
        if not self._halves:
            self.channel.session.finish(self.request_id)

    def close(self) -> None:
        """Nothing more is wanted of it."""
        inbound = self.channel.inbound
        if inbound.fetches.pop(self.request_id, None) is None:
            return
        self.channel.forget(self.request_id)
        if self.channel.alive:
            self.channel.session.send(FetchCancel(self.request_id))
            inbound.abandon_fetch(self.request_id)
