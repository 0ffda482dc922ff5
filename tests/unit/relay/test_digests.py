"""Peers that have met before compare what they hold, and tell each other what has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from laps.relay.digests import LEAST, Sums, bits_for
from laps.relay.roles import Role
from laps.types import NodePathItem, PeerMode, TrackKey
from laps.wire.control import encode
from laps.wire.extensions import EXTENDED_CODECS
from laps.wire.interest import (
    MAX_BITS,
    MIN_BITS,
    SubscribeAgreed,
    SubscribeDigest,
    SubscribeInterest,
    Wants,
)
from laps.wire.peering import NodeInfoAdv, SubscribeInfoAdv, SubscribeInfoWd
from support.relays import App, Net, subscribe_info, track_hash

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from laps.wire.peering import Message
    from support.relays import Puppet, Wire

MANY = 200


class Pair:
    """An edge that wants a great deal, and two control servers that hold it."""

    def __init__(self) -> None:
        self.net = net = Net()
        self.servers = [net.relay(f"9:{number}", Role.CONTROL) for number in (1, 2)]
        self.edge = net.relay("1:1")
        net.wire(self.servers[0], self.servers[1], mode=PeerMode.CONTROL, extended=True)
        self.wires = [self.wire(server) for server in self.servers]
        net.settle()
        self.app = App()
        self.want(*range(MANY))

    def wire(self, server: Relay) -> Wire:
        return self.net.wire(self.edge, server, mode=PeerMode.CONTROL, extended=True)

    def want(self, *numbers: int) -> None:
        for number in numbers:
            self.net.subscribe(self.edge, self.app, f"a/{number}")

    def leave(self, *numbers: int) -> None:
        for number in numbers:
            self.net.unsubscribe(self.edge, self.app, f"a/{number}")
        self.net.run(6.0)

    def held(self, server: int = 0) -> set[int]:
        return set(self.servers[server].subscribes.of(self.edge.id))

    def wanted(self) -> set[int]:
        return set(self.edge.subscribes.of(self.edge.id))


def told(wire: Wire) -> int:
    """How many subscribes the edge has said on a link."""
    return len(wire.here.said(SubscribeInfoAdv))


def test_who_is_back_tells_nothing_that_is_held() -> None:
    it = Pair()
    it.wires[0].cut()
    it.net.run(0.5)
    wire = it.wire(it.servers[0])
    it.net.run(10.0)
    assert told(wire) == 0
    assert it.held() == it.wanted()
    assert len(wire.there.said(SubscribeDigest)) == len(wire.here.said(SubscribeAgreed)) == 1


def test_what_has_changed_meanwhile_is_told_and_little_besides() -> None:
    it = Pair()
    it.wires[0].cut()
    it.want(MANY, MANY + 1)
    it.leave(3)
    wire = it.wire(it.servers[0])
    it.net.run(10.0)
    assert it.held() == it.wanted()
    assert len(it.wanted()) == MANY + 1
    assert 2 <= told(wire) <= 3 * (1 + MANY // (1 << MIN_BITS)) * 3


def test_a_server_that_holds_nothing_is_told_everything() -> None:
    it = Pair()
    it.net.crash(it.servers[0])
    it.servers[0] = it.net.relay("9:1", Role.CONTROL)
    it.net.wire(it.servers[0], it.servers[1], mode=PeerMode.CONTROL, extended=True)
    wire = it.wire(it.servers[0])
    it.net.run(10.0)
    assert wire.there.said(SubscribeDigest) == []
    assert told(wire) == MANY
    assert it.held() == it.wanted()


def test_a_relay_that_has_begun_anew_has_the_rest_withdrawn() -> None:
    it = Pair()
    publisher = it.net.relay("1:2")
    it.net.wire(publisher, it.servers[0], mode=PeerMode.CONTROL, extended=True)
    app = App()
    it.net.announce(publisher, app, "a")
    it.net.run(5.0)
    assert len(app.asked) == MANY
    it.net.crash(it.edge, noticed=False)
    it.edge, it.app = it.net.relay("1:1", epoch=1000), App()
    it.want(1, 2, 3)
    for wire in it.wires:
        wire.cut(noticed_by=tuple(it.servers))
    for server in it.servers:
        it.wire(server)
    it.net.run(20.0)
    assert it.held() == it.held(1) == it.wanted()
    assert len(it.wanted()) == 3
    assert len(app.asked) == 3


def test_a_few_are_told_again_without_a_digest() -> None:
    it = Pair()
    it.leave(*range(LEAST - 1, MANY))
    it.wires[0].cut()
    it.net.run(0.5)
    wire = it.wire(it.servers[0])
    it.net.run(10.0)
    assert wire.there.said(SubscribeDigest) == []
    assert told(wire) == LEAST - 1


# --- what a peer may say ----------------------------------------------------------------------


def say(puppet: Puppet, *messages: Message) -> None:
    for message in messages:
        puppet.end.send_control(puppet.control, encode(message, codecs=EXTENDED_CODECS))
    puppet.net.run()


def test_digests_that_nobody_waits_for_have_no_place() -> None:
    net = Net()
    relay, puppet = net.relay("1:1"), net.puppet("1:2")
    net.wire(puppet, relay, extended=True)
    say(puppet, SubscribeInterest(Wants.ALL))
    before = relay.counters.unwanted_messages
    say(puppet, SubscribeDigest(MIN_BITS, (0,) * 64), SubscribeAgreed(MIN_BITS, b"\xff" * 8))
    assert relay.counters.unwanted_messages == before + 2


def test_a_peer_that_promises_a_digest_is_told_nothing_of_ours_before_it() -> None:
    net = Net()
    relay, puppet = net.relay("1:1"), net.puppet("1:2")
    app = App()
    for number in range(3):
        net.subscribe(relay, app, f"a/{number}")
    net.wire(puppet, relay, extended=True)
    say(puppet, SubscribeInterest(Wants.ALL, digests=True))
    net.run(5.0)
    assert puppet.heard_of(SubscribeInfoAdv) == []
    sums = Sums(MIN_BITS)
    for number in (0, 1):
        key = track_hash(f"a/{number}").full_name_hash
        sequence = relay.subscribes.sequence(relay.id, key)
        assert sequence is not None
        sums.add(key, sequence)
    say(puppet, SubscribeDigest(MIN_BITS, tuple(sums.sums)))
    (agreed,) = puppet.heard_of(SubscribeAgreed)
    keys = [track_hash(f"a/{number}").full_name_hash for number in range(3)]
    said = {it.subscribe_info.track_hash.full_name_hash for it in puppet.heard_of(SubscribeInfoAdv)}
    assert said == {key for key in keys if not agreed.covers(key)}
    assert keys[2] in said


def test_who_says_what_agrees_and_goes_on_without_the_rest_has_that_withdrawn() -> None:
    net = Net()
    relay, puppet = net.relay("1:1"), net.puppet("1:2")
    wire = net.wire(puppet, relay, extended=True)
    other = net.puppet("1:3")
    net.wire(other, relay, extended=True)
    say(puppet, SubscribeInterest(Wants.ALL))
    say(other, SubscribeInterest(Wants.ALL))
    for number in range(LEAST):
        puppet.say(SubscribeInfoAdv(subscribe_info("1:2", f"a/{number}", 5)))
    other.say(NodeInfoAdv(structs.replace(puppet.info, path=(NodePathItem(other.id, 1000),))))
    wire.cut()
    net.run(1.0)
    assert len(relay.subscribes) == LEAST
    net.wire(puppet, relay, extended=True)
    say(puppet, SubscribeInterest(Wants.ALL))
    (digest,) = puppet.heard_of(SubscribeDigest)
    first = track_hash("a/0").full_name_hash & (1 << digest.bits) - 1
    same = bytearray(len(digest.sums) >> 3)
    same[first >> 3] |= 1 << (first & 7)
    agreed = SubscribeAgreed(digest.bits, bytes(same))
    say(puppet, agreed)
    net.run(20.0)
    left = set(relay.subscribes.of(puppet.id))
    assert left == {
        key
        for number in range(LEAST)
        if agreed.covers(key := track_hash(f"a/{number}").full_name_hash)
    }
    assert puppet.heard_of(SubscribeInfoWd)


# --- sums -------------------------------------------------------------------------------------


def test_sums_do_not_go_by_order_and_tell_every_change() -> None:
    one, two = Sums(MIN_BITS), Sums(MIN_BITS)
    pairs = [(TrackKey(number * 977), number) for number in range(500)]
    for key, sequence in pairs:
        one.add(key, sequence)
    for key, sequence in reversed(pairs):
        two.add(key, sequence)
    assert one.sums == two.sums
    two.add(*pairs[7])
    two.add(pairs[7][0], 8)
    differing = [n for n, (a, b) in enumerate(zip(one.sums, two.sums, strict=True)) if a != b]
    assert differing == [pairs[7][0] & 63]


@pytest.mark.parametrize(
    ("count", "bits"), [(0, MIN_BITS), (5_000, MIN_BITS), (20_000, 8), (10**7, MAX_BITS)]
)
def test_there_are_as_many_buckets_as_are_worth_it(count: int, bits: int) -> None:
    assert bits_for(count) == bits
