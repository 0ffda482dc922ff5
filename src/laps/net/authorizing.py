"""Keys, of a relay and of origins, read again when they change; and the time tokens count by."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from laps.auth import jwt
from laps.auth.judge import Verifier
from laps.auth.key_files import KeyFiles
from laps.auth.keys import generate
from laps.auth.origins import Origin, OriginApi, Origins
from laps.auth.paths import parts_of, read_paths
from laps.auth.tokens import Algorithm
from laps.edge.authority import Authority
from laps.net.signatures import use_those_of_quic

if TYPE_CHECKING:
    from laps.config import Config, OriginConfig
    from laps.edge.reviewing import Reviews

log = logging.getLogger(__name__)

# A clock that was set by more than this is another: what ends by it is looked at anew.
STEP_S: Final = 1.0


class Authorizing:
    """Whoever may do what at this relay."""

    def __init__(self, config: Config) -> None:
        """ConfigError where the keys cannot be read."""
        if not use_those_of_quic():
            log.info("qh3 has no check of Ed25519 that could be used: cryptography checks tokens")
        self.authority = Authority()
        self._own = generate(Algorithm.EDDSA)
        "For what the relay asks at its own door; it is in memory only, and new with each start."
        self._files: list[tuple[KeyFiles, Verifier]] = []
        self._read(config)
        self.authority.wall_s = _wall_s()

    def token_for_itself(self, namespace: str, track: str) -> str:
        """A token that lets this relay, and nobody else, read one track at its own door."""
        may = {"actions": ["subscribe", "fetch", "track-status"], "ends": True}
        allow = [{**may, "namespace": namespace, "track": track}]
        return jwt.sign({"sub": "this relay", "laps": {"allow": allow}}, self._own)

    def configure(self, config: Config, reviews: Reviews) -> None:
        """Take a changed configuration, and read the keys again whether or not it is."""
        self._read(config)
        reviews.all(time.monotonic())

    def look(self, reviews: Reviews) -> None:
        """See whether the keys are others, or the clock was set; now and then."""
        authority, wall_s = self.authority, _wall_s()
        is_set = abs(wall_s - authority.wall_s) > STEP_S
        authority.wall_s = wall_s
        changed = [it for it in self._files if it[0].changed()]
        for files, verifier in changed:
            if (problem := files.reload(verifier)) is not None:
                log.warning("%s", problem)
            else:
                whose = f" of the origin {verifier.origin}" if verifier.origin else ""
                log.info("the keys and revocations%s have been read again", whose)
        if is_set or changed:
            reviews.all(time.monotonic())

    def _read(self, config: Config) -> None:
        """All of them, or none if one cannot be read."""
        files: list[tuple[KeyFiles, Verifier]] = []
        auth, authority = config.auth, self.authority
        skew_s = auth.skew_s
        if auth.keys is not None:
            found = KeyFiles(auth.keys, auth.revoked)
            verifier = Verifier(*found.read(), audience=auth.audience, skew_s=skew_s, own=self._own)
            files.append((found, verifier))
        own = files[0][1] if files else None
        origins = []
        for origin in config.origins:
            by = None
            if origin.keys is not None:
                found = KeyFiles(origin.keys, origin.revoked)
                name, audience = origin.name, origin.audience
                by = Verifier(*found.read(), audience=audience, skew_s=skew_s, origin=name)
                files.append((found, by))
            origins.append(_origin(origin, by))
        self._files, authority.verifier = files, own
        if origins != list(authority.origins):
            authority.decisions.forget()
        authority.origins = Origins(origins)
        public = {"put": list(auth.public_publish), "get": list(auth.public_subscribe)}
        authority.allow_everybody(read_paths(public))
        authority.asks_for_token = auth.needs_token and not authority.public.scopes


def _origin(config: OriginConfig, verifier: Verifier | None) -> Origin:
    api = None
    if config.api:
        api = OriginApi(
            config.api, config.authorities, config.timeout_s, config.concurrent, config.queue
        )
    namespaces = tuple(parts_of(text) for text in config.prefixes)
    return Origin(config.name, namespaces, config.ids, api, verifier)


def _wall_s() -> float:
    return time.time() - time.monotonic()
