"""Staged objects become numbered ones: the same files give the same locations, always."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from laps.spark.sink.staging import read_chunks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from laps.spark.sink.journal import Taken
    from laps.spark.sink.place import Place


class Numbered(NamedTuple):
    """An object, and where it lies in its track."""

    number: int
    "Its place in the batch."
    track: str
    "The key of its track."
    group: int
    id: int
    priority: int
    extensions: list[tuple[int, bytes]] | None
    payload: bytes


class Numbering:
    """Where the next object of each track lies."""

    def __init__(self, first_groups: Mapping[str, int], group_objects: int) -> None:
        self._first_groups = first_groups
        self._group_objects = group_objects
        self._at: dict[str, tuple[int, int, int]] = {}
        "The group, the last object in it and its priority."

    def place(self, track: str, begins: bool, priority: int) -> tuple[int, int]:
        """The group and the id of the next object.

        A group begins where the key says so, where it is full, and where the priority changes:
        that is of a stream, not of an object.
        """
        at = self._at.get(track)
        if at is None:
            group, object_id = self._first_groups[track], 0
        else:
            group, object_id, before = at
            object_id += 1
            if begins or object_id >= self._group_objects or priority != before:
                group, object_id = group + 1, 0
        self._at[track] = group, object_id, priority
        return group, object_id

    def next_groups(self) -> dict[str, int]:
        """The group behind the last one of each track."""
        return {track: group + 1 for track, (group, _, _) in self._at.items()}


def walk(
    place: Place, taken: Taken, numbering: Numbering, *, start: int = 0, payloads: bool = True
) -> Iterator[list[Numbered]]:
    """The objects of a batch from `start` on, some at a time; those before it are numbered too."""
    index = 0
    for file in taken.files:
        for chunk in read_chunks(place, file, payloads=payloads) if file.objects else ():
            tracks = [file.tracks[number] for number in chunk.column("track").to_pylist()]
            begins = chunk.column("begins").to_pylist()
            priorities = chunk.column("priority").fill_null(taken.priority).to_pylist()
            places = [
                numbering.place(*item) for item in zip(tracks, begins, priorities, strict=True)
            ]
            skip, index = max(0, start - index), index + len(tracks)
            if skip >= len(tracks):
                continue
            empty: list[None] = [None] * len(tracks)
            extensions = (
                chunk.column("extensions").to_pylist() if file.extensions and payloads else empty
            )
            contents = chunk.column("payload").to_pylist() if payloads else [b""] * len(tracks)
            first = index - len(tracks)
            yield [
                Numbered(
                    first + at,
                    tracks[at],
                    *places[at],
                    priorities[at],
                    extensions[at],
                    contents[at],
                )
                for at in range(skip, len(tracks))
            ]
