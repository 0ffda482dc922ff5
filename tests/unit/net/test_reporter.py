"""The timer of telemetry: rounds in slices, off and on, and a last word."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import msgspec

from laps.config import Config, NodeConfig, TelemetryConfig
from laps.edge.edge import Edge
from laps.edge.settings import EdgeSettings
from laps.net import reporter as module
from laps.net.reporter import Reporter
from support.loopback import on_loop, until
from support.relays import Net
from support.telemetry import Readings, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import pytest

SOON = TelemetryConfig(interval_s=0.1)


class Scene:
    """A relay that speaks of itself, without sockets."""

    def __init__(self, telemetry: TelemetryConfig = SOON) -> None:
        self.relay = Net().relay("1:1")
        self.edge = Edge(self.relay, EdgeSettings())
        self.touched = 0
        self.config = Config(node=NodeConfig(region="eu", capacity_bps=5), telemetry=telemetry)
        self.reporter = Reporter(
            self.relay, self.edge, Readings(self.relay), self.config, self._touch
        )

    def _touch(self) -> None:
        self.touched += 1

    def rows(self, kind: str) -> list[dict[str, Any]]:
        outputs = self.reporter.telemetry._outputs
        groups = outputs[kind].track.cached.groups if kind in outputs else {}
        return [
            row
            for group in groups.values()
            for _, item in sorted(group.objects(0.0).items())
            for row in rows_of(item.payload)
        ]


@on_loop
async def test_a_round_follows_another_and_says_what_is_configured() -> None:
    scene = Scene()
    await until(lambda: len(scene.rows("node")) >= 3)
    row = scene.rows("node")[-1]
    assert (row["region"], row["capacity_bps"]) == ("eu", 5)
    assert row["version"]
    assert scene.reporter.worked_s > 0
    scene.reporter.leave()


@on_loop
async def test_others_have_their_turn_between_the_steps_of_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SLICE_S", 0.0)
    scene = Scene()
    seen: list[str] = []

    def steps(now: float, wall_us: int) -> Iterator[None]:
        for _ in range(50):
            seen.append("step")
            yield

    def turn() -> None:
        seen.append("turn")
        loop.call_soon(turn)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(scene.reporter.telemetry, "round", steps)
    loop.call_soon(turn)
    await until(lambda: seen.count("step") == 50)
    at = [number for number, what in enumerate(seen) if what == "step"]
    assert all("turn" in seen[a:b] for a, b in itertools.pairwise(at))
    scene.reporter.leave()


@on_loop
async def test_it_is_turned_off_and_on_and_its_bounds_change() -> None:
    scene = Scene(TelemetryConfig(enabled=False))
    assert not scene.reporter.telemetry.running
    assert not len(scene.relay.tracks)
    scene.reporter.configure(SOON)
    await until(lambda: bool(scene.rows("node")))
    touched = scene.touched
    scene.reporter.configure(msgspec.structs.replace(SOON, history_bytes=1 << 20))
    sizes = {
        kind: output.history.limits.total_bytes
        for kind, output in scene.reporter.telemetry._outputs.items()
    }
    assert sum(sizes.values()) == 1 << 20
    scene.reporter.configure(msgspec.structs.replace(SOON, enabled=False))
    assert not scene.reporter.telemetry.running
    assert scene.touched > touched
    scene.reporter.configure(msgspec.structs.replace(SOON, enabled=False))
    scene.reporter.leave()


@on_loop
async def test_another_interval_counts_from_now_on() -> None:
    scene = Scene(TelemetryConfig(interval_s=60.0))
    assert scene.rows("node") == []
    scene.reporter.configure(SOON)
    await until(lambda: len(scene.rows("node")) >= 3)
    scene.reporter.leave()


@on_loop
async def test_the_last_word_is_said_at_once() -> None:
    scene = Scene(TelemetryConfig(interval_s=60.0))
    scene.relay.journal.note(0.0, "stopping", "1:1")
    outputs = dict(scene.reporter.telemetry._outputs)
    assert scene.rows("events") == []
    scene.reporter.leave()
    assert [row["event"] for row in scene.rows("events")] == ["stopping"]
    for output in outputs.values():
        assert not any(group.live for group in output.track.cached.groups.values())


@on_loop
async def test_a_round_that_was_under_way_is_finished_first() -> None:
    scene = Scene(TelemetryConfig(interval_s=60.0))
    scene.reporter._begin_round()
    assert scene.reporter._round is not None
    next(scene.reporter._round)
    scene.relay.journal.note(0.0, "stopping", "1:1")
    scene.reporter.leave()
    assert len(scene.rows("node")) == 2
    assert [row["event"] for row in scene.rows("events")] == ["stopping"]
