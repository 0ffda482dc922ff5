"""Whose turn it is to be sent: streams by class, by flow, and by their order within a flow.

    class    the priorities, the most urgent first, and the class of service: the others wait
    flow     of a class, such as a subscription: flows take turns, a number of bytes each
    order    within a flow, such as the group and the subgroup: the smallest first; equal ones take
             turns

A rank of more than four parts is `(priority, priority, place of the class of service, flow,
*order)`; any other is a class with one flow, all of whose streams are equal. Streams that are not
open yet stand apart from those that are, so that they cost nothing while no more may be opened,
however many they are.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from laps.routing.terms import ORDINARY

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

Rank = Any
"Whatever sorts against the other ranks of the same egress: a number, or a tuple of them."

# How many parts of a rank say how urgent it is, the class of service last.
CLASS_PARTS: Final = 3

# Flows, and streams of equal order, take turns after this much: a GSO batch's worth.
TURN_BYTES: Final = 64 * 1024

T = TypeVar("T")


class Stream(Protocol):
    """What has something to send."""

    @property
    def rank(self) -> Rank:
        """Its class, flow and order."""

    @property
    def stream_id(self) -> int | None:
        """None until it is open."""


S = TypeVar("S", bound=Stream)


def class_of(rank: Rank) -> Rank:
    """The part of a rank that says how urgent it is."""
    return rank[:CLASS_PARTS] if isinstance(rank, tuple) else rank


def order_of(rank: Rank) -> int:
    """The place of its class of service, which a shorter rank does not have."""
    if isinstance(rank, tuple) and len(rank) >= CLASS_PARTS:
        return int(rank[CLASS_PARTS - 1])
    return ORDINARY


def reordered(rank: Rank, order: int) -> Rank:
    """The same in another class of service."""
    return (*rank[: CLASS_PARTS - 1], order, *rank[CLASS_PARTS:])


def _parts(rank: Rank) -> tuple[Rank, Hashable, Rank]:
    if isinstance(rank, tuple) and len(rank) > CLASS_PARTS + 1:
        return rank[:CLASS_PARTS], rank[CLASS_PARTS], rank[CLASS_PARTS + 1 :]
    return rank, None, ()


class Ranked(Generic[T]):
    """Items by rank, those of one rank in the order they came."""

    def __init__(self) -> None:
        self.ranks: list[Rank] = []
        self.lanes: dict[Rank, deque[T]] = {}

    def __bool__(self) -> bool:
        return bool(self.ranks)

    def __iter__(self) -> Iterator[T]:
        """From the least urgent to the most, the oldest of each rank first."""
        for rank in reversed(self.ranks):
            yield from self.lanes[rank]

    def lane(self, rank: Rank) -> deque[T]:
        """The items of a rank, to add to."""
        lane = self.lanes.get(rank)
        if lane is None:
            lane = self.lanes[rank] = deque()
            insort(self.ranks, rank)
        return lane

    def tidy(self, rank: Rank) -> None:
        """After taking from a lane: it goes when it is empty."""
        if not self.lanes[rank]:
            del self.lanes[rank]
            self.ranks.remove(rank)


class _Flow(Generic[S]):
    """The streams of one flow."""

    __slots__ = ("_opening", "left", "opened", "unopened")

    def __init__(self) -> None:
        self.opened: Ranked[S] = Ranked()
        self.unopened: Ranked[S] = Ranked()
        self.left = TURN_BYTES
        "What it may send before it is another flow's turn."
        self._opening = False

    def first(self) -> S:
        """The stream that is next; open ones and others that are equal take turns."""
        opened, unopened = self.opened, self.unopened
        if not unopened.ranks or not opened.ranks:
            queue = opened if opened.ranks else unopened
        elif opened.ranks[0] == unopened.ranks[0]:
            self._opening = not self._opening
            queue = unopened if self._opening else opened
        else:
            queue = opened if opened.ranks[0] < unopened.ranks[0] else unopened
        return queue.lanes[queue.ranks[0]][0]


class _Class(Generic[S]):
    """The flows of one class; the first is next."""

    __slots__ = ("flows", "opened")

    def __init__(self) -> None:
        self.flows: dict[Hashable, _Flow[S]] = {}
        self.opened: dict[Hashable, _Flow[S]] = {}
        "Those with open streams."


class Turns(Generic[S]):
    """Streams with something to send."""

    def __init__(self) -> None:
        self._classes: dict[Rank, _Class[S]] = {}
        self._ranks: list[Rank] = []
        self._opened: list[Rank] = []
        "Classes with open streams."

    def __bool__(self) -> bool:
        return bool(self._ranks)

    def __iter__(self) -> Iterator[S]:
        """From the least urgent class to the most."""
        for rank in reversed(self._ranks):
            for flow in self._classes[rank].flows.values():
                yield from flow.opened
                yield from flow.unopened

    def add(self, stream: S) -> None:
        """A stream has something to send."""
        rank, name, order = _parts(stream.rank)
        class_ = self._classes.get(rank)
        if class_ is None:
            class_ = self._classes[rank] = _Class()
            insort(self._ranks, rank)
        flow = class_.flows.get(name)
        if flow is None:
            flow = class_.flows[name] = _Flow()
        if stream.stream_id is None:
            flow.unopened.lane(order).append(stream)
            return
        flow.opened.lane(order).append(stream)
        if name not in class_.opened:
            if not class_.opened:
                insort(self._opened, rank)
            class_.opened[name] = flow

    def remove(self, stream: S) -> None:
        """It has nothing more to send, or is about to be opened."""
        rank, name, order = _parts(stream.rank)
        class_ = self._classes[rank]
        flow = class_.flows[name]
        queue = flow.unopened if stream.stream_id is None else flow.opened
        queue.lanes[order].remove(stream)
        queue.tidy(order)
        if not flow.opened and class_.opened.pop(name, None) is not None and not class_.opened:
            self._opened.remove(rank)
        if not flow.opened and not flow.unopened:
            del class_.flows[name]
            if not class_.flows:
                del self._classes[rank]
                self._ranks.remove(rank)

    def next(self, *, opened_only: bool) -> S | None:
        """The stream whose turn it is."""
        if not opened_only:
            if not self._ranks:
                return None
            return next(iter(self._classes[self._ranks[0]].flows.values())).first()
        if not self._opened:
            return None
        queue = next(iter(self._classes[self._opened[0]].opened.values())).opened
        return queue.lanes[queue.ranks[0]][0]

    def sent(self, stream: S, size: int) -> None:
        """So much of a stream was sent: it may be another's turn."""
        rank, name, order = _parts(stream.rank)
        class_ = self._classes.get(rank)
        flow = None if class_ is None else class_.flows.get(name)
        if class_ is None or flow is None:
            return
        lane = flow.opened.lanes.get(order)
        if lane and lane[0] is stream:
            lane.rotate(-1)
        flow.left -= size
        if flow.left <= 0:
            flow.left = TURN_BYTES
            class_.flows[name] = class_.flows.pop(name)
            if name in class_.opened:
                class_.opened[name] = class_.opened.pop(name)
