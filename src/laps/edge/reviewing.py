"""Whether clients are still allowed what they were: looked at when a grant ends, or keys change."""

from __future__ import annotations

from functools import partial
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from laps.edge.client import EdgeClient
    from laps.edge.context import Context
    from laps.edge.shaping import Shaping


# 30 µs each, and more for who has many subscriptions: the others are for a later turn.
MOST_IN_A_TURN: Final = 100
TURN_S: Final = 0.001


class Reviews:
    """When each client is looked at."""

    def __init__(self, context: Context, shaping: Shaping) -> None:
        self._context = context
        self._shaping = shaping
        self._waiting: dict[float, dict[EdgeClient, None]] = {}
        "Who is looked at when. Sessions with one token share a time, and leave nothing in it."

    def expect(self, client: EdgeClient) -> None:
        """A client may have something that ends sooner than all before it."""
        self._shaping.pace(client)
        for decision in client.access.take_new():
            decision.users[client] = None
        when = client.access.ends_at
        if when < client.review_at and client in self._context.connected:
            self.forget(client)
            client.review_at = when
            if when not in self._waiting:
                self._waiting[when] = {}
                self._context.at(when, partial(self._look, when))
            self._waiting[when][client] = None

    def forget(self, client: EdgeClient) -> None:
        """A client has left, maybe hours before its token ends, or is looked at sooner."""
        self._waiting.get(client.review_at, {}).pop(client, None)
        client.review_at = inf

    def all(self, now: float) -> None:
        """Keys, revocations or the time are others than they were."""
        for client in list(self._context.clients):
            self._review(client, now)

    def one(self, client: EdgeClient, now: float) -> None:
        """Something that a client depends on has been taken back."""
        if client in self._context.clients:
            self._review(client, now)

    def _look(self, when: float, now: float) -> None:
        clients = self._waiting[when]
        for client in list(islice(clients, MOST_IN_A_TURN)):
            clients.pop(client, None)  # first: it may have to be looked at once more
            self.one(client, now)
        if clients:
            self._context.at(now + TURN_S, partial(self._look, when))
        else:
            del self._waiting[when]

    def _review(self, client: EdgeClient, now: float) -> None:
        if client.access.is_unlimited:
            return
        self.forget(client)
        client.review(now)
        client.access.reviewed(now)
        self.expect(client)
