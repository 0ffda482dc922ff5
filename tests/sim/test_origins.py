"""Origins in simulated networks: slow, refusing, and down for a while, under loss and reordering.

Whoever an origin has granted gets everything, what was published before the answer too. Whoever it
has refused gets nothing, and nobody else notices.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from laps.auth.origins import Origin, OriginApi
from laps.relay.settings import RelaySettings
from laps.sim import generators
from laps.sim.network import Network
from laps.sim.origins import SimOrigins
from laps.tracks.cache import CacheLimits
from laps.wire.moqt.codes import RequestCode
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.messages import PublishOk, RequestError
from laps.wire.quicr.messages import Intent, PublishIntentOk, Response, SubscribeReply
from support.moqt_streams import Obj, start_at
from support.simulated import Site

if TYPE_CHECKING:
    from support.moqt import App
    from support.quicr import Media, Post

GROUPS = 5
KINDS = ("quicr", "moqt 14", "moqt 16")
DIALECTS = {"moqt 14": DRAFT14, "moqt 16": DRAFT16}


class Scene:
    """Publishers that do not wait for the answer, and readers before and after them."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        topology = generators.random(self.rng.randint(2, 6), seed)
        settings = RelaySettings(cache=CacheLimits())
        self.network = Network(topology, seed, extended=1.0, settings=settings)
        origins = SimOrigins(self.network.clock)
        api = OriginApi("https://media.example/laps", timeout_s=5.0)
        self.server = origins.add(Origin("media.example", ((b"live",),), (), api))
        self.server.delay_s = (0.0, 1.5)
        self.refused: set[tuple[str, str]] = set()
        "Actions and tracks that the origin refuses."
        self.keep_s = 60.0
        self.server.answers = self._answer
        for node in self.network.nodes.values():
            node.origins = origins
        self.network.settle()
        edges = [it for it in self.network.nodes.values() if it.spec.type in ("edge", "stub")]
        self.sites = [Site(self.network, node) for node in edges]

    def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        if (question["action"], question["track"]) in self.refused:
            return {"allow": False, "reason": "no", "keep_s": 1}
        return {"allow": True, "keep_s": self.keep_s}

    def publish(self, kind: str, name: str) -> Post | App:
        """All of a track, at once and before anybody has answered."""
        site = self.rng.choice(self.sites)
        if kind == "quicr":
            post = site.quicr().publish(f"live/{name}")
            for group in range(GROUPS):
                post.object(group, 0, b"%d" % group)
            return post
        app = site.moqt(DIALECTS[kind])
        alias = app.publish(f"live/{name}")
        for group in range(GROUPS):
            app.stream(alias, group, Obj(0, b"%d" % group))
        return app

    def subscribe(self, kind: str, name: str) -> Media | App:
        site = self.rng.choice(self.sites)
        if kind == "quicr":
            return site.quicr().subscribe(f"live/{name}", Intent.CATCH_UP)
        app = site.moqt(DIALECTS[kind])
        app.subscribe(f"live/{name}", start_at(0))
        return app

    def run(self, seconds: float) -> None:
        self.network.run(seconds)


def objects(reader: Media | App) -> list[bytes]:
    """What was published: without the marks of where groups end."""
    return [payload for _, _, payload in sorted(reader.objects) if payload]


def is_granted(publisher: Post | App) -> bool:
    return any(isinstance(it, PublishIntentOk | PublishOk) for it in publisher.heard)


ALL = [b"%d" % group for group in range(GROUPS)]


@pytest.mark.parametrize("seed", range(4))
def test_origin_that_is_slow_delays_and_loses_nothing(seed: int) -> None:
    scene = Scene(seed)
    scene.server.delay_s = (0.5, 1.0)
    readers = [scene.subscribe(reads, kind[-2:]) for kind in KINDS for reads in KINDS]
    scene.run(1.2)  # a reader that MoQT has waits for 2 s, and is given nothing of the past
    published = [scene.publish(kind, kind[-2:]) for kind in KINDS]
    scene.run(0.4)
    assert not any(map(is_granted, published))
    scene.run(20.0)
    assert all(map(is_granted, published))
    assert [objects(it) for it in readers] == [ALL] * len(readers)


@pytest.mark.parametrize("seed", range(4))
def test_origin_that_refuses_one_leaves_the_others_alone(seed: int) -> None:
    scene = Scene(seed)
    scene.refused = {("publish", "no"), ("subscribe", "closed")}
    good, bad = scene.publish("quicr", "ok"), scene.publish("moqt 16", "no")
    hidden = scene.publish("moqt 14", "closed")
    scene.run(3.0)
    readers = {name: scene.subscribe("quicr", name) for name in ("ok", "no", "closed")}
    scene.run(20.0)
    assert [is_granted(it) for it in (good, bad, hidden)] == [True, False, True]
    assert {name: objects(it) for name, it in readers.items()} == {
        "ok": ALL,
        "no": [],
        "closed": [],
    }
    refusals = [it.code for it in bad.heard if isinstance(it, RequestError)]
    assert refusals == [RequestCode.UNAUTHORIZED]


@pytest.mark.parametrize("seed", range(4))
def test_origin_that_is_down_for_a_while_grants_when_it_is_back(seed: int) -> None:
    scene = Scene(seed)
    scene.server.is_up = False
    early = scene.publish("quicr", "early")
    scene.run(3.0)
    assert not early.heard
    scene.server.is_up = True
    scene.run(3.0)
    assert is_granted(early)
    scene.server.is_up = False
    late = scene.subscribe("quicr", "late")
    scene.run(8.0)
    replies = [it.response for it in late.heard if isinstance(it, SubscribeReply)]
    assert replies == [Response.FAIL]


@pytest.mark.parametrize("seed", range(4))
def test_origin_ends_what_it_granted_and_an_outage_does_not(seed: int) -> None:
    scene = Scene(seed)
    scene.keep_s = 20.0
    publisher = scene.publish("quicr", "t")
    scene.run(3.0)
    reader = scene.subscribe("quicr", "t")
    scene.run(7.0)
    assert objects(reader) == ALL
    scene.server.is_up = False  # over the time when it is asked again, and back before the end
    scene.run(7.0)
    scene.server.is_up = True
    scene.run(10.0)
    assert publisher.closed is None
    scene.refused = {("publish", "t")}
    scene.run(25.0)
    assert publisher.closed is True
