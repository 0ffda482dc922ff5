"""A batch on its way to a relay that may have some of it: each object ends up there once."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.client import Location, ObjectStatus
from laps.spark.sink import sending as sending_module
from laps.spark.sink.journal import Taken
from laps.spark.sink.numbering import Numbering, walk
from laps.spark.sink.objects import OBJECTS
from laps.spark.sink.place import Place
from laps.spark.sink.sending import Leaving, Sender, Sending
from laps.spark.sink.staging import StagedFile, StagingWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path


@dataclass
class Stream:
    """A subgroup as it was written."""

    relay: Relay
    track: str
    group: int
    subgroup: int
    ended: bool = False

    async def write(self, payload: bytes, *, object_id: int, extensions: Any = ()) -> None:
        self.put(payload, object_id, extensions)

    def put(
        self,
        payload: bytes,
        object_id: int,
        extensions: Any = (),
        status: ObjectStatus = ObjectStatus.NORMAL,
    ) -> None:
        assert not self.ended
        self.relay.sent.append((self.track, self.group, object_id, payload, status))
        if status is ObjectStatus.NORMAL:
            self.relay.held.setdefault(self.track, {})[self.group, object_id] = payload
        self.relay.on_write()

    def end(self) -> None:
        self.ended = True


@dataclass
class Relay:
    """As an `Uplink` is to a sender: it takes what is written, and tells what it has."""

    held: dict[str, dict[tuple[int, int], bytes]] = field(default_factory=dict)
    sent: list[tuple[str, int, int, bytes, ObjectStatus]] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    published: dict[str, None] = field(default_factory=dict)
    going_to: str | None = None
    last_heard: float = 0.0
    acknowledgements: int = 0
    on_write: Callable[[], None] = lambda: None

    async def publish(self, keys: Collection[str]) -> None:
        self.published.update(dict.fromkeys(keys))

    def track(self, key: str) -> Relay:
        assert key in self.published
        self._track = key
        return self

    def group(self, group: int, subgroup: int, **_: Any) -> Stream:
        assert (self._track, group, subgroup) not in [
            (s.track, s.group, s.subgroup) for s in self.streams
        ]
        self.streams.append(Stream(self, self._track, group, subgroup))
        return self.streams[-1]

    async def acknowledged(self) -> None:
        self.acknowledgements += 1

    async def largest(self, keys: Collection[str]) -> dict[str, Location]:
        return {key: Location(*max(self.held[key])) for key in keys if self.held.get(key)}

    async def held_of(
        self, wanted: dict[str, tuple[Location, Location]]
    ) -> dict[str, set[tuple[int, int]]]:
        return {
            key: {place for place in self.held[key] if start <= place <= largest}
            for key, (start, largest) in wanted.items()
        }


def relay_with(held: dict[str, dict[tuple[int, int], bytes]] | None = None) -> Any:
    relay = Relay({} if held is None else held)

    class AsUplink:
        def __getattr__(self, name: str) -> Any:
            return relay.held_of if name == "held" else getattr(relay, name)

    return relay, AsUplink()


def batch(place: Place, keys: list[int], group_objects: int = 1000, track: str = "t") -> Taken:
    """One object for each key, and a group for each run of keys."""
    begins = [at == 0 or keys[at - 1] != key for at, key in enumerate(keys)]
    count = len(keys)
    columns = [
        [0] * count,
        begins,
        [None] * count,
        [None] * count,
        [b"%d" % n for n in range(count)],
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, OBJECTS, strict=True)]
    writer = StagingWriter(place, "f")
    writer.write(pa.RecordBatch.from_arrays(arrays, schema=OBJECTS))
    writer.close()
    file = StagedFile("f", count, (track,), extensions=False)
    return Taken(0, (file,), {track: 100}, group_objects, 128)


def objects(place: Place, taken: Taken) -> dict[tuple[int, int], bytes]:
    numbering = Numbering(taken.first_groups, taken.group_objects)
    return {
        (item.group, item.id): item.payload
        for chunk in walk(place, taken, numbering)
        for item in chunk
    }


def send(
    place: Place, uplink: Any, sending: Sending, told: list[int] | None = None
) -> dict[str, int]:
    progress: Callable[[int], None] = (lambda _: None) if told is None else told.append
    return asyncio.run(Sender(uplink, place, sending, progress).send())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path))


def test_a_new_batch_is_sent_in_order_without_asking(place: Place) -> None:
    taken = batch(place, [1, 1, 2, 3, 3])
    relay, uplink = relay_with({"t": {(99, 0): b"older"}})
    assert send(place, uplink, Sending(taken, "")) == {"t": 103}
    assert [item[1:4] for item in relay.sent] == [
        (100, 0, b"0"),
        (100, 1, b"1"),
        (101, 0, b"2"),
        (102, 0, b"3"),
        (102, 1, b"4"),
    ]
    assert [(s.group, s.subgroup, s.ended) for s in relay.streams] == [
        (100, 0, True),
        (101, 0, True),
        (102, 0, True),
    ]


def test_the_rest_of_a_batch_goes_in_a_subgroup_of_its_own(place: Place) -> None:
    taken = replace(batch(place, [1, 1, 1, 1, 2]), resumed=2)
    held = dict(list(objects(place, taken).items())[:2])
    relay, uplink = relay_with({"t": held})
    assert send(place, uplink, Sending(taken, "", began=True)) == {"t": 102}
    assert [item[1:4] for item in relay.sent] == [(100, 2, b"2"), (100, 3, b"3"), (101, 0, b"4")]
    assert [(s.group, s.subgroup) for s in relay.streams] == [(100, 2), (101, 2)]


def test_a_relay_that_has_nothing_is_sent_everything_again(place: Place) -> None:
    taken = replace(batch(place, [1, 2, 3]), resumed=1)
    relay, uplink = relay_with()
    send(place, uplink, Sending(taken, "", began=True))
    assert relay.held["t"] == objects(place, taken)


def test_a_relay_that_has_all_is_only_told_that_the_group_has_ended(place: Place) -> None:
    taken = replace(batch(place, [1, 2, 2]), resumed=1)
    relay, uplink = relay_with({"t": objects(place, taken)})
    assert send(place, uplink, Sending(taken, "", began=True)) == {"t": 102}
    assert relay.sent == [("t", 101, 2, b"", ObjectStatus.END_OF_GROUP)]
    assert relay.streams[0].ended


def test_what_has_settled_is_not_looked_at_again(place: Place) -> None:
    taken = replace(batch(place, [1, 1, 1, 1]), resumed=1)
    relay, uplink = relay_with()
    send(place, uplink, Sending(taken, "", began=True, settled=2))
    assert [item[1:4] for item in relay.sent] == [(100, 2, b"2"), (100, 3, b"3")]


@given(
    keys=st.lists(st.integers(0, 1), min_size=1, max_size=25),
    seen=st.integers(0, 25),
    lost=st.sets(st.integers(0, 24)),
    settled=st.integers(0, 10),
)
def test_whatever_a_relay_lacks_it_has_in_the_end_and_little_comes_twice(
    tmp_path_factory: pytest.TempPathFactory,
    keys: list[int],
    seen: int,
    lost: set[int],
    settled: int,
) -> None:
    place = Place(str(tmp_path_factory.mktemp("place")))
    taken = replace(batch(place, keys, group_objects=4), resumed=1)
    all_objects = objects(place, taken)
    settled = min(settled, seen, len(keys))
    held = {
        at: payload
        for n, (at, payload) in enumerate(all_objects.items())
        if n < seen and (n < settled or n not in lost)
    }
    before = dict(held)
    relay, uplink = relay_with({"t": held})
    send(place, uplink, Sending(taken, "", began=True, settled=settled))
    assert relay.held["t"] == all_objects
    sent = [item[1:3] for item in relay.sent if item[4] is ObjectStatus.NORMAL]
    assert len(sent) == len(set(sent))
    twice = set(sent) & set(before)
    if before:
        newest = max(before)
        # From anything older, first of all, a relay concludes that the track begins anew.
        assert not relay.sent or relay.sent[0][1] >= newest[0]
        assert twice <= {newest}
        if all(at in before for at in all_objects if at <= newest):
            assert not twice
    else:
        assert not twice
    assert all(stream.ended for stream in relay.streams)


def test_two_tracks_are_gone_on_with_each_where_it_was(place: Place) -> None:
    columns = [
        [0, 1, 0, 1, 0, 1],
        [False] * 6,
        [None] * 6,
        [None] * 6,
        [b"%d" % n for n in range(6)],
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, OBJECTS, strict=True)]
    writer = StagingWriter(place, "f")
    writer.write(pa.RecordBatch.from_arrays(arrays, schema=OBJECTS))
    writer.close()
    file = StagedFile("f", 6, ("t", "u"), extensions=False)
    taken = Taken(0, (file,), {"t": 5, "u": 7}, 100, 128, resumed=1)
    relay, uplink = relay_with({"t": {(5, 0): b"0", (5, 1): b"2"}})
    assert send(place, uplink, Sending(taken, "", began=True)) == {"t": 6, "u": 8}
    assert sorted(item[:4] for item in relay.sent) == [
        ("t", 5, 2, b"4"),
        ("u", 7, 0, b"1"),
        ("u", 7, 1, b"3"),
        ("u", 7, 2, b"5"),
    ]


def test_much_is_acknowledged_piece_by_piece(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending_module, "WINDOW_OBJECTS", 2)
    taken = batch(place, [1] * 5)
    relay, uplink = relay_with()
    relay.last_heard = time.monotonic() + 3600
    told: list[int] = []
    sending = Sending(taken, "")
    send(place, uplink, sending, told)
    assert relay.acknowledgements == 3
    assert told == [2, 4]
    assert sending.acknowledged == 5
    assert sending.settle(relay.last_heard)


def test_what_was_acknowledged_just_before_its_relay_was_lost_has_not_settled(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending_module, "WINDOW_OBJECTS", 2)
    taken = batch(place, [1] * 4)
    _, uplink = relay_with()
    sending = Sending(taken, "")
    send(place, uplink, sending)
    last_heard = time.monotonic()
    assert not sending.lost(last_heard)
    assert (sending.settled, sending.acknowledged) == (0, 4)


def test_a_relay_that_leaves_is_left_when_it_has_acknowledged(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending_module, "WINDOW_OBJECTS", 2)
    taken = batch(place, [1] * 5)
    relay, uplink = relay_with()
    relay.going_to = ""
    sending = Sending(taken, "")
    with pytest.raises(Leaving):
        send(place, uplink, sending)
    assert len(relay.sent) == sending.acknowledged == 2
    # The group goes on elsewhere: to say that it ends here would be wrong.
    assert not relay.streams[0].ended
