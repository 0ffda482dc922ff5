"""The node information base (NIB): which nodes there are, and every way that leads to each.

A way is what one session said of one node. Each session says one thing of a node at a time: what
it says next takes the place of what it said before, and goes with the session.

    node id -> session -> path        what was said, one row for each node
    node id -> choice                 the best of that row, kept as the row changes
    session -> node ids               what has to be looked at when a session changes or closes

The order of the paths is not decided here: a function that selects the best of some paths comes
in from routing. A change to one row never looks at another.

What concerns very many rows, a session that is closed or has another round trip, is written down,
and `settle` does some of them at a time. Until then nobody is shown a path of a closed session.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NewType

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from laps.types import NodeId, NodeInfo

# To choose the way to a node again takes 2 µs and more.
MOST_CHOSEN: Final = 500

SessionId = NewType("SessionId", int)
"""A number for each peering session of this relay, never used again while it runs."""


class PathCandidate(Struct, frozen=True, gc=False):
    """A way to a node: what one session said of it."""

    session: SessionId
    peer_id: NodeId
    info: NodeInfo
    """As received; its path ends with the peer, or is empty if the peer speaks of itself."""
    srtt_us: int
    """Round trips along the path and of the session itself."""
    opened_at: float
    carries_data: bool
    """The session may send data, not control messages alone."""

    @property
    def hops(self) -> int:
        """Nodes between us and that one."""
        return len(self.info.path)


class Choice(Struct, frozen=True, gc=False):
    """The best path to a node, and why."""

    path: PathCandidate
    reason: str
    """In an operator's words."""
    second: PathCandidate | None = None
    """The best but for that one, if no other path can count before the two: as long as they stay,
    a path that comes after them in a choice among three changes nothing."""


class NodeChange(Struct, frozen=True):
    """The best path to a node is another, or says something else; None where there is none."""

    node_id: NodeId
    old: Choice | None
    new: Choice | None


@dataclass(slots=True)
class NodeCounters:
    """What sessions said that changed nothing, for the operator."""

    looped: int = 0
    "Came back to us: of ourselves, or by a path that we are in."
    duplicates: int = 0
    "The same as the session had said before."
    unknown_withdraws: int = 0
    "Of something the session had not said, or had withdrawn already."


@dataclass(slots=True)
class _Session:
    peer_id: NodeId
    srtt_us: int
    opened_at: float
    carries_data: bool
    node_ids: dict[NodeId, None] = field(default_factory=dict)
    "The nodes this session leads to; of a thousand a set takes twice the room."


class Nodes:
    """The nodes known to one relay, and the best path to each."""

    def __init__(
        self, self_id: NodeId, select: Callable[[Collection[PathCandidate]], Choice | None]
    ) -> None:
        self.counters = NodeCounters()
        self._self_id = self_id
        self._select = select
        self._sessions: dict[SessionId, _Session] = {}
        self._paths: dict[NodeId, dict[SessionId, PathCandidate]] = {}
        self.moved: dict[NodeId, None] = {}
        "Nodes whose best path is another than when they were last taken from here."
        self._best: dict[NodeId, Choice] = {}
        self._unsettled: deque[tuple[SessionId, list[NodeId]]] = deque()
        "Rows in which what a session said has to be looked at again."
        self._closed: set[SessionId] = set()
        "Those of these sessions that are closed."
        self._early: set[NodeId] = set()
        "Nodes whose best path was chosen again before their turn, and is another."

    # -- sessions --------------------------------------------------------------------------------

    def open_session(
        self,
        session: SessionId,
        peer_id: NodeId,
        srtt_us: int,
        opened_at: float,
        carries_data: bool,
    ) -> None:
        """A session is established; what it says is added from now on."""
        self._sessions[session] = _Session(peer_id, srtt_us, opened_at, carries_data)

    def close_session(self, session: SessionId, most: int | None = None) -> list[NodeChange]:
        """Everything learned by a session goes with it; alternates take over at once.

        Where that is more than `most`, it is left to `settle`.
        """
        closed = self._sessions.pop(session, None)
        if closed is None:
            return []
        if self._leave(session, closed, most):
            self._closed.add(session)
            return []
        changes = []
        for node_id in sorted(closed.node_ids):
            del self._paths[node_id][session]
            if change := self._reselect(node_id):
                changes.append(change)
        return changes

    def set_srtt(
        self, session: SessionId, srtt_us: int, most: int | None = None
    ) -> list[NodeChange]:
        """A session's round trip is another; the changes are the nodes now reached another way.

        Where it leads to more than `most`, that is left to `settle`.
        """
        opened = self._sessions[session]
        if srtt_us == opened.srtt_us:
            return []
        opened.srtt_us = srtt_us
        if self._leave(session, opened, most):
            return []
        changes = []
        for node_id in sorted(opened.node_ids):
            info = self._paths[node_id][session].info
            if change := self._put(node_id, self._path(session, info)):
                changes.append(change)
        return changes

    def reselect(self, session: SessionId, most: int | None = None) -> list[NodeChange]:
        """Another path may be preferred now: choose again wherever a session leads.

        Where that is more than `most`, it is left to `settle`.
        """
        opened = self._sessions.get(session)
        if opened is None or self._leave(session, opened, most):
            return []
        return [change for node_id in self.via(session) if (change := self._reselect(node_id))]

    def settle(self, most: int) -> tuple[list[NodeId], list[NodeId]]:
        """Look at some rows that were left: the nodes with another best path, and all of them."""
        changed: list[NodeId] = []
        looked: list[NodeId] = []
        while self._unsettled and len(looked) < most:
            session, node_ids = self._unsettled[0]
            if not node_ids:
                self._unsettled.popleft()
                if all(session != other for other, _ in self._unsettled):
                    self._closed.discard(session)
                continue
            node_id = node_ids.pop()
            looked.append(node_id)
            if self._look_again(session, node_id):
                changed.append(node_id)
        if not self._unsettled:
            self._early.clear()
        return changed, looked

    @property
    def is_settling(self) -> bool:
        """Whether `settle` has more to do."""
        return bool(self._unsettled)

    def _leave(self, session: SessionId, of: _Session, most: int | None) -> bool:
        """Whether a session leads to so many nodes that they are left for later."""
        if most is None or len(of.node_ids) <= most:
            return False
        self._unsettled.append((session, list(of.node_ids)))
        return True

    def _look_again(self, session: SessionId, node_id: NodeId) -> bool:
        """Whether the best path to a node is another, now or since it was left for later."""
        early = node_id in self._early
        self._early.discard(node_id)
        paths = self._paths.get(node_id, {})
        if (path := paths.get(session)) is None:
            return early
        if session in self._closed:
            del paths[session]
            return self._reselect(node_id) is not None or early
        return self._put(node_id, self._path(session, path.info)) is not None or early

    def _settle_row(self, node_id: NodeId) -> None:
        """Somebody asks for a row before its turn: take out what closed sessions said."""
        paths = self._paths.get(node_id, {})
        dead = [session for session in self._closed if session in paths]
        for session in dead:
            del paths[session]
        if dead and self._reselect(node_id) is not None:
            self._early.add(node_id)

    def via(self, session: SessionId) -> tuple[NodeId, ...]:
        """The nodes that a session leads to, best or not."""
        opened = self._sessions.get(session)
        return () if opened is None else tuple(sorted(opened.node_ids))

    # -- what sessions say -----------------------------------------------------------------------

    def add(self, session: SessionId, info: NodeInfo) -> NodeChange | None:
        """A session says something of a node; None if the best path stays as it is.

        A path that we are in is no way to anywhere. The peer that goes through us has left the
        way it told us of before, so that one is withdrawn with it.
        """
        if info.id == self._self_id:
            self.counters.looped += 1
            return None
        if info.has_passed(self._self_id):
            self.counters.looped += 1
            return self._remove(session, info.id)
        paths = self._paths.setdefault(info.id, {})
        held = paths.get(session)
        if held is not None and held.info == info:
            self.counters.duplicates += 1
            return None
        self._sessions[session].node_ids[info.id] = None
        return self._put(info.id, self._path(session, info))

    def withdraw(self, session: SessionId, info: NodeInfo) -> NodeChange | None:
        """A session takes back what it said of a node, also if it names another path by now."""
        if session not in self._paths.get(info.id, ()):
            self.counters.unknown_withdraws += 1
            return None
        return self._remove(session, info.id)

    # -- what is known ---------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._paths)

    def __iter__(self) -> Iterator[NodeId]:
        """Every node some session leads to, admitted or not."""
        return iter(tuple(self._paths))

    def best(self, node_id: NodeId) -> Choice | None:
        """The best path to a node, or None if it is unknown or no path to it is admitted."""
        if self._closed:
            self._settle_row(node_id)
        return self._best.get(node_id)

    def data_choice(self, node_id: NodeId) -> Choice | None:
        """The best path to a node if data can be sent that way."""
        choice = self.best(node_id)
        return choice if choice is not None and choice.path.carries_data else None

    def info(self, node_id: NodeId) -> NodeInfo | None:
        """What the best path says of a node."""
        choice = self.best(node_id)
        return choice.path.info if choice is not None else None

    def paths(self, node_id: NodeId) -> Collection[PathCandidate]:
        """Every path to a node, in no order."""
        if self._closed:
            self._settle_row(node_id)
        return self._paths.get(node_id, {}).values()

    def candidates(self, node_id: NodeId) -> tuple[PathCandidate, ...]:
        """Every path to a node, best first, those not admitted last."""
        admitted, refused = self.ranked(node_id)
        return (*admitted, *refused)

    def ranked(
        self, node_id: NodeId
    ) -> tuple[tuple[PathCandidate, ...], tuple[PathCandidate, ...]]:
        """The paths to a node that are admitted, best first, and those that are not."""
        choice = self.best(node_id)
        left = dict(self._paths.get(node_id, {}))
        ranked = []
        while choice is not None:
            ranked.append(left.pop(choice.path.session))
            choice = self._select(left.values()) if left else None
        return tuple(ranked), tuple(left.values())

    # -- how it works ----------------------------------------------------------------------------

    def _path(self, session: SessionId, info: NodeInfo) -> PathCandidate:
        by = self._sessions[session]
        srtt_us = info.sum_srtt_us + by.srtt_us
        return PathCandidate(session, by.peer_id, info, srtt_us, by.opened_at, by.carries_data)

    def _remove(self, session: SessionId, node_id: NodeId) -> NodeChange | None:
        paths = self._paths.get(node_id)
        if paths is None or paths.pop(session, None) is None:
            return None
        self._sessions[session].node_ids.pop(node_id, None)
        best = self._best.get(node_id)
        if best is not None and best.second is not None and _is_beside(best, session):
            return None
        return self._reselect(node_id)

    def _put(self, node_id: NodeId, path: PathCandidate) -> NodeChange | None:
        """A path is in its row, in place of what the session said before.

        With hundreds of neighbours most are of no account, and to look at each takes as long as
        there are others.
        """
        self._paths[node_id][path.session] = path
        best = self._best.get(node_id)
        if best is not None and best.second is not None and _is_beside(best, path.session):
            among = self._select((best.path, best.second, path))
            if among is not None and among.path is best.path and among.second is best.second:
                return None
        return self._reselect(node_id)

    def _reselect(self, node_id: NodeId) -> NodeChange | None:
        """After any change to a row: choose again, and tell if the choice is another."""
        paths = self._paths[node_id]
        old = self._best.pop(node_id, None)
        new = self._select(paths.values()) if paths else None
        if new is not None:
            self._best[node_id] = new
        if not paths:
            del self._paths[node_id]
        if _same(old, new):
            return None
        self.moved[node_id] = None
        return NodeChange(node_id, old, new)


def _is_beside(best: Choice, session: SessionId) -> bool:
    """Whether what a session says is neither the best nor the second."""
    second = best.second
    return best.path.session != session and (second is None or second.session != session)


def _same(old: Choice | None, new: Choice | None) -> bool:
    if old is None or new is None:
        return old is new
    return old.path.session == new.path.session and old.path.info == new.path.info
