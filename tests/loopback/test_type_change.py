"""A relay that changes its type while it runs, on real QUIC: everybody else goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from laps.config import override
from laps.errors import ConfigError
from laps.net import quic
from laps.net import runner as runner_module
from laps.net.begin_again import Reloading, begin_again
from laps.relay.roles import Role
from laps.types import NodeType
from support.loopback import on_loop, until
from support.relays import App
from support.runners import announce, lab, publish, subscribe

if TYPE_CHECKING:
    from laps.config import Config
    from laps.net.runner import Runner
    from laps.types import NodeId


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for half a second, or two, where a test does not ask for it."""
    monkeypatch.setattr(runner_module, "REDIAL_FIRST_S", 0.02)
    monkeypatch.setattr(runner_module, "REDIAL_MOST_S", 0.2)
    monkeypatch.setattr(quic, "TICK_S", 0.05)


def kind(runner: Runner, node_id: NodeId) -> NodeType | None:
    info = runner.relay.nodes.info(node_id)
    return None if info is None else info.type


@on_loop
async def test_type_changes_from_edge_to_via_and_back_and_data_goes_on() -> None:
    async with lab() as net:
        middle = await net.relay("edge", relay__reflect=True)
        here = await net.relay("edge", middle)
        there = await net.relay("edge", middle)
        publisher, app = App(), App()
        announce(here, publisher, "demo")
        subscribe(there, app, "demo/t")
        node_id, address = middle.relay.id, middle.peer_address
        expected: list[bytes] = []

        async def goes_on(data: bytes) -> None:
            await until(lambda: here.relay.nodes.data_choice(there.relay.id) is not None)
            await until(lambda: bool(publisher.asked) and bool(_links(here, there)))
            publish(here, publisher, "demo/t", len(expected), data)
            expected.append(data)
            await until(lambda: app.got == expected)

        await goes_on(b"by an edge")
        for role, node_type in (("via", NodeType.VIA), ("edge", NodeType.EDGE)):
            config = override(middle.config, {"node.type": role}, "test")
            middle = await begin_again(middle, config)
            net.keep(middle)
            assert (middle.relay.id, middle.peer_address) == (node_id, address)
            assert middle.relay.role is Role(role)
            assert (middle.client_address is None) is (role == "via")
            both = [node_type, node_type]
            await until(lambda both=both: [kind(it, node_id) for it in (here, there)] == both)  # type: ignore[misc]
            await goes_on(f"by it again, as {role}".encode())
        # It has taken leave both times.
        assert [it.event.name for it in here.relay.journal._recent].count("peer_leaving") == 2


def _links(here: Runner, there: Runner) -> list[object]:
    """Where the publisher's track goes from here."""
    flows = [flow for flow in here.relay.fib if there.relay.id in flow.targets]
    return [link for flow in flows for link in flow.outs]


@on_loop
async def test_type_that_cannot_be_taken_leaves_the_relay_as_it_was() -> None:
    async with lab() as net:
        other = await net.relay("edge")
        via = await net.relay("via", other)
        await until(lambda: via.relay.id in other.relay.peers)
        busy = str(other.client_address)
        config = override(via.config, {"node.type": "edge", "clients.listen": busy}, "test")
        after = await begin_again(via, config)
        net.keep(after)
        assert (after.relay.role, after.relay.id) == (Role.VIA, via.relay.id)
        await until(lambda: after.relay.id in other.relay.peers)


@on_loop
async def test_reload_asks_for_a_new_beginning_only_where_the_type_is_another() -> None:
    async with lab() as net:
        edge = await net.relay("edge")
        answers: list[Config | ConfigError] = [
            override(edge.config, {"node.region": "north"}, "test"),
            ConfigError("a file that is wrong"),
            override(edge.config, {"node.type": "via"}, "test"),
            override(edge.config, {"node.type": "edge"}, "test"),
        ]

        def read_again() -> Config:
            answer = answers.pop(0)
            if isinstance(answer, ConfigError):
                raise answer
            return answer

        wake = asyncio.Event()
        reloading = Reloading(edge, read_again, wake)
        for _ in range(2):
            reloading.read()
            assert (reloading.following, wake.is_set()) == (None, False)
        reloading.read()
        assert wake.is_set()
        assert _type(reloading) == "via"
        # While it takes leave, the last that is read counts, also if that is the old type.
        reloading.read()
        assert _type(reloading) == "edge"


def _type(reloading: Reloading) -> str | None:
    return None if reloading.following is None else reloading.following.node.type
