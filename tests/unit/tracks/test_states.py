"""How far publications and subscriptions are: every step there is, and what a track makes of it."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from laps.errors import LocalProtocolError
from laps.infobase.subscribes import Subscribes
from laps.routing.forwarding import Fib
from laps.tracks.cache import CacheLimits
from laps.tracks.ports import Answers
from laps.tracks.publication import (
    ASK_AGAIN_FIRST_S,
    ASK_AGAIN_MOST_S,
    Publication,
    PublicationState,
)
from laps.tracks.subscription import PlainSubscriber, Subscription, SubscriptionState
from laps.tracks.tracks import Tracks
from laps.types import NodeId
from support.relays import App, track_hash, track_name
from support.routes import NoRoutes

if TYPE_CHECKING:
    from laps.tracks.track import Track

ASKED, PUBLISHING = PublicationState.ASKED, PublicationState.PUBLISHING
REFUSED = PublicationState.REFUSED
ENDING, ENDED = PublicationState.ENDING, PublicationState.ENDED

OFFERED, WAITING = SubscriptionState.OFFERED, SubscriptionState.WAITING
ASKING, ESTABLISHED = SubscriptionState.ASKING, SubscriptionState.ESTABLISHED
CLOSED = SubscriptionState.CLOSED

PUBLICATION_STEPS = {
    (ASKED, PUBLISHING),  # it accepts
    (ASKED, REFUSED),  # it refuses
    (PUBLISHING, ENDING),  # PUBLISH_DONE
    (ASKED, ENDING),  # PUBLISH_DONE, and no answer before it
    (ENDING, ENDED),  # the last stream
    (REFUSED, ENDED),  # nobody wants it any more, or the publisher left
    (ASKED, ENDED),  # the same, of one that has not answered
    (PUBLISHING, ENDED),  # and of one that publishes
    (REFUSED, ASKED),  # it is asked again
    (ENDED, ASKED),
}

SUBSCRIPTION_STEPS = {
    (WAITING, ESTABLISHED),  # a publisher here answers, or sends
    (WAITING, ASKING),  # another relay offers
    (ASKING, WAITING),  # that relay refuses
    (ASKING, ESTABLISHED),  # it answers, or is late
    (OFFERED, ESTABLISHED),  # the client accepts
    (OFFERED, CLOSED),  # refused, ended, or the client left
    (WAITING, CLOSED),
    (ASKING, CLOSED),
    (ESTABLISHED, CLOSED),
}


class Answering(App):
    """A publisher that answers."""

    answers = Answers.ITSELF


@pytest.fixture
def tracks() -> Tracks:
    return Tracks(NodeId(1), Subscribes(), Fib(NoRoutes()), CacheLimits())


@pytest.fixture
def track(tracks: Tracks) -> Track:
    return tracks.track(track_hash("demo/t"), 0.0, track_name("demo/t"))


class Owner:
    """Writes down what its subscriptions tell it."""

    def __init__(self) -> None:
        self.told: list[tuple[SubscriptionState, SubscriptionState]] = []

    def subscription_changed(self, subscription: Subscription, was: SubscriptionState) -> None:
        self.told.append((was, subscription.state))

    def first_data(self, subscription: Subscription) -> None:
        raise AssertionError("no data has arrived")


# -- steps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "to"), list(product(PublicationState, repeat=2)))
def test_a_publication_takes_the_steps_there_are(
    state: PublicationState, to: PublicationState
) -> None:
    publication = Publication(track_hash("demo/t"), App(), state)
    if (state, to) in PUBLICATION_STEPS:
        publication.advance(to)
        assert publication.state is to
    else:
        words = f"a publication cannot go from {state} to {to}"
        with pytest.raises(LocalProtocolError, match=words):
            publication.advance(to)
        assert publication.state is state
    assert publication.is_established == (publication.state is PUBLISHING)
    assert publication.is_answered == (publication.state is not ASKED)


@pytest.mark.parametrize(("state", "to"), list(product(SubscriptionState, repeat=2)))
def test_a_subscription_takes_the_steps_there_are(
    state: SubscriptionState, to: SubscriptionState
) -> None:
    owner = Owner()
    subscription = Subscription(App(), owner, 0, state)
    if (state, to) in SUBSCRIPTION_STEPS:
        subscription.advance(to)
        assert subscription.state is to
        assert owner.told == [(state, to)]
    else:
        words = f"a subscription cannot go from {state} to {to}"
        with pytest.raises(LocalProtocolError, match=words):
            subscription.advance(to)
        assert subscription.state is state
        assert owner.told == []
    assert subscription.is_established == (subscription.state is ESTABLISHED)
    assert subscription.is_unanswered == (subscription.state in (WAITING, ASKING))


# -- subscribers of a track ------------------------------------------------------------------------


def subscribed(track: Track, state: SubscriptionState) -> Subscription:
    """A subscription of a new client, in the track's table."""
    subscription = Subscription(App(), track, 0, state)
    track.add_subscriber(subscription.client, subscription)
    return subscription


@pytest.mark.parametrize(
    "states",
    [
        (WAITING, ESTABLISHED),
        (WAITING, ASKING, ESTABLISHED),
        (WAITING, ASKING, WAITING, ASKING, WAITING, ESTABLISHED),
        (WAITING,),
        (WAITING, ASKING),
        (OFFERED, ESTABLISHED),
        (OFFERED,),
        (ESTABLISHED,),
    ],
)
@pytest.mark.parametrize("closed_first", [True, False])
def test_a_track_follows_the_states_of_its_subscription(
    tracks: Tracks, track: Track, states: tuple[SubscriptionState, ...], closed_first: bool
) -> None:
    assert (track.is_wanted, track.waiting, tracks.waiting(())) == (False, [], [])
    subscription = subscribed(track, states[0])
    for number, state in enumerate(states):
        if number:
            subscription.advance(state)
        waits = state in (WAITING, ASKING)
        assert track.is_wanted == tracks.wanted() == (state is not OFFERED)
        assert track.waiting == ([subscription] if waits else [])
        assert tracks.waiting(()) == ([track] if waits else [])
    if closed_first:
        subscription.advance(CLOSED)
        assert (track.waiting, tracks.waiting(())) == ([], [])
        track.remove_subscriber(subscription.client)
    else:
        track.remove_subscriber(subscription.client)
        assert (track.waiting, tracks.waiting(())) == ([], [])
        subscription.advance(CLOSED)
    assert (track.is_wanted, track.waiting, tracks.waiting(())) == (False, [], [])
    assert tracks.wanted() == 0


def test_a_track_waits_as_long_as_any_of_its_subscriptions(tracks: Tracks, track: Track) -> None:
    one, two = subscribed(track, WAITING), subscribed(track, WAITING)
    assert track.waiting == [one, two]
    one.advance(ESTABLISHED)
    assert (track.waiting, tracks.waiting(())) == ([two], [track])
    two.advance(ASKING)
    assert (track.waiting, tracks.waiting(())) == ([two], [track])
    two.advance(ESTABLISHED)
    assert (track.waiting, tracks.waiting(())) == ([], [])


def test_tracks_that_wait_are_those_with_subscriptions_that_do(
    tracks: Tracks, track: Track
) -> None:
    other = tracks.track(track_hash("demo/other"), 0.0, track_name("demo/other"))
    here, there = subscribed(track, WAITING), subscribed(other, ASKING)
    assert tracks.waiting(()) == [track, other]
    here.advance(ESTABLISHED)
    assert tracks.waiting(()) == [other]
    there.advance(CLOSED)
    assert tracks.waiting(()) == []


def test_who_takes_the_place_of_another_is_counted_once(tracks: Tracks, track: Track) -> None:
    offered = subscribed(track, OFFERED)
    assert not track.is_wanted
    client = offered.client
    waiting = Subscription(client, track, 1, WAITING)
    track.add_subscriber(client, waiting)
    assert (track.is_wanted, track.waiting) == (True, [waiting])
    # What became of the one before is nothing to the track any more.
    offered.advance(CLOSED)
    assert (track.is_wanted, track.waiting) == (True, [waiting])
    track.add_subscriber(client, PlainSubscriber(client, track.hash))
    assert (track.is_wanted, track.waiting, tracks.waiting(())) == (True, [], [])
    assert tracks.wanted() == 1
    track.remove_subscriber(client)
    track.remove_subscriber(client)
    assert not track.is_wanted
    assert tracks.wanted() == 0


def test_a_track_is_wanted_besides_a_client_by_others_that_were_not_only_offered_it(
    track: Track,
) -> None:
    stranger = App()
    one, two = subscribed(track, WAITING), subscribed(track, OFFERED)
    assert track.is_wanted_besides(stranger)
    assert track.is_wanted_besides(two.client)
    assert not track.is_wanted_besides(one.client)
    two.advance(ESTABLISHED)
    assert track.is_wanted_besides(one.client)
    track.remove_subscriber(one.client)
    assert not track.is_wanted_besides(two.client)
    assert track.is_wanted_besides(stranger)


# -- publishers of a track -------------------------------------------------------------------------


def test_who_answers_is_asked_and_who_does_not_publishes_at_once(track: Track) -> None:
    answering, silent = track.ask(Answering(), 0.0), track.ask(App(), 0.0)
    assert answering is not None
    assert silent is not None
    assert (answering.state, silent.state) == (ASKED, PUBLISHING)
    assert track.answering == [answering]
    assert track.publish(Answering(), 5).state is PUBLISHING


@pytest.mark.parametrize("states", [(ENDING,), (PUBLISHING, ENDING), (REFUSED,), (PUBLISHING,), ()])
def test_who_has_ended_is_asked_again_after_a_while_and_ever_more_seldom(
    track: Track, states: tuple[PublicationState, ...]
) -> None:
    client = Answering()
    publication = track.ask(client, 0.0)
    assert publication is not None
    for state in states:
        publication.advance(state)
        assert track.answering == [publication]
    track.end_publication(publication)
    assert publication.state is ENDED
    at, waits = 100.0, []
    for _ in range(8):
        publication.back_off(at)
        waits.append(publication.ask_again_at - at)
        assert track.ask(client, publication.ask_again_at - 0.001) is None
        at = publication.ask_again_at
        assert track.ask(client, at) is publication
        assert (publication.state, track.answering) == (ASKED, [publication])
        assert track.ask(client, at) is None
        publication.advance(REFUSED)
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (ASK_AGAIN_FIRST_S, ASK_AGAIN_MOST_S)
    track.release(publication)
    assert track.publishers == {}
    again = track.ask(client, at)
    assert again is not None
    assert (again.state, again.attempts) == (ASKED, 0)


def test_who_has_ended_is_gone_where_nobody_wants_the_track(track: Track) -> None:
    publication = track.publish(Answering(), 5)
    track.end_publication(publication)
    assert (publication.state, track.publishers) == (ENDED, {})
    # It is no publication of the track's any more.
    track.end_publication(publication)
    assert publication.state is ENDED
