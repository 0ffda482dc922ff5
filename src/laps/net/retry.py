"""Address validation: the token a Retry packet carries, which only its receiver can send back.

A token is `sealed part | HMAC-SHA256` where the sealed part is

    issued at, ms(8) | length(1) original destination id | length(1) retry source id

and the HMAC also covers the address. It hides nothing, because nothing in it is secret, and it
keeps no state: a flood of spoofed addresses costs one hash a packet.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from laps.net.handshake import Address

# Long enough for a slow path's round trip, short enough that a token overheard is soon worthless.
TOKEN_LIFETIME_S: Final = 10.0

_MAC_BYTES: Final = 32


class RetryTokens:
    """Makes and checks tokens under a key of its own."""

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def make(self, addr: Address, original_cid: bytes, retry_cid: bytes, now: float) -> bytes:
        """A token for a client at `addr` that sent to `original_cid`."""
        sealed = round(now * 1000).to_bytes(8, "big")
        for cid in (original_cid, retry_cid):
            sealed += len(cid).to_bytes(1, "big") + cid
        return sealed + self._mac(addr, sealed)

    def check(self, addr: Address, token: bytes, now: float) -> tuple[bytes, bytes] | None:
        """The two ids of a token of ours, sent back in time from where it went; else None."""
        sealed, mac = token[:-_MAC_BYTES], token[-_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(addr, sealed)):
            return None
        age = now - int.from_bytes(sealed[:8], "big") / 1000
        if not -1.0 <= age <= TOKEN_LIFETIME_S:
            return None
        end = 9 + sealed[8]
        return sealed[9:end], sealed[end + 1 :]

    def _mac(self, addr: Address, sealed: bytes) -> bytes:
        family = socket.AF_INET6 if ":" in addr[0] else socket.AF_INET
        place = socket.inet_pton(family, addr[0]) + addr[1].to_bytes(2, "big")
        return hmac.digest(self._key, place + sealed, hashlib.sha256)
