"""Ranges that are fetched from elsewhere: from a publisher, or from the relay that has one.

Whoever wants a part of a range that is being fetched waits for it with the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from laps.edge.client import EdgeClient
from laps.ranges import last_of
from laps.tracks.upstream_fetch import UpstreamFetch
from laps.wire.moqt.codes import RequestCode
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.messages import Fetch, FetchOk, RequestError, StandaloneFetch, TrackProperties
from laps.wire.moqt.tolerance import Tolerance

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.edge.context import Context
    from laps.edge.relay_queries import RelayQueries
    from laps.infobase.nodes import SessionId
    from laps.tracks.track import Track
    from laps.types import Location, NodeId
    from laps.wire.moqt.messages import Message

# A FETCH of which nothing arrives for this long is given up.
FETCH_S: Final = 10.0
# A relay that is asked and sends nothing may be dead, or on a way that is, which is known by then.
AGAIN_S: Final = 1.0
# Where the way to it looks the same, its answer may have been lost on another: it is asked again
# after this long, and then after twice as long, since some publishers take long to answer.
UNANSWERED_S: Final = 2.0


@dataclass(slots=True)
class FetchCounters:
    """How fetches went, for the operator."""

    served: int = 0
    from_cache: int = 0
    "Without asking anybody."
    errands: int = 0
    "Ranges asked of a publisher or another relay."
    shared: int = 0
    "Those that waited for a range that somebody else had asked for."
    failed: int = 0


Way = tuple["SessionId", tuple["NodeId", ...]] | None
"A link, and the relays after it; None where none leads there."


class FetchWaiter(Protocol):
    """Waits for a range that is fetched from elsewhere."""

    @property
    def position(self) -> Location:
        """What comes before this place it has."""

    def progressed(self, fetch: UpstreamFetch, now: float) -> None:
        """More of the range has arrived, or the answer to the FETCH."""

    def fetched(self, fetch: UpstreamFetch, now: float, *, ok: bool) -> None:
        """The range has arrived, or will not."""


@dataclass(slots=True, eq=False)
class _Fetching:
    """A range on its way here, and who waits for it."""

    track: Track
    fetch: UpstreamFetch
    waiters: list[FetchWaiter]
    moved_at: float
    "When something of it arrived the last time,"
    asked_at: float
    "and when it was last asked for,"
    way: Way = None
    "and by which way."
    looked_at: float = 0.0
    "When it was last looked whether that way is still there."
    refused_by: set[NodeId] = field(default_factory=set)
    "Relays that will not send it."


@dataclass(slots=True, eq=False)
class _FetchQuery:
    """A FETCH that another relay was asked for."""

    fetches: UpstreamFetches
    fetching: _Fetching
    attempt: int

    def answered(self, message: Message | None, now: float) -> None:
        """As `Query.answered`."""
        if self.attempt != self.fetching.fetch.attempt:
            return
        if isinstance(message, FetchOk):
            self.fetches.accepted(self.fetching, message, now)
        elif isinstance(message, RequestError):
            self.fetches.refused_elsewhere(self.fetching, message, now)
        elif message is None:
            self.fetches.close(self.fetching, now, ok=False)


class UpstreamFetches:
    """The FETCHes of a relay's own."""

    def __init__(self, context: Context, queries: RelayQueries, counters: FetchCounters) -> None:
        self.counters = counters
        self._context = context
        self._queries = queries
        self._open: list[_Fetching] = []

    # -- asking ------------------------------------------------------------------------------------

    def send(
        self, serving: FetchWaiter, track: Track, start: Location, end: Location, now: float
    ) -> bool:
        """Have a range fetched; False if there is nobody to ask."""
        for fetching in self._open:
            fetch = fetching.fetch
            if fetching.track is track and fetch.covers(start, end) and not fetch.is_thinned:
                self.counters.shared += 1
                fetching.waiters.append(serving)
                return True
        opened = self._ask(track, start, end, now)
        if opened is None:
            return False
        opened.waiters.append(serving)
        self.counters.errands += 1
        self._watch(opened)
        return True

    def leave(self, serving: FetchWaiter, now: float) -> None:
        """Somebody no longer waits; what nobody waits for is cancelled."""
        for fetching in [it for it in self._open if serving in it.waiters]:
            fetching.waiters.remove(serving)
            if not fetching.waiters:
                if fetching.fetch.node_id is not None:
                    self._queries.cancel(fetching.fetch.node_id, fetching.fetch.request_id)
                self.close(fetching, now, ok=False)

    def at(self, when: float, call: Callable[[float], None]) -> None:
        """Make a call at a time."""
        self._context.at(when, call)

    def _watch(self, fetching: _Fetching) -> None:
        """Ask again where the way to it is another or it does not answer; give up in the end."""

        def look(now: float) -> None:
            fetching.looked_at = now
            if now >= fetching.moved_at + FETCH_S:
                self.close(fetching, now, ok=False)
                return
            node_id = fetching.fetch.node_id
            silent_s = now - max(fetching.moved_at, fetching.asked_at)
            if node_id is not None and silent_s >= AGAIN_S:
                fetch, is_another = fetching.fetch, fetching.way != self._way(node_id)
                is_unheard = fetch.answer is None and silent_s >= UNANSWERED_S * fetch.attempt
                if is_another or is_unheard:
                    self._ask_again(fetching, now)
            self._watch(fetching)

        if fetching in self._open:
            wait_s = FETCH_S if fetching.fetch.node_id is None else AGAIN_S
            look_at = max(fetching.moved_at, fetching.looked_at) + wait_s
            self._context.at(min(look_at, fetching.moved_at + FETCH_S), look)

    def _way(self, node_id: NodeId) -> Way:
        """How a relay is reached now."""
        choice = self._context.relay.nodes.best(node_id)
        if choice is None:
            return None
        return choice.path.session, tuple(hop.node_id for hop in choice.path.info.path)

    def _ask_again(self, fetching: _Fetching, now: float) -> bool:
        """Ask a relay that offers the track and can be reached for what has not arrived.

        False if none is there that has not refused.
        """
        track, fetch = fetching.track, fetching.fetch
        fetching.asked_at = now
        nodes = [it for it in self._context.elsewhere(track) if self._way(it) is not None]
        nodes = [it for it in nodes if it not in fetching.refused_by]
        if fetch.node_id is None or not nodes:
            return False
        self._queries.cancel(fetch.node_id, fetch.request_id)
        track.shared.upstream_fetches.pop(fetch.request_id, None)
        fetch.asked_again(fetch.node_id if fetch.node_id in nodes else nodes[0])
        self._send(fetching, fetch.next, now)
        return True

    def _ask(self, track: Track, start: Location, end: Location, now: float) -> _Fetching | None:
        if track.name is None:
            return None
        publisher = self._context.publisher(track)
        if publisher is not None:
            request = Fetch(0, StandaloneFetch(track.name, start, end))
            fetch = UpstreamFetch(track.cached, start, end, publisher.dialect, publisher=publisher)
            fetching = self._opened(track, fetch, now)
            fetch.request_id = publisher.fetch(request)
            return fetching
        nodes = self._context.elsewhere(track)
        if not nodes:
            return None
        fetch = UpstreamFetch(track.cached, start, end, BETWEEN_RELAYS, node_id=nodes[0])
        fetching = self._opened(track, fetch, now)
        self._send(fetching, start, now)
        return fetching

    def _send(self, fetching: _Fetching, start: Location, now: float) -> None:
        """Ask another relay."""
        track, fetch = fetching.track, fetching.fetch
        assert track.name is not None  # noqa: S101 - or nobody would have been found to ask
        assert fetch.node_id is not None  # noqa: S101 - it is a relay
        request = Fetch(0, StandaloneFetch(track.name, start, fetch.end))
        fetching.way = self._way(fetch.node_id)
        query = _FetchQuery(self, fetching, fetch.attempt)
        fetch.request_id = self._queries.ask(fetch.node_id, request, query, now, FETCH_S)
        track.shared.upstream_fetches[fetch.request_id] = fetch

    def _opened(self, track: Track, fetch: UpstreamFetch, now: float) -> _Fetching:
        fetching = _Fetching(track, fetch, [], now, now)
        self._open.append(fetching)
        track.fetches[fetch] = None
        return fetching

    # -- what comes back ---------------------------------------------------------------------------

    def answered(self, client: EdgeClient, message: FetchOk, now: float) -> None:
        """A publisher will send what we asked for."""
        fetching = self._find(client, message.request_id)
        if fetching is not None:
            self.accepted(fetching, message, now)

    def accepted(self, fetching: _Fetching, message: FetchOk, now: float) -> None:
        """A publisher or another relay will send what we asked for."""
        track, fetch = fetching.track, fetching.fetch
        fetch.answer = message
        if track.properties == TrackProperties():  # nobody has said anything of it yet
            track.describe(message.properties)
        if message.end.object:  # or else it says how far it goes, and not how far there is
            track.cached.saw(last_of(message.end))
        if fetch.is_finished:
            self.close(fetching, now, ok=True)
        else:
            self._moved(fetching, now)

    def progressed(self, fetch: UpstreamFetch, now: float) -> None:
        """More of a range has arrived."""
        fetch.is_noted = False
        for fetching in self._open:
            if fetching.fetch is fetch:
                if fetch.is_broken:
                    self._ask_again(fetching, now)
                else:
                    self._moved(fetching, now)
                return

    def _moved(self, fetching: _Fetching, now: float) -> None:
        """Those who wait go on with what there is."""
        fetch = fetching.fetch
        fetching.moved_at = now
        for serving in list(fetching.waiters):
            serving.progressed(fetch, now)
        if fetch.is_large and fetching.waiters:
            fetch.thin(min(serving.position for serving in fetching.waiters))

    def refused(self, client: EdgeClient, request_id: int, now: float) -> None:
        """A publisher will not, or gave up sending it."""
        fetching = self._find(client, request_id)
        if fetching is not None:
            self.close(fetching, now, ok=False)

    def refused_elsewhere(self, fetching: _Fetching, refusal: RequestError, now: float) -> None:
        """Another relay will not send it: others that offer the track may."""
        fetch = fetching.fetch
        fetch.refusal = fetch.refusal or refusal
        if fetch.node_id is not None:
            fetching.refused_by.add(fetch.node_id)
        if refusal.code != RequestCode.UNAUTHORIZED or not self._ask_again(fetching, now):
            self.close(fetching, now, ok=False)

    def receive(self, client: EdgeClient, request_id: int, data: bytes, *, fin: bool) -> bool:
        """Bytes of what we asked a publisher for; False if nobody wants them.

        Whoever asks for a range must not be able to end a publisher's session by it: what cannot
        be read fails the FETCH alone.
        """
        fetching = self._find(client, request_id)
        if fetching is None or fetching.fetch.is_failed:
            return False
        wanted = fetching.fetch.receive(data, fin=fin)
        if (problem := fetching.fetch.problem) is not None:
            if self._context.settings.session.strict:
                raise problem
            self._context.counters.tolerated[Tolerance.UNREADABLE_FETCH] += 1
        return wanted

    def finished(self, fetch: UpstreamFetch, now: float) -> None:
        """All of a range has arrived, or it has failed."""
        for fetching in self._open:
            if fetching.fetch is fetch and (fetch.is_failed or fetch.answer is not None):
                self.close(fetching, now, ok=not fetch.is_failed)
                return

    def client_closed(self, client: EdgeClient, now: float) -> None:
        """A publisher has left."""
        for fetching in [it for it in self._open if it.fetch.publisher is client]:
            self.close(fetching, now, ok=False)

    def _find(self, client: EdgeClient, request_id: int) -> _Fetching | None:
        for fetching in self._open:
            fetch = fetching.fetch
            if fetch.publisher is client and fetch.request_id == request_id:
                return fetching
        return None

    def close(self, fetching: _Fetching, now: float, *, ok: bool) -> None:
        """A fetch has come to its end: those who wait for it go on."""
        if fetching not in self._open:
            return
        self._open.remove(fetching)
        track, fetch = fetching.track, fetching.fetch
        track.fetches.pop(fetch, None)
        if fetch.publisher is None:
            track.shared.upstream_fetches.pop(fetch.request_id, None)
        if ok and not fetch.unknown:
            fetch.remember(now)
        if isinstance(fetch.publisher, EdgeClient):
            fetch.publisher.fetch_closed(fetch.request_id, ok=ok)
        for serving in fetching.waiters:
            serving.fetched(fetch, now, ok=ok)
