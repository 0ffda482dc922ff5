"""Plans by cells against plans pair by pair, and what capacity does to them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from laps.policy import policy_from_mapping
from laps.spark.planner.audience import Demand
from laps.spark.planner.generate import Size, generate_network, shares_of
from laps.spark.planner.loads import capacities, find_usage, link_loads
from laps.spark.planner.network import Link, Network, Node, network
from laps.spark.planner.options import WEIGHT, find_options
from laps.spark.planner.resources import find_slots
from support.scale import Planned, made_up, plan

if TYPE_CHECKING:
    from pathlib import Path

POLICY = policy_from_mapping({}, "policy")


def made_network(size: Size, seed: int, *, via: float = 1.0, link: float = 0.0) -> Network:
    """One that is made up, with so much of its capacities; 0: without."""
    made = generate_network(size, POLICY, shares_of(POLICY), seed)
    return network(
        (replace(node, capacity_bps=int(node.capacity_bps * via)) for node in made.nodes),
        (replace(one, capacity_bps=int(one.capacity_bps * link)) for one in made.links),
    )


def assert_right(planned: Planned) -> None:
    """What the plan says of itself is true of what it wrote."""
    options, pairs, choice = planned.options, planned.pairs, planned.choice()
    served = choice >= 0
    # Every pair is in one of the two tables, and has an option that it may have.
    assert len(planned.chosen()) + len(planned.missing()) == len(pairs)
    assert not set(planned.chosen()) & set(planned.missing())
    assert ((pairs.mask[served] >> choice[served].astype(np.uint8)) & 1 == 1).all()
    loads = find_usage(options, pairs, every=True).loads(choice)
    assert np.array_equal(planned.large.planned.loads, loads)
    limits = capacities(options.network)
    over = np.flatnonzero((limits > 0) & (loads > limits))
    assert len(over) == len(planned.large.planned.overloaded)
    place = (pairs.origin[served], pairs.region[served], choice[served])
    cost = (options.fixed[place] + pairs.n[served] * options.each[place]) * pairs.rate_bps[served]
    assert planned.large.cost == pytest.approx(cost.sum() / WEIGHT / 1e6)
    assert planned.large.bound <= planned.large.cost * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weights", [(1.0, 0.1), (0.0, 1.0), (0.4, 0.6)])
def test_without_limits_it_is_the_best_there_is(
    tmp_path: Path, seed: int, weights: tuple[float, float]
) -> None:
    size = Size(60, 300, 2500)
    policy = policy_from_mapping(
        {"plan": {"long_haul_weight": weights[0], "origin_egress_weight": weights[1]}}, "policy"
    )
    made = made_network(size, seed, via=0)
    planned = plan(tmp_path, made, [made_up(made, 300, 2500, seed)], policy)
    assert_right(planned)
    exact = planned.exact()
    assert np.array_equal(planned.choice(), exact.choice)
    assert planned.large.gap == 0
    assert planned.large.bound == planned.large.cost == pytest.approx(exact.cost / WEIGHT / 1e6)
    assert planned.large.priced == 0


@pytest.mark.parametrize(
    ("seed", "tracks", "rows"),
    [*((seed, 80, 600) for seed in range(1, 9)), (1, 600, 5000), (2, 600, 5000), (4, 600, 5000)],
)
def test_with_short_vias_it_is_within_its_gap_of_the_best(
    tmp_path: Path, seed: int, tracks: int, rows: int
) -> None:
    size = Size(60, tracks, rows)
    made = made_network(size, seed, via=(1.0, 0.7, 0.5)[seed % 3])
    planned = plan(tmp_path, made, [made_up(made, tracks, rows, seed)])
    assert_right(planned)
    assert planned.large.priced > 0, "or nothing is short"
    assert planned.large.planned.overloaded == ()
    exact = planned.exact()
    pairs = planned.pairs
    value = pairs.rate_bps * pairs.n
    missed, least = value[planned.choice() < 0].sum(), value[exact.choice < 0].sum()
    assert missed == least
    best = exact.cost / WEIGHT / 1e6
    assert planned.large.bound <= best * (1 + 1e-9)
    assert best <= planned.large.cost * (1 + 1e-9)
    assert planned.large.cost * (1 - planned.large.gap) <= best * (1 + 1e-9)
    assert planned.large.gap < (0.2 if tracks == 80 else 0.05)


@pytest.mark.parametrize("seed", [1, 4, 6])
def test_links_are_kept_within_their_limits_too(tmp_path: Path, seed: int) -> None:
    size = Size(60, 600, 5000)
    made = made_network(size, seed, via=0.7, link=0.4)
    planned = plan(tmp_path, made, [made_up(made, 600, 5000, seed)])
    assert_right(planned)
    assert planned.large.planned.overloaded == ()
    # Without those limits some links would have more.
    free = plan(tmp_path / "free", made_network(size, seed), [made_up(made, 600, 5000, seed)])
    limits = capacities(made)[made.size :]
    assert np.any((limits > 0) & (free.large.planned.loads[made.size :] > limits))
    assert planned.large.bound <= planned.exact().cost / WEIGHT / 1e6 * (1 + 1e-9)


# -- one o-relay, one region, two Vias -------------------------------------------------------------


def two_vias(*limits_bps: int, link_bps: int = 0) -> Network:
    """Edge 0 in `here`; Vias 1 and 2 and Edges 3, 4, 5 in `there`."""
    nodes = [
        Node("1:1", "edge", "here"),
        *(Node(f"2:{n}", "via", "there", capacity_bps=bps) for n, bps in enumerate(limits_bps, 1)),
        *(Node(f"3:{n}", "edge", "there") for n in range(1, 4)),
    ]
    links = [Link(0, via, 10_000 + via, link_bps) for via in (1, 2)]
    links += [Link(via, edge, 1000) for via in (1, 2) for edge in (3, 4, 5)]
    return network(nodes, links)


def alike(tracks: int, rate_bps: int, seed: int = 0) -> Demand:
    """Tracks from Edge 0, each with all three Edges of `there`."""
    number = np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, tracks)
    row = np.repeat(np.arange(tracks, dtype=np.int32), 3)
    return Demand(
        track=number,
        origin=np.zeros(tracks, np.int32),
        rate_bps=np.full(tracks, rate_bps, np.float32),
        profile=np.zeros(tracks, np.int8),
        row=row,
        relay=np.tile(np.array([3, 4, 5], np.int32), tracks),
    )


def test_a_cell_that_no_via_has_room_for_is_split_by_hash(tmp_path: Path) -> None:
    # 1,000 tracks at 3 s-relays: 3 Gbit/s of egress, all in one cell.
    made = two_vias(2_000_000_000, 1_100_000_000)
    planned = plan(tmp_path, made, [alike(1000, 1_000_000)])
    assert_right(planned)
    assert planned.large.missing == ()
    vias = list(planned.chosen().values())
    assert 630 <= vias.count("2:1") <= 666
    assert vias.count("2:1") + vias.count("2:2") == 1000
    again = plan(tmp_path / "again", made, [alike(1000, 1_000_000)])
    assert again.chosen() == planned.chosen()


def test_what_nobody_has_room_for_is_left_out_and_named(tmp_path: Path) -> None:
    made = two_vias(1_000_000_000, 500_000_000)
    planned = plan(tmp_path, made, [alike(1000, 1_000_000)])
    assert_right(planned)
    assert len(planned.chosen()) >= 490
    (missing,) = planned.large.missing
    assert missing.constraint == "capacity"
    assert missing.pairs == len(planned.missing()) == 1000 - len(planned.chosen())
    assert missing.bps == missing.pairs * 3_000_000
    assert set(planned.missing().values()) == {"capacity"}
    assert planned.large.planned.overloaded == ()


def test_a_pair_that_is_larger_than_all_limits_is_left_out(tmp_path: Path) -> None:
    planned = plan(tmp_path, two_vias(1_000_000, 2_000_000), [alike(1, 1_000_000)])
    assert_right(planned)
    assert planned.chosen() == {}
    assert planned.large.missing[0].pairs == 1


def test_a_few_large_pairs_are_placed_one_by_one(tmp_path: Path) -> None:
    # 3 Mbit/s each: two fit the one, three the other, and not a bit more.
    planned = plan(tmp_path, two_vias(6_010_000, 9_010_000), [alike(5, 1_000_000)])
    assert_right(planned)
    assert sorted(planned.chosen().values()) == ["2:1", "2:1", "2:2", "2:2", "2:2"]
    assert planned.large.missing == ()


def test_a_short_link_moves_what_goes_over_it(tmp_path: Path) -> None:
    made = two_vias(0, 0, link_bps=700_000_000)
    planned = plan(tmp_path, made, [alike(1000, 1_000_000)])
    assert_right(planned)
    vias = list(planned.chosen().values())
    assert 600 <= vias.count("2:1") <= 700, "the nearer one, as far as its link goes"
    assert vias.count("2:2") == 1000 - vias.count("2:1")


def test_pairs_that_nothing_serves_are_infeasible_by_name(tmp_path: Path) -> None:
    policy = policy_from_mapping(
        {"rule": [{"tracks": "x/*", "class": "silver", "avoid": ["there"]}]}, "policy"
    )
    demand = alike(2, 1000)
    demand.profile[1] = len(policy.profiles) - 1
    short = [replace(node, role="edge") for node in two_vias(0, 0).nodes]
    made = network(short, two_vias(0, 0).links)
    planned = plan(tmp_path, made, [demand], policy)
    assert_right(planned)
    first, second = (int(track) % 2**64 for track in demand.track)
    assert planned.missing() == {(first, "there"): "fan-out", (second, "there"): "region rules"}
    assert [one.constraint for one in planned.large.missing] == ["fan-out", "region rules"]


def test_nothing_to_plan_is_a_plan(tmp_path: Path) -> None:
    demand = alike(3, 1000)
    nobody = replace(demand, row=demand.row[:0], relay=demand.relay[:0])
    planned = plan(tmp_path, two_vias(5, 5), [nobody])
    assert planned.chosen() == {}
    assert planned.large.cost == planned.large.bound == planned.large.gap == 0
    assert planned.large.planned.pairs == 0


# -- what links carry ------------------------------------------------------------------------------


def test_links_carry_what_goes_along_their_paths() -> None:
    made = made_network(Size(80, 100, 900), 3)
    options = find_options(made, POLICY.profiles)
    slots = find_slots(options, np.ones(made.size))
    flow = np.random.default_rng(3).integers(0, 50, made.size**2)
    source, target = np.divmod(np.arange(made.size**2), made.size)
    wanted = link_loads(made, options.paths, source.astype(np.int32), target.astype(np.int32), flow)
    assert np.array_equal(slots.carried(flow.astype(np.float64)), wanted)
