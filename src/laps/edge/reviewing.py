"""Whether clients are still allowed what they were: looked at when a grant ends, or keys change."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING
from weakref import ref

if TYPE_CHECKING:
    from laps.edge.client import EdgeClient
    from laps.edge.context import Context
    from laps.edge.shaping import Shaping


class Reviews:
    """When each client is looked at."""

    def __init__(self, context: Context, shaping: Shaping) -> None:
        self._context = context
        self._shaping = shaping

    def expect(self, client: EdgeClient) -> None:
        """A client may have something that ends sooner than all before it."""
        self._shaping.pace(client)
        for decision in client.access.take_new():
            decision.users[client] = None
        when = client.access.ends_at
        if when < client.review_at:
            client.review_at = when
            # A token may outlive its client by hours, and is not to keep it in memory.
            waiting = ref(client)
            self._context.at(when, lambda now: self._look(waiting(), when, now))

    def all(self, now: float) -> None:
        """Keys, revocations or the time are others than they were."""
        for client in list(self._context.clients):
            self._review(client, now)

    def one(self, client: EdgeClient, now: float) -> None:
        """Something that a client depends on has been taken back."""
        if client in self._context.clients:
            self._review(client, now)

    def _look(self, client: EdgeClient | None, when: float, now: float) -> None:
        if client is None or client not in self._context.clients:
            return
        if client.review_at == when:
            self._review(client, now)

    def _review(self, client: EdgeClient, now: float) -> None:
        if client.access.is_open:
            return
        client.review_at = inf
        client.review(now)
        client.access.reviewed(now)
        self.expect(client)
