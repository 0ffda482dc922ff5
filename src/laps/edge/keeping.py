"""Which tracks clients of this relay are kept away from, by policy, and when that is another.

A refusal is one more thing that a client is not allowed, as where its token has ended: requests are
answered UNAUTHORIZED, or `fail` in QUICR, with the reason; and what goes on already is ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.relay.refusals import PolicyChanged

if TYPE_CHECKING:
    from laps.edge.context import Context
    from laps.edge.reviewing import Reviews
    from laps.relay.refusals import TrackRefused
    from laps.types import TrackName


class Keeping:
    """Ends what policy allows no more."""

    def __init__(self, context: Context, reviews: Reviews) -> None:
        self._context = context
        self._reviews = reviews
        relay = context.relay
        context.authority.policy = _Policy(context) if relay.rules.accepts_clients else None

    def changed(self, event: TrackRefused | PolicyChanged, now: float) -> None:
        """Clients may have other tracks than before."""
        if isinstance(event, PolicyChanged):
            self._reviews.all(now)
            return
        for client in [it for it in self._context.clients if event.key in it.subscriptions]:
            self._reviews.one(client, now)


class _Policy:
    """What the relay's own policy says, and what relays say that have a track."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._refusals = context.relay.refusals

    @property
    def binds(self) -> bool:
        return self._refusals.binds

    def refusal(self, name: TrackName, *, is_published: bool) -> str | None:
        reason = self._refusals.here(name)
        if reason is not None or is_published:
            return reason
        track = self._context.relay.tracks.named(name)
        if track is None or not self._refusals.is_heard(track.key):
            return None
        return self._refusals.reason_of(track.key, self._context.offering_nodes(track))
