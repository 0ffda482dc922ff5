"""The page's files, what the page asks for, and who is let in."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from typing import Any

import httpx
import pytest

from laps.dashboard.network import Network
from laps.dashboard.server import COOKIE, dashboard_app, is_loopback
from laps.dashboard.serving import listen, url_of
from laps.errors import ConfigError, ListenError


def get(path: str, *, token: str = "", host: str = "127.0.0.1:9", **more: Any) -> httpx.Response:
    """One request to a dashboard without relays."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(dashboard_app(Network([]), token))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            return await client.get(path, **more)

    return asyncio.run(ask())


def test_the_page_is_made_of_its_own_files_alone() -> None:
    page = get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    assert "http://" not in page.text
    assert "https://" not in page.text
    for name in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert get(f"/{name}").status_code == 200, name


def test_every_module_of_the_page_is_served_as_one() -> None:
    seen: set[str] = set()
    wanted = {"main.js"}
    while wanted - seen:
        name = (wanted - seen).pop()
        answer = get(f"/{name}")
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8", name
        wanted |= set(re.findall(r'from "\./([^"]+)"', answer.text))
        seen.add(name)
    assert len(seen) > 4


def test_no_module_makes_html_of_what_relays_say() -> None:
    for name in ("main.js", "lists.js", "panel.js", "plots.js", "topology.js", "format.js"):
        script = get(f"/{name}").text
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script
        )


def test_the_coast_says_where_it_comes_from_and_is_small() -> None:
    answer = get("/land.json")
    land = json.loads(answer.content)
    assert "Natural Earth" in land["source"]
    assert "public domain" in land["source"]
    assert len(answer.content) < 60_000
    for ring in land["rings"]:
        assert len(ring) % 2 == 0
        assert all(abs(value) <= 1800 for value in ring[::2])
        assert all(abs(value) <= 900 for value in ring[1::2])


def test_what_is_not_there_is_404() -> None:
    assert get("/nothing.js").status_code == 404
    assert get("/..%2fserver.py").status_code == 404


@pytest.mark.parametrize(
    "query", ["", "?samples=x&changes=-1&q=&track=%00", "?samples=9999999999999999"]
)
def test_a_picture_is_json_whatever_is_asked(query: str) -> None:
    seen = get(f"/api/picture{query}").json()
    assert seen["nodes"] == []
    assert "No relay was found" in seen["problems"][0]


def test_a_table_of_nobody_is_an_error_in_words() -> None:
    assert "is not asked" in get("/api/relay?node=9:9&view=peers").json()["error"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:33437", "[::1]:80", "127.8.8.8"])
def test_who_names_this_machine_is_let_in(host: str) -> None:
    assert get("/", host=host).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "192.0.2.1:33437", "localhost.evil.example"])
def test_who_names_another_is_refused(host: str) -> None:
    assert get("/api/picture", host=host).status_code == 403


@pytest.mark.parametrize(
    "host", ["", "[::1", "127.0.0.1:x", "127.0.0.1/evil.example", "127.0.0.1:80@b"]
)
def test_a_host_that_is_none_is_refused(host: str) -> None:
    assert get("/", headers={"Host": host}).status_code == 403


def test_viewers_come_with_a_token_once_and_have_a_cookie_then() -> None:
    refused = get("/", token="open sesame", host="192.0.2.1")
    assert refused.status_code == 401
    assert "--viewer-token" in refused.text
    assert get("/?token=wrong", token="open sesame").status_code == 401
    let_in = get("/?token=open+sesame", token="open sesame", host="192.0.2.1")
    assert (let_in.status_code, let_in.headers["location"]) == (303, "/")
    cookie = let_in.cookies[COOKIE]
    assert "open sesame" not in let_in.headers["set-cookie"]
    assert "HttpOnly" in let_in.headers["set-cookie"]
    again = get("/", token="open sesame", headers={"Cookie": f"{COOKIE}={cookie}"})
    assert again.status_code == 200
    assert get("/", token="open sesame", headers={"Cookie": f"{COOKIE}=ab"}).status_code == 401
    bearer = {"Authorization": "Bearer open sesame"}
    assert get("/api/picture", token="open sesame", headers=bearer).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "[::1]"])
def test_loopback_is_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_addresses_are_not(host: str) -> None:
    assert not is_loopback(host)


def test_others_are_not_let_in_without_a_token() -> None:
    with pytest.raises(ConfigError, match=r"--host 0\.0\.0\.0 .* --viewer-token"):
        listen("0.0.0.0", 0, "")
    sock, _ = listen("0.0.0.0", 0, "secret")
    sock.close()


def test_a_port_that_is_taken_is_changed_for_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sock, moved = listen("127.0.0.1", port, "")
        with sock:
            assert moved
            assert sock.getsockname()[1] != port
            assert url_of(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}/"


def test_an_address_that_is_not_ours_is_said() -> None:
    with pytest.raises(ListenError, match=r"192\.0\.2\.1"):
        listen("192.0.2.1", 0, "secret")
