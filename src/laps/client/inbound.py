"""Objects that arrive on a channel: whose they are, and streams whose owner is not known yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.client.inflows import FetchInflow, Inflow
from laps.wire.buffer import Incomplete
from laps.wire.moqt.codes import ResetCode
from laps.wire.moqt.data import (
    FetchHeader,
    ObjectStatus,
    decode_datagram,
    decode_stream_header,
)
from laps.wire.moqt.fetch import FetchReader
from laps.wire.moqt.objects import Object, ObjectReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.client.channel import Channel
    from laps.wire.moqt.messages import PublishDone

# Streams may overtake the message that says what they are: so much of them waits for it,
HOLD_BYTES: Final = 4 * 1024 * 1024
# and so long.
HOLD_S: Final = 2.0
# The same of datagrams, which are forgotten with the next tick, within a second.
HOLD_DATAGRAMS: Final = 64


@dataclass(slots=True)
class _Reading:
    """A stream of objects that is being read."""

    owner: Inflow | FetchInflow
    reader: ObjectReader | FetchReader
    group: int = 0
    ends_group: bool = False
    "The last object of the group is the last of the stream."


@dataclass(slots=True)
class _Held:
    """A stream whose header, or whose track, is not known yet."""

    since: float
    data: bytes = b""
    fin: bool = False
    alias: int | None = None


class Inbound:
    """What a channel receives."""

    def __init__(self, channel: Channel, first_stream: int | None) -> None:
        """`first_stream` is where the other side begins to count; None if that is not known."""
        self.channel = channel
        self.inflows: dict[int, Inflow] = {}
        self.fetches: dict[int, FetchInflow] = {}
        self.dropped_aliases: set[int] = set()
        "Of subscriptions that are over: what still comes is not held for anybody."
        self.pool = channel.pool
        self.unknown_streams = 0
        "Streams that nobody has explained in time."
        self.unknown_datagrams = 0
        self.on_arrival: dict[object, Callable[[], None]] = {}
        "Called when a stream has come that others had overtaken."
        self._streams: dict[int, _Reading] = {}
        self._ignored: set[int] = set()
        self._held: dict[int, _Held] = {}
        self._held_bytes = 0
        self._early: list[tuple[int, bytes]] = []
        "Datagrams that came ahead of what explains them."
        self._next_stream = first_stream
        self._missing: set[int] = set()

    # -- who is missing ----------------------------------------------------------------------------

    def is_clear(self, stream_id: int) -> bool:
        """Whether every stream that was opened ahead of this one has come."""
        return not self._missing or all(missing >= stream_id for missing in self._missing)

    def give_up_missing(self, stream_id: int) -> None:
        """Those ahead of this one have had their time."""
        self._missing = {missing for missing in self._missing if missing >= stream_id}

    def _noticed(self, stream_id: int) -> None:
        """A stream is there; what it is may take more of it to know."""
        if self._next_stream is None:
            self._next_stream = stream_id
        if stream_id >= self._next_stream:
            self._missing.update(range(self._next_stream, stream_id + 4, 4))
            self._next_stream = stream_id + 4

    def _arrived(self, stream_id: int) -> None:
        """It is known what a stream is, and whoever it concerns has been told."""
        if stream_id in self._missing:
            self._missing.discard(stream_id)
            if self._next_stream != stream_id + 4:  # others have overtaken it
                for call in list(self.on_arrival.values()):
                    call()

    # -- bytes -------------------------------------------------------------------------------------

    def receive(self, stream_id: int, data: bytes, fin: bool) -> None:
        """Bytes of a unidirectional stream."""
        reading = self._streams.get(stream_id)
        if reading is not None:
            self._read(stream_id, reading, data, fin)
        elif stream_id in self._ignored:
            if fin:
                self._ignored.discard(stream_id)
        else:
            self._begin(stream_id, data, fin)

    def reset(self, stream_id: int) -> None:
        """A stream was given up."""
        self._ignored.discard(stream_id)
        self._drop_held(stream_id)
        reading = self._streams.pop(stream_id, None)
        if reading is not None:
            self._over(reading, complete=False)
        else:
            self._noticed(stream_id)
            self._arrived(stream_id)

    def datagram(self, data: bytes) -> None:
        """An object in a datagram."""
        if not self.channel.session.ready:
            self.unknown_datagrams += 1
            return
        item = decode_datagram(data, self.channel.dialect)
        inflow = self._inflow_of(item.alias)
        if inflow is None:
            if item.alias not in self.dropped_aliases and len(self._early) < HOLD_DATAGRAMS:
                self._early.append((item.alias, data))
            else:
                self.unknown_datagrams += 1
            return
        inflow.sink.objects(
            [
                Object(
                    item.group,
                    None,
                    item.object_id,
                    item.priority,
                    item.status or 0,
                    item.extensions,
                    bytes(item.payload),
                    datagram=True,
                )
            ]
        )

    def _read(self, stream_id: int, reading: _Reading, data: bytes, fin: bool) -> None:
        owner = reading.owner
        items = reading.reader.feed(data)
        if items:
            if isinstance(owner, Inflow):
                if items[-1].status:  # type: ignore[union-attr]  # an ObjectReader's
                    reading.ends_group = False  # that is said already
                owner.sink.objects(items)  # type: ignore[arg-type]
            else:
                owner.sink.items(items)  # type: ignore[arg-type]  # objects are items
        if fin:
            reading.reader.finish()
            # Whoever took the objects may have ended it all.
            if self._streams.pop(stream_id, None) is not None:
                self._over(reading, complete=True)

    def _over(self, reading: _Reading, *, complete: bool) -> None:
        owner = reading.owner
        if isinstance(owner, Inflow):
            if complete and reading.ends_group:
                owner.sink.objects([_end_of_group(reading)])
            owner.open -= 1
            owner.sink.closed(reading.group)
        else:
            owner.stream_over(complete=complete)

    # -- the beginning of a stream -----------------------------------------------------------------

    def _inflow_of(self, alias: int) -> Inflow | None:
        request_id = self.channel.session.aliases.get(alias)
        return None if request_id is None else self.inflows.get(request_id)

    def _begin(self, stream_id: int, data: bytes, fin: bool) -> None:
        held = self._held.get(stream_id)
        if held is not None:
            data = held.data + data
            fin = fin or held.fin
        else:
            self._noticed(stream_id)
        if not self.channel.session.ready:
            self._hold(stream_id, data, fin, None)
            return
        try:
            header, length = decode_stream_header(data, self.channel.dialect)
        except Incomplete:
            self._hold(stream_id, data, fin, None)
            return
        if isinstance(header, FetchHeader):
            fetch = self.fetches.get(header.request_id)
            if fetch is None:
                self._ignore(stream_id, fin)
                return
            reading = _Reading(fetch, FetchReader(self.channel.dialect))
        else:
            inflow = self._inflow_of(header.alias)
            if inflow is None:
                if header.alias in self.dropped_aliases:
                    self._ignore(stream_id, fin)
                else:
                    self._hold(stream_id, data, fin, header.alias)
                return
            reader = ObjectReader(header, self.channel.dialect)
            reading = _Reading(inflow, reader, header.group, header.end_of_group)
            inflow.streams += 1
            inflow.open += 1
            inflow.sink.opened(header.group, stream_id)
        self._drop_held(stream_id)
        self._streams[stream_id] = reading
        self._read(stream_id, reading, data[length:], fin)
        self._arrived(stream_id)

    def _hold(self, stream_id: int, data: bytes, fin: bool, alias: int | None) -> None:
        held = self._held.get(stream_id)
        if held is None:
            held = self._held[stream_id] = _Held(self.channel.loop.time())
        self._held_bytes += len(data) - len(held.data)
        held.data, held.fin, held.alias = data, fin, alias
        if alias is not None:
            self._arrived(stream_id)  # nobody who reads already waits for it
        if self._held_bytes > HOLD_BYTES:
            self.unknown_streams += 1
            self._ignore(stream_id, fin)

    def _drop_held(self, stream_id: int) -> None:
        held = self._held.pop(stream_id, None)
        if held is not None:
            self._held_bytes -= len(held.data)

    def _ignore(self, stream_id: int, fin: bool) -> None:
        self._drop_held(stream_id)
        self._arrived(stream_id)
        if not fin:
            self._ignored.add(stream_id)
            if self.channel.transport.established:
                self.channel.transport.stop_stream(stream_id, ResetCode.CANCELLED)

    def release(self, alias: int | None) -> None:
        """An alias, or the setup, is there: what waited for it goes on."""
        for stream_id, held in sorted(self._held.items()):
            if alias is None or held.alias == alias:
                self._begin(stream_id, b"", held.fin)
        early, self._early = self._early, []
        for wanted, data in early:
            if alias == wanted:
                self.datagram(data)
            else:
                self._early.append((wanted, data))

    def expire(self) -> None:
        """Give up streams that nobody has explained in time."""
        now = self.channel.loop.time()
        self.unknown_datagrams += len(self._early)
        self._early.clear()
        for stream_id, held in list(self._held.items()):
            if held.since + HOLD_S <= now:
                self.unknown_streams += 1
                self._ignore(stream_id, held.fin)

    # -- the end -----------------------------------------------------------------------------------

    def done(self, message: PublishDone) -> None:
        """The relay ends a subscription."""
        inflow = self.inflows.get(message.request_id)
        if inflow is not None:
            inflow.sink.done(message)

    def abandon(self, owner: Inflow | FetchInflow) -> None:
        """Read no more of the streams of a subscription or a fetch."""
        for stream_id, reading in list(self._streams.items()):
            if reading.owner is owner:
                del self._streams[stream_id]
                self._ignore(stream_id, fin=False)

    def closed(self) -> None:
        """The connection is over."""
        self._streams.clear()
        self._held.clear()
        inflows, self.inflows = self.inflows, {}
        fetches, self.fetches = self.fetches, {}
        for inflow in inflows.values():
            inflow.sink.lost()
        for fetch in fetches.values():
            fetch.sink.ended(False)

    def review(self) -> None:
        """Somebody waits for an answer, or no longer: read on, if that was what stopped it."""
        self.pool.changed()


def _end_of_group(reading: _Reading) -> Object:
    """What the header of a stream has said, told where it is so."""
    reader = reading.reader
    assert isinstance(reader, ObjectReader)  # noqa: S101 - a fetch ends no group
    return Object(reading.group, 0, reader.next_id, None, ObjectStatus.END_OF_GROUP)
