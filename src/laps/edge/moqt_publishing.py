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

from laps.types import track_alias
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
from laps.wire.moqt.translate import StreamTranslator, needs_translation, translate_datagram

if TYPE_CHECKING:
    from laps.edge.client import EdgeClient
    from laps.edge.edge import Edge
    from laps.edge.moqt_publications import MoqtPublications
    from laps.sessions.moqt import MoqtSession
    from laps.tracks.publication import Publication

# As many as a frame of video, or a second of audio, is cut into.
EARLY_DATAGRAMS: Final = 64


@dataclass(slots=True)
class _Inflow:
    """A stream of objects on its way in."""

    publication: Publication
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

    def __init__(
        self,
        edge: Edge,
        client: EdgeClient,
        session: MoqtSession,
        publications: MoqtPublications,
    ) -> None:
        self._edge = edge
        self._client = client
        self._session = session
        self._publications = publications
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
            self._publications.stream_closed(inflow.publication, now)
        elif (request_id := self._fetching.pop(stream_id, None)) is not None:
            self._edge.upstream.refused(self._client, request_id, now)

    def datagram(self, data: bytes, now: float) -> None:
        """An object in a datagram."""
        dialect = self._session.dialect
        if not self._session.ready:
            self._edge.counters.unknown_datagrams += 1
            return
        item = decode_datagram(data, dialect)
        publication = self._publications.of_alias(item.alias)
        if publication is None:
            # It may have overtaken the message that explains its alias.
            self._edge.counters.unknown_datagrams += len(self._early) == EARLY_DATAGRAMS
            self._early.append((now, item.alias, data))
            self._edge.context.holding.add(self._client)
            return
        track = self._edge.relay.tracks.get(publication.key)
        if track is None:
            return
        translated: bytes | None
        own = publication.priority
        if dialect is DRAFT16 and item.priority is not None:
            translated = realias_datagram(data, track.alias)
        elif dialect is DRAFT16:
            item.alias, item.priority = track.alias, own
            translated = encode_datagram(item, DRAFT16)
        else:
            translated = translate_datagram(data, dialect, DRAFT16, track.alias, own)
        if translated is not None:
            priority = own if item.priority is None else item.priority
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

    def _begin(self, stream_id: int, data: bytes, fin: bool, now: float) -> None:
        held = self._held.get(stream_id)
        if held is not None:
            data = held.data + data
            fin = fin or held.fin
        if not self._session.ready:
            self._hold(stream_id, data, fin, None, now)
            return
        try:
            header, length = decode_stream_header(data, self._session.dialect)
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
        publication = self._publications.of_alias(header.alias)
        if publication is None:
            self._hold(stream_id, data, fin, header.alias, now)
            return
        self._drop_held(stream_id)
        self._begin_of(publication, stream_id, header, data[length:], fin, now)

    def _begin_of(
        self,
        publication: Publication,
        stream_id: int,
        header: SubgroupHeader,
        data: bytes | memoryview,
        fin: bool,
        now: float,
    ) -> None:
        """A stream of a known track: from here on it is draft 16's, under the track's own alias."""
        self._publications.stream_opened(publication)
        dialect = self._session.dialect
        header.alias = track_alias(publication.key)
        if header.priority is None:
            header.priority = publication.priority
        translator = None
        if needs_translation(dialect, DRAFT16, header.has_extensions):
            translator = StreamTranslator(dialect, DRAFT16, header.has_extensions)
        inflow = self._inflows[stream_id] = _Inflow(publication, header.priority, translator)
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
        publication = inflow.publication
        self._edge.relay.publish(
            self._client,
            publication.hash,
            stream_id,
            data,
            fin,
            inflow.priority,
            publication.ttl_us,
            now,
        )
        if fin:
            del self._inflows[stream_id]
            self._publications.stream_closed(publication, now)

    def _fetched(self, stream_id: int, data: bytes, fin: bool, now: float) -> None:
        request_id = self._fetching[stream_id]
        if fin:
            del self._fetching[stream_id]
        if not self._edge.upstream.receive(self._client, request_id, data, fin=fin) and not fin:
            del self._fetching[stream_id]
            self._stop(stream_id)

    def _hold(self, stream_id: int, data: bytes, fin: bool, alias: int | None, now: float) -> None:
        held = self._held.get(stream_id)
        if held is None:
            held = self._held[stream_id] = _Held(now)
            self._edge.context.holding.add(self._client)
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
