"""The Edge of a Stub dies: what was under way, either way, comes by the Stub's other Edge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.relay.roles import Role
from laps.wire.extensions import RepairRequest
from support.moqt import MoqtNet
from support.moqt_streams import objects_of

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from support.moqt import App
    from support.relays import Wire


class House:
    """A Stub with two Edges, the first the nearer, and an Edge beyond them."""

    def __init__(self) -> None:
        self.net = MoqtNet()
        self.first, self.second = self.net.relay("1:1"), self.net.relay("1:2")
        self.far, self.stub = self.net.relay("1:3"), self.net.relay("8:1", Role.STUB)
        for relay in (self.first, self.second, self.far, self.stub):
            self.net.edge(relay)
        self.ways = [self._wire(self.first, self.far), self._wire(self.stub, self.first, 5)]
        self.spare_beyond = self._wire(self.second, self.far)
        self.spare = self._wire(self.stub, self.second, 50)
        self.net.settle()

    def _wire(self, a: Relay, b: Relay, srtt_ms: float = 10) -> Wire:
        return self.net.wire(a, b, srtt_ms, extended=True)

    def start(self, pub_at: Relay, sub_at: Relay) -> tuple[App, int, App]:
        pub, sub = self.net.app(pub_at), self.net.app(sub_at)
        alias = pub.publish("demo/t")
        self.net.run(0.5)
        sub.subscribe("demo/t")
        self.net.run(0.5)
        return pub, alias, sub

    def kill_first(self) -> None:
        """It takes no part any more, and nobody knows."""
        for wire in self.ways:
            wire.cut(noticed_by=())

    def notice(self) -> None:
        """A second later its neighbours do."""
        for wire in self.ways:
            for end in wire:
                if end.relay is not self.first:
                    end.relay.link_closed(end, self.net.now)
        self.net.run(0.0)


@pytest.fixture
def house() -> House:
    return House()


@pytest.mark.parametrize("publisher_at", ["far", "stub"])
def test_what_was_under_way_when_the_edge_of_a_stub_died_comes_by_the_other(
    house: House, publisher_at: str
) -> None:
    ends = [house.far, house.stub]
    pub, alias, sub = house.start(*(ends if publisher_at == "far" else ends[::-1]))
    pub.stream(alias, 0, *objects_of(0, 1))
    stream = pub.open(alias, 1, *objects_of(0, 1))
    house.net.run(0.2)
    assert sub.places == [(0, 0), (0, 1), (1, 0), (1, 1)]
    house.kill_first()
    stream.write(*objects_of(2), fin=True)
    pub.stream(alias, 2, *objects_of(0, 1))
    later = pub.open(alias, 3, *objects_of(0))
    house.net.run(1.0)
    house.notice()
    house.net.run(1.0)
    later.write(*objects_of(1), fin=True)
    pub.stream(alias, 4, *objects_of(0))
    house.net.run(5.0)
    places = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (3, 0), (3, 1), (4, 0)]
    assert sorted(sub.places) == places
    assert [it.reset_code for it in sub.streams] == [None] * 5
    house.net.run(60.0)
    assert all(relay.sizes()["repairs"] == 0 for relay in (house.stub, house.second, house.far))


def test_an_edge_that_had_the_track_long_ago_asks_for_what_came_before_it_has_it_again(
    house: House,
) -> None:
    pub, alias, sub = house.start(house.far, house.stub)
    reader = house.net.app(house.second)
    reader.subscribe("demo/t")
    house.net.run(0.5)
    pub.stream(alias, 0, *objects_of(0))
    house.net.run(0.5)
    reader.leave()
    house.net.run(70.0)
    assert house.second.tracks.histories
    stream = pub.open(alias, 1, *objects_of(0, 1))
    house.net.run(0.2)
    house.kill_first()
    stream.write(*objects_of(2), fin=True)
    pub.stream(alias, 2, *objects_of(0, 1))
    house.net.run(1.0)
    house.notice()
    pub.stream(alias, 3, *objects_of(0))
    house.net.run(5.0)
    assert sub.places == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (3, 0)]


def test_a_stub_asks_the_edge_that_it_speaks_with_and_no_other(house: House) -> None:
    """The other one tells it of the same namespaces, and has nothing of what it wants."""
    pub, alias, sub = house.start(house.far, house.stub)
    stream = pub.open(alias, 0, *objects_of(0))
    house.net.run(0.2)
    parent = house.ways[1].here
    house.stub.suspicion.silent(parent.id, house.net.now)
    house.net.run(0.5)
    house.stub.suspicion.heard(parent.id, house.net.now)
    stream.write(*objects_of(1), fin=True)
    house.net.run(5.0)
    assert sub.places == [(0, 0), (0, 1)]
    assert parent.said(RepairRequest)
    assert not house.spare.here.said(RepairRequest)
    assert house.stub.sizes()["repairs"] == 0


def test_a_stream_that_broke_off_goes_on_though_the_rest_comes_in_the_same_set(
    house: House,
) -> None:
    """An Edge sends its Stub a track in one set, whoever publishes it."""
    pub, alias, sub = house.start(house.first, house.stub)
    pub.open(alias, 0, *objects_of(0, 1))
    house.net.run(0.2)
    pub.leave()
    house.net.run(0.2)
    again = house.net.app(house.first)
    alias = again.publish("demo/t")
    house.net.run(0.2)
    again.stream(alias, 0, *objects_of(1, 2))
    house.net.run(1.0)
    assert [(it.finished, len(it.objects)) for it in sub.streams] == [(True, 3)]


def test_a_stub_with_a_publisher_wants_to_know_whether_its_edge_lives(house: House) -> None:
    links = [wire.here.id for wire in (house.ways[1], house.spare)]
    assert not any(map(house.stub.suspicion.depends_on, links))
    house.net.app(house.stub).publish("demo/t")
    house.net.run(0.5)
    assert house.stub.suspicion.depends_on(links[0])


def test_a_stub_that_comes_back_to_an_edge_misses_nothing_of_the_time_between(
    house: House,
) -> None:
    """What that Edge asked for the last time says nothing of what came since."""
    pub, alias, sub = house.start(house.far, house.stub)
    places = []
    edges = {house.first: house.ways, house.second: [house.spare, house.spare_beyond]}
    for group, dies in enumerate((house.first, house.second, house.first, house.second)):
        stream = pub.open(alias, group, *objects_of(0))
        house.net.run(1.0)
        for wire in edges[dies]:
            wire.cut(noticed_by=())
        stream.write(*objects_of(1), fin=True)
        house.net.run(1.0)
        for wire in edges[dies]:
            for end in wire:
                end.relay.link_closed(end, house.net.now)
        house.net.run(8.0)
        places += [(group, 0), (group, 1)]
        assert sorted(sub.places) == places
        assert house.stub.sizes()["repairs"] == 0
        edges[dies] = [
            house.net.wire(dies, house.far, 10, extended=True),
            house.net.wire(house.stub, dies, 5, extended=True),
        ]
        house.net.run(15.0)
