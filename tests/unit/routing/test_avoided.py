"""Paths through a peer that leaves count only where there is no other."""

from laps.infobase.nodes import Nodes, PathCandidate, SessionId
from laps.routing.avoided import Avoided
from laps.types import NodeId, NodeInfo, NodePathItem, NodeType

STAYS, LEAVES, TARGET = NodeId(1), NodeId(2), NodeId(9)
BY_STAYING, BY_LEAVING = SessionId(1), SessionId(2)


def path(session: SessionId, hops: int = 1, *, carries_data: bool = True) -> PathCandidate:
    way = tuple(NodePathItem(NodeId(100 + number), 0) for number in range(hops))
    info = NodeInfo(TARGET, NodeType.EDGE, path=way)
    peer_id = STAYS if session == BY_STAYING else LEAVES
    return PathCandidate(session, peer_id, info, 10, 0.0, carries_data)


def chosen(avoided: Avoided, *paths: PathCandidate) -> SessionId | None:
    choice = avoided.select(paths)
    return None if choice is None else choice.path.session


def leaving() -> Avoided:
    avoided = Avoided()
    avoided.leave([BY_LEAVING])
    return avoided


def test_while_nobody_leaves_the_best_path_is_the_best() -> None:
    avoided = Avoided()
    assert chosen(avoided, path(BY_STAYING, 3), path(BY_LEAVING)) == BY_LEAVING
    assert chosen(avoided) is None


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
    avoided = leaving()
    assert len(avoided) == 1
    assert BY_LEAVING in avoided.leaving
    assert BY_STAYING not in avoided.leaving
    avoided.discard(BY_LEAVING)
    avoided.discard(BY_LEAVING)
    assert len(avoided) == 0


def test_nodes_choose_again_when_a_peer_leaves() -> None:
    avoided = Avoided()
    nodes = Nodes(NodeId(7), avoided.select)
    for session, peer_id in ((BY_STAYING, STAYS), (BY_LEAVING, LEAVES)):
        nodes.open_session(session, peer_id, 10, 0.0, True)
        nodes.add(session, NodeInfo(peer_id, NodeType.VIA))
    way = tuple(NodePathItem(NodeId(number), 10) for number in (50, STAYS))
    nodes.add(BY_STAYING, NodeInfo(TARGET, NodeType.EDGE, path=way))
    nodes.add(BY_LEAVING, NodeInfo(TARGET, NodeType.EDGE, path=(NodePathItem(LEAVES, 10),)))
    assert nodes.reselect(BY_LEAVING) == []
    avoided.leave([BY_LEAVING])
    (change,) = nodes.reselect(BY_LEAVING)
    assert change.node_id == TARGET
    assert change.new is not None
    assert change.new.path.session == BY_STAYING
    # The way by the peer that leaves is still there, behind the other.
    assert [path.session for path in nodes.candidates(TARGET)] == [BY_STAYING, BY_LEAVING]
    assert nodes.reselect(SessionId(99)) == []


def test_a_silent_link_is_avoided_also_on_the_way_to_its_peer() -> None:
    avoided = Avoided()
    avoided.suspect.add(BY_LEAVING)
    choice = avoided.select([path(BY_STAYING, 3), path(BY_LEAVING, 0)])
    assert choice is not None
    assert choice.path.session == BY_STAYING
    assert choice.reason == "only path; 1 by a link that is silent"
    assert chosen(avoided, path(BY_LEAVING)) == BY_LEAVING


def test_rather_by_a_peer_that_leaves_than_by_a_silent_link() -> None:
    avoided = leaving()
    avoided.suspect.add(BY_STAYING)
    assert chosen(avoided, path(BY_STAYING), path(BY_LEAVING, 2)) == BY_LEAVING
