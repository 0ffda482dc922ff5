"""Requests between relays: what is asked, what is answered, and what is not understood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pytest

from laps.edge.relay_queries import ANSWER_S
from laps.relay.proofs import ProofPolicy
from laps.relay.relay import Relay
from laps.relay.roles import Role
from laps.types import Location, NodeId, hash_track, parse_node_id
from laps.wire.extensions import MAX_HOPS, RelayRequest, RelayResponse
from laps.wire.moqt.codes import DoneCode, RequestCode
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.messages import (
    Fetch,
    FetchCancel,
    FetchOk,
    GroupOrder,
    Publish,
    PublishDone,
    RequestOk,
    StandaloneFetch,
    SubscribeOk,
    TrackProperties,
    TrackStatus,
)
from support.moqt import MoqtNet, stage
from support.moqt_streams import objects_of
from support.relays import track_name

if TYPE_CHECKING:
    from laps.wire.moqt.messages import Message
    from support.moqt import App

M = TypeVar("M", RelayRequest, RelayResponse)

NAME = track_name("demo/t")
RICH = TrackProperties(70, 9000, 3, GroupOrder.DESCENDING, True, ((0x40, 5), (0x51, b"mine")))


def crossed(net: MoqtNet, kind: type[M]) -> list[M]:
    return [message for wire in net.wires for end in wire for message in end.said(kind)]


@dataclass
class Told:
    """A query that writes its answer down."""

    told: list[Message | None]

    def answered(self, message: Message | None, now: float) -> None:
        self.told.append(message)


def answers(net: MoqtNet, asker: Relay, target: NodeId, message: Message) -> list[Message | None]:
    """What a relay is told when it asks."""
    told: list[Message | None] = []
    assert isinstance(message, TrackStatus | Fetch)
    net.edges[asker].queries.ask(target, message, Told(told), net.now)
    net.run(ANSWER_S + 1.0)
    return told


@pytest.mark.parametrize("relays", [2, 3])
def test_a_relay_is_told_all_about_a_track(relays: int) -> None:
    net, pub, sub = stage(relays=relays)
    alias = pub.publish("demo/t", properties=RICH)
    pub.stream(alias, 4, *objects_of(0, 1))
    net.run(0.1)
    sub.subscribe("demo/t")
    net.run(0.1)
    accepted = sub.last(SubscribeOk)
    assert accepted.largest == Location(4, 1)
    assert accepted.properties == RICH
    # Each hop passes it on with one hop less.
    assert len(crossed(net, RelayRequest)) == len(crossed(net, RelayResponse)) == relays - 1
    assert {message.hops for message in crossed(net, RelayRequest)} == {
        MAX_HOPS - hop for hop in range(relays - 1)
    }


def test_what_is_asked_of_nobody_is_answered_by_nothing() -> None:
    net = MoqtNet()
    near, far = net.chain(2)
    assert answers(net, near, parse_node_id("9:9"), TrackStatus(0, NAME)) == [None]
    assert near.reach.undelivered == 4  # it asks again while there may be an answer
    wanted = Fetch(0, StandaloneFetch(NAME, Location(0, 0), Location(1, 0)))
    for message in (TrackStatus(0, NAME), wanted):
        (answer,) = answers(net, near, far.id, message)
        assert getattr(answer, "code", None) == RequestCode.DOES_NOT_EXIST


def test_a_question_that_is_lost_is_asked_again() -> None:
    net, near, far = _two_ways()
    lost = net.wires[0]
    lost.cut(noticed_by=())
    told: list[Message | None] = []
    net.edges[near].queries.ask(far.id, TrackStatus(0, NAME), Told(told), net.now)
    net.run(0.5)
    for end in lost:
        assert isinstance(end.relay, Relay)
        end.relay.link_closed(end, net.now)
    net.run(1.0)
    (answer,) = told
    assert getattr(answer, "code", None) == RequestCode.DOES_NOT_EXIST


def test_who_is_told_twice_how_far_a_track_is_may_have_heard_the_first_answer() -> None:
    net, pub, sub = stage(relays=2)
    alias = pub.publish("demo/t")
    near, far = sub.edge.relay, pub.edge.relay
    place = near.id, hash_track(NAME).full_name_hash
    for group in (4, 5):
        pub.stream(alias, group, *objects_of(0, 1))
        net.run(0.1)
        net.edges[near].queries.ask(far.id, TrackStatus(0, NAME), Told([]), net.now)
        net.run(0.1)
    assert far.reach.told[place] == Location(4, 1)
    net.run(ANSWER_S)
    assert place not in far.reach.told


def _two_ways() -> tuple[MoqtNet, Relay, Relay]:
    """Two Edges, and two Vias between them; the first wire is on the better way."""
    net = MoqtNet()
    near, far = net.relay("1:1"), net.relay("1:2")
    for relay in (near, far):
        net.edge(relay)
    for way in (1, 2):
        via = net.relay(f"2:{way}", Role.VIA, reflect=True)
        for end in (near, far):
            net.wire(end, via, 10 * way, extended=True)
    net.settle()
    return net, near, far


def test_a_relay_without_clients_says_nothing() -> None:
    net = MoqtNet()
    near, far = net.relay("1:1"), net.relay("1:2")
    net.edge(near)
    net.wire(near, far, extended=True)
    net.settle()
    assert answers(net, near, far.id, TrackStatus(0, NAME)) == [None]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"\x3f\x00\x01x",
        DRAFT16.encode(SubscribeOk(0, 1)),
        DRAFT16.encode(TrackStatus(0, NAME))[:-1],
        DRAFT16.encode(FetchCancel(5)),
        DRAFT16.encode(PublishDone(0, 2)),
    ],
    ids=["empty", "cut", "unknown", "an answer", "half", "no such fetch", "no track"],
)
def test_what_is_not_understood_is_passed_over(payload: bytes) -> None:
    net = MoqtNet()
    near, far = net.chain(2)
    for made in (RelayRequest, RelayResponse):
        near.reach.send(far.id, made(MAX_HOPS, near.id, far.id, 7, payload))
    net.run()
    assert crossed(net, RelayResponse)[1:] == []
    assert all(end.closed is None for wire in net.wires for end in wire)


def fetching(net: MoqtNet, sub: App) -> App:
    app = net.app(sub.edge.relay)
    app.fetch("demo/t", (0, 0), (2, 0))
    net.run(0.1)
    return app


def test_a_range_comes_for_the_asking_node_alone() -> None:
    net, pub, sub = stage(relays=3)
    alias = pub.publish("demo/t", properties=RICH)
    for group in range(3):
        pub.stream(alias, group, *objects_of(0), end_of_group=True)
    net.run(0.1)
    middle = net.app(net.relays["1:2"])
    middle.subscribe("demo/t")
    net.run(0.1)
    app = fetching(net, sub)
    assert app.last(FetchOk).properties == RICH
    assert sorted(app.fetched.places) == [(0, 0), (1, 0), (2, 0)]
    assert middle.streams == []
    # The sets that it ran under are gone.
    net.run(10.0)
    assert all(relay.sizes()["streams"] == 0 for relay in net.relays.values())
    net.check_empty()


def test_an_answer_that_is_late_is_none() -> None:
    net, pub, sub = stage(relays=2)
    pub.publish_namespace("demo")
    net.run(0.1)
    app = fetching(net, sub)
    net.run(12.0)
    assert app.error == RequestCode.DOES_NOT_EXIST
    asked = pub.heard_of(Fetch)
    assert len(asked) == 3  # an answer may have been lost on its way
    for fetch in asked:
        pub.answer_fetch(fetch, (2, 0))
    net.run(1.0)
    assert pub.closed is None
    net.check_empty()


def test_a_relay_that_goes_away_in_the_middle_is_given_up() -> None:
    net, pub, sub = stage(relays=2)
    pub.publish_namespace("demo")
    net.run(0.1)
    app = fetching(net, sub)
    net.crash(net.relays["1:1"])
    net.run(12.0)
    assert app.error == RequestCode.DOES_NOT_EXIST


def test_the_status_of_a_track_elsewhere() -> None:
    net, pub, sub = stage(relays=3)
    alias = pub.publish("demo/t")
    pub.stream(alias, 4, *objects_of(0, 1))
    net.run(0.1)
    sub.request(TrackStatus(0, NAME))
    assert sub.last(RequestOk).largest == Location(4, 1)


def test_relays_that_asked_are_not_remembered_once_they_are_answered() -> None:
    net = MoqtNet()
    near, far = net.chain(2)
    requests = net.edges[far].requests
    for number in range(50):
        status = DRAFT16.encode(TrackStatus(number, NAME))
        source = NodeId(near.id + 1 + number)
        far.reach.received.append(RelayRequest(MAX_HOPS, source, far.id, number, status))
        net.edges[far].perform(net.now)
    net.run(ANSWER_S + 1.0)
    assert len(requests) <= 1


def test_an_answer_of_another_node_than_the_one_that_was_asked_does_not_count() -> None:
    net = MoqtNet()
    near, far = net.chain(2)
    told: list[Message | None] = []
    net.edges[near].queries.ask(far.id, TrackStatus(0, NAME), Told(told), net.now)
    payload = DRAFT16.encode(SubscribeOk(1, 0, Location(9, 9)))
    near.reach.received.append(RelayResponse(9, parse_node_id("9:9"), near.id, 1, payload))
    net.edges[near].perform(net.now)
    assert told == []
    net.run(1)
    (answer,) = told
    assert getattr(answer, "code", None) == RequestCode.DOES_NOT_EXIST


@pytest.mark.parametrize("offers", [True, False])
def test_a_track_is_ended_only_by_a_node_that_offers_it_once_peers_are_proved(
    offers: bool,
) -> None:
    net, pub, sub = stage(relays=2)
    relay = sub.edge.relay
    pub.publish("demo/t")
    net.run(0.1)
    sub.subscribe("demo/t")
    net.run(0.1)
    # As if it had proved who it is: what counts here is who ends the track.
    relay.proofs.policy = ProofPolicy(required=True)
    source = net.relays["1:1"].id if offers else parse_node_id("9:9")
    for news in (Publish(0, NAME, 1), PublishDone(0, DoneCode.TRACK_ENDED)):
        payload = DRAFT16.encode(TrackStatus(0, NAME)) + DRAFT16.encode(news)
        relay.reach.received.append(RelayRequest(9, source, relay.id, 0, payload))
    net.edges[relay].perform(net.now)
    net.run(8)
    assert bool(sub.heard_of(PublishDone)) is offers
    assert relay.counters.refused_claims == (0 if offers else 2)
