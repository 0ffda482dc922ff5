"""Subscriptions of a QUICR client with a mask: for many tracks, those that are there and to come.

Fragments do not say what they are of. So for each track that a mask leaves open the relay opens a
control stream of its own, with PUBLISH_INTENT, and the client takes the track or declines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from weakref import ref

from laps.edge.client import Watch
from laps.edge.shares import Limit
from laps.telemetry.records import NAMESPACE
from laps.wire.quicr.codes import QuicrCode, QuicrViolation
from laps.wire.quicr.messages import PublishIntent, Response, SubscribeReply
from laps.wire.quicr.names import NameRefused, encode_name

if TYPE_CHECKING:
    from laps.edge.edge import Edge
    from laps.edge.shares import ClientShare
    from laps.sessions.quicr import ControlStream, QuicrSession
    from laps.tracks.track import Track
    from laps.types import Location, TrackKey, TrackName
    from laps.wire.quicr.messages import Intent, Subscribe
    from laps.wire.quicr.names import Pattern


@dataclass(slots=True, eq=False)
class Wildcard:
    """A subscription with a mask."""

    stream: ControlStream
    pattern: Pattern
    subscribe: Subscribe
    renewed_at: float
    is_new: bool = False
    "What was there when it was made has been offered: whatever comes is new."
    offered: dict[TrackKey, ControlStream] = field(default_factory=dict)
    "Streams that wait for an answer, and those with deliveries, by the track's hash."


@dataclass(frozen=True, slots=True)
class Offer:
    """A track that a subscription with a mask has found."""

    wildcard: Wildcard
    key: TrackKey
    name: TrackName
    is_new: bool
    "It came after the subscription."
    known: Location | None
    "What was here of it then, of a publisher that had left."


class WildcardClient(Protocol):
    """The client whose subscriptions these are."""

    session: QuicrSession
    edge: Edge
    share: ClientShare
    watching: dict[int, Watch]

    @property
    def is_closed(self) -> bool:
        """Whether the session is."""

    def is_subscribed(self, key: TrackKey) -> bool:
        """Whether it is given a track."""

    def is_delivered(self, stream: ControlStream) -> bool:
        """Whether media is sent on a control stream."""

    def check_datagrams(self, datagram_id: int | None, pattern: Pattern | None) -> None:
        """Refuse a datagram stream that cannot be, or is another's."""

    def watch(self, watch: Watch, now: float) -> None:
        """Hear of tracks below a prefix."""

    def deliver(
        self,
        stream: ControlStream,
        track: Track,
        intent: Intent,
        datagram_id: int | None,
        now: float,
        *,
        offer: Offer | None = None,
    ) -> object:
        """Begin to send a track."""

    def forget(self, stream: ControlStream, now: float) -> None:
        """A subscription, or an offer, has come to its end."""


class Wildcards:
    """The subscriptions with a mask of one client."""

    def __init__(self, client: WildcardClient) -> None:
        self._owner = ref(client)
        "It holds this: if this held it as well, only Python's collector could free them."
        self._all: dict[int, Wildcard] = {}
        "By control stream."
        self._offers: dict[int, Offer] = {}
        "Tracks that were offered, by the control streams they were offered on."

    @property
    def _client(self) -> WildcardClient:
        client = self._owner()
        assert client is not None  # noqa: S101 - nobody else calls this
        return client

    def get(self, stream: ControlStream) -> Wildcard | None:
        """The subscription of a control stream."""
        return self._all.get(stream.id)

    def prefixes(self) -> list[tuple[ControlStream, tuple[bytes, ...]]]:
        """The control streams of all, and what the namespaces of their tracks begin with."""
        return [(it.stream, it.pattern.prefix) for it in self._all.values()]

    def watch(
        self, stream: ControlStream, pattern: Pattern, message: Subscribe, now: float
    ) -> None:
        """A client subscribes with a mask."""
        client = self._client
        wildcard = self._all[stream.id] = Wildcard(stream, pattern, message, now)
        client.session.send(stream, SubscribeReply(Response.OK))
        watch = Watch(stream.id, pattern.prefix, namespaces=False, tracks=True, forward=True)
        watch.names_relays = message.name == NAMESPACE[0]
        client.watch(watch, now)
        wildcard.is_new = True

    # -- offers ------------------------------------------------------------------------------------

    def offer(self, track: Track, *, anew: bool = False) -> None:
        """Tell the client of a track, if a mask leaves it open and it has it not yet.

        Of a track that has begun `anew` everything that is here is new.
        """
        client, key = self._client, track.key
        if track.name is None or client.is_subscribed(key):
            return
        if any(key in wildcard.offered for wildcard in self._all.values()):
            return
        for wildcard in list(self._all.values()):
            if not wildcard.pattern.matches(track.name):
                continue
            try:
                name = encode_name(track.name)
            except NameRefused:
                return  # it cannot be said
            is_full = len(client.session.streams) >= client.edge.settings.quicr.streams
            if is_full or not client.share.has_room(Limit.SUBSCRIPTIONS):
                client.edge.quicr.not_offered += 1
                return
            capable = wildcard.subscribe.datagram_stream_id is not None
            stream = client.session.open(PublishIntent(name, capable))
            client.share.hold(stream.id, Limit.SUBSCRIPTIONS)
            wildcard.offered[key] = stream
            known = None if anew else track.largest()
            self._offers[stream.id] = Offer(wildcard, key, track.name, wildcard.is_new, known)
            return

    def offer_again(self, track: Track, *, anew: bool = False) -> None:
        """A subscription to a track has ended: one with a mask may want it."""
        client = self._client
        if self._all and not client.is_closed and client.edge.context.is_offered(track):
            self.offer(track, anew=anew)

    def accepted(self, stream: ControlStream, datagram_id: int | None, now: float) -> None:
        """The client takes a track that was offered."""
        client, offer = self._client, self._offers.get(stream.id)
        if offer is None or client.is_delivered(stream):
            return
        if client.is_subscribed(offer.key):  # it has asked for it by name meanwhile
            self.declined(stream, now)
            return
        try:
            client.check_datagrams(datagram_id, None)
        except NameRefused as refused:
            raise QuicrViolation(QuicrCode.PROTOCOL_VIOLATION, str(refused)) from None
        intent = offer.wildcard.subscribe.intent
        track = client.edge.context.track(offer.name, now)
        client.deliver(stream, track, intent, datagram_id, now, offer=offer)

    def declined(self, stream: ControlStream, now: float) -> None:
        """The client does not want it: it is not offered again while the subscription lasts."""
        offer = self._offers.get(stream.id)
        self._client.forget(stream, now)
        if offer is not None:
            offer.wildcard.offered[offer.key] = stream
        self._client.session.close(stream)

    # -- ends --------------------------------------------------------------------------------------

    def found(self, stream: ControlStream) -> list[TrackName]:
        """The tracks that the subscription of a control stream has found."""
        wildcard = self._all.get(stream.id)
        streams = () if wildcard is None else wildcard.offered.values()
        offers = (self._offers.get(offered.id) for offered in streams)
        return [offer.name for offer in offers if offer is not None]

    def forget(self, stream: ControlStream, now: float) -> None:
        """A subscription with a mask has ended, or one of the tracks that it found."""
        client = self._client
        wildcard = self._all.pop(stream.id, None)
        if wildcard is not None:
            client.watching.pop(stream.id, None)
            for offered in list(wildcard.offered.values()):
                client.forget(offered, now)
                client.session.abandon(offered, QuicrCode.CANCELLED)
        self._drop(stream)

    def ended(self, stream: ControlStream, track: Track) -> None:
        """A track has ended; it may be published again."""
        if self._drop(stream) is not None:
            self.offer_again(track)

    def _drop(self, stream: ControlStream) -> Offer | None:
        offer = self._offers.pop(stream.id, None)
        if offer is not None:
            offer.wildcard.offered.pop(offer.key, None)
        return offer

    def clear(self) -> None:
        """The client has left."""
        self._all.clear()
        self._offers.clear()
