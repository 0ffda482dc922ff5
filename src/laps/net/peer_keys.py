"""What relays prove to each other who they are with, from files that may change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.auth.key_files import KeyFiles
from laps.auth.peers import PeerVerifier
from laps.auth.tokens import Algorithm
from laps.errors import ConfigError
from laps.relay.proofs import ProofPolicy

if TYPE_CHECKING:
    from pathlib import Path

    from laps.auth.keys import Key
    from laps.config import Config


class PeerKeys:
    """The keys that a configuration names, as they were when they were read."""

    def __init__(self, config: Config, before: PeerKeys | None = None) -> None:
        """Read them; ConfigError names the file. `before` remembers which tokens were taken."""
        peering = config.peering
        self._files = [KeyFiles(path) for path in (peering.key, peering.keys) if path is not None]
        key = None if peering.key is None else _signer(self._files[0], peering.key)
        self.policy: ProofPolicy
        verifier = None
        if peering.keys is not None:
            read = self._files[-1].read()
            verifier = (before and before.policy.verifier) or PeerVerifier(*read)
            verifier.replace(*read)
        required = config.requires_peer_auth
        self.policy = ProofPolicy(key, verifier, required, peering.trusted, config.node.region)

    def changed(self) -> bool:
        """Whether a file is another than when it was read."""
        return any(files.changed() for files in self._files)


def _signer(files: KeyFiles, path: Path) -> Key:
    try:
        key = files.read()[0].signer()
    except ConfigError as error:
        raise ConfigError(f"peering.key: {error}") from None
    if key.algorithm is not Algorithm.EDDSA:
        problem = f"is for {key.algorithm}: a relay signs with EdDSA, `laps token key` makes one"
        raise ConfigError(f"peering.key: {path}: {problem}")
    return key
