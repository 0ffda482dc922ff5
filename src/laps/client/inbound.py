"""Objects that arrive on a channel: those of subscriptions and those of fetches, read whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.errors import ObjectTooLarge
from laps.sessions.moqt_objects import (
    FetchBytes,
    FetchReset,
    HoldLimits,
    ObjectDatagram,
    ObjectStreams,
    Stop,
    StreamBegan,
    StreamReset,
)
from laps.wire.moqt.codes import ResetCode
from laps.wire.moqt.data import ObjectStatus
from laps.wire.moqt.objects import Object, ObjectReader, PayloadTooLarge, object_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.client.channel import Channel
    from laps.client.inflows import FetchInflow, Inflow
    from laps.sessions.moqt_objects import StreamEvent
    from laps.wire.moqt.messages import PublishDone

# Streams may arrive before the message that says what they are: this much of them waits for it.
HOLD_BYTES: Final = 4 * 1024 * 1024
# They wait this long, and so do datagrams.
HOLD_S: Final = 2.0


@dataclass(slots=True)
class _Reading:
    """A stream of a subscription's objects."""

    owner: Inflow
    reader: ObjectReader
    group: int
    ends_group: bool
    "The last object of the group is the last of the stream."


@dataclass(slots=True)
class InboundCounters:
    """What arrived and came to nothing."""

    unknown_streams: int = 0
    "Streams that nobody has explained in time."
    unknown_datagrams: int = 0
    "Datagrams that nobody has explained in time."
    broken_streams: int = 0
    "Streams that ended inside their header."


class Inbound:
    """What a channel receives."""

    def __init__(self, channel: Channel, first_stream: int | None) -> None:
        """`first_stream` is where the other side begins to count; None if that is not known."""
        self.channel = channel
        self.inflows: dict[int, Inflow] = {}
        self.fetches: dict[int, FetchInflow] = {}
        self.pool = channel.pool
        self.counters = InboundCounters()
        self.on_arrival: dict[object, Callable[[], None]] = {}
        "Called when a stream has come that others had overtaken."
        limits = HoldLimits(HOLD_S, HOLD_BYTES)
        self._objects: ObjectStreams[Inflow, _Reading] = ObjectStreams(
            channel.session, self.inflows, self.counters, limits
        )
        self._reading = self._objects.reading
        self._next_stream = first_stream
        self._missing: set[int] = set()

    # -- who is missing ----------------------------------------------------------------------------

    def is_clear(self, stream_id: int) -> bool:
        """Whether every stream that was opened before this one has come."""
        return not self._missing or all(missing >= stream_id for missing in self._missing)

    def give_up_missing(self, stream_id: int) -> None:
        """Those before this one have had their time."""
        self._missing = {missing for missing in self._missing if missing >= stream_id}

    def _noticed(self, stream_id: int) -> None:
        """A stream is there; what it is may take more of it to know."""
        if self._next_stream is None:
            self._next_stream = stream_id
        if stream_id >= self._next_stream:
            self._missing.update(range(self._next_stream, stream_id + 4, 4))
            self._next_stream = stream_id + 4

    def _arrived(self, stream_id: int) -> None:
        """It is known what a stream is, and its owner has it."""
        if stream_id in self._missing:
            self._missing.discard(stream_id)
            if self._next_stream != stream_id + 4:  # others have overtaken it
                for call in list(self.on_arrival.values()):
                    call()

    # -- bytes -------------------------------------------------------------------------------------

    def receive(self, stream_id: int, data: bytes, fin: bool) -> None:
        """Bytes of a unidirectional stream."""
        reading = self._reading.get(stream_id)
        if reading is not None:
            self._read(stream_id, reading, data, fin)
            return
        self._noticed(stream_id)
        event = self._objects.receive(stream_id, data, fin, self.channel.loop.time())
        if event is not None:
            self._perform(event)

    def reset(self, stream_id: int, code: int) -> None:
        """A stream was given up."""
        match self._objects.reset(stream_id):
            case StreamReset(reading):
                # The relay has lost the publisher: it, or another, may send the rest again.
                self._ended(reading, complete=False, goes_on=code == ResetCode.SESSION_CLOSED)
            case FetchReset(request_id):
                if (fetch := self.fetches.get(request_id)) is not None:
                    fetch.stream_ended(complete=False)
            case None:
                self._noticed(stream_id)
                self._arrived(stream_id)

    def datagram(self, data: bytes) -> None:
        """An object in a datagram."""
        found = self._objects.datagram(data, self.channel.loop.time())
        if found is not None:
            _pass_datagram(found)

    def release(self, alias: int | None) -> None:
        """An alias, or the setup, is there: what waited for it goes on."""
        for event in self._objects.release(alias, self.channel.loop.time()):
            if isinstance(event, ObjectDatagram):
                _pass_datagram(event)
            else:
                self._perform(event)

    def expire(self, now: float) -> None:
        """Give up streams that nobody has explained in time."""
        for event in self._objects.expire(now):
            self._perform(event)

    def drop_alias(self, alias: int) -> None:
        """A subscription is closed: what still arrives under its alias is not wanted."""
        self._objects.dropped_aliases.add(alias)

    def expect_alias(self, alias: int | None) -> None:
        """An alias, or with None every one, may stand for a subscription again."""
        if alias is None:
            self._objects.dropped_aliases.clear()
        else:
            self._objects.dropped_aliases.discard(alias)

    def _perform(self, event: StreamEvent[Inflow]) -> None:
        """Act on what a stream is found to be; others may have waited for just that."""
        if isinstance(event, StreamBegan):
            self._begin(event)
        elif isinstance(event, FetchBytes):
            self._fetched(event)
        elif isinstance(event, Stop):
            self._stop(event)
        self._arrived(event.stream_id)

    def _begin(self, event: StreamBegan[Inflow]) -> None:
        inflow, header = event.owner, event.header
        reader = ObjectReader(header, self.channel.dialect, inflow.max_object_bytes)
        reading = _Reading(inflow, reader, header.group, header.end_of_group)
        inflow.streams += 1
        inflow.open += 1
        inflow.sink.opened(header.group, event.stream_id)
        self._reading[event.stream_id] = reading
        self._read(event.stream_id, reading, event.data, event.fin)

    def _read(self, stream_id: int, reading: _Reading, data: bytes, fin: bool) -> None:
        try:
            items = reading.reader.feed(data)
        except PayloadTooLarge as error:
            reading.owner.sink.failed(ObjectTooLarge(f"{error}: max_object_bytes"))
            return
        if items:
            if items[-1].status:
                reading.ends_group = False  # that object has said so
            reading.owner.sink.objects(items)
        if fin:
            reading.reader.finish()
            # Whoever took the objects may have closed the subscription.
            if self._reading.pop(stream_id, None) is not None:
                self._ended(reading, complete=True)

    def _ended(self, reading: _Reading, *, complete: bool, goes_on: bool = False) -> None:
        owner = reading.owner
        if complete and reading.ends_group:
            owner.sink.objects([_end_of_group(reading)])
        owner.open -= 1
        subgroup = reading.reader.subgroup
        owner.sink.closed(reading.group, subgroup, complete=complete, goes_on=goes_on)

    def _fetched(self, event: FetchBytes) -> None:
        fetch = self.fetches.get(event.request_id)
        if fetch is not None:
            fetch.receive(event.data, event.fin)
        elif not event.fin:
            self._stop(self._objects.stop(event.stream_id))

    def _stop(self, event: Stop) -> None:
        if self.channel.transport.established:
            self.channel.transport.stop_stream(event.stream_id, event.code)

    # -- the end -----------------------------------------------------------------------------------

    def done(self, message: PublishDone) -> None:
        """The relay ends a subscription."""
        inflow = self.inflows.get(message.request_id)
        if inflow is not None:
            inflow.sink.done(message)

    def abandon(self, owner: Inflow) -> None:
        """Read no more of the streams of a subscription."""
        streams = [key for key, reading in self._reading.items() if reading.owner is owner]
        for stream_id in streams:
            self._stop(self._objects.stop(stream_id))

    def abandon_fetch(self, request_id: int) -> None:
        """Read no more of what answers a fetch."""
        for event in self._objects.stop_fetch(request_id):
            self._stop(event)

    def closed(self) -> None:
        """The connection is closed."""
        self._objects.clear()
        inflows, fetches = list(self.inflows.values()), list(self.fetches.values())
        self.inflows.clear()
        self.fetches.clear()
        for inflow in inflows:
            inflow.sink.lost()
        for fetch in fetches:
            fetch.sink.ended(False)

    def review(self) -> None:
        """Somebody waits for an answer, or no longer: read on, if that was what stopped it."""
        self.pool.changed()


def _pass_datagram(event: ObjectDatagram[Inflow]) -> None:
    event.owner.sink.objects([object_in(event.item)])


def _end_of_group(reading: _Reading) -> Object:
    """What the header of a stream has said, as an object of its own."""
    subgroup, next_id = reading.reader.subgroup or 0, reading.reader.next_id
    return Object(reading.group, subgroup, next_id, None, ObjectStatus.END_OF_GROUP)
