"""Relays that prove who they are, joined in memory; and puppets that do, or only seem to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.auth.keys import Key, KeySet, generate, read_jwk, write_jwk
from laps.auth.peers import PeerVerifier, Place, Side, Speaker, sign
from laps.auth.tokens import Algorithm
from laps.relay.proofs import ProofPolicy
from laps.relay.roles import Role
from laps.types import DataDirection, NodeType, PeerMode
from laps.wire.control import encode
from laps.wire.extensions import EXTENDED_CODECS, Authorization
from support.relays import Net, Puppet

if TYPE_CHECKING:
    from laps.relay.ports import Link
    from laps.relay.relay import Relay
    from laps.types import Network
    from laps.wire.peering import Message
    from support.relays import Wire

EPOCH_S = 1_790_000_000.0


class Keyring:
    """The keys that all relays of a test know, and what each of them may."""

    def __init__(self) -> None:
        self._keys: dict[str, Key] = {}

    def make(self, name: str, **bounds: object) -> Key:
        """A key with bounds."""
        jwk = {**write_jwk(generate(Algorithm.EDDSA, name), private=True), "laps": bounds}
        self._keys[name] = read_jwk(jwk, name)
        return self._keys[name]

    def policy(self, key: Key | None, trusted: tuple[Network, ...] = ()) -> ProofPolicy:
        """To ask everybody for proof, with the keys of now."""
        verifier = PeerVerifier(KeySet(self._keys.values()))
        return ProofPolicy(key, verifier, required=True, trusted=trusted, region="eu")


class ProvingNet(Net):
    """Relays that all ask for proof, on wires with extensions."""

    def __init__(self) -> None:
        super().__init__()
        self.keyring = Keyring()

    def proving(
        self,
        node: str,
        role: Role = Role.EDGE,
        *,
        trusted: tuple[Network, ...] = (),
        **bounds: object,
    ) -> Relay:
        """A relay with a key of its own."""
        relay = self.relay(node, role)
        key = self.keyring.make(node.replace(":", "-"), **bounds)
        relay.proofs.epoch_s = EPOCH_S
        relay.proofs.configure(self.keyring.policy(key, trusted), self.now)
        self.know_all()
        return relay

    def know_all(self) -> None:
        """Every relay knows the keys of all."""
        for relay in self.relays.values():
            policy = relay.proofs.policy
            if policy.verifier is not None:
                policy.verifier.replace(
                    KeySet(self.keyring._keys.values()), policy.verifier._revoked
                )

    def liar(self, node: str, role: str = "edge", **bounds: object) -> Prover:
        """A puppet that proves who it is, and then says what it likes."""
        made = Prover(self, node, role, self.keyring.make(node.replace(":", "-"), **bounds))
        self.know_all()
        return made

    def join(self, a: Relay | Puppet, b: Relay | Puppet) -> Wire:
        return self.wire(a, b, extended=True)


class Prover(Puppet):
    """A puppet with a key, that dials with extensions."""

    def __init__(self, net: ProvingNet, node: str, role: str, key: Key) -> None:
        types = {"edge": NodeType.EDGE, "stub": NodeType.STUB}
        super().__init__(net, node, types.get(role, NodeType.VIA))
        self.key = key
        self.role = role
        self.tokens: list[bytes] | None = None
        "What it sends in place of a right token, one after the other; none at all when empty."

    def token(self, link: Link, now: float) -> bytes:
        """A right one."""
        speaker = Speaker(self.id, self.role, "eu")
        return sign(speaker, Place(link.certificate, Side.DIALLER), self.key, EPOCH_S + now)

    def say(self, *messages: Message) -> None:
        """On the control stream of its last link, with extensions."""
        for message in messages:
            self.end.send_control(self.control, encode(message, codecs=EXTENDED_CODECS))
        self.net.run()

    def link_opened(
        self,
        link: Link,
        now: float,
        mode: PeerMode = PeerMode.BOTH,
        direction: DataDirection = DataDirection.BIDIRECTIONAL,
    ) -> None:
        """It dials, and proves who it is."""
        super().link_opened(link, now, mode, direction)
        assert link.dialled
        for token in [self.token(link, now)] if self.tokens is None else self.tokens:
            message = encode(Authorization(token), codecs=EXTENDED_CODECS)
            link.send_control(self.control, message)

    def link_data(self, link: Link, stream_id: int, data: bytes, fin: bool, now: float) -> None:
        """It reads extensions too."""
        if stream_id & 2:
            super().link_data(link, stream_id, data, fin, now)
            return
        self._decoder.feed(data)
        self.heard.extend(self._decoder)
