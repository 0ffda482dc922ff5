"""What a relay no longer has, and how it is told from what never was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.ranges import LAST_OBJECT
from laps.tracks.history import MAX_SPANS, History
from laps.types import Location
from laps.wire.moqt.fetch import EndOfRange
from laps.wire.moqt.messages import Fetch, FetchOk, PublishDone
from support.fetching import fetched, fill, whole
from support.moqt import stage
from support.moqt_streams import objects_of
from support.relays import track_hash

if TYPE_CHECKING:
    from support.moqt import App, MoqtNet

ALL = [(Location(0, 0), Location(10_000, LAST_OBJECT))]


def dropped(*groups: tuple[int, int | None]) -> History:
    past = History()
    for group, last in groups:
        past.saw(group)
        past.dropped(group, last)
    return past


def test_groups_that_follow_each_other_are_one_span() -> None:
    past = dropped((3, None), (5, 2), (4, None), (8, 1))
    assert past.lost(ALL) == [((3, 0), (5, 2)), ((8, 0), (8, 1))]


def test_groups_that_were_let_go_are_known() -> None:
    past = dropped((3, None), (4, None), (8, 1))
    assert [group for group in range(10) if past.has_let_go(group)] == [3, 4, 8]
    assert past.last_let_go == 8
    assert History().last_let_go is None
    assert not History().has_let_go(0)


def test_what_is_cut_off_a_group_grows() -> None:
    past = dropped((3, 5), (3, 9), (3, 7))
    assert past.lost(ALL) == [((3, 0), (3, 9))]


def test_only_gaps_are_lost() -> None:
    past = dropped((3, None), (4, 7))
    assert past.lost([((4, 8), (9, 0))]) == []  # type: ignore[list-item]
    gaps = [(Location(4, 2), Location(6, 0))]
    assert past.lost(gaps) == [((4, 2), (4, 7))]
    assert past.lost(gaps, brought=[4]) == []


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3)), max_size=200))
def test_everything_that_was_dropped_is_lost(groups: list[tuple[int, int]]) -> None:
    past = dropped(*groups)
    spans = past.lost(ALL)
    assert len(spans) <= MAX_SPANS
    assert spans == sorted(spans)
    for group, last in groups:
        assert any(low <= (group, 0) and (group, last) <= high for low, high in spans)
    if len({group for group, _ in groups}) <= MAX_SPANS:
        covered = {group for low, high in spans for group in range(low.group, high.group + 1)}
        assert covered == {group for group, _ in groups}


# -- at a relay ------------------------------------------------------------------------------------


def unknown(sub: App) -> list[tuple[int, int]]:
    """Where the ranges end that the relay does not know."""
    return [
        (item.group, item.object_id)
        for item in sub.fetched.items
        if isinstance(item, EndOfRange) and item.unknown
    ]


def leaves(net: MoqtNet, pub: App, groups: int) -> None:
    """The publisher ends its track and goes."""
    pub.say(PublishDone(0, 2, groups))
    net.run(2.0)
    pub.leave()


def test_a_publisher_that_came_later_does_not_speak_for_what_was_here() -> None:
    net, pub, sub = stage()
    fill(pub, 0, 1, 2)
    leaves(net, pub, 3)
    net.run(120.0)  # the relay has forgotten it all
    later = net.app(sub.edge.relay)
    fill(later, 7, 8)
    for _ in range(2):
        reader = net.app(sub.edge.relay)
        reader.fetch("demo/t", (1, 0), (8, 3))
        if not reader.heard_of(FetchOk):
            later.answer_fetch(later.last(Fetch), (8, 3), *fetched(*whole(7, 8)))
        assert reader.fetched.places == whole(7, 8)
        assert unknown(reader) == [(2, 2)]


@pytest.mark.parametrize("forgotten", [False, True])
def test_numbers_that_jump_are_no_loss_where_nobody_can_be_asked(forgotten: bool) -> None:
    net, pub, sub = stage()
    fill(pub, 0, 1, 2)
    leaves(net, pub, 3)
    if forgotten:
        net.run(120.0)
    later = net.app(sub.edge.relay)
    fill(later, 700, 900)
    leaves(net, later, 2)
    sub.fetch("demo/t", (2, 3), (900, 3))
    assert sub.fetched.places == [*whole(700, 700), *whole(900, 900)]
    assert unknown(sub) == []


def test_what_was_let_go_is_not_known_where_nobody_can_be_asked() -> None:
    net, pub, sub = stage()
    fill(pub, 0, 1, 2)
    leaves(net, pub, 3)
    net.run(120.0)
    later = net.app(sub.edge.relay)
    fill(later, 7)
    leaves(net, later, 1)
    sub.fetch("demo/t", (2, 1), (7, 3))
    assert sub.fetched.places == whole(7, 7)
    assert unknown(sub) == [(2, 2)]


def test_what_was_before_all_that_was_here_is_not_known() -> None:
    net, pub, sub = stage()
    fill(pub, 5)
    leaves(net, pub, 1)
    sub.fetch("demo/t", (3, 0), (5, 3))
    assert sub.fetched.places == whole(5, 5)
    assert unknown(sub) == [(4, LAST_OBJECT)]


@pytest.mark.parametrize("how", ["elsewhere", "lazy", "announced"])
def test_what_may_not_have_come_here_is_not_known(how: str) -> None:
    net, pub, sub = stage(relays=2)
    relay = pub.edge.relay
    if how == "lazy":
        alias = pub.publish("demo/t", forward=False)
        for group in (0, 4):
            pub.stream(alias, group, *objects_of(0, 1, 2), end_of_group=True)
    else:
        fill(pub, 0, 4)
    if how == "elsewhere":
        sub.publish("demo/t")
        net.run(0.1)
        sub.leave()
        net.run(0.1)
    elif how == "announced":
        sub.publish_namespace("demo")
        net.run(0.1)
        sub.leave()
        net.run(0.1)
    leaves(net, pub, 2)
    reader = net.app(relay)
    reader.fetch("demo/t", (0, 0), (4, 3))
    assert reader.fetched.places == [*whole(0, 0), *whole(4, 4)]
    assert unknown(reader) == [(3, LAST_OBJECT)]


def test_a_track_that_begins_anew_has_no_past() -> None:
    net, pub, sub = stage()
    fill(pub, 5, 6)
    pub.leave()
    net.run(120.0)
    later = net.app(sub.edge.relay)
    fill(later, 9)
    live = sub.edge.relay.tracks.get(track_hash("demo/t").full_name_hash)
    assert live is not None
    live.start_over()
    assert live.cached.history.lost(ALL) == []
