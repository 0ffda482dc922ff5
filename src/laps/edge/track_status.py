"""How far a track is: TRACK_STATUS, and what another relay wants to know before it subscribes.

What is known here is answered at once. A publisher that was not asked for the track yet is
subscribed to for a moment, since all of them know how to answer that; a relay that has the track is
asked with a request of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from laps.tracks.ports import Answers, Unhurried
from laps.tracks.sinks import Nowhere
from laps.wire.moqt.codes import RequestCode
from laps.wire.moqt.messages import RequestError, RequestOk, TrackStatus
from laps.wire.subscribe import encode_subscribe

if TYPE_CHECKING:
    from laps.edge.context import Context
    from laps.edge.fetching import Asker
    from laps.edge.relay_queries import RelayQueries
    from laps.tracks.ports import OutStream
    from laps.tracks.track import Track
    from laps.types import Location, NodeId, TrackHash, TrackKey
    from laps.wire.moqt.messages import Message


class Inquirer(Protocol):
    """Wants to know how far a track is."""

    def answered(self, largest: Location | None, now: float) -> None:
        """It is there, and this far."""

    def refused(self, code: int, reason: str, now: float) -> None:
        """It is not, or nobody says."""


@dataclass(slots=True)
class _StatusRequest:
    """A TRACK_STATUS of a client, or of another relay."""

    asker: Asker
    track: Track
    request_id: int

    def answered(self, largest: Location | None, now: float) -> None:
        properties = self.track.properties
        answer = RequestOk(self.request_id, largest=largest, properties=properties)
        self.asker.answer(answer, now)

    def refused(self, code: int, reason: str, now: float) -> None:
        self.asker.refuse(self.request_id, code, reason, now)


@dataclass(slots=True)
class _StatusQuery:
    """What another relay was asked of a track."""

    track: Track
    inquirer: Inquirer

    def answered(self, message: Message | None, now: float) -> None:
        """As `Query.answered`."""
        if isinstance(message, RequestOk):
            self.track.describe(message.properties)
            self.track.cached.saw(message.largest)
            self.inquirer.answered(message.largest, now)
        elif isinstance(message, RequestError):
            self.inquirer.refused(message.code, message.reason, now)
        else:
            self.inquirer.answered(self.track.largest(), now)


class Probe(Unhurried):
    """Wants a track for a moment, and nothing of it."""

    echoes = False
    answers = Answers.NEVER

    def subscribe(self, track: TrackHash, subscribe_data: bytes) -> None:
        """As `Client.subscribe`: it publishes nothing."""

    def unsubscribe(self, track: TrackHash) -> None:
        """As `Client.unsubscribe`."""

    def open_stream(self, track: TrackHash, priority: int, ttl_us: int) -> OutStream:
        """As `Client.open_stream`."""
        return Nowhere()

    def send_datagram(self, track: TrackHash, data: bytes, priority: int) -> None:
        """As `Client.send_datagram`."""


class Statuses:
    """Those who want to know how far a track is."""

    def __init__(self, context: Context, queries: RelayQueries) -> None:
        self._context = context
        self._queries = queries
        self._probes: dict[TrackKey, dict[Probe, Inquirer]] = {}

    def ask(self, asker: Asker, message: TrackStatus, now: float, by: NodeId | None = None) -> None:
        """A client, or another relay, asks how far a track is: `by` is that relay.

        It is answered as a SUBSCRIBE would be.
        """
        track = self._context.track(message.track, now)
        self._context.relay.review(track.key, now)
        inquirer = _StatusRequest(asker, track, message.request_id)
        publications = track.answering
        refusals = (it.refusal for it in publications if it.refusal is not None)
        refusal = next(refusals, None)
        if any(it.is_established for it in publications) or self._context.has_plain(track):
            inquirer.answered(track.largest(), now)
        elif refusal is not None and all(it.is_answered for it in publications):
            inquirer.refused(refusal.code, refusal.reason, now)
        elif self._context.has_answering(track):
            self._probe(track, inquirer, now)
        elif nodes := self._context.elsewhere(track, by):
            self.ask_relay(track, nodes[0], inquirer, now)
        else:
            inquirer.refused(RequestCode.DOES_NOT_EXIST, "nobody publishes this track", now)

    def settle(self, track: Track, now: float) -> None:
        """A publisher of a track may have answered."""
        if all(publication.is_answered for publication in track.answering):
            for probe in list(self._probes.get(track.key, {})):
                self._close(track, probe, now)

    def _probe(self, track: Track, inquirer: Inquirer, now: float) -> None:
        """Find out how far a publisher is by subscribing for a moment: all of them know how."""
        assert track.name is not None  # noqa: S101 - a publisher offers it by its name
        probe = Probe()
        self._probes.setdefault(track.key, {})[probe] = inquirer
        self._context.relay.subscribe(probe, track.name, encode_subscribe(track.name), now)
        wait_s = self._context.settings.answer_wait_s
        self._context.at(now + wait_s, lambda now: self._close(track, probe, now))

    def _close(self, track: Track, probe: Probe, now: float) -> None:
        probes = self._probes.get(track.key, {})
        inquirer = probes.pop(probe, None)
        if inquirer is None:
            return
        if not probes:
            del self._probes[track.key]
        # Nobody may want the track after this, and then its publishers are forgotten.
        established, largest = any(it.is_established for it in track.answering), track.largest()
        refusals = [it.refusal for it in track.answering if it.refusal is not None]
        refusal = next(iter(refusals), None)
        assert track.name is not None  # noqa: S101 - it was subscribed to by its name
        self._context.relay.unsubscribe(probe, track.name, now)
        if established:
            inquirer.answered(largest, now)
        elif refusal is not None:
            inquirer.refused(refusal.code, refusal.reason, now)
        else:
            inquirer.refused(RequestCode.TIMEOUT, "its publisher does not answer", now)

    def ask_relay(self, track: Track, node_id: NodeId, inquirer: Inquirer, now: float) -> None:
        """Ask the relay that has a track how far it is."""
        assert track.name is not None  # noqa: S101 - it is known by its name
        query = _StatusQuery(track, inquirer)
        self._queries.ask(node_id, TrackStatus(0, track.name), query, now)
