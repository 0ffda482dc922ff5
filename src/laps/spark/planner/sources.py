"""A planning problem from tables: those of a plan, or those that `laps pipeline` writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from laps.errors import ConfigError, LapsError
from laps.spark.planner import store
from laps.spark.planner.demand import Track, serving_edges, whole_kbit
from laps.spark.planner.layout import unsigned
from laps.spark.planner.network import network, under
from laps.spark.planner.problem import pose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from laps.policy import Policy
    from laps.spark.planner.network import Link, Network, Node
    from laps.spark.planner.problem import Hop, Problem
    from laps.spark.planner.topology import Topology

MOST_SUBSCRIPTIONS: Final = 200_000
"What one machine holds pair by pair, and a solver takes; more are planned by cells."


def problem_of(
    folder: Path, policy: Policy, policy_source: str, topology: Topology | None
) -> Problem:
    """What tables say; nodes and links are those of a topology, where one is given."""
    if _is_plan(folder):
        return _of_plan(folder, policy, policy_source, topology)
    if (folder / "raw").is_dir():
        return _of_pipeline(folder, policy, policy_source, topology)
    raise ConfigError(
        f"--tables {folder}: there are none: give a folder with nodes.parquet, links.parquet, "
        "tracks and subscriptions, or one that `laps pipeline` writes"
    )


def _is_plan(folder: Path) -> bool:
    return (folder / "nodes.parquet").exists() or (folder / "nodes").is_dir()


def _of_plan(
    folder: Path, policy: Policy, policy_source: str, topology: Topology | None
) -> Problem:
    _require_few(folder, store.count_subscriptions(folder))
    found = store.read_network(folder)
    tracks = store.read_demand(folder, found, policy)
    _require_some(folder, tracks)
    if topology is None:
        return pose(found, policy, tracks, sources=(str(folder), policy_source))
    edges = serving_edges(topology.nodes, topology.links)

    def place(node: int) -> int:
        name = found.nodes[node].id
        if name not in edges:
            problem = f"{topology.source}: node {name} is missing, which {folder} has tracks at"
            raise ConfigError(f"{problem}: add it to [[nodes]], as an edge")
        return edges[name]

    moved = []
    for track in tracks:
        origin = place(track.origin)
        relays = {place(relay) for relay in track.relays} - {origin}
        if relays:
            moved.append(replace(track, origin=origin, relays=tuple(sorted(relays))))
    sources = (topology.source, policy_source)
    return pose(network(topology.nodes, topology.links), policy, moved, sources=sources)


def _of_pipeline(
    folder: Path, policy: Policy, policy_source: str, topology: Topology | None
) -> Problem:
    """What relays report; this starts Spark."""
    from laps.spark.planner import observed

    reported = _reported(folder, topology)
    subscriptions = observed.subscriptions(reported.records)
    _require_few(folder, subscriptions.count())
    tracks = _collected(observed.tracks(reported.records), subscriptions, policy, reported.edges)
    _require_some(folder, tracks)
    known = network(reported.nodes, reported.links)
    today = _hops(observed.hops(reported.records), tracks, known)
    return pose(known, policy, tracks, sources=(reported.source, policy_source), today=today)


def write_tables(
    folder: Path, out: Path, policy: Policy, policy_source: str, topology: Topology | None
) -> Network:
    """Make a planner's tables of those of the pipeline, however many rows there are."""
    from laps.spark.planner import observed

    reported = _reported(folder, topology)
    known = network(reported.nodes, reported.links)
    known = under(policy, known, policy_source)
    rows = observed.with_profile(observed.tracks(reported.records), policy)
    tracks = observed.numbered(rows, "node", "origin", reported.edges)
    places = observed.subscriptions(reported.records)
    subscriptions = observed.numbered(places, "node", "relay", reported.edges).distinct()
    store.write_network(out, known)
    for table, frame in {
        "tracks": tracks.selectExpr(
            "track", "origin", "CAST(rate_bps AS FLOAT) AS rate_bps", "profile"
        ),
        "subscriptions": subscriptions.join(tracks.select("track"), "track", "left_semi"),
        "names.parquet": tracks.select("track", "namespace", "name"),
    }.items():
        frame.write.mode("overwrite").parquet(str(out / table))
    return known


@dataclass(frozen=True, slots=True, eq=False)
class _Reported:
    """What relays said lately."""

    records: DataFrame
    "Of tracks."
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    edges: Mapping[str, int]
    source: str
    "Where nodes and links come from."


def _reported(folder: Path, topology: Topology | None) -> _Reported:
    from laps.spark import session
    from laps.spark.pipeline import tables
    from laps.spark.planner import observed

    spark = session()

    def frame(kind: str) -> DataFrame:
        try:
            return observed.recent(tables.read(spark, folder, f"raw/{kind}"))
        except tables.NoTable as error:
            raise ConfigError(f"--tables {folder}: {error}") from None

    records = frame("tracks")
    if topology is None:
        nodes = observed.collected_nodes(observed.nodes(frame("node")))
        links = observed.collected_links(observed.links(frame("links")), nodes)
        source = str(folder)
    else:
        nodes, links, source = topology.nodes, topology.links, topology.source
    if not nodes:
        raise ConfigError(f"--tables {folder}: no relay has said anything yet: is it written to?")
    return _Reported(records, nodes, links, serving_edges(nodes, links), source)


def _collected(
    tracks: DataFrame, subscriptions: DataFrame, policy: Policy, edges: Mapping[str, int]
) -> tuple[Track, ...]:
    """Tracks with an o-relay and s-relays that are known, in the order of their hashes."""
    audience: dict[int, set[int]] = {}
    for row in subscriptions.collect():
        if row["node"] in edges:
            audience.setdefault(row["track"], set()).add(edges[row["node"]])
    profiles = {profile: number for number, profile in enumerate(policy.profiles)}
    found = []
    for row in tracks.collect():
        origin = edges.get(row["node"])
        relays = audience.get(row["track"], set()) - {origin}
        if origin is not None and relays:
            label = f"{row['namespace']}/{row['name']}"
            found.append(
                Track(
                    hash=unsigned(row["track"]),
                    origin=origin,
                    rate_bps=whole_kbit(row["rate_bps"]),
                    relays=tuple(sorted(relays)),
                    profile=profiles[policy.profile_of(label)],
                    namespace=row["namespace"],
                    name=row["name"],
                )
            )
    return tuple(sorted(found, key=lambda track: track.hash))


def _hops(rows: DataFrame, tracks: Sequence[Track], known: Network) -> list[Hop]:
    number = {node.id: index for index, node in enumerate(known.nodes)}
    place = {track.hash: index for index, track in enumerate(tracks)}
    found = [
        (place[unsigned(row["track"])], number[row["node"]], number[row["peer"]])
        for row in rows.collect()
        if unsigned(row["track"]) in place and row["node"] in number and row["peer"] in number
    ]
    return sorted(found)


def _require_few(folder: Path, subscriptions: int) -> None:
    if subscriptions > MOST_SUBSCRIPTIONS:
        raise LapsError(
            f"--tables {folder}: {subscriptions:,} subscriptions are too many to plan pair by "
            f"pair; {MOST_SUBSCRIPTIONS:,} are the most: make tables of them first, with "
            f"`laps plan tables {folder} DIR`, and give --tables DIR"
        )


def _require_some(folder: Path, tracks: Sequence[Track]) -> None:
    if not tracks:
        raise ConfigError(
            f"--tables {folder}: there is nothing to plan: no track is published at one relay and "
            "subscribed to at another"
        )
