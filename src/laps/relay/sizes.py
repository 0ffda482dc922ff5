"""How full each table of a relay is: what is left over shows here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laps.infobase.nodes import Nodes
    from laps.infobase.subscribes import Subscribes
    from laps.relay.data import DataPlane
    from laps.relay.extensions import Extensions
    from laps.relay.peers import Links
    from laps.relay.repairs import Repairs
    from laps.routing.forwarding import Fib
    from laps.tracks.tracks import Tracks


def sizes_of(
    links: Links,
    nodes: Nodes,
    subscribes: Subscribes,
    tracks: Tracks,
    extensions: Extensions,
    fib: Fib,
    data: DataPlane,
    repairs: Repairs,
) -> dict[str, int]:
    """How full each table is."""
    peer_links = links.peer_links.values()
    return {
        "links": len(links.links),
        "peers": len(links.peers),
        "nodes": len(nodes),
        "subscribes": len(subscribes),
        "announces": len(tracks.announces),
        "tracks": tracks.wanted(),
        "flows": len(fib),
        "streams": len(data),
        "metrics": len(extensions.metrics),
        "namespaces": len(extensions.namespaces),
        "confirmed": sum(len(link.confirmed) for link in peer_links),
        "offered": sum(len(link.offered) for link in peer_links),
        "fed": len(tracks.shared.fed),
        "repairs": len(repairs),
        "told_to_stubs": extensions.told_to_stubs,
    }
