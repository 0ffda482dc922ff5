"""The keys of a relay, read again when their files change, and the time that tokens count by."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from laps.auth import jwt
from laps.auth.judge import Verifier
from laps.auth.key_files import KeyFiles
from laps.auth.keys import generate
from laps.auth.paths import read_paths
from laps.auth.tokens import Algorithm
from laps.edge.authority import Authority

if TYPE_CHECKING:
    from laps.config import AuthConfig
    from laps.edge.reviewing import Reviews

log = logging.getLogger(__name__)

# A clock that was set by more than this is another: what ends by it is looked at anew.
STEP_S: Final = 1.0


class Authorizing:
    """Whoever may do what at this relay."""

    def __init__(self, config: AuthConfig) -> None:
        """ConfigError where the keys cannot be read."""
        self.authority = Authority()
        self._own = generate(Algorithm.EDDSA)
        "For what the relay asks at its own door; it is in memory only, and new with each start."
        self._files: KeyFiles | None = None
        self._config = config
        self._read(config)
        self.authority.wall_s = _wall_s()

    def token_for_itself(self, namespace: str, track: str) -> str:
        """A token that lets this relay, and nobody else, read one track at its own door."""
        may = {"actions": ["subscribe", "fetch", "track-status"], "ends": True}
        allow = [{**may, "namespace": namespace, "track": track}]
        return jwt.sign({"sub": "this relay", "laps": {"allow": allow}}, self._own)

    def configure(self, config: AuthConfig, reviews: Reviews) -> None:
        """Take a changed configuration, and read the keys again whether or not it is."""
        self._read(config)
        self._config = config
        reviews.all(time.monotonic())

    def look(self, reviews: Reviews) -> None:
        """See whether the keys are others, or the clock was set; now and then."""
        authority, wall_s = self.authority, _wall_s()
        is_set = abs(wall_s - authority.wall_s) > STEP_S
        authority.wall_s = wall_s
        has_changed = self._files is not None and self._files.changed()
        if has_changed:
            self._reload()
        if is_set or has_changed:
            reviews.all(time.monotonic())

    def _reload(self) -> None:
        if self._files is None or self.authority.verifier is None:
            return
        if (problem := self._files.reload(self.authority.verifier)) is not None:
            log.warning("%s", problem)
        else:
            log.info("the keys and revocations have been read again")

    def _read(self, config: AuthConfig) -> None:
        authority = self.authority
        public = {"put": list(config.public_publish), "get": list(config.public_subscribe)}
        if config.keys is None:
            authority.verifier, self._files = None, None
        else:
            files = KeyFiles(config.keys, config.revoked)
            authority.verifier = Verifier(
                *files.read(), audience=config.audience, skew_s=config.skew_s, own=self._own
            )
            self._files = files
        authority.allow_everybody(read_paths(public))
        authority.needs_token = config.needs_token and not authority.public.scopes


def _wall_s() -> float:
    return time.time() - time.monotonic()
