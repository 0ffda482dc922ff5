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
from laps.tracks.sent_before import SentBefore
from laps.types import track_alias
from laps.wire.moqt.checking import StreamChecker
from laps.wire.moqt.codes import MalformedTrack, MoqtViolation, ResetCode
from laps.wire.moqt.data import encode_subgroup_header
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.track_checking import TrackChecker
from laps.wire.moqt.translate import (
    StreamTranslator,
    decode_extensions,
    encode_translated,
    needs_translation,
    translate_datagram,
)
from laps.wire.quicr.carried import without_carried

if TYPE_CHECKING:
    from laps.edge.client import EdgeClient
    from laps.edge.edge import Edge
    from laps.edge.moqt_publications import MoqtPublications
    from laps.sessions.moqt import MoqtSession
    from laps.sessions.moqt_objects import StreamEvent
    from laps.tracks.publication import Publication


@dataclass(slots=True)
class _Reading:
    """A stream of objects on its way in."""

    publication: Publication
    priority: int
    translator: StreamTranslator | None
    checker: StreamChecker
    "What is not valid goes to nobody."


class PublishedStreams:
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
        limits = HoldLimits(edge.settings.hold_s, edge.settings.hold_bytes)
        # Relays name the subgroup of every stream: the first object, which may have its id, may be
        # one that they leave out.
        self._objects: ObjectStreams[Publication, _Reading] = ObjectStreams(
            session, client.publications, edge.counters, limits, needs_subgroup=True
        )
        self._reading = self._objects.reading

    def receive(self, stream_id: int, data: bytes, fin: bool, now: float) -> None:
        """Bytes of a stream."""
        reading = self._reading.get(stream_id)
        if reading is None:
            self._perform(self._objects.receive(stream_id, data, fin, now), now)
            self._note_held()
        elif self._check(stream_id, reading, data, fin, now):
            translator = reading.translator
            carried = data if translator is None else translator.feed(data)
            self._pass(stream_id, reading, carried, fin, now)

    def _check(
        self, stream_id: int, reading: _Reading, data: bytes | memoryview, fin: bool, now: float
    ) -> bool:
        """MoqtViolation if objects are not valid: whoever has begun to read them is told.

        False if the track contradicts itself.
        """
        try:
            reading.checker.feed(data)
            if fin:
                reading.checker.finish()
        except MalformedTrack as error:
            if fin:  # nothing is left to be stopped
                self._edge.relay.publish_reset(
                    self._client, stream_id, ResetCode.MALFORMED_TRACK, now
                )
                del self._reading[stream_id]
            self._contradicted(reading.publication, error, now)
            return False
        except MoqtViolation as error:
            self._edge.counters.malformed_streams += 1
            code = ResetCode.MALFORMED_TRACK
            self._edge.relay.publish_reset(self._client, stream_id, code, now)
            self._publications.malformed(reading.publication, str(error), now)
            raise
        return True

    def _contradicted(self, publication: Publication, error: MalformedTrack, now: float) -> None:
        """Nothing more is read of a track that contradicts itself."""
        self._edge.counters.malformed_streams += 1
        code = ResetCode.MALFORMED_TRACK
        for stream_id, reading in list(self._reading.items()):
            if reading.publication is publication:
                self._edge.relay.publish_reset(self._client, stream_id, code, now)
                self._perform(self._objects.stop(stream_id), now)
        self._publications.contradicted(publication, str(error), now)

    def _checker(self, publication: Publication, now: float) -> TrackChecker:
        if publication.checker is None:
            track = self._edge.relay.tracks.track(publication.hash, now)
            publication.checker = TrackChecker(SentBefore(track.cached, self._client, now))
        return publication.checker

    def reset(self, stream_id: int, code: int, now: float) -> None:
        """The client gave a stream up."""
        match self._objects.reset(stream_id):
            case StreamReset(reading):
                self._edge.relay.publish_reset(self._client, stream_id, code, now)
                self._publications.stream_closed(reading.publication, now)
            case FetchReset(request_id):
                self._edge.upstream.refused(self._client, request_id, now)

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

    def wait_for(self, alias: int) -> None:
        """A PUBLISH is not decided on: what comes of its track is held until it is."""
        self._objects.awaited.add(alias)

    def flush(self, alias: int, now: float) -> None:
        """What came under an alias is for nobody: its PUBLISH was not granted."""
        for event in self._objects.flush(alias):
            self._edge.counters.flushed_streams += 1
            self._perform(event, now)

    def _note_held(self) -> None:
        if self._objects.holding:
            self._edge.context.holding.add(self._client)

    def _perform(self, event: StreamEvent[Publication] | None, now: float) -> None:
        if isinstance(event, StreamBegan):
            self._begin(event, now)
        elif isinstance(event, FetchBytes):
            self._fetched(event, now)
        elif isinstance(event, Stop):
            self._client.link.stop_stream(event.stream_id, event.code)

    def _begin(self, event: StreamBegan[Publication], now: float) -> None:
        """A stream of a known track: from here on as relays carry it, under the track's alias."""
        publication, header = event.owner, event.header
        self._publications.stream_opened(publication)
        dialect = self._session.dialect
        header.alias = track_alias(publication.key)
        if header.priority is None:
            header.priority = publication.priority
        data: bytes | memoryview = event.data
        translator = None
        checker = StreamChecker(self._checker(publication, now), header, dialect)
        if needs_translation(dialect, BETWEEN_RELAYS, header.has_extensions):
            translator = StreamTranslator(dialect, BETWEEN_RELAYS, header.has_extensions)
        reading = self._reading[event.stream_id] = _Reading(
            publication, header.priority, translator, checker
        )
        if not self._check(event.stream_id, reading, data, event.fin, now):
            return
        if translator is not None:
            data = translator.feed(data)
        data = encode_subgroup_header(header, BETWEEN_RELAYS) + bytes(data)
        self._pass(event.stream_id, reading, data, event.fin, now)

    def _pass(
        self, stream_id: int, reading: _Reading, data: bytes | memoryview, fin: bool, now: float
    ) -> None:
        publication = reading.publication
        self._edge.relay.publish(
            self._client,
            publication.hash,
            stream_id,
            data,
            fin,
            reading.priority,
            publication.ttl_us,
            now,
        )
        if fin:
            del self._reading[stream_id]
            self._publications.stream_closed(publication, now)

    def _pass_datagram(self, event: ObjectDatagram[Publication], now: float) -> None:
        try:
            self._check_and_pass(event, now)
        except MalformedTrack as error:
            self._contradicted(event.owner, error, now)

    def _check_and_pass(self, event: ObjectDatagram[Publication], now: float) -> None:
        item, publication, data = event.item, event.owner, event.data
        checker = publication.checker or self._checker(publication, now)
        dialect, alias = self._session.dialect, track_alias(publication.key)
        pairs = decode_extensions(item.extensions, dialect) if item.extensions else []
        if checker.says_something or pairs or item.status or item.end_of_group:
            checker.datagram(item, pairs, dialect)
        own = without_carried(item.extensions, pairs, dialect) if pairs else b""
        if item.priority is None or own != item.extensions:
            # Between relays every object names its priority, and some extensions are theirs.
            item.extensions = own
            if item.priority is None:
                item.priority = publication.priority
            translated = encode_translated(item, dialect, BETWEEN_RELAYS, alias)
        else:
            translated = translate_datagram(data, dialect, BETWEEN_RELAYS, alias)
        if translated is not None:
            relay, track = self._edge.relay, publication.hash
            if not relay.publish_datagram(self._client, track, translated, now):
                checker.repeated(item)

    def _fetched(self, event: FetchBytes, now: float) -> None:
        upstream = self._edge.upstream
        wanted = upstream.receive(self._client, event.request_id, event.data, fin=event.fin)
        if not wanted and not event.fin:
            self._perform(self._objects.stop(event.stream_id), now)
