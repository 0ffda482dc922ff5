"""Random policies for simulated networks, and whether objects kept to them at every hop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from laps.infobase.metrics import Metrics
from laps.policy import Policy, policy_from_mapping
from laps.routing import compliance
from laps.routing.flows import FromPeer
from laps.routing.policy import PolicyInForce, terms_of
from laps.routing.terms import ORDINARY
from laps.types import NodeMetrics, PeerMode, format_node_id

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from laps.sim.clients import ObjectId, Publisher, Subscriber
    from laps.sim.network import Network
    from laps.sim.topology import Topology
    from laps.types import NodeId

REGIONS = ("ca", "eu", "us-east", "us-west")

# Word of a policy is everywhere at once here, but objects and decisions are under way.
GRACE_S = 1.5


def in_regions(topology: Topology, rng: Random) -> Topology:
    """The same network with each node in one of four regions, near ones mostly in the same."""
    nodes = []
    for node in topology.nodes:
        number = int((node.longitude + 180) / 360 * len(REGIONS) * 1.5) % len(REGIONS)
        region = REGIONS[number] if rng.random() < 0.8 else rng.choice(REGIONS)
        nodes.append(msgspec.structs.replace(node, region=region))
    return msgspec.structs.replace(topology, nodes=tuple(nodes))


def random_policy(topology: Topology, rng: Random) -> Policy:
    """Some rules for some of the tracks `sim/0`, `sim/1` …, and some for nodes, links and ways."""
    regions = sorted({node.region for node in topology.nodes})
    tables: dict[str, Any] = {"rule": [], "link": [], "peering": [], "way": [], "node": []}
    relays = [format_node_id(node.id) for node in topology.nodes if node.type != "stub"]
    for number in range(6):
        if rng.random() < 0.6:
            tables["rule"].append({"tracks": f"sim/{number}/*", **_random_rule(regions, rng)})
    for link in rng.sample(list(topology.links), 2):
        pair = [format_node_id(link.a), format_node_id(link.b)]
        kind = rng.random()
        if kind < 0.4:
            tables["link"].append({"between": pair, "closed": True})
        elif kind < 0.8:
            tables["link"].append({"between": pair, "transits": [rng.choice(regions)]})
        elif kind < 0.9:
            tables["peering"].append({"between": pair, "allow": False})
    if rng.random() < 0.2:
        some = [format_node_id(node.id) for node in topology.nodes if rng.random() < 0.8]
        if some:
            tables["vias"] = {"nodes": some}
    if rng.random() < 0.4:
        vias = rng.sample(relays, rng.randint(1, 3))
        tables["way"].append(
            {"vias": vias, "tracks": rng.choice(("", f"sim/{rng.randrange(6)}/*"))}
        )
    if rng.random() < 0.2:
        tables["node"].append({"nodes": rng.sample(relays, 2), "region": rng.choice(regions)})
    return policy_from_mapping(tables, "a test")


def _random_rule(regions: list[str], rng: Random) -> dict[str, Any]:
    """What holds for some tracks."""
    rule: dict[str, Any] = {}
    kind = rng.random()
    if kind < 0.4:
        rule["inside"] = rng.sample(regions, rng.randint(2, 3))
    elif kind < 0.8:
        rule["avoid"] = rng.sample(regions, 1)
    if rng.random() < 0.5:
        rule["class"] = rng.choice(("gold", "silver", "bronze"))
    if rng.random() < 0.1:
        rule["told"] = rng.sample(regions, rng.randint(1, 3))
    return rule


def tracks_of(network: Network) -> dict[int, str]:
    """The names of all tracks, by their hashes."""
    return {
        subscriber.track_hash.full_name_hash: "/".join(
            (*subscriber.spec.namespace, subscriber.spec.name)
        )
        for subscriber in network.subscribers
    }


class Inspector:
    """Looks at every hop of every object."""

    def __init__(self, network: Network) -> None:
        self.found: list[str] = []
        self.hops = 0
        "How many were bound by a policy."
        self.streams = 0
        "How many streams were looked at."
        self._network = network
        self._tracks = tracks_of(network)
        self._stubs = {it.node_id for it in network.nodes.values() if it.spec.type == "stub"}
        self._edges_of_stubs = {
            pair
            for a, b in network.cable_ends
            for pair in ((a, b), (b, a))
            if pair[0] in self._stubs
        }
        self._rules: list[tuple[float, PolicyInForce | None]] = [(0.0, None)]
        network.trace.watch = self._hop

    def follow(self, policy: Policy | None) -> None:
        """Every relay keeps to another policy from now on."""
        rules = None
        if policy is not None:
            metrics = Metrics()
            for node in self._network.nodes.values():
                metrics.add(NodeMetrics(1, node.node_id, 0, 0, 0, node.spec.region))
            first = next(iter(self._network.nodes.values()))
            rules = PolicyInForce(first.node_id, first.spec.region, metrics)
            rules.follow(policy)
        self._rules.append((self._network.now, rules))
        self._network.follow_policy(policy)

    def look_at_classes(self) -> None:
        """Every stream that is open has the place of its track's class, at every hop."""
        at, rules = self._rules[-1]
        if self._network.now < at + GRACE_S:
            return
        for node in self._network.nodes.values():
            for passing in () if node.relay is None else node.relay.data.open_streams():
                flow = passing.flow
                key = None if flow is None else flow.track
                if flow is not None and not isinstance(flow.key, FromPeer):
                    key = flow.key.track
                if key not in self._tracks:
                    continue
                self.streams += 1
                policy = None if rules is None else rules.policy
                wanted = ORDINARY if policy is None else terms_of(policy, self._tracks[key]).order
                for _, _, _, out in passing.sets:
                    order = out.order  # type: ignore[attr-defined]  # of a simulated link
                    if not out.over and order != wanted:
                        where = f"{self._tracks[key]} leaves {format_node_id(node.node_id)}"
                        found = f"{where} in place {order}, not {wanted}"
                        self.found.append(f"{self._network.now:.3f}: {found}")

    def _hop(self, made: ObjectId, a: NodeId, b: NodeId, now: float) -> None:
        against = None
        changed_at = self._rules[-1][0]
        if now < changed_at + GRACE_S and self._published_at(made) < changed_at:
            return  # it was under way while policy changed
        for at, rules in reversed(self._rules):
            against = self._against(rules, made, a, b)
            if against is None:
                return
            if at < now - GRACE_S:
                break
        pair = f"{format_node_id(a)} to {format_node_id(b)}"
        self.found.append(f"{now:.3f}: {made} of {self._tracks[made.track]} from {pair}: {against}")

    def _published_at(self, made: ObjectId) -> float:
        return self._network.publishers[made.publisher].published_at[made]

    def _against(
        self, rules: PolicyInForce | None, made: ObjectId, a: NodeId, b: NodeId
    ) -> str | None:
        if rules is None or rules.policy is None or made.track not in self._tracks:
            return None
        if self._stubs & {a, b}:
            return None  # to its Edge a Stub is a client
        terms = terms_of(rules.policy, self._tracks[made.track])
        if terms.is_bound or rules.limits:
            self.hops += 1
        against = (
            rules.against_node(terms, a)
            or rules.against_node(terms, b)
            or rules.against_link(terms, a, b)
        )
        origin = self._network.publishers[made.publisher].spec.node
        if against is None and a != origin and (origin, a) not in self._edges_of_stubs:
            against = rules.against_via(a)
        return against


def links_up(network: Network) -> Iterator[tuple[NodeId, NodeId]]:
    """The links that carry data now."""
    for cable, pair in zip(network.cables, network.cable_ends, strict=True):
        if any(end.is_open and end.mode is not PeerMode.CONTROL for end in cable.ends):
            yield pair


def has_way(network: Network, policy: Policy | None, track: str, a: NodeId, b: NodeId) -> bool:
    """Whether an allowed way leads from a publisher's node to a subscriber's."""
    relays = [
        compliance.Relay(node.node_id, node.spec.type, node.spec.region)
        for node in network.nodes.values()
    ]
    whole = compliance.Network(relays, links_up(network))
    if policy is None:
        return bool(whole.seen_from(a, None).way(b))
    return whole.seen_from(a, policy).has_way(terms_of(policy, track), b)


def missing(
    publisher: Publisher, subscriber: Subscriber, since: float, until: float
) -> tuple[int, int]:
    """How many objects of that time were published, and how many of them did not come."""
    track = subscriber.track_hash.full_name_hash
    made = [
        one
        for one, at in publisher.published_at.items()
        if since <= at <= until and one.track == track and not one.is_datagram
    ]
    return len(made), sum(one not in subscriber.got for one in made)
