"""Dials the peers that a relay asks for, and closes those that it lets go."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from laps.errors import CloseCode, InvalidText, LapsError
from laps.relay.on_demand import Dial
from laps.types import Address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from laps.net.link import QuicLink
    from laps.relay.on_demand import HangUp, OnDemand
    from laps.types import NodeId, PeerMode

    Connect = Callable[[Address, NodeId | None, PeerMode], Awaitable[QuicLink]]
    "Dials a peer, who has to be a node, and introduces us."

log = logging.getLogger(__name__)

NOT_NEEDED: Final = "no longer needed"


class Callers:
    """The peers of one relay that are dialled on demand."""

    def __init__(self, sessions: OnDemand, connect: Connect, changed: Callable[[], None]) -> None:
        """`changed` is called when the relay has been told something."""
        self._sessions = sessions
        self._connect = connect
        self._changed = changed
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._is_closing = False

    def perform(self) -> None:
        """Do what the relay asks for."""
        while self._sessions.calls:
            call = self._sessions.calls.popleft()
            if isinstance(call, Dial):
                self._calls[call.contact] = asyncio.ensure_future(self._call(call))
            else:
                self._hang_up(call)

    async def close(self) -> None:
        """Dial no more; links that are there take leave as all others do."""
        self._is_closing = True
        calls = list(self._calls.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def _hang_up(self, call: HangUp) -> None:
        if (task := self._calls.pop(call.contact, None)) is not None:
            task.cancel()

    async def _call(self, call: Dial) -> None:
        link: QuicLink | None = None
        try:
            link = await self._connect(_address(call.contact), call.node_id, call.mode)
            self._sessions.opened(call.contact, link.id, time.monotonic())
            self._changed()
            reason = str(await link.connection.wait_closed())
        except (LapsError, OSError) as error:
            log.info("%s is not reached, though it would help: %s", call.contact, error)
            reason = str(error)
        except asyncio.CancelledError:
            if link is not None and not self._is_closing:
                link.close(CloseCode.GRACEFUL, NOT_NEEDED)
            raise
        self._calls.pop(call.contact, None)
        self._sessions.ended(call.contact, reason, time.monotonic())
        self._changed()


def _address(contact: str) -> Address:
    try:
        return Address.parse(contact)
    except InvalidText as error:
        raise LapsError(f"a contact that cannot be dialled: {error}") from None
