"""Clients are moved in simulated networks, under seeds: fewer copies, and nothing lost by it.

Regions of Edges that are all peers of each other, so that each Edge with a viewer has a copy of its
own from afar. Viewers come in at any of them. Some do not follow, some relays are full, and some
tracks are bound to regions.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest

from laps.bench import moving as bench
from laps.edge.settings import MovingSettings
from laps.policy import policy_from_mapping
from laps.relay.settings import ProbeSettings, RelaySettings
from laps.sim.clients import track_of
from laps.sim.copies import copies
from laps.sim.generators import regions_of_edges
from laps.sim.invariants import check_always
from laps.sim.network import CACHE, Network
from laps.sim.viewers import Audience
from laps.types import format_node_id

if TYPE_CHECKING:
    from laps.policy import Policy
    from laps.sim.node import SimNode
    from laps.sim.viewers import Viewer

SETTINGS = RelaySettings(cache=CACHE, probing=ProbeSettings(enabled=False), unsubscribe_s=1.0)
MOVING = MovingSettings(per_minute=60, settled_s=4.0, near_ms=10.0)
RISE_S, MOVE_S, STILL_S = 6.0, 60.0, 20.0
LATE_S = 4.0

# Of all copies, if nothing stands against it: many are of tracks that several want at each Edge.
MOST_LEFT = 0.75

# The way goes to relays with lower ids, of which a region has few; once more where one was full.
MOST_MOVES = 3
FULL = 0.95


class Scene:
    """A network with viewers, some of which cannot or will not go everywhere."""

    def __init__(self, seed: int, moving: MovingSettings = MOVING, *, plain: bool = False) -> None:
        rng = self.rng = Random(seed)
        topology = regions_of_edges(rng.randint(2, 3), rng.randint(2, 4), rng.randint(3, 6), seed)
        self.network = Network(topology, seed, extended=1.0, settings=SETTINGS, load=lambda: 0.1)
        self.audience = Audience(self.network, moving)
        self.plain = plain
        self.nodes = list(self.network.nodes.values())
        self.full: set[SimNode] = set() if plain else set(rng.sample(self.nodes, 1))
        for node in self.full:
            node.load = partial(float, FULL)
        self.barred = rng.choice(self.nodes)
        self.policy = None if plain else self._policy()
        self.network.follow_policy(self.policy)
        tracks = [track_of(it.namespace, it.name or "") for it in topology.publishers]
        for _ in range(rng.choice((1, 2, 4)) * len(self.nodes)):
            names = rng.sample(tracks, rng.choice((1, 1, 1, 2)))
            node = rng.choice(self.nodes)
            viewer = self.audience.seat(node.spec.id, names)
            viewer.follows = plain or rng.random() > 0.1

    def _policy(self) -> Policy | None:
        """The first track may not go to one of the Edges."""
        tables = {
            "node": [{"nodes": [format_node_id(self.barred.spec.id)], "region": "elsewhere"}],
            "rule": [{"tracks": "sim/0/*", "avoid": ["elsewhere"]}],
        }
        return policy_from_mapping(tables, "a test")

    def run(self) -> tuple[float, float]:
        """Long-haul copies before and after viewers are moved."""
        network = self.network
        network.run(RISE_S)
        before = self._copies()
        network.run(MOVE_S)
        moves = self.audience.moves
        after = self._copies()
        network.run(STILL_S)
        self.still = self.audience.moves == moves
        return before, after

    def _copies(self) -> float:
        """Each Edge of another region that somebody wants a track at has a copy of its own."""
        since = self.network.now - 2.0
        self.network.run(LATE_S)
        return copies(self.network, since, self.network.now - LATE_S).long_haul

    def check(self) -> list[str]:
        """What does not hold."""
        found = check_always(self.network)
        publishers = self.network.publishers
        until = self.network.now - LATE_S
        for number, viewer in enumerate(self.audience.viewers):
            for publisher in publishers:
                if self._is_refused(viewer):
                    continue
                if lost := viewer.missing(publisher, RISE_S - 2.0, until):
                    found.append(f"viewer {number} misses {len(lost)}, {lost[0]} the first")
            if viewer.twice:
                found.append(f"viewer {number} was given {viewer.twice[0]} twice")
            if len(viewer.moves) > MOST_MOVES:
                found.append(f"viewer {number} was moved {len(viewer.moves)} times")
            if viewer.asked > 1 and not viewer.follows:
                found.append(f"viewer {number} stays, and was asked {viewer.asked} times")
            if self.policy is not None and is_bound(viewer):
                forbidden = [at for at, node_id in viewer.moves if node_id == self.barred.spec.id]
                found += [f"viewer {number} was sent where policy forbids" for _ in forbidden]
            found += viewer.violations
            found += [
                f"viewer {number} was sent to {format_node_id(node_id)}, which is full"
                for at, node_id in viewer.moves
                if self.network.nodes[node_id] in self.full
            ]
        if not self.still:
            found.append("viewers are moved on and on")
        return found

    def _is_refused(self, viewer: Viewer) -> bool:
        """Whether it, or its publisher, began where its track may not go."""
        at = viewer.home, self.network.nodes[self.network.publishers[0].spec.node]
        return self.policy is not None and is_bound(viewer) and self.barred in at


def is_bound(viewer: Viewer) -> bool:
    return any(it.namespace == (b"sim", b"0") for it in viewer.names)


def check(seed: int, *, plain: bool) -> tuple[float, float]:
    scene = Scene(seed, plain=plain)
    before, after = scene.run()
    assert scene.check() == []
    assert after <= before or scene.full, "a relay that is full sends clients where they cost more"
    return before, after


def test_moving_saves_long_haul_copies_and_loses_nothing() -> None:
    found = [check(seed, plain=True) for seed in range(8)]
    assert sum(after for _, after in found) < MOST_LEFT * sum(before for before, _ in found)


@pytest.mark.parametrize("seed", range(100, 108))
def test_moving_loses_nothing_where_relays_are_full_and_policy_forbids(seed: int) -> None:
    check(seed, plain=False)


def test_the_bench_of_moving_counts_fewer_copies_and_nothing_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench, "STAY_S", 60.0)
    found = bench.compare(8, 2, seed=1)
    assert found.holds
    assert found.least <= found.after.long_haul < found.before.long_haul
    assert found.before.moves == 0 < found.after.moves
    assert dict(found.ratios())["long_haul"] < 1
    assert found.to_mapping()["after"]["lost"] == 0
    assert bench.table(found).row_count == 6


@pytest.mark.nightly
@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("seed", range(200, 500))
def test_moving_loses_nothing_under_many_seeds(seed: int, plain: bool) -> None:
    check(seed, plain=plain)
