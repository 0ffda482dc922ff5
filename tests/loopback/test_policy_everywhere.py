"""A signed policy reaches relays that take no clients, and keeps them from speaking of tracks."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import laps
from laps.client.policies import PolicyDocument, sign_policy
from laps.client.sealed import key_text
from laps.steering import KeepingTo
from laps.types import TrackName, hash_track
from support.loopback import on_loop, until
from support.runners import start

if TYPE_CHECKING:
    from laps.net.runner import Runner

KEY = Ed25519PrivateKey.generate()
RULES = {"rule": [{"tracks": "clinic/*", "inside": ["us"]}]}


@on_loop
async def test_policy_that_is_signed_reaches_vias_and_control_servers() -> None:
    key: dict[str, Any] = {"policy__key": key_text(KEY.public_key())}
    async with AsyncExitStack() as stack:
        us = {"node__region": "us", **key}
        control = start(stack, "1:200", node__type="control", **us)
        servers = {"peering__control": [str(control.peer_address)], **us}
        via = start(stack, "1:100", node__type="via", relay__reflect=True, **servers)
        near = start(stack, "1:1", via, **servers)
        far = start(stack, "2:1", via, node__region="eu")
        relays = (control, via, near)
        for runner in relays:
            hearing = KeepingTo(runner, runner.config.policy)
            stack.push_async_callback(hearing.close)

        def sequences() -> set[int]:
            return {runner.policies.sequence for runner in relays}

        publisher = laps.connect(f"moqt://{near.client_address}", insecure=True)
        session = await stack.enter_async_context(publisher)
        track = await session.publish("laps", "policy")
        for sequence in (1, 2, 3):
            document = PolicyDocument(sequence=sequence, issued_at=time.time(), policy=RULES)
            await track.write(sign_policy(document, KEY), new_group=True)
            await until(lambda: sequences() == {sequence})  # noqa: B023
        objects = session.subscribe("clinic", "pulse")
        await until(lambda: _knows(via, near, "clinic"))
        seen = session.subscribe("open", "pulse")
        await until(lambda: _knows(far, near, "open"))
        assert not _knows(far, near, "clinic")
        objects.close()
        seen.close()


def _knows(runner: Runner, source: Runner, namespace: str) -> bool:
    """Whether a relay has heard that another wants a track."""
    key = hash_track(TrackName((namespace.encode(),), b"pulse")).full_name_hash
    return runner.relay.subscribes.holds(source.relay.id, key)
