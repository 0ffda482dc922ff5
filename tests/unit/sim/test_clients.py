"""A simulated publisher publishes when asked, and a simulated subscriber notices what is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from laps.sim.clients import Publisher, SubgroupReader, Subscriber, track_of
from laps.sim.clock import Clock
from laps.sim.topology import Publisher as PublisherSpec
from laps.sim.topology import Subscriber as SubscriberSpec
from laps.types import NodeId, TrackHash, hash_bytes, hash_track, track_alias

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.sim.clients import Incoming

NODE = NodeId(1)
TRACK = hash_track(track_of(["demo"], "clock"))
ALIAS = track_alias(TRACK.full_name_hash)


@dataclass
class FakeRelay:
    """Hands what is published to its one subscriber, and writes down the rest."""

    calls: list[tuple[str, Any]] = field(default_factory=list)
    subscriber: Subscriber | None = None
    streams: dict[Any, Incoming] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, args))

    def publish(
        self,
        client: Publisher,
        track: TrackHash,
        key: Any,
        data: bytes,
        fin: bool,
        priority: int,
        ttl_us: int,
        now: float,
    ) -> None:
        self.calls.append(("publish", (key, fin)))
        if self.subscriber is not None:
            if key not in self.streams:
                self.streams[key] = self.subscriber.open_stream(track, priority, ttl_us)
            stream = self.streams[key]
            stream.write(data[:7], now)
            stream.finish(data[7:], now) if fin else stream.write(data[7:], now)

    def publish_datagram(
        self, client: Publisher, track: TrackHash, data: bytes, now: float
    ) -> None:
        if self.subscriber is not None:
            self.subscriber.send_datagram(track, data, 0)


class Place:
    """A node with a relay that only listens."""

    def __init__(self) -> None:
        self.clock = Clock(1)
        self.node_id = NODE
        self.fake = FakeRelay()
        self.relay: Any = self.fake
        self.touches = 0
        self.is_frozen = False
        self.waiting: list[Callable[[], None]] = []

    @property
    def now(self) -> float:
        return self.clock.now

    def wait(self, call: Callable[[], None]) -> None:
        self.waiting.append(call)

    def touched(self) -> None:
        self.touches += 1

    flowed = touched


def publisher(place: Place, **more: Any) -> Publisher:
    keys = {"objects_per_s": 10.0, "objects_per_group": 5, "object_bytes": 20, **more}
    made = Publisher(3, PublisherSpec(node=NODE, namespace=["demo"], **keys), place)
    made.attach()
    return made


def subscriber(place: Place) -> Subscriber:
    made = Subscriber(0, SubscriberSpec(node=NODE, namespace=["demo"], name="clock"), place)
    made.attach()
    place.fake.subscriber = made
    return made


def test_a_publisher_announces_its_namespace_or_its_track() -> None:
    place = Place()
    publisher(place)
    publisher(place, name="clock")
    announced = [args[1] for name, args in place.fake.calls if name == "announce"]
    assert [info.name_hash for info in announced] == [0, hash_bytes(b"clock")]
    assert announced[0].namespace_hashes == (hash_bytes(b"demo"),)


def test_nothing_is_published_unless_asked_for_and_no_longer_than_that() -> None:
    place = Place()
    made, wants = publisher(place), subscriber(place)
    place.clock.run(1.0)
    assert made.published == wants.got == {}
    made.subscribe(TRACK, b"")
    place.clock.run(2.25)
    assert len(made.published) == 13
    assert wants.got.keys() == made.published.keys()
    assert [(one.group, one.number) for one in wants.got][4:6] == [(0, 4), (1, 0)]
    made.unsubscribe(TRACK)
    place.clock.run(5.0)
    assert len(made.published) == 13
    assert place.fake.calls[-1][0] == "publish_reset"
    made.subscribe(TRACK, b"")
    place.clock.run(5.0)
    assert list(made.published)[-1].group == 3
    assert made.violations == wants.violations == []
    assert wants.duplicates == []


def test_the_first_of_a_group_dates_all_of_it() -> None:
    place = Place()
    made = publisher(place)
    made.subscribe(TRACK, b"")
    place.clock.run(0.9)
    assert sorted(set(made.published.values())) == pytest.approx([0.0, 0.5])


def test_some_objects_go_as_datagrams() -> None:
    place = Place()
    made, wants = publisher(place, datagrams=0.5), subscriber(place)
    made.subscribe(TRACK, b"")
    place.clock.run(20.0)
    kinds = {one.is_datagram for one in made.published}
    assert kinds == {True, False}
    assert wants.got.keys() == made.published.keys()
    assert wants.violations == []


def test_a_publisher_whose_relay_went_down_goes_on_with_a_new_group() -> None:
    place = Place()
    made = publisher(place)
    made.subscribe(TRACK, b"")
    place.clock.run(0.25)
    place.relay = None
    made.lost()
    place.clock.run(1.0)
    place.relay = place.fake
    made.attach()
    made.subscribe(TRACK, b"")
    place.clock.run(1.0)
    assert [(one.group, one.number) for one in made.published] == [(0, 0), (0, 1), (0, 2), (1, 0)]


def test_what_a_relay_may_not_do_to_a_client_is_noticed() -> None:
    place = Place()
    made, wants = publisher(place), subscriber(place)
    made.subscribe(TRACK, b"")
    made.subscribe(TRACK, b"")
    made.unsubscribe(hash_track(track_of(["other"], "x")))
    made.open_stream(TRACK, 0, 0)
    made.send_datagram(TRACK, b"", 0)
    assert len(made.violations) == 4
    wants.subscribe(TRACK, b"")
    wants.unsubscribe(TRACK)
    wants.open_stream(hash_track(track_of(["other"], "x")), 0, 0)
    wants.send_datagram(TRACK, b"", 0)
    wants.unsubscribe_now()
    wants.open_stream(TRACK, 0, 0)
    assert len(wants.violations) == 5


def stream_bytes(objects: int) -> bytes:
    """A publisher's stream, as it writes it."""
    place = Place()
    written = bytearray()

    def publish(client: Any, track: Any, key: Any, data: bytes, *rest: Any) -> None:
        written.extend(data)

    place.relay = type("Relay", (FakeRelay,), {"publish": lambda self, *args: publish(*args)})()
    made = publisher(place, objects_per_group=objects)
    made.subscribe(TRACK, b"")
    place.clock.run((objects - 0.5) / 10)
    return bytes(written)


def test_a_stream_reads_the_same_however_it_is_cut() -> None:
    data = stream_bytes(3)
    whole = SubgroupReader(ALIAS).read(data)
    assert whole == [(3, 0, 0), (3, 0, 1), (3, 0, 2)]
    reader = SubgroupReader(ALIAS)
    assert [found for byte in data for found in reader.read(bytes([byte]))] == whole
    assert not reader.is_inside


def test_a_stream_that_is_not_what_was_written_is_noticed() -> None:
    data = stream_bytes(3)
    size = 2 + 12 + 20  # delta and length, who and what, filler
    head = len(data) - 3 * size
    with pytest.raises(ValueError, match="a stream starts with type"):
        SubgroupReader(ALIAS + 1).read(data)
    missing = data[: head + size] + data[head + 2 * size :]
    with pytest.raises(ValueError, match=r"object 2 of group 0, not object 1 of group 0"):
        SubgroupReader(ALIAS).read(missing)
    wants = subscriber(Place())
    incoming = wants.open_stream(TRACK, 0, 0)
    assert not incoming.finish(missing, 0.0)
    broken = wants.open_stream(TRACK, 0, 0)
    broken.finish(data[:-1], 0.0)
    again = wants.open_stream(TRACK, 0, 0)
    again.finish(data, 0.0)
    again.reset(1, 0.0)
    assert wants.violations == [
        "a stream has object 2 of group 0, not object 1 of group 0",
        "a stream ended inside an object",
    ]
    assert {one.number for one in wants.duplicates} == {0, 1}
