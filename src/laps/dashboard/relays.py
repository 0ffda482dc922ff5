"""One relay as the dashboard sees it: its last answers, and since when it gives none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from laps.admin.schema.network import KnownNode, Peer
    from laps.admin.schema.relay import Event, Node
    from laps.admin.schema.tracks import Track, Tracks

MAX_NEWS = 1_000


class Rates:
    """How fast counters grow. One that went back began anew, and has no rate.

    `weight` is what the newest reading counts for: less than 1 evens out what comes in bursts.
    """

    def __init__(self, weight: float = 1.0) -> None:
        self._weight = weight
        self._counts: Mapping[Hashable, int] = {}
        self._asked_at = 0.0
        self._rates: dict[Hashable, float] = {}

    def read(
        self, counts: Mapping[Hashable, int], now: float, asked_at: float | None = None
    ) -> None:
        """Take the counters as they are now; those left out are gone.

        They were counted at some time since they were asked for. What they grew by took no longer
        than from the question before to this answer: an answer that is late makes no peak of the
        next one.
        """
        before, elapsed, rates = self._counts, now - self._asked_at, {}
        for key, count in counts.items():
            if elapsed > 0 and before.get(key, count + 1) <= count:
                rate = (count - before[key]) / elapsed
                rates[key] = rate + (1 - self._weight) * (self._rates.get(key, rate) - rate)
        self._rates = rates
        self._counts, self._asked_at = counts, now if asked_at is None else asked_at

    def get(self, key: Hashable) -> float:
        """Per second; zero where it is not known."""
        return self._rates.get(key, 0.0)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._rates

    @property
    def known(self) -> bool:
        """Whether there have been two readings."""
        return bool(self._rates)

    def clear(self) -> None:
        """What comes next is a first reading."""
        self._counts, self._rates = {}, {}


class Relay:
    """An address of an admin API, and what the relay there answers."""

    def __init__(self, url: str, now: float) -> None:
        self.url = url
        self.node: Node | None = None
        "None until it has answered once."
        self.answers = False
        self.since = now
        "Since when it answers, or does not; seconds since 1970."
        self.words = "has not answered yet"
        "Why it does not answer, or nothing."
        self.trouble = ""
        "What is wrong with one of its tables, while it answers."
        self.peers: list[Peer] = []
        self.nodes: list[KnownNode] = []
        self.tracks: dict[str, Track] = {}
        self.tracks_total = 0
        self.tracks_version = 0
        "Counts up when `tracks` is new."
        self.rates = Rates()
        self._to_clients = 0.0
        self.track_rates = Rates(weight=0.3)
        self.last_event = -1
        self._news: list[Event] = []

    @property
    def id(self) -> str:
        """The node's id, or nothing while it is not known."""
        return self.node.node if self.node is not None else ""

    def answered(
        self, node: Node, peers: list[Peer], wall: float, now: float, asked_at: float | None = None
    ) -> None:
        """It lives, and says this of itself and its links, since it was asked at a time."""
        if self.node is not None and (node.node, node.since) != (self.node.node, self.node.since):
            self._began_anew()
        if not self.answers:
            self.answers, self.since = True, wall
            self.rates.clear()  # the silence before would count as one long second
            self.track_rates.clear()
        left = {peer.node for peer in self.peers} - {peer.node for peer in peers}
        self.node, self.peers, self.words = node, peers, ""
        counts: dict[Hashable, int] = {"sent": node.sent_bytes, "received": node.received_bytes}
        for peer in peers:
            counts["sent", peer.node] = peer.sent_bytes
            counts["received", peer.node] = peer.received_bytes
            counts["packets", peer.node] = peer.sent_packets
            counts["lost", peer.node] = peer.lost_packets
        self.rates.read(counts, now, asked_at)
        # What went to a peer that has come or left meanwhile is not known, and not the clients'.
        if not left and all(("sent", peer.node) in self.rates for peer in peers):
            to_peers = sum(self.rates.get(("sent", peer.node)) for peer in peers)
            self._to_clients = max(0.0, self.rates.get("sent") - to_peers)

    def failed(self, words: str, wall: float) -> None:
        """It does not answer, and this is why. Its last answers are kept: it is drawn in grey."""
        if self.answers:
            self.answers, self.since = False, wall
            self.tracks, self.tracks_version = {}, self.tracks_version + 1
        self.words = words

    def hold_tracks(self, tracks: Tracks, now: float, asked_at: float | None = None) -> None:
        """Its tracks are these; too late, if it has died meanwhile."""
        if not self.answers:
            return
        self.tracks = {track.track: track for track in tracks.tracks}
        self.tracks_total = max(tracks.total, len(self.tracks))
        self.tracks_version += 1
        counts: dict[Hashable, int] = {it.track: it.received_bytes for it in tracks.tracks}
        self.track_rates.read(counts, now, asked_at)

    def hold_events(self, events: Iterable[Event]) -> None:
        """These happened since `last_event`."""
        for event in events:
            self.last_event = max(self.last_event, event.number)
            self._news.append(event)
        del self._news[:-MAX_NEWS]

    def take_news(self) -> list[Event]:
        """The events that nobody has taken yet, oldest first."""
        news, self._news = self._news, []
        return news

    def sent_to_clients(self) -> float:
        """Bytes a second to everyone but peers, as UDP carries them."""
        if self.node is None or self.node.role in ("via", "control"):
            return 0.0  # it has no clients; the two counts are not of quite the same moment
        return self._to_clients

    def _began_anew(self) -> None:
        """Another process answers here: it counts from zero, its events too."""
        self._to_clients = 0.0
        self.rates.clear()
        self.track_rates.clear()
        self.last_event = -1
