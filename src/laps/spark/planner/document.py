"""The plan that relays follow: made of a plan, signed, and published."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from laps.client import connect
from laps.client.plans import DIRECT, TRACK, PlanDocument, PlannedTrack
from laps.client.sealed import NAMESPACE
from laps.errors import ConfigError, RequestRefused
from laps.names import hash_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from laps.client.tokens import TokenLike
    from laps.spark.planner.plan import Plan

FILE: Final = "plan.signed"
"What it is called in the plan's folder."

LINGER_S: Final = 5.0
"""How long a plan is published at least: who waits for a track asks again every second or two, and
who has just heard the end of another publication comes back a second later."""

LOOK_S: Final = 0.1
"How often it is looked whether the plan is to be published any longer."


def document_of(plan: Plan, *, now: float, valid_s: float) -> PlanDocument:
    """What relays have to know: by which Via each track goes to each region.

    A pair without an assignment is left out, and relays select for it by themselves.
    """
    network, tracks = plan.problem.network, plan.problem.tracks
    regions: dict[str, list[str]] = {}
    for node in network.nodes:
        if node.role == "edge":
            regions.setdefault(node.region, []).append(node.id)
    by_region: dict[int, dict[str, str]] = {}
    for one in plan.assignments:
        by_region.setdefault(one.track, {})[one.region] = one.via or DIRECT
    return PlanDocument(
        sequence=int(now * 1000),
        issued_at=now,
        expires_at=now + valid_s,
        policy=plan.problem.policy.digest,
        regions=regions,
        tracks=[
            PlannedTrack(hash_text(tracks[track].hash), tracks[track].label, decided)
            for track, decided in by_region.items()
        ],
    )


def read_bytes(path: Path) -> bytes:
    """A signed plan as it is published."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: give the file that --key signed") from None


async def publish(
    sealed: bytes,
    sequence: int,
    url: str,
    *,
    fingerprint: str | None = None,
    insecure: bool = False,
    token: TokenLike | None = None,
    stop: asyncio.Event | None = None,
    published: Callable[[], None] = lambda: None,
) -> None:
    """Publish a signed plan, as a group of one object, until `stop` is set.

    Without `stop` it stays for as long as those need to hear of it who follow plans now. Relays
    that come meanwhile get the plan too. `published` is called when the relay has it.

    Where relays have keys, `token` has to allow to publish below `laps`.
    """
    async with connect(url, fingerprint=fingerprint, insecure=insecure, token=token) as session:
        track = await session.publish(NAMESPACE, TRACK, first_group=sequence)
        await track.write(sealed, new_group=True)
        track.end_group()
        with suppress(RequestRefused):  # its answer comes after the one to PUBLISH
            await session.track_status(NAMESPACE, TRACK)
        if not track.failed:
            published()
        began = monotonic()
        while not track.failed:
            if stop.is_set() if stop is not None else monotonic() > began + LINGER_S:
                break
            await asyncio.sleep(LOOK_S)
        await track.end()
