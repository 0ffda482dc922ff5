"""While a track is repaired, groups that are ahead of what is missing wait for it.

    group 7    it broke off, and its rest is asked for
    group 8    nothing has come of it
    group 9    it comes by the new way: it is kept, and subscribers are given it after 7 and 8

What is live would overtake what is sent again by a second or so. Subscribers that want groups in
ascending order are given them so. It is for a moment only: when nobody has what is missing, when
there is too much of what waits, or when too long has passed, everything goes out as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from laps.tracks.holes import is_dense
from laps.tracks.subscription import SubscriptionState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laps.tracks.cache import CachedTrack
    from laps.tracks.ports import Client
    from laps.tracks.streams import IncomingStream
    from laps.tracks.subscription import Subscriber

# What is missing is asked for at once, and again after 0.4 s: by then it has come or nobody has it.
MOST_S: Final = 1.0
MOST_BYTES: Final = 4 * 1024 * 1024

# Who leaves out more groups at once counts by something else.
MOST_GROUPS: Final = 100


class Mended(Protocol):
    """The track that is repaired."""

    cached: CachedTrack
    streams: dict[tuple[int, int], IncomingStream]

    @property
    def subscribers(self) -> Mapping[Client, Subscriber]:
        """Who is given it."""


class Waiting:
    """An `OutStream` in place of those of some subscribers: what it is given is in the cache."""

    __slots__ = ("_fin", "_reset_code", "_stream", "_subscribers", "over")

    def __init__(self, stream: IncomingStream, fin: bool) -> None:
        self.over = False
        self._stream = stream
        self._subscribers: dict[Client, Subscriber] = {}
        self._fin = fin
        self._reset_code: int | None = None

    @property
    def group(self) -> int:
        """The group that waits."""
        return self._stream.header.group

    @property
    def size(self) -> int:
        """How much waits."""
        return 0 if self._stream.cached is None else self._stream.cached.size

    @property
    def is_cut(self) -> bool:
        """Whether the cache has let go of its beginning."""
        cached = self._stream.cached
        return cached is None or bool(cached.base) or not cached.is_kept

    def takes(self, client: Client, subscriber: Subscriber) -> bool:
        """Whether somebody is given the stream later."""
        takes = subscriber.is_in_order and subscriber.state is SubscriptionState.ESTABLISHED
        if takes:
            self._subscribers[client] = subscriber
        return takes

    def write(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.write`."""
        return not self.over

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.finish`."""
        self._fin = True
        return not self.over

    def reset(self, code: int, now: float) -> None:
        """As `OutStream.reset`."""
        self._reset_code = code

    def release(self, track: Mended, now: float) -> None:
        """Give it to those who still want it."""
        self.over = True
        stream = self._stream
        if stream.cached is None or self.is_cut:
            return
        rest = b"".join(stream.cached.chunks)
        for client, subscriber in self._subscribers.items():
            if track.subscribers.get(client) is not subscriber:
                continue
            out = subscriber.open(stream, stream.head + rest, rest, self._fin, now)
            if out is None or self._fin:
                continue
            if self._reset_code is not None:
                out.reset(self._reset_code, now)
            else:
                stream.outs.append(out)


class InOrder:
    """The groups of one track that wait for those before them."""

    __slots__ = ("_frontier", "_until", "_waiting")

    def __init__(self) -> None:
        self._frontier: int | None = None
        "The last group that had come when something was missed; None while all is well."
        self._until = 0.0
        self._waiting: list[Waiting] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, track: Mended, now: float) -> None:
        """Something may be missing after the groups that are here."""
        if self._frontier is None:
            self._frontier = max(track.cached.groups, default=None)
            self._until = now + MOST_S

    def wait(self, track: Mended, stream: IncomingStream, *, fin: bool) -> Waiting | None:
        """A stream begins: what it waits as, if something before its group has yet to come."""
        if self._frontier is None or not self._holds(track, stream.header.group):
            return None
        waiting = Waiting(stream, fin)
        self._waiting.append(waiting)
        stream.outs.append(waiting)
        return waiting

    def _holds(self, track: Mended, group: int) -> bool:
        if self._frontier is None or group <= self._frontier:
            return False
        if any(it.is_broken for (earlier, _), it in track.streams.items() if earlier < group):
            return True
        groups, between = track.cached.groups, range(self._frontier + 1, group)
        before = sorted(it for it in groups if it <= self._frontier)
        if len(between) > MOST_GROUPS or (len(before) > 1 and not is_dense(before)):
            return False  # it counts otherwise, or has begun anew
        return any(earlier not in groups for earlier in between)

    def review(self, track: Mended, now: float) -> None:
        """Something has come, or some time has passed: give out what need not wait any more."""
        if not self._waiting:
            return
        size = sum(it.size for it in self._waiting)
        if now >= self._until or size > MOST_BYTES or any(it.is_cut for it in self._waiting):
            self.end(track, now)
            return
        self._waiting.sort(key=_group)
        while self._waiting and not self._holds(track, self._waiting[0].group):
            self._waiting.pop(0).release(track, now)

    def end(self, track: Mended, now: float) -> None:
        """Nothing more is waited for."""
        self._frontier = None
        waiting, self._waiting = sorted(self._waiting, key=_group), []
        for item in waiting:
            item.release(track, now)


def _group(waiting: Waiting) -> int:
    return waiting.group
