"""Announces, and the tracks they match."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.infobase.announces import AnnounceChange, Announces
from laps.types import AnnounceInfo, NodeId

A, B, C = 11, 22, 33
NAME, OTHER = 77, 88


def announce(*namespace: int, name: int = 0) -> AnnounceInfo:
    return AnnounceInfo(NodeId(1), namespace, name)


@pytest.mark.parametrize(
    ("info", "matches"),
    [
        (announce(A, B), True),
        (announce(A), True),
        (announce(), True),
        (announce(B), False),
        (announce(B, A), False),
        (announce(A, C), False),
        (announce(A, B, C), False),
        (announce(A, B, name=NAME), True),
        (announce(A, B, name=OTHER), False),
        (announce(A, name=NAME), False),
        (announce(name=NAME), False),
    ],
    ids=str,
)
def test_matching_is_part_by_part_in_order(info: AnnounceInfo, matches: bool) -> None:
    announces = Announces[str]()
    announces.add("client", info)
    assert announces.match((A, B), NAME) == (["client"] if matches else [])


def test_each_origin_is_found_once_and_the_closest_first() -> None:
    announces = Announces[str]()
    announces.add("wide", announce(A))
    announces.add("close", announce(A, B, name=NAME))
    announces.add("both", announce(A))
    announces.add("both", announce(A, B))
    assert announces.match((A, B), NAME) == ["close", "both", "wide"]


def test_an_announce_is_news_once() -> None:
    announces = Announces[str]()
    assert announces.add("client", announce(A)) == AnnounceChange(announce(A), added=True)
    assert announces.add("client", announce(A)) is None
    assert announces.add("other", announce(A)) is not None
    assert announces.counters.duplicates == 1
    assert list(announces) == [("client", announce(A)), ("other", announce(A))]


def test_a_withdraw_takes_one_origin_away() -> None:
    announces = Announces[str]()
    announces.add("client", announce(A))
    announces.add("other", announce(A))
    assert announces.withdraw("client", announce(A)) == AnnounceChange(announce(A), added=False)
    assert announces.withdraw("client", announce(A)) is None
    assert announces.withdraw("other", announce(B)) is None
    assert announces.counters.unknown_withdraws == 2
    assert announces.match((A,), NAME) == ["other"]


def test_an_origin_goes_with_all_it_announced() -> None:
    announces = Announces[str]()
    announces.add("client", announce(A))
    announces.add("client", announce(B, name=NAME))
    announces.add("other", announce(B, name=NAME))
    assert announces.drop_origin("client") == [
        AnnounceChange(announce(A), added=False),
        AnnounceChange(announce(B, name=NAME), added=False),
    ]
    assert announces.drop_origin("client") == []
    assert announces.match((A,), NAME) == []
    assert announces.match((B,), NAME) == ["other"]


namespaces = st.lists(st.sampled_from([A, B, C]), max_size=3).map(tuple)
infos = st.builds(AnnounceInfo, st.just(NodeId(1)), namespaces, st.sampled_from([0, NAME, OTHER]))
steps = st.tuples(st.sampled_from(["add", "withdraw", "drop"]), st.integers(1, 3), infos)


def matches(info: AnnounceInfo, namespace: tuple[int, ...], name: int) -> bool:
    if info.name_hash:
        return (info.namespace_hashes, info.name_hash) == (namespace, name)
    return namespace[: len(info.namespace_hashes)] == info.namespace_hashes


@given(st.lists(steps, max_size=20), namespaces, st.sampled_from([NAME, OTHER]))
def test_any_history_matches_as_a_scan_does(
    steps: list[tuple[str, int, AnnounceInfo]], namespace: tuple[int, ...], name: int
) -> None:
    announces = Announces[int]()
    held: set[tuple[int, AnnounceInfo]] = set()
    for what, origin, info in steps:
        if what == "add":
            assert (announces.add(origin, info) is None) == ((origin, info) in held)
            held.add((origin, info))
        elif what == "withdraw":
            assert (announces.withdraw(origin, info) is None) == ((origin, info) not in held)
            held.discard((origin, info))
        else:
            gone = {(origin, change.info) for change in announces.drop_origin(origin)}
            assert gone == {pair for pair in held if pair[0] == origin}
            held -= gone
    found = announces.match(namespace, name)
    assert sorted(found) == sorted({o for o, info in held if matches(info, namespace, name)})
    assert (len(announces), set(announces)) == (len(held), held)
    for origin in {origin for origin, _ in held}:
        announces.drop_origin(origin)
    assert len(announces) == 0
    assert announces.match(namespace, name) == []
