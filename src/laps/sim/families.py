"""Families of networks: from a seed to what went wrong in it, for tests and for `laps sim sweep`.

A family makes a network from a seed, lets things happen to it, and checks what is to hold. A seed
always gives the same run, so the number of one that fails is all that is needed to see it again.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from math import inf
from random import Random
from traceback import format_exc
from typing import TYPE_CHECKING, Final

import msgspec

from laps.errors import LapsError
from laps.relay.settings import DemandSettings, RelaySettings
from laps.sim import generators
from laps.sim.delivery import Partitions, check_whole
from laps.sim.faults import ALL_KINDS, random_faults
from laps.sim.invariants import (
    check_always,
    check_delivery,
    check_empty,
    check_no_clients,
    check_paths,
    check_subscribes,
)
from laps.sim.network import Network
from laps.tracks.cache import CacheLimits
from laps.types import PeerMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from laps.sim.faults import Fault
    from laps.sim.topology import Node, Publisher, Topology
    from laps.types import NodeId

# Large enough for a tree with several ways, small enough for a second or two.
NODES: Final = 30
FAULTS: Final = 8

# Nothing that a relay may be asked to repeat has left its cache: none is cut off for longer.
FAILOVER_CACHE: Final = CacheLimits(total_bytes=1 << 24, track_bytes=1 << 22, age_s=120.0)
# What is published in the last seconds may still be under repair.
REPAIR_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Family:
    """Networks of a kind."""

    name: str
    summary: str
    "One sentence."
    check: Callable[[int], list[str]]
    "What does not hold for a seed."

    def findings(self, seed: int) -> list[str]:
        """What does not hold; a run that cannot go on is a finding too.

        Nearly all that a network makes lives to its end, so it is not looked through for what can
        be freed before that, which would take a tenth of the time. What was there before it is not
        looked through at all: only what is young is.
        """
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return self.check(seed)
        except LapsError as error:
            return [f"{type(error).__name__}: {error}"]
        except Exception:  # whatever it is, the other seeds are to be run too
            return [format_exc()]
        finally:
            gc.collect(0)
            if was_enabled:
                gc.enable()


# --- what families share ---------------------------------------------------------------------


def let_happen(network: Network, faults: Iterable[Fault]) -> None:
    """Have each fault happen at its time, counted from now."""
    start = network.now
    for fault in faults:
        network.run(max(0.0, start + fault.at_s - network.now))
        fault.strike(network)


def check_rest(network: Network) -> list[str]:
    """Come to rest, publish for a while, and look at everything."""
    network.settle()
    found = [*check_always(network), *check_paths(network), *check_subscribes(network)]
    since = network.now
    network.run(3.0)
    until = since + 2.0
    network.run(2.0)
    return found + check_delivery(network, since, until) + check_always(network)


def check_end(network: Network, rest_s: float = 0.0) -> list[str]:
    """Everybody leaves, the clients first; after that nothing is left, or some time later."""
    network.dismiss_clients()
    network.settle()
    found = check_no_clients(network)
    network.part()
    network.settle()
    network.run(rest_s)
    return found + check_empty(network)


# --- random networks -------------------------------------------------------------------------


def disturb(seed: int, control_bytes: float = inf) -> Network:
    """A random network to which random things happen; some or all of it speaks the extensions."""
    topology = generators.with_clients(
        generators.random(NODES, seed), 4, 12, seed, change=_some_datagrams
    )
    extended = (0.0, 0.5, 1.0)[seed % 3]
    network = Network(topology, seed, extended=extended, control_bytes=control_bytes)
    network.settle()
    let_happen(network, random_faults(topology, FAULTS, Random(seed)))  # noqa: S311 - no secret
    return network


def _some_datagrams(publisher: Publisher) -> Publisher:
    return msgspec.structs.replace(publisher, datagrams=0.3)


def _random(seed: int) -> list[str]:
    network = disturb(seed)
    return check_rest(network) + check_end(network)


def _narrow(seed: int) -> list[str]:
    """A message or two at a time: everything else waits at the relay that is to send it."""
    network = disturb(seed, control_bytes=200)
    return check_rest(network) + check_end(network)


# --- both sides dial -------------------------------------------------------------------------


def both_dial(seed: int) -> Topology:
    """A random network in which both sides dial each link, and much is lost and sent again."""
    topology = generators.random(9, seed)
    links = [
        msgspec.structs.replace(link, dial="both", loss=0.3) if link.mode is PeerMode.BOTH else link
        for link in topology.links
    ]
    return msgspec.structs.replace(topology, links=tuple(links))


def _both_dial(seed: int) -> list[str]:
    """Once at rest, and once with clients and faults."""
    quiet = Network(both_dial(seed), seed)
    quiet.settle()
    found = check_paths(quiet)
    topology = generators.with_clients(both_dial(seed), 3, 6, seed)
    network = Network(topology, seed)
    network.settle()
    let_happen(network, random_faults(topology, 6, Random(seed)))  # noqa: S311 - no secret
    network.settle()
    found += [*check_always(network), *check_paths(network), *check_subscribes(network)]
    return found + check_end(network)


# --- failover --------------------------------------------------------------------------------


def failover(seed: int, *, any_node: bool = False) -> tuple[Network, list[Fault]]:
    """A network whose relays all speak the extensions, and what is to happen to it.

    Unless it is to be any node, nothing happens to one that has clients: what they miss, relays
    have lost. Links of such a node are cut and flap like all others.
    """
    rng = Random(seed)  # noqa: S311 - no secret
    if seed % 2:
        plain = generators.regions(rng.randint(2, 4), 3, rng.randint(4, 10), seed=seed)
    else:
        plain = _without_stubs(generators.random(rng.randint(8, 24), seed))
    topology = generators.with_clients(plain, 3, 8, seed, change=_streams_or_datagrams)
    settings = RelaySettings(cache=FAILOVER_CACHE)
    network = Network(topology, seed, extended=1.0, settings=settings)
    clients = () if any_node else (*topology.publishers, *topology.subscribers)
    spared = {client.node for client in clients}
    return network, random_faults(topology, FAULTS, rng, kinds=ALL_KINDS, spared=spared)


def _without_stubs(topology: Topology) -> Topology:
    stubs = {node.id for node in topology.nodes if node.type == "stub"}

    def stays(*node_ids: NodeId) -> bool:
        return stubs.isdisjoint(node_ids)

    return msgspec.structs.replace(
        topology,
        nodes=tuple(node for node in topology.nodes if stays(node.id)),
        links=tuple(link for link in topology.links if stays(link.a, link.b)),
    )


def _streams_or_datagrams(publisher: Publisher) -> Publisher:
    """Every third has datagrams only; a group of the others is a second long, and often open."""
    share = 1.0 if publisher.namespace[-1] == "2" else 0.0
    return msgspec.structs.replace(publisher, datagrams=share)


def _streams(publisher: Publisher) -> Publisher:
    return publisher


def _failover(seed: int) -> list[str]:
    network, faults = failover(seed)
    network.settle()
    since = network.now
    partitions = Partitions(network)
    let_happen(network, faults)
    network.settle()
    until = network.now
    network.run(REPAIR_S)
    found = check_whole(network, partitions, since, until) + check_always(network)
    return found + check_end(network)


def _restarts(seed: int) -> list[str]:
    """Clients whose own relay fails come back with it; the others miss nothing meanwhile."""
    network, faults = failover(seed, any_node=True)
    network.settle()
    since = network.now
    partitions = Partitions(network)
    let_happen(network, faults)
    network.settle()
    until = network.now
    network.run(REPAIR_S)
    struck = {fault.nodes[0] for fault in faults if len(fault.nodes) == 1}
    found = check_whole(network, partitions, since, until, struck)
    return found + check_rest(network) + check_end(network)


# --- control servers -------------------------------------------------------------------------


def served(seed: int) -> tuple[Network, list[Fault]]:
    """A network with control servers, and what is to happen to it; in some are plain relays too."""
    rng = Random(seed)  # noqa: S311 - no secret
    plain = generators.served(rng.randint(4, 14), rng.randint(1, 4), rng.randint(1, 4), seed)
    if seed % 4 == 0:  # an edge in four is of another make
        nodes = tuple(_plain_or_not(node, rng) for node in plain.nodes)
        plain = msgspec.structs.replace(plain, nodes=nodes)
    change = _streams if seed % 4 == 0 else _streams_or_datagrams
    topology = generators.with_clients(plain, 4, 12, seed, change=change)
    # Some dial the servers that they hear of; the others have those that the topology gives them.
    demand = DemandSettings(sessions=4 if seed % 3 == 0 else 0)
    settings = RelaySettings(cache=FAILOVER_CACHE, demand=demand)
    network = Network(topology, seed, extended=1.0, settings=settings)
    return network, random_faults(topology, FAULTS, rng, kinds=ALL_KINDS)


def _plain_or_not(node: Node, rng: Random) -> Node:
    is_plain = node.type == "edge" and rng.random() < 0.25
    return msgspec.structs.replace(node, plain=is_plain)


def _served(seed: int) -> list[str]:
    network, faults = served(seed)
    network.settle()
    found = [*check_paths(network), *check_subscribes(network)]
    let_happen(network, faults)
    # For a while it counts that servers were dialled in vain.
    return found + check_rest(network) + check_end(network, rest_s=30.0)


# --- all of them -----------------------------------------------------------------------------

FAMILIES: Final = {
    family.name: family
    for family in (
        Family("random", "Random networks to which random things happen.", _random),
        Family("narrow", "The same over links that take a message or two at a time.", _narrow),
        Family("both-dial", "Networks in which both sides dial each link.", _both_dial),
        Family(
            "failover", "Relays and links die, and no object is lost or comes twice.", _failover
        ),
        Family("served", "Control servers die, and tell each relay what concerns it.", _served),
        Family("restarts", "Any relay dies, and comes back as it was or as another.", _restarts),
    )
}


def findings(family: str, seed: int) -> list[str]:
    """What does not hold in a network of a family that is named."""
    return FAMILIES[family].findings(seed)
