"""WebTransport over HTTP/3, offered and dialled: one session on a connection of its own.

A session has the methods of a `Connection` and tells a `Receiver` the same things, so that who
speaks on it need not know what it runs on. It is spoken as Chromium does (draft 2) and as later
drafts do, as far as they agree on the wire:

    stream of the session      0x54 (one way) or 0x41 (both) | session id | bytes
    datagram                   session id / 4 | bytes
    the CONNECT stream         HEADERS, then DATA with capsules: type | length | value
    session id                 the number of the CONNECT stream

A relay offers it:

    def accept(connection: Connection) -> Receiver:
        return accept_http3(connection, choose)

    def choose(request: ConnectRequest) -> Accepted | Refused:
        return Accepted(lambda session: Client(session)) if request.path == "/moq" else Refused(404)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.errors import ConnectionClosed, HandshakeFailed, StreamLimitReached
from laps.net.http3 import (
    ErrorCode,
    Field,
    FrameType,
    Request,
    Setting,
    decode_strings,
    decode_tokens,
    encode_frame,
    encode_strings,
    join_values,
    parse_request,
    parse_response,
)
from laps.net.http3_connection import Http3Connection
from laps.net.webtransport_session import AcceptSession, WebTransportSession
from laps.types import Address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.net.connection import Connection
    from laps.net.quic import Endpoint
    from laps.net.tls import Trust
    from laps.net.transport import Transport

__all__ = [
    "Accepted",
    "ConnectRequest",
    "Refused",
    "WebTransportClient",
    "WebTransportServer",
    "WebTransportSession",
    "accept_http3",
    "connect",
]

HTTP3_ALPN: Final = "h3"

# How long a server may take to say who it is and to answer a CONNECT: as long as for a handshake.
ANSWER_S: Final = 10.0

# What the upgrade is called: by all drafts up to 14, and by those after.
PROTOCOLS: Final = ("webtransport", "webtransport-h3")

# Any of these, not 0, says that a server takes sessions.
_OFFERS: Final = (
    Setting.ENABLE_WEBTRANSPORT,
    Setting.WEBTRANSPORT_MAX_SESSIONS,
    Setting.WT_MAX_SESSIONS,
)

WHAT_THIS_IS: Final = (
    "This is a LAPS relay. It has no web pages: it speaks MoQT over WebTransport.\n"
)

# -- offered ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConnectRequest:
    """What somebody asks a session for."""

    path: str
    "With the query, if there is one."
    authority: str
    "The host and port that were dialled, by the name the client knows."
    origin: str
    "The site whose page asks; empty if it is no browser."
    protocols: tuple[str, ...]
    "Those the client would speak in the session, in the order of its preference."
    bare_protocols: tuple[str, ...]
    "The same of a client that names them without quotes, which is a mistake."
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Accepted:
    """A session may begin."""

    accept: AcceptSession
    protocol: str = ""
    "The one chosen among those offered."


@dataclass(frozen=True, slots=True)
class Refused:
    """No session, and why, as an HTTP status and in words."""

    status: int
    reason: str = ""


Choose = Callable[[ConnectRequest], Accepted | Refused]


class WebTransportServer(Http3Connection):
    """The receiver of a connection that was dialled with ALPN `h3`.

    `session` is None until there is one; who waits for that in vain closes the connection.
    """

    def __init__(self, connection: Transport, choose: Choose) -> None:
        self._choose = choose
        self._waiting: Request | None = None
        "A request that overtook the settings."
        super().__init__(connection, is_client=False)

    def _settings_received(self) -> None:
        if self._waiting is not None and self._connect_id is not None:
            self._decide(self._connect_id, self._waiting)

    def _fields_received(self, stream_id: int, fields: list[Field]) -> bool:
        request = parse_request(fields)
        if request.method == "GET":
            self._answer(stream_id, 404, WHAT_THIS_IS)
        elif request.method != "CONNECT" or not request.protocol:
            self._answer(stream_id, 405, WHAT_THIS_IS if request.method != "HEAD" else "")
        elif request.protocol not in PROTOCOLS:
            self._answer(stream_id, 501, f"{request.protocol} is not spoken here.\n")
        elif self._connect_id is not None:
            self._answer(stream_id, 429, "There is one session on a connection.\n")
        else:
            self._connect_id = stream_id
            if self.peer_settings is None:
                self._waiting = request
            else:
                self._decide(stream_id, request)
        return True

    def _decide(self, stream_id: int, request: Request) -> None:
        self._waiting = None
        offered = request.header("wt-available-protocols")
        decision = self._choose(
            ConnectRequest(
                request.path,
                request.authority,
                request.header("origin"),
                decode_strings(offered),
                decode_tokens(offered),
                request.headers,
            )
        )
        if isinstance(decision, Refused):
            self._connect_id = None
            text = f"{decision.reason}\n" if decision.reason else ""
            self._answer(stream_id, decision.status, text)
            return
        fields = [(b":status", b"200"), (b"sec-webtransport-http3-draft", b"draft02")]
        if decision.protocol:
            fields.append((b"wt-protocol", encode_strings((decision.protocol,))))
        self._connection.write(stream_id, self._fields.encode(stream_id, fields))
        self.session = WebTransportSession(self, self._connection, stream_id, decision.protocol)
        self.session.begin(decision.accept)

    def _answer(self, stream_id: int, status: int, text: str) -> None:
        self.counters.refused_requests += 1
        content = text.encode()
        fields = [(b":status", str(status).encode())]
        if content:
            fields.append((b"content-type", b"text/plain; charset=utf-8"))
            fields.append((b"content-length", str(len(content)).encode()))
        header = self._fields.encode(stream_id, fields)
        body = encode_frame(FrameType.DATA, content) if content else b""
        self._connection.write(stream_id, header + body, fin=True)
        self._connection.stop_stream(stream_id, ErrorCode.NO_ERROR)
        self._disregard(stream_id)

    def _content_received(self, stream_id: int, data: bytes) -> None:
        if self.session is not None and stream_id == self.session.id:
            self.session.receive_capsules(data)

    def _message_ended(self, stream_id: int, why: str) -> None:
        if self.session is not None and stream_id == self.session.id:
            self.session.peer_closed(0, why)
        else:
            self._connect_id = self._waiting = None


def accept_http3(connection: Transport, choose: Choose) -> WebTransportServer:
    """The receiver for a connection with ALPN `h3`; `choose` decides about the session on it."""
    return WebTransportServer(connection, choose)


# -- dialled ---------------------------------------------------------------------------------------


class WebTransportClient(Http3Connection):
    """The receiver of a connection that asks for a session as soon as it may."""

    def __init__(
        self,
        connection: Transport,
        fields: Sequence[Field],
        protocols: Sequence[str],
        accept: AcceptSession,
        answered: Callable[[WebTransportSession | str], None],
    ) -> None:
        """`answered` is called once, with the session or what came instead of it."""
        self._request = fields
        self._protocols = protocols
        self._accept = accept
        self._answered: Callable[[WebTransportSession | str], None] | None = answered
        super().__init__(connection, is_client=True)

    def _conclude(self, answer: WebTransportSession | str) -> None:
        if self._answered is not None:
            answered, self._answered = self._answered, None
            answered(answer)

    def _settings_received(self) -> None:
        settings = self.peer_settings or {}
        if any(settings.get(key) for key in _OFFERS):
            name = PROTOCOLS[0]
        elif settings.get(Setting.WT_ENABLED):
            name = PROTOCOLS[1]
        else:
            self._conclude("speaks HTTP/3 and not WebTransport")
            return
        try:
            stream_id = self._connection.open_stream(unidirectional=False)
        except StreamLimitReached:
            self._conclude("takes no requests")
            return
        self._connect_id = stream_id
        self._expect_message(stream_id)
        pseudo = [(b":method", b"CONNECT"), (b":protocol", name.encode())]
        header = self._fields.encode(stream_id, [*pseudo, *self._request])
        self._connection.write(stream_id, header)

    def _fields_received(self, stream_id: int, fields: list[Field]) -> bool:
        status, headers = parse_response(fields)
        if status < 200:
            return False
        if status >= 300:
            self._conclude(f"answered with status {status}")
            self._disregard(stream_id)
            return True
        chosen = decode_strings(join_values(headers, "wt-protocol"))
        protocol = chosen[0] if chosen and chosen[0] in self._protocols else ""
        self.session = WebTransportSession(self, self._connection, stream_id, protocol)
        self.session.begin(self._accept)
        self._conclude(self.session)
        return True

    def _content_received(self, stream_id: int, data: bytes) -> None:
        if self.session is not None:
            self.session.receive_capsules(data)

    def _message_ended(self, stream_id: int, why: str) -> None:
        if self.session is not None:
            self.session.peer_closed(0, why)
        else:
            self._conclude(why or "ended the request without an answer")

    def closed(self, close: ConnectionClosed) -> None:
        """The connection is over."""
        super().closed(close)
        self._conclude(f"ended the connection: {close}")


async def connect(
    endpoint: Endpoint,
    host: str,
    port: int,
    path: str,
    trust: Trust,
    accept: AcceptSession,
    protocols: Sequence[str] = (),
    headers: Sequence[tuple[str, str]] = (),
    answer_s: float = ANSWER_S,
) -> WebTransportSession:
    """Dial, and wait for the session; HandshakeFailed says what to look at.

    `protocols` are offered in this order; the one chosen is the session's `alpn`.
    """
    authority = str(Address(host, port))
    texts = [(":scheme", "https"), (":authority", authority), (":path", path)]
    texts += [("sec-webtransport-http3-draft02", "1"), *headers]
    fields = [(name.lower().encode(), value.encode()) for name, value in texts]
    if protocols:
        fields.append((b"wt-available-protocols", encode_strings(protocols)))
    answer: asyncio.Future[WebTransportSession | str] = endpoint.loop.create_future()

    def answered(what: WebTransportSession | str) -> None:
        if not answer.done():
            answer.set_result(what)

    def accept_connection(connection: Connection) -> WebTransportClient:
        return WebTransportClient(connection, fields, protocols, accept, answered)

    connection = await endpoint.connect(host, port, [HTTP3_ALPN], trust, accept_connection)
    session: WebTransportSession | str = ""
    try:
        async with asyncio.timeout(answer_s):
            session = await answer
    except TimeoutError:
        session = f"gave no answer within {answer_s:g} s"
    finally:
        if isinstance(session, str):
            connection.close(ErrorCode.NO_ERROR, "")
    if isinstance(session, str):
        shown = path.partition("?")[0]  # a token may follow
        raise HandshakeFailed(f"no WebTransport session at {authority}{shown}: it {session}")
    return session
