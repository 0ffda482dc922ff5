"""A track that is published: what the relay hears, and what it may ask for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from laps.client import Location, RequestRefused, subgroup
from laps.errors import (
    ConfigError,
    DatagramTooLarge,
    LapsError,
    LocalProtocolError,
    ObjectTooLarge,
)
from laps.types import TrackName
from laps.wire.moqt.codes import DoneCode, RequestCode
from laps.wire.moqt.data import SubgroupHeader, decode_datagram, decode_stream_header
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.fetch import EndOfRange
from laps.wire.moqt.messages import (
    Fetch,
    FetchOk,
    Filter,
    FilterType,
    Goaway,
    GroupOrder,
    JoiningFetch,
    Publish,
    PublishDone,
    PublishNamespace,
    PublishNamespaceDone,
    PublishOk,
    RequestError,
    RequestOk,
    RequestUpdate,
    StandaloneFetch,
    Subscribe,
    SubscribeNamespace,
    SubscribeOk,
    TrackStatus,
    Unsubscribe,
)
from support.sessions import Meeting, on_loop

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect

NAME = TrackName((b"demo",), b"t")
LATEST = Filter(FilterType.LARGEST_OBJECT)

both = pytest.mark.parametrize("dialect", [DRAFT14, DRAFT16], ids=repr)


@both
@on_loop
async def test_a_track_is_offered_and_sent_at_once(dialect: Dialect) -> None:
    async with Meeting(dialect) as meeting:
        session, relay = meeting.session, meeting.relay
        track = await session.publish("demo", "t", first_group=3)
        await session.publish("demo", "u")
        assert await track.write(b"a") == Location(3, 0)
        assert await track.write(b"b") == Location(3, 1)
        assert await track.write(b"c", new_group=True) == Location(4, 0)
        await meeting.settle()
        first, second = relay.heard
        assert isinstance(first, Publish)
        assert (first.track, first.largest, first.forward) == (NAME, None, True)
        assert isinstance(second, Publish)
        assert first.alias != second.alias
        assert relay.objects() == [(3, 0, 0, b"a"), (3, 0, 1, b"b"), (4, 0, 0, b"c")]
        assert [written.finished for written in relay.streams.values()] == [True, False]


@on_loop
async def test_the_relay_may_say_no() -> None:
    async with Meeting() as meeting:
        track = await meeting.session.publish("demo", "t")
        await track.write(b"a")
        await meeting.settle()
        meeting.relay.say(RequestError(0, RequestCode.UNAUTHORIZED, "who are you?"))
        await meeting.settle()
        with pytest.raises(RequestRefused, match=r"publishing demo t was refused .*who are you"):
            await track.write(b"b")
        assert [written.reset for written in meeting.relay.streams.values()] == [1]


@on_loop
async def test_a_relay_that_does_not_want_to_be_sent_it_may_ask_for_it() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0)
        await track.write(b"a")
        await meeting.settle()
        assert not relay.heard_of(PublishNamespace)
        relay.say(RequestError(0, RequestCode.UNINTERESTED))
        await meeting.settle()
        assert relay.last(PublishNamespace) == PublishNamespace(2, (b"demo",))
        relay.say(RequestOk(2))
        await meeting.settle()
        await track.write(b"b")
        assert len(relay.objects()) == 1
        request_id = relay.session.request(Subscribe(0, NAME, LATEST))
        await meeting.settle()
        answer = relay.last(SubscribeOk)
        assert (answer.request_id, answer.largest) == (request_id, Location(0, 1))
        assert track.wanted
        await track.write(b"c")
        assert relay.objects()[-1] == (0, 0, 2, b"c")
        again = relay.session.request(Subscribe(0, NAME, LATEST))
        await meeting.settle()
        refusal = relay.last(RequestError)
        assert (refusal.request_id, refusal.code) == (again, RequestCode.DUPLICATE_SUBSCRIPTION)


@on_loop
async def test_a_relay_that_does_not_answer_publish_hears_of_the_namespace() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        await meeting.session.publish("demo", "t")
        relay.channel.outbound.tick()
        await meeting.settle()
        assert not relay.heard_of(PublishNamespace)
        relay.channel.outbound.tick()
        await meeting.settle()
        assert len(relay.heard_of(PublishNamespace)) == 1


@on_loop
async def test_a_relay_that_takes_a_track_and_leaves_it_may_ask_for_it_again() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        await meeting.session.publish("demo", "t")
        await meeting.settle()
        relay.say(PublishOk(0))
        relay.say(Unsubscribe(0))
        await meeting.settle()
        assert len(relay.heard_of(PublishNamespace)) == 1


@on_loop
async def test_a_namespace_ends_with_its_last_track() -> None:
    async with Meeting() as meeting:
        track = await meeting.session.publish("demo", "t", push=False)
        await meeting.settle()
        meeting.relay.say(RequestOk(0))
        await track.end()
        await meeting.settle()
        assert isinstance(meeting.relay.heard[-1], PublishNamespaceDone)


@on_loop
async def test_publish_waits_until_the_relay_allows_it() -> None:
    async with Meeting(requests=2) as meeting:
        session, relay = meeting.session, meeting.relay
        tracks = [await session.publish("demo", name) for name in "ab"]
        third = asyncio.ensure_future(session.publish("demo", "c"))
        await meeting.settle()
        assert not third.done()
        with pytest.raises(ConfigError, match="demo c is published by this session already"):
            await session.publish("demo", "c")
        relay.say(PublishOk(0), PublishOk(2))
        await tracks[0].end()
        await meeting.until(third.done)
        assert await (await third).write(b"c")
        await meeting.settle()
        assert [message.track.name for message in relay.heard_of(Publish)] == [b"a", b"b", b"c"]


@on_loop
async def test_what_is_written_waits_until_the_next_relay_allows_the_track() -> None:
    async with Meeting(requests=2) as meeting:
        session = meeting.session
        tracks = [await session.publish("demo", name, first_group=0) for name in "ab"]
        meeting.requests = 1
        meeting.relay.lose()
        await meeting.until(lambda: len(meeting.relays) == 2)
        await meeting.settle()
        relay = meeting.relay
        assert [message.track.name for message in relay.heard_of(Publish)] == [b"a"]
        write = asyncio.ensure_future(tracks[1].write(b"b"))
        await meeting.settle()
        assert not write.done()
        relay.say(PublishOk(0))
        await tracks[0].end()
        await write
        await meeting.settle()
        assert relay.last(Publish).track.name == b"b"
        assert relay.objects()[-1] == (0, 0, 0, b"b")


@on_loop
async def test_a_namespace_alone_is_offered_where_that_is_wanted() -> None:
    async with Meeting() as meeting:
        track = await meeting.session.publish("demo", "t", push=False)
        await meeting.settle()
        assert meeting.relay.heard == [PublishNamespace(0, (b"demo",))]
        waiting = asyncio.ensure_future(track.wait_wanted())
        await meeting.settle()
        assert not waiting.done()
        meeting.relay.session.request(Subscribe(0, NAME, LATEST))
        await waiting
        meeting.relay.say(RequestError(0, RequestCode.UNAUTHORIZED, "no"))
        await meeting.settle()
        await track.write(b"it is asked for all the same")


@on_loop
async def test_a_namespace_that_is_refused_counts_where_the_track_is_not_taken() -> None:
    async with Meeting() as meeting:
        track = await meeting.session.publish("demo", "t", push=False)
        await meeting.settle()
        meeting.relay.say(RequestError(0, RequestCode.UNAUTHORIZED, "no"))
        await meeting.settle()
        with pytest.raises(RequestRefused, match="publishing the namespace demo was refused"):
            await track.wait_wanted()


@on_loop
async def test_what_is_not_to_be_forwarded_is_not() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0, forward=False)
        await track.write(b"a")
        await meeting.settle()
        assert not relay.last(Publish).forward
        assert not relay.streams
        relay.say(PublishOk(0, forward=True))
        await track.wait_wanted()
        await track.write(b"b")
        relay.session.request(RequestUpdate(0, 0, forward=False))
        await meeting.settle()
        assert relay.heard_of(RequestOk)[-1].largest == Location(0, 1)
        assert [written.reset for written in relay.streams.values()] == [1]
        await track.write(b"c")
        relay.session.request(RequestUpdate(0, 0, forward=True))
        await meeting.settle()
        await track.write(b"d")
        assert relay.objects() == [(0, 0, 1, b"b"), (0, 0, 3, b"d")]


@on_loop
async def test_a_subscription_may_be_narrowed_and_taken_back() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0, push=False)
        await meeting.settle()
        wanted = Filter(FilterType.ABSOLUTE_RANGE, Location(1, 1), 2)
        request_id = relay.session.request(Subscribe(0, NAME, wanted))
        await meeting.settle()
        for group in range(4):
            await track.write(b"x", new_group=True)
            if group < 3:
                await track.write(b"y")
        assert [(g, i) for g, _, i, _ in relay.objects()] == [(1, 1), (2, 0), (2, 1)]
        relay.say(Unsubscribe(request_id))
        await meeting.settle()
        assert not track.wanted


@on_loop
async def test_ids_priorities_and_extensions_can_be_chosen() -> None:
    async with Meeting() as meeting:
        track = await meeting.session.publish("demo", "t", first_group=0)
        one = track.group(7, 2, priority=3, extensions=True)
        other = track.group(7, 0)
        assert await one.write(b"a", object_id=5) == Location(7, 5)
        assert await other.write(b"b") == Location(7, 0)
        assert await one.write(b"c", extensions=((2, 1),)) == Location(7, 6)
        with pytest.raises(LocalProtocolError, match="object id 6 comes behind 6"):
            await one.write(b"d", object_id=6)
        with pytest.raises(LocalProtocolError, match="began without extensions"):
            await other.write(b"d", extensions=((2, 1),))
        with pytest.raises(LocalProtocolError, match="group 7, subgroup 2 is open already"):
            track.group(7, 2)
        one.end()
        other.reset()
        with pytest.raises(LocalProtocolError, match="has ended"):
            await one.write(b"e")
        first, second = meeting.relay.streams.values()
        assert (first.finished, second.reset) == (True, 1)
        assert await track.write(b"f") == Location(8, 0)


@both
@on_loop
async def test_datagrams_have_groups_of_their_own(dialect: Dialect) -> None:
    async with Meeting(dialect) as meeting:
        relay = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0)
        await track.write(b"a")
        sending = asyncio.ensure_future(track.datagram(b"b"))
        await meeting.settle()
        assert not relay.datagrams  # the relay could not know what it is
        relay.say(PublishOk(0))
        assert await sending == Location(1, 0)
        assert await track.datagram(b"c", extensions=((2, 9),)) == Location(1, 1)
        assert await track.write(b"d") == Location(2, 0)
        items = [decode_datagram(data, relay.dialect) for data in relay.datagrams]
        assert [(i.group, i.object_id, bytes(i.payload)) for i in items] == [
            (1, 0, b"b"),
            (1, 1, b"c"),
        ]
        assert items[1].extensions
        with pytest.raises(DatagramTooLarge, match="an object of 2000 bytes makes a datagram of"):
            await track.datagram(bytes(2000))


@on_loop
async def test_a_publisher_waits_for_a_relay_that_does_not_read() -> None:
    async with Meeting() as meeting:
        wire = meeting.relay.wire
        track = await meeting.session.publish("demo", "t")
        await track.write(b"a")
        wire.buffered_bytes = 1 << 20
        written = 0

        async def flood() -> None:
            nonlocal written
            for _ in range(100):
                await track.write(bytes(100_000))
                written += 1

        flooding = asyncio.ensure_future(flood())
        await meeting.settle()
        assert 10 <= written < 15
        await meeting.settle()
        assert written < 15
        wire.buffered_bytes = 0
        meeting.relay.channel.writable()
        await flooding
        assert sum(len(payload) for *_, payload in meeting.relay.objects()) == 10_000_001


@on_loop
async def test_a_publisher_that_never_waits_lets_others_have_their_turn() -> None:
    async with Meeting() as meeting:
        track = await meeting.session.publish("demo", "t", history_bytes=1000)
        await meeting.settle()
        meeting.relay.say(RequestError(0, RequestCode.UNAUTHORIZED, "no"))

        async def flood() -> None:
            for _ in range(10_000):
                await track.write(b"x")

        with pytest.raises(RequestRefused):
            await flood()


# -- asked -----------------------------------------------------------------------------------------


@both
@on_loop
async def test_ranges_are_fetched_from_what_is_kept(dialect: Dialect) -> None:
    async with Meeting(dialect) as meeting:
        relay = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0, priority=9)
        for group in range(3):
            await track.write(b"%d" % group, new_group=True)
            await track.write(b"%d+" % group, extensions=())

        async def fetch(start: Location, end: Location, order: GroupOrder) -> list[bytes]:
            wanted = StandaloneFetch(NAME, start, end)
            request_id = relay.session.request(Fetch(0, wanted, order=order))
            await meeting.settle()
            assert relay.last(FetchOk).request_id == request_id
            return [item.payload for item in relay.fetched(request_id)]

        up, down = GroupOrder.ASCENDING, GroupOrder.DESCENDING
        assert await fetch(Location(0, 1), Location(1, 1), up) == [b"0+", b"1"]
        assert relay.last(FetchOk).end == Location(1, 1)
        assert await fetch(Location(1, 0), Location(9, 0), up) == [b"1", b"1+", b"2", b"2+"]
        assert relay.last(FetchOk).end == Location(2, 2)
        assert await fetch(Location(0, 0), Location(1, 0), down) == [b"1", b"1+", b"0", b"0+"]
        relay.session.request(Fetch(0, StandaloneFetch(NAME, Location(3, 0), Location(4, 0))))
        await meeting.settle()
        assert relay.last(RequestError).code == RequestCode.INVALID_RANGE
        nothing = StandaloneFetch(TrackName((b"demo",), b"?"), Location(0, 0), Location(1, 0))
        relay.session.request(Fetch(0, nothing))
        await meeting.settle()
        assert relay.last(RequestError).code == RequestCode.DOES_NOT_EXIST


@on_loop
async def test_what_is_no_longer_kept_is_said_to_be_unknown() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0, history_bytes=1000)
        for _ in range(6):
            await track.write(bytes(50), new_group=True)
        wanted = StandaloneFetch(NAME, Location(0, 0), Location(5, 0))
        request_id = relay.session.request(Fetch(0, wanted))
        await meeting.settle()
        mark, *kept = relay.fetched(request_id)
        assert mark == EndOfRange(2, 0, unknown=True)
        assert [item.group for item in kept] == [3, 4, 5]


@on_loop
async def test_a_subscription_is_joined_by_what_came_before_it() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=5, push=False)
        for _ in range(3):
            await track.write(b"x", new_group=True)
        await meeting.settle()
        joined = relay.session.request(Subscribe(0, NAME, LATEST))
        request_id = relay.session.request(Fetch(0, JoiningFetch(joined, 1, relative=True)))
        await track.write(b"y")
        await meeting.settle()
        assert [(i.group, i.object_id) for i in relay.fetched(request_id)] == [
            (6, 0),
            (7, 0),
            (7, 1),
        ]
        relay.session.request(Fetch(0, JoiningFetch(77, 1, relative=True)))
        await meeting.settle()
        assert relay.last(RequestError).code == RequestCode.INVALID_JOINING_REQUEST_ID


@both
@on_loop
async def test_the_status_of_a_track_is_told(dialect: Dialect) -> None:
    async with Meeting(dialect) as meeting:
        relay = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0)
        await track.write(b"x")
        await meeting.settle()
        relay.session.request(TrackStatus(0, NAME))
        relay.session.request(TrackStatus(0, TrackName((b"demo",), b"?")))
        await meeting.settle()
        assert relay.last(RequestOk).largest == Location(0, 0)
        assert relay.last(RequestError).code == RequestCode.DOES_NOT_EXIST


@on_loop
async def test_a_new_group_may_be_asked_for() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        asked: list[int] = []
        track = await meeting.session.publish(
            "demo", "t", first_group=5, dynamic_groups=True, on_new_group=asked.append
        )
        await track.write(b"x")
        await meeting.settle()
        assert relay.last(Publish).properties.dynamic_groups
        relay.session.request(RequestUpdate(0, 0, new_group=5))
        await meeting.settle()
        assert asked == []  # there is one
        relay.session.request(RequestUpdate(0, 0, new_group=6))
        await meeting.settle()
        assert track.new_group_wanted
        assert asked == [6]
        await track.write(b"y", new_group=True)
        assert not track.new_group_wanted


@on_loop
async def test_what_only_relays_do_is_refused() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        relay.session.request(Publish(0, NAME, 9))
        relay.session.request(SubscribeNamespace(0, (b"demo",)))
        await meeting.settle()
        codes = [message.code for message in relay.heard_of(RequestError)]
        assert codes == [RequestCode.UNINTERESTED, RequestCode.NOT_SUPPORTED]


# -- the end ---------------------------------------------------------------------------------------


@on_loop
async def test_the_end_of_a_track() -> None:
    async with Meeting() as meeting:
        relay = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0)
        await track.write(b"x")
        await track.write(b"y", new_group=True)
        await meeting.settle()
        relay.say(PublishOk(0))
        await track.end()
        await meeting.settle()
        assert relay.heard[-1] == PublishDone(0, DoneCode.TRACK_ENDED, 2)
        assert all(written.finished for written in relay.streams.values())
        assert bytes(relay.streams[6].data).endswith(b"\x00\x00\x04")  # end of track
        await track.end()
        with pytest.raises(LapsError, match="demo t has ended"):
            await track.write(b"z")


# -- from relay to relay ---------------------------------------------------------------------------


@on_loop
async def test_what_may_not_have_arrived_is_sent_to_the_next_relay() -> None:
    async with Meeting() as meeting:
        track = await meeting.session.publish("demo", "t", first_group=0)
        await track.write(b"a")
        await track.write(b"b", new_group=True)
        meeting.relay.lose()
        await meeting.until(lambda: len(meeting.relays) == 2)
        await track.write(b"c")
        await meeting.settle()
        relay = meeting.relay
        assert relay.last(Publish).largest == Location(1, 0)
        assert relay.objects() == [(0, 0, 0, b"a"), (1, 0, 0, b"b"), (1, 0, 1, b"c")]
        assert [written.finished for written in relay.streams.values()] == [True, False]


@on_loop
async def test_what_is_sent_again_has_the_header_that_it_had() -> None:
    """Or else relays cannot add it to a stream that broke off."""
    async with Meeting() as meeting:
        track = await meeting.session.publish("demo", "t", first_group=0)
        await track.write(b"a")
        await track.write(b"b", new_group=True, extensions=[(2, 1)])
        await track.write(b"c", new_group=True)
        await meeting.settle()
        before = [_header(bytes(it.data)).has_extensions for it in meeting.relay.streams.values()]
        meeting.relay.lose()
        await meeting.until(lambda: len(meeting.relays) == 2)
        await meeting.settle()
        after = [_header(bytes(it.data)).has_extensions for it in meeting.relay.streams.values()]
        assert before == after == [False, True, False]


@on_loop
async def test_what_is_sent_again_says_where_its_group_ends() -> None:
    """Or else who reads groups in order has to wait whether there is more of it."""
    async with Meeting() as meeting:
        track = await meeting.session.publish("demo", "t", first_group=0)
        await track.write(b"whole")
        track.end_group()
        layer = track.group(subgroup=1)
        await layer.write(b"one of several")
        layer.end()
        given_up = track.group()
        await given_up.write(b"there should have been more")
        given_up.reset()
        await track.write(b"open", new_group=True)
        await meeting.settle()
        meeting.relay.lose()
        await meeting.until(lambda: len(meeting.relays) == 2)
        await meeting.settle()
        headers = [_header(bytes(it.data)) for it in meeting.relay.streams.values()]
        assert [it.end_of_group for it in headers] == [True, False, False, True]


def _header(data: bytes) -> SubgroupHeader:
    header, _ = decode_stream_header(data, DRAFT16)
    assert isinstance(header, SubgroupHeader)
    return header


@on_loop
async def test_what_may_be_lost_with_a_connection_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Meeting() as meeting:
        track = await meeting.session.publish("demo", "t", history_bytes=2000)
        for _ in range(3):
            await track.write(bytes(1000))
        meeting.relay.lose()
        await meeting.until(lambda: len(meeting.relays) == 2)
        await meeting.settle()
    assert "up to 2 objects of demo t may not have arrived" in caplog.text
    assert "history_bytes is 2000" in caplog.text


@on_loop
async def test_an_object_that_is_too_large_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subgroup, "MAX_OBJECT_BYTES", 1000)
    async with Meeting() as meeting:
        track = await meeting.session.publish("demo", "t", first_group=0)
        with pytest.raises(ObjectTooLarge, match=r"1001 bytes: 1000 at most .*several"):
            await track.write(bytes(1001))
        assert await track.write(bytes(1000)) == Location(0, 0)


@on_loop
async def test_a_publisher_follows_a_relay_that_leaves() -> None:
    async with Meeting() as meeting:
        first = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0)
        await track.write(b"a")
        await meeting.settle()
        first.say(PublishOk(0), Goaway(b"moqt://other.example:2"))
        await meeting.until(lambda: len(meeting.relays) == 2)
        await meeting.settle()
        second = meeting.relay
        assert second.target.host == "other.example"
        await track.write(b"b")
        # The group that is under way ends where it began, and is sent to both.
        assert first.objects() == [(0, 0, 0, b"a"), (0, 0, 1, b"b")]
        assert second.objects() == first.objects()
        await track.write(b"c", new_group=True)
        await meeting.settle()
        assert len(first.objects()) == 2
        assert first.last(PublishDone).code == DoneCode.GOING_AWAY
        assert second.objects()[-1] == (1, 0, 0, b"c")


@on_loop
async def test_what_a_relay_that_leaves_may_not_pass_on_is_sent_where_it_points() -> None:
    async with Meeting() as meeting:
        first = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0)
        await track.write(b"a")
        await track.write(b"b", new_group=True)
        await meeting.settle()
        first.say(PublishOk(0), Goaway(b"moqt://other.example:2"))
        await meeting.until(lambda: len(meeting.relays) == 2)
        await meeting.settle()
        second = meeting.relay
        first.lose()
        await track.write(b"c")
        await meeting.settle()
        assert second.objects() == [(0, 0, 0, b"a"), (1, 0, 0, b"b"), (1, 0, 1, b"c")]
        assert [written.finished for written in second.streams.values()] == [True, False]


@on_loop
async def test_what_is_lost_with_the_next_relay_while_the_first_is_left_is_sent_again() -> None:
    async with Meeting() as meeting:
        first = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0)
        await track.write(b"a")
        await meeting.settle()
        first.say(PublishOk(0), Goaway(b"moqt://other.example:2"))
        await meeting.until(lambda: len(meeting.relays) == 2)
        await meeting.settle()
        await track.write(b"b")
        await meeting.settle()
        meeting.relay.lose()
        await meeting.until(lambda: len(meeting.relays) == 3)
        await meeting.settle()
        assert (0, 0, 1, b"b") in meeting.relay.objects()


@on_loop
async def test_what_was_refused_and_said_is_not_said_again_at_the_end() -> None:
    async with Meeting() as meeting:
        track = await meeting.session.publish("demo", "t")
        await meeting.settle()
        meeting.relay.say(RequestError(0, RequestCode.UNAUTHORIZED, "no"))
        await meeting.settle()
        assert track.failed
        await meeting.session.close()
