"""Clients with tokens, and without, at relays that have keys: both drafts, WebTransport, QUICR."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

import laps
from laps.auth.issue import Terms, issue_cat, issue_jwt
from laps.auth.keys import generate, write_jwk
from laps.auth.tokens import Algorithm
from laps.errors import RequestUnauthorized, SessionUnauthorized, Unauthorized
from support.loopback import on_loop
from support.runners import lab
from support.tokens import key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from laps.client import Connecting
    from laps.net.runner import Runner

DEMO = (b"demo",)

SPOKEN = [
    pytest.param("moqt", 16, id="moqt-16"),
    pytest.param("moqt", 14, id="moqt-14"),
    pytest.param("https", 16, id="webtransport-16"),
    pytest.param("https", 14, id="webtransport-14"),
    pytest.param("quicr", 0, id="quicr"),
]
spoken = pytest.mark.parametrize(("scheme", "draft"), SPOKEN)


def sign(
    *, publish: bool = True, subscribe: bool = True, life_s: float = 600.0, name: str = "demo"
) -> str:
    """A token for the namespace `demo`, or another."""
    below = ((name.encode(),),)
    terms = Terms(
        publish=below if publish else (),
        subscribe=below if subscribe else (),
        expires=int(time.time() + life_s),
    )
    return issue_jwt(terms, key())


@asynccontextmanager
async def guarded(folder: Path, **settings: Any) -> AsyncIterator[Runner]:
    """A relay that has the key which `sign` signs with."""
    file = folder / "keys.json"
    file.write_text(json.dumps({"keys": [write_jwk(key(), private=False)]}))
    async with lab() as net:
        yield await net.relay("edge", auth__keys=str(file), **settings)


def connect(runner: Runner, scheme: str, draft: int, **options: Any) -> Connecting:
    url = f"{scheme}://{runner.client_address}"
    return laps.connect(url, drafts=(draft or 16,), **options)


async def first(session: Any, **options: Any) -> bytes:
    objects = session.subscribe("demo", "track", start="start", **options)
    async with asyncio.timeout(10):
        payload: bytes = (await anext(objects)).payload
        return payload


@spoken
@on_loop
async def test_token_of_the_session_is_enough_to_publish_and_subscribe(
    tmp_path: Path, scheme: str, draft: int
) -> None:
    async with (
        guarded(tmp_path) as relay,
        connect(relay, scheme, draft, token=sign(subscribe=False)) as publisher,
        connect(relay, scheme, draft, token=lambda: sign(publish=False)) as reader,
    ):
        track = await publisher.publish("demo", "track")
        await track.write(b"here")
        assert await first(reader) == b"here"


@on_loop
async def test_token_may_be_a_cat_in_bytes(tmp_path: Path) -> None:
    token = issue_cat(Terms(publish=(DEMO,), subscribe=(DEMO,)), key())

    async def give() -> bytes:
        return token

    async with guarded(tmp_path) as relay:
        for scheme in ("moqt", "quicr"):
            async with connect(relay, scheme, 0, token=give) as session:
                track = await session.publish("demo", f"track-{scheme}")
                await track.write(b"here")
                await track.end()


@spoken
@on_loop
async def test_token_of_a_request_is_enough_where_a_session_needs_none(
    tmp_path: Path, scheme: str, draft: int
) -> None:
    async with (
        guarded(tmp_path, auth__needs_token=False) as relay,
        connect(relay, scheme, draft) as session,
        connect(relay, scheme, draft) as other,
    ):
        track = await session.publish("demo", "track", token=sign(subscribe=False))
        await track.write(b"here")
        assert await first(other, token=sign(publish=False)) == b"here"
        if scheme != "quicr":
            found = [it async for it in other.fetch("demo", "track", token=sign(publish=False))]
            assert [it.payload for it in found] == [b"here"]
        with pytest.raises(RequestUnauthorized, match="a token is needed to subscribe"):
            await first(other)
        with pytest.raises(RequestUnauthorized, match="no token that was shown allows"):
            await first(other, token=sign(name="elsewhere"))
        refused = await other.publish("demo", "other", token=sign(publish=False))
        with pytest.raises(RequestUnauthorized, match="no token that was shown allows to publish"):
            await until_refused(refused)


async def until_refused(track: Any) -> None:
    async with asyncio.timeout(10):
        while True:
            await track.write(b"x")
            await asyncio.sleep(0.02)


@spoken
@pytest.mark.parametrize("wrong", ["none", "of a stranger", "expired", "no token"])
@on_loop
async def test_token_that_is_refused_is_an_error_in_the_words_of_the_relay(
    tmp_path: Path, scheme: str, draft: int, wrong: str
) -> None:
    stranger = generate(Algorithm.EDDSA, key().id)
    token, words = {
        "none": (None, "a token is needed"),
        "of a stranger": (issue_jwt(Terms(publish=(DEMO,)), stranger), "the signature is not that"),
        "expired": (sign(life_s=-90.5), "the token expired 9. s ago"),
        "no token": ("swordfish", "not"),
    }[wrong]
    async with guarded(tmp_path) as relay:
        with pytest.raises(Unauthorized, match=words) as problem:
            await read_nothing(connect(relay, scheme, draft, token=token))
        if scheme != "quicr" or token is not None:
            assert isinstance(problem.value, SessionUnauthorized)
        assert problem.value.expired == (wrong == "expired")
        assert token is None or token not in f"{problem.value!r}{problem.value}"


@pytest.mark.parametrize(("scheme", "draft"), SPOKEN[:1] + SPOKEN[-1:])
@on_loop
async def test_token_that_is_refused_is_not_shown_again(
    tmp_path: Path, scheme: str, draft: int
) -> None:
    """The session is closed when its token ends, and is not dialled again with the same."""
    async with guarded(tmp_path, auth__skew_s=0) as relay:
        for is_function in (False, True):
            token = sign(life_s=2)
            given = (lambda text=token: text) if is_function else token
            began = time.monotonic()
            words = r"not valid any more|expired|is needed"
            with pytest.raises(Unauthorized, match=words) as problem:
                await read_nothing(connect(relay, scheme, draft, token=given))
            assert time.monotonic() < began + 10
            assert token not in str(problem.value)


async def read_nothing(connecting: Connecting) -> None:
    async with connecting as session:
        async for _ in session.subscribe("demo", "nothing"):
            pass


@pytest.mark.parametrize(("scheme", "draft"), SPOKEN[:1] + SPOKEN[-1:])
@on_loop
async def test_token_that_is_renewed_keeps_tracks_and_subscriptions(
    tmp_path: Path, scheme: str, draft: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    given: list[str] = []

    def give() -> str:
        given.append(sign(life_s=3))
        return given[-1]

    async with (
        guarded(tmp_path, auth__skew_s=0) as relay,
        connect(relay, scheme, draft, token=give) as publisher,
        connect(relay, scheme, draft, token=give) as reader,
    ):
        track = await publisher.publish("demo", "track")
        found: list[bytes] = []
        sent = 0
        objects = reader.subscribe("demo", "track", start="start", strict=True)

        async def read() -> None:
            found.extend([item.payload async for item in objects])

        reading = asyncio.ensure_future(read())
        began = time.monotonic()
        while time.monotonic() < began + 8:
            await track.write(b"%d" % sent, new_group=sent % 10 == 0)
            sent += 1
            await asyncio.sleep(0.02)
        await track.end()
        async with asyncio.timeout(10):
            await reading
    assert found == [b"%d" % number for number in range(sent)]
    assert len(set(given)) > 4
    assert not any(token in caplog.text for token in given)


@pytest.mark.parametrize(("scheme", "draft"), SPOKEN[:1] + SPOKEN[-1:])
@on_loop
async def test_token_of_a_request_is_renewed_too(tmp_path: Path, scheme: str, draft: int) -> None:
    def give() -> str:
        return sign(life_s=3)

    async with (
        guarded(tmp_path, auth__skew_s=0, auth__needs_token=False) as relay,
        connect(relay, scheme, draft) as session,
    ):
        track = await session.publish("demo", "track", token=give)
        objects = session.subscribe("demo", "track", start="start", token=give)
        for number in range(7):
            await track.write(b"%d" % number)
            async with asyncio.timeout(5):
                assert (await anext(objects)).payload == b"%d" % number
            await asyncio.sleep(1)
