"""What clients do otherwise than their draft says, known by the name that they give in their setup.

The packages of moq-lite (`@moq/net` and what is built on it) subscribe with the filter "largest
object", read a group from its first object or not at all, and count on their relay to begin with
the group that a track is in. They know no FETCH, and end the session where they meet one. After a
GOAWAY they end it and stay away; a connection that is lost they dial again.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Join = Literal["draft", "group"]
"Where a subscription with the filter largest object begins: after it, or with the group it is in."

_MOQ_LITE: Final = b"moq-lite"


class Manners(NamedTuple):
    """What a client expects, and can answer."""

    joins_groups: bool
    "Its subscriptions begin with the group that a track is in."
    answers_fetches: bool
    "It may be asked for ranges of its tracks."
    follows_goaway: bool
    "It goes where a GOAWAY sends it, or comes back."


def manners_of(implementation: bytes | None, join: Join) -> Manners:
    """By what a client calls itself, and what the operator has decided for all."""
    is_lite = implementation is not None and implementation.startswith(_MOQ_LITE)
    return Manners(is_lite or join == "group", not is_lite, not is_lite)
