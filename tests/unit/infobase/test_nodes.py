"""The node information base: every way to every node, and the best of each."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.infobase.nodes import Choice, NodeChange, Nodes, PathCandidate, SessionId
from laps.routing.selection import select
from laps.types import NodeId, NodeInfo, NodePathItem, NodeType, parse_node_id

SELF = parse_node_id("1:1")


def node(text: str, *path: tuple[str, int]) -> NodeInfo:
    items = tuple(NodePathItem(parse_node_id(name), ms * 1000) for name, ms in path)
    return NodeInfo(parse_node_id(text), NodeType.EDGE, path=items)


def nodes(*peers: str, srtt_ms: int = 10) -> Nodes:
    """An information base with a session to each peer, numbered from 1."""
    base = Nodes(SELF, select)
    for number, peer in enumerate(peers, 1):
        open_session(base, number, peer, srtt_ms)
    return base


def open_session(base: Nodes, session: int, peer: str, srtt_ms: int = 10) -> None:
    base.open_session(SessionId(session), parse_node_id(peer), srtt_ms * 1000, 0.0, True)


def add(base: Nodes, session: int, info: NodeInfo) -> NodeChange | None:
    return base.add(SessionId(session), info)


def withdraw(base: Nodes, session: int, info: NodeInfo) -> NodeChange | None:
    return base.withdraw(SessionId(session), info)


def ways(base: Nodes, text: str) -> list[tuple[str, int, int]]:
    """Peer, hops and milliseconds of each path to a node, best first."""
    return [
        (f"{path.peer_id >> 32}:{path.peer_id & 0xFFFF}", path.hops, path.srtt_us // 1000)
        for path in base.candidates(parse_node_id(text))
    ]


def sessions(change: NodeChange | None) -> tuple[int | None, int | None]:
    """The sessions a node was reached by before and after a change."""
    assert change is not None
    old, new = (choice.path.session if choice else None for choice in (change.old, change.new))
    return old, new


# -- the document's example ------------------------------------------------------------------------

LINKS = {
    ("1:1", "1:2"): 25,
    ("1:2", "1:3"): 50,
    ("1:3", "1:4"): 60,
    ("1:3", "1:6"): 90,
    ("1:1", "1:5"): 20,
    ("1:5", "1:6"): 40,
}


def converge(links: dict[tuple[str, str], int]) -> dict[str, Nodes]:
    """What each node knows of node 1:1 after all have told their best to each other."""
    names = sorted({name for link in links for name in link})
    bases = {name: Nodes(parse_node_id(name), select) for name in names}
    # Two directions of each link, each the session of the one that hears.
    hears = [(a, b, ms) for (a, b), ms in links.items()] + [
        (b, a, ms) for (a, b), ms in links.items()
    ]
    for number, (ear, mouth, ms) in enumerate(hears):
        open_session(bases[ear], number, mouth, ms)
        if mouth == "1:1":
            add(bases[ear], number, node("1:1"))
    changed = True
    while changed:
        changed = False
        for number, (ear, mouth, _) in enumerate(hears):
            best = bases[mouth].best(SELF)
            if best is None or best.path.peer_id == parse_node_id(ear):
                continue
            own_ms = next(
                ms for a, b, ms in hears if (a, parse_node_id(b)) == (mouth, best.path.peer_id)
            )
            item = NodePathItem(parse_node_id(mouth), own_ms * 1000)
            told = NodeInfo(SELF, NodeType.EDGE, path=(*best.path.info.path, item))
            changed |= add(bases[ear], number, told) is not None
    return bases


def test_the_documents_example_has_the_paths_printed_there() -> None:
    bases = converge(LINKS)
    assert ways(bases["1:2"], "1:1")[0] == ("1:1", 0, 25)
    assert ways(bases["1:3"], "1:1") == [("1:2", 1, 75), ("1:6", 2, 150)]
    assert ways(bases["1:4"], "1:1") == [("1:3", 2, 135)]
    assert ways(bases["1:5"], "1:1")[0] == ("1:1", 0, 20)
    assert ways(bases["1:6"], "1:1") == [("1:5", 1, 60), ("1:3", 2, 165)]
    assert len(bases["1:1"]) == 0
    choice = bases["1:3"].best(SELF)
    assert choice is not None
    assert choice.reason == "fewest hops: 1 against 2 via 1:6"


@pytest.mark.parametrize(("srtt_ms", "peer"), [(74, "1:6"), (76, "1:3")])
def test_a_new_link_is_taken_if_it_is_faster_at_as_many_hops(srtt_ms: int, peer: str) -> None:
    bases = converge(LINKS | {("1:4", "1:6"): srtt_ms})
    assert ways(bases["1:4"], "1:1")[0] == (peer, 2, min(60 + srtt_ms, 135))


# -- adding and withdrawing ------------------------------------------------------------------------


def test_a_node_is_new_once() -> None:
    base = nodes("1:2")
    assert sessions(add(base, 1, node("1:2"))) == (None, 1)
    assert add(base, 1, node("1:2")) is None
    assert base.counters.duplicates == 1
    assert list(base) == [parse_node_id("1:2")]
    assert base.info(parse_node_id("1:2")) == node("1:2")


def test_new_words_from_the_best_are_a_change_and_from_an_alternate_none() -> None:
    base = nodes("1:2", "1:3")
    add(base, 1, node("1:4"))
    assert add(base, 2, node("1:4", ("1:3", 10))) is None
    assert add(base, 2, node("1:4", ("1:3", 11))) is None
    change = add(base, 1, node("1:4", ("1:2", 1)))
    assert change is not None
    assert change.old is not None
    assert change.new is not None
    assert (change.old.path.info, change.new.path.info) == (
        node("1:4"),
        node("1:4", ("1:2", 1)),
    )


def test_the_reason_follows_the_alternates() -> None:
    base = nodes("1:2", "1:3")
    target, alternate = parse_node_id("1:4"), node("1:4", ("1:3", 10))
    add(base, 1, node("1:4"))
    add(base, 2, alternate)
    choice = base.best(target)
    assert choice is not None
    assert choice.reason == "fewest hops: 0 against 1 via 1:3"
    withdraw(base, 2, alternate)
    choice = base.best(target)
    assert choice is not None
    assert choice.reason == "only path"


def test_a_path_we_are_in_is_none() -> None:
    base = nodes("1:2")
    assert add(base, 1, node("1:4", ("1:3", 5), ("1:1", 5), ("1:2", 5))) is None
    assert add(base, 1, node("1:1")) is None
    assert base.counters.looped == 2
    assert len(base) == 0


def test_a_peer_that_goes_through_us_has_left_its_old_way() -> None:
    base = nodes("1:2", "1:3")
    add(base, 1, node("1:4", ("1:2", 5)))
    add(base, 2, node("1:4", ("1:5", 5), ("1:3", 5)))
    change = add(base, 1, node("1:4", ("1:3", 5), ("1:1", 5), ("1:2", 5)))
    assert sessions(change) == (1, 2)
    assert ways(base, "1:4") == [("1:3", 2, 20)]


def test_a_withdraw_leaves_the_alternate() -> None:
    base = nodes("1:2", "1:3")
    add(base, 1, node("1:4", ("1:2", 5)))
    add(base, 2, node("1:4", ("1:3", 6)))
    assert sessions(withdraw(base, 1, node("1:4", ("1:2", 5)))) == (1, 2)
    assert sessions(withdraw(base, 2, node("1:4", ("1:3", 6)))) == (2, None)
    assert len(base) == 0


def test_a_withdraw_of_an_alternate_changes_nothing() -> None:
    base = nodes("1:2", "1:3")
    add(base, 1, node("1:4"))
    add(base, 2, node("1:4", ("1:3", 6)))
    assert withdraw(base, 2, node("1:4", ("1:3", 6))) is None
    assert base.counters.unknown_withdraws == 0


def test_a_withdraw_of_another_path_removes_what_that_session_said() -> None:
    base = nodes("1:2")
    add(base, 1, node("1:4", ("1:2", 5)))
    assert sessions(withdraw(base, 1, node("1:4", ("1:7", 3), ("1:2", 5)))) == (1, None)


def test_a_withdraw_of_what_was_not_said_is_counted() -> None:
    base = nodes("1:2", "1:3")
    add(base, 1, node("1:4"))
    assert withdraw(base, 2, node("1:4")) is None
    assert withdraw(base, 1, node("1:5")) is None
    assert base.counters.unknown_withdraws == 2
    assert len(base) == 1


# -- sessions --------------------------------------------------------------------------------------


def test_alternates_take_over_from_a_closed_session() -> None:
    base = nodes("1:2", "1:3")
    for text in ("1:4", "1:5"):
        add(base, 1, node(text))
    add(base, 2, node("1:4", ("1:3", 5)))
    add(base, 2, node("1:6"))
    changes = base.close_session(SessionId(1))
    assert [(change.node_id, sessions(change)) for change in changes] == [
        (parse_node_id("1:4"), (1, 2)),
        (parse_node_id("1:5"), (1, None)),
    ]
    assert set(base) == {parse_node_id("1:4"), parse_node_id("1:6")}
    assert base.close_session(SessionId(1)) == []


def test_a_session_leads_to_what_it_spoke_of() -> None:
    base = nodes("1:2", "1:3")
    add(base, 2, node("1:5"))
    add(base, 1, node("1:5", ("1:2", 5)))
    add(base, 1, node("1:4"))
    assert base.via(SessionId(1)) == (parse_node_id("1:4"), parse_node_id("1:5"))
    withdraw(base, 1, node("1:4"))
    assert base.via(SessionId(1)) == (parse_node_id("1:5"),)
    base.close_session(SessionId(1))
    assert base.via(SessionId(1)) == ()


def test_a_slower_session_loses_what_another_reaches_as_well() -> None:
    base = nodes("1:2", "1:3")
    for session, peer in ((1, "1:2"), (2, "1:3")):
        add(base, session, node("1:4", (peer, 10)))
    add(base, 1, node("1:5"))
    assert base.set_srtt(SessionId(1), 10_000) == []
    (change,) = base.set_srtt(SessionId(1), 50_000)
    assert (change.node_id, sessions(change)) == (parse_node_id("1:4"), (1, 2))
    assert ways(base, "1:4") == [("1:3", 1, 20), ("1:2", 1, 60)]
    assert ways(base, "1:5") == [("1:2", 0, 50)]


def test_a_change_looks_at_no_other_node() -> None:
    looked_at: list[NodeId] = []

    def watch(paths: Collection[PathCandidate]) -> Choice | None:
        looked_at.extend({path.info.id for path in paths})
        return select(paths)

    base = Nodes(SELF, watch)
    open_session(base, 1, "1:2")
    open_session(base, 2, "1:3")
    for text in ("1:4", "1:5", "1:6"):
        add(base, 1, node(text))
    add(base, 2, node("1:6", ("1:3", 5)))
    looked_at.clear()
    base.set_srtt(SessionId(2), 77)
    base.close_session(SessionId(2))
    assert set(looked_at) == {parse_node_id("1:6")}


def test_data_goes_where_data_may_go() -> None:
    base = Nodes(SELF, select)
    base.open_session(SessionId(1), parse_node_id("1:2"), 1000, 0.0, carries_data=False)
    base.open_session(SessionId(2), parse_node_id("1:3"), 9000, 0.0, carries_data=True)
    target = parse_node_id("1:4")
    add(base, 1, node("1:4"))
    assert base.best(target) is not None
    assert base.data_choice(target) is None
    assert sessions(add(base, 2, node("1:4", ("1:3", 5)))) == (1, 2)
    assert base.data_choice(target) == base.best(target)


def test_a_node_no_path_to_which_is_admitted_is_known_and_has_no_best() -> None:
    base = Nodes(SELF, lambda paths: select(paths, lambda path: path.session == 2))
    open_session(base, 1, "1:2")
    open_session(base, 2, "1:3")
    target = parse_node_id("1:4")
    assert add(base, 1, node("1:4")) is None
    assert (base.best(target), base.info(target), list(base)) == (None, None, [target])
    assert sessions(add(base, 2, node("1:4", ("1:3", 5)))) == (None, 2)
    assert [path.session for path in base.candidates(target)] == [2, 1]
    assert sessions(withdraw(base, 2, node("1:4"))) == (2, None)
    assert list(base) == [target]


# -- any history -----------------------------------------------------------------------------------

SESSIONS = st.integers(1, 3)
INFOS = st.builds(
    lambda target, path: node(target, *path),
    st.sampled_from(["1:1", "1:5", "1:6"]),
    st.lists(
        st.tuples(st.sampled_from(["1:1", "1:7", "1:8"]), st.integers(1, 3)),
        max_size=2,
    ),
)
STEPS = st.one_of(
    st.tuples(st.just("add"), SESSIONS, INFOS),
    st.tuples(st.just("withdraw"), SESSIONS, INFOS),
    st.tuples(st.just("close"), SESSIONS, st.none()),
    st.tuples(st.just("srtt"), SESSIONS, st.integers(1, 5000)),
)


def step(base: Nodes, what: str, session: int, value: object) -> list[NodeChange]:
    match value:
        case NodeInfo():
            change = (add if what == "add" else withdraw)(base, session, value)
            return [change] if change else []
        case int():
            return base.set_srtt(SessionId(session), value)
    changes = base.close_session(SessionId(session))
    open_session(base, session, f"1:{session + 1}", 1)
    return changes


@given(st.lists(STEPS, max_size=30))
def test_any_history_ends_where_its_outcome_begins(steps: list[tuple[str, int, object]]) -> None:
    base = nodes("1:2", "1:3", "1:4", srtt_ms=1)
    said: dict[tuple[int, NodeId], NodeInfo] = {}
    srtts = dict.fromkeys((1, 2, 3), 1000)
    believed: dict[NodeId, tuple[SessionId, NodeInfo]] = {}
    for what, session, value in steps:
        for change in step(base, what, session, value):
            before = change.old and (change.old.path.session, change.old.path.info)
            assert believed.pop(change.node_id, None) == before
            if change.new:
                believed[change.node_id] = change.new.path.session, change.new.path.info
        if isinstance(value, NodeInfo):
            said.pop((session, value.id), None)
            if what == "add" and not loops(value):
                said[session, value.id] = value
        elif isinstance(value, int):
            srtts[session] = value
        else:
            said = {key: info for key, info in said.items() if key[0] != session}
            srtts[session] = 1000

    scratch = Nodes(SELF, select)
    for session, srtt_us in srtts.items():
        peer = parse_node_id(f"1:{session + 1}")
        scratch.open_session(SessionId(session), peer, srtt_us, 0.0, True)
    for (session, _), info in said.items():
        add(scratch, session, info)
    assert {node_id: base.best(node_id) for node_id in base} == {
        node_id: scratch.best(node_id) for node_id in scratch
    }
    assert set(believed) == set(base)

    for session in srtts:
        base.close_session(SessionId(session))
    assert (len(base), list(base), base.best(parse_node_id("1:5"))) == (0, [], None)


def loops(info: NodeInfo) -> bool:
    return SELF in (info.id, *(item.node_id for item in info.path))
