"""How full each table of a relay is: what is left over shows here.

`sizes_of` has the tables that an operator knows by name, and one number for all there are.
`contents` has every container of the objects that a relay is made of, found by a look at their
attributes: one that is new is counted without being named here. A test finds those that are held by
something that comes and goes, such as a link, and are not counted.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from laps.packed import Packed
from laps.packed_sets import PackedSets
from laps.routing.forwarding import SnsIds
from laps.tables import Table

if TYPE_CHECKING:
    from collections.abc import Collection, Sized

    from laps.infobase.nodes import Nodes
    from laps.infobase.subscribes import Subscribes
    from laps.relay.data import DataPlane
    from laps.relay.extensions import Extensions
    from laps.relay.peers import Links
    from laps.relay.repairs import Repairs
    from laps.relay.stub import StubClient
    from laps.routing.forwarding import Fib
    from laps.tracks.tracks import Tracks

CONTAINERS: Final = (dict, set, list, deque, Table, Packed, PackedSets, SnsIds)

# What a relay is made of is in these rooms; what is beside it is not looked into.
ROOMS: Final = ("laps.edge.", "laps.relay.", "laps.tracks.", "laps.routing.", "laps.infobase.")

# An entry or more for each link, peer or node that is there.
OF_PEERS: Final = frozenset(
    {
        "Concern._all",
        "Concern._near_of",
        "Concern._sharing",
        "Exchange._made",
        "Extensions._lost",
        "Interest._said",
        "Links.links",
        "Links.peer_links",
        "Links.peers",
        "Nodes._best",
        "Nodes._paths",
        "Nodes._sessions",
        "OnDemand._sessions",
        "OnDemand._wanted",
        "Peer.links",
        "Peer.told",
        "PeerLink.heard",
        "PeerLink.late",
        "PeerProofs._proven",
        "Reach._met",
        "Relay._stubs",
        "Suspicion._answered",
        "Telling._begun",
    }
)

# A container for each link or Stub, empty or not.
PER_PEER: Final = frozenset({"Fib._ids", "IngressSets._sets", "StubNamespaces._told"})

# Kept on purpose when whoever it is of has left, and bounded.
KEPT: Final = frozenset(
    {
        "Cache._queue",  # by age and bytes
        "Cache.order",
        "ClientCounters.tolerated",  # by what clients are known to do
        "Corrections._counts",  # by MAX_COUNTED, for a minute
        "Journal._events",  # by MAX_OF_KIND, until it is told
        "Journal._noted",
        "Journal._recent",
        "Nodes.moved",  # until it is told
        "PathWatch._leads",  # as told last
        "Places._doubts",  # by MOST_PAIRS
        "Places._named",
        "Places._proofs",
        "Plan.regions",  # an operator's
        "Plan.vias",
        "Probing._candidates",  # by count of [probing]; the next likewise
        "Probing._flying",
        "Probing._silent",  # by MOST_SILENT
        "Probing._waiting",
        "Probing.vias",
        "Probing.wanted",  # by who sets it
        "RelayRequests._askers",  # by what is under way, and one that was answered last
        "Scope._eras",  # by MOST_ERAS
        "Sequences._kept",  # for a minute, and by a bound of its own
        "Sequences._queue",
        "SentOn._sent",  # by MOST_SENT_ON
        "StubClient._sequences",  # by MAX_WITHDRAWN; the next likewise
        "StubNamespaces._sequences",
        "Tracks._tracks",  # as long as the cache has something of them
        "Tracks.histories",  # by MAX_HISTORIES
        "Vivaldi._wrong",  # by LATEST
    }
)


class Whole(Protocol):
    """A relay."""

    links: Links
    nodes: Nodes
    subscribes: Subscribes
    tracks: Tracks
    extensions: Extensions
    fib: Fib
    data: DataPlane
    repairs: Repairs

    @property
    def stubs(self) -> Collection[StubClient]:
        """The Stubs of the relay."""


def sizes_of(relay: Whole) -> dict[str, int]:
    """How full each table is."""
    peer_links = relay.links.peer_links.values()
    return {
        "links": len(relay.links.links),
        "peers": len(relay.links.peers),
        "nodes": len(relay.nodes),
        "subscribes": len(relay.subscribes),
        "announces": len(relay.tracks.announces),
        "tracks": relay.tracks.wanted(),
        "flows": len(relay.fib),
        "streams": len(relay.data),
        "metrics": len(relay.extensions.metrics),
        "namespaces": len(relay.extensions.namespaces),
        "confirmed": sum(len(link.confirmed) for link in peer_links),
        "offered": sum(len(link.offered) for link in peer_links),
        "fed": len(relay.tracks.shared.fed),
        "repairs": len(relay.repairs),
        "told_to_stubs": relay.extensions.told_to_stubs,
        # Without those of each link: an operator may ask while there are thousands.
        "all": sum(_counted((relay,), with_peers=True).values()),
    }


def contents(relay: Whole, *others: object, with_peers: bool) -> dict[str, int]:
    """How full the containers of a relay are, and of what else there is, by class and attribute.

    Those that are empty are left out.

    `with_peers`: what there is of each link, peer and node is left out.
    """
    links = relay.links
    roots = (*others, relay, *links.peer_links.values(), *links.peers.values(), *relay.stubs)
    return _counted(roots, with_peers=with_peers)


def _counted(roots: tuple[object, ...], *, with_peers: bool) -> dict[str, int]:
    left_out = KEPT | OF_PEERS if with_peers else KEPT
    found: dict[str, int] = {}
    for container, titles in _containers(roots).values():
        if left_out.isdisjoint(titles):
            size = 0 if with_peers and not PER_PEER.isdisjoint(titles) else len(container)
            inner = container.values() if isinstance(container, dict | Table) else ()
            size += sum(len(it) for it in inner if isinstance(it, CONTAINERS))
            found[titles[0]] = found.get(titles[0], 0) + size
    return found


def _containers(roots: tuple[object, ...]) -> dict[int, tuple[Sized, list[str]]]:
    """Each container with something in it once, with all the attributes that it is known by.

    Those of all the objects that the roots are made of, by their attributes alone.
    """
    found: dict[int, tuple[Sized, list[str]]] = {}
    seen, waiting = set(map(id, roots)), list[Any](roots)
    while waiting:
        part = waiting.pop()
        named = _attributes(part)
        # Most attributes are neither: they are passed by without a step for each.
        kinds = map(_kind, map(type, map(itemgetter(1), named)))
        for name, value in compress(named, kinds):
            is_container, is_part = _kind(type(value)) or (False, False)  # type: ignore[arg-type]
            if is_container and value:
                _, titles = found.setdefault(id(value), (value, []))
                titles.append(f"{type(part).__name__}.{name}")
            if is_part and id(value) not in seen:
                seen.add(id(value))
                waiting.append(value)
    return found


@cache
def _kind(kind: type) -> tuple[bool, bool] | None:
    """Whether objects of a type are containers, and a relay is made of them; None: neither."""
    found = issubclass(kind, CONTAINERS), kind.__module__.startswith(ROOMS)
    return found if any(found) else None


def _attributes(part: Any) -> list[tuple[str, Any]]:
    slots = _slots(type(part))  # type: ignore[arg-type] # it is hashable
    named = [(name, getattr(part, name, None)) for name in slots]
    return [*getattr(part, "__dict__", {}).items(), *named]


@cache
def _slots(kind: type) -> tuple[str, ...]:
    names: list[str] = []
    for it in kind.__mro__:
        slots = it.__dict__.get("__slots__", ())
        names += (slots,) if isinstance(slots, str) else slots
    return tuple(names)
