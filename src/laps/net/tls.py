"""Certificates: the one a relay shows, and whom a client trusts."""

from __future__ import annotations

import hashlib
import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from laps.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from qh3.quic.configuration import QuicConfiguration

# A browser accepts a certificate by its fingerprint only if it lives at most 14 days, clock
# differences included.
SELF_SIGNED_DAYS: Final = 13

# A peer whose clock is behind ours still finds the certificate valid.
BACKDATED: Final = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate with its chain, and the key to it, both as PEM."""

    certificate: bytes
    key: bytes
    fingerprint: str
    "SHA-256 of the certificate, in hexadecimal: what `--fingerprint` and browsers take."
    expires: datetime


def self_signed(hosts: Sequence[str], now: datetime | None = None) -> Identity:
    """A certificate made on the spot: ECDSA P-256 and short-lived, as browsers demand."""
    now = now or datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "laps relay")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now - BACKDATED + timedelta(days=SELF_SIGNED_DAYS))
        .add_extension(x509.SubjectAlternativeName([_general_name(h) for h in hosts]), False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    return _identity(certificate, certificate.public_bytes(serialization.Encoding.PEM), key)


def load(certificate_path: Path, key_path: Path) -> Identity:
    """A certificate (with its chain, leaf first) and its key from PEM files."""
    chain_pem = _read(certificate_path, "TLS certificate")
    key_pem = _read(key_path, "TLS key")
    try:
        certificate = x509.load_pem_x509_certificates(chain_pem)[0]
    except ValueError as error:
        raise ConfigError(
            f"TLS certificate {certificate_path} is not PEM with a certificate in it: {error}"
        ) from error
    try:
        key = serialization.load_pem_private_key(key_pem, None)
    except TypeError as error:
        raise ConfigError(
            f"TLS key {key_path} has a passphrase: store it without one, readable by the relay only"
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"TLS key {key_path} is not PEM with a private key in it: {error}"
        ) from error
    if key.public_key() != certificate.public_key():
        raise ConfigError(
            f"TLS key {key_path} does not belong to the certificate {certificate_path}: "
            "give the key that the certificate was made for"
        )
    return _identity(certificate, chain_pem, key)


@dataclass(frozen=True, slots=True)
class Trust:
    """Which certificates a client takes from the one it dials: one of these, tried in order."""

    fingerprint: str | None = None
    "Only the certificate with this SHA-256."
    anyone: bool = False
    "Any certificate at all: the path is sealed, but who is at its end is unknown."
    authorities: Path | None = None
    "Certificates signed by these (PEM); None: by those the system trusts."

    def apply(self, configuration: QuicConfiguration) -> None:
        """Lay it down in qh3's words."""
        if self.fingerprint is not None:
            digest = self.fingerprint.replace(":", "").lower()
            if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
                raise ConfigError(
                    f'fingerprint "{self.fingerprint}" is not a SHA-256 in hexadecimal: '
                    "64 digits, as the relay's ready line prints it"
                )
            configuration.assert_fingerprint = digest
            configuration.verify_mode = ssl.CERT_NONE
        elif self.anyone:
            configuration.verify_mode = ssl.CERT_NONE
        elif self.authorities is not None:
            configuration.cadata = _read(self.authorities, "file of trusted authorities")


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{what} {path} cannot be read: {error.strerror}: give the path of a readable file"
        ) from error


def _identity(certificate: x509.Certificate, chain_pem: bytes, key: PrivateKeyTypes) -> Identity:
    key_pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    der = certificate.public_bytes(serialization.Encoding.DER)
    return Identity(
        chain_pem, key_pem, hashlib.sha256(der).hexdigest(), certificate.not_valid_after_utc
    )
