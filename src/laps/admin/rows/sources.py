"""What rows read of a relay: each name of its tables of tracks and flows that they depend on.

A table that changes its shape changes a function here, and no row.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from laps.errors import InvalidEncoding
from laps.net.engine import Stats
from laps.routing.flows import FromClient, FromPeer
from laps.wire.subscribe import decode_track_name

if TYPE_CHECKING:
    from laps.admin.schema.fields import Row
    from laps.relay.relay import Relay
    from laps.routing.flows import Flow
    from laps.tracks.meter import Meter
    from laps.tracks.track import Track
    from laps.types import NodeId, SubscribeInfo, TrackKey, TrackName


def measured(row: type[Row]) -> tuple[str, ...]:
    """The fields of a row that the transport has under the same name."""
    known = {field.name for field in fields(Stats)}
    return tuple(name for name in row.__struct_fields__ if name in known)


# -- tracks ----------------------------------------------------------------------------------------


def carried_keys(relay: Relay) -> list[TrackKey]:
    """Every track that is published, wanted or passed on here."""
    return [*relay.tracks.keys(), *relay.tracks.transit]


def carried_counts(relay: Relay) -> dict[str, int]:
    """How many tracks have clients here, and how many only pass."""
    return {"live_tracks": len(relay.tracks), "transit_tracks": len(relay.tracks.transit)}


def meter_of(relay: Relay, key: TrackKey, track: Track | None) -> Meter | None:
    """What counts the bytes of a track, if it passes here."""
    return relay.tracks.transit.get(key) if track is None else track.meter


def meters(relay: Relay) -> list[Meter]:
    """The meters of all tracks that flows are known of."""
    own = [track.meter for track in relay.tracks if track.meter.flows]
    return [*own, *relay.tracks.transit.values()]


def is_known(relay: Relay, key: TrackKey) -> bool:
    """Whether a track passes here, or is wanted anywhere."""
    tracks = relay.tracks
    return key in tracks or key in tracks.transit or bool(relay.subscribes.sources(key))


def cached_keys(relay: Relay) -> list[TrackKey]:
    """The tracks that something is kept of."""
    return [track.key for track in relay.tracks if track.cached.groups]


def name_of_track(relay: Relay, key: TrackKey, track: Track | None) -> TrackName | None:
    """What a track is called, if some message here has its name."""
    if track is not None and track.name is not None:
        return track.name
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


def flows_of(relay: Relay, track: Track | None, meter: Meter | None) -> list[Flow]:
    """The flows of a track: of its publishers here, and those that it arrives by from peers."""
    fib = relay.fib
    publishers = () if track is None else track.publishers.values()
    own = (fib.get(FromClient(it.publisher, it.key)) for it in publishers if it.wanted)
    found = [flow for flow in own if flow is not None]
    if meter is not None:
        found += [flow for flow in list(meter.flows) if fib.get(flow.key) is flow]
    return found


def origin_of(relay: Relay, flow: Flow) -> NodeId | None:
    """The peer that a flow comes from; None for a publisher here."""
    return relay.links.node_of(flow.key.link) if isinstance(flow.key, FromPeer) else None
