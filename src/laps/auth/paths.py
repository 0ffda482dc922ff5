"""The claims `root`, `put` and `get`, as moq-relay has them: prefixes of paths.

    {"root": "rooms/123", "put": ["alice"], "get": [""]}

allows publishing rooms/123/alice and everything below it, and subscribing to all of rooms/123. A
path is a namespace, its parts between slashes; slashes that part nothing do not count. A claim is
one path or a list. The empty path is the root itself, an empty list is nothing. The scope of a key
(`KeySet`) is written the same way.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from laps.auth.grants import PUBLISHING, SUBSCRIBING, Action, Match, Scope
from laps.auth.refusals import malformed
from laps.auth.tokens import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CLAIMS: Final = ("root", "put", "get")

CONNECTING: Final = Scope(frozenset({Action.CLIENT_SETUP}))
"Whoever may do something may connect for it: moq-relay's claims have no word for that."


_GRANTING: Final = {"put": PUBLISHING, "get": SUBSCRIBING}

# Who subscribes to the same shows the same paths. With 6 kB each these take 12 MB at worst.
MAX_SCOPES: Final = 1024


def read_paths(claims: Mapping[str, object]) -> tuple[Scope, ...]:
    """What the three claims allow; nothing where `put` and `get` are not there or empty."""
    root = text_of(claims["root"], "root") if "root" in claims else ""
    scopes = [
        _scope(claim, root, text_of(path, claim))
        for claim in _GRANTING
        if claim in claims
        for path in _paths(claims[claim], claim)
    ]
    return (CONNECTING, *scopes) if scopes else ()


@lru_cache(MAX_SCOPES)
def _scope(claim: str, root: str, path: str) -> Scope:
    return scope_below(parts_of(root) + parts_of(path), _GRANTING[claim])


def scope_below(namespace: Iterable[bytes], actions: frozenset[Action]) -> Scope:
    """The actions on a namespace and on all below it."""
    return Scope(actions, tuple(map(Match, namespace)))


def parts_of(path: str) -> tuple[bytes, ...]:
    """The namespace that a path is."""
    return tuple([part.encode() for part in path.split("/") if part])


def _paths(value: object, claim: str) -> list[object]:
    if isinstance(value, list):
        return value
    if isinstance(value, str):
        return [value]
    raise malformed(f"{claim} must be a path or a list of paths")
