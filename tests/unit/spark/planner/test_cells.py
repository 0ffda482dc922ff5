from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from laps.errors import ConfigError
from laps.policy import policy_from_mapping
from laps.spark.planner import cells as planner_cells
from laps.spark.planner.bucket import gather
from laps.spark.planner.cells import Sums, cells_of, shape_of, together
from laps.spark.planner.generate import Size, generate_network
from laps.spark.planner.kernel import Bucket, Pairs, find_pairs, lookup_of, places
from laps.spark.planner.options import Options, cheapest, find_options
from support.scale import made_up


def counted(
    weights: tuple[float, float] = (1.0, 0.1), fan_out: int = 2, seed: int = 1
) -> tuple[Options, Bucket, Pairs]:
    policy = policy_from_mapping(
        {
            "plan": {
                "fan_out_per_region": fan_out,
                "long_haul_weight": weights[0],
                "origin_egress_weight": weights[1],
            }
        },
        "policy",
    )
    network = generate_network(Size(60, 400, 6000), policy, (0.5, 0.25, 0.25))
    options = find_options(
        network, policy.profiles, long_haul_weight=weights[0], origin_egress_weight=weights[1]
    )
    demand = made_up(network, 400, 6000, seed)
    bucket, _ = gather(demand.tracks(), demand.subscriptions(), places(network))
    return options, bucket, find_pairs(lookup_of(options), bucket)


def test_cells_have_the_sums_of_their_pairs() -> None:
    options, bucket, pairs = counted()
    shape = shape_of(options)
    sums = Sums(shape.count)
    number = shape.numbers(bucket, pairs)
    sums.add(number, pairs.n, bucket.rate_bps.take(pairs.track))
    cells = cells_of(options, shape, *sums.taken())
    wanted: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [0.0] * 4)
    for pair in range(len(pairs)):
        track, n = pairs.track[pair], int(pairs.n[pair])
        key = (
            int(bucket.origin[track]),
            int(pairs.region[pair]),
            int(bucket.profile[track]),
            int(pairs.mask[pair]),
            min(n, 2),
        )
        rate = float(bucket.rate_bps[track])
        wanted[key] = [a + b for a, b in zip(wanted[key], (1, n, rate, rate * n), strict=True)]
    # With the usual weights the classes of n are 1, and 2 or more.
    assert shape.class_of.tolist() == [0, 0, 1]
    kind = cells.number % shape.classes + 1
    found = {
        key: sums_
        for *key_, sums_ in zip(
            cells.origin.tolist(),
            cells.region.tolist(),
            cells.profile.tolist(),
            cells.mask.tolist(),
            kind.tolist(),
            cells.sums.T.tolist(),
            strict=True,
        )
        if (key := tuple(key_))
    }
    assert found == dict(wanted)


@pytest.mark.parametrize("weights", [(1.0, 0.1), (1.0, 0.0), (0.0, 1.0), (0.3, 0.7), (0.2, 0.05)])
@pytest.mark.parametrize("fan_out", [0, 1, 2, 5, 40])
def test_all_pairs_of_a_cell_choose_the_same_by_themselves(
    weights: tuple[float, float], fan_out: int
) -> None:
    options, bucket, pairs = counted(weights, fan_out)
    shape = shape_of(options)
    sums = Sums(shape.count)
    number = shape.numbers(bucket, pairs)
    sums.add(number, pairs.n, bucket.rate_bps.take(pairs.track))
    cells = cells_of(options, shape, *sums.taken())
    origin = bucket.origin[pairs.track]
    best = cheapest(options, origin, pairs.region, pairs.n.astype(np.int32), pairs.mask)
    place = np.searchsorted(cells.number, number)
    assert np.array_equal(cells.best[place], best)
    assert len(set(pairs.n.tolist())) > 10, "or it would say little"


def test_sums_are_zero_again_once_they_are_taken() -> None:
    sums = Sums(10)
    sums.add(np.array([3, 3, 7]), np.array([1, 2, 5]), np.array([10.0, 20.0, 30.0]))
    place, found = sums.taken()
    assert place.tolist() == [3, 7]
    assert found.tolist() == [[2, 1], [3, 5], [30, 30], [50, 150]]
    assert sums.taken()[0].tolist() == []
    sums.add(np.array([7]), np.array([1]), np.array([1.0]))
    assert sums.taken()[1].tolist() == [[1], [1], [1], [1]]


def test_the_sums_of_tasks_are_one_whatever_their_order() -> None:
    one = (np.array([1, 5]), np.array([[1.0, 2.0]] * 4))
    other = (np.array([0, 5, 9]), np.array([[10.0, 20.0, 30.0]] * 4))
    for parts in ([one, other], [other, one]):
        number, sums = together(parts)
        assert number.tolist() == [0, 1, 5, 9]
        assert sums.tolist() == [[10.0, 1.0, 22.0, 30.0]] * 4


def test_more_cells_than_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    options, _, _ = counted()
    monkeypatch.setattr(planner_cells, "MOST", 1000)
    with pytest.raises(ConfigError, match=r"60 nodes, 3 regions, 3 profiles and 3 candidates make"):
        shape_of(options)
