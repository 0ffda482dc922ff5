"""Control messages go out as the link has room for them, and nothing is lost or told twice over."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from laps.relay import outbox as outbox_module
from laps.relay.peers import PAGE_BYTES
from laps.relay.roles import Role
from laps.types import NodeInfo, NodePathItem, NodeType, TrackHash, parse_node_id
from laps.wire.extensions import NamespaceInfoAdv
from laps.wire.peering import NodeInfoAdv, NodeInfoWd, SubscribeInfoAdv, SubscribeInfoWd
from support.relays import App, Net, Wire, subscribe_info, track_hash, track_name

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from support.relays import Speaker

WINDOW = 1000


def narrow(net: Net, a: Speaker, b: Speaker, *, holding: bool = False) -> Wire:
    """A wire that takes little at once, or nothing more until it is released."""
    wire = net.wire(a, b, run=False, extended=True)
    for end in wire:
        end.window, end.holding = WINDOW, holding
    net.run()
    return wire


def wanted(relay: Relay) -> set[tuple[int, int]]:
    return set(relay.subscribes.keys())


def offered(relay: Relay) -> set[tuple[int, object]]:
    namespaces = relay.extensions.namespaces
    return {(info.source_node_id, info.namespace) for info in namespaces}


def subscribe_many(net: Net, relay: Relay, count: int, prefix: str = "a") -> App:
    app = App()
    for number in range(count):
        name = track_name(f"{prefix}/{number}")
        relay.subscribe(app, name, b"data", net.now)
        relay.extensions.announce(app, (prefix.encode(), b"%d" % number), None, net.now)
    net.run()
    return app


class Pair:
    """A relay with subscribes of its own and of another beyond, and one that is about to join."""

    def __init__(self, count: int = 200) -> None:
        self.net = Net()
        self.beyond, self.near = self.net.relay("1:1"), self.net.relay("1:2")
        self.net.wire(self.beyond, self.near, extended=True)
        self.net.settle()
        self.app = subscribe_many(self.net, self.beyond, count)
        self.own = subscribe_many(self.net, self.near, count, "b")
        self.late = self.net.relay("1:3")

    def agree(self) -> None:
        """Everybody knows the same."""
        relays = (self.beyond, self.near, self.late)
        assert wanted(self.late) == wanted(self.near) == wanted(self.beyond)
        assert offered(self.late) == offered(self.near) == offered(self.beyond)
        assert all(relay.is_idle() for relay in relays)


def test_a_peer_is_told_everything_as_its_link_takes_it() -> None:
    pair = Pair()
    wire = narrow(pair.net, pair.late, pair.near)
    pair.net.settle()
    pair.agree()
    assert len(wanted(pair.late)) == 400
    assert wire.there.most_unread <= WINDOW + PAGE_BYTES
    assert len(wire.there.said(SubscribeInfoAdv)) == 400
    assert len(wire.there.said(NamespaceInfoAdv)) == 400


def test_what_changes_while_a_peer_is_told_everything_is_told_too() -> None:
    pair = Pair()
    wire = narrow(pair.net, pair.late, pair.near, holding=True)
    assert len(wire.there.said(SubscribeInfoAdv)) < 200
    for number in range(0, 200, 3):
        pair.beyond.unsubscribe(pair.app, track_name(f"a/{number}"), pair.net.now)
        pair.beyond.extensions.unannounce(pair.app, (b"a", b"%d" % number), None, pair.net.now)
    pair.net.run(10.0)
    for number in range(0, 200, 6):
        pair.beyond.subscribe(pair.app, track_name(f"a/{number}"), b"again", pair.net.now)
    more = subscribe_many(pair.net, pair.near, 20, "c")
    pair.near.unsubscribe(more, track_name("c/3"), pair.net.now)
    pair.net.run(10.0)
    wire.there.release()
    wire.here.release()
    pair.net.settle()
    pair.agree()


def test_a_link_that_breaks_in_the_middle_begins_anew() -> None:
    pair = Pair()
    wire = narrow(pair.net, pair.late, pair.near, holding=True)
    said = len(wire.there.said(SubscribeInfoAdv))
    assert said < 400
    wire.cut()
    pair.net.settle()
    assert pair.near.is_idle()
    narrow(pair.net, pair.late, pair.near)
    pair.net.settle()
    pair.agree()


def test_changes_that_find_no_room_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "MAX_WORDS", 10)
    pair = Pair(5)
    wire = narrow(pair.net, pair.late, pair.near)
    pair.net.settle()
    wire.there.holding = True
    subscribe_many(pair.net, pair.beyond, 300, "d")
    (link,) = pair.near.peers[pair.late.id].links.values()
    assert len(link.outbox) <= 10 + 2
    wire.there.release()
    pair.net.settle()
    pair.agree()


def test_the_last_word_about_a_thing_is_the_one_that_waits() -> None:
    pair = Pair(5)
    wire = narrow(pair.net, pair.late, pair.near)
    pair.net.settle()
    wire.there.holding = True
    filler = subscribe_many(pair.net, pair.near, 50, "filler")
    before = len(wire.there.sent)
    for _ in range(5):
        pair.near.subscribe(filler, track_name("e/1"), b"", pair.net.now)
        pair.near.unsubscribe(filler, track_name("e/1"), pair.net.now)
        pair.net.run(6.0)
    assert len(wire.there.sent) == before
    wire.there.release()
    said = [m for m in wire.there.sent if isinstance(m, SubscribeInfoAdv | SubscribeInfoWd)]
    about = [m for m in said if m.subscribe_info.track_hash == track_hash("e/1")]
    assert [type(message) for message in about] == [SubscribeInfoWd]
    pair.net.settle()
    pair.agree()


def test_a_path_that_is_gone_is_withdrawn_before_the_rest_is_told() -> None:
    net = Net()
    near, late, puppet = net.relay("1:2"), net.puppet("1:3"), net.puppet("1:1")
    net.wire(puppet, near)
    far = NodeInfo(parse_node_id("1:9"), NodeType.EDGE, path=(NodePathItem(puppet.id, 5),))
    puppet.say(NodeInfoAdv(far))
    subscribe_many(net, near, 200)
    wire = net.wire(late, near, run=False)
    wire.there.window, wire.there.holding = WINDOW, True
    net.run(5.0)
    waiting = 200 - len(late.heard_of(SubscribeInfoAdv))
    assert waiting > 0
    puppet.say(NodeInfoWd(far))
    assert [message.node_info.id for message in late.heard_of(NodeInfoWd)] == [far.id]
    assert 200 - len(late.heard_of(SubscribeInfoAdv)) == waiting


def test_a_node_s_subscribes_are_not_told_after_it_is_gone() -> None:
    net = Net()
    near, late, puppet = net.relay("1:2"), net.puppet("1:3"), net.puppet("1:1")
    gone = net.wire(puppet, near)
    puppet.say(*(SubscribeInfoAdv(subscribe_info("1:1", f"a/{n}", 5)) for n in range(200)))
    net.run(5.0)
    wire = net.wire(late, near, run=False)
    wire.there.window, wire.there.holding = WINDOW, True
    net.run()
    told = len(late.heard_of(SubscribeInfoAdv))
    assert told < 200
    gone.cut()
    wire.there.release()
    net.run(20.0)
    assert len(late.heard_of(SubscribeInfoAdv)) == told


# -- Stubs -----------------------------------------------------------------------------------------


def test_a_stub_is_told_of_namespaces_as_its_link_takes_them() -> None:
    net, app = Net(), App()
    edge, stub = net.relay("1:1"), net.relay("8:1", Role.STUB)
    for number in range(100):
        edge.extensions.announce(app, (b"a", b"%d" % number), None, net.now)
    wire = narrow(net, stub, edge, holding=True)
    assert len(stub.extensions.namespaces) < 100
    for number in range(0, 100, 2):
        edge.extensions.unannounce(app, (b"a", b"%d" % number), None, net.now)
    for number in range(100, 150):
        edge.extensions.announce(app, (b"a", b"%d" % number), None, net.now)
    edge.extensions.announce(app, (b"a", b"0"), None, net.now)
    wire.there.release()
    net.run(5.0)
    assert {names for _, names in offered(stub)} == {names for _, names in offered(edge)}
    assert len(offered(stub)) == 101


def test_a_stub_tells_its_edge_everything_as_the_link_takes_it() -> None:
    net, app = Net(), App()
    edge, stub = net.relay("1:1"), net.relay("8:1", Role.STUB)
    infos = [net.announce(stub, app, f"p/{number}") for number in range(100)]
    subscribe_many(net, stub, 100)
    wire = narrow(net, stub, edge, holding=True)
    for info in infos[::2]:
        stub.unannounce(app, info, net.now)
    stub.unsubscribe(app, track_name("a/7"), net.now)
    net.run(10.0)
    wire.here.release()
    net.run(10.0)
    assert len(edge.tracks.announces) == 50
    assert len(edge.subscribes) == 100


# -- whatever happens ------------------------------------------------------------------------------


class Chance:
    """Three relays in a circle on narrow links, whose clients and links do as they like."""

    def __init__(self, seed: int) -> None:
        self.rng, self.net = Random(seed), Net()
        self.relays = [self.net.relay(f"1:{low}") for low in (1, 2, 3)]
        self.apps = [App() for _ in self.relays]
        self.wires = [narrow(self.net, a, b) for a, b in self._pairs()]

    def _pairs(self) -> list[tuple[Relay, Relay]]:
        return list(zip(self.relays, self.relays[1:] + self.relays[:1], strict=True))

    def step(self) -> None:
        rng = self.rng
        which, track = rng.randrange(3), f"a/{rng.randrange(40)}"
        relay, app, wire = self.relays[which], self.apps[which], self.wires[which]
        match rng.randrange(8):
            case 0 | 1 | 2:
                relay.subscribe(app, track_name(track), b"x" * 40, self.net.now)
                relay.extensions.announce(app, (track.encode(),), None, self.net.now)
            case 3 | 4:
                relay.unsubscribe(app, track_name(track), self.net.now)
                relay.extensions.unannounce(app, (track.encode(),), None, self.net.now)
            case 5:
                wire.here.holding = wire.there.holding = True
            case 6:
                wire.here.release()
                wire.there.release()
            case _ if rng.random() < 0.2:
                wire.cut()
                self.wires[which] = narrow(self.net, *self._pairs()[which])
        self.net.run(rng.choice((0.0, 0.1, 3.0)))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("most", [5, 5000])
def test_whatever_happens_all_know_the_same(
    seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "MAX_WORDS", most)
    chance = Chance(seed)
    for _ in range(150):
        chance.step()
    for wire in chance.wires:
        wire.here.release()
        wire.there.release()
    chance.net.run(30.0)
    first, *others = chance.relays
    for other in others:
        assert wanted(other) == wanted(first)
        assert offered(other) == offered(first)
    for relay, app in zip(chance.relays, chance.apps, strict=True):
        own = {hashes.full_name_hash for hashes in _subscribed(relay, app)}
        assert {key for source, key in wanted(first) if source == relay.id} == own
        assert relay.is_idle()


def _subscribed(relay: Relay, app: App) -> list[TrackHash]:
    return list(relay.tracks.subscribed(app))
