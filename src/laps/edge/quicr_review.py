"""What a QuicrClient is not allowed any more ends: SUBSCRIBE_REPLY, and its stream is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from laps.auth.grants import Action
from laps.edge.quicr_access import response_of, words_of
from laps.wire.quicr.messages import SubscribeReply

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.edge.quicr_access import QuicrAccess
    from laps.edge.quicr_subscription import QuicrSubscription
    from laps.edge.quicr_wildcards import Wildcards
    from laps.sessions.quicr import ControlStream, QuicrSession
    from laps.wire.quicr.messages import Response


class ReviewedClient(Protocol):
    """The client that is looked at."""

    access: QuicrAccess
    session: QuicrSession
    wildcards: Wildcards

    def end_stream(
        self, subscription: QuicrSubscription, response: Response, reason: str, now: float
    ) -> None:
        """End a subscription, and say why."""

    def unsubscribed(self, stream: ControlStream, now: float) -> None:
        """A subscription has ended."""


def review(client: ReviewedClient, subscriptions: Iterable[QuicrSubscription], now: float) -> None:
    """End what a client may not subscribe to any more."""
    for subscription in subscriptions:
        name, stream = subscription.track.name, subscription.stream
        own = None if stream.ours else stream.id
        if name is not None and (
            error := client.access.still(own, Action.SUBSCRIBE, name.namespace, name.name, now)
        ):
            client.end_stream(subscription, response_of(error), words_of(error), now)
    for stream, prefix in client.wildcards.prefixes():
        action = Action.SUBSCRIBE_NAMESPACE
        if (error := client.access.still(stream.id, action, prefix, None, now)) is not None:
            client.unsubscribed(stream, now)
            client.session.send(stream, SubscribeReply(response_of(error), words_of(error)))
            client.session.close(stream)
