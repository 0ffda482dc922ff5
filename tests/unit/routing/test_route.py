"""Which way a flow takes to a node, and what an operator is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.infobase.metrics import Metrics
from laps.infobase.nodes import Nodes, SessionId
from laps.routing.avoided import Avoided
from laps.routing.conditions import Conditions
from laps.routing.flows import Flow, FlowKey, FromClient, FromPeer, Route, ToNode
from laps.routing.graph import Graph
from laps.routing.plan import Plan
from laps.routing.policy import PolicyInForce
from laps.routing.route import Router
from laps.types import NodeId, NodeInfo, NodePathItem, NodeType, SnsId, TrackKey, parse_node_id

if TYPE_CHECKING:
    from collections.abc import Iterable

SELF, NEAR, FAR, TARGET, BEYOND = map(parse_node_id, ("1:1", "2:1", "2:2", "3:1", "4:1"))
TRACK, OTHER_TRACK = TrackKey(7), TrackKey(8)
OWN = FromClient("publisher", TRACK)


class Peers:
    """The links to each peer, as a test has them."""

    def __init__(self) -> None:
        self.nodes: dict[SessionId, NodeId] = {}
        self.sending: list[SessionId] = []
        "The links that data can be sent on."
        self.srtts_us: dict[SessionId, int] = {}
        self.plain: set[NodeId] = set()
        "Peers without extensions."

    def node_of(self, link_id: SessionId) -> NodeId | None:
        return self.nodes.get(link_id)

    def sends_data(self, node_id: NodeId) -> bool:
        return any(self.nodes[link] == node_id for link in self.sending)

    def data_link(self, node_id: NodeId, number: int) -> SessionId | None:
        able = [link for link in self.sending if self.nodes[link] == node_id]
        return able[number % len(able)] if able else None

    def takes_terms(self, link_id: SessionId) -> bool:
        return self.nodes[link_id] not in self.plain

    def data_peers(self) -> Iterable[tuple[NodeId, int]]:
        for session in self.sending:
            yield self.nodes[session], self.srtts_us[session]


class World:
    """A relay with peers, and the ways by them."""

    def __init__(self) -> None:
        self.peers = Peers()
        self.avoided = Avoided()
        self.nodes = Nodes(SELF, self.avoided.select)
        self.metrics = Metrics()
        self.policy = PolicyInForce(SELF, "", self.metrics)
        self.conditions = Conditions()
        self.graph = Graph(SELF, self.nodes, self.metrics, self.peers)
        known = self.graph, self.policy, self.conditions
        self.router = Router(SELF, self.nodes, self.peers, self.avoided, *known)

    def link(
        self, peer: NodeId, srtt_ms: int = 10, *, carries_data: bool = True, sends: bool = True
    ) -> SessionId:
        """One more link to a peer; `sends` if data can be sent on it."""
        session = SessionId(len(self.peers.nodes) + 1)
        self.peers.nodes[session] = peer
        self.peers.srtts_us[session] = srtt_ms * 1000
        if sends:
            self.peers.sending.append(session)
        self.nodes.open_session(session, peer, srtt_ms * 1000, 0.0, carries_data)
        return session

    def leads(self, session: SessionId, node_id: NodeId, *between: NodeId) -> None:
        """A link leads to a node: by its peer and, before that, by others; or it is the peer."""
        peer = self.peers.nodes[session]
        way = () if node_id == peer else (*between, peer)
        path = tuple(NodePathItem(item, 1000) for item in way)
        self.nodes.add(session, NodeInfo(node_id, NodeType.EDGE, path=path))

    def leaves(self, session: SessionId) -> None:
        """The peer at the other end is about to leave."""
        self.avoided.leave([session])
        self.nodes.reselect(session)

    def route(self, key: FlowKey = OWN, node_id: NodeId = TARGET, serial: int = 0) -> Route:
        return self.router.route(Flow(key, serial), node_id)

    def follow(self, via: NodeId | None, region: str = "eu") -> None:
        """A plan for the track, and for nodes in a region."""
        way = () if via is None else (via,)
        self.router.plan = Plan(3, 1e10, {TARGET: "eu", BEYOND: "us"}, {TRACK: {region: way}})

    @property
    def counted(self) -> tuple[int, int]:
        """Targets without a way, and plans that were not met."""
        counters = self.router.counters
        return counters.unreachable_targets, counters.unmet_plans


class TwoWays(World):
    """Two peers that lead to one node; the first is the nearer."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = self.link(NEAR, 10), self.link(FAR, 20)
        self.leads(self.near, TARGET)
        self.leads(self.far, TARGET)


@pytest.fixture
def world() -> TwoWays:
    return TwoWays()


def taken(route: Route) -> tuple[SessionId | None, NodeId | None, str]:
    """The link, the peer, and the reason."""
    return route.link, None if route.path is None else route.path.peer_id, route.reason


NEAREST = "lowest sRTT: 11 ms against 21 ms via 2:2"


# -- selection -------------------------------------------------------------------------------------


def test_the_best_way_is_taken_and_says_why(world: TwoWays) -> None:
    assert taken(world.route()) == (world.near, NEAR, NEAREST)
    assert world.counted == (0, 0)


def test_each_of_many_flows_has_its_link_to_the_same_peer(world: TwoWays) -> None:
    second = world.link(NEAR)
    links = [world.route(serial=number).link for number in range(4)]
    assert links == [world.near, second, world.near, second]


# -- a plan ----------------------------------------------------------------------------------------


def test_the_peer_that_the_plan_names_is_taken_where_it_leads_there(world: TwoWays) -> None:
    world.follow(FAR)
    assert taken(world.route()) == (world.far, FAR, "plan 3 says by 2:2")
    assert world.counted == (0, 0)


def test_of_several_ways_by_the_planned_peer_the_best_is_taken(world: TwoWays) -> None:
    shorter = world.link(FAR, 15)
    world.leads(shorter, TARGET)
    world.follow(FAR)
    path = world.route().path
    assert path is not None
    assert path.session == shorter


def test_a_plan_that_says_what_selection_does_is_the_reason(world: TwoWays) -> None:
    world.follow(NEAR)
    assert taken(world.route()) == (world.near, NEAR, "plan 3 says by 2:1")


def test_direct_is_by_the_node_itself(world: TwoWays) -> None:
    straight = world.link(TARGET, 500)
    world.leads(straight, TARGET)
    world.follow(None)
    assert taken(world.route()) == (straight, TARGET, "plan 3 says by 3:1")
    world.follow(NEAR)
    assert world.route().link == world.near


@pytest.mark.parametrize(
    "why", ["no peer", "leads elsewhere", "control", "sends nothing", "leaves"]
)
def test_where_the_plan_is_not_met_selection_decides_and_that_is_counted(
    world: TwoWays, why: str
) -> None:
    named = parse_node_id("2:9")
    if why != "no peer":
        session = world.link(named, 5, carries_data=why != "control", sends=why != "sends nothing")
        world.leads(session, BEYOND if why == "leads elsewhere" else TARGET)
        if why == "leaves":
            world.leaves(session)
    world.follow(named)
    link, peer, reason = taken(world.route())
    assert (link, peer) == (world.near, NEAR)
    selected = f"{NEAREST}; 1 by a peer that leaves" if why == "leaves" else NEAREST
    assert reason == f"{selected}; plan 3 says by 2:9, which does not lead there"
    assert world.counted == (0, 1)


def test_a_plan_that_is_not_met_is_tried_again_when_there_are_other_links(world: TwoWays) -> None:
    named = parse_node_id("2:9")
    world.follow(named)
    assert world.route().link == world.near
    # Weighing has these decided anew whenever links come or go.
    assert world.router.steered == {TARGET}
    world.router.steered.clear()
    session = world.link(named, 5)
    world.leads(session, TARGET)
    assert taken(world.route()) == (session, named, "plan 3 says by 2:9")
    assert world.router.steered == set()


def test_a_planned_peer_that_leaves_is_still_the_way_to_itself(world: TwoWays) -> None:
    straight = world.link(TARGET, 500)
    world.leads(straight, TARGET)
    world.leaves(straight)
    world.follow(None)
    assert taken(world.route()) == (straight, TARGET, "plan 3 says by 3:1")
    assert world.counted == (0, 0)


def test_a_plan_without_any_way_counts_as_both() -> None:
    world = World()
    world.follow(FAR)
    assert taken(world.route()) == (None, None, "no way leads there")
    assert world.counted == (1, 1)
    assert world.router.steered == {TARGET}


@pytest.mark.parametrize(
    "key",
    [
        FromClient("publisher", OTHER_TRACK),
        FromPeer(SessionId(99), SnsId(7)),
        ToNode(TARGET, TRACK, 1),
    ],
    ids=["another track", "from a peer", "to one node"],
)
def test_a_plan_is_for_its_tracks_of_our_own_publishers(world: TwoWays, key: FlowKey) -> None:
    world.follow(FAR)
    assert taken(world.route(key)) == (world.near, NEAR, NEAREST)
    world.follow(parse_node_id("2:9"))
    assert taken(world.route(key)) == (world.near, NEAR, NEAREST)
    assert world.counted == (0, 0)


def test_a_plan_is_for_the_nodes_of_its_regions(world: TwoWays) -> None:
    world.follow(FAR, region="us")
    assert taken(world.route()) == (world.near, NEAR, NEAREST)
    assert world.counted == (0, 0)


# -- back to where it comes from -------------------------------------------------------------------


def test_a_flow_does_not_turn_back(world: TwoWays) -> None:
    route = world.route(FromPeer(world.near, SnsId(1)))
    assert taken(route) == (world.far, FAR, "only path; 1 would turn back to 2:1")
    route = world.route(FromPeer(world.far, SnsId(1)))
    assert taken(route) == (world.near, NEAR, "lowest sRTT: 11 ms against 21 ms via 2:2")
    assert world.counted == (0, 0)


def test_nor_does_it_by_another_link_or_from_further_on(world: TwoWays) -> None:
    world.leads(world.link(NEAR, 1), TARGET)
    roundabout = world.link(parse_node_id("2:3"), 1)
    world.leads(roundabout, TARGET, NEAR)
    route = world.route(FromPeer(world.near, SnsId(1)))
    assert taken(route) == (world.far, FAR, "only path; 3 would turn back to 2:1")


def test_where_every_way_turns_back_none_is_taken(world: TwoWays) -> None:
    world.leads(world.far, TARGET, NEAR)
    route = world.route(FromPeer(world.near, SnsId(1)))
    reason = "every way would turn back to 2:1, where it comes from"
    assert taken(route) == (None, None, reason)
    assert world.counted == (1, 0)
    # Our own publishers are at no peer.
    assert world.route().link == world.near


def test_a_link_whose_peer_is_not_known_is_nowhere_to_turn_back_to(world: TwoWays) -> None:
    assert taken(world.route(FromPeer(SessionId(99), SnsId(1)))) == (world.near, NEAR, NEAREST)


# -- no way ----------------------------------------------------------------------------------------


def test_there_may_be_no_way(world: TwoWays) -> None:
    assert taken(world.route(node_id=BEYOND)) == (None, None, "no way leads there")
    assert taken(world.route(node_id=BEYOND)) == (None, None, "no way leads there")
    assert world.counted == (2, 0)


@pytest.mark.parametrize("why", ["control", "sends nothing"])
def test_ways_for_control_alone_carry_no_data(why: str) -> None:
    world = World()
    session = world.link(NEAR, carries_data=why != "control", sends=why != "sends nothing")
    world.leads(session, TARGET)
    assert taken(world.route()) == (None, None, "no way that leads there carries data")
    assert world.counted == (1, 0)
    # A longer way that does is the only one.
    detour = world.link(FAR, 500)
    world.leads(detour, TARGET, BEYOND)
    reason = "carries data, the path via 2:1 does not" if why == "control" else "only path"
    assert taken(world.route()) == (detour, FAR, reason)
    assert world.counted == (1, 0)


def test_a_way_for_control_alone_may_lead_to_a_peer_that_another_link_sends_data_to() -> None:
    world = World()
    control = world.link(NEAR, carries_data=False, sends=False)
    data = world.link(NEAR)
    world.leads(control, TARGET)
    assert taken(world.route()) == (None, None, "no way that leads there carries data")
    world.leads(data, TARGET)
    reason = "carries data, the path via 2:1 does not"
    assert taken(world.route()) == (data, NEAR, reason)


# -- a peer that leaves ----------------------------------------------------------------------------


def test_a_way_by_a_peer_that_leaves_is_taken_only_where_there_is_no_other(world: TwoWays) -> None:
    world.leaves(world.near)
    reason = "only path; 1 by a peer that leaves"
    assert taken(world.route()) == (world.far, FAR, reason)
    route = world.route(FromPeer(world.far, SnsId(1)))
    assert taken(route) == (world.near, NEAR, "only path; 1 would turn back to 2:2")
    world.leaves(world.far)
    assert taken(world.route()) == (world.near, NEAR, NEAREST)
    assert world.counted == (0, 0)


def test_a_peer_that_leaves_is_avoided_also_where_some_ways_are_of_no_use(world: TwoWays) -> None:
    origin = world.link(parse_node_id("2:3"), 1)
    world.leads(origin, TARGET)
    world.leaves(world.near)
    route = world.route(FromPeer(origin, SnsId(1)))
    reason = "only path; 1 by a peer that leaves; 1 would turn back to 2:3"
    assert taken(route) == (world.far, FAR, reason)


# -- whatever there is -----------------------------------------------------------------------------

peers = st.sampled_from([NEAR, FAR, TARGET])
ways = st.lists(
    st.tuples(peers, st.booleans(), st.booleans(), st.booleans(), st.sets(peers, max_size=2)),
    max_size=5,
)


@given(ways, st.none() | st.integers(1, 5), st.none() | peers)
def test_a_way_is_found_where_there_is_one_and_never_one_that_is_of_no_use(
    ways: list[tuple[NodeId, bool, bool, bool, set[NodeId]]],
    origin: int | None,
    planned: NodeId | None,
) -> None:
    world = World()
    for peer, carries_data, sends, leaves, between in ways:
        session = world.link(peer, carries_data=carries_data, sends=sends)
        world.leads(session, TARGET, *sorted(between - {peer, TARGET}))
        if leaves:
            world.leaves(session)
    key: FlowKey = OWN if origin is None else FromPeer(SessionId(origin), SnsId(1))
    if planned is not None:
        world.follow(planned)
    back = None if origin is None else world.peers.node_of(SessionId(origin))
    able = [
        path
        for path in world.nodes.paths(TARGET)
        if path.carries_data
        and world.peers.sends_data(path.peer_id)
        and back not in (path.peer_id, *(item.node_id for item in path.info.path))
    ]
    staying = [path for path in able if not world.avoided.leads_away(path)]
    by_plan = [path for path in staying if path.peer_id == planned and origin is None]
    route = world.route(key)
    assert route.reason
    if not able:
        assert (route.link, route.path) == (None, None)
        assert world.router.counters.unreachable_targets == 1
        return
    assert world.router.counters.unreachable_targets == 0
    assert route.path in (by_plan or staying or able)
    assert route.link is not None
    assert route.path is not None
    assert world.peers.node_of(route.link) == route.path.peer_id
    unmet = origin is None and planned is not None and not by_plan
    assert world.router.counters.unmet_plans == unmet
