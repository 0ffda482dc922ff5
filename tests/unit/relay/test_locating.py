"""Where nodes are by round trips, and who says that it is elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from laps.infobase.metrics import Metrics
from laps.infobase.nodes import Nodes, SessionId
from laps.relay.journal import Journal
from laps.relay.locating import CLAIMS_S, PEERS_S, PROOF_S, Places
from laps.relay.peers import Links, Peer, PeerLink
from laps.relay.settings import ProbeSettings, RelayCounters
from laps.routing.avoided import Avoided
from laps.routing.graph import Graph
from laps.routing.policy import PolicyInForce
from laps.sessions.peer import PeerSession
from laps.types import (
    Candidate,
    Coordinates,
    NodeId,
    NodeInfo,
    NodeMetrics,
    NodePathItem,
    NodeType,
    PeerMode,
    Reachability,
)

SELF, NEAR, FAR, THIRD, LIAR = map(NodeId, (1, 2, 3, 4, 5))
NEW_YORK, BOSTON, CHICAGO = (40.71, -74.01), (42.36, -71.06), (41.88, -87.63)
LONDON, TOKYO, NOT_SAID = (51.51, -0.13), (35.68, 139.69), (0.0, 0.0)


class FakeLink:
    """A link that only has a round trip."""

    def __init__(self, number: int, srtt_us: int) -> None:
        self.id = SessionId(number)
        self.srtt_us = srtt_us
        self.dialled = self.extended = True


@dataclass
class _Known:
    metrics: Metrics
    policy: PolicyInForce
    graph: Graph


class World:
    """One relay, its peers at round trips that the test says, and what others tell."""

    def __init__(self, said: tuple[float, float] = NEW_YORK, *, enabled: bool = True) -> None:
        avoided = Avoided()
        self.now = 100.0
        self.nodes = Nodes(SELF, avoided.select)
        self.links = Links(RelayCounters(), avoided)
        self.journal = Journal()
        metrics = self.metrics = Metrics()
        known = _Known(
            metrics,
            PolicyInForce(SELF, "", metrics),
            Graph(SELF, self.nodes, metrics, self.links),
        )
        settings = ProbeSettings(enabled=enabled, count=0)
        seen = self.nodes, self.links, known, self.journal, settings
        self.places = Places(SELF, said, *seen, 1)
        self._sequence = 0

    def peer(
        self,
        node_id: NodeId,
        srtt_ms: float,
        said: tuple[float, float] = NOT_SAID,
        node_type: NodeType = NodeType.EDGE,
    ) -> FakeLink:
        info = NodeInfo(node_id, node_type, "", said[1], said[0])
        peer = self.links.peers[node_id] = Peer(info)
        link = FakeLink(node_id, round(1000 * srtt_ms))
        made = PeerLink(link, PeerSession(info), peer, PeerMode.BOTH)  # type: ignore[arg-type]
        peer.links[link.id] = made
        self.nodes.open_session(link.id, node_id, link.srtt_us, 0.0, True)
        self.nodes.add(link.id, info)
        return link

    def know(self, node_id: NodeId, said: tuple[float, float] = NOT_SAID) -> None:
        """A node beyond the first peer."""
        path = (NodePathItem(NEAR, 10),)
        info = NodeInfo(node_id, NodeType.EDGE, "", said[1], said[0], path)
        self.nodes.add(SessionId(NEAR), info)

    def tell(self, node_id: NodeId, **fields: object) -> None:
        """What a node says of itself."""
        self._sequence += 1
        values = {"load": 0.0, "capacity_bps": 0, "egress_bps": 0} | fields
        metrics = NodeMetrics(self._sequence, node_id, **values)  # type: ignore[arg-type]
        self.metrics.add(metrics)

    def reach(self, node_id: NodeId, *others: tuple[NodeId, float]) -> None:
        """A node says how far others are."""
        links = tuple(Reachability(it, round(1000 * ms), 0.0) for it, ms in others)
        self.tell(node_id, reachability=links)

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.places.deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.places.tick(self.now)
        self.now = end

    @property
    def events(self) -> list[tuple[str, str]]:
        return [(it.event.name, it.event.subject) for it in self.journal.recent()]


@pytest.fixture
def world() -> World:
    return World()


def test_the_path_to_a_node_is_as_wide_as_probes_show_and_no_wider_than_it_has_left(
    world: World,
) -> None:
    world.peer(NEAR, 20)
    path = (NodePathItem(NEAR, 10),)
    far = NodeInfo(FAR, NodeType.EDGE, "192.0.2.3:33434", path=path)
    world.nodes.add(SessionId(NEAR), far)
    assert world.places.width_bps(FAR) == 0
    world.places.configure(ProbeSettings(enabled=True, count=1), world.now)
    probing = world.places.probing
    while not probing.outgoing:
        world.pass_time(1)
    train = probing.outgoing.popleft()
    probing.sent(train, world.now)
    for order, number in enumerate(train.numbers):
        probing.answered(number, world.now + 0.02 + order / 1000)
    assert world.places.width_bps(FAR) == 9_600_000
    world.tell(FAR, capacity_bps=10_000_000, egress_bps=9_000_000)
    assert world.places.width_bps(FAR) == 1_000_000
    assert world.places.width_bps(THIRD) == 0


# -- round trips -----------------------------------------------------------------------------------


def test_round_trip_to_a_peer_is_that_of_its_link(world: World) -> None:
    world.peer(NEAR, 12.5)
    assert world.places.round_trip(SELF, NEAR) == world.places.round_trip(NEAR, SELF) == 0.0125
    assert world.places.round_trip(SELF, SELF) == 0


def test_round_trip_between_others_is_what_one_of_them_measured(world: World) -> None:
    world.peer(NEAR, 1)
    world.know(FAR)
    world.know(THIRD)
    assert world.places.round_trip(FAR, THIRD) is None
    world.tell(THIRD, candidates=(Candidate(FAR, 40_000, 0.0),))
    assert world.places.round_trip(FAR, THIRD) == world.places.round_trip(THIRD, FAR) == 0.04
    world.reach(FAR, (THIRD, 30))
    assert world.places.round_trip(FAR, THIRD) == 0.03, "a link is measured all the time"


def test_round_trip_is_told_by_coordinates_of_who_is_sure_and_else_by_the_globe(
    world: World,
) -> None:
    world.peer(NEAR, 1)
    world.know(FAR, NEW_YORK)
    world.know(THIRD, LONDON)
    guess = world.places.round_trip(FAR, THIRD)
    assert guess == pytest.approx(0.0836, rel=0.01)
    here = Coordinates(0, 0, 0, 1, 0.1)
    world.tell(FAR, coordinates=here)
    world.tell(THIRD, coordinates=replace(here, x_ms=50, error=0.9))
    assert world.places.round_trip(FAR, THIRD) == guess
    world.tell(THIRD, coordinates=replace(here, x_ms=50))
    assert world.places.round_trip(FAR, THIRD) == pytest.approx(0.052)


def test_coordinates_come_from_peers_and_are_told_when_they_have_moved(world: World) -> None:
    world.peer(NEAR, 30)
    bare = NodeMetrics(0, SELF, 0.0, 0, 0)
    before = world.places.complete(bare).coordinates
    world.tell(NEAR, coordinates=Coordinates(10, 0, 0, 1, 0.1))
    world.pass_time(2 * PEERS_S)
    assert world.places.own.samples >= 2
    assert before is not None
    moved = world.places.complete(bare).coordinates
    assert moved is not None
    assert moved != before
    world.pass_time(60 * PEERS_S)
    assert world.places.round_trip(SELF, NEAR) == 0.03
    settled = world.places.complete(bare).coordinates
    world.pass_time(10 * PEERS_S)
    assert world.places.complete(bare).coordinates is settled, "it trembles and is not told"


def test_coordinates_are_not_kept_where_probing_is_off() -> None:
    world = World(enabled=False)
    world.peer(NEAR, 30)
    world.tell(NEAR, coordinates=Coordinates(10, 0, 0, 1, 0.1))
    assert world.places.deadline() is None
    world.places.tick(1e6)
    assert world.places.own.samples == 0
    told = world.places.complete(NodeMetrics(0, SELF, 0.0, 0, 0))
    assert told.coordinates is None
    assert told.candidates == ()


def test_best_vias_are_the_nearest_that_have_room(world: World) -> None:
    for node_id, srtt_ms, kind in (
        (NEAR, 10, NodeType.VIA),
        (FAR, 12, NodeType.VIA),
        (THIRD, 5, NodeType.EDGE),
        (LIAR, 30, NodeType.VIA),
    ):
        world.peer(node_id, srtt_ms, node_type=kind)
    reached = tuple(
        Reachability(it, round(1000 * ms), 0.0)
        for it, ms in ((NEAR, 10), (FAR, 12), (THIRD, 5), (LIAR, 30))
    )
    own = NodeMetrics(0, SELF, 0.0, 0, 0, reachability=reached)
    assert world.places.complete(own).best_vias == (NEAR, FAR, LIAR)
    world.tell(NEAR, load=0.5)
    assert world.places.complete(own).best_vias == (FAR, NEAR, LIAR)
    world.tell(FAR, load=0.9)
    assert world.places.complete(own).best_vias == (NEAR, LIAR, FAR)
    world.tell(FAR, best_vias=(NEAR, LIAR))
    assert world.places.best_vias(FAR) == (NEAR, LIAR)
    world.pass_time(PEERS_S)
    assert world.places.probing.vias == {NEAR}, "what others would be reached by is worth knowing"


def test_best_vias_stay_as_told_while_others_are_hardly_better(world: World) -> None:
    for node_id in (NEAR, FAR):
        world.peer(node_id, 10, node_type=NodeType.VIA)

    def told(near_ms: float, far_ms: float) -> tuple[NodeId, ...]:
        pairs = ((NEAR, near_ms), (FAR, far_ms))
        reached = tuple(Reachability(it, round(1000 * ms), 0.0) for it, ms in pairs)
        metrics = NodeMetrics(0, SELF, 0.0, 0, 0, reachability=reached)
        return world.places.complete(metrics).best_vias

    assert told(10, 11) == (NEAR, FAR)
    for near_ms, far_ms in ((11, 10), (10, 11), (11.5, 10), (10, 10)):
        assert told(near_ms, far_ms) == (NEAR, FAR)
    assert told(13, 10) == (FAR, NEAR)
    assert told(10, 11) == (FAR, NEAR)
    world.tell(FAR, load=0.9)
    assert told(13, 10) == (NEAR, FAR), "it is too full"


# -- who is elsewhere ------------------------------------------------------------------------------


def test_a_place_that_light_cannot_reach_in_time_is_reported_once(world: World) -> None:
    world.peer(NEAR, 6, LONDON)
    world.pass_time(20 * PEERS_S)
    assert world.events == [("place_doubted", "0:1 0:2")]
    event = world.journal.recent()[0].event
    assert event.detail == "one of the two is not where it says"
    assert event.reason == (
        "a round trip between 0:1 and 0:2 takes 6 ms, and light needs 37.2 ms for the 5,570 km "
        "that they say"
    )
    assert world.places.doubted(NEAR) == (SELF,)
    assert not world.places.is_elsewhere(NEAR)
    assert world.places.probing.counters.place_doubts == 1


@pytest.mark.parametrize(
    ("srtt_ms", "said"),
    [
        (35.0, LONDON),  # within what a place may be off by
        (80.0, LONDON),
        (0.2, NOT_SAID),
        (0.2, NEW_YORK),
        (1.4, (40.71, -72.5)),
        (500.0, NEW_YORK),  # a long way round proves nothing
    ],
)
def test_a_place_that_can_be_is_not_reported(srtt_ms: float, said: tuple[float, float]) -> None:
    world = World()
    world.peer(NEAR, srtt_ms, said)
    world.pass_time(60)
    assert world.events == []


def test_a_place_is_not_doubted_by_one_who_says_none() -> None:
    world = World(NOT_SAID)
    world.peer(NEAR, 1, LONDON)
    world.pass_time(60)
    assert world.events == []


def test_a_node_that_three_are_too_near_to_is_named(world: World) -> None:
    world.peer(NEAR, 6, BOSTON)
    world.know(FAR, CHICAGO)
    world.know(LIAR, TOKYO)
    world.reach(NEAR, (SELF, 6), (LIAR, 5))
    world.reach(FAR, (NEAR, 20), (LIAR, 18))
    world.pass_time(3 * CLAIMS_S)
    assert [name for name, _ in world.events] == ["place_doubted"] * 2
    assert not world.places.is_elsewhere(LIAR)
    world.peer(LIAR, 8, TOKYO)
    world.pass_time(2 * PEERS_S)
    assert world.events[-1] == ("place_false", "0:5")
    assert world.journal.recent()[-1].event.detail == (
        "it is not where it says: it is too near to 0:1 0:2 0:3"
    )
    assert world.places.is_elsewhere(LIAR)
    assert not any(map(world.places.is_elsewhere, (SELF, NEAR, FAR)))
    world.know(THIRD, BOSTON)
    world.reach(THIRD, (LIAR, 3))
    world.pass_time(3 * CLAIMS_S)
    assert len(world.events) == 3, "it is known by now"


def test_a_relay_that_is_itself_elsewhere_says_so() -> None:
    world = World(TOKYO)
    for node_id, srtt_ms, said in ((NEAR, 6, BOSTON), (FAR, 20, CHICAGO), (THIRD, 2, NEW_YORK)):
        world.peer(node_id, srtt_ms, said)
    world.pass_time(2 * PEERS_S)
    assert world.events[-1] == ("place_false", "0:1")


def test_a_node_that_frames_others_is_named_itself(world: World) -> None:
    world.peer(NEAR, 6, BOSTON)
    for node_id, said in ((FAR, LONDON), (THIRD, TOKYO), (LIAR, CHICAGO)):
        world.know(node_id, said)
    world.reach(LIAR, (FAR, 1), (THIRD, 1), (NEAR, 1))
    world.pass_time(3 * CLAIMS_S)
    assert world.events[-1] == ("place_false", "0:5")


def test_a_place_that_is_put_right_is_doubted_no_more(world: World) -> None:
    link = world.peer(NEAR, 6, LONDON)
    world.pass_time(2 * PEERS_S)
    assert world.places.doubted(SELF) == (NEAR,)
    link.srtt_us = 90_000
    world.pass_time(PROOF_S / 2)
    assert world.places.doubted(SELF) == (NEAR,), "it was nearer a while ago"
    world.nodes.add(link.id, NodeInfo(NEAR, NodeType.EDGE, "", BOSTON[1], BOSTON[0]))
    world.pass_time(2 * PEERS_S)
    assert world.places.doubted(SELF) == ()
    assert world.places._proofs == {}


def test_a_doubt_that_is_never_seen_again_ends(world: World) -> None:
    link = world.peer(NEAR, 6, LONDON)
    world.pass_time(2 * PEERS_S)
    link.srtt_us = 90_000
    world.pass_time(PROOF_S + 2 * PEERS_S)
    assert world.places.doubted(SELF) == ()
    assert len(world.events) == 1


def test_a_doubt_ends_with_its_node(world: World) -> None:
    world.peer(NEAR, 6, LONDON)
    world.pass_time(2 * PEERS_S)
    del world.links.peers[NEAR]
    world.nodes.close_session(SessionId(NEAR))
    world.pass_time(2 * CLAIMS_S)
    assert world.places.doubted(SELF) == ()
    assert not world.places._doubts
    assert not world.places._proofs
