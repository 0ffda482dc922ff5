"""The web server: the page's files, and the two things that the page asks for."""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import ASGIApp, Receive, Scope, Send

    from laps.dashboard.network import Network

COOKIE = "laps-dashboard"

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}

# The page is made of its own files and nothing else: what a relay says cannot become a script.
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

# What one table of a relay's panel shows.
PANEL_ROWS = "200"


def dashboard_app(network: Network, viewer_token: str = "") -> ASGIApp:
    """The page for this network. Without a token, only for those who name this machine."""
    pages = files("laps.dashboard") / "page"
    held = {page.name: page.read_bytes() for page in pages.iterdir() if page.is_file()}

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in held:
            return PlainTextResponse(f"there is no page {name}\n", 404)
        kind = KINDS.get("." + name.rpartition(".")[2], "application/octet-stream")
        return Response(held[name], media_type=kind, headers=HEADERS)

    async def picture(request: Request) -> Response:
        query = request.query_params
        return _json(
            network.picture(
                query.get("q", "")[:200],
                query.get("track", "")[:64],
                _number(query.get("samples", "")),
                _number(query.get("changes", "")),
                own=query.get("own") == "1",
            )
        )

    async def relay(request: Request) -> Response:
        query = request.query_params
        params = {"limit": PANEL_ROWS}
        if query.get("q"):
            params["q"] = query["q"][:200]
        return _json(await network.show(query.get("node", ""), query.get("view", ""), params))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with network.running():
            yield

    routes = [
        Route("/", page),
        Route("/api/picture", picture),
        Route("/api/relay", relay),
        Route("/{name}", page),
    ]
    return Door(Starlette(routes=routes, lifespan=lifespan), viewer_token)


def _json(answer: object) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json", headers=HEADERS)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 16 else 0


class Door:
    """Lets in those who may look.

    Without a token they have to name this machine in `Host`, so that no web page elsewhere reads
    this one through a name of its own. With one they come with `?token=` once, and have a cookie
    from then on, or send it as `Authorization: Bearer`.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()
        self._cookie = hashlib.sha256(
            self._token
        ).hexdigest()  # a browser keeps this, not the token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        answer = self._answer(scope) if scope["type"] == "http" else None
        await (answer or self._app)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response | None:
        """The answer instead of the page, or None."""
        request = Request(scope)
        if not self._token:
            if is_loopback(_host(request)):
                return None
            return PlainTextResponse("this dashboard is asked by 127.0.0.1 or localhost\n", 403)
        if self._is_token(request.query_params.get("token", "")):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(COOKIE, self._cookie, httponly=True, samesite="strict")
            return answer
        kept = request.cookies.get(COOKIE, "")
        if secrets.compare_digest(kept.encode(), self._cookie.encode()):
            return None
        if self._is_token(request.headers.get("authorization", "").removeprefix("Bearer ")):
            return None
        words = "this dashboard wants its --viewer-token: open it once as /?token=TOKEN\n"
        return PlainTextResponse(words, 401)

    def _is_token(self, said: str) -> bool:
        return secrets.compare_digest(said.encode(), self._token)


def _host(request: Request) -> str:
    """The host of the request as it is written: what is no host is taken for another."""
    host = request.headers.get("host", "")
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def is_loopback(host: str) -> bool:
    """Whether a host, as a URL has it, is this machine and nothing else."""
    if host.lower() == "localhost":
        return True
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False
