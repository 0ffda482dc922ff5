"""What QUICR clients that break the rules get from a real relay, and what the others notice."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

import laps
from laps.config import Config, QuicConfig, override
from laps.errors import ConnectionClosed
from laps.net.quic import Endpoint
from laps.net.runner import Runner
from laps.net.tls import Trust
from laps.wire.quicr.codes import ALPN
from laps.wire.quicr.messages import (
    Fragment,
    PublishIntent,
    Response,
    Subscribe,
    SubscribeReply,
    Terms,
    decode,
    encode,
    encode_datagram,
)
from support.engines import Recorder
from support.loopback import on_loop, until

if TYPE_CHECKING:
    from laps.net.connection import Connection

INTENT = encode(PublishIntent(b"bad/t"))
BINARY = bytes(range(128, 144))


class Stage:
    """A relay with a client of good manners, and one without."""

    def __init__(self, stack: AsyncExitStack) -> None:
        values = {
            "peering.listen": "127.0.0.1:0",
            "clients.listen": "127.0.0.1:0",
            "clients.drain_s": 0.05,
            "relay.drain_s": 0.01,
            "discovery.enabled": False,
        }
        self.relay = Runner(override(Config(), values, "test"))
        stack.push_async_callback(self.relay.close)
        self._stack = stack
        self.heard = Recorder()

    async def dial(self) -> Connection:
        endpoint = Endpoint.dialler("127.0.0.1", QuicConfig())
        self._stack.push_async_callback(endpoint.close, 0, "")
        place = self.relay.client_address
        assert place is not None
        await endpoint.connect(
            place.host, place.port, [ALPN], Trust(anyone=True), lambda _: self.heard
        )
        (connection,) = endpoint.connections
        return connection

    async def still_serves(self) -> None:
        """The relay lives, and does its work."""
        url = f"quicr://{self.relay.client_address}"
        async with laps.connect(url) as publisher, laps.connect(url) as subscriber:
            track = await publisher.publish("good", "t")
            await track.write(b"well")
            objects = subscriber.subscribe("good", "t", start="start")
            assert (await anext(objects)).payload == b"well"


@pytest.mark.parametrize(
    ("data", "code", "reason"),
    [
        (b"\x00\x01\x3f", 2, "message type 63 is unknown"),
        (b"\xff" * 65_600, 2, "is unknown"),
        (encode(SubscribeReply(Response.OK)), 1, "SubscribeReply opens no control stream"),
        (INTENT + encode(Fragment(0, 1, 0, b"x", True)), 1, "object 0, 0 at 0 was to come"),
        (
            INTENT
            + encode(Fragment(0, 0, 0, b"xx", False))
            + encode(Fragment(0, 0, 1, b"x", True)),
            1,
            "object 0, 0 at 2 was to come",
        ),
        (
            INTENT + encode(Fragment(0, 0, 0, b"x", True)) + encode(Fragment(0, 0, 1, b"x", True)),
            1,
            "object 0, 1 at 0 was to come",
        ),
    ],
    ids=["type", "garbage", "opening", "order", "overlap", "past the end"],
)
@on_loop
async def test_who_breaks_the_rules_is_closed_with_a_reason(
    data: bytes, code: int, reason: str
) -> None:
    async with AsyncExitStack() as stack:
        stage = Stage(stack)
        connection = await stage.dial()
        connection.write(connection.open_stream(unidirectional=False), data)
        await until(lambda: connection.close_state is not None)
        close = connection.close_state
        assert isinstance(close, ConnectionClosed)
        assert close.by_peer
        assert close.code == code
        assert reason in close.reason
        assert stage.relay.edge.counters.violations == 1
        await stage.still_serves()


@on_loop
async def test_an_object_without_end_is_not_held() -> None:
    async with AsyncExitStack() as stack:
        stage = Stage(stack)
        connection = await stage.dial()
        stream_id = connection.open_stream(unidirectional=False)
        connection.write(stream_id, INTENT)
        offset = 0
        while connection.close_state is None:
            if connection.buffered_bytes < 1 << 20:
                data = encode(Fragment(0, 0, offset, bytes(60_000), False))
                connection.write(stream_id, data)
                offset += 60_000
            await asyncio.sleep(0)
        assert connection.close_state.code == 3
        assert offset < 40 << 20
        assert stage.relay.relay.tracks.cache.size == 0
        await stage.still_serves()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Subscribe(BINARY, 129), "mask 129 is too large"),
        (Subscribe(b"a/" + b"b" * 5000), "too long"),
        (Subscribe(b"abc"), "at least one slash"),
        (Subscribe(b"a//b"), "empty"),
        (PublishIntent(b"\xff/x"), "text"),
    ],
)
@on_loop
async def test_what_cannot_be_is_refused_and_the_session_goes_on(
    message: Subscribe | PublishIntent, reason: str
) -> None:
    async with AsyncExitStack() as stack:
        stage = Stage(stack)
        connection = await stage.dial()
        stream_id = connection.open_stream(unidirectional=False)
        connection.write(stream_id, encode(message))
        await until(lambda: stream_id in stage.heard.finished)
        reply = decode(memoryview(bytes(stage.heard.data[stream_id]))[2:])
        assert isinstance(reply, SubscribeReply)
        assert reply.response is Response.FAIL
        assert reason in reply.reason
        assert stage.relay.edge.quicr.refused == 1
        assert connection.established


@on_loop
async def test_datagrams_that_cannot_be_are_counted_and_dropped() -> None:
    async with AsyncExitStack() as stack:
        stage = Stage(stack)
        connection = await stage.dial()
        stream_id = connection.open_stream(unidirectional=False)
        connection.write(stream_id, encode(PublishIntent(b"bad/t", datagram_capable=True)))
        await until(lambda: bool(stage.heard.data.get(stream_id)))
        fragments = [
            Fragment(0, 0, 0, b"end", True),
            Fragment(0, 1, 4, b"end", True),
            Fragment(0, 1, 5, b"past the end", False),
            Fragment(0, 2, 1 << 40, b"endless", False),
        ]
        for fragment in fragments:
            connection.send_datagram(encode_datagram(1, fragment, Terms()))
        connection.send_datagram(encode_datagram(9, fragments[0], Terms()))
        connection.send_datagram(b"\x01")
        tracks, quicr = stage.relay.relay.tracks, stage.relay.edge.quicr
        await until(lambda: quicr.malformed_datagrams == 1)
        assert quicr.unknown_datagrams == 1
        assert tracks.counters.malformed_fragments == 2
        assert tracks.shared.fragment_bytes == 0
        assert connection.established
        await stage.still_serves()
