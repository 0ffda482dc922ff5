"""Groups in their order, as far as that can be had without waiting for what may never come.

Groups travel on streams of their own, side by side. The objects of the group in hand pass at once,
but for a stream that has overtaken another of it (`group_order.py`). Those of later groups wait for

- the streams of the group in hand to be closed;
- every stream that the relay opened earlier: QUIC numbers streams, so one that was overtaken shows
  as a gap;
- the rest of a stream that broke off since its publisher was lost;
- the rest of a group whose streams ended without its end, where the group before had an end, and
  more objects: its publisher may have moved to another relay;
- a group that is left out where groups were numbered one after the other: a relay that lost its way
  asks for it, and has it after later ones.

None is waited for longer than `patience_s`, and after one that did not come the next is not waited
for. What comes of a group that has had its turn passes at once, late.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from laps.client.gaps import PRIOR_GROUP_ID_GAP
from laps.client.group_order import TRUSTED_AGAIN, GroupOrder
from laps.wire.moqt.track_checking import ENDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from laps.client.values import Object


# A publisher that is started anew goes on with numbers that are larger by thousands.
MOST_LEFT_OUT: Final = 100

_ID: Final = attrgetter("id")


@dataclass(slots=True)
class _Group:
    """A group whose turn has not come."""

    objects: deque[Object] = field(default_factory=deque)
    stream_id: int | None = None
    "The first of its streams."
    closed: set[int | None] = field(default_factory=set)
    "The subgroups that had a stream which is closed."


class Sequencer:
    """Puts the objects of one subscription in order."""

    def __init__(
        self,
        is_clear: Callable[[int], bool],
        give_up: Callable[[int], None],
        *,
        ordered: bool,
        patience_s: float,
    ) -> None:
        """`is_clear` tells whether no stream ahead of one is missing; `give_up` ends waiting."""
        self.held = True
        "Nothing passes yet."
        self._is_clear = is_clear
        self._give_up = give_up
        self._ordered = ordered
        self._patience = patience_s
        self._at = -1
        "The group in hand."
        self._in_sequence = 0
        "How many groups, up to the one in hand, were numbered one after the other;"
        self._trusted_from = 1
        "and from how many on one that is left out is waited for."
        self._open: dict[int, int] = {}
        "How many streams of a group are open."
        self._broken_off: set[int] = set()
        "Groups whose stream may go on as another one."
        self._settled: set[int] = set()
        "Groups that had a stream that ended, from the one in hand on."
        self._ended: set[int] = set()
        "Groups that were said to end, or of which the relay has given something up."
        self._marked = 0
        "How many groups in sequence, before the one in hand, were said to end;"
        self._marked_from = 1
        "and from how many on the end of the next is waited for."
        self._later: dict[int, _Group] = {}
        self._order: list[int] = []
        self._waiting_since: float | None = None
        self._in_hand = GroupOrder()

    def go_on(self, group: int) -> None:
        """Something else has brought the first of a group, and a stream is to bring the rest."""
        self._at = max(self._at, group)
        if group not in self._open and group not in self._settled:
            self._broken_off.add(group)

    def opened(self, group: int, stream_id: int) -> None:
        """A stream has begun."""
        self._open[group] = self._open.get(group, 0) + 1
        self._broken_off.discard(group)
        if group > self._at:
            later = self._wait(group)
            if later.stream_id is None or stream_id < later.stream_id:
                later.stream_id = stream_id

    def closed(
        self,
        group: int,
        subgroup: int | None = None,
        *,
        complete: bool = True,
        goes_on: bool = False,
    ) -> None:
        """A stream is closed.

        `complete`: it was not given up. `goes_on`: it was, and another may bring the rest.
        """
        if group == self._at:
            self._in_hand.closed(subgroup)
        elif group in self._later:
            self._later[group].closed.add(subgroup)
        left = self._open.get(group, 0) - 1
        if left > 0:
            self._open[group] = left
        else:
            self._open.pop(group, None)
        if not goes_on:
            self._settled.add(group)
            if not complete:
                self._ended.add(group)
        elif group not in self._settled:
            self._broken_off.add(group)

    def add(self, item: Object) -> bool:
        """Take an object; False if it may pass at once."""
        if item.status in ENDS:
            self._ended.add(item.group)
        if self.held or (self._ordered and item.group > self._at):
            self._wait(item.group).objects.append(item)
            return True
        if not self._ordered:
            return False
        if item.group < self._at:
            self._in_sequence = self._trusted_from = 1  # it was worth waiting for
            self._marked_from = 1
            self._in_hand.was_late()
            return False
        return self._in_hand.add(item, self._streams_in_hand)

    @property
    def _streams_in_hand(self) -> int:
        """How many streams of the group in hand are open, or may go on."""
        return self._open.get(self._at, 0) + (self._at in self._broken_off)

    def _wait(self, group: int) -> _Group:
        later = self._later.get(group)
        if later is None:
            later = self._later[group] = _Group()
            heappush(self._order, group)
        return later

    def advance(self, now: float) -> Iterator[Object]:
        """The objects whose turn has come."""
        if self._in_hand and not self.held:
            yield from self._in_hand.release(self._streams_in_hand, now, self._patience)
        while self._order and not self.held:
            group = self._order[0]
            if not self._may_follow(group, now):
                return
            self._waiting_since = None
            heappop(self._order)
            later = self._later.pop(group)
            if group > self._at:
                yield from self._in_hand.flush()
                self._count(group)
                self._in_hand.begin(later.closed, follows=group == self._at + 1)
                self._at = group
                self._settled = {it for it in self._settled if it >= group}
                self._broken_off = {it for it in self._broken_off if it >= group}
                self._ended = {it for it in self._ended if it >= group}
            for item in self._in_order(later):
                if not (self._ordered and self._in_hand.add(item, self._streams_in_hand)):
                    yield item
            if self._in_hand:
                yield from self._in_hand.release(self._streams_in_hand, now, self._patience)

    def _in_order(self, group: _Group) -> Iterable[Object]:
        """What waited of a group: relays may send parts of it on streams that overtake others."""
        return sorted(group.objects, key=_ID) if self._ordered else group.objects

    def _may_follow(self, group: int, now: float) -> bool:
        if not self._ordered or group <= self._at:
            return True
        later = self._later[group]
        clear = later.stream_id is None or self._is_clear(later.stream_id)
        left_out = self._is_left_out(group)
        in_hand = self._streams_in_hand or self._in_hand or self._lacks_end(group)
        if clear and not in_hand and not left_out:
            return True
        if self._waiting_since is None:
            self._waiting_since = now
        if now < self._waiting_since + self._patience:
            return False
        if later.stream_id is not None:
            self._give_up(later.stream_id)
        return True

    def _is_left_out(self, group: int) -> bool:
        """Whether there should be something between the group in hand and another."""
        gap = group - self._at - 1
        if not 0 < gap < MOST_LEFT_OUT or self._in_sequence < self._trusted_from:
            return False
        objects = self._later[group].objects
        said = objects[0].extensions if objects else ()
        return not any(kind == PRIOR_GROUP_ID_GAP for kind, _ in said)

    def _lacks_end(self, group: int) -> bool:
        """Whether the group in hand, which another follows, may have more than its streams had.

        A publisher that moves to another relay goes on there, with a stream of its own. Where it
        moves between two groups nobody says that the first has ended: what tells is how many
        objects the group before had.
        """
        if group != self._at + 1 or self._marked < self._marked_from:
            return False
        return self._at in self._settled and self._at not in self._ended and self._in_hand.is_short

    def _count(self, group: int) -> None:
        """The next group has its turn."""
        if self._at in self._ended:
            self._marked += 1
        else:
            if self._lacks_end(group):
                self._marked_from = TRUSTED_AGAIN
            self._marked = 0
        if group == self._at + 1:
            self._in_sequence += 1
            return
        if self._in_sequence >= self._trusted_from:
            self._trusted_from = TRUSTED_AGAIN
        self._in_sequence = 0

    def force(self, now: float) -> Iterator[Object]:
        """Wait no longer for what is in the way now."""
        if self._waiting_since is not None:
            self._waiting_since = now - self._patience
        self._in_hand.hurry(now - self._patience)
        return self.advance(now)

    def flush(self) -> Iterator[Object]:
        """All that is left, in order: nothing more will come."""
        yield from self._in_hand.flush()
        while self._order:
            group = heappop(self._order)
            self._at = max(self._at, group)
            yield from self._in_order(self._later.pop(group))

    @property
    def open_groups(self) -> Collection[int]:
        """The groups that have an open stream."""
        return self._open

    @property
    def waiting(self) -> bool:
        """Whether something waits for its turn."""
        return bool(self._order or self._in_hand)

    @property
    def deadline(self) -> float | None:
        """When `advance` is worth a call though nothing has come."""
        times = [it for it in (self._waiting_since, self._in_hand.since) if it is not None]
        return min(times) + self._patience if times else None

    @property
    def unfinished(self) -> int | None:
        """The smallest group of which something may still come; None if there was none."""
        groups = [*self._open, *self._later]
        if self._at >= 0:
            groups.append(self._at)
        return min(groups, default=None)
