"""`/v1/control`: what a relay and its peers are sent of subscribes, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.admin.rows import control
from laps.admin.rows.relay import Wall
from laps.relay.roles import Role
from laps.types import PeerMode, hash_track
from support.relays import App, Net, track_name

if TYPE_CHECKING:
    from laps.admin.schema.control import ControlPeer
    from laps.relay.relay import Relay


def rows(relay: Relay) -> list[ControlPeer]:
    table = control.peers(relay)
    found = (table.row(key) for key in table.keys)
    return [row for row in found if row is not None]


def test_control_rows_say_who_is_sent_what() -> None:
    net = Net()
    server, edge = net.relay("9:1", Role.CONTROL), net.relay("1:1")
    net.wire(edge, server, mode=PeerMode.CONTROL, extended=True)
    net.announce(edge, App(), "a")
    net.subscribe(edge, App(), "a/x")
    net.settle()
    own, peer = rows(edge)
    assert (own.node, own.hears, own.why, own.servers) == ("1:1", "offered", "", ["9:1"])
    assert (own.announces, own.holds) == (1, 1)
    assert (peer.node, peer.serves, peer.hears) == ("9:1", True, "share")
    own, peer = rows(server)
    assert (own.node, own.serves, own.hears) == ("9:1", True, "share")
    assert (peer.node, peer.hears, peer.announces, peer.holds) == ("1:1", "offered", 1, 1)
    assert control.control(edge, Wall()).replicas == 1
    assert control.keepers(edge, hash_track(track_name("a/x")).full_name_hash) == ["9:1"]


def test_control_rows_say_why_a_relay_is_sent_all() -> None:
    net = Net()
    edge, plain = net.relay("1:1"), net.relay("1:2")
    assert rows(edge)[0].why == "there is no control server"
    net.wire(edge, plain)
    net.settle()
    own, peer = rows(edge)
    assert (own.hears, own.why) == ("all", "1:2 speaks the document's protocol alone")
    assert (peer.hears, peer.serves) == ("all", False)
    assert control.control(edge, Wall()).replicas == 0
    assert control.keepers(edge, hash_track(track_name("a/x")).full_name_hash) == []
