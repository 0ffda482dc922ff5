"""Networks, demand and plans on disk: the tables of docs/plan.md.

    nodes.parquet, links.parquet      the network
    tracks/, subscriptions/           the demand, bucketed by the hash of the track
    names.parquet                     the names of tracks, where they are known
    policy.json                       what the plan was made by
    plan/                             an assignment for each pair that has one
    infeasible/                       the pairs that have none, and why
    loads.parquet                     what Vias send and links carry with the plan
    summary.json                      figures, beside those of today

A plan's folder has all of them: it can be planned from again, and explained by itself.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final

import numpy as np

from laps.errors import ConfigError
from laps.names import hash_text
from laps.policy import policy_from_mapping
from laps.spark.planner import layout
from laps.spark.planner.demand import Track
from laps.spark.planner.layout import signed, unsigned
from laps.spark.planner.loads import capacities
from laps.spark.planner.network import Link, Node, network

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from laps.policy import Policy
    from laps.spark.planner.network import Longs, Network
    from laps.spark.planner.plan import Plan

_MOST_NAMES: Final = 1_000_000


# -- the network -----------------------------------------------------------------------------------


def write_network(folder: Path, network: Network) -> None:
    """Write the two tables."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes = [
        (n.id, n.role, n.region, n.latitude, n.longitude, n.capacity_bps) for n in network.nodes
    ]
    links = [
        (link.a, link.b, link.srtt_us, link.capacity_bps, list(link.transits))
        for link in network.links
    ]
    layout.write(folder / "nodes.parquet", layout.NODES, nodes)
    layout.write(folder / "links.parquet", layout.LINKS, links)


def read_network(folder: Path) -> Network:
    """Read the two tables."""
    nodes = [
        Node(
            row["node"],
            row["role"],
            row["region"],
            row["latitude"],
            row["longitude"],
            row["capacity_bps"],
        )
        for row in layout.rows(folder, "nodes", layout.NODES)
    ]
    if not nodes:
        raise ConfigError(f"{folder}/nodes.parquet: has no rows: there is no network to plan for")
    links = []
    for row in layout.rows(folder, "links", layout.LINKS):
        if not (0 <= row["a"] < len(nodes) and 0 <= row["b"] < len(nodes)):
            place = f"{folder}/links.parquet: link {row['a']} to {row['b']}"
            raise ConfigError(f"{place}: there are nodes 0 to {len(nodes) - 1}")
        transits = tuple(sorted(set(row["transits"] or ())))
        links.append(Link(row["a"], row["b"], row["srtt_us"], row["capacity_bps"], transits))
    return network(nodes, links)


# -- the demand ------------------------------------------------------------------------------------


def write_demand(folder: Path, tracks: Sequence[Track]) -> None:
    """Write tracks, subscriptions and names, all in one bucket."""
    layout.clear(folder, ("tracks", "subscriptions"))
    ordered = sorted(tracks, key=lambda track: signed(track.hash))
    layout.write(
        folder / "tracks" / "bucket-00000.parquet",
        layout.TRACKS,
        [(signed(t.hash), t.origin, t.rate_bps, t.profile) for t in ordered],
    )
    layout.write(
        folder / "subscriptions" / "bucket-00000.parquet",
        layout.SUBSCRIPTIONS,
        [(signed(t.hash), relay) for t in ordered for relay in t.relays],
    )
    named = [(signed(t.hash), t.namespace, t.name) for t in ordered if t.namespace]
    layout.write(folder / "names.parquet", layout.NAMES, named)


def count_subscriptions(folder: Path) -> int:
    """How many there are, without reading them."""
    return int(layout.dataset(folder, "subscriptions", layout.SUBSCRIPTIONS).count_rows())


def read_demand(
    folder: Path, network: Network, policy: Policy, *, only: int | None = None
) -> tuple[Track, ...]:
    """All tracks that have s-relays, in the order of their hashes, or only the one with a hash.

    Where the name of a track is known, the policy's rules give it its profile; otherwise it has the
    one of the table.
    """
    tracks = layout.of_track(folder, "tracks", layout.TRACKS, only)
    audience: dict[int, set[int]] = {}
    for row in layout.of_track(folder, "subscriptions", layout.SUBSCRIPTIONS, only):
        audience.setdefault(row["track"], set()).add(row["relay"])
    names: dict[int, tuple[str, str]] = {}
    if (folder / "names.parquet").exists():
        for row in layout.of_track(folder, "names", layout.NAMES, only):
            names[row["track"]] = (row["namespace"], row["name"])
    profiles = {profile: number for number, profile in enumerate(policy.profiles)}
    demand = []
    for row in sorted(tracks, key=lambda row: int(row["track"])):
        relays = audience.pop(row["track"], set()) - {row["origin"]}
        _require_edges(network, {row["origin"], *relays}, row["track"], folder)
        namespace, name = names.get(row["track"], ("", ""))
        profile = row["profile"]
        if namespace and only is None:
            profile = profiles[policy.profile_of(f"{namespace}/{name}")]
        if not 0 <= profile < len(profiles):
            place = (
                f"{folder}/tracks: track {hash_text(unsigned(row['track']))} has profile {profile}"
            )
            raise ConfigError(f"{place}: the policy has profiles 0 to {len(profiles) - 1}")
        if relays:
            demand.append(
                Track(
                    hash=unsigned(row["track"]),
                    origin=row["origin"],
                    # What a short float has lost is not rounded up.
                    rate_bps=max(1, math.ceil(row["rate_bps"] * (1 - 1e-6) / 1000)) * 1000,
                    relays=tuple(sorted(relays)),
                    profile=profile,
                    namespace=namespace,
                    name=name,
                )
            )
    if audience:
        orphan = unsigned(min(audience))
        raise ConfigError(
            f"{folder}/subscriptions: track {hash_text(orphan)} is not in {folder}/tracks"
        )
    return tuple(demand)


def _require_edges(network: Network, nodes: set[int], track: int, folder: Path) -> None:
    for node in nodes:
        place = f"{folder}: track {hash_text(unsigned(track))}"
        if not 0 <= node < network.size:
            raise ConfigError(f"{place} is at node {node}: there are 0 to {network.size - 1}")
        if not network.is_edge[node]:
            role, name = network.nodes[node].role, network.nodes[node].id
            raise ConfigError(f"{place} is at {name}, a {role}: clients are at edges")


# -- the plan --------------------------------------------------------------------------------------


def write_plan(folder: Path, plan: Plan) -> None:
    """Write everything: what was planned from, the plan, and its figures."""
    problem = plan.problem
    tracks, network = problem.tracks, problem.network
    write_network(folder, network)
    write_demand(folder, tracks)
    layout.clear(folder, ("plan", "infeasible"))
    policy = json.dumps(problem.policy.to_mapping(), indent=2) + "\n"
    layout.write_text(folder / "policy.json", policy)
    profiles = problem.options.profiles
    rows = []
    for one in plan.assignments:
        track = tracks[one.track]
        rows.append(
            (
                signed(track.hash),
                track.namespace,
                track.name,
                one.region,
                profiles[track.profile].service,
                one.via,
                one.relays,
                track.rate_bps,
                one.long_haul_copies,
                one.origin_egress,
                one.cost,
                one.delay_us,
                one.stretch,
                one.reason,
            )
        )
    rows.sort()
    layout.write(folder / "plan" / "bucket-00000.parquet", layout.PLAN, rows)
    missing = [
        (
            signed(tracks[one.track].hash),
            tracks[one.track].namespace,
            tracks[one.track].name,
            one.region,
            one.relays,
            one.constraint,
            one.reason,
            one.way_out,
        )
        for one in plan.infeasible
    ]
    missing.sort()
    layout.write(folder / "infeasible" / "bucket-00000.parquet", layout.INFEASIBLE, missing)
    write_loads(folder, network, plan.solution.loads)
    layout.write_text(folder / "summary.json", json.dumps(plan.to_mapping(), indent=2) + "\n")


def write_loads(folder: Path, network: Network, loads: Longs) -> None:
    """Write what each resource that has something to do does; see `loads.py` for the numbers."""
    limits = capacities(network)
    rows = [(int(r), int(loads[r]), int(limits[r])) for r in np.flatnonzero(loads)]
    layout.write(folder / "loads.parquet", layout.LOADS, rows)


def read_loads(folder: Path, network: Network) -> Longs:
    """[resource]: what it has to do with the plan."""
    loads = np.zeros(network.size + 2 * len(network.links), np.int64)
    for row in layout.rows(folder, "loads", layout.LOADS):
        loads[row["resource"]] = row["load_bps"]
    return loads


def read_policy(folder: Path) -> Policy:
    """The policy that a plan was made by."""
    path = folder / "policy.json"
    try:
        mapping = json.loads(path.read_bytes())
    except OSError as error:
        problem = f"{path}: {error.strerror}: give the folder that `laps plan --out` wrote"
        raise ConfigError(problem) from None
    return policy_from_mapping(mapping, str(path))


def read_vias(folder: Path, track_hash: int) -> dict[str, str]:
    """The assignments of a track: a Via, or nothing for hub and spoke, for each region."""
    # A plan made at scale has these columns and few others.
    columns = layout.PLAN.empty_table().select(["track", "region", "via"]).schema
    rows = layout.of_track(folder, "plan", columns, track_hash)
    return {row["region"]: row["via"] for row in rows}


def read_labels(folder: Path) -> dict[str, int]:
    """The hash of each track by its `namespace/name`; none where there are too many to look at."""
    if not (folder / "names.parquet").exists():
        return {}
    if layout.dataset(folder, "names", layout.NAMES).count_rows() > _MOST_NAMES:
        return {}
    rows = layout.rows(folder, "names", layout.NAMES)
    return {f"{row['namespace']}/{row['name']}": unsigned(row["track"]) for row in rows}
