"""Networks whose relays prove who they are, under seeds: nothing is lost by it, and nobody lies."""

from __future__ import annotations

from typing import Any

import pytest

from laps.auth.keys import KeySet, generate
from laps.auth.peers import PeerVerifier
from laps.auth.tokens import Algorithm
from laps.relay.proofs import ProofPolicy
from laps.relay.relay import Relay
from laps.sim import node as node_module
from laps.sim.families import findings

KEY = generate(Algorithm.EDDSA, "network")


@pytest.fixture
def relays(monkeypatch: pytest.MonkeyPatch) -> list[Relay]:
    """All relays that a simulation makes: they ask their peers for proof, and have a key."""
    made: list[Relay] = []

    def proving(*args: Any) -> Relay:
        relay = Relay(*args)
        verifier = PeerVerifier(KeySet([KEY]))
        relay.proofs.configure(ProofPolicy(KEY, verifier, required=True), 0.0)
        made.append(relay)
        return relay

    monkeypatch.setattr(node_module, "Relay", proving)
    return made


# Of the random ones, those in which all links have extensions: nobody else could prove anything.
@pytest.mark.parametrize(
    ("family", "seed"),
    [*(("random", seed) for seed in range(2, 20, 3)), *(("failover", seed) for seed in range(4))],
)
def test_a_network_that_proves_itself_survives_what_happens_to_it(
    family: str, seed: int, relays: list[Relay]
) -> None:
    assert findings(family, seed) == []
    assert any(relay.counters.control_received for relay in relays)
    assert sum(relay.counters.unproved_peers for relay in relays) == 0
    assert sum(relay.counters.refused_claims for relay in relays) == 0
