"""What a peer may say that has proved who it is: each lie is refused, counted and in the journal.

A `liar` has a right key and says what it likes. `honest` is a relay that the lies are about.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from laps.relay import claims, failover
from laps.relay.roles import Role
from laps.types import (
    AnnounceInfo,
    NamespaceInfo,
    NodeInfo,
    NodeMetrics,
    NodePathItem,
    NodeType,
    TrackKey,
    hash_bytes,
    parse_node_id,
)
from laps.wire.extensions import (
    NamespaceInfoAdv,
    NamespaceInfoWd,
    NodeMetricsAdv,
    RelayRequest,
    RelayResponse,
    RepairRequest,
    RepairResponse,
)
from laps.wire.interest import SubscribeInterest, Wants
from laps.wire.node_lists import NodeListAdv
from laps.wire.peering import (
    AnnounceInfoAdv,
    NodeInfoAdv,
    NodeInfoWd,
    SubscribeInfoAdv,
    SubscribeInfoWd,
)
from support.proofs import Prover, ProvingNet
from support.relays import App, subscribe_info, track_hash, track_name

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from laps.wire.peering import Message

LIAR, HONEST, FAR = "1:2", "1:3", "5:5"


@pytest.fixture
def net() -> ProvingNet:
    return ProvingNet()


def refused(relay: Relay) -> list[tuple[str, str]]:
    """What was refused: who said it, and what is wrong with it."""
    events = [item.event for item in relay.journal.recent()]
    found = [(it.subject, it.reason) for it in events if it.name == "claim_refused"]
    assert len(found) == relay.counters.refused_claims
    return found


def corrected(relay: Relay) -> list[tuple[str, str]]:
    """What was not taken, and is not so by the word of whom it is about."""
    events = [item.event for item in relay.journal.recent()]
    found = [(it.subject, it.reason) for it in events if it.name == "claim_corrected"]
    assert len(found) == relay.counters.corrected_claims
    return found


def way(to: str, *by: str) -> NodeInfoAdv:
    path = tuple(NodePathItem(parse_node_id(hop), 1000) for hop in by)
    return NodeInfoAdv(NodeInfo(parse_node_id(to), NodeType.EDGE, "", path=path))


def metrics(node: str, sequence: int = 1, region: str = "eu", address: str = "") -> NodeMetricsAdv:
    return NodeMetricsAdv(
        NodeMetrics(sequence, parse_node_id(node), 0.1, 0, 0, region, client_address=address)
    )


def offer(node: str, *parts: bytes, sequence: int = 1) -> NamespaceInfoAdv:
    return NamespaceInfoAdv(NamespaceInfo(sequence, parse_node_id(node), parts))


def joined(net: ProvingNet, role: str = "edge", **bounds: object) -> tuple[Relay, Prover]:
    relay, liar = net.proving("1:1"), net.liar(LIAR, role, **bounds)
    net.join(liar, relay)
    assert liar.id in relay.peers
    return relay, liar


# -- ways ------------------------------------------------------------------------------------------


def test_a_way_to_a_node_that_a_peer_may_not_carry_is_refused(net: ProvingNet) -> None:
    relay, liar = joined(net, carries=["1:*"])
    liar.say(way("1:9", LIAR), way(FAR, LIAR))
    assert relay.nodes.best(parse_node_id("1:9")) is not None
    assert relay.nodes.best(parse_node_id(FAR)) is None
    words = "tells of a way to node 5:5, which it may not carry"
    assert refused(relay) == [(LIAR, words)]


def test_of_a_list_the_ways_are_taken_that_the_peer_may_carry(net: ProvingNet) -> None:
    relay, liar = joined(net, carries=["1:*"])
    infos = [way("1:9", LIAR).node_info, way(FAR, LIAR).node_info, way("1:8", "1:9").node_info]
    liar.say(NodeListAdv(tuple(infos)))
    assert [relay.nodes.best(info.id) is not None for info in infos] == [True, False, False]
    assert [words for _, words in refused(relay)] == [
        "tells of a way to node 5:5, which it may not carry",
        "tells of a way to node 1:8 that does not lead by itself",
    ]


@pytest.mark.parametrize("by", [(), ("1:9",), (LIAR, "1:9")])
def test_a_way_that_does_not_lead_by_the_peer_itself_is_refused(
    net: ProvingNet, by: tuple[str, ...]
) -> None:
    relay, liar = joined(net)
    liar.say(way(FAR, *by))
    assert relay.nodes.best(parse_node_id(FAR)) is None
    assert refused(relay) == [(LIAR, "tells of a way to node 5:5 that does not lead by itself")]


def test_a_withdrawal_takes_back_a_peer_s_own_way_alone(net: ProvingNet) -> None:
    relay, liar = joined(net)
    honest = net.proving(HONEST)
    net.join(honest, relay)
    liar.say(NodeInfoWd(structs.replace(honest.self_info, path=())))
    assert relay.nodes.best(honest.id) is not None


# -- what nodes say of themselves ------------------------------------------------------------------

OF_OTHERS: list[tuple[Message, str]] = [
    (SubscribeInfoAdv(subscribe_info(FAR, "a/t", 1)), "a subscribe"),
    (SubscribeInfoWd(subscribe_info(FAR, "a/t", 2)), "a subscribe"),
    (metrics(FAR, address="192.0.2.66:1"), "metrics"),
    (offer(FAR, b"a"), "a namespace"),
    (NamespaceInfoWd(offer(FAR, b"a").namespace_info), "a namespace"),
    (RelayRequest(9, parse_node_id(FAR), parse_node_id("1:1"), 1, b""), "a RELAY_REQUEST"),
    (RelayResponse(9, parse_node_id(FAR), parse_node_id("1:1"), 1, b""), "a RELAY_RESPONSE"),
    (
        RepairRequest(9, parse_node_id(FAR), parse_node_id("1:1"), 1, TrackKey(1), 0, ()),
        "a REPAIR_REQUEST",
    ),
    (
        RepairResponse(9, parse_node_id(FAR), parse_node_id("1:1"), 1, 0, parse_node_id("0:0")),
        "a REPAIR_RESPONSE",
    ),
]


@pytest.mark.parametrize(("message", "what"), OF_OTHERS)
def test_a_peer_does_not_speak_for_a_node_that_it_may_not_carry(
    net: ProvingNet, message: Message, what: str
) -> None:
    relay, liar = joined(net, carries=[])
    via = net.proving("2:1", Role.VIA)
    net.join(via, relay)
    far = net.proving(FAR)
    net.join(far, via)
    net.run(3)
    before = relay.sizes()
    liar.say(message)
    assert refused(relay) == [(LIAR, f"speaks of {what} of node 5:5, which it may not carry")]
    assert relay.sizes() == before
    assert not relay.reach.received


@pytest.mark.parametrize(("message", "what"), OF_OTHERS)
def test_a_peer_passes_on_what_nodes_say_that_it_may_carry(
    net: ProvingNet, message: Message, what: str
) -> None:
    relay, liar = joined(net, "via", carries=["5:*"])
    liar.say(way(FAR, LIAR), message)
    assert refused(relay) == []


@pytest.mark.parametrize(("message", "what"), OF_OTHERS)
def test_a_stub_speaks_for_itself_alone(net: ProvingNet, message: Message, what: str) -> None:
    relay, liar = joined(net, "stub", carries=["*"])
    liar.say(message)
    assert refused(relay) == [(LIAR, f"speaks of {what} of node 5:5, which it may not carry")]


def test_nobody_sends_us_requests_in_our_own_name(net: ProvingNet) -> None:
    relay, liar = joined(net)
    liar.say(RelayRequest(9, relay.id, relay.id, 1, b""))
    assert refused(relay) == [(LIAR, "sends us a RELAY_REQUEST in our own name")]
    assert not relay.reach.received


# -- what is a peer's own --------------------------------------------------------------------------


def test_a_peer_offers_what_is_in_its_namespaces_alone(net: ProvingNet) -> None:
    relay, liar = joined(net, namespaces=["rooms/eu"])
    liar.say(offer(LIAR, b"rooms", b"eu", b"1"), offer(LIAR, b"rooms"), offer(LIAR, b"other"))
    assert [info.namespace for info in relay.extensions.namespaces] == [(b"rooms", b"eu", b"1")]
    assert refused(relay) == [(LIAR, "offers what is not in its namespaces")] * 2


def test_a_stub_announces_what_is_in_its_namespaces_alone_and_for_itself(net: ProvingNet) -> None:
    relay, liar = joined(net, "stub", namespaces=["rooms"])
    rooms, other = hash_bytes(b"rooms"), hash_bytes(b"other")
    for node, part in ((LIAR, rooms), (LIAR, other), (FAR, rooms)):
        liar.say(AnnounceInfoAdv(AnnounceInfo(parse_node_id(node), (part,))))
    assert refused(relay) == [
        (LIAR, "announces what is not in its namespaces"),
        (LIAR, "announces for node 5:5"),
    ]
    (stub,) = relay.stubs
    assert relay.tracks.announces.count(stub) == 1


def test_a_peer_is_in_the_region_that_it_has_proved(net: ProvingNet) -> None:
    relay, liar = joined(net)
    liar.say(metrics(LIAR, 1, "us"))
    assert refused(relay) == [(LIAR, "names another region than it has proved")]
    liar.say(metrics(LIAR, 2, "eu"))
    assert relay.extensions.metrics.get(liar.id) is not None


# -- hearsay ---------------------------------------------------------------------------------------


def with_honest(net: ProvingNet) -> tuple[Relay, Prover, Relay]:
    """A relay, a liar that may carry all, and the one that it lies about, who is a peer too."""
    relay, liar = joined(net, "via")
    honest = net.proving(HONEST)
    net.join(honest, relay)
    liar.say(way(HONEST, LIAR))
    net.run(3)
    return relay, liar, honest


def test_a_lie_about_the_subscribes_of_a_peer_is_not_taken_and_is_corrected(
    net: ProvingNet,
) -> None:
    relay, liar, honest = with_honest(net)
    liar.say(SubscribeInfoAdv(subscribe_info(HONEST, "a/t", 40)))
    assert not relay.subscribes.holds(honest.id, track_hash("a/t").full_name_hash)
    problem = "speaks of a subscribe of node 1:3, which says otherwise"
    assert corrected(relay) == [(LIAR, problem)]
    # Neither is a withdrawal of what the node does subscribe to.
    net.subscribe(honest, App(), "a/u")
    held = relay.subscribes.get(honest.id, track_hash("a/u").full_name_hash)
    assert held is not None
    liar.say(SubscribeInfoWd(replace(held, sequence=held.sequence + 5)))
    assert relay.subscribes.holds(honest.id, track_hash("a/u").full_name_hash)
    assert corrected(relay) == [(LIAR, problem)] * 2


def test_a_lie_about_the_metrics_and_client_address_of_a_peer_is_not_taken(
    net: ProvingNet,
) -> None:
    relay, liar, honest = with_honest(net)
    (true,) = [metrics(HONEST, address="192.0.2.3:1").node_metrics]
    honest.extensions.measured(true, net.now)
    net.run()
    assert [str(it.address) for it in failover.candidates(relay, local=False)] == ["192.0.2.3:1"]
    told = relay.extensions.metrics.get(honest.id)
    assert told is not None
    liar.say(metrics(HONEST, told.sequence + 7, address="192.0.2.66:1"))
    assert [str(it.address) for it in failover.candidates(relay, local=False)] == ["192.0.2.3:1"]
    net.run(5)
    assert [str(it.address) for it in failover.candidates(relay, local=False)] == ["192.0.2.3:1"]
    assert corrected(relay) == [(LIAR, "speaks of metrics of node 1:3, which says otherwise")]


def test_a_lie_about_the_namespaces_of_a_peer_is_not_taken(net: ProvingNet) -> None:
    relay, liar, honest = with_honest(net)
    liar.say(offer(HONEST, b"a", sequence=40))
    assert list(relay.extensions.namespaces.of(honest.id)) == []
    assert corrected(relay) == [(LIAR, "speaks of a namespace of node 1:3, which says otherwise")]


def test_news_that_overtakes_the_node_s_own_message_is_no_lie(net: ProvingNet) -> None:
    relay, liar, honest = with_honest(net)
    info = subscribe_info(HONEST, "a/t", net.relays[HONEST]._subscribes._epoch + int(net.now))
    info = replace(info, sequence=info.sequence & 0xFFFF)
    (control,) = relay.peers[honest.id].links.values()
    relay.claims._keep(
        claims._subject(SubscribeInfoAdv(info))[0],
        next(iter(relay.peers[liar.id].links.values())),
        SubscribeInfoAdv(info),
    )
    net.subscribe(honest, App(), "a/t")
    assert control is relay.peers[honest.id].control
    assert relay.subscribes.holds(honest.id, info.track_hash.full_name_hash)
    assert refused(relay) == corrected(relay) == []
    # And what it has said already, told again by others, is nothing at all.
    held = relay.subscribes.get(honest.id, info.track_hash.full_name_hash)
    assert held is not None
    liar.say(SubscribeInfoAdv(held))
    assert len(relay.claims._hearsay) == 0


def test_what_others_said_counts_when_the_link_to_the_node_closes(net: ProvingNet) -> None:
    relay, liar, honest = with_honest(net)
    wire = next(it for it in net.wires if it.here.relay is honest)
    # The node hears nothing of what is said of it, and says nothing.
    wire.there.other.closed = (0, "silent")
    liar.say(SubscribeInfoAdv(subscribe_info(HONEST, "a/t", 40)))
    key = track_hash("a/t").full_name_hash
    assert not relay.subscribes.holds(honest.id, key)
    net.post(lambda: relay.link_closed(wire.there, net.now))
    net.run()
    assert relay.subscribes.holds(honest.id, key)
    assert refused(relay) == corrected(relay) == []


def test_hearsay_is_bounded_and_goes_with_the_link_it_came_by(
    net: ProvingNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "MAX_HEARSAY", 3)
    relay, liar, honest = with_honest(net)
    wire = next(it for it in net.wires if it.here.relay is honest)
    wire.there.other.closed = (0, "silent")
    for number in range(5):
        liar.say(SubscribeInfoAdv(subscribe_info(HONEST, f"a/{number}", 40)))
    assert len(relay.claims._hearsay) == 3
    net.wires[0].cut()
    assert len(relay.claims._hearsay) == 0


# -- ending tracks ---------------------------------------------------------------------------------


def test_a_track_is_ended_by_a_node_that_offers_it_or_did_so_lately(net: ProvingNet) -> None:
    relay, liar = joined(net, "edge", namespaces=["rooms"])
    rooms, other = track_name("rooms/1/t"), track_name("other/t")
    assert not relay.claims.serves(liar.id, rooms)
    liar.say(offer(LIAR, b"rooms"))
    assert relay.claims.serves(liar.id, rooms)
    assert not relay.claims.serves(liar.id, other)
    liar.say(NamespaceInfoWd(offer(LIAR, b"rooms", sequence=2).namespace_info))
    assert relay.claims.serves(liar.id, rooms)
    net.run(120)
    assert not relay.claims.serves(liar.id, rooms)


def test_a_stub_ends_tracks_that_are_in_its_namespaces(net: ProvingNet) -> None:
    relay, liar = joined(net, "stub", namespaces=["rooms"])
    assert relay.claims.serves(liar.id, track_name("rooms/t"))
    assert not relay.claims.serves(liar.id, track_name("other/t"))


def test_a_relay_that_asks_for_no_proof_lets_anybody_end_a_track(net: ProvingNet) -> None:
    assert net.relay("1:1").claims.serves(parse_node_id(FAR), track_name("a/t"))


# -- a network -------------------------------------------------------------------------------------


def test_an_honest_network_with_triangles_refuses_nothing(net: ProvingNet) -> None:
    names = ["1:1", "1:2", "1:3", "1:4"]
    edges = [net.proving(name) for name in names]
    via = net.proving("2:1", Role.VIA)
    for number, edge in enumerate(edges):
        net.join(edge, via)
        net.join(edges[number - 1], edge)
    net.run(5)
    apps = {name: App(name) for name in names}
    for name, edge in zip(names, edges, strict=True):
        net.announce(edge, apps[name], f"of-{name}")
        edge.extensions.measured(metrics(name).node_metrics, net.now)
    net.run(3)
    for edge in edges:
        for name in names:
            net.subscribe(edge, App(), f"of-{name}/t")
    net.run(10)
    net.crash(edges[2])
    net.run(10)
    again = net.proving("1:3")
    net.join(again, via)
    net.run(10)
    for relay in (*edges[:2], edges[3], via, again):
        assert refused(relay) == []
        assert relay.counters.unproved_peers == 0
        assert relay.is_idle()
    wanted = set(edges[0].subscribes.sources(track_hash("of-1:1/t").full_name_hash))
    assert wanted == {parse_node_id(name) for name in ("1:1", "1:2", "1:4")}


def test_a_relay_that_may_carry_nobody_tells_of_nobody(net: ProvingNet) -> None:
    edge = net.proving("1:1", carries=[])
    others = [net.proving(name) for name in ("1:2", "1:3")]
    for other in others:
        net.join(other, edge)
    net.join(*others)
    net.run(3)
    for other in others:
        other.extensions.measured(metrics("1:9").node_metrics, net.now)
        net.subscribe(other, App(), "a/t")
    net.run(8)
    assert edge.nodes.best(others[0].id) is not None
    for wire in net.wires[:2]:
        assert wire.there.said(NodeInfoAdv) == []
        assert {
            it.subscribe_info.source_node_id for it in wire.there.said(SubscribeInfoAdv)
        } == set()
    for relay in (edge, *others):
        assert refused(relay) == []
        assert relay.is_idle()


# -- control servers -------------------------------------------------------------------------------


def test_only_who_has_proved_to_be_a_control_server_is_taken_for_one(net: ProvingNet) -> None:
    relay, liar = joined(net)
    liar.say(SubscribeInterest(Wants.ALL, serves=True))
    words = "says that it is a control server, and has proved the role edge"
    assert refused(relay) == [(LIAR, words)]
    assert relay.interest.concern.servers == ()


def test_a_control_server_tells_what_a_node_need_not_say_itself(net: ProvingNet) -> None:
    relay, server = joined(net, "control")
    other = net.liar(HONEST)
    net.join(other, relay)
    server.say(SubscribeInterest(Wants.ALL, serves=True))
    other.say(SubscribeInterest(Wants.OFFERED, servers=(server.id,)))
    assert relay.interest.is_served
    net.subscribe(relay, App(), "a/t")
    relay.interest.name_near([other.id], net.now)
    key = track_hash("a/t").full_name_hash
    server.say(SubscribeInfoAdv(subscribe_info(HONEST, "a/t", 40)))
    assert relay.subscribes.holds(other.id, key)
    # What is offered here a node says itself, as it is asked to.
    net.announce(relay, App(), "b")
    server.say(SubscribeInfoAdv(subscribe_info(HONEST, "b/t", 40)))
    assert not relay.subscribes.holds(other.id, track_hash("b/t").full_name_hash)
    other.say(SubscribeInfoAdv(subscribe_info(HONEST, "b/t", 40)))
    assert relay.subscribes.holds(other.id, track_hash("b/t").full_name_hash)
    assert corrected(relay) == []
