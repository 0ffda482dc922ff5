"""What reaches a connection ahead of the WebTransport session it is of: held, within bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

# What overtakes the response to CONNECT: a round trip's worth of a publisher that begins at once.
EARLY_STREAMS: Final = 128
EARLY_BYTES: Final = 256 * 1024
EARLY_DATAGRAMS: Final = 64


@dataclass(slots=True)
class EarlyStream:
    """What is known of a stream so far."""

    session_id: int
    data: bytearray = field(default_factory=bytearray)
    fin: bool = False


class Early:
    """Streams and datagrams of one connection that wait for their session."""

    def __init__(self) -> None:
        self.streams: dict[int, EarlyStream] = {}
        self.datagrams: list[bytes] = []
        self.held_bytes = 0

    def begin(self, stream_id: int, session_id: int) -> bool:
        """Hold a stream; False if there are too many."""
        if len(self.streams) >= EARLY_STREAMS:
            return False
        self.streams[stream_id] = EarlyStream(session_id)
        return True

    def add(self, stream_id: int, data: bytes, fin: bool) -> bool:
        """Hold more of a stream; False, and the stream is forgotten, if that is too much."""
        if self.held_bytes + len(data) > EARLY_BYTES:
            self.forget(stream_id)
            return False
        stream = self.streams[stream_id]
        stream.data += data
        stream.fin = fin
        self.held_bytes += len(data)
        return True

    def add_datagram(self, data: bytes) -> bool:
        """Hold a datagram; False if there are too many."""
        if len(self.datagrams) >= EARLY_DATAGRAMS:
            return False
        self.datagrams.append(data)
        return True

    def forget(self, stream_id: int) -> None:
        """The stream is of no interest any more, if it ever was."""
        if (stream := self.streams.pop(stream_id, None)) is not None:
            self.held_bytes -= len(stream.data)

    def take(self) -> tuple[dict[int, EarlyStream], list[bytes]]:
        """Everything, which is then no longer held."""
        taken = self.streams, self.datagrams
        self.streams, self.datagrams, self.held_bytes = {}, [], 0
        return taken
