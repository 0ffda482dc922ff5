"""Asking one relay, once a second, for as long as the dashboard runs.

A round asks for little: the node, its peers and what happened since. The tables that grow with the
network are asked for the more rarely the larger they are, so that looking costs little.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import msgspec

from laps.dashboard.relays import Relay
from laps.dashboard.views import Arrival, Events, Nodes, NodeView, Peers, Tracks
from laps.errors import LapsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

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
SHOWN = frozenset({"node", "peers", "nodes", "tracks", "clients", "counters", "closes"})

AnswerT = TypeVar("AnswerT")


class Unanswered(LapsError):  # noqa: N818 - a name says what happened
    """What is wrong with a relay, in words for the page."""


class Watch:
    """What asks one relay; `relay` is what came of it."""

    def __init__(self, url: str, token: str, client: httpx.AsyncClient) -> None:
        self.relay = Relay(url, time.time())
        self._client = client
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
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
        try:
            node = await self._ask("/v1/node", NodeView, ANSWER_S)
            peers = await self._ask("/v1/peers?limit=0", Peers, ANSWER_S)
        except Unanswered as problem:
            self.relay.failed(str(problem), time.time())
            self._next_nodes = self._next_tracks = 0.0
        else:
            self.relay.answered(node, peers.peers, time.time(), time.monotonic())
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
        after = relay.last_event
        query = f"?after={after}" if after >= 0 else ""
        relay.hold_events((await self._ask(f"/v1/events{query}", Events, ANSWER_S)).events)
        if now >= self._next_tracks:
            path = f"/v1/tracks?limit={TABLE_LIMIT}"
            relay.hold_tracks(await self._ask(path, Tracks, TABLE_ANSWER_S), time.monotonic())
            rows = len(relay.tracks)
            self._next_tracks = now + rows / CHEAP_ROWS if rows > CHEAP_ROWS else 0.0
        if now >= self._next_nodes:
            path = f"/v1/nodes?limit={TABLE_LIMIT}"
            relay.nodes = (await self._ask(path, Nodes, TABLE_ANSWER_S)).nodes
            self._next_nodes = now + max(NODES_EACH_S, len(relay.nodes) / CHEAP_ROWS)

    async def show(self, view: str, params: Mapping[str, str]) -> dict[str, Any]:
        """One of its tables as it is now. `Unanswered` if it is not to be had."""
        if view not in SHOWN:
            raise Unanswered(f"there is no table {view!r}: there are {', '.join(sorted(SHOWN))}")
        return await self._ask(f"/v1/{view}?{httpx.QueryParams(params)}", dict[str, Any], ANSWER_S)

    async def trace(self, track: str) -> AsyncIterator[Arrival]:
        """The objects of a track as they come, until the relay does not tell of them."""
        url = f"{self.relay.url}/v1/trace?{httpx.QueryParams(track=track)}"
        patience = httpx.Timeout(TABLE_ANSWER_S, pool=None)  # an empty line comes each few seconds
        try:
            async with self._client.stream(
                "GET", url, headers=self._headers, timeout=patience
            ) as answer:
                if answer.status_code != 200:
                    return
                async for line in answer.aiter_lines():
                    with contextlib.suppress(msgspec.MsgspecError):
                        yield msgspec.json.decode(line, type=Arrival)
        except (httpx.HTTPError, httpx.InvalidURL):
            return

    async def _ask(self, path: str, kind: type[AnswerT], timeout_s: float) -> AnswerT:
        url = self.relay.url + path
        try:
            async with asyncio.timeout(timeout_s):  # wait_for of 3.11 can lose a cancellation
                answer = await self._client.get(url, headers=self._headers)
        except (TimeoutError, httpx.TimeoutException):
            raise Unanswered(f"has not answered within {timeout_s:g} s") from None
        except httpx.ConnectError:
            raise Unanswered("cannot be reached: nobody listens there") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unanswered(f"cannot be asked: {error or type(error).__name__}") from None
        if answer.status_code in (401, 403):
            raise Unanswered(self._refusal())
        view = path.partition("?")[0]
        if answer.status_code != 200:
            raise Unanswered(f"answers {answer.status_code} to {view}: {_words_of(answer)}")
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Unanswered(f"does not answer like a relay to {view}: {error}") from None

    def _refusal(self) -> str:
        if self._headers:
            return "does not take the token that was given with --token or LAPS_TOKEN"
        return "wants a token: give it with --token or LAPS_TOKEN"


def _words_of(answer: httpx.Response) -> str:
    """What a relay says is wrong, or the beginning of what something else says."""
    try:
        said = msgspec.json.decode(answer.content, type=dict[str, Any]).get("error", "")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        said = "is it the address of an admin API?"
    return str(said)[:200]
