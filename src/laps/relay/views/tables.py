"""What a relay has been told: subscribes and announces; what it keeps; what has happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laps.errors import InvalidEncoding
from laps.names import bytes_text, hash_text, namespace_text, track_texts
from laps.relay.views.table import Row, Table
from laps.relay.views.words import (
    node_text,
)
from laps.wire.subscribe import decode_track_name

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

    from laps.infobase.namespaces import Names
    from laps.relay.journal import NumberedEvent
    from laps.relay.relay import Relay
    from laps.types import NodeId, SubscribeInfo, TrackName


def subscribes(relay: Relay) -> Table:
    """Who, on which node, wants which track."""
    held = relay.subscribes

    def row(key: tuple[NodeId, int]) -> Row | None:
        info = held.get(*key)
        return None if info is None else _subscribe(info)

    return Table(len(held), held.keys(), row)


def _subscribe(info: SubscribeInfo) -> Row:
    namespace, name = track_texts(name_of(info))
    return {
        "source": node_text(info.source_node_id),
        "track": hash_text(info.track_hash.full_name_hash),
        "namespace": namespace,
        "name": name,
        "sequence": info.sequence,
    }


def name_of(info: SubscribeInfo) -> TrackName | None:
    """The name of a track, as who subscribes to it has said it."""
    try:
        return decode_track_name(info.subscribe_data)
    except InvalidEncoding:
        return None


def announces(relay: Relay, numbers: Mapping[Hashable, int]) -> Table:
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

    def row(key: tuple[Names, NodeId, int | None]) -> Row:
        (namespace, name), source, client = key
        return {
            "source": node_text(source),
            "client": client,
            "namespace": namespace_text(namespace),
            "name": None if name is None else bytes_text(name),
        }

    size = len(offers) + len(namespaces) - len(namespaces.of_source(here))
    return Table(size, keys(), row)


def cache(relay: Relay) -> tuple[Row, Table]:
    """What is kept of tracks, in all and for each."""
    live = relay.live
    kept = live.cache
    whole: dict[str, Any] = {
        "bytes": kept.size,
        "limit_bytes": kept.limits.total_bytes,
        "age_s": kept.limits.age_s,
        "groups": len(kept.order),
        "evicted_groups": kept.counters.evicted_groups,
        "expired_groups": kept.counters.expired_groups,
        "expired_objects": kept.counters.expired_objects,
        "trimmed_streams": kept.counters.trimmed_streams,
    }

    def row(key: int) -> Row | None:
        track = live.get(key)
        if track is None or not track.cached.groups:
            return None
        namespace, name = track_texts(track.name)
        groups = track.cached.groups
        return {
            "track": hash_text(key),
            "namespace": namespace,
            "name": name,
            "bytes": track.cached.size,
            "groups": len(groups),
            "first_group": min(groups),
            "last_group": max(groups),
        }

    kept_tracks = [key for key, track in live.tracks.items() if track.cached.groups]
    return whole, Table.of(kept_tracks, row)


def events(relay: Relay, after: int, wall: Callable[[float], float]) -> Table:
    """What has happened lately, the oldest first."""

    def row(item: NumberedEvent) -> Row:
        event = item.event
        return {
            "number": item.number,
            "at": wall(event.at),
            "event": event.name,
            "subject": event.subject,
            "detail": event.detail,
            "reason": event.reason,
        }

    return Table.of(relay.journal.recent(after), row)
