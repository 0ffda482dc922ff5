"""Streams to a peer: a publisher's bytes wrapped as data objects, and streams to one node alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.wire.objects import encode_existing_stream_header, encode_new_stream_header

if TYPE_CHECKING:
    from laps.tracks.ports import OutStream
    from laps.types import SnsId, TrackKey


class Wrapped:
    """A publisher's bytes to a peer: each slice is a data object, written at once.

    To copy a slice behind its header takes less time than to write the two one after the other.
    """

    __slots__ = ("_begun", "_key", "_out", "_priority", "_sns_id", "_ttl_us")

    def __init__(
        self, out: OutStream, sns_id: SnsId, key: TrackKey, priority: int, ttl_us: int
    ) -> None:
        self._out = out
        self._sns_id = sns_id
        self._key = key
        self._priority = priority
        self._ttl_us = ttl_us
        self._begun = False

    @property
    def over(self) -> bool:
        """As `OutStream.over`."""
        return self._out.over

    def write(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.write`."""
        return self._out.write(self._header(len(data)) + data, now)

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.finish`."""
        if data or not self._begun:
            return self._out.finish(self._header(len(data)) + data, now)
        return self._out.finish(b"", now)

    def reset(self, code: int, now: float) -> None:
        """As `OutStream.reset`."""
        self._out.reset(code, now)

    def _header(self, size: int) -> bytes:
        if self._begun:
            return encode_existing_stream_header(size)
        self._begun = True
        return encode_new_stream_header(self._sns_id, self._key, self._priority, self._ttl_us, size)


class DirectStream:
    """A stream to one node, under a set of its own for as long as it is open.

    It leads there by one link, or by none where no way is known.
    """

    def __init__(self, outs: list[OutStream]) -> None:
        """`outs` may become empty: then the stream is over."""
        self._outs = outs
        self._closed = False

    @property
    def over(self) -> bool:
        """As `OutStream.over`."""
        return self._closed or not self._outs

    def write(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.write`."""
        if not self.over and all(out.write(data, now) for out in self._outs):
            return True
        self.close()
        return False

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        """As `OutStream.finish`."""
        ok = not self.over and all(out.finish(data, now) for out in self._outs)
        self.close()
        return ok

    def reset(self, code: int, now: float) -> None:
        """As `OutStream.reset`."""
        for out in self._outs:
            out.reset(code, now)
        self.close()

    def close(self) -> None:
        """Nothing more is written: its set goes with it."""
        if not self._closed:
            self._closed = True
            self.withdraw()

    def withdraw(self) -> None:
        """Withdraw the set that it ran under."""
        raise NotImplementedError
