"""What the network has to carry: tracks, where each comes from, and where its subscribers are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from laps.errors import ConfigError
from laps.files import refuse, suggest
from laps.names import hash_text
from laps.spark.planner.options import DIRECT
from laps.spark.planner.paths import UNREACHABLE_US
from laps.types import NodeId, TrackName, format_node_id, hash_track, parse_node_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laps.policy import Policy
    from laps.spark.planner.network import Ints, Link, Longs, Network, Node
    from laps.spark.planner.options import Masks, Options
    from laps.spark.planner.paths import Paths
    from laps.spark.planner.topology import PublisherRow, Topology


@dataclass(frozen=True, slots=True)
class Track:
    """A track and its audience."""

    hash: int
    """Of the full name, 64 bits, not signed."""
    origin: int
    """The o-relay, by its number."""
    rate_bps: int
    relays: tuple[int, ...]
    """The s-relays in ascending order; the o-relay is none, as it needs no copy."""
    profile: int
    """The number of its profile in the policy."""
    namespace: str = ""
    """Its parts joined by slashes; it and the name are empty where only the hash is known."""
    name: str = ""

    @property
    def label(self) -> str:
        """As people call it."""
        return f"{self.namespace}/{self.name}" if self.namespace else hash_text(self.hash)


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Every track with every region that has s-relays of it, as arrays over pairs."""

    track: Ints
    "The number of the track."
    origin: Ints
    region: Ints
    rate_bps: Longs
    profile: Ints
    mask: Masks
    "The options that keep fan-out, delay and rules for every s-relay of the pair."
    n: Ints
    relays: tuple[Ints, ...]
    "The s-relays of each."

    def __len__(self) -> int:
        return len(self.track)


def find_pairs(options: Options, tracks: Sequence[Track]) -> Pairs:
    """All pairs, by track and then by region."""
    rows = []
    region_of = options.network.region
    for number, track in enumerate(tracks):
        relays = np.array(track.relays, np.int32)
        allowed = options.allowed[track.profile, track.origin, relays]
        regions = region_of[relays]
        fan_out = options.profiles[track.profile].fan_out
        for region in np.unique(regions):
            here = regions == region
            mask = int(np.bitwise_and.reduce(allowed[here]))
            if here.sum() > fan_out:
                mask &= ~(1 << DIRECT)
            rows.append((number, track, int(region), mask, relays[here]))
    return Pairs(
        track=np.array([row[0] for row in rows], np.int32),
        origin=np.array([row[1].origin for row in rows], np.int32),
        region=np.array([row[2] for row in rows], np.int32),
        rate_bps=np.array([row[1].rate_bps for row in rows], np.int64),
        profile=np.array([row[1].profile for row in rows], np.int32),
        mask=np.array([row[3] for row in rows], np.uint8),
        n=np.array([len(row[4]) for row in rows], np.int32),
        relays=tuple(row[4] for row in rows),
    )


def whole_kbit(rate_bps: float) -> int:
    """A rate as plans count it: in whole kilobits, so that a solver need not tell bits apart.

    Rounded up, so that no limit is exceeded by it; a track that sends nothing is still a track.
    """
    return max(1, math.ceil(rate_bps / 1000)) * 1000


def track_hash(namespace: tuple[str, ...], name: str) -> int:
    """The hash of a full name."""
    parts = tuple(part.encode() for part in namespace)
    return hash_track(TrackName(parts, name.encode())).full_name_hash


def require_reachable(network: Network, paths: Paths, tracks: Sequence[Track], source: str) -> None:
    """ConfigError for a track whose o-relay does not reach one of its s-relays."""
    for track in tracks:
        relays = np.array(track.relays, np.int32)
        missed = relays[paths.srtt_us[track.origin, relays] >= UNREACHABLE_US]
        if len(missed):
            origin, relay = network.nodes[track.origin].id, network.nodes[missed[0]].id
            alone = origin if not _has_link(network, track.origin) else relay
            may = " (within the policy)" if _is_limited(network) else ""
            raise ConfigError(
                f"{source}: node {relay} cannot be reached{may} from {origin}, where {track.label} "
                f"is published: add a link that joins {alone} to the rest of the network"
            )


def _has_link(network: Network, node: int) -> bool:
    joined = (network.link_a == node) | (network.link_b == node)
    return bool((joined & ~network.link_closed).any())


def _is_limited(network: Network) -> bool:
    return bool(network.link_closed.any()) or not network.passes_on.all()


def demand_of(topology: Topology, policy: Policy) -> tuple[Track, ...]:
    """The tracks that somebody subscribes to, in the order they are subscribed to first.

    A publisher of a whole namespace publishes what is asked for in it. Clients of a stub are
    clients of its Edge: the nearest it peers with.
    """
    if not topology.subscribers:
        raise ConfigError(
            f"{topology.source}: subscribers: there are none, and so there is nothing to plan: "
            "describe who wants which track in [[subscribers]], or give --tables"
        )
    profiles = {profile: number for number, profile in enumerate(policy.profiles)}
    edges = serving_edges(topology.nodes, topology.links)
    audience: dict[tuple[tuple[str, ...], str], set[int]] = {}
    published: dict[tuple[tuple[str, ...], str], PublisherRow] = {}
    for number, row in enumerate(topology.subscribers, start=1):
        wanted = (row.namespace, row.name)
        where = f"{topology.source}: subscribers[{number}]"
        if wanted not in published:
            published[wanted] = _publisher(topology, wanted, where)
        relays = {_edge(edges, node, topology) for _, node in row.places}
        audience.setdefault(wanted, set()).update(relays)
    tracks = []
    for (namespace, name), publisher in published.items():
        _require_class(policy, publisher, topology)
        origin = _edge(edges, publisher.node, topology)
        profile = policy.profile_of("/".join((*namespace, name)), publisher.service)
        tracks.append(
            Track(
                hash=track_hash(namespace, name),
                origin=origin,
                rate_bps=publisher.rate_bps,
                relays=tuple(sorted(audience[namespace, name] - {origin})),
                profile=profiles[profile],
                namespace="/".join(namespace),
                name=name,
            )
        )
    return tuple(tracks)


def _publisher(topology: Topology, wanted: tuple[tuple[str, ...], str], where: str) -> PublisherRow:
    """Who publishes a track: one that names it, else the one with the longest namespace."""
    namespace, name = wanted
    found = [
        row
        for row in topology.publishers
        if (row.name == name and row.namespace == namespace)
        or (row.name is None and row.namespace == namespace[: len(row.namespace)])
    ]
    if not found:
        label = "/".join((*namespace, name))
        raise ConfigError(f"{where}: nobody publishes {label}: describe who does in [[publishers]]")
    ranked = sorted(found, key=_closeness, reverse=True)
    if len(ranked) > 1 and _closeness(ranked[0]) == _closeness(ranked[1]):
        label, places = (
            "/".join((*namespace, name)),
            " and ".join(format_node_id(row.node) for row in ranked[:2]),
        )
        problem = f"{label} is published twice, at {places}: a plan is for one o-relay"
        raise ConfigError(f"{where}: {problem}, so leave one of them")
    return ranked[0]


def _closeness(row: PublisherRow) -> tuple[bool, int]:
    return row.name is not None, len(row.namespace)


def _require_class(policy: Policy, row: PublisherRow, topology: Topology) -> None:
    if row.service is not None and row.service not in policy.services:
        where = f"{topology.source}: publishers[{topology.publishers.index(row) + 1}]"
        problem = f"is no class of the policy{suggest(row.service, tuple(policy.services))}"
        refuse(where, "class", row.service, problem)


def serving_edges(nodes: Sequence[Node], links: Sequence[Link]) -> Mapping[str, int]:
    """By node id, the Edge that clients there count for: itself, or of a stub the nearest."""
    edges = {node.id: number for number, node in enumerate(nodes) if node.role == "edge"}
    best: dict[str, tuple[int, int]] = {}
    for link in links:
        for stub, edge in ((link.a, link.b), (link.b, link.a)):
            if nodes[stub].role == "stub" and nodes[edge].role == "edge":
                name, rank = nodes[stub].id, (link.srtt_us, parse_node_id(nodes[edge].id))
                if name not in best or rank < best[name]:
                    best[name], edges[name] = rank, edge
    return edges


def _edge(edges: Mapping[str, int], node_id: NodeId, topology: Topology) -> int:
    node = format_node_id(node_id)
    if node not in edges:
        problem = "is a stub that peers with no edge: add a link that joins it to one"
        raise ConfigError(f"{topology.source}: node {node} has clients and {problem}")
    return edges[node]
