"""Two relays with the same node id: the oldest works, and the operator learns of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.errors import CloseCode
from laps.wire.peering import ConnectResponse, ResponseCode, SubscribeInfoAdv, SubscribeInfoWd
from support.relays import App, Net

if TYPE_CHECKING:
    from laps.relay.relay import Relay

REFUSED = ConnectResponse(ResponseCode.CONNECTION_ERROR, None)


def conflicts(relay: Relay) -> list[str]:
    return [
        item.event.subject
        for item in relay.journal.recent()
        if item.event.name == "node_id_conflict"
    ]


def test_a_copy_of_a_relay_does_not_take_its_place() -> None:
    net = Net()
    relay, first = net.relay("1:1"), net.relay("1:2")
    old = net.wire(first, relay)
    net.relays["the first"] = first
    copy = net.relay("1:2")
    for _ in range(3):
        new = net.wire(copy, relay)
        net.run(3.5)
        assert new.there.said(ConnectResponse) == [REFUSED]
        assert new.here.closed is not None
        assert "node id 1:2" in new.here.closed[1] or "refused" in new.here.closed[1]
    assert old.there.closed is None
    assert relay.peers[first.id].links.keys() == {old.there.id}
    assert conflicts(relay) == ["1:2"] * 3
    assert relay.counters.double_node_ids == 3


def test_the_newcomer_is_told_the_way_out() -> None:
    net = Net()
    relay, first = net.relay("1:1"), net.relay("1:2")
    net.wire(first, relay)
    net.relays["the first"] = first
    copy, puppet = net.relay("1:2"), net.puppet("1:1")
    puppet.silent = True
    wire = net.wire(copy, puppet)
    puppet.say(REFUSED)
    assert wire.here.closed is not None
    code, reason = wire.here.closed
    assert code == CloseCode.GRACEFUL
    assert "node id 1:2" in reason
    assert "node.id" in reason


def test_a_relay_that_was_restarted_is_let_in_when_its_old_link_is_known_dead() -> None:
    net = Net()
    relay, first = net.relay("1:1"), net.relay("1:2", contact="before")
    net.wire(first, relay)
    net.subscribe(first, App(), "a/x")
    net.crash(first, noticed=False)
    again = net.relay("1:2", contact="after")
    wire = net.wire(again, relay)
    assert wire.there.said(ConnectResponse)[0].response_code is ResponseCode.OK
    assert relay.peers[again.id].info.contact == "after"
    net.run(10.0)
    assert conflicts(relay) == []
    assert len(relay.subscribes) == 0


def test_a_relay_that_is_dialled_at_two_addresses_has_one_control_link() -> None:
    net = Net()
    relay, other = net.relay("1:1"), net.relay("1:2")
    first, second = net.wire(relay, other), net.wire(relay, other)
    net.run(5.0)
    assert first.here.closed is None
    assert second.here.closed is not None
    assert len(relay.peers[other.id].links) == 1


def test_a_double_elsewhere_with_other_information_is_refused() -> None:
    net = Net()
    left, right = net.relay("1:1"), net.relay("1:2")
    net.wire(left, right)
    first = net.relay("5:5", contact="the first")
    net.wire(first, left)
    net.run(10.0)
    net.relays["the first"] = first
    second = net.relay("5:5", contact="the second")
    wire = net.wire(second, right)
    net.run(4.0)
    assert wire.there.said(ConnectResponse) == [REFUSED]
    assert conflicts(right) == ["5:5"]


def test_doubles_at_different_relays_find_each_other_and_do_not_go_on_for_ever() -> None:
    net = Net()
    left, right = net.relay("1:1"), net.relay("1:2")
    middle = net.wire(left, right, extended=True)
    first = net.relay("5:5")
    net.relays["the first"] = first
    second = net.relay("5:5")
    net.wire(first, left, extended=True)
    net.wire(second, right, extended=True)
    net.run(10.0)
    net.subscribe(first, App(), "a/x")
    net.run(30.0)
    said = [
        message
        for end in middle
        for message in end.sent
        if isinstance(message, SubscribeInfoAdv | SubscribeInfoWd)
    ]
    assert 1 <= len(said) < 60
    assert conflicts(first) == ["5:5"] or conflicts(second) == ["5:5"]
