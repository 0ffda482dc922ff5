"""Who is given a track: subscriptions of clients, with what each waits for, and plain clients.

A SUBSCRIBE is answered when its track is known to be there. Until then the subscription stands in
the network, so that a publisher is asked as soon as it is there, and what it sends is kept:

      SUBSCRIBE ──► WAITING ── a publisher here answers, or sends ──────────► ESTABLISHED
                     │  ▲
                     │  └── that relay refuses ──┐
                     └──── another relay offers ─┴► ASKING ── it answers, ──► ESTABLISHED
                                                                or is late
      our PUBLISH ──► OFFERED ── the client accepts ────────────────────────► ESTABLISHED

      any ── refused, ended, or the client left ──► CLOSED

WAITING    nobody is known to publish the track, or its publisher has not answered.
ASKING     another relay was asked how far the track is; what arrives meanwhile is kept.
OFFERED    the client was told of the track and has not answered; nobody is asked on its behalf.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

from laps.errors import LocalProtocolError
from laps.tracks.sinks import Cut
from laps.wire.moqt.data import encode_subgroup_header
from laps.wire.moqt.dialect import BETWEEN_RELAYS

if TYPE_CHECKING:
    from laps.tracks.ports import Client, OutStream
    from laps.tracks.streams import IncomingStream
    from laps.types import Location, NodeId, TrackHash
    from laps.wire.moqt.data import DatagramObject
    from laps.wire.quicr.messages import Fragment, Terms


class SubscriptionState(Enum):
    """How far a subscription is."""

    OFFERED = auto()
    WAITING = auto()
    ASKING = auto()
    ESTABLISHED = auto()
    CLOSED = auto()


# A member of an enumeration takes a while to look up, and each stream and datagram asks for it.
ESTABLISHED: Final = SubscriptionState.ESTABLISHED

_NEXT: Final = {
    SubscriptionState.OFFERED: frozenset({SubscriptionState.ESTABLISHED, SubscriptionState.CLOSED}),
    SubscriptionState.WAITING: frozenset(
        {SubscriptionState.ASKING, SubscriptionState.ESTABLISHED, SubscriptionState.CLOSED}
    ),
    SubscriptionState.ASKING: frozenset(
        {SubscriptionState.WAITING, SubscriptionState.ESTABLISHED, SubscriptionState.CLOSED}
    ),
    SubscriptionState.ESTABLISHED: frozenset({SubscriptionState.CLOSED}),
    SubscriptionState.CLOSED: frozenset[SubscriptionState](),
}

_UNANSWERED: Final = (SubscriptionState.WAITING, SubscriptionState.ASKING)


class SubscriptionOwner(Protocol):
    """The track that is subscribed to."""

    def subscription_changed(self, subscription: Subscription, was: SubscriptionState) -> None:
        """A subscription has gone from one state to another."""

    def first_data(self, subscription: Subscription) -> None:
        """Data arrived for a subscription that waits for a publisher."""


class Subscription:
    """A client's subscription to a track: what every protocol's has in common."""

    __slots__ = (
        "_owner",
        "_state",
        "asked",
        "client",
        "is_new",
        "is_overdue",
        "new_group",
        "refused_by",
        "request_id",
    )

    patient = False
    "Whether it waits for a publisher as long as it takes, and is never refused."
    takes_fragments = False
    "Whether it is given pieces of objects as they arrive in datagrams; or else whole objects."
    is_in_order = False
    "Whether groups wait for those before them while what is missing is asked for."

    def __init__(
        self, client: Client, owner: SubscriptionOwner, request_id: int, state: SubscriptionState
    ) -> None:
        self.client = client
        self.request_id = request_id
        self.new_group: int | None = None
        "The new group that it asks for."
        self.is_new = False
        "Nobody offered the track when it began: whatever is published of it is new."
        self.is_overdue = False
        "It has waited for a publisher as long as it may."
        self.refused_by: set[NodeId] = set()
        "Relays whose publishers refused, or that have none any more."
        self.asked: set[NodeId] | None = None
        "Relays that were asked how far the track is, while none has answered."
        self._owner = owner
        self._state = state

    @property
    def state(self) -> SubscriptionState:
        """How far it is."""
        return self._state

    @property
    def is_established(self) -> bool:
        """Whether it has been answered, and objects flow."""
        return self._state is ESTABLISHED

    @property
    def is_unanswered(self) -> bool:
        """Whether it still waits for an answer."""
        return self._state in _UNANSWERED

    @property
    def end_group(self) -> int | None:
        """The last group that is wanted; None where there is no end."""
        return None

    def is_past(self, largest: Location | None) -> bool:
        """Whether the whole range has been published already."""
        return False

    def advance(self, state: SubscriptionState) -> None:
        """Go to another state, if the table has such a step."""
        if state not in _NEXT[self._state]:
            raise LocalProtocolError(f"a subscription cannot go from {self._state} to {state}")
        was, self._state = self._state, state
        self._owner.subscription_changed(self, was)

    # -- what the track gives it -------------------------------------------------------------------

    def open(
        self,
        stream: IncomingStream,
        whole: bytes,
        rest: bytes | memoryview,
        fin: bool,
        now: float,
    ) -> OutStream | None:
        """A stream has begun: open one for it, and write the first bytes; None if not wanted.

        `whole` begins with the header, `rest` with what follows it.
        """
        raise NotImplementedError

    def datagram(
        self, data: bytes, item: DatagramObject, now: float, *, pieced: bool = False
    ) -> None:
        """An object in a datagram, as it arrived and as it was read.

        One that arrived in several, `pieced`, may be larger than a datagram can be.
        """
        raise NotImplementedError

    def fragments(self, fragments: list[Fragment], terms: Terms, data: bytes, now: float) -> None:
        """What is new of an object that comes in several datagrams, and the datagram itself."""

    def started_over(self) -> None:
        """The publisher has begun again with smaller groups."""
        raise NotImplementedError

    def repaired(self, now: float) -> None:
        """What was missing has come, or nobody has it: it need not be waited for."""

    def reorder(self) -> None:
        """The track is of another class of service: what is open has its place."""

    def is_kept_for_later(self) -> bool:
        """Whether what arrives now is not for it yet: it is in the cache, and sent from there.

        The first data wakes a subscription that waits for a publisher.
        """
        if self._state is SubscriptionState.WAITING:
            self._owner.first_data(self)
        return self._state is not ESTABLISHED


class PlainSubscriber:
    """A client that takes every stream as it is: a Stub, or one in a simulation."""

    state = SubscriptionState.ESTABLISHED
    takes_fragments = True
    is_in_order = False

    def __init__(self, client: Client, track: TrackHash) -> None:
        self.client = client
        self._track = track

    def open(
        self,
        stream: IncomingStream,
        whole: bytes,
        rest: bytes | memoryview,
        fin: bool,
        now: float,
    ) -> OutStream:
        """As `Subscription.open`; every stream is wanted."""
        out = self.client.open_stream(self._track, stream.priority, stream.ttl_us)
        data: bytes | memoryview = whole
        if stream.first:
            # What begins later cannot take its subgroup from the first object.
            header = replace(stream.header, subgroup=stream.subgroup)
            head = encode_subgroup_header(header, BETWEEN_RELAYS)
            out = Cut(out, head, stream.first, header.has_extensions)
            data = rest
        if fin:
            out.finish(data, now)
        else:
            out.write(data, now)
        return out

    def datagram(
        self, data: bytes, item: DatagramObject, now: float, *, pieced: bool = False
    ) -> None:
        """As `Subscription.datagram`."""
        self.client.send_datagram(self._track, data, 0)

    def fragments(self, fragments: list[Fragment], terms: Terms, data: bytes, now: float) -> None:
        """As `Subscription.fragments`: as it arrived, for the next relay to put together."""
        self.client.send_datagram(self._track, data, 0)

    def started_over(self) -> None:
        """As `Subscription.started_over`: it takes whatever comes."""

    def repaired(self, now: float) -> None:
        """As `Subscription.repaired`: nothing waits here."""

    def reorder(self) -> None:
        """As `Subscription.reorder`; the next stream has the place."""


Subscriber = Subscription | PlainSubscriber


@dataclass(frozen=True, slots=True)
class FirstData:
    """An event: data arrived for a subscription that waits for a publisher."""

    subscription: Subscription
