"""Relays prove to each other who they are: the token of AUTHORIZATION.

    {
      "sub": "1:100", "aud": "<SHA-256 of the server's certificate>",
      "iat": 1790000000, "exp": 1790000060, "jti": "<random>",
      "laps": {"side": "dialler", "role": "edge", "region": "eu", "namespaces": ["rooms/eu"]}
    }

It is an EdDSA JWT that a relay signs itself, for one connection. The audience is the certificate
that the side that was dialled shows on it, so that a token is of no use at another server, and
another server cannot answer in its place. `laps.side` says which side signed: neither token can be
taken for the other's. Each is taken once.

`laps.side` also sets it apart from the tokens of clients: these are refused here, and this one
there.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from laps.auth import jwt
from laps.auth.bounds import ROLES, holds, is_below
from laps.auth.judge import SKEW_S, Revoked
from laps.auth.refusals import AuthError
from laps.auth.tokens import Algorithm, audience_of, read_json_object, text_of, time_of, unknown
from laps.errors import LapsError, quote
from laps.names import namespace_text, read_namespace
from laps.types import format_node_id, parse_node_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laps.auth.bounds import Bounds
    from laps.auth.grants import Namespace
    from laps.auth.keys import Key, KeySet
    from laps.types import NodeId

# A dialler sends it right after it has signed it: the rest is for a slow handshake.
MAX_LIFETIME_S: Final = 60

# Tokens that were taken are remembered until they expire. More than this within two minutes is no
# network that comes up but an attempt at something, and the oldest are forgotten first.
MAX_SEEN: Final = 10_000


class ProofError(LapsError):
    """A peer has not proved who it is; the words say what is wrong."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """What a relay says of itself in its token."""

    node_id: NodeId
    role: str
    region: str = ""
    namespaces: tuple[Namespace, ...] | None = None
    "What it may offer tracks in; None: all that its key may."


class Side(StrEnum):
    """Which end of a connection a relay is."""

    DIALLER = "dialler"
    DIALLED = "dialled"


@dataclass(frozen=True, slots=True)
class Place:
    """One end of one connection: what a token is good for."""

    audience: str
    "SHA-256 of the certificate that the side that was dialled shows, in hexadecimal."
    side: Side


@dataclass(frozen=True, slots=True)
class Proven:
    """Who a peer has proved to be, and what it may say."""

    speaker: Speaker
    bounds: Bounds
    id: str
    key_id: str
    key_fingerprint: bytes

    def may_carry(self, node_id: NodeId) -> bool:
        """Whether it may tell of ways to another node, and pass on what that says."""
        return self.speaker.role != "stub" and holds(self.bounds.carries, node_id)

    def may_offer(self, namespace: Namespace) -> bool:
        """Whether it may offer what is in a namespace as its own."""
        allowed = self.speaker.namespaces
        return is_below(namespace, self.bounds.namespaces) and is_below(namespace, allowed)


def sign(speaker: Speaker, place: Place, key: Key, now: float) -> bytes:
    """A token of this relay for one connection."""
    ours: dict[str, object] = {"side": place.side, "role": speaker.role, "region": speaker.region}
    if speaker.namespaces is not None:
        ours["namespaces"] = [namespace_text(namespace) for namespace in speaker.namespaces]
    claims: dict[str, object] = {
        "sub": format_node_id(speaker.node_id),
        "aud": place.audience,
        "iat": int(now),
        "exp": int(now) + MAX_LIFETIME_S,
        "jti": secrets.token_hex(16),
        "laps": ours,
    }
    return jwt.sign(claims, key).encode()


class PeerVerifier:
    """Checks the tokens of peers, and remembers which were taken."""

    def __init__(self, keys: KeySet, revoked: Revoked | None = None) -> None:
        self._keys = keys
        self._revoked = revoked or Revoked()
        self._seen: OrderedDict[str, float] = OrderedDict()
        "Until when a token would be valid that was taken, the oldest first."

    def replace(self, keys: KeySet, revoked: Revoked) -> None:
        """Take other keys and revocations."""
        self._keys = keys
        self._revoked = revoked

    def verify(self, token: bytes, node_id: NodeId, place: Place, now: float) -> Proven:
        """Who a peer is that calls itself by this node id; ProofError says what is wrong."""
        try:
            proven, expires = self._read(token, place, now)
        except AuthError as error:
            raise ProofError(str(error)) from None
        speaker = proven.speaker
        if speaker.node_id != node_id:
            names = format_node_id(speaker.node_id), format_node_id(node_id)
            raise ProofError("the token is that of node {} (sub), not of {}".format(*names))
        _check_bounds(proven)
        self._take_once(proven.id, expires, now)
        return proven

    def recheck(self, proven: Proven) -> None:
        """ProofError if a peer would not be let in with the keys and revocations of now."""
        try:
            key = self._keys.find(proven.key_id)
        except AuthError as error:
            raise ProofError(str(error)) from None
        if key.fingerprint != proven.key_fingerprint:
            raise ProofError(f"the key {quote(key.id)} is another now")
        self._check_revoked(key.id, proven.id)
        if key.bounds != proven.bounds:
            raise ProofError(f"the key {quote(key.id)} has other bounds now")

    def _read(self, token: bytes, place: Place, now: float) -> tuple[Proven, float]:
        sealed = jwt.read_sealed(token)
        key = self._keys.find(sealed.key_id)
        if sealed.algorithm is not Algorithm.EDDSA or key.algorithm is not Algorithm.EDDSA:
            raise ProofError(f"the token of a relay is signed with {Algorithm.EDDSA}")
        self._check_revoked(key.id, "")
        if not key.verifies(sealed.signed, sealed.signature):
            raise ProofError(f"the signature is not that of the key {quote(key.id)}")
        claims = read_json_object(sealed.payload, "the payload")
        expires = _check_times(claims, now)
        if audience_of(claims.get("aud")) != (place.audience,):
            raise ProofError("the token is for another server (aud)")
        token_id = text_of(claims.get("jti"), "jti")
        self._check_revoked(key.id, token_id)
        speaker = _read_speaker(claims, place.side)
        return Proven(speaker, key.bounds, token_id, key.id, key.fingerprint), expires

    def _check_revoked(self, key_id: str, token_id: str) -> None:
        if key_id in self._revoked.keys:
            raise ProofError(f"the key {quote(key_id)} is revoked")
        if token_id in self._revoked.tokens:
            raise ProofError(f"the token {quote(token_id)} is revoked")

    def _take_once(self, token_id: str, expires: float, now: float) -> None:
        while self._seen and next(iter(self._seen.values())) < now:
            self._seen.popitem(last=False)
        if token_id in self._seen:
            raise ProofError("the token was used before (jti)")
        self._seen[token_id] = expires
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)


def _check_times(claims: Mapping[str, object], now: float) -> float:
    """Until when a token is valid."""
    issued, expires = time_of(claims.get("iat"), "iat"), time_of(claims.get("exp"), "exp")
    if expires - issued > MAX_LIFETIME_S:
        lives = f"the token is valid for {expires - issued} s"
        raise ProofError(f"{lives}: {MAX_LIFETIME_S} at most (iat, exp)")
    if now >= expires + SKEW_S:
        raise ProofError(f"the token expired {now - expires:.0f} s ago: compare the clocks")
    if now < issued - SKEW_S:
        raise ProofError(f"the token is of {issued - now:.0f} s from now: compare the clocks")
    return expires + SKEW_S


def _read_speaker(claims: Mapping[str, object], side: Side) -> Speaker:
    ours = claims.get("laps")
    if not isinstance(ours, dict) or "side" not in ours:
        raise ProofError("the token is not that of a relay (laps.side)")
    unknown(ours, ("side", "role", "region", "namespaces"), "laps")
    if ours["side"] != side:
        raise ProofError(f"the token is not that of the {side} (laps.side)")
    namespaces = ours.get("namespaces")
    if namespaces is not None and not isinstance(namespaces, list):
        raise ProofError("laps.namespaces must be a list")
    try:
        return Speaker(
            parse_node_id(text_of(claims.get("sub"), "sub")),
            text_of(ours.get("role"), "laps.role"),
            text_of(ours.get("region", ""), "laps.region"),
            None
            if namespaces is None
            else tuple(read_namespace(text_of(one, "laps.namespaces")) for one in namespaces),
        )
    except ValueError as error:
        raise ProofError(str(error)) from None


def _check_bounds(proven: Proven) -> None:
    speaker, bounds = proven.speaker, proven.bounds
    key = f"the key {quote(proven.key_id)}"
    if speaker.role not in ROLES:
        raise ProofError(f"no relay has the role {quote(speaker.role)} (laps.role)")
    if not holds(bounds.nodes, speaker.node_id):
        raise ProofError(f"{key} is not for node {format_node_id(speaker.node_id)} (nodes)")
    if bounds.roles is not None and speaker.role not in bounds.roles:
        raise ProofError(f"{key} is not for the role {quote(speaker.role)} (roles)")
    if bounds.regions is not None and speaker.region not in bounds.regions:
        raise ProofError(f"{key} is not for the region {quote(speaker.region)} (regions)")
    for namespace in speaker.namespaces or ():
        if not is_below(namespace, bounds.namespaces):
            text = quote(namespace_text(namespace))
            raise ProofError(f"{key} is not for the namespace {text} (namespaces)")
