"""Looks at every link to a peer, again and again, and tells the relay of those that are silent."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from laps.errors import CloseCode, ConnectionClosed
from laps.net.liveness import LOOK_S, Life, Liveness

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laps.infobase.nodes import SessionId
    from laps.net.link import QuicLink


class LinkWatch:
    """The links of a relay, and what is thought of each."""

    def __init__(
        self,
        links: Mapping[SessionId, QuicLink],
        needed: Callable[[SessionId], bool],
        suspect: Callable[[QuicLink, bool], None],
        dead_after_s: float,
    ) -> None:
        """`needed` says whether anything depends on a link; `suspect` is told what is thought."""
        self._links = links
        self._needed = needed
        self._suspect = suspect
        self._dead_after_s = dead_after_s
        self._lives: dict[QuicLink, Liveness] = {}
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(LOOK_S, self._look)

    def close(self) -> None:
        """Look no more."""
        self._next.cancel()

    def configure(self, dead_after_s: float) -> None:
        """Another patience from now on; for links that are there already, too."""
        if dead_after_s != self._dead_after_s:
            self._dead_after_s = dead_after_s
            self._lives.clear()

    def _look(self) -> None:
        self._next = self._loop.call_later(LOOK_S, self._look)
        now = time.monotonic()
        links = list(self._links.values())
        if len(self._lives) > len(links):
            current = set(links)
            self._lives = {link: life for link, life in self._lives.items() if link in current}
        for link in links:
            if link.connection.established:
                self._look_at(link, now)

    def _look_at(self, link: QuicLink, now: float) -> None:
        life = self._lives.get(link)
        if life is None:
            life = self._lives[link] = Liveness(now, self._dead_after_s)
        connection, before = link.connection, life.life
        # Its round trip counts only where it is silent, which is rare, and takes a while to ask.
        silent = connection.last_heard <= now - LOOK_S
        srtt_s = link.srtt_us / 1e6 if silent else 0.0
        needed = silent and self._needed(link.id)
        seen = life.look(now, connection.last_heard, srtt_s, needed=needed)
        if seen.ask:
            try:
                connection.ping()
            except ConnectionClosed:
                return
        if seen.life is Life.DEAD:
            reason = f"no sign of life for {life.silent_s:.1f} s"
            link.close(CloseCode.GRACEFUL, reason)
        elif seen.life is not before:
            self._suspect(link, seen.life is Life.SUSPECT)
