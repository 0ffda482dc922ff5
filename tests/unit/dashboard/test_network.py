"""Relays asked, dead, wrong and come back, against admin APIs that are not there."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from laps.dashboard import watching
from laps.dashboard.network import NONE_FOUND, Address, Network
from laps.dashboard.relays import Relay
from laps.errors import LapsError
from support.admin_fake import FakeRelay, FakeRelays

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@contextlib.asynccontextmanager
async def watched(
    *relays: FakeRelay, token: str = "", find: Callable[[], list[Address]] | None = None
) -> AsyncIterator[Network]:
    """A network whose rounds tests make themselves, with `ask`."""
    named = [Address(relay.url, token) for relay in relays] if find is None else []
    network = Network(named, find or (list), FakeRelays(relays))
    look(network)
    try:
        yield network
    finally:
        await network._pool.close()


def look(network: Network) -> None:
    network._look_around()
    for task in network._tasks.values():
        task.cancel()


async def ask(network: Network) -> None:
    for watch in network._watches.values():
        await watch.ask_alive()
        await watch.ask_tables()


def picture(network: Network, words: str = "", track: str = "", **more: Any) -> dict[str, Any]:
    return network.picture(words, track, 0, 0, **more)


def states(network: Network) -> dict[str, str]:
    return {row["id"]: row["state"] for row in picture(network)["nodes"]}


def test_a_dead_relay_is_grey_and_its_links_dashed_until_it_is_back() -> None:
    async def scene() -> None:
        one, two = FakeRelay("1:1"), FakeRelay("1:2")
        one.link(two)
        async with watched(one, two) as network:
            await ask(network)
            assert states(network) == {"1:1": "live", "1:2": "live"}
            assert picture(network)["problems"] == []

            two.answers = False
            await ask(network)
            seen = picture(network)
            assert states(network) == {"1:1": "live", "1:2": "dead"}
            assert [link["state"] for link in seen["links"]] == ["dead"]
            assert seen["problems"] == [
                "1:2 (http://1.2.test:1) cannot be reached: nobody listens there"
            ]
            assert [row["title"] for row in seen["incidents"]] == ["1:2 is gone"]

            two.answers = True
            await ask(network)
            assert states(network) == {"1:1": "live", "1:2": "live"}
            assert [link["state"] for link in picture(network)["links"]] == ["live"]
            told = [row["title"] for row in picture(network)["incidents"]]
            assert told == ["1:2 is gone", "1:2 is up"]

    asyncio.run(scene())


def test_all_relays_dead_is_said_in_words() -> None:
    async def scene() -> None:
        one, two = FakeRelay("1:1", answers=False), FakeRelay("1:2", answers=False)
        async with watched(one, two) as network:
            await ask(network)
            problems = picture(network)["problems"]
            assert problems[0] == "None of the 2 relays answers."
            assert problems[1].startswith("http://1.1.test:1 cannot be reached")

    asyncio.run(scene())


def test_no_relay_at_all_is_said_with_the_way_out() -> None:
    async def scene() -> None:
        async with watched() as network:
            assert picture(network)["problems"] == [NONE_FOUND]

    asyncio.run(scene())


def test_a_machine_that_cannot_be_searched_is_said() -> None:
    def find() -> list[Address]:
        raise LapsError("/tmp/laps-0 belongs to somebody else")

    async def scene() -> None:
        async with watched(find=find) as network:
            assert picture(network)["problems"] == ["/tmp/laps-0 belongs to somebody else"]

    asyncio.run(scene())


def test_relays_that_come_to_the_machine_are_found_and_those_long_gone_forgotten() -> None:
    one, two = FakeRelay("1:1"), FakeRelay("1:2")
    here: list[Address] = []

    async def scene() -> None:
        async with watched(one, two, find=lambda: here) as network:
            assert picture(network)["nodes"] == []
            here.extend([Address(one.url), Address(two.url)])
            look(network)
            await ask(network)
            assert states(network) == {"1:1": "live", "1:2": "live"}
            here.pop()
            two.answers = False
            await ask(network)
            look(network)
            assert states(network) == {"1:1": "live", "1:2": "dead"}
            network._watches[two.url].relay.since -= 700
            look(network)
            assert states(network) == {"1:1": "live"}

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "wants a token: give it with --token or LAPS_ADMIN_TOKEN"),
        ("wrong", "does not take the token that was given with --token or LAPS_ADMIN_TOKEN"),
    ],
)
def test_a_token_that_is_missing_or_wrong_is_said(given: str, words: str) -> None:
    async def scene() -> None:
        one = FakeRelay("1:1", token="secret")
        async with watched(one, token=given) as network:
            await ask(network)
            assert picture(network)["problems"] == [f"{one.url} {words}"]
        async with watched(one, token="secret") as network:
            await ask(network)
            assert picture(network)["problems"] == []

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"<html>hello", "does not answer like a relay to /v1/node"),
        (b'"\xff"', "does not answer like a relay to /v1/node"),
        ([], "does not answer like a relay to /v1/node"),
        ({"node": 7}, "does not answer like a relay to /v1/node"),
        ({"node": "1:1", "sent_bytes": -1}, "does not answer like a relay to /v1/node"),
        ({"node": "1:1", "sent_bytes": 10**400}, "does not answer like a relay to /v1/node"),
        ({"node": "1:1", "latitude": 91}, "does not answer like a relay to /v1/node"),
        (b'{"node":' + b"[" * 9_999, "does not answer like a relay to /v1/node"),
        ({"node": "1:1", "sizes": None}, "does not answer like a relay to /v1/node"),
    ],
)
def test_what_is_no_relay_is_said_and_nothing_raises(said: Any, words: str) -> None:
    async def scene() -> None:
        one = FakeRelay("1:1", said={"/v1/node": said})
        async with watched(one) as network:
            await ask(network)
            assert words in picture(network)["problems"][0]

    asyncio.run(scene())


def test_an_address_where_something_else_answers_is_said() -> None:
    async def scene() -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(404, text="not here"))
        network = Network([Address("http://else.test")], transport=transport)
        look(network)
        await ask(network)
        (words,) = picture(network)["problems"]
        assert words == (
            "http://else.test answers 404 to /v1/node: is it the address of an admin API?"
        )
        await network._pool.close()

    asyncio.run(scene())


def test_a_table_that_is_wrong_leaves_the_relay_alive() -> None:
    async def scene() -> None:
        one = FakeRelay("1:1", said={"/v1/tracks": {"tracks": 7}})
        async with watched(one) as network:
            await ask(network)
            assert states(network) == {"1:1": "live"}
            assert "does not answer like a relay to /v1/tracks" in picture(network)["problems"][0]

    asyncio.run(scene())


def test_a_relay_that_hangs_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "ANSWER_S", 0.01)

    async def hang(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def scene() -> None:
        network = Network([Address("http://slow.test")], transport=httpx.MockTransport(hang))
        look(network)
        await ask(network)
        assert picture(network)["problems"] == ["http://slow.test has not answered within 0.01 s"]
        await network._pool.close()

    asyncio.run(scene())


def test_a_relay_that_hangs_while_it_writes_a_table_is_dead_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "ROUND_S", 0.0)
    one = FakeRelay("1:1")
    stuck = asyncio.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/tracks":
            stuck.set()
            await asyncio.Event().wait()
        return await FakeRelays([one]).handle_async_request(request)

    async def scene() -> None:
        network = Network([Address(one.url)], transport=httpx.MockTransport(answer))
        async with network.running():
            await stuck.wait()
            assert states(network) == {"1:1": "live"}
            one.answers = False
            await until(lambda: states(network) == {"1:1": "dead"})

    asyncio.run(scene())


def test_a_large_table_is_asked_for_more_rarely() -> None:
    async def scene() -> None:
        one = FakeRelay("1:1")
        for number in range(watching.CHEAP_ROWS + 1):
            one.carry(f"{number:016x}", f"many {number}")
        small = FakeRelay("1:2")
        async with watched(one, small) as network:
            for _ in range(3):
                await ask(network)
            assert one.asked.count("/v1/tracks") == 1
            assert small.asked.count("/v1/tracks") == 3
            assert small.asked.count("/v1/nodes") == 1
            assert one.asked.count("/v1/node") == 3

    asyncio.run(scene())


def test_of_ten_thousand_tracks_two_hundred_are_shown_and_all_are_found() -> None:
    async def scene() -> None:
        one = FakeRelay("1:1")
        for number in range(10_000):
            one.carry(f"{number:016x}", f"many track-{number}")
        async with watched(one) as network:
            await ask(network)
            seen = picture(network)
            counts = (len(seen["tracks"]), seen["tracks_found"], seen["tracks_total"])
            assert counts == (200, 10_000, 10_000)
            found = picture(network, "track-9999")
            assert [row["name"] for row in found["tracks"]] == ["track-9999"]

    asyncio.run(scene())


def test_what_relays_publish_of_themselves_is_shown_if_wanted() -> None:
    async def scene() -> None:
        one = FakeRelay("1:1")
        one.carry("aa", "laps/telemetry/1:1 node")
        one.carry("bb", "demo clock")
        async with watched(one) as network:
            await ask(network)
            assert [row["name"] for row in picture(network)["tracks"]] == ["clock"]
            assert picture(network, own=True)["tracks_total"] == 2
            assert picture(network, track="aa")["tree"]["name"] == "node"

    asyncio.run(scene())


def test_incidents_are_asked_for_from_the_last_change_on() -> None:
    async def scene() -> None:
        one = FakeRelay("1:1")
        one.happen("started", "1:1")
        async with watched(one) as network:
            await ask(network)
            one.happen("peer_down", "1:2", 1_002.0, reason="no answer")
            await ask(network)
            told = picture(network)["incidents"]
            assert [row["title"] for row in told] == ["1:1 is up", "1:2 is gone"]
            assert told[1]["events"][0]["reason"] == "no answer"
            assert network.picture("", "", 0, told[0]["number"])["incidents"] == told[1:]

    asyncio.run(scene())


def test_a_table_of_a_relay_is_as_it_says_it_or_an_error_in_words() -> None:
    async def scene() -> None:
        one = FakeRelay("1:1")
        async with watched(one) as network:
            assert await network.show("1:1", "peers", {}) == {
                "error": "1:1 is not asked: name its admin API with --admin"
            }
            await ask(network)
            assert (await network.show("1:1", "counters", {}))["relay"] == {"control_sent": 12}
            wrong = await network.show("1:1", "../secrets", {})
            assert wrong["error"].startswith("1:1 there is no table '../secrets'")
            one.answers = False
            gone = await network.show("1:1", "peers", {})
            assert gone == {"error": "1:1 cannot be reached: nobody listens there"}

    asyncio.run(scene())


def test_a_mistake_of_our_own_is_said_and_asking_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "ROUND_S", 0.0)

    async def scene() -> None:
        one = FakeRelay("1:1")
        network = Network([Address(one.url)], transport=FakeRelays([one]))
        with monkeypatch.context() as patch:
            patch.setattr(Relay, "answered", lambda *_: 1 / 0)
            network._look_around()
            await until(lambda: "ZeroDivisionError" in network.problems()[0])
        await until(lambda: network.problems() == [])
        for task in network._tasks.values():
            task.cancel()
        await network._pool.close()

    asyncio.run(scene())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)


def test_it_watches_by_itself_and_ends_when_left() -> None:
    async def scene() -> None:
        network = Network([Address("http://1.1.test:1")], transport=FakeRelays([FakeRelay("1:1")]))
        async with network.running():
            await until(lambda: picture(network)["nodes"] != [])
            tasks = list(network._tasks.values())
            assert network.history.samples_after(0)
        assert all(task.done() for task in tasks)

    asyncio.run(scene())
