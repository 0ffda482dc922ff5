"""Clients that keep many tracks of a relay flowing, and one that reads its telemetry.

This module is the program of the process: `python -m laps.bench.telemetry_clients CORE LOAD`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from time import monotonic
from typing import Final

import uvloop

import laps
from laps.bench.process import answer, pin
from laps.bench.relay_sessions import ALIAS, HOST, Load, Session, Subscriber
from laps.telemetry.records import KINDS
from laps.wire.moqt.data import SubgroupHeader, encode_subgroup_header
from laps.wire.moqt.dialect import DRAFT16

# What one session publishes, and another one reads: as many as a relay lets it by default.
TRACKS_A_SESSION: Final = 1000

# Tracks take turns this often, so that a relay has something to do at any time.
TURN_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Tracks:
    """What flows through the relay."""

    port: int
    node: str
    tracks: int
    rate: float
    "Objects of 1,000 bytes a second, on each track."
    read: bool
    "Whether somebody reads the relay's telemetry."


class Publisher(Session):
    """Writes an object on one track after the other, each on a stream that stays open."""

    def __init__(self, load: Load) -> None:
        super().__init__()
        self._streams: list[int] = []
        self._object = load.object_header + bytes(load.object_bytes)

    async def begin(self, first: int, count: int) -> None:
        """Offer tracks, and open a stream on each."""
        for number in range(first, first + count):
            await self.publish(number)
            stream_id = self.connection.open_stream(unidirectional=True)
            header = SubgroupHeader(ALIAS + number, 0, priority=128)
            self.connection.write(stream_id, encode_subgroup_header(header, DRAFT16))
            self._streams.append(stream_id)

    async def flow(self, rate: float) -> None:
        """Write on, each track so often."""
        began, sent = monotonic(), 0
        while True:
            await asyncio.sleep(TURN_S)
            due = int((monotonic() - began) * rate * len(self._streams))
            for number in range(sent, due):
                stream_id = self._streams[number % len(self._streams)]
                self.connection.write(stream_id, self._object)
            sent = due


class Reader:
    """Reads the four tracks of the relay's telemetry."""

    def __init__(self) -> None:
        self.objects = 0

    async def read(self, url: str, node: str) -> None:
        """Follow them all."""
        async with laps.connect(url) as session:
            await asyncio.gather(*(self._follow(session, node, kind) for kind in KINDS))

    async def _follow(self, session: laps.client.Session, node: str, kind: str) -> None:
        while True:  # it is turned off and on
            async for _ in session.subscribe(f"laps/telemetry/{node}", kind):
                self.objects += 1


async def run(tracks: Tracks) -> None:
    """Connect, let the tracks flow, and answer how many objects came."""
    load = Load(tracks.port, 0, 0.0)
    parts = range(0, tracks.tracks, TRACKS_A_SESSION)
    publishers, readers = [Publisher(load) for _ in parts], [Subscriber(load) for _ in parts]
    # All of them first: whoever announces is matched with every subscription that is there.
    for first, publisher in zip(parts, publishers, strict=True):
        await publisher.open(tracks.port, bare=False)
        await publisher.begin(first, min(TRACKS_A_SESSION, tracks.tracks - first))
    for first, subscriber in zip(parts, readers, strict=True):
        await subscriber.open(tracks.port, bare=False)
        request_id = 0
        for number in range(first, min(first + TRACKS_A_SESSION, tracks.tracks)):
            request_id = await subscriber.subscribe(number, request_id)
    flows = [asyncio.ensure_future(publisher.flow(tracks.rate)) for publisher in publishers]
    reader = Reader()
    if tracks.read:
        url = f"moqt://{HOST}:{tracks.port}"
        flows.append(asyncio.ensure_future(reader.read(url, tracks.node)))
    await answer(
        "flowing",
        lambda: {"objects": sum(s.objects for s in readers), "records": reader.objects},
    )
    for flow in flows:
        flow.cancel()


if __name__ == "__main__":
    pin(int(sys.argv[1]))
    uvloop.run(run(Tracks(**json.loads(sys.argv[2]))))
