"""What a relay tells of itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from laps.config import NodeConfig
from laps.infobase.nodes import SessionId
from laps.net.gauge import Gauge
from laps.types import Address, FullLink, NodeId, NodeMetrics
from support.relays import Net

if TYPE_CHECKING:
    from collections.abc import Iterator

NODE = NodeConfig(region="eu", tags=("gold",), capacity_bps=10**9)


def test_the_operator_s_words_are_told_as_they_are() -> None:
    relay = Net().relay("1:1")
    told = Gauge(NODE, Address("relay.example", 33435)).read(relay, [])
    assert told.source_node_id == relay.id
    assert (told.region, told.tags, told.capacity_bps) == ("eu", ("gold",), 10**9)
    assert told.egress_bps == 0
    assert 0 <= told.load <= 1


@pytest.mark.parametrize(
    ("address", "told"),
    [
        (None, ""),
        (Address("relay.example", 33435), "relay.example:33435"),
        (Address("2001:db8::1", 1), "[2001:db8::1]:1"),
    ],
)
def test_where_clients_connect_is_told_until_the_relay_leaves(
    address: Address | None, told: str
) -> None:
    relay = Net().relay("1:1")
    gauge = Gauge(NODE, address)
    assert [gauge.read(relay, []).client_address for _ in range(2)] == [told, told]
    gauge.leave()
    assert gauge.read(relay, []).client_address == ""


class Socket:
    """Clients that were sent so much, in all and each."""

    def __init__(self) -> None:
        self.sent = [0]

    def traffic(self) -> Iterator[tuple[int, int]]:
        return iter([(sent, 7) for sent in self.sent])


def test_what_is_sent_to_clients_counts_as_what_the_relay_sends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    relay, socket = Net().relay("1:1"), Socket()
    moments = iter([10.0, 12.0, 14.0, 16.0])
    monkeypatch.setattr("laps.net.gauge.time.monotonic", lambda: next(moments))
    gauge = Gauge(NODE, None, socket)
    socket.sent = [1_000, 2_000, 3_000]
    assert gauge.read(relay, []).egress_bps == 8 * 6_000 / 2
    socket.sent = [3_500, 3_000]  # one has left
    assert gauge.read(relay, []).egress_bps == 8 * 500 / 2
    socket.sent = [3_500, 10]  # one has another path
    assert gauge.read(relay, []).egress_bps == 0


class Path:
    """A link to a peer, as far as it is read: what it has sent, and how long data waited."""

    def __init__(self, number: int, node_id: int) -> None:
        self.id, self.node_id = SessionId(number), NodeId(node_id)
        self.sent_bytes = self.sent_packets = self.lost_packets = 0
        self.waited_s = 0.0
        self.srtt_us = 10_000

    @property
    def connection(self) -> Path:
        return self

    @property
    def egress(self) -> Path:
        return self

    def stats(self) -> Path:
        return self

    def carry(self, rate: int, *, waits: bool = False, lost: int = 0) -> None:
        """Send for two seconds, in packets of 100 bytes."""
        self.sent_bytes += 2 * rate
        self.sent_packets += 2 * rate // 100
        self.lost_packets += lost
        self.waited_s += 2.0 * waits


class Measured:
    """A relay with two peers, read every two seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 10.0
        monkeypatch.setattr("laps.net.gauge.time.monotonic", lambda: self.now)
        self.paths = [Path(1, 7), Path(2, 8)]
        nodes = {it.id: it.node_id for it in self.paths}
        links = SimpleNamespace(node_of=nodes.get, sends_data=lambda _: True)
        peers = dict.fromkeys(nodes.values(), SimpleNamespace(is_stub=False))
        self.relay: Any = SimpleNamespace(id=NodeId(1), links=links, peers=peers)
        self.gauge = Gauge(NODE, None)
        self.read()

    def read(self) -> NodeMetrics:
        self.now += 2.0
        return self.gauge.read(self.relay, cast("Any", self.paths))

    def pass_time(self, rate: int, *, waits: bool = False) -> NodeMetrics:
        for _ in range(5):
            for path in self.paths:
                path.carry(rate, waits=waits and path is self.paths[0])
            told = self.read()
        return told


def test_a_link_that_data_waits_for_is_told_to_be_full(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Measured(monkeypatch)
    assert measured.pass_time(100_000).full_links == (), "nobody knows what they carry"
    told = measured.pass_time(100_000, waits=True)
    assert told.full_links == (FullLink(NodeId(7), 1.0),)
    assert measured.pass_time(60_000).full_links == (FullLink(NodeId(7), 0.6),)
    assert measured.pass_time(20_000).full_links == ()


def test_one_packet_that_is_lost_on_a_quiet_link_is_no_lossy_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = Measured(monkeypatch)
    for path in measured.paths:
        path.carry(6_000, lost=1)
    assert [it.loss for it in measured.read().reachability] == [0.005, 0.005]
