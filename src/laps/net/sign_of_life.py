"""Asks the other end of a connection for a sign of life: by QUIC, and at its machine.

A process that is gone answers nothing. Its machine does: to a datagram for a port that nobody has
open it replies with ICMP, and the kernel tells a socket that is connected to the address.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from laps.errors import ConnectionClosed
from laps.net.liveness import Life, Liveness

if TYPE_CHECKING:
    from laps.net.transport import Refusals


class Asked(Protocol):
    """As `Transport`, of which nothing else is needed."""

    @property
    def last_heard(self) -> float:
        """When the peer last sent a packet."""

    def ping(self) -> None:
        """Make the peer answer."""

    def probe(self) -> Refusals:
        """What asks the machine that the peer is on."""


class SignOfLife:
    """Looks at one connection, again and again."""

    __slots__ = ("_connection", "_life", "_probe", "_refusals")

    def __init__(
        self, connection: Asked, now: float, dead_after_s: float, *, dialled: bool
    ) -> None:
        """`dialled`: the peer listens where it is, if it is there at all."""
        self._connection = connection
        self._life = Liveness(now, dead_after_s, listens=dialled)
        self._probe: Refusals | None = None
        self._refusals = 0

    @property
    def life(self) -> Life:
        """What was thought at the last look."""
        return self._life.life

    @property
    def words(self) -> str:
        """Why it is thought to be dead."""
        if self._refusals:
            return "nobody listens there any more: its machine refuses what is sent"
        return f"no sign of life for {self._life.silent_s:.1f} s"

    def doubt(self) -> None:
        """As `Liveness.doubt`."""
        self._life.doubt()

    def look(self, now: float, srtt_s: float, *, needed: bool) -> Life:
        """What is thought of the other end now; it is asked where that is in doubt."""
        connection = self._connection
        if self._probe is not None:
            self._refusals += self._probe.refused()
        seen = self._life.look(
            now, connection.last_heard, srtt_s, needed=needed, refusals=self._refusals
        )
        if seen.ask:
            with suppress(ConnectionClosed):
                connection.ping()
            if self._probe is None:
                self._probe = connection.probe()
            self._probe.send()
        else:
            self.close()
        return seen.life

    def close(self) -> None:
        """Ask no more, for now."""
        if self._probe is not None:
            self._probe.close()
            self._probe = None
            if self.life is not Life.DEAD:
                self._refusals = 0
