"""Two engines joined in memory. Each mending of qh3 has a test that fails without it."""

from __future__ import annotations

import random
from functools import cache
from itertools import product
from typing import Any

import msgspec
import pytest
from qh3._hazmat import QuicConnectionCore
from qh3.quic.configuration import QuicConfiguration
from qh3.quic.connection import QuicConnection

from laps.config import QuicConfig
from laps.errors import (
    ConnectionClosed,
    DatagramTooLarge,
    InvalidEncoding,
    SendBufferFull,
    StreamLimitReached,
)
from laps.net.engine import NO_APPLICATION_PROTOCOL, PAUSED_SLACK_BYTES, Engine
from laps.net.handshake import Bridge
from support.engines import CLIENT, SERVER, Pair, Recorder, configuration, identity


def limits(**changes: Any) -> QuicConfig:
    return msgspec.structs.replace(QuicConfig(), **changes)


def test_the_server_prefers_among_the_protocols_both_speak() -> None:
    pair = Pair(alpn=("laps", "laps-x1", "other"), server_alpn=("laps-x1", "laps"))
    client, server = pair.connect()
    assert (client.alpn, server.alpn) == ("laps-x1", "laps-x1")
    assert client.peer_certificate() is not None
    assert server.peer_certificate() is None


def test_streams_carry_data_both_ways() -> None:
    pair = Pair()
    client, server = pair.connect()
    there = client.open_stream(unidirectional=True)
    both = client.open_stream(unidirectional=False)
    assert client.write(there, b"one way", fin=True)
    assert client.write(both, memoryview(b"question"))
    pair.run(lambda: both in pair.server_saw.data)
    assert server.write(both, bytearray(b"answer"), fin=True)
    pair.run(lambda: both in pair.client_saw.finished)
    assert pair.server_saw.data[there] == b"one way"
    assert pair.server_saw.data[both] == b"question"
    assert pair.client_saw.data[both] == b"answer"
    assert pair.server_saw.finished == {there}


# -- the zero-length connection id ---------------------------------------------------------------


def test_a_client_without_a_connection_id_is_served() -> None:
    pair = Pair(client_cid_bytes=0)
    client, server = pair.connect()
    payload = random.Random(1).randbytes(300_000)
    stream = client.open_stream(unidirectional=False)
    client.write(stream, payload, fin=True)
    pair.run(lambda: stream in pair.server_saw.finished)
    server.write(stream, payload[::-1], fin=True)
    pair.run(lambda: stream in pair.client_saw.finished)
    assert pair.server_saw.data[stream] == payload
    assert pair.client_saw.data[stream] == payload[::-1]


def test_qh3_alone_still_refuses_such_a_client() -> None:
    """When this fails, qh3 has learned it, and `handshake.Face` can lose a branch."""
    client = QuicConnection(
        configuration=configuration(QuicConfig(), is_client=True, alpn=["laps"], cid_bytes=0)
    )
    client._original_destination_connection_id = b"chosen.."
    client.connect(SERVER, now=0.0)
    hello = client.datagrams_to_send(now=0.0)
    server_configuration = QuicConfiguration(is_client=False, alpn_protocols=["laps"])
    server_configuration.load_cert_chain(identity().certificate, identity().key)
    server = QuicConnection(
        configuration=server_configuration,
        original_destination_connection_id=client.original_destination_connection_id,
    )
    for data, _ in hello:
        server.receive_datagram(data, CLIENT, now=0.0)
    assert server._close_event is not None


# -- stream limits -------------------------------------------------------------------------------


def test_ten_thousand_streams_are_allowed_each_way() -> None:
    pair = Pair()
    client, server = pair.connect()
    for engine, saw in ((client, pair.server_saw), (server, pair.client_saw)):
        opened = [engine.open_stream(unidirectional=True) for _ in range(300)]
        for stream in opened:
            engine.write(stream, b"x")
        pair.run(lambda opened=opened, saw=saw: set(opened) <= set(saw.data))  # type: ignore[misc]
        for stream in opened:
            engine.write(stream, b"", fin=True)
        pair.run(lambda opened=opened, saw=saw: set(opened) <= saw.finished)  # type: ignore[misc]
        assert set(opened) <= saw.finished
        assert engine._core is not None
        assert engine._core.stream_limits[:2] >= (10_000, 10_000)


@pytest.mark.parametrize("unidirectional", [True, False])
def test_a_stream_past_the_limit_is_refused_and_granted_later(unidirectional: bool) -> None:
    pair = Pair(server_limits=limits(max_streams_uni=3, max_streams_bidi=3))
    client, server = pair.connect()
    opened = [client.open_stream(unidirectional=unidirectional) for _ in range(3)]
    with pytest.raises(StreamLimitReached, match="the peer allows 3"):
        client.open_stream(unidirectional=unidirectional)
    wakes = pair.client_saw.wakes
    for stream in opened:
        client.write(stream, b"x", fin=True)
    pair.run(lambda: pair.server_saw.finished >= set(opened))
    if not unidirectional:
        for stream in opened:
            server.write(stream, b"", fin=True)
    pair.run(seconds=1)
    assert pair.client_saw.wakes > wakes
    late = client.open_stream(unidirectional=unidirectional)
    client.write(late, b"late", fin=True)
    pair.run(lambda: late in pair.server_saw.finished)
    assert pair.server_saw.data[late] == b"late"


# -- bounds --------------------------------------------------------------------------------------


def test_writes_are_refused_past_the_bound_and_welcome_again_later() -> None:
    pair = Pair(limits=limits(send_buffer_bytes=100_000))
    client, _ = pair.connect()
    stream = client.open_stream(unidirectional=True)
    written = 100_000
    for _ in range(10):
        assert client.write(stream, bytes(10_000))
    with pytest.raises(SendBufferFull, match="the limit is 100000"):
        client.write(stream, bytes(10_000))
    assert client.buffered_bytes == written
    assert pair.client_saw.wakes == 0
    pair.run(lambda: pair.client_saw.wakes > 0)
    assert client.buffered_bytes <= 50_000
    assert client.write(stream, bytes(10_000), fin=True)
    pair.run(lambda: stream in pair.server_saw.finished)
    assert len(pair.server_saw.data[stream]) == written + 10_000


def test_one_write_larger_than_the_bound_passes_when_nothing_waits() -> None:
    pair = Pair(limits=limits(send_buffer_bytes=1000))
    client, _ = pair.connect()
    stream = client.open_stream(unidirectional=True)
    assert client.write(stream, bytes(5000))
    with pytest.raises(SendBufferFull):
        client.write(stream, b"x")


def test_a_paused_reader_stops_the_writer_and_loses_nothing() -> None:
    window = 64 * 1024
    pair = Pair(
        server_limits=limits(connection_window_bytes=window, stream_window_bytes=window // 2)
    )
    client, server = pair.connect()
    server.pause_reading()
    payload = random.Random(2).randbytes(1_000_000)
    streams = [client.open_stream(unidirectional=True) for _ in range(4)]
    for i, stream in enumerate(streams):
        client.write(stream, payload[i * 250_000 : (i + 1) * 250_000], fin=True)
    pair.run(seconds=5)
    assert pair.server_saw.data == {}
    assert client.buffered_bytes >= len(payload) - window
    server.resume_reading()
    pair.run(lambda: pair.server_saw.finished == set(streams))
    assert b"".join(bytes(pair.server_saw.data[s]) for s in streams) == payload


def test_a_paused_reader_costs_bounded_memory_when_flooded_with_datagrams() -> None:
    window = 64 * 1024
    pair = Pair(server_limits=limits(connection_window_bytes=window))
    client, server = pair.connect()
    server.pause_reading()
    for _ in range(3000):
        client.send_datagram(bytes(1000))
        pair.run(seconds=0.02)
        if server.dropped_packets > 100:
            break
    assert server.dropped_packets > 100
    server.resume_reading()
    assert len(pair.server_saw.datagrams) * 1000 > window
    assert len(pair.server_saw.datagrams) * 1000 <= window + PAUSED_SLACK_BYTES


def test_the_end_reaches_a_paused_reader_after_the_data_before_it() -> None:
    pair = Pair()
    client, server = pair.connect()
    server.pause_reading()
    stream = client.open_stream(unidirectional=True)
    client.write(stream, b"last words", fin=True)
    pair.run(seconds=0.1)
    client.close(1, "done")
    pair.run(lambda: bool(pair.server_saw.closes))
    assert pair.server_saw.data[stream] == b"last words"


# -- datagrams -----------------------------------------------------------------------------------


def test_the_largest_datagram_passes_and_a_larger_one_is_refused_without_harm() -> None:
    pair = Pair()
    client, server = pair.connect()
    pair.run(seconds=2)  # the client finds out how much the path carries
    for engine, saw in ((client, pair.server_saw), (server, pair.client_saw)):
        most = engine.datagram_limit_bytes
        assert engine.send_datagram(bytes(most))
        with pytest.raises(DatagramTooLarge, match=f"this path carries {most}"):
            engine.send_datagram(bytes(most + 1))
        assert engine.send_datagram(b"still alive")
        pair.run(lambda saw=saw: len(saw.datagrams) == 2)  # type: ignore[misc]
        assert [len(d) for d in saw.datagrams] == [most, 11]
    assert client.datagram_limit_bytes > 1400


@pytest.mark.parametrize(("of_all", "of_one"), [(70_000, 20_000), (20_000, 70_000)])
def test_windows_of_the_peer_are_known_by_the_lesser(of_all: int, of_one: int) -> None:
    windows = limits(connection_window_bytes=of_all, stream_window_bytes=of_one)
    client, server = Pair(limits=windows, server_limits=QuicConfig()).connect()
    assert server.peer_window_bytes == 20_000
    assert client.peer_window_bytes == QuicConfig().stream_window_bytes


def test_datagrams_respect_a_peer_that_takes_none_or_only_small_ones() -> None:
    client, _ = Pair(server_limits=limits(datagram_frame_bytes=0)).connect()
    assert client.datagram_limit_bytes == 0
    with pytest.raises(DatagramTooLarge, match="takes no datagrams"):
        client.send_datagram(b"x")
    client, _ = Pair(server_limits=limits(datagram_frame_bytes=100)).connect()
    assert client.datagram_limit_bytes == 97
    assert client.send_datagram(bytes(97))


def test_datagrams_wait_for_the_congestion_window() -> None:
    pair = Pair()
    client, _ = pair.connect()
    window = client.stats().congestion_window_bytes
    sent = 0
    while client.send_datagram(bytes(1000)):
        sent += 1
    assert 0 < sent * 1000 <= window
    wakes = pair.client_saw.wakes
    pair.run(seconds=1)
    assert len(pair.server_saw.datagrams) == sent
    assert pair.client_saw.wakes > wakes
    assert client.send_datagram(bytes(1000))


# -- resets, stops and ends ----------------------------------------------------------------------


def test_resets_and_stops_carry_their_codes() -> None:
    pair = Pair()
    client, server = pair.connect()
    given_up, unwanted = (client.open_stream(unidirectional=True) for _ in range(2))
    client.write(given_up, b"half")
    client.write(unwanted, b"half")
    pair.run(lambda: {given_up, unwanted} <= set(pair.server_saw.data))
    client.reset_stream(given_up, 128)
    server.stop_stream(unwanted, 7)
    pair.run(seconds=1)
    assert (given_up, 128) in pair.server_saw.resets
    assert pair.client_saw.stops == [(unwanted, 7)]
    assert client.write(unwanted, b"more") is False
    assert client.write(given_up, b"more") is False
    client.reset_stream(given_up, 1)
    server.stop_stream(unwanted, 1)


@pytest.mark.parametrize("code", [1, 35, 128, 2**62 - 1])
def test_an_application_closes_with_its_own_code(code: int) -> None:
    pair = Pair()
    client, server = pair.connect()
    server.close(code, "because")
    server.close(99, "said too late")
    pair.run(lambda: bool(pair.client_saw.closes))
    (heard,) = pair.client_saw.closes
    assert (heard.code, heard.reason) == (code, "because")
    assert (heard.application, heard.by_peer) == (True, True)
    (said,) = pair.server_saw.closes
    assert (said.code, said.by_peer) == (code, False)
    pair.run(seconds=10)
    assert client.terminated
    assert server.terminated
    with pytest.raises(ConnectionClosed, match="because"):
        client.open_stream(unidirectional=True)
    with pytest.raises(ConnectionClosed, match="because"):
        client.write(2, b"")
    with pytest.raises(ConnectionClosed, match="because"):
        client.send_datagram(b"")


def test_a_long_reason_is_cut_and_still_arrives() -> None:
    pair = Pair()
    _, server = pair.connect()
    server.close(35, "é" * 5000)
    pair.run(lambda: bool(pair.client_saw.closes))
    assert 0 < len(pair.client_saw.closes[0].reason) <= 300


def test_silence_ends_a_connection() -> None:
    pair = Pair(limits=limits(idle_timeout_s=5.0, keepalive_s=1.0))
    client, _ = pair.connect()
    pair.lost = lambda _: True
    pair.run(seconds=30)
    assert client.terminated
    assert "Idle timeout" in pair.client_saw.closes[0].reason


def test_a_ping_keeps_it_alive() -> None:
    pair = Pair(limits=limits(idle_timeout_s=5.0, keepalive_s=1.0))
    client, _ = pair.connect()
    for _ in range(10):
        pair.run(seconds=2)
        client.ping()
    assert client.established


# -- whose fault it is ---------------------------------------------------------------------------


def test_a_receiver_closes_with_the_code_of_the_error_it_raises() -> None:
    pair = Pair()

    def refuse(*_: object) -> None:
        raise InvalidEncoding("message_length 9 ends inside a node path item")

    pair.server_saw.on_data = refuse
    client, _ = pair.connect()
    client.write(client.open_stream(unidirectional=True), b"nonsense")
    pair.run(lambda: bool(pair.client_saw.closes))
    assert (pair.client_saw.closes[0].code, pair.client_saw.closes[0].application) == (35, True)
    assert "node path item" in pair.client_saw.closes[0].reason
    assert len(pair.server_saw.closes) == 1


def test_a_receiver_that_fails_costs_its_own_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pair = Pair()

    def fail(*_: object) -> None:
        raise KeyError("a defect of ours")

    pair.server_saw.on_data = fail
    client, _ = pair.connect()
    client.write(client.open_stream(unidirectional=True), b"data")
    pair.run(lambda: bool(pair.client_saw.closes))
    assert (pair.client_saw.closes[0].code, pair.client_saw.closes[0].application) == (1, False)
    assert "a defect of ours" in caplog.text


def test_no_common_protocol_is_said_as_such() -> None:
    pair = Pair(alpn=("moq-00",), server_alpn=("laps",))
    pair.run(lambda: pair.client.close_state is not None)
    assert pair.client.close_state is not None
    assert pair.client.close_state.code == NO_APPLICATION_PROTOCOL
    assert pair.server is not None
    assert not pair.server.established
    assert pair.alpns == []


@cache
def client_hello() -> bytes:
    limits = QuicConfig()
    bridge = Bridge(
        configuration(limits, is_client=True, alpn=["laps"], cid_bytes=8),
        limits=limits,
        version=1,
        local_initial_source_connection_id=bytes(8),
    )
    bridge.start()
    hello = bridge.next_crypto_data()
    assert hello is not None
    return hello.data


@pytest.mark.parametrize("seed", range(60))
def test_hostile_handshake_bytes_stay_with_their_connection(seed: int) -> None:
    """A client whose packets are well sealed and whose ClientHello is not one.

    Without the guard some of these raise in the caller, and some, a broken post-quantum key among
    them, end the process.
    """
    rng = random.Random(seed)
    hello = bytearray(client_hello())
    for _ in range(rng.choice((1, 2, 5, 20))):
        hello[rng.randrange(4, len(hello))] ^= rng.randrange(1, 256)
    server, saw = _greeted_with(bytes(hello))
    assert server.authenticated
    assert not server.established
    assert saw == []


def test_a_broken_post_quantum_key_is_refused() -> None:
    hello = bytearray(client_hello())
    share = hello.index(b"\x11\xec\x04\xc0") + 4  # group X25519MLKEM768, 1,216 bytes
    hello[share : share + 1000] = b"\xff" * 1000
    server, _ = _greeted_with(bytes(hello))
    assert server.close_state is not None
    assert "handshake bytes make no sense" in server.close_state.reason


def _greeted_with(hello: bytes) -> tuple[Engine, list[str]]:
    """A server that got these bytes for a ClientHello, and the handshakes it completed."""
    config, dcid = QuicConfig(), b"chosenid"
    core = QuicConnectionCore(
        True, 1, ("0.0.0.0", 0), SERVER, bytes(8), dcid, True, 2, 1280, False, 30.0, 3,
        65536, None, 10**6, 0, 10**6, 0, 0, 0, 10**6, 100, 100, 0, 0, 0.3, 0.025, 0.0,
    )  # fmt: skip
    core.send_crypto(0, 0, hello)
    completed: list[str] = []

    def complete(alpn: str) -> Recorder:
        completed.append(alpn)
        return Recorder()

    server = Engine(
        configuration(config, is_client=False, alpn=["laps"], cid_bytes=8),
        config,
        complete,
        original_destination_cid=dcid,
        client_cid=bytes(8),
    )
    while (packet := core.poll_transmit(0.0)) is not None:
        server.receive([packet[0]], CLIENT, 0.0)
    return server, completed


def test_an_engine_that_fails_costs_its_own_connection_only() -> None:
    class Panic(BaseException):
        pass

    Panic.__name__ = "PanicException"  # what a Rust panic is called

    def panic(*_: object) -> None:
        raise Panic("called `Result::unwrap()` on an `Err` value: PoisonError")

    class Broken:
        receive_many_datagrams = poll_transmit = handle_timer = close = panic

    for use in ("receive", "transmit", "handle_timer"):
        pair = Pair()
        client, _ = pair.connect()
        client._core = Broken()  # type: ignore[assignment]
        match use:
            case "receive":
                client.receive([b"x"], CLIENT, 0.0)
            case "transmit":
                client.transmit(0.0, 10)
            case _:
                client.handle_timer(0.0)
        assert client.terminated
        assert [c.reason for c in pair.client_saw.closes] == ["internal error"]
        assert client.timer() is None
        client.close(1, "again")


def test_noise_is_not_taken_for_packets() -> None:
    pair = Pair()
    client, server = pair.connect()
    rng = random.Random(3)
    for _ in range(500):
        noise = rng.randbytes(rng.randrange(1, 1400))
        server.receive([noise, server.cid + noise, b"\x40" + server.cid + noise], CLIENT, pair.now)
    stream = client.open_stream(unidirectional=True)
    client.write(stream, b"unharmed", fin=True)
    pair.run(lambda: stream in pair.server_saw.finished)
    assert pair.server_saw.data[stream] == b"unharmed"


# -- figures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay_ms", [1, 20, 150])
def test_round_trip_times_are_those_of_the_path(delay_ms: int) -> None:
    pair = Pair(delay_s=delay_ms / 1000)
    client, _ = pair.connect()
    stream = client.open_stream(unidirectional=True)
    for _ in range(30):
        client.write(stream, bytes(3000))
        pair.run(seconds=0.5)
    stats = client.stats()
    assert 2000 * delay_ms <= stats.srtt_us <= 2000 * delay_ms + 2500
    assert stats.latest_rtt_us >= 2000 * delay_ms
    assert (stats.lost_packets, stats.probe_timeouts) == (0, 0)
    assert stats.in_flight_bytes == 0
    assert stats.sent_bytes > 90_000
    assert stats.udp_payload_bytes == 1472


def test_losses_are_counted_and_close_the_window() -> None:
    windows = []
    for loss in (0.0, 0.05):
        pair = Pair(delay_s=0.01)
        client, _ = pair.connect()
        rng = random.Random(4)
        pair.lost = lambda _, rng=rng, loss=loss: rng.random() < loss  # type: ignore[misc]
        stream = client.open_stream(unidirectional=True)
        client.write(stream, bytes(2_000_000), fin=True)
        pair.run(lambda: stream in pair.server_saw.finished)  # noqa: B023 - called at once
        assert len(pair.server_saw.data[stream]) == 2_000_000
        stats = client.stats()
        # Acknowledgements are lost too, and losing one of those is no loss of the sender's.
        assert pair.losses // 4 <= stats.lost_packets <= pair.losses + 10
        windows.append(stats.congestion_window_bytes)
    assert windows[1] < windows[0] / 2


def test_figures_before_the_handshake_are_zero() -> None:
    engine = Engine(
        configuration(QuicConfig(), is_client=True, alpn=["laps"], cid_bytes=8),
        QuicConfig(),
        lambda _: Recorder(),
    )
    assert engine.stats().srtt_us == 0
    assert engine.timer() is None
    assert engine.transmit(0.0, 10) is None
    with pytest.raises(ConnectionClosed, match="not connected yet"):
        engine.open_stream(unidirectional=True)


# -- ends that are lost ----------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [m for m in product([False, True], repeat=5) if any(m)], ids=str)
def test_a_stream_ends_whichever_packets_are_lost(lost: tuple[bool, ...]) -> None:
    """The last data and the end lost together: the core repeats the data alone."""
    pair = Pair(delay_s=0.03)
    client, _ = pair.connect()
    stream_id = client.open_stream(unidirectional=True)
    client.write(stream_id, bytes(300))
    pair.run(seconds=1.0)
    before = pair.packets
    pair.lost = lambda number: lost[number - before - 1] if number - before <= len(lost) else False
    client.write(stream_id, bytes(300))
    pair.run(seconds=0.04)
    client.write(stream_id, b"", fin=True)
    pair.run(seconds=10.0)
    assert stream_id in pair.server_saw.finished
    assert len(pair.server_saw.data[stream_id]) == 600
    assert pair.server_saw.resets == []


@pytest.mark.parametrize("seed", range(3))
def test_every_stream_is_whole_and_ends_on_a_path_that_loses_packets(seed: int) -> None:
    chance = random.Random(seed)
    pair = Pair(delay_s=0.03)
    client, _ = pair.connect()
    pair.lost = lambda _: chance.random() < 0.05
    streams: list[int] = []
    for _ in range(100):
        now = [client.open_stream(unidirectional=True) for _ in range(3)]
        for _ in range(5):
            for stream_id in now:
                client.write(stream_id, bytes(200))
            pair.run(seconds=0.04)
        for stream_id in now:
            client.write(stream_id, b"", fin=True)
        streams += now
    pair.run(seconds=20.0)
    assert pair.losses
    assert pair.server_saw.finished == set(streams)
    assert {len(data) for data in pair.server_saw.data.values()} == {1000}
    assert pair.server_saw.resets == []


def test_a_stream_that_waits_for_its_reader_is_not_taken_for_one_whose_end_is_lost() -> None:
    pair = Pair(delay_s=0.03, server_limits=limits(stream_window_bytes=20_000))
    client, server = pair.connect()
    stream_id, other = (client.open_stream(unidirectional=True) for _ in range(2))
    server.pause_reading()
    client.write(stream_id, bytes(100_000), fin=True)
    pair.run(seconds=1.0)
    before = pair.packets
    pair.lost = lambda number: number == before + 1
    for _ in range(20):
        client.write(other, bytes(100))
        pair.run(seconds=0.1)
    assert pair.losses == 1
    server.resume_reading()
    pair.run(seconds=10.0)
    assert len(pair.server_saw.data[stream_id]) == 100_000
    assert stream_id in pair.server_saw.finished
