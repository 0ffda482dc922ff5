"""The tracks of a relay's own clients: who subscribes, who publishes, and who is asked for what.

A publisher is asked for a track while anybody wants it: a client of this relay, or an s-relay whose
subscribe has reached it. Each publisher that announced the track is asked, and each has a flow of
its own, so that several publishers of one track stay apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.errors import InvalidEncoding
from laps.infobase.announces import Announces
from laps.tracks.subscribers import PlainSubscriber
from laps.types import SubscribeInfo, hash_bytes, hash_track, next_sequence
from laps.wire.subscribe import decode_track_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from laps.infobase.subscribes import Subscribes
    from laps.routing.forwarding import Fib, SnsUpdate
    from laps.tracks.ports import Client
    from laps.tracks.track import Live
    from laps.types import AnnounceInfo, NodeId, TrackHash, TrackName

FlowUpdates = list["SnsUpdate"]


class Tracks:
    """Subscribers and publishers at this relay."""

    def __init__(
        self,
        self_id: NodeId,
        subscribes: Subscribes,
        fib: Fib,
        live: Live,
        tell: Callable[[FlowUpdates], None],
        joined: Callable[[Client, int, NodeId], None],
        epoch: int,
    ) -> None:
        """`joined` is called with a publisher, a track and a node that it goes to from now on."""
        self.announces: Announces[Client] = Announces()
        self.unreadable = 0
        "Subscribes whose data is no SUBSCRIBE: passed on, and matched by nobody."
        self._self_id = self_id
        self._subscribes = subscribes
        self._fib = fib
        self._live = live
        self._tell = tell
        self._joined = joined
        self._epoch = epoch
        self._subscribers: dict[int, dict[Client, None]] = {}
        self._hashes: dict[int, TrackHash] = {}
        self._data: dict[int, bytes] = {}
        self._asked: dict[int, dict[Client, None]] = {}
        self._asked_of: dict[Client, dict[int, None]] = {}
        "The same by publisher: one of ten thousand tracks ends one without a look at the others."

    def __len__(self) -> int:
        return len(self._subscribers) + len(self._asked)

    # -- subscribers -------------------------------------------------------------------------------

    def subscribe(self, client: Client, track: TrackHash, subscribe_data: bytes) -> bool:
        """A client wants a track; True if it is the first of this relay."""
        key = track.full_name_hash
        clients = self._subscribers.setdefault(key, {})
        first = not clients
        clients[client] = None
        self._hashes[key] = track
        self._data.setdefault(key, subscribe_data)
        live = self._live.track(track, self._read(self._data[key]))
        if client not in live.subscribers:
            live.subscribers[client] = PlainSubscriber(client, track)
        self._live.changed(live)
        self.review(key)
        return first

    def unsubscribe(self, client: Client, track: TrackHash) -> bool:
        """A client no longer wants a track; True if it was the last of this relay."""
        key = track.full_name_hash
        clients = self._subscribers.get(key)
        if clients is None or client not in clients:
            return False
        del clients[client]
        if (live := self._live.get(key)) is not None:
            live.subscribers.pop(client, None)
            self._live.changed(live)
        if clients:
            return False
        del self._subscribers[key]
        self.review(key)
        return True

    def keep(self, track: TrackHash) -> Callable[[], None]:
        """Go on with a track's streams while the network still sends them, for who comes back.

        Returns what ends it.
        """
        live = self._live.track(track)
        live.pins += 1

        def release() -> None:
            live.pins -= 1

        return release

    def is_wanted_here(self, full_name_hash: int) -> bool:
        """Whether a client of this relay wants a track."""
        return full_name_hash in self._subscribers

    def has_subscriber(self, client: Client, track: TrackHash) -> bool:
        """Whether a client wants a track already."""
        return client in self._subscribers.get(track.full_name_hash, ())

    def asked(self, full_name_hash: int) -> Collection[Client]:
        """The publishers here that have been asked for a track."""
        return self._asked.get(full_name_hash, ())

    def tracks_of(self, client: Client) -> list[TrackHash]:
        """What a client is subscribed to."""
        return [self._hashes[k] for k, clients in self._subscribers.items() if client in clients]

    def own_info(self, track: TrackHash, now: float) -> SubscribeInfo:
        """Subscribe information of our own, with the sequence number that follows the last."""
        key = track.full_name_hash
        sequence = self.next_sequence(self._self_id, key, now)
        return SubscribeInfo(sequence, self._self_id, track, self._data.get(key, b""))

    def next_sequence(self, source: NodeId, full_name_hash: int, now: float) -> int:
        """After the last one said, or, when that is forgotten, after any said before a restart."""
        last = self._subscribes.sequence(source, full_name_hash)
        return next_sequence(last, self._epoch + int(now))

    # -- publishers --------------------------------------------------------------------------------

    def announce(self, client: Client, info: AnnounceInfo, name: TrackName | None = None) -> bool:
        """A publisher offers a namespace or a track; True if that is news.

        `name` is that of a track, where it is known: then nothing has to be looked for.
        """
        if self.announces.add(client, info) is None:
            return False
        for key in self._wanted(info, name):
            self.review(key)
        return True

    def unannounce(self, client: Client, info: AnnounceInfo, name: TrackName | None = None) -> bool:
        """A publisher offers it no more; True if that is news."""
        if self.announces.withdraw(client, info) is None:
            return False
        asked = self._asked_of.get(client, {})
        if name is not None:
            keys = [key for key in (hash_track(name).full_name_hash,) if key in asked]
        else:
            names = {key: self._name_of(key) for key in asked}
            keys = [key for key, name in names.items() if name is not None and _offers(info, name)]
        for key in keys:
            self.review(key)
        return True

    def drop_publisher(self, client: Client) -> list[AnnounceInfo]:
        """A publisher is gone; what it had announced."""
        dropped = [change.info for change in self.announces.drop_origin(client)]
        for key in list(self._asked_of.get(client, ())):
            self.review(key)
        return dropped

    def review(self, full_name_hash: int) -> None:
        """Somebody came or left: ask publishers, or tell them it is over; lay out the flows."""
        key = full_name_hash
        targets = [n for n in self._subscribes.sources(key) if n != self._self_id]
        clients = self._subscribers.get(key, {})
        wanted = bool(targets) or bool(clients)
        # Who is the only one to want its own track is not asked for it.
        publishers = {
            client: None
            for client in (self._publishers(key) if wanted else ())
            if targets or client.echoes or set(clients) - {client}
        }
        asked = self._asked.get(key, {})
        for client in publishers:
            flow = self._fib.get((client, key))
            before = frozenset() if flow is None else flow.targets
            self._tell(self._fib.install((client, key), targets, local=True))
            for node_id in sorted(set(targets) - before):
                self._joined(client, key, node_id)
            if client not in asked:
                self._asked.setdefault(key, {})[client] = None
                self._asked_of.setdefault(client, {})[key] = None
                self._live.track(self._hashes[key], self._read(self._data[key]))
                client.subscribe(self._hashes[key], self._data[key])
        for client in [client for client in asked if client not in publishers]:
            del asked[client]
            self._no_longer_asked(client, key)
            self._tell(self._fib.remove((client, key)))
            client.unsubscribe(self._hashes[key])
        if not self._asked.get(key):
            self._asked.pop(key, None)
            if key not in self._subscribers:
                self._hashes.pop(key, None)
                self._data.pop(key, None)

    def _publishers(self, key: int) -> list[Client]:
        if not len(self.announces):
            return []
        data = self._data.get(key)
        if data is None:
            data = self._remember(key)
        if not data:
            return []
        name = self._read(data)
        if name is None:
            return []
        parts = tuple(hash_bytes(part) for part in name.namespace)
        return self.announces.match(parts, hash_bytes(name.name))

    def _remember(self, key: int) -> bytes | None:
        """Take the SUBSCRIBE of an s-relay, to hand to a publisher here."""
        for source in self._subscribes.sources(key):
            info = self._subscribes.get(source, key)
            if info is not None:
                self._hashes[key] = info.track_hash
                self._data[key] = bytes(info.subscribe_data)
                return self._data[key]
        return None

    def _read(self, data: bytes) -> TrackName | None:
        try:
            return decode_track_name(data)
        except InvalidEncoding:
            self.unreadable += 1
            return None

    def _no_longer_asked(self, client: Client, key: int) -> None:
        keys = self._asked_of[client]
        del keys[key]
        if not keys:
            del self._asked_of[client]

    def _wanted(self, info: AnnounceInfo, name: TrackName | None) -> list[int]:
        """The tracks that a new announce offers and somebody wants."""
        if name is not None:
            key = hash_track(name).full_name_hash
            return [key] if key in self._subscribers or self._subscribes.sources(key) else []
        offers: dict[int, bool] = {}
        "By the hash of a namespace: it is read once, however many tracks are in it."
        found: list[int] = []
        for key in {*self._subscribes.tracks(), *self._subscribers}:
            hashes = self._hashes.get(key) or self._subscribes.track_hash(key)
            if hashes is None or info.name_hash not in (0, hashes.name_hash):
                continue
            matches = offers.get(hashes.namespace_hash)
            if matches is None:
                name = self._name_of(key)
                matches = name is not None and _offers(info, name)
                # Who subscribes may say one name and the hashes of another.
                if name is not None and hash_track(name) == hashes:
                    offers[hashes.namespace_hash] = matches
            if matches:
                found.append(key)
        return found

    def _name_of(self, key: int) -> TrackName | None:
        data = self._data.get(key)
        if data is None:
            source = next(iter(self._subscribes.sources(key)), None)
            entry = None if source is None else self._subscribes.get(source, key)
            data = b"" if entry is None else bytes(entry.subscribe_data)
        return self._read(data) if data else None


def _offers(info: AnnounceInfo, name: TrackName) -> bool:
    """Whether an announce offers a track: one with a name that track, and no other."""
    depth = len(info.namespace_hashes)
    if info.name_hash and (len(name.namespace) != depth or hash_bytes(name.name) != info.name_hash):
        return False
    return tuple(map(hash_bytes, name.namespace[:depth])) == info.namespace_hashes
