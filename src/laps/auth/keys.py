"""One key, and a set of them by key id: JSON Web Keys (RFC 7517), and keys in PEM.

A key is for one algorithm, which follows from what it is: Ed25519 for EdDSA, P-256 for ES256, a
secret of 32 bytes or more for HS256. A token whose header says another is refused before anything
is computed, so that nobody can pass off a public key, which all know, as an HMAC secret.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from laps.auth import ed25519
from laps.auth.bounds import UNBOUNDED, read_bounds
from laps.auth.paths import CLAIMS, read_paths
from laps.auth.refusals import AuthError, Reason
from laps.auth.tokens import Algorithm, read_base64url, text_of, write_base64url
from laps.errors import ConfigError, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from laps.auth.bounds import Bounds
    from laps.auth.grants import Scope

# Key ids are text of a token's header before anything is checked, and file names in a folder of
# keys: letters that are neither a path nor invisible.
KEY_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")

# An HMAC-SHA256 secret shorter than its digest can be guessed sooner (RFC 7518, 3.2).
MIN_SECRET_BYTES: Final = 32

_CURVES: Final = {
    ("OKP", "Ed25519"): Algorithm.EDDSA,
    ("EC", "P-256"): Algorithm.ES256,
    ("oct", ""): Algorithm.HS256,
}
_COORDINATE_BYTES: Final = 32


class UnusableKeyError(ConfigError):
    """A key that is right by itself, and of no use here; a set may hold such keys beside others."""


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """A key that can verify, and sign if it has the private half."""

    id: str
    algorithm: Algorithm
    public: Any = field(repr=False)
    """The public key of `cryptography`; for HS256 the secret, which is both halves."""
    private: Any = field(default=None, repr=False)
    """None where it is not there, or must not be used."""
    scope: tuple[Scope, ...] | None = None
    """What tokens of this key can grant at most; None: everything."""
    bounds: Bounds = field(default=UNBOUNDED, repr=False)
    """What a relay with this key may be and say."""
    public_bytes: bytes = field(init=False, repr=False)
    """`public` in DER; for HS256 the secret."""
    fingerprint: bytes = field(init=False, repr=False)
    """Eight bytes that another key of the same id does not have."""

    def __post_init__(self) -> None:
        # Once for each key, since every request of a client that shows a token asks for them.
        public_bytes = _public_bytes(self.algorithm, self.public)
        object.__setattr__(self, "public_bytes", public_bytes)
        object.__setattr__(self, "fingerprint", hashlib.sha256(public_bytes).digest()[:8])

    def is_half_of(self, other: Key) -> bool:
        """Whether both check the same signatures, and may grant the same."""
        same = self.algorithm is other.algorithm and self.public == other.public
        return same and self.scope == other.scope and self.bounds == other.bounds

    def verifies(self, signed: bytes, signature: bytes) -> bool:
        """Whether this key made the signature."""
        if self.algorithm is Algorithm.HS256:
            return hmac.compare_digest(hmac.digest(self.public, signed, "sha256"), signature)
        if self.algorithm is Algorithm.EDDSA:
            return ed25519.verifies(self.public, self.public_bytes, signed, signature)
        return len(signature) == 2 * _COORDINATE_BYTES and self._verifies_es256(signed, signature)

    def _verifies_es256(self, signed: bytes, signature: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

        # JOSE and COSE have both numbers side by side, OpenSSL wants them in DER.
        r, s = signature[:_COORDINATE_BYTES], signature[_COORDINATE_BYTES:]
        der = encode_dss_signature(int.from_bytes(r), int.from_bytes(s))
        try:
            self.public.verify(der, signed, _ecdsa())
        except InvalidSignature:
            return False
        return True

    def sign(self, data: bytes) -> bytes:
        """The signature of this key; ConfigError if it is a public key."""
        if self.private is None:
            problem = "cannot sign: give the file with the private half, from `laps token key`"
            raise ConfigError(f"key {quote(self.id)} {problem}")
        if self.algorithm is Algorithm.HS256:
            return hmac.digest(self.private, data, "sha256")
        if self.algorithm is Algorithm.EDDSA:
            return bytes(self.private.sign(data))
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

        numbers = decode_dss_signature(self.private.sign(data, _ecdsa()))
        return b"".join(number.to_bytes(_COORDINATE_BYTES) for number in numbers)


def _public_bytes(algorithm: Algorithm, public: Any) -> bytes:
    if algorithm is Algorithm.HS256:
        return bytes(public)
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return bytes(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _ecdsa() -> Any:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    return ECDSA(SHA256())


class KeySet:
    """Keys by key id."""

    def __init__(self, keys: Iterable[Key], skipped: Iterable[str] = ()) -> None:
        self._keys: dict[str, Key] = {}
        self.skipped = tuple(skipped)
        """Which keys of a file are not used, and why, each in words for a person."""
        for key in keys:
            self._add(key)

    def _add(self, key: Key) -> None:
        known = self._keys.get(key.id)
        if known is not None and not key.is_half_of(known):
            raise ConfigError(f"two keys have the key id {quote(key.id)}: give each its own")
        # A folder may hold the public half beside the private one.
        if known is None or known.private is None:
            self._keys[key.id] = key

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys.values())

    def find(self, key_id: str | None) -> Key:
        """The key that a token names; AuthError if there is none.

        A token that names none is for the only key there is. Key ids are looked up in memory: none
        of them ever becomes part of a path.
        """
        if key_id is None:
            if len(self._keys) != 1:
                words = f"the token names no key (kid), and there are {len(self._keys)}"
                raise AuthError(Reason.UNKNOWN_KEY, words)
            return next(iter(self))
        key = self._keys.get(key_id)
        if key is not None:
            return key
        if not KEY_ID.fullmatch(key_id):
            words = "the key id (kid) has letters that no key id has"
            raise AuthError(Reason.UNKNOWN_KEY, words)
        raise AuthError(Reason.UNKNOWN_KEY, f"no key has the key id {quote(key_id)}")

    def signer(self) -> Key:
        """The first key that can sign; ConfigError if there is none."""
        for key in self:
            if key.private is not None:
                return key
        raise ConfigError("no key here can sign: give the file with the private half")


# --- JSON Web Keys --------------------------------------------------------------------------------


def read_jwk(jwk: Mapping[str, object], name: str) -> Key:
    """A key from its JSON; `name` is its id where it has none. ConfigError says what is wrong."""
    key_id = jwk.get("kid", name)
    if not isinstance(key_id, str) or not KEY_ID.fullmatch(key_id):
        raise ConfigError(f"kid {quote(key_id)} must be 1 to 128 of A-Z a-z 0-9 _ . -")
    # Keys that moq-token made early have no kty, and are secrets.
    kty, curve = jwk.get("kty", "oct"), jwk.get("crv", "")
    algorithm = _CURVES.get((str(kty), str(curve)))
    if algorithm is None:
        problem = f"is {kty} {curve}".rstrip()
        raise UnusableKeyError(
            f"key {quote(key_id)} {problem}: take Ed25519, P-256 or a secret (oct)"
        )
    if jwk.get("alg", algorithm) not in _names(algorithm):
        problem = f"is for {algorithm}, and its alg is {quote(jwk['alg'])}"
        raise UnusableKeyError(f"key {quote(key_id)} {problem}")
    use, operations = jwk.get("use", "sig"), jwk.get("key_ops", ["sign", "verify"])
    if use != "sig" or not isinstance(operations, list) or "verify" not in operations:
        raise UnusableKeyError(f"key {quote(key_id)} is not for verifying, by its use or key_ops")
    try:
        public, private = _material(algorithm, jwk)
        scope = None if jwk.get("scope") is None else _scope(jwk["scope"])
        bounds = read_bounds(jwk.get("laps"))
    except (AuthError, ConfigError, ValueError) as error:
        raise ConfigError(f"key {quote(key_id)}: {error}") from None
    signing = private if "sign" in operations else None
    return Key(key_id, algorithm, public, signing, scope, bounds)


def _names(algorithm: Algorithm) -> tuple[str, ...]:
    # RFC 9864 gives EdDSA with this curve a name of its own.
    return (algorithm, "Ed25519") if algorithm is Algorithm.EDDSA else (algorithm,)


def _material(algorithm: Algorithm, jwk: Mapping[str, object]) -> tuple[Any, Any]:
    """The public and the private half, which may be missing."""
    if algorithm is Algorithm.HS256:
        secret = _bytes(jwk, "k")
        if len(secret) < MIN_SECRET_BYTES:
            raise ValueError(f"the secret has {len(secret)} bytes: {MIN_SECRET_BYTES} at least")
        return secret, secret
    private = None if jwk.get("d") is None else _bytes(jwk, "d")
    if algorithm is Algorithm.EDDSA:
        return _ed25519(_bytes(jwk, "x"), private)
    return _p256(_bytes(jwk, "x"), _bytes(jwk, "y"), private)


def _ed25519(x: bytes, d: bytes | None) -> tuple[Any, Any]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

    public = Ed25519PublicKey.from_public_bytes(x)
    if d is None:
        return public, None
    private = Ed25519PrivateKey.from_private_bytes(d)
    if private.public_key() != public:
        raise ValueError("x and d do not belong together")
    return public, private


def _p256(x: bytes, y: bytes, d: bytes | None) -> tuple[Any, Any]:
    from cryptography.hazmat.primitives.asymmetric import ec

    if len(x) != _COORDINATE_BYTES or len(y) != _COORDINATE_BYTES:
        raise ValueError(f"x and y must have {_COORDINATE_BYTES} bytes each")
    numbers = ec.EllipticCurvePublicNumbers(int.from_bytes(x), int.from_bytes(y), ec.SECP256R1())
    public = numbers.public_key()
    if d is None:
        return public, None
    private = ec.derive_private_key(int.from_bytes(d), ec.SECP256R1())
    if private.public_key() != public:
        raise ValueError("x, y and d do not belong together")
    return public, private


def _bytes(jwk: Mapping[str, object], name: str) -> bytes:
    # moq-token once wrote them with padding.
    return read_base64url(text_of(jwk.get(name), name).rstrip("="), name)


def _scope(value: object) -> tuple[Scope, ...]:
    if not isinstance(value, dict) or not value.keys() <= set(CLAIMS):
        raise ValueError("scope must be an object with root, put and get")
    scopes = read_paths(value)
    if not scopes:
        raise ValueError("scope grants nothing: give put or get")
    return scopes


def write_jwk(key: Key, *, private: bool) -> dict[str, object]:
    """The key as JSON, its public half only or both."""
    if private and key.private is None:
        raise ConfigError(f"key {quote(key.id)} has no private half")
    if key.algorithm is Algorithm.HS256:
        if not private:
            raise ConfigError("a secret (HS256) has no public half")
        material = {"kty": "oct", "k": write_base64url(key.public)}
    elif key.algorithm is Algorithm.EDDSA:
        x = key.public.public_bytes_raw()
        material = {"kty": "OKP", "crv": "Ed25519", "x": write_base64url(x)}
        if private:
            material["d"] = write_base64url(key.private.private_bytes_raw())
    else:
        numbers = key.public.public_numbers()
        material = {"kty": "EC", "crv": "P-256", "x": _number(numbers.x), "y": _number(numbers.y)}
        if private:
            material["d"] = _number(key.private.private_numbers().private_value)
    operations = ["sign", "verify"] if private else ["verify"]
    return {"kid": key.id, "alg": str(key.algorithm), "key_ops": operations, **material}


def public_half(jwk: Mapping[str, object]) -> dict[str, object]:
    """The JSON of a key without what signs."""
    half = {name: value for name, value in jwk.items() if name not in ("d", "k")}
    return {**half, "key_ops": ["verify"]}


def _number(value: int) -> str:
    return write_base64url(value.to_bytes(_COORDINATE_BYTES))


# --- PEM, and new keys ----------------------------------------------------------------------------


def read_pem(data: bytes, name: str) -> Key:
    """A public or private key in PEM, whose id is `name`."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    private: Any = None
    try:
        if b"PRIVATE KEY-----" in data:
            private = serialization.load_pem_private_key(data, password=None)
            public: Any = private.public_key()
        else:
            public = serialization.load_pem_public_key(data)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError("not a key in PEM, or one with a password") from None
    return _key_of(name, public, private)


def _key_of(key_id: str, public: Any, private: Any) -> Key:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not KEY_ID.fullmatch(key_id):
        raise ConfigError(f"key id {quote(key_id)} must be 1 to 128 of A-Z a-z 0-9 _ . -")
    if isinstance(public, Ed25519PublicKey):
        return Key(key_id, Algorithm.EDDSA, public, private)
    if isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, ec.SECP256R1):
        return Key(key_id, Algorithm.ES256, public, private)
    raise UnusableKeyError(f"key {quote(key_id)}: take Ed25519 or P-256")


def generate(algorithm: Algorithm, key_id: str = "") -> Key:
    """A new key, with an id of 16 random digits where none is given."""
    key_id = key_id or secrets.token_hex(8)
    if algorithm is Algorithm.HS256:
        secret = secrets.token_bytes(MIN_SECRET_BYTES)
        jwk = {"kid": key_id, "kty": "oct", "k": write_base64url(secret)}
        return read_jwk(jwk, key_id)
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private: Any = (
        Ed25519PrivateKey.generate()
        if algorithm is Algorithm.EDDSA
        else ec.generate_private_key(ec.SECP256R1())
    )
    return _key_of(key_id, private.public_key(), private)
