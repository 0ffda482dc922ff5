"""A silent peer is asked by QUIC, and its machine tells whether anybody has the port open."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from laps.net.liveness import ASK_S, LOOK_S, REFUSALS, Life
from laps.net.sign_of_life import SignOfLife
from laps.net.udp import Probe

if TYPE_CHECKING:
    from collections.abc import Iterator


class Peer:
    """A connection to a process that does not answer, and whose port is open until it is closed."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.remote = self.socket.getsockname()
        self.last_heard = 100.0
        self.pings = 0

    def ping(self) -> None:
        self.pings += 1

    def probe(self) -> Probe:
        return Probe(self.remote)


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.socket.close()


def looks(sign: SignOfLife, number: int, start: float = 100.0) -> list[Life]:
    return [sign.look(start + (it + 1) * LOOK_S, 0.0, needed=True) for it in range(number)]


SILENT = round(ASK_S / LOOK_S)


def test_a_process_that_is_gone_is_dead_after_some_refusals(peer: Peer) -> None:
    sign = SignOfLife(peer, 100.0, 60.0, dialled=True)
    peer.socket.close()
    seen = looks(sign, SILENT + REFUSALS)
    assert seen == [Life.ALIVE] * SILENT + [Life.SUSPECT] * (REFUSALS - 1) + [Life.DEAD]
    assert "refuses" in sign.words
    assert peer.pings == REFUSALS


def test_a_process_that_stands_still_has_all_its_time(peer: Peer) -> None:
    sign = SignOfLife(peer, 100.0, 60.0, dialled=True)
    assert looks(sign, 100)[-1] is Life.SUSPECT
    assert "no sign of life for 10.0 s" in sign.words
    sign.close()


def test_refusals_before_something_was_heard_do_not_count(peer: Peer) -> None:
    sign = SignOfLife(peer, 100.0, 60.0, dialled=True)
    remote, peer.remote = peer.remote, ("127.0.0.1", 9)
    assert looks(sign, SILENT + REFUSALS - 1)[-1] is Life.SUSPECT
    peer.remote = remote
    now = 100.0 + (SILENT + REFUSALS) * LOOK_S
    peer.last_heard = now
    assert sign.look(now, 0.0, needed=True) is Life.ALIVE
    assert looks(sign, SILENT + 2, now)[-1] is Life.ALIVE
    sign.close()
