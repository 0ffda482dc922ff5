"""A private authority, and certificates that it signed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from pathlib import Path


class CertificateAuthority:
    """A private authority, and certificates that it signed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("an authority")
        self.path = folder / "authority.pem"
        made = self._builder(self._name, self._key, ca=True).sign(self._key, hashes.SHA256())
        self.path.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def certificate(self) -> dict[str, str]:
        key = ec.generate_private_key(ec.SECP256R1())
        host = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        builder = self._builder(_name("a relay"), key, ca=False).add_extension(host, False)
        certificate = builder.sign(self._key, hashes.SHA256())
        paths = self._folder / "relay.pem", self._folder / "relay.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return {"tls__certificate": str(paths[0]), "tls__key": str(paths[1])}

    @property
    def files(self) -> tuple[str, str]:
        """A certificate for 127.0.0.1, and its key."""
        made = self.certificate()
        return made["tls__certificate"], made["tls__key"]

    def _builder(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
