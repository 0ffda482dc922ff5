"""MoQT clients that cost little, so that a relay is what is measured, and not they.

The bytes of messages and objects are made once and written as they are; subscribers count bytes.
All objects of a load have the same size, so that bytes tell how many objects came; where every
object has to be accounted for, they are looked for one by one.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from laps.config import QuicConfig
from laps.errors import LapsError, SendBufferFull, StreamLimitReached
from laps.net.quic import Endpoint
from laps.net.tls import Trust
from laps.types import TrackName
from laps.wire.buffer import Incomplete
from laps.wire.moqt.boundaries import BoundaryScanner
from laps.wire.moqt.data import (
    SubgroupHeader,
    decode_stream_header,
    encode_subgroup_header,
)
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.messages import (
    ClientSetup,
    Publish,
    PublishOk,
    RequestError,
    ServerSetup,
    Subscribe,
    SubscribeOk,
)
from laps.wire.moqt.object_fields import encode_object_header

if TYPE_CHECKING:
    from laps.errors import ConnectionClosed
    from laps.net.connection import Connection
    from laps.wire.moqt.messages import Message

ALPN: Final = "moqt-16"
HOST: Final = "127.0.0.1"

# A client lets come what its socket can hold, so that a relay faster than the client is held back
# by windows, and no packet is lost on the way.
LIMITS: Final = QuicConfig(connection_window_bytes=2 << 20, stream_window_bytes=1 << 20)

ALIAS: Final = 1
REQUESTS: Final = 10_000

# How long a track may take to be known, through three relays.
READY_S: Final = 15.0

# Streams of one object each are written so many ahead of the wire, since a sender looks at all
# that it has not sent yet whenever it sends.
STREAMS_AHEAD: Final = 256

CLOCK: Final = struct.Struct("!d")


@dataclass(frozen=True, slots=True)
class Load:
    """What a publisher sends to how many."""

    port: int
    pid: int
    "The relay's process, whose processor time is taken."
    seconds: float
    subscribers: int = 1
    object_bytes: int = 1000
    objects_per_group: int = 1000
    "A group is a stream."
    rate: float = 0.0
    "Objects a second; 0 is as many as QUIC takes."
    exact: bool = False
    "Look for every object instead of counting bytes."
    subscribe_port: int = 0
    "Where subscribers connect, if that is another relay."
    bare: bool = False
    "To a loop that copies streams, and speaks no MoQT."
    idle_subscriptions: int = 0
    "Measure what these take, and send nothing."

    @property
    def object_header(self) -> bytes:
        """What goes ahead of an object's payload."""
        return encode_object_header(0, b"", self.object_bytes)


def track(number: int = 0) -> TrackName:
    """One of the tracks that are published."""
    return TrackName((b"bench",), b"relay %d" % number)


class Session:
    """A client's connection: speaks MoQT on its control stream, and leaves the rest to others."""

    def __init__(self) -> None:
        self.connection: Connection
        self.resets = 0
        self.close: ConnectionClosed | None = None
        self._heard: asyncio.Queue[Message] = asyncio.Queue()
        self._head = b""
        self._control = 0

    async def open(self, port: int, *, bare: bool) -> None:
        """Connect from a port of its own, and say hello."""
        endpoint = Endpoint.dialler(HOST, LIMITS)
        trust = Trust(anyone=True)
        self.connection = await endpoint.connect(HOST, port, [ALPN], trust, lambda _: self)
        if not bare:
            self._control = self.connection.open_stream(unidirectional=False)
            self.say(ClientSetup(max_request_id=REQUESTS))
            await self.hear(ServerSetup)

    def say(self, message: Message) -> None:
        """Write a control message."""
        self.connection.write(self._control, DRAFT16.encode(message))

    async def hear(self, *kinds: type) -> Message:
        """The next message of one of these kinds."""
        async with asyncio.timeout(READY_S):
            while not isinstance(message := await self._heard.get(), kinds):
                pass
        return message

    async def publish(self, number: int = 0) -> None:
        """Offer a track."""
        request_id = 2 * number
        self.say(Publish(request_id, track(number), ALIAS + number))
        await self.hear(PublishOk)

    async def subscribe(self, number: int = 0, request_id: int = 0) -> int:
        """Subscribe to a track, again until it is there; the next request id."""
        end = monotonic() + READY_S
        while monotonic() < end:
            self.say(Subscribe(request_id, track(number)))
            answer = await self.hear(SubscribeOk, RequestError)
            if isinstance(answer, SubscribeOk):
                return request_id + 2
            request_id += 2
            await asyncio.sleep(0.1)
        raise LapsError("the relay does not know the track that is published to it")

    def objects_came(self, stream_id: int, data: bytes, fin: bool) -> None:
        """Bytes of a stream of objects."""

    # As `Receiver`.

    def stream_data(self, stream_id: int, data: bytes, fin: bool) -> None:
        if stream_id & 2:
            self.objects_came(stream_id, data, fin)
            return
        self._head += data
        while self._head:
            try:
                kind, payload, after = DRAFT16.split(self._head)
            except Incomplete:
                return
            self._heard.put_nowait(DRAFT16.decode(kind, payload))
            self._head = self._head[after:]

    def stream_reset(self, stream_id: int, code: int) -> None:
        self.resets += 1

    def closed(self, close: ConnectionClosed) -> None:
        self.close = close

    def writable(self) -> None: ...
    def stop_sending(self, stream_id: int, code: int) -> None: ...
    def datagram(self, data: bytes) -> None: ...


class Publisher(Session):
    """Writes objects, one by one, whenever QUIC takes them."""

    def __init__(self, load: Load) -> None:
        super().__init__()
        self.sent = 0
        self._load = load
        self._object = load.object_header + bytes(load.object_bytes)
        self._stream: int | None = None
        self._start = b""
        "The stream's header, until it is written."
        self._group = -1
        self._left = 0
        "Objects that the group is still to have."
        self._ahead_bytes = LIMITS.send_buffer_bytes
        if load.objects_per_group == 1:
            self._ahead_bytes = min(self._ahead_bytes, STREAMS_AHEAD * load.object_bytes)
        self._over = False
        self._is_full = False
        "QUIC takes no more of what is due for now."
        self._began = 0.0

    def start(self) -> None:
        """Begin to send."""
        self._began = monotonic()
        if self._load.rate:
            self._send_what_is_due()
        else:
            self._fill()

    def stop(self) -> None:
        """Send no more; the last group ends where it is."""
        self._over = True
        if self._stream is not None and not self._start:
            self.connection.write(self._stream, b"", fin=True)

    def writable(self) -> None:
        if self._over:
            return
        if not self._load.rate:
            self._fill()
        elif self._is_full:
            self._send_what_is_due()

    def _fill(self) -> None:
        connection, ahead = self.connection, self._ahead_bytes
        try:
            while connection.buffered_bytes < ahead:
                self._write(self._object)
        except (SendBufferFull, StreamLimitReached):
            return  # `writable` follows
        connection.wake_below(ahead // 2)

    def _send_what_is_due(self) -> None:
        if self._over:
            return
        rate, load = self._load.rate, self._load
        rest = bytes(load.object_bytes - CLOCK.size)
        try:
            while self.sent < (monotonic() - self._began) * rate:
                self._write(load.object_header + CLOCK.pack(monotonic()) + rest)
        except (SendBufferFull, StreamLimitReached):
            self._is_full = True
            return  # `writable` follows, and what is due by then
        self._is_full = False
        due = self._began + (self.sent + 1) / rate
        # The loop counts in milliseconds.
        wait = max(0.001, due - monotonic())
        asyncio.get_running_loop().call_later(wait, self._send_what_is_due)

    def _write(self, item: bytes) -> None:
        """One object, on the stream of its group."""
        if self._stream is None:
            self._stream = self.connection.open_stream(unidirectional=True)
            self._group += 1
            self._left = self._load.objects_per_group
            header = SubgroupHeader(ALIAS, self._group, priority=128)
            self._start = encode_subgroup_header(header, DRAFT16)
        last = self._left == 1
        self.connection.write(self._stream, self._start + item, fin=last)
        self.sent += 1
        self._start = b""
        self._left -= 1
        if last:
            self._stream = None


class Subscriber(Session):
    """Counts what comes of a track, in bytes."""

    def __init__(self, load: Load) -> None:
        super().__init__()
        self.bytes = 0
        "Of objects, with their own headers and without those of streams."
        self.delays: list[float] = []
        self._object_bytes = len(load.object_header) + load.object_bytes
        self._begun: set[int] = set()
        self._heads: dict[int, bytes] = {}
        "What has come of streams whose header is not all there."

    @property
    def objects(self) -> int:
        """How many objects came."""
        return self.bytes // self._object_bytes

    def objects_came(self, stream_id: int, data: bytes, fin: bool) -> None:
        if stream_id not in self._begun:
            data = self._begin(stream_id, data)
        self.take(stream_id, data, fin)
        if fin:
            self._begun.discard(stream_id)

    def take(self, stream_id: int, data: bytes, fin: bool) -> None:
        """Bytes behind a stream's header."""
        self.bytes += len(data)

    def _begin(self, stream_id: int, data: bytes) -> bytes:
        """What follows the header, once that is there."""
        data = self._heads.pop(stream_id, b"") + data
        try:
            length = decode_stream_header(data, DRAFT16)[1]
        except Incomplete:
            self._heads[stream_id] = data
            return b""
        self._begun.add(stream_id)
        return data[length:]


class ExactSubscriber(Subscriber):
    """Looks for every object."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        self._scanners: dict[int, BoundaryScanner] = {}
        self._complete = 0

    @property
    def objects(self) -> int:
        return self._complete

    def take(self, stream_id: int, data: bytes, fin: bool) -> None:
        self.bytes += len(data)
        scanner = self._scanners.get(stream_id)
        if scanner is None:
            scanner = self._scanners[stream_id] = BoundaryScanner(DRAFT16, has_extensions=False)
        before = scanner.complete_objects
        scanner.feed(data)
        self._complete += scanner.complete_objects - before
        if fin:
            del self._scanners[stream_id]


class TimingSubscriber(Subscriber):
    """Reads the time in every object, and compares."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        self._clock_at = len(load.object_header)
        self._parts: dict[int, bytes] = {}

    def take(self, stream_id: int, data: bytes, fin: bool) -> None:
        now, size = monotonic(), self._object_bytes
        self.bytes += len(data)
        data = self._parts.pop(stream_id, b"") + data
        while len(data) >= size:
            (sent,) = CLOCK.unpack_from(data, self._clock_at)
            self.delays.append(now - sent)
            data = data[size:]
        if not fin:
            self._parts[stream_id] = data
