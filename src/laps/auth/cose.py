"""What a CAT is sealed in: COSE (RFC 9052).

    COSE_Sign1 = 18([protected, unprotected, payload, signature])      EdDSA, ES256
    COSE_Mac0  = 17([protected, unprotected, payload, tag])            HMAC 256/256

with the tag or without it, perhaps in the tag 61 of a CWT. Where a token has to be text, as in a
URL, it is base64.

The test vectors of C4M have another form, which its text does not mention, and it is read too:
`header.payload.signature`, each part base64url of the same CBOR, signed as a JWT is, with -4 for
HMAC. No JWT can be taken for one of these, nor one of these for a JWT: a header is a map in CBOR or
an object in JSON, and their first letters differ.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from laps.auth.refusals import AuthError, Reason, malformed
from laps.auth.tokens import Algorithm, Sealed, read_base64url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.auth.keys import Key

# Nothing in a token is nested deeper: claims, scopes, a scope, its matches, a match.
MAX_DEPTH: Final = 8

# Headers, by their labels.
_ALG, _CRIT, _KID, _TYP = 1, 2, 4, 16
# -9 and -19 are the names that RFC 9864 gives ES256 with P-256 and EdDSA with Ed25519.
_ALGORITHMS: Final = {
    -7: Algorithm.ES256,
    -8: Algorithm.EDDSA,
    -9: Algorithm.ES256,
    -19: Algorithm.EDDSA,
    5: Algorithm.HS256,
}
_HMAC_WITH_DOTS: Final = -4  # in the vectors of the draft; elsewhere it is a key wrap
_NUMBERS: Final = {Algorithm.ES256: -7, Algorithm.EDDSA: -8, Algorithm.HS256: 5}
# What `typ` can be: what the draft's vectors have, the media type of a CWT, and its number.
_TYPES: Final = ("CAT", "application/cwt", 61)

_CWT_TAG: Final = b"\xd8\x3d"
_SIGN1_TAG: Final = b"\xd2"
_MAC0_TAG: Final = b"\xd1"
_ARRAY_OF_4: Final = b"\x84"
_MAP_LETTERS: Final = tuple(bytes([letter]) for letter in b"opqrstuv")  # 0xa0 to 0xbf


def looks_like(token: bytes) -> bool:
    """Whether these bytes begin as a CAT does, and as no JWT can."""
    return token.startswith((_CWT_TAG, _SIGN1_TAG, _MAC0_TAG, _ARRAY_OF_4)) or _has_dots(token)


def _has_dots(token: bytes) -> bool:
    # The first letter of base64 says whether a map of CBOR follows: JSON begins with another.
    return token[:1] in _MAP_LETTERS and token.count(b".") == 2


def read_text(text: bytes) -> bytes | None:
    """The CAT that base64 or base64url stands for, with padding or without; None if it is none."""
    if b"." in text:  # as a JWT has, and no base64
        return None
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
    signed: bytes | None
    """What the signature is of, where that is not what COSE says."""
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
        signed=message.signed or _to_be_signed(algorithm, message.protected, message.payload),
        signature=message.signature,
        payload=message.payload,
    )


def _read_message(token: bytes) -> _Message:
    if _has_dots(token):
        return _read_dotted(token)
    body = token.removeprefix(_CWT_TAG)
    tag = body[:1] if body[:1] in (_SIGN1_TAG, _MAC0_TAG) else b""
    parts = decode(body[len(tag) :], "the token")
    if not isinstance(parts, list) or len(parts) != 4:
        raise malformed("the token is not a COSE message of four parts")
    protected, unprotected, payload, signature = parts
    if not all(isinstance(part, bytes) for part in (protected, payload, signature)):
        raise malformed("a COSE message has bytes as header, payload and signature")
    header = _read_header(protected)
    if not isinstance(unprotected, dict) or header.keys() & unprotected.keys():
        raise malformed("the unprotected header is no map, or repeats what is protected")
    return _Message(tag, None, protected, header, unprotected, payload, signature)


def _read_dotted(token: bytes) -> _Message:
    try:
        parts = token.decode("ascii").split(".")
    except UnicodeDecodeError:
        raise malformed("the token is not base64url between dots") from None
    protected, payload, signature = (read_base64url(part, "a part of the token") for part in parts)
    signed = token[: token.rindex(b".")]
    return _Message(b"", signed, protected, _read_header(protected), {}, payload, signature)


def _read_header(protected: bytes) -> dict[object, object]:
    header = decode(protected, "the protected header") if protected else {}
    if not isinstance(header, dict):
        raise malformed("the protected header is not a map")
    return header


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
    if message.signed is not None and number == _HMAC_WITH_DOTS:
        return Algorithm.HS256
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
    return encode([context, protected, b"", payload])


def seal(payload: bytes, key: Key) -> bytes:
    """A token with this payload, in the tags of COSE and CWT."""
    protected = encode({_ALG: _NUMBERS[key.algorithm], _KID: key.id.encode(), _TYP: "CAT"})
    signature = key.sign(_to_be_signed(key.algorithm, protected, payload))
    tag = _MAC0_TAG if key.algorithm is Algorithm.HS256 else _SIGN1_TAG
    return _CWT_TAG + tag + encode([protected, {}, payload, signature])


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


def decode(data: bytes, what: str) -> object:
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


def encode(value: object) -> bytes:
    """A value as CBOR."""
    import cbor2

    return cbor2.dumps(value)
