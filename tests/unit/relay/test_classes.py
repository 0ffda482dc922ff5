"""Classes of service at relays: which place each track has, on links and to clients."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from laps.policy import policy_from_mapping
from laps.relay.pressure import MOVING_BYTES
from laps.routing.terms import ORDERS, ORDINARY
from laps.types import SnsId
from laps.wire.peering import SubscribeNodeSetAdv
from laps.wire.policy import SetTerms
from support.moqt import MoqtNet
from support.moqt_streams import objects_of
from support.quicr import QuicrApp

if TYPE_CHECKING:
    from laps.policy import Policy
    from laps.relay.relay import Relay
    from support.moqt import App
    from support.relays import WireEnd


def policy(**classes: str) -> Policy:
    rules = [{"tracks": f"demo/{track}", "class": name} for track, name in classes.items()]
    return policy_from_mapping({"rule": rules}, "a test")


def row(length: int, *, extended: bool = True) -> tuple[MoqtNet, list[Relay], App, App]:
    """Relays in a row, a publisher at the first and a subscriber at the last."""
    net = MoqtNet()
    relays = [net.relay(f"1:{number}") for number in range(1, length + 1)]
    for relay in relays:
        net.edge(relay)
    for here, there in pairwise(relays):
        net.wire(here, there, extended=extended)
    net.settle()
    return net, relays, net.app(relays[0]), net.app(relays[-1])


def follow(net: MoqtNet, relay: Relay, policy: Policy | None) -> None:
    relay.follow_policy(policy, net.now)
    net.run(0.2)


def end_at(net: MoqtNet, relay: Relay, other: Relay) -> WireEnd:
    """The end of a link that a relay has, to another."""
    return next(
        end for wire in net.wires for end in wire if (end.relay, end.other.relay) == (relay, other)
    )


def orders(net: MoqtNet, relays: list[Relay]) -> list[set[int]]:
    """The places of the streams that are open, hop by hop."""
    hops = pairwise(relays)
    return [{stream.order for stream in end_at(net, *hop).running} for hop in hops]


def waits(app: App) -> bool:
    return app.link.paused


def open_track(net: MoqtNet, pub: App, sub: App, track: str = "demo/t") -> Any:
    alias = pub.publish(track)
    sub.subscribe(track)
    net.run(0.1)
    stream = pub.open(alias, 0, *objects_of(0))
    net.run(0.1)
    return stream


def test_what_nobody_says_anything_of_is_ordinary_at_every_hop() -> None:
    net, relays, pub, sub = row(3)
    open_track(net, pub, sub)
    assert orders(net, relays) == [{ORDINARY}, {ORDINARY}]
    assert {stream.rank[2] for stream in sub.streams} == {ORDINARY}


@pytest.mark.parametrize(("name", "place"), [("gold", 0), ("silver", 1), ("bronze", 2)])
def test_the_publishers_relay_decides_for_relays_without_a_policy(name: str, place: int) -> None:
    net, relays, pub, sub = row(4)
    follow(net, relays[0], policy(**{"*": name}))
    open_track(net, pub, sub)
    assert orders(net, relays) == [{place}] * 3
    assert {stream.rank[2] for stream in sub.streams} == {place}


def test_streams_that_are_open_have_another_place_when_the_policy_is_another() -> None:
    net, relays, pub, sub = row(4)
    stream = open_track(net, pub, sub)
    for name, place in (("gold", 0), ("bronze", 2), ("silver", 1)):
        follow(net, relays[0], policy(**{"*": name}))
        assert orders(net, relays) == [{place}] * 3
        assert {it.rank[2] for it in sub.streams} == {place}
    follow(net, relays[0], policy(**{"*": "gold"}))
    follow(net, relays[0], None)
    assert orders(net, relays) == [{ORDINARY}] * 3
    stream.finish()
    net.run(0.1)
    assert sub.places == [(0, 0)]


def test_a_policy_of_the_subscribers_own_relay_is_what_counts_there() -> None:
    net, relays, pub, sub = row(3)
    follow(net, relays[0], policy(**{"*": "gold"}))
    follow(net, relays[-1], policy(**{"*": "bronze"}))
    open_track(net, pub, sub)
    assert orders(net, relays) == [{0}, {0}]
    assert {stream.rank[2] for stream in sub.streams} == {2}
    follow(net, relays[-1], None)
    assert {stream.rank[2] for stream in sub.streams} == {0}


def test_tracks_of_several_classes_have_their_own_places_on_one_link() -> None:
    net, relays, pub, sub = row(2)
    follow(net, relays[0], policy(a="gold", c="bronze"))
    for track in "abc":
        open_track(net, pub, sub, f"demo/{track}")
    ranks = {stream.rank[3]: stream.rank[2] for stream in sub.streams}
    assert sorted(ranks.values()) == [0, 1, 2]
    assert orders(net, relays) == [{0, 1, 2}]


def test_a_relay_that_takes_no_extensions_is_told_nothing_and_has_all_ordinary() -> None:
    net, relays, pub, sub = row(3, extended=False)
    follow(net, relays[0], policy(**{"*": "gold"}))
    open_track(net, pub, sub)
    assert orders(net, relays) == [{0}, {ORDINARY}]


def test_a_place_that_there_is_not_counts_as_the_last() -> None:
    net, relays, pub, sub = row(3)
    open_track(net, pub, sub)
    link = end_at(net, relays[0], relays[1])
    sns_id = SnsId(next(iter(link.sets)))
    peer_link = relays[0].links.peer_links[link.id]
    relays[0].links.send_on(peer_link, SetTerms(sns_id, "lead", 255, (), (), (), ()))
    (flow,) = [it for it in relays[0].fib if link.id in it.outs]
    nodes = flow.outs[link.id].nodes
    relays[0].links.send_on(peer_link, SubscribeNodeSetAdv(sns_id, tuple(nodes)))
    net.run(0.2)
    assert orders(net, relays)[1] == {ORDERS - 1}


def test_datagrams_have_the_place_of_their_track() -> None:
    net, relays, pub, sub = row(3)
    follow(net, relays[0], policy(**{"*": "gold"}))
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    net.run(0.1)
    pub.datagram(alias, 0, 0, payload=b"x")
    net.run(0.1)
    for here, there in pairwise(relays):
        assert set(end_at(net, here, there).datagram_orders) == {0}
    assert {rank[2] for _, rank, _ in sub.link.datagrams} == {0}


def test_a_fetch_has_the_place_of_its_track() -> None:
    net, relays, pub, sub = row(1)
    follow(net, relays[0], policy(**{"*": "gold"}))
    alias = pub.publish("demo/t")
    pub.stream(alias, 0, *objects_of(0, 1))
    net.run(0.1)
    sub.fetch("demo/t", (0, 0), (0, 2))
    net.run(0.1)
    assert sub.fetched.rank[2] == 0


@pytest.mark.parametrize("first", ["policy", "track"])
def test_a_quicr_stream_has_the_place_of_its_track(first: str) -> None:
    net, relays, pub, _ = row(2)
    reader = QuicrApp(net, relays[-1])
    if first == "policy":
        follow(net, relays[0], policy(**{"*": "gold"}))
    alias = pub.publish("demo/t")
    media = reader.subscribe("demo/t")
    net.run(0.1)
    pub.stream(alias, 0, *objects_of(0))
    net.run(0.1)
    if first == "track":
        assert reader.link.orders[media.stream.id] == ORDINARY
        follow(net, relays[0], policy(**{"*": "gold"}))
    assert media.places == [(0, 0)]
    assert reader.link.orders[media.stream.id] == 0
    follow(net, relays[-1], policy(**{"*": "bronze"}))
    assert reader.link.orders[media.stream.id] == 2


def test_of_a_slow_quicr_readers_tracks_the_better_class_goes_first() -> None:
    net, (relay,), pub, _ = row(1)
    follow(net, relay, policy(a="bronze", b="gold"))
    reader = QuicrApp(net, relay)
    medias = {track: reader.subscribe(f"demo/{track}") for track in "ab"}
    aliases = {track: pub.publish(f"demo/{track}") for track in "ab"}
    net.run(0.1)
    reader.link.room = reader.link.written
    for track in "ab":
        pub.stream(aliases[track], 0, *objects_of(0, 1))
    net.run(0.1)
    assert not medias["a"].objects
    assert not medias["b"].objects
    reader.link.room = reader.link.written + 1
    reader.client.writable(net.now)
    net.run(0.1)
    assert medias["b"].places == [(0, 0)]
    assert not medias["a"].objects
    reader.link.room = None
    reader.client.writable(net.now)
    net.run(0.1)
    assert medias["a"].places == medias["b"].places == [(0, 0), (0, 1)]


# -- push-back -------------------------------------------------------------------------------------


def test_gold_does_not_wait_because_bronze_does() -> None:
    net, relays, gold, sub = row(3)
    bronze = net.app(relays[0])
    follow(net, relays[0], policy(g="gold", b="bronze"))
    open_track(net, gold, sub, "demo/g")
    open_track(net, bronze, sub, "demo/b")
    link = end_at(net, relays[1], relays[2])
    link.pressed_from = 2
    link.pressed = True
    relays[1].pressure.link_changed(link, net.now)
    net.run(0.1)
    assert waits(bronze)
    assert not waits(gold)
    link.pressed_from = 0
    relays[1].pressure.link_changed(link, net.now)
    net.run(0.1)
    assert waits(gold)
    link.pressed_from = 2
    relays[1].pressure.link_changed(link, net.now)
    net.run(0.1)
    assert waits(bronze)
    assert not waits(gold)
    link.pressed = False
    relays[1].pressure.link_changed(link, net.now)
    net.run(0.1)
    assert not waits(bronze)


def test_a_client_that_is_behind_with_bronze_holds_up_bronze_alone() -> None:
    net, relays, gold, sub = row(2)
    bronze = net.app(relays[0])
    follow(net, relays[0], policy(g="gold", b="bronze"))
    open_track(net, gold, sub, "demo/g")
    open_track(net, bronze, sub, "demo/b")
    sub.link.pressed_from = 1
    sub.link.press(True)
    net.run(0.1)
    assert waits(bronze)
    assert not waits(gold)


def test_gold_is_waited_for_though_bronze_has_waited_for_long() -> None:
    """Five seconds of a link that is full of bronze do not count against gold."""
    net, relays, gold, sub = row(2)
    bronze, near = net.app(relays[0]), net.app(relays[0])
    follow(net, relays[0], policy(g="gold", b="bronze"))
    for app, track in ((gold, "demo/g"), (bronze, "demo/b")):
        near.subscribe(track)
        open_track(net, app, sub, track)
    link = end_at(net, *relays)
    link.pressed = link.crowded = True
    link.pressed_from = 2
    for _ in range(70):
        link.sent_bytes += MOVING_BYTES // 2
        relays[0].pressure.link_changed(link, net.now)
        net.run(0.1)
    assert not waits(gold)
    assert not waits(bronze), "some keep up, and it has been waited for long enough"
    link.pressed_from = 0
    relays[0].pressure.link_changed(link, net.now)
    net.run(0.05)
    assert waits(gold)
