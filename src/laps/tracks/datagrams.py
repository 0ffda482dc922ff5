"""The objects of a track that arrive in datagrams: to every subscriber at once, and to the cache.

An object may arrive in pieces, as QUICR's fragments: those are passed on as they are to whoever
takes them, and the object to the others when it is whole (`reassembly`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from laps.routing.flows import FromPeer
from laps.tracks.cached_stream import Resume
from laps.tracks.reassembly import TrackFragments
from laps.tracks.repeated import is_too_late
from laps.tracks.streams import SILENT_S
from laps.tracks.subscription import PlainSubscriber
from laps.types import Location
from laps.wire.moqt.codes import MoqtViolation
from laps.wire.moqt.data import decode_datagram, encode_datagram
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.quicr.carried import carried_of
from laps.wire.quicr.codes import QuicrViolation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laps.tracks.cache import CachedGroup, CachedTrack
    from laps.tracks.ports import Client
    from laps.tracks.positions import Positions
    from laps.tracks.publication import Source
    from laps.tracks.shared import Shared
    from laps.tracks.subscription import Subscriber
    from laps.types import NodeId, TrackHash
    from laps.wire.moqt.data import DatagramObject
    from laps.wire.quicr.messages import Fragment, Terms


class DatagramOwner(Protocol):
    """The track that datagrams are of."""

    hash: TrackHash
    alias: int
    cached: CachedTrack
    fragments: TrackFragments | None
    positions: Positions
    is_mending: bool
    is_repaired: bool
    joining: dict[NodeId, float]

    @property
    def subscribers(self) -> Mapping[Client, Subscriber]:
        """Who is given it."""

    def start_over(self) -> None:
        """Its numbers mean something else from now on."""


class Datagrams:
    """What arrives of a track in datagrams."""

    __slots__ = ("_shared", "_track")

    def __init__(self, track: DatagramOwner, shared: Shared) -> None:
        self._track = track
        self._shared = shared

    def receive(
        self, data: bytes, source: Source, exclude: Client | None, now: float
    ) -> int | None:
        """An object in a datagram, for all; how many it went to, None if it arrived before."""
        try:
            item = decode_datagram(data, BETWEEN_RELAYS)
        except MoqtViolation:
            item = None
        if item is None or item.alias != self._track.alias:
            return self._pass_datagram(data, exclude)
        group = self._track.cached.groups.get(item.group)
        if is_too_late(self._track, item.group, source, self._shared.may_send):
            self._shared.counters.duplicates += 1
            return None
        carried = carried_of(item) if item.extensions else None
        if group is not None and item.object_id in group.datagrams:
            if not self._begins_anew(group, item, carried[0].offset if carried else 0, now):
                self._shared.counters.duplicates += 1
                return None
            self._track.start_over()
        self._track.positions.heard(source, Location(item.group, item.object_id), now)
        self._shared.feeds(source, self._track.hash.full_name_hash, now)
        if self._track.joining and not isinstance(source, FromPeer):
            self._shared.arrived.append((self._track.hash.full_name_hash, data))
        if carried is not None:
            return self._fragment(data, item, *carried, source, exclude, now)
        self._track.cached.saw(Location(item.group, item.object_id))
        for client, subscriber in list(self._track.subscribers.items()):
            if client is not exclude:
                subscriber.datagram(data, item, now)
        group = self._track.cached.group(item.group, now)
        group.add_datagram(item.object_id, data, now, source=source)
        return len(self._track.subscribers)

    def _pass_datagram(self, data: bytes, exclude: Client | None) -> int:
        """Not a datagram of MoQT's: for plain clients, and nobody else."""
        self._shared.counters.opaque += 1
        plain = [s for s in self._track.subscribers.values() if isinstance(s, PlainSubscriber)]
        for subscriber in plain:
            if subscriber.client is not exclude:
                subscriber.client.send_datagram(self._track.hash, data, 0)
        return len(plain)

    def _begins_anew(
        self, group: CachedGroup, item: DatagramObject, offset: int, now: float
    ) -> bool:
        """Whether a publisher has begun again with the same numbers, and something else in them.

        The first object of a group tells. What arrived just now is not looked at: of two who
        publish different things at once, neither is to take the place of the other in turns.
        """
        arrived, data = group.datagrams[item.object_id]
        if item.object_id or now < arrived + SILENT_S:
            return False
        known = decode_datagram(data, BETWEEN_RELAYS).payload
        return bytes(known[offset : offset + len(item.payload)]) != bytes(item.payload)

    def _fragment(
        self,
        data: bytes,
        item: DatagramObject,
        fragment: Fragment,
        terms: Terms,
        source: Source,
        exclude: Client | None,
        now: float,
    ) -> int | None:
        """A fragment of an object: it is passed on at once, and the object when it is whole."""
        shared = self._shared
        if self._track.fragments is None:
            self._track.fragments = TrackFragments(shared.fragment_limit)
        given_up = self._track.fragments.reassembler.given_up
        before = self._track.fragments.size
        try:
            new, payload, terms = self._track.fragments.add(fragment, terms, now)
        except QuicrViolation:
            shared.counters.malformed_fragments += 1
            return None
        finally:
            shared.fragment_bytes += self._track.fragments.size - before
            shared.counters.lost_objects += self._track.fragments.reassembler.given_up - given_up
        shared.bound_fragments(self._track.fragments)
        if not new:
            shared.counters.duplicates += 1
            return None
        self._track.cached.saw(Location(item.group, item.object_id))
        whole = None
        if payload is not None:
            shared.events.extend(map(Resume, self._track.fragments.waiting))
            self._track.fragments.waiting.clear()
            item.payload, item.extensions = payload, b""
            whole = encode_datagram(item, BETWEEN_RELAYS)
        for client, subscriber in list(self._track.subscribers.items()):
            if client is exclude:
                continue
            if subscriber.takes_fragments:
                subscriber.fragments(new, terms, data, now)
            elif whole is not None:
                subscriber.datagram(whole, item, now, pieced=True)
        if whole is not None:
            until = now + terms.best_before_ms / 1000 if terms.best_before_ms else None
            group = self._track.cached.group(item.group, now)
            group.pieced.add(item.object_id)
            group.add_datagram(
                item.object_id, whole, now, until, discardable=terms.discardable, source=source
            )
        return len(self._track.subscribers)
