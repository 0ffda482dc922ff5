"""Relays that probe each other on real sockets, and what that costs the other side."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aioquic.asyncio.server import serve
from aioquic.quic.configuration import QuicConfiguration

from laps.config import override
from laps.net import quic
from laps.net.prober import Prober
from laps.relay.probing import TRAIN, Train
from laps.types import NodeId
from laps.wire.probe import PROBE_BYTES, decode_answer, encode_probe
from support.certificates import CertificateAuthority
from support.loopback import dial, dialling, listening, on_loop, until
from support.runners import lab

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from laps.net.runner import Runner
    from laps.types import NodeMetrics
    from support.runners import Lab

KEY = bytes(32)
NEW_YORK = {"node__latitude": 40.71, "node__longitude": -74.01}
LONDON = {"node__latitude": 51.51, "node__longitude": -0.13}

FAST = {"probing__rate": 100.0}


@asynccontextmanager
async def row(lab: Lab, **settings: object) -> AsyncIterator[tuple[Runner, Runner, Runner]]:
    """Two relays that know of each other by a third one, and are no peers."""
    middle = await lab.relay("via", **FAST)
    left = await lab.relay("edge", middle, **FAST, **settings)
    right = await lab.relay("edge", middle, **FAST, **settings)
    yield left, middle, right


@on_loop
async def test_probing_a_relay_that_is_no_peer_measures_and_makes_no_session() -> None:
    async with lab() as made, row(made) as (left, middle, right):
        probing = left.relay.probing
        await until(lambda: probing.of(right.relay.id) is not None)
        found = probing.of(right.relay.id)
        assert found is not None
        assert 0 < found.rtt_us < 500_000
        assert found.loss == 0
        assert found.bandwidth_bps > 0
        assert probing.of(middle.relay.id) is None, "a peer is known by its link"
        there = right.endpoints()[1]
        assert there.counters.version_negotiations_sent >= TRAIN
        assert there.counters.accepted == 0
        assert there.half_open == 0
        assert [*right.relay.peers] == [middle.relay.id]
        assert left.prober.counters.probe_answers_forged == 0

        # Others hear of it, and of where the relay believes to be.
        def ours() -> NodeMetrics | None:
            return middle.relay.extensions.metrics.get(left.relay.id)

        def is_told() -> bool:
            return (said := ours()) is not None and bool(said.candidates)

        await until(is_told)
        said = ours()
        assert said is not None
        assert said.candidates[0].node_id == right.relay.id
        assert said.coordinates is not None
        round_trip = middle.relay.places.round_trip(left.relay.id, right.relay.id)
        assert round_trip is not None
        assert 0 < round_trip < 0.5


@on_loop
async def test_probing_goes_by_a_path_that_is_impaired_as_connections_do() -> None:
    async with lab() as made:
        middle = await made.relay("via", **FAST)
        right = await made.relay("edge", middle, **FAST)
        left = await made.relay(
            "edge",
            middle,
            **FAST,
            impairment__peers={str(right.peer_address): {"delay_ms": 30.0}},
        )
        probing = left.relay.probing
        await until(lambda: probing.of(right.relay.id) is not None)
        found = probing.of(right.relay.id)
        assert found is not None
        assert found.rtt_us > 55_000


@on_loop
async def test_probing_can_be_switched_off_and_on_by_reading_the_configuration_again() -> None:
    async with lab() as made, row(made, probing__enabled=False) as (left, middle, right):
        await until(lambda: right.relay.id in left.relay.nodes)
        assert middle.relay.probing.counters.probes_sent == 0
        assert left.relay.probing.deadline() is None
        on = override(left.config, {"probing.enabled": True}, "test")
        left.reload(on)
        await until(lambda: left.relay.probing.of(right.relay.id) is not None)
        left.reload(override(on, {"probing.enabled": False}, "test"))
        assert left.relay.probing.of(right.relay.id) is None


@on_loop
async def test_probing_leaves_stubs_alone_and_stubs_probe_nobody() -> None:
    async with lab() as made, row(made) as (left, _, right):
        stub = await made.relay("stub", right, **FAST)
        await until(lambda: stub.relay.id in right.relay.peers)
        await until(lambda: left.relay.probing.of(right.relay.id) is not None)
        assert [it.node_id for it in left.relay.probing] == [right.relay.id]
        assert stub.relay.probing.deadline() is None
        assert stub.relay.probing.counters.probes_sent == 0


@on_loop
async def test_a_relay_that_says_it_is_far_away_is_reported() -> None:
    async with lab() as made:
        middle = await made.relay("via", **FAST)
        left = await made.relay("edge", middle, **FAST, **NEW_YORK)
        await made.relay("edge", middle, **FAST, **LONDON)
        await until(lambda: left.relay.probing.counters.place_doubts > 0)
        events = [it.event for it in left.relay.journal.recent()]
        event = next(it for it in events if it.name == "place_doubted")
        assert event.subject == "9:2 9:3"
        assert "light needs 37.2 ms for the 5,5" in event.reason


@on_loop
async def test_probing_a_foreign_quic_server_measures_and_makes_no_session(
    tmp_path: Path,
) -> None:
    certificate, key = CertificateAuthority(tmp_path).files
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["laps"])
    configuration.load_cert_chain(certificate, key)
    made: list[object] = []
    server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=made.append)
    try:
        port = server._transport.get_extra_info("sockname")[1]  # type: ignore[union-attr]
        async with dialling() as here:
            answers: list[int | None] = []
            here.on_negotiation = lambda data, *_: answers.append(decode_answer(data, KEY))
            assert here.send_bare([encode_probe(7, KEY)], ("127.0.0.1", port))
            await until(lambda: bool(answers))
            assert answers == [7]
            assert made == []
    finally:
        server.close()


@on_loop
async def test_probes_are_answered_without_state_and_with_less_than_came() -> None:
    async with listening() as there:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.connect(("127.0.0.1", there.port))
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(sock, encode_probe(1, KEY)[: PROBE_BYTES - 1])
            await loop.sock_sendall(sock, encode_probe(2, KEY))
            answer = await loop.sock_recv(sock, 2000)
        assert decode_answer(answer, KEY) == 2, "what is too short is not answered"
        assert len(answer) * 10 < PROBE_BYTES
        assert there.endpoint.counters.accepted == 0
        assert there.endpoint.half_open == 0
        assert not there.connections


@on_loop
async def test_probes_that_come_in_a_flood_are_not_all_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quic, "NEGOTIATIONS_A_SECOND", 20)
    async with listening() as there, dialling() as here:
        counters = there.endpoint.counters
        flood = [encode_probe(number, KEY) for number in range(100)]
        here.send_bare(flood, ("127.0.0.1", there.port))
        await until(
            lambda: (
                counters.version_negotiations_sent + counters.version_negotiations_refused == 100
            )
        )
        assert 20 <= counters.version_negotiations_sent < 60
        # Whoever comes to stay is let in all the same.
        connection, _ = await dial(here, there.port)
        assert connection.established


class _Probing:
    """What a relay would have sent."""

    def __init__(self) -> None:
        self.outgoing: list[Train] = []
        self.sent_trains: list[Train] = []
        self.answers: list[int] = []

    def sent(self, train: Train, now: float) -> None:
        assert now <= time.monotonic()
        self.sent_trains.append(train)

    def answered(self, number: int, now: float) -> bool:
        self.answers.append(number)
        return True


@on_loop
async def test_probe_answers_from_elsewhere_count_as_forged() -> None:
    async with lab() as made:
        runner = await made.relay("edge")
        probing = _Probing()
        prober = Prober(probing, runner._diallers, lambda: None)  # type: ignore[arg-type]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
            there.bind(("127.0.0.1", 0))
            there.settimeout(5)
            port = there.getsockname()[1]
            for contact in ("no address", "0.0.0.0:5", "224.0.0.1:5"):
                prober._send(Train(NodeId(1), contact, 0, TRAIN))
            assert prober.counters.probes_unsendable == 3
            prober._send(Train(NodeId(1), f"127.0.0.1:{port}", 5, 1))
            assert len(probing.sent_trains) == 1
            probe, here = there.recvfrom(2000)
            answer = b"\xc0" + bytes(4) + probe[22:39] + probe[5:22] + b"\0\0\0\1"
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                other.sendto(answer, here)
                await until(lambda: prober.counters.probe_answers_forged == 1)
            there.sendto(answer, here)
            await until(lambda: probing.answers == [5])
        prober.close()


@on_loop
async def test_probing_a_name_waits_until_it_is_known() -> None:
    async with lab() as made:
        runner = await made.relay("edge")
        probing = _Probing()
        prober = Prober(probing, runner._diallers, lambda: None)  # type: ignore[arg-type]
        port = runner.peer_address.port if runner.peer_address is not None else 0
        train = Train(NodeId(1), f"localhost:{port}", 5, 1)
        prober._send(train)
        assert probing.sent_trains == []
        await until(lambda: not prober._asking)
        prober._send(train)
        assert probing.sent_trains == [train]
        prober.close()
