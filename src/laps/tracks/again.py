"""What is sent once more to a relay that could not hear of it when it came.

It joins a track that has just begun, or was found just now, or was told how far the track is and
subscribes a little later: streams that have ended, and objects that came in datagrams. An object
that was put together of fragments goes as fragments again, on the terms that it has left.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from laps.types import Location
from laps.wire.moqt.data import decode_datagram
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.quicr.carried import CARRIED_BYTES, encode_carried, quicr_priority
from laps.wire.quicr.fragments import cut, recut
from laps.wire.quicr.messages import Terms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.tracks.cache import CachedGroup, CachedTrack
    from laps.tracks.cached_stream import CachedStream
    from laps.tracks.track import Track

    Kept = CachedStream | tuple[CachedGroup, int, bytes]
    "A stream that has ended, or the datagram of an object in a group."


# Relays let go of what is too old every now and then, and got it a little apart.
APART_S: Final = 0.5
# A group that is older than what is kept stays until the last of it has come, and somewhat longer.
LAST_S: Final = 2.0


def recent(track: CachedTrack, since: float, most_bytes: int, now: float) -> list[Kept]:
    """What came since a time, in order; of too much the last.

    Another relay may have let go of what is about to be too old here: it would take it for new.
    """
    found: list[Kept] = []
    for group in reversed(track.groups.values()):
        kept_until = inf if track.is_kept(group.id) else group.at + track.max_age_s
        first = since if now + APART_S < kept_until else max(since, now - LAST_S)
        items: list[Kept] = [
            (group, object_id, data) for object_id, data in group.in_datagrams(now, first)
        ]
        items += [it for it in group.streams if not it.live and it.touched >= first]
        if group.at < since and not items:
            break
        for item in reversed(items):
            most_bytes -= len(item[2]) if isinstance(item, tuple) else item.size
            if most_bytes < 0:
                return found[::-1]
            found.append(item)
    return found[::-1]


def following(track: CachedTrack, place: Location, now: float) -> list[Kept]:
    """What has objects after a place, in order."""
    found: list[Kept] = []
    for group_id in sorted(group_id for group_id in track.groups if group_id >= place.group):
        group = track.groups[group_id]
        first = place.object + 1 if group_id == place.group else 0
        ended = (stream for stream in group.streams if not stream.live)
        found += [stream for stream in ended if stream.scan().complete_id >= first]
        datagrams = group.in_datagrams(now)
        found += [(group, number, data) for number, data in datagrams if number >= first]
    return found


def as_datagrams(group: CachedGroup, object_id: int, data: bytes, now: float) -> Iterator[bytes]:
    """An object as it came between relays: in one datagram, or in fragments."""
    if object_id not in group.pieced:
        yield data
        return
    item = decode_datagram(data, BETWEEN_RELAYS)
    until = group.until.get(object_id)
    best_before_ms = 0 if until is None else max(1, round((until - now) * 1000))
    discardable = object_id in group.discardable
    terms = Terms(best_before_ms, quicr_priority(item.priority), discardable)
    for fragment in cut(group.id, object_id, item.payload, CARRIED_BYTES):
        yield encode_carried(item.alias, fragment, terms)


def begun(track: Track, now: float) -> list[bytes]:
    """What has arrived of objects in fragments that are not whole: the rest is still to come."""
    if track.fragments is None:
        return []
    return [
        encode_carried(track.alias, part, terms)
        for fragments, terms in track.fragments.held(Location(0, 0), now)
        for fragment in fragments
        for part in recut(fragment, CARRIED_BYTES)
    ]
