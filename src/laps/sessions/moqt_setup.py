"""The setups that begin a MoQT session: what each side says, and what it must not.

The ALPN names the draft, or leaves it to the versions in the setups. Where a session runs in
WebTransport, that has said path and authority already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.wire.moqt.codes import MoqtViolation, SessionCode, violation
from laps.wire.moqt.dialect import BY_ALPN, BY_SETUP
from laps.wire.moqt.messages import ClientSetup, ServerSetup

if TYPE_CHECKING:
    from laps.wire.moqt.messages import Message

IMPLEMENTATION: Final = b"laps"


@dataclass(frozen=True, slots=True)
class Setup:
    """What is known of a session before it begins."""

    by_alpn: bool
    "The ALPN has named the draft."
    webtransport: bool
    max_request_id: int
    "The first request id that the other side may not use."
    max_token_cache_bytes: int

    def offer(self, path: bytes | None, authority: bytes | None) -> ClientSetup:
        """What a client says first."""
        raw = not self.webtransport
        return ClientSetup(
            versions=() if self.by_alpn else (BY_SETUP.version,),
            path=path if raw else None,
            authority=authority if raw else None,
            max_request_id=self.max_request_id,
            max_token_cache_bytes=self.max_token_cache_bytes,
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
