"""Policy on real sockets: who hears why, what moves when it changes, and who may be a peer."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import laps
from laps.client.plans import PlanDocument, sign_plan
from laps.client.policies import PolicyDocument, sign_policy
from laps.client.sealed import key_text
from laps.config import override
from laps.errors import ConfigError, Unauthorized
from laps.steering import KeepingTo, Steering
from support.loopback import on_loop, until
from support.runners import start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from laps.client import Connecting, Object
    from laps.net.runner import Runner

KEY = Ed25519PrivateKey.generate()
PROTOCOLS = [
    pytest.param("moqt", 16, id="moqt-16"),
    pytest.param("moqt", 14, id="moqt-14"),
    pytest.param("https", 16, id="webtransport-16"),
    pytest.param("quicr", 0, id="quicr"),
]

INSIDE = """
[[rule]]
tracks = "clinic/*"
inside = ["us-east"]
"""
NOT_BY_CANADA = """
[[rule]]
tracks = "gov/*"
avoid = ["ca"]
"""


class Country:
    """New York and Seattle, a Via in Canada, and a way between the two without it.

    1:1 New York (us-east) - 1:9 Toronto (ca) - 1:2 Seattle (us-west); and by 1:3, 1:4 in the
    south, which is a hop longer.
    """

    def __init__(self, stack: AsyncExitStack, policy: Path | None, **settings: Any) -> None:
        own = settings if policy is None else {"policy__file": str(policy), **settings}
        self.toronto = start(
            stack, "1:9", node__type="via", node__region="ca", relay__reflect=True, **own
        )
        self.dallas = start(stack, "1:3", node__region="us-south", **own)
        self.phoenix = start(stack, "1:4", self.dallas, node__region="us-south", **own)
        self.new_york = start(
            stack, "1:1", self.toronto, self.dallas, node__region="us-east", **own
        )
        self.seattle = start(
            stack, "1:2", self.toronto, self.phoenix, node__region="us-west", **own
        )
        self.all = (self.toronto, self.dallas, self.phoenix, self.new_york, self.seattle)

    async def ready(self) -> None:
        """Everybody knows everybody, and where they are."""
        for runner in self.all:
            await until(lambda: len(list(runner.relay.weighing.metrics)) == len(self.all))  # noqa: B023

    def reload(self, **values: Any) -> None:
        """Every relay reads its configuration again."""
        for runner in self.all:
            runner.reload(override(runner.config, values, "a test"))


def connect(
    runner: Runner, scheme: str = "moqt", draft: int = 16, token: str | None = None
) -> Connecting:
    url = f"{scheme}://{runner.client_address}"
    return laps.connect(url, drafts=(draft or 16,), insecure=True, token=token)


def hops(runner: Runner) -> set[str]:
    """What the flows of a relay say of their ways."""
    return {
        route.reason for flow in runner.relay.fib for route in flow.routes.values() if route.reason
    }


def peers_used(runner: Runner) -> set[int]:
    """The peers that flows of a relay go to."""
    return {
        runner.relay.links.node_of(link) or 0 for flow in runner.relay.fib for link in flow.outs
    }


async def read_all(objects: AsyncIterator[Object]) -> None:
    async for _ in objects:
        pass


@on_loop
async def test_a_policy_changes_under_traffic_and_nothing_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("")
    async with AsyncExitStack() as stack:
        country = Country(stack, file)
        await country.ready()
        at_new_york = await stack.enter_async_context(connect(country.new_york))
        at_seattle = await stack.enter_async_context(connect(country.seattle))
        track = await at_new_york.publish("gov", "news")
        objects = at_seattle.subscribe("gov", "news", start="start")
        got: list[bytes] = []

        async def flow(count: int) -> None:
            for _ in range(count):
                await track.write(str(len(got)).encode(), new_group=len(got) % 5 == 0)
                got.append((await anext(objects)).payload)

        await flow(20)
        toronto, dallas = country.toronto.relay.id, country.dallas.relay.id
        assert peers_used(country.new_york) == {toronto}
        for text, peer in ((NOT_BY_CANADA, dallas), ("", toronto)) * 2:
            file.write_text(text)
            country.reload()
            await flow(30)
            assert peers_used(country.new_york) == {peer}, hops(country.new_york)
        file.write_text(NOT_BY_CANADA)
        country.reload()
        await flow(30)
        reasons = hops(country.new_york)
        assert any("in ca, and the track stays out of ca" in reason for reason in reasons), reasons
        assert got == [str(number).encode() for number in range(len(got))]


@pytest.mark.parametrize(("scheme", "draft"), PROTOCOLS)
@on_loop
async def test_who_is_outside_hears_why(tmp_path: Path, scheme: str, draft: int) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(INSIDE)
    async with AsyncExitStack() as stack:
        country = Country(stack, file)
        await country.ready()
        inside = await stack.enter_async_context(connect(country.new_york))
        track = await inside.publish("clinic", "pulse")
        outside = await stack.enter_async_context(connect(country.seattle, scheme, draft))
        with pytest.raises(Unauthorized, match="policy: 1:2 is in us-west, and the track stays"):
            await anext(outside.subscribe("clinic", "pulse"))
        # Relays that are outside have never heard of who subscribes inside.
        reader = inside.subscribe("clinic", "pulse", start="start")
        await track.write(b"70", new_group=True)
        assert (await anext(reader)).payload == b"70"
        await asyncio.sleep(0.2)
        for runner in country.all:
            sources = {info.source_node_id for info in runner.relay.subscribes}
            assert sources <= {runner.relay.id}


@pytest.mark.parametrize(("scheme", "draft"), PROTOCOLS)
@on_loop
async def test_who_is_kept_away_while_a_track_flows_hears_why(
    tmp_path: Path, scheme: str, draft: int
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("")
    async with AsyncExitStack() as stack:
        country = Country(stack, file)
        await country.ready()
        inside = await stack.enter_async_context(connect(country.new_york))
        track = await inside.publish("clinic", "pulse")
        outside = await stack.enter_async_context(connect(country.seattle, scheme, draft))
        objects = outside.subscribe("clinic", "pulse")
        reading = asyncio.ensure_future(anext(objects))
        while not reading.done():
            await track.write(b"70", new_group=True)
            await asyncio.sleep(0.02)
        file.write_text(INSIDE)
        country.reload()
        with pytest.raises(Unauthorized, match="policy: 1:2 is in us-west"):
            await asyncio.wait_for(read_all(objects), 10)
        assert not peers_used(country.new_york)


@on_loop
async def test_a_relay_without_policy_is_told_by_the_one_that_has_it(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    # Who asks is told nothing by his own relay: it has no policy.
    file.write_text('[[link]]\nbetween = ["1:1", "1:9"]\nclosed = true\n[vias]\nnodes = ["1:9"]\n')
    async with AsyncExitStack() as stack:
        country = Country(stack, None)
        await country.ready()
        new_york = country.new_york
        new_york.reload(override(new_york.config, {"policy.file": str(file)}, "a test"))
        inside = await stack.enter_async_context(connect(new_york))
        await inside.publish("gov", "news")
        outside = await stack.enter_async_context(connect(country.seattle))
        with pytest.raises(Unauthorized, match="policy: "):
            async with asyncio.timeout(20):
                await anext(outside.subscribe("gov", "news"))


@on_loop
async def test_a_signed_policy_takes_the_place_of_the_file_and_outlasts_a_restart(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "kept"
    settings: dict[str, Any] = {
        "policy__key": key_text(KEY.public_key()),
        "policy__kept": str(kept),
    }
    async with AsyncExitStack() as stack:
        runner = start(stack, "1:1", node__region="us-west", **settings)
        hearing = KeepingTo(runner, runner.config.policy)
        stack.push_async_callback(hearing.close)
        session = await stack.enter_async_context(connect(runner))
        track = await session.publish("laps", "policy")
        rules = {"rule": [{"tracks": "clinic/*", "inside": ["us-east"]}]}
        for sequence, policy in ((2, rules), (1, {}), (3, {"rule": "wrong"})):
            document = PolicyDocument(sequence=sequence, issued_at=time.time(), policy=policy)
            await track.write(sign_policy(document, KEY), new_group=True)
            await until(lambda: runner.policies.sequence == 2)
        await track.write(b"no policy", new_group=True)
        await until(kept.exists)
        with pytest.raises(Unauthorized, match="policy: 1:1 is in us-west"):
            await anext(session.subscribe("clinic", "pulse"))
        runner.reload(runner.config)
        assert runner.policies.sequence == 2
        again = start(stack, "1:5", node__region="us-west", **settings)
        hearing = KeepingTo(again, again.config.policy)
        stack.push_async_callback(hearing.close)
        assert again.policies.sequence == 2
        other = await stack.enter_async_context(connect(again))
        with pytest.raises(Unauthorized, match="policy: 1:5 is in us-west"):
            await anext(other.subscribe("clinic", "pulse"))


@pytest.mark.parametrize("damage", ["changed", "another-key", "a-directory"])
@pytest.mark.parametrize("has_file", [False, True])
@on_loop
async def test_a_kept_policy_that_cannot_be_read_is_an_error_with_the_way_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, has_file: bool, damage: str
) -> None:
    kept, file = tmp_path / "kept", tmp_path / "policy.toml"
    key = Ed25519PrivateKey.generate() if damage == "another-key" else KEY
    signed = sign_policy(PolicyDocument(sequence=2, issued_at=time.time(), policy={}), key)
    if damage == "a-directory":
        kept.mkdir()
    else:
        kept.write_bytes(signed[:-9] if damage == "changed" else signed)
    file.write_text(INSIDE)
    settings: dict[str, Any] = {
        "policy__key": key_text(KEY.public_key()),
        "policy__kept": str(kept),
    }
    if has_file:
        settings["policy__file"] = str(file)
    async with AsyncExitStack() as stack:
        runner = start(stack, "1:1", **settings)
        hearing = KeepingTo(runner, runner.config.policy)
        stack.push_async_callback(hearing.close)
    (error,) = (it.getMessage() for it in caplog.records if it.levelname == "ERROR")
    assert error.startswith(f"the policy in {kept} is not followed: ")
    counts = f"{file} counts" if has_file else "everything is allowed"
    assert f"; {counts} until laps/policy is heard." in error
    assert error.endswith("has made with the key of policy.key, or remove that file")


@on_loop
async def test_signed_policies_follow_one_another_and_so_do_plans_where_policy_binds(
    tmp_path: Path,
) -> None:
    text = key_text(KEY.public_key())
    kept = str(tmp_path / "kept")
    settings: dict[str, Any] = {"policy__key": text, "policy__kept": kept, "plan__key": text}
    regions = ("us-east", "us-north", "us-south")
    async with AsyncExitStack() as stack:
        runner = start(stack, "1:1", node__region="us-west", **settings)
        readers = (
            KeepingTo(runner, runner.config.policy),
            Steering(runner, runner.config.plan),
        )
        for reader in readers:
            stack.push_async_callback(reader.close)
        for sequence, region in enumerate(regions, start=1):
            # As `laps policy publish` does each time: a client of its own, and an end to the track.
            async with connect(runner) as session:
                rules = {"rule": [{"tracks": "clinic/*", "inside": [region]}]}
                document = PolicyDocument(sequence=sequence, issued_at=time.time(), policy=rules)
                track = await session.publish("laps", "policy")
                await track.write(sign_policy(document, KEY), new_group=True)
                await until(lambda: runner.policies.sequence == sequence)  # noqa: B023
                plan = PlanDocument(
                    sequence=sequence,
                    issued_at=time.time(),
                    expires_at=time.time() + 60,
                    policy="",
                    regions={},
                    tracks=[],
                )
                plans = await session.publish("laps", "plan")
                await plans.write(sign_plan(plan, KEY), new_group=True)
                await until(lambda: runner.relay.router.plan.sequence == sequence)  # noqa: B023
                await track.end()
                await plans.end()


@pytest.mark.parametrize(("scheme", "draft"), PROTOCOLS)
@on_loop
async def test_a_token_changes_nothing_at_a_relay_without_keys_where_policy_binds(
    tmp_path: Path, scheme: str, draft: int
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(INSIDE)
    async with AsyncExitStack() as stack:
        runner = start(stack, "1:1", node__region="us-west", policy__file=str(file))
        session = await stack.enter_async_context(connect(runner, scheme, draft, token="a.b.c"))
        waiting = asyncio.ensure_future(anext(session.subscribe("news", "hourly", start="start")))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        track = await session.publish("news", "hourly")
        await track.write(b"one", new_group=True)
        assert (await asyncio.wait_for(waiting, 5)).payload == b"one"


@on_loop
async def test_peers_that_policy_does_not_allow_are_closed_and_come_back(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("")
    async with AsyncExitStack() as stack:
        first = start(stack, "1:1", node__region="us", policy__file=str(file))
        second = start(stack, "1:2", first, node__region="ca")
        await until(lambda: len(second.relay.peers) == len(first.relay.peers) == 1)
        file.write_text('[[peering]]\nbetween = ["us", "ca"]\nallow = false\n')
        await until(lambda: first.relay.weighing.metrics.get(second.relay.id) is not None)
        first.reload(first.config)
        await until(lambda: not first.relay.peers and not second.relay.peers)
        await asyncio.sleep(0.8)
        assert not first.relay.peers
        reasons = str(first.relay.journal.recent())
        assert "policy lets 1:1-1:2 not peer" in reasons
        file.write_text("")
        first.reload(first.config)
        await until(lambda: len(second.relay.peers) == len(first.relay.peers) == 1)


@on_loop
async def test_a_policy_that_is_wrong_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(INSIDE)
    async with AsyncExitStack() as stack:
        runner = start(stack, "1:1", policy__file=str(file))
        before = runner.policies.in_force
        file.write_text('[[rule]]\ntracks = "a/*"\nclass = "platinum"\n')
        with pytest.raises(ConfigError, match="platinum"):
            runner.reload(runner.config)
        assert runner.policies.in_force is before
        with pytest.raises(ConfigError, match=r"policy\.kept"):
            override(runner.config, {"policy.kept": "x"}, "a test")
