"""Applications at simulated relays that go where their relay sends them, and miss nothing by it.

A `Viewer` reads some tracks. It has a session with one relay at a time, and with two while it
moves: the new one begins, and when everything comes by it the old one ends, as our own clients do
it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Final, cast

from laps.edge.access import Access
from laps.edge.client import EdgeClient, EdgeSubscription
from laps.sim.clients import Incoming, ObjectId, read_datagram
from laps.tracks.subscription import SubscriptionState
from laps.types import Address, TrackKey, hash_track, track_alias
from laps.wire.subscribe import encode_subscribe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from laps.edge.client import ClientLink, Session
    from laps.edge.edge import Edge
    from laps.edge.settings import MovingSettings
    from laps.relay.relay import Relay
    from laps.sim.clients import Publisher
    from laps.sim.network import Network
    from laps.sim.node import SimNode
    from laps.types import NodeId, TrackHash, TrackName

# A session takes some round trips to make.
HANDSHAKE_S: Final = 0.2

# The old session ends so long after something came of each track by the new one: longer than a
# group takes to be published.
OVERLAP_S: Final = 3.0
LOOK_S: Final = 0.25
# And after this whether or not something came.
MOST_S: Final = 8.0

PORT: Final = 33435


class _Link:
    """A connection that takes everything at once, to a client whose address nobody asks for."""

    host = ""
    pressed = False
    crowded = False
    sent_bytes = 0


class _Session:
    """A session without messages."""

    held_bytes = 0

    def let_go(self) -> None:
        """As `Session`: it holds nothing."""


class Seat(EdgeClient):
    """A session of a viewer with a relay."""

    def __init__(self, viewer: Viewer, node: SimNode, relay: Relay, edge: Edge) -> None:
        link = cast("ClientLink", _Link())
        super().__init__(link, edge.context.share_of(link))
        self.session: Session = _Session()
        self.access = Access(edge.context.authority, self.share)
        self.node = node
        self.came: set[ObjectId] = set()
        self.tracks: set[TrackKey] = set()
        "Those that something has come of."
        self._viewer = viewer
        self._relay, self._edge = relay, edge
        self._subscriptions: dict[TrackKey, EdgeSubscription] = {}
        self._numbers = count()

    @property
    def subscriptions(self) -> Mapping[TrackKey, EdgeSubscription]:
        """As `EdgeClient.subscriptions`."""
        return self._subscriptions

    def begin(self) -> None:
        """Subscribe to everything."""
        now = self.node.now
        self._edge.client_ready(self)
        for name in self._viewer.names:
            self._relay.subscribe(self, name, encode_subscribe(name), now)
            track = self._relay.tracks.track(hash_track(name), now, name)
            self._subscriptions[track.key] = EdgeSubscription(
                self, track, next(self._numbers), SubscriptionState.ESTABLISHED
            )
        self.node.touched()

    def leave(self) -> None:
        """Leave the relay."""
        if self in self._edge.clients and self.node.edge is self._edge:
            self._edge.client_closed(self, self.node.now)
            self.node.touched()

    def left(self) -> None:
        """As `EdgeClient.left`."""
        self._subscriptions.clear()

    def go_away(self, to: Address | None) -> None:
        """As `EdgeClient.go_away`."""
        self._viewer.sent(self, to)

    def review(self, now: float) -> None:
        """As `EdgeClient.review`: what is not allowed any more just does not come."""

    def dismiss(self) -> None:
        """As `EdgeClient.dismiss`."""
        self.leave()

    def open_stream(self, track: TrackHash, priority: int, ttl_us: int) -> Incoming:
        """As `Client.open_stream`."""
        key = track.full_name_hash

        def receive(publisher: int, group: int, number: int, is_datagram: bool) -> None:
            self._receive(ObjectId(publisher, key, group, number, is_datagram))

        return Incoming(track_alias(key), receive, self._viewer.violations)

    def send_datagram(self, track: TrackHash, data: bytes, priority: int) -> None:
        """As `Client.send_datagram`."""
        if (found := read_datagram(data)) is not None:
            self._receive(ObjectId(found[0], track.full_name_hash, *found[1:], True))

    def _receive(self, found: ObjectId) -> None:
        if found in self.came:
            self._viewer.twice.append(found)
        self.came.add(found)
        self.tracks.add(TrackKey(found.track))
        self._viewer.got.setdefault(found, self.node.clock.now)


class Viewer:
    """An application that reads some tracks."""

    def __init__(self, audience: Audience, node: SimNode, names: tuple[TrackName, ...]) -> None:
        self.names = names
        self.home = node
        "Where it began."
        self.keys = {hash_track(name).full_name_hash for name in names}
        self.got: dict[ObjectId, float] = {}
        "Every object, and when it came first."
        self.twice: list[ObjectId] = []
        "What came twice in one session."
        self.violations: list[str] = []
        self.moves: list[tuple[float, NodeId]] = []
        "When it was sent elsewhere, and where it has gone."
        self.follows = True
        "Or else it stays where it is, whatever it is told."
        self.asked = 0
        "How often it was sent elsewhere."
        self.seat: Seat | None = None
        self._audience = audience
        node.clock.after(1.0, self._sit, node)

    def sent(self, seat: Seat, to: Address | None) -> None:
        """A relay sends it elsewhere."""
        self.asked += 1
        node = self._audience.at(to)
        if node is not None and self.follows and seat is self.seat:
            node.clock.after(HANDSHAKE_S, self._move, seat, node)

    def missing(self, publisher: Publisher, since: float, until: float) -> list[ObjectId]:
        """What was published in a time and has not come."""
        return [
            made
            for made, at in publisher.published_at.items()
            if since <= at < until and made.track in self.keys and made not in self.got
        ]

    def _sit(self, node: SimNode) -> None:
        relay, edge = node.relay, node.edge
        if relay is not None and edge is not None:
            self.seat = Seat(self, node, relay, edge)
            self.seat.begin()

    def _move(self, old: Seat, node: SimNode) -> None:
        self._sit(node)
        if (new := self.seat) is not None and new is not old:
            now = node.clock.now
            self.moves.append((now, node.spec.id))
            node.clock.after(LOOK_S, self._look, old, new, now + MOST_S)

    def _look(self, old: Seat, new: Seat, until: float) -> None:
        clock = new.node.clock
        if new.tracks == self.keys:
            clock.after(OVERLAP_S, old.leave)
        elif clock.now >= until:
            old.leave()
        else:
            clock.after(LOOK_S, self._look, old, new, until)


@dataclass(frozen=True, slots=True)
class Seen:
    """What viewers saw of what was published in a time."""

    delays_s: tuple[float, ...]
    "Of each object and viewer, in order."
    lost: int
    twice: int

    def delay_s(self, share: float) -> float:
        """What so many of the deliveries take at most."""
        if not self.delays_s:
            return 0.0
        return self.delays_s[min(len(self.delays_s) - 1, int(share * len(self.delays_s)))]


class Audience:
    """The viewers of a network, and where its Edges take them."""

    def __init__(self, network: Network, moving: MovingSettings) -> None:
        """Before the network begins to run."""
        self.viewers: list[Viewer] = []
        self._network = network
        self._nodes: dict[Address, SimNode] = {}
        edges = [it for it in network.nodes.values() if it.spec.type == "edge"]
        for number, node in enumerate(edges, start=1):
            address = Address(f"10.0.{number >> 8}.{number & 0xFF}", PORT)
            self._nodes[address] = node
            node.client_address = str(address)
            node.edge_settings = replace(node.edge_settings, moving=moving)

    def seat(self, node_id: NodeId, names: Iterable[TrackName]) -> Viewer:
        """One more viewer, at a node."""
        viewer = Viewer(self, self._network.nodes[node_id], tuple(names))
        self.viewers.append(viewer)
        return viewer

    def at(self, address: Address | None) -> SimNode | None:
        """The node that takes clients at an address."""
        return None if address is None else self._nodes.get(address)

    @property
    def moves(self) -> int:
        """How often viewers have gone elsewhere."""
        return sum(len(viewer.moves) for viewer in self.viewers)

    def seen(self, since: float, until: float) -> Seen:
        """What came of that which was published in a time; all of it has had time to."""
        delays: list[float] = []
        lost = 0
        for publisher in self._network.publishers:
            for viewer in self.viewers:
                lost += len(viewer.missing(publisher, since, until))
                delays += [
                    viewer.got[made] - at
                    for made, at in publisher.published_at.items()
                    if since <= at < until and made in viewer.got
                ]
        twice = sum(len(viewer.twice) for viewer in self.viewers)
        return Seen(tuple(sorted(delays)), lost, twice)
