"""What is held of messages that have not come whole, on all streams of all sessions of a relay.

Each session has a bound of its own. A thousand of them may still hold a thousand times as much, so
they count in one place; which of them has to go is for whoever knows them all to say.
"""

from __future__ import annotations


class HalfMessages:
    """A count that sessions share."""

    __slots__ = ("most", "size")

    def __init__(self, most: int | None = None) -> None:
        """Without `most` there is no bound."""
        self.most = most
        self.size = 0
        "Bytes of all sessions."

    @property
    def is_full(self) -> bool:
        """Whether more is held than may be."""
        return self.most is not None and self.size > self.most
