"""A track at this relay: the one owner of all that the relay knows of it.

    publishers      who publishes it here, what each was asked and answered (`publication`)
    subscribers     who is given it here, and what each waits for (`subscription`)
    streams         those that are open, once into the cache and once to each subscriber (`streams`)
    cached          what is kept of it, and what is remembered of the rest (`cache`, `history`)
    fragments       objects that arrive in pieces and are not whole (`reassembly`)

A track knows, when a stream begins, whether another publisher has sent the same already, and
whether a publisher has begun anew. Datagrams it hands out itself.

Between relays a track's streams are those of draft 16, under the alias that every relay makes from
the track's name. Bytes that are not are passed on to plain clients as they are, and not kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.routing.forwarding import FromPeer
from laps.tracks.cache import CachedTrack
from laps.tracks.ports import Answers
from laps.tracks.publication import Publication, PublicationState
from laps.tracks.reassembly import TrackFragments
from laps.tracks.streams import SILENT_S
from laps.tracks.subscription import PlainSubscriber, Subscription, SubscriptionState
from laps.tracks.upstream_fetch import FetchedStream
from laps.types import Location, track_alias
from laps.wire.moqt.codes import MoqtViolation, ResetCode
from laps.wire.moqt.data import decode_datagram, encode_datagram
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.messages import TrackProperties
from laps.wire.quicr.carried import carried_of
from laps.wire.quicr.codes import QuicrViolation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laps.tracks.cache import CachedGroup
    from laps.tracks.cached_stream import CachedStream
    from laps.tracks.history import History
    from laps.tracks.meter import Meter
    from laps.tracks.ports import Client
    from laps.tracks.publication import Source
    from laps.tracks.shared import Shared
    from laps.tracks.streams import IncomingStream
    from laps.tracks.subscription import Subscriber
    from laps.tracks.upstream_fetch import UpstreamFetch
    from laps.types import NodeId, TrackHash, TrackKey, TrackName
    from laps.wire.moqt.data import DatagramObject, FetchHeader
    from laps.wire.quicr.messages import Fragment, Terms

# The same stream may arrive by two ways of different length, this much apart.
RECENT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class FirstData:
    """An event: data arrived for a subscription that waits for a publisher."""

    track: Track
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class StreamsClosed:
    """An event: the last open stream of a track that has ended is closed."""

    track: Track


class Track:
    """A track that is published or wanted here."""

    def __init__(
        self,
        shared: Shared,
        track: TrackHash,
        name: TrackName | None,
        meter: Meter,
        history: History | None,
    ) -> None:
        """`history` is what is remembered of it from an earlier time."""
        self.shared = shared
        self.hash = track
        self.name = name
        self.alias = track_alias(track.full_name_hash)
        self.subscribe_data = b""
        "The SUBSCRIBE that publishers are asked with."
        self.cached = CachedTrack(shared.cache, history)
        self.meter = meter
        self.properties = TrackProperties()
        self.streams: dict[tuple[int, int], IncomingStream] = {}
        "Those that are open, by group and subgroup."
        self.senders: dict[Source, int] = {}
        "Who has sent streams, and the smallest group of each."
        self.sender_left = False
        "A sender has left: whoever sends next may start over."
        self.joining: dict[NodeId, float] = {}
        "Nodes that joined a set that others are in, and until when relays may not know of it."
        self.fragments: TrackFragments | None = None
        "What arrived in fragments and is not whole, if anything did."
        self.is_own = False
        "The relay publishes it about itself, and keeps it whether or not anybody reads it."
        self.fetches: set[UpstreamFetch] = set()
        "Ranges that are being fetched from elsewhere."
        self.final: Location | None = None
        "Where it ended, as a publisher that has left said apart from the objects."
        self.ending: tuple[int, str] | None = None
        "It has ended, with this code and reason; subscribers are told when no stream is open."
        self.leaving_at: float | None = None
        "The last subscriber has left; the network is told at this time, if none comes back."
        self._publishers: dict[Client, Publication] = {}
        self._subscribers: dict[Client, Subscriber] = {}
        self._waiting: dict[Subscription, None] = {}
        self._offered = 0

    @property
    def key(self) -> TrackKey:
        """What it is known by in every table."""
        return self.hash.full_name_hash

    @property
    def is_needed(self) -> bool:
        """Whether anybody has to do with it, or anything is kept of it."""
        return bool(
            self.is_own
            or self._subscribers
            or self._publishers
            or self.streams
            or self.fetches
            or self.leaving_at is not None
            or self.cached.groups
        )

    # -- subscribers -------------------------------------------------------------------------------

    @property
    def subscribers(self) -> Mapping[Client, Subscriber]:
        """Who is given it."""
        return self._subscribers

    @property
    def waiting(self) -> list[Subscription]:
        """The subscriptions that have not been answered."""
        return list(self._waiting)

    @property
    def is_wanted(self) -> bool:
        """Whether anybody here wants it; who was only offered it does not."""
        return len(self._subscribers) > self._offered

    def is_wanted_besides(self, client: Client) -> bool:
        """Whether anybody but a client wants it here."""
        own = self._subscribers.get(client)
        others = len(self._subscribers) - self._offered
        return others > (own is not None and own.state is not SubscriptionState.OFFERED)

    def add_subscriber(self, client: Client, subscriber: Subscriber) -> None:
        """Somebody is to be given it, in place of what the client had before."""
        self.remove_subscriber(client)
        was_wanted = self.is_wanted
        self._subscribers[client] = subscriber
        self._offered += subscriber.state is SubscriptionState.OFFERED
        self.shared.wanted += self.is_wanted - was_wanted
        self._index(subscriber)
        self.shared.subscribed.add(client, self.key)
        self.shared.has_moved(self.meter)

    def remove_subscriber(self, client: Client) -> None:
        """A client is given it no more."""
        was_wanted = self.is_wanted
        subscriber = self._subscribers.pop(client, None)
        if subscriber is None:
            return
        self._offered -= subscriber.state is SubscriptionState.OFFERED
        self.shared.wanted += self.is_wanted - was_wanted
        if isinstance(subscriber, Subscription):
            self._unindex(subscriber)
        self.shared.subscribed.discard(client, self.key)
        self.shared.has_moved(self.meter)

    def first_data(self, subscription: Subscription) -> None:
        """Data arrived for a subscription that waits for a publisher."""
        self.shared.events.append(FirstData(self, subscription))

    def subscription_changed(self, subscription: Subscription, was: SubscriptionState) -> None:
        """A subscription has gone from one state to another."""
        if self._subscribers.get(subscription.client) is subscription:
            was_wanted = self.is_wanted
            self._offered -= was is SubscriptionState.OFFERED
            self.shared.wanted += self.is_wanted - was_wanted
            self._index(subscription)

    def _index(self, subscriber: Subscriber) -> None:
        if isinstance(subscriber, Subscription) and subscriber.is_unanswered:
            self._waiting[subscriber] = None
            self.shared.waiting[self.key] = None
        elif isinstance(subscriber, Subscription):
            self._unindex(subscriber)

    def _unindex(self, subscriber: Subscription) -> None:
        self._waiting.pop(subscriber, None)
        if not self._waiting:
            self.shared.waiting.pop(self.key, None)

    # -- publishers --------------------------------------------------------------------------------

    @property
    def publishers(self) -> Mapping[Client, Publication]:
        """Who publishes it here, or was asked to."""
        return self._publishers

    @property
    def answering(self) -> list[Publication]:
        """The publications of those who answer themselves and have not ended."""
        current = [it for it in self._publishers.values() if it.state is not PublicationState.ENDED]
        return [it for it in current if it.publisher.answers is Answers.ITSELF]

    def ask(self, client: Client) -> Publication | None:
        """Somebody wants the track: the publication to ask for it; None if it was asked already."""
        publication = self._publishers.get(client)
        if publication is None:
            state = PublicationState.PUBLISHING
            if client.answers is Answers.ITSELF:
                state, self.final = PublicationState.ASKED, None
            publication = self._publishers[client] = Publication(self.hash, client, state)
        elif publication.wanted:
            return None
        publication.wanted = True
        self.shared.asked.add(client, self.key)
        return publication

    def release(self, publication: Publication) -> None:
        """Nobody wants the track of a publisher any more."""
        publication.wanted = False
        self.shared.asked.discard(publication.publisher, self.key)
        answers = publication.by_publish or publication.publisher.answers is Answers.ITSELF
        if not answers or publication.state is PublicationState.ENDED:
            del self._publishers[publication.publisher]

    def publish(self, client: Client, request_id: int) -> Publication:
        """A client publishes it without being asked, in place of what it published before."""
        before = self._publishers.get(client)
        publication = Publication(
            self.hash,
            client,
            PublicationState.PUBLISHING,
            request_id,
            by_publish=True,
            wanted=before is not None and before.wanted,
        )
        self.final = None
        self._publishers[client] = publication
        return publication

    def end_publication(self, publication: Publication) -> None:
        """Nothing more comes of a publication; while it is wanted it is not asked for again."""
        client = publication.publisher
        if self._publishers.get(client) is not publication:
            return
        publication.advance(PublicationState.ENDED)
        if self.senders.pop(client, None) is not None:
            self.sender_left = True
        if not publication.wanted:
            del self._publishers[client]

    # -- what it is like ---------------------------------------------------------------------------

    def largest(self) -> Location | None:
        """The largest location seen."""
        return self.cached.largest()

    def describe(self, properties: TrackProperties) -> None:
        """What a publisher says of the track."""
        self.properties = properties
        limit = self.shared.cache.limits.age_s
        if properties.max_cache_ms is not None:
            limit = min(limit, properties.max_cache_ms / 1000)
        self.cached.max_age_s = limit

    def ended_at(self, now: float) -> Location | None:
        """Where the track ends, if its publisher has said so."""
        if self.final is not None:
            return self.final
        top = max(self.cached.groups, default=None)
        if top is None:
            return None
        end = self.cached.groups[top].end_of_track(now)
        return None if end is None else Location(top, end)

    # -- streams -----------------------------------------------------------------------------------

    def _begin(self, stream: IncomingStream, now: float) -> bool:
        """A stream has a header: False if it is one that arrived before."""
        key = stream.header.group, stream.subgroup
        if stream.source not in self.senders:
            self._new_sender(stream)
        other = self.streams.get(key)
        if other is not None and other.source != stream.source:
            if not other.is_silent(now):
                return False
            # A publisher that is back sends it again; its old connection is not known to be dead.
            other.reset(ResetCode.SESSION_CLOSED, now)
        group = self.cached.groups.get(stream.header.group)
        if group is not None and any(self._is_again(stream, it, now) for it in group.streams):
            return False
        self.streams[key] = stream
        stream.first = self._broken_off(stream)
        if isinstance(stream.source, FromPeer):
            self.cached.history.partial = True
        return True

    def _is_again(self, stream: IncomingStream, cached: CachedStream, now: float) -> bool:
        """Whether a stream is one that another source has sent to its end.

        A publisher that has left may begin anew with the same numbers. A flow from another relay
        may be gone as soon as its stream has ended, and the same arrive by another way a little
        later.
        """
        if not cached.fin or cached.source == stream.source or cached.subgroup != stream.subgroup:
            return False
        if self.shared.may_send(cached.source):
            return True
        return isinstance(cached.source, FromPeer) and now - cached.touched < RECENT_S

    def _broken_off(self, stream: IncomingStream) -> int:
        """The object to go on with, where the same subgroup arrived before and broke off."""
        group = self.cached.groups.get(stream.header.group)
        first = 0
        for cached in () if group is None else group.streams:
            if cached.live or cached.fin or cached.subgroup != stream.subgroup:
                continue
            first = max(first, cached.scan().complete_id + 1)
        return first

    def hand_out(
        self, stream: IncomingStream, whole: bytes, rest: memoryview, fin: bool, now: float
    ) -> None:
        """A stream begins: give each subscriber one of its own, and the cache its part."""
        if not self._begin(stream, now):
            self.shared.counters.duplicates += 1
            return
        for client, subscriber in list(self._subscribers.items()):
            if client is stream.exclude:
                continue
            out = subscriber.open(stream, whole, rest, fin, now)
            if out is not None:
                stream.outs.append(out)
        stream.cached = self.cached.open(stream.header, stream.source, now)
        if rest:
            stream.cached.append(rest, now)
        if self.joining:
            self.shared.began.append((self.key, stream, fin))

    def pass_opaque(self, stream: IncomingStream, data: bytes, fin: bool, now: float) -> None:
        """Not a stream of MoQT's: for plain clients, and nobody else."""
        self.shared.counters.opaque += 1
        for client, subscriber in list(self._subscribers.items()):
            if isinstance(subscriber, PlainSubscriber) and client is not stream.exclude:
                stream.outs.append(subscriber.open(stream, data, data, fin, now))

    def fetched(
        self, stream: IncomingStream, header: FetchHeader, data: bytes, fin: bool, now: float
    ) -> None:
        """Another relay's answer to a FETCH of ours: nothing for subscribers."""
        fetch = self.shared.upstream_fetches.get(header.request_id)
        if fetch is None:
            return
        out = FetchedStream(fetch)
        stream.outs.append(out)
        if fin:
            out.finish(data, now)
        else:
            out.write(data, now)

    def stream_closed(self, stream: IncomingStream) -> None:
        """Nothing more comes of a stream."""
        key = stream.header.group, stream.subgroup
        if self.streams.get(key) is stream:
            del self.streams[key]
        if not self.streams and self.ending is not None:
            self.shared.events.append(StreamsClosed(self))

    def _new_sender(self, stream: IncomingStream) -> None:
        """Somebody begins to send; perhaps anew, with groups that have been."""
        for sender in [sender for sender in self.senders if not self.shared.may_send(sender)]:
            del self.senders[sender]
            self.sender_left = True
        anew = self.sender_left and not self.senders
        self.sender_left = False
        largest = self.largest()
        if anew and largest is not None and stream.header.group < largest.group:
            self._start_over()
        self.senders[stream.source] = stream.header.group

    def _start_over(self) -> None:
        """What was here is of no use any more: its numbers mean something else."""
        self.shared.counters.started_over += 1
        self.cached.clear()
        if self.fragments is not None:
            self.shared.fragment_bytes -= self.fragments.size
            self.fragments.clear()
        for subscriber in list(self._subscribers.values()):
            subscriber.started_over()

    # -- datagrams ---------------------------------------------------------------------------------

    def datagram(self, data: bytes, exclude: Client | None, now: float) -> int | None:
        """An object in a datagram, for all; how many it went to, None if it arrived before."""
        try:
            item = decode_datagram(data, BETWEEN_RELAYS)
        except MoqtViolation:
            item = None
        if item is None or item.alias != self.alias:
            return self._pass_datagram(data, exclude)
        group = self.cached.groups.get(item.group)
        carried = carried_of(item) if item.extensions else None
        if group is not None and item.object_id in group.datagrams:
            if not self._begins_anew(group, item, carried[0].offset if carried else 0, now):
                self.shared.counters.duplicates += 1
                return None
            self._start_over()
        if carried is not None:
            return self._fragment(data, item, *carried, exclude, now)
        self.cached.saw(Location(item.group, item.object_id))
        for client, subscriber in list(self._subscribers.items()):
            if client is not exclude:
                subscriber.datagram(data, item, now)
        self.cached.group(item.group, now).add_datagram(item.object_id, data, now)
        return len(self._subscribers)

    def _pass_datagram(self, data: bytes, exclude: Client | None) -> int:
        """Not a datagram of MoQT's: for plain clients, and nobody else."""
        self.shared.counters.opaque += 1
        plain = [s for s in self._subscribers.values() if isinstance(s, PlainSubscriber)]
        for subscriber in plain:
            if subscriber.client is not exclude:
                subscriber.client.send_datagram(self.hash, data, 0)
        return len(plain)

    def _begins_anew(
        self, group: CachedGroup, item: DatagramObject, offset: int, now: float
    ) -> bool:
        """Whether a publisher has begun again with the same numbers, and something else in them.

        The first object of a group tells. What arrived just now is not looked at: of two who
        publish different things at once, neither is to take the place of the other in turns.
        """
        arrived, data = group.datagrams[item.object_id]
        if item.object_id or now < arrived + SILENT_S:
            return False
        known = decode_datagram(data, BETWEEN_RELAYS).payload
        return bytes(known[offset : offset + len(item.payload)]) != bytes(item.payload)

    def _fragment(
        self,
        data: bytes,
        item: DatagramObject,
        fragment: Fragment,
        terms: Terms,
        exclude: Client | None,
        now: float,
    ) -> int | None:
        """A fragment of an object: it is passed on at once, and the object when it is whole."""
        shared = self.shared
        if self.fragments is None:
            self.fragments = TrackFragments(shared.fragment_limit)
        given_up = self.fragments.reassembler.given_up
        before = self.fragments.size
        try:
            new, payload, terms = self.fragments.add(fragment, terms, now)
        except QuicrViolation:
            shared.counters.malformed_fragments += 1
            return None
        finally:
            shared.fragment_bytes += self.fragments.size - before
            shared.counters.lost_objects += self.fragments.reassembler.given_up - given_up
        shared.bound_fragments(self.fragments)
        if not new:
            shared.counters.duplicates += 1
            return None
        self.cached.saw(Location(item.group, item.object_id))
        whole = None
        if payload is not None:
            item.payload, item.extensions = payload, b""
            whole = encode_datagram(item, BETWEEN_RELAYS)
        for client, subscriber in list(self._subscribers.items()):
            if client is exclude:
                continue
            if subscriber.takes_fragments:
                subscriber.fragments(new, terms, data, now)
            elif whole is not None:
                subscriber.datagram(whole, item, now)
        if whole is not None:
            until = now + terms.best_before_ms / 1000 if terms.best_before_ms else None
            group = self.cached.group(item.group, now)
            group.add_datagram(item.object_id, whole, now, until)
        return len(self._subscribers)
