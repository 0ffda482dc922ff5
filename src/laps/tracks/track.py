"""A track at this relay: the one owner of all that the relay knows of it.

    publishers      who publishes it here, what each was asked and answered (`publication`)
    subscribers     who is given it here, and what each waits for (`subscription`)
    streams         those that are open, once into the cache and once to each subscriber (`streams`)
    cached          what is kept of it, and what is remembered of the rest (`cache`, `history`)
    fragments       objects that arrive in pieces and are not whole (`reassembly`)
    datagrams       what hands out objects that arrive in datagrams (`datagrams`)

A track knows, when a stream begins, whether another publisher has sent the same already, and
whether a publisher has begun anew.

Between relays a track's streams are those of draft 16, under the alias that every relay makes from
the track's name. Bytes that are not are passed on to plain clients as they are, and not kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from laps.routing.flows import FromPeer
from laps.tracks.cache import CachedTrack
from laps.tracks.datagrams import Datagrams
from laps.tracks.in_order import InOrder
from laps.tracks.mending import rest_of
from laps.tracks.ports import Answers
from laps.tracks.positions import Positions
from laps.tracks.publication import Publication, PublicationState
from laps.tracks.repeated import first_missing, is_again, is_of_another_life, is_too_late
from laps.tracks.shared import Lost
from laps.tracks.standby import Standby
from laps.tracks.streams import SILENT_S, SOURCE_LOST, IncomingStream
from laps.tracks.subscription import FirstData, PlainSubscriber, Subscription, SubscriptionState
from laps.tracks.upstream_fetch import FetchedStream
from laps.types import Location, track_alias
from laps.wire.moqt.messages import TrackProperties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laps.tracks.cached_stream import CachedStream
    from laps.tracks.history import History
    from laps.tracks.meter import Meter
    from laps.tracks.ports import Client
    from laps.tracks.publication import Source
    from laps.tracks.reassembly import TrackFragments
    from laps.tracks.shared import Shared
    from laps.tracks.subscription import Subscriber
    from laps.tracks.upstream_fetch import UpstreamFetch
    from laps.types import NodeId, TrackHash, TrackKey, TrackName
    from laps.wire.moqt.data import FetchHeader


@dataclass(frozen=True, slots=True)
class StreamsClosed:
    """An event: the last open stream of a track that has ended is closed."""

    track: Track


class Track:
    """A track that is published or wanted here."""

    # fmt: off
    __slots__ = (
        "_offered", "_origin", "_publishers", "_standbys", "_subscribers", "_waiting", "alias",
        "cached", "ending", "fetches", "final", "fragments", "hash", "in_order", "is_mending",
        "is_own", "is_repaired", "joining", "leaving_at", "lost_before", "meter", "name",
        "new_group", "positions", "properties", "repaired_since", "sender_left", "senders",
        "shared", "streams", "subscribe_data",
    )  # without them it takes 1.3 KB more
    # fmt: on

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
        self._standbys: dict[tuple[int, int], list[Standby]] = {}
        "Streams of other sources that are sent as well, by group and subgroup."
        self.senders: dict[Source, int] = {}
        "Who has sent streams, and the smallest group of each."
        self.sender_left = False
        "A sender has left: whoever sends next may start over."
        self.positions = Positions()
        "How far each source is."
        self._origin: Source | None = None
        "Who sent the last stream that began."
        self.in_order = InOrder()
        self.is_mending = False
        "A relay on its way is gone, and what is missing is asked for: it may come in any order."
        self.is_repaired = False
        "Something may be missing, for that reason or another, and is asked for."
        self.lost_before = Location(0, 0)
        "What is missing up to here was counted by an earlier repair."
        self.repaired_since: float | None = None
        "Other relays were asked for all that came since then, and have sent it."
        self.joining: dict[NodeId, float] = {}
        "Nodes that joined a set that others are in, and until when relays may not know of it."
        self.fragments: TrackFragments | None = None
        "What arrived in fragments and is not whole, if anything did."
        self.is_own = False
        "The relay publishes it about itself, and keeps it whether or not anybody reads it."
        self.fetches: dict[UpstreamFetch, None] = {}
        "Ranges that are being fetched from elsewhere."
        self.final: Location | None = None
        "Where it ended, as a publisher that has left said apart from the objects."
        self.ending: tuple[int, str, frozenset[Subscriber]] | None = None
        "It has ended: the code, the reason, and who is told of it when no stream is open."
        self.new_group: tuple[int, int] | None = None
        "The last new group that another relay was asked for, and the largest group at that time."
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
    def order(self) -> int:
        """The place of its class of service."""
        return self.shared.classes.of(self.key, self.name)

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
    def datagrams(self) -> Datagrams:
        """What hands out objects that arrive in datagrams."""
        return Datagrams(self, self.shared)

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
        self._review_keeping()

    def remove_subscriber(self, client: Client) -> None:
        """A client is given it no more."""
        was_wanted = self.is_wanted
        if (subscriber := self._subscribers.pop(client, None)) is None:
            return
        self._offered -= subscriber.state is SubscriptionState.OFFERED
        self.shared.wanted += self.is_wanted - was_wanted
        if isinstance(subscriber, Subscription):
            self._unindex(subscriber)
        self.shared.subscribed.discard(client, self.key)
        self.shared.has_moved(self.meter)
        self._review_keeping()

    def first_data(self, subscription: Subscription) -> None:
        """Data arrived for a subscription that waits for a publisher."""
        self.shared.events.append(FirstData(subscription))

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
            self.shared.waiting.add(self.key, self.name)
        elif isinstance(subscriber, Subscription):
            self._unindex(subscriber)

    def _unindex(self, subscriber: Subscription) -> None:
        self._waiting.pop(subscriber, None)
        if not self._waiting:
            self.shared.waiting.discard(self.key)

    # -- publishers --------------------------------------------------------------------------------

    @property
    def publishers(self) -> Mapping[Client, Publication]:
        """Who publishes it here, or was asked to."""
        return self._publishers

    @property
    def answering(self) -> list[Publication]:
        """The publications of those who answer themselves and have not ended."""
        itself = [it for it in self._publishers.values() if it.publisher.answers is Answers.ITSELF]
        return [it for it in itself if it.state is not PublicationState.ENDED]

    def ask(self, client: Client, now: float) -> Publication | None:
        """Somebody wants the track: the publication to ask for it; None if it was asked already.

        One that refused, or has ended, is asked again after a while.
        """
        publication = self._publishers.get(client)
        if publication is None:
            state = PublicationState.PUBLISHING
            if client.answers is Answers.ITSELF:
                state, self.final = PublicationState.ASKED, None
            publication = self._publishers[client] = Publication(self.hash, client, state)
        elif publication.wanted and not publication.ask_again(now):
            return None
        publication.wanted = True
        self.shared.asked.add(client, self.key)
        self._review_keeping()
        return publication

    def release(self, publication: Publication) -> None:
        """Nobody wants the track of a publisher any more."""
        publication.wanted = False
        self.shared.asked.discard(publication.publisher, self.key)
        answers = publication.by_publish or publication.publisher.answers is Answers.ITSELF
        if not answers or publication.is_closed:
            del self._publishers[publication.publisher]
            self._review_keeping()

    def publish(self, client: Client, request_id: int) -> Publication:
        """A client publishes it without being asked, in place of what it published before."""
        before = self._publishers.get(client)
        state, wanted = PublicationState.PUBLISHING, before is not None and before.wanted
        args = self.hash, client, state, request_id
        publication = Publication(*args, by_publish=True, wanted=wanted)
        self.final = None
        self._publishers[client] = publication
        self._review_keeping()
        return publication

    def end_publication(self, publication: Publication) -> None:
        """Nothing more comes of a publication; while it is wanted it may be asked for again."""
        client = publication.publisher
        if self._publishers.get(client) is not publication:
            return
        publication.advance(PublicationState.ENDED)
        if self.senders.pop(client, None) is not None:
            self.sender_left = True
        if not publication.wanted:
            del self._publishers[client]
            self._review_keeping()

    # -- what it is like ---------------------------------------------------------------------------

    def largest(self) -> Location | None:
        """How far it is, for who begins with it now."""
        return self.positions.largest(self.cached, self.shared.sends) or self.furthest()

    def furthest(self) -> Location | None:
        """The largest location known of: what arrived, or what its publishers here have said."""
        told = [it.largest for it in self.answering if it.largest is not None]
        known = self.cached.largest()
        return max(told, default=None) if known is None else max([known, *told])

    def describe(self, properties: TrackProperties) -> None:
        """What a publisher says of the track."""
        self.properties = properties
        limit = self.shared.cache.limits.age_s
        if properties.max_cache_ms is not None:
            limit = min(limit, properties.max_cache_ms / 1000)
        self.cached.limit_age(limit)
        self._review_keeping()

    def _review_keeping(self) -> None:
        """The group that it is in is kept for who comes late, unless its publisher forbids it."""
        matters = bool(self._publishers or self._subscribers)
        self.cached.keeps_last = matters and self.properties.max_cache_ms is None

    def ended_at(self, now: float) -> Location | None:
        """Where the track ends, if its publisher has said so."""
        if self.final is not None:
            return self.final
        if (top := max(self.cached.groups, default=None)) is None:
            return None
        end = self.cached.groups[top].end_of_track(now)
        return None if end is None else Location(top, end)

    # -- streams -----------------------------------------------------------------------------------

    def _begin(self, stream: IncomingStream, rest: memoryview, now: float) -> bool:
        """A stream has a header, and `rest` after it: False if it is one that arrived before."""
        if stream.is_part:
            return True
        key = stream.header.group, stream.subgroup
        if stream.source not in self.senders:
            self._new_sender(stream, rest)
        other = self._open_besides(key, stream.source)
        if other is not None and (other.is_broken or other.is_silent(now)):
            if other.is_broken and (rest_out := rest_of(other, stream)) is not None:
                stream.mend(rest_out)
                other.go_on_from(stream.source)
                return False
            # Or a publisher is back, and its old connection is not known to be dead.
            other.close(SOURCE_LOST, now)
            # One that stood by may have gone on in its place.
            other = self._open_besides(key, stream.source)
        if other is not None:
            self._stand_by(stream, other, now)
            return False
        if is_too_late(self, key[0], stream.source, self.shared.may_send):
            return False
        earlier = () if stream.is_rest else self.kept_of(*key)
        if any(is_again(self, stream, it, rest, self.shared.may_send, now) for it in earlier):
            self._stand_by(stream, None, now)
            return False
        self.streams[key] = stream
        self.positions.heard(stream.source, Location(stream.header.group, 0), now)
        self.shared.feeds(stream.source, self.key, now)
        self._origin = stream.source
        stream.first = first_missing(self.kept_of(*key))
        if isinstance(stream.source, FromPeer):
            self.cached.history.partial = True
        return True

    def _open_besides(self, key: tuple[int, int], source: Source) -> IncomingStream | None:
        """The open stream of a subgroup, if another source sends it, or none does any more."""
        other = self.streams.get(key)
        return None if other and other.source == source and not other.is_broken else other

    def kept_of(self, group: int, subgroup: int) -> list[CachedStream]:
        """As `StandbyOwner.kept_of`."""
        kept = self.cached.groups.get(group)
        return [] if kept is None else [it for it in kept.streams if it.subgroup == subgroup]

    def _stand_by(self, stream: IncomingStream, other: IncomingStream | None, now: float) -> None:
        """Another source sends the same, or has: what it has besides is held."""
        standby = Standby(self, stream, other, now)
        stream.outs.append(standby)
        if other is not None:
            key = stream.header.group, stream.subgroup
            self._standbys.setdefault(key, []).append(standby)

    def hand_out(
        self, stream: IncomingStream, whole: bytes, rest: memoryview, fin: bool, now: float
    ) -> None:
        """A stream begins: give each subscriber one of its own, and the cache its part."""
        if not self._begin(stream, rest, now):
            self.shared.counters.duplicates += 1
            for held in stream.outs:  # in case that it is needed
                held.finish(rest, now) if fin else held.write(rest, now)
            self.in_order.review(self, now)
            return
        waiting = self.in_order.wait(self, stream, fin=fin)
        for client, subscriber in list(self._subscribers.items()):
            if client is stream.exclude or (waiting and waiting.takes(client, subscriber)):
                continue
            out = subscriber.open(stream, whole, rest, fin, now)
            if out is not None:
                stream.outs.append(out)
        stream.keep_in(self.cached.open(stream.header, stream.source, now))
        if rest and stream.cached is not None:
            stream.cached.append(rest, now)
        if self.joining:
            self.shared.began.append((self.key, stream, fin))
        self.in_order.review(self, now)

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
        stream.outs.append(out := FetchedStream(fetch))
        out.finish(data, now) if fin else out.write(data, now)

    def stream_broke(self, stream: IncomingStream, now: float) -> None:
        """A stream waits for its rest, unless another source of it is there."""
        for standby in self._standbys.get((stream.header.group, stream.subgroup), ()):
            standby.look(now)
            if not stream.is_broken:
                return
        self.shared.missing(self.key, Lost(-inf, now, sudden=True))
        self.shared.lost(stream.source, sudden=True)

    def stream_closed(self, stream: IncomingStream, now: float) -> None:
        """Nothing more comes of a stream."""
        key = stream.header.group, stream.subgroup
        if self.streams.get(key) is stream:
            del self.streams[key]
            for standby in self._standbys.pop(key, ()):
                standby.take_over(now)
            self.in_order.review(self, now)
        if not self.streams and self.ending is not None:
            self.shared.events.append(StreamsClosed(self))

    def _new_sender(self, stream: IncomingStream, rest: memoryview) -> None:
        """Somebody begins to send; perhaps anew, with groups that have been."""
        for sender in [sender for sender in self.senders if not self.shared.may_send(sender)]:
            del self.senders[sender]
            self.sender_left = True
        # Datagrams may have overtaken the stream: who has sent those has not begun anew either.
        others = self.senders or any(map(self.shared.may_send, self.positions))
        anew, self.sender_left = self.sender_left and not others, False
        earlier = self.kept_of(stream.header.group, stream.subgroup)
        if anew and is_of_another_life(stream, rest, earlier, self._to_go_on_from(stream)):
            self.start_over()
        self.senders[stream.source] = stream.header.group

    def _to_go_on_from(self, stream: IncomingStream) -> int | None:
        """The largest group, where a new sender is expected to go on after it."""
        largest, source = self.largest(), stream.source
        publication = None if isinstance(source, FromPeer) else self._publishers.get(source)
        goes_on = self.is_mending or (publication is not None and publication.continues)
        return None if goes_on or largest is None else largest.group

    def begins_anew(self, publication: Publication, largest: Location | None, now: float) -> bool:
        """A publisher says how far the track is: whether what is known of it is of another life.

        It is if a publisher that was asked for it has nothing of it yet, and whoever sent what is
        here is gone or, where its connection may be dead and not known to be, silent. Those who
        publish without being asked may leave out how far they are, and go on.
        """
        publication.continues = largest is not None
        if largest is not None or publication.by_publish or self.largest() is None:
            return False
        if self._origin is publication.publisher:
            return False
        if any(it is not publication and it.is_established for it in self.answering):
            return now - self.cached.touched > SILENT_S
        return not any(isinstance(sender, FromPeer) for sender in self.senders)

    def start_over(self) -> None:
        """What was here is of no use any more: its numbers mean something else."""
        self.shared.counters.started_over += 1
        self.senders.clear()
        self.positions.clear()
        self.sender_left = False
        self.lost_before = Location(0, 0)
        self.cached.clear()
        if self.fragments is not None:
            self.shared.fragment_bytes -= self.fragments.size
            self.fragments.clear()
        for publication in self._publishers.values():
            publication.checker = None
        for subscriber in list(self._subscribers.values()):
            subscriber.started_over()
