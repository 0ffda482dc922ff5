"""Whether clients are still allowed what they were: looked at when a grant ends, or keys change."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

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
        """A client may have shown something that ends sooner than all before it."""
        self._shaping.pace(client)
        when = client.access.ends_at
        if when < client.review_at:
            client.review_at = when
            self._context.at(when, lambda now: self._look(client, when, now))

    def all(self, now: float) -> None:
        """Keys, revocations or the time are others than they were."""
        for client in list(self._context.clients):
            self._review(client, now)

    def _look(self, client: EdgeClient, when: float, now: float) -> None:
        if client in self._context.clients and client.review_at == when:
            self._review(client, now)

    def _review(self, client: EdgeClient, now: float) -> None:
        if client.access.is_open:
            return
        client.review_at = inf
        client.review(now)
        client.access.reviewed(now)
        self.expect(client)
