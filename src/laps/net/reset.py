"""Stateless resets: how a server that has lost a connection says so (RFC 9000 section 10.3).

    0b01, unpredictable bits (5 bytes or more) | token(16)

A relay that was killed and started again knows nothing of the connections it had. To a packet of
one of them it answers with the token that the peer was given when the connection began. The token
follows from a secret and from the connection id in the packet, so nothing has to be kept but the
secret. The peer closes the connection at once and does not wait for its idle timeout.

A reset is smaller than the packet that it answers, so that two endpoints that know nothing of each
other fall silent; and there are so many a second, so that nobody is kept busy with them.

The secret is that of one port of one relay. A client may choose the id of its own connection, and
is given the token for it: were the secret the same elsewhere, it could choose there what it has
seen on the way of somebody else. So relays that share a certificate have different ones.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
from typing import Final

from laps import places

log = logging.getLogger(__name__)

TOKEN_BYTES: Final = 16

# RFC 9000 section 10.3: five bytes that look like a packet, and the token.
MIN_RESET_BYTES: Final = 21

# Enough to look like any short packet; a larger one would say no more.
MAX_RESET_BYTES: Final = 42

# Ten thousand clients of a relay that comes back know within ten seconds; 42 kB/s at most.
RESETS_A_SECOND: Final = 1000

REASON: Final = "the peer knows nothing of it any more (stateless reset)"

_LABEL: Final = b"laps stateless reset "


class Resets:
    """The tokens of one endpoint, and its answers to packets of connections it does not know."""

    def __init__(self, secret: bytes, cid_bytes: int) -> None:
        """All connection ids of the endpoint have `cid_bytes`, or count up to there."""
        self._secret = secret
        self._cid_bytes = cid_bytes
        self._second = -1
        self._left = 0

    def token(self, cid: bytes) -> bytes:
        """What ends the connection with this id."""
        return hmac.digest(self._secret, cid[: self._cid_bytes], hashlib.sha256)[:TOKEN_BYTES]

    def answer(self, packet: bytes, now: float) -> bytes | None:
        """To a packet with a short header and an id nobody knows; None: none is due now."""
        size = min(len(packet) - 1, MAX_RESET_BYTES)
        if size < MIN_RESET_BYTES:
            return None
        if int(now) != self._second:
            self._second, self._left = int(now), RESETS_A_SECOND
        if not self._left:
            return None
        self._left -= 1
        noise = os.urandom(size - TOKEN_BYTES)
        first = noise[0] & 0x3F | 0x40
        return bytes((first,)) + noise[1:] + self.token(packet[1 : 1 + self._cid_bytes])


class PeerTokens:
    """Finds the connection that a datagram resets, by the token at its end.

    What is compared is a keyed hash: how long it takes says nothing about a token.
    """

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def key(self, datagram: bytes) -> bytes | None:
        """Under which the connection is kept; None where the datagram is too short for a reset."""
        if len(datagram) < MIN_RESET_BYTES:
            return None
        return self.key_of(datagram[-TOKEN_BYTES:])

    def key_of(self, token: bytes) -> bytes:
        """Under which to keep a connection whose peer has given this token."""
        return hmac.digest(self._key, token, hashlib.sha256)


def relay_secret(private_key: bytes | None, relay: str, port: str) -> bytes:
    """The secret of a port of a relay, both named, which is the same after a restart.

    It follows from the private key of the certificate. Where that is made at every start (None),
    from a file that the user's programs share.
    """
    if private_key is None:
        try:
            private_key = places.shared_secret()
        except places.PlaceRefused as error:
            log.info("after a restart, connections from before will time out: %s", error)
            private_key = os.urandom(32)
    return hmac.digest(private_key, _LABEL + f"{relay} {port}".encode(), hashlib.sha256)
