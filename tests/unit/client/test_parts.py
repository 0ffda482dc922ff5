"""The parts of the client library that are plain: names, URLs, memory and bounds."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, cast

import pytest

import laps
from laps import client
from laps.client import QuicrSession, Session
from laps.client.buffers import MORE_BYTES, Buffer, BufferPool
from laps.client.history import ENTRY_BYTES, Entry, History
from laps.client.lasting import LastingSession
from laps.client.publication import group_of_now
from laps.client.seen import GROUPS, Seen, Verdict
from laps.client.urls import parse_url, trust_for
from laps.client.values import payload_of
from laps.errors import ConfigError, InvalidText, SessionClosed
from laps.names import namespace_of, track_of, track_text
from laps.types import Location

# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "parts"),
    [
        ("demo/clock", (b"demo", b"clock")),
        (("demo", b"\xff"), (b"demo", b"\xff")),
        (["a/b"], (b"a/b",)),
        (b"a/b", (b"a/b",)),
        ("ä", ("ä".encode(),)),
    ],
)
def test_namespaces_are_text_or_parts(written: str, parts: tuple[bytes, ...]) -> None:
    assert namespace_of(written) == parts


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("", "is empty"),
        ((), "is empty"),
        ("a//b", "has an empty part"),
        ("/a", "has an empty part"),
        ("/".join("a" * 33), "has 33 parts: there can be 32"),
        ("a" * 5000, "is too long"),
    ],
)
def test_namespaces_that_are_none(written: str, problem: str) -> None:
    with pytest.raises(InvalidText, match=problem):
        namespace_of(written)


def test_the_whole_name_has_a_bound() -> None:
    with pytest.raises(InvalidText, match="makes 4097 bytes with its namespace"):
        track_of("a" * 4000, "b" * 97)
    assert namespace_of("", prefix=True) == ()
    assert track_text(track_of("demo/a", b"\xff")) == "demo/a \\xff"


# -- URLs ------------------------------------------------------------------------------------------


def test_urls_are_taken_apart() -> None:
    target = parse_url("moqt://relay.example:4443/room/1?token=x")
    assert (target.host, target.port, target.path) == ("relay.example", 4443, "/room/1?token=x")
    assert (target.authority, target.webtransport) == ("relay.example:4443", False)
    target = parse_url("https://[::1]")
    assert (target.host, target.port, target.path, target.webtransport) == ("::1", 443, "", True)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("127.0.0.1:33435", "has no scheme"),
        ("http://relay.example", 'scheme "http" is not known'),
        ("moqt://:33435", "names no host"),
        ("moqt://relay.example:99999", "Port out of range"),
        ("moqt://relay.example:0", "port 0 cannot be dialled"),
        ("moqt://me@relay.example", "has a user or a fragment"),
        ("moqt://relay.example#x", "has a user or a fragment"),
    ],
)
def test_urls_that_are_none_are_named_with_the_way_out(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        laps.connect(url)
    assert f'URL "{url}"' in str(caught.value)


@pytest.mark.parametrize(
    ("url", "anyone"),
    [
        ("moqt://127.0.0.1:1", True),
        ("moqt://[::1]:1", True),
        ("https://localhost:1", True),
        ("moqt://192.0.2.1:1", False),
        ("https://relay.example", False),
    ],
)
def test_only_this_machine_is_trusted_without_a_word(url: str, anyone: bool) -> None:
    target = parse_url(url)
    assert trust_for(target, insecure=False, fingerprint=None).anyone is anyone
    assert trust_for(target, insecure=True, fingerprint=None).anyone
    pinned = trust_for(target, insecure=True, fingerprint="ab")
    assert (pinned.fingerprint, pinned.anyone) == ("ab", False)


# -- what was given --------------------------------------------------------------------------------


def test_where_to_go_on() -> None:
    seen = Seen()
    seen.start(Location(4, 3))
    assert seen.resume_at(None) == Location(4, 3)
    assert seen.add(4, 2, b"") is Verdict.AGAIN
    assert seen.add(4, 3, b"") is Verdict.NEW
    assert seen.add(4, 5, b"") is Verdict.NEW
    assert seen.resume_at(4) == Location(4, 4)
    assert seen.add(6, 0, b"") is Verdict.NEW
    assert seen.resume_at(4) == Location(4, 4)
    assert seen.resume_at(None) == Location(6, 1)


def test_the_same_again_and_something_else() -> None:
    seen = Seen()
    assert seen.add(0, 0, b"a") is Verdict.NEW
    assert seen.add(0, 0, b"a") is Verdict.AGAIN
    assert seen.add(0, 0, b"b") is Verdict.ANOTHER
    for group in range(1, GROUPS + 10):
        seen.add(group, 0, b"")
    assert seen.add(0, 0, b"b") is Verdict.AGAIN  # too long ago to tell
    assert seen.is_forgotten(Location(0, 9))
    assert not seen.is_forgotten(Location(GROUPS, 0))


# -- bounds ----------------------------------------------------------------------------------------


def test_a_full_buffer_stops_reading_unless_somebody_waits() -> None:
    paused: list[bool] = []
    pool = BufferPool(paused.append, lambda: False)
    live, fetch = Buffer(100, finite=False), Buffer(100, finite=True)
    live.attach(pool)
    fetch.attach(pool)
    live.put(101)
    assert paused == [True]
    live.take(40)
    assert paused == [True]
    live.take(11)
    assert paused == [True, False]
    live.put(60)
    fetch.wait(True)  # it comes to its end by itself, so it is read
    assert paused == [True, False, True, False]
    live.put(MORE_BYTES)  # but not at any price
    live.wait(True)  # nobody else can make room
    live.wait(False)
    assert paused[-3:] == [True, False, True]
    live.attach()
    assert paused[-2:] == [True, False]


def test_the_history_lets_the_oldest_go() -> None:
    history = History(3 * (ENTRY_BYTES + 10))
    for number in range(5):
        history.add(Entry(number + 1, number // 2, 0, number % 2, bytes(10)))
    assert history.largest == Location(2, 0)
    assert history.dropped_up_to == Location(0, 1)
    assert Location(1, 0) in history
    assert [entry.sequence for entry in history.since(3)] == [4, 5]
    found = history.between(Location(0, 0), Location(1, 1))
    assert [entry.location for entry in found] == [(1, 0), (1, 1)]
    downwards = history.between(Location(0, 0), Location(9, 0), descending=True)
    assert [entry.location for entry in downwards] == [(2, 0), (1, 0), (1, 1)]
    history.clear()
    assert history.bytes == 0


def test_the_first_group_grows_with_time() -> None:
    assert group_of_now() > 1_700_000_000_000


# -- the face --------------------------------------------------------------------------------------


def test_what_is_exported() -> None:
    assert laps.__all__ == ["__version__", "connect"]
    assert laps.__version__ == version("laps")
    assert laps.connect is client.connect
    assert len(set(client.__all__)) == len(client.__all__)
    assert all(hasattr(client, name) for name in client.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        laps.nothing  # noqa: B018


def test_a_relay_that_closes_a_channel_while_it_is_left_does_no_harm() -> None:
    class Left:
        alive = idle = True
        closed = False

        async def acknowledged(self) -> None:
            raise SessionClosed("the relay stops")

        def close(self) -> None:
            self.closed = True

    async def leave() -> Left:
        channel = Left()
        session = SimpleNamespace(loop=asyncio.get_running_loop())
        await LastingSession._retire(session, channel)  # type: ignore[arg-type, type-var]
        return channel

    assert asyncio.run(leave()).closed


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["earliest", "", None, 5, (1,), (1, -2), (1, "2")])
@pytest.mark.parametrize("scheme", ["moqt", "quicr"])
def test_mistakes_in_where_to_start_name_the_choices(start: Any, scheme: str) -> None:
    made = Session if scheme == "moqt" else QuicrSession
    with pytest.raises(ValueError, match=r'start .*give "latest", "next", .*\(group, object\)'):
        made.subscribe(cast("Any", object()), "demo", "t", start=start)


@pytest.mark.parametrize("value", ["text", 5, None, ["a"]])
def test_mistakes_in_what_to_write_say_that_it_is_bytes(value: Any) -> None:
    with pytest.raises(TypeError, match=f"made of bytes, and this is {type(value).__name__}"):
        payload_of(value)
    if isinstance(value, str):
        with pytest.raises(TypeError, match=r"text\.encode"):
            payload_of(value)
    assert payload_of(bytearray(b"a")) == payload_of(memoryview(b"a")) == payload_of(b"a")


def test_mistakes_with_a_session_that_is_not_there_yet() -> None:
    made = laps.connect("moqt://127.0.0.1:1")
    with pytest.raises(TypeError, match="asynchronous: write `async with"), made:
        pass
    with pytest.raises(AttributeError, match="no session yet to 'subscribe' with: write `async"):
        made.subscribe  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        made.nothing  # noqa: B018


def test_mistakes_in_urls() -> None:
    with pytest.raises(TypeError, match="a URL is text, and this is int: 5"):
        laps.connect(["moqt://a.example", cast("Any", 5)])
    with pytest.raises(ConfigError, match="no URL is given"):
        laps.connect([])
    with pytest.raises(ConfigError, match="give one kind"):
        laps.connect(["moqt://a.example", "quicr://a.example"])
