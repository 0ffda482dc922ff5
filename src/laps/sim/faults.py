"""What goes wrong in a simulation, as a person writes it.

    crash:1:3@10                   the node stops without a word after 10 s
    stop:1:3@10                    it is stopped, and says goodbye
    restart:1:3@20                 it comes back, knowing nothing
    renew:1:3@20                   it comes back as another node, with a new id, and its clients too
    freeze:1:3@10                  its process stands still: it neither reads nor sends, its timers
                                   do not run, and what arrives waits
    thaw:1:3@12                    it goes on
    jump:1:3=30@10                 its clock goes forward by 30 s at once, as if the machine slept
    cut:1:1-1:2@10                 everything between two nodes is lost, and nobody is told
    heal:1:1-1:2@20                it carries again
    split:1:1+1:2@10               the same for every link between these nodes and the rest
    join:1:1+1:2@20                they carry again
    flap:1:1-1:2@10                their connections break, and both know
    delay:1:1-1:2=80@10            the way takes 80 ms in each direction from now on
    loss:1:1-1:2=0.05@10           one of twenty packets is lost from now on
    random:5                       five of crash, stop, cut, flap and delay by chance, each mended
                                   a while later
    random:5@10                    the same, none before 10 s

Several are joined by commas. Seconds count from the moment the network has come to rest first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NoReturn

from laps.errors import ConfigError, InvalidText, quote
from laps.types import NodeId, format_node_id, parse_node_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from random import Random

    from laps.sim.network import Network
    from laps.sim.topology import Topology

# Random faults come this far apart on average: some overlap, some find the network at rest.
RANDOM_APART_S: Final = 4.0
# Each is mended within this: before peers notice a silence, and long after.
RANDOM_MEND_S: Final = (0.5, 12.0)

MOST_RANDOM: Final = 1000

# A clock jumps by less than what relays keep things for, and by more than they wait for anything.
RANDOM_JUMP_S: Final = (0.5, 20.0)
RANDOM_LOSS: Final = 0.05
MOST_SPLIT: Final = 3

_MENDED_BY: Final = {
    "crash": "restart",
    "stop": "restart",
    "freeze": "thaw",
    "cut": "heal",
    "split": "join",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens at one time."""

    at_s: float
    kind: str
    nodes: tuple[NodeId, ...]
    "One node, the two ends of a link, or several nodes."
    value: float = 0.0
    "Of a kind that has one: what it says, in the unit that a person writes."

    def strike(self, network: Network) -> None:
        """Let it happen."""
        _KINDS[self.kind].strike(network, self)

    def __str__(self) -> str:
        kind = _KINDS[self.kind]
        what = kind.of.value.join(format_node_id(node_id) for node_id in self.nodes)
        value = f"={self.value:g}" if kind.value else ""
        return f"{self.kind}:{what}{value}@{self.at_s:g}"


class _Of(Enum):
    """What a fault happens to, and what stands between the names of several nodes."""

    NODE = ""
    LINK = "-"
    GROUP = "+"


@dataclass(frozen=True, slots=True)
class _Value:
    unit: str
    most: float


@dataclass(frozen=True, slots=True)
class _Kind:
    of: _Of
    like: str
    strike: Callable[[Network, Fault], None]
    value: _Value | None = None


def _set_delay(network: Network, fault: Fault) -> None:
    a, b = fault.nodes
    network.set_delay(a, b, fault.value / 1000)


def _set_loss(network: Network, fault: Fault) -> None:
    a, b = fault.nodes
    network.set_loss(a, b, fault.value)


def _jump(network: Network, fault: Fault) -> None:
    (node_id,) = fault.nodes
    network.jump(node_id, fault.value)


_KINDS: Final = {
    "crash": _Kind(_Of.NODE, "crash:1:3@10", lambda network, it: network.crash(*it.nodes)),
    "stop": _Kind(_Of.NODE, "stop:1:3@10", lambda network, it: network.stop(*it.nodes)),
    "restart": _Kind(_Of.NODE, "restart:1:3@20", lambda network, it: network.restart(*it.nodes)),
    "renew": _Kind(_Of.NODE, "renew:1:3@20", lambda network, it: network.renew(*it.nodes)),
    "freeze": _Kind(_Of.NODE, "freeze:1:3@10", lambda network, it: network.freeze(*it.nodes)),
    "thaw": _Kind(_Of.NODE, "thaw:1:3@12", lambda network, it: network.thaw(*it.nodes)),
    "jump": _Kind(_Of.NODE, "jump:1:3=30@10", _jump, _Value("seconds", 1e6)),
    "cut": _Kind(_Of.LINK, "cut:1:1-1:2@10", lambda network, it: network.cut(*it.nodes)),
    "heal": _Kind(_Of.LINK, "heal:1:1-1:2@20", lambda network, it: network.heal(*it.nodes)),
    "split": _Kind(_Of.GROUP, "split:1:1+1:2@10", lambda network, it: network.split(*it.nodes)),
    "join": _Kind(_Of.GROUP, "join:1:1+1:2@20", lambda network, it: network.join(*it.nodes)),
    "flap": _Kind(_Of.LINK, "flap:1:1-1:2@10", lambda network, it: network.flap(*it.nodes)),
    "delay": _Kind(_Of.LINK, "delay:1:1-1:2=80@10", _set_delay, _Value("milliseconds", 10_000)),
    # Nine of ten lost is slow, and ends.
    "loss": _Kind(_Of.LINK, "loss:1:1-1:2=0.05@10", _set_loss, _Value("share", 0.9)),
}

# What happens by chance, as often as it is named, and what mends it, if not what usually does. Runs
# under a seed depend on these very lists.
RANDOM_KINDS: Final = ("crash", "crash", "stop", "cut", "cut", "flap", "delay")
ALL_KINDS: Final = (
    *RANDOM_KINDS,
    *("freeze", "freeze", "split", "loss", "jump"),
    *("crash/renew", "stop/renew"),
)

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
    like, wanted = _KINDS[kind].like, _KINDS[kind].value
    if at is None:
        _refuse(item, f"needs a time: {like}")
    value = 0.0
    if wanted is not None:
        what, equals, number = what.partition("=")
        if not equals:
            _refuse(item, f"needs the {wanted.unit}: {like}")
        value = _number(item, number, wanted.unit, wanted.most)
    nodes = _parse_nodes(item, what, _KINDS[kind], topology)
    return [Fault(_number(item, at, "seconds", 1e6), kind, nodes, value)]


def _parse_nodes(item: str, what: str, kind: _Kind, topology: Topology) -> tuple[NodeId, ...]:
    names = re.split("[-+]", what)
    is_right = what.count("-") == (kind.of is _Of.LINK)
    if not is_right or ("+" in what and kind.of is not _Of.GROUP):
        wanted = {
            _Of.NODE: "one node",
            _Of.LINK: "the two ends of a link",
            _Of.GROUP: "nodes joined by +",
        }
        _refuse(item, f"needs {wanted[kind.of]}: {kind.like}")
    try:
        nodes = tuple(parse_node_id(name) for name in names)
    except InvalidText as error:
        raise ConfigError(f"fault {quote(item)}: {error}") from None
    known = {node.id for node in topology.nodes}
    for node_id in nodes:
        if node_id not in known:
            _refuse(item, f"names {format_node_id(node_id)}, which is no node of this network")
    ends = [{link.a, link.b} for link in topology.links]
    if kind.of is _Of.LINK and set(nodes) not in ends:
        _refuse(item, "names two nodes that no link joins")
    if kind.of is _Of.GROUP and not any(len(pair & set(nodes)) == 1 for pair in ends):
        _refuse(item, "names nodes that no link joins to the rest")
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
    kinds: Sequence[str] = RANDOM_KINDS,
    spared: Collection[NodeId] = (),
) -> list[Fault]:
    """Faults by chance, each with what mends it; nodes that are `spared` stay as they are."""
    faults: list[Fault] = []
    nodes = [node.id for node in topology.nodes if node.id not in spared]
    at_s = start_s
    for _ in range(number):
        at_s += rng.expovariate(1 / RANDOM_APART_S)
        mended_s = at_s + rng.uniform(*RANDOM_MEND_S)
        kind, _, mended_by = rng.choice(kinds).partition("/")
        if not nodes and _KINDS[kind].of is not _Of.LINK:
            kind, mended_by = "cut", ""
        what: tuple[NodeId, ...]
        value = 0.0
        if _KINDS[kind].of is _Of.NODE:
            what = (rng.choice(nodes),)
            value = rng.uniform(*RANDOM_JUMP_S) if kind == "jump" else 0.0
        elif _KINDS[kind].of is _Of.GROUP:
            what = tuple(rng.sample(nodes, min(len(nodes), rng.randint(1, MOST_SPLIT))))
        else:
            link = rng.choice(topology.links)
            what = link.a, link.b
            if kind == "delay":
                value = link.delay_ms * rng.uniform(0.3, 4)
            elif kind == "loss":
                value = rng.uniform(0, RANDOM_LOSS)
        faults.append(Fault(at_s, kind, what, value))
        if kind in _MENDED_BY:
            faults.append(Fault(mended_s, mended_by or _MENDED_BY[kind], what))
    return sorted(faults, key=lambda fault: fault.at_s)
