"""A relay that follows plans: it reads the track `plan` of `laps` at its own door, as clients do.

A plan counts if the key that the operator named has signed it, if it is newer than the one before,
and until it expires. The last one is kept in a file, where one is named, so that a relay that is
started again need not wait for the next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from laps.client import connect
from laps.client.plans import DIRECT, TRACK, open_plan
from laps.client.sealed import NAMESPACE, InvalidDocument, parse_key
from laps.errors import LapsError
from laps.routing import plan as routing
from laps.types import Address, TrackKey, parse_node_id

if TYPE_CHECKING:
    from pathlib import Path

    from laps.client.plans import PlanDocument
    from laps.config import PlanConfig
    from laps.net.runner import Runner
    from laps.routing.plan import Plan
    from laps.routing.terms import Way

log = logging.getLogger(__name__)

# The relay's own door is there or it is about to stop: asking again soon costs nothing.
AGAIN_S: Final = 1.0


class Steering:
    """Follows the plans of one key, for one relay."""

    def __init__(self, runner: Runner, config: PlanConfig) -> None:
        """ConfigError if the key is none."""
        self._runner = runner
        self._key = parse_key(config.key)
        self._file = config.file
        self._newest = 0
        self._expiry: asyncio.TimerHandle | None = None
        if self._file is not None:
            self._recall(self._file)
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Follow no more; the relay keeps the plan it has until it stops."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    # -- hearing -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        url = _own_url(self._runner)
        token = self._runner.authorizing.token_for_itself(NAMESPACE, TRACK)
        while True:
            fingerprint = self._runner.identity.fingerprint
            try:
                async with connect(
                    url, fingerprint=fingerprint, reconnect=False, token=token
                ) as session:
                    async for obj in session.subscribe(NAMESPACE, TRACK, start="current"):
                        self._hear(obj.payload)
            except LapsError as error:
                log.info("plans are not heard for a moment: %s", error)
            await asyncio.sleep(AGAIN_S)

    def _hear(self, payload: bytes) -> None:
        if self._take(payload) and self._file is not None:
            try:
                _write(self._file, payload)
            except OSError as error:
                log.warning("the plan is followed, and not kept in %s: %s", self._file, error)

    def _recall(self, path: Path) -> None:
        try:
            self._take(path.read_bytes())
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("the plan in %s is not followed: %s", path, error)

    def _take(self, payload: bytes) -> bool:
        """Follow a plan, if it is one to be followed."""
        try:
            document = open_plan(payload, self._key)
        except InvalidDocument as error:
            log.warning("a plan is not followed: %s", error)
            return False
        left_s = document.expires_at - time.time()
        if left_s <= 0:
            log.warning("plan %d is not followed: it has expired", document.sequence)
            return False
        if document.sequence <= self._newest:
            return False
        self._newest = document.sequence
        self._runner.follow_plan(plan_of(document))
        log.info("follows plan %d, of %d tracks", document.sequence, len(document.tracks))
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = asyncio.get_running_loop().call_later(left_s, self._expired)
        return True

    def _expired(self) -> None:
        sequence = self._runner.relay.router.plan.sequence
        log.warning("plan %d has expired: selection decides", sequence)
        self._runner.follow_plan(routing.NO_PLAN)


def plan_of(document: PlanDocument) -> Plan:
    """A plan as routing has it."""
    regions = {
        parse_node_id(node): region for region, nodes in document.regions.items() for node in nodes
    }
    vias = {
        TrackKey(int(track.hash, 16)): {
            region: _way(via) for region, via in track.by_region.items()
        }
        for track in document.tracks
    }
    ways = tuple(
        routing.PlannedWay(
            way.tracks, way.service, {region: _way(via) for region, via in way.by_region.items()}
        )
        for way in document.ways
    )
    return routing.Plan(document.sequence, document.expires_at, regions, vias, ways)


def _way(text: str) -> Way:
    """A Via, or several one after the other, or none."""
    return routing.DIRECT if text == DIRECT else tuple(map(parse_node_id, text.split()))


def _own_url(runner: Runner) -> str:
    address = runner.client_address
    if address is not None and address.is_wildcard:
        address = Address("::1" if ":" in address.host else "127.0.0.1", address.port)
    return f"moqt://{address}"


def _write(path: Path, payload: bytes) -> None:
    """All or nothing: who is stopped meanwhile has the plan before."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_bytes(payload)
    beside.replace(path)
