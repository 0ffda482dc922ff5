"""A relay that has proved who it is, and then lies, on real sockets.

It is a real relay with a right key, made to send what no relay would send by itself. Each lie is
refused or corrected, counted and in the journal, and what it is about stays as it was.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from laps.net import runner as runner_module
from laps.relay import failover
from laps.types import (
    NamespaceInfo,
    NodeInfo,
    NodeMetrics,
    NodePathItem,
    NodeType,
    parse_node_id,
)
from laps.wire.extensions import NamespaceInfoAdv, NodeMetricsAdv, RelayRequest
from laps.wire.peering import NodeInfoAdv, SubscribeInfoAdv, SubscribeInfoWd
from loopback.test_peer_auth import Keys
from support.loopback import on_loop, until
from support.relays import App, subscribe_info, track_hash
from support.runners import lab, subscribe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from laps.net.runner import Runner
    from laps.wire.peering import Message

VICTIM, LIAR, HONEST, FAR = "9:1", "9:2", "9:3", "5:5"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "REDIAL_FIRST_S", 0.02)
    monkeypatch.setattr(runner_module, "REDIAL_MOST_S", 0.2)


class Scene:
    """A relay, one that lies to it, and one that is lied about."""

    def __init__(self, victim: Runner, liar: Runner, honest: Runner) -> None:
        self.victim, self.liar, self.honest = victim, liar, honest

    def say(self, *messages: Message) -> None:
        """The liar says it on its control stream with the victim."""
        relay = self.liar.relay
        for message in messages:
            relay.links.send(relay.peers[self.victim.relay.id], message)
        self.liar._arm()

    def events(self, name: str) -> list[tuple[str, str]]:
        found = [item.event for item in self.victim.relay.journal.recent()]
        return [(event.subject, event.reason) for event in found if event.name == name]

    async def refused(self, *reasons: str) -> None:
        """These are refused, each counted and in the journal, and nothing else is."""
        counters = self.victim.relay.counters
        await until(lambda: counters.refused_claims >= len(reasons))
        assert self.events("claim_refused") == [(LIAR, reason) for reason in reasons]
        assert counters.refused_claims == len(reasons)

    async def corrected(self, *reasons: str) -> None:
        """These are not taken, and the node that they are about says otherwise."""
        counters = self.victim.relay.counters
        await until(lambda: counters.corrected_claims >= len(reasons))
        assert self.events("claim_corrected") == [(LIAR, reason) for reason in reasons]
        assert counters.corrected_claims == len(reasons)


@asynccontextmanager
async def scene(tmp_path: Path, **bounds: Any) -> AsyncIterator[Scene]:
    keys = Keys(tmp_path)
    near, liar = keys.make("near"), keys.make("liar", **bounds)
    honest = keys.make("honest")
    async with lab() as net:
        one = await net.relay("edge", **near)
        two = await net.relay("via", one, **liar)
        three = await net.relay("edge", one, **honest)
        made = Scene(one, two, three)
        await until(lambda: {two.relay.id, three.relay.id} <= set(one.relay.peers))
        await until(lambda: one.relay.id in two.relay.peers)
        yield made


def way(to: str, *by: str) -> NodeInfoAdv:
    path = tuple(NodePathItem(parse_node_id(hop), 1) for hop in by)
    return NodeInfoAdv(NodeInfo(parse_node_id(to), NodeType.EDGE, "", path=path))


def metrics(node: str, sequence: int, region: str = "", address: str = "") -> NodeMetricsAdv:
    return NodeMetricsAdv(
        NodeMetrics(sequence, parse_node_id(node), 0.0, 0, 0, region, client_address=address)
    )


@on_loop
async def test_lies_about_nodes_that_a_relay_may_not_carry_are_refused(tmp_path: Path) -> None:
    async with scene(tmp_path, carries=[]) as it:
        relay, far = it.victim.relay, parse_node_id(FAR)
        it.say(
            way(FAR, LIAR),
            way(FAR),
            SubscribeInfoAdv(subscribe_info(FAR, "a/t", 1)),
            metrics(FAR, 1, address="192.0.2.66:1"),
            NamespaceInfoAdv(NamespaceInfo(1, far, (b"a",))),
            RelayRequest(9, far, relay.id, 1, b""),
            metrics(LIAR, 60_000, region="us"),
        )
        await it.refused(
            "tells of a way to node 5:5, which it may not carry",
            "tells of a way to node 5:5 that does not lead by itself",
            "speaks of a subscribe of node 5:5, which it may not carry",
            "speaks of metrics of node 5:5, which it may not carry",
            "speaks of a namespace of node 5:5, which it may not carry",
            "speaks of a RELAY_REQUEST of node 5:5, which it may not carry",
            "names another region than it has proved",
        )
        assert relay.nodes.best(far) is None
        assert not relay.subscribes.holds(far, track_hash("a/t").full_name_hash)
        assert relay.extensions.metrics.get(far) is None
        assert list(relay.extensions.namespaces.of(far)) == []
        assert it.liar.relay.id in relay.peers  # it is refused what it says, not the link


@on_loop
async def test_lies_about_a_peer_are_corrected_by_that_peer(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        relay, honest = it.victim.relay, it.honest.relay
        it.say(way(HONEST, LIAR))
        app = App()
        subscribe(it.honest, app, "a/u")
        key, other = track_hash("a/t").full_name_hash, track_hash("a/u").full_name_hash
        await until(lambda: relay.subscribes.holds(honest.id, other))
        held = relay.subscribes.get(honest.id, other)
        assert held is not None
        problem = "speaks of {} of node 9:3, which says otherwise"
        it.say(SubscribeInfoAdv(subscribe_info(HONEST, "a/t", 40)))
        await it.corrected(problem.format("a subscribe"))
        it.say(SubscribeInfoWd(replace(held, sequence=(held.sequence + 5) & 0xFFFF)))
        await it.corrected(*[problem.format("a subscribe")] * 2)
        assert not relay.subscribes.holds(honest.id, key)
        assert relay.subscribes.holds(honest.id, other)


@on_loop
async def test_lies_about_where_the_clients_of_a_peer_connect_lead_nobody_astray(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as it:
        relay, honest = it.victim.relay, it.honest.relay
        it.say(way(HONEST, LIAR))
        await until(lambda: relay.extensions.metrics.get(honest.id) is not None)
        true = relay.extensions.metrics.get(honest.id)
        assert true is not None
        it.say(metrics(HONEST, (true.sequence + 7) & 0xFFFF, address="192.0.2.66:1"))
        await it.corrected("speaks of metrics of node 9:3, which says otherwise")
        told = {str(one.address) for one in failover.candidates(relay, local=True)}
        assert str(it.honest.client_address) in told
        assert "192.0.2.66:1" not in told


@on_loop
async def test_lies_in_the_name_of_the_relay_itself_and_of_others_namespaces_are_refused(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path, namespaces=["rooms/eu"]) as it:
        relay, liar = it.victim.relay, it.liar.relay
        it.say(
            RelayRequest(9, relay.id, relay.id, 1, b""),
            NamespaceInfoAdv(NamespaceInfo(1, liar.id, (b"rooms", b"us"))),
            NamespaceInfoAdv(NamespaceInfo(2, liar.id, (b"rooms", b"eu"))),
            NamespaceInfoAdv(NamespaceInfo(3, liar.id, (b"laps", b"telemetry", HONEST.encode()))),
        )
        await it.refused(
            "sends us a RELAY_REQUEST in our own name",
            "offers what is not in its namespaces",
            "offers what is not in its namespaces",
        )
        # Its own telemetry it may offer, whatever the bounds of its key.
        own = (b"laps", b"telemetry", LIAR.encode())
        offered = {namespace for namespace, _ in relay.extensions.namespaces.of(liar.id)}
        assert offered == {(b"rooms", b"eu"), own}
