"""What goes wrong in a simulation, as a person writes it.

    crash:1:3@10                   the node stops without a word after 10 s
    stop:1:3@10                    it is stopped, and says goodbye
    restart:1:3@20                 it comes back, knowing nothing
    cut:1:1-1:2@10                 everything between two nodes is lost, and nobody is told
    heal:1:1-1:2@20                it carries again
    flap:1:1-1:2@10                their connections break, and both know
    delay:1:1-1:2=80@10            the way takes 80 ms in each direction from now on
    random:5                       five of these by chance, each mended a while later
    random:5@10                    the same, none before 10 s

Several are joined by commas. Seconds count from the moment the network has come to rest first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from laps.errors import ConfigError, InvalidText, quote
from laps.types import NodeId, format_node_id, parse_node_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from random import Random

    from laps.sim.network import Network
    from laps.sim.topology import Topology

# Random faults come this far apart on average: some overlap, some find the network at rest.
RANDOM_APART_S: Final = 4.0
# Each is mended within this: before peers notice a silence, and long after.
RANDOM_MEND_S: Final = (0.5, 12.0)

MOST_RANDOM: Final = 1000


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens at one time."""

    at_s: float
    kind: str
    nodes: tuple[NodeId, ...]
    "One node, or the two ends of a link."
    delay_ms: float = 0.0

    def strike(self, network: Network) -> None:
        """Let it happen."""
        _KINDS[self.kind].strike(network, self)

    def __str__(self) -> str:
        what = "-".join(format_node_id(node_id) for node_id in self.nodes)
        value = f"={self.delay_ms:g}" if self.kind == "delay" else ""
        return f"{self.kind}:{what}{value}@{self.at_s:g}"


@dataclass(frozen=True, slots=True)
class _Kind:
    nodes: int
    "How many it names."
    like: str
    strike: Callable[[Network, Fault], None]


def _set_delay(network: Network, fault: Fault) -> None:
    a, b = fault.nodes
    network.set_delay(a, b, fault.delay_ms / 1000)


_KINDS: Final = {
    "crash": _Kind(1, "crash:1:3@10", lambda network, fault: network.crash(*fault.nodes)),
    "stop": _Kind(1, "stop:1:3@10", lambda network, fault: network.stop(*fault.nodes)),
    "restart": _Kind(1, "restart:1:3@20", lambda network, fault: network.restart(*fault.nodes)),
    "cut": _Kind(2, "cut:1:1-1:2@10", lambda network, fault: network.cut(*fault.nodes)),
    "heal": _Kind(2, "heal:1:1-1:2@20", lambda network, fault: network.heal(*fault.nodes)),
    "flap": _Kind(2, "flap:1:1-1:2@10", lambda network, fault: network.flap(*fault.nodes)),
    "delay": _Kind(2, "delay:1:1-1:2=80@10", _set_delay),
}

# kind:what@seconds; a node id has a colon itself, and no dash.
_FAULT: Final = re.compile(r"(?P<kind>[^:@]*):(?P<what>[^@]*)(?:@(?P<at>.*))?")


def parse_faults(text: str, topology: Topology, rng: Random) -> list[Fault]:
    """Read a list of faults for a network, in the order they happen."""
    faults: list[Fault] = []
    for item in text.split(",") if text.strip() else ():
        faults += _parse(item.strip(), topology, rng)
    return sorted(faults, key=lambda fault: fault.at_s)


def _parse(item: str, topology: Topology, rng: Random) -> list[Fault]:
    match = _FAULT.fullmatch(item)
    if match is None:
        _refuse(item, "is no fault: write kind:what@seconds, like crash:1:3@10")
    kind, what, at = match["kind"], match["what"], match["at"]
    if kind == "random":
        return _parse_random(item, what, at, topology, rng)
    if kind not in _KINDS:
        _refuse(item, f"is of no kind that is known: {', '.join(_KINDS)}, random")
    like = _KINDS[kind].like
    if at is None:
        _refuse(item, f"needs a time: {like}")
    delay_ms = 0.0
    if kind == "delay":
        what, equals, number = what.partition("=")
        if not equals:
            _refuse(item, f"needs the milliseconds: {like}")
        delay_ms = _number(item, number, "milliseconds", 10_000)
    nodes = _parse_nodes(item, what, _KINDS[kind], topology)
    return [Fault(_number(item, at, "seconds", 1e6), kind, nodes, delay_ms)]


def _parse_nodes(item: str, what: str, kind: _Kind, topology: Topology) -> tuple[NodeId, ...]:
    names = what.split("-")
    if len(names) != kind.nodes:
        wanted = "one node" if kind.nodes == 1 else "the two ends of a link"
        _refuse(item, f"needs {wanted}: {kind.like}")
    try:
        nodes = tuple(parse_node_id(name) for name in names)
    except InvalidText as error:
        raise ConfigError(f"fault {quote(item)}: {error}") from None
    known = {node.id for node in topology.nodes}
    for node_id in nodes:
        if node_id not in known:
            _refuse(item, f"names {format_node_id(node_id)}, which is no node of this network")
    if kind.nodes > 1 and not any({link.a, link.b} == set(nodes) for link in topology.links):
        _refuse(item, "names two nodes that no link joins")
    return nodes


def _parse_random(
    item: str, what: str, at: str | None, topology: Topology, rng: Random
) -> list[Fault]:
    if not (what.isascii() and what.isdigit() and len(what) <= 4 and int(what) <= MOST_RANDOM):
        _refuse(item, f"needs a number up to {MOST_RANDOM}: random:5")
    start_s = 0.0 if at is None else _number(item, at, "seconds", 1e6)
    return random_faults(topology, int(what), rng, start_s)


def _number(item: str, text: str, unit: str, most: float) -> float:
    # Nothing float() takes beside these is a number that a person means.
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII) or float(text) > most:
        _refuse(item, f"has {quote(text)} for {unit}: write a number from 0 to {most:g}")
    return float(text)


def _refuse(item: str, problem: str) -> NoReturn:
    raise ConfigError(f"fault {quote(item)} {problem}")


def random_faults(
    topology: Topology,
    number: int,
    rng: Random,
    start_s: float = 0.0,
    spared: Collection[NodeId] = (),
) -> list[Fault]:
    """Faults by chance, each with what mends it; nodes that are `spared` stay up."""
    faults = []
    nodes = [node for node in topology.nodes if node.id not in spared]
    at_s = start_s
    for _ in range(number):
        at_s += rng.expovariate(1 / RANDOM_APART_S)
        mended_s = at_s + rng.uniform(*RANDOM_MEND_S)
        kind = rng.choice(("crash", "crash", "stop", "cut", "cut", "flap", "delay"))
        if kind in ("crash", "stop") and not nodes:
            kind = "cut"
        if kind in ("crash", "stop"):
            node = (rng.choice(nodes).id,)
            faults += [Fault(at_s, kind, node), Fault(mended_s, "restart", node)]
            continue
        link = rng.choice(topology.links)
        ends = (link.a, link.b)
        delay_ms = link.delay_ms * rng.uniform(0.3, 4) if kind == "delay" else 0.0
        faults.append(Fault(at_s, kind, ends, delay_ms))
        if kind == "cut":
            faults.append(Fault(mended_s, "heal", ends))
    return sorted(faults, key=lambda fault: fault.at_s)
