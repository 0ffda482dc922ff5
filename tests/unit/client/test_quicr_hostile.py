"""A relay that breaks the rules, or sends what nobody asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.types import Location
from laps.wire.quicr.codes import QuicrViolation
from laps.wire.quicr.fragments import MAX_OBJECT_BYTES
from laps.wire.quicr.messages import (
    Fin,
    Fragment,
    PublishIntent,
    PublishIntentOk,
    RelayRedirect,
    Response,
    StartPoint,
    Subscribe,
    SubscribeCancel,
    SubscribeReply,
    encode,
)
from support.quicr_sessions import QuicrMeeting, items, take
from support.sessions import on_loop

if TYPE_CHECKING:
    from collections.abc import Callable


def _garbage(meeting: QuicrMeeting, stream: Any) -> None:
    meeting.relay.send(stream.id, b"\x00\x02\x3f\xff")


def _out_of_rule(meeting: QuicrMeeting, stream: Any) -> None:
    meeting.relay.say(stream, Fragment(3, 3, 3, b"x", True))


def _empty_piece(meeting: QuicrMeeting, stream: Any) -> None:
    meeting.relay.say(stream, Fragment(0, 0, 0, b"", False))


def _cut_off(meeting: QuicrMeeting, stream: Any) -> None:
    meeting.relay.send(stream.id, b"\x00\x09\x05", fin=True)


def _wrong_message(meeting: QuicrMeeting, stream: Any) -> None:
    meeting.relay.say(stream, PublishIntentOk(1))


def _unidirectional(meeting: QuicrMeeting, stream: Any) -> None:
    meeting.relay.send(3, b"x")


def _media_first(meeting: QuicrMeeting, stream: Any) -> None:
    meeting.relay.send(1, b"\x00\x03\x08\x00\x00")


@pytest.mark.parametrize(
    "say",
    [
        _garbage,
        _out_of_rule,
        _empty_piece,
        _cut_off,
        _wrong_message,
        _unidirectional,
        _media_first,
    ],
)
@on_loop
async def test_what_breaks_the_rules_costs_the_connection_and_no_more(
    say: Callable[[QuicrMeeting, Any], None],
) -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t", start="start")
        stream = await meeting.asked()
        meeting.relay.objects_on(stream, *items(0, 0)) if say is not _empty_piece else None
        say(meeting, stream)
        again = await meeting.asked(relays=2)
        assert meeting.relays[0].wire.close_state is not None
        meeting.relay.objects_on(again, *items(0, 0, 1))
        assert await take(objects, 2) == items(0, 0, 1)


@on_loop
async def test_an_object_without_end_is_not_held() -> None:
    async with QuicrMeeting() as meeting:
        objects = meeting.session.subscribe("demo", "t")
        stream = await meeting.asked()
        relay, size = meeting.relay, 65_000
        piece = bytes(size)
        count = MAX_OBJECT_BYTES // size + 2
        for number in range(count):
            relay.say(stream, Fragment(0, 0, number * size, piece, False))
        relay.say(stream, Fragment(0, 0, count * size, b"", True))
        relay.objects_on(stream, *items(0, 1))
        assert await take(objects, 1) == items(0, 1)
        assert objects.buffer.bytes == 0


@on_loop
async def test_a_track_that_nobody_asked_for_is_declined() -> None:
    async with QuicrMeeting() as meeting:
        stream = meeting.relay.offer(b"demo/t")
        await meeting.until(lambda: meeting.relay.heard_of(SubscribeCancel))
        assert meeting.relay.last(SubscribeCancel).reason == "nobody here asked for it"
        meeting.relay.objects_on(stream, *items(0, 0))  # it was on its way
        await meeting.settle()
        assert meeting.relay.wire.established


small = st.integers(0, 3)
places = st.builds(Location, small, small)
said = st.one_of(
    st.builds(StartPoint, places),
    st.builds(Fragment, small, small, small, st.binary(max_size=3), st.booleans()),
    st.builds(Fin, places),
    st.builds(SubscribeReply, st.sampled_from((Response.OK, Response.EXPIRED, Response.REDIRECT))),
    st.builds(PublishIntent, st.sampled_from((b"demo/t", b"demo/u", b"\xff")), st.booleans()),
    st.builds(PublishIntentOk, st.none() | small),
    st.builds(SubscribeCancel, st.just(b"demo/t")),
    st.builds(RelayRedirect, st.text(max_size=5)),
    st.builds(Subscribe, st.just(b"demo/t")),
).map(encode)
events = st.tuples(
    st.sampled_from(("stream", "datagram", "reset", "stop")),
    st.sampled_from((0, 1, 4, 5, 8)),
    said | st.binary(max_size=20),
    st.booleans(),
)


@pytest.mark.parametrize("datagrams", [False, True])
@settings(max_examples=100, deadline=None)
@given(st.lists(events, max_size=12))
def test_whatever_a_relay_says_only_its_connection_suffers(
    datagrams: bool, told: list[tuple[str, int, bytes, bool]]
) -> None:
    @on_loop
    async def run() -> None:
        problems: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, c: problems.append(c.get("exception"))
        )
        async with QuicrMeeting() as meeting:
            objects = meeting.session.subscribe("demo", "t", start="start", datagrams=datagrams)
            track = await meeting.session.publish("demo", "own", datagrams=datagrams)
            tracks = meeting.session.subscribe_all("demo", datagrams=datagrams)
            relay = meeting.relay
            await meeting.until(lambda: len(relay.heard) == 3)
            for kind, stream_id, data, fin in told:
                channel = relay.channel
                match kind:
                    case "stream":
                        relay.send(stream_id, data, fin=fin)
                    case "datagram":
                        relay.bring(lambda d=data, c=channel: c.datagram(d))  # type: ignore[misc]
                    case "reset":
                        relay.bring(lambda s=stream_id, c=channel: c.stream_reset(s, 0))  # type: ignore[misc]
                    case _:
                        relay.bring(lambda s=stream_id, c=channel: c.stop_sending(s, 0))  # type: ignore[misc]
            await meeting.settle()
            assert meeting.session.may_return
            assert track.failed or not track.ended
            tracks.close()
            objects.close()
            await meeting.settle()
        # The relay of the test knows nothing of the streams that were made up here.
        assert [one for one in problems if not isinstance(one, QuicrViolation)] == []

    run()
