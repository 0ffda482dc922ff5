"""Subscriptions of clients: answered when the track is known to be there.

    a publisher here has answered, or sends already      at once, with the largest object it has
    a relay elsewhere offers the track                   when that relay has said how far it is
    nobody does                                          when a publisher comes, or its first bytes;
                                                         or with an error, after a while

`tracks/subscription.py` has the states as a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laps.edge.client import EdgeClient, EdgeSubscription
from laps.tracks.subscription import SubscriptionState
from laps.wire.moqt.codes import RequestCode
from laps.wire.subscribe import encode_subscribe

if TYPE_CHECKING:
    from laps.edge.context import Context
    from laps.edge.pressure import Pressure
    from laps.edge.track_status import Statuses
    from laps.tracks.subscription import Subscription
    from laps.tracks.track import Track
    from laps.types import Location, NodeId


@dataclass(slots=True)
class _Inquiry:
    """A relay was asked how far a track is, for a subscription."""

    subscribing: Subscribing
    subscription: EdgeSubscription
    node_id: NodeId

    def answered(self, largest: Location | None, now: float) -> None:
        """As `Inquirer.answered`."""
        subscription = self.subscription
        if subscription.is_unanswered:
            subscription.track.cached.saw(largest)
            # Whoever waited for the publisher begins with the first object. QUICR fetches it.
            from_start = subscription.is_new and not subscription.patient
            self.subscribing.establish(subscription, None if from_start else largest, now)

    def refused(self, code: int, reason: str, now: float) -> None:
        """As `Inquirer.refused`."""
        self.subscription.refused_by.add(self.node_id)
        if self.subscription.state is SubscriptionState.ASKING:
            self.subscribing.refused_elsewhere(self.subscription, code, reason, now)


class Subscribing:
    """The subscriptions of a relay's clients."""

    def __init__(self, context: Context, statuses: Statuses, pressure: Pressure) -> None:
        self._context = context
        self._statuses = statuses
        self._pressure = pressure

    def subscribe(self, subscription: EdgeSubscription, now: float) -> None:
        """A client wants a track."""
        track = subscription.track
        if not subscription.patient:
            subscription.is_new = track.largest() is None and not self._context.is_offered(track)
        assert track.name is not None  # noqa: S101 - it was made from its name
        data = encode_subscribe(track.name)
        self._context.relay.subscribe(subscription.client, track.name, data, now, subscription)
        self._pressure.changed_track(track, now)
        self.settle(track, now)
        if subscription.is_unanswered:
            wait_s = self._context.settings.subscribe_wait_s
            self._context.at(now + wait_s, lambda now: self._give_up(subscription, now))
        if subscription.new_group is not None:
            self.new_group(track, subscription.new_group)

    def unsubscribe(self, subscription: EdgeSubscription, now: float) -> None:
        """A client no longer wants a track."""
        track, client = subscription.track, subscription.client
        if subscription.state is SubscriptionState.CLOSED:
            return
        is_current = track.subscribers.get(client) is subscription
        if is_current and track.name is not None:
            self._context.relay.unsubscribe(client, track.name, now)
        subscription.advance(SubscriptionState.CLOSED)
        if is_current:
            self._pressure.changed_track(track, now)

    def offered(self, subscription: EdgeSubscription, now: float) -> None:
        """A client has accepted our PUBLISH of a track."""
        track, client = subscription.track, subscription.client
        # Until now nobody wanted the track because of it.
        track.remove_subscriber(client)
        subscription.advance(SubscriptionState.ESTABLISHED)
        if track.name is not None:
            data = encode_subscribe(track.name)
            self._context.relay.subscribe(client, track.name, data, now, subscription)

    # -- answers -----------------------------------------------------------------------------------

    def settle(self, track: Track, now: float) -> None:
        """Something has changed for a track: answer those who wait for it, where there is one."""
        self._statuses.settle(track, now)
        waiting = [it for it in track.waiting if isinstance(it, EdgeSubscription)]
        if not waiting:
            return
        publications = track.answering
        if any(it.is_established for it in publications) or self._context.has_plain(track):
            for subscription in waiting:
                self.establish(subscription, track.largest(), now)
        elif any(not publication.is_answered for publication in publications):
            return
        elif nodes := self._context.elsewhere(track):
            for subscription in waiting:
                self._ask(subscription, nodes, now)
        else:
            # Those that have ended refuse nothing: somebody else may come.
            refusals = (it.refusal for it in publications if it.refusal is not None)
            if (refusal := next(refusals, None)) is not None:
                for subscription in waiting:
                    self._refuse(subscription, refusal.code, refusal.reason, now)

    def first_data(self, subscription: Subscription, now: float) -> None:
        """A stream or datagram of the track has arrived, from whomever."""
        if (
            isinstance(subscription, EdgeSubscription)
            and subscription.state is SubscriptionState.WAITING
        ):
            self.establish(subscription, None, now)

    def establish(
        self, subscription: EdgeSubscription, largest: Location | None, now: float
    ) -> None:
        """The track is there: answer, unless all that is wanted of it is in the past."""
        if not subscription.is_unanswered:
            return
        if largest is not None and subscription.is_past(largest):
            reason = (
                f"group {subscription.end_group} is past: the track is at group {largest.group}"
            )
            self._refuse(subscription, RequestCode.INVALID_RANGE, reason, now)
            return
        subscription.client.accept(subscription, largest, now)

    def refused_elsewhere(
        self, subscription: EdgeSubscription, code: int, reason: str, now: float
    ) -> None:
        """A relay that was asked has no such track, or its publisher refuses: ask the next."""
        subscription.advance(SubscriptionState.WAITING)
        self._ask(subscription, self._context.elsewhere(subscription.track), now)
        # Where there is no publisher, one may have just left, and may come back.
        waits = subscription.state is SubscriptionState.WAITING
        if waits and code != RequestCode.DOES_NOT_EXIST:
            self._refuse(subscription, code, reason, now)

    def _ask(self, subscription: EdgeSubscription, nodes: list[NodeId], now: float) -> None:
        """Another relay has the track: begin where it is."""
        nodes = [node_id for node_id in nodes if node_id not in subscription.refused_by]
        if subscription.state is not SubscriptionState.WAITING or not nodes:
            return
        subscription.advance(SubscriptionState.ASKING)
        track = subscription.track
        self._statuses.ask_relay(track, nodes[0], _Inquiry(self, subscription, nodes[0]), now)

        def late(now: float) -> None:
            if subscription.state is SubscriptionState.ASKING:
                self.establish(subscription, track.largest(), now)

        self._context.at(now + self._context.settings.answer_wait_s, late)

    def _give_up(self, subscription: EdgeSubscription, now: float) -> None:
        """Nobody has come who publishes the track."""
        if subscription.state is not SubscriptionState.WAITING or subscription.patient:
            return
        track = subscription.track
        if any(not publication.is_answered for publication in track.answering):
            reason = "its publisher does not answer"
            self._refuse(subscription, RequestCode.TIMEOUT, reason, now)
        elif self._context.is_blind():
            # Not every relay tells us what it has: its track may come unannounced.
            self.establish(subscription, track.largest(), now)
        else:
            reason = "nobody publishes this track"
            self._refuse(subscription, RequestCode.DOES_NOT_EXIST, reason, now)

    def _refuse(self, subscription: EdgeSubscription, code: int, reason: str, now: float) -> None:
        if not subscription.patient:
            client = subscription.client
            client.drop(subscription, now)
            client.refuse(subscription.request_id, code, reason, now)

    # -- new groups --------------------------------------------------------------------------------

    def new_group(self, track: Track, value: int) -> None:
        """A subscriber would like a new group: ask for it, unless there is one."""
        largest = track.largest()
        if value and largest is not None and value <= largest.group:
            return
        for publication in track.answering:
            if publication.is_established and track.properties.dynamic_groups:
                client = publication.publisher
                if isinstance(client, EdgeClient):
                    client.wants_new_group(publication, value, largest)
