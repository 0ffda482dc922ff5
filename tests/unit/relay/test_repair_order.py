"""What is live comes after what was lost before it, while that is being asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.tracks.in_order import MOST_S
from laps.wire.moqt.messages import GroupOrder
from support.moqt_streams import objects_of
from unit.relay.test_repairs import Diamond

if TYPE_CHECKING:
    from support.relays import Wire


def groups(diamond: Diamond) -> list[int]:
    return [group for group, object_id in diamond.sub.places if object_id == 0]


def publish(diamond: Diamond, *numbers: int) -> None:
    for group in numbers:
        diamond.pub.stream(diamond.alias, group, *objects_of(0, 1))
        diamond.net.run(0.1)


def lose(diamond: Diamond, wire: Wire, *numbers: int) -> None:
    """A link dies with these groups, and both of its ends find out."""
    diamond.lose(wire)
    publish(diamond, *numbers)
    diamond.notice(wire)


@pytest.mark.parametrize(("hops", "dead"), [(h, d) for h in (1, 2, 3) for d in range(h + 1)])
def test_groups_come_in_order_wherever_the_way_was_cut(hops: int, dead: int) -> None:
    diamond = Diamond(hops=hops)
    publish(diamond, 0)
    wire = diamond.ways[0][dead]
    lose(diamond, wire, 1, 2, 3)
    publish(diamond, 4, 5)
    diamond.notice(wire, close=True)
    publish(diamond, *range(6, 20))
    diamond.net.run(5.0)
    assert groups(diamond) == list(range(20))
    assert not any(len(track.in_order) for track in diamond.edge.tracks)


def test_the_rest_of_a_group_that_broke_off_comes_before_the_next() -> None:
    diamond = Diamond(hops=2)
    publish(diamond, 0)
    stream = diamond.pub.open(diamond.alias, 1, *objects_of(0))
    diamond.net.run(0.1)
    wire = diamond.ways[0][1]
    diamond.lose(wire)
    stream.write(*objects_of(1), fin=True)
    diamond.notice(wire)
    publish(diamond, 2, 3)
    diamond.notice(wire, close=True)
    publish(diamond, 4, 5)
    diamond.net.run(5.0)
    assert diamond.sub.places == [(group, number) for group in range(6) for number in (0, 1)]


class Cut(Diamond):
    """Its link in the middle has died with group 1, and nobody has that any more."""

    def __init__(self, order: GroupOrder | None = None) -> None:
        super().__init__(hops=2)
        if order is not None:
            self.sub = self.net.app(self.edge)
            self.sub.subscribe("demo/t", order=order)
            self.net.run(0.5)
        publish(self, 0)
        wire = self.ways[0][1]
        lose(self, wire, 1)
        for track in self.origin.tracks:
            track.cached.clear()
        # Nobody answers for a while what the subscriber's relay asks.
        self.origin.repairs._serve = lambda *_: None  # type: ignore[method-assign]
        self.notice(wire, close=True)
        self.net.run(0.1)
        publish(self, 2)


def test_what_waits_for_something_that_never_comes_is_given_in_the_end() -> None:
    diamond = Cut()
    assert groups(diamond) == [0]
    diamond.net.run(MOST_S + 1.0)
    publish(diamond, 3)
    assert groups(diamond) == [0, 2, 3]


def test_who_wants_the_latest_first_does_not_wait() -> None:
    assert groups(Cut(GroupOrder.DESCENDING)) == [0, 2]


def test_a_stream_goes_on_after_it_has_waited() -> None:
    diamond = Cut()
    stream = diamond.pub.open(diamond.alias, 3, *objects_of(0))
    diamond.net.run(MOST_S + 1.0)
    stream.write(*objects_of(1), fin=True)
    diamond.net.run(0.5)
    assert diamond.sub.places[-2:] == [(3, 0), (3, 1)]
    assert diamond.sub.streams[-1].finished


def test_a_stream_that_was_given_up_while_it_waited_is_given_up_after_what_came() -> None:
    diamond = Cut()
    stream = diamond.pub.open(diamond.alias, 3, *objects_of(0))
    diamond.net.run(0.1)
    stream.reset(7)
    diamond.net.run(MOST_S + 1.0)
    assert diamond.sub.places[-1] == (3, 0)
    assert diamond.sub.streams[-1].reset_code == 7


def test_who_leaves_while_something_waits_for_it_is_given_nothing() -> None:
    diamond = Cut()
    diamond.sub.leave()
    diamond.net.run(MOST_S + 1.0)
    assert groups(diamond) == [0]


def test_who_comes_while_something_waits_has_it_from_the_cache_once() -> None:
    diamond = Cut()
    late = diamond.net.app(diamond.edge)
    late.subscribe("demo/t")
    diamond.net.run(MOST_S + 1.0)
    publish(diamond, 3)
    got = [place for place in late.places if place[0] >= 2]
    assert got == sorted(set(got))
    assert groups(diamond) == [0, 2, 3]
