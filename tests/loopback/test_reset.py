"""A relay that was killed and started again tells those who still send to it."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

from laps import places
from laps.config import QuicConfig
from laps.lab.processes import free_ports
from laps.net.quic import Endpoint
from laps.net.tls import Trust
from laps.wire.moqt.dialect import DIALECTS
from support.engines import Recorder
from support.loopback import Listener, dial, dialling, listening, on_loop, until
from support.programs import relay_process

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


@on_loop
async def test_reset_tells_the_peers_of_an_endpoint_that_was_started_again() -> None:
    secret = os.urandom(32)
    before = Listener(reset_secret=secret)
    async with dialling() as here:
        connection, saw = await dial(here, before.port)
        port = before.port
        before.endpoint.abandon()
        after = Listener(port=port, reset_secret=secret)
        try:
            connection.ping()
            close = await connection.wait_closed()
            assert close.by_peer
            assert "stateless reset" in close.reason
            assert saw.closes == [close]
            assert after.endpoint.counters.resets_sent >= here.counters.resets_received >= 1
            again, _ = await dial(here, port)
            assert again.established
            assert here.connections == (again,)
        finally:
            await after.endpoint.close(0, "")


@on_loop
async def test_reset_under_another_secret_harms_nobody() -> None:
    before = Listener()
    async with dialling() as here:
        connection, saw = await dial(here, before.port)
        port = before.port
        before.endpoint.abandon()
        after = Listener(port=port)
        try:
            connection.ping()
            await until(lambda: after.endpoint.counters.resets_sent >= 2)
            await until(lambda: here.counters.unroutable_datagrams >= 1)
            assert here.counters.resets_received == 0
            assert not saw.closes
            again, _ = await dial(here, port)
            assert again.established
        finally:
            await after.endpoint.close(0, "")


@on_loop
async def test_reset_of_somebody_else_ends_nothing() -> None:
    """Who has seen neither a token nor a connection id cannot do more than guess."""
    async with listening() as there, dialling() as here:
        connection, saw = await dial(here, there.port)
        token = connection.engine.peer_reset_token
        assert token is not None
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(b"\x40" + os.urandom(20) + token, here.address)
            stranger.sendto(b"\x40" + os.urandom(36), here.address)
            await until(lambda: here.counters.unroutable_datagrams == 2)
        assert connection.established
        assert not saw.closes


@on_loop
async def test_only_an_endpoint_that_takes_connections_resets() -> None:
    async with listening() as there, dialling() as here:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(5)
            sock.bind(("127.0.0.1", 0))
            for endpoint in (here, there.endpoint):
                sock.sendto(b"\xc0" + os.urandom(99), endpoint.address)
                sock.sendto(b"\x40" + os.urandom(20), endpoint.address)
                sock.sendto(b"\x40" + os.urandom(99), endpoint.address)
            await until(lambda: there.endpoint.counters.resets_sent == 1)
            answer, addr = sock.recvfrom(100)
            assert (len(answer), addr) == (42, there.endpoint.address)
            assert here.counters.resets_sent == 0


@on_loop
async def test_reset_comes_from_a_relay_process_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its certificate is made at every start, and its secret is kept."""
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "place"))
    with ExitStack() as stack:
        where = ("--listen", f"127.0.0.1:{free_ports(1)[0]}")
        first = stack.enter_context(relay_process(tmp_path / "first.log", *where))
        here = Endpoint.dialler("127.0.0.1", QuicConfig())
        alpn = [dialect.alpn for dialect in DIALECTS.values()]
        host, port = first.clients.split(":")
        trust = Trust(fingerprint=first.sha256)
        client = await here.connect(host, int(port), alpn, trust, lambda _: Recorder())
        first.kill()
        stack.enter_context(relay_process(tmp_path / "second.log", *where))
        client.ping()
        close = await client.wait_closed()
        assert "stateless reset" in close.reason
        await here.close(0, "")
