"""What the relays of a lab say of themselves, asked by their admin API, again and again."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from laps.admin.client import AdminClient, AdminError, Pool
from laps.admin.schema.network import Peer, Peers
from laps.admin.schema.relay import Events, Node
from laps.admin.schema.tracks import Track, Tracks
from laps.lab.network import NAME, NAMESPACE
from laps.names import hash_text
from laps.types import TrackName, hash_track

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from laps.admin.schema import relay as schema
    from laps.lab.processes import Relay

EVERY_S: Final = 1.0
EVENTS: Final = 500
"How many events are remembered, of all relays together."

# A path that is found first, while relays come up, is no news.
_FROM_NOBODY: Final = "nobody to "


@dataclass(slots=True)
class Sight:
    """One relay, as it was when it was asked last, and the time before."""

    node: Node | None = None
    peers: list[Peer] = field(default_factory=list)
    tracks: list[Track] = field(default_factory=list)
    load: float = 0.0
    "The share of a core it takes."
    rates: dict[str, float] = field(default_factory=dict)
    "Bits a second sent to each peer."
    last_event: int = 0
    "The number of the last event that was read."

    @property
    def answered(self) -> bool:
        """Whether it answered when it was asked last."""
        return self.node is not None

    @property
    def clients(self) -> int:
        """How many clients it has."""
        return 0 if self.node is None else self.node.sizes.get("clients", 0)

    def take(self, node: Node, peers: list[Peer], tracks: list[Track]) -> None:
        """What it says now."""
        before, sent = self.node, {row.node: row for row in self.peers}
        self.rates = {}
        if before is not None and before.since == node.since and node.at > before.at:
            elapsed = node.at - before.at
            self.load = (node.cpu_s - before.cpu_s) / elapsed
            for row in peers:
                old = sent.get(row.node)
                if old is not None and old.since == row.since:
                    more = row.sent_bytes - old.sent_bytes
                    self.rates[row.node] = max(0.0, 8 * more / elapsed)
        self.node, self.peers, self.tracks = node, peers, tracks

    def gone(self) -> None:
        """It does not answer: what it said no longer holds."""
        self.node, self.peers, self.tracks = None, [], []
        self.load, self.rates = 0.0, {}
        self.last_event = 0  # one that is started again counts from 1


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, as one relay tells it."""

    at: float
    node: str
    event: str
    subject: str
    detail: str
    reason: str

    @classmethod
    def of(cls, row: schema.Event, node: str) -> Self:
        """As the relay's admin API has it."""
        return cls(row.at, node, row.event, row.subject, row.detail, row.reason)

    @property
    def is_news(self) -> bool:
        """Whether a person wants to hear of it."""
        if self.event == "path_changed":
            return not self.detail.startswith(_FROM_NOBODY)
        return self.event not in ("reloaded", "started")

    def __str__(self) -> str:
        because = f": {self.reason}" if self.reason else ""
        match self.event:
            case "path_changed":
                return f"{self.node}: route to {self.subject} changed, {self.detail}{because}"
            case "peer_up":
                return f"{self.node}: peer {self.subject} is there"
            case "peer_down":
                return f"{self.node}: peer {self.subject} is gone{because}"
        words = self.event.replace("_", " ")
        return (
            " ".join(filter(None, (f"{self.node}: {words}", self.subject, self.detail))) + because
        )


class Watch:
    """All relays of a lab."""

    def __init__(self, relays: Mapping[str, Relay]) -> None:
        self._relays = relays
        self._pool = Pool()
        self._apis = {
            name: AdminClient(relay.admin, pool=self._pool) for name, relay in relays.items()
        }
        self.sights = {name: Sight() for name in relays}
        self.events: deque[Event] = deque(maxlen=EVENTS)

    async def close(self) -> None:
        """Ask no more."""
        await self._pool.close()

    async def look(self, names: Iterable[str] | None = None) -> None:
        """Ask every relay that runs, or those of these names, all at once."""
        asked = self._relays if names is None else names
        found = await asyncio.gather(*map(self._look, asked))
        self.events.extend(sorted((event for events in found for event in events), key=_when))

    async def _look(self, name: str) -> list[Event]:
        sight, api, relay = self.sights[name], self._apis[name], self._relays[name]
        if not relay.ready or not relay.runs:
            sight.gone()
            return []
        try:
            node = await api.get(Node)
            peers = await api.get(Peers, limit=0)
            tracks = await api.get(Tracks, limit=0)
            if sight.node is not None and sight.node.since != node.since:
                sight.last_event = 0
            events = await api.get(Events, after=sight.last_event, limit=0)
        except AdminError:
            sight.gone()
            return []
        sight.take(node, peers.peers, tracks.tracks)
        if events.events:
            sight.last_event = events.events[-1].number
        return [Event.of(row, name) for row in events.events]

    def at_rest(self, links: Iterable[tuple[str, str]]) -> bool:
        """Whether both ends of every link know each other as peers."""
        peers = {name: {row.node for row in sight.peers} for name, sight in self.sights.items()}
        return all(b in peers[a] and a in peers[b] for a, b in links)

    def copies(self, track: str) -> list[tuple[str, str]]:
        """The hops that copies of a track take now: from a relay, to its peer."""
        named = TrackName((NAMESPACE.encode(), track.encode()), NAME.encode())
        hashed = hash_text(hash_track(named).full_name_hash)
        hops = []
        for name, sight in self.sights.items():
            for row in sight.tracks:
                if row.track != hashed:
                    continue
                hops += [(name, peer) for peer in row.egress]
                if sight.node is not None and sight.node.role == "stub":
                    # To its Edge it is a client.
                    hops += [(peer, name) for peer in row.ingress]
        return hops


def _when(event: Event) -> float:
    return event.at


def tree(hops: Iterable[tuple[str, str]], root: str) -> str:
    """The way that copies take from a relay on, in a line: `1:1 > 1:100 > (2:1, 2:2)`."""
    onward: dict[str, list[str]] = {}
    for near, far in sorted(set(hops)):
        onward.setdefault(near, []).append(far)
    seen: set[str] = set()

    def walk(node: str) -> str:
        if node in seen:
            return node
        seen.add(node)
        branches = [walk(far) for far in onward.get(node, ())]
        if not branches:
            return node
        return (
            f"{node} > {branches[0]}" if len(branches) == 1 else f"{node} > ({', '.join(branches)})"
        )

    return walk(root)
