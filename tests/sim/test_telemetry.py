"""Whole networks whose relays all speak of themselves, while things happen to them.

Packets between relays are lost, delayed and reordered; nodes crash, stop and come back; ways
change. What holds without telemetry holds with it, and who reads it gets each object once.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from laps.edge import telemetry as telemetry_module
from laps.edge.telemetry import Telemetry, TelemetrySettings
from laps.relay.settings import RelaySettings
from laps.sim import generators
from laps.sim.faults import random_faults
from laps.sim.invariants import (
    check_always,
    check_delivery,
    check_empty,
    check_no_clients,
    check_paths,
    check_subscribes,
)
from laps.sim.network import Network
from laps.sim.trace import Trace
from laps.telemetry.records import tracks_of
from laps.tracks.cache import CacheLimits
from laps.types import Location, format_node_id, hash_track
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.messages import RequestError, SubscribeOk
from laps.wire.objects import NewStreamHeader, decode_object_header
from support.moqt_streams import NEXT_GROUP
from support.simulated import Site
from support.telemetry import BEGAN_US, Readings, records

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from laps.sim.links import LinkEnd
    from laps.sim.node import SimNode
    from laps.types import NodeId
    from support.moqt import App

NODES, FAULTS, READERS = 14, 6, 6
GROUP_S = 4.0


class OtherTrace(Trace):
    """Follows all objects but those of telemetry, which do not say who made them."""

    telemetry: frozenset[int]
    passed_over: dict[tuple[LinkEnd, int], bool]

    def data(
        self, link: LinkEnd, to: NodeId, stream_id: int, data: bytes, fin: bool, now: float
    ) -> None:
        key = (link, stream_id)
        if key not in self.passed_over:
            header = decode_object_header(data)
            assert isinstance(header, NewStreamHeader)  # nothing is split here
            self.passed_over[key] = header.full_name_hash in self.telemetry
        if not self.passed_over[key]:
            super().data(link, to, stream_id, data, fin, now)


class Reports:
    """Has every relay that is up speak of itself, each second."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.by_relay: dict[Relay, Telemetry] = {}
        self.over = False
        network.clock.every(1.0, self._round)

    def of(self, node: SimNode) -> Telemetry | None:
        return None if node.relay is None else self.by_relay.get(node.relay)

    def _round(self) -> None:
        for node in () if self.over else self.network.nodes.values():
            if node.relay is None or node.edge is None or not node.is_up:
                continue
            telemetry = self.by_relay.get(node.relay)
            now, wall_us = self.network.now, BEGAN_US + round(self.network.now * 1e6)
            if telemetry is None:
                settings = TelemetrySettings(history_bytes=1 << 20)
                telemetry = Telemetry(node.relay, node.edge, Readings(node.relay), settings)
                self.by_relay[node.relay] = telemetry
                telemetry.start(now, wall_us)
            for _ in telemetry.round(now, wall_us):
                pass
            node.touched()

    def stop(self) -> None:
        self.over = True
        for node in self.network.nodes.values():
            if (telemetry := self.of(node)) is not None:
                telemetry.stop(self.network.now, "the test is over")
                node.touched()


class Reading:
    """An application that reads one node's telemetry."""

    def __init__(self, site: Site, node_id: NodeId) -> None:
        self.site, self.relay = site, site.relay
        self.node_id = node_id
        self.track = f"laps/telemetry/{format_node_id(node_id)}/node"
        self.app: App = site.moqt(DRAFT16)
        self.app.subscribe(self.track, NEXT_GROUP)

    @property
    def is_there(self) -> bool:
        """Whether the relay that it is at has not gone meanwhile."""
        return self.site._node.relay is self.relay

    def check(self) -> None:
        """Whatever happened: everything once, in order, and of the node it is of."""
        assert self.app.closed is None
        places = self.app.places
        assert len(set(places)) == len(places), self.track
        rows = records(sorted(self.app.objects))
        assert {row["node"] for row in rows} <= {format_node_id(self.node_id)}
        times = [row["at"] for row in rows]
        assert times == sorted(times)


class Scene:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        topology = generators.with_clients(generators.random(NODES, seed), 2, 6, seed)
        settings = RelaySettings(cache=CacheLimits(1 << 20, 1 << 16, 10.0))
        self.network = Network(topology, seed, extended=1.0, split=0.0, settings=settings)
        trace = self.network.trace
        trace.__class__ = OtherTrace
        assert isinstance(trace, OtherTrace)
        trace.passed_over = {}
        trace.telemetry = frozenset(
            hash_track(name).full_name_hash
            for node_id in self.network.nodes
            for name in tracks_of(node_id)
        )
        self.reports = Reports(self.network)
        self.network.settle()
        self.readings: list[Reading] = []

    def read(self) -> None:
        """Readers at any relay that has clients, of any relay."""
        nodes = [node for node in self.network.nodes.values() if node.is_up]
        places = [node for node in nodes if node.spec.type in ("edge", "stub")]
        for _ in range(READERS):
            site = Site(self.network, self.rng.choice(places))
            self.readings.append(Reading(site, self.rng.choice(nodes).node_id))

    def disturb(self) -> None:
        start = self.network.now
        for fault in random_faults(self.network.topology, FAULTS, self.rng):
            self.network.run(max(0.0, start + fault.at_s - self.network.now))
            fault.strike(self.network)

    def published(self, node_id: NodeId, since: float) -> list[tuple[int, int]]:
        """What a node has said in groups that it began since then, and has ended."""
        telemetry = self.reports.of(self.network.nodes[node_id])
        assert telemetry is not None
        groups = telemetry._outputs["node"].track.cached.groups
        return [
            (group_id, number)
            for group_id, group in sorted(groups.items())
            if group.at >= since and not group.live
            for number in sorted(group.objects(self.network.now))
        ]


def check(seed: int) -> None:
    scene = Scene(seed)
    network = scene.network
    network.run(5.0)
    scene.read()
    network.run(5.0)
    scene.disturb()
    network.settle()
    found = [*check_always(network), *check_paths(network), *check_subscribes(network)]
    scene.read()
    network.run(6.0)
    since = network.now
    network.run(4 * GROUP_S)
    found += check_delivery(network, since, network.now - 2.0) + check_always(network)
    assert found == []
    staying = [reading for reading in scene.readings if reading.is_there]
    assert len(staying) >= READERS
    for reading in staying:
        reading.check()
        assert not reading.app.heard_of(RequestError)
        assert reading.app.heard_of(SubscribeOk)
        owed = scene.published(reading.node_id, since)
        assert len(owed) >= 2 * GROUP_S
        assert set(owed) <= set(reading.app.places), reading.track
    check_history(scene)
    scene.reports.stop()
    for reading in staying:
        reading.app.leave()
    network.run(30.0)
    network.dismiss_clients()
    network.settle()
    found = check_no_clients(network)
    network.part()
    network.settle()
    assert found + check_empty(network) == []


def check_history(scene: Scene) -> None:
    """All that a node still has is fetched from anywhere."""
    network = scene.network
    node = scene.rng.choice([node for node in network.nodes.values() if node.is_up])
    places = [n for n in network.nodes.values() if n.is_up and n.spec.type in ("edge", "stub")]
    wanted = scene.published(node.node_id, 0.0)
    reader = Site(network, scene.rng.choice(places)).moqt(DRAFT16)
    first, last = Location(*wanted[0]), Location(*wanted[-1])
    track = f"laps/telemetry/{node.name}/node"
    reader.fetch(track, (first.group, 0), (last.group, 0))
    network.run(8.0)
    assert reader.fetched.places == wanted
    reader.leave()


@pytest.fixture(autouse=True)
def _short_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_module, "GROUP_S", GROUP_S)


@pytest.mark.parametrize("seed", range(8))
def test_networks_that_speak_of_themselves_survive_what_happens_to_them(seed: int) -> None:
    check(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2000, 2200))
def test_many_networks_that_speak_of_themselves_survive_too(seed: int) -> None:
    check(seed)
