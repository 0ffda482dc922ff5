"""The objects that one MoQT session receives: whose each stream and each datagram is.

A stream of objects names its track by an alias, and QUIC keeps no order between streams: it may
arrive before the message that explains the alias. Such a stream is held, up to a time and a size,
and so are datagrams.

Whoever runs the session looks up the streams that it reads already, which costs one look-up for
each chunk, and asks about the others:

    reading = objects.reading.get(stream_id)
    if reading is not None:
        ...                                              # the bytes follow those before
    else:
        perform(objects.receive(stream_id, data, fin, now))

What it learns comes back as a value. On `StreamBegan` it enters its own state for the stream into
`reading`, and removes it when the stream has ended.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from laps.wire.buffer import Incomplete, decode_varint
from laps.wire.moqt.codes import ResetCode
from laps.wire.moqt.data import FetchHeader, SubgroupHeader, decode_datagram, decode_stream_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from laps.sessions.moqt import MoqtSession
    from laps.wire.moqt.data import DatagramObject

# As many as a frame of video, or a second of audio, is cut into.
EARLY_DATAGRAMS: Final = 64

Owner = TypeVar("Owner")
Reading = TypeVar("Reading")


@dataclass(frozen=True, slots=True)
class HoldLimits:
    """What may wait for the message that explains it, in one session."""

    seconds: float
    "How long a stream or a datagram waits."
    stream_bytes: int
    "How much of all streams together waits."


class Counters(Protocol):
    """What came to nothing."""

    unknown_streams: int
    "Streams under an alias that nobody explained in time, or beyond the bound."
    unknown_datagrams: int
    "Datagrams under an alias that nobody explained in time, or beyond the bound."
    broken_streams: int
    "Streams that ended inside their header."


# --- what is found ---------------------------------------------------------------------------

# One of these is made for each stream or datagram, not for each chunk of a subgroup's stream.


@dataclass(slots=True)
class StreamBegan(Generic[Owner]):
    """A stream of a subgroup whose track is known."""

    stream_id: int
    header: SubgroupHeader
    owner: Owner
    data: bytes
    "What follows the header."
    fin: bool


@dataclass(slots=True)
class FetchBytes:
    """Bytes of a stream that answers a FETCH, after its header."""

    stream_id: int
    request_id: int
    data: bytes
    fin: bool


@dataclass(slots=True)
class StreamWaits:
    """A stream of a subgroup is held until its alias is explained."""

    stream_id: int


@dataclass(slots=True)
class StreamDropped:
    """A stream has ended, and nobody reads it."""

    stream_id: int


@dataclass(slots=True)
class Stop:
    """A stream that is not wanted: the sender is to be asked to stop."""

    stream_id: int
    code: int = ResetCode.CANCELLED


@dataclass(slots=True)
class ObjectDatagram(Generic[Owner]):
    """A datagram whose track is known."""

    item: DatagramObject
    owner: Owner
    data: bytes
    "The whole datagram."


@dataclass(slots=True)
class StreamReset(Generic[Reading]):
    """A stream that was being read was reset."""

    reading: Reading


@dataclass(slots=True)
class FetchReset:
    """The stream that answers a FETCH was reset."""

    request_id: int


StreamEvent = StreamBegan[Owner] | FetchBytes | StreamWaits | StreamDropped | Stop


# --- streams and datagrams -------------------------------------------------------------------


@dataclass(slots=True)
class _Held:
    """A stream whose header, or whose track, is not known yet."""

    since: float
    data: bytearray
    fin: bool
    alias: int | None = None


class ObjectStreams(Generic[Owner, Reading]):
    """The unidirectional streams and the datagrams that one session receives."""

    def __init__(
        self,
        session: MoqtSession,
        owners: Mapping[int, Owner],
        counters: Counters,
        limits: HoldLimits,
        *,
        needs_subgroup: bool = False,
    ) -> None:
        """`owners` says whose the objects of a request are, by request id, and changes with time.

        With `needs_subgroup` a stream begins when its subgroup is known, which may take the id of
        its first object; otherwise with its header.
        """
        self.reading: dict[int, Reading] = {}
        "What the owner of the session keeps for each stream that it reads."
        self.dropped_aliases: set[int] = set()
        "Aliases of closed subscriptions: what still arrives is not held for anybody."
        self.awaited: set[int] = set()
        "Aliases of requests that are not decided on: what arrives is held until they are."
        self._session = session
        self._owners = owners
        self._counters = counters
        self._limits = limits
        self._needs_subgroup = needs_subgroup
        self._fetching: dict[int, int] = {}
        "Streams that answer FETCHes of ours: their request ids."
        self._stopped: set[int] = set()
        "Streams that are not wanted, of which more may be on its way."
        self._held: dict[int, _Held] = {}
        self._held_bytes = 0
        self._early: deque[tuple[float, int, bytes]] = deque(maxlen=EARLY_DATAGRAMS)
        "Datagrams under aliases that are not known, the oldest first."

    @property
    def holding(self) -> bool:
        """Whether anything waits for an explanation."""
        return bool(self._held or self._early)

    def receive(
        self, stream_id: int, data: bytes, fin: bool, now: float
    ) -> StreamEvent[Owner] | None:
        """Bytes of a stream that is not in `reading`; None while it is not known what it is."""
        request_id = self._fetching.get(stream_id)
        if request_id is not None:
            if fin:
                del self._fetching[stream_id]
            return FetchBytes(stream_id, request_id, data, fin)
        if stream_id in self._stopped:
            if fin:
                self._stopped.discard(stream_id)
            return None
        held = self._held.get(stream_id)
        if held is None:
            return self._begin(stream_id, data, fin, now)
        held.data += data
        held.fin = held.fin or fin
        self._held_bytes += len(data)
        if held.alias is None or self._is_explained(held.alias):
            return self._begin_held(stream_id, held)
        return self._check_bound(stream_id, held)

    def reset(self, stream_id: int) -> StreamReset[Reading] | FetchReset | None:
        """The other side gave a stream up; None if nobody was reading it."""
        self._stopped.discard(stream_id)
        self._drop_held(stream_id)
        reading = self.reading.pop(stream_id, None)
        if reading is not None:
            return StreamReset(reading)
        request_id = self._fetching.pop(stream_id, None)
        return None if request_id is None else FetchReset(request_id)

    def datagram(self, data: bytes, now: float) -> ObjectDatagram[Owner] | None:
        """An object in a datagram; None if it waits, or is lost."""
        if not self._session.ready:
            self._counters.unknown_datagrams += 1
            return None
        item = decode_datagram(data, self._session.dialect)
        owner = self._owner_of(item.alias)
        if owner is not None:
            return ObjectDatagram(item, owner, data)
        if item.alias in self.dropped_aliases:
            self._counters.unknown_datagrams += 1
        else:
            self._counters.unknown_datagrams += len(self._early) == EARLY_DATAGRAMS
            self._early.append((now, item.alias, data))
        return None

    def stop(self, stream_id: int) -> Stop:
        """Read no more of a stream, whatever it is."""
        self.reading.pop(stream_id, None)
        self._fetching.pop(stream_id, None)
        self._stopped.add(stream_id)
        return Stop(stream_id)

    def stop_fetch(self, request_id: int) -> list[Stop]:
        """Read no more of what answers a FETCH."""
        streams = [stream for stream, asked in self._fetching.items() if asked == request_id]
        return [self.stop(stream_id) for stream_id in streams]

    def release(
        self, alias: int | None, now: float
    ) -> Iterator[StreamEvent[Owner] | ObjectDatagram[Owner]]:
        """An alias, or with None the setup, is known: what waited for it goes on.

        Act on each event before taking the next, which may depend on it.
        """
        self.awaited.discard(-1 if alias is None else alias)
        for stream_id in sorted(self._held):
            held = self._held.get(stream_id)
            if held is not None and (alias is None or held.alias == alias):
                event = self._begin_held(stream_id, held)
                if event is not None:
                    yield event
        early = list(self._early)
        self._early.clear()
        for since, wanted, data in early:
            if wanted != alias:
                self._early.append((since, wanted, data))
            elif (found := self.datagram(data, now)) is not None:
                yield found

    def expire(self, now: float) -> list[StreamDropped | Stop]:
        """Give up what nobody has explained in time."""
        before = now - self._limits.seconds
        self._lose(lambda since, alias: since <= before and alias not in self.awaited)
        late = [item for item in self._held.items() if item[1].since <= before]
        return [self._give_up(*item) for item in late if item[1].alias not in self.awaited]

    def flush(self, alias: int) -> list[StreamDropped | Stop]:
        """Nobody may have what came under an alias: give it up."""
        self.awaited.discard(alias)
        self._lose(lambda _, other: other == alias)
        held = [item for item in self._held.items() if item[1].alias == alias]
        return [self._give_up(stream_id, held) for stream_id, held in held]

    def _lose(self, is_lost: Callable[[float, int], bool]) -> None:
        """Drop datagrams that wait, by when they came and their alias."""
        left = [item for item in self._early if not is_lost(item[0], item[1])]
        self._counters.unknown_datagrams += len(self._early) - len(left)
        self._early = deque(left, maxlen=EARLY_DATAGRAMS)

    def clear(self) -> None:
        """The session has closed."""
        self.reading.clear()
        self._fetching.clear()
        self._held.clear()
        self._held_bytes = 0
        self._early.clear()

    # -- the beginning of a stream -----------------------------------------------------------------

    def _owner_of(self, alias: int) -> Owner | None:
        request_id = self._session.aliases.get(alias)
        return None if request_id is None else self._owners.get(request_id)

    def _is_explained(self, alias: int) -> bool:
        return alias in self.dropped_aliases or self._owner_of(alias) is not None

    def _begin(
        self, stream_id: int, data: bytes, fin: bool, since: float
    ) -> StreamEvent[Owner] | None:
        if not self._session.ready:
            return self._hold(stream_id, data, fin, since, None)
        try:
            header, length = decode_stream_header(data, self._session.dialect)
            if isinstance(header, FetchHeader):
                if not fin:
                    self._fetching[stream_id] = header.request_id
                return FetchBytes(stream_id, header.request_id, data[length:], fin)
            if header.subgroup is None and self._needs_subgroup:
                header.subgroup, _ = decode_varint(data, length)
        except Incomplete:
            if fin:
                self._counters.broken_streams += 1
                return StreamDropped(stream_id)
            return self._hold(stream_id, data, fin, since, None)
        owner = self._owner_of(header.alias)
        if owner is not None:
            return StreamBegan(stream_id, header, owner, data[length:], fin)
        if header.alias in self.dropped_aliases:
            return self._unwanted(stream_id, fin)
        return self._hold(stream_id, data, fin, since, header.alias)

    def _begin_held(self, stream_id: int, held: _Held) -> StreamEvent[Owner] | None:
        self._drop_held(stream_id)
        return self._begin(stream_id, bytes(held.data), held.fin, held.since)

    def _unwanted(self, stream_id: int, fin: bool) -> StreamDropped | Stop:
        return StreamDropped(stream_id) if fin else self.stop(stream_id)

    # -- streams that wait -------------------------------------------------------------------------

    def _hold(
        self, stream_id: int, data: bytes, fin: bool, since: float, alias: int | None
    ) -> StreamWaits | StreamDropped | Stop | None:
        held = self._held[stream_id] = _Held(since, bytearray(data), fin, alias)
        self._held_bytes += len(data)
        return self._check_bound(stream_id, held)

    def _check_bound(
        self, stream_id: int, held: _Held
    ) -> StreamWaits | StreamDropped | Stop | None:
        if self._held_bytes > self._limits.stream_bytes:
            return self._give_up(stream_id, held)
        return None if held.alias is None else StreamWaits(stream_id)

    def _give_up(self, stream_id: int, held: _Held) -> StreamDropped | Stop:
        self._drop_held(stream_id)
        self._counters.unknown_streams += 1
        return self._unwanted(stream_id, held.fin)

    def _drop_held(self, stream_id: int) -> None:
        held = self._held.pop(stream_id, None)
        if held is not None:
            self._held_bytes -= len(held.data)
