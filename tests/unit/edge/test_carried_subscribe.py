"""A client's SUBSCRIBE travels to the relay that has the publisher, with all its parameters."""

from __future__ import annotations

import pytest

from laps.types import Location
from laps.wire.moqt.carried_subscribe import carried_subscribe, carry_subscribe
from laps.wire.moqt.messages import (
    Filter,
    FilterType,
    Publish,
    PublishOk,
    RequestUpdate,
    Subscribe,
    SubscribeOk,
    TrackProperties,
)
from support.moqt import App, stage
from support.moqt_streams import objects_of
from support.relays import track_hash, track_name

DYNAMIC = TrackProperties(dynamic_groups=True)


def carried(app: App) -> Subscribe:
    """What the relay of a publisher holds of the subscribe to demo/t of another relay."""
    key = track_hash("demo/t").full_name_hash
    here = app.edge.relay.subscribes
    (source,) = here.sources(key) - {app.edge.relay.id}
    info = here.get(source, key)
    assert info is not None
    message = carried_subscribe(info.subscribe_data)
    assert message is not None
    return message


def updates(pub: App) -> list[int | None]:
    return [message.new_group for message in pub.heard_of(RequestUpdate)]


def test_subscribe_is_carried_whole_and_without_the_number_of_the_session() -> None:
    start = Filter(FilterType.ABSOLUTE_START, Location(7, 3))
    message = Subscribe(9, track_name("a/b/c"), start, 5, delivery_timeout_ms=900, new_group=4)
    read = carried_subscribe(carry_subscribe(message))
    assert read == Subscribe(0, track_name("a/b/c"), start, 5, delivery_timeout_ms=900, new_group=4)
    assert carried_subscribe(b"") is None
    assert carried_subscribe(b"\x03\x00") is None


@pytest.mark.parametrize("relays", [2, 3])
def test_subscribe_reaches_the_o_relay_with_its_parameters(relays: int) -> None:
    net, pub, sub = stage(relays=relays)
    pub.publish_namespace("demo")
    net.run(0.1)
    sub.subscribe("demo/t", priority=7, delivery_timeout_ms=1500, new_group=0)
    net.run(0.1)
    held = carried(pub)
    assert (held.priority, held.delivery_timeout_ms, held.new_group) == (7, 1500, 0)
    asked = pub.last(Subscribe)
    assert (asked.priority, asked.new_group) == (7, 0)
    assert asked.filter.type is FilterType.LARGEST_OBJECT


@pytest.mark.parametrize("relays", [2, 3])
def test_a_new_group_that_is_asked_for_later_crosses_relays(relays: int) -> None:
    net, pub, sub = stage(relays=relays)
    pub.publish_namespace("demo")
    net.run(0.1)
    request_id = sub.subscribe("demo/t")
    net.run(0.1)
    alias = pub.accept(pub.last(Subscribe), (5, 0), properties=DYNAMIC)
    net.run(0.1)
    assert sub.last(SubscribeOk).properties.dynamic_groups
    sub.update(request_id, new_group=5)  # there has been such a group
    net.run(0.1)
    assert updates(pub) == []
    for _ in range(3):
        sub.update(request_id, new_group=6)
        net.run(0.1)
    assert updates(pub) == [6]
    pub.stream(alias, 6, *objects_of(0))
    net.run(0.1)
    sub.update(request_id, new_group=0)
    net.run(0.1)
    assert updates(pub) == [6, 0]


def test_a_new_group_with_a_second_subscribe_reaches_a_publisher_that_sends_already() -> None:
    net, pub, sub = stage(relays=2)
    local = net.app(pub.edge.relay)
    pub.publish_namespace("demo")
    local.subscribe("demo/t")
    net.run(0.1)
    pub.accept(pub.last(Subscribe), (5, 0), properties=DYNAMIC)
    net.run(0.1)
    sub.subscribe("demo/t", new_group=0)
    net.run(0.1)
    assert updates(pub) == [0]


def test_a_new_group_in_publish_ok_crosses_relays() -> None:
    net, pub, sub = stage(relays=2)
    sub.watch("demo")
    alias = pub.publish("demo/t", properties=DYNAMIC)
    pub.stream(alias, 5, *objects_of(0))
    net.run(0.1)
    offered = sub.last(Publish)
    sub.say(PublishOk(offered.request_id, new_group=6))
    net.run(0.1)
    assert updates(pub) == [6]
