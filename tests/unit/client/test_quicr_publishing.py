"""A track that is published in QUICR: what the relay hears of it, on a stream and in datagrams."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.client import Location, RequestRefused, SessionClosed
from laps.client.quicr import track as track_module
from laps.errors import ConfigError, LapsError, LocalProtocolError
from laps.wire.moqt.messages import GroupOrder
from laps.wire.quicr.messages import (
    Fin,
    PublishIntent,
    RelayRedirect,
    Response,
    SubscribeCancel,
    SubscribeReply,
    decode_datagram,
)
from support.quicr_sessions import QuicrMeeting
from support.sessions import on_loop

if TYPE_CHECKING:
    from support.quicr_sessions import FakeQuicrRelay

ELSEWHERE = RelayRedirect("192.0.2.9:7")


def busy(relay: FakeQuicrRelay) -> None:
    """What is sent to it is not acknowledged from now on."""
    relay.wire.buffered_bytes = 1


# -- on a stream -----------------------------------------------------------------------------------


@on_loop
async def test_objects_go_ahead_of_the_answer_in_order() -> None:
    async with QuicrMeeting() as meeting:
        track = await meeting.session.publish("demo", "t", first_group=7)
        assert await track.write(b"a") == Location(7, 0)
        assert await track.write(b"") == Location(7, 1)
        assert await track.write(b"b", new_group=True) == Location(8, 0)
        stream = await meeting.intended()
        await track.write(b"c")
        await meeting.settle()
        relay = meeting.relay
        assert relay.last(PublishIntent) == PublishIntent(b"demo/t", False)
        assert relay.starts == [Location(7, 0)]  # the next group follows by itself
        assert relay.objects == [(7, 0, b"a"), (7, 1, b""), (8, 0, b"b"), (8, 1, b"c")]
        await track.end()
        assert relay.closed == {stream.id: True}
        assert relay.heard_of(Fin) == []


@on_loop
async def test_a_track_that_counts_from_zero_needs_no_start_point() -> None:
    async with QuicrMeeting() as meeting:
        track = await meeting.session.publish("demo", "t", first_group=0, datagrams=False)
        await track.write(b"a")
        await track.write(b"b", new_group=True)
        await meeting.intended()
        await track.end()
        assert meeting.relay.starts == []
        assert meeting.relay.objects == [(0, 0, b"a"), (1, 0, b"b")]


@on_loop
async def test_a_large_object_goes_in_pieces_that_a_message_holds() -> None:
    async with QuicrMeeting() as meeting:
        track = await meeting.session.publish("demo", "t", first_group=0, datagrams=False)
        large = bytes(range(256)) * 1000
        await track.write(large)
        await meeting.intended()
        await track.end()
        assert meeting.relay.objects == [(0, 0, large)]


@on_loop
async def test_what_is_refused_says_why() -> None:
    async with QuicrMeeting() as meeting:
        track = await meeting.session.publish("demo", "t")
        await track.write(b"a")
        stream = await meeting.intended(answer=False)
        meeting.relay.say(stream, SubscribeReply(Response.FAIL, "not here"))
        await meeting.until(lambda: track.failed)
        with pytest.raises(RequestRefused, match="publishing demo t was refused"):
            await track.write(b"b")
        with pytest.raises(RequestRefused):
            await track.end()


@pytest.mark.parametrize("how", ["cancel", "close"])
@on_loop
async def test_a_relay_may_have_enough_later(how: str) -> None:
    async with QuicrMeeting() as meeting:
        track = await meeting.session.publish("demo", "t")
        await track.write(b"a")
        stream = await meeting.intended()
        if how == "cancel":
            meeting.relay.say(stream, SubscribeCancel(b"demo/t", "enough"))
        else:
            meeting.relay.session.close(stream)
        await meeting.until(lambda: track.failed)
        with pytest.raises(RequestRefused, match="enough" if how == "cancel" else "has closed"):
            await track.write(b"b")


@on_loop
async def test_a_stream_that_is_reset_is_opened_again_and_given_up_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(track_module, "RESET_WAIT_S", 0.0)
    async with QuicrMeeting() as meeting:
        relay = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0, datagrams=False)
        await track.write(b"a")
        for number in range(1, track_module.RESETS + 2):
            await meeting.until(lambda n=number: len(relay.heard_of(PublishIntent)) == n)  # type: ignore[misc]
            stream = relay.stream_of(PublishIntent)
            await meeting.settle()
            relay.session.abandon(stream, 6)
        await meeting.until(lambda: track.failed)
        assert relay.objects == [(0, 0, b"a")] * (track_module.RESETS + 1)


# -- in datagrams ----------------------------------------------------------------------------------


@on_loop
async def test_datagrams_wait_until_it_is_known_how_they_are_called() -> None:
    async with QuicrMeeting() as meeting:
        relay = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=3, priority=64)
        await track.datagram(b"a", discardable=True)
        stream = await meeting.intended(answer=False)
        await meeting.settle()
        assert relay.datagrams == []
        assert relay.last(PublishIntent).datagram_capable
        await meeting.intended(datagram_id=9)
        large = bytes(range(256)) * 20
        await track.datagram(large)
        await track.datagram(b"b", new_group=True)
        await track.end()
        assert relay.datagram_objects() == [(3, 0, b"a"), (3, 1, large), (4, 0, b"b")]
        heard = [decode_datagram(data) for data in relay.datagrams]
        assert {datagram.stream_id for datagram in heard} == {9}
        assert {datagram.terms.priority for datagram in heard} == {2}
        assert [d.terms.discardable for d in heard] == [True] + [False] * (len(heard) - 1)
        assert [d.terms.objects_before for d in heard if not d.fragment.object_id] == [0, 2]
        assert max(map(len, relay.datagrams)) <= relay.wire.datagram_limit_bytes
        assert relay.starts == [Location(3, 0)]
        assert relay.last(Fin) == Fin(Location(4, 1))
        assert relay.closed == {stream.id: True}


@on_loop
async def test_a_relay_may_want_it_on_the_stream_all_the_same() -> None:
    async with QuicrMeeting() as meeting:
        track = await meeting.session.publish("demo", "t", first_group=0, datagrams=True)
        await meeting.intended(datagram_id=None)
        await track.datagram(b"a")
        await track.end()
        assert meeting.relay.objects == [(0, 0, b"a")]
        assert meeting.relay.datagrams == []


@on_loop
async def test_a_large_object_is_paced_by_the_connection() -> None:
    async with QuicrMeeting() as meeting:
        relay = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0, datagrams=True)
        await meeting.intended(datagram_id=1)
        await meeting.settle()
        relay.wire.datagram_room = 10
        large = bytes(1_000_000)
        await track.datagram(large)
        assert len(relay.datagrams) == 10
        assert relay.channel.egress.queued_datagram_bytes < 70_000
        second = asyncio.ensure_future(track.datagram(b"small"))
        await meeting.settle()
        assert not second.done()
        relay.wire.datagram_room = None
        while not second.done():
            relay.channel.writable()
            await asyncio.sleep(0)
        await track.end()
        assert relay.datagram_objects() == [(0, 0, large), (0, 1, b"small")]


@on_loop
async def test_the_first_object_decides_how_all_go() -> None:
    async with QuicrMeeting() as meeting:
        one = await meeting.session.publish("demo", "one")
        await one.write(b"a")
        with pytest.raises(LocalProtocolError, match="goes on its stream: use write"):
            await one.datagram(b"b")
        other = await meeting.session.publish("demo", "other")
        writing = asyncio.ensure_future(other.datagram(b"a"))
        await meeting.settle()
        with pytest.raises(LocalProtocolError, match="goes in datagrams: use datagram"):
            await other.write(b"b")
        await writing


@on_loop
async def test_what_is_too_old_is_not_sent() -> None:
    async with QuicrMeeting() as meeting:
        track = await meeting.session.publish(
            "demo", "t", first_group=0, datagrams=True, delivery_timeout_s=0.01
        )
        await track.datagram(b"old")
        await asyncio.sleep(0.02)
        await meeting.intended(datagram_id=1)
        await meeting.settle()
        await track.datagram(b"new")
        assert meeting.relay.datagram_objects() == [(0, 1, b"new")]
        terms = decode_datagram(meeting.relay.datagrams[0]).terms
        assert 1 <= terms.best_before_ms <= 10


# -- what is not there -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option",
    [
        {"order": GroupOrder.DESCENDING},
        {"cache_s": 1.0},
        {"dynamic_groups": True},
        {"on_new_group": print},
        {"extensions": ((2, 1),)},
        {"push": False},
        {"forward": False},
    ],
    ids=lambda option: next(iter(option)),
)
@on_loop
async def test_options_that_quicr_lacks(option: dict[str, Any]) -> None:
    async with QuicrMeeting() as meeting:
        with pytest.raises(ConfigError, match=f"QUICR has no {next(iter(option))}: "):
            await meeting.session.publish("demo", "t", **option)


@on_loop
async def test_objects_that_quicr_lacks() -> None:
    async with QuicrMeeting() as meeting:
        track = await meeting.session.publish("demo", "t")
        with pytest.raises(LocalProtocolError, match="have no extensions"):
            await track.write(b"a", extensions=((2, 1),))
        with pytest.raises(LocalProtocolError, match="is too large: relays take 16777216"):
            await track.write(bytes(16 * 1024 * 1024 + 1))
        with pytest.raises(LapsError, match="QUICR has no subgroups"):
            track.group(1)
        with pytest.raises(ConfigError, match="is published by this session already"):
            await meeting.session.publish("demo", "t")


# -- from relay to relay ---------------------------------------------------------------------------


@on_loop
async def test_what_may_not_have_arrived_is_sent_again() -> None:
    async with QuicrMeeting() as meeting:
        track = await meeting.session.publish("demo", "t", first_group=0, datagrams=False)
        await meeting.intended()
        await track.write(b"a")
        await track.write(b"b", new_group=True)
        await meeting.settle()
        meeting.relay.lose()
        await meeting.intended(relays=2)
        await track.write(b"c")
        await track.end()
        assert meeting.relay.objects == [(0, 0, b"a"), (1, 0, b"b"), (1, 1, b"c")]


@on_loop
async def test_what_may_not_have_arrived_is_sent_from_the_beginning_of_its_group() -> None:
    """So that relays know it for the rest of a stream that broke off."""
    async with QuicrMeeting() as meeting:
        track = await meeting.session.publish("demo", "t", first_group=0, datagrams=False)
        await meeting.intended()
        await track.write(b"a")
        for payload in (b"b", b"c", b"d"):
            await track.write(payload, new_group=payload == b"b")
        await meeting.settle()
        track._delivered = 3  # the relay has all but the last
        meeting.relay.lose()
        await meeting.intended(relays=2)
        await track.end()
        assert meeting.relay.objects == [(1, 0, b"b"), (1, 1, b"c"), (1, 2, b"d")]


@on_loop
async def test_what_was_lost_in_datagrams_is_not_sent_again() -> None:
    async with QuicrMeeting() as meeting:
        track = await meeting.session.publish("demo", "t", first_group=0, datagrams=True)
        await meeting.intended(datagram_id=1)
        await meeting.settle()
        await track.datagram(b"a")
        meeting.relay.lose()
        await meeting.intended(relays=2, datagram_id=1)
        await track.datagram(b"b")
        await track.end()
        assert meeting.relay.datagram_objects() == [(0, 1, b"b")]
        assert meeting.relay.starts == [Location(0, 1)]


@on_loop
async def test_a_relay_that_leaves_is_left_between_two_objects() -> None:
    async with QuicrMeeting() as meeting:
        first = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0, datagrams=False)
        stream = await meeting.intended()
        await track.write(b"a")
        first.say(stream, ELSEWHERE)
        await meeting.intended(relays=2)
        await track.write(b"b")
        await track.end()
        assert first.objects == [(0, 0, b"a")]
        assert meeting.relay.target.url == "quicr://192.0.2.9:7"
        assert meeting.relay.objects == [(0, 1, b"b")]
        assert meeting.relay.starts == [Location(0, 1)]
        assert first.closed == {}  # it has not ended there
        await meeting.until(lambda: not first.wire.established)


@on_loop
async def test_nothing_goes_ahead_of_what_is_on_its_way_to_a_relay_that_leaves() -> None:
    async with QuicrMeeting() as meeting:
        first = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0, datagrams=False)
        stream = await meeting.intended()
        busy(first)
        await track.write(b"a")
        first.say(stream, ELSEWHERE)
        await meeting.intended(relays=2)
        await track.write(b"b")
        await asyncio.sleep(0.03)
        assert meeting.relay.objects == []
        first.wire.buffered_bytes = 0
        first.channel.writable()
        await track.end()
        assert meeting.relay.objects == [(0, 1, b"b")]


@on_loop
async def test_what_a_relay_loses_while_it_is_left_is_sent_to_the_next() -> None:
    async with QuicrMeeting() as meeting:
        first = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0, datagrams=False)
        stream = await meeting.intended()
        busy(first)
        await track.write(b"a")
        await track.write(b"b")
        first.say(stream, ELSEWHERE)
        await meeting.intended(relays=2)
        await track.write(b"c")
        await meeting.settle()
        first.lose()
        await track.end()
        assert meeting.relay.objects == [(0, 0, b"a"), (0, 1, b"b"), (0, 2, b"c")]


@on_loop
async def test_the_next_relay_may_leave_too() -> None:
    """Twice, while the first one has not said that it has all."""
    async with QuicrMeeting() as meeting:
        first = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0, datagrams=False)
        stream = await meeting.intended()
        busy(first)
        await track.write(b"a")
        first.say(stream, ELSEWHERE)
        second = await meeting.intended(relays=2)
        await track.write(b"b")
        meeting.relay.say(second, RelayRedirect("192.0.2.10:7"))
        await meeting.until(lambda: len(meeting.relays) == 3)
        first.lose()
        await meeting.intended(relays=3)
        await track.end()
        assert meeting.relays[1].objects == []
        assert meeting.relay.objects == [(0, 0, b"a"), (0, 1, b"b")]


@on_loop
async def test_a_connection_that_is_not_dialled_again_fails_its_tracks() -> None:
    async with QuicrMeeting(reconnect_s=0) as meeting:
        track = await meeting.session.publish("demo", "t", datagrams=False)
        await meeting.intended()
        await track.write(b"a")
        meeting.relay.lose()
        await meeting.until(lambda: track.failed)
        with pytest.raises(SessionClosed):
            await track.write(b"b")


@pytest.mark.parametrize("datagrams", [False, True])
@on_loop
async def test_a_track_without_objects_ends(datagrams: bool) -> None:
    async with QuicrMeeting() as meeting:
        track = await meeting.session.publish("demo", "t", datagrams=datagrams)
        stream = await meeting.intended(datagram_id=1 if datagrams else None)
        await track.end()
        assert meeting.relay.closed == {stream.id: True}
        assert meeting.relay.heard_of(Fin) == [Fin(Location(0, 0))] * datagrams
        with pytest.raises(LapsError, match="has ended"):
            await track.write(b"a")


@on_loop
async def test_a_connection_that_is_lost_at_the_end_is_no_reason_to_lose_the_track() -> None:
    async with QuicrMeeting() as meeting:
        first = meeting.relay
        track = await meeting.session.publish("demo", "t", first_group=0, datagrams=False)
        await meeting.intended()
        busy(first)
        await track.write(b"a")
        ending = asyncio.ensure_future(track.end())
        await meeting.settle()
        first.lose()
        await meeting.intended(relays=2)
        await ending
        assert meeting.relay.objects == [(0, 0, b"a")]
        assert True in meeting.relay.closed.values()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from((0, 1, 1080, 1081, 70_000)), st.booleans()), max_size=8))
def test_whatever_is_written_arrives_by_the_rules(writes: list[tuple[int, bool]]) -> None:
    """The relay's own session checks the order of fragments."""

    @on_loop
    async def run() -> None:
        async with QuicrMeeting() as meeting:
            track = await meeting.session.publish("demo", "t", datagrams=False)
            await meeting.intended()
            sent = [
                (*await track.write(bytes(size), new_group=new), bytes(size))
                for size, new in writes
            ]
            await track.end()
            assert meeting.relay.objects == sent

    run()
