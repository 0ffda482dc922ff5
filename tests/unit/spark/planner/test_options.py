"""Paths and options against the plain words of the page."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.policy import Profile, policy_from_mapping
from laps.spark.planner.demand import Track
from laps.spark.planner.loads import capacities
from laps.spark.planner.network import Link, Network, Node, network, under
from laps.spark.planner.options import DIRECT, WEIGHT, cheapest, find_options
from laps.spark.planner.paths import UNREACHABLE_US, all_paths
from support.planning import Case, Oracle

GOLD = Profile("gold", 1.2, 5000, 2)


def made(
    size: int, links: list[tuple[int, int, int]], roles: str = "", regions: str = ""
) -> Network:
    roles, regions = roles or "e" * size, regions or "a" * size
    kinds = {"e": "edge", "v": "via", "s": "stub", "c": "control"}
    nodes = [Node(f"1:{n + 1}", kinds[roles[n]], regions[n]) for n in range(size)]
    return network(nodes, [Link(*link) for link in links])


@given(
    st.permutations(range(1, 8)),
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.integers(1, 6),
            st.sampled_from((1, 2, 3, 10**7)),
            st.sampled_from((False, False, True)),
        ),
        max_size=14,
    ),
    st.sets(st.integers(1, 7), max_size=3),
)
def test_every_path_is_the_one_that_relays_select(
    ids: list[int], ends: list[tuple[int, int, int, bool]], ending: set[int]
) -> None:
    nodes = tuple(Node(f"1:{number}", passes_on=number not in ending) for number in ids)
    links = tuple(Link(a, b, srtt, is_closed=closed) for a, b, srtt, closed in ends if a < b)
    joined = network(nodes, links)
    oracle = Oracle(Case(nodes, joined.links, (GOLD,), ()))
    paths = all_paths(joined)
    for a in range(7):
        for b in range(7):
            path = oracle.paths[a, b]
            assert paths.nodes_between(a, b) == (path or ())
            srtt = UNREACHABLE_US if path is None else oracle.srtt(path)
            assert paths.srtt_us[a, b] == srtt


def test_a_hop_less_beats_any_round_trip() -> None:
    # 20 s in one hop against 2 ms in two.
    paths = all_paths(made(3, [(0, 1, 20_000_000), (0, 2, 1000), (2, 1, 1000)]))
    assert paths.nodes_between(0, 1) == (0, 1)


def test_links_between_the_same_nodes_are_one() -> None:
    nodes = [Node("1:1"), Node("1:2")]
    both = network(
        nodes,
        [Link(0, 1, 2000, 5, ("ca",)), Link(1, 0, 1000, 7, ("us", "ca")), Link(0, 1, 3000, 1)],
    )
    assert both.links == (Link(0, 1, 1000, 13, ("ca", "us")),)
    # A limit that nobody knows is no limit.
    assert network(nodes, [Link(0, 1, 1, 5), Link(0, 1, 1, 0)]).links[0].capacity_bps == 0


def test_stubs_and_control_servers_carry_nothing_for_others() -> None:
    joined = made(4, [(0, 2, 1), (2, 1, 1), (0, 3, 1), (3, 1, 1)], roles="eesc")
    assert all_paths(joined).srtt_us[0, 1] == UNREACHABLE_US


def test_a_link_has_a_capacity_in_each_direction_and_only_vias_have_their_own() -> None:
    nodes = [Node("1:1", capacity_bps=9), Node("1:2", "via", capacity_bps=8)]
    joined = network(nodes, [Link(0, 1, 1, 7)])
    assert capacities(joined).tolist() == [0, 8, 7, 7]
    assert joined.link_between(np.array([0, 1]), np.array([1, 0])).tolist() == [0, 1]
    assert [joined.link_ends(number) for number in (0, 1)] == [(0, 1), (1, 0)]


def test_candidates_are_the_cheapest_vias_then_the_nearest_then_by_node_id() -> None:
    # The o-relay is in a, its s-relay in b; all Vias lie between them, the later ones farther.
    links = [(0, via, 1000) for via in range(2, 8)]
    links += [
        (via, 1, 1000 * distance)
        for via, distance in zip(range(2, 8), (9, 9, 1, 5, 2, 5), strict=False)
    ]
    joined = made(8, links, roles="eevvvvvv", regions="abcabbab")
    options = find_options(joined, [GOLD], candidates=7)
    # In b, those of 5 and 5; in a, of 2 and 9; elsewhere of 9. The one of 1 is in b, too.
    assert options.vias[0, 1].tolist() == [4, 5, 7, 6, 3, 2, -1]
    assert find_options(joined, [GOLD], candidates=2).vias[0, 1].tolist() == [4, 5]
    # Where long hauls cost nothing, nearness is all.
    free = find_options(joined, [GOLD], candidates=7, long_haul_weight=0.0)
    assert free.vias[0, 1].tolist() == [4, 6, 5, 7, 2, 3, -1]


def test_costs_follow_the_table_of_the_page() -> None:
    links = [(0, 1, 1000), (0, 2, 1000), (0, 3, 1000), (0, 4, 1000), (1, 2, 1000), (1, 3, 1000)]
    joined = made(5, [*links, (1, 4, 1000)], roles="eevvv", regions="abbac")
    options = find_options(
        joined, [GOLD], candidates=3, long_haul_weight=2.0, origin_egress_weight=0.5
    )
    vias = options.vias[0, 1].tolist()
    assert vias == [2, 3, 4]
    n = 3
    cost = options.fixed[0, 1] + n * options.each[0, 1]
    # One long haul for the Via in b, n for the one in a, 1 + n for the one in c.
    assert cost[[0, 1, 2]].tolist() == [2500, 6500, 8500]
    assert cost[DIRECT] == (2.0 * n + 0.5 * n) * WEIGHT
    hauls = options.haul_fixed[0, 1] + n * options.haul_each[0, 1]
    assert hauls[[0, 1, 2, DIRECT]].tolist() == [1, 3, 4, 3]


def test_of_equal_costs_the_least_delay_counts_then_hub_and_spoke_then_the_node_id() -> None:
    # For one s-relay in another region a Via there costs the same as no Via.
    def chosen(direct_us: int, via_us: int) -> str:
        links = [(0, 1, direct_us), (0, 2, via_us), (2, 1, via_us), (0, 3, via_us), (3, 1, via_us)]
        options = find_options(made(4, links, roles="eevv", regions="abbb"), [GOLD])
        one = np.array([1], np.int32)
        choice = cheapest(options, one * 0, one, one, np.array([0b1000_0011], np.uint8))
        option = int(choice[0])
        return (
            "direct" if option == DIRECT else options.network.nodes[options.vias[0, 1, option]].id
        )

    assert chosen(9000, 5000) == "direct"
    assert chosen(10_000, 5000) == "direct"
    # Fewer hops and yet slower: the detour wins, by the lower of two like ones.
    assert chosen(11_000, 5000) == "1:3"


def test_the_delay_bound_is_kept_to_the_microsecond() -> None:
    # 1.2 x 10,000 us + 2 x 5,000 us = 22,000 us of sRTT.
    for detour, fits in ((21_999, True), (22_000, True), (22_001, False)):
        links = [(0, 1, 10_000), (0, 2, detour - 1), (2, 1, 1)]
        options = find_options(made(3, links, roles="eev", regions="abb"), [GOLD])
        assert bool(options.allowed[0, 0, 1] & 1) is fits
        assert options.allowed[0, 0, 1] & 1 << DIRECT


def test_rules_look_at_every_node_and_every_transit() -> None:
    nodes = [
        Node("1:1", "edge", "a"),
        Node("1:2", "edge", "b"),
        Node("1:3", "via", "b"),
        Node("1:4", "via", "c"),
    ]
    links = [
        Link(0, 1, 100_000, 0, ("x",)),
        Link(0, 2, 100_000),
        Link(2, 1, 1000),
        Link(0, 3, 1000),
        Link(3, 1, 1000),
    ]

    def allowed(inside: tuple[str, ...] = (), avoid: tuple[str, ...] = ()) -> set[str]:
        options = find_options(network(nodes, links), [Profile("", 9.0, 0, 2, inside, avoid)])
        mask = int(options.allowed[0, 0, 1])
        found = {"direct"} if mask >> DIRECT & 1 else set()
        for k, via in enumerate(options.vias[0, 1]):
            if mask >> k & 1:
                found.add(nodes[via].id)
        return found

    assert allowed() == {"direct", "1:3", "1:4"}
    assert allowed(avoid=("x",)) == {"1:3", "1:4"}
    assert allowed(avoid=("c",)) == {"direct", "1:3"}
    assert allowed(inside=("a", "b")) == {"1:3"}
    assert allowed(inside=("a", "b", "x")) == {"direct", "1:3"}
    # The o-relay itself is where it must not be.
    assert allowed(avoid=("a",)) == set()


def test_a_copy_to_the_o_relay_itself_is_none_and_hinders_nothing() -> None:
    options = find_options(made(2, [(0, 1, 1000)]), [Profile("", 1.0, 0, 2, ("nowhere",))])
    assert options.allowed[0, 0, 0] == 0xFF
    assert options.allowed[0, 0, 1] == 0


def test_networks_larger_than_a_block_have_the_same_options_as_small_ones() -> None:
    """Two copies of a small network far apart in the numbering choose alike."""
    random = np.random.default_rng(7)
    size = 40
    roles = "".join(random.choice(list("eeev"), size))
    regions = "".join(random.choice(list("abcd"), size))
    links = [
        (int(random.integers(n)), n, int(random.integers(1, 50)) * 1000) for n in range(1, size)
    ]
    links += [
        (a, b, int(random.integers(1, 50)) * 1000)
        for a, b in random.integers(0, size, (60, 2)).tolist()
        if a < b
    ]
    small = find_options(made(size, links, roles, regions), [GOLD])
    gap = 300
    nodes = [Node(f"1:{n + 1}", "edge", "z") for n in range(gap)]
    nodes += [Node(f"2:{n + 1}", small.network.nodes[n].role, regions[n]) for n in range(size)]
    large = find_options(
        network(nodes, [Link(a + gap, b + gap, srtt) for a, b, srtt in links]), [GOLD]
    )
    vias = large.vias[gap:, : len(small.network.regions)]
    assert np.array_equal(np.where(vias >= 0, vias - gap, -1), small.vias)
    assert np.array_equal(large.allowed[:, gap:, gap:], small.allowed)
    assert not large.allowed[0, :gap, gap:].any()


def test_tracks_know_their_name_or_at_least_their_hash() -> None:
    assert Track(255, 0, 1, (), 0).label == "00000000000000ff"
    assert Track(255, 0, 1, (), 0, "a/b", "c").label == "a/b/c"


def governed(text: str) -> tuple[Network, list[str]]:
    """A publisher and three s-relays, by either of two Vias; and the best Via within a policy."""
    nodes = [Node("1:1", region="east"), *(Node(f"1:{n}", region="west") for n in (2, 3, 4))]
    nodes += [Node("9:8", "via", "west"), Node("9:9", "via", "west")]
    links = [Link(0, 4, 6000), Link(0, 5, 5000)]
    links += [Link(via, edge, 1000) for via in (4, 5) for edge in (1, 2, 3)]
    policy = policy_from_mapping(tomllib.loads(text), "policy.toml")
    found = under(policy, network(nodes, links), "policy.toml")
    profile = policy.profile_of("gov/news")
    options = find_options(found, [profile])
    mask = np.bitwise_and.reduce(options.allowed[0, 0, [1, 2, 3]]) & 0b0111_1111
    west = np.array([found.regions.index(found.nodes[1].region)], np.int32)
    chosen = cheapest(options, west * 0, west, west * 0 + 3, np.array([mask], np.uint8))
    via = [options.vias[0, west[0], option] for option in chosen if option >= 0]
    return found, [found.nodes[number].id for number in via]


@pytest.mark.parametrize(
    ("text", "via"),
    [
        ("", ["9:9"]),
        ('[vias]\nnodes = ["9:8"]', ["9:8"]),
        ('[vias]\nnodes = ["7:7"]', []),
        ('[[link]]\nbetween = ["1:1", "9:9"]\nclosed = true', ["9:8"]),
        ('[[peering]]\nbetween = ["1:1", "9:9"]\nallow = false', ["9:8"]),
        (
            (
                '[[rule]]\ntracks = "gov/*"\navoid = ["ca"]\n'
                '[[link]]\nbetween = ["1:1", "9:9"]\ntransits = ["ca"]'
            ),
            ["9:8"],
        ),
        (
            (
                '[[rule]]\ntracks = "gov/*"\navoid = ["mex"]\n'
                '[[node]]\nnodes = ["9:9"]\nregion = "mex"'
            ),
            ["9:8"],
        ),
    ],
)
def test_a_plan_keeps_to_what_a_policy_says_of_nodes_and_links(text: str, via: list[str]) -> None:
    found, chosen = governed(text)
    assert chosen == via
    assert under(policy_from_mapping(tomllib.loads(text), "p"), found, "p").links == found.links
