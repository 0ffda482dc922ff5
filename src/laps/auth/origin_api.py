r"""What a relay says to the server of an origin, and what it takes for an answer: JSON.

    POST /laps                                          200
    {"origin": "media.example", "relay": "1:1",         {"allow": true, "keep_s": 300}
     "action": "subscribe",                             {"allow": false, "reason": "not a member"}
     "namespace": ["media.example", "room"], "track": "cam",
     "tokens": [{"type": 0, "token": "eyJ…"}]}

docs/security.md specifies both. Whatever is not such an answer grants nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.auth.refusals import AuthError
from laps.auth.tokens import read_json_object, unknown, write_base64url
from laps.errors import LapsError
from laps.names import visible

if TYPE_CHECKING:
    from laps.auth.origins import Question

MAX_ANSWER_BYTES: Final = 16 * 1024
"An answer has a hundred bytes. Whoever sends much more is no origin, or means harm."

# What is not asked again for a day can hardly be taken back; what has to be asked again within a
# second is a load for the origin.
LONGEST_S: Final = 86_400.0
SHORTEST_S: Final = 1.0
# Where an answer does not say: long enough that a subscriber is asked about once a minute.
GRANTED_S: Final = 60.0
# A refusal may be put right at any time: nobody is locked out by an old one for long.
REFUSED_S: Final = 5.0
LONGEST_REFUSED_S: Final = 60.0

# What a person reads, in a message that a client is sent.
MAX_REASON: Final = 200


class BadAnswerError(LapsError):
    """What an origin answered is no answer."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an origin answered."""

    allow: bool
    keep_s: float
    """How long it counts."""
    reason: str = ""
    """Why not."""


@dataclass(frozen=True, slots=True)
class CallFailed:
    """An origin could not be asked, or did not answer."""

    words: str
    again: bool = False
    """Whether it makes sense to ask the same once more."""
    unreachable: bool = False
    """Whether nothing else can be asked either, for the moment."""


def encode_question(origin: str, relay: str, question: Question) -> bytes:
    """The body of the one request that a question is."""
    asked: dict[str, object] = {
        "origin": origin,
        "relay": relay,
        "action": question.action.text,
        "namespace": [_value(part) for part in question.namespace],
    }
    if question.name is not None:
        asked["track"] = _value(question.name)
    if question.begins:
        asked["track_prefix"] = _value(question.begins)
    asked["tokens"] = [{"type": kind, "token": _value(value)} for kind, value in question.tokens]
    return json.dumps(asked).encode()


def _value(value: bytes) -> str | dict[str, str]:
    """Bytes that are text as that, others as base64url: no two values are written the same."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64url": write_base64url(value)}


def decode_answer(body: bytes) -> Verdict:
    """What an origin answered; BadAnswerError if that cannot be acted on.

    What is not known may be a restriction, so that it is no answer either.
    """
    try:
        answer = read_json_object(body, "the answer")
        unknown(answer, ("allow", "reason", "keep_s"), "the answer")
    except AuthError as error:
        raise BadAnswerError(str(error)) from None
    allow, reason, keep_s = answer.get("allow"), answer.get("reason", ""), answer.get("keep_s")
    if not isinstance(allow, bool):
        raise BadAnswerError("allow must be true or false")
    if not isinstance(reason, str):
        raise BadAnswerError("reason must be text")
    if keep_s is None:
        keep_s = GRANTED_S if allow else REFUSED_S
    if isinstance(keep_s, bool) or not isinstance(keep_s, int | float) or not keep_s >= 0:
        raise BadAnswerError("keep_s must be a number of seconds, 0 or more")
    if allow:
        return Verdict(True, max(SHORTEST_S, min(float(keep_s), LONGEST_S)))
    words = visible(reason.encode(errors="replace").decode())[:MAX_REASON]
    return Verdict(False, min(float(keep_s), LONGEST_REFUSED_S), words or "no reason given")
