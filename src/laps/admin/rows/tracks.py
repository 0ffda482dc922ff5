"""The tracks that a relay carries: who publishes and reads them, where they go, what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import asdict

from laps.admin.rows.control import keepers
from laps.admin.rows.network import path_row
from laps.admin.rows.sources import (
    cached_keys,
    carried_keys,
    flows_of,
    is_known,
    meter_of,
    name_of_track,
    origin_of,
)
from laps.admin.rows.table import Table
from laps.admin.rows.texts import node_text, node_texts
from laps.admin.schema.tracks import Cache, CachedTrack, Hop, OneTrack, Track
from laps.names import hash_text, read_hash, read_track, track_texts
from laps.routing.flows import Route
from laps.types import TrackKey, hash_track

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.admin.rows.relay import Wall
    from laps.relay.relay import Relay
    from laps.routing import flows
    from laps.types import NodeId, TrackName

# This many streams are counted between two chances for others: half a millisecond.
STREAMS_A_TURN: Final = 2000


def count(relay: Relay) -> Iterator[None]:
    """Count what has come of streams that are open, a little at a time."""
    streams = relay.data.open_streams()
    for first in range(0, len(streams), STREAMS_A_TURN):
        relay.data.settle(streams[first : first + STREAMS_A_TURN])
        yield


def tracks(relay: Relay) -> Table[Track]:
    """Every track that is published, wanted or passed on here."""
    return Table.of(carried_keys(relay), lambda key: track(relay, key))


def track(relay: Relay, key: TrackKey) -> Track | None:
    """One track; None where nobody here has anything to do with it, or wants it elsewhere."""
    live = relay.tracks.get(key)
    meter = meter_of(relay, key, live)
    if meter is None and not is_known(relay, key):
        return None
    full_name = name_of_track(relay, key, live)
    namespace, name = track_texts(full_name)
    publishers = 0 if live is None else len(live.publishers)
    flows = flows_of(relay, live, meter)
    ingress = {node for flow in flows if (node := origin_of(relay, flow)) is not None}
    links = {link for flow in flows for link in flow.outs}
    egress = {node for link in links if (node := relay.links.node_of(link)) is not None}
    largest = None if live is None else live.furthest()
    return Track(
        track=hash_text(key),
        namespace=namespace,
        name=name,
        service=_service(relay, flows, full_name if publishers else None),
        origin=bool(publishers),
        publishers=publishers,
        subscribers=0 if live is None else len(live.subscribers),
        ingress=node_texts(ingress),
        egress=node_texts(egress),
        targets=node_texts({node for flow in flows for node in flow.targets}),
        received_bytes=0 if meter is None else meter.received,
        sent_bytes=0 if meter is None else meter.sent,
        cached_bytes=0 if live is None else live.cached.size,
        cached_groups=0 if live is None else len(live.cached.groups),
        lost_objects=0 if meter is None else meter.lost,
        largest=None if largest is None else (largest.group, largest.object),
    )


def _service(relay: Relay, flows: list[flows.Flow], name: TrackName | None) -> str:
    """The class of a track: as relays before this one say, or by the policy for one from here."""
    told = next((flow.terms.service for flow in flows if flow.terms.service), "")
    return told or ("" if name is None else relay.weighing.policy.terms(name).service)


def one_track(relay: Relay, key: TrackKey, wall: Wall) -> OneTrack | None:
    """One track, with the way to each of its targets and why it is that one."""
    row = track(relay, key)
    if row is None:
        return None
    live = relay.tracks.get(key)
    flows = flows_of(relay, live, meter_of(relay, key, live))
    # What is sent to one node alone, to catch up, has flows of its own by the same way.
    hops = {(target, origin_of(relay, flow)): flow for flow in flows for target in flow.targets}
    return OneTrack(
        **asdict(row),
        node=node_text(relay.id),
        at=wall.now,
        wanted_by=node_texts(relay.subscribes.sources(key)),
        servers=keepers(relay, key),
        hops=[
            _hop(relay, flow, target, wall)
            for (target, _), flow in sorted(hops.items(), key=lambda item: item[0][0])
        ],
    )


def _hop(relay: Relay, flow: flows.Flow, target: NodeId, wall: Wall) -> Hop:
    route = flow.routes.get(target) or Route(None, None, "not decided yet")
    taken = next((link for link, out in flow.outs.items() if target in out.nodes), None)
    peer = None if taken is None else relay.links.node_of(taken)
    source = origin_of(relay, flow)
    return Hop(
        node=node_text(target),
        peer=None if peer is None else node_text(peer),
        source=None if source is None else node_text(source),
        reason=route.reason,
        path=None if route.path is None else path_row(route.path, wall),
        alternates=[
            path_row(path, wall)
            for path in relay.nodes.candidates(target)
            if path is not route.path
        ],
    )


def find_track(relay: Relay, text: str) -> TrackKey | None:
    """The track that a hash, or `NAMESPACE NAME`, stands for, if it is known here."""
    key = read_hash(text)
    keys = [] if key is None else [TrackKey(key)]
    keys += [hash_track(name).full_name_hash for name in read_track(text)]
    return next((key for key in keys if is_known(relay, key)), None)


def cache(relay: Relay, wall: Wall) -> Cache:
    """What is kept of tracks in all; `cached_tracks` are the rows."""
    kept = relay.tracks.cache
    counters = kept.counters
    return Cache(
        node=node_text(relay.id),
        at=wall.now,
        bytes=kept.size,
        limit_bytes=kept.limits.total_bytes,
        age_s=kept.limits.age_s,
        groups=len(kept.order),
        evicted_groups=counters.evicted_groups,
        expired_groups=counters.expired_groups,
        expired_objects=counters.expired_objects,
        trimmed_streams=counters.trimmed_streams,
        large_objects=counters.large_objects,
    )


def cached_tracks(relay: Relay) -> Table[CachedTrack]:
    """What is kept of each track."""

    def row(key: TrackKey) -> CachedTrack | None:
        track = relay.tracks.get(key)
        if track is None or not track.cached.groups:
            return None
        namespace, name = track_texts(track.name)
        groups = track.cached.groups
        return CachedTrack(
            track=hash_text(key),
            namespace=namespace,
            name=name,
            bytes=track.cached.size,
            groups=len(groups),
            first_group=min(groups),
            last_group=max(groups),
        )

    return Table.of(cached_keys(relay), row)
