"""Origins of a simulated network: servers that answer after a while, refuse, and are down at times.

origins = SimOrigins(network.clock)
media = origins.add(Origin("media.example", ((b"media.example",),), (), OriginApi("https://x/")))
media.answers = lambda question: {"allow": question["action"] != "publish"}
for node in network.nodes.values():
    node.origins = origins
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from laps.auth.origin_api import CallFailed
from laps.auth.origins import Origins
from laps.edge.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.auth.origins import Origin
    from laps.edge.asking import Call
    from laps.sim.clock import Clock

# A server that is not there is found to be so within a round trip.
UNREACHABLE_S: Final = 0.02


class SimOrigin:
    """The server of one origin."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.delay_s = (0.01, 0.2)
        "How long it takes to answer, from and to."
        self.is_up = True
        self.answers: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda _: {"allow": True}
        "What it says to a question; None: nothing at all."
        self.questions: list[dict[str, Any]] = []

    def ask(self, call: Call, answered: Callable[[int, bytes | CallFailed], None]) -> None:
        """A relay asks it."""
        if not self.is_up:
            failed = CallFailed("nobody answers at its address", unreachable=True)
            self._clock.after(UNREACHABLE_S, answered, call.id, failed)
            return
        question = json.loads(call.body)
        self.questions.append(question)
        if (answer := self.answers(question)) is not None:
            wait = self._clock.rng.uniform(*self.delay_s)
            self._clock.after(wait, answered, call.id, json.dumps(answer).encode())


class SimOrigins:
    """The origins of a network, for the relays that ask them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._origins: list[Origin] = []
        self._servers: dict[str, SimOrigin] = {}

    def add(self, origin: Origin) -> SimOrigin:
        """An origin that is asked; its server."""
        self._origins.append(origin)
        server = self._servers[origin.name] = SimOrigin(self._clock)
        return server

    def authority(self) -> Authority:
        """What a relay that starts goes by."""
        authority = Authority()
        authority.origins = Origins(self._origins)
        return authority

    def ask(self, call: Call, answered: Callable[[int, bytes | CallFailed], None]) -> None:
        """A relay asks one of them."""
        self._servers[call.origin].ask(call, answered)
