"""The traces of all relays at once, until there is reason to end."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import httpx

from laps.admin.client import LookError
from laps.inspect.relays import find_more
from laps.inspect.tracing import GRACE_S, Collector

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.inspect.names import Wanted
    from laps.inspect.relays import Relays, Where
    from laps.inspect.tracing import Traced

# How often it is seen whether relays have come, and whether anybody still publishes.
LOOK_S: Final = 1.0

# How often what is complete is shown.
TURN_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Until:
    """When to end."""

    seconds: float | None = None
    objects: int | None = None
    idle_s: float = 10.0


class Following:
    """One trace of one track at all relays."""

    def __init__(
        self,
        relays: Relays,
        where: Where,
        wanted: Wanted,
        show: Callable[[Traced], None],
        tell: Callable[[str], None],
    ) -> None:
        """`show` is called for each object, `tell` with words about what happens."""
        self.collector = Collector()
        self._relays = relays
        self._where = where
        self._wanted = wanted
        self._show = show
        self._tell = tell
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._last = time.monotonic()
        self._origins: list[str] = []
        self._published = False
        self._stopped = False

    def stop(self) -> None:
        """End it soon."""
        self._stopped = True

    async def run(self, until: Until) -> str:
        """Follow until something ends it; what that was."""
        await self._look()
        looking = asyncio.ensure_future(self._keep_looking())
        try:
            return await self._run(until)
        finally:
            tasks = [looking, *self._streams.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, until: Until) -> str:
        began = self._last = time.monotonic()
        while True:
            now = time.monotonic()
            for traced in self.collector.ripe(now):
                self._show(traced)
                if until.objects is not None and self.collector.objects >= until.objects:
                    count = until.objects
                    return "1 object was seen" if count == 1 else f"{count} objects were seen"
            if (why := self._over(until, began)) is not None:
                # What is on its way is waited for; what comes meanwhile is no longer wanted.
                await asyncio.sleep(GRACE_S)
                for traced in self.collector.ripe(now + GRACE_S):
                    self._show(traced)
                return why
            await asyncio.sleep(TURN_S)

    def _over(self, until: Until, began: float) -> str | None:
        now = time.monotonic()
        if until.seconds is not None and now - began >= until.seconds:
            return f"{until.seconds:g} s are over"
        quiet = now - self._last
        if self.collector.ended and quiet >= LOOK_S:
            return "the track has ended: its publisher says so"
        if quiet >= LOOK_S and self._published and not self._origins:
            return "the track has ended: nobody publishes it any more"
        if quiet >= until.idle_s:
            return f"nothing came for {until.idle_s:g} s (--idle)"
        if self._stopped:
            return "it was stopped"
        return None if self._relays.apis else "no relay answers any more"

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look()

    async def _look(self) -> None:
        """Begin at relays that have come, and see who publishes."""
        await find_more(self._relays, self._where)
        for node, task in list(self._streams.items()):
            if task.done():
                del self._streams[node]
        for node in self._relays.apis:
            if node not in self._streams:
                self._streams[node] = asyncio.ensure_future(self._follow(node))
        rows = await self._relays.ask(lambda api: api.find(f"tracks/{self._wanted.hash}"))
        self._origins = [node for node, row in rows.items() if row.get("origin")]
        self._published = self._published or bool(self._origins)
        sources: dict[str, list[str]] = {
            node: row.get("ingress") or [] for node, row in rows.items()
        }
        self.collector.above = {node: up[0] for node, up in sources.items() if len(up) == 1}

    async def _follow(self, node: str) -> None:
        """What one relay says, until it is gone."""
        api = self._relays.apis[node]
        with suppress(httpx.HTTPError):
            try:
                async for line in api.lines("trace", track=self._wanted.hash):
                    now = time.monotonic()
                    if "group" in line:
                        self._last = now
                    self.collector.take(node, line, now)
            except LookError as error:
                self._tell(f"{node} tells no more: {error}")
                self._relays.apis.pop(node, None)
                await api.close()
