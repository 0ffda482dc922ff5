"""A session of the client library in memory, with a test for its relay.

    async with Meeting() as meeting:
        track = await meeting.session.publish("demo", "t")
        await meeting.settle()
        meeting.relay.heard                          # [Publish(...), PublishNamespace(...)]

What either side says is heard in the next turn of the event loop, in order. `Meeting.relays` has
one relay for each time that the session dials.
"""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Self, TypeVar

from laps.client.channel import Channel
from laps.client.session import Session
from laps.client.urls import parse_url
from laps.errors import ConnectionClosed
from laps.net.engine import Stats
from laps.sessions.moqt import MoqtLimits, MoqtSession
from laps.wire.moqt.data import (
    FetchHeader,
    SubgroupHeader,
    decode_stream_header,
    encode_fetch_header,
    encode_subgroup_header,
)
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.fetch import EndOfRange, FetchReader, FetchWriter
from laps.wire.moqt.messages import ClientSetup, Message
from laps.wire.moqt.object_fields import encode_object
from laps.wire.moqt.objects import Object, ObjectReader
from support.transports import NoRefusals

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from laps.client.urls import Target
    from laps.wire.moqt.dialect import Dialect

M = TypeVar("M", bound=Message)

URL = "moqt://relay.example:1"

# A test that hangs says so; none takes a hundredth of it.
LIMIT_S = 10.0


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test, with a limit."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), LIMIT_S))

    return run


@dataclass
class Written:
    """What a session has written to one stream."""

    data: bytearray = field(default_factory=bytearray)
    finished: bool = False
    reset: int | None = None


class Wire:
    """The transport of a session's channel."""

    def __init__(self, relay: FakeRelay) -> None:
        self.relay = relay
        self.tick: Callable[[float], None] | None = None
        self.opened_at = self.last_heard = 0.0
        self.remote = ("192.0.2.1", 1)
        self.alpn = ""
        self.close_state: ConnectionClosed | None = None
        self.buffered_bytes = 0
        self.carried_per_s = inf
        self.datagram_limit_bytes = 1000
        self.peer_window_bytes = 1 << 20
        self.paused = False
        self.wakes: list[int] = []
        self._ids = {False: count(0, 4), True: count(2, 4)}

    @property
    def established(self) -> bool:
        return self.close_state is None

    def peer_certificate(self) -> bytes | None:
        return None

    def stats(self) -> Stats:
        return Stats(0, 0, 0, 0, 0, 0, 0, 0, 0)

    def open_stream(self, *, unidirectional: bool) -> int:
        return next(self._ids[unidirectional])

    def write(
        self, stream_id: int, data: bytes | bytearray | memoryview, *, fin: bool = False
    ) -> bool:
        self.relay.hear(stream_id, bytes(data), fin)
        return True

    def reset_stream(self, stream_id: int, code: int) -> None:
        self.relay.streams.setdefault(stream_id, Written()).reset = code

    def stop_stream(self, stream_id: int, code: int) -> None:
        self.relay.stopped.append(stream_id)

    def send_datagram(self, data: bytes) -> bool:
        self.relay.datagrams.append(data)
        return True

    def wake_below(self, buffered_bytes: int) -> None:
        self.wakes.append(buffered_bytes)

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
        self.relay.flush()

    def probe(self) -> NoRefusals:
        return NoRefusals()

    def ping(self) -> None:
        pass

    def close(self, code: int, reason: str) -> None:
        self.end(ConnectionClosed(code, reason, by_peer=False, application=True))

    def abort(self, code: int, reason: str) -> None:
        self.close(code, reason)

    def end(self, close: ConnectionClosed) -> None:
        if self.close_state is None:
            self.close_state = close
            self.relay.channel.closed(close)

    async def wait_closed(self) -> ConnectionClosed:
        assert self.close_state is not None
        return self.close_state


class FakeRelay:
    """The other end of a channel: it says what a test wants, and writes down what it hears."""

    def __init__(self, dialect: Dialect, target: Target, requests: int = 1000) -> None:
        self.target = target
        self.heard: list[Message] = []
        self.streams: dict[int, Written] = {}
        "What came on unidirectional streams."
        self.stopped: list[int] = []
        self.datagrams: list[bytes] = []
        self.pending = 0
        self.wire = Wire(self)
        named = None if dialect is DRAFT14 else dialect
        limits = MoqtLimits(requests=requests)
        self.session = MoqtSession(self, named, is_client=False, limits=limits)
        self.channel = Channel(self.wire, named)
        self._loop = asyncio.get_running_loop()
        self._unread: list[Callable[[], None]] = []
        self._ids = {False: count(1, 4), True: count(3, 4)}

    @property
    def dialect(self) -> Dialect:
        return self.session.dialect

    def _later(self, call: Callable[[], None]) -> None:
        self.pending += 1

        def run() -> None:
            self.pending -= 1
            call()

        self._loop.call_soon(run)

    # -- what it hears -----------------------------------------------------------------------------

    def hear(self, stream_id: int, data: bytes, fin: bool) -> None:
        if stream_id & 2:
            written = self.streams.setdefault(stream_id, Written())
            written.data += data
            written.finished = fin
        else:
            self._later(lambda: self._hear(stream_id, data, fin))

    def _hear(self, stream_id: int, data: bytes, fin: bool) -> None:
        for message in self.session.receive(stream_id, data, fin=fin):
            if isinstance(message, ClientSetup):
                self.session.flush()
            else:
                self.heard.append(message)

    def heard_of(self, kind: type[M]) -> list[M]:
        return [message for message in self.heard if isinstance(message, kind)]

    def last(self, kind: type[M]) -> M:
        return self.heard_of(kind)[-1]

    def objects(self) -> list[tuple[int, int, int, bytes]]:
        """The objects on subgroups' streams, as group, subgroup, id and payload."""
        found: list[tuple[int, int, int, bytes]] = []
        for written in self.streams.values():
            header, length = decode_stream_header(bytes(written.data), self.dialect)
            if isinstance(header, SubgroupHeader):
                reader = ObjectReader(header, self.dialect)
                items = reader.feed(bytes(written.data[length:]))
                found += [(i.group, i.subgroup or 0, i.object_id, i.payload) for i in items]
        return found

    def fetched(self, request_id: int) -> list[Any]:
        """What answers a FETCH."""
        for written in self.streams.values():
            header, length = decode_stream_header(bytes(written.data), self.dialect)
            if header == FetchHeader(request_id):
                assert written.finished
                return FetchReader(self.dialect).feed(bytes(written.data[length:]))
        raise AssertionError(f"nothing answers request {request_id}")

    # -- what it says ------------------------------------------------------------------------------

    def open_stream(self) -> int:
        return next(self._ids[False])

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        self._deliver(lambda: self.channel.stream_data(stream_id, data, fin))

    def end_stream(self, stream_id: int, code: int) -> None:
        self._deliver(lambda: self.channel.stream_reset(stream_id, code))

    def say(self, *messages: Message) -> None:
        for message in messages:
            self.session.send(message)

    def _deliver(self, call: Callable[[], None]) -> None:
        self._unread.append(call)
        self._later(self.flush)

    def flush(self) -> None:
        while self._unread and not self.wire.paused and self.wire.established:
            self._unread.pop(0)()

    def new_stream(self) -> int:
        return next(self._ids[True])

    def stream(
        self,
        alias: int,
        group: int,
        *items: tuple[int, bytes],
        subgroup: int = 0,
        fin: bool = True,
        stream_id: int | None = None,
        end_of_group: bool = False,
    ) -> int:
        """A subgroup's stream from its beginning."""
        number = self.new_stream() if stream_id is None else stream_id
        header = SubgroupHeader(alias, group, subgroup, 128, end_of_group=end_of_group)
        data = encode_subgroup_header(header, self.dialect) + self.body(*items)
        self._deliver(lambda: self.channel.stream_data(number, data, fin))
        return number

    def more(self, stream_id: int, *items: tuple[int, bytes], last: int, fin: bool = False) -> None:
        """More of a stream whose last object was `last`."""
        data = self.body(*items, last=last)
        self._deliver(lambda: self.channel.stream_data(stream_id, data, fin))

    def body(self, *items: tuple[int, bytes], last: int = -1) -> bytes:
        data = b""
        for number, payload in items:
            status = 0 if payload != END_OF_TRACK else 4
            written = b"" if status else payload
            data += encode_object(number - last - 1, b"", written, status)
            last = number
        return data

    def fetch_stream(
        self, request_id: int, *items: tuple[int, int, bytes | None], fin: bool = True
    ) -> int:
        """The answer to a FETCH; what has no payload is the end of a range that is not known."""
        writer = FetchWriter(self.dialect)
        data = encode_fetch_header(FetchHeader(request_id))
        for group, number, payload in items:
            if payload is None:
                data += writer.encode(EndOfRange(group, number, unknown=True))
            else:
                data += writer.encode(Object(group, 0, number, 128, 0, b"", payload))
        stream_id = self.new_stream()
        self._deliver(lambda: self.channel.stream_data(stream_id, data, fin))
        return stream_id

    def reset(self, stream_id: int) -> None:
        self._deliver(lambda: self.channel.stream_reset(stream_id, 0))

    def lose(self) -> None:
        """The connection breaks."""
        self.wire.end(ConnectionClosed(0, "gone", by_peer=True, application=False))


END_OF_TRACK = b"(end of track)"
"Stands for the status in what a test writes."


class Meeting:
    """A session, and the relays it has met."""

    def __init__(
        self, dialect: Dialect = DRAFT16, *, reconnect_s: float = 60.0, requests: int = 1000
    ) -> None:
        self.dialect = dialect
        self.requests = requests
        "How many at once the next relay allows."
        self.relays: list[FakeRelay] = []
        self._reconnect_s = reconnect_s

    @property
    def relay(self) -> FakeRelay:
        return self.relays[-1]

    async def dial(self, target: Target) -> Channel:
        """As `Dialler`."""
        relay = FakeRelay(self.dialect, target, self.requests)
        relay.channel.session.start()
        self.relays.append(relay)
        await relay.channel.ready
        return relay.channel

    async def close(self) -> None:
        """As `Dialler`."""

    async def __aenter__(self) -> Self:
        target = parse_url(URL)
        channel = await self.dial(target)
        self.session = Session(self, target, channel, reconnect_s=self._reconnect_s)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close(end_tracks=False)

    async def settle(self) -> None:
        """Let everybody hear all that was said."""
        quiet = 0
        while quiet < 3:
            quiet = 0 if any(relay.pending for relay in self.relays) else quiet + 1
            await asyncio.sleep(0)

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():  # noqa: ASYNC110 - what is waited for is no asyncio object's to tell
            await asyncio.sleep(0)
