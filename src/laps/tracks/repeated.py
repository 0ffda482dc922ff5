"""Whether a stream that begins has been here before, goes on where another broke off, or is new."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from laps.routing.flows import FromPeer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from laps.tracks.cache import CachedTrack
    from laps.tracks.cached_stream import CachedStream
    from laps.tracks.positions import Positions
    from laps.tracks.publication import Source
    from laps.tracks.streams import IncomingStream

# The same stream may arrive by two ways of different length, this much apart.
RECENT_S: Final = 2.0


class Repaired(Protocol):
    """A track, as far as repairs have to do with it."""

    cached: CachedTrack
    positions: Positions
    is_mending: bool
    is_repaired: bool


def is_again(
    track: Repaired,
    stream: IncomingStream,
    cached: CachedStream,
    rest: memoryview,
    may_send: Callable[[Source], bool],
    now: float,
) -> bool:
    """Whether a stream is one that another source has sent to its end.

    A publisher that has left may come back and send its last streams again, or begin anew with the
    same numbers: the first bytes tell. A flow from another relay may be gone as soon as its stream
    has ended, and the same arrive by another way a little later, or only the end of it; or later,
    with a repair.
    """
    if not cached.fin or cached.is_part or cached.source == stream.source:
        return False
    if may_send(cached.source):
        return True
    if rest:
        return cached.begins_with(rest) or cached.repeats(stream.header, rest)
    is_recent = track.is_mending or now - cached.touched < RECENT_S
    return isinstance(cached.source, FromPeer) and is_recent


def first_missing(kept: Iterable[CachedStream]) -> int:
    """The object to go on with, where the same subgroup arrived before and broke off."""
    first = 0
    for cached in kept:
        if not (cached.live or cached.fin):
            first = max(first, cached.scan().complete_id + 1)
    return first


def is_too_late(
    track: Repaired, group: int, source: Source, may_send: Callable[[Source], bool]
) -> bool:
    """Whether a repair brings a group that was here, and has been let go since.

    Where no relay on its way has died, and nobody else sends the track, it may have begun anew.
    """
    if not (track.is_repaired and isinstance(source, FromPeer)):
        return False
    if group in track.cached.groups or not track.cached.history.has_let_go(group):
        return False
    others = (it for it in track.positions if it != source)
    return track.is_mending or any(map(may_send, others))


def is_of_another_life(
    stream: IncomingStream, rest: memoryview, earlier: Iterable[CachedStream], largest: int | None
) -> bool:
    """Whether the first stream of the only sender has nothing to do with what was here before it.

    The first object tells, if it is here. Of others the group does: `largest` is the largest that
    the sender may go on from, if it has to.
    """
    if rest and any(cached.contradicts(stream.header, rest) for cached in earlier):
        return True
    if rest and any(cached.begins_with(rest) for cached in earlier):
        return False
    return largest is not None and stream.header.group < largest
