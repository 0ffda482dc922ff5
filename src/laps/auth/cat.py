"""Common Access Tokens for MoQT (draft-ietf-moq-c4m): CBOR Web Tokens in COSE, RFC 8392 and 9052.

    COSE_Sign1 = 18([protected, unprotected, payload, signature])      EdDSA, ES256
    COSE_Mac0  = 17([protected, unprotected, payload, tag])            HMAC 256/256

with the tag or without it, perhaps in the tag 61 of a CWT. Where a token has to be text, as in a
URL, it is base64. The claim `moqt` is a list of scopes:

    [[actions], [match, …, nil], match]      match = bytes / [1, prefix] / [2, suffix]

A CAT can restrict its bearer in many ways: to addresses, countries, a URI, a number of uses, a key
(DPoP). A claim that is not in the table below is refused, since to ignore it could mean to allow
what its issuer forbade. The draft leaves the keys of its two claims to be assigned; 327 and 328 are
those of its test vectors.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from io import BytesIO
from math import inf
from typing import TYPE_CHECKING, Any, Final

from laps.auth.grants import Action, Match, MatchType, Scope
from laps.auth.refusals import AuthError, Reason, malformed
from laps.auth.tokens import Algorithm, Claims, Sealed, audience_of, text_of, time_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.auth.keys import Key

TOKEN_TYPE: Final = 1
"The type of these tokens in MoQT."

# Nothing in a token is nested deeper: claims, scopes, a scope, its matches, a match.
MAX_DEPTH: Final = 8

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

# Headers of COSE.
_ALG, _CRIT, _KID, _TYP = 1, 2, 4, 16
# -9 and -19 are the names that RFC 9864 gives ES256 with P-256 and EdDSA with Ed25519.
_ALGORITHMS: Final = {
    -7: Algorithm.ES256,
    -8: Algorithm.EDDSA,
    -9: Algorithm.ES256,
    -19: Algorithm.EDDSA,
    5: Algorithm.HS256,
}
_NUMBERS: Final = {Algorithm.ES256: -7, Algorithm.EDDSA: -8, Algorithm.HS256: 5}
# What `typ` can be: what the draft's vectors have, the media type of a CWT, and its number.
_TYPES: Final = ("CAT", "application/cwt", 61)

_CWT_TAG: Final = b"\xd8\x3d"
_SIGN1_TAG: Final = b"\xd2"
_MAC0_TAG: Final = b"\xd1"
_ARRAY_OF_4: Final = b"\x84"


def looks_like(token: bytes) -> bool:
    """Whether these bytes begin as a CAT does, and as no text can."""
    return token.startswith((_CWT_TAG, _SIGN1_TAG, _MAC0_TAG, _ARRAY_OF_4))


def read_text(text: bytes) -> bytes | None:
    """The CAT that base64 or base64url stands for, with padding or without; None if it is none."""
    standard = text.rstrip(b"=").translate(bytes.maketrans(b"-_", b"+/"))
    try:
        token = base64.b64decode(standard + b"=" * (-len(standard) % 4), validate=True)
    except binascii.Error:
        return None
    return token if looks_like(token) else None


@dataclass(frozen=True, slots=True)
class _Message:
    """The four parts of a COSE message, and its protected header read."""

    tag: bytes
    protected: bytes
    header: dict[object, object]
    unprotected: dict[object, object]
    payload: bytes
    signature: bytes


def read_sealed(token: bytes) -> Sealed:
    """A token taken apart; AuthError if it is none that could be checked here."""
    message = _read_message(token)
    algorithm = _check_header(message)
    is_mac = algorithm is Algorithm.HS256
    if message.tag and (message.tag == _MAC0_TAG) != is_mac:
        words = f"the tag says {'MAC' if not is_mac else 'signature'}, and alg is {algorithm}"
        raise AuthError(Reason.ALGORITHM, words)
    return Sealed(
        algorithm=algorithm,
        key_id=_key_id(message),
        signed=_to_be_signed(algorithm, message.protected, message.payload),
        signature=message.signature,
        payload=message.payload,
    )


def _read_message(token: bytes) -> _Message:
    body = token.removeprefix(_CWT_TAG)
    tag = body[:1] if body[:1] in (_SIGN1_TAG, _MAC0_TAG) else b""
    parts = _decode(body[len(tag) :], "the token")
    if not isinstance(parts, list) or len(parts) != 4:
        raise malformed("the token is not a COSE message of four parts")
    protected, unprotected, payload, signature = parts
    if not all(isinstance(part, bytes) for part in (protected, payload, signature)):
        raise malformed("a COSE message has bytes as header, payload and signature")
    header = _decode(protected, "the protected header") if protected else {}
    if not isinstance(header, dict) or not isinstance(unprotected, dict):
        raise malformed("the headers of a COSE message are maps")
    if header.keys() & unprotected.keys():
        raise malformed("a header is both protected and unprotected")
    return _Message(tag, protected, header, unprotected, payload, signature)


def _check_header(message: _Message) -> Algorithm:
    """The algorithm, where the header is that of a token for us."""
    if _CRIT in message.header or _CRIT in message.unprotected:
        words = "the header has critical extensions (crit), and none is known here"
        raise AuthError(Reason.CRITICAL, words)
    # 16 is unknown to some as `typ`; what it says is taken from where it is signed only.
    kind = message.header.get(_TYP, "CAT")
    if isinstance(kind, bool) or kind not in _TYPES:
        raise AuthError(Reason.UNKNOWN_TYPE, "typ is not that of a CAT")
    number = message.header.get(_ALG)
    if isinstance(number, bool) or not isinstance(number, int):
        raise AuthError(Reason.ALGORITHM, "the protected header has no alg that is a number")
    if number not in _ALGORITHMS:
        words = f"alg is {number}: -7 (ES256), -8 (EdDSA) and 5 (HMAC 256/256) are allowed"
        raise AuthError(Reason.ALGORITHM, words)
    return _ALGORITHMS[number]


def _key_id(message: _Message) -> str | None:
    # The key id only says which key to try, so that it may be unprotected.
    key_id = message.header.get(_KID, message.unprotected.get(_KID))
    if key_id is None:
        return None
    if not isinstance(key_id, bytes):
        raise malformed("kid must be bytes")
    return key_id.decode("ascii", errors="replace")


def _to_be_signed(algorithm: Algorithm, protected: bytes, payload: bytes) -> bytes:
    context = "MAC0" if algorithm is Algorithm.HS256 else "Signature1"
    return _encode([context, protected, b"", payload])


# --- claims ---------------------------------------------------------------------------------------


def read_claims(payload: bytes) -> Claims:
    """What a token says, once its signature was checked."""
    claims = _decode(payload, "the payload")
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


# --- signing --------------------------------------------------------------------------------------


def sign(claims: Mapping[int, object], key: Key) -> bytes:
    """A token with these claims, in the tags of COSE and CWT."""
    protected = _encode({_ALG: _NUMBERS[key.algorithm], _KID: key.id.encode(), _TYP: "CAT"})
    payload = _encode(dict(claims))
    signature = key.sign(_to_be_signed(key.algorithm, protected, payload))
    tag = _MAC0_TAG if key.algorithm is Algorithm.HS256 else _SIGN1_TAG
    return _CWT_TAG + tag + _encode([protected, {}, payload, signature])


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
    message = _read_message(token)
    claims = _decode(message.payload, "the payload")
    if not isinstance(claims, dict):
        raise malformed("the payload is not a map of claims")
    header = {"alg": str(_check_header(message)), "kid": _key_id(message)}
    return header, {_claim_text(key): value for key, value in claims.items()}


# --- CBOR -----------------------------------------------------------------------------------------


class _NoTags(Mapping[int, Any]):
    """For every tag a decoder that refuses it.

    cbor2 turns tags into dates, patterns, fractions and shared values. A token has none of them.
    """

    def __getitem__(self, tag: int) -> Any:
        return _refuse_tag

    def __iter__(self) -> Iterator[int]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _refuse_tag(value: object, immutable: bool) -> object:
    raise ValueError("a token has no tags inside")


_NO_TAGS: Final = _NoTags()


def _decode(data: bytes, what: str) -> object:
    """One item of CBOR and nothing after it, in which no key of a map is there twice."""
    import cbor2

    stream = BytesIO(data)
    try:
        value = cbor2.CBORDecoder(
            stream,
            semantic_decoders=_NO_TAGS,
            max_depth=MAX_DEPTH,
            allow_indefinite=False,
            allow_duplicate_keys=False,
        ).decode()
    except (cbor2.CBORError, ValueError, TypeError, OverflowError, MemoryError, RecursionError):
        raise malformed(f"{what} is not CBOR in which each key is there once") from None
    if stream.tell() != len(data):
        raise malformed(f"{what} has bytes after its end")
    return value


def _encode(value: object) -> bytes:
    import cbor2

    return cbor2.dumps(value)
