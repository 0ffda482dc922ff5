"""Clients of all kinds that come, go, move, stall and break off, in any order."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.quicr.fragments import cut
from laps.wire.quicr.messages import Intent, Subscribe, Terms
from support.moqt import App, MoqtNet
from support.moqt_streams import start_at
from support.quicr import Media, Post, QuicrApp, check_empty

if TYPE_CHECKING:
    from laps.relay.relay import Relay

Place = tuple[int, int]


def payload(place: Place) -> bytes:
    size = (0, 1, 900, 2500, 70_000)[(place[0] * 3 + place[1]) % 5]
    return (b"%d.%d " % place * size)[:size]


class Life:
    """One track, published by one client at a time, and its readers."""

    def __init__(self, seed: int, *, relays: int = 3) -> None:
        self.rng = Random(seed)
        self.net = MoqtNet()
        self.row = self.net.chain(relays)
        self.at: Place = (0, 0)
        self.post: Post | None = None
        self.sent: list[Place] = []
        self.stalled: set[QuicrApp] = set()
        self.has_holes = False
        "Who reads in order waits behind them, and not for everything."
        self.media: list[Media] = []
        self.moqt: list[App] = []

    @property
    def relay(self) -> Relay:
        return self.rng.choice(self.row)

    # -- what happens ------------------------------------------------------------------------------

    def publish(self) -> None:
        if self.post is None:
            app = QuicrApp(self.net, self.relay)
            self.post = app.publish("demo/t", datagrams=self.rng.random() < 0.5)
            if self.at != (0, 0):
                self.post.start(*self.at)

    def send(self) -> None:
        post, rng = self.post, self.rng
        if post is None:
            return
        for _ in range(rng.randint(1, 4)):
            fragments = list(cut(*self.at, payload(self.at), rng.choice((700, 1000, 60_000))))
            if post.datagram_id is None or any(len(f.data) > 1100 for f in fragments):
                if post.datagram_id is None:
                    post.say(*fragments)
                else:
                    post.datagrams(*self.at, payload(self.at))
            else:
                for fragment in rng.sample(fragments, len(fragments)):
                    post.datagram(fragment, Terms(priority=rng.randint(0, 7)))
            self.sent.append(self.at)
            group, number = self.at
            self.at = (group + 1, 0) if rng.random() < 0.2 else (group, number + 1)

    def send_part(self) -> None:
        """Something that does not become whole, and is given up."""
        post = self.post
        if post is None or len(payload(self.at)) < 900:
            return
        first = next(iter(cut(*self.at, payload(self.at), 500)))
        if post.datagram_id is None:
            post.say(first)
            self.leave()
        else:
            post.datagram(first)
            self.has_holes = True
            self.net.run(1)
        self.at = (self.at[0], self.at[1] + 1)

    def leave(self) -> None:
        if self.post is not None:
            if self.rng.random() < 0.5:
                self.post.reset()
            else:
                self.post.app.leave()
            self.post = None
            self.net.run(self.rng.choice((0.0, 0.1, 2.0)))

    def end(self) -> None:
        if self.post is not None and self.rng.random() < 0.3:
            self.post.end(self.at if self.post.datagram_id is not None else None)
            self.post = None
            self.at = (self.at[0] + 1, 0)
            self.net.run(3)

    def subscribe(self) -> None:
        rng = self.rng
        if rng.random() < 0.3:
            app = self.net.app(self.relay, rng.choice((DRAFT14, DRAFT16)))
            app.subscribe("demo/t", start_at(0))
            self.moqt.append(app)
            return
        reader = QuicrApp(self.net, self.relay)
        reader.takes_datagrams = rng.random() < 0.4
        intent = rng.choice(list(Intent))
        wild = rng.random() < 0.3
        media = reader.subscribe(
            "demo" if wild else "demo/t",
            intent,
            mask=int(wild),
            datagrams=reader.takes_datagrams,
        )
        self.media.append(media)

    def unsubscribe(self) -> None:
        if self.media:
            media = self.media.pop(self.rng.randrange(len(self.media)))
            self.check_media(media)
            if not media.is_closed() and self.rng.random() < 0.5:
                self.rng.choice((media.cancel, media.close))()
            else:
                media.app.leave()

    def stall(self) -> None:
        if self.media:
            app = self.rng.choice(self.media).app
            self.stalled.add(app)
            app.link.make_room(self.rng.choice((1, 5000, None)))

    def wait(self) -> None:
        self.net.run(self.rng.choice((0.01, 0.1, 0.6, 3.0)))
        for media in self.media:
            if not media.is_closed():
                media.renew()

    def delay(self) -> None:
        self.net.latency = self.rng.choice((0, 0, 3))

    def live(self, steps: int) -> None:
        doings = [
            *[self.publish] * 3,
            *[self.send] * 8,
            self.send_part,
            self.leave,
            self.end,
            *[self.subscribe] * 2,
            self.unsubscribe,
            self.stall,
            *[self.wait] * 3,
            self.delay,
        ]
        for _ in range(steps):
            self.rng.choice(doings)()
            self.check()

    # -- what has to hold --------------------------------------------------------------------------

    def check(self) -> None:
        for media in self.media:
            self.check_media(media)
        for app in self.moqt:
            assert app.closed is None
            found = [
                (item.group, item.object_id, item.payload)
                for stream in app.subgroups
                for item in stream.objects
                if not item.status
            ]
            found += [(d.group, d.object_id, bytes(d.payload)) for d in app.datagrams]
            self.check_objects(found)

    def check_media(self, media: Media) -> None:
        app = media.app
        assert app.closed is None, app.closed
        assert isinstance(media.stream.opening, Subscribe)
        catches_up = media.stream.opening.intent is Intent.CATCH_UP
        for found in [media, *app.offered]:
            self.check_objects(found.objects)
            if found.datagram_id is None:
                assert found.places == sorted(found.places)
            # What came before a subscription may be at a relay that is not asked.
            wants_old = catches_up or found is not media
            waits = app in self.stalled or (self.has_holes and found.datagram_id is None)
            if found.places and not wants_old and not waits:
                self.check_gaps(found)
        if not catches_up:
            # A track that has ended and is back begins behind what it was, unless all is wanted.
            places = [place for found in app.offered for place in found.places]
            assert len(set(places)) == len(places)

    def check_gaps(self, media: Media) -> None:
        """Nothing is lost between the first and the last that has come."""
        places = set(media.places)
        first, last = min(places), max(places)
        missing = [p for p in self.sent if first <= p <= last and p not in places]
        assert missing == []

    def check_objects(self, objects: list[tuple[int, int, bytes]]) -> None:
        places = [item[:2] for item in objects]
        assert len(set(places)) == len(places)
        for group, number, data in objects:
            assert data == payload((group, number)), (group, number, len(data))
            assert (group, number) < self.at

    def finish(self) -> None:
        """What is sent at last reaches everybody who is still there, and nothing is left."""
        net = self.net
        net.latency = 0
        for media in self.media:
            media.app.link.make_room(None)
        self.wait()
        net.run(4)
        for media in self.media:
            if not media.is_closed():
                media.renew()
        self.publish()
        assert self.post is not None
        group = self.at[0] + 1
        if self.post.datagram_id is None:
            self.post.start(group, 0)
        self.at = (group, 2)
        for place in ((group, 0), (group, 1)):
            if self.post.datagram_id is None:
                self.post.object(*place, payload(place))
            else:
                self.post.datagrams(*place, payload(place))
        net.run(3)
        self.check()
        for media in self.media:
            assert isinstance(media.stream.opening, Subscribe)
            for found in media.app.offered if media.stream.opening.mask else [media]:
                if not found.is_closed():
                    assert found.places[-1:] == [(group, 1)], found.places[-3:]
        check_empty(net)


def check(seed: int) -> None:
    life = Life(seed)
    life.live(60)
    life.finish()


# 1059: a publisher goes to another relay, which still has a flow of it from where it was.
@pytest.mark.parametrize("seed", [*range(40), 1059])
def test_whatever_happens_objects_are_right(seed: int) -> None:
    check(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1000, 1500))
def test_whatever_happens_objects_are_right_under_many_seeds(seed: int) -> None:
    check(seed)
