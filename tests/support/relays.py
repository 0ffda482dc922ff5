"""Relays joined in memory, at once and in order; time moves only when the test says so.

    net = Net()
    near, far = net.relay("1:1"), net.relay("1:2")
    wire = net.wire(near, far, srtt_ms=10)       # near dials far; wire.here is near's end
    net.subscribe(far, app, "a/b")
    wire.here.sets                               # {SNS id: nodes} as near has told far

A `Puppet` stands in for a relay and says whatever the test wants it to.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from laps.errors import RemoteProtocolError
from laps.infobase.nodes import SessionId
from laps.relay.relay import Relay
from laps.relay.roles import RULES, Role
from laps.relay.settings import RelaySettings
from laps.routing.terms import ORDINARY
from laps.tracks.ports import Answers, Unhurried
from laps.types import (
    AnnounceInfo,
    DataDirection,
    NodeId,
    NodeInfo,
    NodeType,
    PeerMode,
    SubscribeInfo,
    TrackHash,
    TrackName,
    format_node_id,
    hash_bytes,
    hash_track,
    parse_node_id,
)
from laps.wire.control import ControlDecoder, encode
from laps.wire.extensions import EXTENDED_CODECS
from laps.wire.peering import (
    CODECS,
    Connect,
    ConnectResponse,
    ResponseCode,
    SubscribeNodeSetAdv,
    SubscribeNodeSetWd,
)
from laps.wire.subscribe import encode_subscribe

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.relay.ports import Link
    from laps.wire.peering import Message

M = TypeVar("M")


def track_name(text: str) -> TrackName:
    """`a/b/c` is the track c of the namespace (a, b)."""
    *namespace, name = (part.encode() for part in text.split("/"))
    return TrackName(tuple(namespace), name)


def track_hash(text: str) -> TrackHash:
    return hash_track(track_name(text))


def subscribe_info(node: str, track: str, sequence: int) -> SubscribeInfo:
    name = track_name(track)
    return SubscribeInfo(sequence, parse_node_id(node), hash_track(name), encode_subscribe(name))


class Speaker(Protocol):
    """What a wire can be plugged into: a relay or a puppet."""

    def link_opened(
        self, link: Link, now: float, mode: PeerMode = ..., direction: DataDirection = ...
    ) -> None: ...

    def link_data(self, link: Link, stream_id: int, data: bytes, fin: bool, now: float) -> None: ...

    def link_datagram(self, link: Link, data: bytes, now: float) -> None: ...

    def link_reset(self, link: Link, stream_id: int, code: int, now: float) -> None: ...

    def link_writable(self, link: Link, now: float) -> None: ...

    def link_closed(self, link: Link, now: float) -> None: ...


class Clock(Protocol):
    """Who has something to do at a time."""

    def deadline(self) -> float | None: ...

    def tick(self, now: float) -> None: ...


class WireStream:
    """A stream of one end of a wire."""

    def __init__(
        self, end: WireEnd, stream_id: int, priority: int, ttl_us: int, order: int
    ) -> None:
        self.order = order
        self._end = end
        self.stream_id = stream_id
        self.priority = priority
        self.ttl_us = ttl_us
        self.over = False
        self.data = bytearray()

    def write(self, data: bytes | memoryview, now: float = 0.0) -> bool:
        if self.over:
            return False
        self.data += data
        return self._end.deliver_data(self.stream_id, bytes(data), False)

    def finish(self, data: bytes | memoryview = b"", now: float = 0.0) -> bool:
        if self.over:
            return False
        self.over = True
        self.data += data
        return self._end.deliver_data(self.stream_id, bytes(data), True)

    def reorder(self, order: int) -> None:
        self.order = order

    def reset(self, code: int, now: float = 0.0) -> None:
        if not self.over:
            self.over = True
            self._end.deliver_reset(self.stream_id, code)

    def abort(self, code: int) -> None:
        self.reset(code)


class WireEnd:
    """One end of a wire: a link of a relay."""

    def __init__(self, net: Net, relay: Speaker, number: int, dialled: bool, srtt_us: int) -> None:
        self.net = net
        self.relay = relay
        self.id = SessionId(number)
        self.opened_at = net.now
        self.dialled = dialled
        self.extended = False
        self.remote = "192.0.2.1"
        self.certificate = "ab" * 32
        self.expected: NodeId | None = None
        self.srtt_us = srtt_us
        self.other: WireEnd
        self.closed: tuple[int, str] | None = None
        self.streams: dict[int, WireStream] = {}
        self.sent: list[Message] = []
        "Every control message that went out here."
        self.datagrams: list[bytes] = []
        self.datagram_orders: list[int] = []
        self.ended: list[tuple[int, int]] = []
        self.pressed = False
        self.crowded = False
        self.pressed_from = 0
        "The best class that is pressed, or crowded, where something is."
        self.sent_bytes = 0
        "As `Link`: a wire takes everything at once, unless a test says that it does not."
        self.when_flushed: list[Callable[[], None]] = []
        self.window = inf
        "How much of control may be unread on the other side."
        self.holding = False
        "As if the other side did not read: no room comes back."
        self.unread = 0
        self.most_unread = 0
        self._bidi = count(0 if dialled else 1, 4)
        self._uni = count(2 if dialled else 3, 4)

    # -- what a relay does with it -----------------------------------------------------------------

    def pressed_for(self, order: int) -> bool:
        return self.pressed and order >= self.pressed_from

    def crowded_for(self, order: int) -> bool:
        return self.crowded and order >= self.pressed_from

    def open_control(self) -> int:
        return next(self._bidi)

    @property
    def control_room(self) -> float:
        return self.window - self.unread

    def send_control(self, stream_id: int, data: bytes) -> None:
        decoder = ControlDecoder(codecs=EXTENDED_CODECS if self.extended else CODECS)
        decoder.feed(data)
        self.sent.extend(decoder)
        assert decoder.unfinished_bytes == 0, "a relay writes whole messages"
        self.unread += len(data)
        self.most_unread = max(self.most_unread, self.unread)

        def read() -> None:
            if not self.holding:
                self.read(len(data))

        self.deliver_data(stream_id, data, False)
        self.net.post(read, self.net.latency)

    def read(self, count: int) -> None:
        """The other side has read so much of what was said here."""
        had_room = self.control_room > 0
        self.unread -= count
        if self.closed is None and not had_room and self.control_room > 0:
            self.relay.link_writable(self, self.net.now)

    def release(self) -> None:
        """The other side reads again what is said here, beginning with what it has left."""
        self.holding = False
        self.net.post(lambda: self.read(self.unread))
        self.net.run()

    def open_stream(self, priority: int, ttl_us: int, order: int = ORDINARY) -> WireStream:
        stream = WireStream(self, next(self._uni), priority, ttl_us, order)
        self.streams[stream.stream_id] = stream
        return stream

    def when_sent(self, call: Callable[[], None]) -> None:
        """While it is pressed something waits to be sent; a test calls these when nothing does."""
        if self.pressed:
            self.when_flushed.append(call)
        else:
            call()

    def flush(self) -> None:
        """All that was written has been sent."""
        self.pressed = self.crowded = False
        calls, self.when_flushed = self.when_flushed, []
        for call in calls:
            call()

    def send_datagram(self, data: bytes, priority: int, order: int = ORDINARY) -> None:
        self.datagrams.append(data)
        self.datagram_orders.append(order)
        self._post(lambda there: there.relay.link_datagram(there, data, self.net.now))

    def end_stream(self, stream_id: int, code: int) -> None:
        """The other side is asked to stop, and answers with a reset as QUIC has it."""
        self.ended.append((stream_id, code))

        def stop(there: WireEnd) -> None:
            stream = there.streams.get(stream_id)
            if stream is not None and not stream.over:
                stream.reset(code)

        self._post(stop)

    def probe(self) -> None:
        """Here the answer, or that there is none, comes at once."""
        if self.other.closed is not None and self.closed is not None:
            self.net.post(lambda: self.relay.link_closed(self, self.net.now))

    def close(self, code: int, reason: str) -> None:
        """What was said before arrives; what the other side says meanwhile does not."""
        if self.closed is not None:
            return
        self.closed = (code, reason)
        self.net.post(lambda: self.relay.link_closed(self, self.net.now))
        self._post(lambda there: there.close(code, reason), even_closed=True)

    # -- what a test looks at ----------------------------------------------------------------------

    def said(self, kind: type[M]) -> list[M]:
        """The control messages of one kind that went out here."""
        return [message for message in self.sent if isinstance(message, kind)]

    @property
    def sets(self) -> dict[int, set[str]]:
        """The sets that the other side holds, as told."""
        sets: dict[int, set[str]] = {}
        for message in self.sent:
            match message:
                case SubscribeNodeSetAdv(sns_id, nodes):
                    sets[sns_id] = {format_node_id(node_id) for node_id in nodes}
                case SubscribeNodeSetWd(sns_id):
                    del sets[sns_id]
        return sets

    @property
    def running(self) -> list[WireStream]:
        """The streams that are not over."""
        return [stream for stream in self.streams.values() if not stream.over]

    # -- how it works ------------------------------------------------------------------------------

    def deliver_data(self, stream_id: int, data: bytes, fin: bool) -> bool:
        self._post(lambda there: there.relay.link_data(there, stream_id, data, fin, self.net.now))
        return True

    def deliver_reset(self, stream_id: int, code: int) -> None:
        self._post(lambda there: there.relay.link_reset(there, stream_id, code, self.net.now))

    def _post(self, call: Callable[[WireEnd], None], *, even_closed: bool = False) -> None:
        if self.closed is not None and not even_closed:
            return

        def happen() -> None:
            there = self.other
            if there.closed is None:
                try:
                    call(there)
                except RemoteProtocolError as error:
                    there.close(error.code, str(error))

        self.net.post(happen, self.net.latency)


class Wire(NamedTuple):
    """Two ends: the one that dialled, and the other."""

    here: WireEnd
    there: WireEnd

    def cut(self, *, noticed_by: tuple[Speaker, ...] | None = None) -> None:
        """Everything under way is lost; both sides notice, or only these."""
        for end in self:
            if end.closed is None:
                end.closed = (0, "cut")
                if noticed_by is None or end.relay in noticed_by:
                    end.net.post(lambda end=end: end.relay.link_closed(end, end.net.now))  # type: ignore[misc]
        self.here.net.run()

    def set_srtt(self, srtt_ms: float) -> None:
        for end in self:
            end.srtt_us = round(srtt_ms * 1000)
            assert isinstance(end.relay, Relay)
            end.relay.link_srtt(end, end.net.now)
        self.here.net.run()


class Puppet:
    """A peer whose every word the test chooses. It answers CONNECT, and writes down the rest."""

    def __init__(self, net: Net, node: str, node_type: NodeType = NodeType.EDGE) -> None:
        self.net = net
        self.info = NodeInfo(parse_node_id(node), node_type, f"at {node}")
        self.heard: list[Message] = []
        self.streams: dict[int, AppStream] = {}
        self.datagrams: list[bytes] = []
        self.closed: tuple[int, str] | None = None
        self.silent = False
        "Does not introduce itself."
        self.end: WireEnd
        self.control = 0
        self._decoder = ControlDecoder()

    @property
    def id(self) -> NodeId:
        return self.info.id

    def say(self, *messages: Message) -> None:
        """On the control stream of its last link."""
        for message in messages:
            data = encode(message, codecs=EXTENDED_CODECS)
            self.end.send_control(self.control, data)
        self.net.run()

    def say_bytes(self, data: bytes) -> None:
        self.end.deliver_data(self.control, data, False)
        self.net.run()

    def send(self, data: bytes, *, fin: bool = False) -> WireStream:
        """A new data stream that begins with these bytes."""
        stream = self.end.open_stream(0, 0)
        stream.finish(data) if fin else stream.write(data)
        self.net.run()
        return stream

    def heard_of(self, kind: type[M]) -> list[M]:
        return [message for message in self.heard if isinstance(message, kind)]

    # -- as a relay is called ----------------------------------------------------------------------

    def link_opened(
        self,
        link: Link,
        now: float,
        mode: PeerMode = PeerMode.BOTH,
        direction: DataDirection = DataDirection.BIDIRECTIONAL,
    ) -> None:
        assert isinstance(link, WireEnd)
        self.end = link
        self._decoder = ControlDecoder(codecs=EXTENDED_CODECS if link.extended else CODECS)
        if link.dialled:
            self.control = link.open_control()
            if not self.silent:
                link.send_control(self.control, encode(Connect(mode, direction, self.info)))

    def link_data(self, link: Link, stream_id: int, data: bytes, fin: bool, now: float) -> None:
        if stream_id & 2:
            stream = self.streams.setdefault(stream_id, AppStream(0, 0))
            stream.finish(data) if fin else stream.write(data)
            return
        if not link.dialled:
            self.control = stream_id
        self._decoder.feed(data)
        for message in self._decoder:
            self.heard.append(message)
            if isinstance(message, Connect) and not self.silent:
                link.send_control(stream_id, encode(ConnectResponse(ResponseCode.OK, self.info)))

    def link_datagram(self, link: Link, data: bytes, now: float) -> None:
        self.datagrams.append(data)

    def link_reset(self, link: Link, stream_id: int, code: int, now: float) -> None:
        self.streams.setdefault(stream_id, AppStream(0, 0)).reset(code)

    def link_writable(self, link: Link, now: float) -> None:
        """Nothing waits here."""

    def link_closed(self, link: Link, now: float) -> None:
        assert isinstance(link, WireEnd)
        self.closed = link.closed


class App(Unhurried):
    """A client that writes down what it is asked for and what it gets."""

    echoes = False
    answers = Answers.NEVER

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.asked: list[int] = []
        self.asked_with: list[bytes] = []
        self.streams: list[AppStream] = []
        self.datagrams: list[bytes] = []

    def subscribe(self, track: TrackHash, subscribe_data: bytes) -> None:
        self.asked.append(track.full_name_hash)
        self.asked_with.append(subscribe_data)

    def unsubscribe(self, track: TrackHash) -> None:
        self.asked.remove(track.full_name_hash)

    def open_stream(self, track: TrackHash, priority: int, ttl_us: int) -> AppStream:
        stream = AppStream(priority, ttl_us)
        self.streams.append(stream)
        return stream

    def send_datagram(self, track: TrackHash, data: bytes, priority: int) -> None:
        self.datagrams.append(bytes(data))

    @property
    def got(self) -> list[bytes]:
        return [bytes(stream.data) for stream in self.streams]


class AppStream:
    """What a subscriber got on one stream."""

    def __init__(self, priority: int, ttl_us: int) -> None:
        self.priority = priority
        self.ttl_us = ttl_us
        self.data = bytearray()
        self.finished = False
        self.reset_code: int | None = None
        self.over = False

    def write(self, data: bytes | memoryview, now: float = 0.0) -> bool:
        if self.over:
            return False
        self.data += data
        return True

    def finish(self, data: bytes | memoryview = b"", now: float = 0.0) -> bool:
        if self.over:
            return False
        self.data += data
        self.finished = self.over = True
        return True

    def reset(self, code: int, now: float = 0.0) -> None:
        self.reset_code = code
        self.over = True


class Net:
    """Some relays and the wires between them."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.relays: dict[str, Relay] = {}
        self.wires: list[Wire] = []
        self.latency = 0
        "How many rounds of everybody speaking a word is on its way; links keep their own order."
        self._posted: deque[Callable[[], None]] = deque()
        self._numbers = count(1)

    # -- what there is -----------------------------------------------------------------------------

    def relay(
        self,
        node: str,
        role: Role = Role.EDGE,
        *,
        contact: str | None = None,
        epoch: int = 7,
        **settings: object,
    ) -> Relay:
        """A relay; one of the same id takes the place of the one before, as after a restart."""
        where = f"at {node}" if contact is None else contact
        info = NodeInfo(parse_node_id(node), RULES[role].node_type, where)
        made = Relay(info, role, RelaySettings(**settings), epoch=epoch)  # type: ignore[arg-type]
        self.relays[node] = made
        return made

    def puppet(self, node: str, node_type: NodeType = NodeType.EDGE) -> Puppet:
        return Puppet(self, node, node_type)

    def wire(
        self,
        a: Speaker,
        b: Speaker,
        srtt_ms: float = 10.0,
        mode: PeerMode = PeerMode.BOTH,
        direction: DataDirection = DataDirection.BIDIRECTIONAL,
        *,
        run: bool = True,
        extended: bool = False,
    ) -> Wire:
        """`a` dials `b`; `extended` as if the ALPN said so."""
        us = round(srtt_ms * 1000)
        here = WireEnd(self, a, next(self._numbers), True, us)
        there = WireEnd(self, b, next(self._numbers), False, us)
        here.other, there.other = there, here
        here.extended = there.extended = extended
        wire = Wire(here, there)
        self.wires.append(wire)
        self.post(lambda: b.link_opened(there, self.now))
        self.post(lambda: a.link_opened(here, self.now, mode, direction))
        if run:
            self.run()
        return wire

    def crash(self, relay: Relay, *, noticed: bool = True) -> None:
        """A relay is gone without a word; its peers notice, or not yet."""
        self.relays = {node: other for node, other in self.relays.items() if other is not relay}
        for wire in self.wires:
            if relay in (wire.here.relay, wire.there.relay):
                others = tuple(end.relay for end in wire if end.relay is not relay)
                wire.cut(noticed_by=others if noticed else ())

    # -- time --------------------------------------------------------------------------------------

    def post(self, call: Callable[[], None], rounds: int = 0) -> None:
        if rounds:
            self._posted.append(lambda: self.post(call, rounds - 1))
        else:
            self._posted.append(call)

    def run(self, seconds: float = 0.0) -> None:
        """Let everything that is said be heard, and so much time pass."""
        end = self.now + seconds
        while True:
            while self._posted:
                self._posted.popleft()()
                self.turned()
                self._answer()
            due = [at for clock in self.clocks() if (at := clock.deadline()) is not None]
            at = min(due, default=end + 1)
            if at > end:
                self.now = end
                return
            self.now = max(self.now, at)
            for clock in self.clocks():
                clock.tick(self.now)
            self.turned()

    def _answer(self) -> None:
        """Links that relays doubt are heard of, unless they are cut."""
        for relay in self.relays.values():
            for link_id in list(relay.suspicion.doubted):
                end = relay.links.links[link_id]
                assert isinstance(end, WireEnd)
                if end.closed is None:
                    relay.suspicion.heard(link_id, self.now)

    def clocks(self) -> list[Clock]:
        """Who has something to do at a time."""
        return list(self.relays.values())

    def turned(self) -> None:
        """Something has happened, and nothing else has yet."""

    def settle(self) -> None:
        """Long enough for every node to be known everywhere."""
        self.run(2.5 * max(2, len(self.relays)))

    # -- clients -----------------------------------------------------------------------------------

    def publish(
        self,
        relay: Relay,
        app: App,
        track: str,
        key: object,
        data: bytes,
        fin: bool = True,
        *,
        priority: int = 5,
        ttl_us: int = 0,
    ) -> None:
        relay.publish(app, track_hash(track), key, data, fin, priority, ttl_us, self.now)
        self.run()

    def publish_datagram(self, relay: Relay, app: App, track: str, data: bytes) -> None:
        relay.publish_datagram(app, track_hash(track), data, self.now)
        self.run()

    def subscribe(self, relay: Relay, app: App, track: str) -> None:
        name = track_name(track)
        relay.subscribe(app, name, encode_subscribe(name), self.now)
        self.run()

    def unsubscribe(self, relay: Relay, app: App, track: str) -> None:
        relay.unsubscribe(app, track_name(track), self.now)
        self.run()

    def announce(self, relay: Relay, app: App, namespace: str) -> AnnounceInfo:
        hashes = tuple(hash_bytes(part.encode()) for part in namespace.split("/"))
        info = AnnounceInfo(relay.id, hashes, 0)
        relay.announce(app, info, self.now)
        self.run()
        return info

    def leave(self, relay: Relay, app: App) -> None:
        relay.client_closed(app, self.now)
        self.run()
