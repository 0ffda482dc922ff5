"""How often what is said in our name has to be put right, and what it means if that does not end.

After a restart, or where a neighbour withdrew something on our behalf, a word is put right once or
twice. Where it comes again and again, another relay has our node id and puts us right in turn: the
operator is told, and the two do not go on for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.types import format_node_id

if TYPE_CHECKING:
    from collections.abc import Hashable

    from laps.relay.journal import Journal
    from laps.relay.settings import RelayCounters
    from laps.types import NodeId

# Of one thing within this time. A network whose links break all the time stays below it.
MOST: Final = 10
WITHIN_S: Final = 60.0

# All that is put right at once after a restart is counted, up to this much.
MAX_COUNTED: Final = 100_000


class Corrections:
    """What was put right lately."""

    def __init__(self, self_id: NodeId, journal: Journal, counters: RelayCounters) -> None:
        self._self_id = self_id
        self._journal = journal
        self._counters = counters
        self._counts: dict[Hashable, int] = {}
        self._until = 0.0
        self._noted = False

    def may(self, key: Hashable, now: float) -> bool:
        """Whether to put one thing right once more."""
        if now >= self._until:
            self._counts.clear()
            self._until, self._noted = now + WITHIN_S, False
        if key not in self._counts and len(self._counts) >= MAX_COUNTED:
            return True
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._counts[key] <= MOST:
            return True
        if not self._noted:
            self._noted = True
            self._counters.double_node_ids += 1
            reason = "another relay has our node id: give one of them another, node.id"
            what = f"more than {MOST} corrections of one thing"
            node = format_node_id(self._self_id)
            self._journal.note(now, "node_id_conflict", node, what, reason)
        return False
