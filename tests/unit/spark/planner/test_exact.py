"""The exact planner against trying everything."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from laps.policy import Profile
from laps.spark.planner.demand import Track, find_pairs
from laps.spark.planner.exact import Solution, solve
from laps.spark.planner.network import Link, Node, network
from laps.spark.planner.options import DIRECT, Options, find_options
from laps.spark.planner.program import silence
from support.planning import Case, Choice, Oracle

if TYPE_CHECKING:
    import pytest

REGIONS = ("a", "a", "b", "b", "c")
# Round ones meet limits exactly; odd ones just miss them.
RATES = (1, 2, 3, 1_000_000, 2_000_000, 999_999, 1_000_001)
LIMITS = (0, 0, 0, 1, 3, 4, 2_000_000, 3_000_000, 4_000_000, 5_000_001)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    size = draw(st.integers(4, 7))
    roles = [draw(st.sampled_from(("edge", "via"))) for _ in range(size)]
    edges = [n for n, role in enumerate(roles) if role == "edge"]
    assume(len(edges) >= 2)
    ids = draw(st.permutations(range(1, size + 1)))
    nodes = tuple(
        Node(
            f"1:{ids[n]}",
            roles[n],
            draw(st.sampled_from(REGIONS)),
            capacity_bps=draw(st.sampled_from(LIMITS)),
        )
        for n in range(size)
    )
    ends = [(draw(st.integers(0, n - 1)), n) for n in range(1, size)]
    ends += draw(
        st.lists(st.tuples(st.integers(0, size - 2), st.integers(1, size - 1)), max_size=9)
    )
    links = tuple(
        Link(
            a,
            b,
            draw(st.sampled_from((1000, 2000, 5000, 9999))),
            draw(st.sampled_from(LIMITS)),
            draw(st.sampled_from(((), (), ("a",), ("d",)))),
        )
        for a, b in sorted({(a, b) for a, b in ends if a < b})
    )
    profiles = tuple(
        Profile(
            name,
            draw(st.sampled_from((1.0, 3.0, 10.0, 10.0))),
            draw(st.sampled_from((0, 1000, 50_000, 50_000))),
            draw(st.sampled_from((0, 1, 2, 2))),
            draw(st.sampled_from(((), (), (), (), ("a", "b"), ("a", "b", "c")))),
            draw(st.sampled_from(((), (), (), (), ("a",), ("d",), ("c", "d")))),
        )
        for name in ("gold", "silver")
    )
    tracks = []
    for number in range(draw(st.integers(1, 4))):
        origin = draw(st.sampled_from(edges))
        relays = draw(st.sets(st.sampled_from(edges), min_size=1)) - {origin}
        tracks.append(
            Track(
                number,
                origin,
                draw(st.sampled_from(RATES)),
                tuple(sorted(relays)),
                draw(st.integers(0, 1)),
            )
        )
    weights = draw(st.sampled_from(((1.0, 0.1), (0.0, 1.0), (1.0, 0.0), (0.3, 0.7))))
    return Case(nodes, links, profiles, tuple(tracks), *weights)


def planned(case: Case) -> tuple[Options, Solution, list[Choice]]:
    options = find_options(
        network(case.nodes, case.links),
        case.profiles,
        candidates=7,
        long_haul_weight=case.long_haul_weight,
        origin_egress_weight=case.origin_egress_weight,
    )
    pairs = find_pairs(options, case.tracks)
    solution = solve(options, pairs)
    choices: list[Choice] = []
    for origin, region, option in zip(pairs.origin, pairs.region, solution.choice, strict=True):
        if option < 0:
            choices.append(None)
        else:
            by = "direct" if option == DIRECT else int(options.vias[origin, region, option])
            choices.append(by)
    return options, solution, choices


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_a_plan_keeps_every_constraint_and_is_as_good_as_the_best_of_all(case: Case) -> None:
    oracle = Oracle(case)
    able = [oracle.options(track, relays) for track, _, relays in case.pairs]
    combinations = 1
    for options in able:
        combinations *= len(options) + 1
    assume(combinations <= 3000)
    _, solution, choices = planned(case)
    assert all(choice is None or choice in of for choice, of in zip(choices, able, strict=True))
    assert oracle.fits(choices)
    assert oracle.value(choices) == oracle.best()
    assert solution.proven
    assert solution.bound <= solution.cost * (1 + 1e-6) + 1e-6


def test_a_track_of_a_bit_does_not_push_a_large_one_out_of_a_full_link() -> None:
    """Two millionths and one: within a solver's tolerance, and past an operator's limit."""
    nodes = (Node("1:1"), Node("1:2", "via"), Node("1:3", "via"), Node("1:4"))
    links = (Link(0, 1, 1000), Link(0, 2, 1000, 1), Link(0, 3, 1000, 2_000_000))
    profiles = (Profile("gold", 1.0, 1000, 1),)
    tracks = (Track(0, 3, 1, (0,), 0), Track(1, 3, 2_000_000, (0,), 0))
    _, solution, choices = planned(Case(nodes, links, profiles, tracks))
    assert choices == [None, "direct"]
    assert solution.proven


def test_tracks_that_a_limit_does_not_concern_keep_their_preferred_option() -> None:
    # Two Vias like each other in b, of which 1:5 is the farther one; one in c that is too small.
    nodes = (
        Node("1:1", region="a"),
        Node("1:2", region="b"),
        Node("1:3", region="b"),
        Node("1:4", "via", "b", capacity_bps=10**9),
        Node("1:5", "via", "b", capacity_bps=10**9),
        Node("1:6", "via", "c", capacity_bps=3000),
        Node("1:7", region="c"),
        Node("1:8", region="c"),
    )
    links = [Link(0, via, 1000) for via in (3, 4, 5)]
    links += [Link(3, 1, 1000), Link(3, 2, 1000), Link(4, 1, 1500), Link(4, 2, 1500)]
    links += [Link(5, 6, 1000), Link(5, 7, 1000), Link(0, 6, 9000), Link(0, 7, 9000)]
    tracks = (
        Track(0, 0, 1000, (1, 2), 0),
        Track(1, 0, 1000, (6, 7), 0),
        Track(2, 0, 1000, (6, 7), 0),
        Track(3, 0, 500_000_000, (1, 2), 0),
    )
    case = Case(nodes, tuple(links), (Profile("gold", 3.0, 10_000, 2),), tracks)
    _, solution, choices = planned(case)
    # The Via in c has room for one of its two tracks; that in b for both of its own, exactly not.
    assert sorted(map(str, choices[1:3])) == ["5", "direct"]
    assert choices[3] == 3
    assert choices[0] == 4
    assert Oracle(case).value(choices) == Oracle(case).best()
    assert solution.loads[3] == 10**9


def test_what_the_solver_mutters_does_not_reach_standard_output(
    capfd: pytest.CaptureFixture[str],
) -> None:
    c = ctypes.CDLL(None)
    with silence():
        c.puts(b"HighsMipSolverData::")
    sys.stdout.write("a plan\n")
    assert capfd.readouterr().out == "a plan\n"


def many_pairs(fan_out: int) -> Case:
    """600 tracks for three Vias that have room for two thirds of them."""
    random = np.random.default_rng(3)
    nodes = [Node("1:1", region="a"), *(Node(f"2:{n}", region="b") for n in range(1, 7))]
    nodes += [Node(f"3:{n}", "via", "b", capacity_bps=60_000_000) for n in range(1, 4)]
    links = [Link(0, via, 1000) for via in (7, 8, 9)]
    links += [Link(via, edge, 1000) for via in (7, 8, 9) for edge in range(1, 7)]
    tracks = tuple(
        Track(
            number,
            0,
            int(random.integers(1, 300)) * 1000,
            tuple(sorted(random.choice(range(1, 7), 3, replace=False).tolist())),
            0,
        )
        for number in range(600)
    )
    return Case(tuple(nodes), tuple(links), (Profile("gold", 3.0, 10_000, fan_out),), tracks)


def test_of_many_pairs_a_choice_is_found_that_is_close_to_the_best() -> None:
    case = many_pairs(fan_out=3)
    _, solution, choices = planned(case)
    assert None not in choices
    assert "direct" in choices
    assert Oracle(case).fits(choices)
    assert not solution.proven
    assert 0 <= solution.gap <= 1e-3


def test_of_many_pairs_that_do_not_all_fit_nearly_the_most_is_served() -> None:
    case = many_pairs(fan_out=2)
    _, solution, choices = planned(case)
    assert Oracle(case).fits(choices)
    missed, _ = Oracle(case).value(choices)
    demand = sum(track.rate_bps * len(track.relays) for track in case.tracks)
    # All three Vias can send so much in all.
    assert demand - missed > 180_000_000 * 0.998
    assert solution.gap <= 2e-3
