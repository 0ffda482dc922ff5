"""Delays of a track that somebody looks at."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from laps.dashboard.delays import KEPT_OBJECTS, LEAVE_S, MAX_TRACED, Arrivals, TrackDelays
from laps.dashboard.network import Address, Network
from support.admin_fake import FakeRelay, FakeRelays


def test_a_delay_is_the_median_after_the_relay_that_had_it_first() -> None:
    arrivals = Arrivals()
    for number, late in enumerate((0.010, 0.012, 0.500)):
        arrivals.note("1:1", (1, 0, number), 100.0 + number)
        arrivals.note("1:3", (1, 0, number), 100.0 + number + late)
    arrivals.note("1:2", (1, 0, 0), 100.004)
    assert arrivals.added_us() == {"1:1": 0, "1:2": 4_000, "1:3": 12_000}


def test_an_object_that_one_relay_alone_has_seen_tells_nothing() -> None:
    arrivals = Arrivals()
    arrivals.note("1:1", (1, 0, 0), 100.0)
    arrivals.note("1:1", (1, 0, 0), 200.0)
    assert arrivals.added_us() == {}


def test_objects_long_past_count_no_more() -> None:
    arrivals = Arrivals()
    for number in range(KEPT_OBJECTS + 1):
        arrivals.note("1:1", (number,), 100.0)
        arrivals.note("1:2", (number,), 101.0 if number else 900.0)
    assert len(arrivals._objects) == KEPT_OBJECTS
    assert arrivals.added_us()["1:2"] == 1_000_000


def lines(*rows: dict[str, Any]) -> bytes:
    return b"\n".join([b"", *(json.dumps(row).encode() for row in rows), b"no JSON", b""])


def traced(node: str, at: float) -> FakeRelay:
    relay = FakeRelay(node)
    relay.carry("aa", "demo clock", ingress=["1:9"])
    rows: list[dict[str, Any]] = [
        {"at": at, "group": 1, "subgroup": 0, "object": 0, "bytes": 9},
        {"missed": 3},
    ]
    relay.said["/v1/trace"] = lines(*rows)
    return relay


def test_the_relays_that_carry_a_track_are_traced_while_a_page_looks_at_it() -> None:
    async def scene() -> None:
        one, two, idle = traced("1:1", 100.0), traced("1:2", 100.0025), FakeRelay("1:3")
        relays = [one, two, idle]
        addresses = [Address(relay.url) for relay in relays]
        network = Network(addresses, transport=FakeRelays(relays))
        async with asyncio.timeout(10), network.running():
            while not _added(network):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            assert _added(network) == {"1:1": 0, "1:2": 2500}
            assert "/v1/trace" not in idle.asked

    asyncio.run(scene())


def _added(network: Network) -> dict[str, int]:
    nodes = network.picture("", "aa", 0, 0)["tree"]["nodes"]
    return {node["id"]: node["added_us"] for node in nodes if node.get("added_us") is not None}


def test_tracks_that_nobody_looks_at_are_left_and_many_at_once_are_not_followed() -> None:
    async def scene() -> None:
        delays = TrackDelays()
        for number in range(MAX_TRACED + 2):
            delays.want(f"{number}", float(number) / 100)
        await delays.keep([], 1.0)
        assert sorted(delays.added_us()) == ["2", "3", "4", "5"]
        await delays.keep([], 1.0 + LEAVE_S)
        assert delays.added_us() == {}

    asyncio.run(scene())
