"""A relay that follows plans and policies: it reads their tracks at its own door, as clients do.

One without such a door, as a Via or a Control server, reads policies at the nearest Edge that says
where its clients come. It need not know who that is: the document is signed.

A document counts if the key that the operator named has signed it, and if it is newer than the one
before. A plan counts until it expires, a policy until the next one: what is forbidden stays so. The
last one is kept in a file, where one is named, so that a relay that is started again need not wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from laps.client import connect, plans, policies
from laps.client.plans import DIRECT, open_plan
from laps.client.policies import open_policy
from laps.client.sealed import NAMESPACE, InvalidDocument, parse_key
from laps.errors import LapsError
from laps.routing import plan as routing
from laps.types import Address, TrackKey, parse_node_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from laps.client.connect import Connecting
    from laps.client.plans import PlanDocument
    from laps.config import PlanConfig, PolicyConfig
    from laps.net.runner import Runner
    from laps.relay.relay import Relay
    from laps.routing.plan import Plan
    from laps.routing.terms import Way

log = logging.getLogger(__name__)

# The relay's own door is there or it is about to stop: asking again soon costs nothing.
AGAIN_S: Final = 1.0

# One of these should be there.
MOST_EDGES: Final = 3


class Hearing:
    """Reads one track of documents, for one relay, and keeps the last that counts."""

    def __init__(
        self,
        runner: Runner,
        track: str,
        file: Path | None,
        take: Callable[[bytes], bool],
        unreadable: str = "",
    ) -> None:
        """`take` follows a document, and says whether it counts; InvalidDocument says why not.

        `unreadable` is an error, with the way out, where the file is there and cannot be followed;
        without it that is a warning, as the next document makes up for it.
        """
        self._unreadable = unreadable
        self._runner = runner
        self._track = track
        self._file = file
        self._follow = take
        if file is not None:
            self._recall(file)
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Hear no more."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while True:
            for door in self._doors():
                try:
                    async with door as session:
                        async for obj in session.subscribe(NAMESPACE, self._track, start="current"):
                            self._hear(obj.payload)
                except LapsError as error:
                    log.info("laps/%s is not heard for a moment: %s", self._track, error)
            await asyncio.sleep(AGAIN_S)

    def _doors(self) -> Iterator[Connecting]:
        """Where the track may be read, the best place first."""
        runner = self._runner
        if (own := _own_url(runner)) is not None:
            token = runner.authorizing.token_for_itself(NAMESPACE, self._track)
            fingerprint = runner.identity.fingerprint
            yield connect(own, fingerprint=fingerprint, reconnect=False, token=token)
        else:
            for address in _edges(runner.relay):
                yield connect(f"moqt://{address}", insecure=True, reconnect=False)

    def _hear(self, payload: bytes) -> None:
        if self._take(payload) and self._file is not None:
            try:
                _write(self._file, payload)
            except OSError as error:
                name = self._track
                log.warning("the %s is followed, and not kept in %s: %s", name, self._file, error)

    def _recall(self, path: Path) -> None:
        try:
            self._follow(path.read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, InvalidDocument) as error:
            level = logging.ERROR if self._unreadable else logging.WARNING
            known = self._track, path, error, self._unreadable
            log.log(level, "the %s in %s is not followed: %s%s", *known)

    def _take(self, payload: bytes) -> bool:
        try:
            return self._follow(payload)
        except InvalidDocument as error:
            log.warning("a %s is not followed: %s", self._track, error)
            return False


class Steering:
    """Follows the plans of one key."""

    def __init__(self, runner: Runner, config: PlanConfig) -> None:
        """ConfigError if the key is none."""
        self._runner = runner
        self._key = parse_key(config.key)
        self._newest = 0
        self._expiry: asyncio.TimerHandle | None = None
        self._hearing = Hearing(runner, plans.TRACK, config.file, self._take)

    async def close(self) -> None:
        """Follow no more; the relay keeps the plan it has until it stops."""
        if self._expiry is not None:
            self._expiry.cancel()
        await self._hearing.close()

    def _take(self, payload: bytes) -> bool:
        document = open_plan(payload, self._key)
        left_s = document.expires_at - time.time()
        if left_s <= 0:
            raise InvalidDocument(f"plan {document.sequence} has expired")
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


class KeepingTo:
    """Keeps to the policies of one key."""

    def __init__(self, runner: Runner, config: PolicyConfig) -> None:
        """ConfigError if the key is none."""
        self._runner = runner
        self._key = parse_key(config.key)
        counts = "everything is allowed" if config.file is None else f"{config.file} counts"
        unreadable = (
            f"; {counts} until laps/{policies.TRACK} is heard. Put a policy there that "
            "`laps policy sign` has made with the key of policy.key, or remove that file"
        )
        self._hearing = Hearing(runner, policies.TRACK, config.kept, self._take, unreadable)

    async def close(self) -> None:
        """Hear no more; the relay keeps to the policy it has until it stops."""
        await self._hearing.close()

    def _take(self, payload: bytes) -> bool:
        document, policy = open_policy(payload, self._key)
        if not self._runner.take_policy(policy, document.sequence):
            return False
        log.info("keeps to policy %d, %s", document.sequence, policy.digest)
        return True


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


def _own_url(runner: Runner) -> str | None:
    address = runner.client_address
    if address is not None and address.is_wildcard:
        address = Address("::1" if ":" in address.host else "127.0.0.1", address.port)
    return None if address is None else f"moqt://{address}"


def _edges(relay: Relay) -> list[str]:
    """Where clients of the nearest Edges come, as these say, some of them."""
    found = []
    for metrics in relay.weighing.metrics:
        if metrics.client_address:
            away_s = relay.places.round_trip(relay.id, metrics.source_node_id)
            found.append((away_s is None, away_s or 0.0, metrics.client_address))
    return [address for _, _, address in nsmallest(MOST_EDGES, found)]


def _write(path: Path, payload: bytes) -> None:
    """All or nothing: who is stopped meanwhile has the plan before."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_bytes(payload)
    beside.replace(path)
