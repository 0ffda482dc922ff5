"""What every client of a relay is to the `Edge`, whatever protocol it speaks.

    EdgeClient -> MoqtClient     `relay/moqt.py`
               -> QuicrClient    `relay/quicr.py`

A client may publish and subscribe at once. Whatever concerns more than one client is the `Edge`'s:
who waits for which publisher, who hears of which namespace, what is fetched from where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from laps.tracks.ports import Pressed
from laps.tracks.subscribers import Subscriber
from laps.types import AnnounceInfo, hash_bytes
from laps.wire.moqt.messages import DEFAULT_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from laps.edge.edge import Edge
    from laps.edge.fetching import FetchServing
    from laps.edge.moqt_publishing import Source
    from laps.edge.moqt_subscription import Rank
    from laps.edge.watching import Watch
    from laps.sessions.moqt import Wire
    from laps.tracks.ports import OutStream
    from laps.tracks.track import LiveTrack
    from laps.types import Address, Location, NodeId, TrackHash, TrackName


class ClientLink(Pressed, Protocol):
    """The connection to a client."""

    @property
    def wire(self) -> Wire:
        """Its bidirectional streams."""

    @property
    def dropped_streams(self) -> int:
        """How many streams never began, for want of room."""

    @property
    def has_room(self) -> bool:
        """Whether little waits to be sent; `writable` follows when it is so again."""

    def open_stream(self, rank: Rank, ttl_us: int) -> OutStream:
        """A new stream to the client."""

    @property
    def datagram_bytes(self) -> int:
        """The largest datagram that the path takes; 0 if it takes none."""

    @property
    def has_datagram_room(self) -> bool:
        """Whether few datagrams wait to be sent; `writable` follows when it is so again."""

    def send_datagram(self, data: bytes, rank: Rank, ttl_us: int) -> None:
        """Send a datagram, or lose it."""

    def stop_stream(self, stream_id: int, code: int) -> None:
        """Ask the client to stop sending on a stream."""

    def when_sent(self, call: Callable[[], None]) -> None:
        """Call when all that was written before has been sent."""

    def pause(self) -> None:
        """Leave what the client sends unread."""

    def resume(self) -> None:
        """Read on."""

    def close(self, code: int, reason: str) -> None:
        """End the session."""


class Subscription(Subscriber, Protocol):
    """A client's subscription to a track, which the `Edge` answers when the track is there."""

    track: LiveTrack
    request_id: int
    patient: bool
    "It waits for a publisher as long as it takes, and is not refused."
    on_data: Callable[[], None] | None
    "Called with the first stream that comes, while it is not established."

    @property
    def end_group(self) -> int | None:
        """The last group that is wanted."""

    def is_past(self, largest: Location | None) -> bool:
        """Whether the whole range has been published already."""


S = TypeVar("S", bound=Subscription)


class EdgeClient(Generic[S]):
    """A client, as the Edge sees it, and as the relay does: it is a `ports.Client`."""

    violations: ClassVar[Collection[int]] = ()
    "What its session is closed with because of what it did."
    echoes = True
    "It may subscribe to what it publishes, and is given it back."

    def __init__(self, edge: Edge, link: ClientLink) -> None:
        self.edge = edge
        self.link = link
        self.sources: dict[int, Source] = {}
        "What it publishes, by request id,"
        self.tracks: dict[int, Source] = {}
        "and by the track's hash."
        self.watching: dict[int, Watch] = {}
        "The prefixes it subscribes to, by request id."
        self.serving: dict[int, FetchServing] = {}
        "What it is being sent of the time before."

    # -- as `ports.Pressed` ------------------------------------------------------------------------

    @property
    def pressed(self) -> bool:
        """As `Pressed`."""
        return self.link.pressed

    @property
    def sent_bytes(self) -> int:
        """As `Pressed`."""
        return self.link.sent_bytes

    # -- what the Edge asks ------------------------------------------------------------------------

    @property
    def subscriptions(self) -> Mapping[int, S]:
        """What it subscribes to, by the track's hash."""
        raise NotImplementedError

    def accept(self, subscription: S, largest: Location | None) -> None:
        """The track is there: say so, and begin."""
        raise NotImplementedError

    def refuse(self, request_id: int, code: int, reason: str) -> None:
        """Answer a request with an error; the session goes on."""
        raise NotImplementedError

    def drop(self, subscription: S, now: float) -> None:
        """Forget a subscription."""
        raise NotImplementedError

    def end(self, subscription: S, code: int, reason: str, now: float) -> None:
        """A subscription has come to its end."""
        raise NotImplementedError

    def offer(self, track: LiveTrack, *, forward: bool) -> None:
        """Tell it of a track below a prefix that it watches."""
        raise NotImplementedError

    def withdraw(self, track: TrackName) -> None:
        """Nobody publishes a track any more that it may have been told of."""

    def wants_new_group(self, source: Source, value: int) -> None:
        """Subscribers would like it to begin a new group."""

    def go_away(self, to: Address | None) -> None:
        """Ask it to go to another relay, or to dial the same place again."""
        raise NotImplementedError

    def dismiss(self) -> None:
        """It has not gone: end the session."""
        raise NotImplementedError

    def expire(self, now: float) -> bool:
        """Give up what nobody has explained in time; whether something still waits."""
        return False

    def left(self) -> None:
        """The Edge has forgotten all that it offered and wanted."""

    # -- as `ports.Client` -------------------------------------------------------------------------

    def subscribe(self, track: TrackHash, subscribe_data: bytes) -> None:
        """As `ports.Client`."""
        raise NotImplementedError

    def unsubscribe(self, track: TrackHash) -> None:
        """As `ports.Client`."""
        raise NotImplementedError

    def open_stream(self, track: TrackHash, priority: int, ttl_us: int) -> OutStream:
        """As `ports.Client`; what a client subscribes to is opened by its subscription instead."""
        return self.link.open_stream((DEFAULT_PRIORITY, priority, 0, 0), ttl_us)

    def send_datagram(self, track: TrackHash, data: bytes, priority: int) -> None:
        """As `ports.Client`."""
        self.link.send_datagram(data, (DEFAULT_PRIORITY, priority, 0, 0), 0)

    # -- its sources -------------------------------------------------------------------------------

    def add_source(self, source: Source) -> None:
        """It may publish a track to us."""
        self.sources[source.request_id] = source
        self.tracks[source.track.hash.full_name_hash] = source
        self.edge.add_source(self, source)

    def forget_source(self, source: Source) -> None:
        """It no longer does."""
        self.sources.pop(source.request_id, None)
        if self.tracks.get(source.track.hash.full_name_hash) is source:
            del self.tracks[source.track.hash.full_name_hash]
        self.edge.drop_source(self, source)

    def announce(self, namespace: tuple[bytes, ...], name: bytes | None, now: float) -> None:
        """Tell the network that it offers a namespace or a track."""
        relay = self.edge.relay
        relay.announce(self, announce_info(relay.id, namespace, name), now, (namespace, name))

    def unannounce(self, namespace: tuple[bytes, ...], name: bytes | None, now: float) -> None:
        """It no longer does."""
        relay = self.edge.relay
        relay.unannounce(self, announce_info(relay.id, namespace, name), now, (namespace, name))


def announce_info(
    node_id: NodeId, namespace: tuple[bytes, ...], name: bytes | None = None
) -> AnnounceInfo:
    """What the relay's own tables keep of a namespace or a track."""
    parts = tuple(hash_bytes(part) for part in namespace)
    return AnnounceInfo(node_id, parts, 0 if name is None else hash_bytes(name))


AnyClient = EdgeClient[Any]
