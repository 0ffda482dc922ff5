"""Sets by a key, of one member and of thousands."""

from __future__ import annotations

import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps import packed_sets
from laps.packed_sets import MOST_IN_ARRAY, MOST_IN_ROW, PackedSets, SortedNumbers

MEMBERS = st.one_of(st.integers(0, 100), st.sampled_from([2**64 - 1, 2**63, 1 << 40]))
STEPS = st.lists(st.tuples(st.sampled_from(["add", "add", "discard"]), st.integers(0, 2), MEMBERS))


@given(STEPS, st.sampled_from([2, 4, MOST_IN_ROW]), st.sampled_from([4, 8]))
def test_packed_sets_do_what_a_dict_of_sets_does(
    steps: list[tuple[str, int, int]], in_row: int, in_array: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_sets, "MOST_IN_ROW", in_row)
        patch.setattr(packed_sets, "MOST_IN_ARRAY", in_array)
        _compare(steps)


def _compare(steps: list[tuple[str, int, int]]) -> None:
    sets, model = PackedSets(), dict[int, set[int]]()
    for step, key, member in steps:
        members = model.get(key, set())
        if step == "add":
            assert sets.add(key, member) == (not members)
            model[key] = members | {member}
        else:
            assert sets.discard(key, member) == (members == {member})
            model[key] = members - {member}
        model = {it: members for it, members in model.items() if members}
        assert (len(sets), key in sets, sorted(sets)) == (len(model), key in model, sorted(model))
        assert sorted(sets.get(key)) == sorted(model.get(key, ()))
        assert sets.whole(key) == model.get(key, set())


def test_packed_sets_keep_two_members_whose_bytes_overlap_apart() -> None:
    sets = PackedSets()
    both = bytes(range(16))
    first, second, across = (int.from_bytes(both[at : at + 8], sys.byteorder) for at in (0, 8, 3))
    assert [sets.add(1, it) for it in (first, second, across)] == [True, False, False]
    assert list(sets.get(1)) == [first, second, across]


def test_packed_sets_of_many_have_no_large_array() -> None:
    rng, sets = random.Random(7), PackedSets()
    members = [rng.getrandbits(64) for _ in range(20 * MOST_IN_ARRAY)]
    for member in members:
        sets.add(5, member)
    large = sets._large[5]
    assert max(map(len, large._arrays)) <= MOST_IN_ARRAY
    assert list(sets.get(5)) == sorted(members)
    for member in members[10:]:
        assert not sets.discard(5, member)
    assert (sets.whole(5), len(sets._large)) == (frozenset(members[:10]), 0)
    assert [sets.discard(5, member) for member in members[:10]] == [False] * 9 + [True]
    assert not sets


@pytest.mark.parametrize("grows", [True, False])
def test_packed_sets_that_change_are_gone_through_once(grows: bool) -> None:
    kept = range(0, 6 * MOST_IN_ARRAY, 2)
    numbers = SortedNumbers(())
    for number in kept if grows else range(6 * MOST_IN_ARRAY):
        numbers.add(number)
    seen: list[int] = []
    odd = iter(range(1, 6 * MOST_IN_ARRAY, 2))
    for number in numbers:
        seen.append(number)
        for other in (next(odd, None), next(odd, None)):
            if other is not None:
                (numbers.add if grows else numbers.discard)(other)
    assert [number for number in seen if number % 2 == 0] == list(kept)
    assert len(seen) == len(set(seen))
