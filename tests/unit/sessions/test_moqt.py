"""One MoQT session: how it begins, and which requests it takes and makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.sessions.control_streams import MAX_MESSAGE_BYTES
from laps.sessions.moqt import MoqtLimits
from laps.types import Location
from laps.wire.moqt.codes import MoqtViolation, RequestCode, SessionCode
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.messages import (
    ClientSetup,
    Fetch,
    FetchCancel,
    FetchOk,
    Goaway,
    JoiningFetch,
    MaxRequestId,
    Message,
    Publish,
    PublishDone,
    PublishNamespace,
    PublishNamespaceDone,
    PublishOk,
    RequestError,
    RequestOk,
    RequestsBlocked,
    ServerSetup,
    StandaloneFetch,
    Subscribe,
    SubscribeNamespace,
    SubscribeOk,
    Token,
    TokenAlias,
    TrackStatus,
    Unsubscribe,
    UnsubscribeNamespace,
)
from support.moqt_streams import LARGEST
from support.talks import (
    NAME,
    OTHER,
    ROOM,
    Talk,
    both,
    refused_with,
    sides,
    subscribe,
    update,
    violates,
)

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect


# -- setup -----------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_setups_are_exchanged_in_pieces_of_any_size(dialect: Dialect, step: int) -> None:
    talk = Talk(dialect, setup=False)
    data = dialect.encode(talk.setup(path=b"/x", authority=b"here", max_request_id=20))
    heard: list[Message] = []
    for at in range(0, len(data), step):
        assert not talk.session.ready
        heard += talk.hear_bytes(data[at : at + step])
    (setup,) = heard
    assert setup is talk.session.peer_setup
    assert talk.session.ready
    (answer,) = talk.said()
    assert isinstance(answer, ServerSetup)
    assert answer.version == (DRAFT14.version if dialect is DRAFT14 else None)
    assert answer.max_request_id == 2 * MoqtLimits().requests
    assert answer.max_token_cache_bytes == MoqtLimits().token_cache_bytes


@pytest.mark.parametrize(
    "versions", [(0xFF00000E,), (0xFF00000D, 0xFF00000E), (0xFF00000E, 0xFF000010, 1)]
)
def test_draft_14_is_chosen_from_whatever_else_is_offered(versions: tuple[int, ...]) -> None:
    talk = Talk(DRAFT14, setup=False)
    talk.hear(ClientSetup(versions))
    (answer,) = talk.said()
    assert isinstance(answer, ServerSetup)
    assert answer.version == 0xFF00000E
    assert talk.session.dialect is DRAFT14


@pytest.mark.parametrize("versions", [(0xFF00000D,), (1, 0xFF000010)])
def test_without_a_common_version_there_is_no_session(versions: tuple[int, ...]) -> None:
    talk = Talk(DRAFT14, setup=False)
    code = SessionCode.VERSION_NEGOTIATION_FAILED
    problem = refused_with(code, talk, ClientSetup(versions))
    assert f"{versions[0]:#x}" in problem
    assert talk.said() == []
    assert not talk.session.ready


def test_a_client_takes_no_version_that_it_did_not_offer() -> None:
    talk = Talk(DRAFT14, is_client=True, setup=False)
    talk.session.start()
    refused_with(SessionCode.VERSION_NEGOTIATION_FAILED, talk, ServerSetup(0xFF00000D))


@both
def test_a_client_says_where_it_wants_to_go_on_raw_quic_only(dialect: Dialect) -> None:
    for webtransport in (False, True):
        talk = Talk(dialect, is_client=True, webtransport=webtransport, setup=False)
        talk.session.start(b"/path", b"host")
        (setup,) = talk.said()
        assert isinstance(setup, ClientSetup)
        assert (setup.path, setup.authority) == (
            (None, None) if webtransport else (b"/path", b"host")
        )
        assert setup.max_request_id == 2 * MoqtLimits().requests + 1


@both
@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"path": b"/"}, SessionCode.INVALID_PATH),
        ({"authority": b"x"}, SessionCode.INVALID_AUTHORITY),
    ],
)
def test_path_and_authority_are_not_for_webtransport(
    dialect: Dialect, said: dict[str, bytes], code: SessionCode
) -> None:
    talk = Talk(dialect, webtransport=True, setup=False)
    refused_with(code, talk, talk.setup(**said))
    assert talk.said() == []


@both
@pytest.mark.parametrize("path", ["", "/", "/a/b", "//", "/a?b=c/d?e", "?x", "/%20:@!$&'()*+,;="])
@pytest.mark.parametrize(
    "authority",
    ["", "host", "host:4443", "127.0.0.1:1", "[::1]:4443", "[v1.a:b]", "me:you@host", "a%20b"],
)
def test_path_and_authority_as_uris_have_them(dialect: Dialect, path: str, authority: str) -> None:
    talk = Talk(dialect, setup=False)
    talk.hear(talk.setup(path=path.encode(), authority=authority.encode()))
    assert talk.session.ready


@both
@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"path": b"room"}, SessionCode.MALFORMED_PATH),
        ({"path": b"/a b"}, SessionCode.MALFORMED_PATH),
        ({"path": b"/a#b"}, SessionCode.MALFORMED_PATH),
        ({"path": b"/%2"}, SessionCode.MALFORMED_PATH),
        ({"path": b"/\xff"}, SessionCode.MALFORMED_PATH),
        ({"path": b"/\n"}, SessionCode.MALFORMED_PATH),
        ({"path": b"/" + 60_000 * b"\0"}, SessionCode.MALFORMED_PATH),
        ({"authority": b"a/b"}, SessionCode.MALFORMED_AUTHORITY),
        ({"authority": b"host:port"}, SessionCode.MALFORMED_AUTHORITY),
        ({"authority": b"::1"}, SessionCode.MALFORMED_AUTHORITY),
        ({"authority": b"[::1"}, SessionCode.MALFORMED_AUTHORITY),
        ({"authority": b"a@b@c"}, SessionCode.MALFORMED_AUTHORITY),
        ({"authority": b"host\n"}, SessionCode.MALFORMED_AUTHORITY),
    ],
)
def test_path_and_authority_that_no_uri_has_are_refused(
    dialect: Dialect, said: dict[str, bytes], code: SessionCode
) -> None:
    talk = Talk(dialect, setup=False)
    assert len(refused_with(code, talk, talk.setup(**said))) < 1000
    assert not talk.session.ready


@pytest.mark.parametrize(
    ("dialect", "said", "code"),
    [
        (DRAFT14, {"path": b"/"}, SessionCode.INVALID_PATH),
        (DRAFT16, {"path": b"/"}, SessionCode.INVALID_PATH),
        # Draft 14 gives this number another meaning from a server.
        (DRAFT16, {"authority": b"x"}, SessionCode.INVALID_AUTHORITY),
    ],
)
def test_path_and_authority_are_not_for_servers(
    dialect: Dialect, said: dict[str, bytes], code: SessionCode
) -> None:
    talk = Talk(dialect, is_client=True, setup=False)
    talk.session.start()
    refused_with(code, talk, talk.setup(**said))


@both
@sides
def test_a_second_setup_is_one_too_many(dialect: Dialect, is_client: bool) -> None:
    talk = Talk(dialect, is_client=is_client)
    violates(talk, talk.setup())


@sides
def test_the_wrong_setup_is_refused(is_client: bool) -> None:
    talk = Talk(DRAFT16, is_client=is_client, setup=False)
    if is_client:
        talk.session.start()
        violates(talk, ClientSetup())
    else:
        violates(talk, ServerSetup())
    other = Talk(DRAFT14, is_client=is_client, setup=False)
    if is_client:
        other.session.start()
    violates(other, subscribe())


@both
def test_a_setup_cannot_use_or_delete_tokens_it_has_not_registered(dialect: Dialect) -> None:
    for alias_type in (TokenAlias.USE_ALIAS, TokenAlias.DELETE):
        talk = Talk(dialect, setup=False)
        violates(talk, talk.setup(tokens=(Token(alias_type, 3),)))


@both
def test_tokens_of_the_setup_are_used_by_requests(dialect: Dialect) -> None:
    talk = Talk(dialect, setup=False)
    talk.hear(talk.setup(tokens=(Token(TokenAlias.REGISTER, 3, 1, b"secret"),)))
    wanted = Subscribe(0, NAME, LARGEST, tokens=(Token(TokenAlias.USE_ALIAS, 3),))
    (heard,) = talk.hear(wanted)
    assert isinstance(heard, Subscribe)
    assert heard.tokens == (Token(TokenAlias.USE_VALUE, None, 1, b"secret"),)


def test_what_comes_ahead_of_the_setup_waits_for_it() -> None:
    talk = Talk(DRAFT16, setup=False)
    assert talk.hear(SubscribeNamespace(0, ROOM), stream=4) == []
    assert talk.hear(SubscribeNamespace(2, (b"else",)), stream=8, fin=True) == []
    heard = talk.hear(talk.setup(), stream=0)
    kinds = [type(message) for message in heard]
    assert kinds == [ClientSetup, SubscribeNamespace, SubscribeNamespace, UnsubscribeNamespace]


def test_nothing_else_comes_ahead_of_the_setup() -> None:
    violates(Talk(DRAFT16, setup=False), subscribe(), stream=4)


def test_draft_14_has_nothing_ahead_of_the_setup() -> None:
    violates(Talk(DRAFT14, setup=False), SubscribeNamespace(0, ROOM), stream=4)


def test_what_waits_for_the_setup_has_a_bound() -> None:
    talk = Talk(DRAFT16, setup=False)
    with pytest.raises(MoqtViolation):
        talk.hear_bytes(b"\x11" + bytes(MAX_MESSAGE_BYTES), 4)


# -- the control stream ----------------------------------------------------------------------------


@both
@sides
def test_the_control_stream_stays_open(dialect: Dialect, is_client: bool) -> None:
    talk = Talk(dialect, is_client=is_client)
    with pytest.raises(MoqtViolation):
        talk.hear_bytes(b"", fin=True)
    talk = Talk(dialect, is_client=is_client)
    with pytest.raises(MoqtViolation):
        list(talk.session.stream_ended(0))


@both
def test_messages_come_in_pieces_of_any_size(dialect: Dialect) -> None:
    messages: list[Message] = [subscribe(0), PublishNamespace(2, ROOM), Unsubscribe(0)]
    data = b"".join(map(dialect.encode, messages))
    for step in range(1, len(data) + 1):
        talk = Talk(dialect)
        heard: list[Message] = []
        for at in range(0, len(data), step):
            heard += talk.hear_bytes(data[at : at + step])
        assert heard == messages


@both
def test_each_message_can_be_acted_on_before_the_next_is_read(dialect: Dialect) -> None:
    talk = Talk(dialect)
    data = dialect.encode(subscribe(0)) + dialect.encode(Unsubscribe(0))
    messages = talk.session.receive(0, data)
    assert next(messages) == subscribe(0)
    assert list(talk.session.incoming) == [0]
    assert next(messages) == Unsubscribe(0)
    assert talk.session.incoming == {}


@both
def test_unknown_messages_close_the_session(dialect: Dialect) -> None:
    with pytest.raises(MoqtViolation):
        Talk(dialect).hear_bytes(b"\x3f\x00\x00")


@both
def test_other_streams_begin_with_nothing_but_subscribe_namespace(dialect: Dialect) -> None:
    violates(Talk(dialect), subscribe(), stream=4)
    violates(Talk(dialect), Goaway(), stream=4)
    if dialect is DRAFT14:
        violates(Talk(dialect), SubscribeNamespace(0, ROOM), stream=4)


# -- request ids -----------------------------------------------------------------------------------


@both
@sides
@pytest.mark.parametrize("ids", [[1], [0, 0], [0, 2, 1], [0, 2, 0]])
def test_ids_that_are_not_the_next_are_refused(
    dialect: Dialect, is_client: bool, ids: list[int]
) -> None:
    talk = Talk(dialect, is_client=is_client)
    first = 1 if is_client else 0
    *good, bad = (subscribe(number + first) for number in ids)
    if is_client and bad.request_id == first + 1:
        bad = subscribe(first + 1)
    talk.hear(*good)
    refused_with(SessionCode.INVALID_REQUEST_ID, talk, bad)


def test_draft_14_leaves_out_no_ids() -> None:
    refused_with(SessionCode.INVALID_REQUEST_ID, Talk(DRAFT14), subscribe(2))


def test_ids_may_overtake_each_other_where_they_come_by_several_streams() -> None:
    talk = Talk(DRAFT16)
    talk.hear(subscribe(4))  # those before it are on streams that come later
    talk.hear(SubscribeNamespace(2, ROOM), stream=8)
    talk.hear(SubscribeNamespace(0, (b"x",)), stream=4)
    assert sorted(talk.session.incoming) == [0, 2, 4]
    for used in (0, 2, 4):
        refused_with(SessionCode.INVALID_REQUEST_ID, talk, subscribe(used))
    assert talk.hear(subscribe(6))


@both
@pytest.mark.parametrize("request_id", [4, 6, 1000])
def test_ids_past_the_limit_are_too_many(dialect: Dialect, request_id: int) -> None:
    talk = Talk(dialect, limits=MoqtLimits(requests=2))
    talk.hear(subscribe(0), subscribe(2))
    refused_with(SessionCode.TOO_MANY_REQUESTS, talk, subscribe(request_id))


@both
def test_requests_that_end_make_room_for_others(dialect: Dialect) -> None:
    talk = Talk(dialect, limits=MoqtLimits(requests=4))
    talk.hear(*(subscribe(number) for number in (0, 2, 4, 6)))
    talk.hear(Unsubscribe(0))
    assert talk.said() == []  # a good part of the limit at a time
    talk.hear(Unsubscribe(2))
    assert talk.said() == [MaxRequestId(12)]
    talk.hear(subscribe(8), subscribe(10))
    refused_with(SessionCode.TOO_MANY_REQUESTS, talk, subscribe(12))


@both
def test_who_is_blocked_is_given_what_there_is(dialect: Dialect) -> None:
    talk = Talk(dialect, limits=MoqtLimits(requests=4))
    talk.hear(*(subscribe(number) for number in (0, 2, 4, 6)))
    talk.hear(RequestsBlocked(8))
    assert talk.said() == []
    talk.hear(Unsubscribe(0))  # it has said that it waits, and may have nothing else to end
    assert talk.said() == [MaxRequestId(10)]
    talk.hear(Unsubscribe(2))
    assert talk.said() == []
    talk.hear(RequestsBlocked(10))
    assert talk.said() == [MaxRequestId(12)]


@both
@pytest.mark.parametrize("refusal", [False, True])
def test_every_kind_of_request_gives_its_share_back(dialect: Dialect, refusal: bool) -> None:
    """Ten times as many requests as may be open at once, each brought to its end."""
    talk = Talk(dialect, limits=MoqtLimits(requests=8))
    for turn in range(10):
        ids = iter(range(16 * turn, 16 * turn + 16, 2))
        sub, upd, pub, fetch, status, ns, watch, late = (next(ids) for _ in range(8))
        talk.hear(subscribe(sub), update(upd, sub))
        talk.session.send(RequestOk(upd))
        talk.hear(
            Publish(pub, OTHER, turn),
            Fetch(fetch, JoiningFetch(sub, 0, relative=True)),
            TrackStatus(status, NAME),
            PublishNamespace(ns, ROOM),
        )
        stream = 4 + 4 * turn if dialect is DRAFT16 else 0
        talk.hear(SubscribeNamespace(watch, ROOM), stream=stream)
        if refusal:
            for number in (sub, pub, fetch, status, ns, watch):
                talk.session.send(RequestError(number, RequestCode.NOT_SUPPORTED))
        else:
            talk.session.send(SubscribeOk(sub, 7))
            talk.session.send(PublishOk(pub))
            talk.session.send(FetchOk(fetch, Location(0, 1)))
            for number in (status, ns, watch):
                talk.session.send(RequestOk(number))
            talk.hear(Unsubscribe(sub), FetchCancel(fetch))
            talk.hear(PublishDone(pub, 2), PublishNamespaceDone(ns, ROOM))
            if dialect is DRAFT14:
                talk.hear(UnsubscribeNamespace(ROOM))
            else:
                talk.hear_bytes(b"", stream, fin=True)
        talk.hear(update(late, sub))  # it has crossed the end of the subscription
        assert talk.session.incoming == {}
        talk.session.drop_alias(turn)


@both
def test_an_update_of_what_has_ended_is_answered_where_updates_are(dialect: Dialect) -> None:
    talk = Talk(dialect)
    talk.hear(subscribe(0), Unsubscribe(0))
    assert talk.hear(update(2, 0)) == []
    answers = [(type(m), getattr(m, "request_id", None)) for m in talk.said()]
    assert answers == ([(RequestError, 2)] if dialect is DRAFT16 else [])
    violates(talk, update(4, 40))


# -- our own requests ------------------------------------------------------------------------------


@both
@sides
def test_our_ids_are_those_of_our_side(dialect: Dialect, is_client: bool) -> None:
    talk = Talk(dialect, is_client=is_client)
    first = 0 if is_client else 1
    ids = [talk.session.request(subscribe()) for _ in range(3)]
    assert ids == [first, first + 2, first + 4]
    assert talk.said() == [subscribe(number) for number in ids]


@both
def test_requests_wait_for_the_setup(dialect: Dialect) -> None:
    talk = Talk(dialect, setup=False)
    talk.session.request(subscribe())
    assert talk.said() == []
    talk.hear(talk.setup(max_request_id=10))
    assert [type(message) for message in talk.said()] == [ServerSetup]
    talk.session.flush()
    assert talk.said() == [subscribe(1)]


@both
def test_requests_past_the_limit_wait_and_say_so_once(dialect: Dialect) -> None:
    talk = Talk(dialect, max_request_id=2)
    for _ in range(4):
        talk.session.request(subscribe())
    assert talk.said() == [subscribe(1), RequestsBlocked(2)]
    talk.hear(MaxRequestId(4))
    assert talk.said() == [subscribe(3), RequestsBlocked(4)]
    talk.hear(MaxRequestId(100))
    assert talk.said() == [subscribe(5), subscribe(7)]


@both
@pytest.mark.parametrize("most", [0, 9, 10])
def test_the_limit_only_grows(dialect: Dialect, most: int) -> None:
    violates(Talk(dialect, max_request_id=10), MaxRequestId(most))


@both
def test_a_request_that_is_taken_back_while_it_waits_is_taken_back_behind_itself(
    dialect: Dialect,
) -> None:
    """Ids are without gaps, so that it has to be made all the same."""
    talk = Talk(dialect, max_request_id=0)
    fetch = Fetch(0, StandaloneFetch(NAME, Location(0, 0), Location(1, 0)))
    asked = [talk.session.request(subscribe()), talk.session.request(fetch)]
    talk.session.send(Unsubscribe(asked[0]))
    talk.session.send(FetchCancel(asked[1]))
    third = talk.session.request(subscribe())
    assert talk.said() == [RequestsBlocked(0)]
    talk.hear(MaxRequestId(100))
    said = talk.said()
    assert [message.request_id for message in said if isinstance(message, Subscribe | Fetch)] == [
        *asked,
        third,
    ]
    assert said.index(Unsubscribe(asked[0])) > 0
    assert FetchCancel(asked[1]) in said[2:]


def test_a_namespace_subscription_that_is_taken_back_while_it_waits() -> None:
    talk = Talk(DRAFT16, is_client=True, max_request_id=0)
    request_id = talk.session.request(SubscribeNamespace(0, ROOM))
    talk.session.unsubscribe_namespace(request_id)
    talk.said()
    talk.hear(MaxRequestId(100))
    assert talk.said() == []
    assert talk.said(4) == [SubscribeNamespace(0, ROOM)]
    assert talk.finished == [4]


@both
def test_how_many_may_wait_is_told(dialect: Dialect) -> None:
    talk = Talk(dialect, limits=MoqtLimits(waiting=2), max_request_id=0)
    assert talk.session.can_request
    talk.session.request(subscribe())
    assert talk.session.can_request
    talk.session.request(subscribe())
    full = not talk.session.can_request
    talk.hear(MaxRequestId(100))
    assert full
    assert talk.session.can_request
