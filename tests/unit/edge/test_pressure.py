"""Push-back: who publishes waits while all that its tracks go to is pressed, and not for ever."""

from __future__ import annotations

from laps.relay.pressure import MOVING_BYTES, PATIENCE_S
from laps.wire.moqt.messages import Unsubscribe
from support.moqt import App, MoqtNet, stage
from support.moqt_streams import objects_of


def watched(subscribers: int = 2, tracks: int = 1) -> tuple[MoqtNet, App, list[App]]:
    """A publisher whose tracks each have subscribers of their own."""
    net, pub, _ = stage()
    subs = []
    for track in range(tracks):
        pub.publish(f"demo/{track}")
        for _ in range(subscribers):
            subs.append(net.app(pub.edge.relay))
            subs[-1].subscribe(f"demo/{track}")
    return net, pub, subs


def waits(app: App) -> bool:
    return app.link.paused


def test_a_publisher_waits_for_its_fastest_subscriber() -> None:
    _, pub, (one, two) = watched()
    one.link.press(True)
    assert not waits(pub)
    two.link.press(True)
    assert waits(pub)
    one.link.press(False)
    assert not waits(pub)
    assert pub.edge.relay.pressure.pauses == 1


def test_one_track_that_goes_out_is_enough() -> None:
    _, pub, subs = watched(subscribers=1, tracks=3)
    for sub in subs[:2]:
        sub.link.press(True)
    assert not waits(pub)
    subs[2].link.press(True)
    assert waits(pub)


def test_nobody_waits_for_ever() -> None:
    net, pub, (one, two) = watched()
    for sub in (one, two):
        sub.link.press(True)
    net.run(PATIENCE_S - 0.01)
    assert waits(pub)
    net.run(0.02)
    assert not waits(pub)
    # It goes on until somebody keeps up, and may wait again after that.
    two.link.press(True)
    assert not waits(pub)
    two.link.press(False)
    two.link.press(True)
    assert waits(pub)


def test_a_pause_has_its_own_time() -> None:
    net, pub, (sub,) = watched(subscribers=1)
    sub.link.press(True)
    net.run(PATIENCE_S / 2)
    sub.link.press(False)
    sub.link.press(True)
    net.run(PATIENCE_S * 0.75)
    assert waits(pub)
    net.run(PATIENCE_S / 2)
    assert not waits(pub)


def test_who_leaves_holds_nobody_up() -> None:
    for leaves in (True, False):
        _, pub, (one, two) = watched()
        for sub in (one, two):
            sub.link.press(True)
        for sub in (one, two):
            if leaves:
                sub.leave()
            else:
                sub.say(Unsubscribe(0))
        assert not waits(pub)


def test_who_comes_and_keeps_up_sets_it_going() -> None:
    net, pub, subs = watched()
    for sub in subs:
        sub.link.press(True)
    assert waits(pub)
    net.app(pub.edge.relay).subscribe("demo/0")
    assert not waits(pub)


def test_a_publisher_that_leaves_is_forgotten() -> None:
    net, pub, (one, two) = watched()
    for sub in (one, two):
        sub.link.press(True)
    pub.leave()
    net.run(PATIENCE_S * 2)
    assert pub.edge.relay.pressure.waiting == {}
    net.check_empty()


def test_a_publisher_without_subscribers_is_left_alone() -> None:
    net, pub, _ = watched(subscribers=0)
    pub.edge.relay.pressure.tick(net.now)
    assert not waits(pub)


def test_links_to_other_relays_count_too() -> None:
    net, pub, sub = stage(relays=2)
    alias = pub.publish("demo/t")
    sub.subscribe("demo/t")
    net.run(0.1)
    pub.open(alias, 0, *objects_of(0))
    assert sub.places == [(0, 0)]
    near = net.app(pub.edge.relay)
    near.subscribe("demo/t")
    near.link.press(True)
    assert not waits(pub)  # the link to the other relay keeps up
    end = next(end for wire in net.wires for end in wire if end.relay is pub.edge.relay)
    for pressed in (True, False):
        end.pressed = pressed
        pub.edge.relay.pressure.link_changed(end, net.now)
        assert waits(pub) is pressed


def test_a_publisher_waits_on_as_long_as_something_moves() -> None:
    """A relay that is short of time works off what waits, if slowly."""
    net, pub, sub = stage()
    pub.publish("demo/t")
    sub.subscribe("demo/t")
    sub.link.press(True)
    for _ in range(3):
        sub.link.sent_bytes += MOVING_BYTES
        net.run(PATIENCE_S)
        assert pub.link.paused
    sub.link.sent_bytes += MOVING_BYTES - 1
    net.run(PATIENCE_S)
    assert not pub.link.paused


def test_a_publisher_waits_for_one_that_reads_before_it_loses_anything() -> None:
    net, pub, (one, two) = watched()
    one.link.press(True)
    assert not waits(pub)
    one.link.press(True, crowded=True)
    assert waits(pub)
    for _ in range(3):
        one.link.sent_bytes += MOVING_BYTES
        net.run(PATIENCE_S)
        assert waits(pub)
    one.link.press(True)
    assert not waits(pub)
    assert not two.link.pressed


def test_a_publisher_does_not_wait_for_one_that_does_not_read() -> None:
    net, pub, (one, _) = watched()
    one.link.press(True)
    net.run(PATIENCE_S)  # it has had the time to send something
    one.link.press(True, crowded=True)
    assert not waits(pub)


def test_a_publisher_waits_no_longer_for_one_that_has_stopped_to_read() -> None:
    net, pub, (one, _) = watched()
    one.link.press(True, crowded=True)
    assert waits(pub)
    one.link.sent_bytes += MOVING_BYTES - 1
    net.run(PATIENCE_S)
    assert not waits(pub)
    one.link.sent_bytes += 10 * MOVING_BYTES
    one.link.press(True, crowded=True)
    assert not waits(pub)  # that is for later
    one.link.press(False)
    one.link.press(True, crowded=True)
    assert waits(pub)
    one.leave()
    assert not waits(pub)
    net.check_empty()
