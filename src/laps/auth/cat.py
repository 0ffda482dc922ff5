"""Common Access Tokens for MoQT (draft-ietf-moq-c4m): claims of a CBOR Web Token, RFC 8392.

The claim `moqt` is a list of scopes:

    [[actions], [match, …, nil], match]      match = bytes / [1, prefix] / [2, suffix]

A CAT can restrict its bearer in many ways: to addresses, countries, a URI, a number of uses, a key
(DPoP). A claim that is not in the table below is refused, since to ignore it could mean to allow
what its issuer forbade. The draft leaves the keys of its two claims to be assigned; 327 and 328 are
those of its test vectors. What a CAT is sealed in is read by `cose`.
"""

from __future__ import annotations

from enum import IntEnum
from math import inf
from typing import TYPE_CHECKING, Final

from laps.auth import cose
from laps.auth.grants import Action, Match, MatchType, Scope
from laps.auth.refusals import AuthError, Reason, malformed
from laps.auth.tokens import Claims, audience_of, text_of, time_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from laps.auth.keys import Key

TOKEN_TYPE: Final = 1
"The type of these tokens in MoQT."

# Each revalidation may check a signature again: oftener than this it is a load, no safeguard.
MIN_REVALIDATE_S: Final = 1.0


class Claim(IntEnum):
    """The claims that are understood here, by their keys."""

    ISS = 1
    SUB = 2
    AUD = 3
    EXP = 4
    NBF = 5
    IAT = 6
    CTI = 7
    CATV = 310
    MOQT = 327
    MOQT_REVAL = 328

    @property
    def text(self) -> str:
        """As the draft writes it."""
        return self.name.lower().replace("_", "-")


# Names for refusals only. Each restricts, or says what to do beside accepting a token.
NOT_ENFORCED: Final = {
    8: "cnf",
    282: "geohash",
    308: "catreplay",
    309: "catpor",
    311: "catnip",
    312: "catu",
    313: "catm",
    314: "catalpn",
    315: "cath",
    316: "catgeoiso3166",
    317: "catgeocoord",
    318: "catgeoalt",
    319: "cattpk",
    320: "catifdata",
    321: "catdpop",
    322: "catif",
    323: "catr",
    324: "cattprint",
}

# --- claims ---------------------------------------------------------------------------------------


def read_claims(payload: bytes) -> Claims:
    """What a token says, once its signature was checked."""
    claims = cose.decode(payload, "the payload")
    if not isinstance(claims, dict):
        raise malformed("the payload is not a map of claims")
    for key in claims:
        # A key that is True or 1.0 would be found as 1.
        if type(key) is not int or key not in set(Claim):
            words = f"the claim {_claim_text(key):.40} cannot be enforced here, and is not ignored"
            raise AuthError(Reason.UNENFORCED, words)
    if claims.get(Claim.CATV, 1) not in (1, "CAT-v1"):
        raise AuthError(Reason.UNENFORCED, "the version of the CAT (catv) is not 1")
    return Claims(
        scopes=tuple(_scopes(claims[Claim.MOQT])) if Claim.MOQT in claims else (),
        subject=text_of(claims.get(Claim.SUB, ""), "sub"),
        issuer=text_of(claims.get(Claim.ISS, ""), "iss"),
        audience=audience_of(claims[Claim.AUD]) if Claim.AUD in claims else (),
        id=_id(claims[Claim.CTI]) if Claim.CTI in claims else "",
        expires=_time(claims, Claim.EXP),
        not_before=_time(claims, Claim.NBF),
        issued=_time(claims, Claim.IAT),
        revalidate_s=_revalidate(claims.get(Claim.MOQT_REVAL, 0)),
    )


def _claim_text(key: object) -> str:
    if type(key) is not int:
        return repr(key)
    return Claim(key).text if key in set(Claim) else NOT_ENFORCED.get(key, str(key))


def _time(claims: Mapping[int, object], key: Claim) -> int | None:
    return time_of(claims[key], key.text) if key in claims else None


def _id(value: object) -> str:
    """`cti` as text, where it is some, so that it is revoked by what its issuer called it."""
    if not isinstance(value, bytes):
        raise malformed("cti must be bytes")
    text = value.decode("ascii", errors="replace")
    return text if text.isascii() and text.isprintable() else value.hex()


def _revalidate(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
        raise malformed("moqt-reval must be a number of seconds")
    if value == 0:
        return None
    if value < MIN_REVALIDATE_S:
        words = f"moqt-reval is below {MIN_REVALIDATE_S:g} s, the least that is done here"
        raise AuthError(Reason.UNENFORCED, words)
    return float(value)


def _scopes(value: object) -> Iterator[Scope]:
    for scope in _list(value, "moqt"):
        parts = _list(scope, "a scope of moqt")
        if len(parts) > 3:
            raise malformed("a scope of moqt has actions, a namespace and a track at most")
        namespace = _list(parts[1], "a namespace of moqt") if len(parts) > 1 else []
        ends = bool(namespace) and namespace[-1] is None
        yield Scope(
            actions=frozenset(_actions(parts[0])),
            namespace=tuple(map(_match, namespace[:-1] if ends else namespace)),
            ends=ends,
            track=_match(parts[2]) if len(parts) == 3 else None,
        )


def _list(value: object, what: str) -> list[object]:
    if not isinstance(value, list) or not value:
        raise malformed(f"{what} must be a list with something in it")
    return value


def _actions(value: object) -> Iterator[Action]:
    for number in _list(value, "the actions of moqt"):
        if type(number) is not int:
            raise malformed("an action of moqt must be a number")
        # An action of a later draft is nothing that could be asked for here.
        if number in set(Action):
            yield Action(number)


def _match(value: object) -> Match:
    if isinstance(value, bytes):
        return Match(value)
    match value:
        case [int(kind), bytes(data)] if kind in (1, 2) and not isinstance(kind, bool):
            return Match(data, MatchType(kind))
    raise malformed("a match of moqt is bytes, [1, prefix] or [2, suffix]; nil is last only")


# --- signing -------------------------------------------------------------------------------------


def sign(claims: Mapping[int, object], key: Key) -> bytes:
    """A token with these claims."""
    return cose.seal(cose.encode(dict(claims)), key)


def write_scope(scope: Scope) -> list[object]:
    """A scope as the claim `moqt` has it."""
    fields: list[object] = [*map(_write_match, scope.namespace), *([None] if scope.ends else [])]
    parts: list[object] = [sorted(map(int, scope.actions))]
    if fields or scope.track is not None:
        # A namespace match cannot be empty; the empty prefix of the first field is every namespace.
        parts.append(fields or [_write_match(Match(b"", MatchType.PREFIX))])
    if scope.track is not None:
        parts.append(_write_match(scope.track))
    return parts


def _write_match(match: Match) -> object:
    if match.type is MatchType.EXACT:
        return match.value
    return [match.type.value, match.value]


def peek(token: bytes) -> tuple[dict[str, str | None], dict[str, object]]:
    """Header and claims of a token, for a person to see, with nothing checked."""
    sealed = cose.read_sealed(token)
    claims = cose.decode(sealed.payload, "the payload")
    if not isinstance(claims, dict):
        raise malformed("the payload is not a map of claims")
    header = {"alg": str(sealed.algorithm), "kid": sealed.key_id}
    return header, {_claim_text(key): value for key, value in claims.items()}
