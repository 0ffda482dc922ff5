"""Flows, the sets they have on each link, and the order in which sets come and go."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.infobase.nodes import SessionId
from laps.routing import forwarding
from laps.routing.flows import FromClient, FromPeer, Route, SnsUpdate, ToNode
from laps.routing.forwarding import Fib, SnsIds
from laps.types import NodeId, SnsId, TrackKey
from support.routes import NoRoutes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from laps.routing.flows import Flow, FlowKey

A, B, C, D = map(NodeId, (101, 102, 103, 104))
ONE, TWO, THREE = map(SessionId, (1, 2, 3))
TRACK = TrackKey(7)
X, Y, Z = FromPeer(SessionId(9), SnsId(1)), FromClient("app", TRACK), ToNode(D, TRACK, 1)


class Routes(NoRoutes):
    """Selection, as the test has it: node -> link."""

    def __init__(self) -> None:
        self.to: dict[NodeId, SessionId] = {}
        self.asked: list[tuple[FlowKey, NodeId]] = []

    def route(self, flow: Flow, node_id: NodeId) -> Route:
        self.asked.append((flow.key, node_id))
        return Route(self.to.get(node_id), None, "")


@pytest.fixture
def routes() -> Routes:
    routes = Routes()
    routes.to = {A: ONE, B: ONE, C: TWO}
    return routes


class AtOnce:
    """A FIB whose every change is settled at once, for tests of what a change leads to."""

    def __init__(self, routes: Routes) -> None:
        self.fib = Fib(routes)

    def __len__(self) -> int:
        return len(self.fib)

    def __iter__(self) -> Iterator[Flow]:
        return iter(self.fib)

    def _settled(self) -> list[SnsUpdate]:
        flows = sorted(self.fib.unsettled, key=lambda flow: flow.serial)
        return [update for flow in flows for update in self.fib.settle(flow)]

    def get(self, key: FlowKey) -> Flow | None:
        return self.fib.get(key)

    def install(self, key: FlowKey, targets: Iterable[NodeId], *, local: bool) -> list[SnsUpdate]:
        self.fib.install(key, targets, local=local)
        return self._settled()

    def remove(self, key: FlowKey) -> list[SnsUpdate]:
        return self.fib.remove(key)

    def reroute(self, nodes: Iterable[NodeId]) -> list[SnsUpdate]:
        self.fib.reroute(nodes)
        return self._settled()

    def close_link(self, link: SessionId) -> list[SnsUpdate]:
        self.fib.close_link(link)
        return self._settled()

    def stream_opened(self, flow: Flow, link: SessionId) -> None:
        self.fib.stream_opened(flow, link)

    def stream_closed(self, flow: Flow, link: SessionId, sns_id: SnsId) -> SnsUpdate | None:
        return self.fib.stream_closed(flow, link, sns_id)


@pytest.fixture
def fib(routes: Routes) -> AtOnce:
    return AtOnce(routes)


def adv(link: SessionId, sns_id: int, *nodes: NodeId) -> SnsUpdate:
    return SnsUpdate(link, SnsId(sns_id), nodes)


def wd(link: SessionId, sns_id: int) -> SnsUpdate:
    return SnsUpdate(link, SnsId(sns_id), ())


def flow_of(fib: AtOnce, key: FlowKey) -> Flow:
    flow = fib.get(key)
    assert flow is not None
    return flow


# -- ids -------------------------------------------------------------------------------------------


def test_ids_begin_at_one_and_rise() -> None:
    ids = SnsIds()
    assert [ids.take() for _ in range(3)] == [1, 2, 3]
    ids.give_back(SnsId(2))
    assert ids.take() == 4


def test_ids_wrap_to_one_and_pass_over_those_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert forwarding.LAST_SNS_ID == 2**32 - 1
    monkeypatch.setattr(forwarding, "LAST_SNS_ID", 4)
    ids = SnsIds()
    assert [ids.take() for _ in range(4)] == [1, 2, 3, 4]
    ids.give_back(SnsId(1))
    ids.give_back(SnsId(3))
    assert [ids.take(), ids.take()] == [1, 3]
    ids.give_back(SnsId(2))
    assert ids.take() == 2


def test_each_link_counts_for_itself(fib: AtOnce) -> None:
    assert fib.install(X, [A, C], local=False) == [adv(ONE, 1, A), adv(TWO, 1, C)]
    assert fib.install(Y, [C], local=False) == [adv(TWO, 2, C)]
    assert fib.install(Z, [A], local=False) == [adv(ONE, 2, A)]


# -- sets ------------------------------------------------------------------------------------------


def test_the_same_id_is_updated_in_place(fib: AtOnce) -> None:
    assert fib.install(X, [A], local=False) == [adv(ONE, 1, A)]
    assert fib.install(X, [B, A], local=False) == [adv(ONE, 1, A, B)]
    assert fib.install(X, [B], local=False) == [adv(ONE, 1, B)]
    assert fib.install(X, [B], local=False) == []
    assert flow_of(fib, X).current() == [(ONE, 1)]


def test_the_last_target_takes_the_set_with_it(fib: AtOnce) -> None:
    fib.install(X, [A, C], local=True)
    assert fib.install(X, [C], local=True) == [wd(ONE, 1)]
    assert fib.install(X, [], local=True) == [wd(TWO, 1)]
    assert flow_of(fib, X).current() == []
    assert flow_of(fib, X).local


def test_an_id_that_was_withdrawn_is_not_the_next(fib: AtOnce) -> None:
    fib.install(X, [A], local=False)
    fib.install(X, [], local=False)
    assert fib.install(X, [A], local=False) == [adv(ONE, 2, A)]


def test_two_flows_to_one_node_are_two_sets(fib: AtOnce) -> None:
    fib.install(X, [A], local=False)
    fib.install(Y, [A], local=False)
    assert flow_of(fib, X).current() == [(ONE, 1)]
    assert flow_of(fib, Y).current() == [(ONE, 2)]
    assert fib.remove(X) == [wd(ONE, 1)]
    assert flow_of(fib, Y).current() == [(ONE, 2)]


def test_removing_ends_every_set_also_under_streams(fib: AtOnce) -> None:
    fib.install(X, [A, C], local=True)
    fib.stream_opened(flow_of(fib, X), ONE)
    assert sorted(fib.remove(X), key=lambda u: u.link) == [wd(ONE, 1), wd(TWO, 1)]
    assert fib.get(X) is None
    assert len(fib) == 0
    assert fib.remove(X) == []


def test_what_cannot_be_reached_has_no_set_until_it_can(fib: AtOnce, routes: Routes) -> None:
    assert fib.install(X, [D], local=False) == []
    routes.to[D] = THREE
    assert fib.reroute([D]) == [adv(THREE, 1, D)]
    del routes.to[D]
    assert fib.reroute([D]) == [wd(THREE, 1)]


def test_a_flow_keeps_the_way_to_each_of_its_targets(fib: AtOnce, routes: Routes) -> None:
    fib.install(X, [A, D], local=False)
    flow = flow_of(fib, X)
    assert {node: route.link for node, route in flow.routes.items()} == {A: ONE, D: None}
    routes.to.update({A: TWO, D: THREE})
    fib.reroute([A])
    assert {node: route.link for node, route in flow.routes.items()} == {A: TWO, D: None}
    fib.reroute([D])
    assert {node: route.link for node, route in flow.routes.items()} == {A: TWO, D: THREE}
    fib.install(X, [D], local=False)
    assert list(flow.routes) == [D]


# -- another way -----------------------------------------------------------------------------------


def test_the_new_link_is_told_before_the_old_one_goes(fib: AtOnce, routes: Routes) -> None:
    fib.install(X, [A], local=False)
    routes.to[A] = TWO
    assert fib.reroute([A]) == [adv(TWO, 1, A), wd(ONE, 1)]


def test_the_order_holds_whichever_link_is_the_lower(fib: AtOnce, routes: Routes) -> None:
    routes.to[A] = TWO
    fib.install(X, [A], local=False)
    routes.to[A] = ONE
    assert fib.reroute([A]) == [adv(ONE, 1, A), wd(TWO, 1)]


def test_a_target_that_moves_makes_both_sets_anew(fib: AtOnce, routes: Routes) -> None:
    # A new stream may be ahead of the word about its set. Under an old id it would go to A by both
    # links; under a new one it waits.
    fib.install(X, [A, B, C], local=False)
    fib.install(Y, [B], local=False)
    routes.to[A] = TWO
    assert fib.reroute([A]) == [
        adv(ONE, 3, B),
        adv(TWO, 2, A, C),
        wd(ONE, 1),
        wd(TWO, 1),
    ]
    assert flow_of(fib, X).current() == [(ONE, 3), (TWO, 2)]


def test_who_leaves_while_others_move_is_out_of_the_new_sets(fib: AtOnce, routes: Routes) -> None:
    fib.install(X, [A, B, C], local=False)
    routes.to[A] = TWO
    fib.fib.reroute([A])
    assert fib.install(X, [A, B], local=False) == [
        adv(ONE, 2, B),
        adv(TWO, 2, A),
        wd(ONE, 1),
        wd(TWO, 1),
    ]


def test_an_old_set_is_kept_while_streams_run_on_it(fib: AtOnce, routes: Routes) -> None:
    fib.install(X, [A], local=False)
    flow = flow_of(fib, X)
    fib.stream_opened(flow, ONE)
    fib.stream_opened(flow, ONE)
    routes.to[A] = TWO
    assert fib.reroute([A]) == [adv(TWO, 1, A)]
    assert flow.current() == [(TWO, 1)]
    assert fib.stream_closed(flow, ONE, SnsId(1)) is None
    assert fib.stream_closed(flow, ONE, SnsId(1)) == wd(ONE, 1)
    assert fib.stream_closed(flow, ONE, SnsId(1)) is None


def test_a_target_that_comes_back_does_not_take_the_old_set_up_again(
    fib: AtOnce, routes: Routes
) -> None:
    fib.install(X, [A], local=False)
    flow = flow_of(fib, X)
    fib.stream_opened(flow, ONE)
    routes.to[A] = TWO
    fib.reroute([A])
    routes.to[A] = ONE
    assert fib.reroute([A]) == [adv(ONE, 2, A), wd(TWO, 1)]
    assert flow.current() == [(ONE, 2)]
    assert fib.stream_closed(flow, ONE, SnsId(1)) == wd(ONE, 1)
    assert flow.current() == [(ONE, 2)]


def test_a_stream_of_a_set_that_is_gone_does_not_count_for_the_next(
    fib: AtOnce, routes: Routes
) -> None:
    fib.install(X, [A], local=False)
    flow = flow_of(fib, X)
    fib.stream_opened(flow, ONE)
    fib.close_link(ONE)
    routes.to[A] = ONE
    fib.install(Y, [A], local=False)
    fib.install(X, [], local=False)
    fib.install(X, [A], local=False)
    (_, sns_id) = flow.current()[0]
    fib.stream_opened(flow, ONE)
    assert sns_id != 1
    assert fib.stream_closed(flow, ONE, SnsId(1)) is None
    fib.install(X, [], local=False)
    assert fib.stream_closed(flow, ONE, sns_id) == wd(ONE, sns_id)


def test_a_link_that_closes_gives_its_targets_to_others(fib: AtOnce, routes: Routes) -> None:
    fib.install(X, [A, B, C], local=False)
    fib.install(Y, [B], local=False)
    fib.install(Z, [C], local=False)
    routes.to.update({A: TWO, B: THREE})
    assert fib.close_link(ONE) == [
        adv(TWO, 3, A, C),
        adv(THREE, 1, B),
        wd(TWO, 1),
        adv(THREE, 2, B),
    ]
    assert fib.close_link(ONE) == []


def test_an_old_set_goes_with_its_link(fib: AtOnce, routes: Routes) -> None:
    fib.install(X, [A], local=False)
    flow = flow_of(fib, X)
    fib.stream_opened(flow, ONE)
    routes.to[A] = TWO
    fib.reroute([A])
    assert fib.close_link(ONE) == []
    assert fib.stream_closed(flow, ONE, SnsId(1)) is None
    assert fib.remove(X) == [wd(TWO, 1)]


def test_only_who_had_no_way_is_said_to_be_reached_when_others_are_decided_anew(
    fib: AtOnce, routes: Routes
) -> None:
    """What each of these may have missed is sent again, so others are not to be among them."""
    fib.install(Y, [A, D], local=False)
    (flow,) = fib
    assert [it.node for it in fib.fib.reached] == [D]
    flow.unreached_at[D] = 1.0
    fib.fib.reached.clear()
    fib.reroute([A])
    assert fib.fib.reached == []
    routes.to[D] = TWO
    fib.reroute([A, D])
    assert [it.node for it in fib.fib.reached] == [D]


def test_a_link_that_closes_takes_what_only_it_reached(fib: AtOnce, routes: Routes) -> None:
    fib.install(X, [A, C], local=False)
    routes.to = {C: TWO}
    assert fib.close_link(ONE) == []
    assert flow_of(fib, X).current() == [(TWO, 1)]


def test_only_flows_that_go_there_are_looked_at(fib: AtOnce, routes: Routes) -> None:
    fib.install(X, [A], local=False)
    fib.install(Y, [C], local=False)
    fib.install(Z, [A, C], local=False)
    routes.asked.clear()
    fib.reroute([A, NodeId(999)])
    assert {key for key, _ in routes.asked} == {X, Z}
    fib.remove(X)
    fib.install(Z, [C], local=False)
    routes.asked.clear()
    assert fib.reroute([A]) == []
    assert routes.asked == []


def test_what_happens_to_several_flows_happens_in_their_order(fib: AtOnce, routes: Routes) -> None:
    for client in "qwertyuiop":
        fib.install(FromClient(client, TRACK), [A], local=False)
    routes.to[A] = THREE
    told = [update.sns_id for update in fib.reroute([A]) if update.nodes]
    assert told == list(range(1, 11))


# -- what is settled, and when ---------------------------------------------------------------------


def test_a_newcomer_alone_is_routed(fib: AtOnce, routes: Routes) -> None:
    fib.install(X, [A, C], local=False)
    routes.asked.clear()
    fib.install(X, [A, B, C], local=False)
    assert routes.asked == [(X, B)]
    routes.asked.clear()
    fib.install(X, [A, B], local=False)
    assert routes.asked == []


def test_of_a_lost_link_only_what_it_carried_is_routed(fib: AtOnce, routes: Routes) -> None:
    fib.install(X, [A, C], local=False)
    fib.install(Y, [C], local=False)
    routes.asked.clear()
    routes.to[A] = TWO
    fib.close_link(ONE)
    assert routes.asked == [(X, A)]


def test_changes_gather_until_a_flow_is_settled(routes: Routes) -> None:
    fib = Fib(routes)
    flow = fib.install(X, [A], local=False)
    fib.install(X, [A, B], local=False)
    fib.install(X, [A, B, C], local=False)
    assert flow.current() == []
    assert list(fib.unsettled) == [flow]
    assert fib.settle(flow) == [adv(ONE, 1, A, B), adv(TWO, 1, C)]
    assert not fib.unsettled
    assert fib.settle(flow) == []


def test_only_what_passes_is_looked_at_where_the_best_way_stays(routes: Routes) -> None:
    fib = Fib(routes)
    for key in every_key:
        fib.settle(fib.install(key, [A], local=False))
    fib.reroute([A], passing=True)
    assert [flow.key for flow in fib.unsettled] == [X]


# -- whatever happens ------------------------------------------------------------------------------

nodes = st.sampled_from([A, B, C, D])
links = st.sampled_from([ONE, TWO, THREE])
every_key: tuple[FlowKey, ...] = (X, Y, Z)
keys = st.sampled_from(every_key)
steps = st.one_of(
    st.tuples(st.just("install"), keys, st.frozensets(nodes)),
    st.tuples(st.just("remove"), keys),
    st.tuples(st.just("route"), nodes, st.none() | links),
    st.tuples(st.just("close"), links),
    st.tuples(st.just("open stream"), keys),
    st.tuples(st.just("end stream"), st.integers(0, 5)),
)


class Told:
    """What the peers know, from the updates alone."""

    def __init__(self) -> None:
        self.sets: dict[tuple[SessionId, SnsId], frozenset[NodeId]] = {}
        self.history: dict[SessionId, list[SnsId]] = {}

    def hear(self, updates: list[SnsUpdate]) -> None:
        for link, sns_id, told in ((u.link, u.sns_id, u.nodes) for u in updates):
            if told:
                assert len(set(told)) == len(told)
                if (link, sns_id) not in self.sets:
                    self.history.setdefault(link, []).append(sns_id)
                self.sets[link, sns_id] = frozenset(told)
            else:
                del self.sets[link, sns_id]

    def close(self, link: SessionId) -> None:
        self.sets = {key: told for key, told in self.sets.items() if key[0] != link}
        self.history.pop(link, None)


@given(st.lists(steps, max_size=40))
def test_each_target_is_in_one_set_and_nothing_is_left_over(
    sequence: list[tuple[object, ...]],
) -> None:
    routes, told = Routes(), Told()
    fib = AtOnce(routes)
    wanted: dict[FlowKey, frozenset[NodeId]] = {}
    streams: list[tuple[Flow, SessionId, SnsId]] = []
    for step in sequence:
        match step:
            case ("install", FromPeer() | FromClient() | ToNode() as key, frozenset() as targets):
                wanted[key] = targets
                told.hear(fib.install(key, targets, local=False))
            case ("remove", FromPeer() | FromClient() | ToNode() as key):
                wanted.pop(key, None)
                told.hear(fib.remove(key))
            case ("route", int(node), link):
                routes.to.pop(NodeId(node), None)
                if isinstance(link, int):
                    routes.to[NodeId(node)] = SessionId(link)
                told.hear(fib.reroute([NodeId(node)]))
            case ("close", int(link)):
                routes.to = {node: to for node, to in routes.to.items() if to != link}
                told.close(SessionId(link))
                told.hear(fib.close_link(SessionId(link)))
            case ("open stream", FromPeer() | FromClient() | ToNode() as key) if (
                flow := fib.get(key)
            ) is not None:
                for to, sns_id in flow.current():
                    fib.stream_opened(flow, to)
                    streams.append((flow, to, sns_id))
            case ("end stream", int(number)) if number < len(streams):
                update = fib.stream_closed(*streams.pop(number))
                told.hear([] if update is None else [update])
        _check(fib, routes, told, wanted, streams)
    for stream in streams:
        update = fib.stream_closed(*stream)
        told.hear([] if update is None else [update])
    for key in list(wanted):
        told.hear(fib.remove(key))
    assert told.sets == {}
    assert len(fib) == 0


def _check(
    fib: AtOnce,
    routes: Routes,
    told: Told,
    wanted: dict[FlowKey, frozenset[NodeId]],
    streams: list[tuple[Flow, SessionId, SnsId]],
) -> None:
    assert {flow.key for flow in fib} == set(wanted)
    live: dict[tuple[SessionId, SnsId], Flow] = {}
    for flow in fib:
        assert flow.targets == wanted[flow.key]
        placed: list[tuple[NodeId, SessionId]] = []
        for link, sns_id in flow.current():
            assert live.setdefault((link, sns_id), flow) is flow
            placed += [(node, link) for node in told.sets[link, sns_id]]
        expected = [(node, routes.to[node]) for node in flow.targets if node in routes.to]
        assert sorted(placed) == sorted(expected)
    # A set that nobody is in any more is there for the streams that run on it.
    for link, sns_id in set(told.sets) - set(live):
        assert any((link, sns_id) == stream[1:] for stream in streams)
    for ids in told.history.values():
        assert all(earlier < later for earlier, later in pairwise(ids))
