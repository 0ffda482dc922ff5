"""The publisher of the sink and real relays: each object once, whoever dies in between."""

from __future__ import annotations

import asyncio
import functools
import signal
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

import laps
from laps.spark.sink import uplink
from laps.spark.sink.journal import read_state
from laps.spark.sink.place import Place
from support import sinks
from support.loopback import until
from support.sinks import Relays, publish_and_die, publisher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from pathlib import Path

    from laps.client import Object
    from laps.spark.sink.publisher import Batch, Publisher

pytestmark = pytest.mark.spark

LIMIT_S = 60.0

Rows = list[tuple[str, int, bytes]]
"Each with its track, its grouping key and its payload."


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """As that of `support.loopback`, with time for processes to start."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), LIMIT_S))

    return run


class Listener:
    """A subscriber that is there all the time."""

    def __init__(self) -> None:
        self.objects: list[Object] = []

    @property
    def payloads(self) -> list[bytes]:
        return [item.payload for item in self.objects]

    async def has(self, number: int) -> None:
        await until(lambda: len(self.objects) >= number)


class Scene:
    """A relay, a namespace that nobody else uses, and a place for what is staged."""

    def __init__(self, url: str, namespace: str, folder: Path) -> None:
        self.url = url
        self.namespace = namespace
        self.folder = folder
        self.place = Place(str(folder))

    def batch(self, number: int, *partitions: Rows) -> Batch:
        return sinks.stage(self.place, number, partitions, self.namespace)

    def publisher(self) -> Publisher:
        return publisher(self.place, self.url)

    async def publish_and_die(self, batch: Batch, moment: str) -> None:
        await asyncio.to_thread(publish_and_die, self.folder, self.url, batch, moment)

    @asynccontextmanager
    async def listening(self, track: str = "t", url: str | None = None) -> AsyncIterator[Listener]:
        listener = Listener()

        async def listen() -> None:
            async for item in session.subscribe(self.namespace, track, start="start"):
                listener.objects.append(item)

        async with laps.connect(url or self.url) as session:
            task = asyncio.create_task(listen())
            try:
                yield listener
            finally:
                task.cancel()

    async def fetched(self, group: int) -> list[Object]:
        async with laps.connect(self.url) as session:
            objects = session.fetch(self.namespace, "t", start=(group, 0))
            return [item async for item in objects]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Relays(tmp_path_factory.mktemp("relay")) as relays:
        yield relays.start()


numbers = count()


@pytest.fixture
def scene(url: str, tmp_path: Path) -> Scene:
    return Scene(url, f"demo/{next(numbers)}", tmp_path / "sink")


def rows(number: int, first: int = 0) -> Rows:
    """A hundred rows a group."""
    return [("t", n // 100, b"%d " % n + bytes(200)) for n in range(first, first + number)]


def contents(items: Rows) -> list[bytes]:
    return [payload for _, _, payload in items]


MOMENTS = [
    "before it is written down",
    "before it is sent",
    "while it is sent",
    "before its end is written down",
    "before Spark is told",
]


@pytest.mark.parametrize("moment", MOMENTS)
@on_loop
async def test_a_batch_whose_publisher_was_killed_is_published_once(
    moment: str, scene: Scene
) -> None:
    async with scene.listening() as listener:
        await scene.publish_and_die(scene.batch(0, rows(600), rows(600, 600)), moment)
        # The order of rows, and more, may be another when a query runs again: what a batch was
        # the first time is what is published.
        again = [rows(600), rows(600, 600)]
        if moment != MOMENTS[0]:
            again = [list(reversed(rows(700, 600))), rows(5)]
        sink = scene.publisher()
        await sink.publish(scene.batch(0, *again))
        await sink.publish(scene.batch(1, rows(10, 1200)))
        await listener.has(1210)
        assert listener.payloads == contents(rows(1210))
        held = await scene.fetched(listener.objects[0].group)
        assert [item.payload for item in held] == contents(rows(1210))
        assert len({item.location for item in held}) == 1210
        await sink.close()
    assert read_state(scene.place).done == 1
    assert not scene.place.folders("staged")


@on_loop
async def test_a_relay_that_was_started_again_has_the_whole_batch(tmp_path: Path) -> None:
    with Relays(tmp_path) as relays:
        scene = Scene(relays.start(), "demo", tmp_path / "sink")
        await scene.publish_and_die(scene.batch(0, rows(1200)), "while it is sent")
        relays.processes[0].kill()
        relays.processes[0].wait()
        relays.start(listen=scene.url.removeprefix("moqt://"))
        async with scene.listening() as listener:
            sink = scene.publisher()
            await sink.publish(scene.batch(0, rows(1200)))
            await listener.has(1200)
            assert listener.payloads == contents(rows(1200))
            await sink.close()


@on_loop
async def test_tracks_of_a_batch_each_have_their_rows_in_order(scene: Scene) -> None:
    mixed = [(f"t{n % 3}", n // 9, b"%d" % n) for n in range(90)]
    async with scene.listening("t0") as first, scene.listening("t2") as third:
        sink = scene.publisher()
        await sink.publish(scene.batch(0, mixed[:40], [], mixed[40:]))
        await first.has(30)
        await third.has(30)
        for number, listener in ((0, first), (2, third)):
            assert listener.payloads == [b"%d" % n for n in range(number, 90, 3)]
            # Ten keys, one of which is in both partitions, and begins a group in each.
            assert len({item.group for item in listener.objects}) == 11
        await sink.close()


@on_loop
async def test_a_track_goes_on_when_its_publisher_comes_back(scene: Scene) -> None:
    async with scene.listening() as listener:
        for number in range(3):
            sink = scene.publisher()
            await sink.publish(scene.batch(number, rows(10, 10 * number)))
            await sink.close()
        await listener.has(30)
        assert listener.payloads == contents(rows(30))
        groups = [item.group for item in listener.objects]
        assert groups == [groups[0] + n // 10 for n in range(30)]


@on_loop
async def test_a_track_is_ended_where_that_is_wanted(scene: Scene) -> None:
    sink = scene.publisher()
    async with laps.connect(scene.url) as session:
        reading = session.subscribe(scene.namespace, "t", start="start")
        await sink.publish(replace(scene.batch(0, rows(3)), end_tracks=True))
        assert [item.payload async for item in reading] == contents(rows(3))
    async with scene.listening() as listener:
        # It may begin again, behind its end.
        await sink.publish(scene.batch(1, rows(3, 3)))
        await until(lambda: listener.payloads[-3:] == contents(rows(3, 3)))
    await sink.close()


@on_loop
async def test_numbers_go_on_behind_what_relays_have_without_a_journal(scene: Scene) -> None:
    async with scene.listening() as listener, laps.connect(scene.url) as session:
        track = await session.publish(scene.namespace, "t", first_group=1 << 50)
        await track.write(b"before")
        track.end_group()
        await listener.has(1)
        sink = scene.publisher()
        await sink.publish(scene.batch(0, rows(1)))
        await listener.has(2)
        assert listener.objects[1].group == (1 << 50) + 1
        await sink.close()


@on_loop
async def test_a_batch_that_was_not_numbered_and_not_finished_keeps_its_numbers(
    scene: Scene,
) -> None:
    async with scene.listening() as listener:
        batch = replace(scene.batch(0, rows(1200)), number=None)
        await scene.publish_and_die(batch, "while it is sent")
        await listener.has(600)
        sink = scene.publisher()
        await sink.publish(replace(scene.batch(1, rows(10)), number=None))
        await until(lambda: listener.payloads[-10:] == contents(rows(10)))
        # Its twelve groups were taken, though not all of them were used.
        assert listener.objects[-1].group == listener.objects[0].group + 12
        await sink.close()


@on_loop
async def test_many_tracks_take_several_sessions(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uplink, "TRACKS_PER_SESSION", 4)
    monkeypatch.setattr(uplink, "SESSIONS", 3)
    async with scene.listening("t0") as first, scene.listening("t29") as last:
        sink = scene.publisher()
        for number in range(2):
            for at in range(3):  # thirty tracks, ten at a time: some have to make room
                batch = [(f"t{n}", 0, b"%d" % number) for n in range(10 * at, 10 * at + 10)]
                await sink.publish(scene.batch(3 * number + at, batch))
        # All at once are more than there may be sessions for, and none of them can be spared.
        mixed = [(f"t{n % 30}", 0, b"%d" % (2 + n // 30)) for n in range(60)]
        await sink.publish(scene.batch(6, mixed[:30], mixed[30:]))
        await first.has(4)
        await last.has(4)
        assert first.payloads == last.payloads == [b"0", b"1", b"2", b"3"]
        await sink.close()


# -- from relay to relay ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["lost", "leaves"])
@on_loop
async def test_a_subscriber_elsewhere_misses_nothing_when_the_relay_goes(
    how: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody on this machine is as patient as a network asks for.
    monkeypatch.setattr(uplink, "QUIET_S", 1.0)
    monkeypatch.setattr(uplink, "STATUS_S", 1.0)
    with Relays(tmp_path) as relays:
        first, second, third = relays.start(), relays.start(0), relays.start(0, 1)
        scene = Scene(first, "demo", tmp_path / "sink")
        async with scene.listening(url=third) as listener:
            sink = publisher(scene.place, first, second)
            await sink.publish(scene.batch(0, rows(100)))
            await listener.has(100)
            batch = scene.batch(1, rows(20_000, 100))
            publishing = asyncio.create_task(sink.publish(batch))
            await listener.has(3000)
            relays.processes[0].send_signal(how)
            await publishing
            await sink.publish(scene.batch(2, rows(100, 20_100)))
            await listener.has(20_200)
            # A group that was cut off comes late, behind those that were there already.
            places = sorted(listener.objects, key=lambda item: item.location)
            assert [item.payload for item in places] == contents(rows(20_200))
            for group in {item.group for item in places}:
                ids = [item.id for item in listener.objects if item.group == group]
                assert ids == sorted(ids)
            await sink.close()


@on_loop
async def test_between_batches_the_next_relay_is_gone_to(tmp_path: Path) -> None:
    with Relays(tmp_path) as relays:
        first, second = relays.start(), relays.start(0)
        scene = Scene(second, "demo", tmp_path / "sink")
        async with scene.listening() as listener:
            sink = publisher(scene.place, first, second)
            await sink.publish(scene.batch(0, rows(100)))
            await listener.has(100)
            relays.processes[0].send_signal(signal.SIGTERM)
            while sink._uplink is None or sink._uplink.url != second:
                await sink.keep()
                await asyncio.sleep(0.01)
            await sink.publish(scene.batch(1, rows(100, 100)))
            await listener.has(200)
            assert listener.payloads == contents(rows(200))
            await sink.close()
