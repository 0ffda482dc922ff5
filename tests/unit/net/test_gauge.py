"""What a relay tells of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.config import NodeConfig
from laps.net.gauge import Gauge
from laps.types import Address
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
