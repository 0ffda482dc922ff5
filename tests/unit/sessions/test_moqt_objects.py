from dataclasses import dataclass

import pytest

from laps.sessions.moqt import MoqtSession
from laps.sessions.moqt_objects import (
    EARLY_DATAGRAMS,
    FetchBytes,
    FetchReset,
    HoldLimits,
    ObjectDatagram,
    ObjectStreams,
    Stop,
    StreamBegan,
    StreamDropped,
    StreamReset,
    StreamWaits,
)
from laps.wire.moqt.data import (
    DatagramObject,
    FetchHeader,
    SubgroupHeader,
    encode_datagram,
    encode_fetch_header,
    encode_subgroup_header,
)
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.object_fields import encode_object

ALIAS, REQUEST = 7, 2
HEADER = SubgroupHeader(ALIAS, 1, 0, 128)
HEAD = encode_subgroup_header(HEADER, DRAFT16)
BODY = encode_object(0, b"", b"payload")
LIMITS = HoldLimits(seconds=1.0, stream_bytes=64)


class NoWire:
    def open_stream(self) -> int:
        raise AssertionError

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        raise AssertionError

    def end_stream(self, stream_id: int, code: int) -> None:
        raise AssertionError


@dataclass
class Counted:
    unknown_streams: int = 0
    unknown_datagrams: int = 0
    broken_streams: int = 0


class Side:
    """One side of a session, with a track that is known or not."""

    def __init__(self, *, known: bool = True, needs_subgroup: bool = False) -> None:
        self.session = MoqtSession(NoWire(), DRAFT16, is_client=False)
        self.session.ready = True
        self.owners: dict[int, str] = {}
        self.counters = Counted()
        self.objects: ObjectStreams[str, str] = ObjectStreams(
            self.session, self.owners, self.counters, LIMITS, needs_subgroup=needs_subgroup
        )
        if known:
            self.explain()

    def explain(self) -> None:
        self.session.aliases[ALIAS] = REQUEST
        self.owners[REQUEST] = "track"


def test_moqt_objects_a_stream_of_a_known_track_begins_with_its_header() -> None:
    side = Side()
    assert side.objects.receive(3, HEAD[:2], False, 0.0) is None
    assert side.objects.holding
    found = side.objects.receive(3, HEAD[2:] + BODY, True, 0.1)
    assert found == StreamBegan(3, HEADER, "track", BODY, True)
    assert not side.objects.holding


def test_moqt_objects_the_first_object_names_the_subgroup_where_that_is_needed() -> None:
    head = encode_subgroup_header(SubgroupHeader(ALIAS, 1, None, 128), DRAFT16)
    assert isinstance(Side().objects.receive(3, head, False, 0.0), StreamBegan)
    side = Side(needs_subgroup=True)
    assert side.objects.receive(3, head, False, 0.0) is None
    found = side.objects.receive(3, encode_object(5, b"", b"x"), False, 0.0)
    assert isinstance(found, StreamBegan)
    assert found.header.subgroup == 5


def test_moqt_objects_early_streams_wait_for_their_alias_in_the_order_they_were_opened() -> None:
    side = Side(known=False)
    assert side.objects.receive(7, HEAD + BODY, True, 0.0) == StreamWaits(7)
    assert side.objects.receive(3, HEAD, False, 0.0) == StreamWaits(3)
    assert side.objects.receive(3, BODY, True, 0.0) == StreamWaits(3)
    assert list(side.objects.release(99, 0.5)) == []
    side.explain()
    found = list(side.objects.release(ALIAS, 0.5))
    assert found == [StreamBegan(number, HEADER, "track", BODY, True) for number in (3, 7)]


def test_moqt_objects_streams_wait_for_the_setup() -> None:
    side = Side()
    side.session.ready = False
    assert side.objects.receive(3, HEAD, False, 0.0) is None
    assert side.objects.datagram(b"", 0.0) is None
    assert side.counters.unknown_datagrams == 1
    side.session.ready = True
    assert [type(event) for event in side.objects.release(None, 0.5)] == [StreamBegan]


def test_moqt_objects_release_looks_again_for_each_stream() -> None:
    side = Side(known=False)
    side.objects.receive(3, HEAD, False, 0.0)
    side.objects.receive(7, HEAD, False, 0.0)
    side.explain()
    released = side.objects.release(ALIAS, 0.5)
    assert isinstance(next(released), StreamBegan)
    side.owners.clear()  # the first stream was enough
    side.objects.dropped_aliases.add(ALIAS)
    assert list(released) == [Stop(7)]


@pytest.mark.parametrize("fin", [False, True])
def test_moqt_objects_what_nobody_explains_is_given_up_in_time(fin: bool) -> None:
    side = Side(known=False)
    side.objects.receive(3, HEAD, fin, 0.0)
    assert side.objects.expire(0.9) == []
    assert side.objects.expire(1.0) == [StreamDropped(3) if fin else Stop(3)]
    assert side.counters.unknown_streams == 1
    assert not side.objects.holding
    assert fin or side.objects.receive(3, BODY, True, 1.1) is None


def test_moqt_objects_what_waits_is_bounded() -> None:
    side = Side(known=False)
    side.objects.receive(3, HEAD, False, 0.0)
    assert side.objects.receive(7, HEAD + bytes(64), False, 0.0) == Stop(7)
    assert side.objects.receive(3, bytes(64), False, 0.0) == Stop(3)
    assert side.counters.unknown_streams == 2


def test_moqt_objects_a_stream_that_ends_in_its_header_is_counted() -> None:
    side = Side()
    assert side.objects.receive(3, HEAD[:2], True, 0.0) == StreamDropped(3)
    assert side.counters.broken_streams == 1


def test_moqt_objects_a_dropped_alias_is_not_waited_for() -> None:
    side = Side(known=False)
    side.objects.dropped_aliases.add(ALIAS)
    assert side.objects.receive(3, HEAD, False, 0.0) == Stop(3)
    assert side.objects.receive(3, BODY, False, 0.0) is None
    assert side.objects.receive(7, HEAD, True, 0.0) == StreamDropped(7)
    assert side.objects.datagram(encode_datagram(DatagramObject(ALIAS, 0, 0), DRAFT16), 0) is None
    assert side.counters == Counted(unknown_datagrams=1)


def test_moqt_objects_fetch_streams_go_by_their_request() -> None:
    side = Side()
    head = encode_fetch_header(FetchHeader(4))
    assert side.objects.receive(3, head + b"a", False, 0.0) == FetchBytes(3, 4, b"a", False)
    assert side.objects.receive(3, b"b", False, 0.0) == FetchBytes(3, 4, b"b", False)
    assert side.objects.stop_fetch(6) == []
    assert side.objects.stop_fetch(4) == [Stop(3)]
    assert side.objects.receive(3, b"c", True, 0.0) is None
    side.objects.receive(7, head, False, 0.0)
    assert side.objects.reset(7) == FetchReset(4)
    assert side.objects.reset(7) is None


def test_moqt_objects_reset_returns_who_reads_the_stream() -> None:
    side = Side()
    side.objects.reading[3] = "reader"
    assert side.objects.reset(3) == StreamReset("reader")
    side.objects.receive(7, HEAD[:1], False, 0.0)
    assert side.objects.reset(7) is None
    assert not side.objects.holding


def test_moqt_objects_early_datagrams_wait_and_the_oldest_go_first() -> None:
    side = Side(known=False)
    sent = [
        encode_datagram(DatagramObject(ALIAS, 0, number, payload=b"x"), DRAFT16)
        for number in range(EARLY_DATAGRAMS + 1)
    ]
    for number, data in enumerate(sent):
        assert side.objects.datagram(data, number / 100) is None
    assert side.counters.unknown_datagrams == 1
    side.objects.expire(1.01)
    assert side.counters.unknown_datagrams == 2
    side.explain()
    found = list(side.objects.release(ALIAS, 1.01))
    assert [event.data for event in found if isinstance(event, ObjectDatagram)] == sent[2:]
    assert isinstance(side.objects.datagram(sent[0], 1.01), ObjectDatagram)
