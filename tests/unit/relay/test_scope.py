"""Who hears of subscribes while relays change their policy, not all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from laps.errors import CloseCode
from laps.policy import policy_from_mapping
from laps.types import format_node_id
from laps.wire.moqt.messages import RequestError, SubscribeOk
from laps.wire.peering import SubscribeInfoAdv, SubscribeInfoWd
from support.moqt import MoqtNet
from support.moqt_streams import objects_of
from support.relays import App

if TYPE_CHECKING:
    from laps.policy import Policy
    from laps.relay.relay import Relay

US = {"nodes": ["1:1", "1:2"], "region": "us"}
EU = {"nodes": ["1:3", "1:4"], "region": "eu"}
TRACK = "clinic/t"


def policy(**tables: Any) -> Policy:
    return policy_from_mapping({"node": [US, EU], **tables}, "a test")


INSIDE = policy(rule=[{"tracks": "clinic/*", "inside": ["us"]}])
ANYWHERE = policy()


class World:
    """Relays in a row: 1:1 and 1:2 in the US, 1:3 and 1:4 in Europe."""

    def __init__(self, count: int = 3) -> None:
        self.net = MoqtNet()
        self.relays = [self.net.relay(f"1:{number}") for number in range(1, count + 1)]
        for relay in self.relays:
            self.net.edge(relay)
        for one, other in zip(self.relays, self.relays[1:], strict=False):
            self.net.wire(one, other, extended=True)
        self.net.settle()

    def follow(self, policy: Policy | None, *relays: Relay) -> None:
        for relay in relays or self.relays:
            relay.follow_policy(policy, self.net.now)
        self.net.run(0.1)

    def said(self, kind: type, one: Relay, other: Relay) -> list[Any]:
        ends = (end for wire in self.net.wires for end in wire)
        found = next(end for end in ends if (end.relay, end.other.relay) == (one, other))
        return found.said(kind)

    def known_at(self, relay: Relay) -> set[str]:
        return {format_node_id(info.source_node_id) for info in relay.subscribes}


@pytest.mark.parametrize("gap_s", [0.0, 0.02, 3.0, 60.0])
@pytest.mark.parametrize("first", ["subscriber", "publisher"])
def test_a_subscribe_is_heard_whichever_relay_loosens_its_policy_first(
    first: str, gap_s: float
) -> None:
    world = World()
    near, middle, far = world.relays
    world.follow(INSIDE)
    client = App()
    world.net.subscribe(near, client, TRACK)
    world.net.run(1.0)
    assert not world.known_at(far)
    order = [near, middle, far]
    for relay in order if first == "subscriber" else reversed(order):
        relay.follow_policy(ANYWHERE, world.net.now)
        world.net.run(gap_s)
    world.net.run(1.0)
    assert world.known_at(far) == {"1:1"}
    app = world.net.app(far)
    app.stream(app.publish(TRACK), 0, *objects_of(0))
    world.net.run(1.0)
    assert len(client.got) == 1


def test_what_was_kept_aside_is_forgotten_with_its_end() -> None:
    world = World()
    near, _, far = world.relays
    world.follow(INSIDE, far)
    client = App()
    world.net.subscribe(near, client, TRACK)
    world.net.run(1.0)
    assert far.counters.kept_away_subscribes == 1
    world.net.unsubscribe(near, client, TRACK)
    world.net.run(10.0)
    world.follow(ANYWHERE, far)
    assert not world.known_at(far)
    # A relay that is gone takes what it wanted along.
    world.follow(INSIDE, far)
    world.net.subscribe(near, client, TRACK)
    world.net.run(1.0)
    for wire in world.net.wires:
        if far in (wire[0].relay, wire[1].relay):
            wire[0].close(CloseCode.GRACEFUL, "a test cuts it")
    world.net.run(60.0)
    world.follow(ANYWHERE, far)
    assert not world.known_at(far)


def test_who_is_never_told_of_a_subscribe_hears_no_end_of_it() -> None:
    world = World()
    near, middle, far = world.relays
    world.follow(INSIDE)
    client = App()
    for _ in range(2):
        world.net.subscribe(near, client, TRACK)
        world.net.run(1.0)
        world.net.unsubscribe(near, client, TRACK)
        world.net.run(10.0)
        # Another policy that keeps it inside is no reason to speak of it, either.
        world.follow(policy(rule=[{"tracks": "*/t", "inside": ["us"]}]))
    assert not world.said(SubscribeInfoAdv, middle, far)
    assert not world.said(SubscribeInfoWd, middle, far)


def test_who_was_told_of_a_subscribe_before_hears_its_end() -> None:
    world = World()
    near, middle, far = world.relays
    client, other = App(), App()
    world.net.subscribe(near, client, TRACK)
    world.net.run(1.0)
    assert world.known_at(far) == {"1:1"}
    world.follow(INSIDE, near, middle)
    world.net.subscribe(near, other, "clinic/later")
    world.net.run(1.0)
    for which, name in ((client, TRACK), (other, "clinic/later")):
        world.net.unsubscribe(near, which, name)
    world.net.run(10.0)
    assert not world.known_at(far)
    assert len(world.said(SubscribeInfoWd, middle, far)) == 1
    assert len(world.said(SubscribeInfoAdv, middle, far)) == 1


def test_what_was_told_under_one_policy_of_several_is_ended_where_it_was_told() -> None:
    world = World()
    near, middle, far = world.relays
    world.follow(INSIDE)
    client = App()
    world.net.subscribe(near, client, TRACK)
    world.net.run(1.0)
    world.follow(policy(rule=[{"tracks": "clinic/*", "inside": ["us", "eu"]}]))
    world.net.run(1.0)
    assert world.known_at(far) == {"1:1"}
    world.follow(INSIDE, near, middle)
    world.net.unsubscribe(near, client, TRACK)
    world.net.run(10.0)
    assert not world.known_at(far)
    assert len(world.said(SubscribeInfoWd, middle, far)) == 1


@pytest.mark.parametrize("both", [False, True])
def test_a_refusal_ends_with_the_last_who_wanted_the_track(both: bool) -> None:
    world = World(2)
    source, sink = world.relays
    shut = policy(link=[{"between": ["1:1", "1:2"], "closed": True}])
    following = world.relays if both else [source]
    world.follow(shut, *following)
    app = world.net.app(source)
    alias = app.publish("demo/t")
    world.net.run(0.1)
    refused = world.net.app(sink)
    refused.subscribe("demo/t")
    world.net.run(20.0)
    (answer,) = (it for it in refused.heard if isinstance(it, RequestError))
    assert answer.reason == "policy: policy closes 1:1-1:2"
    assert not source.refusals.told
    assert not list(sink.refusals.all_reasons())
    world.follow(None, *following)
    world.net.run(1.0)
    apps = [world.net.app(sink) for _ in range(3)]
    for later in apps:
        later.subscribe("demo/t")
        world.net.run(0.5)
        assert any(isinstance(it, SubscribeOk) for it in later.heard)
    app.stream(alias, 0, *objects_of(0))
    world.net.run(0.2)
    assert [later.places for later in apps] == [[(0, 0)]] * 3


@pytest.mark.parametrize("gone", ["source", "sink"])
def test_a_refusal_is_forgotten_with_the_relay_that_it_is_of_or_for(gone: str) -> None:
    world = World(2)
    source, sink = world.relays
    world.follow(policy(link=[{"between": ["1:1", "1:2"], "closed": True}]), source)
    world.net.app(source).publish("demo/t")
    world.net.run(0.1)
    world.net.subscribe(sink, App(), "demo/t")  # it stays, whatever it is refused
    world.net.run(5.0)
    assert source.refusals.told
    assert list(sink.refusals.all_reasons())
    world.net.crash(source if gone == "source" else sink)
    world.net.run(60.0)
    if gone == "source":
        assert not list(sink.refusals.all_reasons())
    else:
        assert not source.refusals.told
