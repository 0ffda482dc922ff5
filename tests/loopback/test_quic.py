"""The endpoint on real sockets."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from laps.config import QuicConfig
from laps.errors import ConfigError, HandshakeFailed, ListenError, StreamLimitReached
from laps.net import quic, udp
from laps.net.engine import Engine
from laps.net.quic import Endpoint
from laps.net.tls import Trust, self_signed
from support.engines import Recorder, identity
from support.initials import initial
from support.loopback import TRUST, dial, dialling, limits, listening, on_loop, until


@pytest.fixture
def fast_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quic, "TICK_S", 0.02)


@on_loop
async def test_data_crosses_in_both_directions_and_the_close_code_too() -> None:
    async with listening(alpn=("laps-x1", "laps")) as there, dialling() as here:
        connection, saw = await dial(here, there.port, ("laps", "laps-x1"))
        assert connection.alpn == "laps-x1"
        payload = random.Random(1).randbytes(3_000_000)
        stream = connection.open_stream(unidirectional=False)
        connection.write(stream, payload, fin=True)
        await until(lambda: bool(there.seen) and stream in there.seen[0].finished)
        assert there.seen[0].data[stream] == payload
        answering = there.connections[0]
        answering.write(stream, payload[::-1], fin=True)
        assert answering.send_datagram(b"datagram")
        await until(lambda: stream in saw.finished and bool(saw.datagrams))
        assert saw.data[stream] == payload[::-1]
        assert saw.datagrams == [b"datagram"]
        answering.close(35, "enough")
        close = await connection.wait_closed()
        assert (close.code, close.reason, close.by_peer, close.application) == (
            35,
            "enough",
            True,
            True,
        )
        assert saw.closes == [close]


@on_loop
async def test_ipv6() -> None:
    if not _has_ipv6():
        pytest.skip("this machine has no IPv6 loopback")
    async with listening(host="::1") as there, dialling(host="::1") as here:
        connection, _ = await dial(here, there.port, host="::1")
        connection.write(connection.open_stream(unidirectional=True), b"six", fin=True)
        await until(lambda: bool(there.seen) and bool(there.seen[0].finished))


@on_loop
async def test_many_connections_share_the_socket() -> None:
    async with listening() as there, dialling() as here:
        dialled = await asyncio.gather(*(dial(here, there.port) for _ in range(40)))
        for number, (connection, _) in enumerate(dialled):
            stream = connection.open_stream(unidirectional=True)
            connection.write(stream, str(number).encode(), fin=True)
        await until(lambda: sum(len(s.finished) for s in there.seen) == 40)
        said = sorted(int(bytes(data)) for s in there.seen for data in s.data.values())
        assert said == list(range(40))
        assert there.endpoint.counters.accepted == 40
        assert there.endpoint.half_open == 0
        assert len(there.endpoint.connections) == 40


@on_loop
async def test_datagrams_of_one_connection_are_handed_over_in_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    plain = Engine.receive

    def recording(self: Engine, datagrams: list[bytes], *args: Any) -> None:
        sizes.append(len(datagrams))
        plain(self, datagrams, *args)

    monkeypatch.setattr(Engine, "receive", recording)
    async with listening() as there, dialling() as here:
        connection, _ = await dial(here, there.port)
        stream = connection.open_stream(unidirectional=True)
        connection.write(stream, bytes(4_000_000), fin=True)
        await until(lambda: bool(there.seen) and stream in there.seen[0].finished)
    assert max(sizes) >= 64
    assert sum(sizes) / len(sizes) > 4


@on_loop
async def test_a_burst_fits_the_socket_buffer() -> None:
    """200 datagrams of 1,200 bytes are more than the default buffer of 208 KiB holds."""
    async with listening() as there:
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with sender:
            for _ in range(1000):
                sender.sendto(b"\x40" + bytes(1199), ("127.0.0.1", there.port))
        await until(lambda: there.endpoint.counters.unroutable_datagrams >= _burst_that_fits())


def test_the_socket_buffers_are_as_large_as_the_kernel_allows() -> None:
    plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock = udp.bind("127.0.0.1", 0, 4 << 20)
    with plain, sock:
        for option, ceiling in (
            (socket.SO_RCVBUF, "/proc/sys/net/core/rmem_max"),
            (socket.SO_SNDBUF, "/proc/sys/net/core/wmem_max"),
        ):
            got = sock.getsockopt(socket.SOL_SOCKET, option) // 2
            allowed = min(4 << 20, int(Path(ceiling).read_text()))
            assert got >= (4 << 20 if os.geteuid() == 0 else allowed)


@on_loop
async def test_streams_past_the_limit_wait_their_turn() -> None:
    async with listening(limits(max_streams_uni=10)) as there, dialling() as here:
        connection, saw = await dial(here, there.port)
        left = list(range(100))

        def send() -> None:
            while left:
                try:
                    stream = connection.open_stream(unidirectional=True)
                except StreamLimitReached:
                    return
                connection.write(stream, str(left.pop()).encode(), fin=True)

        saw.on_writable = send
        send()
        assert len(left) == 90
        await until(lambda: bool(there.seen) and len(there.seen[0].finished) == 100)
        assert sorted(int(bytes(d)) for d in there.seen[0].data.values()) == list(range(100))


@on_loop
async def test_a_paused_reader_pushes_back_on_the_writer() -> None:
    window = 1 << 20
    async with (
        listening(limits(connection_window_bytes=window)) as there,
        dialling(limits(send_buffer_bytes=8 << 20)) as here,
    ):
        connection, _ = await dial(here, there.port)
        await until(lambda: bool(there.connections))
        there.connections[0].pause_reading()
        stream = connection.open_stream(unidirectional=True)
        connection.write(stream, bytes(5 << 20), fin=True)
        await until(lambda: connection.buffered_bytes <= 4 << 20)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert connection.buffered_bytes == 4 << 20
        assert there.seen[0].data == {}
        there.connections[0].resume_reading()
        await until(lambda: stream in there.seen[0].finished)
        assert len(there.seen[0].data[stream]) == 5 << 20


@on_loop
async def test_round_trips_are_measured_finer_than_the_loop_s_clock() -> None:
    """uvloop's own clock counts whole milliseconds; packets are stamped by a finer one."""
    async with listening() as there, dialling() as here:
        connection, _ = await dial(here, there.port)
        stream = connection.open_stream(unidirectional=True)
        stamps = []
        for number in range(1, 11):
            connection.write(stream, bytes(100))
            await until(lambda n=number: len(there.seen[0].data.get(stream, b"")) == 100 * n)  # type: ignore[misc]
            stamps.append(there.connections[0].last_heard)
        assert any(abs(stamp * 1000 - round(stamp * 1000)) > 0.001 for stamp in stamps)
        assert connection.stats().latest_rtt_us >= 1000


# -- address validation ----------------------------------------------------------------------------


@on_loop
async def test_retry_proves_the_address_before_anything_is_kept() -> None:
    async with listening(limits(retry="always")) as there, dialling() as here:
        connection, _ = await dial(here, there.port)
        assert connection.established
        # A ClientHello with a post-quantum key share takes two packets, and each is answered.
        assert there.endpoint.counters.retries_sent in {1, 2}
        assert there.endpoint.counters.accepted == 1


@on_loop
async def test_retry_comes_on_by_itself_when_handshakes_pile_up() -> None:
    config = limits(half_open_before_retry=8, half_open_limit=16)
    async with listening(config) as there, dialling() as here:
        hellos = await _hellos(there.port, 30)
        await until(
            lambda: there.endpoint.half_open + there.endpoint.counters.retries_sent == len(hellos)
        )
        assert there.endpoint.half_open == 8
        assert there.endpoint.counters.retries_sent == 22
        connection, _ = await dial(here, there.port)  # an honest client still gets in
        assert connection.established
        assert there.endpoint.counters.retries_sent > 22


@on_loop
async def test_a_small_initial_in_a_padded_datagram_is_answered_in_full() -> None:
    """As picoquic sends them; it drops an answer of less than 1,200 bytes."""
    hello = initial(328, 1252)
    async with listening() as there:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            await loop.sock_connect(sender, ("127.0.0.1", there.port))
            await loop.sock_sendall(sender, hello)
            answer = await loop.sock_recv(sender, 2048)
            assert len(answer) >= 1200
            size = len(answer)
            await until(lambda: there.endpoint.half_open == 1)
            with suppress(BlockingIOError):
                while True:
                    size += len(sender.recv(2048))
        assert size <= 3 * len(hello)


@on_loop
async def test_half_open_connections_are_bounded_and_time_out(fast_ticks: None) -> None:
    config = limits(retry="never", half_open_limit=5, handshake_timeout_s=0.2)
    async with listening(config) as there:
        await _hellos(there.port, 20)
        await until(lambda: there.endpoint.counters.refused_for_half_open == 15)
        assert there.endpoint.half_open == 5
        await until(lambda: there.endpoint.half_open == 0)


@on_loop
async def test_a_token_that_is_not_ours_is_refused() -> None:
    async with listening(limits(retry="always")) as there, dialling() as here:
        await dial(here, there.port)
        (hello,) = await _hellos(there.port, 1, send=False)
        # The token of an Initial packet stands behind both ids, with its length in front.
        at = 5 + 1 + hello[5] + 1 + hello[6 + hello[5]]
        forged = hello[:at] + b"\x40\x50" + bytes(80) + hello[at + 1 :]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(forged, ("127.0.0.1", there.port))
        await until(lambda: there.endpoint.counters.retries_refused == 1)
        assert there.endpoint.counters.accepted == 1


@on_loop
async def test_connections_are_bounded() -> None:
    config = limits(connection_limit=2)
    async with listening(config) as there, dialling(limits(handshake_timeout_s=0.3)) as here:
        await dial(here, there.port)
        await dial(here, there.port)
        with pytest.raises(HandshakeFailed, match=r"the relay at 127\.0\.0\.1:\d+ takes no more"):
            await dial(here, there.port)
        assert there.endpoint.counters.refused_for_connections > 0


# -- what goes wrong -------------------------------------------------------------------------------


@on_loop
async def test_garbage_is_counted_and_harms_nobody() -> None:
    rng = random.Random(5)
    async with listening() as there, dialling() as here:
        connection, _ = await dial(here, there.port)
        hellos = await _hellos(there.port, 20, send=False)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for hello in hellos:
                broken = bytearray(hello)
                for _ in range(20):
                    broken[rng.randrange(len(broken))] = rng.randrange(256)
                for noise in (
                    b"",
                    rng.randbytes(rng.randrange(1, 1500)),
                    bytes(broken),
                    bytes(hello[:1000]),
                    bytes([0xC0 | rng.randrange(64)]) + rng.randbytes(1300),
                ):
                    sender.sendto(noise, ("127.0.0.1", there.port))
        stream = connection.open_stream(unidirectional=True)
        connection.write(stream, b"unharmed", fin=True)
        await until(lambda: stream in there.seen[0].finished)
        counters = there.endpoint.counters
        assert counters.malformed_datagrams + counters.unroutable_datagrams > 20
        assert counters.accepted == 1


@on_loop
async def test_an_unknown_version_is_answered_with_ours() -> None:
    async with listening() as there:
        packet = b"\xc0" + b"\x1a\x2a\x3a\x4a" + b"\x08" + b"D" * 8 + b"\x08" + b"S" * 8
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(packet.ljust(1200, b"\0"), ("127.0.0.1", there.port))
            await until(lambda: there.endpoint.counters.version_negotiations_sent == 1)
            answer = sender.recv(1500)
        assert answer[1:5] == bytes(4)
        assert answer[5:23] == b"\x08" + b"S" * 8 + b"\x08" + b"D" * 8
        assert answer[23:] == b"\0\0\0\1"


@on_loop
async def test_the_wrong_certificate_is_refused() -> None:
    async with listening() as there, dialling() as here:
        for trust in (Trust(fingerprint="ab" * 32), Trust()):
            with pytest.raises(HandshakeFailed, match="no connection to"):
                await here.connect("127.0.0.1", there.port, ["laps"], trust, lambda _: Recorder())
        await until(lambda: there.endpoint.counters.handshakes_failed == 2)
        assert there.endpoint.counters.accepted == 0
        with pytest.raises(ConfigError, match="not a SHA-256"):
            await here.connect(
                "127.0.0.1", there.port, ["laps"], Trust(fingerprint="abc"), lambda _: Recorder()
            )
        anyone = await here.connect(
            "127.0.0.1", there.port, ["laps"], Trust(anyone=True), lambda _: Recorder()
        )
        assert anyone.established


@on_loop
async def test_the_wrong_protocol_is_refused() -> None:
    async with listening() as there, dialling() as here:
        with pytest.raises(HandshakeFailed, match="does not speak the protocol asked for"):
            await dial(here, there.port, ["moq-00"])


@on_loop
async def test_nobody_there() -> None:
    async with dialling(limits(handshake_timeout_s=0.1)) as here:
        with pytest.raises(HandshakeFailed, match=r"no answer from 127\.0\.0\.1:9 within 0\.1 s"):
            await dial(here, 9)
        with pytest.raises(ConfigError, match="is not known"):
            await here.connect("no.such.host.invalid", 9, ["laps"], TRUST, lambda _: Recorder())


@on_loop
async def test_a_port_where_nobody_listens_is_told_long_before_the_timeout() -> None:
    """On real sockets, since it is the kernel that says so; a silent host still takes its time."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        async with dialling(limits(handshake_timeout_s=1.5)) as here:
            with pytest.raises(HandshakeFailed, match="no answer from"):
                await dial(here, port)  # somebody has the port, and says nothing
    async with dialling(limits(handshake_timeout_s=60)) as here:
        with pytest.raises(HandshakeFailed, match=rf"nobody listens at 127\.0\.0\.1:{port}"):
            await dial(here, port)


@on_loop
async def test_a_relay_that_is_just_starting_is_waited_for() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    async with dialling() as here:
        dialled = asyncio.ensure_future(dial(here, port))
        await asyncio.sleep(0.05)
        endpoint = Endpoint.listen(
            "127.0.0.1", port, QuicConfig(), ["laps"], identity(), lambda _: Recorder()
        )
        try:
            connection, _ = await dialled
            assert connection.established
        finally:
            await endpoint.close(0, "")


@on_loop
async def test_dialling_can_be_given_up() -> None:
    async with dialling() as here:
        task = asyncio.ensure_future(dial(here, 9))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert here.connections == ()


@on_loop
async def test_a_port_in_use_is_named_with_the_way_out() -> None:
    async with listening() as there:
        with pytest.raises(ListenError, match=rf"127\.0\.0\.1:{there.port} is in use"):
            udp.bind("127.0.0.1", there.port, 1 << 16)
    with pytest.raises(ListenError, match="not an address of this machine"):
        udp.bind("192.0.2.77", 0, 1 << 16)
    with pytest.raises(ListenError, match="host name is not known"):
        udp.bind("no.such.host.invalid", 0, 1 << 16)


# -- over time -------------------------------------------------------------------------------------


@on_loop
async def test_a_quiet_connection_is_kept_alive_and_a_dead_one_noticed(fast_ticks: None) -> None:
    config = limits(idle_timeout_s=0.4, keepalive_s=0.1)
    async with listening(config) as there, dialling(config) as here:
        connection, saw = await dial(here, there.port)
        heard = connection.last_heard
        await until(lambda: connection.last_heard > heard + 1.0)
        assert connection.established
        _silence(there.endpoint)
        close = await connection.wait_closed()
        assert "Idle timeout" in close.reason
        assert saw.closes == [close]


@on_loop
async def test_a_new_certificate_is_shown_from_then_on() -> None:
    async with listening() as there, dialling() as here:
        old, _ = await dial(here, there.port)
        renewed = self_signed(["127.0.0.1"])
        there.endpoint.show(renewed)
        with pytest.raises(HandshakeFailed):
            await dial(here, there.port)
        trust = Trust(fingerprint=renewed.fingerprint)
        new = await here.connect("127.0.0.1", there.port, ["laps"], trust, lambda _: Recorder())
        assert old.established
        assert new.established


@on_loop
async def test_a_client_whose_address_changes_is_followed() -> None:
    """What a NAT does when it forgets a binding: the same connection from another port."""
    async with listening() as there, dialling() as here:
        connection, _ = await dial(here, there.port)
        old_address = here.address
        here._udp.close()
        sock = udp.bind("127.0.0.1", 0, 1 << 20)
        here._udp = udp.UdpSocket(sock, here.loop, here._readable, here._serve)
        assert here.address != old_address
        payload = bytes(500_000)
        stream = connection.open_stream(unidirectional=False)
        connection.write(stream, payload, fin=True)
        await until(lambda: stream in there.seen[0].finished)
        there.connections[0].write(stream, payload, fin=True)
        await until(lambda: connection.stats().received_bytes > len(payload))
        assert there.endpoint.counters.accepted == 1


@on_loop
async def test_closing_tells_every_peer_and_frees_the_port() -> None:
    async with dialling() as here:
        async with listening() as there:
            port = there.port
            dialled = [await dial(here, port) for _ in range(3)]
        for connection, _ in dialled:
            assert (await connection.wait_closed()).code == 1
        udp.bind("127.0.0.1", port, 1 << 16).close()


@on_loop
async def test_a_closing_endpoint_takes_nobody_in() -> None:
    async with listening() as there, dialling(limits(handshake_timeout_s=0.2)) as here:
        connection, _ = await dial(here, there.port)
        closing = asyncio.ensure_future(there.endpoint.close(1, "over"))
        await connection.wait_closed()
        with pytest.raises(HandshakeFailed, match="no answer"):
            await dial(here, there.port)
        await closing
        assert there.endpoint.counters.accepted == 1


@on_loop
async def test_nothing_is_left_of_connections_that_ended() -> None:
    async with listening() as there, dialling() as here:
        for _ in range(5):
            connection, _ = await dial(here, there.port)
            connection.close(1, "done")
        await until(lambda: not there.endpoint._routes and not here._routes)
        for endpoint in (there.endpoint, here):
            assert not endpoint._connections
            assert not endpoint._timers
            assert not endpoint._dirty


def _silence(endpoint: Endpoint) -> None:
    """Nothing is heard of it any more."""
    endpoint._udp.send = lambda datagrams, addr: None  # type: ignore[method-assign]


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


def _burst_that_fits() -> int:
    """How many of a thousand datagrams must arrive: all, unless the kernel grants little."""
    if os.geteuid() == 0:
        return 1000
    granted = int(Path("/proc/sys/net/core/rmem_max").read_text())
    return min(1000, granted // 2304)  # what a datagram of 1,200 bytes counts for in the kernel


async def _hellos(port: int, number: int, *, send: bool = True) -> list[bytes]:
    """The first packets of as many clients that never say more."""
    made: list[bytes] = []
    endpoint = Endpoint.dialler("127.0.0.1", QuicConfig())
    endpoint._udp.send = lambda datagrams, addr: made.append(datagrams[0])  # type: ignore[method-assign]
    tasks = [asyncio.ensure_future(dial(endpoint, port)) for _ in range(number)]
    await until(lambda: len(made) >= number)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await endpoint.close(0, "")
    hellos = made[:number]
    if send:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for hello in hellos:
                sender.sendto(hello, ("127.0.0.1", port))
    return hellos
