"""All relays together: asks each, and keeps the picture that pages are served from."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laps.admin.client import AdminClient, Pool
from laps.dashboard.delays import TrackDelays
from laps.dashboard.history import History
from laps.dashboard.picture import OWN, Topology, matching, tracks_of, tree_of
from laps.dashboard.watching import ROUND_S, Unanswered, Watch
from laps.errors import LapsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    import httpx

    from laps.dashboard.relays import Relay

    Row = dict[str, Any]

# What a list of tracks shows at once; the rest is found by searching.
SHOWN_TRACKS = 200

# How often it looks for relays that have come to this machine.
FIND_EACH_S = 3.0

# A relay that was found, not named, and has not answered for this long is no longer shown.
FORGET_S = 600.0

NONE_FOUND = (
    "No relay was found on this machine. Start one with “laps relay” or “laps lab”, or start the "
    "dashboard with --admin and the address of a relay's admin API."
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the admin API of a relay is, and the token it wants."""

    url: str
    token: str = ""


def nobody() -> list[Address]:
    """Finds no relays: those named are all."""
    return []


class Network:
    """The relays that are watched, and what is known of the last ten minutes."""

    def __init__(
        self,
        named: Sequence[Address],
        find: Callable[[], list[Address]] = nobody,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._named = {address.url: address for address in named}
        self._find = find
        self._unfound = ""
        "Why this machine cannot be searched, or nothing."
        self._pool = Pool(transport)
        self._watches: dict[str, Watch] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._topology = Topology()
        self._silent: set[str] = set()
        "Relays that answered once and do not now."
        self._tracks: list[Row] = []
        self._tracks_of: object = None
        self._delays = TrackDelays()
        self.history = History()
        self.run_id = secrets.token_hex(4)
        "A page that sees another one begins anew: numbers count from one again."
        self.nodes: list[Row] = []
        self.links: list[Row] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch for as long as the block runs."""
        clock = asyncio.create_task(self._run(), name="dashboard")
        try:
            yield
        finally:
            tasks = [clock, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._delays.close()
            await self._pool.close()

    async def _run(self) -> None:
        next_find = 0.0
        while True:
            now = time.monotonic()
            if now >= next_find:
                next_find = now + FIND_EACH_S
                self._look_around()
            self.tick(time.time())
            await self._delays.keep(list(self._watches.values()), now)
            await asyncio.sleep(max(0.0, now + ROUND_S - time.monotonic()))

    def _look_around(self) -> None:
        """Watch relays that have come; forget found ones that left long ago."""
        try:
            found, self._unfound = self._find(), ""
        except LapsError as error:
            found, self._unfound = [], str(error)
        wanted = {address.url: address for address in found} | self._named
        for url, address in wanted.items():
            if url not in self._watches:
                api = AdminClient(url, address.token, self._pool)
                watch = self._watches[url] = Watch(api)
                self._tasks[url] = asyncio.create_task(watch.run(), name=url)
        for url in self._watches.keys() - wanted.keys():
            relay = self._watches[url].relay
            if not relay.answers and time.time() - relay.since > FORGET_S:
                self._tasks.pop(url).cancel()
                del self._watches[url]

    @property
    def relays(self) -> list[Relay]:
        """What is known of each address, but for those that a relay has left for another."""
        relays = [watch.relay for watch in self._watches.values()]
        live = {relay.id for relay in relays if relay.answers}
        return [relay for relay in relays if relay.answers or relay.id not in live]

    def tick(self, wall: float) -> None:
        """Keep how things are at this second."""
        self.refresh()
        if self._watches:
            added = self._delays.added_us()
            self.history.sample(self.nodes, self.links, wall, added)

    def refresh(self) -> None:
        """Put together the latest answers of relays."""
        relays = self.relays
        self.nodes = self._topology.nodes(relays)
        self.links = self._topology.links(relays)
        self.history.collect(relays)
        for relay in relays:
            if relay.answers == (relay.url in self._silent) and relay.id:
                self._silent ^= {relay.url}
                self._tell(relay, "answers" if relay.answers else "unreachable")

    def _tell(self, relay: Relay, event: str) -> None:
        told = {"at": relay.since, "node": "dashboard", "event": event, "subject": relay.id}
        self.history.incidents.add(told | {"detail": relay.url, "reason": relay.words})

    # -- what a page asks for ----------------------------------------------------------------------

    def picture(
        self, words: str, track: str, after_sample: int, after_change: int, *, own: bool = False
    ) -> Row:
        """How things are: with the tracks that match, the tree of one, and what is new.

        `own` adds the tracks that relays publish about themselves.
        """
        self.refresh()
        everything = self._all_tracks()
        tracks = [row for row in everything if own or not row["namespace"].startswith(OWN)]
        found = matching(tracks, words)
        return {
            "run": self.run_id,
            "at": time.time(),
            "nodes": self.nodes,
            "links": self.links,
            "problems": self.problems(),
            "tracks": found[:SHOWN_TRACKS],
            "tracks_found": len(found),
            "tracks_total": len(tracks),
            "lost_objects": sum(row["lost_objects"] for row in tracks),
            "tree": self._tree(everything, track) if track else None,
            "samples": self.history.samples_after(after_sample),
            "incidents": self.history.incidents.after(after_change),
        }

    def problems(self) -> list[str]:
        """What a reader has to know first, in words."""
        relays = self.relays
        if not relays:
            return [self._unfound or NONE_FOUND]
        silent = [relay for relay in relays if not relay.answers]
        wrong = [(relay, relay.trouble if relay.answers else relay.words) for relay in relays]
        words = [f"{_name(relay)} {words}" for relay, words in wrong if words]
        if len(silent) == len(relays) > 1:
            words.insert(0, f"None of the {len(relays)} relays answers.")
        return words

    def _all_tracks(self) -> list[Row]:
        version = [(relay.url, relay.tracks_version) for relay in self.relays]
        if version != self._tracks_of:
            self._tracks_of, self._tracks = version, tracks_of(self.relays)
        return self._tracks

    def _tree(self, tracks: Sequence[Row], track: str) -> Row:
        row = next((row for row in tracks if row["track"] == track), {})
        tree = row | tree_of(self.relays, track)
        if tree["nodes"]:
            added = self._delays.want(track, time.monotonic()).arrivals.added_us()
            for node in tree["nodes"]:
                node["added_us"] = added.get(node["id"])
        return tree

    async def show(self, node: str, view: str, params: Mapping[str, str]) -> Row:
        """One table of a relay, or `error` in words."""
        watches = [watch for watch in self._watches.values() if watch.relay.id == node]
        if not watches:
            return {"error": f"{node} is not asked: name its admin API with --admin"}
        watch = max(watches, key=lambda watch: watch.relay.answers)
        try:
            return await watch.show(view, params)
        except Unanswered as problem:
            return {"error": f"{node} {problem}"}


def _name(relay: Relay) -> str:
    return f"{relay.id} ({relay.url})" if relay.id else relay.url
