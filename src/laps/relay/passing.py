"""A stream on its way through the relay, and what became of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from laps.wire.objects import ExistingStreamHeader, NewStreamHeader

if TYPE_CHECKING:
    from collections.abc import Hashable

    from laps.infobase.nodes import SessionId
    from laps.relay.held import Held
    from laps.relay.ports import LinkStream
    from laps.routing.flows import Flow, FlowKey
    from laps.tracks.meter import Meter
    from laps.tracks.ports import OutStream
    from laps.tracks.streams import IncomingStream
    from laps.tracks.track import Track
    from laps.types import SnsId
    from laps.wire.objects import DataStreamDecoder

# So many datagrams are remembered that were sent on: more than come in a second at 40 Mbit/s.
MOST_SENT_ON: Final = 4096

# What a stream has besides the publisher's bytes.
HEADERS: Final = (NewStreamHeader, ExistingStreamHeader)

# The document has no code for data that was dropped; 0 says that the peer did nothing wrong.
DROPPED: Final = 0


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


class SentOn:
    """Datagrams that flows have sent on: each flow sends one once, so that none goes in circles."""

    def __init__(self) -> None:
        self._sent: dict[tuple[FlowKey, int], None] = {}

    def __len__(self) -> int:
        return len(self._sent)

    def add(self, flow_key: FlowKey, data: bytes | memoryview) -> bool:
        """A flow sends a datagram on; False if it has done so before."""
        key = flow_key, hash(bytes(data))
        if key in self._sent:
            return False
        self._sent[key] = None
        if len(self._sent) > MOST_SENT_ON:
            del self._sent[next(iter(self._sent))]
        return True


class Passing(Struct, eq=False):
    """A stream on its way through."""

    flow: Flow | None = None
    outs: list[OutStream] = field(default_factory=list)
    "To peers: bytes as they arrive, or wrapped."
    track: Track | None = None
    "What it is of, where clients of this relay have to do with it."
    incoming: IncomingStream | None = None
    "To clients and the cache: the publisher's own bytes."
    sets: list[tuple[Flow, SessionId, SnsId, LinkStream]] = field(default_factory=list)
    "The sets that `outs` run under, those that have closed too."
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

    def unwrap(self, data: bytes, fin: bool, now: float) -> None:
        """Give clients and the cache the publisher's bytes out of a peer's."""
        decoder, incoming = self.decoder, self.incoming
        if decoder is None or incoming is None:
            return
        if data:
            payload = decoder.inside(data)
            if payload is not None:
                incoming.write(payload, now)
            else:
                for event in decoder.feed(data):
                    if not isinstance(event, HEADERS):
                        incoming.write(event, now)
        if fin:
            decoder.finish()
            incoming.finish(b"", now)

    def settle(self) -> bool:
        """Have the meter of its track show what has arrived by now; whether that is more."""
        size, meter = self.size - self.metered, self.meter
        if not size or meter is None:
            return False
        self.metered = self.size
        copies = len(self.outs) - self.taps
        copies += 0 if self.incoming is None else len(self.incoming.outs)
        meter.received += size
        meter.sent += size * copies
        return True


class OpenStreams:
    """The streams on their way through, found by where they come from and where they go to."""

    def __init__(self) -> None:
        self.by_number: dict[tuple[Hashable, Hashable], Passing] = {}
        "By link or publisher, and by their number there."
        self._numbers: dict[Hashable, dict[Hashable, None]] = {}
        self._under: dict[Flow, dict[Passing, None]] = {}

    def __len__(self) -> int:
        return len(self.by_number)

    def get(self, source: Hashable, number: Hashable) -> Passing | None:
        """The stream that a link or publisher knows by a number."""
        return self.by_number.get((source, number))

    def add(self, source: Hashable, number: Hashable, passing: Passing) -> Passing:
        """A stream has begun."""
        self.by_number[source, number] = passing
        self._numbers.setdefault(source, {})[number] = None
        return passing

    def remove(self, source: Hashable, number: Hashable) -> None:
        """A stream has ended."""
        if self.by_number.pop((source, number), None) is not None:
            numbers = self._numbers[source]
            del numbers[number]
            if not numbers:
                del self._numbers[source]

    def numbers(self, source: Hashable, most: int) -> list[Hashable]:
        """Some of the streams that come from a link or a publisher."""
        return list(islice(self._numbers.get(source, ()), most))

    def from_source(self, source: Hashable) -> list[Passing]:
        """All that come from a link or a publisher."""
        return [self.by_number[source, number] for number in self._numbers.get(source, ())]

    def all(self) -> list[Passing]:
        """Every one."""
        return list(self.by_number.values())

    def sent(self, flow: Flow, passing: Passing) -> None:
        """A stream is sent to a peer, under a set of its flow."""
        self._under.setdefault(flow, {})[passing] = None

    def not_sent(self, flow: Flow, passing: Passing) -> None:
        """It is sent to no peer any more."""
        under = self._under.get(flow, {})
        under.pop(passing, None)
        if not under:
            self._under.pop(flow, None)

    def reorder(self, flow: Flow) -> None:
        """The streams of a flow are of another class of service."""
        for passing in self.under(flow):
            for of, _, _, out in passing.sets:
                if of is flow:
                    out.reorder(flow.terms.order)

    def under(self, flow: Flow) -> list[Passing]:
        """The streams of a flow that are sent to peers."""
        return list(self._under.get(flow, ()))


def write_all(outs: list[OutStream], data: bytes | memoryview, fin: bool, now: float) -> None:
    """One write for each; those that are closed are left out from then on."""
    if not data and not fin:
        return
    closed = False
    for out in outs:
        if not (out.finish(data, now) if fin else out.write(data, now)):
            closed = True
    if closed:
        outs[:] = [out for out in outs if not out.over]
