"""How tracks that QUICR clients publish end, do not end, and go on from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.wire.moqt.codes import DoneCode
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.messages import PublishDone, SubscribeOk
from laps.wire.quicr.fragments import cut
from laps.wire.quicr.messages import Intent, Response
from support.moqt import App, MoqtNet
from support.moqt_streams import Obj, body, start_at
from support.quicr import Media, Post, QuicrApp, check_empty

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from laps.wire.quicr.messages import Fragment

Got = list[tuple[int, int, bytes]]

modes = pytest.mark.parametrize("datagrams", [False, True], ids=["stream", "datagrams"])
near_and_far = pytest.mark.parametrize("relays", [1, 3])


def payload(group: int, number: int) -> bytes:
    return b"%d.%d " % (group, number) * 500


def pieces(group: int, number: int) -> list[Fragment]:
    return list(cut(group, number, payload(group, number), 1000))


def track(*places: tuple[int, int]) -> Got:
    return [(*place, payload(*place)) for place in places]


def moqt_objects(app: App) -> Got:
    found = [
        (item.group, item.object_id, item.payload)
        for stream in app.subgroups
        for item in stream.objects
        if not item.status
    ]
    found += [(d.group, d.object_id, bytes(d.payload)) for d in app.datagrams if d.status is None]
    return sorted(found)


def send(post: Post, *places: tuple[int, int]) -> None:
    for place in places:
        if post.datagram_id is None:
            post.object(*place, payload(*place), 1000)
        else:
            post.datagrams(*place, payload(*place))


class Audience:
    def __init__(self, net: MoqtNet, intent: Intent = Intent.IMMEDIATE) -> None:
        self.media: list[Media] = []
        self.moqt: list[App] = []
        for relay in list(net.edges):
            for datagrams in (False, True):
                app = QuicrApp(net, relay)
                self.media.append(app.subscribe("demo/t", intent, datagrams=datagrams))
            for dialect in (DRAFT14, DRAFT16):
                self.moqt.append(net.app(relay, dialect))
                self.moqt[-1].subscribe("demo/t", start_at(0))

    def check(self, objects: Got) -> None:
        for media in self.media:
            assert media.app.closed is None
            assert sorted(media.objects) == objects
            if media.datagram_id is None:
                assert media.objects == objects
        for app in self.moqt:
            assert moqt_objects(app) == objects

    def check_on(self) -> None:
        assert [media.closed for media in self.media] == [None] * len(self.media)
        assert [app.heard_of(PublishDone) for app in self.moqt] == [[]] * len(self.moqt)

    def check_ended(self, final: tuple[int, int]) -> None:
        for media in self.media:
            assert media.closed is True
            assert media.fins == ([] if media.datagram_id is None else [final])
            assert [reply.response for reply in media.replies] == [Response.OK]
            assert not media.app.client.subscriptions
        for app in self.moqt:
            (done,) = app.heard_of(PublishDone)
            assert done.code == DoneCode.TRACK_ENDED


# -- the end ---------------------------------------------------------------------------------------


@modes
@near_and_far
def test_when_a_publisher_ends_its_track_everybody_is_told(datagrams: bool, relays: int) -> None:
    net = MoqtNet()
    row = net.chain(relays)
    audience = Audience(net)
    post = QuicrApp(net, row[0]).publish("demo/t", datagrams=datagrams)
    send(post, (0, 0), (0, 1), (1, 0))
    audience.check_on()
    post.end((1, 1) if datagrams else None)
    net.run(3)
    audience.check(track((0, 0), (0, 1), (1, 0)))
    audience.check_ended((1, 1))
    assert post.closed is True
    check_empty(net)


@modes
@near_and_far
def test_a_track_without_objects_ends_too(datagrams: bool, relays: int) -> None:
    net = MoqtNet()
    row = net.chain(relays)
    audience = Audience(net)
    QuicrApp(net, row[0]).publish("demo/t", datagrams=datagrams).end()
    net.run(3)
    audience.check_ended((0, 0))
    check_empty(net)


@near_and_far
@pytest.mark.parametrize("dialect", [DRAFT14, DRAFT16], ids=repr)
def test_what_a_moqt_publisher_ends_has_ended(dialect: object, relays: int) -> None:
    net = MoqtNet()
    row = net.chain(relays)
    audience = Audience(net)
    pub = net.app(row[0], dialect)  # type: ignore[arg-type]
    alias = pub.publish("demo/t")
    request_id = next(iter(pub.client.publications))
    pub.stream(alias, 0, Obj(0, payload(0, 0)))
    pub.stream(alias, 1, Obj(0, payload(1, 0)))
    pub.done(request_id, DoneCode.TRACK_ENDED, 2)
    net.run(3)
    audience.check(track((0, 0), (1, 0)))
    audience.check_ended((1, 1))
    check_empty(net)


def test_the_last_datagrams_may_come_behind_the_end() -> None:
    net = MoqtNet()
    (relay,) = net.chain(1)
    audience = Audience(net)
    post = QuicrApp(net, relay).publish("demo/t", datagrams=True)
    number = post.datagram_id
    send(post, (0, 0))
    post.end((0, 2))
    for fragment in pieces(0, 1):
        post.datagram(fragment, stream_id=number)
    net.run(1)
    audience.check(track((0, 0), (0, 1)))
    audience.check_ended((0, 2))
    check_empty(net)


@near_and_far
def test_a_stream_that_ends_inside_an_object_has_not_ended_the_track(relays: int) -> None:
    net = MoqtNet()
    row = net.chain(relays)
    audience = Audience(net)
    post = QuicrApp(net, row[0]).publish("demo/t")
    send(post, (0, 0))
    post.say(pieces(0, 1)[0])
    post.end()
    net.run(3)
    audience.check(track((0, 0)))
    audience.check_on()
    again = QuicrApp(net, row[-1]).publish("demo/t")
    again.start(0, 1)
    send(again, (0, 1), (0, 2))
    again.end()
    net.run(3)
    audience.check(track((0, 0), (0, 1), (0, 2)))
    audience.check_ended((0, 3))
    check_empty(net)


def test_a_slow_reader_is_sent_the_rest_ahead_of_the_end() -> None:
    net = MoqtNet()
    (relay,) = net.chain(1)
    media = QuicrApp(net, relay).subscribe("demo/t")
    post = QuicrApp(net, relay).publish("demo/t")
    media.app.link.make_room(1)
    send(post, (0, 0), (0, 1), (0, 2))
    post.end()
    net.run(3)
    assert not media.is_closed()
    assert len(media.objects) < 3
    media.app.link.make_room(None)
    assert media.objects == track((0, 0), (0, 1), (0, 2))
    assert media.closed is True
    check_empty(net)


# -- not the end -----------------------------------------------------------------------------------


def lose(post: Post, how: str) -> None:
    if how == "reset":
        post.reset()
    else:
        post.app.leave()


@pytest.mark.parametrize("how", ["reset", "gone"])
@pytest.mark.parametrize("second", ["stream", "datagrams", "moqt 14", "moqt 16"])
@modes
@pytest.mark.parametrize(("relays", "there"), [(1, 0), (3, 0), (3, 2)])
def test_whoever_comes_next_goes_on(
    how: str, second: str, datagrams: bool, relays: int, there: int
) -> None:
    """A QUICR publisher may send again what has come of the group that was under way."""
    net = MoqtNet()
    row = net.chain(relays)
    audience = Audience(net)
    post = QuicrApp(net, row[0]).publish("demo/t", datagrams=datagrams)
    send(post, (0, 0), (1, 0), (1, 1))
    net.run(1)
    audience.check(track((0, 0), (1, 0), (1, 1)))
    lose(post, how)
    net.run(3)
    audience.check_on()
    places = [(1, 0), (1, 1), (1, 2), (2, 0)]
    if second.startswith("moqt"):
        _moqt_goes_on(net, row[there], second, places[2:])
    else:
        again = QuicrApp(net, row[there]).publish("demo/t", datagrams=second == "datagrams")
        if second == "stream":
            again.start(1, 0)
        send(again, *places)
        again.end((2, 1) if second == "datagrams" else None)
    net.run(3)
    audience.check(track((0, 0), (1, 0), (1, 1), (1, 2), (2, 0)))
    audience.check_ended((2, 1))
    check_empty(net)


def _moqt_goes_on(net: MoqtNet, relay: Relay, second: str, places: list[tuple[int, int]]) -> None:
    pub = net.app(relay, DRAFT14 if second == "moqt 14" else DRAFT16)
    alias = pub.publish("demo/t")
    request_id = next(iter(pub.client.publications))
    for group in (1, 2):
        items = [Obj(number, payload(g, number)) for g, number in places if g == group]
        pub.stream(alias, group, *items, subgroup=items[0].id)
    pub.done(request_id, DoneCode.TRACK_ENDED, 2)


@pytest.mark.parametrize("dialect", [DRAFT14, DRAFT16], ids=repr)
@pytest.mark.parametrize("size", [0, 1, 1500])
@near_and_far
def test_an_object_that_a_moqt_publisher_broke_off_comes_again(
    dialect: object, size: int, relays: int
) -> None:
    net = MoqtNet()
    row = net.chain(relays)
    audience = Audience(net)
    pub = net.app(row[0], dialect)  # type: ignore[arg-type]
    alias = pub.publish("demo/t")
    stream = pub.open(alias, 0, Obj(0, payload(0, 0)))
    stream.write_bytes(body([Obj(1, payload(0, 1))], last=0)[: size and size + 3])
    pub.leave()
    net.run(3)
    again = net.app(row[0], dialect)  # type: ignore[arg-type]
    again.fragments = 700
    alias = again.publish("demo/t")
    again.stream(alias, 0, Obj(0, payload(0, 0)), Obj(1, payload(0, 1)), Obj(2, payload(0, 2)))
    net.run(3)
    audience.check(track((0, 0), (0, 1), (0, 2)))
    check_empty(net)


# -- a publisher that moves ------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["reset", "gone"])
@pytest.mark.parametrize("order", ["make before break", "break before make"])
@pytest.mark.parametrize("late", [False, True], ids=["all the time", "late"])
@modes
def test_a_publisher_moves_in_the_middle_of_a_group(
    how: str, order: str, late: bool, datagrams: bool
) -> None:
    net = MoqtNet()
    row = net.chain(3)
    audience = None if late else Audience(net)
    old = QuicrApp(net, row[0]).publish("demo/t", datagrams=datagrams)
    send(old, (0, 0), (0, 1), (1, 0))
    net.run(1)
    if audience is None:
        audience = Audience(net, Intent.CATCH_UP)
        net.run(1)
    send(old, (1, 1))
    if order == "break before make":
        net.run(0.1)
        lose(old, how)
        net.run(0.1)
    new = QuicrApp(net, row[2]).publish("demo/t", datagrams=datagrams)
    if not datagrams:
        new.start(1, 2)
    send(new, (1, 2))
    if order == "make before break":
        net.run(0.1)
        lose(old, how)
    net.run(1)
    send(new, (1, 3), (2, 0))
    net.run(1)
    audience.check_on()
    new.end((2, 1) if datagrams else None)
    net.run(3)
    places = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0)]
    if late:  # MoQT subscribers begin behind what was there
        for app in audience.moqt:
            assert moqt_objects(app) == track(*places[3:])
        audience.moqt.clear()
    audience.check(track(*places))
    audience.check_ended((2, 1))
    check_empty(net)


@modes
def test_somebody_else_who_publishes_when_one_ends_goes_on(datagrams: bool) -> None:
    net = MoqtNet()
    row = net.chain(3)
    audience = Audience(net)
    old = QuicrApp(net, row[0]).publish("demo/t", datagrams=datagrams)
    send(old, (0, 0))
    net.run(1)
    old.end((0, 1) if datagrams else None)
    net.run(0.1)
    new = QuicrApp(net, row[1]).publish("demo/t", datagrams=datagrams)
    new.start(1, 0)
    send(new, (1, 0))
    net.run(3)
    ended = [media for media in audience.media if media.closed]
    assert not any(media.app.edge.relay is row[2] for media in ended)
    for media in audience.media:
        if media not in ended:
            assert sorted(media.objects) == track((0, 0), (1, 0))
    check_empty(net)


# -- a publisher that begins anew ------------------------------------------------------------------


@near_and_far
def test_a_publisher_begins_anew_with_smaller_numbers(relays: int) -> None:
    net = MoqtNet()
    row = net.chain(relays)
    stream = QuicrApp(net, row[-1]).subscribe("demo/t")
    datagrams = QuicrApp(net, row[-1]).subscribe("demo/t", datagrams=True)
    old = QuicrApp(net, row[0]).publish("demo/t")
    send(old, (0, 0), (1, 0), (2, 0))
    net.run(1)
    old.app.leave()
    net.run(3)
    new = QuicrApp(net, row[0]).publish("demo/t")
    new.object(0, 0, b"new")
    net.run(1)
    assert stream.objects == track((0, 0), (1, 0), (2, 0))
    assert stream.replies[-1].response is Response.EXPIRED
    assert "anew" in stream.replies[-1].reason
    assert stream.closed is True
    last = datagrams.datagrams[-1].fragment
    assert (last.group, last.object_id, bytes(last.data)) == (0, 0, b"new")
    again = stream.app.subscribe("demo/t", Intent.CATCH_UP)
    new.object(1, 0, b"newer")
    net.run(1)
    assert again.objects == [(0, 0, b"new"), (1, 0, b"newer")]
    new.end()
    net.run(3)
    assert again.closed is True
    assert datagrams.fins == [(1, 1)]
    check_empty(net)


def test_what_a_publisher_held_in_fragments_is_forgotten_when_one_begins_anew() -> None:
    net = MoqtNet()
    (relay,) = net.chain(1)
    old = QuicrApp(net, relay).publish("demo/t", datagrams=True)
    old.start(3, 0)
    old.object(3, 0, b"on its stream")
    old.datagram(pieces(4, 0)[0])
    assert relay.tracks.shared.fragment_bytes > 0
    old.app.leave()
    net.run(1)
    new = QuicrApp(net, relay).publish("demo/t")
    new.object(0, 0, b"new")
    assert relay.tracks.shared.fragment_bytes == 0
    check_empty(net)


def test_a_publisher_that_leaves_right_behind_its_end_has_ended_its_track() -> None:
    """The relay waits a little for the last datagrams: none comes from who is gone."""
    net = MoqtNet()
    (relay,) = net.chain(1)
    moqt, quicr = net.app(relay), QuicrApp(net, relay)
    moqt.subscribe("demo/t")
    media = quicr.subscribe("demo/t", datagrams=True)
    pub = QuicrApp(net, relay)
    post = pub.publish("demo/t", datagrams=True)
    post.datagrams(5, 0, b"only")
    post.end((5, 1))
    pub.leave()
    net.run(1)
    assert moqt.last(PublishDone).code == DoneCode.TRACK_ENDED
    assert media.closed is True
    assert media.fins == [(5, 1)]


def test_who_is_back_with_the_same_numbers_goes_on_or_begins_anew() -> None:
    """What is the same is dropped as known; something else in its place is not."""
    net = MoqtNet()
    (relay,) = net.chain(1)
    for payloads in ((b"a", b"b"), (b"a", b"b", b"c"), (b"a", b"another", b"d")):
        pub = QuicrApp(net, relay)
        post = pub.publish("demo/t")
        post.start(7, 0)
        for number, data in enumerate(payloads):
            post.object(7, number, data)
        pub.leave()
        net.run(1)
        media = QuicrApp(net, relay).subscribe("demo/t", Intent.CATCH_UP)
        net.run(1)
        assert [item[2] for item in media.objects] == list(payloads)


def test_a_publisher_in_datagrams_may_begin_anew_with_the_same_numbers() -> None:
    """The same again is known and dropped, near and far; something else is a new beginning."""
    net = MoqtNet()
    first, last = net.chain(2)
    media = QuicrApp(net, last).subscribe("demo/t", datagrams=True)
    moqt = net.app(last)
    for said in (b"one", b"one", b"two"):
        pub = QuicrApp(net, first)
        post = pub.publish("demo/t", datagrams=True)
        net.run(0.5)
        if said == b"one" and not moqt.heard_of(SubscribeOk):
            moqt.subscribe("demo/t")
        for number in range(3):
            post.datagrams(0, number, said * 500)
            net.run(0.1)
        pub.leave()
        net.run(3)
    assert [item.payload[:3] for stream in moqt.subgroups for item in stream.objects] == [
        b"one",
        b"one",
        b"one",
        b"two",
        b"two",
        b"two",
    ]
    assert len(media.datagrams) == 2 * 3 * 2  # twice three objects, in two fragments each
    assert [relay.tracks.counters.started_over for relay in (first, last)] == [1, 1]
