"""Subscriptions of clients: answered when the track is known to be there.

    a publisher here has answered, or sends already      at once, with the largest object it has
    a relay elsewhere offers the track                   when that relay has said how far it is
    nobody does                                          when a publisher comes, or its first bytes;
                                                         or with an error, after a while

`tracks/subscription.py` has the states as a table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from laps.edge.client import EdgeClient, EdgeSubscription
from laps.ranges import end_after
from laps.tracks.known import Known
from laps.tracks.publication import is_new_request
from laps.tracks.subscription import SubscriptionState
from laps.types import Location
from laps.wire.moqt.carried_subscribe import carry_subscribe
from laps.wire.moqt.codes import RequestCode
from laps.wire.moqt.messages import Subscribe
from laps.wire.subscribe import encode_subscribe

if TYPE_CHECKING:
    from laps.edge.context import Context
    from laps.edge.track_status import Statuses
    from laps.edge.upstream_fetch import UpstreamFetches
    from laps.tracks.subscription import Subscription
    from laps.tracks.track import Track
    from laps.tracks.upstream_fetch import UpstreamFetch
    from laps.types import NodeId

# A relay that is asked may be dead, and not known to be; others that offer the track are asked, one
# after the other, this much later, or as soon as they offer it.
NEXT_S: Final = 0.3


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


@dataclass(slots=True, eq=False)
class _GroupFetch:
    """The group that a subscription begins with is being fetched."""

    subscribing: Subscribing
    subscription: EdgeSubscription
    largest: Location

    @property
    def position(self) -> Location:
        """As `FetchWaiter.position`: it needs all of it."""
        return Location(0, 0)

    def progressed(self, fetch: UpstreamFetch, now: float) -> None:
        """As `FetchWaiter.progressed`: it begins when all is there."""

    def fetched(self, fetch: UpstreamFetch, now: float, *, ok: bool) -> None:
        """As `FetchWaiter.fetched`."""
        self.go_on(now)

    def go_on(self, now: float) -> None:
        """Begin with what there is."""
        self.subscribing.group_fetched(self.subscription, self.largest, now)


class Subscribing:
    """The subscriptions of a relay's clients."""

    def __init__(self, context: Context, statuses: Statuses, upstream: UpstreamFetches) -> None:
        self._context = context
        self._statuses = statuses
        self._upstream = upstream
        self._fetching: dict[EdgeSubscription, _GroupFetch] = {}
        "Subscriptions whose first group is being fetched."

    def subscribe(self, subscription: EdgeSubscription, now: float) -> None:
        """A client wants a track."""
        track = subscription.track
        if not subscription.patient:
            subscription.is_new = track.largest() is None and not self._context.is_offered(track)
        assert track.name is not None  # noqa: S101 - it was made from its name
        request = subscription.request
        data = encode_subscribe(track.name) if request is None else carry_subscribe(request)
        self._context.relay.subscribe(subscription.client, track.name, data, now, subscription)
        self._context.relay.pressure.track_changed(track, now)
        self.settle(track, now)
        if subscription.is_unanswered:
            wait_s = self._context.settings.subscribe_wait_s
            self._context.at(now + wait_s, lambda now: self._give_up(subscription, now))
        if subscription.new_group is not None:
            self.new_group(track, subscription.new_group)

    def unsubscribe(self, subscription: EdgeSubscription, now: float) -> None:
        """A client no longer wants a track."""
        track, client = subscription.track, subscription.client
        self._fetching.pop(subscription, None)
        if subscription.state is SubscriptionState.CLOSED:
            return
        is_current = track.subscribers.get(client) is subscription
        if is_current and track.name is not None:
            self._context.relay.unsubscribe(client, track.name, now)
        subscription.advance(SubscriptionState.CLOSED)
        if is_current:
            self._context.relay.pressure.track_changed(track, now)

    def offered(self, subscription: EdgeSubscription, now: float) -> None:
        """A client has accepted our PUBLISH of a track."""
        track, client = subscription.track, subscription.client
        # Until now nobody wanted the track because of it.
        track.remove_subscriber(client)
        subscription.advance(SubscriptionState.ESTABLISHED)
        if track.name is None:
            return
        request = subscription.request
        data = encode_subscribe(track.name) if request is None else carry_subscribe(request)
        self._context.relay.subscribe(client, track.name, data, now, subscription)
        if request is not None and request.new_group is not None:
            self.new_group(track, request.new_group)

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
        elif nodes := self._context.elsewhere(track):
            # Also beside a publisher here that has not answered yet.
            for subscription in waiting:
                self._ask(subscription, nodes, now)
        elif any(not publication.is_answered for publication in publications):
            return
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
        if not subscription.is_unanswered or subscription in self._fetching:
            return
        if largest is not None and subscription.is_past(largest):
            reason = (
                f"group {subscription.end_group} is past: the track is at group {largest.group}"
            )
            self._refuse(subscription, RequestCode.INVALID_RANGE, reason, now)
            return
        if largest is None or not self._fetches_group(subscription, largest, now):
            subscription.client.accept(subscription, largest, now)

    def _fetches_group(self, subscription: EdgeSubscription, largest: Location, now: float) -> bool:
        """Whether the group that it begins with is not here, and is being fetched."""
        track, start = subscription.track, Location(largest.group, 0)
        if not subscription.joins_group or not Known(track.cached).gaps(start, largest, now):
            return False
        waiting = self._fetching[subscription] = _GroupFetch(self, subscription, largest)
        if not self._upstream.send(waiting, track, start, end_after(largest), now):
            del self._fetching[subscription]
            return False
        wait_s = self._context.settings.answer_wait_s
        self._context.at(now + wait_s, waiting.go_on)
        return True

    def group_fetched(
        self, subscription: EdgeSubscription, largest: Location | None, now: float
    ) -> None:
        """The group that a subscription begins with has arrived, or will not."""
        if self._fetching.pop(subscription, None) is not None and subscription.is_unanswered:
            subscription.client.accept(subscription, largest, now)

    def refused_elsewhere(
        self, subscription: EdgeSubscription, code: int, reason: str, now: float
    ) -> None:
        """A relay that was asked has no such track, or its publisher refuses: ask the next."""
        subscription.advance(SubscriptionState.WAITING)
        self._ask(subscription, self._context.elsewhere(subscription.track), now)
        # Where there is no publisher, one may have just left, and may come back.
        if subscription.state is not SubscriptionState.WAITING:
            return
        if code != RequestCode.DOES_NOT_EXIST:
            self._refuse(subscription, code, reason, now)
        elif subscription.is_overdue:
            self._give_up(subscription, now)

    def _ask(self, subscription: EdgeSubscription, nodes: list[NodeId], now: float) -> None:
        """Another relay has the track: begin where it is."""
        nodes = [node_id for node_id in nodes if node_id not in subscription.refused_by]
        if subscription.state is SubscriptionState.WAITING and nodes:
            subscription.advance(SubscriptionState.ASKING)
            self._wait_for_answer(subscription, now)
        if subscription.state is SubscriptionState.ASKING:
            self._ask_next(subscription, nodes, now)

    def _ask_next(self, subscription: EdgeSubscription, nodes: list[NodeId], now: float) -> None:
        """Ask one more of the relays that have the track; the first that answers counts."""
        asked = subscription.asked
        if asked is None:
            return
        for node_id in [it for it in nodes if it not in asked][:1]:
            asked.add(node_id)
            inquiry = _Inquiry(self, subscription, node_id)
            self._statuses.ask_relay(subscription.track, node_id, inquiry, now)

    def _wait_for_answer(self, subscription: EdgeSubscription, now: float) -> None:
        """Ask others while there is no answer, and begin without one in the end."""
        context, track = self._context, subscription.track
        asked: set[NodeId] = set()
        subscription.asked = asked
        late_at = now + context.settings.answer_wait_s

        def look(now: float) -> None:
            if subscription.asked is not asked:
                return  # it has been refused, and asks others
            is_asking = subscription.state is SubscriptionState.ASKING
            if is_asking and now < late_at:
                self._ask(subscription, context.elsewhere(track), now)
                context.at(min(now + NEXT_S, late_at), look)
                return
            subscription.asked = None
            if is_asking:
                self.establish(subscription, track.largest(), now)

        context.at(min(now + NEXT_S, late_at), look)

    def _give_up(self, subscription: EdgeSubscription, now: float) -> None:
        """Nobody has come who publishes the track."""
        subscription.is_overdue = True
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

    def wants_new_group(self, subscription: EdgeSubscription, value: int, now: float) -> None:
        """A subscriber asks for a new group, here or at the relay that has the publisher."""
        track, largest = subscription.track, subscription.track.largest()
        self.new_group(track, value)
        if any(it.is_established for it in track.answering) or track.name is None:
            return
        if value and largest is not None and value <= largest.group:
            return
        asked = is_new_request(track.new_group, value, largest)
        if track.properties.dynamic_groups and asked is not None:
            track.new_group = asked
            before = subscription.request or Subscribe(0, track.name)
            request = subscription.request = replace(before, track=track.name, new_group=value)
            data = carry_subscribe(request)
            self._context.relay.subscribe(subscription.client, track.name, data, now, subscription)

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
