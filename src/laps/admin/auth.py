"""Which requests are answered: those with a token, or, without one, those to this machine.

To look, either token will do; whatever changes something needs the one that writes, on loopback
too: a web page can have a browser send a form to 127.0.0.1. Tokens are taken from the header
`Authorization` alone: a URL is written down by browsers, proxies and logs.

A relay on loopback without a token answers only to requests that name a loopback address or
`localhost` in `Host`. A web page may have its own name lead to 127.0.0.1 and so have a browser ask
on its behalf; but the browser then says that name.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from laps.admin.answers import refusal
from laps.admin.schema.relay import Alive, Ready
from laps.admin.tokens import Right

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from laps.admin.tokens import Tokens

# A supervisor that restarts relays does not know their secrets, and these pages have none.
OPEN_PATHS: Final = frozenset({Alive.path, Ready.path})


# Methods that change nothing.
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Doorkeeper:
    """Refuses what may not be asked, before anything is read."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] != "http":
            return
        refused = self._refusal(scope["method"], scope["path"], dict(scope["headers"]))
        await (refused or self._app)(scope, receive, send)

    def _refusal(self, method: str, path: str, headers: dict[bytes, bytes]) -> Response | None:
        tokens, right = self._tokens, self._right(headers)
        if not tokens.are_needed and not is_local(headers.get(b"host", b"").decode("latin-1")):
            words = "without a token only requests to a loopback address or localhost are answered"
            return refusal(words, 403)
        if method not in READING:
            return self._refused_to_write(right)
        if tokens.are_needed and right < Right.READ and path not in OPEN_PATHS:
            words = "this relay asks for a token: Authorization: Bearer TOKEN"
            return refusal(words, 401, {"www-authenticate": "Bearer"})
        return None

    def _refused_to_write(self, right: Right) -> Response | None:
        if right is Right.WRITE:
            return None
        if not self._tokens.may_be_written:
            words = "nothing can be changed here: the relay has no admin.token or admin.token_file"
            return refusal(words, 403)
        if right is Right.READ:
            words = "this token may look and change nothing: show the one of admin.token"
            return refusal(words, 403)
        words = "to change something show the token of admin.token: Authorization: Bearer TOKEN"
        return refusal(words, 401, {"www-authenticate": "Bearer"})

    def _right(self, headers: dict[bytes, bytes]) -> Right:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        # Compared in any case, so that the time it takes does not tell whether one was right.
        right = self._tokens.right_of(token.strip())
        return right if scheme.lower() == b"bearer" else Right.NOTHING


def is_local(host: str) -> bool:
    """Whether a `Host` header names this machine, as seen from itself alone."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]") or not port.isdecimal():
        name = host
    name = name.removeprefix("[").removesuffix("]").lower()
    if name in {"localhost", "localhost."}:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
