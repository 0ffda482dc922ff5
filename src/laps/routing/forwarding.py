"""Where data goes: subscriber node sets, and the map from what comes in to what goes out.

A flow is one data context on its way through this relay: a publisher's track, or an SNS that a
peer advertised. It has target nodes. For each target, selection names the link that leads to it;
the targets of one link are that link's SNS, under an id of the link's own:

    flow -> { link: (SNS id, nodes) }        and, for what selection finds no link, nothing

As targets come and go, a set is updated in place, under the same id. When a target moves from one
link to another, both links' sets are made anew, under new ids, the new link's first. A stream that
arrives before the message about its set then waits for it; under an old id it would go where the
set was before, and arrive twice or not at all. An old set is kept as long as streams still run on
it: the new path carries new streams while the old one finishes its own.

What changes is only written down at first: `install`, `reroute` and `close_link` name the targets
whose way has to be decided, and `settle` decides them for one flow. So a thousand targets that join
a flow are a few messages, and a neighbour that is lost, with ten thousand flows that went there, is
work for many turns of a loop. A flow that is about to be used is settled first.

Where a link or a node concerns very many flows, even that is written down for some of them at a
time (`spread`). What has not come to a flow yet is found when it is settled.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from laps.routing.flows import Flow, FromClient, FromPeer, OutSet, Reached, SnsUpdate
from laps.routing.terms import NOTHING
from laps.tables import Table
from laps.types import SnsId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from laps.routing.flows import FlowKey, LinkId, Route
    from laps.routing.terms import Onward, Terms
    from laps.types import NodeId, TrackName

LAST_SNS_ID: Final = 2**32 - 1

# 1 µs each: with more flows than these to be settled, others are not written down yet.
MOST_AT_ONCE: Final = 200

K = TypeVar("K")


class Router(Protocol):
    """Decides which way a flow takes to a node."""

    def route(self, flow: Flow, node_id: NodeId) -> Route:
        """The way to a node, and why."""

    def terms(self, flow: Flow) -> Terms:
        """What holds for a flow that is no peer's."""

    def forbids(self, flow: Flow, route: Route) -> bool:
        """Whether a flow may not take a way that it took until now."""

    def onward_again(self, flow: Flow, link: LinkId, told: Onward | None) -> Onward | None:
        """What a peer is told of a set of before, as the terms are now."""

    def onward(self, flow: Flow, link: LinkId, nodes: Iterable[NodeId]) -> Onward | None:
        """What a peer is told with a set; None: nothing."""


class SnsIds:
    """The ids of one link, as its sender: from one, ever upwards, and round to one again."""

    def __init__(self) -> None:
        self._last = 0
        self._used: Table[SnsId, Flow | None] = Table()

    def __len__(self) -> int:
        """How many are in use."""
        return len(self._used)

    def take(self, flow: Flow | None = None) -> SnsId:
        """The next id that is not in use, for a flow."""
        while True:
            self._last = self._last % LAST_SNS_ID + 1
            if self._last not in self._used:
                break
        sns_id = SnsId(self._last)
        self._used[sns_id] = flow
        return sns_id

    def flow(self, sns_id: SnsId) -> Flow | None:
        """The flow that an id is in use for."""
        return self._used.get(sns_id)

    def give_back(self, sns_id: SnsId) -> None:
        """The id was withdrawn."""
        self._used.pop(sns_id, None)


class Fib:
    """All flows, and an index from a target node to the flows that go there."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self.abandoned: dict[tuple[Flow, LinkId, SnsId], bool] = {}
        """Sets with streams that are to be ended: no node is left for them; or, if True, they may
        not go there any more, and their nodes get the rest by another way."""
        self.judged: list[tuple[Flow, NodeId, Route]] = []
        "Targets of our own publishers that policy refuses now, or no longer does."
        self.reached: list[Reached] = []
        "Targets of our own publishers whose way is another or none."
        self.reordered: dict[Flow, None] = {}
        "Those that are of another class of service than before."
        self.changes = 0
        "Goes up whenever something may go elsewhere, or nowhere any more."
        self.unsettled: dict[Flow, None] = {}
        "Flows that have to be settled, in the order that this was found out."
        self._made = 0
        self._flows: Table[FlowKey, Flow] = Table()
        self._by_target: dict[NodeId, Table[int, Flow]] = {}
        "By their serial numbers, so that what happens to several happens in one order."
        self._by_link: dict[LinkId, Table[int, Flow]] = {}
        self._spreading: deque[Iterator[None]] = deque()
        "What concerns very many flows: each step writes it down for one of them."
        self._moved: Counter[NodeId] = Counter()
        "The nodes and links that these are of; the next likewise."
        self._shared: Counter[LinkId] = Counter()
        self._closed: Counter[LinkId] = Counter()
        self._reconsidering = 0
        "How many of them are of every flow."
        self._ids: dict[LinkId, SnsIds] = {}
        self._running: dict[LinkId, dict[Flow, None]] = {}
        "Flows with streams that run on a link, under the set of now."

    def __len__(self) -> int:
        return len(self._flows)

    def __iter__(self) -> Iterator[Flow]:
        return self._flows.values()

    def get(self, key: FlowKey) -> Flow | None:
        """The flow, if there is one."""
        return self._flows.get(key)

    def install(
        self,
        key: FlowKey,
        targets: Iterable[NodeId],
        *,
        local: bool,
        name: TrackName | None = None,
        told: Onward = NOTHING,
    ) -> Flow:
        """Make or change a flow; only the way to targets that are new to it is decided anew.

        `name` is that of the track, and `told` what the peer that it comes from says of it.
        """
        flow = self._flows.get(key)
        if flow is None:
            self._made += 1
            flow = self._flows[key] = Flow(key, self._made)
        flow.local, flow.withdrawn = local, False
        flow.name = name or flow.name
        if told != flow.told:
            self._hold_to(flow, told.terms)
            flow.is_judged_anew = True
            flow.told, flow.ways = told, told.hops()
            flow.undecided |= flow.targets
            self._unsettle(flow)
        wanted = frozenset(targets)
        if wanted == flow.targets:
            return flow
        for node in flow.targets - wanted:
            _unindex(self._by_target, node, flow)
            flow.routes.pop(node, None)
        for node in wanted - flow.targets:
            _index(self._by_target, node, flow)
            flow.undecided.add(node)
        flow.targets = wanted
        self._unsettle(flow)
        return flow

    def remove(self, key: FlowKey) -> list[SnsUpdate]:
        """The flow has ended: its sets go, with whatever streams still run."""
        flow = self._flows.get(key)
        if flow is None:
            return []
        updates = self.settle(self.install(key, (), local=False, told=flow.told))
        updates += [self._drop(flow, *old) for old in list(flow.old)]
        del self._flows[key]
        return updates

    def reroute(self, nodes: Iterable[NodeId], *, passing: bool = False) -> None:
        """Selection may have changed for these nodes: only flows that go there are looked at.

        Where the best way is as it was, that is so for those that are `passing` from a peer: they
        may take another, so as not to turn back.
        """
        for node in nodes:
            if (flows := self._by_target.get(node)) is not None:
                self._moved[node] += 1
                self._begin(self._move(flows.values(), node, passing=passing), len(flows))

    def reconsider(self) -> None:
        """What flows may do is another: every flow is looked at."""
        self._reconsidering += 1
        self._begin(self._reconsider(self._flows.values()), len(self._flows))

    def _reconsider(self, flows: Iterable[Flow]) -> Iterator[None]:
        for flow in flows:
            self._judge_anew(flow)
            yield
        self._reconsidering -= 1

    def _judge_anew(self, flow: Flow) -> None:
        flow.is_judged_anew = True
        flow.undecided |= flow.targets
        self._unsettle(flow)

    def _move(self, flows: Iterable[Flow], node: NodeId, *, passing: bool) -> Iterator[None]:
        for flow in flows:
            if node in flow.targets and (not passing or isinstance(flow.key, FromPeer)):
                flow.undecided.add(node)
                self._unsettle(flow)
            yield
        _count_down(self._moved, node)

    def share(self, links: Iterable[LinkId]) -> None:
        """Their peer has one link more: flows are spread anew, each with all its nodes there."""
        for link in links:
            if (flows := self._by_link.get(link)) is not None:
                self._shared[link] += 1
                self._begin(self._share(flows.values(), link), len(flows))

    def _share(self, flows: Iterable[Flow], link: LinkId) -> Iterator[None]:
        for flow in flows:
            if (out := flow.outs.get(link)) is not None:
                flow.undecided |= out.nodes
                self._unsettle(flow)
            yield
        _count_down(self._shared, link)

    def uses(self, link: LinkId) -> bool:
        """Whether any flow has a set on a link."""
        return link in self._by_link

    def running_on(self, link: LinkId) -> list[Flow]:
        """The flows with streams that run on a link."""
        return list(self._running.get(link, ()))

    def under(self, link: LinkId, sns_id: SnsId) -> Flow | None:
        """The flow that is sent on a link under an id."""
        ids = self._ids.get(link)
        return None if ids is None else ids.flow(sns_id)

    def published_on(self, link: LinkId) -> list[tuple[Flow, frozenset[NodeId]]]:
        """The flows of our own publishers that take a link, and the nodes they go to that way."""
        flows = self._by_link.get(link)
        return [
            (flow, flow.outs[link].nodes)
            for flow in (() if flows is None else flows.values())
            if link in flow.outs and isinstance(flow.key, FromClient)
        ]

    def close_link(self, link: LinkId) -> None:
        """A link is gone, and all its sets with it; its targets move to where selection says."""
        flows = self._by_link.pop(link, None)
        self._ids.pop(link, None)
        if flows is not None:
            self._closed[link] += 1
            self._begin(self._close(flows.values(), link), len(flows))

    def _close(self, flows: Iterable[Flow], link: LinkId) -> Iterator[None]:
        for flow in flows:
            self._lose(flow, link)
            yield
        _count_down(self._closed, link)

    def _lose(self, flow: Flow, link: LinkId) -> None:
        lost = flow.outs.pop(link, None)
        self._stopped(flow, link)
        for old in [old for old in flow.old if old[0] == link]:
            del flow.old[old]
        if lost is not None:
            flow.lost |= lost.nodes
            flow.undecided |= lost.nodes
            self._unsettle(flow)

    # -- what concerns very many flows -------------------------------------------------------------

    def _begin(self, steps: Iterator[None], count: int) -> None:
        if not self._spreading and len(self.unsettled) + count <= MOST_AT_ONCE:
            deque(steps, maxlen=0)
        else:
            self._spreading.append(steps)

    def spread(self, most: int) -> None:
        """Write down for some more flows what concerns very many."""
        while self._spreading and most > 0:
            if next(self._spreading[0], self) is self:
                self._spreading.popleft()
            most -= 1

    @property
    def is_spreading(self) -> bool:
        """Whether `spread` has more to do."""
        return bool(self._spreading)

    def refresh(self, flow: Flow) -> None:
        """Write down for a flow what has not come to it yet."""
        if not self._spreading:
            return
        for link in {*flow.outs, *(link for link, _ in flow.old)}:
            if link in self._closed:
                self._lose(flow, link)
            elif link in self._shared and link in flow.outs:
                flow.undecided |= flow.outs[link].nodes
                self._unsettle(flow)
        if self._reconsidering:
            self._judge_anew(flow)
        for node in flow.targets if self._moved else ():
            if node in self._moved:
                flow.undecided.add(node)
                self._unsettle(flow)

    def _unsettle(self, flow: Flow) -> None:
        flow.settled = False
        self.unsettled[flow] = None

    def sets_on(self, link: LinkId) -> Iterator[SnsUpdate]:
        """All sets of a link, those that wait for their streams to end too, as they are by then."""
        flows = self._by_link.get(link)
        for flow in () if flows is None else flows.values():
            outs = [out for (at, _), out in flow.old.items() if at == link]
            if (current := flow.outs.get(link)) is not None:
                outs.append(current)
            for out in outs:
                yield SnsUpdate(link, out.sns_id, tuple(sorted(out.nodes)), out.onward)

    def stream_opened(self, flow: Flow, link: LinkId) -> None:
        """A stream of the flow now runs on a link."""
        if (out := flow.outs.get(link)) is not None:
            if not out.streams:
                self._running.setdefault(link, {})[flow] = None
            out.streams += 1

    def stream_closed(self, flow: Flow, link: LinkId, sns_id: SnsId) -> SnsUpdate | None:
        """A stream has ended; the last one of an old set takes the set with it."""
        out = flow.outs.get(link)
        if out is not None and out.sns_id == sns_id:
            out.streams -= 1
            if not out.streams:
                self._stopped(flow, link)
            return None
        old = flow.old.get((link, sns_id))
        if old is None:
            return None
        old.streams -= 1
        return None if old.streams else self._drop(flow, link, sns_id)

    def _decide(self, flow: Flow, before: dict[NodeId, LinkId]) -> dict[NodeId, Route]:
        """Ask for the way to each target whose way may be another by now; the ways of before."""
        lasts: dict[NodeId, Route] = {}
        undecided, flow.undecided = flow.undecided, set()
        is_ours = not isinstance(flow.key, FromPeer)
        if is_ours:
            self._hold_to(flow, self._router.terms(flow))
        for node in sorted(undecided & flow.targets):
            last = flow.routes.get(node)
            old = last if node in before else None
            route = flow.routes[node] = self._router.route(flow, node)
            is_forbidden = False
            if last is not None and last.link is not None:
                lasts[node] = last
                is_forbidden = self._router.forbids(flow, last)
                if route.is_refused or is_forbidden:
                    flow.forbidden.add(last.link)
            if isinstance(flow.key, FromClient):
                if route.is_refused or (last is not None and last.is_refused):
                    self.judged.append((flow, node, route))
                is_another = old is not None and route.is_another(old)
                if route.link is None or node in flow.unreached_at or is_another:
                    is_forbidden = is_forbidden and old is not None  # its link is there
                    self.reached.append(Reached(flow, node, old, route, is_forbidden))
        return lasts

    def _hold_to(self, flow: Flow, terms: Terms) -> None:
        if terms.order != flow.terms.order:
            self.reordered[flow] = None
        flow.terms = terms

    def settle(self, flow: Flow) -> list[SnsUpdate]:
        """Give each target to the link that leads to it; the updates to tell the peers."""
        self.refresh(flow)
        self.unsettled.pop(flow, None)
        if flow.settled:
            return []
        self.changes += 1
        flow.settled = True
        lost, flow.lost = flow.lost, set()
        before = {node: link for link, out in flow.outs.items() for node in out.nodes}
        lasts = self._decide(flow, before)
        wanted: dict[LinkId, set[NodeId]] = {}
        for node, route in flow.routes.items():
            if route.link is not None:
                wanted.setdefault(route.link, set()).add(node)
        moved = {
            node
            for link, nodes in wanted.items()
            for node in nodes
            if node in lost or before.get(node, link) != link
        }
        forbidden, flow.forbidden = flow.forbidden, set()
        for link in forbidden:
            self._retire(flow, link, lasts)
        advertised: list[SnsUpdate] = []
        for link, nodes in sorted(wanted.items()):
            out = flow.outs.get(link)
            onward = self._router.onward(flow, link, nodes)
            if out is not None and onward is None and out.onward is not None:
                onward = NOTHING
            if out is not None and out.nodes == nodes and onward == out.onward:
                continue
            if out is None or not moved.isdisjoint(out.nodes ^ nodes):
                self._retire(flow, link, lasts)
                ids = self._ids.setdefault(link, SnsIds())
                out = flow.outs[link] = OutSet(ids.take(flow), frozenset())
                _index(self._by_link, link, flow)
            out.nodes, out.onward = frozenset(nodes), onward
            advertised.append(SnsUpdate(link, out.sns_id, tuple(sorted(nodes)), onward))
        for link in [link for link in flow.outs if link not in wanted]:
            self._retire(flow, link, lasts)
        advertised += self._judge_old(flow, forbidden)
        # The new path is there before the old one goes.
        over = [old for old, out in flow.old.items() if not out.streams]
        return advertised + [self._drop(flow, *old) for old in over]

    def _judge_old(self, flow: Flow, forbidden: set[LinkId]) -> Iterator[SnsUpdate]:
        """Which streams are to end, of those that run under sets of before.

        What its nodes may not have that way any more ends, and what is for nodes that have left.
        Nodes that have moved get the rest of a stream by the old way. Where the terms are others,
        the peer is told, so that it and those after it judge as well.
        """
        is_anew, flow.is_judged_anew = flow.is_judged_anew, False
        for (link, sns_id), out in flow.old.items():
            if not out.streams:
                continue
            is_forbidden = link in forbidden
            if is_anew and not is_forbidden:
                is_forbidden = any(self._router.forbids(flow, route) for route in out.routes)
                onward = self._router.onward_again(flow, link, out.onward)
                if not is_forbidden and onward != out.onward:
                    out.onward = onward
                    yield SnsUpdate(link, sns_id, tuple(sorted(out.nodes)), onward)
            if is_forbidden or out.nodes.isdisjoint(flow.targets):
                self.abandoned[flow, link, sns_id] = is_forbidden

    def _retire(self, flow: Flow, link: LinkId, lasts: Mapping[NodeId, Route]) -> None:
        if (out := flow.outs.pop(link, None)) is not None:
            flow.old[link, out.sns_id] = out
            ways = (lasts.get(node) or flow.routes.get(node) for node in out.nodes)
            out.routes = tuple(dict.fromkeys(it for it in ways if it and it.link == link))
            self._stopped(flow, link)

    def _stopped(self, flow: Flow, link: LinkId) -> None:
        """No stream runs on a link, under the set of now."""
        flows = self._running.get(link)
        if flows is not None and flow in flows:
            del flows[flow]
            if not flows:
                del self._running[link]

    def _drop(self, flow: Flow, link: LinkId, sns_id: SnsId) -> SnsUpdate:
        del flow.old[link, sns_id]
        if link not in flow.outs and all(old_link != link for old_link, _ in flow.old):
            _unindex(self._by_link, link, flow)
        if (ids := self._ids.get(link)) is not None:
            ids.give_back(sns_id)
        return SnsUpdate(link, sns_id, ())


def _count_down(counts: Counter[K], key: K) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _index(index: dict[K, Table[int, Flow]], key: K, flow: Flow) -> None:
    flows = index.get(key)
    if flows is None:
        flows = index[key] = Table()
    flows[flow.serial] = flow


def _unindex(index: dict[K, Table[int, Flow]], key: K, flow: Flow) -> None:
    flows = index.get(key)
    if flows is not None:
        flows.pop(flow.serial, None)
        if not flows:
            del index[key]
