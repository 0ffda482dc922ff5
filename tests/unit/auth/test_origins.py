"""Whose names are whose, and what an origin is asked and answers."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.auth.grants import Action
from laps.auth.origin_api import (
    GRANTED_S,
    LONGEST_REFUSED_S,
    LONGEST_S,
    MAX_REASON,
    REFUSED_S,
    SHORTEST_S,
    BadAnswerError,
    decode_answer,
    encode_question,
)
from laps.auth.origins import Origin, Origins, Question

LIVE, NEWS, IDS = (
    Origin("live", ((b"live",),)),
    Origin("news", ((b"live", b"news"), (b"other",))),
    Origin("ids", (), ("0001", "00010203")),
)
LONGER = Origin("longer", (), ("000102",))
ALL = Origins([LIVE, NEWS, IDS, LONGER])


@pytest.mark.parametrize(
    ("namespace", "name", "origin"),
    [
        ((b"live",), b"t", LIVE),
        ((b"live", b"new"), b"t", LIVE),
        ((b"live", b"news"), None, NEWS),
        ((b"live", b"news", b"x"), b"t", NEWS),
        ((b"other",), b"t", NEWS),
        ((b"livenews",), b"t", None),
        ((), None, None),
        ((b"quicr",), b"00019" + b"0" * 27, IDS),
        ((b"quicr",), b"0001029" + b"0" * 25, LONGER),
        ((b"quicr",), b"00010203" + b"0" * 24, IDS),
        ((b"quicr",), b"0002" + b"0" * 28, None),
        ((b"quicr", b"0001"), b"t", None),
    ],
)
def test_origin_of_a_name_is_the_longest_that_fits(
    namespace: tuple[bytes, ...], name: bytes | None, origin: Origin | None
) -> None:
    assert ALL.find(namespace, name) is origin


def test_origin_of_a_mask_is_that_of_the_digits_it_leaves() -> None:
    assert ALL.find((b"quicr",), None, b"0001") is IDS
    assert ALL.find((b"quicr",), None, b"0001025") is LONGER
    assert ALL.find((b"quicr",), None, b"000") is None


@pytest.mark.parametrize(
    ("granted", "asked", "covers"),
    [
        (Question(Action.SUBSCRIBE, (b"a",), b"t"), (Action.SUBSCRIBE, (b"a",), b"t"), True),
        (Question(Action.SUBSCRIBE, (b"a",), b"t"), (Action.SUBSCRIBE, (b"a",), b"u"), False),
        (Question(Action.SUBSCRIBE, (b"a",), b"t"), (Action.FETCH, (b"a",), b"t"), False),
        (Question(Action.SUBSCRIBE_NAMESPACE, (b"a",)), (Action.SUBSCRIBE, (b"a",), b"t"), True),
        (Question(Action.SUBSCRIBE_NAMESPACE, (b"a",)), (Action.PUBLISH, (b"a",), b"t"), False),
        (Question(Action.SUBSCRIBE_NAMESPACE, (b"a",)), (Action.SUBSCRIBE, (b"ab",), b"t"), False),
        (
            Question(Action.PUBLISH_NAMESPACE, (b"a",)),
            (Action.PUBLISH_NAMESPACE, (b"a", b"b"), b"t"),
            True,
        ),
        (
            Question(Action.SUBSCRIBE_NAMESPACE, (b"quicr",), None, b"0001"),
            (Action.SUBSCRIBE, (b"quicr",), b"0002"),
            False,
        ),
    ],
)
def test_a_grant_covers_what_was_asked_for_and_what_is_below(
    granted: Question, asked: tuple[Action, tuple[bytes, ...], bytes | None], covers: bool
) -> None:
    assert granted.covers(*asked) is covers


def test_question_is_written_as_documented() -> None:
    tokens = ((0, b"eyJ"), (1, b"\xd8\x3d"))
    question = Question(Action.FETCH, (b"live", b"\xff"), "tränen".encode(), b"", tokens)
    assert json.loads(encode_question("media.example", "1:1", question)) == {
        "origin": "media.example",
        "relay": "1:1",
        "action": "fetch",
        "namespace": ["live", {"base64url": "_w"}],
        "track": "tränen",
        "tokens": [
            {"type": 0, "token": "eyJ"},
            {"type": 1, "token": {"base64url": "2D0"}},
        ],
    }


@given(st.lists(st.binary(max_size=6), unique=True, min_size=2, max_size=2))
def test_no_two_names_are_written_the_same(names: list[bytes]) -> None:
    one, other = (
        json.loads(encode_question("o", "1:1", Question(Action.SUBSCRIBE, (name,), name)))
        for name in names
    )
    assert one != other


@pytest.mark.parametrize(
    ("answer", "keep_s"),
    [
        ({"allow": True}, GRANTED_S),
        ({"allow": True, "keep_s": 0}, SHORTEST_S),
        ({"allow": True, "keep_s": 7.5}, 7.5),
        ({"allow": True, "keep_s": 1e9}, LONGEST_S),
        ({"allow": False}, REFUSED_S),
        ({"allow": False, "keep_s": 0}, 0.0),
        ({"allow": False, "keep_s": 1000}, LONGEST_REFUSED_S),
    ],
)
def test_answer_counts_for_a_bounded_time(answer: dict[str, object], keep_s: float) -> None:
    verdict = decode_answer(json.dumps(answer).encode())
    assert (verdict.allow, verdict.keep_s) == (answer["allow"], keep_s)


def test_reason_is_cut_and_shows_what_cannot_be_seen() -> None:
    verdict = decode_answer(json.dumps({"allow": False, "reason": "a\x1b[2J" + "x" * 500}).encode())
    assert verdict.reason.startswith("a\\x1b[2J")
    assert len(verdict.reason) == MAX_REASON
    assert decode_answer(b'{"allow": false, "reason": "\\ud800"}').reason == "?"


@given(st.binary(max_size=200))
def test_whatever_comes_is_an_answer_or_none(body: bytes) -> None:
    with suppress(BadAnswerError):
        assert isinstance(decode_answer(body).allow, bool)
