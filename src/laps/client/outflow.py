"""A track of ours on one channel: the one subscription that the relay has to it, and its streams.

It stands from our PUBLISH, or from the relay's SUBSCRIBE. Objects go out while it is to be
forwarded, each subgroup on a stream of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.client.arrivals import Arrivals
from laps.errors import DatagramTooLarge
from laps.ranges import after
from laps.types import Location
from laps.wire.moqt.codes import ResetCode
from laps.wire.moqt.data import (
    DatagramObject,
    SubgroupHeader,
    encode_datagram,
    encode_subgroup_header,
)
from laps.wire.moqt.messages import FilterType, PublishDone
from laps.wire.moqt.object_fields import encode_object_header
from laps.wire.moqt.translate import encode_extensions

if TYPE_CHECKING:
    from laps.client.channel import Channel
    from laps.client.history import Entry
    from laps.client.track import Track
    from laps.net.egress import EgressStream
    from laps.wire.moqt.messages import Filter

# A large object is written in pieces, so that what is more urgent can go between them.
PIECE_BYTES: Final = 64 * 1024

FIRST: Final = Location(0, 0)


@dataclass(slots=True)
class _Out:
    """The stream of a subgroup."""

    stream: EgressStream
    has_extensions: bool
    last_id: int = -1


class Outflow:
    """A subscription of the relay's to one of our tracks."""

    def __init__(self, channel: Channel, track: Track, request_id: int, alias: int) -> None:
        self.channel = channel
        self.track = track
        self.request_id = request_id
        self.alias = alias
        self.answered = False
        "By PUBLISH_OK; a subscription of the relay's own is answered by us."
        self.overdue = False
        "The answer did not come for a while."
        self.forward = True
        self.start = FIRST
        self.end_group: int | None = None
        self.leaving = False
        "No new subgroups begin here."
        self.streams = 0
        "How many have been opened."
        self._outs: dict[tuple[int, int], _Out] = {}
        self.arrivals = Arrivals(channel)

    # -- what the relay decides --------------------------------------------------------------------

    def apply(self, wanted: Filter | None, forward: bool | None, largest: Location | None) -> None:
        """The relay says what it wants."""
        if wanted is not None:
            self.end_group = wanted.end_group
            self.start = wanted.start
            if largest is not None and wanted.type is FilterType.NEXT_GROUP:
                self.start = Location(largest.group + 1, 0)
            elif largest is not None and wanted.type is FilterType.LARGEST_OBJECT:
                self.start = after(largest)
        if forward is not None and forward != self.forward:
            self.forward = forward
            if not forward:
                self.give_up()

    def wants(self, place: Location) -> bool:
        """Whether an object is to be sent."""
        if not self.forward or place < self.start:
            return False
        return self.end_group is None or place.group <= self.end_group

    # -- objects -----------------------------------------------------------------------------------

    def send(self, entry: Entry, *, has_extensions: bool, end_of_group: bool) -> None:
        """Send an object of a subgroup, opening its stream if need be."""
        if not self.channel.alive or not self.wants(entry.location):
            return
        key = entry.group, entry.subgroup or 0
        out = self._outs.get(key)
        if out is None:
            if self.leaving:
                return
            out = self._outs[key] = self._open(entry, key, has_extensions, end_of_group)
        if out.stream.over:
            return  # the relay does not want the rest of it
        extensions = encode_extensions(entry.extensions, self.channel.dialect)
        payload = entry.payload
        head = encode_object_header(
            entry.id - out.last_id - 1,
            extensions,
            len(payload),
            entry.status,
            out.has_extensions,
        )
        out.last_id = entry.id
        if len(payload) <= PIECE_BYTES:
            out.stream.write(head + payload)
            return
        out.stream.write(head)
        for offset in range(0, len(payload), PIECE_BYTES):
            out.stream.write(payload[offset : offset + PIECE_BYTES])

    def _open(
        self, entry: Entry, key: tuple[int, int], has_extensions: bool, end_of_group: bool
    ) -> _Out:
        track, channel = self.track, self.channel
        priority = track.priority if entry.priority is None else entry.priority
        rank = (priority, 0, 0, self.alias, *key)
        stream = channel.egress.open(rank, track.ttl_us)
        header = SubgroupHeader(
            self.alias, key[0], key[1], entry.priority, has_extensions, end_of_group
        )
        stream.write(encode_subgroup_header(header, channel.dialect, track.priority))
        self.streams += 1
        channel.streams_begun += 1
        return _Out(stream, has_extensions)

    def finish(self, group: int, subgroup: int) -> None:
        """A subgroup is complete."""
        out = self._outs.pop((group, subgroup), None)
        if out is not None and self.channel.alive:
            out.stream.finish()

    def reset(self, group: int, subgroup: int, code: int) -> None:
        """A subgroup is given up."""
        out = self._outs.pop((group, subgroup), None)
        if out is not None and not out.stream.over and self.channel.alive:
            if out.stream.stream_id is None:
                self.channel.streams_begun -= 1
                self.streams -= 1
            out.stream.reset(code)

    def give_up(self) -> None:
        """Nothing of what is under way is wanted."""
        for group, subgroup in list(self._outs):
            self.reset(group, subgroup, ResetCode.CANCELLED)

    def send_datagram(self, entry: Entry, *, end_of_group: bool = False) -> None:
        """Send an object in a datagram."""
        if not self.channel.alive or self.leaving or not self.wants(entry.location):
            return
        dialect, track = self.channel.dialect, self.track
        datagram = DatagramObject(
            self.alias,
            entry.group,
            entry.id,
            entry.priority,
            encode_extensions(entry.extensions, dialect),
            entry.status or None,
            entry.payload,
            end_of_group,
        )
        data = encode_datagram(datagram, dialect, track.priority)
        limit = self.channel.transport.datagram_limit_bytes
        if len(data) > limit:
            raise DatagramTooLarge(
                f"an object of {len(entry.payload)} bytes makes a datagram of {len(data)}: "
                + (f"the path carries {limit}" if limit else "the relay takes none")
                + "; write it to a stream instead"
            )
        self.channel.egress.send_datagram(data, track.priority, track.ttl_us)

    # -- its end -----------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no stream is open."""
        return all(out.stream.over for out in self._outs.values())

    def done(self, code: int, reason: str = "") -> None:
        """Tell the relay that nothing more comes."""
        if self.channel.alive:
            self.channel.session.send(PublishDone(self.request_id, code, self.streams, reason))
