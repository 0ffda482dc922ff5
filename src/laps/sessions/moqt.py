"""One MoQT session: bytes of its bidirectional streams to messages, and messages to bytes.

    receive(stream_id, data) -> messages       request(message) -> request id       send(message)

Control messages only: objects are for `moqt_objects`. `requests` checks what is open and what may
follow, `moqt_setup` how a session begins. Messages come out checked and completed, so that one
vocabulary (`wire.moqt.messages`) serves every draft: answers know what they answer, namespaces are
whole where the draft sends a suffix or an id, tokens are resolved. A MoqtViolation closes the
session with its code.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from laps.sessions.control_streams import ControlStream, ControlStreams
from laps.sessions.half_messages import HalfMessages
from laps.sessions.moqt_setup import Setup
from laps.sessions.requests import ENDED_BY_ANSWER, KINDS, Pending, Request, Requests, Waiting
from laps.wire.moqt.codes import RequestCode, violation
from laps.wire.moqt.dialect import BY_SETUP
from laps.wire.moqt.messages import (
    ClientSetup,
    Fetch,
    FetchCancel,
    FetchOk,
    Goaway,
    MaxRequestId,
    NamespaceAdded,
    NamespaceDone,
    Publish,
    PublishDone,
    PublishNamespace,
    PublishNamespaceCancel,
    PublishNamespaceDone,
    PublishOk,
    RequestError,
    RequestKind,
    RequestOk,
    RequestsBlocked,
    RequestUpdate,
    ServerSetup,
    Subscribe,
    SubscribeNamespace,
    SubscribeOk,
    TrackStatus,
    Unsubscribe,
    UnsubscribeNamespace,
)
from laps.wire.moqt.tolerance import Tolerance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.names import Namespace
    from laps.sessions.requests import Ledger
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Message, Token


class Wire(Protocol):
    """What a session asks of the connection under it."""

    def open_stream(self) -> int:
        """A new bidirectional stream."""

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        """Write to a bidirectional stream, before all data."""

    def end_stream(self, stream_id: int, code: int) -> None:
        """Reset our half of a stream, and ask the other side to stop with its own."""


@dataclass(frozen=True, slots=True)
class MoqtLimits:
    """What one session may ask of us."""

    requests: int = 1000
    "Requests of the other side that may be open at once."
    token_cache_bytes: int = 16 * 1024
    waiting: int = 1000
    "Requests of ours that may wait for the other side to allow them."
    strict: bool = False
    "Mistakes that are understood close the session all the same (`wire.moqt.tolerance`)."


class MoqtSession:
    """One side of a MoQT session."""

    def __init__(
        self,
        wire: Wire,
        dialect: Dialect | None,
        *,
        is_client: bool,
        limits: MoqtLimits | None = None,
        webtransport: bool = False,
        tolerated: Counter[Tolerance] | None = None,
        ledger: Ledger | None = None,
        half_messages: HalfMessages | None = None,
    ) -> None:
        """`dialect` is what the ALPN named; None where the versions in the setup decide.

        `tolerated` counts the mistakes of the other side that were understood, `ledger` what it has
        open, and `half_messages` what is held of its messages.
        """
        self._wire = wire
        self._is_client = is_client
        self._limits = limits or MoqtLimits()
        self.dialect: Dialect = dialect or BY_SETUP
        self.tolerated: Counter[Tolerance] = Counter() if tolerated is None else tolerated
        self.ready = False
        "Whether setups have been exchanged."
        self.peer_setup: ClientSetup | ServerSetup | None = None
        self.requests = requests = Requests(
            self._limits.requests,
            self._limits.token_cache_bytes,
            is_client=is_client,
            ledger=ledger,
        )
        # Those who run a session look into these, some of them for every stream.
        self.incoming, self.outgoing = requests.incoming, requests.outgoing
        self.aliases, self.ids, self.tokens = requests.aliases, requests.ids, requests.tokens
        self._setup = Setup(
            by_alpn=dialect is not None,
            webtransport=webtransport,
            max_request_id=self.ids.allowed,
            max_token_cache_bytes=self._limits.token_cache_bytes,
        )
        self.goaway: Goaway | None = None
        "What the other side said before leaving."
        self._control: int | None = None
        self._streams = ControlStreams(half_messages or HalfMessages())
        self._said_goaway = False

    # -- setup -------------------------------------------------------------------------------------

    def start(
        self,
        path: bytes | None = None,
        authority: bytes | None = None,
        tokens: tuple[Token, ...] = (),
    ) -> None:
        """A client begins: it opens the control stream and says CLIENT_SETUP."""
        self._control = self._wire.open_stream()
        self._streams[self._control] = ControlStream(incoming=False)
        self._write(self._setup.offer(path, authority, tokens))

    def _set_up(self, message: Message) -> None:
        """The first message on the control stream."""
        if self._is_client:
            self.peer_setup = self._setup.check_answer(message)
        else:
            self.peer_setup = self._setup.check_offer(message)
            self._write(self._setup.answer())
        self.ids.most = self.peer_setup.max_request_id
        self.tokens.take(self.peer_setup.tokens, in_setup=True)
        self.ready = True

    # -- receiving ---------------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """What is held of messages that have not come whole."""
        return self._streams.waiting_bytes

    def let_go(self) -> None:
        """The session is closed, or about to be: nothing more is held of messages."""
        self._streams.let_go()

    def receive(self, stream_id: int, data: bytes, *, fin: bool = False) -> Iterator[Message]:
        """The messages in bytes of a bidirectional stream; act on each before the next is read."""
        stream = self._streams.get(stream_id)
        if stream is None:
            stream = self._streams[stream_id] = ControlStream()
        stream.add(data)
        stream.ended = stream.ended or fin
        yield from self._read(stream_id, stream)
        if stream_id == self._control and self.ready:
            # What came ahead of the setup has waited for it.
            for other_id, other in list(self._streams.items()):
                if other is not stream and other.size:
                    yield from self._read(other_id, other)

    def stream_ended(self, stream_id: int) -> Iterator[Message]:
        """A bidirectional stream was reset, or the other side no longer reads it."""
        if stream_id == self._control:
            raise violation("the control stream was reset")
        if (stream := self._streams.drop(stream_id)) is not None:
            yield from self._namespace_stream_over(stream)

    def _read(self, stream_id: int, stream: ControlStream) -> Iterator[Message]:
        while stream.size and (self.ready or self._may_set_up(stream_id, stream)):
            if (found := stream.next_message()) is None:
                break
            message = self._decode(*found)
            if not self.ready:
                self._set_up(message)
                yield message
            elif stream_id == self._control:
                yield from self._take(message, None)
            else:
                yield from self._take_aside(message, stream_id, stream)
        self._streams.check(stream)
        if stream.ended and stream_id == self._control:
            raise violation("the control stream was closed")
        if stream.ended and (self.ready or not stream.size):
            if stream.size:
                raise violation("a stream ended in the middle of a message")
            self._streams.drop(stream_id)
            yield from self._namespace_stream_over(stream)

    def _decode(self, kind: int, payload: bytes) -> Message:
        if self._limits.strict:
            return self.dialect.decode(kind, payload)
        tolerated: list[Tolerance] = []
        message = self.dialect.decode(kind, payload, tolerated)
        self.tolerated.update(tolerated)
        return message

    def tolerate(self, what: Tolerance, problem: str) -> None:
        """Count a mistake that is understood, or close the session with the problem."""
        if self._limits.strict:
            raise violation(problem)
        self.tolerated[what] += 1

    def _may_set_up(self, stream_id: int, stream: ControlStream) -> bool:
        """Whether the setup is what this stream begins with; others wait for it."""
        if self._control is None and stream.first_byte == 0x20:
            self._control = stream_id
        elif self._control is None and (not self._setup.by_alpn or stream.first_byte != 0x11):
            # Draft 16's SUBSCRIBE_NAMESPACE has a stream of its own, that may overtake the setup.
            raise violation("the first message of a client is not CLIENT_SETUP")
        return stream_id == self._control

    def _take_aside(
        self, message: Message, stream_id: int, stream: ControlStream
    ) -> Iterator[Message]:
        """A message on a stream of its own: draft 16 talks of namespaces there."""
        if stream.request_id is None:
            if not (isinstance(message, SubscribeNamespace) and self.dialect.namespaces_on_streams):
                raise violation(f"a stream that begins with {type(message).__name__}")
            stream.request_id = message.request_id
            yield from self._take(message, stream_id)
            return
        if stream.incoming:
            if not isinstance(message, RequestUpdate):
                raise violation(f"{type(message).__name__} follows a SUBSCRIBE_NAMESPACE")
            yield from self._take(message, None)
            return
        pending = self.outgoing.get(stream.request_id)
        if pending is None:
            return
        match message:
            case RequestOk() | RequestError() if not pending.answered:
                answer = self.requests.answered(replace(message, request_id=stream.request_id))
                if answer is not None:
                    yield answer
            case NamespaceAdded(suffix) | NamespaceDone(suffix) if pending.answered:
                if isinstance(message, NamespaceAdded):
                    stream.told.add(suffix)
                elif suffix in stream.told:
                    stream.told.remove(suffix)
                else:
                    raise violation("NAMESPACE_DONE of a namespace that was not told of")
                prefix = pending.message.prefix  # type: ignore[union-attr]
                yield type(message)((*prefix, *suffix))
            case _:
                raise violation(f"{type(message).__name__} in answer to SUBSCRIBE_NAMESPACE")

    def _namespace_stream_over(self, stream: ControlStream) -> Iterator[Message]:
        if stream.request_id is None:
            return
        table = self.incoming if stream.incoming else self.outgoing
        pending = table.get(stream.request_id)
        if pending is None or not isinstance(pending.message, SubscribeNamespace):
            return
        if stream.incoming:
            self.finish(stream.request_id)
            if pending.stream_id is not None:
                self._wire.send(pending.stream_id, b"", fin=True)
            yield UnsubscribeNamespace(pending.message.prefix)
        else:
            del self.outgoing[stream.request_id]
            if not pending.answered:
                reason = "the stream ended without an answer"
                yield RequestError(
                    stream.request_id, RequestCode.INTERNAL_ERROR, reason, kind=pending.kind
                )

    def _take(  # noqa: C901 - a flat table
        self, message: Message, stream_id: int | None
    ) -> Iterator[Message]:
        """A message after the setup: refuse what has no place, complete what leaves things out."""
        match message:
            case ClientSetup() | ServerSetup():
                raise violation("a second setup")
            case SubscribeNamespace() if stream_id is None and self.dialect.namespaces_on_streams:
                raise violation("SUBSCRIBE_NAMESPACE has a stream of its own")
            case (
                Subscribe()
                | RequestUpdate()
                | Publish()
                | Fetch()
                | TrackStatus()
                | PublishNamespace()
                | SubscribeNamespace()
            ):
                yield from self._asked(message, stream_id)
            case SubscribeOk() | PublishOk() | FetchOk() | RequestOk() | RequestError():
                if (answer := self.requests.answered(message)) is not None:
                    yield answer
            case Unsubscribe(request_id) | FetchCancel(request_id):
                if self.requests.is_withdrawn(message):
                    self.finish(request_id)
                    yield message
            case PublishDone(request_id):
                if self.requests.is_done(message):
                    yield message
                    self.finish(request_id)
            case PublishNamespaceDone():
                yield from self._namespace_ended(message, self.incoming)
            case PublishNamespaceCancel():
                yield from self._namespace_ended(message, self.outgoing)
            case UnsubscribeNamespace():
                if (watched := self.requests.find_watched(message)) is not None:
                    self.finish(watched[0])
                    yield UnsubscribeNamespace(watched[1])
            case MaxRequestId(most):
                self.ids.raised(most)
                self.flush()
            case RequestsBlocked():
                self._extend_credit(blocked=True)
            case Goaway(uri):
                if self.goaway is not None:
                    raise violation("a second GOAWAY")
                if uri and not self._is_client:
                    raise violation("a client cannot name another session's URI")
                self.goaway = message
                yield message
            case _:
                raise violation(f"{type(message).__name__} has no place on the control stream")

    def _asked(self, message: Request, stream_id: int | None) -> Iterator[Message]:
        in_order = stream_id is None and not self.dialect.namespaces_on_streams
        found = self.requests.asked(message, stream_id, in_order=in_order)
        if isinstance(found, RequestError):
            self.send(found)
        else:
            yield found

    def _namespace_ended(
        self, message: PublishNamespaceDone | PublishNamespaceCancel, table: dict[int, Pending]
    ) -> Iterator[Message]:
        found = self.requests.find_published(table, message.request_id, message.namespace)
        if found is not None:
            request_id, namespace = found
            self.finish(request_id)
            yield replace(message, request_id=request_id, namespace=namespace)

    # -- the end of requests -----------------------------------------------------------------------

    def move_alias(self, alias: int, request_id: int) -> None:
        """From now on an alias belongs to another request for its track."""
        self.requests.move_alias(alias, request_id)

    def drop_alias(self, alias: int, request_id: int | None = None) -> None:
        """Nothing more is expected under an alias, if it still belongs to the request."""
        self.requests.drop_alias(alias, request_id)

    def finish(self, request_id: int) -> None:
        """A request has ended, and so has its share of what may be asked."""
        if self.requests.finish(request_id):
            self._extend_credit()

    def _extend_credit(self, *, blocked: bool = False) -> None:
        """Allow as many new requests as have ended, a good part of the limit at a time."""
        allowed = self.ids.credit(blocked=blocked) if self.ready else None
        if allowed is not None:
            self._write(MaxRequestId(allowed))

    # -- sending -----------------------------------------------------------------------------------

    def request(self, message: Request) -> int:
        """Ask for something; its id is given here. It waits where the other side allows no more."""
        request_id = self.ids.next()
        message = replace(message, request_id=request_id)
        kind = KINDS[type(message)]
        pending = self.outgoing[request_id] = Pending(kind, message)
        data = self.dialect.encode(message)
        if kind is RequestKind.UPDATE and not self.dialect.answers_updates:
            del self.outgoing[request_id]  # it has no answer
        if isinstance(message, SubscribeNamespace) and self.dialect.namespaces_on_streams:
            pending.stream_id = self._wire.open_stream()
            self._streams[pending.stream_id] = ControlStream(request_id=request_id, incoming=False)
        if self.requests.waiting or not self.ready or request_id >= self.ids.most:
            self.requests.waiting.append(Waiting(request_id, data, pending.stream_id))
            self._say_blocked()
        else:
            self._write_bytes(data, pending.stream_id)
        return request_id

    @property
    def can_request(self) -> bool:
        """Whether another request of ours may wait for its turn."""
        return len(self.requests.waiting) < self._limits.waiting

    @property
    def is_blocked(self) -> bool:
        """Whether requests of ours wait until others have ended."""
        return self.ready and bool(self.requests.waiting)

    def presume_requests(self) -> None:
        """Ask all the same, of another side that has allowed no requests and will not.

        A session begins without any allowed, so that this is a mistake of the other side only if
        it leaves it at that: the caller gives it time.
        """
        if self.ready and not self.ids.most and not self._limits.strict:
            self.tolerated[Tolerance.NO_REQUEST_LIMIT] += 1
            self.ids.presume()
            self.flush()

    def flush(self) -> None:
        """The setup is done, or more is allowed: say what waited for it."""
        for _, data, stream_id, fin in self.requests.released():
            self._write_bytes(data, stream_id, fin=fin)
        self._say_blocked()

    def _say_blocked(self) -> None:
        if self.is_blocked:
            self.say_blocked()

    def say_blocked(self) -> None:
        """Tell the other side that its limit holds requests of ours up; once for each limit."""
        if self.ready and self.ids.blocked_is_news():
            self._write(RequestsBlocked(self.ids.most))

    def _write_after(
        self, request_id: int, data: bytes, stream_id: int | None = None, *, fin: bool = False
    ) -> None:
        """Say something of a request: after it, where it waits, since ids are without gaps."""
        if any(item.request_id == request_id for item in self.requests.waiting):
            self.requests.waiting.append(Waiting(request_id, data, stream_id, fin))
        else:
            self._write_bytes(data, stream_id, fin=fin)

    def _write_bytes(self, data: bytes, stream_id: int | None, *, fin: bool = False) -> None:
        stream_id = self._control if stream_id is None else stream_id
        if stream_id is not None:
            self._wire.send(stream_id, data, fin=fin)

    def send(self, message: Message) -> None:
        """Answer, withdraw, or end something."""
        match message:
            case RequestOk(request_id) | RequestError(request_id):
                self._send_answer(message, request_id)
            case SubscribeOk(request_id) | PublishOk(request_id) | FetchOk(request_id):
                self.requests.answer(request_id)
                self._write(message)
            case PublishDone(request_id) | Unsubscribe(request_id) | FetchCancel(request_id):
                self._write_after(request_id, self.dialect.encode(message))
                self.finish(request_id)
            case PublishNamespaceDone(request_id) if request_id in self.outgoing:
                namespace = self.outgoing[request_id].message.namespace  # type: ignore[union-attr]
                done = PublishNamespaceDone(request_id, namespace)
                self._write_after(request_id, self.dialect.encode(done))
                self.finish(request_id)
            case PublishNamespaceCancel(_, _, request_id) if request_id in self.incoming:
                namespace = self.incoming[request_id].message.namespace  # type: ignore[union-attr]
                self._write(replace(message, namespace=namespace))
                self.finish(request_id)
            case Goaway():
                if not self._said_goaway:
                    self._said_goaway = True
                    self._write(message)
            case _:
                self._write(message)

    def _send_answer(self, message: RequestOk | RequestError, request_id: int) -> None:
        pending = self.incoming.get(request_id)
        if pending is None or pending.answered:
            return
        message = replace(message, kind=pending.kind)
        self.requests.answer(request_id)
        refused = isinstance(message, RequestError)
        if pending.stream_id is not None:
            data = self.dialect.encode(message)
            self._wire.send(pending.stream_id, data, fin=refused)
        elif pending.kind is not RequestKind.UPDATE or self.dialect.answers_updates:
            self._write(message)
        if refused or pending.kind in ENDED_BY_ANSWER:
            self.finish(request_id)

    # -- namespaces --------------------------------------------------------------------------------

    def tell_namespace(self, request_id: int, namespace: Namespace) -> int | None:
        """Tell who subscribed to a prefix of a namespace below it.

        Draft 14 does it with a PUBLISH_NAMESPACE, whose request id is returned; a client that
        allows us no requests hears no more than may wait for them.
        """
        pending = self.incoming.get(request_id)
        if pending is None or not isinstance(pending.message, SubscribeNamespace):
            return None
        if pending.stream_id is None:
            ask = self.can_request
            return self.request(PublishNamespace(0, namespace)) if ask else None
        suffix = namespace[len(pending.message.prefix) :]
        self._wire.send(pending.stream_id, self.dialect.encode(NamespaceAdded(suffix)))
        return None

    def stop_telling(self, request_id: int) -> None:
        """Who subscribed to a prefix may not any more; draft 14 has no word for that."""
        pending = self.incoming.get(request_id)
        if pending is not None and pending.stream_id is not None:
            self._wire.send(pending.stream_id, b"", fin=True)
        self.finish(request_id)

    def tell_namespace_gone(
        self, request_id: int, namespace: Namespace, said_id: int | None
    ) -> None:
        """A namespace that was told is no more; `said_id` is what `tell_namespace` returned."""
        if said_id is not None:
            self.send(PublishNamespaceDone(said_id, namespace))
            return
        pending = self.incoming.get(request_id)
        if pending is not None and isinstance(pending.message, SubscribeNamespace):
            suffix = namespace[len(pending.message.prefix) :]
            if pending.stream_id is not None:
                self._wire.send(pending.stream_id, self.dialect.encode(NamespaceDone(suffix)))

    def unsubscribe_namespace(self, request_id: int) -> None:
        """We no longer want to hear of a prefix."""
        pending = self.outgoing.get(request_id)
        if pending is None or not isinstance(pending.message, SubscribeNamespace):
            return
        # What has crossed this, an answer or news, is passed over when it comes.
        if pending.stream_id is not None:
            self._write_after(request_id, b"", pending.stream_id, fin=True)
        else:
            unwanted = UnsubscribeNamespace(pending.message.prefix)
            self._write_after(request_id, self.dialect.encode(unwanted))
        self.finish(request_id)

    def _write(self, message: Message) -> None:
        if self._control is not None:
            self._wire.send(self._control, self.dialect.encode(message))
