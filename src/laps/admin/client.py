"""The admin API of relays, as one who looks asks for it (docs/admin.md).

LookError             what went wrong, in words
    NotFound          there is no such thing, in the relay's own words
    NoAnswer          the relay at an address does not answer
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Self

import httpx

from laps.errors import ConfigError, LapsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

Answer = dict[str, Any]
"A view, as the relay said it."

CONNECT_S: Final = 3.0
ANSWER_S: Final = 15.0


class LookError(LapsError):
    """Something cannot be seen."""


class NotFound(LookError):  # noqa: N818 - it says what happened
    """The relay knows no such thing."""


class NoAnswer(LookError):  # noqa: N818
    """Nobody answers at an address, or nobody that speaks the admin API."""


def admin_url(text: str) -> str:
    """What a person wrote as the address of an admin API: `http://host:port`, or without http."""
    url = text.strip()
    if "://" not in url:
        url = f"http://{url}"
    try:
        parsed = httpx.URL(url)
        known = parsed.scheme in {"http", "https"} and parsed.host != "" and " " not in url
    except httpx.InvalidURL:
        known = False
    if not known:
        raise ConfigError(
            f'admin address "{text}" is no URL: write it like http://127.0.0.1:33436, as the relay '
            "says when it is ready"
        )
    return url.rstrip("/")


class RelayApi:
    """What one relay says."""

    def __init__(
        self, url: str, token: str = "", transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        """`transport` takes the place of sockets, in tests."""
        self.url = url
        self.node = ""
        "Its id, once it has said so."
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S)
        # A proxy has no business between an operator and a relay.
        self._http = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=timeout, trust_env=False, transport=transport
        )
        self._has_token = bool(token)

    @property
    def host(self) -> str:
        """Whose clock its times are by, as far as an address tells."""
        return httpx.URL(self.url).host

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ask no more."""
        await self._http.aclose()

    async def get(self, view: str, **parameters: str | int) -> Answer:
        """A view: `get("tracks", limit=0)`, `get("nodes/1:2")`."""
        try:
            response = await self._http.get(f"/v1/{view}", params=parameters)
        except httpx.HTTPError as error:
            raise self._no_answer(error) from error
        self._check(response.status_code, response.text)
        return self._read(response.text)

    async def find(self, view: str, **parameters: str | int) -> Answer | None:
        """A view of one thing; None if the relay does not know it."""
        try:
            return await self.get(view, **parameters)
        except NotFound:
            return None

    async def lines(self, view: str, **parameters: str | int) -> AsyncIterator[Answer]:
        """A stream of JSON lines, until it ends or is left."""
        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S, read=None)
        try:
            async with self._http.stream(
                "GET", f"/v1/{view}", params=parameters, timeout=timeout
            ) as response:
                if response.status_code != httpx.codes.OK:
                    self._check(response.status_code, (await response.aread()).decode())
                async for line in response.aiter_lines():
                    if line.strip():
                        yield self._read(line)
        except httpx.HTTPError as error:
            raise self._no_answer(error) from error

    def _read(self, text: str) -> Answer:
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise NoAnswer(f"what answers at {self.url} is no relay's admin API: {text[:60]!r}")
        return value

    def _check(self, status: int, text: str) -> None:
        if status == httpx.codes.OK:
            return
        try:
            words = str(json.loads(text)["error"])
        except (ValueError, KeyError, TypeError):
            words = f"it answers with status {status}"
        if status == httpx.codes.UNAUTHORIZED:
            way_out = (
                "the one given is not the relay's" if self._has_token else "give it with --token"
            )
            raise LookError(f"the relay at {self.url} wants a token: {way_out} (or LAPS_TOKEN)")
        if status == httpx.codes.NOT_FOUND:
            raise NotFound(words)
        raise LookError(f"the relay at {self.url} refuses: {words}")

    def _no_answer(self, error: httpx.HTTPError) -> NoAnswer:
        match error:
            case httpx.ConnectTimeout() | httpx.ReadTimeout():
                why = "it did not say anything in time"
            case httpx.ConnectError():
                why = "the connection is refused"
            case _:
                why = str(error) or type(error).__name__
        return NoAnswer(
            f"no relay answers at {self.url}: {why}; `laps relay` says where its admin API is "
            "(admin=…) when it is ready"
        )
