"""Which nodes are probed, when, and what is made of the answers; the shell is a list."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from statistics import mean

import pytest

from laps.admin.schema.decisions import WIDEST_BPS
from laps.infobase.metrics import Metrics
from laps.infobase.nodes import Nodes, SessionId
from laps.policy import policy_from_mapping
from laps.relay.peers import Links, Peer
from laps.relay.probing import (
    EACH_S,
    LOST_S,
    MOST_EACH_S,
    MOST_RESULTS,
    NUMBERS,
    PROBE_BITS,
    TRAIN,
    TURN_S,
    Probing,
    Train,
)
from laps.relay.settings import ProbeSettings, RelayCounters
from laps.routing.avoided import Avoided
from laps.routing.policy import PolicyInForce
from laps.types import NodeId, NodeInfo, NodeMetrics, NodePathItem, NodeType

SELF, PEER = NodeId(1), NodeId(2)
ON = ProbeSettings(enabled=True)
RTT_S = 0.02


class World:
    """The candidates of one relay, and nodes that answer as they are told to."""

    def __init__(self, settings: ProbeSettings = ON, seed: int = 1) -> None:
        avoided = Avoided()
        self.now = 100.0
        self.nodes = Nodes(SELF, avoided.select)
        self.links = Links(RelayCounters(), avoided)
        self.metrics = Metrics()
        self.policy = PolicyInForce(SELF, "eu", self.metrics)
        known = self.nodes, self.links, self.policy, self.metrics
        self.probing = Probing(SELF, *known, settings, Random(seed))
        self.nodes.open_session(SessionId(1), PEER, 10, 0.0, True)
        self.links.peers[PEER] = Peer(NodeInfo(PEER, NodeType.VIA))
        self.know(PEER, NodeType.VIA, direct=True)
        self.sent: list[tuple[float, Train]] = []
        self.deaf: set[NodeId] = set()

    def know(
        self,
        number: int,
        node_type: NodeType = NodeType.EDGE,
        contact: str | None = None,
        *,
        direct: bool = False,
    ) -> NodeId:
        node_id = NodeId(number)
        path = () if direct else (NodePathItem(PEER, 10),)
        told = f"192.0.2.{number}:33434" if contact is None else contact
        self.nodes.add(SessionId(1), NodeInfo(node_id, node_type, told, path=path))
        return node_id

    def forget(self, node_id: NodeId) -> None:
        info = self.nodes.info(node_id)
        assert info is not None
        self.nodes.withdraw(SessionId(1), info)

    def pass_time(self, seconds: float, *, answer: bool = True) -> None:
        """Let the relay do what is due; nodes answer after a round trip, 1 ms between answers."""
        end = self.now + seconds
        while (due := self.probing.deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.probing.tick(self.now)
            while self.probing.outgoing:
                train = self.probing.outgoing.popleft()
                self.sent.append((self.now, train))
                self.probing.sent(train, self.now)
                if answer and train.node_id not in self.deaf:
                    for number, each in enumerate(train.numbers):
                        self.probing.answered(each, self.now + RTT_S + number / 1000)
        self.now = end

    def train(self) -> Train:
        """The next train, sent and not answered yet."""
        before = len(self.sent)
        while len(self.sent) == before:
            self.pass_time(0.5, answer=False)
        return self.sent[-1][1]

    @property
    def candidates(self) -> list[NodeId]:
        return [it.node_id for it in self.probing]


@pytest.fixture
def world() -> World:
    return World()


# -- what is measured ------------------------------------------------------------------------------


def test_probing_measures_round_trip_loss_and_bandwidth(world: World) -> None:
    node_id = world.know(3)
    assert world.probing.of(node_id) is None
    world.pass_time(5)
    found = world.probing.of(node_id)
    assert found is not None
    assert found.rtt_us == 20_000
    assert found.loss == 0
    # Three probes came a millisecond after the one before.
    assert found.bandwidth_bps == PROBE_BITS * 1000
    [(measured, rtt_ms)] = world.probing.measured
    assert measured == node_id
    assert rtt_ms == pytest.approx(20.0)
    assert world.probing.best(8) == (found,)


def test_probing_loss_is_that_of_the_last_probes(world: World) -> None:
    node_id = world.know(3)
    train = world.train()
    first, *others = train.numbers
    for number in others:
        assert world.probing.answered(number, world.now + 0.01)
    world.pass_time(LOST_S + 1, answer=False)
    found = world.probing.of(node_id)
    assert found is not None
    assert found.loss == 1 / TRAIN
    assert world.probing.counters.probes_lost == 1
    assert not world.probing.answered(first, world.now), "it is lost by now"
    world.pass_time(EACH_S * (MOST_RESULTS / TRAIN + 2))
    found = world.probing.of(node_id)
    assert found is not None
    assert found.loss == 0, "what was lost has gone out of sight"


def test_probing_some_loss_may_be_chance(world: World) -> None:
    node_id = world.know(3)
    it = None
    for lost in range(4):
        train = world.train()
        for number in list(train.numbers)[: TRAIN - (lost > 0)]:
            world.probing.answered(number, world.now + RTT_S)
        world.pass_time(LOST_S + 0.1, answer=False)
        it = world.probing.probed(node_id)
        assert it is not None
        assert it.least_loss == (0.0 if lost < 3 else 1 / (4 * TRAIN))


def test_probing_answer_that_comes_late_or_twice_or_to_nothing_counts_for_nothing(
    world: World,
) -> None:
    node_id = world.know(3)
    train = world.train()
    sent_at, number = train.sent_at, train.first
    assert not world.probing.answered((number - 1) % NUMBERS, sent_at + 0.1), "never sent"
    assert not world.probing.answered(number, sent_at - 1), "before it was sent"
    assert not world.probing.answered(number, sent_at + LOST_S + 0.1), "late"
    assert world.probing.answered(number, sent_at + 0.1)
    assert not world.probing.answered(number, sent_at + 0.2), "twice"
    assert world.probing.counters.probes_late == 4
    assert world.probing.counters.probes_answered == 1
    assert world.probing.of(node_id) is None, "the train is not over"
    world.pass_time(LOST_S + 1, answer=False)
    found = world.probing.of(node_id)
    assert found is not None
    assert (found.rtt_us, found.loss) == (100_000, 0.75)
    assert found.bandwidth_bps == 0, "nobody can tell from one"


def test_probing_smooths_round_trips_and_takes_the_fastest_of_a_train(world: World) -> None:
    node_id = world.know(3)
    for rtt_s in (0.02, 0.06):
        train = world.train()
        for number in train.numbers:
            late_s = 0.0 if number == train.first else 0.5
            world.probing.answered(number, train.sent_at + rtt_s + late_s)
    found = world.probing.of(node_id)
    assert found is not None
    assert found.rtt_us == 30_000


def test_probing_numbers_go_round(world: World) -> None:
    world.probing._number = NUMBERS - 2
    node_id = world.know(3)
    train = world.train()
    assert [*train.numbers] == [NUMBERS - 2, NUMBERS - 1, 0, 1]
    for number in train.numbers:
        assert world.probing.answered(number, train.sent_at + 0.01)
    assert world.probing.of(node_id) is not None
    assert world.train().first == 2


def test_probing_bandwidth_is_no_more_than_the_node_has_left(world: World) -> None:
    node_id = world.know(3)
    world.pass_time(5)
    world.metrics.add(NodeMetrics(1, node_id, 0.5, 10_000_000, 9_000_000))
    found = world.probing.of(node_id)
    assert found is not None
    assert found.bandwidth_bps == 1_000_000


def test_probing_answers_read_together_say_no_more_than_a_clock_can(world: World) -> None:
    node_id = world.know(3)
    train = world.train()
    for number in train.numbers:
        world.probing.answered(number, train.sent_at + 0.01)
    found = world.probing.of(node_id)
    assert found is not None
    assert found.bandwidth_bps == WIDEST_BPS


def test_probing_what_the_shell_did_not_send_is_not_lost(world: World) -> None:
    world.know(3, contact="nobody.example:1")
    for _ in range(100):
        world.now += 1
        world.probing.tick(world.now)
        world.probing.outgoing.clear()
    assert world.probing.counters.probes_sent == world.probing.counters.probes_lost == 0


# -- how much --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.5, 1.0, 4.0])
def test_probing_keeps_to_its_rate_and_its_number_of_candidates(rate: float) -> None:
    world = World(ProbeSettings(enabled=True, count=16, rate=rate))
    for number in range(10, 200):
        world.know(number)
    world.pass_time(600)
    assert len(world.probing) == 16
    assert world.probing.counters.probes_sent == pytest.approx(600 * rate, rel=0.15)
    # In any minute too, and not all at once.
    for begin in range(100, 640, 60):
        some = [at for at, _ in world.sent if begin <= at < begin + 60]
        assert len(some) * TRAIN <= 60 * rate * 1.4 + TRAIN
    stayed = [it.node_id for it in world.probing if it.since_at < 110]
    counts = [sum(train.node_id == it for _, train in world.sent) for it in stayed]
    assert max(counts) - min(counts) <= max(3, mean(counts) / 4), "all have their turn"


def test_probing_asks_one_node_alone_now_and_then(world: World) -> None:
    world.know(3)
    world.pass_time(600)
    assert len(world.sent) == pytest.approx(600 / EACH_S, rel=0.15)


def test_probing_asks_a_node_that_never_answers_ever_more_seldom(world: World) -> None:
    node_id = world.know(3)
    world.deaf.add(node_id)
    world.pass_time(3600)
    times = [at for at, _ in world.sent]
    waits = [after - before for before, after in pairwise(times)]
    assert waits[0] < 2.2 * EACH_S
    assert 0.9 * MOST_EACH_S <= waits[-1] <= 1.1 * MOST_EACH_S
    assert len(times) < 12
    assert world.probing.of(node_id) is None
    world.deaf.clear()
    world.pass_time(2 * MOST_EACH_S)
    world.pass_time(120)
    assert len([at for at, _ in world.sent if at > world.now - 120]) >= 6, "as before"


def test_probing_of_all_nodes_has_its_turn(world: World) -> None:
    for number in range(10, 50):
        world.know(number)
    world.pass_time(40 * TURN_S)
    assert len({train.node_id for _, train in world.sent}) == 40


def test_probing_takes_wanted_nodes_and_vias_before_others() -> None:
    world = World(ProbeSettings(enabled=True, count=4))
    for number in range(10, 100):
        world.know(number)
    for number in (101, 102):
        world.know(number, NodeType.VIA)
    world.pass_time(2)
    assert {101, 102} <= set(world.candidates)
    world.probing.wanted = {NodeId(50), NodeId(60)}
    world.pass_time(15)
    assert {50, 60} <= set(world.candidates)
    assert len(world.candidates) == 4
    world.probing.vias = {NodeId(70)}
    world.pass_time(15)
    assert {50, 60, 70} <= set(world.candidates)
    world.probing.wanted = {NodeId(number) for number in range(50, 60)}
    world.pass_time(15)
    assert set(world.candidates) < world.probing.wanted | {NodeId(70)}


def test_probing_is_the_same_under_the_same_seed() -> None:
    runs = []
    for _ in range(2):
        world = World(seed=7)
        for number in range(10, 60):
            world.know(number)
        world.pass_time(120)
        runs.append([(at, train.node_id, train.first) for at, train in world.sent])
    assert runs[0] == runs[1]


# -- who -------------------------------------------------------------------------------------------


def test_probing_leaves_peers_stubs_and_who_names_no_address_alone(world: World) -> None:
    world.know(3, NodeType.STUB)
    world.know(4, contact="")
    world.pass_time(60)
    assert world.candidates == []
    assert world.sent == []


def test_probing_keeps_to_policy_also_when_it_changes(world: World) -> None:
    near, far = world.know(3), world.know(4)
    rows = [{"between": ["0:1", "0:4"], "allow": False}]
    world.policy.follow(policy_from_mapping({"peering": rows}, "test"))
    world.pass_time(30)
    assert world.candidates == [near]
    world.policy.follow(None)
    world.pass_time(30)
    assert world.candidates == [near, far]
    rows = [{"between": ["0:1", "*"], "allow": False}]
    world.policy.follow(policy_from_mapping({"peering": rows}, "test"))
    world.pass_time(30)
    assert world.candidates == []


def test_probing_ends_for_one_that_becomes_a_peer_and_begins_when_it_is_none(
    world: World,
) -> None:
    node_id = world.know(3)
    train = world.train()
    world.links.peers[node_id] = Peer(NodeInfo(node_id, NodeType.EDGE))
    world.pass_time(1.5, answer=False)
    assert world.candidates == []
    assert world.probing.answered(train.first, train.sent_at + 0.1), "it changes nothing"
    world.pass_time(60)
    assert world.probing.of(node_id) is None
    assert len(world.sent) == 1
    del world.links.peers[node_id]
    world.pass_time(5)
    assert world.probing.of(node_id) is not None


def test_probing_forgets_what_it_knew_of_another_address_or_a_node_that_left(
    world: World,
) -> None:
    node_id = world.know(3)
    world.pass_time(5)
    train = world.train()
    world.know(3, contact="192.0.2.99:1")
    world.pass_time(1.5, answer=False)
    for number in train.numbers:
        world.probing.answered(number, train.sent_at + 0.1)
    assert world.probing.of(node_id) is None, "that was the answer of who was there before"
    world.pass_time(20)
    assert world.probing.of(node_id) is not None
    assert world.sent[-1][1].contact == "192.0.2.99:1"
    world.forget(node_id)
    world.pass_time(15)
    assert world.candidates == []
    assert not world.probing._waiting
    assert not world.probing._flying


def test_probing_can_be_changed_while_it_runs(world: World) -> None:
    for number in range(10, 60):
        world.know(number)
    world.pass_time(10)
    world.probing.configure(ProbeSettings(enabled=True, count=3), world.now)
    assert len(world.probing) == 3
    world.probing.configure(ProbeSettings(enabled=True, count=0), world.now)
    world.pass_time(LOST_S + 1, answer=False)
    assert world.probing.deadline() is None
    world.probing.configure(ON, world.now)
    world.pass_time(5)
    assert len(world.probing) == 16


def test_probing_that_is_off_does_nothing() -> None:
    world = World(ProbeSettings())
    world.know(3)
    assert world.probing.deadline() is None
    world.probing.tick(1e9)
    assert not world.probing.outgoing


def test_probing_is_not_to_be_aimed_at_a_third_party() -> None:
    world = World()
    for number in range(10, 40):
        world.know(number)
    world.pass_time(120.0)
    world.sent.clear()
    alive: list[NodeId] = []
    for minute in range(60):
        if minute % 5 == 0:  # new names, of the same host, at one port and at others
            for node_id in alive:
                world.forget(node_id)
            first = 1000 + 30 * minute
            alive = [
                world.know(
                    first + it, NodeType.VIA, f"198.51.100.9:{443 if it % 2 else first + it}"
                )
                for it in range(30)
            ]
            world.deaf |= set(alive)
        world.pass_time(60.0)
    aimed = [train for _, train in world.sent if train.contact.startswith("198.51.100.9:")]
    assert 1 <= len(aimed) <= 24, "as to one node that never answers"
    assert sum(it.rtt_ms is not None for it in world.probing) >= len(world.probing) - 2
    assert len(world.sent) > 600, "others are probed as before"


def test_probing_has_one_candidate_for_an_address() -> None:
    world = World()
    for number in range(10, 20):
        world.know(number, contact="192.0.2.7:33434")
    world.pass_time(60.0)
    assert len(world.probing) == 1


def test_probing_a_host_that_has_answered_waits_for_none_of_its_other_ports() -> None:
    world = World()
    silent = world.know(10, contact="192.0.2.7:1")
    world.deaf.add(silent)
    world.pass_time(60.0)
    there = world.know(11, contact="192.0.2.7:2")
    world.pass_time(MOST_EACH_S)
    found = world.probing.probed(there)
    assert found is not None
    assert found.rtt_ms is not None
