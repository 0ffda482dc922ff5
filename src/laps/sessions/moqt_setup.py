"""The setups that begin a MoQT session: what each side says, and what it must not.

The ALPN names the draft, or leaves it to the versions in the setups. Where a session runs in
WebTransport, that has said path and authority already.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.wire.moqt.codes import MoqtViolation, SessionCode, violation
from laps.wire.moqt.dialect import BY_ALPN, BY_SETUP
from laps.wire.moqt.messages import ClientSetup, ServerSetup

if TYPE_CHECKING:
    from laps.wire.moqt.messages import Message, Token

IMPLEMENTATION: Final = b"laps"

# How much of what is refused is shown in the reason.
SHOWN_BYTES: Final = 100

# RFC 3986, 3.2 to 3.4: path-abempty with a query, and authority.
_UNRESERVED: Final = rb"[A-Za-z0-9._~-]|%[0-9A-Fa-f]{2}|[!$&'()*+,;=]"
_PATH: Final = re.compile(rb"(?:/(?:%s|[:@])*)*(?:\?(?:%s|[:@/?])*)?" % (_UNRESERVED, _UNRESERVED))
_AUTHORITY: Final = re.compile(
    rb"(?:(?:%s|:)*@)?(?:\[[0-9A-Fa-f:.]+\]|\[v[0-9A-Fa-f]+\.(?:%s|:)+\]|(?:%s)*)(?::[0-9]*)?"
    % (_UNRESERVED, _UNRESERVED, _UNRESERVED)
)


@dataclass(frozen=True, slots=True)
class Setup:
    """What is known of a session before it begins."""

    by_alpn: bool
    "The ALPN has named the draft."
    webtransport: bool
    max_request_id: int
    "The first request id that the other side may not use."
    max_token_cache_bytes: int

    def offer(
        self, path: bytes | None, authority: bytes | None, tokens: tuple[Token, ...] = ()
    ) -> ClientSetup:
        """What a client says first."""
        raw = not self.webtransport
        return ClientSetup(
            versions=() if self.by_alpn else (BY_SETUP.version,),
            path=path if raw else None,
            authority=authority if raw else None,
            max_request_id=self.max_request_id,
            max_token_cache_bytes=self.max_token_cache_bytes,
            tokens=tokens,
            implementation=IMPLEMENTATION,
        )

    def check_offer(self, message: Message) -> ClientSetup:
        """The first message of a client, or `MoqtViolation`."""
        if not isinstance(message, ClientSetup):
            raise violation("the first message of a client is not CLIENT_SETUP")
        if not self.by_alpn and BY_SETUP.version not in message.versions:
            offered = ", ".join(f"{version:#x}" for version in message.versions) or "none"
            others = " and ".join(f"draft {it.draft} by the ALPN {it.alpn}" for it in BY_ALPN)
            raise MoqtViolation(
                SessionCode.VERSION_NEGOTIATION_FAILED,
                f"versions offered: {offered}; spoken here: {BY_SETUP.version:#x}, and {others}",
            )
        if self.webtransport and message.path is not None:
            raise MoqtViolation(SessionCode.INVALID_PATH, "WebTransport has a path of its own")
        if self.webtransport and message.authority is not None:
            raise MoqtViolation(SessionCode.INVALID_AUTHORITY, "WebTransport has its own")
        if message.path is not None and _PATH.fullmatch(message.path) is None:
            problem = f"{message.path[:SHOWN_BYTES]!r} is no path of a URI"
            raise MoqtViolation(SessionCode.MALFORMED_PATH, problem)
        if message.authority is not None and _AUTHORITY.fullmatch(message.authority) is None:
            problem = f"{message.authority[:SHOWN_BYTES]!r} is no authority of a URI"
            raise MoqtViolation(SessionCode.MALFORMED_AUTHORITY, problem)
        return message

    def answer(self) -> ServerSetup:
        """What a server says to an offer."""
        return ServerSetup(
            version=None if self.by_alpn else BY_SETUP.version,
            max_request_id=self.max_request_id,
            max_token_cache_bytes=self.max_token_cache_bytes,
            implementation=IMPLEMENTATION,
        )

    def check_answer(self, message: Message) -> ServerSetup:
        """The first message of a server, or `MoqtViolation`."""
        if not isinstance(message, ServerSetup):
            raise violation("the first message of a server is not SERVER_SETUP")
        if message.path is not None:
            raise MoqtViolation(SessionCode.INVALID_PATH, "a server has no path to say")
        if message.authority is not None:
            raise MoqtViolation(SessionCode.INVALID_AUTHORITY, "a server has none to say")
        if not self.by_alpn and message.version != BY_SETUP.version:
            raise MoqtViolation(
                SessionCode.VERSION_NEGOTIATION_FAILED,
                f"the server chose version {message.version}, which was not offered",
            )
        return message
