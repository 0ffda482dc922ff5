"""What a relay has of a track, as it tells another that it asks for the rest, and what that means.

what_is_here, remembered_since       at the relay that asks
missing_since, under_way_since       at the one that is asked: between these it may be missing
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.wire.extensions import Have, HaveKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from laps.tracks.track import Track
    from laps.wire.extensions import RepairRequest

# A message is late by this much beyond the round trip, when it was lost and sent again.
LATE_S: Final = 0.4
# What is sent together arrives together, give or take this.
JITTER_S: Final = 0.1

# The last of a stream is noted this coarsely, and two relays do so at different times.
SPREAD_S: Final = 0.5

# So many groups in a row that are too old are not the last to be looked at.
MOST_OLD: Final = 32


def missing_since(track: Track, request: RepairRequest, srtt_s: float, now: float) -> float:
    """What came here before that is not missing at a relay that asks.

    What it missed first had left here before that time came there, and its question took a while.
    """
    since = now - request.age_ms / 1000
    for item in request.have:
        group = track.cached.groups.get(item.group) if item.kind is HaveKind.BEFORE else None
        if group is not None:
            return max(since - srtt_s - LATE_S, group.at)
    return since


def what_is_here(track: Track, since: float, now: float) -> Iterator[Have]:
    """What is here of a track that came since a time, the latest first.

    Before all else stands the last group that came before: it tells what is not missing even if our
    clock has jumped since.
    """
    groups = reversed(track.cached.groups.values())
    if (before := next((group for group in groups if group.at <= since), None)) is not None:
        yield Have(HaveKind.BEFORE, before.id, 0, 0)
        since = before.at
    since -= SPREAD_S
    broken = {key for key, stream in track.streams.items() if stream.is_broken}
    old = 0
    for group in reversed(track.cached.groups.values()):
        found = False
        for stream in group.streams:
            key = group.id, stream.subgroup
            if stream.touched < since and key not in broken:
                continue
            found = True
            if stream.fin:
                yield Have(HaveKind.ALL, *key, 0)
            elif stream.live and key not in broken:
                yield Have(HaveKind.ARRIVING, *key, 0)
            else:
                yield Have(HaveKind.BROKEN, *key, stream.scan().complete_id + 1)
        for object_id, _ in group.in_datagrams(now, since):
            found = True
            yield Have(HaveKind.DATAGRAM, group.id, 0, object_id)
        # What is sent again is not in its order: older groups may be among the latest.
        old = 0 if found or group.at >= since else old + 1
        if old > MOST_OLD:
            return


def under_way_since(track: Track, have: Iterable[Have], srtt_s: float, now: float) -> float:
    """What came here since then may be under way to a relay that has this, and is not missing.

    Its newest tells how far it was when it asked, if what is live reaches it; the time does not,
    since the question may have been late.
    """
    newest = 0.0
    for item in have:
        group = track.cached.groups.get(item.group)
        if group is None or item.kind is HaveKind.BEFORE:
            continue
        if item.kind is not HaveKind.DATAGRAM:
            came = (it.since for it in group.streams if it.subgroup == item.subgroup)
            newest = max(newest, *came, 0.0)
        elif item.number in group.datagrams:
            newest = max(newest, group.came(item.number))
    if now - newest < srtt_s + LATE_S:
        return newest - JITTER_S
    return now - srtt_s - JITTER_S


def remembered_since(track: Track, now: float) -> float:
    """What came before this may have been let go: it would not be known again.

    A group that broke off is kept though later ones have been let go. What came a little after the
    oldest of those that are here may have been sent before it.
    """
    last = track.cached.history.last_let_go
    if last is None:
        return 0.0
    later = (group.at for group in track.cached.groups.values() if group.id >= last)
    return min(later, default=now) + SPREAD_S
