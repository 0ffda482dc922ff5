"""Who is let in where peers have to prove who they are: each way to fail, and its reason."""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest

from laps.auth.keys import KeySet
from laps.auth.peers import Place, Side, Speaker, sign
from laps.errors import CloseCode
from laps.relay.roles import Role
from laps.types import NodeType, PeerMode, parse_node_id
from laps.wire.extensions import Authorization
from laps.wire.peering import ConnectResponse, ResponseCode
from support.proofs import EPOCH_S, Prover, ProvingNet
from support.relays import App

if TYPE_CHECKING:
    from laps.relay.relay import Relay

NODE = parse_node_id("1:2")


@pytest.fixture
def net() -> ProvingNet:
    return ProvingNet()


def refused(relay: Relay, peer: Prover) -> str:
    """Why a puppet that dialled was refused; it is response 2, close 8, counted and told."""
    assert peer.heard_of(ConnectResponse) == [ConnectResponse(ResponseCode.NOT_AUTHORIZED, None)]
    assert peer.closed is not None
    assert peer.closed[0] == CloseCode.NOT_AUTHORIZED
    assert not relay.peers
    assert relay.counters.unproved_peers == 1
    event = relay.journal.recent()[-1].event
    assert (event.name, event.subject) == ("peer_refused", "1:2")
    assert event.reason in peer.closed[1]
    return event.reason


def test_relays_that_prove_themselves_are_peers_and_tracks_cross_them(net: ProvingNet) -> None:
    near = net.proving("1:1", nodes=["1:1"], roles=["edge"], regions=["eu"])
    via = net.proving("2:1", Role.VIA, carries=["1:*"])
    far = net.proving("1:3", namespaces=["a"])
    net.join(near, via)
    net.join(far, via)
    net.run(3)
    publisher, app = App(), App()
    net.announce(near, publisher, "a")
    net.subscribe(far, app, "a/t")
    assert len(publisher.asked) == 1
    assert near.nodes.best(far.id) is not None
    for relay in (near, via, far):
        assert relay.counters.unproved_peers == 0
        assert relay.counters.refused_claims == 0


def test_the_right_token_is_answered_with_one(net: ProvingNet) -> None:
    relay, peer = net.proving("1:1"), net.liar("1:2")
    net.join(peer, relay)
    assert peer.id in relay.peers
    response, answer = peer.heard[:2]
    assert isinstance(response, ConnectResponse)
    assert isinstance(answer, Authorization)


def test_a_peer_without_a_token_is_refused_after_a_while(net: ProvingNet) -> None:
    relay, peer = net.proving("1:1"), net.liar("1:2")
    peer.tokens = []
    net.join(peer, relay)
    assert peer.heard == []
    net.run(relay.settings.proof_s + 0.1)
    assert refused(relay, peer) == "AUTHORIZATION did not come in time"


def test_a_plain_peer_is_refused_at_once(net: ProvingNet) -> None:
    relay, peer = net.proving("1:1"), net.liar("1:2")
    peer.tokens = []
    net.wire(peer, relay)
    assert refused(relay, peer).startswith("it speaks plain laps, which has no AUTHORIZATION: name")


@pytest.mark.parametrize("address", ["192.0.2.1", "::ffff:192.0.2.1"])
def test_a_plain_peer_at_a_trusted_address_is_let_in(net: ProvingNet, address: str) -> None:
    relay = net.proving("1:1", trusted=(ip_network("192.0.2.0/28"),))
    peer = net.puppet("1:2")
    wire = net.wire(peer, relay, run=False)
    wire.there.remote = address
    net.run()
    assert peer.id in relay.peers


def test_a_token_that_was_used_before_is_refused(net: ProvingNet) -> None:
    relay, peer = net.proving("1:1"), net.liar("1:2")
    thief = Prover(net, "1:2", "edge", peer.key)
    wire = net.join(peer, relay)
    (stolen,) = wire.here.said(Authorization)
    wire.cut()
    thief.tokens = [stolen.token]
    net.join(thief, relay)
    assert refused(relay, thief) == "the token was used before (jti)"


def token(peer: Prover, **changes: object) -> bytes:
    values = {
        "node": NODE,
        "role": "edge",
        "audience": "ab" * 32,
        "side": Side.DIALLER,
        "at": peer.net.now,
    }
    values |= changes
    speaker = Speaker(values["node"], values["role"], "eu")  # type: ignore[arg-type]
    place = Place(values["audience"], values["side"])  # type: ignore[arg-type]
    return sign(speaker, place, peer.key, EPOCH_S + values["at"])  # type: ignore[operator]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"audience": "cd" * 32}, "the token is for another server (aud)"),
        ({"side": Side.DIALLED}, "the token is not that of the dialler (laps.side)"),
        ({"node": parse_node_id("1:9")}, "the token is that of node 1:9 (sub), not of 1:2"),
        ({"at": 800.0}, "the token expired 140 s ago: compare the clocks"),
        ({"role": "via"}, "its token is for the role via, and it is a edge"),
        ({"role": "stub"}, "its token is for the role stub, and it is a edge"),
    ],
)
def test_a_token_for_something_else_is_refused(
    net: ProvingNet, changes: dict[str, object], words: str
) -> None:
    relay, peer = net.proving("1:1"), net.liar("1:2")
    peer.tokens = [token(peer, **changes)]
    net.join(peer, relay)
    assert refused(relay, peer) == words


def test_a_token_of_an_unknown_key_is_refused(net: ProvingNet) -> None:
    relay = net.proving("1:1")
    unknown = ProvingNet().liar("1:2")
    unknown.net = net
    net.join(unknown, relay)
    assert refused(relay, unknown) == 'no key has the key id "1-2"'


@pytest.mark.parametrize(
    ("bounds", "words"),
    [({"nodes": ["1:3"]}, "(nodes)"), ({"roles": ["via"]}, "(roles)"), ({"regions": []}, "(reg")],
)
def test_a_key_that_is_not_for_this_relay_is_refused(
    net: ProvingNet, bounds: dict[str, object], words: str
) -> None:
    relay, peer = net.proving("1:1"), net.liar("1:2", "edge", **bounds)
    net.join(peer, relay)
    assert words in refused(relay, peer)


def test_nothing_is_taken_from_a_peer_before_it_is_let_in(net: ProvingNet) -> None:
    relay, peer = net.proving("1:1"), net.liar("1:2")
    peer.tokens = [b"wrong"]
    wire = net.join(peer, relay)
    assert wire.there.sent == [ConnectResponse(ResponseCode.NOT_AUTHORIZED, None)]
    assert list(relay.nodes) == []


def test_the_side_that_was_dialled_is_held_to_its_proof(net: ProvingNet) -> None:
    relay, other = net.proving("1:1"), net.relay("1:2")
    wire = net.join(relay, other)
    net.run(relay.settings.proof_s + 0.1)
    assert relay.peers == {}
    assert wire.here.closed is not None
    assert wire.here.closed[0] == CloseCode.NOT_AUTHORIZED
    assert relay.counters.unproved_peers == 1


def test_whom_we_dialled_has_to_be_there_with_and_without_proofs(net: ProvingNet) -> None:
    for asks in (True, False):
        near = net.proving("1:1") if asks else net.relay("1:5")
        far = net.proving("1:2")
        if not asks:
            far.proofs.configure(type(far.proofs.policy)(), net.now)
        wire = net.wire(near, far, extended=True, run=False)
        wire.here.expected = parse_node_id("1:3")
        net.run()
        assert near.peers == {}
        assert wire.here.closed is not None
        assert "node 1:2 answers where 1:3 is expected (peering.nodes)" in wire.here.closed[1]


def test_a_relay_with_a_key_that_asks_for_nothing_proves_itself_all_the_same(
    net: ProvingNet,
) -> None:
    asks, gives = net.proving("1:1"), net.proving("1:2")
    gives.proofs.configure(type(gives.proofs.policy)(key=gives.proofs.policy.key), net.now)
    net.join(asks, gives)
    assert gives.id in asks.peers
    assert asks.id in gives.peers


def test_a_peer_whose_key_is_taken_away_is_closed(net: ProvingNet) -> None:
    relay, peer, other = net.proving("1:1"), net.liar("1:2"), net.liar("1:3")
    net.join(peer, relay)
    net.join(other, relay)
    policy = relay.proofs.policy
    assert policy.verifier is not None
    policy.verifier.replace(KeySet([other.key]), policy.verifier._revoked)
    relay.proofs.configure(policy, net.now)
    net.run()
    assert peer.closed == (CloseCode.NOT_AUTHORIZED, 'refused: no key has the key id "1-2"')
    assert list(relay.peers) == [other.id]


def test_a_restarted_peer_that_waits_for_its_old_link_proves_itself_first(net: ProvingNet) -> None:
    relay, peer = net.proving("1:1"), net.liar("1:2")
    old = net.join(peer, relay)
    old.here.closed = (0, "gone")
    again = Prover(net, "1:2", "edge", peer.key)
    net.join(again, relay)
    assert again.heard == []
    net.post(lambda: relay.link_closed(old.there, net.now))
    net.run()
    assert isinstance(again.heard[0], ConnectResponse)
    assert again.heard[0].response_code == ResponseCode.OK
    assert isinstance(again.heard[1], Authorization)
    assert relay.proofs.proven(old.there.id) is None


def test_a_control_server_proves_its_role_and_is_a_via_on_the_wire(net: ProvingNet) -> None:
    control, edge = net.proving("3:1", Role.CONTROL, roles=["control"]), net.proving("1:1")
    net.wire(edge, control, mode=PeerMode.CONTROL, extended=True)
    assert control.id in edge.peers
    assert edge.peers[control.id].info.type is NodeType.VIA
