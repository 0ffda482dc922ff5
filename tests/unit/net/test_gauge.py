"""What a relay tells of itself."""

from __future__ import annotations

import pytest

from laps.config import NodeConfig
from laps.net.gauge import Gauge
from laps.types import Address
from support.relays import Net

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
