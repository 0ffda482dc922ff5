"""How far each relay's minutes are closed, and which records come too late for theirs.

A minute of a relay is written once, when the relay's watermark has passed its end, and never
changes: the watermark stands `DELAY` behind the newest record of that relay. Each relay has its
own, as a row of a minute is made of one relay's records: one that was cut off for an hour and is
then caught up with is not late, and a clock that is wrong does no harm to others.

A relay that falls silent has its last minutes closed when the others are `IDLE` ahead of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MINUTE: Final = timedelta(minutes=1)

DELAY: Final = timedelta(minutes=2)
"How long a minute waits for records that were overtaken; they come a second apart."

IDLE: Final = timedelta(minutes=10)
"How far others get ahead before a relay counts as silent: a restart and a catch-up take less."

AHEAD: Final = timedelta(minutes=1)
"How far a relay's clock may be ahead of the reader's; what is further ahead moves no watermark."


@dataclass(frozen=True, slots=True)
class Seen:
    """What a batch holds of one relay in one minute."""

    node: str
    minute: datetime
    rows: int
    newest: datetime
    "The newest of their times, no more than `AHEAD` of when they were received."


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a relay's minutes are closed, after a batch."""

    node: str
    newest: datetime
    "The newest time that it has sent."
    first: datetime | None
    "The first minute that has records and was not closed before the batch."
    last: datetime | None
    "The last such minute."
    closed_before: datetime
    "What `closed` was before the batch."
    closed: datetime
    "Minutes before this are closed: written, or empty for ever."

    @property
    def closes(self) -> bool:
        """Whether the batch closes minutes of this relay that have records: from `first` on."""
        return self.first is not None and self.first < self.closed


def advance(marks: Mapping[str, Mark], seen: Iterable[Seen]) -> dict[str, Mark]:
    """The marks after a batch."""
    by_node: dict[str, list[Seen]] = {}
    for some in seen:
        by_node.setdefault(some.node, []).append(some)
    moved = {node: _move(marks.get(node), by_node.get(node, ())) for node in marks.keys() | by_node}
    newest = max((mark.newest for mark in moved.values()), default=None)
    return {
        node: _close_if_silent(mark, newest) if newest is not None else mark
        for node, mark in sorted(moved.items())
    }


def late(marks: Mapping[str, Mark], seen: Iterable[Seen]) -> list[Seen]:
    """What of a batch is of minutes that were closed before it; `marks` are those after it."""
    return [some for some in seen if some.minute < marks[some.node].closed_before]


def minute_of(at: datetime) -> datetime:
    """The minute that a time is in."""
    return at.astimezone(UTC).replace(second=0, microsecond=0)


def _move(mark: Mark | None, seen: Iterable[Seen]) -> Mark:
    """The mark of one relay after what it has sent; a relay that is new has sent something."""
    seen = list(seen)
    closed = min(some.minute for some in seen) if mark is None else mark.closed
    in_time = [some.minute for some in seen if some.minute >= closed]
    newest = [some.newest for some in seen]
    if mark is not None:
        newest.append(mark.newest)
        if mark.last is not None and mark.last >= closed:  # still open after the batch before
            in_time += [max(closed, mark.first or closed), mark.last]
    return Mark(
        node=seen[0].node if mark is None else mark.node,
        newest=max(newest),
        first=min(in_time, default=None),
        last=max(in_time, default=None),
        closed_before=closed,
        closed=max(closed, minute_of(max(newest) - DELAY)),
    )


def _close_if_silent(mark: Mark, newest: datetime) -> Mark:
    if mark.last is None or newest - mark.newest <= IDLE:
        return mark
    # What its clock has put into the future stays open, or all that it sends later would be late.
    end = min(mark.last, minute_of(mark.newest)) + MINUTE
    if end <= mark.closed:
        return mark
    return Mark(mark.node, mark.newest, mark.first, mark.last, mark.closed_before, end)
