"""What the tracks of a relay share: the cache, bounds, counters, and who has to do with which."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from laps.infobase.announces import Announces
from laps.routing.flows import FromPeer
from laps.tables import Table
from laps.tracks.cache import Cache
from laps.tracks.ports import OneClass
from laps.wire.quicr.fragments import MAX_OBJECT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.routing.forwarding import Fib
    from laps.tracks.cache import CacheLimits
    from laps.tracks.meter import Meter
    from laps.tracks.ports import Classes, Client
    from laps.tracks.publication import Source
    from laps.tracks.reassembly import TrackFragments
    from laps.tracks.streams import IncomingStream
    from laps.tracks.upstream_fetch import UpstreamFetch
    from laps.types import TrackKey, TrackName


@dataclass(slots=True)
class TrackCounters:
    """What became of streams and objects, for the operator."""

    duplicates: int = 0
    "Streams that another publisher had sent already."
    opaque: int = 0
    "Streams that are not MoQT's."
    started_over: int = 0
    large_datagrams: int = 0
    "Objects in datagrams that were too large for the path to a subscriber."
    malformed_fragments: int = 0
    "Fragments that cannot be of the object they name: past its end, or without end."
    lost_objects: int = 0
    "Objects of which fragments were missing for too long, or that made room for others."


class ClientIndex:
    """Tracks by client: one of ten thousand is found without a look at the others."""

    def __init__(self) -> None:
        self._keys: dict[Client, Table[TrackKey, None]] = {}
        self._clients: Table[TrackKey, int] = Table()

    def add(self, client: Client, key: TrackKey) -> None:
        """A client has to do with a track."""
        keys = self._keys.get(client)
        if keys is None:
            keys = self._keys[client] = Table()
        if key not in keys:
            keys[key] = None
            self._clients[key] = self._clients.get(key, 0) + 1

    def discard(self, client: Client, key: TrackKey) -> None:
        """It no longer has."""
        keys = self._keys.get(client)
        if keys is None or key not in keys:
            return
        del keys[key]
        if not keys:
            del self._keys[client]
        self._clients[key] -= 1
        if not self._clients[key]:
            del self._clients[key]

    def of(self, client: Client) -> Iterator[TrackKey]:
        """The tracks of a client; they may change meanwhile."""
        return iter(self._keys.get(client, ()))

    def count(self, client: Client) -> int:
        """How many they are."""
        return len(self._keys.get(client, ()))

    def has(self, client: Client, key: TrackKey) -> bool:
        """Whether a client has to do with a track."""
        return key in self._keys.get(client, ())

    def __len__(self) -> int:
        """How many tracks any client has to do with."""
        return len(self._clients)


class Waiting:
    """Tracks whose subscribers wait, by the beginnings of their namespaces.

    So an offer that comes finds those that it may concern without a look at the others.
    """

    def __init__(self) -> None:
        self._namespaces: dict[TrackKey, tuple[bytes, ...]] = {}
        self._below: dict[tuple[bytes, ...], dict[TrackKey, None]] = {}

    def __len__(self) -> int:
        return len(self._namespaces)

    def add(self, key: TrackKey, name: TrackName | None) -> None:
        """Somebody waits for a track; without a name no offer concerns it."""
        if name is not None and key not in self._namespaces:
            parts = self._namespaces[key] = name.namespace
            for length in range(len(parts) + 1):
                self._below.setdefault(parts[:length], {})[key] = None

    def discard(self, key: TrackKey) -> None:
        """Nobody waits for it any more."""
        parts = self._namespaces.pop(key, None)
        for length in range(0 if parts is None else len(parts) + 1):
            prefix = () if parts is None else parts[:length]
            del self._below[prefix][key]
            if not self._below[prefix]:
                del self._below[prefix]

    def below(self, namespace: tuple[bytes, ...]) -> list[TrackKey]:
        """Those of a namespace, and of all below it."""
        return list(self._below.get(namespace, ()))


# What is sent again begins to come within this time.
AT_ONCE_S: Final = 0.3


@dataclass(slots=True)
class Fed:
    """What a set of another relay brings."""

    key: TrackKey
    since: float
    heard_at: float
    "When something began to come the last time."


class Lost(NamedTuple):
    """Something may be missing of a track."""

    since: float
    "Not from before this,"
    at: float
    "nor from long before this: that has come."
    sudden: bool
    "Whether a relay is gone, or may be; or else the track may come by another way."


class Shared:
    """What every track of a relay uses and none of them owns."""

    def __init__(self, fib: Fib, limits: CacheLimits) -> None:
        self.events: deque[object] = deque()
        "What happened while data flowed, for the Edge to act on when the call has returned."
        self.began: list[tuple[TrackKey, IncomingStream, bool]] = []
        "Streams that began while nodes join their track, and whether they have ended as well."
        self.arrived: list[tuple[TrackKey, bytes]] = []
        "Datagrams of publishers that arrived while nodes join their track."
        self.broken: dict[TrackKey, Lost] = {}
        "Tracks that something may be missing of."
        self.fed: Table[FromPeer, Fed] = Table()
        "What sets of other relays bring."
        self.feeding: dict[TrackKey, dict[FromPeer, None]] = {}
        "The sets that tracks come by, those too that have brought nothing since somebody wants it."
        self.cache = Cache(limits, self.events)
        self.counters = TrackCounters()
        self.announces: Announces[Client] = Announces(watched=True)
        self.subscribed = ClientIndex()
        "What each client subscribes to."
        self.asked = ClientIndex()
        "What each publisher was asked for."
        self.wanted = 0
        "How many tracks somebody here wants."
        self.waiting = Waiting()
        "Tracks with subscriptions that have not been answered."
        self.upstream_fetches: dict[int, UpstreamFetch] = {}
        "What is being fetched from other relays, by request id."
        self.moved: dict[Meter, None] | None = None
        "Tracks that carried something since the last report; None where nobody reports."
        self.classes: Classes = OneClass()
        "Which class of service each track is of."
        self.reordered: dict[TrackKey, None] = {}
        "Tracks that may be of another class than before."
        self.fragment_limit = max(limits.total_bytes // 8, 2 * MAX_OBJECT_BYTES)
        self.fragment_bytes = 0
        "What is held of objects that are not whole, of all tracks."
        self._fib = fib

    def may_send(self, source: Source) -> bool:
        """Whether streams may still arrive from a publisher, or by a flow."""
        if isinstance(source, FromPeer):
            return self._fib.get(source) is not None
        return source in self.announces

    def sends(self, source: Source) -> bool:
        """Whether a publisher, or a flow, has not said that it has ended."""
        if isinstance(source, FromPeer):
            flow = self._fib.get(source)
            return flow is not None and not flow.withdrawn
        return source in self.announces

    def feeds(self, source: Source, key: TrackKey, now: float) -> None:
        """A source brings a track.

        The rest of a stream may come after its set is gone, and nothing is missing when it ends.
        """
        if not isinstance(source, FromPeer):
            return
        if (fed := self.fed.get(source)) is not None:
            fed.heard_at = now
        elif self._fib.get(source) is not None:
            self.fed[source] = Fed(key, now, now)
            self.comes_by(key, source)

    def feeds_no_more(self, source: FromPeer, key: TrackKey | None) -> None:
        """A set is no more; `key` is the track that came first under it, if any did."""
        fed = self.fed.pop(source, None)
        # A peer may send two tracks under one set, though none should.
        for track in {key, None if fed is None else fed.key}:
            if track is not None and (sets := self.feeding.get(track)) is not None:
                sets.pop(source, None)
                if not sets:
                    del self.feeding[track]

    def comes_by(self, key: TrackKey, source: FromPeer) -> None:
        """A track comes by a set, which may say of what class it is."""
        self.reordered[key] = None
        self.feeding.setdefault(key, {})[source] = None

    def lost(self, source: Source, *, sudden: bool) -> None:
        """A set is no more, or nothing is heard of who sends it: something may be missing."""
        fed = self.fed.get(source) if isinstance(source, FromPeer) else None
        # A set that is made for what is sent again has no more than that, and ends well.
        if fed is not None and (sudden or fed.heard_at - fed.since > AT_ONCE_S):
            self.missing(fed.key, Lost(fed.since, fed.heard_at, sudden))

    def missing(self, key: TrackKey, lost: Lost) -> None:
        """Something may be missing of a track."""
        if (before := self.broken.get(key)) is not None:
            since, at = min(before.since, lost.since), min(before.at, lost.at)
            lost = Lost(since, at, before.sudden or lost.sudden)
        self.broken[key] = lost

    def has_moved(self, meter: Meter) -> None:
        """There is something to report of a track."""
        if self.moved is not None:
            self.moved[meter] = None

    def bound_fragments(self, fragments: TrackFragments) -> None:
        """Where all tracks together hold too much, the one that brings more gives up its oldest."""
        reassembler = fragments.reassembler
        while self.fragment_bytes > self.fragment_limit and reassembler.open:
            before = reassembler.size
            reassembler.forget(next(iter(reassembler.open)))
            self.fragment_bytes += reassembler.size - before
            self.counters.lost_objects += 1
