"""Who may look into a relay."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from laps.admin.auth import Doorkeeper, is_local
from laps.admin.tokens import Right, Tokens
from laps.config import AdminConfig
from laps.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


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


def knock(token: str, path: str, *, method: str = "GET", reads: str = "", **headers: str) -> int:
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
        "method": method,
        "headers": [(key.encode(), value.encode("latin-1")) for key, value in headers.items()],
    }
    tokens = Tokens(AdminConfig(token=token, read_token=reads))
    asyncio.run(Doorkeeper(inside, tokens)(scope, _never, send))
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


@pytest.mark.parametrize(
    ("token", "reads", "shown", "to_look", "to_change"),
    [
        ("w", "r", "w", 299, 299),
        ("w", "r", "r", 299, 403),
        ("w", "r", "x", 401, 401),
        ("w", "r", "", 401, 401),
        ("w", "", "w", 299, 299),
        ("w", "", "", 401, 401),
        ("", "r", "r", 299, 403),
        ("", "r", "", 401, 403),
        ("", "", "", 299, 403),
        ("", "", "x", 299, 403),
    ],
)
def test_to_look_either_token_will_do_and_to_change_something_the_one_that_writes(
    token: str, reads: str, shown: str, to_look: int, to_change: int
) -> None:
    headers = {"host": "localhost"} | ({"authorization": f"Bearer {shown}"} if shown else {})
    assert knock(token, "/v1/node", reads=reads, **headers) == to_look
    for method in ("POST", "PUT", "PATCH", "DELETE", "ANY"):
        assert knock(token, "/v1/reload", reads=reads, method=method, **headers) == to_change
        assert knock(token, "/healthz", reads=reads, method=method, **headers) == to_change


def test_without_a_token_no_page_elsewhere_changes_anything() -> None:
    assert knock("", "/v1/drain", method="POST", host="evil.example") == 403


def test_a_token_in_a_file_is_read_again_when_it_changes_and_a_wrong_file_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    writes, reads = tmp_path / "writes", tmp_path / "reads"
    writes.write_text("first\n")
    reads.write_text("looks\n")
    tokens = Tokens(AdminConfig(token_file=writes, read_token_file=reads))
    assert [tokens.right_of(text) for text in (b"first", b"looks", b"", b"second")] == [
        *(Right.WRITE, Right.READ, Right.NOTHING, Right.NOTHING)
    ]
    writes.write_text("second-one")
    assert tokens.right_of(b"first") is Right.NOTHING
    assert tokens.right_of(b"second-one") is Right.WRITE
    writes.write_text("with spaces in it")
    assert tokens.right_of(b"second-one") is Right.WRITE
    assert "no spaces, on one line" in caplog.text
    writes.unlink()
    assert tokens.right_of(b"second-one") is Right.WRITE
    for token in ("first", "looks", "second-one", "with spaces in it"):
        assert token not in caplog.text


def test_tokens_that_are_the_same_or_no_tokens_are_refused_without_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="are the same") as refused:
        Tokens(AdminConfig(token="swordfish", read_token="swordfish"))
    assert "swordfish" not in str(refused.value)
    file = tmp_path / "token"
    for data, words in ((b"", "is empty"), (b"a b", "no spaces"), (b"\xff\xfe", "no spaces")):
        file.write_bytes(data)
        with pytest.raises(ConfigError, match=words):
            Tokens(AdminConfig(read_token_file=file))
    with pytest.raises(ConfigError, match=r"admin\.token_file: .* cannot be read: No such file"):
        Tokens(AdminConfig(token_file=tmp_path / "none"))
