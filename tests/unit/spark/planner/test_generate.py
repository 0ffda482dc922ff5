from __future__ import annotations

import re

import numpy as np
import pytest

from laps.errors import ConfigError
from laps.policy import policy_from_mapping
from laps.spark.planner.audience import Audience, chunks_of
from laps.spark.planner.generate import Size, generate_network, parse_size, shares_of
from laps.spark.planner.loads import capacities
from laps.spark.planner.options import find_options
from laps.spark.planner.paths import UNREACHABLE_US
from laps.spark.planner.prices import alone, by_row
from laps.spark.planner.resources import find_slots
from support.scale import made_up

POLICY = policy_from_mapping({}, "policy")
SIZE = Size(200, 5_000, 50_000)
NETWORK = generate_network(SIZE, POLICY, shares_of(POLICY))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", Size()),
        ("nodes=2000,tracks=20e6,subscriptions=200e6", Size(2000, 20_000_000, 200_000_000)),
        ("tracks=1.5e3, subscriptions=100", Size(2000, 1500, 100)),
    ],
)
def test_a_size_is_read(text: str, size: Size) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("relays=5", "write nodes=2000,tracks=20e6,subscriptions=200e6"),
        ("nodes", "write nodes=2000"),
        ("nodes=many", "nodes is a whole number, like 2000 or 20e6"),
        ("tracks=1.5", "tracks is a whole number"),
        ("tracks=-1", "tracks is a whole number"),
        ("nodes=1", "nodes is from 2 to 5,000"),
        ("tracks=0", "tracks is from 1 to"),
        ("nodes=100,tracks=10,subscriptions=1e6", "10 tracks have at most 450 subscriptions"),
    ],
)
def test_a_size_that_cannot_be_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        parse_size(text)


def test_a_network_has_regions_and_vias_and_reaches_everywhere() -> None:
    assert NETWORK.size == 200
    assert len(NETWORK.regions) == 10
    vias = int(NETWORK.is_via.sum())
    assert 0.04 * NETWORK.size <= vias <= 0.15 * NETWORK.size
    assert set(NETWORK.region[NETWORK.is_via]) == set(range(10))
    assert len({node.id for node in NETWORK.nodes}) == NETWORK.size
    options = find_options(NETWORK, POLICY.profiles)
    assert options.paths.srtt_us.max() < UNREACHABLE_US
    assert any(
        link.transits for link in generate_network(Size(800, 100, 500), POLICY, [1, 1, 1]).links
    )


@pytest.mark.parametrize("nodes", [2, 3, 10, 39, 40, 41, 137])
def test_small_networks_are_networks_too(nodes: int) -> None:
    made = generate_network(Size(nodes, 20, 20), POLICY, shares_of(POLICY))
    assert made.size == nodes
    assert made.is_edge.any()
    options = find_options(made, POLICY.profiles)
    assert options.paths.srtt_us.max() < UNREACHABLE_US


def test_a_network_is_the_same_for_a_seed() -> None:
    again = generate_network(SIZE, POLICY, shares_of(POLICY))
    assert again.nodes == NETWORK.nodes
    assert again.links == NETWORK.links
    assert generate_network(SIZE, POLICY, shares_of(POLICY), seed=2).links != NETWORK.links


def test_some_vias_and_links_are_short_of_what_is_asked_of_them() -> None:
    options = find_options(NETWORK, POLICY.profiles)
    limits = capacities(NETWORK)
    assert (limits[: NETWORK.size][NETWORK.is_via] > 0).all()
    from laps.spark.planner.bucket import gather
    from laps.spark.planner.cells import Sums, cells_of, shape_of
    from laps.spark.planner.kernel import find_pairs, lookup_of, places

    demand = made_up(NETWORK, SIZE.tracks, SIZE.subscriptions)
    bucket, _ = gather(demand.tracks(), demand.subscriptions(), places(NETWORK))
    pairs, shape = find_pairs(lookup_of(options), bucket), shape_of(options)
    sums = Sums(shape.count)
    sums.add(shape.numbers(bucket, pairs), pairs.n, bucket.rate_bps.take(pairs.track))
    cells = cells_of(options, shape, *sums.taken())
    slots = find_slots(options, np.bincount(bucket.relay, minlength=NETWORK.size).astype(float))
    loads = slots.expected_loads(*by_row(slots, cells, alone(slots, cells)))
    short = (limits > 0) & (loads > limits)
    assert short[: NETWORK.size].sum() >= 3
    assert short[NETWORK.size :].sum() >= 1
    # And there is room elsewhere.
    assert (loads[: NETWORK.size].sum()) < limits[: NETWORK.size].sum()


def test_a_demand_has_exactly_its_size_and_no_relay_twice() -> None:
    audience = Audience(NETWORK, (1, 2, 3), seed=4)
    found = [audience.chunk(c.number, c.begin, c.tracks, c.rows) for c in chunks_of(600_000, 777)]
    assert len(found) == 2
    assert sum(len(part.track) for part in found) == 600_000
    assert sum(len(part.row) for part in found) == 777
    demand = audience.chunk(0, 0, 3000, 40_000)
    assert len(demand.row) == 40_000
    assert len({*zip(demand.row.tolist(), demand.relay.tolist(), strict=True)}) == 40_000
    assert NETWORK.is_edge[demand.relay].all()
    assert NETWORK.is_edge[demand.origin].all()
    assert set(demand.profile.tolist()) == {0, 1, 2}


def test_no_two_tracks_have_the_same_hash() -> None:
    audience = Audience(NETWORK, (1,))
    parts = [audience.chunk(c.number, c.begin, c.tracks, c.rows) for c in chunks_of(500_000, 100)]
    tracks = np.concatenate([part.track for part in parts])
    assert len(np.unique(tracks)) == 500_000
    assert abs(np.mean(tracks < 0) - 0.5) < 0.01, "as even as hashes"


def test_popularity_has_a_long_tail_and_audiences_a_home() -> None:
    demand = made_up(NETWORK, 20_000, 200_000)
    audience = np.bincount(demand.row, minlength=20_000)
    assert np.median(audience) < audience.mean() / 1.5
    assert audience.max() > 8 * audience.mean()
    home = NETWORK.region[demand.origin[demand.row]] == NETWORK.region[demand.relay]
    assert home.mean() > 2 / len(NETWORK.regions)


def test_a_chunk_is_the_same_every_time() -> None:
    one, other = made_up(NETWORK, 1000, 9000, 3), made_up(NETWORK, 1000, 9000, 3)
    assert np.array_equal(one.relay, other.relay)
    assert np.array_equal(one.track, other.track)
    assert not np.array_equal(one.relay, made_up(NETWORK, 1000, 9000, 4).relay)


def test_a_track_has_no_more_s_relays_than_half_of_all() -> None:
    demand = made_up(NETWORK, 3, 10_000)
    most = int(NETWORK.is_edge.sum()) // 2
    assert np.bincount(demand.row).tolist() == [most] * 3


def test_more_tracks_than_subscriptions_leave_some_without() -> None:
    demand = made_up(NETWORK, 100, 7)
    assert len(demand.row) == 7
    assert len(demand.track) == 100
