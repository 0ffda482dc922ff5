"""What holds in every network, whatever happened to it. Each check names what does not.

Always: no relay breaks the protocol, no subscriber sees an object twice or a stream out of order,
no object goes round in a loop for longer than word of a change needs to get about, nor does one
after the other.

At rest: the best paths are those of a plain Dijkstra over the same round trips, and every relay
that keeps subscribes knows exactly those of the nodes it can know.

After rest: every subscriber gets every object whose group began since, by one way and without a
loop, and it ends at nodes that have a subscriber. After everybody has left: nothing remains.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.relay.roles import Role
from laps.relay.sizes import contents
from laps.sim.clients import track_of
from laps.types import NodeId, PeerMode, format_node_id, hash_track

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from laps.relay.relay import Relay
    from laps.sim.clients import ObjectId, Publisher, Subscriber
    from laps.sim.network import Network
    from laps.sim.node import SimNode
    from laps.sim.trace import Loop
    from laps.types import SubscribeInfo

# A round trip is advertised anew when it is past both of these, so what is known lags behind.
SRTT_SHARE: Final = 0.1
SRTT_US: Final = 2000
# Data may come to a node ahead of the word that the way has changed, and once more after it. A loop
# that lasts longer is one that no word is under way about.
LOOP_S: Final = 1.0

# Objects that come back one after another are in one loop, if no more than this is between them.
LOOP_GAP_S: Final = 0.5

# Noise on top of it, by the time two sides are compared.
NOISE_SHARE: Final = 0.05


def check_always(network: Network) -> list[str]:
    """What may never have happened."""
    found = [str(loop) for loop in network.trace.loops if loop.lasted_s > LOOP_S]
    found += lasting_loops(network.trace.loops)
    found += network.trace.violations
    for node in network.nodes.values():
        found += node.violations
    for publisher in network.publishers:
        found += publisher.violations
    for subscriber in network.subscribers:
        found += subscriber.violations
        found += [
            f"subscriber {subscriber.number} got {made} twice" for made in subscriber.duplicates
        ]
    return found


def lasting_loops(loops: Iterable[Loop]) -> Iterator[str]:
    """Loops in which one object after another comes back to a node, though each may do so soon."""
    since: dict[tuple[int, int, NodeId], Loop] = {}
    last: dict[tuple[int, int, NodeId], Loop] = {}
    named: set[Loop] = set()
    for loop in loops:
        key = loop.made.publisher, loop.made.track, loop.node_id
        if key not in last or loop.at - last[key].at > LOOP_GAP_S:
            since[key] = loop
        last[key] = loop
        if loop.at - since[key].at > LOOP_S and since[key] not in named:
            named.add(since[key])
            yield f"one object after another comes back for over {LOOP_S:g} s, as {since[key]}"


# --- paths -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Edge:
    """A peering as one of its nodes sees it."""

    least_us: int
    most_us: int
    "Of the round trips of its links that carry data."
    has_control: bool


@dataclass(frozen=True, slots=True)
class Distance:
    """The best that can be known of the way to a node."""

    hops: int
    least_us: int
    most_us: int


Graph = dict[NodeId, dict[NodeId, Edge]]


def data_graph(network: Network) -> Graph:
    """Who can send data to whom at this moment, and who hears of nodes there."""
    graph: Graph = {node.node_id: {} for node in network.nodes.values()}
    control = set()
    for node in network.nodes.values():
        for link in node.links.values():
            if not (link.is_open and link.other.is_open):
                continue
            pair = node.node_id, link.other.host.node_id
            if link.mode is not PeerMode.DATA:
                control.add(pair)
            if link.mode is PeerMode.CONTROL:
                continue
            edge = graph[pair[0]].setdefault(pair[1], Edge(link.srtt_us, link.srtt_us, False))
            edge.least_us = min(edge.least_us, link.srtt_us)
            edge.most_us = max(edge.most_us, link.srtt_us)
    for a, edges in graph.items():
        for b, edge in edges.items():
            edge.has_control = (a, b) in control
    return graph


def distances(graph: Graph, target: NodeId, transit: set[NodeId]) -> dict[NodeId, Distance]:
    """Dijkstra from a node outwards: by hops, then by the sum of round trips.

    Only nodes in `transit` pass data on. A node speaks of another over control only, but each
    knows its own peers without being told.
    """
    towards: dict[NodeId, list[tuple[NodeId, Edge]]] = {}
    for a, edges in graph.items():
        for b, edge in edges.items():
            towards.setdefault(b, []).append((a, edge))
    least = _dijkstra(towards, target, transit, lambda edge: edge.least_us)
    most = _dijkstra(towards, target, transit, lambda edge: edge.most_us)
    return {node: Distance(hops, us, most[node][1]) for node, (hops, us) in least.items()}


def _dijkstra(
    towards: dict[NodeId, list[tuple[NodeId, Edge]]],
    target: NodeId,
    transit: set[NodeId],
    weight: Callable[[Edge], int],
) -> dict[NodeId, tuple[int, int]]:
    done: dict[NodeId, tuple[int, int]] = {}
    queue = [(-1, 0, target)]
    while queue:
        hops, us, node = heapq.heappop(queue)
        if node in done:
            continue
        done[node] = (hops, us)
        if node != target and node not in transit:
            continue
        for other, edge in towards.get(node, ()):
            if other not in done and (edge.has_control or node == target):
                heapq.heappush(queue, (hops + 1, us + weight(edge), other))
    del done[target]
    return done


def check_paths(network: Network) -> list[str]:
    """Best paths are those of a plain Dijkstra, as far as round trips are told precisely."""
    found = []
    graph = data_graph(network)
    up = {node.node_id: node for node in network.nodes.values() if node.is_up}
    transit = {node_id for node_id, node in up.items() if node.role in (Role.EDGE, Role.VIA)}
    for target in sorted(transit):
        expected = distances(graph, target, transit)
        for node_id in sorted(transit - {target}):
            relay = up[node_id].relay
            if relay is not None and (problem := _compare(relay, target, expected.get(node_id))):
                pair = f"{format_node_id(node_id)} to {format_node_id(target)}"
                found.append(f"{pair}: {problem}")
    return found


def _compare(relay: Relay, target: NodeId, expected: Distance | None) -> str | None:
    choice = relay.nodes.data_choice(target)
    if choice is None or expected is None:
        if choice is None and expected is None:
            return None
        return f"selection has {choice}, and there is {expected}"
    path = choice.path
    hops = path.hops + 1
    slack_us = hops * SRTT_US
    lowest = expected.least_us * (1 - SRTT_SHARE - NOISE_SHARE) - slack_us
    highest = expected.most_us * (1 + SRTT_SHARE + NOISE_SHARE) + slack_us
    if path.hops != expected.hops:
        return f"{path.hops} hops, and {expected.hops} would do"
    if not lowest <= path.srtt_us <= highest:
        return f"{path.srtt_us} us, and {expected.least_us} to {expected.most_us} would do"
    return None


# --- subscribes ------------------------------------------------------------------------------


def check_subscribes(network: Network) -> list[str]:
    """Who keeps subscribes knows those of all nodes it can know, as their own s-relays say them.

    A relay that control servers serve knows of them what concerns it, and no others.
    """
    found: list[str] = []
    said: dict[NodeId, dict[int, SubscribeInfo]] = {}
    for node in network.nodes.values():
        if node.relay is not None and node.role is Role.EDGE:
            own = node.relay.subscribes.of_source(node.node_id)
            said[node.node_id] = {info.track_hash.full_name_hash: info for info in own}
    for node in network.nodes.values():
        found += _check_own(network, node, said)
    for node in network.nodes.values():
        relay = node.relay
        if relay is None or not (node.role in (Role.EDGE, Role.CONTROL) or node.spec.reflect):
            continue
        reached = control_reach(network, node.node_id) | {node.node_id}
        expected = {
            (source, track)
            for source, tracks in said.items()
            if source in reached
            for track, info in tracks.items()
            if source == node.node_id or relay.interest.concerns_us(info)
        }
        # A server may be told more by others, for peers that have no session with those.
        needed = {
            (source, track)
            for source, track in expected
            if not relay.interest.shares or relay.interest.is_said_by_source(said[source][track])
        }
        known = {(info.source_node_id, info.track_hash.full_name_hash) for info in relay.subscribes}
        for source, track in sorted(needed - known):
            found.append(f"{node.name} misses the subscribe {format_node_id(source)} {track:016x}")
        for source, track in sorted(known - expected):
            found.append(f"{node.name} keeps the subscribe {format_node_id(source)} {track:016x}")
    return found


def _check_own(
    network: Network, node: SimNode, said: Mapping[NodeId, Collection[int]]
) -> Iterator[str]:
    """A client's subscribe is said by its edge, or by one edge of its stub."""
    if node.relay is None:
        return
    for subscriber in node.subscribers:
        track = subscriber.track_hash.full_name_hash
        if node.role is Role.EDGE:
            sayers = [node.node_id]
        else:
            sayers = [link.other.host.node_id for link in node.links.values()]
        if (
            subscriber.is_subscribed
            and sayers
            and not any(track in said.get(node_id, ()) for node_id in sayers)
        ):
            yield f"nobody says what subscriber {subscriber.number} at {node.name} wants"


def control_reach(network: Network, start: NodeId) -> set[NodeId]:
    """The nodes that word of can come from, over links for control and past no stub."""
    nodes = {node.node_id: node for node in network.nodes.values()}
    seen = {start}
    queue = [start]
    while queue:
        node = nodes[queue.pop()]
        if node.role is Role.STUB:
            continue
        for link in node.links.values():
            other = link.other.host.node_id
            usable = link.mode is not PeerMode.DATA and link.is_open and link.other.is_open
            if usable and other not in seen:
                seen.add(other)
                queue.append(other)
    return seen - {start}


# --- delivery --------------------------------------------------------------------------------


def check_delivery(network: Network, since: float, until: float) -> list[str]:
    """Every object of a group that began in that time came to every subscriber, by one way.

    Datagrams may be lost: for them only the way is looked at.
    """
    found = []
    for publisher in network.publishers:
        for subscriber in network.subscribers:
            if not subscriber.is_subscribed or not matches(publisher, subscriber):
                continue
            wanted = subscriber.track_hash.full_name_hash
            made = [
                one
                for one, began in publisher.published.items()
                if since <= began <= until and one.track == wanted
            ]
            missing = [one for one in made if one not in subscriber.got and not one.is_datagram]
            pair = f"publisher {publisher.number} to subscriber {subscriber.number}"
            if missing:
                found.append(f"{pair}: {len(missing)} of {len(made)} missing, as {missing[0]}")
            if not made:
                found.append(f"{pair}: nothing was published")
    return found + check_ways(network, since, until)


def check_ways(network: Network, since: float, until: float) -> list[str]:
    """What began in that time went by one way to each node, and ended where it is wanted."""
    began = {
        made: first
        for publisher in network.publishers
        for made, first in publisher.published.items()
    }

    def counts(made: ObjectId) -> bool:
        return since <= began[made] <= until

    found = [str(loop) for loop in network.trace.loops if counts(loop.made)]
    found += [
        f"{made} came to {format_node_id(to)} by two ways"
        for made, to in network.trace.repeats
        if counts(made)
    ]
    wanted = {
        (node.node_id, subscriber.track_hash.full_name_hash)
        for node in network.nodes.values()
        for subscriber in node.subscribers
    }
    for made, trail in network.trace.trails.items():
        if counts(made) and not made.is_datagram:  # which may have been lost further on
            found += [
                f"{made} ended at {format_node_id(end)}, where nobody wants it"
                for end in trail.ends
                if (end, made.track) not in wanted
            ]
    return found


def matches(publisher: Publisher, subscriber: Subscriber) -> bool:
    """Whether a subscriber's track is one that a publisher offers."""
    offered, wanted = publisher.spec, subscriber.spec
    if offered.name is not None:
        track = track_of(offered.namespace, offered.name)
        return hash_track(track) == subscriber.track_hash
    return wanted.namespace[: len(offered.namespace)] == offered.namespace


# --- the end ---------------------------------------------------------------------------------


def check_no_clients(network: Network) -> list[str]:
    """With the clients gone, nothing is left of what they wanted and sent."""
    return _remaining(network, with_peers=True)


def check_empty(network: Network) -> list[str]:
    """With the peers gone too, nothing is left at all."""
    return _remaining(network, with_peers=False)


def _remaining(network: Network, *, with_peers: bool) -> list[str]:
    return [
        f"{node.name}: {table} still has {size}"
        for node in network.nodes.values()
        if node.relay is not None
        for table, size in contents(node.relay, node.edge, with_peers=with_peers).items()
        if size
    ]
