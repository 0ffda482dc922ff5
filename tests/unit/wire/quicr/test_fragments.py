"""Objects in fragments: cutting them, and putting them together whatever comes when."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.wire.quicr.codes import QuicrCode, QuicrViolation
from laps.wire.quicr.fragments import Assembly, MediaOrder, cut, recut
from laps.wire.quicr.messages import Fragment
from unit.wire.quicr.pieces import PLACE, Heard, conflicting, piece, spans
from unit.wire.quicr.strategies import payloads, pieces

# -- cutting ---------------------------------------------------------------------------------------


@given(payloads, st.integers(1, 50), st.integers(0, 1000))
def test_an_object_is_cut_into_fragments_in_order(payload: bytes, size: int, offset: int) -> None:
    parts = list(cut(3, 5, payload, size, offset))
    assert b"".join(part.data for part in parts) == payload
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert all(len(part.data) == size for part in parts[:-1])
    assert len(parts[-1].data) <= size
    assert parts[-1].data or not payload
    at = offset
    for part in parts:
        assert (part.group, part.object_id, part.offset) == (3, 5, at)
        at = part.end
    assert at == offset + len(payload)


@given(payloads, st.integers(1, 50))
def test_what_is_cut_follows_the_rules(payload: bytes, size: int) -> None:
    order = MediaOrder()
    order.start(PLACE)
    for part in cut(*PLACE, payload, size):
        order.check(part)
    assert order.next == (3, 6)
    assert not order.inside


def test_an_empty_object_is_one_fragment() -> None:
    assert list(cut(3, 5, b"", 10)) == [Fragment(3, 5, 0, b"", True)]


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        (1, [(0, 1, False), (1, 2, False), (2, 3, False), (3, 4, True)]),
        (3, [(0, 3, False), (3, 4, True)]),
        (4, [(0, 4, True)]),
        (5, [(0, 4, True)]),
    ],
)
def test_the_last_fragment_is_as_long_as_it_has_to_be(
    size: int, wanted: list[tuple[int, int, bool]]
) -> None:
    assert spans(list(cut(3, 5, b"abcd", size))) == wanted


def test_nothing_is_copied_to_be_cut() -> None:
    payload = bytes(100)
    assert all(part.data.obj is payload for part in cut(3, 5, payload, 30))  # type: ignore[union-attr]


@given(payloads, st.integers(1, 50), st.integers(0, 1000), st.booleans())
def test_a_fragment_is_cut_again(data: bytes, size: int, offset: int, last: bool) -> None:
    whole = Fragment(3, 5, offset, data, last)
    parts = list(recut(whole, size))
    assert b"".join(part.data for part in parts) == data
    assert all(len(part.data) <= size for part in parts)
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [last]
    at = offset
    for part in parts:
        assert (part.group, part.object_id, part.offset) == (3, 5, at)
        at = part.end
    assert at == whole.end
    assert whole == Fragment(3, 5, offset, data, last)


def test_a_fragment_that_fits_stays_the_same() -> None:
    for data in (b"", b"abc", b"abcd"):
        whole = Fragment(3, 5, 9, data, False)
        (part,) = recut(whole, 4)
        assert part is whole


# -- one object ------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(payloads, st.data())
def test_an_object_comes_together_from_any_cuts_in_any_order(
    payload: bytes, data: st.DataObject
) -> None:
    assembly, heard = Assembly(), Heard()
    fragments = data.draw(pieces(payload))
    came: set[int] = set()
    ended = False
    for item in fragments:
        heard.add(assembly.add(item))
        came.update(range(item.offset, item.end))
        ended = ended or item.last
        assert set(heard.bytes) == came
        assert assembly.size == len(came)
        assert assembly.total == (len(payload) if ended else None)
        assert assembly.is_whole is (ended and len(came) == len(payload))
        assert assembly.pieces <= len(came)
        # Who is told of the end is told in time.
        assert bool(heard.ends) is ended
    assert assembly.is_whole
    assert assembly.payload() == payload == heard.payload()


@settings(max_examples=100)
@given(payloads, st.data())
def test_who_comes_late_is_told_the_same(payload: bytes, data: st.DataObject) -> None:
    assembly, late = Assembly(), Heard()
    fragments = data.draw(pieces(payload))
    at = data.draw(st.integers(0, len(fragments)))
    for item in fragments[:at]:
        assembly.add(item)
    so_far = list(assembly.fragments(3, 5))
    assert [item.offset for item in so_far] == sorted(item.offset for item in so_far)
    assert {(item.group, item.object_id) for item in so_far} <= {(3, 5)}
    late.add(so_far)
    for item in fragments[at:]:
        late.add(assembly.add(item))
    assert late.payload() == payload
    again = Heard()
    again.add(list(assembly.fragments(3, 5)))
    assert again.payload() == payload
    assert len(again.ends) == 1


@settings(max_examples=100)
@given(payloads, st.data())
def test_what_is_new_is_an_object_again(payload: bytes, data: st.DataObject) -> None:
    # As the next relay has it, cut again on the way and in another order.
    assembly, following = Assembly(), Assembly()
    new = [part for item in data.draw(pieces(payload)) for part in assembly.add(item)]
    size = data.draw(st.integers(1, 50))
    again = data.draw(st.permutations([part for item in new for part in recut(item, size)]))
    for item in again:
        following.add(item)
    assert following.is_whole
    assert following.payload() == payload


def test_every_order_of_overlapping_fragments() -> None:
    fragments = [piece(0, 4), piece(2, 7), piece(6, 9, True), piece(3, 9, True), piece(5, 6)]
    for chosen in permutations(fragments):
        assembly, heard = Assembly(), Heard()
        for item in chosen:
            heard.add(assembly.add(item))
        assert assembly.payload() == heard.payload() == bytes(range(9))


@pytest.mark.parametrize(
    ("here", "comes", "new"),
    [
        pytest.param([], (0, 5), [(0, 5)], id="the first"),
        pytest.param([], (2, 5), [(2, 5)], id="ahead of nothing"),
        pytest.param([(0, 5)], (0, 5), [], id="again"),
        pytest.param([(0, 5)], (1, 4), [], id="inside"),
        pytest.param([(0, 5)], (5, 9), [(5, 9)], id="behind"),
        pytest.param([(0, 5)], (6, 9), [(6, 9)], id="behind a gap"),
        pytest.param([(0, 5)], (3, 9), [(5, 9)], id="over the end"),
        pytest.param([(4, 8)], (0, 4), [(0, 4)], id="ahead"),
        pytest.param([(4, 8)], (0, 3), [(0, 3)], id="ahead of a gap"),
        pytest.param([(4, 8)], (0, 6), [(0, 4)], id="over the beginning"),
        pytest.param([(4, 8)], (0, 9), [(0, 4), (8, 9)], id="around"),
        pytest.param([(2, 4), (6, 8)], (0, 9), [(0, 2), (4, 6), (8, 9)], id="around two"),
        pytest.param([(2, 4), (6, 8)], (3, 7), [(4, 6)], id="between"),
        pytest.param([(2, 4), (4, 6)], (3, 5), [], id="across where two meet"),
        pytest.param([(2, 4), (6, 8)], (4, 6), [(4, 6)], id="fits"),
        pytest.param([(0, 2), (4, 6), (8, 9)], (2, 4), [(2, 4)], id="fits again"),
        pytest.param([(0, 2), (4, 6), (8, 9)], (5, 9), [(6, 8)], id="reaches into the last"),
        pytest.param([(0, 5)], (3, 3), [], id="nothing inside"),
        pytest.param([(0, 5)], (7, 7), [], id="nothing behind"),
        pytest.param([], (0, 0), [], id="nothing at all"),
    ],
)
def test_only_what_is_new_is_taken(
    here: list[tuple[int, int]], comes: tuple[int, int], new: list[tuple[int, int]]
) -> None:
    assembly = Assembly()
    for start, end in here:
        assembly.add(piece(start, end))
    found = assembly.add(piece(*comes))
    assert [(item.offset, item.end) for item in found] == new
    assert all(bytes(item.data) == bytes(range(item.offset, item.end)) for item in found)
    assert not any(item.last for item in found)
    assert assembly.size == sum(end - start for start, end in here + new)
    assert assembly.pieces == len(here) + len(new)
    assert spans(list(assembly.fragments(3, 5))) == [(*span, False) for span in sorted(here + new)]


@pytest.mark.parametrize(
    ("here", "comes", "new"),
    [
        pytest.param([(0, 5)], (5, 5), [(5, 5, True)], id="nothing but the end"),
        pytest.param([], (5, 5), [(5, 5, True)], id="the end first"),
        pytest.param([], (0, 0), [(0, 0, True)], id="an empty object"),
        pytest.param([(0, 5)], (0, 5), [(5, 5, True)], id="all is here and nobody knew"),
        pytest.param([(0, 5)], (3, 5), [(5, 5, True)], id="its end is here and nobody knew"),
        pytest.param([(3, 5)], (0, 5), [(0, 3, False), (5, 5, True)], id="its beginning is new"),
        pytest.param([(0, 5)], (3, 9), [(5, 9, True)], id="its end is new"),
        pytest.param([(3, 5)], (0, 9), [(0, 3, False), (5, 9, True)], id="both are new"),
    ],
)
def test_the_end_is_told_when_it_is_known(
    here: list[tuple[int, int]], comes: tuple[int, int], new: list[tuple[int, int, bool]]
) -> None:
    assembly = Assembly()
    for start, end in here:
        assembly.add(piece(start, end))
    found = assembly.add(piece(*comes, True))
    assert spans(found) == new
    assert {(item.group, item.object_id) for item in found} == {PLACE}
    assert assembly.total == comes[1]
    assert assembly.add(piece(*comes, True)) == []
    assert all(part.data for part in assembly.fragments(3, 5)) or not assembly.pieces


@pytest.mark.parametrize("total", [1, 5])
def test_who_comes_late_is_told_of_an_end_ahead_of_its_bytes(total: int) -> None:
    assembly = Assembly()
    assembly.add(piece(total, total, True))
    assert spans(list(assembly.fragments(3, 5))) == [(total, total, True)]
    assembly.add(piece(0, total))
    assert spans(list(assembly.fragments(3, 5))) == [(0, total, True)]


def test_what_comes_in_order_is_not_copied() -> None:
    assembly = Assembly()
    for item in (piece(0, 4), piece(4, 6), piece(8, 9, True)):
        assert assembly.add(item)[0] is item
    assert assembly.add(piece(5, 8)) == [piece(6, 8)]


def test_what_overlaps_is_taken_as_it_came_first() -> None:
    assembly = Assembly()
    assembly.add(Fragment(3, 5, 2, b"cd", False))
    (ahead, behind) = assembly.add(Fragment(3, 5, 0, b"ABCDEF", True))
    assert (bytes(ahead.data), bytes(behind.data)) == (b"AB", b"EF")
    assert assembly.payload() == b"ABcdEF"


def test_an_empty_object_is_whole_with_its_end() -> None:
    assembly = Assembly()
    assert assembly.add(Fragment(3, 5, 0, b"", False)) == []
    assert (assembly.is_whole, assembly.total) == (False, None)
    assert assembly.add(Fragment(3, 5, 0, b"", True)) == [Fragment(3, 5, 0, b"", True)]
    assert assembly.is_whole
    assert (assembly.payload(), assembly.size, assembly.total, assembly.pieces) == (b"", 0, 0, 0)
    assert list(assembly.fragments(3, 5)) == [Fragment(3, 5, 0, b"", True)]


# -- what cannot be --------------------------------------------------------------------------------


@pytest.mark.parametrize(("here", "comes", "code"), conflicting())
def test_a_fragment_that_cannot_be_is_refused(
    here: list[Fragment], comes: Fragment, code: QuicrCode
) -> None:
    assembly = Assembly(20)
    for item in here:
        assembly.add(item)
    before = list(assembly.fragments(3, 5)), assembly.size, assembly.total
    with pytest.raises(QuicrViolation) as caught:
        assembly.add(comes)
    assert caught.value.code is code
    assert (list(assembly.fragments(3, 5)), assembly.size, assembly.total) == before


def test_an_object_that_is_whole_has_no_further_bytes() -> None:
    for size in (0, 5):
        assembly = Assembly()
        assembly.add(piece(0, size, True))
        with pytest.raises(QuicrViolation) as caught:
            assembly.add(piece(size, size + 1))
        assert caught.value.code is QuicrCode.PROTOCOL_VIOLATION


def test_an_object_may_be_as_large_as_it_may_be() -> None:
    assembly = Assembly(20)
    assembly.add(piece(0, 20))
    assembly.add(piece(20, 20, True))
    assert assembly.is_whole
