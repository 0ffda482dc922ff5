"""The nodes that a relay knows, with every way to each; and its peers, as far as it knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.admin.rows.table import Row, Table
from laps.admin.rows.texts import node_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.infobase.nodes import PathCandidate
    from laps.relay.peers import Peer
    from laps.relay.relay import Relay
    from laps.types import NodeId, PeerMode


def nodes(relay: Relay, wall: Callable[[float], float]) -> Table:
    """Every node that some session leads to; `wall` makes seconds since 1970 of a relay's time."""
    return Table.of(sorted(relay.nodes), lambda node_id: node(relay, node_id, wall))


def node(relay: Relay, node_id: NodeId, wall: Callable[[float], float]) -> Row | None:
    """One node: what it says of itself, the best way to it and why, and the others."""
    admitted, refused = relay.nodes.ranked(node_id)
    if not admitted and not refused:
        return None
    choice = relay.nodes.best(node_id)
    info = (admitted or refused)[0].info
    metrics = relay.extensions.metrics.get(node_id)
    paths = [path_row(path, wall) for path in admitted]
    paths += [path_row(path, wall, admitted=False) for path in refused]
    best = paths.pop(0) if choice is not None else None
    return {
        "node": node_text(node_id),
        "role": info.type.name.lower(),
        "region": "" if metrics is None else metrics.region,
        "contact": info.contact,
        "latitude": info.latitude,
        "longitude": info.longitude,
        "clients_address": "" if metrics is None else metrics.client_address,
        "load": None if metrics is None else metrics.load,
        "leaving": relay.extensions.is_leaving(node_id),
        "reason": "no path to it is admitted" if choice is None else choice.reason,
        "best": best,
        "alternates": paths,
    }


def path_row(path: PathCandidate, wall: Callable[[float], float], *, admitted: bool = True) -> Row:
    """One way to a node."""
    passed = [node_text(item.node_id) for item in reversed(path.info.path)]
    return {
        "peer": node_text(path.peer_id),
        "hops": [*passed, node_text(path.info.id)],
        "srtt_us": path.srtt_us,
        "carries_data": path.carries_data,
        "admitted": admitted,
        "since": wall(path.opened_at),
    }


def peer(relay: Relay, it: Peer, wall: Callable[[float], float]) -> Row:
    """A peer as the relay knows it; what its connections carry is for others to add."""
    links = list(it.links.values())
    first = it.control or links[0]
    leads_to = {node_id for link in links for node_id in relay.nodes.via(link.link.id)}
    return {
        "node": node_text(it.node_id),
        "role": it.info.type.name.lower(),
        "mode": _mode({link.mode for link in links}),
        "dialled": first.link.dialled,
        "extended": first.link.extended,
        "leaving": relay.extensions.is_leaving(it.node_id),
        "since": wall(min(link.established_at for link in links)),
        "connections": len(links),
        "leads_to": len(leads_to),
    }


def _mode(modes: set[PeerMode]) -> str:
    return next(iter(modes)).name.lower() if len(modes) == 1 else "both"
