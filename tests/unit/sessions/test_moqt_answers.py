"""One MoQT session: how requests are answered, and how they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.types import Location
from laps.wire.moqt.codes import MoqtViolation, RequestCode, SessionCode
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.messages import (
    Fetch,
    FetchCancel,
    FetchOk,
    Goaway,
    Message,
    Publish,
    PublishDone,
    PublishNamespace,
    PublishNamespaceCancel,
    PublishNamespaceDone,
    PublishOk,
    RequestError,
    RequestKind,
    RequestOk,
    RequestUpdate,
    StandaloneFetch,
    SubscribeNamespace,
    SubscribeOk,
    TrackStatus,
    Unsubscribe,
)
from support.moqt_streams import DRAFTS
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
    from laps.sessions.requests import Request
    from laps.wire.moqt.dialect import Dialect

KIND = RequestKind


# -- answers ---------------------------------------------------------------------------------------

ASKED: dict[RequestKind, Request] = {
    KIND.SUBSCRIBE: subscribe(),
    KIND.PUBLISH: Publish(0, NAME, 1),
    KIND.FETCH: Fetch(0, StandaloneFetch(NAME, Location(0, 0), Location(1, 0))),
    KIND.TRACK_STATUS: TrackStatus(0, NAME),
    KIND.PUBLISH_NAMESPACE: PublishNamespace(0, ROOM),
    KIND.SUBSCRIBE_NAMESPACE: SubscribeNamespace(0, ROOM),
}


def answer_to(kind: RequestKind, request_id: int, dialect: Dialect) -> Message:
    said = kind if dialect is DRAFT14 else None
    match kind:
        case KIND.SUBSCRIBE:
            return SubscribeOk(request_id, 1)
        case KIND.PUBLISH:
            return PublishOk(request_id)
        case KIND.FETCH:
            return FetchOk(request_id, Location(0, 1))
        case _:
            return RequestOk(request_id, said)


@both
@pytest.mark.parametrize("kind", ASKED, ids=lambda kind: kind.name)
@pytest.mark.parametrize("refusal", [False, True])
def test_answers_know_what_was_asked(dialect: Dialect, kind: RequestKind, refusal: bool) -> None:
    talk = Talk(dialect, is_client=True)
    request_id = talk.session.request(ASKED[kind])
    stream = 4 if dialect is DRAFT16 and kind is KIND.SUBSCRIBE_NAMESPACE else 0
    answer = answer_to(kind, request_id, dialect)
    if refusal:
        answer = RequestError(request_id, 0x3, "no", kind=kind if dialect is DRAFT14 else None)
    (heard,) = talk.hear(answer, stream=stream)
    if isinstance(heard, RequestOk | RequestError):
        assert heard.kind is kind
    if refusal or stream == 0:
        # Twice is once too often; on the stream of a namespace there is nothing behind an error.
        if stream and refusal:
            assert talk.hear(answer, stream=stream) == []
        else:
            violates(talk, answer, stream=stream)


@both
@pytest.mark.parametrize("asked", [KIND.SUBSCRIBE, KIND.PUBLISH, KIND.FETCH, KIND.TRACK_STATUS])
@pytest.mark.parametrize("answered", [KIND.SUBSCRIBE, KIND.PUBLISH, KIND.FETCH, KIND.TRACK_STATUS])
def test_an_answer_of_the_wrong_kind_is_a_violation(
    dialect: Dialect, asked: RequestKind, answered: RequestKind
) -> None:
    talk = Talk(dialect, is_client=True)
    answer = answer_to(answered, talk.session.request(ASKED[asked]), dialect)
    if asked is answered:
        assert talk.hear(answer)
    else:
        violates(talk, answer)


def test_draft_14_names_the_kind_of_what_it_refuses() -> None:
    talk = Talk(DRAFT14, is_client=True)
    talk.session.request(subscribe())
    violates(talk, RequestError(0, 0x3, kind=KIND.FETCH))


@both
def test_an_answer_to_nothing_is_a_violation(dialect: Dialect) -> None:
    violates(Talk(dialect), SubscribeOk(1, 1))
    violates(Talk(dialect), SubscribeOk(0, 1))


@both
@pytest.mark.parametrize("kind", [KIND.SUBSCRIBE, KIND.FETCH, KIND.PUBLISH], ids=lambda k: k.name)
@pytest.mark.parametrize("refusal", [False, True])
def test_an_answer_may_cross_the_end_of_its_request(
    dialect: Dialect, kind: RequestKind, refusal: bool
) -> None:
    talk = Talk(dialect)
    request_id = talk.session.request(ASKED[kind])
    ends: dict[RequestKind, Message] = {
        KIND.SUBSCRIBE: Unsubscribe(request_id),
        KIND.FETCH: FetchCancel(request_id),
        KIND.PUBLISH: PublishDone(request_id, 2),
    }
    talk.session.send(ends[kind])
    answer = answer_to(kind, request_id, dialect)
    if refusal:
        answer = RequestError(request_id, 0x3, kind=kind if dialect is DRAFT14 else None)
    assert talk.hear(answer) == []
    assert talk.session.outgoing == {}
    assert talk.session.aliases == {}
    violates(talk, answer)


@both
def test_an_answer_is_given_once(dialect: Dialect) -> None:
    talk = Talk(dialect)
    talk.hear(TrackStatus(0, NAME), PublishNamespace(2, ROOM))
    for _ in range(2):
        talk.session.send(RequestOk(0, largest=Location(1, 2)))
        talk.session.send(RequestOk(2))
        talk.session.send(RequestError(2, RequestCode.NOT_SUPPORTED))
    status, namespace = talk.said()
    assert isinstance(status, RequestOk)
    assert status.largest == Location(1, 2)
    assert isinstance(namespace, RequestOk)


def test_only_draft_16_answers_updates() -> None:
    for dialect in DRAFTS:
        talk = Talk(dialect)
        talk.hear(subscribe(0))
        (heard,) = talk.hear(update(2, 0))
        assert isinstance(heard, RequestUpdate)
        talk.session.send(RequestOk(2, largest=Location(1, 1)))
        assert len(talk.said()) == (dialect is DRAFT16)
        ours = talk.session.request(update(0, 0))
        assert (ours in talk.session.outgoing) == (dialect is DRAFT16)


# -- ends ------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    "message",
    [Unsubscribe(0), Unsubscribe(1), FetchCancel(0), PublishDone(1, 2), PublishDone(0, 2)],
    ids=str,
)
def test_what_has_never_been_cannot_end(dialect: Dialect, message: Message) -> None:
    violates(Talk(dialect), message)


def test_a_namespace_that_has_never_been_cannot_end() -> None:
    for message in (PublishNamespaceDone(0), PublishNamespaceCancel(3, request_id=1)):
        violates(Talk(DRAFT16), message)
    # Draft 14 gives names, and does not say.
    for message in (PublishNamespaceDone(None, ROOM), PublishNamespaceCancel(3, namespace=ROOM)):
        assert Talk(DRAFT14).hear(message) == []


@both
def test_ends_that_cross_each_other_are_no_violation(dialect: Dialect) -> None:
    talk = Talk(dialect)
    talk.hear(subscribe(0), Publish(2, OTHER, 1))
    talk.session.send(PublishDone(0, 2))
    talk.session.send(Unsubscribe(2))
    assert talk.hear(Unsubscribe(0), PublishDone(2, 2)) == []
    mine = talk.session.request(subscribe())
    talk.session.send(Unsubscribe(mine))
    assert talk.hear(PublishDone(mine, 2)) == []


@both
@pytest.mark.parametrize(
    "end",
    [
        lambda fetch, _sub, _pub: Unsubscribe(fetch),
        lambda fetch, _sub, _pub: PublishDone(fetch, 2),
        lambda _fetch, sub, _pub: FetchCancel(sub),
        # The right end, by the wrong side.
        lambda _fetch, sub, _pub: PublishDone(sub, 2),
        lambda _fetch, _sub, pub: Unsubscribe(pub),
    ],
    ids=["unsubscribe a fetch", "end a fetch", "cancel a subscription", "subscriber", "publisher"],
)
def test_a_request_ends_in_its_own_way(dialect: Dialect, end: object) -> None:
    talk = Talk(dialect)
    fetch = Fetch(0, StandaloneFetch(NAME, Location(0, 0), Location(1, 0)))
    talk.hear(fetch, subscribe(2), Publish(4, OTHER, 1))
    violates(talk, end(0, 2, 4))  # type: ignore[operator]


@both
def test_both_sides_may_end_a_subscription(dialect: Dialect) -> None:
    """Those that were asked for, and those that were offered."""
    talk = Talk(dialect)
    wanted, offered = talk.session.request(subscribe()), talk.session.request(Publish(0, OTHER, 5))
    talk.hear(SubscribeOk(wanted, 9), PublishOk(offered), subscribe(0), Publish(2, OTHER, 10))
    ends: list[Message] = [
        PublishDone(wanted, 2),
        Unsubscribe(offered),
        Unsubscribe(0),
        PublishDone(2, 2),
    ]
    assert talk.hear(*ends) == ends
    assert talk.session.incoming == talk.session.outgoing == {}


@both
def test_namespaces_are_withdrawn_by_either_side(dialect: Dialect) -> None:
    talk = Talk(dialect)
    talk.hear(PublishNamespace(0, ROOM), PublishNamespace(2, (b"else",)))
    (done,) = talk.hear(PublishNamespaceDone(0, ROOM))
    assert done == PublishNamespaceDone(0, ROOM)
    talk.session.send(PublishNamespaceCancel(3, "no", 2))
    mine = talk.session.request(PublishNamespace(0, ROOM))
    (cancelled,) = talk.hear(PublishNamespaceCancel(3, "no", mine, ROOM))
    assert isinstance(cancelled, PublishNamespaceCancel)
    assert (cancelled.request_id, cancelled.namespace) == (mine, ROOM)
    assert talk.session.incoming == talk.session.outgoing == {}
    # Each draft names what is withdrawn in its own way, and the session knows both.
    again = talk.session.request(PublishNamespace(0, ROOM))
    talk.said()
    talk.session.send(PublishNamespaceDone(again))
    (said,) = talk.said()
    names = {DRAFT14: (None, ROOM), DRAFT16: (again, None)}
    assert said == PublishNamespaceDone(*names[dialect])


# -- aliases ---------------------------------------------------------------------------------------


@both
def test_an_alias_stands_for_one_track(dialect: Dialect) -> None:
    talk = Talk(dialect)
    talk.hear(Publish(0, NAME, 5))
    assert talk.session.aliases == {5: 0}
    refused_with(SessionCode.DUPLICATE_TRACK_ALIAS, talk, Publish(2, OTHER, 5))


@both
def test_an_alias_of_a_subscription_is_not_one_of_another(dialect: Dialect) -> None:
    talk = Talk(dialect)
    mine = talk.session.request(subscribe())
    talk.hear(Publish(0, OTHER, 5))
    refused_with(SessionCode.DUPLICATE_TRACK_ALIAS, talk, SubscribeOk(mine, 5))


@both
def test_an_alias_may_be_used_again(dialect: Dialect) -> None:
    """For the same track at any time, and for another when nothing is expected of the first."""
    talk = Talk(dialect)
    talk.hear(Publish(0, NAME, 5), PublishDone(0, 2))
    assert talk.hear(Publish(2, NAME, 5))
    assert talk.session.aliases == {5: 2}
    talk.session.drop_alias(5)
    assert talk.hear(Publish(4, OTHER, 5))
    assert talk.session.aliases == {5: 4}


# -- GOAWAY ----------------------------------------------------------------------------------------


@both
@sides
def test_goaway_comes_once(dialect: Dialect, is_client: bool) -> None:
    talk = Talk(dialect, is_client=is_client)
    assert talk.hear(Goaway()) == [Goaway()]
    assert talk.session.goaway == Goaway()
    violates(talk, Goaway())


@both
def test_only_a_server_says_where_to_go(dialect: Dialect) -> None:
    assert Talk(dialect, is_client=True).hear(Goaway(b"moqt://there")) == [Goaway(b"moqt://there")]
    violates(Talk(dialect), Goaway(b"moqt://there"))


@both
def test_goaway_is_said_once(dialect: Dialect) -> None:
    talk = Talk(dialect)
    talk.session.send(Goaway())
    talk.session.send(Goaway(b"x"))
    assert talk.said() == [Goaway()]


@both
def test_fetch_ok_that_ends_before_the_range_begins_closes_the_session(dialect: Dialect) -> None:
    talk = Talk(dialect, is_client=True)
    wanted = StandaloneFetch(NAME, Location(5, 2), Location(9, 0))
    request_id = talk.session.request(Fetch(0, wanted))
    with pytest.raises(MoqtViolation, match="ends before"):
        talk.hear(FetchOk(request_id, Location(5, 2)))
