"""What the sink writes down, and what is left of it when somebody dies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.errors import ConfigError, LapsError
from laps.spark.sink.journal import SLOTS, Journal, State, Superseded, Taken, read_state
from laps.spark.sink.place import Place
from laps.spark.sink.staging import StagedFile

if TYPE_CHECKING:
    from pathlib import Path

FILE = StagedFile("staged/0/1.arrow", 5, ("demo t",), extensions=False)


def taken(batch: int = 0) -> Taken:
    return Taken(batch, (FILE,), {"demo t": 7}, 100, 128)


def begun(place: Place, query: str | None = None) -> Journal:
    journal = Journal(place)
    journal.claim(query)
    return journal


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "sink"))


def test_a_batch_is_known_until_it_is_finished(place: Place) -> None:
    journal = begun(place, "q")
    journal.take(taken(), {"demo u": 3})
    journal.settle(4)
    assert journal.resume().resumed == 1
    state = read_state(place)
    assert state == journal.state
    assert state.taken is not None
    assert (state.taken.settled, state.taken.resumed, state.taken.objects) == (4, 1, 5)
    assert (state.query, state.done, state.next_groups) == ("q", -1, {"demo u": 3})

    journal.finish({"demo t": 9})
    state = read_state(place)
    assert (state.taken, state.done) == (None, 0)
    assert state.next_groups == {"demo t": 9, "demo u": 3}


def test_an_entry_that_was_cut_off_leaves_the_one_before(place: Place) -> None:
    journal = begun(place)
    journal.take(taken(), {})
    before = read_state(place)
    journal.finish({"demo t": 9})
    slot = SLOTS[journal.state.serial % 2]
    whole = place.read(slot)
    assert whole is not None
    for size in (0, 1, 70, len(whole) - 1):
        place.write(slot, whole[:size])
        assert read_state(place) == before


def test_a_first_entry_that_was_cut_off_is_none(place: Place) -> None:
    place.write(SLOTS[1], b"abc")
    assert read_state(place) == State()


def test_a_journal_that_nobody_can_read_is_no_new_beginning(place: Place) -> None:
    for slot in SLOTS:
        place.write(slot, b"abc")
    with pytest.raises(LapsError, match=r"cannot be read, .* remove the folder to begin anew"):
        Journal(place)


def test_who_was_replaced_writes_no_more(place: Place) -> None:
    first = begun(place)
    first.take(taken(), {})
    second = begun(place)
    assert second.state.taken == taken()
    with pytest.raises(Superseded):
        first.finish({"demo t": 9})
    second.finish({"demo t": 9})
    assert read_state(place).done == 0


def test_a_journal_is_of_one_query(place: Place) -> None:
    begun(place, "q")
    begun(place, "q")
    begun(place, None)
    with pytest.raises(LapsError, match="is of the query q, and this is r"):
        begun(place, "r")


# -- places ----------------------------------------------------------------------------------------


@pytest.fixture(params=["path", "file", "url"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    # Arrow's file system of this machine stands for those of shared storage.
    place = Place(f"file://{tmp_path}/sink" if request.param == "file" else f"{tmp_path}/sink")
    if request.param == "url":
        from pyarrow import fs

        place._local, place._remote, place._root = None, fs.LocalFileSystem(), f"{tmp_path}/sink"
        (tmp_path / "sink" / "staged" / "3").mkdir(parents=True)
    return place


def test_files_are_written_read_and_removed_wherever_they_are(anywhere: Place) -> None:
    place = anywhere
    assert place.read("journal") is None
    place.write("journal", b"1")
    place.write("journal", b"22")
    assert place.read("journal") == b"22"
    with place.open_output("staged/3/a.arrow") as sink:
        sink.write(b"abc")
    place.keep("staged/3/a.arrow")
    assert place.has("staged/3/a.arrow")
    assert not place.has("staged/3/b.arrow")
    with place.open_input("staged/3/a.arrow") as source:
        assert source.read() == b"abc"
    assert place.folders("staged") == ["3"]
    assert place.folders("nowhere") == []
    place.remove_empty("staged/3")
    assert place.has("staged/3/a.arrow")
    place.remove("staged/3/a.arrow")
    assert not place.has("staged/3/a.arrow")
    place.remove("staged/3/a.arrow")
    place.remove("staged/3")
    assert place.folders("staged") == []


def test_a_place_that_cannot_be_had_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r'checkpoint "gopher://x/y" cannot be used: .*s3://bucket'
    ):
        Place("gopher://x/y")
