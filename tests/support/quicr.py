"""QUICR clients in memory, at the same relays as the MoQT ones of `support.moqt`.

    net = MoqtNet()
    relay = net.relay("1:1")
    pub, sub = QuicrApp(net, relay), QuicrApp(net, relay)
    media = sub.subscribe("demo/t")
    post = pub.publish("demo/t")
    post.object(0, 0, b"first")
    media.objects                                  # [(0, 0, b"first")]

A client speaks with a session of its own, so that what the relay says is checked by the rules too.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from laps.edge.quicr import QuicrClient
from laps.errors import RemoteProtocolError
from laps.sessions.quicr import Closed, QuicrSession
from laps.types import Location
from laps.wire.quicr.fragments import Reassembler, cut
from laps.wire.quicr.messages import (
    Authorization,
    Datagram,
    Fin,
    Fragment,
    Intent,
    Message,
    PublishIntent,
    PublishIntentOk,
    RelayRedirect,
    StartPoint,
    Subscribe,
    SubscribeCancel,
    SubscribeReply,
    Terms,
    decode_datagram,
    encode,
    encode_datagram,
)
from support.moqt import MoqtNet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from laps.edge.client import Rank
    from laps.edge.shares import Account, ClientShare
    from laps.relay.relay import Relay
    from laps.sessions.quicr import ControlStream

M = TypeVar("M", bound=Message)

DEFAULT_TERMS = Terms()


class QuicrLink:
    """The relay's connection to a client: a `edge.client.ClientLink`."""

    def __init__(self, app: QuicrApp) -> None:
        self._app = app
        self.wire = _RelayWire(app)
        self.datagrams: list[tuple[bytes, Rank, int]] = []
        self.dropped_streams = 0
        self.orders: dict[int, int] = {}
        "The places of the classes that its bidirectional streams have."
        self.pressed = False
        self.crowded = False
        self.pressed_from = 0
        "The best class that is pressed, or crowded, where something is."
        self.sent_bytes = 0
        self.paused = False
        self.host = ""
        self.paced_by: tuple[Account, ...] = ()
        self.datagram_bytes = 1200
        self.datagram_room: int | None = None
        "How many datagrams may still be sent before there is no room; None is without end."
        self.room: int | None = None
        "How many bytes may still be written before it is full; None is without end."
        self.is_spent = False
        "Its address has used up its time."
        self.written = 0
        self.mix: Callable[[list[bytes]], Iterable[bytes]] | None = None
        "What becomes of datagrams on their way: they are kept until `deliver`."
        self.under_way: list[bytes] = []

    def pressed_for(self, order: int) -> bool:
        return self.pressed and order >= self.pressed_from

    def crowded_for(self, order: int) -> bool:
        return self.crowded and order >= self.pressed_from

    def has_room_for(self, order: int) -> bool:
        return self.room is None or self.written < self.room

    @property
    def has_datagram_room(self) -> bool:
        return self.datagram_room is None or len(self.datagrams) < self.datagram_room

    def reorder(self, stream_id: int, order: int) -> None:
        self.orders[stream_id] = order

    def open_stream(self, rank: Rank, ttl_us: int) -> NoReturn:
        raise AssertionError("no unidirectional stream goes to a QUICR client")

    def send_datagram(self, data: bytes, rank: Rank, ttl_us: int) -> None:
        assert len(data) <= self.datagram_bytes
        self.datagrams.append((data, rank, ttl_us))
        if self.mix is not None:
            self.under_way.append(data)
        else:
            self._app.net.post(lambda: self._app.hear_datagram(data))

    def deliver(self) -> None:
        """What is under way arrives, as `mix` has it."""
        assert self.mix is not None
        under_way, self.under_way = self.under_way, []
        for data in self.mix(under_way):
            self._app.hear_datagram(data)

    def stop_stream(self, stream_id: int, code: int) -> None:
        raise AssertionError("a QUICR client has no stream of that kind")

    def when_sent(self, call: Callable[[], None], streams: object = None) -> None:
        self._app.net.post(call)

    def in_its_time(self, work: Callable[[float], bool], now: float) -> bool | None:
        return None if self.is_spent else work(now)

    def pace(self, share: ClientShare) -> None:
        self.paced_by = share.outflow

    def pause(self) -> None:
        assert not self.paused
        self.paused = True

    def is_paused(self) -> bool:
        return self.paused

    def resume(self) -> None:
        assert self.paused
        self.paused = False

    def close(self, code: int, reason: str) -> None:
        self._app.close(code, reason)

    def abort(self, code: int, reason: str) -> None:
        self.close(code, reason)

    def make_room(self, more: int | None) -> None:
        """So many bytes more, or any number."""
        self.room = None if more is None else self.written + more
        self._app.client.writable(self._app.net.now)
        self._app.net.run()


class _RelayWire:
    def __init__(self, app: QuicrApp) -> None:
        self._app = app
        self._ids = count(1, 4)

    def open_stream(self) -> int:
        return next(self._ids)

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        self._app.link.written += len(data)
        self._app.net.post(lambda: self._app.hear(stream_id, data, fin))

    def end_stream(self, stream_id: int, code: int) -> None:
        self._app.net.post(lambda: self._app.hear_reset(stream_id))


class _AppWire:
    def __init__(self, app: QuicrApp) -> None:
        self._app = app
        self._ids = count(0, 4)

    def open_stream(self) -> int:
        return next(self._ids)

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        app = self._app
        app.post(lambda: app.client.receive(stream_id, data, fin, app.net.now))

    def end_stream(self, stream_id: int, code: int) -> None:
        app = self._app
        app.post(lambda: app.client.stream_reset(stream_id, code, app.net.now))


class Media:
    """A media stream that a client receives."""

    def __init__(self, app: QuicrApp, stream: ControlStream, datagram_id: int | None) -> None:
        self.app = app
        self.stream = stream
        self.datagram_id = datagram_id
        self.heard: list[Message] = []
        self.objects: list[tuple[int, int, bytes]] = []
        "Those that are whole, in the order they became so."
        self.datagrams: list[Datagram] = []
        self.closed: bool | None = None
        "Whether it ended well; None while it has not."
        self._parts: list[bytes] = []
        self._assembled = Reassembler()

    @property
    def name(self) -> bytes:
        assert isinstance(self.stream.opening, Subscribe | PublishIntent)
        return self.stream.opening.name

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(group, object_id) for group, object_id, _ in self.objects]

    def is_closed(self) -> bool:
        return self.closed is not None

    @property
    def replies(self) -> list[SubscribeReply]:
        return self.heard_of(SubscribeReply)

    @property
    def starts(self) -> list[Location]:
        return [message.start for message in self.heard_of(StartPoint)]

    @property
    def redirects(self) -> list[str]:
        return [message.address for message in self.heard_of(RelayRedirect)]

    @property
    def fins(self) -> list[Location]:
        return [message.final for message in self.heard_of(Fin)]

    def heard_of(self, kind: type[M]) -> list[M]:
        return [message for message in self.heard if isinstance(message, kind)]

    def hear(self, message: Message) -> None:
        self.heard.append(message)
        if isinstance(message, StartPoint):
            self._parts.clear()
        elif isinstance(message, Fragment):
            self._parts.append(bytes(message.data))
            if message.last:
                self.objects.append((message.group, message.object_id, b"".join(self._parts)))
                self._parts.clear()

    def hear_datagram(self, datagram: Datagram) -> None:
        self.datagrams.append(datagram)
        fragment = datagram.fragment
        _, payload = self._assembled.add(fragment)
        if payload is not None:
            self.objects.append((fragment.group, fragment.object_id, payload))

    # -- what the client says ----------------------------------------------------------------------

    def renew(self) -> None:
        assert isinstance(self.stream.opening, Subscribe)
        self.app.session.send(self.stream, self.stream.opening)
        self.app.net.run()

    def cancel(self) -> None:
        self.app.session.send(self.stream, SubscribeCancel(self.name, "enough"))
        self.app.net.run()

    def close(self) -> None:
        self.app.session.close(self.stream)
        self.app.net.run()


class Post:
    """A media stream that a client publishes."""

    def __init__(self, app: QuicrApp, stream: ControlStream) -> None:
        self.app = app
        self.stream = stream
        self.heard: list[Message] = []
        self.closed: bool | None = None

    @property
    def datagram_id(self) -> int | None:
        answers = [m for m in self.heard if isinstance(m, PublishIntentOk)]
        return answers[0].datagram_stream_id if answers else None

    @property
    def redirects(self) -> list[str]:
        return [message.address for message in self.heard if isinstance(message, RelayRedirect)]

    def hear(self, message: Message) -> None:
        self.heard.append(message)

    def start(self, group: int, object_id: int) -> None:
        self.say(StartPoint(Location(group, object_id)))

    def object(self, group: int, object_id: int, payload: bytes, size: int = 60_000) -> None:
        """A whole object on the stream, in fragments of a size."""
        self.say(*cut(group, object_id, payload, size))

    def datagram(
        self, fragment: Fragment, terms: Terms = DEFAULT_TERMS, *, stream_id: int | None = None
    ) -> None:
        """A fragment in a datagram."""
        app = self.app
        number = self.datagram_id if stream_id is None else stream_id
        assert number is not None
        data = encode_datagram(number, fragment, terms)
        app.post(lambda: app.client.receive_datagram(data, app.net.now))
        app.net.run()

    def datagrams(
        self, group: int, object_id: int, payload: bytes, size: int = 1000, **fields: Any
    ) -> None:
        """A whole object in datagrams."""
        for fragment in cut(group, object_id, payload, size):
            self.datagram(fragment, Terms(**fields))

    def say(self, *messages: Message) -> None:
        for message in messages:
            self.app.session.send(self.stream, message)
        self.app.net.run()

    def end(self, final: tuple[int, int] | None = None) -> None:
        if final is not None:
            self.say(Fin(Location(*final)))
        self.app.session.close(self.stream)
        self.app.net.run()

    def reset(self) -> None:
        self.app.session.abandon(self.stream, 0)
        self.app.net.run()


class QuicrApp:
    """A QUICR client."""

    def __init__(self, net: MoqtNet, relay: Relay) -> None:
        self.net = net
        self.edge = net.edge(relay)
        self.link = QuicrLink(self)
        self.closed: tuple[int, str] | None = None
        self.media: dict[int, Media | Post] = {}
        "By control stream."
        self.accepts = True
        "Whether tracks that the relay offers are taken."
        self.takes_datagrams = False
        "And whether in datagrams."
        self.strays: list[bytes] = []
        "Datagrams for no media stream that we know."
        self.session = QuicrSession(_AppWire(self))
        self.client = QuicrClient(self.edge, self.link)
        self._datagram_ids = count(100)
        if isinstance(net, MoqtNet):
            net.apps.append(self)  # type: ignore[arg-type]  # it leaves as the others do

    # -- what it says ------------------------------------------------------------------------------

    def subscribe(
        self,
        name: str | bytes,
        intent: Intent = Intent.IMMEDIATE,
        *,
        mask: int = 0,
        datagrams: bool = False,
        datagram_id: int | None = None,
        since: Location | None = None,
        token: Authorization | None = None,
    ) -> Media:
        if datagrams and datagram_id is None:
            datagram_id = next(self._datagram_ids)
        asked = Subscribe(_bytes(name), mask, intent, datagram_id)
        stream = self.session.open(asked, since, token)
        media = self.media[stream.id] = Media(self, stream, datagram_id)
        self.net.run()
        return media

    def authorize(self, token: Authorization) -> Media:
        """Show a token for the whole connection."""
        stream = self.session.open(token)
        media = self.media[stream.id] = Media(self, stream, None)
        self.net.run()
        return media

    def publish(
        self, name: str | bytes, *, datagrams: bool = False, token: Authorization | None = None
    ) -> Post:
        stream = self.session.open(PublishIntent(_bytes(name), datagrams), token=token)
        post = self.media[stream.id] = Post(self, stream)
        self.net.run()
        return post

    def say_bytes(self, data: bytes, *, stream_id: int = 400, fin: bool = False) -> None:
        """Whatever it is, on a stream."""
        self.post(lambda: self.client.receive(stream_id, data, fin, self.net.now))
        self.net.run()

    def say_messages(self, *messages: Message, stream_id: int = 400, fin: bool = False) -> None:
        """Messages that our own session would not let pass."""
        self.say_bytes(b"".join(map(encode, messages)), stream_id=stream_id, fin=fin)

    def leave(self) -> None:
        self.close(0, "leaves")
        self.net.run()

    @property
    def offered(self) -> list[Media]:
        """The media streams that the relay opened."""
        return [m for m in self.media.values() if isinstance(m, Media) and not m.stream.ours]

    # -- how it works ------------------------------------------------------------------------------

    def close(self, code: int, reason: str) -> None:
        if self.closed is None:
            self.closed = (code, reason)
            self.net.post(lambda: self.client.closed(self.net.now))

    def hear(self, stream_id: int, data: bytes, fin: bool) -> None:
        if self.closed is not None:
            return
        for event in self.session.receive(stream_id, data, fin=fin):
            stream = event.stream
            if isinstance(event, Closed):
                if (media := self.media.get(stream.id)) is not None:
                    media.closed = event.well
                self.session.close(stream)
            elif isinstance(event.message, PublishIntent):
                self._offered(stream, event.message)
            elif (media := self.media.get(stream.id)) is not None:
                media.hear(event.message)

    def _offered(self, stream: ControlStream, message: PublishIntent) -> None:
        datagram_id = None
        if not self.accepts:
            self.session.send(stream, SubscribeCancel(message.name, "no"))
            return
        if message.datagram_capable and self.takes_datagrams:
            datagram_id = next(self._datagram_ids)
        self.media[stream.id] = Media(self, stream, datagram_id)
        self.session.send(stream, PublishIntentOk(datagram_id))

    def hear_reset(self, stream_id: int) -> None:
        for event in self.session.stream_ended(stream_id):
            if (media := self.media.get(event.stream.id)) is not None:
                media.closed = False
            self.session.close(event.stream)

    def hear_datagram(self, data: bytes) -> None:
        if self.closed is not None:
            return
        datagram = decode_datagram(data)
        for media in self.media.values():
            if isinstance(media, Media) and media.datagram_id == datagram.stream_id:
                media.hear_datagram(datagram)
                return
        self.strays.append(data)

    def post(self, call: Callable[[], None]) -> None:
        """Something happens at the relay; what breaks the protocol closes the session."""

        def happen() -> None:
            if self.closed is not None:
                return
            try:
                call()
            except RemoteProtocolError as error:
                self.close(int(error.code), str(error))

        self.net.post(happen)


def check_empty(net: MoqtNet) -> None:
    """Whoever was here has left no trace, once all that is kept has expired."""
    net.check_empty()
    for relay in net.edges:
        assert relay.tracks.shared.fragment_bytes == 0
    for app in net.apps:
        client: object = app.client
        if isinstance(client, QuicrClient):
            tables = {
                name: len(table)
                for name, table in vars(client).items()
                if isinstance(table, dict | list | set)
            }
            assert tables == dict.fromkeys(tables, 0), tables


def _bytes(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name
