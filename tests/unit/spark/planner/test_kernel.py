from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.policy import policy_from_mapping
from laps.spark.planner import demand
from laps.spark.planner.bucket import bucket_of, gather
from laps.spark.planner.generate import Size, generate_network
from laps.spark.planner.kernel import Bucket, find_pairs, lookup_of, places, slice_of
from laps.spark.planner.options import Options, find_options

POLICY = policy_from_mapping(
    {
        "class": {"gold": {"stretch": 1.0, "slack_ms": 1}},
        "rule": [
            {"tracks": "a/*", "avoid": ["london"], "fan_out_per_region": 1},
            {"tracks": "b/*", "inside": ["newyork", "frankfurt"], "fan_out_per_region": 0},
        ],
    },
    "policy",
)
NETWORK = generate_network(Size(60, 500, 5000), POLICY, [1.0] * len(POLICY.profiles))
OPTIONS: Options = find_options(NETWORK, POLICY.profiles)
EDGES = np.flatnonzero(NETWORK.is_edge).tolist()

tracks_of_any_kind = st.lists(
    st.tuples(
        st.sampled_from(EDGES),
        st.integers(0, len(POLICY.profiles) - 1),
        st.lists(st.sampled_from(EDGES), max_size=30),
    ),
    max_size=8,
)


def in_one_bucket(rows: list[tuple[int, int, list[int]]]) -> tuple[Bucket, list[demand.Track]]:
    """The same tracks for the kernel, and one by one."""
    tracks = [
        demand.Track(
            100 + n, origin, 1000 * (n + 1), tuple(sorted(set(relays) - {origin})), profile
        )
        for n, (origin, profile, relays) in enumerate(rows)
    ]
    of_tracks: dict[str, Any] = {
        "track": np.array([track.hash for track in tracks], np.int64),
        "origin": np.array([track.origin for track in tracks], np.int32),
        "rate_bps": np.array([track.rate_bps for track in tracks], np.float32),
        "profile": np.array([track.profile for track in tracks], np.int8),
    }
    every = [(100 + n, relay) for n, (_, _, relays) in enumerate(rows) for relay in relays]
    subscriptions: dict[str, Any] = {
        "track": np.array([row[0] for row in every], np.int64),
        "relay": np.array([row[1] for row in every], np.int32),
    }
    return gather(of_tracks, subscriptions, places(NETWORK))[0], tracks


@given(tracks_of_any_kind)
@settings(deadline=None)
def test_pairs_are_those_that_are_found_one_by_one(rows: list[tuple[int, int, list[int]]]) -> None:
    bucket, tracks = in_one_bucket(rows)
    found = find_pairs(lookup_of(OPTIONS), bucket)
    wanted = demand.find_pairs(OPTIONS, tracks)
    assert found.track.tolist() == wanted.track.tolist()
    assert found.region.tolist() == wanted.region.tolist()
    assert found.n.tolist() == wanted.n.tolist()
    assert found.mask.tolist() == wanted.mask.tolist()
    for pair, first in enumerate(found.first):
        rows_of_pair = bucket.relay[first : first + found.n[pair]]
        assert rows_of_pair.tolist() == sorted(wanted.relays[pair].tolist())


def test_what_the_fan_out_forbids_is_told_from_what_the_rules_forbid() -> None:
    bucket, _ = in_one_bucket([(EDGES[0], 0, EDGES)])
    found = find_pairs(lookup_of(OPTIONS), bucket)
    assert (found.n > 2).all()
    assert (found.together >> 7 == 1).all()
    assert (found.mask >> 7 == 0).all()


def test_a_bucket_without_rows_has_no_pairs() -> None:
    bucket, _ = in_one_bucket([])
    assert len(find_pairs(lookup_of(OPTIONS), bucket)) == 0


def test_slices_are_even_within_a_bucket_and_the_same_every_time() -> None:
    tracks = np.random.default_rng(5).integers(-(2**63), 2**63 - 1, 400_000)
    tracks = tracks[bucket_of(tracks, 16) == 3]
    found = slice_of(tracks, 64)
    assert found.min() == 0
    assert found.max() == 63
    counts = np.bincount(found)
    assert counts.min() > 0.8 * counts.mean()
    assert np.array_equal(found, slice_of(tracks.copy(), 64))
    assert slice_of(np.array([1, -1, 2**62]), 1024).tolist() == [632, 391, 256]
