"""The tracks of a relay: who is asked for what, what is kept of them, and when they are forgotten.

A publisher is asked for a track while anybody wants it: a client of this relay, or an s-relay whose
subscribe has reached it. Each publisher that announced the track is asked, and each has a flow of
its own, so that several publishers of one track stay apart. `review` decides that for one track,
and returns what is to be done; the relay does it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from laps.errors import InvalidEncoding
from laps.routing.flows import FromClient
from laps.tables import Table
from laps.telemetry.records import is_telemetry
from laps.tracks.meter import Meter
from laps.tracks.ports import Answers
from laps.tracks.shared import Shared
from laps.tracks.subscription import PlainSubscriber
from laps.tracks.track import Track
from laps.tracks.wanted_names import WantedNames
from laps.types import full_name_hash, hash_bytes, hash_track
from laps.wire.subscribe import decode_track_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.infobase.subscribes import Subscribes
    from laps.routing.flows import Flow, SnsUpdate
    from laps.routing.forwarding import Fib
    from laps.tracks.cache import CacheLimits
    from laps.tracks.history import History
    from laps.tracks.ports import Client
    from laps.tracks.publication import Publication
    from laps.tracks.subscription import Subscriber
    from laps.types import AnnounceInfo, NodeId, TrackHash, TrackKey, TrackName

# A track that is forgotten leaves some hundred bytes.
MAX_HISTORIES: Final = 10_000

# A look at a track takes a microsecond: so many at a time, each second, or more often where that is
# needed to have looked at all of them within a minute.
MOST_LOOKED_AT: Final = 2_000
LOOKS: Final = 60


@dataclass(slots=True)
class TrackChange:
    """What follows for the publishers of a track when somebody came or left."""

    track: Track | None = None
    "None where nobody here has to do with it."
    sns: list[SnsUpdate] = field(default_factory=list)
    "Sets to withdraw."
    joined: list[tuple[Client, NodeId]] = field(default_factory=list)
    "Nodes that a publisher's streams go to from now on."
    ask: list[Publication] = field(default_factory=list)
    "Publishers to ask for the track."
    release: list[Publication] = field(default_factory=list)
    "Publishers to tell that nobody wants it any more."
    unannounced: list[AnnounceInfo] = field(default_factory=list)
    "Announces that stood for a publication that is released."


class Tracks:
    """The tracks that are published, wanted or kept here."""

    def __init__(
        self, self_id: NodeId, subscribes: Subscribes, fib: Fib, limits: CacheLimits
    ) -> None:
        self.shared = Shared(fib, limits)
        self.events = self.shared.events
        self.announces = self.shared.announces
        self.cache = self.shared.cache
        self.counters = self.shared.counters
        self.unreadable = 0
        "Subscribes whose data is no SUBSCRIBE: passed on, and matched by nobody."
        self.histories: OrderedDict[TrackKey, History] = OrderedDict()
        "What is remembered of tracks that are forgotten."
        self.transit: Table[TrackKey, Meter] = Table()
        "Tracks that pass between peers and that nobody here has to do with."
        self.names = WantedNames()
        "The namespaces that somebody in the network wants tracks of."
        self._self_id = self_id
        self._subscribes = subscribes
        self._fib = fib
        self._tracks: Table[TrackKey, Track] = Table()
        self._looking: Iterator[TrackKey] = iter(())
        "Those that have not been looked at in this round."

    # -- the table ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._tracks)

    def __iter__(self) -> Iterator[Track]:
        return self._tracks.values()

    def __contains__(self, key: TrackKey) -> bool:
        return key in self._tracks

    def keys(self) -> Iterator[TrackKey]:
        """Every track; they may change meanwhile."""
        return iter(self._tracks)

    def get(self, key: TrackKey) -> Track | None:
        """The track, if it is there."""
        return self._tracks.get(key)

    def track(self, track: TrackHash, now: float, name: TrackName | None = None) -> Track:
        """The track, made if it is not there."""
        key = track.full_name_hash
        found = self._tracks.get(key)
        if found is None:
            meter = self.transit.pop(key, None) or Meter(key, now)
            history = self.histories.pop(key, None)
            found = self._tracks[key] = Track(self.shared, track, name, meter, history)
        elif found.name is None:
            found.name = name
        return found

    def named(self, name: TrackName) -> Track | None:
        """The track of a name, if it is there."""
        return self._tracks.get(hash_track(name).full_name_hash)

    def wanted(self) -> int:
        """How many are wanted or asked for here."""
        return self.shared.wanted + len(self.shared.asked)

    def expire(self, now: float) -> bool:
        """Forget what is too old, and tracks that nothing is left of, some of each.

        False if there is more to be done. Each track is looked at every second, or, where they are
        very many, once a minute.
        """
        done = self.cache.expire(now)
        for key in islice(self._looking, MOST_LOOKED_AT):
            self.forget(key, now)
        following = next(self._looking, None)
        if following is None:
            self._looking = iter(self._tracks)
        else:
            self._looking = chain((following,), self._looking)
        while len(self.histories) > MAX_HISTORIES:
            self.histories.popitem(last=False)
        return done

    def forget(self, key: TrackKey, now: float) -> None:
        """Forget a track, if nothing is left of it."""
        track = self._tracks.get(key)
        if track is not None and not self._is_left(track, now):
            del self._tracks[key]
            if track.cached.history.begin is not None:
                self.histories[key] = track.cached.history

    @property
    def looks_each_second(self) -> float:
        """How often `expire` is to be called."""
        return max(1.0, len(self._tracks) / (MOST_LOOKED_AT * LOOKS))

    def _is_left(self, track: Track, now: float) -> bool:
        """Whether anything is left of a track."""
        if track.fragments is not None:
            before = track.fragments.size
            self.counters.lost_objects += track.fragments.expire(now)
            self.shared.fragment_bytes += track.fragments.size - before
            if track.fragments.size:
                return True
        return track.is_needed

    def others_offer(self, key: TrackKey | None) -> None:
        """Another relay has publishers of a track, or of many: some of it may not come here."""
        if key is None:
            self.cache.elsewhere.offers += 1
        elif (track := self._tracks.get(key)) is not None:
            track.cached.history.partial = True
        elif key in self.histories:
            self.histories[key].partial = True

    # -- meters ------------------------------------------------------------------------------------

    def meter(self, key: TrackKey, flow: Flow, now: float) -> Meter | None:
        """What counts a track that arrives from a peer by a flow; None if nobody reports."""
        if self.shared.moved is None:
            return None
        track = self._tracks.get(key)
        meter = self.transit.get(key) if track is None else track.meter
        if meter is None:
            meter = self.transit[key] = Meter(key, now)
        meter.flows[flow] = None
        return meter

    # -- subscribers -------------------------------------------------------------------------------

    def subscribe(
        self,
        client: Client,
        track: TrackHash,
        subscribe_data: bytes,
        now: float,
        subscription: Subscriber | None = None,
    ) -> bool:
        """A client wants a track; True if it is the first of this relay.

        Without a subscription it is given every stream as it is.
        """
        found = self.track(track, now)
        first = not found.is_wanted
        if not found.subscribe_data:
            found.subscribe_data = subscribe_data
        if found.name is None:
            found.name = self._read(found.subscribe_data)
        if subscription is None and client not in found.subscribers:
            subscription = PlainSubscriber(client, track)
        if subscription is not None and found.subscribers.get(client) is not subscription:
            found.add_subscriber(client, subscription)
        return first

    def unsubscribe(self, client: Client, track: TrackHash) -> bool:
        """A client no longer wants a track; True if it was the last of this relay."""
        found = self._tracks.get(track.full_name_hash)
        if found is None or client not in found.subscribers:
            return False
        was_wanted = found.is_wanted
        found.remove_subscriber(client)
        return was_wanted and not found.is_wanted

    def subscribed(self, client: Client) -> list[TrackHash]:
        """What a client subscribes to."""
        keys = list(self.shared.subscribed.of(client))
        return [self._tracks[key].hash for key in keys]

    def count_subscribed(self, client: Client) -> int:
        """How much a client subscribes to."""
        return self.shared.subscribed.count(client)

    def noted(self, track: TrackHash, subscribe_data: bytes | memoryview) -> None:
        """A track has come to be wanted, or is wanted no more, in the whole network."""
        namespace_hash = track.namespace_hash
        if not self._subscribes.wants(namespace_hash):
            self.names.discard(namespace_hash)
        elif namespace_hash not in self.names and subscribe_data:
            name = self._read(bytes(subscribe_data))
            # A subscriber may send one name and the hashes of another.
            if name is not None and hash_track(name) == track:
                self.names.add(namespace_hash, name.namespace)

    # -- publishers --------------------------------------------------------------------------------

    def announce(
        self, client: Client, info: AnnounceInfo, name: TrackName | None = None
    ) -> Iterator[TrackKey] | None:
        """A publisher offers a namespace or a track: the tracks to review; None if it is no news.

        `name` is that of a track, where it is known: then nothing has to be looked for.
        """
        if self.announces.add(client, info) is None:
            return None
        return self.matching(info, name)

    def unannounce(
        self, client: Client, info: AnnounceInfo, name: TrackName | None = None
    ) -> Iterator[TrackKey | None] | None:
        """A publisher offers it no more: the tracks to review; None if that is no news.

        In place of a track that was looked at and is not to be reviewed stands None.
        """
        if self.announces.withdraw(client, info) is None:
            return None
        if name is not None:
            key = hash_track(name).full_name_hash
            return iter([key] if self.shared.asked.has(client, key) else [])
        return self._no_longer_offered(client, info)

    def _no_longer_offered(self, client: Client, info: AnnounceInfo) -> Iterator[TrackKey | None]:
        for key in self.shared.asked.of(client):
            track = self._tracks.get(key)
            name = None if track is None else track.name
            yield key if name is not None and _offers(info, name) else None

    def drop_publisher(self, client: Client) -> tuple[list[AnnounceInfo], Iterator[TrackKey]]:
        """A publisher has left: what it had announced, and the tracks to review."""
        dropped = [change.info for change in self.announces.drop_origin(client)]
        return dropped, self.shared.asked.of(client)

    def offering(self, name: TrackName) -> list[Client]:
        """The clients that announced a track; telemetry is published by relays alone."""
        if not len(self.announces):
            return []
        parts = tuple(hash_bytes(part) for part in name.namespace)
        found = self.announces.match(parts, hash_bytes(name.name))
        if is_telemetry(name.namespace):
            found = [client for client in found if client.answers is not Answers.ITSELF]
        return found

    def waiting(self, namespace: tuple[bytes, ...]) -> list[Track]:
        """Those below a namespace with subscriptions that have not been answered."""
        return [self._tracks[key] for key in self.shared.waiting.below(namespace)]

    def review(self, key: TrackKey, now: float) -> TrackChange:
        """Somebody came or left: lay out the flows; whom to ask, and whom to tell to stop."""
        targets = [n for n in self._subscribes.sources(key) if n != self._self_id]
        change = TrackChange()
        track = self._tracks.get(key)
        wanted = bool(targets) or (track is not None and track.is_wanted)
        name = self._name_of(key) if wanted and len(self.announces) else None
        publishers = {
            client: None
            for client in (() if name is None else self.offering(name))
            # A publisher that is the only one to want its own track is not asked for it.
            if targets or client.echoes or (track is not None and track.is_wanted_besides(client))
        }
        for client in publishers:
            track = track or self._wanted_track(key, name, now)
            if track.name is None:
                track.name = name
            self._lay_out(track, client, targets, change, now)
        change.track = track
        if track is not None:
            for publication in list(track.publishers.values()):
                if publication.wanted and publication.publisher not in publishers:
                    self._release(track, publication, change)
            if not publishers and not track.is_wanted:
                track.subscribe_data = b""
        return change

    def _lay_out(
        self,
        track: Track,
        client: Client,
        targets: list[NodeId],
        change: TrackChange,
        now: float,
    ) -> None:
        flow_key = FromClient(client, track.key)
        flow = self._fib.get(flow_key)
        before = frozenset() if flow is None else flow.targets
        self._fib.install(flow_key, targets, local=True, name=track.name)
        if not track.subscribe_data:
            track.subscribe_data = self._subscribe_data(track.key)
        if (asked := track.ask(client, now)) is not None:
            change.ask.append(asked)
        change.joined += [(client, node_id) for node_id in sorted(set(targets) - before)]

    def _release(self, track: Track, publication: Publication, change: TrackChange) -> None:
        client, kept = publication.publisher, publication.kept
        change.sns += self._fib.remove(publication.flow_key)
        track.release(publication)
        change.release.append(publication)
        if kept is not None:
            publication.kept = None
            if self.announces.withdraw(client, kept) is not None:
                change.unannounced.append(kept)

    def _wanted_track(self, key: TrackKey, name: TrackName | None, now: float) -> Track:
        """A track that s-relays alone want, and a publisher here offers."""
        hashes = self._subscribes.track_hash(key)
        assert hashes is not None  # noqa: S101 - somebody wants it, and not here
        return self.track(hashes, now, name)

    def _subscribe_data(self, key: TrackKey) -> bytes:
        """The SUBSCRIBE of an s-relay, to hand to a publisher here."""
        for source in self._subscribes.sources(key):
            info = self._subscribes.get(source, key)
            if info is not None:
                return bytes(info.subscribe_data)
        return b""

    def _name_of(self, key: TrackKey) -> TrackName | None:
        track = self._tracks.get(key)
        if track is not None and track.subscribe_data:
            return self._read(track.subscribe_data)
        data = self._subscribe_data(key)
        return self._read(data) if data else None

    def _read(self, data: bytes) -> TrackName | None:
        try:
            return decode_track_name(data)
        except InvalidEncoding:
            self.unreadable += 1
            return None

    def matching(self, info: AnnounceInfo, name: TrackName | None) -> Iterator[TrackKey]:
        """The tracks that a new announce offers and somebody wants."""
        if name is not None:
            key = hash_track(name).full_name_hash
            yield from [key] if self._is_wanted_anywhere(key) else []
            return
        for namespace_hash in self.names.below(info.namespace_hashes):
            if not info.name_hash:
                yield from self._subscribes.in_namespace(namespace_hash)
            elif self.names.parts(namespace_hash) == info.namespace_hashes:
                key = full_name_hash(namespace_hash, info.name_hash)
                yield from [key] if self._is_wanted_anywhere(key) else []

    def _is_wanted_anywhere(self, key: TrackKey) -> bool:
        track = self._tracks.get(key)
        return (track is not None and track.is_wanted) or bool(self._subscribes.sources(key))


def _offers(info: AnnounceInfo, name: TrackName) -> bool:
    """Whether an announce offers a track: one with a name that track, and no other."""
    depth = len(info.namespace_hashes)
    if info.name_hash and (len(name.namespace) != depth or hash_bytes(name.name) != info.name_hash):
        return False
    return tuple(map(hash_bytes, name.namespace[:depth])) == info.namespace_hashes
