"""The network as a relay knows it: peers, nodes with every path, subscribes and announces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import asdict

from laps.admin.rows.sources import measured, name_of_subscribe
from laps.admin.rows.table import Table
from laps.admin.rows.texts import node_text
from laps.admin.schema.network import Announce, KnownNode, OneNode, Path, Peer, Subscribe
from laps.names import bytes_text, hash_text, namespace_text, track_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from laps.admin.rows.relay import Wall
    from laps.infobase.namespaces import Names
    from laps.infobase.nodes import PathCandidate
    from laps.net.runner import Runner
    from laps.relay.peers import PeerLink
    from laps.relay.relay import Relay
    from laps.types import NodeId, PeerMode, TrackKey

# What the transport counts on each connection to a peer; of round trips the shortest holds.
SUMMED: Final = tuple(name for name in measured(Peer) if name != "srtt_us")


def nodes(relay: Relay, wall: Callable[[float], float]) -> Table[KnownNode]:
    """Every node that some session leads to; `wall` makes seconds since 1970 of a relay's time."""
    return Table.of(sorted(relay.nodes), lambda node_id: node(relay, node_id, wall))


def node(relay: Relay, node_id: NodeId, wall: Callable[[float], float]) -> KnownNode | None:
    """One node: what it says of itself, the best path to it and why, and the others."""
    admitted, refused = relay.nodes.ranked(node_id)
    if not admitted and not refused:
        return None
    choice = relay.nodes.best(node_id)
    info = (admitted or refused)[0].info
    metrics = relay.extensions.metrics.get(node_id)
    paths = [path_row(path, wall) for path in admitted]
    paths += [path_row(path, wall, admitted=False) for path in refused]
    best = paths.pop(0) if choice is not None else None
    return KnownNode(
        node=node_text(node_id),
        role=info.type.name.lower(),
        region="" if metrics is None else metrics.region,
        contact=info.contact,
        latitude=info.latitude,
        longitude=info.longitude,
        clients_address="" if metrics is None else metrics.client_address,
        load=None if metrics is None else metrics.load,
        leaving=relay.extensions.is_leaving(node_id),
        reason="no path to it is admitted" if choice is None else choice.reason,
        best=best,
        alternates=paths,
    )


def one_node(relay: Relay, node_id: NodeId, wall: Wall) -> OneNode | None:
    """One node, and when it was so."""
    row = node(relay, node_id, wall)
    return None if row is None else OneNode(**asdict(row), at=wall.now)


def path_row(path: PathCandidate, wall: Callable[[float], float], *, admitted: bool = True) -> Path:
    """One path to a node."""
    passed = [node_text(item.node_id) for item in reversed(path.info.path)]
    return Path(
        peer=node_text(path.peer_id),
        hops=[*passed, node_text(path.info.id)],
        srtt_us=path.srtt_us,
        carries_data=path.carries_data,
        admitted=admitted,
        since=wall(path.opened_at),
    )


def peers(runner: Runner, wall: Callable[[float], float]) -> Table[Peer]:
    """The peers that have introduced themselves, with what their connections carry together."""

    def row(node_id: NodeId) -> Peer | None:
        relay = runner.relay
        peer = relay.peers.get(node_id)
        if peer is None or not peer.links:
            return None
        links = list(peer.links.values())
        first = peer.control or links[0]
        known = [it for link in links if (it := runner.links.get(link.link.id)) is not None]
        control = None if peer.control is None else runner.links.get(peer.control.link.id)
        shown = control or next(iter(known), None)
        stats = [it.connection.stats() for it in known]
        leads_to = {node_id for link in links for node_id in relay.nodes.via(link.link.id)}
        return Peer(
            node=node_text(node_id),
            role=peer.info.type.name.lower(),
            mode=_mode({link.mode for link in links}),
            dialled=first.link.dialled,
            extended=first.link.extended,
            leaving=relay.extensions.is_leaving(node_id),
            on_demand=_on_demand(relay, links),
            since=wall(min(link.established_at for link in links)),
            connections=len(links),
            leads_to=len(leads_to),
            address="" if shown is None else str(shown),
            srtt_us=min((one.srtt_us for one in stats), default=0),
            queue_bytes=sum(it.egress.queued_bytes + it.connection.buffered_bytes for it in known),
            dropped_groups=sum(it.egress.counters.dropped_groups for it in known),
            **{name: sum(getattr(one, name) for one in stats) for name in SUMMED},
        )

    return Table.of(sorted(runner.relay.peers), row)


def _on_demand(relay: Relay, links: Iterable[PeerLink]) -> str:
    """Why a peer is there that nobody configured."""
    whys = (relay.demand.sessions.why(link.link.id) for link in links)
    return next((why for why in whys if why), "")


def _mode(modes: set[PeerMode]) -> str:
    return next(iter(modes)).name.lower() if len(modes) == 1 else "both"


def subscribes(relay: Relay) -> Table[Subscribe]:
    """Who, on which node, wants which track."""
    held = relay.subscribes

    def row(key: tuple[NodeId, TrackKey]) -> Subscribe | None:
        info = held.get(*key)
        if info is None:
            return None
        namespace, name = track_texts(name_of_subscribe(info))
        return Subscribe(
            source=node_text(info.source_node_id),
            track=hash_text(info.track_hash.full_name_hash),
            namespace=namespace,
            name=name,
            sequence=info.sequence,
        )

    return Table(len(held), held.keys(), row)


def announces(relay: Relay, numbers: Mapping[Hashable, int]) -> Table[Announce]:
    """What is offered, here and elsewhere; `numbers` are those of this relay's clients."""
    here = relay.id
    offers = relay.extensions.offers()
    namespaces = relay.extensions.namespaces

    def keys() -> Iterator[tuple[Names, NodeId, int | None]]:
        for names, client, node_id in offers:
            yield names, node_id, numbers.get(client)
        for info in namespaces:
            if info.source_node_id != here:
                yield (info.namespace, info.name), info.source_node_id, None

    def row(key: tuple[Names, NodeId, int | None]) -> Announce:
        (namespace, name), source, client = key
        return Announce(
            source=node_text(source),
            client=client,
            namespace=namespace_text(namespace),
            name=None if name is None else bytes_text(name),
        )

    size = len(offers) + len(namespaces) - namespaces.count(here)
    return Table(size, keys(), row)
