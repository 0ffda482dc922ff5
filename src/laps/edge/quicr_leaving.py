"""How a QUICR client is told to go elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.wire.quicr.messages import RelayRedirect, Response, Subscribe, SubscribeReply

if TYPE_CHECKING:
    from laps.sessions.quicr import ControlStream, QuicrSession
    from laps.types import Address


def redirect(session: QuicrSession, stream: ControlStream, to: Address | None) -> None:
    """Tell a client where to go; one that is told nothing dials again when it is closed."""
    if to is None or stream.closed_here or stream.ours:
        return
    if isinstance(stream.opening, Subscribe):
        session.send(stream, SubscribeReply(Response.REDIRECT, "the relay stops"))
    session.send(stream, RelayRedirect(str(to)))
