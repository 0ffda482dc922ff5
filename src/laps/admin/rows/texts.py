"""Node ids as text, in the rows that a relay shows."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from laps.types import format_node_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.types import NodeId

# A relay names the same few nodes in each of thousands of rows.
node_text = lru_cache(maxsize=4096)(format_node_id)


def node_texts(nodes: Iterable[NodeId]) -> list[str]:
    """Nodes in the order of their ids."""
    return [node_text(node) for node in sorted(nodes)]
