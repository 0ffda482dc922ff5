"""A real Chromium over WebTransport: what a page sends, gets and learns of the end."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from laps.config import QuicConfig
from laps.net.quic import Endpoint
from laps.net.webtransport import (
    Accepted,
    ConnectRequest,
    Refused,
    WebTransportServer,
    WebTransportSession,
    accept_http3,
)
from support.chromium import chromium, page_server
from support.engines import Recorder, identity
from support.loopback import on_loop, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from laps.net.connection import Connection

PAGE = Path(__file__).with_name("webtransport.html").read_text()


class Stage(Recorder):
    """The server's part in a session; the path says which."""

    def __init__(self, session: WebTransportSession, path: str) -> None:
        super().__init__()
        self.session = session
        self.path = path
        if path == "/close":
            session.close(77, "the server says")
        elif path == "/ask":
            stream = session.open_stream(unidirectional=False)
            session.write(stream, b"question", fin=True)
        elif path == "/codes":
            session.write(session.open_stream(unidirectional=True), b"stop this")

    def stream_data(self, stream_id: int, data: bytes, fin: bool) -> None:
        super().stream_data(stream_id, data, fin)
        if data == b"reset me":
            self.session.reset_stream(stream_id, 11)
        elif data == b"stop me":
            self.session.stop_stream(stream_id, 13)
        elif self.path == "/ask" and fin:
            self._say(bytes(self.data[stream_id]))
        elif self.path == "/echo" and not stream_id & 2:
            self.session.write(stream_id, data, fin=fin)
        elif self.path == "/echo" and fin:
            self._say(bytes(self.data[stream_id])[::-1])

    def datagram(self, data: bytes) -> None:
        super().datagram(data)
        self.session.send_datagram(data[::-1])

    def stream_reset(self, stream_id: int, code: int) -> None:
        super().stream_reset(stream_id, code)
        self._tell_codes()

    def stop_sending(self, stream_id: int, code: int) -> None:
        super().stop_sending(stream_id, code)
        self._tell_codes()

    def _tell_codes(self) -> None:
        if self.path == "/codes" and self.resets and self.stops:
            self._say(f"{self.resets[0][1]} {self.stops[0][1]}".encode())

    def _say(self, data: bytes) -> None:
        self.session.write(self.session.open_stream(unidirectional=True), data, fin=True)


class Theatre:
    """A listening endpoint, and what was played on it."""

    def __init__(self) -> None:
        self.requests: list[ConnectRequest] = []
        self.servers: list[WebTransportServer] = []
        self.stages: list[Stage] = []
        self.endpoint = Endpoint.listen(
            "127.0.0.1", 0, QuicConfig(), ["h3"], identity(), self._accept
        )

    def _accept(self, connection: Connection) -> WebTransportServer:
        self.servers.append(accept_http3(connection, self._choose))
        return self.servers[-1]

    def _choose(self, request: ConnectRequest) -> Accepted | Refused:
        self.requests.append(request)
        if request.path == "/nowhere":
            return Refused(404)
        protocol = "moqt-16" if "moqt-16" in request.protocols else ""
        return Accepted(lambda session: self._begin(session, request.path), protocol)

    def _begin(self, session: WebTransportSession, path: str) -> Stage:
        self.stages.append(Stage(session, path))
        return self.stages[-1]

    def report(self) -> dict[str, Any] | None:
        for stage in self.stages:
            if stage.path == "/report" and stage.finished:
                seen: dict[str, Any] = json.loads(next(iter(stage.data.values())))
                return seen
        return None


@asynccontextmanager
async def theatre() -> AsyncIterator[Theatre]:
    there = Theatre()
    try:
        yield there
    finally:
        await there.endpoint.close(0x100, "test over")


@pytest.mark.browser
@on_loop
async def test_a_page_uses_everything_there_is(tmp_path: Path) -> None:
    async with theatre() as there:
        page = PAGE % {"hash": identity().fingerprint, "port": there.endpoint.address[1]}
        with page_server(page) as url, chromium(url, tmp_path):
            await until(lambda: there.report() is not None)
            seen = there.report()
            assert seen is not None
            assert "Chrome/" in seen.pop("agent")
            assert seen == {
                "theirBidi": ["question", "answer to question"],
                "ourBidi": "both ways",
                "ourUni": "yaw eno",
                "large": True,
                "many": 300,
                "datagrams": [f"{n} margatad" for n in range(5)],
                "ourCodes": "7 200",
                "theirCodes": [11, 13],
                "ourClose": {"closeCode": 42, "reason": "the page says"},
                "theirClose": {"closeCode": 77, "reason": "the server says"},
                "refused": "WebTransportError",
                "protocol": "moqt-16",
            }
            ends = [close for stage in there.stages for close in stage.closes]
            assert sorted((end.code, end.reason, end.by_peer) for end in ends) == [
                (42, "the page says", True),
                (77, "the server says", False),
            ]
            # Of 300 streams that ended nothing is remembered: the peer's three critical streams
            # stay, and the one that is the session.
            [busy] = [stage for stage in there.stages if len(stage.finished) == 300]
            [server] = [server for server in there.servers if server.session is busy.session]
            assert server.open_streams <= 4
            assert {request.authority for request in there.requests} == {
                f"127.0.0.1:{there.endpoint.address[1]}"
            }
            assert {request.origin for request in there.requests} == {url.rstrip("/")}
