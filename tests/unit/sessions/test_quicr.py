"""One QUICR session: who may say what on which stream, and how streams end."""

from __future__ import annotations

from itertools import count, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.sessions.quicr import OVER, Closed, ControlStream, Event, QuicrSession, Said
from laps.types import Location
from laps.wire.quicr.codes import QuicrCode, QuicrViolation
from laps.wire.quicr.messages import (
    Authorization,
    Fin,
    Fragment,
    Holds,
    Intent,
    Message,
    MessageReader,
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
from unit.wire.quicr.strategies import chunked, cuts

NAME = b"demo/clock"
SUBSCRIBE = Subscribe(NAME)
PUBLISH = PublishIntent(NAME)
THEIRS = 4
"A stream that the other side opens."

MESSAGES: list[Message] = [
    SUBSCRIBE,
    SubscribeReply(Response.OK),
    PUBLISH,
    PublishIntentOk(),
    StartPoint(Location(0, 0)),
    Fragment(0, 0, 0, b"x", True),
    Fin(Location(0, 0)),
    SubscribeCancel(NAME),
    RelayRedirect("relay:1"),
    Authorization(b"token", holds=Holds.CONNECTION),
]


class Talk:
    """A session over a wire that writes down what it is asked, and a test for the other side."""

    def __init__(self) -> None:
        self.session = QuicrSession(self)
        self.sent: dict[int, bytes] = {}
        self.finished: list[int] = []
        self.ended: list[tuple[int, int]] = []
        self._ids = count(1, 4)

    # -- the other side ----------------------------------------------------------------------------

    def hear(self, *messages: Message, stream: int = THEIRS, fin: bool = False) -> list[Event]:
        return self.hear_bytes(b"".join(map(encode, messages)), stream, fin=fin)

    def hear_bytes(self, data: bytes, stream: int = THEIRS, *, fin: bool = False) -> list[Event]:
        return self.session.receive(stream, data, fin=fin)

    def said(self, stream: int) -> list[Message]:
        """What was said on a stream since the last time."""
        reader = MessageReader()
        messages = reader.feed(self.sent.pop(stream, b""))
        assert reader.is_empty
        return messages

    def opened(self, opening: Subscribe | PublishIntent, *, ours: bool) -> ControlStream:
        """A stream that either side has opened."""
        if ours:
            return self.session.open(opening)
        (event,) = self.hear(opening)
        assert isinstance(event, Said)
        return event.stream

    # -- as `Wire` ---------------------------------------------------------------------------------

    def open_stream(self) -> int:
        return next(self._ids)

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        assert stream_id not in self.finished
        assert stream_id not in dict(self.ended)
        self.sent[stream_id] = self.sent.get(stream_id, b"") + data
        if fin:
            self.finished.append(stream_id)

    def end_stream(self, stream_id: int, code: int) -> None:
        self.ended.append((stream_id, code))


def violates(talk: Talk, *messages: Message, stream: int = THEIRS, fin: bool = False) -> str:
    with pytest.raises(QuicrViolation) as caught:
        talk.hear(*messages, stream=stream, fin=fin)
    assert caught.value.code is QuicrCode.PROTOCOL_VIOLATION
    return caught.value.problem


def words(events: list[Event]) -> list[Message]:
    messages = []
    for event in events:
        assert isinstance(event, Said)
        messages.append(event.message)
    return messages


sides = pytest.mark.parametrize("ours", [False, True], ids=["theirs", "ours"])
openings = pytest.mark.parametrize(
    "opening", [SUBSCRIBE, PUBLISH], ids=lambda opening: type(opening).__name__
)


# -- who may say what ------------------------------------------------------------------------------

MEDIA = {StartPoint, Fragment, Fin}

# What the other side may say: on what kind of stream, and whether we opened it.
ALLOWED: dict[tuple[type, bool], set[type]] = {
    (Subscribe, False): {Subscribe, SubscribeCancel, Authorization},
    (Subscribe, True): {SubscribeReply, RelayRedirect} | MEDIA,
    (PublishIntent, False): MEDIA | {Authorization},
    (PublishIntent, True): {PublishIntentOk, SubscribeReply, SubscribeCancel, RelayRedirect},
}


def test_there_is_one_of_each_message() -> None:
    assert {type(message) for message in MESSAGES} == set(Message.__args__)


def test_who_catches_up_says_where_it_goes_on_ahead_of_the_subscribe() -> None:
    talk = Talk()
    (event,) = talk.hear(StartPoint(Location(4, 2)), SUBSCRIBE)
    assert isinstance(event, Said)
    assert (event.message, event.stream.since) == (SUBSCRIBE, Location(4, 2))
    ours = talk.session.open(SUBSCRIBE, Location(5, 0))
    assert talk.said(ours.id) == [StartPoint(Location(5, 0)), SUBSCRIBE]
    assert "StartPoint" in violates(talk, StartPoint(Location(4, 3)))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_stream_is_opened_with_three_messages_only(message: Message) -> None:
    talk = Talk()
    if isinstance(message, StartPoint):
        assert talk.hear(message) == []  # a SUBSCRIBE has to follow
        assert "StartPoint" in violates(talk, PublishIntent(b"demo/t"))
        return
    if not isinstance(message, Subscribe | PublishIntent | Authorization):
        assert type(message).__name__ in violates(talk, message)
        return
    (event,) = talk.hear(message)
    assert isinstance(event, Said)
    assert event.message == message == event.stream.opening
    assert (event.stream.id, event.stream.ours) == (THEIRS, False)
    assert talk.session.streams == {THEIRS: event.stream}
    assert not talk.sent


def test_tokens_may_be_shown_ahead_of_what_they_are_for() -> None:
    talk = Talk()
    tokens = [Authorization(b"a"), Authorization(b"b", 1)]
    (event,) = talk.hear(*tokens, StartPoint(Location(1, 0)), SUBSCRIBE)
    assert event.stream.tokens == tokens
    assert (event.stream.opening, event.stream.since) == (SUBSCRIBE, Location(1, 0))
    ours = talk.session.open(PUBLISH, token=tokens[0])
    assert talk.said(ours.id) == [tokens[0], PUBLISH]


def test_who_shows_too_many_tokens_is_closed() -> None:
    assert "4 tokens" in violates(Talk(), *[Authorization(b"a")] * 5)


def test_nothing_follows_a_token_for_the_connection_but_the_answer() -> None:
    talk = Talk()
    token = Authorization(b"a", holds=Holds.CONNECTION)
    talk.hear(token)
    assert "Authorization" in violates(talk, SUBSCRIBE)
    talk = Talk()
    stream = talk.session.open(token)
    (event,) = talk.hear(SubscribeReply(Response.OK), stream=stream.id)
    assert isinstance(event, Said)
    assert "Fragment" in violates(talk, Fragment(0, 0, 0, b"x", True), stream=stream.id)


@sides
@openings
@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_each_message_has_its_places(
    message: Message, opening: Subscribe | PublishIntent, ours: bool
) -> None:
    talk = Talk()
    stream = talk.opened(opening, ours=ours)
    if type(message) not in ALLOWED[type(opening), ours]:
        problem = violates(talk, message, stream=stream.id)
        assert type(message).__name__ in problem
        assert type(opening).__name__ in problem
        return
    assert talk.hear(message, stream=stream.id) == [Said(stream, message)]
    assert stream.opening == opening
    assert talk.session.streams == {stream.id: stream}


@sides
@openings
def test_what_is_allowed_is_allowed_behind_all_that_is(
    opening: Subscribe | PublishIntent, ours: bool
) -> None:
    allowed = ALLOWED[type(opening), ours]
    for first, second in product(MESSAGES, MESSAGES):
        talk = Talk()
        stream = talk.opened(opening, ours=ours)
        if type(first) not in allowed:
            continue
        talk.hear(first, stream=stream.id)
        behind_fin = type(first) is Fin and type(second) in MEDIA
        again = type(first) is Fragment and type(second) in (StartPoint, Fragment)
        if type(second) in allowed and not behind_fin and not again:
            talk.hear(second, stream=stream.id)
        else:
            violates(talk, second, stream=stream.id)


@pytest.mark.parametrize("other", [b"demo/clocks", b"demo", b"", b"DEMO/CLOCK"])
def test_a_stream_is_for_one_name(other: bytes) -> None:
    for opening, ours, message in (
        (SUBSCRIBE, False, Subscribe(other)),
        (SUBSCRIBE, False, SubscribeCancel(other)),
        (PUBLISH, True, SubscribeCancel(other)),
    ):
        talk = Talk()
        stream = talk.opened(opening, ours=ours)
        assert "names something else" in violates(talk, message, stream=stream.id)


def test_a_renewal_may_differ_in_all_but_the_name() -> None:
    talk = Talk()
    stream = talk.opened(SUBSCRIBE, ours=False)
    renewal = Subscribe(NAME, 7, Intent.CATCH_UP, 9)
    assert talk.hear(renewal, SUBSCRIBE) == [Said(stream, renewal), Said(stream, SUBSCRIBE)]
    assert stream.opening is not renewal
    assert stream.opening == SUBSCRIBE


def test_streams_do_not_mix() -> None:
    talk = Talk()
    talk.hear(SUBSCRIBE, stream=0)
    talk.hear(PUBLISH, stream=4)
    mine = talk.opened(SUBSCRIBE, ours=True)
    offered = talk.opened(PUBLISH, ours=True)
    assert words(talk.hear(Fragment(0, 0, 0, b"x", False), stream=4))
    assert words(talk.hear(Fragment(0, 0, 0, b"y", True), stream=mine.id))
    assert words(talk.hear(PublishIntentOk(3), stream=offered.id))
    assert words(talk.hear(Fragment(0, 0, 1, b"x", True), stream=4))
    violates(talk, Fragment(0, 1, 0, b"x", True), stream=0)
    assert set(talk.session.streams) == {0, 4, mine.id, offered.id}


# -- media -----------------------------------------------------------------------------------------


@sides
def test_fragments_come_in_order(ours: bool) -> None:
    talk = Talk()
    stream = talk.opened(SUBSCRIBE if ours else PUBLISH, ours=ours)
    media: list[Message] = [
        StartPoint(Location(3, 0)),
        Fragment(3, 0, 0, b"ab", False),
        Fragment(3, 0, 2, b"c", True),
        Fragment(3, 1, 0, b"", True),
        Fragment(4, 0, 0, b"d", True),
        StartPoint(Location(7, 2)),
        Fragment(7, 2, 0, b"e", True),
        Fin(Location(7, 3)),
    ]
    assert talk.hear(*media, stream=stream.id) == [Said(stream, said) for said in media]
    assert stream.final == Fin(Location(7, 3))
    assert stream.order.next == Location(7, 3)


@sides
@pytest.mark.parametrize(
    ("media", "wrong"),
    [
        pytest.param([], Fragment(1, 0, 0, b"x", True), id="another beginning"),
        pytest.param([], Fragment(0, 0, 1, b"x", True), id="no beginning"),
        pytest.param([], Fragment(0, 0, 0, b"", False), id="nothing"),
        pytest.param([Fragment(0, 0, 0, b"x", True)], Fragment(0, 2, 0, b"x", True), id="a gap"),
        pytest.param([Fragment(0, 0, 0, b"x", False)], Fragment(0, 1, 0, b"x", True), id="no end"),
        pytest.param([Fragment(0, 0, 0, b"x", True)], StartPoint(Location(0, 0)), id="back"),
        pytest.param([Fragment(0, 0, 0, b"x", False)], StartPoint(Location(0, 0)), id="again"),
        pytest.param([Fragment(0, 0, 0, b"x", False)], Fin(Location(0, 1)), id="Fin inside"),
        pytest.param([Fin(Location(0, 0))], Fragment(0, 0, 0, b"x", True), id="behind Fin"),
        pytest.param([Fin(Location(0, 0))], StartPoint(Location(0, 0)), id="start behind Fin"),
        pytest.param([Fin(Location(0, 0))], Fin(Location(0, 0)), id="Fin twice"),
    ],
)
def test_media_out_of_order_is_refused(media: list[Message], wrong: Message, ours: bool) -> None:
    talk = Talk()
    stream = talk.opened(SUBSCRIBE if ours else PUBLISH, ours=ours)
    talk.hear(*media, stream=stream.id)
    violates(talk, wrong, stream=stream.id)


def test_a_start_point_gives_up_the_object_that_had_begun() -> None:
    talk = Talk()
    stream = talk.opened(PUBLISH, ours=False)
    talk.hear(Fragment(0, 0, 0, b"x", False), StartPoint(Location(0, 1)))
    talk.hear(Fragment(0, 1, 0, b"x", True))
    assert talk.hear(fin=True) == [Closed(stream, well=True)]


def test_other_words_may_follow_a_fin() -> None:
    talk = Talk()
    stream = talk.opened(SUBSCRIBE, ours=True)
    talk.hear(Fin(Location(0, 0)), stream=stream.id)
    reply = SubscribeReply(Response.EXPIRED)
    assert talk.hear(reply, stream=stream.id) == [Said(stream, reply)]


# -- bytes -----------------------------------------------------------------------------------------


def test_a_stream_is_read_byte_by_byte() -> None:
    said: list[Message] = [
        PUBLISH,
        Fragment(0, 0, 0, b"abc", False),
        Fragment(0, 0, 3, b"d", True),
    ]
    data = b"".join(map(encode, said))
    talk = Talk()
    events: list[Event] = []
    for at in range(len(data)):
        events += talk.hear_bytes(data[at : at + 1])
    assert words(events) == said
    (stream,) = talk.session.streams.values()
    assert talk.hear_bytes(b"", fin=True) == [Closed(stream, well=True)]


@settings(max_examples=40)
@given(st.data())
def test_how_bytes_are_cut_does_not_matter(data: st.DataObject) -> None:
    said: list[Message] = [SUBSCRIBE, SUBSCRIBE, SubscribeCancel(NAME, "enough")]
    stream = b"".join(map(encode, said))
    chunks = chunked(stream, data.draw(cuts(len(stream))))
    talk = Talk()
    events: list[Event] = []
    for number, chunk in enumerate(chunks, 1):
        events += talk.hear_bytes(chunk, fin=number == len(chunks))
    assert words(events[:-1]) == said
    assert events[-1] == Closed(events[0].stream, well=True)


def test_a_stream_that_has_said_half_a_word_is_not_opened() -> None:
    talk = Talk()
    data = encode(SUBSCRIBE)
    assert talk.hear_bytes(data[:-1]) == []
    (stream,) = talk.session.streams.values()
    assert stream.opening is None
    assert words(talk.hear_bytes(data[-1:])) == [SUBSCRIBE]
    assert stream.opening == SUBSCRIBE


@pytest.mark.parametrize("size", range(1, len(encode(SUBSCRIBE))))
def test_a_stream_does_not_end_inside_a_message(size: int) -> None:
    part = encode(SUBSCRIBE)[:size]
    for before in (b"", encode(SUBSCRIBE)):
        for step in (size, len(before) + size):
            talk = Talk()
            data = before + part
            talk.hear_bytes(data[:step])
            with pytest.raises(QuicrViolation, match="ends inside a message") as caught:
                talk.hear_bytes(data[step:], fin=True)
            assert caught.value.code is QuicrCode.PROTOCOL_VIOLATION


def test_what_cannot_be_read_has_its_own_code() -> None:
    for data in (b"\0\0", b"\0\1\x3f", encode(SUBSCRIBE) + b"\0\1\0"):
        with pytest.raises(QuicrViolation) as caught:
            Talk().hear_bytes(data)
        assert caught.value.code is QuicrCode.INVALID_ENCODING


# -- how streams end -------------------------------------------------------------------------------


@sides
@openings
@pytest.mark.parametrize("first", ["here", "there"])
def test_a_stream_is_over_when_both_have_closed_it(
    opening: Subscribe | PublishIntent, ours: bool, first: str
) -> None:
    talk = Talk()
    stream = talk.opened(opening, ours=ours)
    for side in (first, {"here": "there", "there": "here"}[first]):
        assert talk.session.streams == {stream.id: stream}
        assert not stream.is_over
        if side == "here":
            talk.session.close(stream)
            assert talk.finished == [stream.id]
        else:
            assert talk.hear_bytes(b"", stream.id, fin=True) == [Closed(stream, well=True)]
    assert stream.is_over
    assert talk.session.streams == {}
    assert talk.ended == []


def test_the_last_words_may_come_with_the_end() -> None:
    talk = Talk()
    fragment = Fragment(0, 0, 0, b"x", True)
    events = talk.hear(PUBLISH, fragment, fin=True)
    stream = events[0].stream
    assert events == [Said(stream, PUBLISH), Said(stream, fragment), Closed(stream, well=True)]
    assert stream.closed_there
    assert talk.session.streams == {THEIRS: stream}
    # It may still be answered.
    talk.session.send(stream, PublishIntentOk())
    talk.session.close(stream)
    assert talk.said(THEIRS) == [PublishIntentOk()]
    assert talk.session.streams == {}


@sides
def test_an_end_inside_an_object_is_none(ours: bool) -> None:
    talk = Talk()
    stream = talk.opened(SUBSCRIBE if ours else PUBLISH, ours=ours)
    talk.hear(Fragment(0, 0, 0, b"x", False), stream=stream.id)
    assert talk.hear(stream=stream.id, fin=True) == [Closed(stream, well=False)]


@sides
@openings
def test_a_stream_that_is_given_up_has_not_ended_well(
    opening: Subscribe | PublishIntent, ours: bool
) -> None:
    talk = Talk()
    stream = talk.opened(opening, ours=ours)
    assert talk.session.stream_ended(stream.id) == [Closed(stream, well=False)]
    assert talk.session.stream_ended(stream.id) == []
    assert talk.hear_bytes(b"", stream.id, fin=True) == []
    assert talk.session.streams == {stream.id: stream}
    talk.session.close(stream)
    assert talk.session.streams == {}
    assert talk.session.stream_ended(stream.id) == []
    assert talk.ended == []


def test_a_stream_that_is_given_up_inside_a_message() -> None:
    talk = Talk()
    talk.hear_bytes(encode(SUBSCRIBE)[:5])
    (stream,) = talk.session.streams.values()
    assert talk.session.stream_ended(THEIRS) == [Closed(stream, well=False)]
    assert stream.opening is None
    talk.session.close(stream)
    assert talk.session.streams == {}


def test_a_stream_that_was_closed_is_not_given_up() -> None:
    talk = Talk()
    talk.opened(PUBLISH, ours=False)
    assert len(talk.hear(fin=True)) == 1
    # It no longer reads, either: that says nothing new.
    assert talk.session.stream_ended(THEIRS) == []


@sides
@openings
def test_what_comes_behind_the_end_is_not_looked_at(
    opening: Subscribe | PublishIntent, ours: bool
) -> None:
    # Who no longer reads may have written before, and QUIC brings that later.
    for close_first in (False, True):
        talk = Talk()
        stream = talk.opened(opening, ours=ours)
        if close_first:
            talk.session.close(stream)
        talk.session.stream_ended(stream.id)
        for data in (b"\0", b"\0\0\xff", encode(Fragment(9, 9, 9, b"x", True)), encode(SUBSCRIBE)):
            assert talk.hear_bytes(data, stream.id) == []
        if not close_first:
            talk.session.close(stream)
        for data in (b"\0\0\xff", encode(SUBSCRIBE)):
            assert talk.hear_bytes(data, stream.id) == []
        assert talk.hear_bytes(b"\xff", stream.id, fin=True) == []
        assert talk.session.stream_ended(stream.id) == []
        assert talk.session.streams == {}
        assert talk.finished == [stream.id]
        assert talk.ended == []


def test_nothing_is_said_on_a_half_that_is_closed() -> None:
    talk = Talk()
    stream = talk.opened(SUBSCRIBE, ours=False)
    talk.session.send(stream, SubscribeReply(Response.OK))
    talk.session.close(stream)
    talk.session.send(stream, SubscribeReply(Response.EXPIRED))
    talk.session.close(stream)
    assert talk.said(THEIRS) == [SubscribeReply(Response.OK)]
    assert talk.finished == [THEIRS]
    # The other half is open, and heard.
    assert words(talk.hear(SUBSCRIBE)) == [SUBSCRIBE]
    assert talk.hear(fin=True) == [Closed(stream, well=True)]
    assert talk.session.streams == {}


# -- how we give streams up ------------------------------------------------------------------------


@sides
@openings
@pytest.mark.parametrize("end", ["fin", "fin with words", "reset"])
def test_a_stream_that_we_give_up_is_over_with_its_last_byte(
    opening: Subscribe | PublishIntent, ours: bool, end: str
) -> None:
    talk = Talk()
    stream = talk.opened(opening, ours=ours)
    talk.session.abandon(stream, QuicrCode.CANCELLED)
    assert talk.ended == [(stream.id, QuicrCode.CANCELLED)]
    talk.session.abandon(stream, QuicrCode.NOT_READ)
    talk.session.close(stream)
    talk.session.send(stream, SubscribeReply(Response.OK))
    # What is on its way is neither heard nor judged.
    for data in (b"\0", encode(SUBSCRIBE), b"\0\0\0\0", encode(Fragment(9, 9, 9, b"x", True))):
        assert talk.hear_bytes(data, stream.id) == []
    assert talk.session.streams == {stream.id: stream}
    match end:
        case "fin":
            assert talk.hear_bytes(b"", stream.id, fin=True) == []
        case "fin with words":
            assert talk.hear_bytes(b"\0\0\0", stream.id, fin=True) == []
        case "reset":
            assert talk.session.stream_ended(stream.id) == []
    assert talk.session.streams == {}
    assert stream.is_over
    assert talk.finished == []
    assert talk.ended == [(stream.id, QuicrCode.CANCELLED)]
    assert talk.hear_bytes(b"\0\0\0", stream.id) == []
    assert talk.session.streams == {}


def test_a_half_that_is_closed_can_be_given_up_still() -> None:
    # What we said last may not have been sent yet.
    talk = Talk()
    stream = talk.opened(SUBSCRIBE, ours=False)
    talk.session.close(stream)
    talk.session.abandon(stream, QuicrCode.NOT_READ)
    assert talk.ended == [(THEIRS, QuicrCode.NOT_READ)]
    assert talk.hear(fin=True) == []
    assert talk.session.streams == {}


def test_a_stream_that_they_have_closed_is_over_when_we_give_it_up() -> None:
    for well in (True, False):
        talk = Talk()
        stream = talk.opened(SUBSCRIBE, ours=False)
        assert (talk.hear(fin=True) if well else talk.session.stream_ended(THEIRS)) == [
            Closed(stream, well)
        ]
        talk.session.abandon(stream, QuicrCode.CANCELLED)
        assert talk.session.streams == {}
        assert talk.ended == [(THEIRS, QuicrCode.CANCELLED)]


def test_a_stream_that_is_over_is_not_given_up() -> None:
    talk = Talk()
    stream = talk.opened(SUBSCRIBE, ours=False)
    talk.hear(fin=True)
    talk.session.close(stream)
    talk.session.abandon(stream, QuicrCode.CANCELLED)
    assert talk.ended == []


# -- streams that say nothing ----------------------------------------------------------------------


def test_a_stream_without_a_word_is_nothing() -> None:
    talk = Talk()
    assert talk.hear_bytes(b"") == []
    assert talk.session.streams == {}
    assert not talk.sent
    assert words(talk.hear(SUBSCRIBE)) == [SUBSCRIBE]


def test_a_stream_that_is_closed_without_a_word_is_closed_here_too() -> None:
    talk = Talk()
    assert talk.hear_bytes(b"", fin=True) == []
    assert talk.session.streams == {}
    assert talk.finished == [THEIRS]
    assert talk.said(THEIRS) == []
    assert talk.session.stream_ended(THEIRS) == []
    assert talk.ended == []


def test_a_stream_that_is_given_up_ahead_of_its_first_word_is_given_up_here_too() -> None:
    talk = Talk()
    assert talk.session.stream_ended(THEIRS) == []
    assert talk.ended == [(THEIRS, QuicrCode.CANCELLED)]
    assert talk.session.stream_ended(THEIRS) == []
    # What was on its way opens nothing.
    assert talk.hear(SUBSCRIBE) == []
    assert talk.hear_bytes(b"", fin=True) == []
    assert talk.session.streams == {}
    assert talk.ended == [(THEIRS, QuicrCode.CANCELLED)]
    assert talk.finished == []


# -- what we say -----------------------------------------------------------------------------------


@openings
def test_a_stream_of_ours_begins_with_its_opening(opening: Subscribe | PublishIntent) -> None:
    talk = Talk()
    first, second = talk.session.open(opening), talk.session.open(SUBSCRIBE)
    assert (first.id, first.ours, first.opening) == (1, True, opening)
    assert talk.said(1) == [opening]
    assert second.id == 5
    assert talk.session.streams == {1: first, 5: second}
    talk.session.send(first, StartPoint(Location(1, 1)))
    assert talk.said(1) == [StartPoint(Location(1, 1))]


def test_two_sessions_understand_each_other() -> None:
    relay, client = Talk(), Talk()
    media: list[Message] = [StartPoint(Location(1, 0)), Fragment(1, 0, 0, b"x", True)]
    subscribed = client.session.open(SUBSCRIBE)
    (asked,) = relay.hear_bytes(client.sent.pop(1), 1)
    for said in (SubscribeReply(Response.OK), *media):
        relay.session.send(asked.stream, said)
    relay.session.close(asked.stream)
    events = client.hear_bytes(relay.sent.pop(1), 1, fin=True)
    assert words(events[:-1]) == [SubscribeReply(Response.OK), *media]
    assert events[-1] == Closed(subscribed, well=True)
    client.session.close(subscribed)
    assert relay.hear_bytes(b"", 1, fin=True) == [Closed(asked.stream, well=True)]
    assert relay.session.streams == client.session.streams == {}


# -- nothing stays ---------------------------------------------------------------------------------


def test_thousands_of_streams_leave_nothing_behind() -> None:
    talk = Talk()
    subscribe, publish = encode(SUBSCRIBE), encode(PUBLISH)
    for number in range(0, 8 * OVER, 4):
        match number // 4 % 5:
            case 0:
                (event, _) = talk.hear_bytes(subscribe, number, fin=True)
                talk.session.close(event.stream)
            case 1:
                (event,) = talk.hear_bytes(publish, number)
                talk.session.stream_ended(number)
                talk.session.close(event.stream)
            case 2:
                (event,) = talk.hear_bytes(subscribe, number)
                talk.session.abandon(event.stream, QuicrCode.CANCELLED)
                talk.session.stream_ended(number)
            case 3:
                talk.hear_bytes(b"", number, fin=True)
            case 4:
                talk.session.stream_ended(number)
        assert talk.session.streams == {}
    assert len(talk.session._over) == OVER


steps = st.lists(
    st.tuples(
        st.sampled_from([0, 4]),
        st.sampled_from(["say", "fin", "reset", "close", "abandon", "send", "media"]),
    ),
    max_size=12,
)


@settings(max_examples=150)
@given(steps)
def test_each_stream_is_closed_once_whatever_happens_when(said: list[tuple[int, str]]) -> None:
    talk = Talk()
    streams: dict[int, ControlStream] = {}
    closed: dict[int, int] = {}
    written: set[int] = set()
    for stream_id, step in said:
        stream = streams.get(stream_id)
        events: list[Event] = []
        match step:
            case "say" if stream_id not in written:  # nothing follows a FIN or a reset
                events = talk.hear(
                    PUBLISH if stream is None else StartPoint(Location(0, 0)), stream=stream_id
                )
            case "media" if stream is not None and stream_id not in written:
                events = talk.hear(StartPoint(Location(0, 0)), stream=stream_id)
            case "fin" if stream_id not in written:
                written.add(stream_id)
                events = talk.hear(stream=stream_id, fin=True)
            case "reset":
                written.add(stream_id)
                events = talk.session.stream_ended(stream_id)
            case "close" if stream is not None:
                talk.session.close(stream)
            case "abandon" if stream is not None:
                talk.session.abandon(stream, QuicrCode.CANCELLED)
            case "send" if stream is not None:
                talk.session.send(stream, PublishIntentOk())
        for event in events:
            streams.setdefault(stream_id, event.stream)
            assert event.stream is streams[stream_id]
            assert not closed.get(stream_id)
            closed[stream_id] = isinstance(event, Closed)
    for stream_id, stream in streams.items():
        talk.session.close(stream)
        if stream_id not in written:
            talk.hear(stream=stream_id, fin=True)
    assert talk.session.streams == {}
    assert len(talk.finished) == len(set(talk.finished))
