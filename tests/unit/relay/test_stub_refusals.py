"""What policy keeps from Stubs: they are told why, have nothing of it, and go on when they may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from laps.policy import policy_from_mapping
from laps.relay.roles import Role
from laps.types import hash_track
from laps.wire.extensions import MAX_HOPS, RepairRequest
from laps.wire.moqt.messages import FetchOk, PublishDone, RequestError, SubscribeOk
from laps.wire.policy import PolicyRefusal
from support.moqt import MoqtNet
from support.moqt_streams import Obj, objects_of
from support.relays import track_name

if TYPE_CHECKING:
    from laps.policy import Policy
    from laps.relay.relay import Relay
    from support.moqt import App

WHERE = [{"nodes": ["1:1", "1:4"], "region": "us"}, {"nodes": ["1:3"], "region": "eu"}]
TRACK = "clinic/t"
OUTSIDE = "policy: 1:3 is in eu, and the track stays inside us"


def policy(**tables: Any) -> Policy:
    return policy_from_mapping({"node": WHERE, **tables}, "a test")


INSIDE = policy(rule=[{"tracks": "clinic/*", "inside": ["us"]}])
CLOSED = policy(link=[{"between": ["1:1", "1:3"], "closed": True}])


class Clinic:
    """A publisher in the US, and an Edge in Europe with a Stub."""

    def __init__(self) -> None:
        self.net = MoqtNet()
        self.source, self.edge = self.net.relay("1:1"), self.net.relay("1:3")
        self.net.edge(self.source)
        self.net.edge(self.edge)
        self.net.wire(self.source, self.edge, extended=True)
        self.stub = self.stub_of("7:7")
        self.net.settle()
        self.pub = self.net.app(self.source)
        self.alias = self.pub.publish(TRACK)
        self.net.run(0.5)

    def stub_of(self, node: str) -> Relay:
        stub = self.net.relay(node, Role.STUB)
        self.net.edge(stub)
        self.net.wire(stub, self.edge, extended=True)
        self.net.run(1.0)
        return stub

    def follow(self, policy: Policy | None, *relays: Relay) -> None:
        for relay in relays or (self.source, self.edge):
            relay.follow_policy(policy, self.net.now)
        self.net.run(0.3)

    def subscriber(self, relay: Relay | None = None) -> App:
        app = self.net.app(relay or self.stub)
        app.subscribe(TRACK)
        self.net.run(1.0)
        return app

    def fetcher(self, relay: Relay) -> App:
        app = self.net.app(relay)
        app.fetch(TRACK, (0, 0), (0, 2))
        self.net.run(3.0)
        return app

    def sent_to_stub(self) -> int:
        end = next(it for wire in self.net.wires for it in wire if it.other.relay is self.stub)
        return sum(len(stream.data) for stream in end.streams.values())


@pytest.fixture
def clinic() -> Clinic:
    return Clinic()


def reasons(app: App) -> list[str]:
    return [it.reason for it in app.heard if isinstance(it, RequestError | PublishDone)]


def test_stubs_that_come_later_have_nothing_of_what_policy_forbids_their_edge(
    clinic: Clinic,
) -> None:
    own = clinic.subscriber(clinic.edge)
    clinic.pub.stream(clinic.alias, 0, *objects_of(0, 1))
    clinic.net.run(0.2)
    assert own.places == [(0, 0), (0, 1)]
    clinic.follow(INSIDE)
    late = clinic.subscriber()
    fetched = [clinic.fetcher(it) for it in (clinic.stub, clinic.stub_of("7:8"), clinic.edge)]
    assert late.places == []
    assert reasons(late) == [OUTSIDE]
    assert isinstance(late.heard[-1], RequestError)  # it had not been answered yet
    assert [reasons(it) for it in fetched] == [[OUTSIDE]] * 3
    assert not any(it.streams for it in fetched)
    clinic.net.run(20.0)
    assert not list(clinic.source.subscribes)


def test_a_stub_reads_no_further_when_policy_forbids_it_and_says_why(clinic: Clinic) -> None:
    app = clinic.subscriber()
    stream = clinic.pub.open(clinic.alias, 0, *objects_of(0))
    clinic.net.run(0.5)
    assert app.places == [(0, 0)]
    # The publisher's relay allows it: the Edge alone keeps it away.
    clinic.follow(INSIDE, clinic.edge)
    assert reasons(app) == [OUTSIDE]
    before = clinic.sent_to_stub()
    for number in (1, 2):
        stream.write(*objects_of(number))
        clinic.net.run(1.0)
    assert clinic.sent_to_stub() == before
    clinic.net.run(20.0)
    assert not list(clinic.source.subscribes)
    assert not clinic.edge.refusals.told
    assert not list(clinic.stub.refusals.all_reasons())


def test_a_stub_has_a_track_again_that_policy_allows_again(clinic: Clinic) -> None:
    first = clinic.subscriber()
    clinic.follow(INSIDE)
    assert reasons(first) == [OUTSIDE]
    assert [reasons(clinic.subscriber()) for _ in range(2)] == [[OUTSIDE]] * 2
    clinic.follow(None)
    clinic.net.run(2.5)  # until the publisher's relay takes back what it has said itself
    again = clinic.subscriber()
    assert not reasons(again)
    clinic.pub.stream(clinic.alias, 0, *objects_of(0, 1))
    clinic.net.run(0.5)
    assert again.places == [(0, 0), (0, 1)]
    (end,) = [it for wire in clinic.net.wires for it in wire if it.other.relay is clinic.stub]
    said = [it.reason for it in end.said(PolicyRefusal)]
    assert (said[0], said[-1]) == (OUTSIDE, "")
    assert not clinic.edge.refusals.told


@pytest.mark.parametrize("subscribed", [True, False])
def test_a_stub_hears_why_another_relay_refuses_its_edge(clinic: Clinic, subscribed: bool) -> None:
    app = clinic.subscriber() if subscribed else None
    clinic.follow(CLOSED, clinic.source)
    clinic.net.run(5.0)
    app = app or clinic.subscriber()
    reason = "policy: policy closes 1:1-1:3"
    assert reasons(app) == [reason]
    assert isinstance(app.heard[-1], PublishDone if subscribed else RequestError)
    clinic.net.run(20.0)
    clinic.follow(None, clinic.source)
    assert any(isinstance(it, SubscribeOk) for it in clinic.subscriber().heard)


def test_a_stub_that_joins_others_on_a_refused_track_hears_why(clinic: Clinic) -> None:
    # Known to the Edge as refused, as another Stub wants it, too.
    clinic.subscriber(clinic.stub_of("7:8"))
    clinic.follow(CLOSED, clinic.source)
    clinic.net.run(2.5)
    assert list(clinic.edge.refusals.all_reasons())
    assert reasons(clinic.subscriber()) == ["policy: policy closes 1:1-1:3"]


def test_a_stub_forgets_what_an_edge_has_refused_that_is_gone(clinic: Clinic) -> None:
    clinic.follow(INSIDE)
    assert reasons(clinic.subscriber()) == [OUTSIDE]
    near = clinic.net.relay("1:4")
    clinic.net.edge(near)
    clinic.net.wire(near, clinic.source, extended=True)
    clinic.net.crash(clinic.edge)
    clinic.net.wire(clinic.stub, near, extended=True)
    clinic.net.run(3.0)
    app = clinic.subscriber()
    assert not reasons(app)
    clinic.pub.stream(clinic.alias, 0, *objects_of(0))
    clinic.net.run(0.5)
    assert app.places == [(0, 0)]


def test_a_stub_is_repaired_nothing_of_what_policy_keeps_from_it(clinic: Clinic) -> None:
    clinic.subscriber()
    clinic.pub.stream(clinic.alias, 0, *objects_of(0, 1))
    clinic.net.run(0.5)
    clinic.follow(INSIDE)
    before = clinic.sent_to_stub()
    stub, edge = clinic.stub.id, clinic.edge.id
    key = hash_track(track_name(TRACK)).full_name_hash
    assert before
    clinic.stub.reach.send(edge, RepairRequest(MAX_HOPS, stub, edge, 1, key, 10_000, ()))
    clinic.net.run(1.0)
    assert clinic.sent_to_stub() == before


def test_an_answer_to_a_fetch_of_a_stub_ends_when_policy_forbids_it(clinic: Clinic) -> None:
    clinic.subscriber(clinic.edge)
    size, count = 200_000, 8
    clinic.pub.stream(clinic.alias, 0, *[Obj(number, b"y" * size) for number in range(count)])
    clinic.net.run(0.5)
    reach, room = clinic.edge.reach, iter((True, True))
    reach.has_room_for = lambda *_: next(room, False)  # type: ignore[method-assign]
    app = clinic.net.app(clinic.stub)
    app.fetch(TRACK, (0, 0), (0, count))
    clinic.net.run(0.3)
    assert any(isinstance(it, FetchOk) for it in app.heard)
    before = clinic.sent_to_stub()
    clinic.follow(INSIDE)
    del reach.has_room_for
    for edge in clinic.net.edges.values():
        edge.requests.writable(clinic.net.now)
    clinic.net.run(5.0)
    assert size < before == clinic.sent_to_stub()
    assert size < len(app.fetched.data) < size * count
