"""What a relay reads of its process and its links."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from laps.infobase.nodes import SessionId
from laps.net.egress import Counters
from laps.net.engine import Stats
from laps.net.senses import CONNECTIONS_A_TURN, LINKS_A_TURN, Senses, resident_bytes
from laps.types import NodeId

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTHING = Stats(0, 0, 0, 0, 0, 0, 0, 0, 1350)


@dataclass
class Egress:
    counters: Counters = field(default_factory=Counters)
    queued_bytes: int = 0


@dataclass
class Link:
    """As much of a `QuicLink` as is read."""

    id: SessionId
    now: Stats = NOTHING
    buffered_bytes: int = 0
    egress: Egress = field(default_factory=Egress)

    @property
    def connection(self) -> Link:
        return self

    def stats(self) -> Stats:
        return self.now

    def carry(self, **more: int) -> None:
        known = {name: getattr(self.now, name) + number for name, number in more.items()}
        self.now = replace(self.now, **known)


@dataclass
class Endpoint:
    carried: list[tuple[int, int]]

    def traffic(self) -> Iterator[tuple[int, int]]:
        yield from self.carried


@dataclass
class Clients:
    past_dropped_groups: int = 0
    connections: list[Any] = field(default_factory=list)


class World:
    def __init__(self) -> None:
        self.links: dict[SessionId, Link] = {}
        self.nodes: dict[SessionId, NodeId] = {}
        self.endpoints: list[Endpoint] = []
        self.clients = Clients()
        # Of each it is given no more than it reads.
        links, clients = cast("Any", self.links), cast("Any", self.clients)
        endpoints = cast("Any", lambda: self.endpoints)
        self.senses = Senses(cast("Any", SimpleNamespace(links=self)), links, endpoints, clients)

    def node_of(self, link_id: SessionId) -> NodeId | None:
        return self.nodes.get(link_id)

    def link(self, number: int, node: int | None, srtt_us: int = 100) -> Link:
        link_id = SessionId(number)
        link = self.links[link_id] = Link(link_id, replace(NOTHING, srtt_us=srtt_us))
        if node is not None:
            self.nodes[link_id] = NodeId(node)
        return link

    def read(self) -> int:
        return sum(1 for _ in self.senses.read())


@pytest.fixture
def world() -> World:
    return World()


def test_amounts_are_of_the_time_since_the_last_reading(world: World) -> None:
    link = world.link(1, 7)
    link.carry(sent_bytes=1000, received_bytes=300)
    world.read()
    link.carry(sent_bytes=50, received_bytes=70)
    link.egress.counters.overflowed_streams = 2
    link.egress.counters.expired_streams = 1
    link.egress.queued_bytes, link.buffered_bytes = 5, 6
    world.read()
    (reading,) = world.senses.links
    assert (reading.sent_bytes, reading.received_bytes, reading.dropped) == (50, 70, 3)
    assert (reading.queue_bytes, reading.srtt_us) == (11, 100)
    world.read()
    (reading,) = world.senses.links
    assert (reading.sent_bytes, reading.received_bytes, reading.dropped) == (0, 0, 0)


def test_several_connections_to_a_peer_are_read_as_one(world: World) -> None:
    near, far = world.link(1, 7, srtt_us=100), world.link(2, 7, srtt_us=900)
    near.carry(sent_bytes=100 * 100, sent_packets=100, lost_packets=10, received_bytes=1)
    far.carry(sent_bytes=1350 * 300, sent_packets=300, lost_packets=0, received_bytes=2)
    world.read()
    (reading,) = world.senses.links
    assert reading.srtt_us == 100
    assert reading.sent_bytes == 1350 * 300 + 100 * 100
    assert reading.received_bytes == 3
    assert reading.loss == pytest.approx(10 / 400)


def test_who_has_not_said_who_it_is_has_no_row(world: World) -> None:
    world.link(1, None)
    world.read()
    assert world.senses.links == []


def test_a_connection_that_counts_anew_is_no_negative_amount(world: World) -> None:
    link = world.link(1, 7)
    link.carry(sent_bytes=1000, received_bytes=1000)
    world.endpoints = [Endpoint([(0, 0), (1000, 1000)])]
    world.read()
    link.now = NOTHING
    world.endpoints = [Endpoint([(0, 0), (1, 1)])]
    world.read()
    (reading,) = world.senses.links
    assert (reading.sent_bytes, reading.received_bytes) == (0, 0)
    assert (world.senses.node.sent_bytes, world.senses.node.received_bytes) == (0, 0)


def test_a_node_s_traffic_is_that_of_all_connections_those_that_are_over_too(world: World) -> None:
    world.endpoints = [Endpoint([(10, 20), (100, 200)]), Endpoint([(1, 2)])]
    world.read()
    assert (world.senses.node.sent_bytes, world.senses.node.received_bytes) == (111, 222)
    world.endpoints = [Endpoint([(110, 220)]), Endpoint([(1, 2), (5, 5)])]
    world.read()
    assert (world.senses.node.sent_bytes, world.senses.node.received_bytes) == (5, 5)


def test_what_clients_lose_is_counted_when_they_are_gone_too(world: World) -> None:
    slow = Link(SessionId(1))
    world.clients.connections.append(slow)
    slow.egress.counters.overflowed_streams = 3
    world.read()
    assert world.senses.node.dropped == 3
    slow.egress.counters.overflowed_streams = 5
    world.clients.connections.clear()
    world.clients.past_dropped_groups = 5
    world.read()
    assert world.senses.node.dropped == 2


def test_the_process_is_read(world: World) -> None:
    world.read()
    assert 0 <= world.senses.node.load <= 1
    assert world.senses.node.memory_bytes > 10_000_000
    assert resident_bytes() > 10_000_000


def test_many_connections_are_read_a_few_at_a_time(world: World) -> None:
    for number in range(10 * LINKS_A_TURN):
        world.link(number, number)
    world.endpoints = [Endpoint([(1, 1)] * (10 * CONNECTIONS_A_TURN))]
    assert world.read() >= 20
    assert len(world.senses.links) == 10 * LINKS_A_TURN
