"""Asks relays over their admin API, for every program that looks into them (docs/admin.md).

AdminError            what went wrong, in words
    NotFound          the relay knows no such thing, in its own words
    Refused           the relay does not answer this, or not without a token
    NoAnswer          no relay answers at an address
        Unreachable   nobody listens there
        TimedOut      the answer did not come in time
        Unreadable    what came is no answer of a relay, or too large for one
"""
# ruff: noqa: N818 - a name says what happened; the tree above says that it is an error.

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from laps.admin.schema.relay import Error
from laps.admin.schema.tracks import Arrival, Missed
from laps.errors import ConfigError, LapsError
from laps.places import read_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from laps.admin.schema.fields import Page

PageT = TypeVar("PageT", bound="Page")
T = TypeVar("T")

# A process that listens takes a connection at once, even far away.
CONNECT_S: Final = 3.0

# A relay that is busy with a long list is silent for less than this.
SILENCE_S: Final = 15.0

# All of an answer, where the caller names no time of its own.
ANSWER_S: Final = 60.0

# Ten times the largest list that relays are measured with: 100,000 tracks of 400 bytes.
MAX_ANSWER_BYTES: Final = 400_000_000

# A line of a trace has some 150 bytes.
MAX_LINE_BYTES: Final = 65_536

TRACE_PATH: Final = "/v1/trace"


class AdminError(LapsError):
    """A relay cannot be asked, or does not know."""

    def __init__(
        self, sentence: str, *, why: str = "", path: str = "", status: int = 0, seconds: float = 0.0
    ) -> None:
        super().__init__(sentence)
        self.why = why
        "The cause alone: the relay's own words, where it answered."
        self.path = path
        "The page that was asked for, where there was an answer."
        self.status = status
        "The status of HTTP, where it is one that refuses."
        self.seconds = seconds
        "How long the answer was waited for, where it did not come."


class NotFound(AdminError):
    """The relay knows no such thing."""


class Refused(AdminError):
    """The relay does not answer this, or not without a token."""


class NoAnswer(AdminError):
    """Nobody answers at an address, or nobody that speaks the admin API."""


class Unreachable(NoAnswer):
    """Nobody listens there."""


class TimedOut(NoAnswer):
    """The answer did not come in time."""


class Unreadable(NoAnswer):
    """What came is no answer of a relay, or too large for one."""


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


def urls_of_this_machine() -> list[str]:
    """The admin APIs of the relays that run on this machine now."""
    return [admin_url(str(word["admin"])) for word in read_words("relays") if word.get("admin")]


class Sockets(httpx.AsyncHTTPTransport):
    """Connections of the library's, of which none fails as a defect of ours would."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """As `AsyncHTTPTransport`, where the relay dies as soon as it has taken the connection."""
        try:
            return await super().handle_async_request(request)
        except AttributeError as error:
            # anyio asks for the address of a socket that uvloop has closed already.
            raise httpx.ConnectError("it was closed at once", request=request) from error


class Pool:
    """Connections to any number of relays, which are asked at once."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """`transport` takes the place of sockets, in tests."""
        # Not by way of a proxy that the environment names: relays are asked directly.
        unbounded = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self.http = httpx.AsyncClient(
            transport=transport or Sockets(trust_env=False, limits=unbounded),
            trust_env=False,
            timeout=httpx.Timeout(SILENCE_S, connect=CONNECT_S, pool=None),
        )

    async def close(self) -> None:
        """Close them all."""
        await self.http.aclose()


class AdminClient:
    """Asks one relay."""

    def __init__(self, url: str, token: str = "", pool: Pool | None = None) -> None:
        """`pool` is shared with others and stays open; without one it has its own."""
        self.url = url
        self.node = ""
        "The relay's id, once it has answered with it."
        self.has_token = bool(token)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._pool = pool or Pool()
        self._owns_pool = pool is None

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
        if self._owns_pool:
            await self._pool.close()

    async def get(
        self,
        page: type[PageT],
        name: str = "",
        /,
        timeout_s: float = ANSWER_S,
        **query: str | int,
    ) -> PageT:
        """A page: `get(Tracks, limit=0)`, `get(OneNode, "1:2")`."""
        return await self._ask(page.path, name, page, timeout_s, query)

    async def find(self, page: type[PageT], name: str = "", /, **query: str | int) -> PageT | None:
        """A page of one thing; None if the relay does not know it."""
        try:
            return await self._ask(page.path, name, page, ANSWER_S, query)
        except NotFound:
            return None

    async def get_plain(
        self, page: type[Page], timeout_s: float = ANSWER_S, **query: str | int
    ) -> dict[str, Any]:
        """A page as the relay wrote it, to be passed on."""
        return await self._ask(page.path, "", dict[str, Any], timeout_s, query)

    async def trace(
        self, track: str, silence_s: float | None = None
    ) -> AsyncIterator[Arrival | Missed]:
        """The objects of a track as they come, until the relay ends it or the reader leaves.

        An empty line comes every few seconds: a relay that is silent for `silence_s` has died.
        """
        timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_S, read=silence_s, pool=None)
        request = self._pool.http.build_request(
            "GET",
            self.url + TRACE_PATH,
            params={"track": track},
            headers=self._headers,
            timeout=timeout,
        )
        try:
            response = await self._pool.http.send(request, stream=True)
            try:
                if response.status_code != httpx.codes.OK:
                    raise self._refusal(TRACE_PATH, response.status_code, await response.aread())
                async for line in self._lines(response):
                    if (seen := self._decode(line, _Line, TRACE_PATH)).group is not None:
                        yield self._decode(line, Arrival, TRACE_PATH)
                    elif seen.missed is not None:
                        yield Missed(missed=seen.missed)
            finally:
                await response.aclose()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._no_answer(error, silence_s or SILENCE_S) from error

    async def _lines(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """Lines that have something in them."""
        held = b""
        async for data in response.aiter_bytes():
            *lines, held = (held + data).split(b"\n")
            if len(held) > MAX_LINE_BYTES:
                raise self._unreadable(TRACE_PATH, f"a line is longer than {MAX_LINE_BYTES} bytes")
            for line in lines:
                if line.strip():
                    yield line
        if held.strip():
            yield held

    async def _ask(
        self, path: str, name: str, kind: type[T], timeout_s: float, query: dict[str, str | int]
    ) -> T:
        if name:
            path = path.partition("{")[0] + quote(name, safe=":/")
        try:
            async with asyncio.timeout(timeout_s):  # wait_for of 3.11 can lose a cancellation
                status, data = await self._read(path, query)
        except TimeoutError as error:
            raise self._no_answer(error, timeout_s) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._no_answer(error, timeout_s) from error
        if status != httpx.codes.OK:
            raise self._refusal(path, status, data)
        return self._decode(data, kind, path)

    async def _read(self, path: str, query: dict[str, str | int]) -> tuple[int, bytes]:
        """The status of an answer, and its bytes."""
        data = bytearray()
        async with self._pool.http.stream(
            "GET", self.url + path, params=query, headers=self._headers
        ) as response:
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) > MAX_ANSWER_BYTES:
                    raise self._unreadable(path, f"it is larger than {MAX_ANSWER_BYTES} bytes")
            return response.status_code, bytes(data)

    def _decode(self, data: bytes, kind: type[T], path: str) -> T:
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._unreadable(path, str(error)) from None

    # -- what is wrong, in words -------------------------------------------------------------------

    def _unreadable(self, path: str, why: str) -> Unreadable:
        sentence = f"what answers at {self.url} is no relay's admin API: {path}: {why}"
        return Unreadable(sentence, why=why, path=path)

    def _refusal(self, path: str, status: int, data: bytes) -> AdminError:
        try:
            why = msgspec.json.decode(data, type=Error).error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            why = ""
        words = why or f"it answers with status {status}"
        if status == httpx.codes.NOT_FOUND:
            return NotFound(words, why=why, path=path, status=status)
        sentence = f"the relay at {self.url} refuses: {words}"
        if status == httpx.codes.UNAUTHORIZED:
            way_out = (
                "the one given is not the relay's" if self.has_token else "give it with --token"
            )
            sentence = f"the relay at {self.url} wants a token: {way_out} (or LAPS_ADMIN_TOKEN)"
        return Refused(sentence, why=why, path=path, status=status)

    def _no_answer(self, error: Exception, seconds: float) -> NoAnswer:
        kind, why = NoAnswer, str(error) or type(error).__name__
        if isinstance(error, TimeoutError | httpx.TimeoutException):
            kind, why = TimedOut, "it did not say anything in time"
        elif isinstance(error, httpx.ConnectError):
            kind, why = Unreachable, "the connection is refused"
        return kind(
            f"no relay answers at {self.url}: {why}; `laps relay` says where its admin API is "
            "(admin=…) when it is ready",
            why=why,
            seconds=seconds,
        )


class _Line(msgspec.Struct, frozen=True):
    """As much of a line of a trace as tells what it is; of later kinds neither is there."""

    group: int | None = None
    missed: int | None = None
