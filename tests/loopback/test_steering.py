"""Relays on real sockets that follow a signed plan, while a track flows."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import laps
from laps.client.plans import DIRECT, PlanDocument, PlannedTrack, sign_plan
from laps.client.sealed import key_text
from laps.config import Config, override
from laps.errors import ConfigError
from laps.net.runner import Runner
from laps.steering import Steering
from laps.types import TrackName, format_node_id, hash_track
from support.loopback import on_loop, until

if TYPE_CHECKING:
    from pathlib import Path

    from laps.client import Connecting

KEY = Ed25519PrivateKey.generate()
TRACK = TrackName((b"demo",), b"clock")


class Triangle:
    """An o-relay that reaches the s-relay directly and by a Via; it follows plans."""

    def __init__(self, stack: AsyncExitStack, **plan: str) -> None:
        self._stack = stack
        self.via = self._start("7:3", {"node.type": "via", "relay.reflect": True})
        self.edge = self._start("7:2", {"peering.peers": [str(self.via.peer_address)]})
        peers = [str(self.via.peer_address), str(self.edge.peer_address)]
        self.plan = {"plan.key": key_text(KEY.public_key())} | plan
        self.origin = self._start("7:1", {"peering.peers": peers} | self.plan)
        self.steering = self._steer(self.origin)

    def _start(self, node: str, values: dict[str, Any]) -> Runner:
        own = {
            "node.id": node,
            "peering.listen": "127.0.0.1:0",
            "clients.listen": "127.0.0.1:0",
            "relay.node_advertise_s": 0.05,
            "relay.drain_s": 0.1,
            "clients.drain_s": 0.1,
            "discovery.enabled": False,
        }
        runner = Runner(override(Config(), own | values, "a test"))
        self._stack.push_async_callback(runner.close)
        return runner

    def _steer(self, runner: Runner) -> Steering:
        steering = Steering(runner, runner.config.plan)
        self._stack.push_async_callback(steering.close)
        return steering

    def connect(self, runner: Runner) -> Connecting:
        """A client's session with one of them."""
        return laps.connect(f"moqt://{runner.client_address}")

    async def ready(self) -> None:
        """All three know each other, by every way there is."""
        relay = self.origin.relay
        await until(lambda: len(relay.nodes.candidates(self.edge.relay.id)) == 2)
        await until(lambda: len(self.via.relay.peers) == 2)

    def copies_by(self, runner: Runner) -> bool:
        """Whether the track goes to a peer now."""
        relay = self.origin.relay
        links = set(relay.peers[runner.relay.id].links)
        return any(out in links for flow in relay.fib for out in flow.outs)


def plan(by: str, *, sequence: int = 0, lasts_s: float = 60.0) -> bytes:
    now = time.time()
    track = PlannedTrack(f"{hash_track(TRACK).full_name_hash:016x}", "demo clock", {"eu": by})
    document = PlanDocument(
        sequence=sequence or round(now * 1000),
        issued_at=now,
        expires_at=now + lasts_s,
        policy="sha256:00",
        regions={"eu": ["7:2"]},
        tracks=[track],
    )
    return sign_plan(document, KEY)


@on_loop
async def test_a_plan_moves_a_track_that_flows_and_nothing_is_lost() -> None:
    async with AsyncExitStack() as stack:
        triangle = Triangle(stack)
        await triangle.ready()
        at_origin = await stack.enter_async_context(triangle.connect(triangle.origin))
        at_edge = await stack.enter_async_context(triangle.connect(triangle.edge))
        clock = await at_origin.publish("demo", "clock")
        objects = at_edge.subscribe("demo", "clock", start="start")
        plans = await at_origin.publish("laps", "plan")
        via = format_node_id(triangle.via.relay.id)
        got: list[bytes] = []

        async def flow(count: int) -> None:
            for _ in range(count):
                await clock.write(str(len(got)).encode(), new_group=len(got) % 5 == 0)
                got.append((await anext(objects)).payload)

        await flow(20)
        assert triangle.copies_by(triangle.edge)
        for sequence, (by, peer) in enumerate(
            [(via, triangle.via), (DIRECT, triangle.edge)] * 3, start=1
        ):
            await plans.write(plan(by, sequence=sequence), new_group=True)
            writing = asyncio.ensure_future(flow(50))
            await until(lambda: triangle.origin.relay.router.plan.sequence == sequence)  # noqa: B023
            await writing
            await flow(6)
            assert triangle.copies_by(peer)
        assert got == [str(number).encode() for number in range(len(got))]


@on_loop
async def test_what_is_forged_old_or_no_plan_is_not_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with AsyncExitStack() as stack:
        triangle = Triangle(stack)
        await triangle.ready()
        session = await stack.enter_async_context(triangle.connect(triangle.origin))
        plans = await session.publish("laps", "plan")
        await plans.write(plan(DIRECT, sequence=7), new_group=True)
        await until(lambda: triangle.origin.relay.router.plan.sequence == 7)
        forged = plan("7:3", sequence=9).replace(b'"7:3"', b'"7:4"')
        expired, older = plan("7:3", sequence=8, lasts_s=-1), plan("7:3", sequence=6)
        for bad in (forged, b"no plan", expired, older):
            await plans.write(bad, new_group=True)
        await plans.write(plan(DIRECT, sequence=10), new_group=True)
        await until(lambda: triangle.origin.relay.router.plan.sequence == 10)
        said = [record.getMessage() for record in caplog.records if "plan" in record.getMessage()]
        assert [line for line in said if "not followed" in line] == [
            "a plan is not followed: the signature does not fit: it was changed on the way",
            next(line for line in said if "not a signed document" in line),
            "a plan is not followed: plan 8 has expired",
        ]


@on_loop
async def test_a_plan_that_expires_is_given_up() -> None:
    async with AsyncExitStack() as stack:
        triangle = Triangle(stack)
        await triangle.ready()
        session = await stack.enter_async_context(triangle.connect(triangle.origin))
        plans = await session.publish("laps", "plan")
        await plans.write(plan("7:3", sequence=1, lasts_s=1.0), new_group=True)
        await until(lambda: triangle.origin.relay.router.plan.sequence == 1)
        await until(lambda: triangle.origin.relay.router.plan.sequence == 0)


@on_loop
async def test_the_last_plan_is_kept_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "relay.plan"
    async with AsyncExitStack() as stack:
        triangle = Triangle(stack, **{"plan.file": str(path)})
        session = await stack.enter_async_context(triangle.connect(triangle.origin))
        plans = await session.publish("laps", "plan")
        await plans.write(plan("7:3", sequence=5), new_group=True)
        await until(path.exists)
    async with AsyncExitStack() as stack:
        triangle = Triangle(stack, **{"plan.file": str(path)})
        assert triangle.origin.relay.router.plan.sequence == 5


@on_loop
async def test_a_key_that_is_none_is_said_at_the_start() -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(ConfigError, match="keygen"):
            Triangle(stack, **{"plan.key": "secret"})
