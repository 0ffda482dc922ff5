"""Paths through a peer that leaves count only where there is no other."""

from laps.infobase.nodes import Nodes, PathCandidate, SessionId
from laps.routing.draining import Draining
from laps.types import NodeId, NodeInfo, NodePathItem, NodeType

STAYS, LEAVES, TARGET = NodeId(1), NodeId(2), NodeId(9)
BY_STAYING, BY_LEAVING = SessionId(1), SessionId(2)


def path(session: SessionId, hops: int = 1, *, carries_data: bool = True) -> PathCandidate:
    way = tuple(NodePathItem(NodeId(100 + number), 0) for number in range(hops))
    info = NodeInfo(TARGET, NodeType.EDGE, path=way)
    peer_id = STAYS if session == BY_STAYING else LEAVES
    return PathCandidate(session, peer_id, info, 10, 0.0, carries_data)


def chosen(draining: Draining, *paths: PathCandidate) -> SessionId | None:
    choice = draining.select(paths)
    return None if choice is None else choice.path.session


def leaving() -> Draining:
    draining = Draining()
    draining.add([BY_LEAVING])
    return draining


def test_while_nobody_leaves_the_best_path_is_the_best() -> None:
    draining = Draining()
    assert chosen(draining, path(BY_STAYING, 3), path(BY_LEAVING)) == BY_LEAVING
    assert chosen(draining) is None


def test_a_longer_way_is_taken_around_a_peer_that_leaves_and_says_why() -> None:
    choice = leaving().select([path(BY_STAYING, 3), path(BY_LEAVING)])
    assert choice is not None
    assert choice.path.session == BY_STAYING
    assert choice.reason == "only path; 1 by a peer that leaves"


def test_without_another_way_it_is_taken_to_the_end() -> None:
    assert chosen(leaving(), path(BY_LEAVING)) == BY_LEAVING


def test_a_way_that_carries_no_data_is_no_other_way() -> None:
    only_control = path(BY_STAYING, carries_data=False)
    assert chosen(leaving(), only_control, path(BY_LEAVING)) == BY_LEAVING
    assert chosen(leaving(), only_control, path(BY_LEAVING, carries_data=False)) == BY_STAYING


def test_the_peer_itself_is_reached_directly() -> None:
    assert chosen(leaving(), path(BY_STAYING, 1), path(BY_LEAVING, 0)) == BY_LEAVING


def test_a_session_that_has_ended_is_forgotten() -> None:
    draining = leaving()
    assert len(draining) == 1
    assert BY_LEAVING in draining
    assert BY_STAYING not in draining
    draining.discard(BY_LEAVING)
    draining.discard(BY_LEAVING)
    assert len(draining) == 0


def test_nodes_choose_again_when_a_peer_leaves() -> None:
    draining = Draining()
    nodes = Nodes(NodeId(7), draining.select)
    for session, peer_id in ((BY_STAYING, STAYS), (BY_LEAVING, LEAVES)):
        nodes.open_session(session, peer_id, 10, 0.0, True)
        nodes.add(session, NodeInfo(peer_id, NodeType.VIA))
    way = tuple(NodePathItem(NodeId(number), 10) for number in (50, STAYS))
    nodes.add(BY_STAYING, NodeInfo(TARGET, NodeType.EDGE, path=way))
    nodes.add(BY_LEAVING, NodeInfo(TARGET, NodeType.EDGE, path=(NodePathItem(LEAVES, 10),)))
    assert nodes.reselect(BY_LEAVING) == []
    draining.add([BY_LEAVING])
    (change,) = nodes.reselect(BY_LEAVING)
    assert change.node_id == TARGET
    assert change.new is not None
    assert change.new.path.session == BY_STAYING
    # The way by the peer that leaves is still there, behind the other.
    assert [path.session for path in nodes.candidates(TARGET)] == [BY_STAYING, BY_LEAVING]
    assert nodes.reselect(SessionId(99)) == []
