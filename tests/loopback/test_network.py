"""Networks of real relays on real QUIC, in one process, each with its own sockets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from laps.config import override
from laps.errors import ConfigError
from laps.net import quic
from laps.net import runner as runner_module
from laps.net.tls import self_signed
from laps.types import hash_track
from support.loopback import on_loop, until
from support.relays import App, track_name
from support.runners import announce, lab, publish, subscribe

if TYPE_CHECKING:
    from pathlib import Path

    from laps.net.runner import Runner
    from laps.types import NodeId, TrackKey


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for half a second, or two, where a test does not ask for it."""
    monkeypatch.setattr(runner_module, "REDIAL_FIRST_S", 0.02)
    monkeypatch.setattr(quic, "TICK_S", 0.05)


def way(runner: Runner, node: NodeId) -> tuple[int, str] | None:
    choice = runner.relay.nodes.data_choice(node)
    return None if choice is None else (choice.path.hops, choice.reason)


@on_loop
async def test_a_track_crosses_two_vias_and_reaches_a_stub() -> None:
    async with lab() as net:
        via1 = await net.relay("via", relay__reflect=True)
        via2 = await net.relay("via", via1, relay__reflect=True)
        edge1 = await net.relay("edge", via1)
        edge2 = await net.relay("edge", via2)
        stub = await net.relay("stub", edge2)
        assert stub.peer_address is None
        publisher, here, there, behind = App(), App(), App(), App()
        announce(edge1, publisher, "demo")
        for runner, app in ((edge1, here), (edge2, there), (stub, behind)):
            subscribe(runner, app, "demo/t")
        await until(lambda: way(edge1, edge2.relay.id) is not None)
        await until(lambda: edge2.relay.id in edge1.relay.subscribes.sources(_key("demo/t")))
        assert publisher.asked
        big = bytes(range(256)) * 2000
        publish(edge1, publisher, "demo/t", 1, big[:100_000], fin=False)
        publish(edge1, publisher, "demo/t", 1, big[100_000:])
        await until(lambda: all(a.streams and a.streams[0].finished for a in (here, there, behind)))
        assert here.got == there.got == behind.got == [big]
        # Nobody but its Edge knows of the Stub.
        assert stub.relay.id not in set(edge1.relay.nodes) | set(via2.relay.nodes)


@on_loop
async def test_a_stub_publishes_through_its_edge() -> None:
    async with lab() as net:
        edge1 = await net.relay("edge")
        edge2 = await net.relay("edge", edge1)
        stub = await net.relay("stub", edge1, edge2)
        publisher, app = App(), App()
        announce(stub, publisher, "home")
        subscribe(edge2, app, "home/camera")
        await until(lambda: bool(publisher.asked))
        await until(lambda: len(edge1.relay.peers) == 2 and len(edge2.relay.peers) == 2)
        publish(stub, publisher, "home/camera", 1, b"one picture")
        await until(lambda: bool(app.streams) and app.streams[0].finished)
        publish(stub, publisher, "home/camera", 2, b"another")
        await until(lambda: len(app.streams) == 2 and app.streams[1].finished)
        assert app.got == [b"one picture", b"another"]


@on_loop
async def test_control_servers_know_everything_and_carry_nothing() -> None:
    async with lab() as net:
        control1 = await net.relay("control")
        control2 = await net.relay("control", peering__control=[str(control1.peer_address)])
        servers = [str(c.peer_address) for c in (control1, control2)]
        edge1 = await net.relay("edge", peering__control=servers)
        edge2 = await net.relay(
            "edge", peering__control=servers, peering__data=[str(edge1.peer_address)]
        )
        publisher, app = App(), App()
        announce(edge1, publisher, "demo")
        subscribe(edge2, app, "demo/t")
        await until(lambda: bool(publisher.asked) and way(edge1, edge2.relay.id) is not None)
        publish(edge1, publisher, "demo/t", 1, b"first")
        await until(lambda: app.got == [b"first"])
        await control1.close()
        await until(lambda: control1.relay.id not in edge1.relay.peers)
        later = App()
        subscribe(edge2, later, "demo/u")
        await until(lambda: len(publisher.asked) == 2)
        publish(edge1, publisher, "demo/t", 2, b"second")
        publish(edge1, publisher, "demo/u", 3, b"third")
        await until(lambda: app.got == [b"first", b"second"] and later.got == [b"third"])
        assert len(control2.relay.subscribes) == 2
        assert control2.relay.data.counters.streams == 0


@on_loop
async def test_a_lost_via_is_routed_around() -> None:
    async with lab() as net:
        via1 = await net.relay("via", relay__reflect=True)
        via2 = await net.relay("via", relay__reflect=True)
        edge1 = await net.relay("edge", via1, via2)
        edge2 = await net.relay("edge", via1, via2)
        publisher, app = App(), App()
        announce(edge1, publisher, "demo")
        subscribe(edge2, app, "demo/t")
        await until(lambda: bool(publisher.asked))
        await until(lambda: len(edge1.relay.nodes.candidates(edge2.relay.id)) == 2)
        publish(edge1, publisher, "demo/t", 1, b"by one via")
        await until(lambda: app.got == [b"by one via"])
        choice = edge1.relay.nodes.best(edge2.relay.id)
        assert choice is not None
        used = via1 if choice.path.peer_id == via1.relay.id else via2
        await used.close()
        await until(lambda: used.relay.id not in edge1.relay.peers)
        publish(edge1, publisher, "demo/t", 2, b"by the other")
        await until(lambda: app.got == [b"by one via", b"by the other"])


@on_loop
async def test_parallel_connections_are_used_side_by_side() -> None:
    async with lab() as net:
        edge1 = await net.relay("edge")
        edge2 = await net.relay("edge", edge1, peering__connections=3)
        await until(lambda: edge2.relay.id in edge1.relay.peers)
        await until(lambda: len(edge1.relay.peers[edge2.relay.id].links) == 3)
        publisher, app = App(), App()
        announce(edge1, publisher, "demo")
        for number in range(30):
            subscribe(edge2, app, f"demo/{number}")
        await until(lambda: len(publisher.asked) == 30)
        for number in range(30):
            publish(edge1, publisher, f"demo/{number}", number, f"{number}".encode())
        await until(lambda: len(app.got) == 30 and all(s.finished for s in app.streams))
        assert sorted(int(data) for data in app.got) == list(range(30))
        links = edge1.relay.peers[edge2.relay.id].links.values()
        carried = [link.link.egress.counters.streams for link in links]  # type: ignore[attr-defined]
        assert sum(carried) == 30
        assert min(carried) > 0


@on_loop
async def test_a_stopping_relay_withdraws_and_says_goodbye() -> None:
    async with lab() as net:
        edge1 = await net.relay("edge")
        edge2 = await net.relay("edge", edge1)
        app = App()
        subscribe(edge2, app, "demo/t")
        await until(lambda: len(edge1.relay.subscribes) == 1)
        await edge2.close()
        await until(lambda: len(edge1.relay.subscribes) == 0)
        assert edge1.relay.sizes()["peers"] == 0


@on_loop
async def test_a_stopping_relay_lets_its_peers_move_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with lab() as net:
        edge1 = await net.relay("edge")
        edge2 = await net.relay("edge", edge1, relay__drain_s=0.3)
        await until(lambda: edge2.relay.id in edge1.relay.peers)
        await until(lambda: edge1.relay.id in edge2.relay.peers)
        assert "node 9:1 (edge) for both" in caplog.text
        closing = asyncio.ensure_future(edge2.close())
        await until(lambda: "peer 9:2 leaves" in caplog.text)
        assert edge2.relay.id in edge1.relay.peers  # still there, for the grace
        await closing
        await until(lambda: edge2.relay.id not in edge1.relay.peers)
        assert "no longer a peer" not in caplog.text


@on_loop
async def test_configuration_is_read_again(tmp_path: Path) -> None:
    renewed = self_signed(["127.0.0.1"])
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.write_bytes(renewed.certificate)
    key.write_bytes(renewed.key)
    async with lab() as net:
        edge1 = await net.relay("edge")
        edge2 = await net.relay("edge", edge1)
        edge3 = await net.relay("edge")
        await until(lambda: edge2.relay.id in edge1.relay.peers)
        changed = {
            "peering.peers": [str(edge3.peer_address)],
            "tls.certificate": str(certificate),
            "tls.key": str(key),
        }
        edge2.reload(override(edge2.config, changed, "test"))
        await until(lambda: edge2.relay.id in edge3.relay.peers)
        await until(lambda: edge3.relay.id in edge2.relay.peers)
        await until(lambda: edge2.relay.id not in edge1.relay.peers)
        assert edge2.identity.fingerprint == renewed.fingerprint
        key.unlink()
        with pytest.raises(ConfigError, match="cannot be read"):
            edge2.reload(edge2.config)
        assert edge3.relay.id in edge2.relay.peers


@on_loop
async def test_a_relay_outlives_a_timer_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    async with lab() as net:
        edge = await net.relay("edge")
        done: list[float] = []

        def fail(now: float) -> None:
            raise KeyError("a defect of ours")

        edge.relay._timers.at(0.0, fail)
        edge.relay._timers.at(0.0, done.append)
        edge._arm()
        await until(lambda: bool(done))
        assert "a defect of ours" in caplog.text


def _key(track: str) -> TrackKey:
    return hash_track(track_name(track)).full_name_hash
