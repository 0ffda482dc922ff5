"""Documents that relays believe, such as plans and policies: signed, whoever brings them.

    {"key": "ed25519:…", "signature": "…"}           one line, and then the document, as signed
    {"format": "laps-plan/1", …}

What is signed is the name of the format and the bytes of the document. A relay believes the
documents of the one key that its operator has named.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from laps.errors import ConfigError, LapsError, quote

NAMESPACE: Final = "laps"
"Where they are published, each under a track of its own."

MAX_BYTES: Final = 16 * 1024 * 1024
"A document is one object, and every relay that follows it holds it: some 100,000 tracks of a plan."

_KEY_PREFIX: Final = "ed25519:"
_MAKES: Final = "`laps plan keygen` and `laps policy keygen` make keys"


class InvalidDocument(LapsError):  # noqa: N818 - as in laps.errors, the name says what happened
    """A document that is not to be followed, and why."""


class _Seal(msgspec.Struct, frozen=True):
    key: str
    signature: str


def seal(document: bytes, name: str, key: Ed25519PrivateKey) -> bytes:
    """The bytes to publish; `name` is that of the format."""
    signature = base64.b64encode(key.sign(_signed(document, name))).decode()
    sealed = msgspec.json.encode(_Seal(key_text(key.public_key()), signature)) + b"\n" + document
    if len(sealed) > MAX_BYTES:
        raise InvalidDocument(f"{len(sealed)} bytes are too many: {MAX_BYTES} is the most")
    return sealed


def unseal(sealed: bytes, name: str, key: Ed25519PublicKey) -> bytes:
    """The document in some bytes, if `key` signed it; InvalidDocument says why not."""
    head, _, document = sealed.partition(b"\n")
    try:
        found = msgspec.json.decode(head, type=_Seal)
        signature = base64.b64decode(found.signature, validate=True)
    except (msgspec.DecodeError, binascii.Error) as error:
        raise InvalidDocument(f"not a signed document: {error}") from None
    if found.key != key_text(key):
        followed = quote(key_text(key))
        raise InvalidDocument(f"signed by {quote(found.key)}, and {followed} is followed")
    try:
        key.verify(signature, _signed(document, name))
    except InvalidSignature:
        raise InvalidDocument("the signature does not fit: it was changed on the way") from None
    return document


def _signed(document: bytes, name: str) -> bytes:
    # With the name of the format in front a signature is of no use for anything else.
    return name.encode() + b"\n" + document


# -- keys ------------------------------------------------------------------------------------------


def make_key(path: Path) -> str:
    """Write a new key to sign by, and return what relays are told of it."""
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        # Nobody but its owner may read it, from the first moment on.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path}: is there already; a key is not written over") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)
    return key_text(key.public_key())


def read_key(path: Path) -> Ed25519PrivateKey:
    """The key to sign by."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: {_MAKES}") from None
    except (ValueError, TypeError):
        raise ConfigError(f"{path}: not a private key in PEM: {_MAKES}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path}: not an Ed25519 key: {_MAKES}")
    return key


def key_text(key: Ed25519PublicKey) -> str:
    """A public key as people pass it on: `ed25519:` and 44 characters."""
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return _KEY_PREFIX + base64.b64encode(raw).decode()


def parse_key(text: str) -> Ed25519PublicKey:
    """A public key from what `key_text` wrote."""
    try:
        if not text.startswith(_KEY_PREFIX):
            raise ValueError
        raw = base64.b64decode(text.removeprefix(_KEY_PREFIX), validate=True)
        return Ed25519PublicKey.from_public_bytes(raw)
    except ValueError:
        problem = "is no public key: write it as `keygen` printed it, ed25519:…"
        raise ConfigError(f"{quote(text)} {problem}") from None


def read_public_key(text: str) -> Ed25519PublicKey:
    """A public key as it stands on a command line: itself, or the file that has it."""
    if text.startswith(_KEY_PREFIX):
        return parse_key(text)
    try:
        return parse_key(Path(text).read_text().strip())
    except (OSError, UnicodeDecodeError):
        problem = "is neither a public key, ed25519:…, nor a file that can be read"
        raise ConfigError(f"--key {text}: {problem}: `keygen` writes one") from None
