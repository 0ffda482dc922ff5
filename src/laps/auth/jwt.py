r"""JSON Web Tokens (RFC 7519): taken apart, and their claims read.

    {
      "sub": "ann", "exp": 1790000000, "nbf": 1789990000, "aud": "relay.example", "jti": "call-7",
      "root": "rooms/123", "put": ["ann"], "get": [""],
      "laps": {
        "allow": [
          {
            "actions": ["subscribe", "fetch"],
            "namespace": ["rooms", {"prefix": "team-"}],
            "ends": true,
            "track": {"suffix": ".json"}
          },
          {"actions": ["publish"], "namespace": "logs/ann"}
        ],
        "limits": {"tracks": 10, "bytes_in_per_s": 1000000}
      }
    }

`root`, `put` and `get` are moq-relay's, see `paths`. The registered claims mean what RFC 7519 says;
each may be left out, and a token without `exp` never ends. `laps` says what those cannot:

- `allow`: a list of scopes. `actions` are those of C4M in lower case, with hyphens or underscores.
  `namespace` is a match for each of its first fields, or text with slashes, each part exact; left
  out: all. `ends`: whether it has just these fields; left out: longer ones are allowed too. `track`
  is a match for the name; left out: all names. A match is text, taken exactly, or an object with
  `prefix` or `suffix`. Bytes that are no text are written `\xff`, as `laps` writes names.
- `limits`: those of `Limits`, by the same names, whole numbers.

A token that allows something allows connecting, and updating what it allows. An unknown key in
`laps` is refused, as it may be a restriction of a later version; unknown claims beside it are
ignored, as RFC 7519 asks, but for `cnf`, which binds a token to a key that nobody here could check.
"""

from __future__ import annotations

import dataclasses
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from laps.auth.grants import NO_LIMITS, Action, Limits, Match, MatchType, Scope
from laps.auth.paths import CONNECTING, read_paths
from laps.auth.refusals import AuthError, Reason, malformed
from laps.auth.tokens import (
    Algorithm,
    Claims,
    Sealed,
    audience_of,
    decode_base64url,
    read_json_object,
    text_of,
    time_of,
    unknown,
    write_base64url,
)
from laps.errors import quote
from laps.names import read_bytes, read_namespace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laps.auth.keys import Key

_ALGORITHMS: Final = {**{str(one): one for one in Algorithm}, "Ed25519": Algorithm.EDDSA}
_ACTIONS: Final = {action.name.lower(): action for action in Action}
_LIMITS: Final = tuple(limit.name for limit in dataclasses.fields(Limits))
_MATCHES: Final = {"prefix": MatchType.PREFIX, "suffix": MatchType.SUFFIX}

# Tokens of one key have the same header, letter by letter. With 8 kB each these take half a
# megabyte at worst.
MAX_HEADERS: Final = 64
_MAX_LIMIT: Final = 2**53 - 1  # what every reader of JSON holds exactly


def read_sealed(token: bytes) -> Sealed:
    """A token taken apart; AuthError if it is none that could be checked here."""
    if not token.isascii():
        raise malformed("the token is neither a JWT nor a CAT")
    parts = token.split(b".")
    if len(parts) != 3:
        raise malformed(f"a JWT has three parts between dots, and this has {len(parts)}")
    header, payload, signature = parts
    algorithm, key_id = _read_header(header)
    return Sealed(
        algorithm,
        key_id,
        signed=token[: -len(signature) - 1],
        signature=decode_base64url(signature, "the signature"),
        payload=decode_base64url(payload, "the payload"),
    )


@lru_cache(MAX_HEADERS)
def _read_header(letters: bytes) -> tuple[Algorithm, str | None]:
    """The algorithm and the key id; refusals are not remembered."""
    header = read_json_object(decode_base64url(letters, "the header"), "the header")
    algorithm = _check_header(header)
    return algorithm, None if header.get("kid") is None else text_of(header["kid"], "kid")


def _check_header(header: Mapping[str, object]) -> Algorithm:
    """The algorithm, where the header is that of a token for us."""
    if "crit" in header:
        words = "the header has critical extensions (crit), and none is known here"
        raise AuthError(Reason.CRITICAL, words)
    kind = text_of(header.get("typ", "JWT"), "typ")
    if kind.upper() != "JWT" or not kind.isascii() or "cty" in header:
        words = f"typ is {quote(kind)}: a token for a relay has JWT, and no cty"
        raise AuthError(Reason.UNKNOWN_TYPE, words)
    named = text_of(header.get("alg"), "alg")
    if named not in _ALGORITHMS:
        words = f"alg is {quote(named)}: {', '.join(Algorithm)} are allowed"
        raise AuthError(Reason.ALGORITHM, words)
    return _ALGORITHMS[named]


def read_claims(payload: bytes) -> Claims:
    """What a token says, once its signature was checked."""
    claims = read_json_object(payload, "the payload")
    if "cnf" in claims:
        words = "the token is bound to a key (cnf), which cannot be checked here"
        raise AuthError(Reason.UNENFORCED, words)
    allowed, limits = _ours(claims["laps"]) if "laps" in claims else ((), NO_LIMITS)
    scopes = read_paths(claims)
    if allowed:
        scopes = tuple(dict.fromkeys((*scopes, *allowed)))  # both allow connecting
    return Claims(
        scopes,
        subject=text_of(claims["sub"], "sub") if "sub" in claims else "",
        issuer=text_of(claims["iss"], "iss") if "iss" in claims else "",
        audience=audience_of(claims["aud"]) if "aud" in claims else (),
        id=text_of(claims["jti"], "jti") if "jti" in claims else "",
        expires=time_of(claims["exp"], "exp") if "exp" in claims else None,
        not_before=time_of(claims["nbf"], "nbf") if "nbf" in claims else None,
        issued=time_of(claims["iat"], "iat") if "iat" in claims else None,
        limits=limits,
    )


# --- the claim `laps` -----------------------------------------------------------------------------


def _ours(value: object) -> tuple[tuple[Scope, ...], Limits]:
    if not isinstance(value, dict):
        raise malformed("laps must be an object")
    unknown(value, ("allow", "limits"), "laps")
    limits = _limits(value["limits"]) if "limits" in value else NO_LIMITS
    return _allowed(value.get("allow", [])), limits


def _allowed(value: object) -> tuple[Scope, ...]:
    if not isinstance(value, list):
        raise malformed("laps.allow must be a list")
    scopes = tuple(map(_scope, value))
    return (CONNECTING, *scopes) if scopes else ()


def _scope(value: object) -> Scope:
    if not isinstance(value, dict) or not isinstance(value.get("actions"), list):
        raise malformed("laps.allow must be a list of objects, each with a list of actions")
    unknown(value, ("actions", "namespace", "ends", "track"), "laps.allow")
    actions = {_action(action) for action in value["actions"]}
    ends = value.get("ends", False)
    if not isinstance(ends, bool):
        raise malformed("laps.allow: ends must be true or false")
    return Scope(
        # Whoever made a request may change it.
        frozenset(actions | {Action.REQUEST_UPDATE}),
        _namespace(value.get("namespace", [])),
        ends,
        _match(value["track"]) if "track" in value else None,
    )


def _action(value: object) -> Action:
    name = text_of(value, "laps.allow: an action").replace("-", "_")
    if name not in _ACTIONS:
        raise malformed(f"laps.allow: no action is called {quote(name)}")
    return _ACTIONS[name]


def _namespace(value: object) -> tuple[Match, ...]:
    if isinstance(value, str):
        return tuple(map(Match, read_namespace(text_of(value, "laps.allow: namespace"))))
    if not isinstance(value, list):
        raise malformed("laps.allow: namespace must be text, or a list of matches")
    return tuple(map(_match, value))


def _match(value: object) -> Match:
    if isinstance(value, dict) and len(value) == 1:
        ((name, text),) = value.items()
        if name in _MATCHES:
            return Match(read_bytes(text_of(text, "laps.allow: a match")), _MATCHES[name])
    elif isinstance(value, str):
        return Match(read_bytes(text_of(value, "laps.allow: a match")))
    raise malformed("laps.allow: a match is text, or an object with prefix or suffix")


def _limits(value: object) -> Limits:
    if not isinstance(value, dict):
        raise malformed("laps.limits must be an object")
    unknown(value, _LIMITS, "laps.limits")
    for name, limit in value.items():
        if isinstance(limit, bool) or not isinstance(limit, int) or not 0 <= limit <= _MAX_LIMIT:
            raise malformed(f"laps.limits: {name} must be a whole number")
    return Limits(**value)


# --- signing --------------------------------------------------------------------------------------


def sign(claims: Mapping[str, object], key: Key) -> str:
    """A token with these claims."""
    header = {"alg": str(key.algorithm), "typ": "JWT", "kid": key.id}
    signed = ".".join(
        write_base64url(json.dumps(part, separators=(",", ":")).encode())
        for part in (header, claims)
    )
    return f"{signed}.{write_base64url(key.sign(signed.encode()))}"


def peek(token: bytes) -> tuple[dict[str, object], dict[str, object]]:
    """Header and claims of a token, for a person to see, with nothing checked."""
    sealed = read_sealed(token)
    header = read_json_object(decode_base64url(token.split(b".")[0], "the header"), "header")
    return header, read_json_object(sealed.payload, "the payload")
