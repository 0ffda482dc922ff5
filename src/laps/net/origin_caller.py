"""Asks the servers of origins over HTTPS, what the Edge has written down.

    edge.origins.asked  ->  one request each, bounded in time and size  ->  edge.origins.answered

Certificates are verified, redirects are not followed, and proxies of the environment are not used:
tokens go to the server that the operator has named, and to nobody else.
"""

from __future__ import annotations

import asyncio
import ssl
from time import monotonic
from typing import TYPE_CHECKING, Final

from laps.auth.origin_api import MAX_ANSWER_BYTES, CallFailed
from laps.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    import httpx

    from laps.auth.origins import Origin, OriginApi
    from laps.edge.asking import Asking, Call

HEADERS: Final = {"content-type": "application/json", "accept": "application/json"}

# What a server may say when it is overloaded, or about to be restarted: it may answer the next.
AGAIN: Final = frozenset({429, 500, 502, 503, 504})


class OriginCaller:
    """The connections to all origins of a relay."""

    def __init__(self, origins: Iterable[Origin], touched: Callable[[], None]) -> None:
        """ConfigError where certificates cannot be read; `touched` is called after each answer."""
        self._touched = touched
        self._clients: dict[OriginApi, httpx.AsyncClient] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.configure(origins)

    def configure(self, origins: Iterable[Origin]) -> None:
        """Take other origins; what is under way to those before is still answered."""
        made = {it.api: _client(it, it.api) for it in origins if it.api is not None}
        before, self._clients = self._clients, made
        for client in before.values():
            self._run(self._close_idle(client))

    def take(self, asking: Asking) -> None:
        """Make the requests that the Edge wants."""
        while asking.asked:
            self._run(self._make(asking, asking.asked.popleft()))

    async def close(self) -> None:
        """Give up what is under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients.values():
            await client.aclose()

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close_idle(self, client: httpx.AsyncClient) -> None:
        """Let what is under way come to its end first: nothing takes longer than its time."""
        await asyncio.sleep(client.timeout.read or 0.0)
        await client.aclose()

    async def _make(self, asking: Asking, call: Call) -> None:
        result = await self._ask(call)
        asking.answered(call.id, result, monotonic())
        self._touched()

    async def _ask(self, call: Call) -> bytes | CallFailed:
        import httpx

        client = self._clients.get(call.api)
        if client is None:
            return CallFailed("it is another origin now")
        try:
            async with (
                asyncio.timeout(call.timeout_s),
                client.stream("POST", call.api.url, content=call.body) as answer,
            ):
                return await _read(answer)
        except TimeoutError:
            return CallFailed("it did not answer in time")
        except httpx.ConnectError as error:
            if isinstance(reason := _cause(error), ssl.SSLCertVerificationError):
                return CallFailed(f"its certificate is not trusted: {reason.verify_message}")
            return CallFailed("nobody answers at its address", unreachable=True)
        except httpx.ConnectTimeout:
            return CallFailed("it cannot be reached in time", unreachable=True)
        except httpx.TimeoutException:
            return CallFailed("it did not answer in time", again=True)
        # AttributeError: anyio asks for the address of a socket that uvloop has closed already.
        except (httpx.HTTPError, httpx.InvalidURL, OSError, AttributeError) as error:
            return CallFailed(f"the connection broke: {type(error).__name__}", again=True)


async def _read(answer: httpx.Response) -> bytes | CallFailed:
    """The body of an answer, if it is one and of a size that an answer has."""
    if answer.status_code != 200:
        words = f"it answered with the status {answer.status_code}"
        return CallFailed(words, again=answer.status_code in AGAIN)
    body = b""
    async for part in answer.aiter_bytes():
        body += part
        if len(body) > MAX_ANSWER_BYTES:
            return CallFailed(f"its answer has more than {MAX_ANSWER_BYTES} bytes")
    return body


def _cause(error: BaseException) -> BaseException | None:
    """What a failure goes back to."""
    while (before := error.__cause__ or error.__context__) is not None:
        if isinstance(before, ssl.SSLCertVerificationError):
            return before
        error = before
    return None


def _client(origin: Origin, api: OriginApi) -> httpx.AsyncClient:
    # A relay that asks no origin does not carry the library.
    import httpx

    trusted = None if api.authorities is None else str(api.authorities)
    try:
        context = ssl.create_default_context(cafile=trusted)
    except (OSError, ssl.SSLError) as error:
        problem = f"{trusted}: cannot be read as certificates in PEM: {error.strerror or error}"
        raise ConfigError(f"origins: {origin.name}: authorities: {problem}") from None
    return httpx.AsyncClient(
        verify=context,
        headers=HEADERS,
        timeout=api.timeout_s,
        limits=httpx.Limits(max_connections=api.concurrent),
        trust_env=False,
        follow_redirects=False,
    )
