"""A track on one channel, as it comes: objects out of fragments, on the stream and in datagrams."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from laps.client.quicr.asking import Again, Asking, Ended
from laps.client.values import Object
from laps.ranges import after
from laps.types import Location
from laps.wire.buffer import VARINT_MAX
from laps.wire.quicr.carried import moqt_priority
from laps.wire.quicr.codes import QuicrViolation
from laps.wire.quicr.fragments import MAX_OBJECT_BYTES, Reassembler
from laps.wire.quicr.messages import Fin, Fragment, PublishIntentOk, StartPoint, Subscribe

if TYPE_CHECKING:
    import asyncio

    from laps.client.buffers import Buffer
    from laps.client.quicr.asking import Outcome
    from laps.client.quicr.channel import QuicrChannel
    from laps.client.quicr.merging import Branch
    from laps.client.quicr.ordering import DatagramOrder
    from laps.sessions.quicr import ControlStream
    from laps.wire.quicr.messages import Datagram, Intent, Message

log = logging.getLogger(__name__)

# Behind all objects: what ends without FIN has no other place to end at.
_NOWHERE: Final = Location(VARINT_MAX, 0)


class Consumer(Protocol):
    """Who is given the objects."""

    @property
    def buffer(self) -> Buffer:
        """Where all that waits for it is counted."""

    def granted(self, feed: Feed) -> None:
        """The relay has said yes."""

    def objects(self, feed: Feed, items: list[Object]) -> None:
        """Objects in order, and how far a feed has come; their cost is about to be counted."""


class Feed(Asking):
    """The media of one control stream; `subscribe` and `accept` make it."""

    def __init__(
        self,
        channel: QuicrChannel,
        consumer: Consumer,
        branch: Branch,
        message: Subscribe | None,
        *,
        order: DatagramOrder | None,
        ordered: bool,
    ) -> None:
        super().__init__(channel, message)
        self.branch = branch
        self.start: Location | None = None
        "Where it begins; None until that is known."
        self.position = Location(0, 0)
        self.floor = Location(0, 0)
        "What lies ahead of it is not wanted."
        self.heard_at = channel.loop.time()
        "When it has last brought something."
        self._consumer = consumer
        self._order = order
        "None: there are no datagrams, and what comes is in order."
        self._ordered = ordered
        self._datagram_id: int | None = None
        self._pieces = Reassembler()
        self._open = bytearray()
        "What has come on the stream of the object in hand."
        self._kept = 0
        "What the objects cost that wait here."
        self._timer: asyncio.TimerHandle | None = None
        self._concluded = False
        channel.feeds.add(self)

    @classmethod
    def subscribe(
        cls,
        channel: QuicrChannel,
        consumer: Consumer,
        branch: Branch,
        name: bytes,
        intent: Intent,
        order: DatagramOrder | None,
        *,
        ordered: bool,
    ) -> Feed:
        """Ask for a track."""
        datagram_id = None if order is None else channel.next_datagram_id()
        message = Subscribe(name, intent=intent, datagram_stream_id=datagram_id)
        feed = cls(channel, consumer, branch, message, order=order, ordered=ordered)
        feed._listen(datagram_id)
        return feed

    @classmethod
    def accept(
        cls,
        channel: QuicrChannel,
        consumer: Consumer,
        branch: Branch,
        stream: ControlStream,
        order: DatagramOrder | None,
        *,
        ordered: bool,
    ) -> Feed:
        """Take a track that the relay offers."""
        datagram_id = None if order is None else channel.next_datagram_id()
        feed = cls(channel, consumer, branch, None, order=order, ordered=ordered)
        feed._listen(datagram_id)
        feed.stream = stream
        channel.users[stream] = feed
        channel.session.send(stream, PublishIntentOk(datagram_id))
        return feed

    def _listen(self, datagram_id: int | None) -> None:
        self._datagram_id = datagram_id
        if datagram_id is not None:
            self.channel.media[datagram_id] = self._datagram

    # -- as `StreamUser` ---------------------------------------------------------------------------

    def said(self, message: Message) -> None:
        """As `StreamUser`."""
        match message:
            case Fragment():
                self._fragment(message)
            case StartPoint(place):
                self._started(place)
            case Fin(final):
                if self._order is not None:
                    self._order.finish(final, self.channel.loop.time())
                    self._advance()
            case _:
                super().said(message)

    def closed(self, well: bool) -> None:
        """As `StreamUser`."""
        stream, self.stream = self.stream, None
        if stream is not None:
            self.channel.session.close(stream)
        if not well or not self.answered:
            self.conclude(Again("its stream was reset"))
        elif self._order is None:
            self.conclude(Ended())
        else:
            self._order.finish(_NOWHERE, self.channel.loop.time())
            self._advance()

    def _granted(self) -> None:
        self._consumer.granted(self)

    # -- what comes --------------------------------------------------------------------------------

    def _started(self, place: Location) -> None:
        self._open.clear()  # what had begun does not go on
        self.heard_at = self.channel.loop.time()
        if self._order is not None:
            self._order.start_at(place)
            self._advance()
            return
        if self.start is None:
            self.start = place
        self.position = place
        self._consumer.objects(self, [])

    def _fragment(self, fragment: Fragment) -> None:
        """The next of the stream, which is in order."""
        self.heard_at = self.channel.loop.time()
        if self.start is None:
            self.start = Location(fragment.group, fragment.object_id)
        whole = fragment.last and not fragment.offset
        if not whole and fragment.end <= MAX_OBJECT_BYTES:
            self._open += fragment.data
        if not fragment.last:
            return
        place = Location(fragment.group, fragment.object_id)
        payload = bytes(fragment.data if whole else self._open)
        self._open.clear()
        if self._order is None:
            self.position = after(place)
        if fragment.end > MAX_OBJECT_BYTES:
            log.warning("an object of %d bytes is not taken", fragment.end)
        else:
            self._put(Object(place.group, place.object, payload))

    def _datagram(self, datagram: Datagram) -> None:
        order, fragment, terms = self._order, datagram.fragment, datagram.terms
        if order is None:
            return
        self.heard_at = self.channel.loop.time()
        if not fragment.object_id and not fragment.offset:
            order.sized(fragment.group - 1, terms.objects_before)
        try:
            _, payload = self._pieces.add(fragment)
        except QuicrViolation as problem:
            log.info("object %d, %d: %s", fragment.group, fragment.object_id, problem)
            return
        if payload is not None:
            priority = moqt_priority(terms.priority)
            place = fragment.group, fragment.object_id
            self._put(Object(*place, payload, subgroup=None, priority=priority))

    def _put(self, item: Object) -> None:
        """An object is whole."""
        order, passing = self._order, [item]
        if order is not None:
            held = order.add(item.location, item if self._ordered else None, self._now)
            if held and self._ordered:
                self._kept += item.cost
                passing = []
        if passing:
            self._pass(passing)
        self._consumer.buffer.put(item.cost)
        if order is not None:
            self._advance()

    # -- order -------------------------------------------------------------------------------------

    @property
    def _now(self) -> float:
        return self.channel.loop.time()

    def _advance(self) -> None:
        order = self._order
        if order is None or self._concluded:
            return
        self._release(list(order.advance(self._now)))
        if order.is_complete(self._now):
            self.conclude(Ended())
            return
        self._cancel_timer()
        deadline = order.deadline
        if deadline is not None:
            self._timer = self.channel.loop.call_at(deadline, self._advance)

    def hurry(self) -> None:
        """The consumer waits and much is kept here: wait no longer."""
        if self._order is not None:
            self._release(list(self._order.force(self._now)))

    def _release(self, items: list[Object]) -> None:
        order = self._order
        if order is None or order.position is None:
            return
        self._kept -= sum(item.cost for item in items)
        moved = order.start != self.start or order.position != self.position
        self.start, self.position = order.start, order.position
        if items or moved:
            self._consumer.objects(self, items)

    def _pass(self, items: list[Object]) -> None:
        if self._order is not None and self._order.position is not None:
            self.start, self.position = self._order.start, self._order.position
        self._consumer.objects(self, items)

    # -- its end -----------------------------------------------------------------------------------

    def conclude(self, outcome: Outcome) -> None:
        """Nothing more comes of it: what waits here for something else waits in vain."""
        if self._concluded:
            return
        self._concluded = True
        if self._order is not None:
            self._release(list(self._order.flush()))
        super().conclude(outcome)

    def close(self) -> None:
        """Nothing more is wanted of it."""
        if self not in self.channel.feeds:
            return
        self.channel.feeds.discard(self)
        self._cancel_timer()
        if self._datagram_id is not None:
            self.channel.media.pop(self._datagram_id, None)
        self._consumer.buffer.take(self._kept)
        self._kept = 0
        super().close()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
