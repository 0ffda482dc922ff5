"""A table behaves as a dict does, and is never copied whole."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps import tables
from laps.tables import Table

WORDS = st.lists(
    st.tuples(st.sampled_from(["set", "del", "pop", "default", "any"]), st.integers(0, 200)),
    max_size=400,
)


@given(WORDS)
def test_table_does_what_a_dict_does(words: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "PART", 8)
        _compare(words)


def _compare(words: list[tuple[str, int]]) -> None:
    table: Table[int, int] = Table()
    model: dict[int, int] = {}
    for number, (word, key) in enumerate(words):
        match word:
            case "set":
                table[key] = model[key] = number
            case "default":
                assert table.setdefault(key, number) == model.setdefault(key, number)
            case "pop":
                assert table.pop(key, None) == model.pop(key, None)
            case "any" if model:
                found, value = table.popitem()
                assert model.pop(found) == value
            case "del" if key in model:
                del table[key], model[key]
        assert len(table) == len(model)
        assert (table.get(key), key in table) == (model.get(key), key in model)
    assert dict(table.items()) == model
    assert sorted(table) == sorted(model)
    assert sorted(table.values()) == sorted(model.values())


def test_table_raises_as_a_dict_does() -> None:
    table: Table[int, int] = Table()
    with pytest.raises(KeyError):
        table[1]
    with pytest.raises(KeyError):
        del table[1]
    with pytest.raises(KeyError):
        table.pop(1)
    with pytest.raises(KeyError):
        table.popitem()
    assert not table


def test_table_of_many_has_no_large_part() -> None:
    rng = random.Random(7)
    table: Table[int, None] = Table()
    for _ in range(50 * tables.PART):
        table[rng.getrandbits(64)] = None
    assert len(table) == 50 * tables.PART
    # Those whose turn to be cut has not come have twice as much.
    assert max(map(len, table._parts)) < 3 * tables.PART


def test_table_takes_a_dict_that_has_become_large() -> None:
    table = Table(dict.fromkeys(range(tables.PART)))
    for number in range(2 * tables.PART):
        table[number] = None
    assert len(table) == 2 * tables.PART
    assert sorted(table) == list(range(2 * tables.PART))


def test_table_gives_its_parts_up_again() -> None:
    table: Table[int, None] = Table()
    for number in range(20 * tables.PART):
        table[number] = None
    for number in range(20 * tables.PART - 10):
        del table[number]
    assert len(table) == 10
    assert len(table._parts) == 1


@pytest.mark.parametrize("grows", [True, False])
def test_table_that_changes_is_gone_through_once(grows: bool) -> None:
    kept = range(0, 20 * tables.PART, 2)
    table: Table[int, None] = Table()
    for number in kept if grows else range(20 * tables.PART):
        table[number] = None
    seen: list[int] = []
    odd = iter(range(1, 20 * tables.PART, 2))
    for key in table:
        seen.append(key)
        for other in (next(odd, None), next(odd, None)):
            if other is not None and grows:
                table[other] = None
            elif other is not None:
                del table[other]
    assert sorted(key for key in seen if key % 2 == 0) == list(kept)
    assert len(seen) == len(set(seen))
