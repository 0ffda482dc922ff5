"""Whether every object came to every subscriber, while relays and links failed.

What a publisher gave up itself (its relay had nobody left to ask for it) need not arrive, nor a
datagram that a link lost by itself, as links do without any fault.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from laps.sim.invariants import matches
from laps.types import PeerMode, format_node_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from laps.sim.clients import ObjectId, Publisher, Subscriber
    from laps.sim.network import Network
    from laps.types import NodeId

# How often it is looked at who can reach whom.
LOOK_S: Final = 0.25

# An object has come everywhere in this time, unless something fails.
UNDER_WAY_S: Final = 2.0

# What happened this long before an object was published, or after, may be why it is missing.
NEAR_S: Final = 3.0


class Partitions:
    """Which nodes had no way to each other, and when."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._parts: list[tuple[float, list[set[NodeId]]]] = []
        "Since a time, who could reach whom."
        self._look()
        network.clock.every(LOOK_S, self._look)

    def _look(self) -> None:
        found = parts(self._network)
        if not self._parts or self._parts[-1][1] != found:
            self._parts.append((self._network.now - LOOK_S, found))

    def apart(self, a: NodeId, b: NodeId, since: float, until: float) -> bool:
        """Whether two nodes were apart at any moment of that time."""
        ends = [time + LOOK_S for time, _ in self._parts[1:]] + [inf]
        return any(
            time <= until and end >= since and not any(a in part and b in part for part in found)
            for (time, found), end in zip(self._parts, ends, strict=True)
        )


def parts(network: Network) -> list[set[NodeId]]:
    """The nodes that are joined by connections that carry data, whatever relays know of them."""
    joined: dict[NodeId, set[NodeId]] = {
        place: set() for place, node in network.nodes.items() if node.is_up and not node.is_frozen
    }
    for cable, (a, b) in zip(network.cables, network.cable_ends, strict=True):
        carries = any(
            end.is_open and end.other.is_open and end.mode is not PeerMode.CONTROL
            for end in cable.ends
        )
        if carries and not cable.is_cut and a in joined and b in joined:
            joined[a].add(b)
            joined[b].add(a)
    found = []
    while joined:
        part, queue = set(), [next(iter(joined))]
        while queue:
            if (node_id := queue.pop()) in joined:
                part.add(node_id)
                queue += joined.pop(node_id)
        found.append(part)
    return found


def check_whole(
    network: Network,
    partitions: Partitions,
    since: float,
    until: float,
    struck: Collection[NodeId] = (),
) -> list[str]:
    """Every object that was published in that time came to every subscriber.

    Those at nodes that something happened to are left out.
    """
    found: list[str] = []
    for publisher in network.publishers:
        for subscriber in network.subscribers:
            places = {publisher.spec.node, subscriber.spec.node}
            if matches(publisher, subscriber) and places.isdisjoint(struck):
                found += _check_pair(network, partitions, publisher, subscriber, since, until)
    return found


def _check_pair(
    network: Network,
    partitions: Partitions,
    publisher: Publisher,
    subscriber: Subscriber,
    since: float,
    until: float,
) -> Iterator[str]:
    track = subscriber.track_hash.full_name_hash
    lost = network.trace.lost
    made = [
        one
        for one, at in publisher.published_at.items()
        if since <= at <= until and one.track == track
    ]
    missing = [
        one
        for one in made
        if one not in subscriber.got
        and (one.track, one.group) not in publisher.abandoned
        and one not in lost
    ]
    if not made:
        yield f"{_pair(publisher, subscriber)}: nothing was published"
    ends = publisher.spec.node, subscriber.spec.node
    apart: list[ObjectId] = []
    near: list[ObjectId] = []
    for one in missing:
        at = publisher.published_at[one]
        is_apart = partitions.apart(*ends, at, at + UNDER_WAY_S)
        (apart if is_apart else near).append(one)
    for some, why in ((near, ""), (apart, " while no way led there")):
        if some:
            count = f"{len(some)} of {len(made)} missing{why}"
            story = _story(network, publisher, some[0])
            yield f"{_pair(publisher, subscriber)}: {count}, {story}"


def _pair(publisher: Publisher, subscriber: Subscriber) -> str:
    a, b = format_node_id(publisher.spec.node), format_node_id(subscriber.spec.node)
    return f"publisher {publisher.number} at {a} to subscriber {subscriber.number} at {b}"


def _story(network: Network, publisher: Publisher, made: ObjectId) -> str:
    """Which object, how far it came, and what happened near that time."""
    at = publisher.published_at[made]
    kind = "datagram" if made.is_datagram else "object"
    trail = network.trace.trails.get(made)
    hops = (
        ""
        if trail is None
        else ", ".join(f"{format_node_id(a)}-{format_node_id(b)}" for a, b in trail.hops)
    )
    near = [
        f"{one.what} at {one.time:.3f}"
        for one in network.disturbances
        if abs(one.time - at) <= NEAR_S
    ]
    return (
        f"{kind} {made.number} of group {made.group}, published at {at:.3f}, went"
        f" {hops or 'nowhere'}; {', '.join(near) or 'nothing happened then'}"
    )
