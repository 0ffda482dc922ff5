"""Streams and datagrams on their way: byte by byte, mirrored, held within bounds, refused alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.relay.roles import Role
from laps.types import SnsId, track_alias
from laps.wire.moqt.data import SubgroupHeader, encode_subgroup_header
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.objects import (
    encode_datagram_header,
    encode_existing_stream_header,
    encode_new_stream_header,
)
from laps.wire.peering import SubscribeNodeSetAdv, SubscribeNodeSetWd
from support.relays import App, Net, Puppet, Wire, track_hash

if TYPE_CHECKING:
    from laps.relay.relay import Relay

TRACK = track_hash("a/x").full_name_hash


def start(data: bytes = b"", sns_id: int = 1, size: int | None = None) -> bytes:
    """The beginning of a peer's data stream."""
    length = len(data) if size is None else size
    return encode_new_stream_header(SnsId(sns_id), TRACK, 7, 0, length) + data


def more(data: bytes) -> bytes:
    return encode_existing_stream_header(len(data)) + data


class Chain:
    """o-relay, via, s-relay, with a publisher and a subscriber of a/x."""

    def __init__(self) -> None:
        self.net, self.pub, self.sub = Net(), App(), App()
        self.origin = self.net.relay("1:1")
        self.via = self.net.relay("2:1", Role.VIA)
        self.edge = self.net.relay("1:2")
        self.first = self.net.wire(self.origin, self.via)
        self.second = self.net.wire(self.via, self.edge)
        self.net.settle()
        self.net.announce(self.origin, self.pub, "a")
        self.net.subscribe(self.edge, self.sub, "a/x")

    def publish(self, key: object, data: bytes, fin: bool = True) -> None:
        self.net.publish(self.origin, self.pub, "a/x", key, data, fin)


def fed() -> tuple[Net, Relay, Puppet, App, Wire]:
    """A relay with a subscriber of a/x, fed by a puppet."""
    net, sub = Net(), App()
    relay, puppet = net.relay("1:1"), net.puppet("3:1")
    wire = net.wire(puppet, relay)
    net.subscribe(relay, sub, "a/x")
    return net, relay, puppet, sub, wire


# -- as they come ----------------------------------------------------------------------------------


def test_bytes_go_on_before_the_object_is_complete() -> None:
    chain = Chain()
    for number, data in enumerate((b"one ", b"two ", b"three")):
        chain.publish(0, data, fin=False)
        assert chain.sub.got == [b"one two three"[: (4, 8, 13)[number]]]
    assert not chain.sub.streams[0].over
    chain.publish(0, b"", fin=True)
    assert chain.sub.streams[0].finished


def test_a_peer_s_bytes_go_on_inside_a_data_object() -> None:
    net, relay, puppet, sub, _ = fed()
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    stream = puppet.send(start(b"ab", size=5))
    assert sub.got == [b"ab"]
    for data in (b"c", b"de"):
        stream.write(data)
        net.run()
    assert sub.got == [b"abcde"]
    stream.finish(more(b"fgh"))
    net.run()
    assert sub.got == [b"abcdefgh"]
    assert sub.streams[0].finished


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_header_may_be_cut_anywhere(cut: int) -> None:
    net, relay, puppet, sub, _ = fed()
    far = net.puppet("3:2")
    net.wire(far, relay)
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id, far.id)))
    whole = start(b"first") + more(b"second")
    stream = puppet.send(whole[:cut])
    stream.finish(whole[cut:])
    net.run()
    assert sub.got == [b"firstsecond"]
    assert sub.streams[0].finished
    # The same bytes, under the id of the other link.
    assert [bytes(s.data) for s in far.streams.values()] == [whole]


def test_byte_by_byte() -> None:
    net, relay, puppet, sub, _ = fed()
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    whole = start(b"first") + more(b"") + more(b"second")
    stream = puppet.send(b"")
    for byte in whole:
        stream.write(bytes([byte]))
    stream.finish()
    net.run()
    assert sub.got == [b"firstsecond"]


def test_the_slices_of_a_publisher_are_the_objects_between_relays() -> None:
    chain = Chain()
    chain.publish(0, b"one", fin=False)
    chain.publish(0, b"three", fin=False)
    chain.publish(0, b"", fin=True)
    for end in (chain.first.here, chain.second.here):
        (stream,) = end.streams.values()
        header = encode_new_stream_header(SnsId(1), TRACK, 5, 0, 3)
        assert bytes(stream.data) == header + b"one" + more(b"three")


def test_an_empty_stream_is_a_stream() -> None:
    chain = Chain()
    chain.publish(0, b"")
    assert chain.sub.got == [b""]
    assert chain.sub.streams[0].finished


def test_priority_and_ttl_are_those_of_the_publisher_on_every_hop() -> None:
    chain = Chain()
    chain.net.publish(chain.origin, chain.pub, "a/x", 0, b"x", priority=3, ttl_us=250_000)
    for end in (chain.first.here, chain.second.here):
        assert [(s.priority, s.ttl_us) for s in end.streams.values()] == [(3, 250_000)]
    assert [(s.priority, s.ttl_us) for s in chain.sub.streams] == [(3, 250_000)]


def test_each_stream_of_a_publisher_is_a_stream_everywhere() -> None:
    chain = Chain()
    for key in range(5):
        chain.publish(key, f"group {key} ".encode(), fin=False)
    for key in reversed(range(5)):
        chain.publish(key, b"ends")
    assert chain.sub.got == [f"group {key} ends".encode() for key in range(5)]
    assert len(chain.second.here.streams) == 5


def test_one_copy_over_a_link_whatever_is_behind_it() -> None:
    chain = Chain()
    more_edges = [chain.net.relay(f"1:{low}") for low in (3, 4, 5)]
    for edge in more_edges:
        chain.net.wire(chain.via, edge)
    chain.net.settle()
    subs = [App() for _ in range(6)]
    for number, sub in enumerate(subs):
        chain.net.subscribe(more_edges[number % 3], sub, "a/x")
    chain.publish(0, b"data")
    assert len(chain.first.here.streams) == 1
    assert [sub.got for sub in (chain.sub, *subs)] == [[b"data"]] * 7


def test_a_stream_nobody_wants_costs_nothing() -> None:
    chain = Chain()
    chain.net.publish(chain.origin, chain.pub, "a/y", 0, b"nobody wants it", fin=False)
    assert not chain.first.here.streams
    chain.net.publish(chain.origin, chain.pub, "a/y", 0, b"")
    assert chain.origin.sizes()["streams"] == 0
    assert chain.origin.data.counters.unwanted == 1


def test_a_subscriber_that_stops_a_stream_leaves_the_others_alone() -> None:
    chain = Chain()
    other = App()
    chain.net.subscribe(chain.edge, other, "a/x")
    chain.publish(0, b"one ", fin=False)
    chain.sub.streams[0].over = True
    chain.publish(0, b"two", fin=True)
    assert (chain.sub.got, other.got) == ([b"one "], [b"one two"])
    chain.publish(1, b"next")
    assert chain.sub.got == [b"one ", b"next"]


def test_a_subscriber_that_leaves_gets_no_new_streams() -> None:
    chain = Chain()
    other = App()
    chain.net.subscribe(chain.edge, other, "a/x")
    chain.net.unsubscribe(chain.edge, other, "a/x")
    chain.publish(0, b"data")
    assert (chain.sub.got, other.got) == ([b"data"], [])


# -- how they end ----------------------------------------------------------------------------------


def test_a_reset_is_mirrored_with_its_code() -> None:
    chain = Chain()
    chain.publish(0, b"begins", fin=False)
    chain.publish(1, b"lives", fin=False)
    chain.origin.publish_reset(chain.pub, 0, 77, chain.net.now)
    chain.net.run()
    assert [stream.reset_code for stream in chain.sub.streams] == [77, None]
    assert not chain.sub.streams[1].over
    assert chain.sub.got[0] == b"begins"
    for relay in (chain.origin, chain.via, chain.edge):
        assert relay.sizes()["streams"] == 1


def test_a_publisher_that_goes_resets_what_it_was_sending() -> None:
    chain = Chain()
    chain.publish(0, b"begins", fin=False)
    chain.net.leave(chain.origin, chain.pub)
    assert chain.sub.streams[0].reset_code is not None
    assert all(relay.sizes()["streams"] == 0 for relay in chain.net.relays.values())


def test_a_link_that_goes_resets_what_came_by_it() -> None:
    chain = Chain()
    chain.publish(0, b"begins", fin=False)
    chain.first.cut()
    assert chain.sub.streams[0].reset_code is not None
    assert chain.edge.sizes()["streams"] == chain.via.sizes()["streams"] == 0


def test_data_after_the_end_is_not_data() -> None:
    chain = Chain()
    chain.publish(0, b"all of it")
    chain.origin.publish_reset(chain.pub, 0, 5, chain.net.now)
    chain.net.run()
    assert chain.sub.streams[0].reset_code is None


# -- several publishers ----------------------------------------------------------------------------


def test_publishers_of_one_track_are_kept_apart() -> None:
    chain = Chain()
    second = App()
    chain.net.announce(chain.origin, second, "a")
    assert len(chain.first.here.sets) == 2
    for data in (b"one ", b"two ", b"three"):
        for pub in (chain.pub, second):
            # The same key: each publisher counts its own streams.
            chain.net.publish(chain.origin, pub, "a/x", 0, data, fin=data == b"three")
    assert chain.sub.got == [b"one two three"] * 2
    ids = {bytes(stream.data)[2:10] for stream in chain.first.here.streams.values()}
    assert len(ids) == 2


def test_publishers_of_one_track_on_several_relays_are_kept_apart() -> None:
    chain = Chain()
    second, other = App(), chain.net.relay("1:7")
    chain.net.wire(other, chain.via)
    chain.net.settle()
    chain.net.announce(other, second, "a")
    chain.net.subscribe(chain.edge, chain.sub, "a/y")
    for data in (b"one ", b"two"):
        for relay, pub in ((chain.origin, chain.pub), (other, second)):
            chain.net.publish(relay, pub, "a/y", 0, data, fin=data == b"two")
    assert chain.sub.got == [b"one two"] * 2


def test_a_publisher_that_leaves_takes_only_its_own() -> None:
    chain = Chain()
    second = App()
    chain.net.announce(chain.origin, second, "a")
    chain.net.publish(chain.origin, second, "a/x", 0, b"lives ", fin=False)
    chain.publish(0, b"dies", fin=False)
    chain.net.leave(chain.origin, chain.pub)
    chain.net.publish(chain.origin, second, "a/x", 0, b"on")
    assert sorted(chain.sub.got) == [b"dies", b"lives on"]
    assert len(chain.first.here.sets) == 1


# -- datagrams -------------------------------------------------------------------------------------


def test_datagrams_go_the_way_of_streams() -> None:
    chain = Chain()
    local = App()
    chain.net.subscribe(chain.origin, local, "a/x")
    for number in range(3):
        data = f"datagram {number}".encode()
        chain.net.publish_datagram(chain.origin, chain.pub, "a/x", data)
    assert chain.sub.datagrams == local.datagrams == [b"datagram 0", b"datagram 1", b"datagram 2"]
    assert len(chain.first.here.datagrams) == 3
    chain.net.publish_datagram(chain.origin, chain.pub, "a/y", b"nobody wants it")
    assert len(chain.first.here.datagrams) == 3


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x13",
        encode_datagram_header(SnsId(1), TRACK, 5) + b"four",
        encode_datagram_header(SnsId(1), TRACK, 3) + b"four",
        encode_existing_stream_header(1) + b"x",
    ],
)
def test_a_bad_datagram_closes_its_link_alone(data: bytes) -> None:
    net, relay, puppet, _, _ = fed()
    other = net.wire(relay, net.relay("1:2"))
    puppet.end.send_datagram(data, 0)
    net.run()
    assert puppet.closed is not None
    assert puppet.closed[0] == 35
    assert other.here.closed is None


# -- ahead of its set ------------------------------------------------------------------------------


def test_a_stream_ahead_of_its_set_waits_for_it() -> None:
    net, relay, puppet, sub, _ = fed()
    stream = puppet.send(start(b"ear"))
    stream.finish(more(b"ly"))
    net.run(0.5)
    assert sub.got == []
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    assert sub.got == [b"early"]
    assert sub.streams[0].finished
    counters = relay.data.counters
    assert (counters.held, counters.held_dropped) == (1, 0)
    assert not relay.data.holding
    assert relay.sizes()["streams"] == 0


def test_a_stream_that_outlives_its_set_leaves_nothing() -> None:
    net, relay, puppet, _, _ = fed()
    header = encode_subgroup_header(SubgroupHeader(track_alias(TRACK), 0), BETWEEN_RELAYS)
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    stream = puppet.send(start(header[:1]))
    puppet.say(SubscribeNodeSetWd(SnsId(1)))
    net.run(2.0)
    stream.finish(more(header[1:]))
    net.run()
    assert relay.sizes()["fed"] == 0


def test_what_goes_on_after_the_wait_goes_on_as_ever() -> None:
    net, relay, puppet, sub, _ = fed()
    stream = puppet.send(start(b"ear"))
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    assert sub.got == [b"ear"]
    stream.finish(more(b"ly"))
    net.run()
    assert sub.got == [b"early"]


def test_a_datagram_ahead_of_its_set_waits_for_it() -> None:
    net, relay, puppet, sub, _ = fed()
    for data in (b"one", b"two"):
        puppet.end.send_datagram(encode_datagram_header(SnsId(1), TRACK, 3) + data, 0)
    net.run(0.9)
    assert sub.datagrams == []
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    assert sub.datagrams == [b"one", b"two"]


def test_only_what_the_set_is_for_goes_on() -> None:
    _, relay, puppet, sub, _ = fed()
    puppet.send(start(b"first", sns_id=1), fin=True)
    puppet.send(start(b"second", sns_id=2), fin=True)
    puppet.say(SubscribeNodeSetAdv(SnsId(2), (relay.id,)))
    assert sub.got == [b"second"]
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    assert sub.got == [b"second", b"first"]


def test_nothing_waits_for_more_than_a_second() -> None:
    net, relay, puppet, sub, wire = fed()
    stream = puppet.send(start(b"never"))
    puppet.send(start(b"ended"), fin=True)
    puppet.end.send_datagram(encode_datagram_header(SnsId(1), TRACK, 0), 0)
    net.run(0.99)
    assert relay.data.counters.held_dropped == 0
    net.run(0.02)
    assert relay.data.counters.held_dropped == 3
    assert not relay.data.holding
    assert [stream_id for stream_id, _ in wire.there.ended] == [stream.stream_id]
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    assert sub.got == []
    assert relay.sizes()["streams"] == 0
    assert puppet.closed is None


def test_no_more_waits_than_the_bound_and_the_oldest_goes_first() -> None:
    net, sub = Net(), App()
    relay, puppet = net.relay("1:1", hold_bytes=1000), net.puppet("3:1")
    net.wire(puppet, relay)
    net.subscribe(relay, sub, "a/x")
    for number in range(5):
        puppet.send(start(bytes([number]) * 300), fin=True)
    assert relay.data.counters.held_dropped == 2
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    assert sub.got == [bytes([number]) * 300 for number in (2, 3, 4)]


def test_one_stream_alone_is_held_to_the_bound() -> None:
    net, sub = Net(), App()
    relay, puppet = net.relay("1:1", hold_bytes=1000), net.puppet("3:1")
    wire = net.wire(puppet, relay)
    net.subscribe(relay, sub, "a/x")
    stream = puppet.send(start(b"x" * 600, size=5000))
    stream.write(b"x" * 600)
    net.run()
    assert relay.data.counters.held_dropped == 1
    assert stream.over
    assert wire.there.ended == [(stream.stream_id, 0)]
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    assert sub.got == []


def test_what_went_on_counts_no_more() -> None:
    net, sub = Net(), App()
    relay, puppet = net.relay("1:1", hold_bytes=1000), net.puppet("3:1")
    net.wire(puppet, relay)
    net.subscribe(relay, sub, "a/x")
    for sns_id in range(1, 10):
        puppet.send(start(b"x" * 600, sns_id), fin=True)
        puppet.say(SubscribeNodeSetAdv(SnsId(sns_id), (relay.id,)))
    for _ in range(3):
        puppet.end.send_datagram(encode_datagram_header(SnsId(99), TRACK, 600) + bytes(600), 0)
        net.run(1.5)
    assert len(sub.got) == 9
    assert relay.data.counters.held_dropped == 3  # each in vain, none for want of room
    puppet.end.send_datagram(encode_datagram_header(SnsId(99), TRACK, 900) + bytes(900), 0)
    net.run()
    assert relay.data.counters.held_dropped == 3


def test_each_link_has_a_bound_of_its_own() -> None:
    net, sub = Net(), App()
    relay = net.relay("1:1", hold_bytes=1000)
    net.subscribe(relay, sub, "a/x")
    puppets = [net.puppet(f"3:{low}") for low in (1, 2)]
    for puppet in puppets:
        net.wire(puppet, relay)
        puppet.send(start(b"x" * 800), fin=True)
    assert relay.data.counters.held_dropped == 0
    for puppet in puppets:
        puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    assert len(sub.got) == 2


def test_what_waits_goes_with_its_link() -> None:
    net, relay, puppet, _, _ = fed()
    puppet.send(start(b"waits"))
    puppet.end.close(1, "")
    net.run(5.0)
    assert not relay.data.holding
    assert relay.sizes()["streams"] == 0


def test_a_stream_that_is_given_up_while_it_waits_is_forgotten() -> None:
    net, relay, puppet, sub, _ = fed()
    stream = puppet.send(start(b"waits"))
    stream.reset(9)
    net.run()
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    net.run(2.0)
    assert sub.got == []
    assert relay.sizes()["streams"] == 0
    assert not relay.data.holding


# -- behind its withdraw ---------------------------------------------------------------------------


def test_a_stream_that_begins_under_a_set_outlives_it() -> None:
    net, relay, puppet, sub, _ = fed()
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    stream = puppet.send(start(b"begins "))
    puppet.say(SubscribeNodeSetWd(SnsId(1)))
    net.run(5.0)
    assert relay.sizes()["flows"] == 0
    stream.finish(more(b"and ends"))
    net.run()
    assert sub.got == [b"begins and ends"]
    assert relay.sizes()["streams"] == 0


def test_data_that_its_withdraw_overtook_is_data_all_the_same() -> None:
    # Control goes ahead of the data that waits to be sent, and QUIC keeps no order between streams.
    net, relay, puppet, sub, _ = fed()
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)), SubscribeNodeSetWd(SnsId(1)))
    net.run(0.9)
    puppet.send(start(b"late"), fin=True)
    assert sub.got == [b"late"]
    net.run(0.2)
    puppet.send(start(b"too late"), fin=True)
    net.run(2.0)
    assert sub.got == [b"late"]
    assert relay.data.counters.held_dropped == 1
    assert relay.sizes()["flows"] == relay.sizes()["streams"] == 0
    assert relay.counters.unknown_sns_withdraws == 0


def test_a_set_that_is_advertised_again_in_time_stays() -> None:
    net, relay, puppet, sub, _ = fed()
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)), SubscribeNodeSetWd(SnsId(1)))
    net.run(0.5)
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    net.run(5.0)
    puppet.send(start(b"data"), fin=True)
    assert sub.got == [b"data"]


def test_a_set_is_withdrawn_once() -> None:
    net, relay, puppet, _, _ = fed()
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    puppet.say(SubscribeNodeSetWd(SnsId(1)), SubscribeNodeSetWd(SnsId(1)))
    net.run(5.0)
    puppet.say(SubscribeNodeSetWd(SnsId(1)))
    assert relay.counters.unknown_sns_withdraws == 2
    assert puppet.closed is None


# -- garbage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "fin", "code"),
    [
        (more(b"abc"), False, 36),
        (encode_datagram_header(SnsId(1), TRACK, 0), False, 36),
        (b"\xff\xff\xff\xff", False, 36),
        (b"", True, 36),
        (start(b"abc")[:10], True, 36),
        (b"\xff\x02", False, 35),
        (start(b"abc") + start(b"abc"), False, 35),
        (start(b"abc") + b"\x09\x01", False, 35),
        (start(b"abc", size=9), True, 35),
        (start(b"abc") + more(b"def")[:2], True, 35),
    ],
)
def test_a_wrong_data_stream_ends_alone(data: bytes, fin: bool, code: int) -> None:
    net, relay, puppet, sub, wire = fed()
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    other = puppet.send(start(b"other "))
    wrong = puppet.send(data, fin=fin)
    assert wire.there.ended == [(wrong.stream_id, code)]
    wrong.write(b"more of it")
    other.finish(more(b"lives"))
    net.run()
    assert sub.got[0] == b"other lives"
    assert [stream.reset_code for stream in sub.streams[1:]] in ([], [code])
    assert relay.data.counters.refused_streams == 1
    assert relay.sizes()["streams"] == 0
    assert puppet.closed is None


def test_bidirectional_streams_are_control_and_unidirectional_ones_data() -> None:
    _, relay, puppet, _, wire = fed()
    puppet.say(SubscribeNodeSetAdv(SnsId(1), (relay.id,)))
    stream = puppet.send(b"\x01\x00\x0b\x00\x00\x00\x04\x00\x00\x00\x01")
    assert wire.there.ended == [(stream.stream_id, 36)]
    assert relay.sizes()["flows"] == 1
