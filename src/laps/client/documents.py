"""Signed documents on their way: published under their track, for whoever follows them."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from laps.client import connect
from laps.client.sealed import NAMESPACE
from laps.errors import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.client.tokens import TokenLike

LINGER_S: Final = 5.0
"""How long a document is published at least: who waits for a track asks again every second or two,
and who has just heard the end of another publication comes back a second later."""

LOOK_S: Final = 0.1
"How often it is looked whether it is to be published any longer."


async def publish(
    sealed: bytes,
    track_name: str,
    sequence: int,
    url: str,
    *,
    fingerprint: str | None = None,
    insecure: bool = False,
    token: TokenLike | None = None,
    stop: asyncio.Event | None = None,
    published: Callable[[], None] = lambda: None,
) -> None:
    """Publish a signed document, as a group of one object, until `stop` is set.

    Without `stop` it stays for as long as those need to hear of it who follow it now. Relays that
    come meanwhile get it too. `published` is called when the relay has it.

    Where relays have keys, `token` has to allow to publish below `laps`.
    """
    async with connect(url, fingerprint=fingerprint, insecure=insecure, token=token) as session:
        track = await session.publish(NAMESPACE, track_name, first_group=sequence)
        await track.write(sealed, new_group=True)
        track.end_group()
        with suppress(RequestRefused):  # its answer comes after the one to PUBLISH
            await session.track_status(NAMESPACE, track_name)
        if not track.failed:
            published()
        began = monotonic()
        while not track.failed:
            if stop.is_set() if stop is not None else monotonic() > began + LINGER_S:
                break
            await asyncio.sleep(LOOK_S)
        await track.end()


def until_ctrl_c() -> asyncio.Event:
    """An event that is set when the process is told to stop."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop
