"""Asking one relay, once a second, for as long as the dashboard runs.

A round asks for little: the node, its peers and what happened since. The tables that grow with the
network are asked for the more rarely the larger they are, so that looking costs little.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from laps.admin.client import AdminError, NotFound, Refused, TimedOut, Unreachable, Unreadable
from laps.admin.schema.clients import Clients, Closes
from laps.admin.schema.decisions import Demand, PolicyLines
from laps.admin.schema.network import Nodes, Peers
from laps.admin.schema.relay import Counters, Events, Node
from laps.admin.schema.tracks import Arrival, Tracks
from laps.dashboard.relays import Relay
from laps.errors import LapsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from laps.admin.client import AdminClient, PageT
    from laps.admin.schema.fields import Page

ROUND_S = 1.0

# A relay that was killed refuses at once; one that hangs is grey after this and the pause: 3 s.
ANSWER_S = 2.0

# Tables can be large, and a relay that is slow to write one is not dead.
TABLE_ANSWER_S = 10.0

# Other nodes come and go rarely, and most are asked themselves.
NODES_EACH_S = 3.0

# What is read of one table: ten times what the dashboard is measured with.
TABLE_LIMIT = 100_000

# Up to this many rows a table is asked for in each round; beyond that, in proportion more rarely.
CHEAP_ROWS = 2_000

# The tables that a reader of the page may ask for.
SHOWN: dict[str, type[Page]] = {
    "node": Node,
    "peers": Peers,
    "nodes": Nodes,
    "tracks": Tracks,
    "clients": Clients,
    "demand": Demand,
    "policy": PolicyLines,
    "counters": Counters,
    "closes": Closes,
}


class Unanswered(LapsError):  # noqa: N818 - a name says what happened
    """What is wrong with a relay, in words for the page."""


class Watch:
    """What asks one relay; `relay` is what came of it."""

    def __init__(self, api: AdminClient) -> None:
        self.relay = Relay(api.url, time.time())
        self._api = api
        self._next_nodes = 0.0
        self._next_tracks = 0.0

    async def run(self) -> None:
        """Ask until cancelled; nothing that a relay says or leaves out ends it.

        Tables are asked for beside it: one that takes long must not hide that the relay died.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._again(self.ask_alive))
            tasks.create_task(self._again(self.ask_tables))

    async def _again(self, ask: Callable[[], Awaitable[float]]) -> None:
        while True:
            began = time.monotonic()
            try:
                pause_s = await ask()
            except Exception as error:  # a mistake of ours must not leave a picture that is old
                pause_s = ROUND_S
                self.relay.failed(f"is not understood here: {error!r}", time.time())
            await asyncio.sleep(max(0.1, pause_s - (time.monotonic() - began)))

    async def ask_alive(self) -> float:
        """Ask whether it lives, and for its links. How long to wait until the next time."""
        asked_at = time.monotonic()
        try:
            node = await self._ask(Node, ANSWER_S)
            peers = await self._ask(Peers, ANSWER_S, limit=0)
        except Unanswered as problem:
            self.relay.failed(str(problem), time.time())
            self._next_nodes = self._next_tracks = 0.0
        else:
            self.relay.answered(node, peers.peers, time.time(), time.monotonic(), asked_at)
        return ROUND_S

    async def ask_tables(self) -> float:
        """Ask for those that are due, if it lives. How long to wait until the next time."""
        if not self.relay.answers:
            return 0.1  # that it lives again is soon seen
        try:
            await self._ask_tables()
        except Unanswered as problem:
            self.relay.trouble = str(problem)  # it lives, and what else it says is shown
        else:
            self.relay.trouble = ""
        return ROUND_S

    async def _ask_tables(self) -> None:
        relay, now = self.relay, time.monotonic()
        after = {"after": relay.last_event} if relay.last_event >= 0 else {}
        relay.hold_events((await self._ask(Events, ANSWER_S, **after)).events)
        if now >= self._next_tracks:
            asked_at = time.monotonic()
            tracks = await self._ask(Tracks, TABLE_ANSWER_S, limit=TABLE_LIMIT)
            relay.hold_tracks(tracks, time.monotonic(), asked_at)
            rows = len(relay.tracks)
            self._next_tracks = now + rows / CHEAP_ROWS if rows > CHEAP_ROWS else 0.0
        if now >= self._next_nodes:
            relay.nodes = (await self._ask(Nodes, TABLE_ANSWER_S, limit=TABLE_LIMIT)).nodes
            self._next_nodes = now + max(NODES_EACH_S, len(relay.nodes) / CHEAP_ROWS)

    async def show(self, view: str, params: Mapping[str, str]) -> dict[str, Any]:
        """One of its tables as it is now. `Unanswered` if it is not to be had."""
        if view not in SHOWN:
            raise Unanswered(f"there is no table {view!r}: there are {', '.join(sorted(SHOWN))}")
        try:
            return await self._api.get_plain(SHOWN[view], ANSWER_S, **params)
        except AdminError as error:
            raise Unanswered(self._problem(error)) from None

    async def trace(self, track: str) -> AsyncIterator[Arrival]:
        """The objects of a track as they come, until the relay shows no more of them."""
        with contextlib.suppress(AdminError):
            async for line in self._api.trace(track, TABLE_ANSWER_S):
                if isinstance(line, Arrival):
                    yield line

    async def _ask(self, page: type[PageT], timeout_s: float, **query: int) -> PageT:
        try:
            return await self._api.get(page, timeout_s=timeout_s, **query)
        except AdminError as error:
            raise Unanswered(self._problem(error)) from None

    def _problem(self, error: AdminError) -> str:
        """What is wrong with the relay, as the page says it after its name."""
        match error:
            case TimedOut(seconds=seconds):
                return f"has not answered within {seconds:g} s"
            case Unreachable():
                return "cannot be reached: nobody listens there"
            case Unreadable(path=path, why=why):
                return f"does not answer like a relay to {path}: {why}"
            case Refused(status=401 | 403) if self._api.has_token:
                return "does not take the token that was given with --token or LAPS_ADMIN_TOKEN"
            case Refused(status=401 | 403):
                return "wants a token: give it with --token or LAPS_ADMIN_TOKEN"
            case Refused(status=status, path=path) | NotFound(status=status, path=path):
                why = error.why or "is it the address of an admin API?"
                return f"answers {status} to {path}: {why[:200]}"
        return f"cannot be asked: {error.why}"
