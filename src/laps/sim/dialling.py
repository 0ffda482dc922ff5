"""Keeps a peering up: dials, and dials again when the connection ends, as `net` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from laps.sim.links import Cable, Host, LinkEnd
    from laps.types import PeerMode

# As net redials: soon at first, never too rarely, and half of each wait is random.
REDIAL_FIRST_S: Final = 0.5
REDIAL_MOST_S: Final = 5.0

# As QUIC begins: it sends again after a second, two, four, and gives up after ten.
HANDSHAKE_FIRST_S: Final = 1.0
HANDSHAKE_TIMEOUT_S: Final = 10.0


class Dialler:
    """One configured peer of one node."""

    def __init__(self, cable: Cable, side: int, hosts: tuple[Host, Host], mode: PeerMode) -> None:
        self.cable = cable
        self.link: LinkEnd | None = None
        self._side = side
        self._hosts = hosts
        self._mode = mode
        self._run = 0
        self._wait_s = REDIAL_FIRST_S

    @property
    def contact(self) -> str:
        """Who is dialled, as its own advertisement names it."""
        return self._hosts[1 - self._side].contact

    @property
    def is_due(self) -> bool:
        """Whether there ought to be a connection, and is none."""
        up = all(host.is_up for host in self._hosts)
        return up and self.link is None and not self._is_deaf

    @property
    def _is_deaf(self) -> bool:
        """Whether nothing that is sent is answered, not even that nobody is there."""
        return self.cable.is_cut or any(host.is_frozen for host in self._hosts)

    def start(self) -> None:
        """The node is up: dial."""
        self._wait_s = REDIAL_FIRST_S
        self._run += 1
        self._dial(self._run)

    def stop(self) -> None:
        """The node is down: dial no more."""
        self._run += 1
        self.link = None

    def _dial(self, run: int) -> None:
        if run == self._run:
            clock = self.cable.clock
            self._try(run, HANDSHAKE_FIRST_S, clock.now + HANDSHAKE_TIMEOUT_S)

    def _try(self, run: int, wait_s: float, give_up_at: float) -> None:
        clock = self.cable.clock
        if run != self._run:
            return
        if clock.now >= give_up_at:
            self._redial(run)
        elif self._is_deaf:
            again_s = min(wait_s, give_up_at - clock.now)
            clock.after(again_s, self._try, run, 2 * wait_s, give_up_at)
        else:
            rtt_s = sum(lane.flight_s() for lane in self.cable.lanes)
            clock.after(rtt_s, self._shake_hands, run, wait_s, give_up_at)

    def _shake_hands(self, run: int, wait_s: float, give_up_at: float) -> None:
        if run != self._run:
            return
        if self._is_deaf:
            self._try(run, wait_s, give_up_at)
        elif not self._hosts[1 - self._side].is_up:
            self._redial(run)
        else:
            self._wait_s = REDIAL_FIRST_S
            link = self.link = self.cable.connect(self._side, self._hosts, self._mode)
            link.on_close = lambda: self._redial(run)

    def _redial(self, run: int) -> None:
        if run != self._run:
            return
        self.link = None
        clock = self.cable.clock
        clock.after(self._wait_s * (0.5 + clock.rng.random() / 2), self._dial, run)
        self._wait_s = min(2 * self._wait_s, REDIAL_MOST_S)
