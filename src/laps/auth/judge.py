"""A token and the time in, a grant or a refusal out."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from laps.auth import cat, cose, jwt
from laps.auth.grants import Grant
from laps.auth.refusals import AuthError, Reason
from laps.errors import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from laps.auth.grants import Scope
    from laps.auth.keys import Key, KeySet
    from laps.auth.tokens import Claims, Sealed

OUT_OF_BAND: Final = 0
"The token type of MoQT for what both sides agreed on elsewhere: here a JWT, or a CAT."

# NTP holds clocks within a second of each other, people's machines within a minute or so.
SKEW_S: Final = 60.0

# A JWT with a hundred paths has 4 kB. What is larger is read by nobody, so that a stranger cannot
# have a relay parse and hash what it likes.
MAX_TOKEN_BYTES: Final = 8192

# A token takes 50 to 200 µs to check and 1 µs to remember. One that is remembered has about 1 kB.
MAX_CACHED: Final = 10_000
DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Revoked:
    """Tokens and keys that are refused though nothing else is wrong with them."""

    tokens: frozenset[str] = frozenset()
    """By their `jti` or `cti`."""
    keys: frozenset[str] = frozenset()
    """By their key id."""


class Verifier:
    """Checks tokens with the keys that it has, and remembers those that were right.

    A thousand sessions with one token cost one signature. What is remembered is forgotten when keys
    or revocations change, and is never taken past its time.
    """

    def __init__(
        self,
        keys: KeySet,
        revoked: Revoked | None = None,
        *,
        audience: Collection[str] = (),
        skew_s: float = SKEW_S,
        max_bytes: int = MAX_TOKEN_BYTES,
        max_cached: int = MAX_CACHED,
        own: Key | None = None,
        origin: str = "",
    ) -> None:
        """`own` is a key beside the others, of the relay itself; it is found by its id alone.

        `origin` is whose keys these are; empty: the relay's own.
        """
        self.keys = keys
        self._own = own
        self.origin = origin
        self.revoked = revoked or Revoked()
        self.signatures = 0
        """How many were checked."""
        self._audience = frozenset(audience)
        self._skew_s = skew_s
        self._max_bytes = max_bytes
        self._max_cached = max_cached
        self._verified: OrderedDict[bytes, Grant] = OrderedDict()

    def replace(self, keys: KeySet, revoked: Revoked) -> None:
        """Take other keys and revocations, and check every token anew."""
        self.keys = keys
        self.revoked = revoked
        self._verified.clear()

    def verify(self, token_type: int, token: bytes, now: float) -> Grant:
        """What a token allows; AuthError says why it is refused."""
        if len(token) > self._max_bytes:
            words = f"the token has {len(token)} bytes: {self._max_bytes} at most"
            raise AuthError(Reason.TOO_LARGE, words)
        # As good as SHA-256 here, and it does not go through OpenSSL, which takes twice as long.
        digest = blake2b(b"%d " % token_type + token, digest_size=DIGEST_BYTES).digest()
        grant = self._verified.get(digest)
        if grant is None:
            grant = self._verified[digest] = self._check(token_type, token)
            if len(self._verified) > self._max_cached:
                self._verified.popitem(last=False)
        else:
            self._verified.move_to_end(digest)
        # The time is looked at each time, and first when the signature is known to be right: a
        # token of a stranger is of a stranger, expired or not.
        self._check_end(grant, now)
        if now < grant.not_before:
            in_s = grant.not_before - now + self._skew_s
            raise AuthError(Reason.NOT_YET_VALID, f"the token is valid in {in_s:.0f} s (nbf, iat)")
        return grant

    def recheck(self, grant: Grant, now: float) -> None:
        """AuthError if what a grant allowed has to end: for what lasts, after `replace` and later.

        It is what `verify` would say of the token, without the token and its signature.
        """
        if grant.key_id:
            key = self._find(grant.key_id)
            if key.fingerprint != grant.key_fingerprint:
                words = f"the key {quote(key.id)} is another than the one of this token"
                raise AuthError(Reason.UNKNOWN_KEY, words)
            self._check_key(key)
            self._check_id(grant.id)
            if key.scope is not None:
                _check_scope(grant, key, key.scope)
        self._check_end(grant, now)

    def _check(self, token_type: int, token: bytes) -> Grant:
        sealed, read_claims = open_token(token_type, token)
        key = self._find(sealed.key_id)
        if sealed.algorithm is not key.algorithm:
            words = f"alg is {sealed.algorithm}, and the key {quote(key.id)} is for {key.algorithm}"
            raise AuthError(Reason.ALGORITHM, words)
        self._check_key(key)
        self.signatures += 1
        if not key.verifies(sealed.signed, sealed.signature):
            words = f"the signature is not that of the key {quote(key.id)}"
            raise AuthError(Reason.BAD_SIGNATURE, words)
        return self._granted(read_claims(sealed.payload), key)

    def _find(self, key_id: str | None) -> Key:
        if self._own is not None and key_id == self._own.id:
            return self._own
        return self.keys.find(key_id)

    def _granted(self, claims: Claims, key: Key) -> Grant:
        self._check_id(claims.id)
        if claims.audience and not self._audience & set(claims.audience):
            words = f"the token is for {quote(claims.audience[0])} (aud), and not for this relay"
            raise AuthError(Reason.AUDIENCE, words)
        skew = self._skew_s
        grant = Grant(
            claims.subject,
            claims.scopes,
            None if claims.expires is None else claims.expires + skew,
            claims.id,
            key.id,
            key.fingerprint,
            claims.limits,
            claims.revalidate_s,
            self.origin,
            max(claims.not_before or 0, claims.issued or 0) - skew,
        )
        if key.scope is not None:
            _check_scope(grant, key, key.scope)
        return grant

    def _check_key(self, key: Key) -> None:
        if key.id in self.revoked.keys:
            raise AuthError(Reason.REVOKED, f"the key {quote(key.id)} is revoked")

    def _check_id(self, token_id: str) -> None:
        if token_id and token_id in self.revoked.tokens:
            raise AuthError(Reason.REVOKED, f"the token {quote(token_id)} is revoked")

    def _check_end(self, grant: Grant, now: float) -> None:
        until = grant.until
        if until is not None and now >= until:
            words = f"the token expired {now - until + self._skew_s:.0f} s ago"
            raise AuthError(Reason.EXPIRED, words)


def _check_scope(grant: Grant, key: Key, scope: tuple[Scope, ...]) -> None:
    if not grant.is_within(scope):
        words = f"the token grants more than its key {quote(key.id)} may"
        raise AuthError(Reason.KEY_SCOPE, words)


def open_token(token_type: int, token: bytes) -> tuple[Sealed, Callable[[bytes], Claims]]:
    """A token taken apart, with what reads its claims once it was checked."""
    if token_type == OUT_OF_BAND:
        # A JWT begins with {" in base64, with which no CAT begins.
        binary = None if token.startswith(b"ey") else as_cat(token)
        if binary is None:
            return jwt.read_sealed(token), jwt.read_claims
        return cose.read_sealed(binary), cat.read_claims
    if token_type == cat.TOKEN_TYPE:
        return cose.read_sealed(token), cat.read_claims
    words = f"tokens of type {token_type} are not known: 0 (JWT or CAT) and 1 (CAT) are"
    raise AuthError(Reason.UNKNOWN_TYPE, words)


def as_cat(token: bytes) -> bytes | None:
    """The CAT that a token is, or stands for as text; None for what can only be a JWT."""
    return token if cose.looks_like(token) else cose.read_text(token)
