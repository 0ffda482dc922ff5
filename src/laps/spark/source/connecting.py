"""Sessions with relays out of a list: the first that answers, and the next when that is lost."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Final

from laps.client import QuicConfig, connect
from laps.errors import HandshakeFailed, LapsError, Unauthorized

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from laps.client import Session
    from laps.spark.source.options import Trust

log = logging.getLogger(__name__)

HEAD_START_S: Final = 1.0
"The next relay is dialled when one has not answered within this time, or has failed before."

LIVELY: Final = QuicConfig(idle_timeout_s=6.0, keepalive_s=2.0)
"A relay that dies without a word is left for the next one after six seconds, not thirty."


async def connect_first(
    relays: Sequence[str],
    trust: Trust,
    *,
    head_start_s: float = HEAD_START_S,
    reconnect_s: float = 0.0,
) -> Session:
    """A session with the first relay to answer; HandshakeFailed names each and why it did not.

    Unauthorized where all of them refuse the token: asking again would not help.

    Without `reconnect_s` a session that is lost stays so: who has several relays dials another.
    """
    dials: dict[str, asyncio.Task[Session]] = {}
    taken: Session | None = None
    try:
        for url in relays:
            dials[url] = asyncio.create_task(_dial(url, trust, reconnect_s))
            taken = await _first(dials.values(), head_start_s)
            if taken is not None:
                return taken
        taken = await _first(dials.values(), None)
        if taken is not None:
            return taken
    finally:
        for dial in dials.values():
            dial.cancel()
            dial.add_done_callback(lambda dial: _discard(dial, taken))
    problems = [dial.exception() for dial in dials.values()]
    refusals = [problem for problem in problems if isinstance(problem, Unauthorized)]
    if len(refusals) == len(problems):
        raise refusals[0]
    reasons = "; ".join(f"{url}: {dial.exception()}" for url, dial in dials.items())
    raise HandshakeFailed(f"no relay answers: {reasons}")


async def _dial(url: str, trust: Trust, reconnect_s: float) -> Session:
    return await connect(
        url,
        insecure=trust.insecure,
        fingerprint=trust.fingerprint,
        token=trust.shown(),
        reconnect=reconnect_s > 0,
        reconnect_s=reconnect_s,
        quic=LIVELY,
    )


async def _first(
    dials: Collection[asyncio.Task[Session]], timeout_s: float | None
) -> Session | None:
    """The first of them that is made; None when all have failed, or nothing came of it in time."""
    while True:
        for dial in dials:
            if dial.done() and _problem(dial) is None:
                return dial.result()
        waiting = [dial for dial in dials if not dial.done()]
        if not waiting:
            return None
        done, _ = await asyncio.wait(
            waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        if not done:
            return None


def _problem(dial: asyncio.Task[Session]) -> LapsError | None:
    problem = dial.exception()
    if problem is not None and not isinstance(problem, LapsError):
        raise problem
    return problem


def _discard(dial: asyncio.Task[Session], taken: Session | None) -> None:
    """A session that was made while another was taken is closed again."""
    if not dial.cancelled() and dial.exception() is None and dial.result() is not taken:
        closing = asyncio.ensure_future(dial.result().close())
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)


_closing: set[asyncio.Future[None]] = set()
"Sessions that are being closed: the loop alone would forget them."


class Connection:
    """The session of a process with one of some relays, dialled anew when it is lost."""

    def __init__(self, relays: Sequence[str], trust: Trust) -> None:
        self._relays = list(relays)
        self._trust = trust
        self._session: Session | None = None
        self._dialling = asyncio.Lock()

    async def session(self) -> Session:
        """The session there is, or the next; HandshakeFailed if no relay answers."""
        async with self._dialling:
            lost = self._session
            if lost is not None and lost.connected:
                return lost
            relays = self._relays
            if lost is not None:
                log.warning("the session with %s is lost; dialling again", lost.url)
                self._session = None
                await lost.close(end_tracks=False)
                # It is the last to be asked again: it may be dead without refusing.
                at = relays.index(lost.url) + 1
                relays = relays[at:] + relays[:at]
            self._session = await connect_first(relays, self._trust)
            return self._session

    async def close(self) -> None:
        """End the session, if there is one."""
        async with self._dialling:
            session, self._session = self._session, None
            if session is not None:
                await session.close(end_tracks=False)


_kept: dict[tuple[tuple[str, ...], Trust], Connection] = {}
"The connections of this process; one for all that read from the same relays."


def kept_connection(relays: tuple[str, ...], trust: Trust) -> Connection:
    """The connection of this process to some relays: Spark uses its processes again and again."""
    return _kept.setdefault((relays, trust), Connection(relays, trust))


# A child of this process has no thread that would serve them.
os.register_at_fork(after_in_child=_kept.clear)
