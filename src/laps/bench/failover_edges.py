"""`laps bench failover --relay edge`: the Edges of clients are killed, in turns.

    publisher -> Edge 1:1 or 1:2 -> Via -> Edge 2:1 or 2:2 -> subscribers, MoQT and QUICR

Every client knows both Edges of its side. The one in use by the subscribers is killed, then the one
in use by the publisher. Detection is the time until those clients are at the other one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.bench.failover import NEAR_MS, Bench, KilledRelay
from laps.errors import LapsError

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from laps import client


class EdgeBench(Bench):
    """Two Edges on each side of a Via."""

    def __init__(self, folder: Path, delay_ms: float, stack: ExitStack) -> None:
        super().__init__(folder, stack)
        via = self.relay("1:100", NEAR_MS)
        self._near = [self.relay(f"1:{low}", NEAR_MS, via) for low in (1, 2)]
        self._far = [self.relay(f"2:{low}", delay_ms, via) for low in (1, 2)]

    def publisher_urls(self) -> list[str]:
        return [f"moqt://{relay.clients}" for relay in self._near]

    def reader_urls(self, protocol: str) -> list[str]:
        return [f"{protocol}://{relay.clients}" for relay in self._far]

    async def ready(self) -> None:
        await self.until(self._know_each_other, "every Edge knows those of the other side")

    def _know_each_other(self) -> bool:
        pairs = [(near, far) for near in self._near for far in self._far]
        return all(
            one.ask(f"nodes/{other.name}").get("best") is not None
            for near, far in pairs
            for one, other in ((near, far), (far, near))
        )

    async def choose(self, number: int) -> tuple[str, KilledRelay]:
        if number % 2:
            return "the publisher's Edge is killed", _relay_of(self.publisher, self._near)
        session = self.readers[0].session
        return "the subscribers' Edge is killed", _relay_of(session, self._far)

    async def detected(self, killed: KilledRelay) -> float:
        sessions = [self.publisher, *(reader.session for reader in self.readers)]
        return await self.until(
            lambda: not any(_is_at(session, killed) for session in sessions),
            "clients are at another relay",
            every_s=0.005,
            asks=False,
        )


def _is_at(session: client.Session | None, relay: KilledRelay) -> bool:
    return session is not None and session.relay_url.endswith(relay.clients)


def _relay_of(session: client.Session | None, relays: list[KilledRelay]) -> KilledRelay:
    for relay in relays:
        if _is_at(session, relay):
            return relay
    raise LapsError("a client is at none of its relays")
