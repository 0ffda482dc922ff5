"""What a lab consists of: relays, links with delays, publishers and subscribers.

`standard` makes one of any size; `load_network` reads one from a `lab.toml`, whose nodes and links
are those of `laps sim`, so that one file serves both:

    [[nodes]]
    id = "1:1"
    type = "edge"              # edge, via, stub, control
    region = "Frankfurt"

    [[links]]
    a = "1:1"                  # dials b
    b = "1:100"
    delay_ms = 1               # one way

    [[publishers]]
    node = "1:1"
    track = "video"            # the namespace is lab/video, the track in it is "live"
    kind = "video"             # clock, video, sensor or audio
    others = ["1:2"]           # where it goes when 1:1 is lost

    [[subscribers]]
    node = "1:2"
    track = "video"
    protocol = "quicr"         # moqt unless said otherwise

    [settings.moving]          # every relay's configuration, beside what a lab decides itself
    per_minute = 30

The standard network, for each region: Edges that peer with the region's Via, and the last Edge,
beside that, with the other Edges and with the Via of the next region. Vias are a full mesh. So
data goes Edge, Via, Via, Edge, with one copy between regions; and where a Via is lost, its region
is reached by the last Edge, which is no shorter way and therefore not taken before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from laps.config import config_from_mapping
from laps.errors import ConfigError, InvalidText
from laps.files import read_toml, refuse
from laps.lab.cities import CITIES, delay_ms
from laps.sim.topology import Link, Node, topology_from_mapping
from laps.topology import require_client_node
from laps.types import NodeId, PeerMode, format_node_id, parse_node_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from laps.lab.cities import City

# Each track has a namespace of its own, `lab/video`: who announces one is asked for all of it.
NAMESPACE: Final = "lab"
NAME: Final = "live"

# Inside a region, one way. The way by the last Edge is the longer one, by sRTT too.
EDGE_VIA_MS: Final = 1.0
EDGE_EDGE_MS: Final = 2.0
# From a house to the next Edge.
STUB_MS: Final = 8.0
# The spare way to another region is a longer cable.
SPARE_WAY: Final = 1.2

# Sections of relays' configurations that are the lab's own: who they are, and where they listen.
DECIDED: Final = ("node", "peering", "admin", "impairment")

VIA_LOW: Final = 100
STUB_LOW: Final = 200
CONTROL_SERVERS: Final = 2
MOST_EDGES: Final = 20

Kind = Literal["clock", "video", "sensor", "audio"]
Protocol = Literal["moqt", "quicr"]
T = TypeVar("T")


class Publisher(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[[publishers]]: one track, `live` in the namespace `lab/<track>`."""

    node: str
    track: Annotated[str, Meta(min_length=1, max_length=100)]
    kind: Kind = "clock"
    protocol: Protocol = "moqt"
    others: tuple[str, ...] = ()
    "Where it goes, in this order, when its own relay is lost."


class Subscriber(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[[subscribers]]: one reader of a track."""

    node: str
    track: Annotated[str, Meta(min_length=1, max_length=100)]
    protocol: Protocol = "moqt"
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.track} at {self.node} ({self.protocol})"


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """A whole lab."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    publishers: tuple[Publisher, ...] = ()
    subscribers: tuple[Subscriber, ...] = ()
    settings: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    "What relays are configured with besides, by section."

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes' ids, as people write them."""
        return tuple(format_node_id(node.id) for node in self.nodes)


# -- one of any size -------------------------------------------------------------------------------


def standard(regions: int = 3, edges: int = 2) -> Network:
    """So many regions, with so many Edges and a Via each; two Control servers, and a Stub."""
    if not 1 <= regions <= len(CITIES):
        raise ConfigError(f"--regions {regions}: must be from 1 to {len(CITIES)}")
    if not 1 <= edges <= MOST_EDGES:
        raise ConfigError(f"--edges {edges}: must be from 1 to {MOST_EDGES}")
    cities = dict(enumerate(CITIES[:regions], start=1))
    servers = [
        _node(0, number, "control", cities[min(number, regions)], -4, 6 * number - 9)
        for number in range(1, CONTROL_SERVERS + 1)
    ]
    relays = []
    for region, city in cities.items():
        relays.append(_node(region, VIA_LOW, "via", city, 0, 0))
        relays += [
            _node(region, low, "edge", city, 4, 8 * low - 4 * (edges + 1))
            for low in range(1, edges + 1)
        ]
    stub = _node(regions, STUB_LOW, "stub", cities[regions], 9, 0)
    return Network(
        nodes=(*servers, *relays, stub),
        links=(
            *_control_links(servers, relays, cities),
            *_region_links(cities, edges),
            Link(a=stub.id, b=_id(regions, 1), delay_ms=STUB_MS),
        ),
        publishers=_publishers(regions),
        subscribers=_subscribers(regions, edges),
    )


def _id(high: int, low: int) -> NodeId:
    return NodeId(high << 32 | low)


def _node(
    high: int,
    low: int,
    kind: Literal["edge", "via", "stub", "control"],
    city: City,
    north: float,
    east: float,
) -> Node:
    """A relay near a city; some degrees away, so that a map shows it beside the others."""
    return Node(
        id=_id(high, low),
        type=kind,
        region=city.name,
        latitude=city.latitude + north / 2,
        longitude=city.longitude + east / 2,
    )


def _control_links(
    servers: Sequence[Node], relays: Sequence[Node], cities: Mapping[int, City]
) -> list[Link]:
    """Every relay, and the first Control server, knows both."""
    by_name = {city.name: city for city in cities.values()}
    pairs = [(servers[0], servers[1])] + [(a, b) for a in relays for b in servers]
    return [
        Link(
            a=a.id,
            b=b.id,
            mode=PeerMode.CONTROL,
            delay_ms=max(EDGE_VIA_MS, delay_ms(by_name[a.region], by_name[b.region])),
        )
        for a, b in pairs
    ]


def _region_links(cities: Mapping[int, City], edges: int) -> list[Link]:
    links = []
    for region, city in cities.items():
        via = _id(region, VIA_LOW)
        for other in range(region + 1, len(cities) + 1):
            far = delay_ms(city, cities[other])
            links.append(Link(a=via, b=_id(other, VIA_LOW), delay_ms=far))
        last = _id(region, edges)
        for low in range(1, edges + 1):
            links.append(Link(a=_id(region, low), b=via, delay_ms=EDGE_VIA_MS))
            if low != edges:
                links.append(Link(a=_id(region, low), b=last, delay_ms=EDGE_EDGE_MS))
        following = region % len(cities) + 1
        if following != region:
            spare = round(SPARE_WAY * delay_ms(city, cities[following]), 1)
            links.append(Link(a=last, b=_id(following, VIA_LOW), delay_ms=spare))
    return links


def _publishers(regions: int) -> tuple[Publisher, ...]:
    """Each in another region, as far as there are some; the sensor stands in a house."""
    return (
        Publisher(node=f"{min(2, regions)}:1", track="clock", kind="clock"),
        Publisher(node="1:1", track="video", kind="video"),
        Publisher(node=f"{regions}:{STUB_LOW}", track="sensor", kind="sensor", protocol="quicr"),
    )


def _subscribers(regions: int, edges: int) -> tuple[Subscriber, ...]:
    """Of each track some in every other region, by both protocols.

    In the last region both read video at the first Edge: to the other one the first region's Via
    has a link of its own, by which a second copy would cross the sea.
    """
    made = []
    for region in range(1, regions + 1):
        second = min(edges, 2)
        if region != 1 or regions == 1:
            low = 1 if region == regions else second
            made.append(Subscriber(node=f"{region}:1", track="video"))
            made.append(Subscriber(node=f"{region}:{low}", track="video", protocol="quicr"))
        if region != 2:
            made.append(Subscriber(node=f"{region}:{second}", track="clock", protocol="quicr"))
        if region != regions or regions == 1:
            made.append(Subscriber(node=f"{region}:1", track="sensor"))
    made.append(Subscriber(node=f"{regions}:{STUB_LOW}", track="clock"))
    return tuple(made)


# -- from a file -----------------------------------------------------------------------------------


def load_network(path: Path) -> Network:
    """Read a TOML file, or say in one line what to mend in it."""
    return network_from_mapping(read_toml(path), str(path))


def network_from_mapping(mapping: Mapping[str, object], source: str) -> Network:
    """Read the tables of a parsed TOML file; `source` names it in a refusal."""
    own = {"publishers", "subscribers", "settings"}
    topology = topology_from_mapping(
        {name: rows for name, rows in mapping.items() if name not in own}, source
    )
    if not topology.nodes:
        raise ConfigError(f"{source}: has no [[nodes]]: a lab needs one relay at least")
    network = Network(
        nodes=topology.nodes,
        links=topology.links,
        publishers=_rows(mapping, "publishers", tuple[Publisher, ...], source),
        subscribers=_rows(mapping, "subscribers", tuple[Subscriber, ...], source),
        settings=_settings(mapping.get("settings", {}), f"{source}: settings"),
    )
    _check(network, source)
    return network


def _rows(mapping: Mapping[str, object], name: str, kind: type[T], source: str) -> T:
    try:
        return msgspec.convert(mapping.get(name, ()), kind)
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at `$")
        number, _, key = place.rstrip("`").partition("]")
        where = f"{source}: {name}"
        if number:
            where += f"[{int(number.strip('[').rstrip('.')) + 1}]"
        words = re.sub(r"Object (contains|missing)", r"\1", words)
        raise ConfigError(f"{where}{': ' if key else ''}{key.lstrip('.')}: {words}") from None


def _settings(sections: object, source: str) -> Mapping[str, Mapping[str, Any]]:
    """What relays would refuse to start with is refused here."""
    if not isinstance(sections, Mapping):
        raise ConfigError(f"{source}: must have sections of a relay's configuration")
    for section in DECIDED:
        if section in sections:
            raise ConfigError(f"{source}: [{section}] is what a lab decides itself")
    config_from_mapping(sections, source)
    return sections


def _check(network: Network, source: str) -> None:
    """Refuse clients at what is not there, takes none, or has nobody who publishes."""
    nodes = {node.id: node for node in network.nodes}
    tracks = set()
    for number, publisher in enumerate(network.publishers, start=1):
        where = f"{source}: publishers[{number}]"
        _check_places(publisher, nodes, where)
        if publisher.track in tracks:
            refuse(where, "track", publisher.track, "is published already: give it another name")
        tracks.add(publisher.track)
    for number, subscriber in enumerate(network.subscribers, start=1):
        where = f"{source}: subscribers[{number}]"
        _check_places(subscriber, nodes, where)
        if subscriber.track not in tracks:
            known = ", ".join(sorted(tracks)) or "none"
            refuse(where, "track", subscriber.track, f"has no publisher; published are: {known}")


def _check_places(client: Publisher | Subscriber, nodes: Mapping[NodeId, Node], where: str) -> None:
    for key, node in (("node", client.node), *(("others", other) for other in client.others)):
        try:
            node_id = parse_node_id(node)
        except InvalidText as error:
            refuse(where, key, node, error.problem)
        name = format_node_id(node_id)
        require_client_node(nodes, node_id, where, key)
        if name != node:
            refuse(where, key, node, f'is written "{name}"')
