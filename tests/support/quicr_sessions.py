"""A QUICR session of the client library in memory, with a test for its relay.

    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t")
        stream = await meeting.asked()
        meeting.relay.say(stream, SubscribeReply(Response.OK))

What either side says is heard in the next turn of the event loop, in order. `QuicrMeeting.relays`
has one relay for each time that the session dials.
"""

from __future__ import annotations

import asyncio
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Self, TypeVar

from laps.client.quicr.channel import QuicrChannel
from laps.client.quicr.session import QuicrSession
from laps.client.urls import parse_url
from laps.errors import ConnectionClosed, HandshakeFailed, RemoteProtocolError
from laps.sessions import quicr as sessions
from laps.wire.quicr.fragments import Reassembler, cut
from laps.wire.quicr.messages import (
    Fragment,
    Message,
    PublishIntent,
    PublishIntentOk,
    RelayRedirect,
    Response,
    StartPoint,
    Subscribe,
    SubscribeReply,
    Terms,
    decode_datagram,
    encode_datagram,
)
from support.sessions import Wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.client.quicr.subscription import QuicrSubscription
    from laps.client.urls import Target
    from laps.sessions.quicr import ControlStream
    from laps.types import Location

M = TypeVar("M", bound=Message)

URL = "quicr://relay.example:1"

ELSEWHERE = (SubscribeReply(Response.REDIRECT), RelayRedirect("192.0.2.9:7"))
"A relay that leaves says it to subscribers."


def items(group: int, *numbers: int) -> list[tuple[int, int, bytes]]:
    """Objects that say what they are."""
    return [(group, number, b"%d.%d" % (group, number)) for number in numbers]


async def take(objects: QuicrSubscription, count: int) -> list[tuple[int, int, bytes]]:
    found = [await anext(objects) for _ in range(count)]
    return [(item.group, item.id, item.payload) for item in found]


async def rest(objects: QuicrSubscription) -> list[tuple[int, int, bytes]]:
    return [(item.group, item.id, item.payload) async for item in objects]


class QuicrWire(Wire):
    """The transport of a session's channel; what hostile input makes it raise closes it."""

    relay: FakeQuicrRelay  # type: ignore[assignment]

    def __init__(self, relay: FakeQuicrRelay) -> None:
        super().__init__(relay)  # type: ignore[arg-type]
        self.carried_per_s = inf
        self.datagram_limit_bytes = 1200
        self.peer_window_bytes = 1 << 20
        self.datagram_room: int | None = None
        "How many datagrams may still be sent; None is without end."

    def reset_stream(self, stream_id: int, code: int) -> None:
        self.relay.reset[stream_id] = code
        self.relay.later(lambda: self.relay.take(self.relay.session.stream_ended(stream_id)))

    def send_datagram(self, data: bytes) -> bool:
        if self.datagram_room is not None:
            if not self.datagram_room:
                return False
            self.datagram_room -= 1
        self.relay.datagrams.append(data)
        return True


class FakeQuicrRelay:
    """The other end of a channel: it says what a test wants, and writes down what it hears."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.heard: list[tuple[int, Message]] = []
        "Streams and what was said on them, media apart."
        self.closed: dict[int, bool] = {}
        "The streams that the client has closed, and whether well."
        self.reset: dict[int, int] = {}
        self.stopped: list[int] = []
        self.datagrams: list[bytes] = []
        self.objects: list[tuple[int, int, bytes]] = []
        "What came on streams."
        self.starts: list[Location] = []
        self.pending = 0
        self.wire = QuicrWire(self)
        self.session = sessions.QuicrSession(self)
        self.channel = QuicrChannel(self.wire)
        self._loop = asyncio.get_running_loop()
        self._unread: list[Callable[[], None]] = []
        self._ids = count(1, 4)
        self._pieces: dict[int, Reassembler] = {}

    def later(self, call: Callable[[], None]) -> None:
        self.pending += 1

        def run() -> None:
            self.pending -= 1
            call()

        self._loop.call_soon(run)

    # -- what it hears -----------------------------------------------------------------------------

    def hear(self, stream_id: int, data: bytes, fin: bool) -> None:
        self.later(lambda: self.take(self.session.receive(stream_id, data, fin=fin)))

    def take(self, events: list[sessions.Event]) -> None:
        for event in events:
            number = event.stream.id
            if isinstance(event, sessions.Closed):
                self.closed[number] = event.well
                if event.well:  # then the other closes its own
                    self.session.close(event.stream)
            elif isinstance(event.message, Fragment):
                self._assemble(number, event.message)
            else:
                if isinstance(event.message, StartPoint):
                    self.starts.append(event.message.start)
                self.heard.append((number, event.message))

    def _assemble(self, number: int, fragment: Fragment) -> None:
        _, payload = self._pieces.setdefault(number, Reassembler()).add(fragment)
        if payload is not None:
            self.objects.append((fragment.group, fragment.object_id, payload))

    def heard_of(self, kind: type[M]) -> list[M]:
        return [message for _, message in self.heard if isinstance(message, kind)]

    def last(self, kind: type[M]) -> M:
        return self.heard_of(kind)[-1]

    def stream_of(self, kind: type[Message]) -> ControlStream:
        """The stream on which something was last said."""
        number = [number for number, message in self.heard if isinstance(message, kind)][-1]
        return self.session.streams[number]

    def datagram_objects(self) -> list[tuple[int, int, bytes]]:
        """What came in datagrams, put together."""
        pieces, found = Reassembler(), []
        for data in self.datagrams:
            fragment = decode_datagram(data).fragment
            _, payload = pieces.add(fragment)
            if payload is not None:
                found.append((fragment.group, fragment.object_id, payload))
        return found

    # -- as `Wire` of its session ------------------------------------------------------------------

    def open_stream(self) -> int:
        return next(self._ids)

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        self.bring(lambda: self.channel.stream_data(stream_id, data, fin))

    def end_stream(self, stream_id: int, code: int) -> None:
        self.bring(lambda: self.channel.stream_reset(stream_id, code))

    # -- what it says ------------------------------------------------------------------------------

    def bring(self, call: Callable[[], None]) -> None:
        self._unread.append(call)
        self.later(self.flush)

    def flush(self) -> None:
        while self._unread and not self.wire.paused and self.wire.established:
            try:
                self._unread.pop(0)()
            except RemoteProtocolError as error:  # as an engine does
                self.wire.close(error.code, str(error))

    def say(self, stream: ControlStream, *messages: Message) -> None:
        for message in messages:
            self.session.send(stream, message)

    def objects_on(self, stream: ControlStream, *items: tuple[int, int, bytes]) -> None:
        """Objects on a stream, each in one fragment."""
        for group, number, payload in items:
            self.say(stream, Fragment(group, number, 0, payload, True))

    def objects_in_datagrams(
        self, datagram_id: int, *items: tuple[int, int, bytes], before: int = 0, size: int = 1000
    ) -> None:
        """Objects in datagrams."""
        for group, number, payload in items:
            for fragment in cut(group, number, payload, size):
                self.datagram(datagram_id, fragment, Terms(objects_before=before))

    def datagram(self, datagram_id: int, fragment: Fragment, terms: Terms | None = None) -> None:
        data = encode_datagram(datagram_id, fragment, terms or Terms())
        self.bring(lambda: self.channel.datagram(data))

    def offer(self, name: bytes, *, datagrams: bool = False) -> ControlStream:
        """PUBLISH_INTENT."""
        return self.session.open(PublishIntent(name, datagrams))

    def lose(self) -> None:
        """The connection breaks."""
        self.wire.end(ConnectionClosed(0, "gone", by_peer=True, application=False))


class QuicrMeeting:
    """A session, and the relays it has met."""

    def __init__(self, *, reconnect_s: float = 60.0) -> None:
        self.relays: list[FakeQuicrRelay] = []
        self.unreachable: set[str] = set()
        "Hosts where nobody answers."
        self.dialled: list[str] = []
        self._reconnect_s = reconnect_s

    @property
    def relay(self) -> FakeQuicrRelay:
        return self.relays[-1]

    async def dial(self, target: Target) -> QuicrChannel:
        """As `Dialler`."""
        self.dialled.append(target.host)
        if target.host in self.unreachable:
            raise HandshakeFailed(f"nobody answers at {target.host}")
        relay = FakeQuicrRelay(target)
        self.relays.append(relay)
        return relay.channel

    async def close(self) -> None:
        """As `Dialler`."""

    async def __aenter__(self) -> Self:
        target = parse_url(URL)
        channel = await self.dial(target)
        self.session = QuicrSession(self, target, channel, reconnect_s=self._reconnect_s)
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

    async def asked(self, number: int = 1, *, relays: int = 1) -> ControlStream:
        """The stream of the newest SUBSCRIBE, when there are so many of them, granted."""
        await self.until(lambda: len(self.relays) >= relays)
        relay = self.relay

        def opened() -> list[int]:
            return list(dict.fromkeys(n for n, m in relay.heard if isinstance(m, Subscribe)))

        await self.until(lambda: len(opened()) >= number)
        stream = relay.session.streams[opened()[-1]]
        relay.say(stream, SubscribeReply(Response.OK))
        return stream

    async def intended(
        self, *, relays: int = 1, datagram_id: int | None = None, answer: bool = True
    ) -> ControlStream:
        """The stream of the newest PUBLISH_INTENT, answered."""
        await self.until(lambda: len(self.relays) >= relays)
        await self.until(lambda: self.relay.heard_of(PublishIntent))
        stream = self.relay.stream_of(PublishIntent)
        if answer:
            self.relay.say(stream, PublishIntentOk(datagram_id))
        return stream
