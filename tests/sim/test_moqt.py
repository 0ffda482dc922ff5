"""MoQT clients at simulated networks: late joiners get every object once, wherever they are.

Between the relays packets are lost, delayed and reordered. The way between a client and its relay
is short and sure, so that whatever is missing was missed by relays.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from laps.relay.settings import RelaySettings
from laps.sim import generators
from laps.sim.network import Network
from laps.tracks.cache import CacheLimits
from laps.types import Location
from laps.wire.moqt.messages import Filter, FilterType, RequestError, SubscribeOk
from support.moqt_streams import DRAFTS, LARGEST, NEXT_GROUP, Obj, start_at
from support.simulated import Site

if TYPE_CHECKING:
    from support.moqt import App

TRACK = "demo/track"
GROUPS, OBJECTS = 12, 5
OBJECT_S = 0.1


class Scene:
    """A publisher, and subscribers that come while it publishes."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        topology = generators.random(self.rng.randint(2, 9), seed)
        settings = RelaySettings(cache=CacheLimits())
        self.network = Network(topology, seed, extended=1.0, settings=settings)
        self.network.settle()
        nodes = self.network.nodes.values()
        self.places = [
            Site(self.network, node) for node in nodes if node.spec.type in ("edge", "stub")
        ]
        self.subscribers: list[tuple[App, Filter]] = []

    def app(self) -> App:
        return self.rng.choice(self.places).moqt(self.rng.choice(DRAFTS))

    def publish(self) -> None:
        """One stream for each group, an object at a time."""
        clock, app = self.network.clock, self.app()
        extended = self.rng.random() < 0.5
        alias = app.publish(TRACK)

        def write(group: int) -> None:
            stream = app.open(alias, group, extensions=extended)

            def next_object(number: int) -> None:
                item = Obj(number, payload(group, number))
                stream.write(item, fin=number == OBJECTS - 1)

            for number in range(OBJECTS):
                clock.after(number * OBJECT_S, next_object, number)

        for group in range(GROUPS):
            clock.after(group * OBJECTS * OBJECT_S, write, group)

    def subscribe_later(self) -> None:
        wanted = self.rng.choice((LARGEST, NEXT_GROUP, start_at(0), start_at(GROUPS - 2, 2)))
        after = self.rng.uniform(0, (GROUPS - 3) * OBJECTS * OBJECT_S)

        def subscribe() -> None:
            app = self.app()
            app.subscribe(TRACK, wanted)
            self.subscribers.append((app, wanted))

        self.network.clock.after(after, subscribe)


def payload(group: int, number: int) -> bytes:
    return b"%d.%d" % (group, number)


def expected(answer: SubscribeOk, wanted: Filter) -> list[tuple[int, int, bytes]]:
    """What a subscriber is owed, by the draft and the answer it got."""
    start, largest = wanted.start, answer.largest
    if largest is not None:
        behind = Location(largest.group, largest.object + 1)
        if wanted.type is FilterType.NEXT_GROUP:
            behind = Location(largest.group + 1, 0)
        start = max(start, behind)
    return [
        (group, number, payload(group, number))
        for group in range(GROUPS)
        for number in range(OBJECTS)
        if (group, number) >= start
    ]


def check(seed: int) -> None:
    scene = Scene(seed)
    scene.publish()
    for _ in range(6):
        scene.subscribe_later()
    scene.network.run(GROUPS * OBJECTS * OBJECT_S + 10)
    assert len(scene.subscribers) == 6
    for app, wanted in scene.subscribers:
        assert app.closed is None
        assert not app.heard_of(RequestError)
        (answer,) = app.heard_of(SubscribeOk)
        owed = expected(answer, wanted)
        found = sorted(app.objects)
        late = found[: len(found) - len(owed)]
        assert found[len(late) :] == owed
        # What came to its relay after it had subscribed, of the time before, is for those alone
        # that do not begin with the largest object.
        assert len(set(late)) == len(late)
        assert not late or wanted.type is FilterType.ABSOLUTE_START
        assert all(item[:2] >= wanted.start for item in late)
        assert all(stream.finished for stream in app.subgroups)
    reader = scene.app()
    reader.fetch(TRACK, (0, 0), (GROUPS - 1, 0))
    scene.network.run(10)
    whole = [(o.group, o.object_id, o.payload) for o in reader.fetched.objects]
    assert whole == expected(SubscribeOk(0, 0), start_at(0))


# A dozen in every run, and as many more at night.
SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(12, 25))]


@pytest.mark.parametrize("seed", SEEDS)
def test_late_joiners_get_every_object_once(seed: int) -> None:
    check(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_late_joiners_get_every_object_once_under_many_seeds(seed: int) -> None:
    check(seed)
