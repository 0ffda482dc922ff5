"""Clients that do their worst to a relay, each at a layer of its own, as a process.

`python -m laps.bench.hostile_clients ATTACK PORT` attacks the relay at that port of loopback until
its standard input ends. It comes from 127.0.0.2, so that a relay can tell it from everybody else by
its address. Whoever is closed or refused comes again at once, as attackers do.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final

import uvloop

from laps.bench.process import answer, pin
from laps.bench.relay_sessions import track
from laps.config import QuicConfig
from laps.errors import LapsError, SendBufferFull
from laps.net.quic import Endpoint
from laps.net.tls import Trust
from laps.sessions.moqt import MoqtSession
from laps.types import Location, TrackName
from laps.wire.moqt.data import SubgroupHeader, encode_subgroup_header
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.messages import (
    Fetch,
    Publish,
    PublishNamespace,
    StandaloneFetch,
    Subscribe,
    TrackStatus,
)
from laps.wire.moqt.object_fields import encode_object_header
from laps.wire.quicr.codes import ALPN as QUICR_ALPN
from laps.wire.quicr.messages import PublishIntent, encode

if TYPE_CHECKING:
    from laps.errors import ConnectionClosed
    from laps.net.connection import Connection
    from laps.wire.moqt.messages import Message

SOURCE: Final = "127.0.0.2"

# Other clients of the machine need the core too: an attacker elsewhere would not take it from them.
NICE: Final = 5

# Let others run after this many: the process has to read what it is told.
AT_ONCE: Final = 50

# Whoever is turned away needs a moment, or the attack is on its own processor.
PAUSE_S: Final = 0.02

# Half of a control message: SUBSCRIBE_NAMESPACE of 65,535 bytes, and the beginning of it.
HALF: Final = b"\x11\xff\xff" + bytes(60_000)
HALF_QUICR: Final = b"\xff\xff" + bytes(60_000)


class Session:
    """A connection, and what the other side says on it."""

    def __init__(self, totals: Totals) -> None:
        self.connection: Connection
        self.moqt: MoqtSession | None = None
        self.heard: list[Message] = []
        self.spoke, self.over = asyncio.Event(), asyncio.Event()
        "It is set up; it is closed."
        self._totals = totals

    @property
    def is_closed(self) -> bool:
        """Whether the relay has closed it."""
        return self.over.is_set()

    # -- as `Wire` ---------------------------------------------------------------------------------

    def open_stream(self) -> int:
        """A bidirectional stream."""
        return self.connection.open_stream(unidirectional=False)

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        """Write to it."""
        self.connection.write(stream_id, data, fin=fin)

    def end_stream(self, stream_id: int, code: int) -> None:
        """Give it up."""
        self.connection.reset_stream(stream_id, code)

    # -- as `Receiver` -----------------------------------------------------------------------------

    def stream_data(self, stream_id: int, data: bytes, fin: bool) -> None:
        """Messages, or objects that nobody looks at."""
        if self.moqt is not None and not stream_id & 2:
            with suppress(LapsError):
                self.heard.extend(self.moqt.receive(stream_id, data, fin=fin))
            if self.moqt.ready:
                self.spoke.set()

    def stream_reset(self, stream_id: int, code: int) -> None:
        """Of no interest."""

    def stop_sending(self, stream_id: int, code: int) -> None:
        """Of no interest."""

    def datagram(self, data: bytes) -> None:
        """Of no interest."""

    def writable(self) -> None:
        """Of no interest: it tries again by itself."""

    def closed(self, close: ConnectionClosed) -> None:
        """The relay has had enough."""
        self.spoke.set()
        self.over.set()
        self._totals.closed += 1


class Totals:
    """What an attacker has done, and what became of it."""

    def __init__(self) -> None:
        self.sessions = 0
        self.closed = 0
        self.failed = 0
        self.sent = 0


class Attacker:
    """Dials a relay again and again, from an address of its own."""

    def __init__(self, port: int, quic: QuicConfig | None = None) -> None:
        self._port = port
        self.totals = Totals()
        self.task: asyncio.Future[None] | None = None
        "What it does, again and again."
        self._endpoint = Endpoint.dialler(SOURCE, quic or QuicConfig())

    async def close(self) -> None:
        """Leave the relay alone."""
        await self._endpoint.close(0, "")

    async def dial(self, alpn: str) -> Session:
        """A connection on which nothing is said."""
        session = Session(self.totals)
        session.connection = await self._endpoint.connect(
            "127.0.0.1", self._port, [alpn], Trust(anyone=True), lambda _: session
        )
        self.totals.sessions += 1
        return session

    async def moqt(self) -> Session:
        """A session that is set up."""
        session = await self.dial(DRAFT16.alpn)
        session.moqt = MoqtSession(session, DRAFT16, is_client=True)
        session.moqt.start(path=b"/")
        async with asyncio.timeout(5):
            await session.spoke.wait()
        session.moqt.flush()
        return session


async def _step(number: int, session: Session) -> None:
    """Let others run now and then; LapsError when the session is closed."""
    if session.is_closed:
        raise LapsError("closed")
    if not number % AT_ONCE:
        await asyncio.sleep(0)


async def half_messages(attacker: Attacker) -> None:
    """The first bytes of a message on every stream that there may be."""
    session = await attacker.moqt()
    for number in range(5_000):
        await _write(session, session.open_stream(), HALF)
        attacker.totals.sent += 1
        await _step(number, session)
    await session.over.wait()


async def half_fragments(attacker: Attacker) -> None:
    """The same in QUICR, which takes longer ones."""
    session = await attacker.dial(QUICR_ALPN)
    for number in range(900):
        stream_id = session.open_stream()
        await _write(session, stream_id, encode(PublishIntent(b"bad/%d" % number)) + HALF_QUICR)
        attacker.totals.sent += 1
        await _step(number, session)
    await session.over.wait()


async def endless_names(attacker: Attacker) -> None:
    """Names as long as there may be, in as many parts as there may be."""
    session = await attacker.moqt()
    assert session.moqt is not None  # noqa: S101 - it is set up
    for number in count():
        parts = tuple(b"%03d" % part + bytes(120) for part in range(31))
        space = (*parts, b"%08d" % number)
        while not session.moqt.can_request:
            await asyncio.sleep(PAUSE_S)
            await _step(0, session)
        wanted = PublishNamespace(0, space) if number % 2 else Subscribe(0, TrackName(space, b"n"))
        session.moqt.request(wanted)
        attacker.totals.sent += 1
        await _step(number, session)


async def request_flood(attacker: Attacker) -> None:
    """Questions about what is not there, one after the other."""
    session = await attacker.moqt()
    assert session.moqt is not None  # noqa: S101 - it is set up
    for number in count():
        while session.moqt.is_blocked:
            await asyncio.sleep(0.001)
            await _step(0, session)
        session.moqt.request(TrackStatus(0, TrackName((b"no",), b"%d" % number)))
        attacker.totals.sent += 1
        await _step(number, session)


async def subscribes(attacker: Attacker) -> None:
    """As many subscriptions as a session may have, in session after session."""
    session = await attacker.moqt()
    assert session.moqt is not None  # noqa: S101 - it is set up
    for number in range(1_000):
        session.moqt.request(Subscribe(0, TrackName((b"no", b"%d" % id(session)), b"%d" % number)))
        attacker.totals.sent += 1
        await _step(number, session)
    asyncio.get_running_loop().call_later(3.0, session.connection.close, 0, "")


async def never_reading(attacker: Attacker) -> None:
    """Subscribe to what somebody publishes, fetch all there is, and read none of it."""
    session = await attacker.moqt()
    assert session.moqt is not None  # noqa: S101 - it is set up
    session.moqt.request(Subscribe(0, track()))
    for _ in range(100):
        wanted = StandaloneFetch(track(), Location(0, 0), Location(1 << 30, 0))
        session.moqt.request(Fetch(0, wanted))
        attacker.totals.sent += 1
    await asyncio.sleep(0.1)
    session.connection.pause_reading()
    await session.over.wait()


async def reset_storm(attacker: Attacker) -> None:
    """Streams that are given up as soon as they have begun."""
    session = await attacker.moqt()
    await _publish(session, b"storm")
    header = encode_subgroup_header(SubgroupHeader(1, 0, 0, 0, False, False), DRAFT16)
    for number in count():
        try:
            stream_id = session.connection.open_stream(unidirectional=True)
        except LapsError:
            await asyncio.sleep(0.001)
            await _step(0, session)
            continue
        await _write(session, stream_id, header + b"\x00")
        session.connection.reset_stream(stream_id, 1)
        attacker.totals.sent += 1
        await _step(number, session)


async def cache_flood(attacker: Attacker) -> None:
    """Objects that nobody wants, in many tracks, as fast as they are taken."""
    session = await attacker.moqt()
    await _publish(session, b"flood")
    payload = bytes(65_536)
    for number in count():
        header = encode_subgroup_header(SubgroupHeader(1, number, 0, 0, False, False), DRAFT16)
        data = header + encode_object_header(0, b"", len(payload)) + payload
        try:
            stream_id = session.connection.open_stream(unidirectional=True)
        except LapsError:
            await asyncio.sleep(0.001)
            await _step(0, session)
            continue
        await _write(session, stream_id, data, fin=True)
        attacker.totals.sent += 1
        await _step(0, session)


async def handshakes(attacker: Attacker) -> None:
    """Connections for nothing."""
    session = await attacker.dial(DRAFT16.alpn)
    session.connection.close(0, "")


async def datagrams(attacker: Attacker) -> None:
    """Objects of tracks that nobody has named, in datagrams."""
    session = await attacker.moqt()
    for number in count():
        session.connection.send_datagram(b"\x00\x40\x7f\x00\x00\x80" + bytes(1_000))
        attacker.totals.sent += 1
        await _step(number, session)
        if not number % AT_ONCE:
            await asyncio.sleep(0.001)


async def _publish(session: Session, name: bytes) -> None:
    assert session.moqt is not None  # noqa: S101 - it is set up
    session.moqt.request(Publish(0, TrackName((b"bad", os.urandom(8).hex().encode()), name), 1))
    await asyncio.sleep(0.05)


async def _write(session: Session, stream_id: int, data: bytes, *, fin: bool = False) -> None:
    while True:
        await _step(1, session)
        try:
            session.connection.write(stream_id, data, fin=fin)
        except SendBufferFull:
            await asyncio.sleep(0.005)
        else:
            return


# Flow control that opens by a packet at a time.
TINY: Final = QuicConfig(connection_window_bytes=16 * 1024, stream_window_bytes=16 * 1024)


async def tiny_windows(attacker: Attacker) -> None:
    """Subscribe to what somebody publishes, and take it a packet at a time."""
    session = await attacker.moqt()
    assert session.moqt is not None  # noqa: S101 - it is set up
    session.moqt.request(Subscribe(0, track()))
    for _ in range(20):
        wanted = StandaloneFetch(track(), Location(0, 0), Location(1 << 30, 0))
        session.moqt.request(Fetch(0, wanted))
        attacker.totals.sent += 1
    await session.over.wait()


ATTACKS: Final = {
    "half messages": half_messages,
    "half fragments": half_fragments,
    "endless names": endless_names,
    "request flood": request_flood,
    "subscribes": subscribes,
    "tiny windows": tiny_windows,
    "never reading": never_reading,
    "reset storm": reset_storm,
    "cache flood": cache_flood,
    "handshakes": handshakes,
    "datagrams": datagrams,
}


async def attack(name: str, port: int) -> Attacker:
    """Begin to attack a relay, until the loop ends."""
    attacker = Attacker(port, TINY if name == "tiny windows" else None)
    once = ATTACKS[name]

    async def again() -> None:
        while True:
            try:
                await once(attacker)
            except (LapsError, OSError, TimeoutError):
                attacker.totals.failed += 1
                await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(0)

    attacker.task = asyncio.ensure_future(again())
    return attacker


async def _main(name: str, port: int) -> None:
    attacker = await attack(name, port)

    def counted() -> dict[str, float]:
        totals = attacker.totals
        return {"sessions": totals.sessions, "closed": totals.closed, "sent": totals.sent}

    await answer("attacking", counted)


if __name__ == "__main__":
    pin(1)
    os.nice(NICE)
    uvloop.run(_main(sys.argv[1], int(sys.argv[2])))
