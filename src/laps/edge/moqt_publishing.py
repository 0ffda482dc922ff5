"""What a client publishes: its streams of objects, and its datagrams.

A stream names its track by an alias of the client's own (`sessions.moqt_objects`). From its header
on its bytes are a stream of draft 16 under the alias that every relay gives the track: those of
draft 16 as they come, those of draft 14 translated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from laps.wire.moqt.data import encode_subgroup_header
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.messages import DEFAULT_PRIORITY
from laps.wire.moqt.translate import (
    StreamTranslator,
    encode_translated,
    needs_translation,
    translate_datagram,
)

if TYPE_CHECKING:
    from laps.edge.moqt import MoqtClient
    from laps.sessions.moqt_objects import StreamEvent
    from laps.tracks.track import LiveTrack
    from laps.types import AnnounceInfo, Location
    from laps.wire.moqt.messages import PublishDone, RequestError


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


class Inflows:
    """The streams that one client writes."""

    def __init__(self, client: MoqtClient) -> None:
        self._client = client
        self._edge = edge = client.edge
        limits = HoldLimits(edge.settings.hold_s, edge.settings.hold_bytes)
        # Relays name the subgroup of every stream: the first object, which may have its id, may be
        # one that they leave out.
        self._objects: ObjectStreams[Source, _Inflow] = ObjectStreams(
            client.session, client.sources, edge.counters, limits, needs_subgroup=True
        )
        self._reading = self._objects.reading

    def receive(self, stream_id: int, data: bytes, fin: bool, now: float) -> None:
        """Bytes of a stream."""
        inflow = self._reading.get(stream_id)
        if inflow is None:
            self._perform(self._objects.receive(stream_id, data, fin, now), now)
            self._note_held()
        elif inflow.translator is None:
            self._pass(stream_id, inflow, data, fin, now)
        else:
            self._pass(stream_id, inflow, inflow.translator.feed(data), fin, now)

    def reset(self, stream_id: int, code: int, now: float) -> None:
        """The client gave a stream up."""
        match self._objects.reset(stream_id):
            case StreamReset(inflow):
                self._edge.relay.publish_reset(self._client, stream_id, code, now)
                self._stream_ended(inflow.source, now)
            case FetchReset(request_id):
                self._edge.fetches.errands.reset(self._client, request_id, now)

    def datagram(self, data: bytes, now: float) -> None:
        """An object in a datagram."""
        found = self._objects.datagram(data, now)
        if found is not None:
            self._pass_datagram(found, now)
        else:
            self._note_held()

    def expire(self, now: float) -> None:
        """Give up what nobody has explained in time."""
        for event in self._objects.expire(now):
            self._perform(event, now)

    @property
    def holding(self) -> bool:
        """Whether anything waits for an explanation."""
        return self._objects.holding

    def release(self, alias: int | None, now: float) -> None:
        """An alias, or the setup, is there: what waited for it goes on."""
        for event in self._objects.release(alias, now):
            if isinstance(event, ObjectDatagram):
                self._pass_datagram(event, now)
            else:
                self._perform(event, now)

    def _note_held(self) -> None:
        if self._objects.holding:
            self._edge.holding.add(self._client)

    def _perform(self, event: StreamEvent[Source] | None, now: float) -> None:
        if isinstance(event, StreamBegan):
            self._begin(event, now)
        elif isinstance(event, FetchBytes):
            self._fetched(event, now)
        elif isinstance(event, Stop):
            self._client.link.stop_stream(event.stream_id, event.code)

    def _begin(self, event: StreamBegan[Source], now: float) -> None:
        """A stream of a known track: from here on as relays carry it, under the track's alias."""
        source, header = event.owner, event.header
        source.streams += 1
        source.open += 1
        dialect = self._client.session.dialect
        header.alias = source.track.alias
        if header.priority is None:
            header.priority = source.priority
        data: bytes | memoryview = event.data
        translator = None
        if needs_translation(dialect, BETWEEN_RELAYS, header.has_extensions):
            translator = StreamTranslator(dialect, BETWEEN_RELAYS, header.has_extensions)
            data = translator.feed(data)
        inflow = self._reading[event.stream_id] = _Inflow(source, header.priority, translator)
        data = encode_subgroup_header(header, BETWEEN_RELAYS) + bytes(data)
        self._pass(event.stream_id, inflow, data, event.fin, now)

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
            del self._reading[stream_id]
            self._stream_ended(source, now)

    def _stream_ended(self, source: Source, now: float) -> None:
        source.open -= 1
        if source.done is not None:
            self._client.maybe_over(source, now)

    def _pass_datagram(self, event: ObjectDatagram[Source], now: float) -> None:
        item, source, data = event.item, event.owner, event.data
        dialect, track = self._client.session.dialect, source.track
        priority = item.priority
        if priority is None:  # between relays every object names its own
            item.priority = priority = source.priority
            translated = encode_translated(item, dialect, BETWEEN_RELAYS, track.alias)
        else:
            translated = translate_datagram(data, dialect, BETWEEN_RELAYS, track.alias)
        if translated is not None:
            self._edge.relay.publish_datagram(self._client, track.hash, translated, priority, now)

    def _fetched(self, event: FetchBytes, now: float) -> None:
        upstream = self._edge.fetches.errands
        wanted = upstream.receive(self._client, event.request_id, event.data, event.fin, now)
        if not wanted and not event.fin:
            self._perform(self._objects.stop(event.stream_id), now)
