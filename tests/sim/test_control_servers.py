"""Networks with control servers: each relay hears what concerns it, and nobody misses anything."""

from __future__ import annotations

import pytest

from laps.relay import digests
from laps.sim.families import findings, served
from laps.sim.invariants import check_subscribes

SEEDS = range(1, 15)
FEW = [*range(30, 34), *(pytest.param(it, marks=pytest.mark.nightly) for it in range(34, 150))]


@pytest.mark.parametrize("seed", SEEDS)
def test_control_servers_may_die_and_come_back(seed: int) -> None:
    assert findings("served", seed) == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(15, 301))
def test_many_networks_of_control_servers_go_on(seed: int) -> None:
    assert findings("served", seed) == []


@pytest.mark.parametrize("seed", FEW)
def test_who_is_back_tells_what_has_changed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests are made of the few subscribes of these networks too."""
    monkeypatch.setattr(digests, "LEAST", 1)
    assert findings("served", seed) == []


def test_edges_hold_what_concerns_them_and_servers_their_share() -> None:
    network, _ = served(21)
    network.settle()
    assert check_subscribes(network) == []
    relays = [node.relay for node in network.nodes.values() if node.relay is not None]
    servers = [relay for relay in relays if relay.interest.shares]
    others = [relay for relay in relays if relay not in servers]
    assert len(servers) == 4
    assert all(relay.interest.is_served for relay in others)
    said = {(it.source_node_id, it.track_hash) for one in others for it in one.subscribes}
    copies = [(it.source_node_id, it.track_hash) for one in servers for it in one.subscribes]
    assert set(copies) == said
    assert {copies.count(one) for one in said} == {2}
