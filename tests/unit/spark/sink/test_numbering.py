"""Staged objects and their numbers: always the same for the same files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.errors import LapsError
from laps.spark.sink import staging
from laps.spark.sink.journal import Taken
from laps.spark.sink.numbering import Numbering, walk
from laps.spark.sink.objects import OBJECTS
from laps.spark.sink.place import Place
from laps.spark.sink.staging import StagedFile, StagingWriter

if TYPE_CHECKING:
    from pathlib import Path

Row = tuple[int, bool, int | None, bytes]


def staged(place: Place, name: str, rows: list[Row], tracks: tuple[str, ...]) -> StagedFile:
    writer = StagingWriter(place, name)
    if rows:
        track, begins, priority, payload = zip(*rows, strict=True)
        columns = [track, begins, priority, [None] * len(rows), payload]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, OBJECTS, strict=True)]
        writer.write(pa.RecordBatch.from_arrays(arrays, schema=OBJECTS))
    writer.close()
    return StagedFile(name, writer.objects, tracks, writer.extensions)


def test_a_group_begins_with_its_key_its_bound_and_another_priority() -> None:
    numbering = Numbering({"t": 10, "u": 3}, 3)
    places = [
        numbering.place("t", True, 1),  # the first of a batch, whatever it says
        numbering.place("t", False, 1),
        numbering.place("u", False, 1),
        numbering.place("t", False, 1),
        numbering.place("t", False, 1),  # the fourth
        numbering.place("t", True, 1),
        numbering.place("t", False, 2),
        numbering.place("t", False, 2),
    ]
    assert places == [(10, 0), (10, 1), (3, 0), (10, 2), (11, 0), (12, 0), (13, 0), (13, 1)]
    assert numbering.next_groups() == {"t": 14, "u": 4}


def test_partitions_follow_one_another(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    files = (
        staged(place, "a", [(0, False, None, b"1"), (1, False, None, b"2")], ("t", "u")),
        staged(place, "b", [], ()),
        staged(place, "c", [(0, False, None, b"3"), (1, False, 9, b"4")], ("u", "t")),
    )
    taken = Taken(0, files, {"t": 5, "u": 6}, 100, 128)
    numbering = Numbering(taken.first_groups, taken.group_objects)
    items = [item for chunk in walk(place, taken, numbering) for item in chunk]
    assert [(i.number, i.track, i.group, i.id, i.priority, i.payload) for i in items] == [
        (0, "t", 5, 0, 128, b"1"),
        (1, "u", 6, 0, 128, b"2"),
        (2, "u", 6, 1, 128, b"3"),
        (3, "t", 6, 0, 9, b"4"),
    ]
    assert not place.has("b")


rows = st.lists(
    st.tuples(st.integers(0, 1), st.booleans(), st.sampled_from([None, 1]), st.binary(max_size=9)),
    max_size=20,
)


@given(partitions=st.lists(rows, min_size=1, max_size=3), start=st.integers(0, 60))
def test_who_goes_on_in_the_middle_finds_the_same_numbers(
    tmp_path_factory: pytest.TempPathFactory, partitions: list[list[Row]], start: int
) -> None:
    place = Place(str(tmp_path_factory.mktemp("place")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "CHUNK_OBJECTS", 3)
        patch.setattr(staging, "CHUNK_BYTES", 12)
        files = tuple(staged(place, f"f{n}", p, ("t", "u")) for n, p in enumerate(partitions))
    taken = Taken(0, files, {"t": 5, "u": 6}, 4, 128)

    def walked(start: int, payloads: bool) -> list[tuple[int, str, int, int, int, bytes]]:
        numbering = Numbering(taken.first_groups, taken.group_objects)
        chunks = walk(place, taken, numbering, start=start, payloads=payloads)
        return [
            (i.number, i.track, i.group, i.id, i.priority, i.payload) for c in chunks for i in c
        ]

    whole = walked(0, payloads=True)
    assert [item[0] for item in whole] == list(range(taken.objects))
    assert [item[5] for item in whole] == [row[3] for p in partitions for row in p]
    assert len({item[1:4] for item in whole}) == len(whole)
    assert walked(start, payloads=True) == whole[start:]
    assert walked(start, payloads=False) == [(*item[:5], b"") for item in whole[start:]]


def test_large_objects_are_staged_few_at_a_time(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    size = staging.CHUNK_BYTES // 2
    sizes = [1, size, size, size, 3 * size, 1]
    file = staged(place, "f", [(0, False, None, bytes(n)) for n in sizes], ("t",))
    chunks = [chunk.num_rows for chunk in staging.read_chunks(place, file, payloads=True)]
    assert chunks == [2, 2, 1, 1]


def test_a_file_that_only_its_executor_sees_is_named(tmp_path: Path) -> None:
    file = StagedFile("staged/0/1.arrow", 5, ("demo t",), extensions=False)
    with pytest.raises(LapsError, match=r"staged/0/1.arrow was staged .* all executors see"):
        list(staging.read_chunks(Place(str(tmp_path)), file, payloads=True))


def test_what_is_discarded_leaves_no_file(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    writer = StagingWriter(place, "f")
    writer.discard()
    arrays = [pa.nulls(1, field.type) for field in OBJECTS]
    writer.write(pa.RecordBatch.from_arrays(arrays, schema=OBJECTS))
    assert place.has("f")
    writer.discard()
    assert not place.has("f")
