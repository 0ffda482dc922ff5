"""The URL of a relay: where to dial, what to say there, and whom to trust.

    moqt://HOST[:PORT][/PATH]       MoQT on QUIC
    https://HOST[:PORT][/PATH]      MoQT in WebTransport
    quicr://HOST[:PORT]             QUICR

Where no port is named it is 443 for MoQT, as the drafts have it, and the relay's own for QUICR.
A token in the query (`?jwt=`) is sent to the relay, and taken out of every URL that is shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

from laps.auth.tokens import URL_PARAMETERS
from laps.errors import ConfigError, quote
from laps.net.tls import Trust
from laps.types import Address

# What each scheme stands for, and the port where none is named.
DEFAULT_PORTS: Final = {"moqt": 443, "https": 443, "quicr": 33435}
EXAMPLES: Final = (
    "write it like moqt://relay.example:33435, https://relay.example:33435/moq "
    "or quicr://relay.example:33435"
)


@dataclass(frozen=True, slots=True)
class Target:
    """A URL, taken apart."""

    url: str
    "As it is shown: without a token."
    host: str
    port: int
    path: str = field(repr=False)
    "With the query, which may hold a token; empty if the URL has none."
    authority: str
    "Host and port as they were written."
    scheme: str
    fingerprint: str | None = None
    "Of the relay's certificate, where it has said so itself."

    @property
    def webtransport(self) -> bool:
        """Whether it is MoQT in WebTransport."""
        return self.scheme == "https"

    @property
    def quicr(self) -> bool:
        """Whether it is QUICR."""
        return self.scheme == "quicr"

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        return Address(self.host, self.port).is_loopback


@runtime_checkable
class Place(Protocol):
    """A relay that was found, such as `laps.net.discovery.Found`."""

    @property
    def url(self) -> str:
        """Where to dial it."""

    @property
    def fingerprint(self) -> str | None:
        """SHA-256 of its certificate, in hexadecimal."""


def target_of(place: str | Place) -> Target:
    """Where to dial a relay, by its URL or as it was found."""
    if isinstance(place, str):
        return parse_url(place)
    return replace(parse_url(place.url), fingerprint=place.fingerprint)


def parse_url(url: str) -> Target:
    """Take a URL apart, or say what is wrong with it."""
    given, url = url, without_token(url)
    try:
        parts = urlsplit(given)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"URL {quote(url)}: {error}: {EXAMPLES}") from None
    if parts.scheme not in DEFAULT_PORTS:
        problem = f"scheme {quote(parts.scheme)} is not known" if parts.scheme else "has no scheme"
        raise ConfigError(f"URL {quote(url)}: {problem}: {EXAMPLES}")
    if not parts.hostname:
        raise ConfigError(f"URL {quote(url)}: names no host: {EXAMPLES}")
    if parts.username is not None or parts.fragment:
        raise ConfigError(f"URL {quote(url)}: has a user or a fragment, and needs none: {EXAMPLES}")
    if port == 0:
        raise ConfigError(f"URL {quote(url)}: port 0 cannot be dialled: give the relay's port")
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    if parts.scheme == "quicr" and path not in ("", "/"):
        raise ConfigError(f"URL {quote(url)}: has a path, and QUICR has none: {EXAMPLES}")
    return Target(
        url,
        parts.hostname,
        DEFAULT_PORTS[parts.scheme] if port is None else port,
        path,
        parts.netloc,
        parts.scheme,
    )


def without_token(url: str) -> str:
    """A URL to be shown: without the parameters that hold a token."""
    head, mark, query = url.partition("?")
    kept = [
        part
        for part in query.split("&")
        if unquote(part.partition("=")[0]).lower() not in URL_PARAMETERS
    ]
    return head + (mark + "&".join(kept) if any(kept) else "")


def trust_for(target: Target, *, insecure: bool, fingerprint: str | None) -> Trust:
    """Whose certificate is taken: anyone's on this machine, and elsewhere whom the system trusts.

    `fingerprint` and `insecure` are for relays that made their own certificate.
    """
    fingerprint = target.fingerprint or fingerprint
    if fingerprint is not None:
        return Trust(fingerprint=fingerprint)
    return Trust(anyone=insecure or target.is_local)
