"""What rows read of a relay: each name of its tables of tracks and flows that they depend on.

A table that changes its shape changes a function here, and no row.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from laps.errors import InvalidEncoding
from laps.infobase.nodes import SessionId
from laps.net.engine import Stats
from laps.wire.subscribe import decode_track_name

if TYPE_CHECKING:
    from collections.abc import Hashable

    from laps.admin.schema.fields import Row
    from laps.edge.edge import Edge
    from laps.relay.relay import Relay
    from laps.routing.forwarding import Flow
    from laps.routing.route import Route
    from laps.tracks.cache import Cache
    from laps.tracks.meter import Meter
    from laps.tracks.track import LiveTrack
    from laps.types import NodeId, SubscribeInfo, TrackName


def measured(row: type[Row]) -> tuple[str, ...]:
    """The fields of a row that the transport has under the same name."""
    known = {field.name for field in fields(Stats)}
    return tuple(name for name in row.__struct_fields__ if name in known)


# -- tracks ----------------------------------------------------------------------------------------


def carried_keys(relay: Relay) -> list[int]:
    """Every track that is published, wanted or passed on here."""
    return [*relay.live.tracks, *relay.live.transit]


def carried_counts(relay: Relay) -> dict[str, int]:
    """How many tracks have clients here, and how many only pass."""
    return {"live_tracks": len(relay.live.tracks), "transit_tracks": len(relay.live.transit)}


def live_track(relay: Relay, key: int) -> LiveTrack | None:
    """A track that clients here have to do with."""
    return relay.live.get(key)


def meter_of(relay: Relay, key: int, live: LiveTrack | None) -> Meter | None:
    """What counts the bytes of a track, if it passes here."""
    return relay.live.transit.get(key) if live is None else live.meter


def meters(relay: Relay) -> list[Meter]:
    """The meters of all tracks that flows are known of."""
    live = relay.live
    own = [track.meter for track in live.tracks.values() if track.meter.flows]
    return [*own, *live.transit.values()]


def is_known(relay: Relay, key: int) -> bool:
    """Whether a track passes here, or is wanted anywhere."""
    live = relay.live
    return key in live.tracks or key in live.transit or bool(relay.subscribes.sources(key))


def cache_of(relay: Relay) -> Cache:
    """What is kept of all tracks."""
    return relay.live.cache


def cached_keys(relay: Relay) -> list[int]:
    """The tracks that something is kept of."""
    return [key for key, track in relay.live.tracks.items() if track.cached.groups]


def publisher_count(relay: Relay, edge: Edge, key: int, live: LiveTrack | None) -> int:
    """How many clients here publish a track, or were asked for it."""
    publishers: dict[Hashable, None] = dict.fromkeys(relay.tracks.asked(key))
    if live is not None:
        publishers |= dict.fromkeys(edge.sources(live))
    return len(publishers)


def name_of_track(relay: Relay, key: int, live: LiveTrack | None) -> TrackName | None:
    """What a track is called, if some message here has its name."""
    if live is not None and live.name is not None:
        return live.name
    for source in relay.subscribes.sources(key):
        info = relay.subscribes.get(source, key)
        if info is not None and (name := name_of_subscribe(info)) is not None:
            return name
    return None


def name_of_subscribe(info: SubscribeInfo) -> TrackName | None:
    """The name of a track, as a subscribe has it; None if it cannot be read."""
    try:
        return decode_track_name(info.subscribe_data)
    except InvalidEncoding:
        return None


# -- flows -----------------------------------------------------------------------------------------


def flows_of(relay: Relay, key: int, meter: Meter | None) -> list[Flow]:
    """The flows of a track: of its publishers here, and those that it comes by from peers."""
    fib = relay.fib
    own = (fib.get((client, key)) for client in relay.tracks.asked(key))
    found = [flow for flow in own if flow is not None]
    if meter is not None:
        found += [flow for flow in list(meter.flows) if fib.get(flow.key) is flow]
    return found


def source_of(flow: Flow) -> tuple[Hashable, int | None]:
    """Where a flow comes from: a peer's link and its set, or a client and its track."""
    return flow.key if isinstance(flow.key, tuple) else (flow.key, None)


def origin_of(relay: Relay, flow: Flow) -> NodeId | None:
    """The peer that a flow comes from; None for a publisher here."""
    source, number = source_of(flow)
    if number is None or not isinstance(source, int):
        return None
    return relay.node_of(SessionId(source))


def ingress_flow(relay: Relay, link: SessionId, sns_id: int) -> Flow | None:
    """The flow that a peer sends under one of its sets."""
    return relay.fib.get((link, sns_id))


def route_of(relay: Relay, flow: Flow, target: NodeId) -> Route:
    """Which way a flow takes to a node, and why."""
    return relay.explain_route(flow, target)
