"""What happens to a network under a seed: sequences of faults that never end.

There are three, each drawn from the seed on its own, so that none depends on how long another
takes: one relay that carries data, one Control server and one link are broken at a time. So there
is always a way, and the next fault of a sequence begins when what the last one broke is whole.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from laps.types import PeerMode, format_node_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.lab.network import Network

Kind = Literal["kill", "freeze", "roll", "delay", "drop"]

# How often each is drawn: a kill is what this is about, and a rolling restart takes longest.
RELAY_KINDS: Final[dict[Kind, int]] = {"kill": 5, "freeze": 3, "roll": 1}
CONTROL_KINDS: Final[dict[Kind, int]] = {"kill": 3, "freeze": 2, "roll": 1}
LINK_KINDS: Final[dict[Kind, int]] = {"delay": 1, "drop": 1}

# How long each lasts: shorter and longer than it takes to be noticed.
LASTS_S: Final[dict[Kind, tuple[float, float]]] = {
    "kill": (0.0, 4.0),
    "freeze": (0.2, 6.0),
    "roll": (0.0, 1.0),
    "delay": (4.0, 15.0),
    "drop": (4.0, 15.0),
}

# Before the next: from the moment that the network is whole again.
RELAY_PAUSE_S: Final = (0.5, 4.0)
CONTROL_PAUSE_S: Final = (8.0, 25.0)
LINK_PAUSE_S: Final = (1.0, 8.0)

MOST_DELAY_MS: Final = 150.0
MOST_DROP: Final = 0.05


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is done to relays, or to a link, and undone after a while."""

    kind: Kind
    nodes: tuple[str, ...]
    "A relay, the relays of a region one after the other, or both ends of a link."
    pause_s: float
    "What is waited before it."
    lasts_s: float
    amount: float = 0.0
    "Of a delay in milliseconds, of drops the share."

    def __str__(self) -> str:
        where = " ".join(self.nodes)
        match self.kind:
            case "kill":
                return f"kill {where} for {self.lasts_s:.1f} s"
            case "freeze":
                return f"freeze {where} for {self.lasts_s:.1f} s"
            case "roll":
                return f"restart {', '.join(self.nodes)}"
            case "delay":
                return f"delay {where} by {self.amount:.0f} ms for {self.lasts_s:.1f} s"
        return f"drop {100 * self.amount:.1f} % at {where} for {self.lasts_s:.1f} s"


def relay_faults(network: Network, seed: int) -> Iterator[Fault]:
    """Those of Edges, Vias and Stubs; rolling restarts take the relays of a region in turn."""
    relays = {
        format_node_id(node.id): node.region for node in network.nodes if node.type != "control"
    }
    regions = [
        tuple(name for name, at in relays.items() if at == region)
        for region in dict.fromkeys(relays.values())
    ]
    chance = _chance("relays", seed)
    yield from _of_relays(chance, list(relays), regions, RELAY_KINDS, RELAY_PAUSE_S)


def control_faults(network: Network, seed: int) -> Iterator[Fault]:
    """Those of Control servers."""
    servers = [format_node_id(node.id) for node in network.nodes if node.type == "control"]
    chance = _chance("control", seed)
    yield from _of_relays(chance, servers, [tuple(servers)], CONTROL_KINDS, CONTROL_PAUSE_S)


def link_faults(network: Network, seed: int) -> Iterator[Fault]:
    """Those of the links that carry data."""
    chance = _chance("links", seed)
    links = [
        (format_node_id(link.a), format_node_id(link.b))
        for link in network.links
        if link.mode is not PeerMode.CONTROL
    ]
    while True:
        kind = _kind(chance, LINK_KINDS)
        most = MOST_DELAY_MS if kind == "delay" else MOST_DROP
        yield Fault(
            kind,
            chance.choice(links),
            chance.uniform(*LINK_PAUSE_S),
            chance.uniform(*LASTS_S[kind]),
            chance.uniform(most / 10, most),
        )


def _of_relays(
    chance: random.Random,
    relays: list[str],
    groups: list[tuple[str, ...]],
    kinds: dict[Kind, int],
    pause_s: tuple[float, float],
) -> Iterator[Fault]:
    while True:
        kind = _kind(chance, kinds)
        nodes = chance.choice(groups) if kind == "roll" else (chance.choice(relays),)
        yield Fault(kind, nodes, chance.uniform(*pause_s), chance.uniform(*LASTS_S[kind]))


def _chance(what: str, seed: int) -> random.Random:
    return random.Random(f"{what} {seed}")  # noqa: S311 - no secret


def _kind(chance: random.Random, kinds: dict[Kind, int]) -> Kind:
    return chance.choices(list(kinds), list(kinds.values()))[0]
