"""A stream on its way through the relay, and what became of all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laps.infobase.nodes import SessionId
    from laps.relay.held import Held
    from laps.routing.forwarding import Flow
    from laps.tracks.meter import Meter
    from laps.tracks.ports import OutStream
    from laps.tracks.streams import IncomingStream
    from laps.tracks.track import Track
    from laps.types import SnsId
    from laps.wire.objects import DataStreamDecoder


@dataclass(slots=True)
class DataCounters:
    """What became of the data, for the operator."""

    streams: int = 0
    datagrams: int = 0
    copies: int = 0
    "Streams and datagrams sent on, to peers and clients."
    unwanted: int = 0
    "Streams and datagrams nobody is subscribed to."
    refused_streams: int = 0
    held: int = 0
    "Arrived before their SNS, and waited for it."
    held_dropped: int = 0
    "Waited for too long, or for too much."


@dataclass(slots=True, eq=False)
class Passing:
    """A stream on its way through."""

    flow: Flow | None = None
    outs: list[OutStream] = field(default_factory=list)
    "To peers: bytes as they arrive, or wrapped."
    track: Track | None = None
    "What it is of, where clients of this relay have to do with it."
    incoming: IncomingStream | None = None
    "To clients and the cache: the publisher's own bytes."
    sets: list[tuple[Flow, SessionId, SnsId]] = field(default_factory=list)
    "The sets that `outs` run under."
    decoder: DataStreamDecoder | None = None
    "Finds the publisher's bytes in a peer's stream, where clients want them."
    head: bytes = b""
    "What has arrived of a header that is not complete, or of a stream that waits for its SNS."
    waiting: Held | None = None
    "Its place among what waits for an SNS."
    refused: bool = False
    meter: Meter | None = None
    "What counts its track."
    size: int = 0
    "Bytes that arrived."
    metered: int = 0
    "How many of them the meter shows."
    taps: int = 0
    "How many of the streams it is written to are traces, which are no copies."
