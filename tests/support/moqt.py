"""MoQT clients in memory, at relays joined in memory.

    net = MoqtNet()
    relay = net.relay("1:1")
    pub, sub = net.app(relay, DRAFT14), net.app(relay, DRAFT16)
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    pub.stream(alias, 0, Obj(0, b"first"))
    sub.objects                                  # [(0, 0, b"first")]

An `App` speaks with a session of the client's kind, so that what the relay says is checked too. Its
link to the relay writes down what is opened on it with which rank, and can be full or pressed.
"""

from __future__ import annotations

from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from laps.edge.edge import Edge
from laps.edge.moqt import MoqtClient
from laps.edge.settings import EdgeSettings
from laps.errors import RemoteProtocolError
from laps.relay.peers import PeerArrived
from laps.sessions.moqt import MoqtSession
from laps.types import Location
from laps.wire.moqt.data import (
    DatagramObject,
    FetchHeader,
    SubgroupHeader,
    decode_datagram,
    encode_datagram,
    encode_fetch_header,
    encode_subgroup_header,
)
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.fetch import EndOfRange, FetchWriter
from laps.wire.moqt.messages import (
    DEFAULT_PRIORITY,
    Fetch,
    FetchOk,
    Filter,
    JoiningFetch,
    Message,
    Publish,
    PublishDone,
    PublishNamespace,
    RequestError,
    RequestUpdate,
    StandaloneFetch,
    Subscribe,
    SubscribeNamespace,
    SubscribeOk,
)
from support.moqt_streams import LARGEST, InStream, Obj, body, namespace, start_at
from support.relays import Net, track_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.edge.authority import Authority
    from laps.edge.client import Rank
    from laps.edge.shares import Account, ClientShare
    from laps.relay.relay import Relay
    from laps.sessions.moqt import MoqtLimits
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.objects import Object
    from support.relays import Clock

M = TypeVar("M", bound=Message)


class Link:
    """The relay's connection to an app."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.wire = _RelayWire(app)
        self.streams: list[InStream] = []
        self.datagrams: list[tuple[bytes, Rank, int]] = []
        self.stopped: list[tuple[int, int]] = []
        self.dropped_streams = 0
        self.pressed = False
        self.crowded = False
        self.pressed_from = 0
        "The best class that is pressed, or crowded, where something is."
        self.sent_bytes = 0
        self.paused = False
        self.host = ""
        self.paced_by: tuple[Account, ...] = ()
        self.datagram_bytes = 1200
        self.has_datagram_room = True
        self.room: int | None = None
        "How many bytes may still be written before it is full; None is without end."
        self.is_spent = False
        "Its address has used up its time."
        self.holds = False
        "What is written is not sent yet."
        self._when_sent: list[Callable[[], None]] = []

    def pressed_for(self, order: int) -> bool:
        return self.pressed and order >= self.pressed_from

    def crowded_for(self, order: int) -> bool:
        return self.crowded and order >= self.pressed_from

    def has_room_for(self, order: int) -> bool:
        written = sum(len(stream.data) for stream in self.streams)
        return self.room is None or written < self.room

    def reorder(self, stream_id: int, order: int) -> None:
        raise AssertionError("media goes on unidirectional streams")

    def open_stream(self, rank: Rank, ttl_us: int) -> InStream:
        stream = InStream(self._app.dialect, rank, ttl_us)
        self.streams.append(stream)
        return stream

    def send_datagram(self, data: bytes, rank: Rank, ttl_us: int) -> None:
        self.datagrams.append((bytes(data), rank, ttl_us))

    def stop_stream(self, stream_id: int, code: int) -> None:
        self.stopped.append((stream_id, code))

    def when_sent(self, call: Callable[[], None], streams: object = None) -> None:
        self._when_sent.append(call)
        if not self.holds:
            self.sent()

    def sent(self) -> None:
        """All that was written has been sent."""
        self.holds = False
        calls, self._when_sent = self._when_sent, []
        for call in calls:
            self._app.net.post(call)

    def in_its_time(self, work: Callable[[float], bool], now: float) -> bool | None:
        return None if self.is_spent else work(now)

    def pace(self, share: ClientShare) -> None:
        self.paced_by = share.outflow

    def pause(self) -> None:
        assert not self.paused
        self.paused = True

    def resume(self) -> None:
        assert self.paused
        self.paused = False

    def close(self, code: int, reason: str) -> None:
        self._app.close(code, reason)

    def abort(self, code: int, reason: str) -> None:
        self._app.close(code, reason)
        self._app.aborted = True

    # -- what a test does with it ------------------------------------------------------------------

    def make_room(self, more: int | None) -> None:
        """So many bytes more, or any number."""
        self.room = None if more is None else (self.room or 0) + more
        self._app.client.writable(self._app.net.now)
        self._app.net.run()

    def press(self, pressed: bool, *, crowded: bool = False) -> None:
        self.pressed, self.crowded = pressed, crowded
        self._app.edge.relay.pressure.client_changed(self._app.client, self._app.net.now)
        self._app.net.run()


class _RelayWire:
    """Bidirectional streams, from the relay's side."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._ids = count(1, 4)

    def open_stream(self) -> int:
        return next(self._ids)

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        self._app.net.post(lambda: self._app.hear(stream_id, data, fin))

    def end_stream(self, stream_id: int, code: int) -> None:
        raise AssertionError("a relay ends no bidirectional stream")


class _AppWire:
    """Bidirectional streams, from the app's side."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._ids = count(0, 4)

    def open_stream(self) -> int:
        return next(self._ids)

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        self._app.post_data(stream_id, data, fin)

    def end_stream(self, stream_id: int, code: int) -> None:
        self._app.post(lambda: self._app.client.stream_reset(stream_id, code, self._app.net.now))


class OutStream:
    """A stream that an app writes."""

    def __init__(self, app: App, stream_id: int, has_extensions: bool) -> None:
        self._app = app
        self.id = stream_id
        self._has_extensions = has_extensions
        self._last = -1

    def write(self, *items: Obj, fin: bool = False) -> OutStream:
        """Objects that follow those before."""
        data = body(items, self._has_extensions, self._last)
        if items:
            self._last = items[-1].id
        return self.write_bytes(data, fin=fin)

    def write_bytes(self, data: bytes, *, fin: bool = False) -> OutStream:
        self._app.post_data(self.id, data, fin)
        self._app.net.run()
        return self

    def finish(self) -> None:
        self.write_bytes(b"", fin=True)

    def reset(self, code: int) -> None:
        app = self._app
        app.post(lambda: app.client.stream_reset(self.id, code, app.net.now))
        app.net.run()


class App:
    """A MoQT client, in either draft."""

    def __init__(
        self,
        net: MoqtNet,
        relay: Relay,
        dialect: Dialect,
        *,
        webtransport: bool = False,
        limits: MoqtLimits | None = None,
        url: str = "",
    ) -> None:
        self.net = net
        self.edge = net.edge(relay)
        self.dialect = dialect
        self.link = Link(self)
        self.heard: list[Message] = []
        self.closed: tuple[int, str] | None = None
        self.aborted = False
        "Its connection was ended, and not its session."
        self.fragments = 0
        "Bytes at a time, where it is not 0."
        self.answers: dict[type, Callable[[Any], object]] = {}
        "What it does when it hears a message of a kind."
        # Draft 14 is the one whose version the setup names.
        named = None if dialect is DRAFT14 else dialect
        self.client = MoqtClient(self.edge, self.link, named, webtransport=webtransport, url=url)
        self.session = MoqtSession(_AppWire(self), named, is_client=True, limits=limits)
        self._uni = count(2, 4)
        self._aliases = count(1)

    # -- what it says ------------------------------------------------------------------------------

    def request(self, message: Any) -> int:
        """Ask; the id is given by the session."""
        request_id = self.session.request(message)
        self.net.run()
        return request_id

    def say(self, *messages: Message) -> None:
        for message in messages:
            self.session.send(message)
        self.net.run()

    def say_bytes(self, data: bytes, stream_id: int = 0) -> None:
        """Whatever it is, on the control stream."""
        self.post_data(stream_id, data, False)
        self.net.run()

    def subscribe(self, track: str, filter_: Filter = LARGEST, **fields: Any) -> int:
        return self.request(Subscribe(0, track_name(track), filter_, **fields))

    def publish(self, track: str, alias: int | None = None, **fields: Any) -> int:
        """The alias that its streams may have from now on."""
        alias = next(self._aliases) if alias is None else alias
        self.request(Publish(0, track_name(track), alias, **fields))
        return alias

    def publish_namespace(self, name: str) -> int:
        return self.request(PublishNamespace(0, namespace(name)))

    def watch(self, prefix: str, **fields: Any) -> int:
        return self.request(SubscribeNamespace(0, namespace(prefix), **fields))

    def fetch(self, track: str, start: tuple[int, int], end: tuple[int, int], **fields: Any) -> int:
        wanted = StandaloneFetch(track_name(track), Location(*start), Location(*end))
        return self.request(Fetch(0, wanted, **fields))

    def join(self, joining_id: int, start: int, *, relative: bool = True, **fields: Any) -> int:
        return self.request(Fetch(0, JoiningFetch(joining_id, start, relative), **fields))

    def update(self, existing_id: int, **fields: Any) -> int:
        if self.dialect is DRAFT14:
            fields = {"filter": start_at(0), "priority": 128, "forward": True} | fields
        return self.request(RequestUpdate(0, existing_id, **fields))

    def done(self, request_id: int, code: int, streams: int, reason: str = "") -> None:
        self.say(PublishDone(request_id, code, streams, reason))

    def accept(
        self, subscribe: Subscribe, largest: tuple[int, int] | None = None, **fields: Any
    ) -> int:
        """Answer the relay's SUBSCRIBE; the alias that its streams may have."""
        alias = next(self._aliases)
        place = None if largest is None else Location(*largest)
        self.say(SubscribeOk(subscribe.request_id, alias, place, None, **fields))
        return alias

    def refuse(self, request_id: int, code: int, reason: str = "") -> None:
        self.say(RequestError(request_id, code, reason))

    # -- its objects -------------------------------------------------------------------------------

    def open(
        self,
        alias: int,
        group: int,
        *items: Obj,
        subgroup: int | None = 0,
        priority: int | None = DEFAULT_PRIORITY,
        extensions: bool = False,
        end_of_group: bool = False,
        fin: bool = False,
    ) -> OutStream:
        """Begin a stream."""
        header = SubgroupHeader(alias, group, subgroup, priority, extensions, end_of_group)
        stream = OutStream(self, next(self._uni), extensions)
        self.post_data(stream.id, encode_subgroup_header(header, self.dialect), False)
        return stream.write(*items, fin=fin)

    def stream(self, alias: int, group: int, *items: Obj, **fields: Any) -> OutStream:
        """A stream from its beginning to its end."""
        return self.open(alias, group, *items, fin=True, **fields)

    def datagram(self, alias: int, group: int, object_id: int, **fields: Any) -> None:
        item = DatagramObject(alias, group, object_id, **fields)
        data = encode_datagram(item, self.dialect)
        self.post(lambda: self.client.receive_datagram(data, self.net.now))
        self.net.run()

    def answer_fetch(
        self,
        fetch: Fetch,
        end: tuple[int, int],
        *items: Object | EndOfRange,
        fin: bool = True,
        ok: bool = True,
    ) -> OutStream:
        """What the relay asked for."""
        if ok:
            self.say(FetchOk(fetch.request_id, Location(*end)))
        writer = FetchWriter(self.dialect)
        stream = OutStream(self, next(self._uni), False)
        head = encode_fetch_header(FetchHeader(fetch.request_id))
        return stream.write_bytes(head + b"".join(map(writer.encode, items)), fin=fin)

    # -- what it has got ---------------------------------------------------------------------------

    def heard_of(self, kind: type[M]) -> list[M]:
        return [message for message in self.heard if isinstance(message, kind)]

    def last(self, kind: type[M]) -> M:
        """The last thing it heard, which is of this kind."""
        found = self.heard[-1]
        assert isinstance(found, kind), self.heard
        return found

    @property
    def error(self) -> int:
        """The code of the last answer, which refused."""
        return self.last(RequestError).code

    @property
    def streams(self) -> list[InStream]:
        return self.link.streams

    @property
    def subgroups(self) -> list[InStream]:
        return [s for s in self.streams if s.data and isinstance(s.header, SubgroupHeader)]

    @property
    def objects(self) -> list[tuple[int, int, bytes]]:
        """What came on streams of subscriptions, one stream after another."""
        return [
            (item.group, item.object_id, item.payload)
            for stream in self.subgroups
            for item in stream.objects
        ]

    @property
    def places(self) -> list[tuple[int, int]]:
        return [place for stream in self.subgroups for place in stream.places]

    @property
    def fetched(self) -> InStream:
        """The stream of its only FETCH."""
        (found,) = (s for s in self.streams if s.data and isinstance(s.header, FetchHeader))
        return found

    @property
    def datagrams(self) -> list[DatagramObject]:
        return [decode_datagram(data, self.dialect) for data, _, _ in self.link.datagrams]

    # -- how it works ------------------------------------------------------------------------------

    def start(self, **fields: Any) -> App:
        self.session.start(**fields)
        self.net.run()
        return self

    def leave(self) -> None:
        self.close(0, "leaves")
        self.net.run()

    def close(self, code: int, reason: str) -> None:
        if self.closed is None:
            self.closed = (code, reason)
            self.net.post(lambda: self.client.closed(self.net.now))

    def hear(self, stream_id: int, data: bytes, fin: bool) -> None:
        """The relay said something."""
        if self.closed is not None:
            return
        for message in self.session.receive(stream_id, data, fin=fin):
            self.heard.append(message)
            if self.session.ready:
                self.session.flush()
            if (answer := self.answers.get(type(message))) is not None:
                self.net.post(lambda answer=answer, message=message: answer(message))  # type: ignore[misc]

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

    def post_data(self, stream_id: int, data: bytes, fin: bool) -> None:
        step = self.fragments or max(1, len(data))
        pieces = [data[at : at + step] for at in range(0, len(data), step)] or [b""]
        for number, piece in enumerate(pieces):
            last = fin and number == len(pieces) - 1
            self._post_piece(stream_id, piece, last)

    def _post_piece(self, stream_id: int, piece: bytes, fin: bool) -> None:
        self.post(lambda: self.client.receive(stream_id, piece, fin, self.net.now))


class MoqtNet(Net):
    """Relays with MoQT clients."""

    def __init__(self) -> None:
        super().__init__()
        self.edges: dict[Relay, Edge] = {}
        self.apps: list[App] = []

    def edge(self, relay: Relay, authority: Authority | None = None, **settings: Any) -> Edge:
        """The clients of a relay; settings count the first time."""
        if relay not in self.edges:
            chosen = {"subscribe_wait_s": 2.0} | settings
            self.edges[relay] = Edge(relay, EdgeSettings(**chosen), authority)
        return self.edges[relay]

    def app(
        self, relay: Relay, dialect: Dialect = DRAFT16, *, setup: bool = True, **fields: Any
    ) -> App:
        app = App(self, relay, dialect, **fields)
        self.apps.append(app)
        return app.start() if setup else app

    def chain(self, length: int, **settings: Any) -> list[Relay]:
        """Relays in a row, that tell each other of namespaces and know each other."""
        relays = [self.relay(f"1:{number}") for number in range(1, length + 1)]
        for relay in relays:
            self.edge(relay, **settings)
        for here, there in pairwise(relays):
            self.wire(here, there, extended=True)
        if length > 1:
            self.settle()
        return relays

    def clocks(self) -> list[Clock]:
        return [*super().clocks(), *self.edges.values()]

    def turned(self) -> None:
        for relay, edge in self.edges.items():
            edge.perform(self.now)
            while relay.events:
                event = relay.events.popleft()
                if not isinstance(event, PeerArrived):
                    edge.observe(event, self.now)
                    edge.perform(self.now)

    def check_empty(self) -> None:
        """Whoever was here has left no trace, once all that is kept has expired."""
        for app in self.apps:
            if app.closed is None:
                app.leave()
        self.run(100.0)
        for relay, edge in self.edges.items():
            sizes = relay.sizes()
            left = {name: sizes[name] for name in sizes if name not in ("links", "peers", "nodes")}
            assert left == dict.fromkeys(left, 0), left
            assert not edge.clients
            assert not edge.context.holding
            assert relay.tracks.cache.size == 0
            assert not relay.tracks.cache.order
            assert not len(relay.tracks)
            shared = relay.tracks.shared
            left_over = (shared.waiting, shared.upstream_fetches, shared.events, shared.began)
            assert not any(left_over), left_over
            assert not relay.reach.received
            tables = edge_tables(edge)
            assert tables == dict.fromkeys(tables, 0), tables


def edge_tables(edge: Edge) -> dict[str, int]:
    """How full each table of a relay's clients is."""
    return {
        f"{type(owner).__name__}.{name}": len(table)
        for owner in (
            edge,
            edge.context,
            edge.queries,
            edge.upstream,
            edge.fetches,
            edge.requests,
            edge.relay.pressure,
            edge.statuses,
            edge.watches,
            edge.origins,
        )
        for name, table in vars(owner).items()
        if isinstance(table, dict | list | set)
        and name not in ("_askers", "_stubs", "_lines", "counters")
    }


def stage(
    publisher: Dialect = DRAFT16, subscriber: Dialect = DRAFT16, relays: int = 1
) -> tuple[MoqtNet, App, App]:
    """A publisher at one end of a row of relays, and a subscriber at the other."""
    net = MoqtNet()
    row = net.chain(relays)
    return net, net.app(row[0], publisher), net.app(row[-1], subscriber)
