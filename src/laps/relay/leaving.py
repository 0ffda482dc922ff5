"""How a relay stops: it says that it leaves, stays for the grace, and closes every link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.errors import CloseCode
from laps.relay.successor import successor

if TYPE_CHECKING:
    from laps.relay.exchange import Exchange
    from laps.relay.extensions import Extensions
    from laps.relay.peers import Links
    from laps.relay.subscribes import SubscribeExchange
    from laps.relay.timers import Timers
    from laps.relay.weighing import Weighing
    from laps.types import NodeInfo


class Leaving:
    """The end of one relay, in good order."""

    def __init__(
        self,
        info: NodeInfo,
        weighing: Weighing,
        extensions: Extensions,
        exchange: Exchange,
        subscribes: SubscribeExchange,
        links: Links,
        timers: Timers,
    ) -> None:
        self._info = info
        self._weighing = weighing
        self._extensions = extensions
        self._exchange = exchange
        self._subscribes = subscribes
        self._links = links
        self._timers = timers

    def begin(self, now: float) -> None:
        """Say that we leave; those who take the hint have the grace to go elsewhere."""
        at = self._extensions.drain(now, successor(self._info, self._weighing, self._extensions))
        if self._exchange.leave() or at > now:
            self._timers.at(now + self._extensions.settings.grace_s, self._stop)
        else:
            self._stop(now)

    def _stop(self, now: float) -> None:
        """Withdraw what we subscribed to, and close every link."""
        self._subscribes.withdraw_all(now)
        for link in list(self._links.links.values()):
            link.close(CloseCode.GRACEFUL if link.extended else CloseCode.GOAWAY, "the relay stops")
