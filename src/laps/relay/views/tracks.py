"""The tracks that a relay carries: who publishes and reads them here, and where they go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.infobase.nodes import SessionId
from laps.names import hash_text, read_hash, read_track, track_texts
from laps.relay.views.nodes import path_row
from laps.relay.views.table import Row, Table
from laps.relay.views.tables import name_of
from laps.relay.views.words import (
    node_text,
    node_texts,
)
from laps.types import hash_track

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from laps.edge.edge import Edge
    from laps.relay.relay import Relay
    from laps.routing.forwarding import Flow
    from laps.tracks.meter import Meter
    from laps.types import NodeId, TrackName

# So many streams are counted between two chances for others: half a millisecond.
STREAMS_A_TURN: Final = 2000


def count(relay: Relay) -> Iterator[None]:
    """Have what has come of streams that are open counted, a little at a time."""
    streams = relay.data.open_streams()
    for first in range(0, len(streams), STREAMS_A_TURN):
        relay.data.settle(streams[first : first + STREAMS_A_TURN])
        yield


def tracks(relay: Relay, edge: Edge) -> Table:
    """Every track that is published, wanted or passed on here."""
    live = relay.live
    return Table.of([*live.tracks, *live.transit], lambda key: track(relay, edge, key))


def track(relay: Relay, edge: Edge, key: int) -> Row | None:
    """One track; None where nobody here has anything to do with it, or wants it elsewhere."""
    live = relay.live.get(key)
    meter = relay.live.transit.get(key) if live is None else live.meter
    if meter is None and not relay.subscribes.sources(key):
        return None
    namespace, name = track_texts(name_of_track(relay, key))
    publishers: dict[Hashable, None] = dict.fromkeys(relay.tracks.asked(key))
    if live is not None:
        publishers |= dict.fromkeys(edge.sources(live))
    flows = flows_of(relay, key, meter)
    ingress = {node for flow in flows if (node := origin_of(relay, flow)) is not None}
    links = {link for flow in flows for link in flow.outs}
    egress = {node for link in links if (node := relay.node_of(link)) is not None}
    largest = None if live is None else live.largest()
    return {
        "track": hash_text(key),
        "namespace": namespace,
        "name": name,
        "origin": bool(publishers),
        "publishers": len(publishers),
        "subscribers": 0 if live is None else len(live.subscribers),
        "ingress": node_texts(ingress),
        "egress": node_texts(egress),
        "targets": node_texts({node for flow in flows for node in flow.targets}),
        "received_bytes": 0 if meter is None else meter.received,
        "sent_bytes": 0 if meter is None else meter.sent,
        "cached_bytes": 0 if live is None else live.cached.size,
        "cached_groups": 0 if live is None else len(live.cached.groups),
        "largest": None if largest is None else [largest.group, largest.object],
    }


def one_track(relay: Relay, edge: Edge, key: int, wall: Callable[[float], float]) -> Row | None:
    """One track, with the way to each of its targets and why it is that one."""
    row = track(relay, edge, key)
    if row is None:
        return None
    live = relay.live.get(key)
    meter = relay.live.transit.get(key) if live is None else live.meter
    row["wanted_by"] = node_texts(relay.subscribes.sources(key))
    # What is sent to one node alone, to catch up, has flows of its own by the same way.
    hops = {
        (target, origin_of(relay, flow)): flow
        for flow in flows_of(relay, key, meter)
        for target in flow.targets
    }
    row["hops"] = [
        _hop(relay, flow, target, wall)
        for (target, _), flow in sorted(hops.items(), key=lambda item: item[0][0])
    ]
    return row


def _hop(relay: Relay, flow: Flow, target: NodeId, wall: Callable[[float], float]) -> Row:
    route = relay.explain_route(flow, target)
    taken = next((link for link, out in flow.outs.items() if target in out.nodes), None)
    peer = None if taken is None else relay.node_of(taken)
    source = origin_of(relay, flow)
    return {
        "node": node_text(target),
        "peer": None if peer is None else node_text(peer),
        "from": None if source is None else node_text(source),
        "reason": route.reason,
        "path": None if route.path is None else path_row(route.path, wall),
        "alternates": [path_row(path, wall) for path in route.alternates],
    }


def find_track(relay: Relay, text: str) -> int | None:
    """The track that a hash, or `NAMESPACE NAME`, stands for, if it is known here."""
    key = read_hash(text)
    keys = [] if key is None else [key]
    keys += [hash_track(name).full_name_hash for name in read_track(text)]
    live, wanted = relay.live, relay.subscribes
    for key in keys:
        if key in live.tracks or key in live.transit or wanted.sources(key):
            return key
    return None


def name_of_track(relay: Relay, key: int) -> TrackName | None:
    """What a track is called, if somebody has said so here."""
    live = relay.live.get(key)
    if live is not None and live.name is not None:
        return live.name
    for source in relay.subscribes.sources(key):
        info = relay.subscribes.get(source, key)
        if info is not None and (name := name_of(info)) is not None:
            return name
    return None


def flows_of(relay: Relay, key: int, meter: Meter | None) -> list[Flow]:
    """The flows of a track: of its publishers here, and those that it comes by from peers."""
    fib = relay.fib
    own = (fib.get((client, key)) for client in relay.tracks.asked(key))
    found = [flow for flow in own if flow is not None]
    if meter is not None:
        found += [flow for flow in list(meter.flows) if fib.get(flow.key) is flow]
    return found


def origin_of(relay: Relay, flow: Flow) -> NodeId | None:
    """The peer that a flow comes from; None for a publisher here."""
    link_id = flow.key[0] if isinstance(flow.key, tuple) else None
    return relay.node_of(SessionId(link_id)) if isinstance(link_id, int) else None
