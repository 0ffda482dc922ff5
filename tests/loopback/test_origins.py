"""Relays ask a real HTTPS server about what real clients want: QUICR, and both drafts of MoQT."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import threading
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from msgspec import structs

import laps
from laps.admin.server import Admin
from laps.config import AdminConfig, config_from_mapping
from laps.errors import ConfigError, RequestUnauthorized
from laps.types import Address
from support.certificates import CertificateAuthority
from support.loopback import on_loop, until
from support.runners import lab

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from laps.client import Connecting
    from laps.net.runner import Runner

EXAMPLE = Path(__file__).parents[2] / "examples" / "origin"

SPOKEN = [
    pytest.param("moqt", 16, id="moqt-16"),
    pytest.param("moqt", 14, id="moqt-14"),
    pytest.param("quicr", 0, id="quicr"),
]
spoken = pytest.mark.parametrize(("scheme", "draft"), SPOKEN)

GRANT = {"allow": True, "keep_s": 60}


class OriginServer:
    """A real server, that answers as a test wants it."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.authority = CertificateAuthority(folder)
        self.questions: list[dict[str, Any]] = []
        self.status = 200
        self.body = json.dumps(GRANT).encode()
        self.may_answer = threading.Event()
        "Clear, it hangs."
        self.may_answer.set()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*self.authority.files)
        self.port = port
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        origin = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = self.rfile.read(int(self.headers["content-length"]))
                origin.questions.append(json.loads(asked))
                origin.may_answer.wait(30)
                self.send_response(origin.status)
                self.send_header("content-length", str(len(origin.body)))
                self.send_header("location", "https://127.0.0.1:1/")
                self.end_headers()
                self.wfile.write(origin.body)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # who does not trust the certificate leaves

        server = Server(("127.0.0.1", self.port), Handler)
        server.socket = self._context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.port = server.server_address[1]
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self.may_answer.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def says(self, **answer: Any) -> None:
        self.body = json.dumps(answer).encode()

    def config(self, **changes: Any) -> dict[str, Any]:
        return {
            "name": "media.example",
            "namespaces": ["media.example", "live"],
            "api": f"https://127.0.0.1:{self.port}/laps",
            "authorities": str(self.authority.path),
            "timeout_s": 5,
            **changes,
        }


@contextmanager
def serving(folder: Path) -> Iterator[OriginServer]:
    server = OriginServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@asynccontextmanager
async def stage(folder: Path, **changes: Any) -> AsyncIterator[tuple[Runner, OriginServer]]:
    """A relay, and the server of its origin."""
    with serving(folder) as server:
        async with lab() as net:
            yield await net.relay("edge", origins=[server.config(**changes)]), server


def connect(runner: Runner, scheme: str, draft: int, **options: Any) -> Connecting:
    url = f"{scheme}://{runner.client_address}"
    return laps.connect(url, drafts=(draft or 16,), **options)


async def refusal(session: Any) -> str:
    """Why it may not subscribe to a track of the origin."""
    with pytest.raises(RequestUnauthorized) as caught:
        await anext(session.subscribe("live", "track"))
    return str(caught.value)


def published(relay: Runner) -> int:
    """How many tracks clients publish."""
    return sum(len(it.client.publications) for it in relay.clients.connections)


@spoken
@on_loop
async def test_origin_grants_and_what_was_sent_meanwhile_arrives(
    tmp_path: Path, scheme: str, draft: int
) -> None:
    async with (
        stage(tmp_path) as (relay, server),
        connect(relay, scheme, draft, token="secret") as publisher,
        connect(relay, scheme, draft, token="secret") as reader,
    ):
        track = await publisher.publish("live", "track")
        await track.write(b"here")
        objects = reader.subscribe("live", "track", start="start")
        assert (await anext(objects)).payload == b"here"
        asked = {it["action"] for it in server.questions}
        assert {"publish", "subscribe"} <= asked
        assert all(it["namespace"] == ["live"] for it in server.questions)
        assert all(it["tokens"] == [{"type": 0, "token": "secret"}] for it in server.questions)


@spoken
@on_loop
async def test_origin_refuses_with_its_reason(tmp_path: Path, scheme: str, draft: int) -> None:
    async with (
        stage(tmp_path) as (relay, server),
        connect(relay, scheme, draft) as session,
    ):
        server.says(allow=False, reason="not a member")
        assert "the origin media.example says no: not a member" in await refusal(session)
        # Others do not wait for it, and names of no origin are not asked about.
        track = await session.publish("demo", "track")
        await track.write(b"x")
        assert len(server.questions) == 1


@on_loop
@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"yes, sure", "its answer is none"),
        (200, b'{"allow": true}' + b" " * 20_000, "more than 16384 bytes"),
        (404, b"", "it answered with the status 404"),
        (302, b"", "it answered with the status 302"),
        (503, b"", "it answered with the status 503"),
    ],
    ids=["garbage", "huge", "404", "redirect", "503"],
)
async def test_origin_that_answers_something_else_grants_nothing(
    tmp_path: Path, status: int, body: bytes, words: str
) -> None:
    async with stage(tmp_path) as (relay, server), connect(relay, "moqt", 16) as session:
        server.status, server.body = status, body
        assert words in await refusal(session)
        assert len(server.questions) == (3 if status == 503 else 1)


@spoken
@on_loop
async def test_origin_that_hangs_refuses_in_time_and_others_go_on(
    tmp_path: Path, scheme: str, draft: int
) -> None:
    async with (
        stage(tmp_path, timeout_s=0.5) as (relay, server),
        connect(relay, scheme, draft) as session,
    ):
        server.may_answer.clear()
        waiting = asyncio.ensure_future(refusal(session))
        await until(lambda: len(server.questions) == 1)
        track = await session.publish("demo", "track")  # while that one waits
        await track.write(b"x")
        assert not waiting.done()
        assert "cannot be asked" in await waiting
        server.may_answer.set()


@on_loop
async def test_origin_that_is_slow_is_waited_for(tmp_path: Path) -> None:
    async with stage(tmp_path) as (relay, server), connect(relay, "moqt", 16) as session:
        server.may_answer.clear()
        track = await session.publish("live", "track")
        await track.write(b"early")
        await until(lambda: len(server.questions) == 1)
        assert not published(relay)
        server.may_answer.set()
        await until(lambda: published(relay) == 1)
        assert (await anext(session.subscribe("live", "track", start="start"))).payload == b"early"


@on_loop
async def test_origin_that_is_down_refuses_and_grants_when_it_is_back(tmp_path: Path) -> None:
    async with (
        stage(tmp_path, timeout_s=1.0) as (relay, server),
        connect(relay, "moqt", 16) as session,
    ):
        server.stop()
        assert "nobody answers at its address" in await refusal(session)
        calls = relay.edge.origins.counters["media.example"]
        before = calls.calls
        await session.publish("live", "other")
        await until(lambda: calls.calls > before)
        server.start()
        await until(lambda: published(relay) == 1)


@on_loop
async def test_origin_with_another_certificate_is_not_asked(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    strange = CertificateAuthority(other)
    async with (
        stage(tmp_path, authorities=str(strange.path)) as (relay, server),
        connect(relay, "moqt", 16) as session,
    ):
        assert "its certificate is not trusted" in await refusal(session)
        assert server.questions == []


@on_loop
async def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    async with lab() as net:
        origin = {"name": "a", "api": "https://127.0.0.1:1/", "authorities": str(tmp_path / "no")}
        with pytest.raises(ConfigError, match=r"origins: a: authorities: .*cannot be read"):
            await net.relay("edge", origins=[origin])


@spoken
@on_loop
async def test_grant_that_is_taken_back_ends_what_it_allowed(
    tmp_path: Path, scheme: str, draft: int
) -> None:
    async with (
        stage(tmp_path) as (relay, server),
        connect(relay, scheme, draft) as publisher,
        connect(relay, scheme, draft) as reader,
    ):
        server.says(allow=True, keep_s=1)
        track = await publisher.publish("live", "track")
        await track.write(b"here")
        objects = reader.subscribe("live", "track", start="start")
        assert (await anext(objects)).payload == b"here"
        server.says(allow=False, reason="over")
        await until(lambda: not published(relay))
        await until(lambda: all(not client.subscriptions for client in relay.edge.clients))


@on_loop
async def test_origins_that_change_with_sighup_count_at_once(tmp_path: Path) -> None:
    async with stage(tmp_path) as (relay, server), connect(relay, "moqt", 16) as session:
        server.says(allow=False, reason="no")
        await session.publish("news", "track")  # which is nobody's yet
        await until(lambda: published(relay) == 1)
        changed = server.config(namespaces=["news"])
        config = config_from_mapping({"origins": [changed]}, "test")
        relay.reload(structs.replace(relay.config, origins=config.origins))
        await until(lambda: [it["namespace"] for it in server.questions] == [["news"]])
        await until(lambda: not published(relay))
        await session.publish("live", "track")  # which is nobody's any more
        await until(lambda: published(relay) == 1)


# -- what an operator sees -------------------------------------------------------------------------


@on_loop
async def test_origins_are_shown_with_calls_refusals_failures_and_latency(tmp_path: Path) -> None:
    async with (
        stage(tmp_path, timeout_s=0.5) as (relay, server),
        connect(relay, "moqt", 16) as session,
    ):
        admin = Admin(relay, AdminConfig(listen=Address("127.0.0.1", 0)))
        try:
            await session.publish("live", "granted")
            await until(lambda: published(relay) == 1)
            server.says(allow=False, reason="no")
            await refusal(session)
            server.may_answer.clear()
            with pytest.raises(RequestUnauthorized):
                await anext(session.subscribe("live", "other"))
            async with httpx.AsyncClient(base_url=f"http://{admin.address}") as client:
                (row,) = (await client.get("/v1/origins")).json()["origins"]
                metrics = (await client.get("/metrics")).text
        finally:
            await admin.close()
        assert (row["origin"], row["decides"]) == ("media.example", "api")
        assert row["namespaces"] == ["media.example", "live"]
        assert (row["calls"], row["allowed"], row["refused"], row["failed"]) == (3, 1, 1, 1)
        assert row["answered"] == 2
        assert row["answer_us"] > 0
        assert "did not answer" in row["last_failure"]
        assert 'laps_origin_refused_total{origin="media.example"} 1.0' in metrics
        seconds = 'laps_origin_answer_seconds_total{origin="media.example"} '
        assert float(metrics.partition(seconds)[2].split()[0]) == row["answer_us"] / 1e6


# -- the example -----------------------------------------------------------------------------------


@contextmanager
def example(folder: Path) -> Iterator[tuple[str, CertificateAuthority]]:
    authority = CertificateAuthority(folder)
    certificate, key = authority.files
    command = [sys.executable, str(EXAMPLE / "origin.py"), str(EXAMPLE / "members.toml")]
    command += ["--listen", "127.0.0.1:0", "--certificate", certificate, "--key", key]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().decode().split()[1], authority
        finally:
            process.terminate()


@spoken
@on_loop
async def test_example_origin_decides_by_its_list(tmp_path: Path, scheme: str, draft: int) -> None:
    with example(tmp_path) as (url, authority):
        origin = {"name": "media.example", "api": url, "authorities": str(authority.path)}
        async with (
            lab() as net,
            connect(await net.relay("edge", origins=[origin]), scheme, draft) as anybody,
            connect(net.relays[0], scheme, draft, token="ann-7f3a") as ann,
            connect(net.relays[0], scheme, draft, token="bob-c41d") as bob,
        ):
            track = await ann.publish("media.example/ann", "cam")
            await track.write(b"hello")
            objects = bob.subscribe("media.example/ann", "cam", start="start")
            assert (await anext(objects)).payload == b"hello"
            for session, reason in ((bob, "not allowed to subscribe"), (anybody, "no token of a")):
                with pytest.raises(RequestUnauthorized, match=reason):
                    await anext(session.subscribe("media.example/bob", "cam"))
