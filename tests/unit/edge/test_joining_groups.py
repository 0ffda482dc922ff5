"""Clients that begin with the group a track is in: those of moq-lite, or all by the setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.sessions import moqt_setup
from laps.types import Location
from laps.wire.moqt.messages import Fetch, FetchOk, Goaway, RequestError, Subscribe, SubscribeOk
from support.moqt import MoqtNet
from support.moqt_streams import DRAFTS, Obj, objects_of

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from laps.wire.moqt.dialect import Dialect
    from support.moqt import App

LITE = b"moq-lite-js"

near_and_far = pytest.mark.parametrize("relays", [1, 2, 3])
both = pytest.mark.parametrize("dialect", DRAFTS, ids=repr)


class Stage:
    """A publisher of moq-lite at one end of a row of relays, and viewers at the other."""

    def __init__(self, relays: int, dialect: Dialect, **settings: object) -> None:
        self.net = MoqtNet()
        self.row = self.net.chain(relays, **settings)
        self.dialect = dialect
        self.pub = self.publisher()

    def publisher(self) -> App:
        pub = self.lite(self.row[0])
        pub.publish_namespace("demo")
        self.net.run(0.1)
        return pub

    def lite(self, relay: Relay) -> App:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(moqt_setup, "IMPLEMENTATION", LITE)
            return self.net.app(relay, self.dialect)

    def view(self) -> App:
        """One more viewer, when the relays have answered."""
        viewer = self.lite(self.row[-1])
        viewer.subscribe("demo/t")
        self.net.run(0.2)
        return viewer

    def accept(self) -> int:
        """The publisher's answer: it never says how far a track is."""
        alias = self.pub.accept(self.pub.last(Subscribe))
        self.net.run(0.2)
        return alias


def payloads(viewer: App) -> list[list[bytes]]:
    """What is on each stream, and that none begins in the middle or leaves anything out."""
    for stream in viewer.subgroups:
        assert [item.object_id for item in stream.objects] == list(range(len(stream.objects)))
    return [[item.payload for item in stream.objects] for stream in viewer.subgroups]


@near_and_far
@both
def test_every_viewer_gets_what_was_written_once(relays: int, dialect: Dialect) -> None:
    stage = Stage(relays, dialect)
    first = stage.view()
    stage.pub.stream(stage.accept(), 0, Obj(0, b"catalog"))
    stage.net.run(0.2)
    viewers = [first] + [stage.view() for _ in range(3)]
    stage.net.run(600.0)
    viewers.append(stage.view())
    assert [payloads(viewer) for viewer in viewers] == [[[b"catalog"]]] * 5
    assert viewers[-1].last(SubscribeOk).largest == Location(0, 0)
    assert not stage.pub.heard_of(Fetch)  # it knows none


@near_and_far
@both
def test_a_group_that_is_under_way_comes_from_its_first_object_on(
    relays: int, dialect: Dialect
) -> None:
    stage = Stage(relays, dialect)
    stage.view()
    alias = stage.accept()
    stage.pub.stream(alias, 6, *objects_of(0, 1))
    stream = stage.pub.open(alias, 7, *objects_of(0, 1))
    stage.net.run(0.2)
    second = stage.view()
    assert payloads(second) == [[b"0", b"1"]]
    stream.write(*objects_of(2, 3))
    stage.net.run(0.2)
    assert payloads(second) == [[b"0", b"1", b"2", b"3"]]
    third = stage.view()
    stream.write(Obj(4, b"4"), fin=True)
    stage.pub.stream(alias, 8, *objects_of(0))
    stage.net.run(0.2)
    rest = [[b"0", b"1", b"2", b"3", b"4"], [b"0"]]
    assert payloads(second) == payloads(third) == rest
    assert all(stream.finished for stream in second.subgroups)


@both
def test_what_a_relay_has_to_fetch_goes_on_with_what_it_then_receives(dialect: Dialect) -> None:
    """The first viewer of a relay comes late: its relay has nothing of the group."""
    stage = Stage(2, dialect)
    near = stage.lite(stage.row[0])
    near.subscribe("demo/t")
    stage.net.run(0.2)
    alias = stage.accept()
    stream = stage.pub.open(alias, 7, *objects_of(0, 1))
    stage.net.run(0.2)
    viewer = stage.view()
    assert payloads(viewer) == [[b"0", b"1"]]
    stream.write(*objects_of(2, 3))
    stage.net.run(0.2)
    assert payloads(viewer) == [[b"0", b"1", b"2", b"3"]]
    stage.pub.stream(alias, 8, *objects_of(0))
    stage.net.run(0.2)
    assert payloads(viewer)[1:] == [[b"0"]]


@near_and_far
@pytest.mark.parametrize(
    ("gone_s", "known"), [(0.0, True), (1.5, True), (70.0, True), (1.5, False), (70.0, False)]
)
def test_a_publisher_that_was_started_again_is_seen_by_old_viewers_and_new(
    relays: int, gone_s: float, known: bool
) -> None:
    """`known` is whether its end was noticed: a browser that was killed says nothing."""
    stage = Stage(relays, DRAFTS[0])
    old = stage.view()
    alias = stage.accept()
    for group in range(3):
        stage.pub.stream(alias, group, Obj(0, b"old"))
    open_ = stage.pub.open(alias, 3, Obj(0, b"old"))
    stage.net.run(0.2)
    assert len(payloads(old)) == 4
    if known:
        stage.pub.leave()
    stage.net.run(gone_s)
    stage.pub = stage.publisher()
    alias = stage.accept()
    stage.pub.stream(alias, 0, Obj(0, b"new"))
    stage.net.run(0.2)
    assert payloads(old)[-1] == [b"new"]
    assert payloads(stage.view()) == [[b"new"]]
    stage.pub.stream(alias, 1, Obj(0, b"newer"))
    stage.net.run(0.2)
    assert payloads(old)[-1] == payloads(stage.view())[-1] == [b"newer"]
    del open_


@near_and_far
def test_by_the_setting_every_client_begins_so(relays: int) -> None:
    stage = Stage(relays, DRAFTS[0], join="group")
    pub = stage.net.app(stage.row[0])
    alias = pub.publish("demo/other")
    pub.stream(alias, 4, *objects_of(0, 1))
    stage.net.run(0.2)
    sub = stage.net.app(stage.row[-1])
    sub.subscribe("demo/other")
    stage.net.run(0.2)
    assert sub.places == [(4, 0), (4, 1)]
    # What is asked for by a FETCH beside it is what it always was.
    sub.fetch("demo/other", (4, 0), (4, 1))
    stage.net.run(0.2)
    assert sub.heard_of(FetchOk)


def test_without_it_a_subscription_begins_after_the_largest_object() -> None:
    stage = Stage(1, DRAFTS[0])
    pub, sub = stage.net.app(stage.row[0]), stage.net.app(stage.row[0])
    alias = pub.publish("demo/other")
    pub.stream(alias, 4, *objects_of(0, 1))
    sub.subscribe("demo/other")
    stage.net.run(0.2)
    assert sub.places == []


@near_and_far
def test_a_track_that_its_publisher_ended_a_moment_ago_is_asked_for_again(relays: int) -> None:
    """A camera that is asked before it films ends the track, and has it half a second later."""
    stage = Stage(relays, DRAFTS[0])
    early = stage.view()
    stage.accept()
    stage.pub.done(stage.pub.last(Subscribe).request_id, 200, 0, "OK")
    stage.net.run(0.7)
    viewer = stage.view()
    assert not viewer.heard_of(RequestError)
    stage.net.run(0.5)
    alias = stage.accept()
    stage.pub.stream(alias, 0, Obj(0, b"film"))
    stage.net.run(0.5)
    assert payloads(viewer) == [[b"film"]]
    del early


def test_a_client_that_stays_away_after_a_goaway_loses_its_connection_instead() -> None:
    stage = Stage(1, DRAFTS[0])
    other = stage.net.app(stage.row[0])
    edge = stage.net.edges[stage.row[0]]
    edge.drain(stage.net.now)
    stage.net.run(10.0)
    edge.close()
    assert not stage.pub.heard_of(Goaway)
    assert stage.pub.aborted
    assert other.heard_of(Goaway)
    assert not other.aborted
