"""When a relay is taken for dead, and which one is dialled next."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from laps.client import relay_watch
from laps.client.lasting import dial_first
from laps.client.relay_watch import ALONE_DEAD_AFTER_S, DEAD_AFTER_S, QUIET_S, RelayWatch
from laps.client.urls import parse_url
from laps.errors import HandshakeFailed
from laps.net.engine import Stats
from laps.net.liveness import LOOK_S
from support.sessions import on_loop
from support.transports import NoRefusals

if TYPE_CHECKING:
    from laps.client.urls import Target


class FakeChannel:
    """A channel and its transport at once, to a relay that answers as long as it is told to."""

    def __init__(self) -> None:
        self.transport = self
        self.alive = self.established = self.idle = True
        self.answers = True
        self.last_heard = 0.0
        self.carried = 0
        self.asked: list[float] = []
        self.given_up = ""
        self.now = 0.0

    def stats(self) -> Stats:
        return Stats(20_000, 20_000, 0, 0, 0, 0, 0, 0, 0)

    def probe(self) -> NoRefusals:
        return NoRefusals()

    def ping(self) -> None:
        self.asked.append(self.now)
        if self.answers:
            self.last_heard = self.now

    def give_up(self, reason: str) -> None:
        self.given_up = reason
        self.alive = False


class Watched:
    """A watch under a clock of its own."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, needed: bool = True, alone: bool = False
    ) -> None:
        self.channel = FakeChannel()
        monkeypatch.setattr(relay_watch, "monotonic", lambda: self.channel.now)
        self.watch = RelayWatch(self.channel, lambda: needed, alone=alone)  # type: ignore[arg-type]

    def run(self, seconds: float, *, flowing: bool = False) -> None:
        end = self.channel.now + seconds
        while self.channel.now < end and self.channel.alive:
            self.channel.now += LOOK_S
            self.channel.carried += flowing
            self.watch._look()
            self.watch.close()


@on_loop
async def test_watch_gives_up_a_relay_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    watched.channel.answers = False
    watched.run(10.0)
    assert "no sign of life" in watched.channel.given_up
    assert watched.channel.now == pytest.approx(DEAD_AFTER_S, abs=2 * LOOK_S)


@on_loop
async def test_watch_is_more_patient_where_there_is_no_other_relay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, alone=True)
    watched.channel.answers = False
    watched.run(3.0)
    assert not watched.channel.given_up
    watched.channel.answers = True
    watched.run(60.0)
    assert not watched.channel.given_up
    watched.channel.answers = False
    watched.run(QUIET_S + ALONE_DEAD_AFTER_S)
    assert watched.channel.given_up


@on_loop
async def test_watch_asks_a_quiet_relay_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    watched.run(60.0, flowing=True)
    keen = len(watched.channel.asked)
    watched.run(QUIET_S)
    watched.channel.asked.clear()
    watched.run(60.0)
    assert keen > 100
    assert 10 <= len(watched.channel.asked) <= 13
    watched.channel.answers = False
    last = watched.channel.now
    watched.run(60.0)
    assert watched.channel.given_up
    assert watched.channel.now - last <= QUIET_S + DEAD_AFTER_S + 2 * LOOK_S


@on_loop
async def test_watch_leaves_a_session_alone_that_nobody_uses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, needed=False)
    watched.channel.answers = False
    watched.run(60.0, flowing=True)
    assert not watched.channel.asked
    assert not watched.channel.given_up
    watched.channel.idle = False  # a fetch
    watched.run(10.0)
    assert watched.channel.given_up


class FakeDialler:
    """Relays by host: when each answers, and whether it does."""

    def __init__(self, **after_s: float | None) -> None:
        self.after_s = after_s
        self.dialled: list[str] = []
        self.given_up: list[str] = []

    async def dial(self, target: Target) -> Any:
        self.dialled.append(target.host)
        after_s = self.after_s[target.host]
        if after_s is None:
            raise HandshakeFailed(f"{target.host} refuses")
        try:
            await asyncio.sleep(after_s)
        except asyncio.CancelledError:
            self.given_up.append(target.host)
            raise
        return target.host


first: Any = dial_first
"It is not told what a dialler dials: here it is names."


def targets(*hosts: str) -> list[Target]:
    return [parse_url(f"moqt://{host}") for host in hosts]


@on_loop
async def test_dial_does_not_wait_long_for_a_relay_that_is_silent() -> None:
    dialler = FakeDialler(a=60.0, b=None, c=0.0, d=0.0)
    target, _ = await first(dialler, targets("a", "b", "c", "d"), 0.001)
    await asyncio.sleep(0)
    assert target.host == "c"
    assert dialler.dialled == ["a", "b", "c"]
    assert dialler.given_up == ["a"]


@on_loop
async def test_dial_keeps_the_order_where_there_is_time() -> None:
    dialler = FakeDialler(a=None, b=0.005, c=0.0)
    target, _ = await first(dialler, targets("a", "b", "c"))
    assert target.host == "b"
    assert dialler.dialled == ["a", "b"]


@on_loop
async def test_dial_names_all_relays_that_failed() -> None:
    with pytest.raises(HandshakeFailed, match=r"none of the relays answers: a refuses; b refuses"):
        await first(FakeDialler(a=None, b=None), targets("a", "b"), 0.001)
