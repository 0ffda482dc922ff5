"""Which tracks clients of this relay are kept away from, by policy, and when that is another.

A refusal is one more thing that a client is not allowed, as where its token has ended: requests are
answered UNAUTHORIZED, or `fail` in QUICR, with the reason; and what goes on already is ended. Stubs
are told what other relays refuse; what this one keeps from them is in `relay/stub_refusals`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.relay.refusals import PolicyChanged
from laps.relay.roles import Role

if TYPE_CHECKING:
    from laps.edge.context import Context
    from laps.edge.relay_requests import RelayRequests
    from laps.edge.reviewing import Reviews
    from laps.relay.refusals import TrackRefused
    from laps.types import TrackKey, TrackName


class Keeping:
    """Ends what policy allows no more."""

    def __init__(self, context: Context, reviews: Reviews, requests: RelayRequests) -> None:
        self._context = context
        self._reviews = reviews
        self._requests = requests
        relay = context.relay
        context.authority.policy = _Policy(context) if relay.rules.accepts_clients else None

    def changed(self, event: TrackRefused | PolicyChanged, now: float) -> None:
        """Clients may have other tracks than before."""
        if isinstance(event, PolicyChanged):
            self._reviews.all(now)
            self._requests.review(now)
            return
        for client in [it for it in self._context.clients if event.key in it.subscriptions]:
            self._reviews.one(client, now)
        self._tell_stubs(event.key, now)

    def _tell_stubs(self, key: TrackKey, now: float) -> None:
        """Other relays refuse a track, or do no longer: Stubs that want it are to know."""
        relay, policy = self._context.relay, self._context.authority.policy
        track = relay.tracks.get(key)
        if track is None or track.name is None or policy is None:
            return
        reason = policy.refusal(track.name, is_published=False) or ""
        for stub in [it for it in relay.stubs if it in track.subscribers]:
            relay.stub_refusals.changed(stub, key, reason, now)


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
        offering = self._context.offering_nodes(track)
        if not offering and self._context.relay.role is Role.STUB:
            # It knows of nobody but its Edge, by which all comes.
            offering = list(self._refusals.reasons(track.key))
        return self._refusals.reason_of(track.key, offering)
