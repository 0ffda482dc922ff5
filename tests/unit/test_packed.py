"""A packed table behaves as a dict does, however its keys meet, and is never copied whole."""

from __future__ import annotations

import gc
import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps import packed
from laps.packed import MOST_BYTES, MOST_IN_PAGE, Packed

LARGEST = 2**64 - 1

# Of few keys, some meet in one page for as long as there are fewer than 2^40 of them.
KEYS = st.one_of(
    st.integers(0, 200),
    st.integers(0, 200).map(lambda number: number << 40),
    st.sampled_from([LARGEST, LARGEST - 1, 0x0101_0101_0101_0101]),
)
VALUES = st.one_of(st.binary(max_size=9), st.just(bytes(MOST_BYTES)))
STEPS = st.lists(st.tuples(st.sampled_from(["set", "set", "pop", "any"]), KEYS, VALUES))


def put(table: Packed, key: int, value: bytes) -> None:
    (table.replace if key in table else table.insert)(key, value)


@given(STEPS, st.sampled_from([2, 4, packed.FULL]), st.sampled_from([3, 9, MOST_IN_PAGE]))
def test_packed_does_what_a_dict_does(
    steps: list[tuple[str, int, bytes]], full: int, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "FULL", full)
        patch.setattr(packed, "MOST_IN_PAGE", most)
        _compare(steps)


def _compare(steps: list[tuple[str, int, bytes]]) -> None:
    table, model = Packed(), dict[int, bytes]()
    for step, key, value in steps:
        match step:
            case "set":
                put(table, key, value)
                model[key] = value
            case "pop":
                assert table.pop(key) == model.pop(key, None)
            case "any" if model:
                found, held = table.popitem()
                assert model.pop(found) == held
        assert len(table) == len(model)
        assert (table.get(key), key in table) == (model.get(key), key in model)
    assert dict(table.items()) == model
    assert sorted(table) == sorted(model)
    for key, value in model.items():
        assert table.get(key) == value


def test_packed_raises_as_a_dict_does() -> None:
    table = Packed()
    with pytest.raises(KeyError):
        table.replace(1, b"")
    with pytest.raises(KeyError):
        table.popitem()
    assert table.pop(1) is None
    assert not table


def test_packed_is_in_order_while_it_is_small() -> None:
    table = Packed()
    for key in (5, 3, 9, 1):
        table.insert(key, bytes((key,)))
    table.replace(3, b"three")
    table.pop(9)
    assert list(table.items()) == [(5, b"\x05"), (3, b"three"), (1, b"\x01")]


def test_packed_takes_no_key_for_one_that_lies_across_two() -> None:
    first, second = 0x1122_3344_5566_7788, 0x99AA_BBCC_DDEE_FF00
    table = Packed()
    table.insert(first, b"")
    table.insert(second, b"first two bytes of values")
    page = table._page(0)
    rows = [page[at : at + 8] for at in range(1, len(page) - 8)]
    for found in {int.from_bytes(row, sys.byteorder) for row in rows} - {first, second}:
        assert found not in table
        assert table.get(found) is None
        table.insert(found, b"own")
        assert (table.get(found), table.pop(found)) == (b"own", b"own")
    assert dict(table.items()) == {first: b"", second: b"first two bytes of values"}


def test_packed_keys_that_all_meet_in_one_page_are_kept_beside_it() -> None:
    table, count = Packed(), 5 * MOST_IN_PAGE
    for number in range(count):
        table.insert(number << 48, number.to_bytes(2))
    assert max(len(page) for block in table._blocks for page in block.values()) < 4096
    assert [table.get(number << 48) for number in (0, count - 1)] == [
        b"\0\0",
        (count - 1).to_bytes(2),
    ]
    table.replace((count - 1) << 48, b"other")
    assert dict(table.items())[(count - 1) << 48] == b"other"
    for number in range(count):
        assert table.pop(number << 48) is not None
    assert (len(table), table._crowded) == (0, None)


def test_packed_of_many_has_no_large_page_and_nothing_for_the_collector() -> None:
    rng, table = random.Random(7), Packed()
    for _ in range(40_000):
        table.insert(rng.getrandbits(64), b"eight---")
    assert table._pages == -(-40_000 // packed.FULL)
    assert max(page[0] for block in table._blocks for page in block.values()) < 4 * packed.FULL
    assert not any(map(gc.is_tracked, table._blocks))
    assert table._crowded is None


def test_packed_gives_its_pages_up_again() -> None:
    table = Packed()
    for number in range(20_000):
        table.insert(number, b"value")
    for number in range(19_990):
        table.pop(number)
    assert (len(table), table._pages, len(table._blocks)) == (10, 1, 1)
    assert sorted(table) == list(range(19_990, 20_000))


@pytest.mark.parametrize("size", [60, 3000])
@pytest.mark.parametrize("grows", [True, False])
def test_packed_that_changes_is_gone_through_once(size: int, grows: bool) -> None:
    kept = range(0, size, 2)
    table = Packed()
    for number in kept if grows else range(8 * size):
        table.insert(number, b"")
    seen: list[int] = []
    others = iter([it for it in range(8 * size) if it not in kept])
    for key in table:
        seen.append(key)
        for _ in range(20):
            if (other := next(others, None)) is not None and grows:
                table.insert(other, b"")
            elif other is not None:
                table.pop(other)
    assert sorted(key for key in seen if key in kept) == list(kept)
    assert len(seen) == len(set(seen))


@given(
    st.lists(st.integers(0, 300), unique=True, min_size=1),
    st.lists(st.integers(301, 900), unique=True),
    st.integers(0, 50),
    st.booleans(),
)
def test_packed_is_gone_through_once_whatever_comes_and_goes(
    kept: list[int], others: list[int], at: int, are_there: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "FULL", 4)
        table = Packed()
        for key in kept + (others if are_there else []):
            table.insert(key, b"")
        seen = []
        for count, key in enumerate(table):
            seen.append(key)
            if count == at:
                for other in others:
                    (table.pop(other) if are_there else table.insert(other, b""))
    assert sorted(set(seen) & set(kept)) == sorted(kept)
    assert len(seen) == len(set(seen))
