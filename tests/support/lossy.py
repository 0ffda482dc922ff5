"""A path that loses, delays and reorders packets, between two real sockets."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laps.types import Address

Place = tuple[str, int]


class LossyPath:
    """Whoever dials its address reaches another one, over a bad path; the same way back."""

    def __init__(self, target: Address, seed: int, *, loss: float, late: float) -> None:
        """Of the packets a share is lost, and a share comes up to 5 ms late."""
        self._target = (target.host, target.port)
        self._rng = Random(seed)
        self._loss = loss
        self._late = late
        self._loop = asyncio.get_running_loop()
        self._backs: dict[Place, socket.socket] = {}
        "For each that dials, a socket that the target answers to."
        self.lost = 0
        self.reordered = 0
        self._front = self._open()
        self._loop.add_reader(self._front, self._forth)

    def __str__(self) -> str:
        host, port = self._front.getsockname()
        return f"{host}:{port}"

    def _open(self) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        made.bind(("127.0.0.1", 0))
        return made

    def close(self) -> None:
        for each in (self._front, *self._backs.values()):
            self._loop.remove_reader(each)
            each.close()

    def _forth(self) -> None:
        with suppress(BlockingIOError):
            while True:
                data, source = self._front.recvfrom(65536)
                if source not in self._backs:
                    back = self._backs[source] = self._open()
                    self._loop.add_reader(back, self._answer, back, source)
                self._send(self._backs[source], data, self._target)

    def _answer(self, back: socket.socket, source: Place) -> None:
        with suppress(BlockingIOError):
            while True:
                self._send(self._front, back.recv(65536), source)

    def _send(self, through: socket.socket, data: bytes, target: Place) -> None:
        if self._rng.random() < self._loss:
            self.lost += 1
        elif self._rng.random() < self._late:
            self.reordered += 1
            wait = self._rng.uniform(0.001, 0.005)
            self._loop.call_later(wait, self._send_now, through, data, target)
        else:
            self._send_now(through, data, target)

    def _send_now(self, through: socket.socket, data: bytes, target: Place) -> None:
        with suppress(OSError):  # full, or closed meanwhile: lost as well
            through.sendto(data, target)
