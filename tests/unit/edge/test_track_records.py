"""What a relay says of its tracks: what they carried and where it went, within bounds."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from laps.edge import track_records
from laps.relay.roles import Role
from laps.types import TrackName, announce_info, hash_track
from laps.wire.moqt.data import SubgroupHeader, encode_subgroup_header
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.object_fields import encode_object
from laps.wire.subscribe import encode_subscribe
from support.moqt_streams import Obj
from support.relays import App as Plain
from support.relays import track_hash, track_name
from support.telemetry import TelemetryNet, records, rows_of

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from support.moqt import App
    from support.telemetry import Reporting

Row = dict[str, Any]


@pytest.fixture
def net() -> TelemetryNet:
    return TelemetryNet()


def rows_about(reader: App, name: str) -> list[Row]:
    """The records of one track that somebody has read, in order."""
    wanted = track_name(name)
    namespace = "/".join(part.decode() for part in wanted.namespace)
    return [
        row
        for row in records(reader.objects)
        if (row["namespace"], row["track"]) == (namespace, wanted.name.decode())
    ]


def read(net: TelemetryNet, relay: Relay) -> tuple[Reporting, App]:
    said = net.report(relay)
    reader = net.app(relay)
    reader.subscribe(said.name("tracks"))
    return said, reader


class Batches:
    """The records of each round, as they are published."""

    def __init__(self, net: TelemetryNet, relay: Relay) -> None:
        self.said = net.report(relay)
        self._net = net
        self._output = self.said.telemetry._outputs["tracks"]

    def next(self) -> list[Row]:
        """Those of the next round."""
        before = self._output.track.largest()
        self._net.run(1)
        largest = self._output.track.largest()
        assert largest is not None
        if largest == before:
            return []
        group = self._output.track.cached.groups[largest.group]
        return rows_of(group.objects(self._net.now)[largest.object].payload)


# -- what is told ----------------------------------------------------------------------------------


def test_the_bytes_of_a_stream_are_counted_while_it_is_open_and_when_it_ends(
    net: TelemetryNet,
) -> None:
    relay = net.relay("1:1")
    _, reader = read(net, relay)
    pub, *subs = (net.app(relay) for _ in range(4))
    for sub in subs:
        sub.subscribe("demo/rooms/t")
    alias = pub.publish("demo/rooms/t")
    net.run(1)
    stream = pub.open(alias, 0, Obj(0, b"x" * 100))
    net.run(1)
    stream.write(Obj(1, b"y" * 200))
    stream.write(Obj(2, b"z" * 300), fin=True)
    pub.stream(alias, 1, Obj(0, b"whole" * 10))
    net.run(1)
    first, second, third = rows_about(reader, "demo/rooms/t")
    assert first["received_bytes"] == first["sent_bytes"] == 0
    header = encode_subgroup_header(SubgroupHeader(track_alias("demo/rooms/t"), 0), DRAFT16)
    head = len(header) + 1  # and its priority
    assert second["received_bytes"] == head + len(encode_object(0, b"", b"x" * 100))
    later = encode_object(0, b"", b"y" * 200) + encode_object(0, b"", b"z" * 300)
    whole = head + len(encode_object(0, b"", b"whole" * 10))
    assert third["received_bytes"] == len(later) + whole
    for row in (second, third):
        assert row["sent_bytes"] == 3 * row["received_bytes"]
        assert (row["origin"], row["subscribers"], row["egress"]) == (True, 3, [])
        assert row["interval_us"] == 1_000_000
        assert row["node"] == "1:1"
        unsigned = track_hash("demo/rooms/t").full_name_hash
        assert row["track_hash"] % 2**64 == unsigned
        assert -(2**63) <= row["track_hash"] < 2**63


def track_alias(name: str) -> int:
    return track_hash(name).full_name_hash & ((1 << 62) - 1)


def test_a_stream_that_breaks_off_counts_as_far_as_it_came(net: TelemetryNet) -> None:
    relay = net.relay("1:1")
    _, reader = read(net, relay)
    pub, sub = net.app(relay), net.app(relay)
    sub.subscribe("demo/t")
    alias = pub.publish("demo/t")
    net.run(1)
    pub.open(alias, 0, Obj(0, b"x" * 1000)).reset(0)
    net.run(1)
    assert 1000 < sum(row["received_bytes"] for row in rows_about(reader, "demo/t")) < 1050


def test_datagrams_are_counted_with_their_copies(net: TelemetryNet) -> None:
    relay, there = net.relay("1:1"), net.relay("1:2")
    net.edge(there)
    _, reader = read(net, relay)
    _, far_reader = read(net, there)
    net.wire(relay, there, extended=True)
    pub, sub, far = net.app(relay), net.app(relay), net.app(there)
    alias = pub.publish("demo/t")
    net.run(3)
    for app in (sub, far):
        app.subscribe("demo/t")
    net.run(1)
    for number in range(5):
        pub.datagram(alias, 0, number, payload=b"d" * 100)
    net.run(1)
    here, beyond = rows_about(reader, "demo/t"), rows_about(far_reader, "demo/t")
    received = sum(row["received_bytes"] for row in here)
    assert 500 < received < 600
    assert sum(row["sent_bytes"] for row in here) == 2 * received
    passed = sum(row["received_bytes"] for row in beyond)
    assert sum(row["sent_bytes"] for row in beyond) == passed > 500


def test_where_copies_go_is_told_at_the_origin_on_the_way_and_at_the_end(net: TelemetryNet) -> None:
    origin, end = net.relay("1:1"), net.relay("1:3")
    via = net.relay("1:2", Role.VIA)
    stub = net.relay("1:4", Role.STUB)
    readers = {relay: read(net, relay)[1] for relay in (origin, end, stub)}
    said = net.report(via)
    net.wire(origin, via, extended=True)
    net.wire(end, via, extended=True)
    net.wire(stub, end, extended=True)
    net.run(8)
    pub, subs = net.app(origin), [net.app(end), net.app(end), net.app(stub)]
    alias = pub.publish("demo/t")
    net.run(1)
    for sub in subs:
        sub.subscribe("demo/t")
    via_reader = net.app(origin)
    via_reader.subscribe(said.name("tracks"))
    net.run(2)
    for group in range(3):
        pub.stream(alias, group, Obj(0, b"x" * 1000))
    net.run(2)
    assert [len(sub.objects) for sub in subs] == [3, 3, 3]
    told = {}
    for relay, reader in readers.items():
        told[relay] = [row for row in rows_about(reader, "demo/t") if row["received_bytes"]]
    (row,) = told[origin]
    assert (row["origin"], row["subscribers"], row["egress"]) == (True, 0, ["1:2"])
    assert row["sent_bytes"] == row["received_bytes"] > 3000
    (row,) = told[end]
    assert (row["origin"], row["subscribers"], row["egress"]) == (False, 3, [])  # the Stub is one
    assert row["sent_bytes"] == 3 * row["received_bytes"]
    (row,) = told[stub]
    assert (row["origin"], row["subscribers"], row["egress"]) == (False, 1, [])
    # A Via knows the track by its hash alone.
    key = track_hash("demo/t").full_name_hash
    (row,) = [
        row
        for row in records(via_reader.objects)
        if row["track_hash"] % 2**64 == key and row["received_bytes"]
    ]
    assert (row["namespace"], row["track"], row["origin"], row["subscribers"]) == ("", "", False, 0)
    assert row["egress"] == ["1:3"]
    assert row["sent_bytes"] == row["received_bytes"] > 3000


def test_a_track_in_transit_that_becomes_known_goes_on_counting(net: TelemetryNet) -> None:
    first, middle, last = net.chain(3)
    said = Batches(net, middle)
    pub, far = net.app(first), net.app(last)
    alias = pub.publish("demo/t")
    far.subscribe("demo/t")
    net.run(2)
    pub.stream(alias, 0, Obj(0, b"x" * 1000))
    (row,) = said.next()
    assert (row["namespace"], row["track"], row["egress"]) == ("", "", ["1:3"])
    assert set(middle.tracks.transit) == {track_hash("demo/t").full_name_hash}
    near = net.app(middle)
    near.subscribe("demo/t")
    net.run(3)  # who has just joined is sent streams twice, to be sure
    pub.stream(alias, 1, Obj(0, b"x" * 1000))
    row = said.next()[-1]
    assert (row["namespace"], row["track"]) == ("demo", "t")
    assert (row["subscribers"], row["egress"]) == (1, ["1:3"])
    assert row["sent_bytes"] == 2 * row["received_bytes"]
    assert 1000 < row["received_bytes"] < 1100
    assert len(middle.tracks.transit) == 0


def test_a_track_in_transit_is_forgotten_when_nothing_leads_it_through_any_more(
    net: TelemetryNet,
) -> None:
    first, middle, last = net.chain(3)
    said = Batches(net, middle)
    pub, far = net.app(first), net.app(last)
    alias = pub.publish("demo/t")
    far.subscribe("demo/t")
    net.run(2)
    pub.stream(alias, 0, Obj(0, b"x"))
    assert said.next()
    assert len(middle.tracks.transit) == 1
    far.leave()
    net.run(60)
    assert len(middle.tracks.transit) == 0
    assert middle.tracks.shared.moved == {}


def test_names_are_told_as_text_whatever_their_bytes(net: TelemetryNet) -> None:
    relay = net.relay("1:1")
    said = Batches(net, relay)
    app = Plain()
    for name in (TrackName((b"r\xc3\xa4ume", b"1"), b"\xff\x00"), TrackName((b"a/b",), b"")):
        relay.subscribe(app, name, encode_subscribe(name), net.now)
    assert {(row["namespace"], row["track"]) for row in said.next()} == {
        ("räume/1", r"\xff\x00"),
        ("a/b", ""),
    }


def test_telemetry_says_nothing_of_telemetry(net: TelemetryNet) -> None:
    relay = net.relay("1:1")
    said, reader = read(net, relay)
    for kind in ("node", "links", "events"):
        reader.subscribe(said.name(kind))
    net.run(70)
    rows = [row for row in records(reader.objects) if "track" in row]
    assert rows == []


# -- which tracks, and when ------------------------------------------------------------------------


def silent(net: TelemetryNet, relay: Relay, count: int) -> list[TrackName]:
    """Tracks that somebody wants, and nobody publishes."""
    app = Plain()
    names = [TrackName((b"silent",), b"%d" % number) for number in range(count)]
    for name in names:
        relay.subscribe(app, name, encode_subscribe(name), net.now)
    return names


class Flowing:
    """Tracks that are published, on streams that stay open."""

    def __init__(self, net: TelemetryNet, relay: Relay, count: int) -> None:
        self._net, self._relay, self._app = net, relay, Plain()
        namespace = (b"flowing",)
        relay.announce(self._app, announce_info(relay.id, namespace), net.now, (namespace, None))
        names = [TrackName(namespace, b"%d" % number) for number in range(count)]
        self._hashes = [hash_track(name) for name in names]
        subscriber = Plain()
        for name, hashes in zip(names, self._hashes, strict=True):
            relay.subscribe(subscriber, name, encode_subscribe(name), net.now)
            alias = hashes.full_name_hash & ((1 << 62) - 1)
            header = SubgroupHeader(alias, 0, priority=1)
            self._write(hashes, encode_subgroup_header(header, DRAFT16))

    def flow(self) -> None:
        """An object on each."""
        for hashes in self._hashes:
            self._write(hashes, encode_object(0, b"", b"x" * 50))

    def _write(self, hashes: Any, data: bytes) -> None:
        key = hashes.full_name_hash
        self._relay.publish(self._app, hashes, key, data, False, 1, 0, self._net.now)


def test_a_silent_track_is_told_of_once_and_then_within_each_minute(net: TelemetryNet) -> None:
    relay = net.relay("1:1")
    said = Batches(net, relay)
    silent(net, relay, 3)
    batches = [said.next() for _ in range(200)]
    assert len(batches[0]) == 3
    times = [number for number, rows in enumerate(batches) if rows]
    assert all(later - sooner <= 60 for sooner, later in pairwise(times))
    assert 4 <= len(times) <= 8
    assert all(not row["received_bytes"] for rows in batches for row in rows)
    assert [row["interval_us"] for row in batches[times[1]]] == [30_000_000] * 3


def test_who_comes_and_goes_is_told_at_once_though_nothing_flows(net: TelemetryNet) -> None:
    relay = net.relay("1:1")
    said = Batches(net, relay)
    silent(net, relay, 500)
    assert len(said.next()) == 500
    app = net.app(relay)
    request = app.subscribe("silent/400")
    (row,) = said.next()
    assert (row["track"], row["subscribers"]) == ("400", 2)
    assert request is not None
    app.leave()
    (row,) = said.next()
    assert (row["track"], row["subscribers"]) == ("400", 1)


def test_many_tracks_are_told_of_within_a_minute_and_few_at_a_time(net: TelemetryNet) -> None:
    relay = net.relay("1:1")
    said = Batches(net, relay)
    silent(net, relay, 6000)
    told: set[str] = set()
    sizes = []
    for _ in range(60):
        rows = said.next()
        sizes.append(len(rows))
        told |= {row["track"] for row in rows}
    assert len(told) == 6000
    assert max(sizes) <= track_records.MAX_ROWS + track_records.TRACKS_A_TURN
    again: set[str] = set()
    spread = []
    for _ in range(60):
        rows = said.next()
        spread.append(len(rows))
        again |= {row["track"] for row in rows}
    assert len(again) == 6000
    assert max(spread) <= track_records.MAX_ROWS + track_records.TRACKS_A_TURN


def test_with_too_many_that_flow_all_are_told_of_in_turn_and_nothing_is_lost(
    net: TelemetryNet,
) -> None:
    relay = net.relay("1:1")
    said = Batches(net, relay)
    flowing = Flowing(net, relay, 4000)
    names = silent(net, relay, 200)
    received: dict[str, int] = {}
    quiet: set[str] = set()
    for _ in range(30):
        flowing.flow()
        rows = said.next()
        assert len(rows) <= track_records.MAX_ROWS + track_records.TRACKS_A_TURN
        for row in rows:
            if row["namespace"] == "flowing":
                received[row["track"]] = received.get(row["track"], 0) + row["received_bytes"]
            else:
                quiet.add(row["track"])
    for _ in range(5):
        for row in said.next():
            if row["namespace"] == "flowing":
                received[row["track"]] += row["received_bytes"]
    assert len(received) == 4000
    each = 30 * len(encode_object(0, b"", b"x" * 50))
    assert all(each < size < each + 20 for size in received.values())
    assert len(quiet) == len(names)


def test_long_names_bound_a_batch_too(net: TelemetryNet) -> None:
    relay = net.relay("1:1")
    said = Batches(net, relay)
    app = Plain()
    for number in range(300):
        name = TrackName((b"n" * 4000,), b"%d" % number)
        relay.subscribe(app, name, encode_subscribe(name), net.now)
    batches = [said.next() for _ in range(10)]
    sizes = [sum(len(row["namespace"]) for row in rows) for rows in batches]
    most = track_records.MAX_NAME_BYTES + 4000 * track_records.TRACKS_A_TURN
    assert max(sizes) <= most
    assert {row["track"] for rows in batches for row in rows} == {str(n) for n in range(300)}


def test_a_round_is_made_in_small_steps(net: TelemetryNet) -> None:
    relay = net.relay("1:1")
    said = Batches(net, relay)
    flowing = Flowing(net, relay, 1500)
    flowing.flow()
    said.next()
    assert said.said.steps >= 1500 / track_records.TRACKS_A_TURN


def test_without_telemetry_nothing_is_noted_of_what_passes(net: TelemetryNet) -> None:
    first, middle, last = net.chain(3)
    pub, far = net.app(first), net.app(last)
    alias = pub.publish("demo/t")
    far.subscribe("demo/t")
    net.run(2)
    pub.stream(alias, 0, Obj(0, b"x" * 1000))
    net.run(1)
    assert len(far.objects) == 1
    for relay in (first, middle, last):
        assert relay.tracks.shared.moved is None
        assert len(relay.tracks.transit) == 0
        assert all(not track.meter.flows for track in relay.tracks)
