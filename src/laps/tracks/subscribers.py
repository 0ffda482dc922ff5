"""Who is given the streams and datagrams of a track, and one who takes them as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from laps.tracks.sinks import Cut
from laps.wire.moqt.data import encode_subgroup_header
from laps.wire.moqt.dialect import DRAFT16

if TYPE_CHECKING:
    from laps.tracks.ports import Client, OutStream
    from laps.tracks.streams import LiveStream
    from laps.tracks.track import LiveTrack
    from laps.types import TrackHash
    from laps.wire.moqt.data import DatagramObject
    from laps.wire.quicr.messages import Fragment, Terms


class Subscriber(Protocol):
    """Who is given the streams of a track as they begin."""

    established: bool
    "Whether it is given them by now."
    takes_fragments: bool
    "Whether it is given pieces of objects as they come in datagrams; or else whole objects."

    def open(
        self, stream: LiveStream, whole: bytes, rest: bytes | memoryview, fin: bool
    ) -> OutStream | None:
        """A stream has begun: open one for it, and write the first bytes; None if not wanted.

        `whole` begins with the header, `rest` behind it.
        """

    def datagram(self, track: LiveTrack, data: bytes, item: DatagramObject) -> None:
        """An object in a datagram, as it came and as it was read.

        One that came in several may be larger than a datagram can be.
        """

    def fragments(
        self, track: LiveTrack, fragments: list[Fragment], terms: Terms, data: bytes
    ) -> None:
        """What is new of an object that comes in several datagrams, and the datagram itself."""

    def started_over(self) -> None:
        """The publisher has begun again with smaller groups."""


class PlainSubscriber:
    """A client that takes every stream as it is: a Stub, or one in a simulation."""

    established = True
    takes_fragments = True

    def __init__(self, client: Client, track: TrackHash) -> None:
        self.client = client
        self._track = track

    def open(
        self, stream: LiveStream, whole: bytes, rest: bytes | memoryview, fin: bool
    ) -> OutStream | None:
        """As `Subscriber`."""
        out = self.client.open_stream(self._track, stream.priority, stream.ttl_us)
        data: bytes | memoryview = whole
        if stream.first:
            # What begins later cannot take its subgroup from the first object.
            header = replace(stream.header, subgroup=stream.subgroup)
            head = encode_subgroup_header(header, DRAFT16)
            out = Cut(out, head, stream.first, header.has_extensions)
            data = rest
        if fin:
            out.finish(data)
        else:
            out.write(data)
        return out

    def datagram(self, track: LiveTrack, data: bytes, item: DatagramObject) -> None:
        """As `Subscriber`."""
        self.client.send_datagram(self._track, data, 0)

    def fragments(
        self, track: LiveTrack, fragments: list[Fragment], terms: Terms, data: bytes
    ) -> None:
        """As `Subscriber`: as it came, for the relay behind it to put together."""
        self.client.send_datagram(self._track, data, 0)

    def started_over(self) -> None:
        """As `Subscriber`."""
