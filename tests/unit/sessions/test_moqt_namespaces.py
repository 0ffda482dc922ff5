"""One MoQT session: how the drafts talk of namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.sessions.moqt import MoqtLimits
from laps.wire.moqt.codes import MoqtViolation, RequestCode
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.messages import (
    Goaway,
    MaxRequestId,
    NamespaceAdded,
    NamespaceDone,
    PublishNamespace,
    PublishNamespaceDone,
    RequestError,
    RequestKind,
    RequestOk,
    SubscribeNamespace,
    UnsubscribeNamespace,
)
from support.talks import ROOM, Talk, both, subscribe, violates

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Message

KIND = RequestKind


# -- namespaces ------------------------------------------------------------------------------------


def watching(dialect: Dialect, prefix: tuple[bytes, ...] = ROOM) -> Talk:
    """A server that has accepted a SUBSCRIBE_NAMESPACE, on stream 4 in draft 16."""
    talk = Talk(dialect)
    (heard,) = talk.hear(SubscribeNamespace(0, prefix), stream=4 if dialect is DRAFT16 else 0)
    assert isinstance(heard, SubscribeNamespace)
    talk.session.send(RequestOk(0))
    return talk


def test_draft_14_talks_of_namespaces_on_the_control_stream() -> None:
    talk = watching(DRAFT14)
    said_id = talk.session.tell_namespace(0, (*ROOM, b"a"))
    assert said_id == 1
    talk.session.tell_namespace_gone(0, (*ROOM, b"a"), said_id)
    assert talk.said() == [
        RequestOk(0, KIND.SUBSCRIBE_NAMESPACE),
        PublishNamespace(1, (*ROOM, b"a")),
        PublishNamespaceDone(None, (*ROOM, b"a")),
    ]
    assert talk.hear(UnsubscribeNamespace(ROOM)) == [UnsubscribeNamespace(ROOM)]
    assert talk.hear(UnsubscribeNamespace(ROOM)) == []
    assert talk.session.tell_namespace(0, (*ROOM, b"b")) is None
    assert talk.said() == []


def test_draft_16_talks_of_namespaces_on_a_stream_of_their_own() -> None:
    talk = watching(DRAFT16)
    assert talk.session.tell_namespace(0, (*ROOM, b"a")) is None
    assert talk.session.tell_namespace(0, ROOM) is None
    talk.session.tell_namespace_gone(0, (*ROOM, b"a"), None)
    assert talk.said(4) == [
        RequestOk(0),
        NamespaceAdded((b"a",)),
        NamespaceAdded(()),
        NamespaceDone((b"a",)),
    ]
    assert talk.said() == []


@pytest.mark.parametrize("how", ["fin", "reset"])
def test_draft_16_ends_a_namespace_subscription_with_its_stream(how: str) -> None:
    talk = watching(DRAFT16)
    if how == "fin":
        heard = talk.hear_bytes(b"", 4, fin=True)
    else:
        heard = list(talk.session.stream_ended(4))
    assert heard == [UnsubscribeNamespace(ROOM)]
    assert talk.finished == [4]
    assert talk.session.incoming == {}
    talk.session.tell_namespace_gone(0, ROOM, None)
    assert list(talk.session.stream_ended(4)) == []


def test_draft_16_keeps_each_message_to_its_stream() -> None:
    violates(Talk(DRAFT16), SubscribeNamespace(0, ROOM))
    violates(watching(DRAFT16), NamespaceAdded((b"a",)))
    violates(watching(DRAFT16), subscribe(2), stream=4)
    violates(watching(DRAFT16), SubscribeNamespace(2, (b"x",)), stream=4)


def test_a_stream_that_ends_inside_a_message_is_a_violation() -> None:
    data = DRAFT16.encode(SubscribeNamespace(0, ROOM))
    with pytest.raises(MoqtViolation):
        Talk(DRAFT16).hear_bytes(data[:-1], 4, fin=True)


@both
@pytest.mark.parametrize(
    ("prefix", "overlaps"),
    [(ROOM, True), ((*ROOM, b"a"), True), ((b"demo",), True), ((b"demo", b"else"), False)],
)
def test_prefixes_of_one_session_do_not_overlap(
    dialect: Dialect, prefix: tuple[bytes, ...], overlaps: bool
) -> None:
    talk = watching(dialect)
    talk.said()
    stream = 8 if dialect is DRAFT16 else 0
    heard = talk.hear(SubscribeNamespace(2, prefix), stream=stream)
    assert bool(heard) != overlaps
    if overlaps:
        (error,) = talk.said(stream)
        assert isinstance(error, RequestError)
        assert (error.request_id, error.code) == (2, RequestCode.PREFIX_OVERLAP)
        assert talk.finished == ([8] if dialect is DRAFT16 else [])
        assert list(talk.session.incoming) == [0]
        # The stream is over for the other side too, which is no news.
        if dialect is DRAFT16:
            assert talk.hear_bytes(b"", 8, fin=True) == []


def test_the_empty_prefix_overlaps_with_all() -> None:
    talk = watching(DRAFT16, ())
    assert talk.hear(SubscribeNamespace(2, ROOM), stream=8) == []


@both
def test_a_prefix_may_be_taken_again(dialect: Dialect) -> None:
    talk = watching(dialect)
    if dialect is DRAFT14:
        talk.hear(UnsubscribeNamespace(ROOM))
        assert talk.hear(SubscribeNamespace(2, ROOM))
    else:
        talk.hear_bytes(b"", 4, fin=True)
        assert talk.hear(SubscribeNamespace(2, ROOM), stream=8)


def test_a_client_hears_whole_namespaces() -> None:
    talk = Talk(DRAFT16, is_client=True)
    request_id = talk.session.request(SubscribeNamespace(0, ROOM))
    assert talk.said(4) == [SubscribeNamespace(request_id, ROOM)]
    heard = talk.hear(
        RequestOk(request_id),
        NamespaceAdded((b"a",)),
        NamespaceAdded(()),
        NamespaceDone((b"a",)),
        stream=4,
    )
    assert heard[1:] == [
        NamespaceAdded((*ROOM, b"a")),
        NamespaceAdded(ROOM),
        NamespaceDone((*ROOM, b"a")),
    ]
    talk.session.unsubscribe_namespace(request_id)
    assert talk.finished == [4]
    assert talk.session.outgoing == {}


def test_a_client_hears_an_answer_before_namespaces_and_nothing_else() -> None:
    for message in (NamespaceAdded(()), NamespaceDone(()), Goaway()):
        talk = Talk(DRAFT16, is_client=True)
        talk.session.request(SubscribeNamespace(0, ROOM))
        violates(talk, message, stream=4)


@both
def test_what_crosses_the_end_of_a_namespace_subscription_is_passed_over(dialect: Dialect) -> None:
    talk = Talk(dialect, is_client=True)
    request_id = talk.session.request(SubscribeNamespace(0, ROOM))
    talk.session.unsubscribe_namespace(request_id)
    if dialect is DRAFT14:
        assert talk.hear(RequestOk(request_id, KIND.SUBSCRIBE_NAMESPACE)) == []
    else:
        late: list[Message] = [
            RequestOk(request_id),
            NamespaceAdded((b"a",)),
            NamespaceDone((b"a",)),
        ]
        assert talk.hear(*late, stream=4) == []
        assert talk.hear_bytes(b"", 4, fin=True) == []
    violates(talk, RequestOk(request_id, KIND.SUBSCRIBE_NAMESPACE))


@both
def test_the_answer_to_a_namespace_may_cross_its_end(dialect: Dialect) -> None:
    talk = Talk(dialect)
    request_id = talk.session.request(PublishNamespace(0, ROOM))
    talk.session.send(PublishNamespaceDone(request_id))
    assert talk.hear(RequestOk(request_id, KIND.PUBLISH_NAMESPACE)) == []


def test_a_namespace_stream_that_ends_unanswered_is_a_refusal() -> None:
    talk = Talk(DRAFT16, is_client=True)
    request_id = talk.session.request(SubscribeNamespace(0, ROOM))
    (heard,) = talk.hear_bytes(b"", 4, fin=True)
    assert isinstance(heard, RequestError)
    assert (heard.request_id, heard.kind) == (request_id, KIND.SUBSCRIBE_NAMESPACE)
    assert talk.session.outgoing == {}


def test_the_namespaces_of_a_client_without_credit_do_not_pile_up() -> None:
    talk = Talk(DRAFT14, limits=MoqtLimits(waiting=3), max_request_id=0)
    talk.hear(SubscribeNamespace(0, ROOM))
    said = [talk.session.tell_namespace(0, (*ROOM, b"%d" % number)) for number in range(5)]
    assert said[3:] == [None, None]
    assert not talk.session.can_request
    for number, said_id in enumerate(said):
        talk.session.tell_namespace_gone(0, (*ROOM, b"%d" % number), said_id)
    talk.said()
    talk.hear(MaxRequestId(100))
    assert len(talk.said()) == 6


def test_a_namespace_that_was_not_told_of_cannot_be_gone() -> None:
    talk = Talk(DRAFT16, is_client=True)
    request_id = talk.session.request(SubscribeNamespace(0, ROOM))
    talk.said(4)
    talk.hear(RequestOk(request_id), NamespaceAdded((b"a",)), NamespaceDone((b"a",)), stream=4)
    with pytest.raises(MoqtViolation, match="not told of"):
        talk.hear(NamespaceDone((b"a",)), stream=4)
