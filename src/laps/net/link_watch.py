"""Looks at every link to a peer, again and again, and tells the relay of those that are silent."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from laps.errors import CloseCode
from laps.net.liveness import LOOK_S, Life
from laps.net.sign_of_life import SignOfLife

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from laps.infobase.nodes import SessionId
    from laps.net.link import QuicLink


class LinkWatch:
    """The links of a relay, and what is thought of each."""

    def __init__(
        self,
        links: Mapping[SessionId, QuicLink],
        needed: Callable[[SessionId], bool],
        doubted: Collection[SessionId],
        suspect: Callable[[QuicLink, bool], None],
        dead_after_s: float,
    ) -> None:
        """`needed` says whether anything depends on a link; `suspect` is told what is thought.

        Those that are `doubted` are suspect already, until they are heard.
        """
        self._links = links
        self._needed = needed
        self._doubted = doubted
        self._suspect = suspect
        self._dead_after_s = dead_after_s
        self._signs: dict[QuicLink, SignOfLife] = {}
        self._loop = asyncio.get_running_loop()
        self._looked_at = time.monotonic()
        self._next = self._loop.call_later(LOOK_S, self._look)

    def close(self) -> None:
        """Look no more."""
        self._next.cancel()
        self._forget(list(self._signs))

    def configure(self, dead_after_s: float) -> None:
        """Another patience from now on; for links that are there already, too."""
        if dead_after_s != self._dead_after_s:
            self._dead_after_s = dead_after_s
            self._forget(list(self._signs))

    def _forget(self, links: Iterable[QuicLink]) -> None:
        for link in links:
            self._signs.pop(link).close()

    def _look(self) -> None:
        self._next = self._loop.call_later(LOOK_S, self._look)
        before, self._looked_at = self._looked_at, time.monotonic()
        links = list(self._links.values())
        if len(self._signs) > len(links):
            self._forget(self._signs.keys() - set(links))
        for link in links:
            if link.connection.established:
                self._look_at(link, before)

    def _look_at(self, link: QuicLink, looked_at: float) -> None:
        now = self._looked_at
        connection, sign = link.connection, self._signs.get(link)
        if sign is None:
            # As of the look before: we may have stood still since this link was opened.
            sign = SignOfLife(connection, looked_at, self._dead_after_s, dialled=link.dialled)
            self._signs[link] = sign
        if link.id in self._doubted:
            sign.doubt()
        before = sign.life
        # Its round trip counts only where it is silent, which is rare, and takes a while to ask.
        silent = connection.last_heard <= now - LOOK_S
        srtt_s = link.srtt_us / 1e6 if silent else 0.0
        needed = silent and self._needed(link.id)
        life = sign.look(now, srtt_s, needed=needed)
        if life is not before and Life.ALIVE in (life, before):
            # By a long way it is dead as soon as it is suspect: other peers are told all the same.
            self._suspect(link, life is not Life.ALIVE)
        if life is Life.DEAD:
            link.close(CloseCode.GRACEFUL, sign.words)
