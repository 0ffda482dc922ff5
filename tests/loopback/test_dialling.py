"""How peers are dialled: from which ports, by which addresses, and whom a relay takes them for."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from laps.config import Config, PeeringConfig, override
from laps.net import diallers
from laps.net import runner as runner_module
from laps.net.diallers import Diallers, address_towards, trust_of
from laps.net.quic import Endpoint
from laps.net.runner import Runner
from laps.types import Address, DataDirection
from support.certificates import CertificateAuthority
from support.engines import Recorder
from support.loopback import listening, on_loop, until
from support.relays import App
from support.runners import announce, lab, publish, subscribe

if TYPE_CHECKING:
    from pathlib import Path

    from laps.net.connection import Connection


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "REDIAL_FIRST_S", 0.02)


# -- ports -----------------------------------------------------------------------------------------


@on_loop
async def test_parallel_connections_leave_from_ports_of_their_own() -> None:
    async with lab() as net:
        edge1 = await net.relay("edge")
        edge2 = await net.relay("edge", edge1, peering__connections=4)
        await until(lambda: len(edge1.links) == 4)
        await until(lambda: edge2.relay.id in edge1.relay.peers)
        ports = {link.connection.remote[1] for link in edge1.links.values()}
        assert len(ports) == 4
        assert len(edge2.endpoints()) == 2 + 4


# -- addresses -------------------------------------------------------------------------------------


@on_loop
async def test_a_name_with_addresses_of_both_kinds_is_dialled_by_the_one_that_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def families(_: Address) -> list[socket.AddressFamily]:
        return [socket.AF_INET, socket.AF_INET6]

    async def resolve(endpoint: Endpoint, _: str, port: int) -> tuple[str, int]:
        return ("::1" if len(endpoint.address) > 2 else "127.0.0.1"), port

    monkeypatch.setattr(diallers, "_families", families)
    monkeypatch.setattr(Endpoint, "_resolve", resolve)
    async with listening(host="::1") as there:
        # There is nobody at 127.0.0.1 of this port: the other family is tried.
        dialling = Diallers(Config())
        made: list[Connection] = []

        def accept(connection: Connection) -> Recorder:
            made.append(connection)
            return Recorder()

        await dialling.connect(Address("localhost", there.port), 0, ("laps",), accept)
        assert len(made) == 1
        assert ":" in made[0].remote[0]
        for endpoint in dialling.endpoints:
            await endpoint.close(0, "")


@on_loop
async def test_a_name_is_dialled_by_whatever_addresses_it_has() -> None:
    assert await diallers._families(Address("127.0.0.1", 1)) == [socket.AF_INET]
    assert await diallers._families(Address("::1", 1)) == [socket.AF_INET6]
    assert await diallers._families(Address("localhost", 1))


@on_loop
async def test_a_wildcard_is_told_to_nobody() -> None:
    values = {
        "node.id": "9:9",
        "clients.listen": "127.0.0.1:0",
        "peering.listen": "0.0.0.0:0",
        "peering.require_auth": False,
        "peering.peers": ["127.0.0.1:9"],
    }
    runner = Runner(override(Config(), values, "test"))
    try:
        assert runner.peer_address is not None
        assert runner.relay.self_info.contact == f"127.0.0.1:{runner.peer_address.port}"
    finally:
        await runner.close()


@on_loop
async def test_a_relay_without_a_way_out_tells_no_contact_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runner_module, "address_towards", lambda *_, **__: None)
    values = {
        "clients.listen": "127.0.0.1:0",
        "peering.listen": "0.0.0.0:0",
        "peering.require_auth": False,
    }
    runner = Runner(override(Config(), values, "test"))
    try:
        assert runner.relay.self_info.contact == ""
        assert "set node.contact" in caplog.text
        assert "everybody who reaches 0.0.0.0:0 is a peer: set peering.keys" in caplog.text
    finally:
        await runner.close()


def test_the_address_towards_a_peer_is_one_that_can_be_dialled() -> None:
    assert address_towards([Address("127.0.0.1", 1)], ipv6=False) == "127.0.0.1"
    assert address_towards([Address("relay.example", 1), Address("127.0.0.1", 1)], ipv6=True) == (
        "127.0.0.1"
    )


# -- trust -----------------------------------------------------------------------------------------


def test_a_pin_goes_before_authorities_and_those_before_anyone(tmp_path: Path) -> None:
    here, there = Address("127.0.0.1", 1), Address("192.0.2.1", 1)
    peering = PeeringConfig(authorities=tmp_path, fingerprints=((there, "ab" * 32),))
    config = Config(peering=peering)
    assert trust_of(there, config).fingerprint == "ab" * 32
    trust = trust_of(here, config)
    assert (trust.fingerprint, trust.anyone, trust.authorities) == (None, False, tmp_path)


@on_loop
async def test_a_peer_is_known_by_the_fingerprint_of_its_certificate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with lab() as net:
        edge1 = await net.relay("edge")
        pin = {str(edge1.peer_address): edge1.identity.fingerprint}
        edge2 = await net.relay("edge", edge1, peering__fingerprints=pin)
        await until(lambda: edge2.relay.id in edge1.relay.peers)
        wrong = {str(edge1.peer_address): "ab" * 32}
        edge3 = await net.relay("edge", edge1, peering__fingerprints=wrong)
        await until(lambda: "Fingerprints did not match" in caplog.text)
        assert edge3.relay.id not in edge1.relay.peers


@on_loop
async def test_peers_are_known_by_a_private_authority(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = CertificateAuthority(tmp_path)
    async with lab() as net:
        known = await net.relay("edge", **authority.certificate())
        unknown = await net.relay("edge")
        trusting = {"peering__authorities": str(authority.path)}
        edge = await net.relay("edge", known, unknown, **trusting)
        await until(lambda: edge.relay.id in known.relay.peers)
        await until(lambda: "certificate" in caplog.text)
        assert edge.relay.id not in unknown.relay.peers


# -- direction -------------------------------------------------------------------------------------


@on_loop
async def test_data_goes_out_only_where_the_configuration_says_so() -> None:
    async with lab() as net:
        sink = await net.relay("edge")
        origin = await net.relay("edge", sink, peering__direction="out")
        await until(lambda: origin.relay.id in sink.relay.peers)
        (link,) = sink.relay.peers[origin.relay.id].links.values()
        assert link.direction is DataDirection.UNIDIRECTIONAL
        assert (link.sends_data, link.receives_data) == (False, True)
        publisher, app = App(), App()
        announce(origin, publisher, "demo")
        subscribe(sink, app, "demo/t")
        await until(lambda: len(publisher.asked) == 1)
        publish(origin, publisher, "demo/t", 0, b"out")
        await until(lambda: app.got == [b"out"])
