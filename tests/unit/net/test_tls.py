"""Certificates: made, read, and refused with a word that helps."""

from __future__ import annotations

import hashlib
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from qh3.quic.configuration import QuicConfiguration

from laps.errors import ConfigError
from laps.net.tls import Identity, Trust, load, self_signed

if TYPE_CHECKING:
    from pathlib import Path


def stored(where: Path, identity: Identity) -> tuple[Path, Path]:
    certificate, key = where / "relay.pem", where / "relay.key"
    certificate.write_bytes(identity.certificate)
    key.write_bytes(identity.key)
    return certificate, key


def test_a_self_signed_certificate_is_one_a_browser_takes_by_its_fingerprint() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    identity = self_signed(["127.0.0.1", "::1", "relay.example"], now)
    certificate = x509.load_pem_x509_certificate(identity.certificate)
    public_key = certificate.public_key()
    assert isinstance(public_key, ec.EllipticCurvePublicKey)
    assert isinstance(public_key.curve, ec.SECP256R1)
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert lifetime <= timedelta(days=14)
    assert certificate.not_valid_before_utc < now < certificate.not_valid_after_utc
    assert identity.expires == certificate.not_valid_after_utc
    der = certificate.public_bytes(serialization.Encoding.DER)
    assert identity.fingerprint == hashlib.sha256(der).hexdigest()
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["relay.example"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]


def test_each_one_is_new() -> None:
    assert self_signed(["a"]).fingerprint != self_signed(["a"]).fingerprint


def test_files_are_read_back(tmp_path: Path) -> None:
    identity = self_signed(["relay.example"])
    assert load(*stored(tmp_path, identity)) == identity


def test_a_chain_is_kept_whole(tmp_path: Path) -> None:
    leaf, issuer = self_signed(["leaf"]), self_signed(["issuer"])
    certificate, key = stored(tmp_path, leaf)
    certificate.write_bytes(leaf.certificate + issuer.certificate)
    loaded = load(certificate, key)
    assert loaded.certificate == leaf.certificate + issuer.certificate
    assert loaded.fingerprint == leaf.fingerprint


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    certificate, key = stored(tmp_path, self_signed(["a"]))
    noise = tmp_path / "noise.pem"
    noise.write_bytes(b"-----BEGIN NOTHING-----")
    other = tmp_path / "other.key"
    other.write_bytes(self_signed(["b"]).key)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        load_pem_private_key(key.read_bytes(), None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    for a_certificate, a_key, words in (
        (tmp_path / "absent.pem", key, r"absent\.pem cannot be read: No such file"),
        (certificate, tmp_path / "absent.key", r"TLS key .*absent\.key cannot be read"),
        (tmp_path, key, "cannot be read: Is a directory"),
        (noise, key, r"noise\.pem is not PEM with a certificate"),
        (certificate, noise, r"noise\.pem is not PEM with a private key"),
        (certificate, other, r"other\.key does not belong to the certificate"),
        (certificate, locked, r"locked\.key has a passphrase"),
    ):
        with pytest.raises(ConfigError, match=words) as raised:
            load(a_certificate, a_key)
        assert "\n" not in str(raised.value)


def test_whom_a_client_trusts(tmp_path: Path) -> None:
    digest = "AB:" * 31 + "AB"
    configuration = QuicConfiguration(is_client=True)
    Trust(fingerprint=digest, anyone=True).apply(configuration)
    assert configuration.assert_fingerprint == "ab" * 32
    assert configuration.verify_mode == ssl.CERT_NONE

    configuration = QuicConfiguration(is_client=True)
    Trust(anyone=True).apply(configuration)
    assert configuration.verify_mode == ssl.CERT_NONE
    assert configuration.assert_fingerprint is None

    configuration = QuicConfiguration(is_client=True)
    Trust().apply(configuration)
    assert configuration.verify_mode is None  # qh3: required of whom we dial

    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(b"authorities")
    Trust(authorities=bundle).apply(configuration)
    assert configuration.cadata == b"authorities"
    with pytest.raises(ConfigError, match=r"trusted authorities .* cannot be read"):
        Trust(authorities=tmp_path / "absent").apply(configuration)


@pytest.mark.parametrize("wrong", ["", "abc", "zz" * 32, "ab" * 31, "ab" * 33])
def test_a_fingerprint_is_checked_before_it_is_used(wrong: str) -> None:
    with pytest.raises(ConfigError, match="64 digits"):
        Trust(fingerprint=wrong).apply(QuicConfiguration(is_client=True))
