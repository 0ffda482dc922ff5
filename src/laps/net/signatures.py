"""The check of Ed25519 signatures that comes with QUIC.

qh3 checks the signatures of TLS with AWS-LC, twice as fast as OpenSSL in `cryptography`. The
function has no public name: where a version lacks it, or it does something else, `cryptography`
goes on checking.
"""

from __future__ import annotations

from typing import Final

from qh3 import _hazmat

from laps.auth import ed25519

# As TLS calls the algorithm (RFC 8446, 4.2.3).
_ED25519: Final = 0x0807


def check_ed25519(spki: bytes, signed: bytes, signature: bytes) -> bool:
    """As `ed25519.Check`."""
    try:
        _hazmat.verify_with_public_key(spki, _ED25519, signed, signature)
    except (_hazmat.SignatureError, _hazmat.CryptoError):
        return False
    return True


def use_those_of_quic() -> bool:
    """Have tokens checked with it, if it is there and right."""
    return ed25519.use(check_ed25519)
