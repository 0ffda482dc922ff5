"""Clients that do as they please, within the protocol: nothing breaks, comes twice, or is left."""

from __future__ import annotations

from itertools import cycle
from random import Random
from typing import TYPE_CHECKING

import pytest

from laps.types import Location, hash_track, track_alias
from laps.wire.moqt.codes import DoneCode, RequestCode
from laps.wire.moqt.data import FetchHeader, SubgroupHeader
from laps.wire.moqt.fetch import EndOfRange
from laps.wire.moqt.messages import (
    Fetch,
    FetchCancel,
    FetchOk,
    Publish,
    PublishDone,
    PublishNamespace,
    PublishOk,
    RequestOk,
    StandaloneFetch,
    Subscribe,
    SubscribeOk,
    TrackStatus,
    Unsubscribe,
)
from laps.wire.moqt.objects import Object
from support.moqt import MoqtNet
from support.moqt_streams import (
    DRAFTS,
    LARGEST,
    NEXT_GROUP,
    Obj,
    groups,
    start_at,
)
from support.relays import track_hash, track_name

if TYPE_CHECKING:
    from laps.types import TrackName
    from support.moqt import App, OutStream
    from support.moqt_streams import InStream

TRACKS = ["demo/a", "demo/b", "demo/room/c"]
NAMES = {track_alias(track_hash(track).full_name_hash): track_name(track) for track in TRACKS}
GROUP = 6
"Objects of a group."


def payload(track: TrackName, group: int, number: int) -> bytes:
    """A track has one content, whoever publishes it."""
    name = b"/".join((*track.namespace, track.name))
    return b"%s %d %d" % (name, group, number) * (1 + number % 3)


class Publisher:
    """Sends groups of a few objects, one after another, each on a stream of its own."""

    def __init__(self, app: App, track: TrackName, alias: int, request_id: int) -> None:
        self.app, self.track, self.alias, self.request_id = app, track, alias, request_id
        self.streams = 0
        self._stream: OutStream | None = None

    def send(self, group: int, number: int) -> None:
        """The next object, as all publishers of the track count them."""
        item = Obj(number, payload(self.track, group, number))
        if self._stream is None or number == 0:
            self.end()
            self.streams += 1
            self._stream = self.app.open(self.alias, group, item, subgroup=0)
        else:
            self._stream.write(item)
        if number == GROUP - 1:
            self._stream.finish()
            self._stream = None

    def end(self) -> None:
        """In the middle of a group, so that it is not over."""
        if self._stream is not None:
            self._stream.reset(0)
            self._stream = None


class Crowd:
    """Clients at some relays, that do one thing after another."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.net = MoqtNet()
        self.relays = self.net.chain(self.chance.choice([1, 1, 2, 3]))
        self.apps: list[App] = []
        self.publishers: dict[tuple[App, TrackName], Publisher] = {}
        self.places = {track_name(track): [0, 0] for track in TRACKS}
        self.fetching: dict[App, dict[int, Location]] = {}
        self.senders: dict[tuple[TrackName, int], set[Publisher]] = {}
        self._priorities = cycle(range(200))
        for _ in range(4):
            self.arrive()

    def step(self) -> None:
        choices = [
            (self.arrive, 2),
            (self.leave, 2),
            (self.publish, 6),
            (self.publish_namespace, 3),
            (self.send, 40),
            (self.done, 2),
            (self.subscribe, 10),
            (self.unsubscribe, 4),
            (self.fetch, 6),
            (self.join, 4),
            (self.cancel, 2),
            (self.watch, 3),
            (self.ask, 2),
            (self.wait, 6),
        ]
        actions, weights = zip(*choices, strict=True)
        self.chance.choices(actions, weights)[0]()

    # -- what they do ------------------------------------------------------------------------------

    def arrive(self) -> None:
        app = self.net.app(self.chance.choice(self.relays), self.chance.choice(DRAFTS))
        app.answers[Subscribe] = lambda message: self._asked(app, message)
        app.answers[Fetch] = lambda message: self._fetched(app, message)
        app.answers[Publish] = lambda message: self._offered(app, message)
        app.answers[PublishNamespace] = lambda message: app.say(RequestOk(message.request_id))
        app.answers[Unsubscribe] = lambda message: self._unwanted(app, message.request_id)
        self.apps.append(app)
        self.fetching[app] = {}

    def leave(self) -> None:
        if len(self.apps) > 3:
            app = self.apps.pop(self.chance.randrange(len(self.apps)))
            self.check(app)
            app.leave()
            for key in [key for key in self.publishers if key[0] is app]:
                del self.publishers[key]

    def publish(self) -> None:
        app, track = self.chance.choice(self.apps), self.chance.choice(TRACKS)
        name = track_name(track)
        if (app, name) not in self.publishers:
            largest = None if self.chance.random() < 0.5 else self._largest(name)
            request_id = app.session.ids._next
            alias = app.publish(track, largest=largest)
            if app.heard_of(PublishOk) and app.heard_of(PublishOk)[-1].request_id == request_id:
                self.publishers[app, name] = Publisher(app, name, alias, request_id)

    def publish_namespace(self) -> None:
        self.chance.choice(self.apps).publish_namespace("demo")

    def send(self) -> None:
        if not self.publishers:
            return
        track = self.chance.choice([name for _, name in self.publishers])
        place = self.places[track]
        publishers = [p for (_, name), p in self.publishers.items() if name == track]
        senders = self.senders.setdefault((track, place[0]), set())
        for publisher in publishers:
            senders.add(publisher)
            publisher.send(place[0], place[1])
        if len(senders) == 1:
            self._check_arrival(track, Location(*place))
        place[1] += 1
        if place[1] == GROUP:
            place[:] = [place[0] + 1, 0]

    def done(self) -> None:
        if self.publishers:
            key = self.chance.choice(list(self.publishers))
            publisher = self.publishers.pop(key)
            publisher.end()
            count = publisher.streams if self.chance.random() < 0.7 else 0
            publisher.app.done(publisher.request_id, DoneCode.TRACK_ENDED, count)

    def subscribe(self) -> None:
        app, track = self.chance.choice(self.apps), self.chance.choice(TRACKS)
        group = self.places[track_name(track)][0]
        wanted = [LARGEST, NEXT_GROUP, start_at(0), start_at(group, 3), groups(group, group + 1)]
        app.subscribe(track, self.chance.choice(wanted), priority=next(self._priorities))

    def unsubscribe(self) -> None:
        app = self.chance.choice(self.apps)
        held = list(app.client._by_request)
        if held:
            app.say(Unsubscribe(self.chance.choice(held)))

    def fetch(self) -> None:
        app, track = self.chance.choice(self.apps), self.chance.choice(TRACKS)
        start = Location(self.chance.randrange(3), self.chance.choice([0, 0, 2]))
        end = (start.group + self.chance.randrange(4), self.chance.choice([0, 0, 3]))
        self.fetching[app][app.fetch(track, start, end)] = start

    def join(self) -> None:
        app = self.chance.choice(self.apps)
        held = [d for d in app.client._by_request.values() if d.filter == LARGEST]
        if held:
            joined, group = self.chance.choice(held).request_id, self.chance.randrange(2)
            self.fetching[app][app.join(joined, group, relative=False)] = Location(group, 0)

    def cancel(self) -> None:
        app = self.chance.choice(self.apps)
        open_ = [n for n in self.fetching[app] if n in app.session.outgoing]
        if open_:
            app.say(FetchCancel(open_[-1]))

    def watch(self) -> None:
        app = self.chance.choice(self.apps)
        prefix = self.chance.choice(["demo", "demo/room", "else"])
        request_id = app.watch(prefix)
        if self.chance.random() < 0.5:
            app.session.unsubscribe_namespace(request_id)
            self.net.run()

    def ask(self) -> None:
        self.chance.choice(self.apps).request(TrackStatus(0, track_name(TRACKS[0])))

    def wait(self) -> None:
        self.net.run(self.chance.choice([0.05, 0.3, 3.0, 30.0]))

    # -- what they answer --------------------------------------------------------------------------

    def _largest(self, track: TrackName) -> Location | None:
        group, number = self.places[track]
        if number:
            return Location(group, number - 1)
        return Location(group - 1, GROUP - 1) if group else None

    def _asked(self, app: App, message: Subscribe) -> None:
        if message.request_id not in app.session.incoming:
            return  # it has been taken back
        if (app, message.track) in self.publishers or self.chance.random() < 0.3:
            app.refuse(message.request_id, RequestCode.DOES_NOT_EXIST)
            return
        publisher = Publisher(app, message.track, 0, message.request_id)
        self.publishers[app, message.track] = publisher  # it may be taken back before we return
        publisher.alias = app.accept(message, self._largest(message.track))

    def _unwanted(self, app: App, request_id: int) -> None:
        for key, publisher in list(self.publishers.items()):
            if key[0] is app and publisher.request_id == request_id:
                publisher.end()
                del self.publishers[key]

    def _fetched(self, app: App, message: Fetch) -> None:
        wanted = message.range
        assert isinstance(wanted, StandaloneFetch)
        largest = self._largest(wanted.track)
        if self.chance.random() < 0.3 or message.request_id not in app.session.incoming:
            return
        if largest is None or wanted.start > largest or self.chance.random() < 0.2:
            app.refuse(message.request_id, RequestCode.INVALID_RANGE)
            return
        last = min(largest, Location(wanted.end.group, (wanted.end.object or 1 << 40) - 1))
        beyond = wanted.end.object == 0 and last.group == wanted.end.group and last < largest
        end = (last.group, 0) if beyond or last.object >= GROUP else (last.group, last.object + 1)
        items = [
            Object(g, 0, o, 128, 0, b"", payload(wanted.track, g, o))
            for g in range(wanted.start.group, last.group + 1)
            for o in range(GROUP)
            if wanted.start <= Location(g, o) <= last
        ]
        app.answer_fetch(message, end, *items)
        app.session.finish(message.request_id)

    def _offered(self, app: App, message: Publish) -> None:
        if message.request_id not in app.session.incoming:
            return
        if self.chance.random() < 0.6:
            priority = next(self._priorities)
            app.say(PublishOk(message.request_id, filter=LARGEST, priority=priority))
        else:
            app.refuse(message.request_id, RequestCode.UNINTERESTED)

    # -- what has to be so -------------------------------------------------------------------------

    def check(self, app: App) -> None:
        """What an app has heard and got so far."""
        assert app.closed is None
        for (alias, number), streams in self._by_subscription(app).items():
            found = [place for stream in streams for place in stream.places]
            # Of several publishers, what one sent may be forgotten before another sends it.
            once = [p for p in found if len(self.senders[NAMES[alias], p[0]]) == 1]
            assert len(once) == len(set(once)), (NAMES[alias], number, once)
            for stream in streams:
                assert stream.places == sorted(stream.places)
                for item in stream.objects:
                    assert item.payload == payload(NAMES[alias], item.group, item.object_id)
        for stream in app.streams:
            if stream.finished and isinstance(header := stream.header, FetchHeader):
                self._check_fetch(app, stream, header.request_id)
        for accepted in app.heard_of(SubscribeOk):
            ends = [done.request_id for done in app.heard_of(PublishDone)]
            assert ends.count(accepted.request_id) <= 1

    def _check_arrival(self, track: TrackName, place: Location) -> None:
        """An object has been sent, by the only one who publishes its group."""
        for app in self.apps:
            delivery = app.client.subscriptions.get(hash_track(track).full_name_hash)
            if delivery is None or not delivery.is_established or place < delivery.start:
                continue
            if delivery.end_group is None or place.group <= delivery.end_group:
                key = delivery.track.alias, delivery.priority
                streams = self._by_subscription(app).get(key, [])
                assert place in [found for stream in streams for found in stream.places]

    def _by_subscription(self, app: App) -> dict[tuple[int, int], list[InStream]]:
        """Each subscription has a priority of its own, by which its streams are known."""
        found: dict[tuple[int, int], list[InStream]] = {}
        for stream in app.subgroups:
            header = stream.header
            assert isinstance(header, SubgroupHeader)
            found.setdefault((header.alias, stream.rank[0]), []).append(stream)
        return found

    def _check_fetch(self, app: App, stream: InStream, request_id: int) -> None:
        """All that the answer covers is there, or said to be unknown."""
        (ok,) = (m for m in app.heard_of(FetchOk) if m.request_id == request_id)
        start = self.fetching[app][request_id]
        last = Location(ok.end.group, (ok.end.object or GROUP) - 1)
        covered = [
            (group, number)
            for group in range(start.group, last.group + 1)
            for number in range(GROUP)
            if start <= (group, number) <= last
        ]
        found, at = [], start
        for item in stream.items:
            here = Location(item.group, item.object_id)
            if isinstance(item, EndOfRange):
                assert item.unknown
                found += [place for place in covered if at <= place <= here]
            else:
                found.append(here)
            at = Location(here.group, here.object + 1)
        assert found == covered


@pytest.mark.parametrize("seed", range(40))
def test_a_crowd(seed: int) -> None:
    crowd = Crowd(seed)
    for _ in range(100):
        crowd.step()
    for app in crowd.apps:
        crowd.check(app)
    crowd.net.check_empty()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1000, 3000))
def test_many_crowds(seed: int) -> None:
    test_a_crowd(seed)
