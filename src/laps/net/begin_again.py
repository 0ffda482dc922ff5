"""A relay whose configuration is read again: what counts at once, and what makes it begin again.

The document lets a relay change its type while it runs, if it disconnects all peers and connects
them again. So it takes leave of clients and peers as if it stopped, and begins again in the same
process: with the same node id, certificate and addresses, and in the new role.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from laps.errors import LapsError
from laps.net.kept import Kept
from laps.net.runner import Runner

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from laps.config import Config

log = logging.getLogger(__name__)


class Reloading:
    """What a running relay makes of its configuration when that is read again."""

    def __init__(
        self, runner: Runner, read_again: Callable[[], Config], wake: asyncio.Event
    ) -> None:
        """`wake` is set when the relay has to begin again."""
        self.following: Config | None = None
        "What it has to begin again with."
        self._runner = runner
        self._read_again = read_again
        self._wake = wake

    def read(self) -> str:
        """Read the configuration again; one that is wrong changes nothing: why, or nothing."""
        try:
            config = self._read_again()
            if self.following is None and config.node.type == self._runner.config.node.type:
                self._runner.reload(config)
                return ""
        except LapsError as error:
            log.error("the configuration stays as it is: %s", error)
            return str(error)
        before, after = self._runner.config.node.type, config.node.type
        log.warning("node.type was %s and is %s: the relay begins again", before, after)
        self.following = config
        self._wake.set()
        return ""


async def begin_again(runner: Runner, config: Config) -> Runner:
    """Close a relay, and begin again with another configuration, in the role that it names.

    Of who it is only the type may be another. Where it cannot begin, as when a port is in use, it
    begins again as it was.
    """
    before, kept = runner.config, _kept(runner, config)
    if replace(config.node, type=before.node.type) != before.node:
        log.warning("[node] has changed: restart the relay for all but the type to count")
    if not runner.stopping:
        await runner.close()
    try:
        return Runner(replace(config, node=replace(before.node, type=config.node.type)), kept)
    except LapsError as error:
        log.error("the relay stays what it was, %s: %s", before.node.type, error)
        return Runner(before, _kept(runner, before))


def _kept(runner: Runner, config: Config) -> Kept:
    return Kept(
        node_id=runner.relay.id,
        identity=runner.identity if config.tls.is_self_signed else None,
        peer_address=runner.peer_address or runner.kept.peer_address,
        client_address=runner.client_address or runner.kept.client_address,
    )
