"""Mistakes that are understood, and counted; a strict session closes for them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from laps.sessions.moqt import MoqtLimits
from laps.wire.moqt.codes import MoqtViolation, SessionCode
from laps.wire.moqt.dialect import DRAFT16
from laps.wire.moqt.messages import (
    MaxRequestId,
    PublishOk,
    RequestsBlocked,
    Subscribe,
    TrackStatus,
)
from laps.wire.moqt.tolerance import Tolerance
from support.talks import NAME, OTHER, Talk, both, subscribe
from unit.wire.moqt.vectors import Case, with_key

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect

MISTAKES = [
    case for case in with_key("tolerated") if case.meaning["message"] in ("Publish", "TrackStatus")
]
mistakes = pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case.name)


@mistakes
def test_tolerated_messages_are_counted_and_come_out(case: Case) -> None:
    talk = Talk(DRAFT16)
    (message,) = talk.hear_bytes(case.data)
    assert type(message).__name__ == case.meaning["message"]
    assert talk.session.tolerated == Counter({Tolerance(case.meaning["tolerated"]): 1})


@mistakes
def test_tolerated_messages_close_a_strict_session(case: Case) -> None:
    talk = Talk(DRAFT16, limits=MoqtLimits(strict=True))
    with pytest.raises(MoqtViolation) as caught:
        talk.hear_bytes(case.data)
    assert caught.value.code is SessionCode.PROTOCOL_VIOLATION
    assert talk.session.tolerated == Counter()


def test_tolerance_ends_where_a_message_makes_no_sense() -> None:
    talk = Talk(DRAFT16)
    whole = DRAFT16.encode(TrackStatus(0, NAME))
    cut = whole[:1] + (len(whole) - 3 - 2).to_bytes(2) + whole[3:-2]  # the name has lost a byte
    with pytest.raises(MoqtViolation, match="ends inside"):
        talk.hear_bytes(cut)


@both
def test_requests_of_a_client_whose_server_allows_none_are_sent_in_the_end(
    dialect: Dialect,
) -> None:
    talk = Talk(dialect, is_client=True, max_request_id=0)
    talk.session.request(subscribe())
    assert [type(message) for message in talk.said()] == [RequestsBlocked]
    talk.session.presume_requests()
    assert [type(message) for message in talk.said()] == [Subscribe]
    talk.session.request(subscribe(track=OTHER))
    assert [type(message) for message in talk.said()] == [Subscribe]
    assert talk.session.tolerated == Counter({Tolerance.NO_REQUEST_LIMIT: 1})
    talk.hear(MaxRequestId(2))  # it does count, after all
    talk.session.request(TrackStatus(0, NAME))
    assert [type(message) for message in talk.said()] == [RequestsBlocked]


@both
def test_requests_are_not_presumed_where_some_are_allowed(dialect: Dialect) -> None:
    talk = Talk(dialect, is_client=True, max_request_id=2)
    talk.session.presume_requests()
    talk.session.request(subscribe())
    talk.session.request(subscribe(track=OTHER))
    assert [type(message) for message in talk.said()] == [Subscribe, RequestsBlocked]
    strict = Talk(dialect, is_client=True, max_request_id=0, limits=MoqtLimits(strict=True))
    strict.session.request(subscribe())
    strict.session.presume_requests()
    assert [type(message) for message in strict.said()] == [RequestsBlocked]


@pytest.mark.parametrize("forward", [False, True])
def test_publish_ok_always_says_whether_objects_are_wanted(forward: bool) -> None:
    """One that leaves it out is read as "not yet" by libquicr, and nothing would ever be sent."""
    data = DRAFT16.encode(PublishOk(1, forward=forward))
    assert data == bytes.fromhex("1e 0004 01 01 10") + bytes([forward])
