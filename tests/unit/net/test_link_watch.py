"""Each link is looked at in turn, and the relay told which are silent, and which answer."""

from __future__ import annotations

from typing import Any

from laps.net.link_watch import LinkWatch
from laps.net.liveness import LOOK_S
from support.loopback import on_loop


class Silent:
    """A connection, and what asks its machine: nobody answers until a test has it heard."""

    established = True

    def __init__(self) -> None:
        self.last_heard = 100.0
        self.pings = 0

    def ping(self) -> None:
        self.pings += 1

    def probe(self) -> Silent:
        return self

    def refused(self) -> int:
        return 0

    def send(self) -> None:
        pass

    def close(self) -> None:
        pass


class Link:
    """As `QuicLink`, as far as it is looked at."""

    id = 1
    dialled = True

    def __init__(self, srtt_us: int) -> None:
        self.connection = Silent()
        self.srtt_us = srtt_us
        self.closed = ""

    def close(self, code: int, reason: str) -> None:
        self.closed = reason


class Watched:
    """A link that is looked at as time goes by."""

    def __init__(self, srtt_us: int = 1000, *, needed: bool = True) -> None:
        self.now = 100.0
        self.link: Any = Link(srtt_us)
        self.doubted: dict[Any, float] = {}
        self.told: list[tuple[bool, str]] = []
        self._watch = LinkWatch({}, lambda _: needed, self.doubted.keys(), self._tell, 1.0)

    def _tell(self, link: Any, suspect: bool) -> None:
        self.told.append((suspect, link.closed))

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / LOOK_S)):
            self.look(LOOK_S)

    def look(self, after_s: float) -> None:
        before, self.now = self.now, self.now + after_s
        self._watch._looked_at = self.now
        self._watch._look_at(self.link, before)

    def close(self) -> None:
        self._watch.close()


@on_loop
async def test_a_silent_link_is_suspect_and_then_closed() -> None:
    watched = Watched()
    watched.wait(0.7)
    assert watched.told == [(True, "")]
    watched.wait(0.5)
    assert watched.told == [(True, "")]
    assert watched.link.closed.startswith("no sign of life")
    watched.close()


@on_loop
async def test_a_link_that_was_opened_right_before_the_process_stood_still_is_asked() -> None:
    watched = Watched(needed=False)
    watched.look(1.5)
    watched.wait(0.2)
    assert watched.link.connection.pings >= 1
    watched.close()


@on_loop
async def test_a_link_of_a_long_way_is_told_of_before_it_is_closed() -> None:
    """It has its round trips to answer, and is dead as soon as it is suspect."""
    watched = Watched(srtt_us=400_000)
    watched.wait(2.0)
    assert watched.told == [(True, "")]
    assert watched.link.closed
    watched.close()


@on_loop
async def test_a_link_that_the_relay_doubts_is_asked_and_told_of_once_it_answers() -> None:
    watched = Watched(needed=False)
    watched.wait(5.0)
    assert watched.link.connection.pings == 0
    watched.doubted[watched.link.id] = watched.now
    watched.wait(LOOK_S)
    assert watched.link.connection.pings == 1
    assert watched.told == []  # it knows
    watched.link.connection.last_heard = watched.now
    watched.wait(LOOK_S)
    assert watched.told == [(False, "")]
    watched.close()


@on_loop
async def test_a_link_that_the_relay_doubts_is_closed_if_it_does_not_answer() -> None:
    watched = Watched(needed=False)
    watched.wait(5.0)
    watched.doubted[watched.link.id] = watched.now
    watched.wait(1.1)
    assert watched.told == []
    assert watched.link.closed
    watched.close()
