"""What a client publishes: its streams of objects, and its datagrams.

A stream is read up to its header, which names the track by an alias of the client's own. From then
on its bytes are a stream of draft 16 under the alias that every relay gives the track: those of
draft 16 as they come, those of draft 14 translated. A stream may come ahead of the message that
explains its alias, and waits for that, for a while and up to a bound.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.wire.buffer import Incomplete, decode_varint
from laps.wire.moqt.codes import ResetCode
from laps.wire.moqt.data import (
    FetchHeader,
    SubgroupHeader,
    decode_datagram,
    decode_stream_header,
    encode_datagram,
    encode_subgroup_header,
    realias_datagram,
)
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.messages import DEFAULT_PRIORITY
from laps.wire.moqt.translate import StreamTranslator, needs_translation, translate_datagram

if TYPE_CHECKING:
    from laps.edge.moqt import MoqtClient
    from laps.tracks.track import LiveTrack
    from laps.types import AnnounceInfo, Location
    from laps.wire.moqt.messages import PublishDone, RequestError


# As many as a frame of video, or a second of audio, is cut into.
EARLY_DATAGRAMS: Final = 64


@dataclass(slots=True)
class ClientCounters:
    """What clients did that came to nothing, for the operator."""

    unknown_streams: int = 0
    "Data streams for an alias that nobody explained in time."
    unknown_datagrams: int = 0
    refused_requests: int = 0
    violations: int = 0
    "Sessions that were closed because of what the client did."
    malformed_streams: int = 0
    broken_streams: int = 0
    "Streams that ended in the middle of an object."


@dataclass(slots=True, eq=False)
class Source:
    """A track that a client publishes to us, by its PUBLISH or by our SUBSCRIBE."""

    track: LiveTrack
    request_id: int
    published: bool
    "By PUBLISH: it sends without being asked."
    alias: int | None = None
    answered: bool = False
    refused: RequestError | None = None
    streams: int = 0
    "How many it has opened,"
    open: int = 0
    "and how many of them are."
    done: PublishDone | None = None
    priority: int = DEFAULT_PRIORITY
    ttl_us: int = 0
    lazy: bool = False
    "It sends by PUBLISH, and only while it is told to."
    forward: bool = True
    "Whether it is."
    kept: AnnounceInfo | None = None
    "What stands for it in the relay's tables, now that its namespace is done."
    new_group: tuple[int, int] | None = None
    "The last new group we asked for, and the largest there was then."

    @property
    def established(self) -> bool:
        """Whether objects may come."""
        return self.answered and self.refused is None and self.done is None

    def new_group_wanted(self, value: int, largest: Location | None) -> bool:
        """Whether to ask for a new group: not again before there is one."""
        at = -1 if largest is None else largest.group
        asked, self.new_group = self.new_group, (value, at)
        return asked is None or asked[0] < value or asked[1] < at


@dataclass(slots=True)
class _Inflow:
    """A stream of objects on its way in."""

    source: Source
    priority: int
    translator: StreamTranslator | None


@dataclass(slots=True)
class _Held:
    """A stream whose header, or whose track, is not known yet."""

    since: float
    data: bytes = b""
    fin: bool = False
    alias: int | None = None


class Inflows:
    """The streams that one client writes."""

    def __init__(self, client: MoqtClient) -> None:
        self._client = client
        self._edge = client.edge
        self._inflows: dict[int, _Inflow] = {}
        self._early: deque[tuple[float, int, bytes]] = deque(maxlen=EARLY_DATAGRAMS)
        "Datagrams for aliases that are not known, the oldest first."
        self._held: dict[int, _Held] = {}
        self._held_bytes = 0
        self._fetching: dict[int, int] = {}
        "Streams that answer our own FETCHes: their request ids."
        self._stopped: set[int] = set()
        "Streams that are not wanted, of which more may be on its way."

    def receive(self, stream_id: int, data: bytes, fin: bool, now: float) -> None:
        """Bytes of a stream."""
        inflow = self._inflows.get(stream_id)
        if inflow is not None:
            self._flow(stream_id, inflow, data, fin, now)
        elif stream_id in self._stopped:
            if fin:
                self._stopped.discard(stream_id)
        elif stream_id in self._fetching:
            self._fetched(stream_id, data, fin, now)
        else:
            self._begin(stream_id, data, fin, now)

    def reset(self, stream_id: int, code: int, now: float) -> None:
        """The client gave a stream up."""
        self._stopped.discard(stream_id)
        self._drop_held(stream_id)
        inflow = self._inflows.pop(stream_id, None)
        if inflow is not None:
            self._edge.relay.publish_reset(self._client, stream_id, code, now)
            self._stream_over(inflow.source, now)
        elif (request_id := self._fetching.pop(stream_id, None)) is not None:
            self._edge.fetches.errands.reset(self._client, request_id, now)

    def datagram(self, data: bytes, now: float) -> None:
        """An object in a datagram."""
        dialect = self._client.session.dialect
        if not self._client.session.ready:
            self._edge.counters.unknown_datagrams += 1
            return
        item = decode_datagram(data, dialect)
        source = self._source_of(item.alias)
        if source is None:
            # It may have overtaken the message that explains its alias.
            self._edge.counters.unknown_datagrams += len(self._early) == EARLY_DATAGRAMS
            self._early.append((now, item.alias, data))
            self._edge.holding.add(self._client)
            return
        track = source.track
        translated: bytes | None
        if dialect is DRAFT16 and item.priority is not None:
            translated = realias_datagram(data, track.alias)
        elif dialect is DRAFT16:
            item.alias, item.priority = track.alias, source.priority
            translated = encode_datagram(item, DRAFT16)
        else:
            translated = translate_datagram(data, dialect, DRAFT16, track.alias, source.priority)
        if translated is not None:
            priority = source.priority if item.priority is None else item.priority
            self._edge.relay.publish_datagram(self._client, track.hash, translated, priority, now)

    def expire(self, now: float) -> None:
        """Give up what nobody has explained in time."""
        wait = self._edge.settings.hold_s
        while self._early and self._early[0][0] + wait <= now:
            self._early.popleft()
            self._edge.counters.unknown_datagrams += 1
        for stream_id, held in list(self._held.items()):
            if held.since + wait <= now:
                self._give_up(stream_id, held)

    @property
    def holding(self) -> bool:
        """Whether anything waits for an explanation."""
        return bool(self._held or self._early)

    def _source_of(self, alias: int) -> Source | None:
        request_id = self._client.session.aliases.get(alias)
        return None if request_id is None else self._client.sources.get(request_id)

    def _begin(self, stream_id: int, data: bytes, fin: bool, now: float) -> None:
        held = self._held.get(stream_id)
        if held is not None:
            data = held.data + data
            fin = fin or held.fin
        if not self._client.session.ready:
            self._hold(stream_id, data, fin, None, now)
            return
        try:
            header, length = decode_stream_header(data, self._client.session.dialect)
            if isinstance(header, SubgroupHeader) and header.subgroup is None:
                # The first object names the subgroup, and may be one that draft 16 leaves out.
                header.subgroup, _ = decode_varint(data, length)
        except Incomplete:
            if fin:
                self._drop_held(stream_id)
                self._edge.counters.broken_streams += 1
            else:
                self._hold(stream_id, data, fin, None, now)
            return
        if isinstance(header, FetchHeader):
            self._drop_held(stream_id)
            self._fetching[stream_id] = header.request_id
            self._fetched(stream_id, data[length:], fin, now)
            return
        source = self._source_of(header.alias)
        if source is None:
            self._hold(stream_id, data, fin, header.alias, now)
            return
        self._drop_held(stream_id)
        self._begin_of(source, stream_id, header, data[length:], fin, now)

    def _begin_of(
        self,
        source: Source,
        stream_id: int,
        header: SubgroupHeader,
        data: bytes | memoryview,
        fin: bool,
        now: float,
    ) -> None:
        """A stream of a known track: from here on it is draft 16's, under the track's own alias."""
        source.streams += 1
        source.open += 1
        dialect = self._client.session.dialect
        header.alias = source.track.alias
        if header.priority is None:
            header.priority = source.priority
        translator = None
        if needs_translation(dialect, DRAFT16, header.has_extensions):
            translator = StreamTranslator(dialect, DRAFT16, header.has_extensions)
        inflow = self._inflows[stream_id] = _Inflow(source, header.priority, translator)
        if translator is not None:
            data = translator.feed(data)
        data = encode_subgroup_header(header, DRAFT16) + bytes(data)
        self._pass(stream_id, inflow, data, fin, now)

    def _flow(
        self, stream_id: int, inflow: _Inflow, data: bytes | memoryview, fin: bool, now: float
    ) -> None:
        if inflow.translator is not None:
            data = inflow.translator.feed(data)
        self._pass(stream_id, inflow, data, fin, now)

    def _pass(
        self, stream_id: int, inflow: _Inflow, data: bytes | memoryview, fin: bool, now: float
    ) -> None:
        source = inflow.source
        self._edge.relay.publish(
            self._client,
            source.track.hash,
            stream_id,
            data,
            fin,
            inflow.priority,
            source.ttl_us,
            now,
        )
        if fin:
            del self._inflows[stream_id]
            self._stream_over(source, now)

    def _stream_over(self, source: Source, now: float) -> None:
        source.open -= 1
        if source.done is not None:
            self._client.maybe_over(source, now)

    def _fetched(self, stream_id: int, data: bytes, fin: bool, now: float) -> None:
        request_id = self._fetching[stream_id]
        if fin:
            del self._fetching[stream_id]
        if (
            not self._edge.fetches.errands.receive(self._client, request_id, data, fin, now)
            and not fin
        ):
            del self._fetching[stream_id]
            self._stop(stream_id)

    def _hold(self, stream_id: int, data: bytes, fin: bool, alias: int | None, now: float) -> None:
        held = self._held.get(stream_id)
        if held is None:
            held = self._held[stream_id] = _Held(now)
            self._edge.holding.add(self._client)
        self._held_bytes += len(data) - len(held.data)
        held.data, held.fin, held.alias = data, fin, alias
        if self._held_bytes > self._edge.settings.hold_bytes:
            self._give_up(stream_id, held)

    def _give_up(self, stream_id: int, held: _Held) -> None:
        """Nobody has explained a stream, or there is too much of it."""
        self._drop_held(stream_id)
        self._edge.counters.unknown_streams += 1
        if not held.fin:
            self._stop(stream_id)

    def _stop(self, stream_id: int) -> None:
        self._stopped.add(stream_id)
        self._client.link.stop_stream(stream_id, ResetCode.CANCELLED)

    def _drop_held(self, stream_id: int) -> None:
        held = self._held.pop(stream_id, None)
        if held is not None:
            self._held_bytes -= len(held.data)

    def release(self, alias: int | None, now: float) -> None:
        """An alias, or the setup, is there: what waited for it goes on."""
        early = list(self._early)
        self._early.clear()
        for since, wanted, data in early:
            if wanted == alias:
                self.datagram(data, now)
            else:
                self._early.append((since, wanted, data))
        for stream_id, held in list(self._held.items()):
            if alias is None or held.alias == alias:
                self._begin(stream_id, b"", held.fin, now)
