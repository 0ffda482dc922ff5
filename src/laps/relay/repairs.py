"""What was under way when a relay died is asked for, and comes beside what is live.

    s-relay                                 o-relay
    a stream broke off, a set is gone, or
    a link is silent: of these tracks       REPAIR_REQUEST: what came since then? I have this
    something may be missing         ---->  streams that are open, from where they broke off; those
                                            that have ended and datagrams that are not there
                                     <----  REPAIR_RESPONSE: so many were sent

It asks again until nothing is sent any more, and for a while at least: the ones before it on the
way may not have noticed yet, so that what is sent, and what is live, goes on to the dead relay.
Streams that broke off wait for their rest as long as there is hope.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

from laps.infobase.namespaces import track_of
from laps.relay.pieces import MOST_IN_A_TURN
from laps.relay.repair_outcome import Outcome
from laps.relay.repair_window import (
    SPREAD_S,
    missing_since,
    remembered_since,
    under_way_since,
    what_is_here,
)
from laps.routing.flows import FromClient
from laps.tracks.holes import Holes
from laps.tracks.shared import Lost
from laps.tracks.streams import SOURCE_LOST
from laps.types import NodeId, announce_info
from laps.wire.extensions import MAX_HAVE, MAX_HOPS, RepairRequest, RepairResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from laps.infobase.namespaces import Namespaces
    from laps.infobase.nodes import Nodes, SessionId
    from laps.relay.journal import Journal
    from laps.relay.peers import Links
    from laps.relay.reach import Reach
    from laps.relay.sets import Sets
    from laps.relay.subscribes import SubscribeExchange
    from laps.routing.flows import Flow, FromPeer, Route
    from laps.tracks.track import Track
    from laps.tracks.tracks import Tracks
    from laps.types import NamespaceInfo, TrackKey

# It is asked again this much later, and after two round trips: what was sent is known by then.
AGAIN_S: Final = 0.4

# By then every relay has noticed that its neighbour is dead, as far as that was sudden.
SETTLED_S: Final = 2.0

# A stream that broke off waits for its rest: a publisher whose relay died is back by then.
WAIT_S: Final = 4.0

# Tracks of which the last second is sent again, at a time: some 100 µs each.
MOST_SENT_AGAIN: Final = 50

# What was sent a little before a way was lost may have been lost with it.
LOST_S: Final = 1.0

# What is live comes by nobody: the subscribe has not arrived where the publisher is.
NOBODY: Final = NodeId(0)

# Where nobody answers, as no way leads there, it is asked less and less often.
SELDOM_S: Final = 2.0


@dataclass(slots=True, eq=False)
class _Repair:
    """A track that something may be missing of."""

    key: TrackKey
    holes: Holes
    began: float
    since: float
    "What came before this is not missing."
    settled_at: float
    "Until then more may get lost."
    waits_for: set[int] = field(default_factory=set)
    "Requests that have not been answered."
    is_answered: bool = False
    "Somebody has answered what was asked last;"
    answered_at: float | None = None
    "or what was asked at some time."
    asked: int = 0
    "How often."
    is_lacking: bool = False
    "Somebody has sent something the last time, or what is live still goes to a dead relay."
    next_at: float = 0.0
    "When it is asked again."


class Repairs:
    """The repairs of one relay, and those that it helps others with."""

    def __init__(
        self,
        self_id: NodeId,
        nodes: Nodes,
        namespaces: Namespaces,
        tracks: Tracks,
        links: Links,
        sets: Sets,
        reach: Reach,
        subscribes: SubscribeExchange,
        journal: Journal,
        back_s: float,
    ) -> None:
        """What was sent up to `back_s` before something was noticed may be missing."""
        self._outcome = Outcome(journal)
        self.counters = self._outcome.counters
        self._self_id = self_id
        self._nodes = nodes
        self._namespaces = namespaces
        self._tracks = tracks
        self._links = links
        self._sets = sets
        self._broken = tracks.shared.broken
        self._reach = reach
        self._subscribes = subscribes
        self._back_s = back_s
        self._open: dict[TrackKey, _Repair] = {}
        self._requests: dict[int, _Repair] = {}
        self._due: list[tuple[float, int, _Repair]] = []
        "A heap of when each is asked again."
        self._count = 0
        self._last_id = 0
        self._lost_ways: deque[
            tuple[float, SessionId | None, Iterator[tuple[Flow, frozenset[NodeId]]]]
        ] = deque()
        "Flows whose way is gone, since when what was sent that way may be lost, and the link."
        self._offered: deque[Iterator[TrackKey]] = deque()
        "Tracks that another relay has begun to offer."
        self._silent: deque[Iterator[FromPeer]] = deque()
        "Sets of links that are silent."

    def __len__(self) -> int:
        return len(self._open)

    # -- what is missing here ----------------------------------------------------------------------

    def sources_silent(self, sources: Iterable[FromPeer]) -> None:
        """Nothing is heard of the peer that these sets come from."""
        self._silent.append(iter(sources))

    def offered(self, info: NamespaceInfo) -> None:
        """Another relay offers tracks; perhaps again, after no way had led there for a while."""
        announced = announce_info(info.source_node_id, info.namespace, info.name)
        name = track_of((info.namespace, info.name))
        self._offered.append(self._tracks.matching(announced, name))

    def way_lost(
        self,
        flows: list[tuple[Flow, frozenset[NodeId]]],
        since: float,
        link_id: SessionId | None = None,
    ) -> None:
        """What our publishers sent to these nodes since a time may be lost with its way.

        Who has no other way than by the same link still gets it, if the link is heard again.
        """
        if flows:
            self._lost_ways.append((since, link_id, iter(flows)))

    def tick(self, now: float) -> None:
        """Begin with what is new, and ask again."""
        self._look_at_reached(now)
        self._send_again(now)
        self._look_at_offered()
        self._look_at_silent()
        for key in list(islice(self._broken, MOST_IN_A_TURN)):
            self._begin(key, self._broken.pop(key), now)
        left = MOST_IN_A_TURN
        while self._due and self._due[0][0] <= now and left:
            at, _, repair = heappop(self._due)
            if self._open.get(repair.key) is repair and repair.next_at == at:
                left -= 1
                self._go_on(repair, now)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        if self._is_at_work:
            return 0.0
        return self._due[0][0] if self._due else None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being repaired."""
        hopeful = any(repair.waits_for for repair in self._open.values())
        return not (hopeful or self._is_at_work)

    @property
    def _is_at_work(self) -> bool:
        waiting = self._broken or self._silent or self._offered
        return bool(waiting or self._lost_ways or self._sets.has_reached)

    def _look_at_offered(self) -> None:
        """What came to others of these tracks since the last of it came here is missing."""
        left = MOST_IN_A_TURN
        while self._offered and left:
            left -= 1
            if (key := next(self._offered[0], None)) is None:
                self._offered.popleft()
                continue
            track = self._tracks.get(key)
            if track is not None and track.is_wanted and track.cached.groups:
                began = next(iter(track.cached.groups.values())).at
                lost = Lost(began, track.cached.touched, sudden=False)
                self._tracks.shared.missing(key, lost)

    def _look_at_silent(self) -> None:
        shared, left = self._tracks.shared, MOST_IN_A_TURN
        while self._silent and left:
            left -= 1
            if (source := next(self._silent[0], None)) is None:
                self._silent.popleft()
            else:
                self._sets.source_silent(source)
                shared.lost(source, sudden=True)

    def _begin(self, key: TrackKey, lost: Lost, now: float) -> None:
        track = self._tracks.get(key)
        if track is None:
            return
        settled_at = now + SETTLED_S if lost.sudden else now
        since = max(lost.since, lost.at - self._back_s)
        repair = self._open.get(key)
        if repair is None:
            if not (track.is_wanted or _broken(track)):
                return
            track.is_repaired = True
            self._outcome.begun()
            holes = Holes(track.cached, since)
            repair = self._open[key] = _Repair(key, holes, now, since, settled_at)
            self._ask_at(repair, now)
        # Where a way is lost in good order, its publisher may be back with something else.
        if lost.sudden:
            self._outcome.sudden(now)
            track.is_mending = True
            track.in_order.begin(track, now)
        repair.settled_at = max(repair.settled_at, settled_at)
        repair.since = min(repair.since, since)

    def _is_over(self, repair: _Repair, track: Track, now: float) -> bool:
        """Whether nothing is missing, nobody wants it, or nobody has it."""
        if not track.is_wanted:
            return True
        # Where no way leads to who has it, what is missing may still be had when one does.
        patience_s = WAIT_S if track.name is None else track.cached.max_age_s
        if now >= repair.settled_at + patience_s:
            return True
        lacking = repair.waits_for or repair.is_lacking or _broken(track)
        answered = repair.is_answered or self._is_at_source(track)
        return answered and not lacking and now >= repair.settled_at

    def _is_at_source(self, track: Track) -> bool:
        """Whether a track is published here and nowhere else: nobody is left to ask.

        Its publisher may have been at the relay that died. It sends again itself what that relay
        may not have passed on.
        """
        here = any(publication.is_established for publication in track.publishers.values())
        return here and not self.can_ask(track)

    def _ask_at(self, repair: _Repair, at: float) -> None:
        repair.next_at = at
        self._count += 1
        heappush(self._due, (at, self._count, repair))

    def _go_on(self, repair: _Repair, now: float) -> None:
        track = self._tracks.get(repair.key)
        if track is not None and now >= repair.settled_at + WAIT_S:
            self._give_up_streams(repair, track, now)
        if track is None or self._is_over(repair, track, now):
            self._close(repair, track, now)
        else:
            track.in_order.review(track, now)
            self._ask(repair, track, now)

    def _ask(self, repair: _Repair, track: Track, now: float) -> None:
        self._forget_requests(repair)
        repair.is_lacking = repair.is_answered = False
        since = repair.since
        if not track.is_mending:  # or else what was let go is known to be too late
            since = max(since, remembered_since(track, now))
        # An Edge may have had for a moment what its Stub has had for long: it is told of all.
        told = -inf if self._subscribes.is_stub else since
        have = tuple(islice(what_is_here(track, told, now), MAX_HAVE))
        last_at = repair.began if repair.answered_at is None else repair.answered_at
        waited = now - last_at - SETTLED_S
        next_at = now + min(max(AGAIN_S, waited / 4), SELDOM_S)
        for node_id in self._offering(track):
            choice = self._nodes.best(node_id)
            if choice is None:
                continue
            next_at = max(next_at, now + 2 * choice.path.srtt_us / 1e6)
            self._last_id = self._last_id % 0xFFFFFFFF + 1
            request = RepairRequest(
                MAX_HOPS,
                self._self_id,
                node_id,
                self._last_id,
                repair.key,
                round((now - since) * 1000),
                have,
            )
            if self._reach.send(node_id, request, repair.asked):
                self.counters.asked += 1
                repair.waits_for.add(self._last_id)
                self._requests[self._last_id] = repair
        repair.asked += 1
        self._ask_at(repair, next_at)

    def _forget_requests(self, repair: _Repair) -> None:
        for request_id in repair.waits_for:
            del self._requests[request_id]
        repair.waits_for.clear()

    def can_ask(self, track: Track) -> bool:
        """Whether a relay is known that has a publisher of a track."""
        return bool(self._offering(track))

    def _offering(self, track: Track) -> list[NodeId]:
        """The relays that have publishers of a track."""
        if track.name is None:
            return []
        name, may_ask = track.name, self._subscribes.may_ask
        offers = self._namespaces.offering(name.namespace, name.name)
        return [node_id for node_id in offers if node_id != self._self_id and may_ask(node_id)]

    def _close(self, repair: _Repair, track: Track | None, now: float) -> None:
        """Nothing more is missing, or nobody has it."""
        self._forget_requests(repair)
        del self._open[repair.key]
        if track is not None:
            track.is_mending = track.is_repaired = False
            track.repaired_since = repair.since
            self._give_up_streams(repair, track, now)
            track.in_order.end(track, now)
            for subscriber in list(track.subscribers.values()):
                subscriber.repaired(now)
            if track.is_wanted:
                self._outcome.missing(track, repair.holes, now)
        self._outcome.closed(now)

    def _give_up_streams(self, repair: _Repair, track: Track, now: float) -> None:
        """Nobody has brought the rest of these: whoever reads them is told."""
        for (group, _), stream in [it for it in track.streams.items() if it[1].is_broken]:
            self.counters.lost_streams += 1
            if stream.cached is not None:
                repair.holes.give_up(group, stream.cached.scan().complete_id + 1)
            stream.close(SOURCE_LOST, now)

    # -- what is missing elsewhere -----------------------------------------------------------------

    def _look_at_reached(self, now: float) -> None:
        """Nodes that no way led to for a while have missed what was sent meanwhile.

        So may one whose way is another because a relay on the old one has none any more, or only a
        longer one: it may have led there before anybody noticed that a link on it was dead, so that
        no relay after that link knows that anything was sent.
        """
        for flow, node_id, old, decided, is_forbidden in self._sets.take_reached():
            route = flow.routes.get(node_id)
            if decided.link is None or route is None or route.link is None:
                flow.unreached_at.setdefault(node_id, now if is_forbidden else now - LOST_S)
            if route is None or route.link is None:
                continue
            since = flow.unreached_at.pop(node_id, None)
            if since is not None:
                self.way_lost([(flow, frozenset((node_id,)))], since)
            elif old is not None and self._is_withdrawn(node_id, old):
                self.way_lost([(flow, frozenset((node_id,)))], now - self._back_s)

    def _is_withdrawn(self, node_id: NodeId, old: Route) -> bool:
        """Whether the peer that a way led by has none as short any more; its link is open."""
        if old.path is None or old.link not in self._links.peer_links:
            return False
        peer_id, hops = old.path.peer_id, old.path.hops
        paths = self._nodes.paths(node_id)
        return all(path.peer_id != peer_id or path.hops > hops for path in paths)

    def _send_again(self, now: float) -> None:
        """Send what was lost by another way, ahead of what comes next: so it arrives in order.

        The relays that it is for ask for it too, but not all of them may.
        """
        left = MOST_SENT_AGAIN
        while self._lost_ways and left:
            since, link_id, flows = self._lost_ways[0]
            if (item := next(flows, None)) is None:
                self._lost_ways.popleft()
                continue
            left -= 1
            flow, nodes = self._sets.flow(item[0].key), item[1]
            if flow is None or not isinstance(flow.key, FromClient):
                continue
            track = self._tracks.get(flow.key.track)
            for node_id in () if track is None else sorted(nodes & flow.targets):
                route = flow.routes.get(node_id)
                if track and route and route.link not in (None, link_id):
                    self.counters.sent += self._reach.replay(track, node_id, since, now, (), now)

    # -- messages ----------------------------------------------------------------------------------

    def receive(self, message: RepairRequest | RepairResponse, now: float) -> None:
        """Another relay asks, or answers."""
        if isinstance(message, RepairRequest):
            self._serve(message, now)
            return
        repair = self._requests.pop(message.request_id, None)
        if repair is not None:
            repair.is_answered, repair.answered_at = True, now
            repair.waits_for.remove(message.request_id)
            repair.is_lacking |= bool(message.sent) or not self._links.is_heard(message.last_hop)
            track = self._tracks.get(repair.key)
            if track is not None and not (repair.waits_for or repair.is_lacking or _broken(track)):
                track.in_order.end(track, now)

    def _serve(self, request: RepairRequest, now: float) -> None:
        track, asker, sent = self._tracks.get(request.full_name_hash), request.source_node_id, 0
        choice, stub = self._nodes.data_choice(asker), self._reach.stub(asker)
        if choice is not None:
            srtt_us = choice.path.srtt_us
        elif stub is not None:
            srtt_us = stub.srtt_us
        else:
            return  # it asks again, and there may be a way by then
        asked = since = now - request.age_ms / 1000
        if stub is not None and request.full_name_hash in stub.kept_aside:
            track = None
        if track is not None:
            since = missing_since(track, request, srtt_us / 1e6, now)
            until = under_way_since(track, request.have, srtt_us / 1e6, now)
            sent = self._reach.replay(track, asker, since, until, request.have, now)
        self.counters.served += bool(sent)
        self.counters.sent += sent
        if choice is not None:
            path = choice.path.info.path
            last_hop = path[0].node_id if path else self._self_id
            if track is not None and not self._is_sent_to(track, asker):
                last_hop = NOBODY
        else:
            has_all = track is not None and stub in track.subscribers and self._has(track, asked)
            last_hop = self._self_id if has_all else NOBODY
        response = RepairResponse(
            MAX_HOPS, self._self_id, asker, request.request_id, sent, last_hop
        )
        self._reach.send(asker, response)

    def _has(self, track: Track, since: float) -> bool:
        """Whether all that came of a track since a time is here; if not, it is asked for.

        A Stub that has lost its Edge turns to another one, where nobody may have wanted the track.
        """
        if track.key in self._open:
            return False
        shared = self._tracks.shared
        fed = [shared.fed.get(source) for source in shared.feeding.get(track.key, ())]
        if not self.can_ask(track) or any(it is not None and it.since <= since for it in fed):
            return True
        if track.repaired_since is not None and track.repaired_since <= since + SPREAD_S:
            return True
        shared.missing(track.key, Lost(since, since, sudden=True))
        return False

    def _is_sent_to(self, track: Track, node_id: NodeId) -> bool:
        """Whether what is published of a track from now on goes to a node, if anything is."""
        if not self._subscribes.is_known(node_id, track.key):
            return False
        flows = [self._sets.flow(it.flow_key) for it in track.publishers.values()]
        return not flows or any(flow is not None and node_id in flow.targets for flow in flows)


def _broken(track: Track) -> bool:
    return any(stream.is_broken for stream in track.streams.values())
