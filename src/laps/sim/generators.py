"""Networks of a kind, made to measure: ring, star, random, regions.

Nodes are numbered 1:1, 1:2 … in the order they are made; `regions` numbers them region:node.
Publishers and subscribers are added by `with_clients`.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from laps.sim.topology import Link, Node, Publisher, Subscriber, Topology
from laps.types import NodeId, PeerMode

if TYPE_CHECKING:
    from collections.abc import Callable

Dial = Literal["a", "b", "both"]

# Light takes 5 µs a kilometre in glass, so a degree of the equator half a millisecond.
MS_PER_DEGREE: Final = 0.55

# One to use, and one to fall back to.
VIAS_PER_EDGE: Final = 2


def ring(size: int, delay_ms: float = 10.0) -> Topology:
    """Edges in a circle, each joined to the next."""
    ids = [_node_id(1, number) for number in range(1, size + 1)]
    pairs = list(zip(ids, [*ids[1:], ids[0]], strict=True))[: size if size > 2 else size - 1]
    return Topology(
        nodes=tuple(Node(id=node_id) for node_id in ids),
        links=tuple(Link(a=a, b=b, delay_ms=delay_ms) for a, b in pairs),
    )


def star(size: int, delay_ms: float = 10.0) -> Topology:
    """Edges around the first one."""
    hub, *rest = [_node_id(1, number) for number in range(1, size + 1)]
    return Topology(
        nodes=tuple(Node(id=node_id) for node_id in (hub, *rest)),
        links=tuple(Link(a=node_id, b=hub, delay_ms=delay_ms) for node_id in rest),
    )


def random(size: int, seed: int) -> Topology:
    """A connected network of edges with some vias that reflect and some stubs at its rim.

    Nodes stand at random places; near ones are joined, under all kinds of conditions.
    """
    rng = Random(seed)  # noqa: S311 - no secret
    nodes = [_random_node(number, size, rng) for number in range(1, size + 1)]
    core = [node for node in nodes if node.type != "stub"]
    links = []
    for index, node in enumerate(core[1:], start=1):
        for other in _nearest(node, core[:index])[: 1 + (rng.random() < 0.6)]:
            links.append(_random_link(node, other, rng, rng.choice(_DIALS)))
            if rng.random() < 0.05:  # a second connection beside the first, for data
                extra = _random_link(node, other, rng, "a")
                links.append(msgspec.structs.replace(extra, mode=PeerMode.DATA))
    edges = [node for node in core if node.type == "edge"]
    for stub in nodes[len(core) :]:
        near = _nearest(stub, edges)[: rng.randint(1, 2)]
        links += [_random_link(stub, edge, rng, "a") for edge in near]
    return Topology(nodes=tuple(nodes), links=tuple(links))


def _nearest(node: Node, others: list[Node]) -> list[Node]:
    return sorted(others, key=lambda other: degrees(node, other))


_DIALS: Final[tuple[Dial, ...]] = ("a", "a", "b", "both")


def _random_node(number: int, size: int, rng: Random) -> Node:
    """The first is an edge, the last tenth are stubs, and one in five between is a via."""
    kind: Literal["edge", "via", "stub"] = "edge"
    if number > size - size // 10:
        kind = "stub"
    elif number > 1 and rng.random() < 0.2:
        kind = "via"
    latitude, longitude = rng.uniform(-60, 60), rng.uniform(-120, 120)
    return Node(
        id=_node_id(1, number),
        type=kind,
        latitude=latitude,
        longitude=longitude,
        reflect=kind == "via",
    )


def _random_link(a: Node, b: Node, rng: Random, dial: Dial) -> Link:
    return Link(
        a=a.id,
        b=b.id,
        delay_ms=1 + MS_PER_DEGREE * degrees(a, b),
        jitter_ms=rng.choice((0.0, 0.0, 2.0, 10.0)),
        loss=rng.choice((0.0, 0.0, 0.005, 0.05)),
        bandwidth_mbit=rng.choice((None, None, 10.0, 1000.0)),
        dial=dial,
    )


def degrees(a: Node, b: Node) -> float:
    """How far two nodes are apart, on a flat map."""
    return float(((a.latitude - b.latitude) ** 2 + (a.longitude - b.longitude) ** 2) ** 0.5)


@dataclass(frozen=True, slots=True)
class _Region:
    edges: list[Node]
    vias: list[Node]


def regions(
    count: int, edges_per_region: int, vias: int, control: int = 2, seed: int = 1
) -> Topology:
    """Regions far apart, with their edges on the vias near them, and control servers over all.

    Vias are dealt to the regions in turn, at least one each. An edge peers with two vias of its
    region and with one control server; vias of a region peer with each other, and the first via
    of each region with those of three others, so that a ring of regions has chords. Without control
    servers vias keep the subscribes.
    """
    rng = Random(seed)  # noqa: S311 - no secret
    made = []
    for number in range(1, count + 1):
        centre = rng.uniform(-60, 60), rng.uniform(-120, 120)
        here = max(1, vias // count + (number <= vias % count))
        made.append(
            _Region(
                vias=[
                    _near(centre, number, low, "via", rng, reflect=not control)
                    for low in range(1, here + 1)
                ],
                edges=[
                    _near(centre, number, 1000 + low, "edge", rng)
                    for low in range(1, edges_per_region + 1)
                ],
            )
        )
    servers = [
        Node(id=_node_id(count + 1, low), type="control", region="control")
        for low in range(1, control + 1)
    ]
    links = [
        _plain(a, b, PeerMode.CONTROL) for i, a in enumerate(servers) for b in servers[i + 1 :]
    ]
    for region in made:
        links += _region_links(region, servers, rng)
    for near, far in _chords(count):
        links.append(_plain(made[near].vias[0], made[far].vias[-1]))
    nodes = [node for region in made for node in (*region.vias, *region.edges)]
    return Topology(nodes=(*nodes, *servers), links=tuple(links))


def served(edges: int, vias: int, servers: int, seed: int) -> Topology:
    """Edges and vias, each with a control session to one control server or more.

    Servers peer with one another, vias too; an edge peers with one via or two, and some with edges.
    """
    rng = Random(seed)  # noqa: S311 - no secret
    control = [Node(id=_node_id(9, low), type="control") for low in range(1, servers + 1)]
    hubs = [Node(id=_node_id(8, low), type="via") for low in range(1, vias + 1)]
    spokes = [Node(id=_node_id(1, low)) for low in range(1, edges + 1)]
    links = []
    for number, server in enumerate(control):
        links += [_plain(server, other, PeerMode.CONTROL) for other in control[number + 1 :]]
    for node in (*hubs, *spokes):
        some = rng.sample(control, rng.randint(1, servers))
        links += [_plain(node, server, PeerMode.CONTROL) for server in some]
    links += [_plain(a, b) for number, a in enumerate(hubs) for b in hubs[number + 1 :]]
    for number, edge in enumerate(spokes):
        links += [_plain(edge, via) for via in rng.sample(hubs, min(len(hubs), rng.randint(1, 2)))]
        links += [_plain(edge, it) for it in spokes[number + 1 :] if rng.random() < 1 / edges]
    return Topology(nodes=(*hubs, *spokes, *control), links=tuple(links))


def _chords(count: int) -> list[tuple[int, int]]:
    """Pairs of regions: a ring, the ring of every second one, and what lies opposite."""
    pairs: dict[frozenset[int], tuple[int, int]] = {}
    for step in (1, 2, count // 2):
        for index in range(count):
            pair = index, (index + step) % count
            if len(set(pair)) == 2:
                pairs.setdefault(frozenset(pair), pair)
    return list(pairs.values())


def _near(
    centre: tuple[float, float],
    region: int,
    low: int,
    kind: Literal["edge", "via"],
    rng: Random,
    *,
    reflect: bool = False,
) -> Node:
    latitude, longitude = centre
    return Node(
        id=_node_id(region, low),
        type=kind,
        region=f"region {region}",
        latitude=latitude + rng.uniform(-1, 1),
        longitude=longitude + rng.uniform(-1, 1),
        reflect=reflect,
    )


def _region_links(region: _Region, servers: list[Node], rng: Random) -> list[Link]:
    links = [_plain(a, b) for i, a in enumerate(region.vias) for b in region.vias[i + 1 :]]
    for edge in region.edges:
        vias = rng.sample(region.vias, min(len(region.vias), VIAS_PER_EDGE))
        links += [_plain(edge, via) for via in vias]
        if servers:
            links.append(_plain(edge, rng.choice(servers), PeerMode.CONTROL))
    return links


def _plain(a: Node, b: Node, mode: PeerMode = PeerMode.BOTH) -> Link:
    return Link(a=a.id, b=b.id, delay_ms=1 + MS_PER_DEGREE * degrees(a, b), mode=mode)


def regions_of_edges(count: int, edges: int, tracks: int, seed: int) -> Topology:
    """Regions far apart, and Edges that are all peers of each other: hub and spoke everywhere.

    So a track goes from its publisher's relay to each other Edge that wants it, a copy each.
    """
    rng = Random(seed)  # noqa: S311 - no secret
    nodes = [
        _near((0.0, 300.0 * number / (count + 1) - 150.0), number, low, "edge", rng)
        for number in range(1, count + 1)
        for low in range(1, edges + 1)
    ]
    return Topology(
        nodes=tuple(nodes),
        links=tuple(_plain(a, b) for at, b in enumerate(nodes) for a in nodes[:at]),
        publishers=tuple(
            Publisher(
                node=rng.choice(nodes).id,
                namespace=["sim", str(number)],
                name="track",
                objects_per_s=2.0,
                objects_per_group=2,
            )
            for number in range(tracks)
        ),
    )


def with_clients(
    topology: Topology,
    publishers: int,
    subscribers: int,
    seed: int,
    change: Callable[[Publisher], Publisher] = lambda publisher: publisher,
) -> Topology:
    """Publishers on random edges and stubs, and subscribers that want one of their tracks."""
    rng = Random(seed)  # noqa: S311 - no secret
    places = [node.id for node in topology.nodes if node.type in ("edge", "stub")]
    made = [
        change(
            Publisher(
                node=rng.choice(places),
                namespace=["sim", str(number)],
                name=None if number % 2 else "track",
            )
        )
        for number in range(publishers)
    ]
    wanted = [
        Subscriber(
            node=rng.choice(places),
            namespace=[*rng.choice(made).namespace],
            name="track",
        )
        for _ in range(subscribers)
    ]
    return msgspec.structs.replace(topology, publishers=tuple(made), subscribers=tuple(wanted))


def with_spokes(topology: Topology, share: float, seed: int) -> Topology:
    """Besides its links, some between edges of different regions, as hubs and spokes have them."""
    rng = Random(seed)  # noqa: S311 - no secret
    edges = [node for node in topology.nodes if node.type == "edge"]
    spokes = [
        _plain(a, b)
        for number, a in enumerate(edges)
        for b in edges[number + 1 :]
        if a.region != b.region and rng.random() < share
    ]
    return msgspec.structs.replace(topology, links=(*topology.links, *spokes))


def with_audiences(topology: Topology, tracks: int, most: int, seed: int) -> Topology:
    """Tracks at random edges, each wanted by up to so many edges in some of the other regions."""
    rng = Random(seed)  # noqa: S311 - no secret
    edges: dict[str, list[Node]] = {}
    for node in topology.nodes:
        if node.type == "edge":
            edges.setdefault(node.region, []).append(node)
    publishers, subscribers = [], []
    for number in range(tracks):
        home = rng.choice(sorted(edges))
        namespace = ["sim", str(number)]
        publishers.append(
            Publisher(node=rng.choice(edges[home]).id, namespace=namespace, name="track")
        )
        for region in rng.sample(sorted(edges), rng.randint(2, len(edges))):
            some = rng.sample(edges[region], rng.randint(1, min(most, len(edges[region]))))
            subscribers += [Subscriber(node=it.id, namespace=namespace) for it in some]
    return msgspec.structs.replace(
        topology, publishers=tuple(publishers), subscribers=tuple(subscribers)
    )


def _node_id(high: int, low: int) -> NodeId:
    return NodeId(high << 32 | low)
