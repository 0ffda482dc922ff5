"""What every client of a relay is to the `Edge`, whatever protocol it speaks.

    EdgeClient -> MoqtClient     `edge/moqt.py`
               -> QuicrClient    `edge/quicr.py`

A client may publish and subscribe at once. Whatever concerns more than one client is the `Edge`'s:
who waits for which publisher, who hears of which namespace, what is fetched from where.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from laps.routing.flows import FromClient
from laps.routing.terms import ORDINARY
from laps.telemetry.records import NAMESPACE
from laps.tracks.ports import Answers, OutStream, Pressed
from laps.tracks.subscription import Subscription
from laps.wire.moqt.messages import DEFAULT_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from laps.edge.access import Access
    from laps.edge.decisions import Decision
    from laps.edge.shares import Account, ClientShare
    from laps.routing.flows import FlowKey
    from laps.sessions.moqt import Wire
    from laps.tracks.publication import Publication
    from laps.tracks.subscription import SubscriptionState
    from laps.tracks.track import Track
    from laps.types import Address, Location, TrackHash, TrackKey, TrackName
    from laps.wire.extensions import Urgency
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Fetch, Subscribe

Rank = tuple[int, int, int, int, int, int]
"""Subscriber's priority, publisher's priority, class, request, group as it is wanted, subgroup.

The smallest go first, but for requests: those take turns."""


@runtime_checkable
class RankedStream(OutStream, Protocol):
    """A stream to a client, that has its place among the others."""

    @property
    def rank(self) -> Rank:
        """Its place."""

    @property
    def waits(self) -> bool:
        """Whether something of it has yet to be sent."""

    @property
    def is_open(self) -> bool:
        """Whether the client has seen, or will see, anything of it."""

    def move(self, rank: Rank) -> None:
        """It has another place from now on."""

    def reorder(self, order: int) -> None:
        """Its track is of another class of service from now on."""


class ClientLink(Pressed, Protocol):
    """The connection to a client."""

    @property
    def wire(self) -> Wire:
        """Its bidirectional streams."""

    @property
    def dropped_streams(self) -> int:
        """How many streams never began, for want of room."""

    def has_room_for(self, order: int) -> bool:
        """Whether little waits ahead of a class of service; `writable` follows when it is so."""

    def open_stream(self, rank: Rank, ttl_us: int) -> RankedStream:
        """A new stream to the client."""

    def reorder(self, stream_id: int, order: int) -> None:
        """What a bidirectional stream carries is of a class of service with this place."""

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

    def when_sent(
        self, call: Callable[[], None], streams: Iterable[RankedStream] | None = None
    ) -> None:
        """Call when all that was written before, or to these streams, has been sent."""

    def pause(self) -> None:
        """Leave what the client sends unread."""

    def resume(self) -> None:
        """Read on."""

    def close(self, code: int, reason: str) -> None:
        """End the session."""

    def abort(self, code: int, reason: str) -> None:
        """End the connection, so that the client takes it for lost."""

    @property
    def host(self) -> str:
        """The address that the client comes from; empty where it has none."""

    def in_its_time(self, work: Callable[[float], bool], now: float) -> bool | None:
        """What some work for the client returns, which takes of the time of its address.

        None, and nothing is done, where that has been used up.
        """

    def pace(self, share: ClientShare) -> None:
        """Send no faster than the accounts of its `outflow` allow."""


class Serving(Protocol):
    """An answer to a FETCH, on its way to a client."""

    track: Track

    def pump(self, now: float) -> None:
        """Send on, as long as there is room."""

    def prioritize(self, priority: int) -> None:
        """It is more urgent now, or less."""

    def cancel(self, now: float) -> None:
        """It is no longer wanted."""

    def malformed(self, track: Track, reason: str, now: float) -> None:
        """A track is malformed: nothing more is sent if it is of that."""


@dataclass(slots=True)
class Watch:
    """A SUBSCRIBE_NAMESPACE, or a QUICR subscription with a mask."""

    request_id: int
    prefix: tuple[bytes, ...]
    namespaces: bool
    "Whether namespaces are told."
    tracks: bool
    "Whether tracks are told, with PUBLISH."
    forward: bool
    told: dict[tuple[bytes, ...], int | None] = field(default_factory=dict)
    "What was told, and in draft 14 the request it was told by."
    names_relays: bool = False
    "It asks for what relays publish themselves, though its prefix is empty."

    def shows(self, namespace: tuple[bytes, ...]) -> bool:
        """Whether a namespace is below the prefix.

        What relays publish themselves has to be asked for: a prefix of nothing does not name it.
        """
        if not self.prefix and namespace[:1] == NAMESPACE[:1]:
            return self.names_relays
        return namespace[: len(self.prefix)] == self.prefix


class Session(Protocol):
    """The conversation with a client, as far as both protocols have it."""

    @property
    def held_bytes(self) -> int:
        """What is held of messages that have not come whole."""

    def let_go(self) -> None:
        """The session is closed, or about to be: nothing more is held of messages."""


class EdgeSubscription(Subscription):
    """A subscription of a MoQT or QUICR client."""

    __slots__ = ("joins_group", "request", "track")

    client: EdgeClient

    def __init__(
        self, client: EdgeClient, track: Track, request_id: int, state: SubscriptionState
    ) -> None:
        super().__init__(client, track, request_id, state)
        self.track = track
        self.request: Subscribe | None = None
        "What the client asked with, where it is a SUBSCRIBE: it travels to the publisher's relay."
        self.joins_group = False
        "It begins with the group that the track is in, which may have to be fetched first."


class EdgeClient:
    """A client, as the Edge sees it, and as the relay does: it is a `ports.Client`."""

    violations: ClassVar[Collection[int]] = ()
    "What its session is closed with because of what it did."
    silent_code: ClassVar[int] = 0
    "What its session is closed with because it has not begun in time."
    held_code: ClassVar[int] = 0
    "What its session is closed with because it begins messages and does not finish them."
    flood_code: ClassVar[int] = 0
    "What its session is closed with because it is one too many, or asks and asks."
    echoes = True
    "It may subscribe to what it publishes, and is given it back."
    answers = Answers.ITSELF
    answers_fetches = False
    "Whether ranges of its tracks can be fetched from it."
    is_leaving = False
    "It has said that it goes away: nothing new is asked of it."
    follows_goaway = True
    "It goes where it is sent, as far as its name tells."
    joins_groups = False
    "Whether its subscriptions begin with the group that a track is in, and not after its objects."

    access: Access
    "What it has shown, and may do."
    session: Session

    def __init__(self, link: ClientLink, share: ClientShare) -> None:
        self.link = link
        self.share = share
        "What it has of the relay."
        self.paced_by: tuple[Account, ...] = ()
        "Whose bound on bytes out its link has been told of."
        self.is_held = False
        "What it sends is left unread for a while: it has sent as much as it may."
        self.turn_at = 0.0
        "When the turn of the loop began that `messages` counts for."
        self.messages = 0
        "How many of its messages were acted on in one turn."
        self.publications: dict[int, Publication] = {}
        "What it publishes, by request id."
        self.watching: dict[int, Watch] = {}
        "The prefixes it subscribes to, by request id."
        self.serving: dict[int, Serving] = {}
        "What it is being sent of earlier objects, by request id."
        self.review_at = inf
        "When it is looked at whether it is still allowed what it was."
        self._is_waiting = False
        "What it sends is left unread until what it has sent can be sent on."

    # -- as `ports.Sender` -------------------------------------------------------------------------

    @property
    def sink(self) -> EdgeClient:
        """As `Client.sink`."""
        return self

    def sender(self, key: TrackKey) -> EdgeClient:
        """As `Client.sender`: all that it sends waits, whichever track it is of."""
        return self

    def flows(self) -> list[FlowKey]:
        """As `Sender.flows`."""
        return [FromClient(self, publication.key) for publication in self.publications.values()]

    def wait(self, urgency: Urgency) -> None:
        """As `Sender.wait`."""
        if urgency and not self._is_waiting:
            self._is_waiting = True
            if not self.is_held:
                self.link.pause()
        elif self._is_waiting and not urgency:
            self._is_waiting = False
            if not self.is_held:
                self.link.resume()

    # -- its share ---------------------------------------------------------------------------------

    def hold(self) -> None:
        """Leave what it sends unread."""
        self.is_held = True
        if not self._is_waiting:
            self.link.pause()

    def read_on(self, now: float) -> bool:
        """Act on messages that were left for another turn; whether there are more."""
        return False

    def release(self) -> None:
        """Read on, unless there is another reason not to."""
        self.is_held = False
        if not self._is_waiting:
            self.link.resume()

    # -- as `ports.Pressed` ------------------------------------------------------------------------

    @property
    def pressed(self) -> bool:
        """As `Pressed.pressed`."""
        return self.link.pressed

    def pressed_for(self, order: int) -> bool:
        """As `Pressed.pressed_for`."""
        return self.link.pressed_for(order)

    def crowded_for(self, order: int) -> bool:
        """As `Pressed.crowded_for`."""
        return self.link.crowded_for(order)

    @property
    def sent_bytes(self) -> int:
        """As `Pressed.sent_bytes`."""
        return self.link.sent_bytes

    # -- its subscriptions -------------------------------------------------------------------------

    @property
    def subscriptions(self) -> Mapping[TrackKey, EdgeSubscription]:
        """What it subscribes to."""
        raise NotImplementedError

    def accept(self, subscription: EdgeSubscription, largest: Location | None, now: float) -> None:
        """The track is there: say so, and begin."""
        raise NotImplementedError

    def refuse(self, request_id: int, code: int, reason: str, now: float) -> None:
        """Answer a request with an error; the session goes on."""
        raise NotImplementedError

    def drop(self, subscription: EdgeSubscription, now: float) -> None:
        """Forget a subscription."""
        raise NotImplementedError

    def end(self, subscription: EdgeSubscription, code: int, reason: str, now: float) -> None:
        """A subscription has come to its end."""
        raise NotImplementedError

    # -- what it is told ---------------------------------------------------------------------------

    def offer(self, track: Track, *, forward: bool, now: float) -> None:
        """Tell it of a track below a prefix that it watches."""
        raise NotImplementedError

    def withdraw(self, track: TrackName) -> None:
        """Nobody publishes a track any more that it may have been told of."""

    def tell_namespace(self, watch: Watch, namespace: tuple[bytes, ...]) -> None:
        """Tell it of a namespace below a prefix that it watches."""

    def tell_namespace_gone(self, watch: Watch, namespace: tuple[bytes, ...]) -> None:
        """Nobody publishes a namespace any more that it may have been told of."""

    def go_away(self, to: Address | None) -> None:
        """Ask it to go to another relay, or to dial the same place again."""
        raise NotImplementedError

    def dismiss(self) -> None:
        """It has not left: end the session."""
        raise NotImplementedError

    # -- what it publishes -------------------------------------------------------------------------

    def wants_new_group(
        self, publication: Publication, value: int, largest: Location | None
    ) -> None:
        """Subscribers would like it to begin a new group."""

    @property
    def dialect(self) -> Dialect:
        """What it writes objects in."""
        raise NotImplementedError

    def fetch(self, message: Fetch) -> int:
        """Fetch a range from it; the id of the request."""
        raise NotImplementedError

    def fetch_closed(self, request_id: int, *, ok: bool) -> None:
        """What was fetched from it has arrived, or is given up."""
        raise NotImplementedError

    # -- its end -----------------------------------------------------------------------------------

    def review(self, now: float) -> None:
        """End what it is not allowed any more."""
        raise NotImplementedError

    def decided(self, decision: Decision, now: float) -> None:
        """As `Depending.decided`."""
        raise NotImplementedError

    def taken_back(self, now: float) -> None:
        """As `Depending.taken_back`."""
        raise NotImplementedError

    def depends_on(self, decision: Decision) -> bool:
        """As `Depending.depends_on`."""
        return self.access.uses(decision)

    def expire(self, now: float) -> bool:
        """Give up what nobody has explained in time; whether something still waits."""
        return False

    def left(self) -> None:
        """The Edge has forgotten all that it offered and wanted."""

    # -- as `ports.Client` -------------------------------------------------------------------------

    def subscribe(self, track: TrackHash, subscribe_data: bytes) -> None:
        """As `Client.subscribe`."""
        raise NotImplementedError

    def unsubscribe(self, track: TrackHash) -> None:
        """As `Client.unsubscribe`."""
        raise NotImplementedError

    def open_stream(self, track: TrackHash, priority: int, ttl_us: int) -> OutStream:
        """As `Client.open_stream`; a subscription opens its own streams instead."""
        return self.link.open_stream((DEFAULT_PRIORITY, priority, ORDINARY, 0, 0, 0), ttl_us)

    def send_datagram(self, track: TrackHash, data: bytes, priority: int) -> None:
        """As `Client.send_datagram`."""
        self.link.send_datagram(data, (DEFAULT_PRIORITY, priority, ORDINARY, 0, 0, 0), 0)
