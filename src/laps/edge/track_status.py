"""How far a track is: TRACK_STATUS, and what another relay wants to know before it subscribes.

What is known here is answered at once. A publisher that has not been asked for the track yet is
subscribed to for a moment, since all of them know how to answer that; a relay that has the track is
asked with a request of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.tracks.sinks import Nowhere
from laps.wire.moqt.codes import RequestCode
from laps.wire.moqt.messages import RequestError, RequestOk, TrackStatus
from laps.wire.subscribe import encode_subscribe

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.edge.edge import Edge
    from laps.edge.fetching import Asker
    from laps.tracks.ports import OutStream
    from laps.tracks.track import LiveTrack
    from laps.types import Location, NodeId, TrackHash
    from laps.wire.moqt.messages import Message


class Probe:
    """Wants a track for a moment, and nothing of it."""

    echoes = False

    def subscribe(self, track: TrackHash, subscribe_data: bytes) -> None:
        """As `ports.Client`."""

    def unsubscribe(self, track: TrackHash) -> None:
        """As `ports.Client`."""

    def open_stream(self, track: TrackHash, priority: int, ttl_us: int) -> OutStream:
        """As `ports.Client`."""
        return Nowhere()

    def send_datagram(self, track: TrackHash, data: bytes, priority: int) -> None:
        """As `ports.Client`."""


class Statuses:
    """Who wants to know how far a track is."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._probes: dict[int, dict[Probe, Callable[[float], None]]] = {}

    def ask(self, client: Asker, message: TrackStatus, now: float) -> None:
        """A client, or another relay, asks how far a track is."""
        track = self._edge.track(message.track)
        request_id = message.request_id

        def answer(largest: Location | None) -> None:
            client.answer(RequestOk(request_id, largest=largest, properties=track.properties))

        def refuse(code: int, reason: str) -> None:
            client.refuse(request_id, code, reason)

        sources = list(self._edge.sources(track).values())
        established = any(source.established for source in sources)
        refused = next((source.refused for source in sources if source.refused), None)
        if established or track.cached.groups:
            answer(track.largest())
        elif refused is not None and all(source.answered for source in sources):
            refuse(refused.code, refused.reason)
        elif self._edge.publisher(track) is not None:
            self._probe(track, answer, refuse, now)
        elif nodes := self._edge.elsewhere(track):
            self.ask_relay(track, nodes[0], answer, refuse)
        elif self._edge.has_plain(track):
            answer(None)
        else:
            refuse(RequestCode.DOES_NOT_EXIST, "nobody publishes this track")

    def settle(self, track: LiveTrack, now: float) -> None:
        """A publisher of a track may have answered."""
        if all(source.answered for source in self._edge.sources(track).values()):
            for over in list(self._probes.get(track.hash.full_name_hash, {}).values()):
                over(now)

    def _probe(
        self,
        track: LiveTrack,
        answer: Callable[[Location | None], None],
        refuse: Callable[[int, str], None],
        now: float,
    ) -> None:
        """Find out how far a publisher is by subscribing for a moment: all of them know how."""
        assert track.name is not None  # noqa: S101 - a publisher offers it by its name
        key, name = track.hash.full_name_hash, track.name
        probe = Probe()

        def over(now: float) -> None:
            probes = self._probes.get(key, {})
            if probes.pop(probe, None) is None:
                return
            if not probes:
                del self._probes[key]
            sources = list(self._edge.sources(track).values())
            self._edge.relay.unsubscribe(probe, name, now)
            refusals = (source.refused for source in sources if source.refused is not None)
            if any(source.established for source in sources):
                answer(track.largest())
            elif (refused := next(refusals, None)) is not None:
                refuse(refused.code, refused.reason)
            else:
                refuse(RequestCode.TIMEOUT, "its publisher does not answer")

        self._probes.setdefault(key, {})[probe] = over
        self._edge.relay.subscribe(probe, name, encode_subscribe(name), now)
        self._edge.at(now + self._edge.settings.answer_wait_s, over)

    def ask_relay(
        self,
        track: LiveTrack,
        node_id: NodeId,
        answered: Callable[[Location | None], None],
        refused: Callable[[int, str], None],
    ) -> None:
        """Ask the relay that has a track how far it is."""
        assert track.name is not None  # noqa: S101 - it is known by its name

        def told(message: Message | None, now: float) -> None:
            if isinstance(message, RequestOk):
                track.describe(message.properties)  # the tunnel carries them in a SUBSCRIBE_OK
                track.cached.saw(message.largest)
                answered(message.largest)
            elif isinstance(message, RequestError):
                refused(message.code, message.reason)
            else:
                answered(track.largest())

        self._edge.tunnel.ask(node_id, TrackStatus(0, track.name), told)
