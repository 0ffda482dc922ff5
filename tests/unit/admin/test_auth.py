"""Who may look into a relay."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from laps.admin.auth import Doorkeeper, is_local


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:1",
        "localhost.",
        "127.0.0.1",
        "127.1.2.3:80",
        "[::1]",
        "[::1]:5",
    ],
)
def test_this_machine_is_known_by_its_loopback_names(host: str) -> None:
    assert is_local(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.0.2.1:80",
        "0.0.0.0",
        "[::]",
        "[2001:db8::1]:80",
        "localhost:x",
        "2130706433",
        "a@localhost:b",
    ],
)
def test_whatever_else_is_not_meant_for_it(host: str) -> None:
    assert not is_local(host)


def knock(token: str, path: str, **headers: str) -> int:
    """The status of the answer; 299 if it was let in."""
    statuses: list[int] = []

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 299})

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "path": path,
        "method": "GET",
        "headers": [(key.encode(), value.encode("latin-1")) for key, value in headers.items()],
    }
    asyncio.run(Doorkeeper(inside, token)(scope, _never, send))
    return statuses[0]


async def _never() -> Any:
    raise AssertionError


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Bearer secret", 299),
        ("bearer  secret ", 299),
        ("Bearer secre", 401),
        ("Bearer secrett", 401),
        ("Bearer", 401),
        ("Basic secret", 401),
        ("secret", 401),
        ("", 401),
        ("Bearer s\xe9cret", 401),
    ],
)
def test_the_token_is_all_that_counts(authorization: str, status: int) -> None:
    assert knock("secret", "/v1/node", authorization=authorization, host="any") == status


def test_whoever_restarts_a_relay_needs_no_token() -> None:
    assert knock("secret", "/healthz") == 299
    assert knock("secret", "/readyz") == 299
    assert knock("secret", "/healthz/") == 401
    assert knock("secret", "/v1/node") == 401


def test_without_a_token_the_host_has_to_be_this_machine() -> None:
    assert knock("", "/v1/node", host="localhost:33436") == 299
    assert knock("", "/healthz", host="evil.example") == 403
    assert knock("", "/v1/node") == 403
