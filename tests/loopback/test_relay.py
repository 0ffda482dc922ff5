"""A relay on real sockets: introductions, and peers that send garbage."""

from __future__ import annotations

import random
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from laps.config import ClientsConfig, Config, PeeringConfig, RelayConfig, override
from laps.errors import CloseCode
from laps.net import link as link_module
from laps.net import runner as runner_module
from laps.net.diallers import trust_of
from laps.net.link import PEERING_ALPN
from laps.net.runner import Runner, node_id_of_place
from laps.net.tls import Trust
from laps.types import (
    Address,
    DataDirection,
    NodeId,
    NodeInfo,
    NodeType,
    PeerMode,
    SnsId,
    TrackKey,
    TrackName,
)
from laps.wire.control import decode, encode
from laps.wire.objects import encode_datagram_header, encode_new_stream_header
from laps.wire.peering import Connect, ConnectResponse, NodeInfoAdv, ResponseCode
from support.engines import Recorder
from support.loopback import dialling, limits, listening, on_loop, until
from support.relays import App

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from laps.net.connection import Connection


def address_of(runner: Runner) -> Address:
    assert runner.peer_address is not None
    return runner.peer_address


def port_of(runner: Runner) -> int:
    return address_of(runner).port


def peers(runner: Runner) -> set[NodeId]:
    return {node for node, peer in runner.relay.peers.items() if peer.control is not None}


OTHER = NodeInfo(NodeId(77), NodeType.EDGE, "", 0.0, 0.0, ())
CONNECT = encode(Connect(PeerMode.BOTH, DataDirection.BIDIRECTIONAL, OTHER))


def config(port: int = 0, *dialled: Address, **quic: float) -> Config:
    peering = PeeringConfig(listen=Address("127.0.0.1", port), peers=dialled)
    return Config(
        peering=peering,
        clients=ClientsConfig(listen=Address("127.0.0.1", 0)),
        relay=RelayConfig(drain_s=0.05),
        quic=limits(**quic),
    )


@asynccontextmanager
async def relaying(settings: Config) -> AsyncIterator[Runner]:
    runner = Runner(settings)
    try:
        yield runner
    finally:
        await runner.close()


@asynccontextmanager
async def peering(runner: Runner) -> AsyncIterator[tuple[Connection, Recorder]]:
    saw = Recorder()
    async with dialling() as endpoint:
        connection = await endpoint.connect(
            "127.0.0.1", port_of(runner), [PEERING_ALPN], Trust(anyone=True), lambda _: saw
        )
        yield connection, saw


@on_loop
async def test_sequence_numbers_are_the_time_of_day() -> None:
    track = TrackName((b"a",), b"x")
    async with relaying(config()) as runner:
        before = int(time.time())
        runner.relay.subscribe(App(), track, b"", time.monotonic())
        after = int(time.time())
        (info,) = runner.relay.subscribes
    # Either clock may be within its second.
    assert info.sequence in {second & 0xFFFF for second in range(before - 1, after + 2)}


@on_loop
async def test_a_peer_is_introduced() -> None:
    async with relaying(config()) as relay, peering(relay) as (connection, saw):
        control = connection.open_stream(unidirectional=False)
        connection.write(control, CONNECT)
        await until(lambda: control in saw.data)
        decoded = decode(bytes(saw.data[control]))
        assert decoded is not None
        assert decoded[0] == ConnectResponse(ResponseCode.OK, relay.relay.self_info)


@on_loop
async def test_relays_peer_and_come_back_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "REDIAL_FIRST_S", 0.01)

    async with relaying(config()) as first, relaying(config(0, address_of(first))) as second:
        await until(lambda: bool(peers(second)) and bool(peers(first)))
        assert peers(second) == {first.relay.id}
        assert peers(first) == {second.relay.id}
        port = port_of(first)
        await first.close()
        await until(lambda: not peers(second))
        async with relaying(config(port)) as again:
            await until(lambda: bool(peers(second)))
            assert peers(again) == {second.relay.id}


GARBAGE = random.Random(9).randbytes(4000)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (encode(NodeInfoAdv(OTHER)), 32),
        (b"\x01\x00\x63\x00\x00\x00\x00", 34),
        (b"\x07" + GARBAGE, 35),
        (CONNECT + b"\x01\x00\x03\x00\x00\x00\x00", 34),
        (CONNECT + b"\x01\x00\x04\x7f\xff\xff\xff", 35),
        (CONNECT + CONNECT, 34),
        (CONNECT + encode(NodeInfoAdv(OTHER))[:7] + bytes(60), 35),
    ],
)
@on_loop
async def test_garbage_on_the_control_stream_closes_with_the_right_code(
    words: bytes, code: int
) -> None:
    async with (
        relaying(config()) as relay,
        peering(relay) as (honest, saw),
        peering(relay) as (hostile, _),
    ):
        hostile.write(hostile.open_stream(unidirectional=False), words)
        close = await hostile.wait_closed()
        assert (close.code, close.application, close.by_peer) == (code, True, True)
        control = honest.open_stream(unidirectional=False)
        honest.write(control, CONNECT)
        await until(lambda: control in saw.data)


@on_loop
async def test_garbage_on_a_data_stream_ends_that_stream_alone() -> None:
    async with relaying(config()) as relay, peering(relay) as (connection, saw):
        control = connection.open_stream(unidirectional=False)
        connection.write(control, CONNECT)
        await until(lambda: control in saw.data)
        for start, code in ((b"\x04\x01\x01x", 36), (GARBAGE, 36)):
            stream = connection.open_stream(unidirectional=True)
            connection.write(stream, start)
            await until(lambda stream=stream, code=code: (stream, code) in saw.stops)  # type: ignore[misc]
        good = connection.open_stream(unidirectional=True)
        connection.write(
            good, encode_new_stream_header(SnsId(1), TrackKey(2), 3, 0, 4) + b"data", fin=True
        )
        await until(lambda: relay.relay.data.counters.refused_streams == 2)
        await until(lambda: len(relay.relay.data) == 0)
        assert connection.established


@on_loop
async def test_data_and_datagrams_ahead_of_connect_close_with_32() -> None:
    async with relaying(config()) as relay:
        async with peering(relay) as (connection, _):
            connection.write(connection.open_stream(unidirectional=True), b"x")
            assert (await connection.wait_closed()).code == 32
        async with peering(relay) as (connection, _):
            connection.send_datagram(encode_datagram_header(SnsId(1), TrackKey(2), 0))
            assert (await connection.wait_closed()).code == 32


@on_loop
async def test_a_peer_that_says_nothing_is_not_kept() -> None:
    settings = config(handshake_timeout_s=0.2)
    async with relaying(settings) as relay, peering(relay) as (connection, _):
        close = await connection.wait_closed()
        assert (close.code, close.reason) == (32, "nothing was said in time")


@on_loop
async def test_an_endless_message_costs_bounded_memory() -> None:
    async with relaying(config()) as relay, peering(relay) as (connection, _):
        control = connection.open_stream(unidirectional=False)
        connection.write(control, CONNECT + b"\x01\x00\x0a\x00\x10\x00\x00")  # a megabyte of nodes
        await until(lambda: bool(peers(relay)))
        (peer,) = relay.relay.peers.values()
        assert peer.control is not None
        session = peer.control.session
        connection.write(control, bytes((1 << 20) - 1))
        await until(lambda: session.unfinished_bytes >= 1 << 20)
        connection.write(control, bytes(1))  # the last one: an SNS id of 0
        assert (await connection.wait_closed()).code == 35


def test_whom_a_relay_trusts_and_what_it_is_called() -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9"):
        assert trust_of(Address(host, 1), Config()).anyone
    for host in ("192.0.2.1", "relay.example", "2001:db8::1"):
        assert not trust_of(Address(host, 1), Config()).anyone
    assert node_id_of_place("a", "127.0.0.1:1") == node_id_of_place("a", "127.0.0.1:1")
    assert node_id_of_place("a", "127.0.0.1:1") != node_id_of_place("b", "127.0.0.1:1")
    assert node_id_of_place("a", "127.0.0.1:1") != node_id_of_place("a", "127.0.0.1:2")


@on_loop
async def test_a_refused_peer_is_told_why_before_it_is_closed() -> None:
    async with relaying(config()) as relay, peering(relay) as (connection, saw):
        control = connection.open_stream(unidirectional=False)
        impostor = structs.replace(OTHER, id=relay.relay.id)
        connect = Connect(PeerMode.BOTH, DataDirection.BIDIRECTIONAL, impostor)
        connection.write(control, encode(connect))
        close = await connection.wait_closed()
        assert (close.code, close.by_peer) == (1, True)
        decoded = decode(bytes(saw.data[control]))
        assert decoded is not None
        assert decoded[0] == ConnectResponse(ResponseCode.CONNECTION_ERROR, None)


@on_loop
async def test_a_peer_that_was_restarted_is_heard_again_within_a_second_or_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both dial; one falls silent and comes back, and the other's link to its past is found out."""
    monkeypatch.setattr(runner_module, "REDIAL_FIRST_S", 0.01)
    monkeypatch.setattr(link_module, "PROBE_S", 0.1)
    async with relaying(config()) as first:
        second = Runner(config())
        port, node_id = port_of(second), second.relay.id
        first.reload(config(port_of(first), Address("127.0.0.1", port)))
        await until(lambda: node_id in peers(first))
        lost = first.relay.peers[node_id].control
        assert second._peering is not None
        assert second._client_endpoint is not None
        second._client_endpoint.abandon()
        second._peering.abandon()  # it is gone without a word
        async with relaying(config(port, address_of(first))) as again:
            await until(lambda: first.relay.id in peers(again))
            await until(lambda: node_id in peers(first))
            await until(lambda: first.relay.peers[node_id].control is not lost)
            assert peers(first) == {again.relay.id}
        for task in (*second._kept.values(), second._renewal):
            if task is not None:
                task.cancel()
        second._measuring.cancel()


@on_loop
async def test_a_peer_that_does_not_answer_connect_is_closed_with_33_and_dialled_again() -> None:
    async with listening(alpn=[PEERING_ALPN]) as silent:
        address = Address("127.0.0.1", silent.port)
        async with relaying(config(0, address, handshake_timeout_s=0.2)):
            await until(lambda: len(silent.connections) >= 2)
            await until(lambda: bool(silent.seen[0].closes))
            assert silent.seen[0].closes[0].code == CloseCode.CONNECT_RESPONSE_NOT_RECEIVED


@pytest.mark.parametrize("how", ["stop", "reset", "fin"])
@on_loop
async def test_a_control_stream_that_dies_is_noticed(how: str) -> None:
    async with (
        listening(alpn=[PEERING_ALPN]) as other,
        relaying(config(0, Address("127.0.0.1", other.port))) as runner,
    ):
        await until(lambda: bool(other.seen and other.seen[0].data))
        connection = other.connections[0]
        (control,) = other.seen[0].data
        answer = encode(ConnectResponse(ResponseCode.OK, OTHER))
        connection.write(control, answer, fin=how == "fin")
        await until(lambda: how == "fin" or peers(runner) == {OTHER.id})
        if how == "stop":
            connection.stop_stream(control, 0)
        elif how == "reset":
            connection.reset_stream(control, 0)
        await until(lambda: len(other.connections) >= 2)
        await until(lambda: bool(other.seen[0].closes))
        assert other.seen[0].closes[0].code == CloseCode.GRACEFUL


@on_loop
async def test_two_stubs_of_one_host_have_different_ids() -> None:
    stub = override(config(), {"node.type": "stub"}, "test")
    async with relaying(stub) as first, relaying(stub) as second:
        assert first.relay.id != second.relay.id
