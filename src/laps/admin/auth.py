"""Which requests are answered: those with the token, or, without one, those to this machine.

A relay on loopback without a token answers only to requests that name a loopback address or
`localhost` in `Host`. A web page may have its own name lead to 127.0.0.1 and so have a browser ask
on its behalf; but the browser then says that name.
"""

from __future__ import annotations

import hmac
import ipaddress
from typing import TYPE_CHECKING, Final

from laps.admin.answers import refusal
from laps.admin.schema.relay import Alive, Ready

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

# A supervisor that restarts relays does not know their secrets, and these pages have none.
OPEN_PATHS: Final = frozenset({Alive.path, Ready.path})


class Doorkeeper:
    """Refuses what may not be asked, before anything is read."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        if self._token:
            if scope["path"] not in OPEN_PATHS and not self._shown(headers):
                words = "this relay asks for a token: Authorization: Bearer TOKEN"
                await refusal(words, 401, {"www-authenticate": "Bearer"})(scope, receive, send)
                return
        elif not is_local(headers.get(b"host", b"").decode("latin-1")):
            words = "without a token only requests to a loopback address or localhost are answered"
            await refusal(words, 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _shown(self, headers: dict[bytes, bytes]) -> bool:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        # Both are compared, so that the time it takes does not tell whether one was right.
        return hmac.compare_digest(token.strip(), self._token) and scheme.lower() == b"bearer"


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
