"""New tokens: the same terms as a JWT or as a CAT."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from laps.auth import cat, jwt
from laps.auth.grants import PUBLISHING, SUBSCRIBING, Limits
from laps.auth.paths import CONNECTING, scope_below
from laps.errors import ConfigError
from laps.names import namespace_text

if TYPE_CHECKING:
    from laps.auth.grants import Namespace
    from laps.auth.keys import Key

Name = TypeVar("Name", int, str)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a new token is to say."""

    publish: tuple[Namespace, ...] = ()
    """Namespaces in and below which it allows to publish; the empty one is all."""
    subscribe: tuple[Namespace, ...] = ()
    """Likewise to subscribe, fetch and watch."""
    subject: str = ""
    audience: tuple[str, ...] = ()
    id: str = ""
    issued: int | None = None
    not_before: int | None = None
    expires: int | None = None
    limits: Limits = field(default=Limits())


def issue_jwt(terms: Terms, key: Key) -> str:
    """A JWT; a relay of moq-dev takes it too, where it has no limits."""
    limits = _said(dataclasses.asdict(terms.limits))
    claims: dict[str, object] = {
        "sub": terms.subject,
        "aud": list(terms.audience),
        "jti": terms.id,
        "iat": terms.issued,
        "nbf": terms.not_before,
        "exp": terms.expires,
        "put": [_path(namespace) for namespace in terms.publish],
        "get": [_path(namespace) for namespace in terms.subscribe],
        "laps": {"limits": limits} if limits else None,
    }
    return jwt.sign(_said(claims), key)


def issue_cat(terms: Terms, key: Key) -> bytes:
    """A CAT; C4M has no limits."""
    if terms.limits != Limits():
        raise ConfigError("a CAT has no claim for limits: make a JWT")
    scopes = [
        *(scope_below(namespace, PUBLISHING) for namespace in terms.publish),
        *(scope_below(namespace, SUBSCRIBING) for namespace in terms.subscribe),
    ]
    claims: dict[int, object] = {
        cat.Claim.SUB: terms.subject,
        cat.Claim.AUD: list(terms.audience),
        cat.Claim.EXP: terms.expires,
        cat.Claim.NBF: terms.not_before,
        cat.Claim.IAT: terms.issued,
        cat.Claim.CTI: terms.id.encode(),
        cat.Claim.MOQT: [cat.write_scope(scope) for scope in (CONNECTING, *scopes)]
        if scopes
        else [],
    }
    return cat.sign(_said(claims), key)


def _path(namespace: Namespace) -> str:
    """A namespace as the claims put and get have it; ConfigError if it has none."""
    try:
        parts = [part.decode() for part in namespace]
    except UnicodeDecodeError:
        parts = [""]
    if not all(parts) or any("/" in part for part in parts):
        problem = "put and get have parts of text, without slashes in them: make a CAT"
        raise ConfigError(f"namespace {namespace_text(namespace)}: {problem}")
    return "/".join(parts)


def _said(claims: dict[Name, object]) -> dict[Name, object]:
    """The claims that say something."""
    return {name: value for name, value in claims.items() if value not in (None, "", b"", [])}
