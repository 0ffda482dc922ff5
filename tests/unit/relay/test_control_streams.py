"""A control stream that ends or moves: a link without one is of no use, and nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.errors import CloseCode
from laps.relay.roles import Role
from laps.wire.peering import SubscribeInfoAdv, SubscribeNodeSetAdv
from support.relays import App, Net, Puppet, subscribe_info, track_hash

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from support.relays import WireEnd

ENDINGS = ("fin", "reset", "stop")


def end_control(net: Net, puppet: Puppet, relay: Relay, how: str) -> None:
    """As if the puppet had ended the control stream of its link."""
    there: WireEnd = puppet.end.other
    match how:
        case "fin":
            puppet.end.deliver_data(puppet.control, b"", True)
        case "reset":
            puppet.end.deliver_reset(puppet.control, 0)
        case _:
            net.post(lambda: relay.link_stopped(there, puppet.control, net.now))
    net.run()


@pytest.mark.parametrize("how", ENDINGS)
def test_a_peer_that_we_dialled_and_that_ends_control_is_dialled_anew(how: str) -> None:
    net = Net()
    relay, puppet = net.relay("1:1"), net.puppet("3:1")
    wire = net.wire(relay, puppet)
    end_control(net, puppet, relay, how)
    assert wire.here.closed is not None
    assert wire.here.closed[0] == CloseCode.GRACEFUL
    assert relay.sizes()["peers"] == 0


@pytest.mark.parametrize("how", ENDINGS)
def test_control_that_ends_before_the_response_closes_with_33(how: str) -> None:
    net = Net()
    relay, puppet = net.relay("1:1"), net.puppet("3:1")
    puppet.silent = True
    wire = net.wire(relay, puppet)
    end_control(net, puppet, relay, how)
    assert wire.here.closed is not None
    assert wire.here.closed[0] == CloseCode.CONNECT_RESPONSE_NOT_RECEIVED


@pytest.mark.parametrize("how", ENDINGS)
def test_a_dialler_that_ends_control_has_a_second_to_open_another(how: str) -> None:
    net = Net()
    relay, puppet = net.relay("1:1"), net.puppet("3:1")
    wire = net.wire(puppet, relay)
    end_control(net, puppet, relay, how)
    net.run(0.9)
    assert relay.sizes()["peers"] == 1
    net.run(0.2)
    assert wire.there.closed is not None
    assert wire.there.closed[0] == CloseCode.GRACEFUL


@pytest.mark.parametrize("how", ENDINGS)
def test_a_dialler_that_moves_control_stays(how: str) -> None:
    net = Net()
    relay, puppet = net.relay("1:1"), net.puppet("3:1")
    wire = net.wire(puppet, relay)
    end_control(net, puppet, relay, how)
    puppet.control = puppet.end.open_control()
    puppet.say(SubscribeInfoAdv(subscribe_info("3:1", "a/x", 1)))
    net.run(5.0)
    assert wire.there.closed is None
    assert len(relay.subscribes) == 1


def test_what_a_moved_control_stream_may_have_lost_is_told_again() -> None:
    net = Net()
    relay, other, puppet = net.relay("1:1"), net.relay("1:2"), net.puppet("3:1")
    net.wire(relay, other)
    net.wire(puppet, relay)
    net.announce(relay, App(), "a")
    net.subscribe(relay, App(), "b/own")
    net.subscribe(other, App(), "b/other")
    puppet.say(SubscribeInfoAdv(subscribe_info("3:1", "a/x", 1)))
    net.settle()
    (known,) = puppet.heard_of(SubscribeNodeSetAdv)
    puppet.heard.clear()
    puppet.control = puppet.end.open_control()
    puppet.say(SubscribeInfoAdv(subscribe_info("3:1", "a/y", 1)))
    told = {m.subscribe_info.track_hash for m in puppet.heard_of(SubscribeInfoAdv)}
    assert told == {track_hash("b/own"), track_hash("b/other")}
    assert known in puppet.heard_of(SubscribeNodeSetAdv)


def test_a_stub_that_moves_control_is_asked_again() -> None:
    net = Net()
    edge, puppet = net.relay("1:1"), net.relay("8:1", Role.STUB)
    net.wire(puppet, edge)
    net.announce(puppet, App(), "a")
    net.subscribe(edge, App(), "a/x")
    (stub,) = edge.stubs
    wire = net.wires[0]
    before = len(wire.there.said(SubscribeInfoAdv))
    stub.repeat()
    net.run()
    assert len(wire.there.said(SubscribeInfoAdv)) == before + 1
    assert len(puppet.subscribes) == 1
