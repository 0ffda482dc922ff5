"""Push-back across relays: a publisher waits for what is far away as for what is near."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.relay.pressure import CATCH_UP_S, CATCH_UP_SHARE, MOVING_BYTES, PATIENCE_S, TOLD_S
from laps.relay.roles import Role
from laps.types import SnsId
from laps.wire.extensions import SetPressed, Urgency
from laps.wire.moqt.messages import Unsubscribe
from laps.wire.peering import SubscribeNodeSetWd
from support.moqt import App, MoqtNet, stage
from support.moqt_streams import objects_of

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from support.relays import WireEnd


def waits(app: App) -> bool:
    return app.link.paused


def row(relays: int) -> tuple[MoqtNet, App, App]:
    """A publisher at one end, whose stream goes on, and a subscriber at the other."""
    net, pub, sub = stage(relays=relays)
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    net.run(0.1)
    pub.open(alias, 0, *objects_of(0))
    net.run(0.1)
    assert sub.places == [(0, 0)]
    return net, pub, sub


def end_at(net: MoqtNet, relay: Relay, other: Relay) -> WireEnd:
    """The end of a link that a relay has, to another."""
    return next(
        end for wire in net.wires for end in wire if (end.relay, end.other.relay) == (relay, other)
    )


def press(net: MoqtNet, end: WireEnd, pressed: bool, *, crowded: bool = False) -> None:
    """Data waits at a link, or no longer."""
    end.pressed, end.crowded = pressed, crowded
    (relay,) = (relay for relay in net.edges if relay is end.relay)
    relay.pressure.link_changed(end, net.now)
    net.run(0.05)


@pytest.mark.parametrize("relays", [2, 3, 5])
def test_a_publisher_waits_for_a_subscriber_that_is_far_away(relays: int) -> None:
    net, pub, sub = row(relays)
    for _ in range(2):
        sub.link.press(True)
        net.run(0.05)
        assert waits(pub)
        sub.link.press(False)
        net.run(0.05)
        assert not waits(pub)
    net.check_empty()


def test_of_two_that_are_far_away_one_that_keeps_up_is_enough() -> None:
    net, pub, sub = row(3)
    middle, last = list(net.edges)[1:]
    others = [net.app(last), net.app(middle)]
    for other in others:
        other.subscribe("demo/t")
    net.run(0.1)
    sub.link.press(True)
    net.run(0.05)
    assert not waits(pub)
    others[0].link.press(True)
    net.run(0.05)
    assert not waits(pub)  # one at the relay in the middle reads
    others[1].link.press(True)
    net.run(0.05)
    assert waits(pub)
    others[0].link.press(False)
    net.run(0.05)
    assert not waits(pub)


def test_another_track_of_another_publisher_goes_on() -> None:
    net, pub, sub = row(3)
    first, last = next(iter(net.edges)), list(net.edges)[-1]
    other, reader = net.app(first), net.app(last)
    alias = other.publish("demo/u")
    reader.subscribe("demo/u")
    net.run(0.1)
    other.open(alias, 0, *objects_of(0))
    net.run(0.1)
    sub.link.press(True)
    net.run(0.05)
    assert waits(pub)
    assert not waits(other)


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("short", [True, False])
def test_a_link_on_the_way_that_is_pressed_counts(at: int, short: bool) -> None:
    net, pub, sub = stage(relays=4)
    relays = list(net.edges)
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    net.run(0.1)
    if not short:
        pub.open(alias, 0, *objects_of(0))
        net.run(0.05)
    end = end_at(net, relays[at], relays[at + 1])
    press(net, end, True)
    if short:  # nothing runs on it at this moment, but what begins counts
        assert not waits(pub)
        pub.stream(alias, 1, *objects_of(0))
        net.run(0.05)
    assert waits(pub)
    press(net, end, False)
    assert not waits(pub)
    net.check_empty()


def test_the_wait_lasts_as_long_as_the_far_one_moves() -> None:
    net, pub, sub = row(4)
    sub.link.press(True)
    net.run(0.05)
    for _ in range(6):
        sub.link.sent_bytes += MOVING_BYTES
        net.run(PATIENCE_S)
        assert waits(pub)
    net.run(PATIENCE_S)
    assert not waits(pub)  # it takes hardly anything: it is too slow for the track
    net.run(10.0)
    assert not waits(pub)
    sub.link.press(False)
    net.run(0.05)
    sub.link.press(True)
    net.run(0.05)
    assert waits(pub)
    net.run(5.0)
    net.check_empty()


def test_one_that_reads_and_is_about_to_lose_is_waited_for_though_others_keep_up() -> None:
    net, pub, sub = row(3)
    near = net.app(next(iter(net.edges)))
    near.subscribe("demo/t")
    net.run(0.1)
    sub.link.press(True)
    net.run(0.05)
    assert not waits(pub)
    sub.link.press(True, crowded=True)
    net.run(0.05)
    assert waits(pub)
    sub.link.sent_bytes += MOVING_BYTES
    sub.link.press(True)
    net.run(0.05)
    assert not waits(pub)


def test_one_that_is_slower_than_the_others_is_waited_for_for_a_while_only() -> None:
    net, pub, sub = row(3)
    near = net.app(next(iter(net.edges)))
    near.subscribe("demo/t")
    net.run(0.1)
    sub.link.press(True, crowded=True)
    net.run(0.05)
    waited = 0
    for _ in range(20):
        sub.link.sent_bytes += 2 * MOVING_BYTES
        net.run(PATIENCE_S)
        waited += waits(pub)
    assert not waits(pub)
    assert waited == pytest.approx(CATCH_UP_S / PATIENCE_S, abs=1)


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("returns", [False, True])
def test_one_that_falls_behind_again_and_again_slows_others_a_small_part_of_the_time(
    far: bool, returns: bool
) -> None:
    net, pub, sub = row(3)
    first, *_, last = net.edges
    keeps_up = net.app(first if far else last)
    keeps_up.subscribe("demo/t")
    net.run(0.1)
    waited_s, began_at = 0.0, net.now
    for _ in range(100):
        sub.link.press(True, crowded=True)
        for _ in range(20):
            sub.link.sent_bytes += MOVING_BYTES // 5
            net.run(0.05)
            waited_s += 0.05 * waits(pub)
        sub.link.press(False)
        net.run(0.05)
        assert not waits(pub)
        if returns:
            sub.leave()
            sub = net.app(last)
            sub.subscribe("demo/t")
            net.run(0.1)
    share_s = CATCH_UP_SHARE * (net.now - began_at)
    assert CATCH_UP_S < waited_s < CATCH_UP_S + share_s + 2 * PATIENCE_S
    net.check_empty()


def test_time_in_which_the_relay_has_no_processor_is_no_time_to_wait() -> None:
    net, pub, sub = row(1)
    (relay,) = net.edges
    near = net.app(relay)
    near.subscribe("demo/t")
    net.run(0.1)
    sub.link.press(True, crowded=True)
    for _ in range(200):  # 20 s, of which the relay has one
        relay.pressure.starved_s += 0.095
        sub.link.sent_bytes += MOVING_BYTES // 80
        net.run(0.1)
        assert waits(pub)
    sub.link.press(False)
    net.run(0.05)
    assert not waits(pub)
    net.check_empty()


def test_where_nobody_keeps_up_everybody_is_waited_for_as_often_as_it_takes() -> None:
    net, pub, sub = row(3)
    for _ in range(50):
        sub.link.press(True, crowded=True)
        for _ in range(10):
            sub.link.sent_bytes += MOVING_BYTES // 5
            net.run(0.05)
            assert waits(pub)
        sub.link.press(False)
        net.run(0.05)
        assert not waits(pub)


def test_one_that_does_not_read_slows_nobody() -> None:
    net, pub, sub = row(3)
    near = net.app(next(iter(net.edges)))
    near.subscribe("demo/t")
    net.run(0.1)
    sub.link.press(True)
    net.run(PATIENCE_S)
    sub.link.press(True, crowded=True)
    net.run(0.05)
    assert not waits(pub)


def test_the_word_of_a_relay_that_has_died_counts_for_a_while_only() -> None:
    net, pub, sub = row(3)
    last = list(net.edges)[-1]
    sub.link.press(True)
    net.run(0.05)
    assert waits(pub)
    net.crash(last, noticed=False)
    net.edges.pop(last)
    net.run(TOLD_S + 0.01)
    assert not waits(pub)


def test_who_subscribes_no_more_holds_nobody_up() -> None:
    net, pub, sub = row(3)
    sub.link.press(True)
    net.run(0.05)
    assert waits(pub)
    sub.leave()
    net.run(0.05)
    assert not waits(pub)
    net.check_empty()


@pytest.mark.parametrize("publisher", [Role.STUB, Role.EDGE])
def test_stubs_tell_and_are_told(publisher: Role) -> None:
    net = MoqtNet()
    edge, far, stub = net.relay("1:1"), net.relay("1:2"), net.relay("8:1", Role.STUB)
    for relay in (edge, far, stub):
        net.edge(relay)
    net.wire(edge, far, extended=True)
    net.wire(stub, edge, extended=True)
    net.settle()
    pub, sub = net.app(stub), net.app(far)
    if publisher is Role.EDGE:
        pub, sub = net.app(far), net.app(stub)
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    net.run(0.5)
    pub.open(alias, 0, *objects_of(0))
    net.run(0.1)
    assert sub.places == [(0, 0)]
    sub.link.press(True)
    net.run(0.05)
    assert waits(pub)
    sub.link.press(False)
    net.run(0.05)
    assert not waits(pub)
    net.check_empty()


def test_a_peer_without_extensions_is_told_nothing() -> None:
    net = MoqtNet()
    near, far = net.relay("1:1"), net.relay("1:2")
    for relay in (near, far):
        net.edge(relay)
    wire = net.wire(near, far)
    net.settle()
    pub, sub = net.app(near), net.app(far)
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    net.run(0.5)
    pub.open(alias, 0, *objects_of(0))
    net.run(0.1)
    sub.link.press(True)
    net.run(0.05)
    assert not waits(pub)
    assert wire.there.said(SetPressed) == []


def test_a_word_of_a_set_that_is_not_known_changes_nothing() -> None:
    net, pub, sub = row(2)
    first, last = net.edges
    end = end_at(net, last, first)
    for sns_id in (SnsId(77), SnsId(2**32 - 1)):
        last.links.send_on(last.links.peer_links[end.id], SetPressed(sns_id, Urgency.CROWDED))
    net.run(0.05)
    assert not waits(pub)
    net.run(TOLD_S + 0.1)
    assert not first.pressure.told
    assert not waits(sub)


def test_a_set_is_withdrawn_after_the_data_that_waits_for_its_turn() -> None:
    net, pub, sub = row(3)
    middle, last = list(net.edges)[1:]
    end = end_at(net, middle, last)
    press(net, end, True)
    sub.leave()
    net.run(12.0)
    assert end.said(SubscribeNodeSetWd) == []
    end.flush()
    press(net, end, False)
    net.run(0.05)
    assert len(end.said(SubscribeNodeSetWd)) == 1
    assert not waits(pub)
    net.check_empty()


def test_sets_that_are_withdrawn_meanwhile_wait_for_their_own_data() -> None:
    net, pub, sub = row(2)
    first, last = net.edges
    end = end_at(net, first, last)
    alias = pub.publish("demo/u")
    sub.subscribe("demo/u")
    net.run(0.1)
    pub.open(alias, 0, *objects_of(0))
    net.run(0.1)
    press(net, end, True)
    sub.say(Unsubscribe(0))
    net.run(12.0)
    (flush,) = end.when_flushed
    end.when_flushed = []
    sub.say(Unsubscribe(2))
    net.run(12.0)
    flush()  # the data of the first is sent, and that of the second is not
    assert len(end.said(SubscribeNodeSetWd)) == 1
    end.flush()
    press(net, end, False)
    assert len(end.said(SubscribeNodeSetWd)) == 2
    net.check_empty()
