"""A track that an application publishes."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from laps.client.channel import Channel
from laps.client.history import Entry
from laps.client.publication import ANSWER_S, Publication, group_of_now
from laps.client.subgroup import Subgroup
from laps.client.tokens import NO_TOKEN
from laps.client.values import payload_of
from laps.errors import LocalProtocolError
from laps.names import track_text
from laps.wire.moqt.codes import DoneCode
from laps.wire.moqt.data import ObjectStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laps.client.outflow import Outflow
    from laps.client.session import Session
    from laps.client.tokens import TokenSource
    from laps.types import Location, TrackName
    from laps.wire.moqt.messages import KeyValue, TrackProperties


log = logging.getLogger(__name__)


class Track(Publication[Channel]):
    """A track that you publish; `Session.publish` makes it."""

    def __init__(
        self,
        session: Session,
        name: TrackName,
        *,
        properties: TrackProperties,
        priority: int,
        push: bool,
        forward: bool,
        first_group: int | None,
        history_bytes: int,
        on_new_group: Callable[[int], None] | None,
        token: TokenSource = NO_TOKEN,
    ) -> None:
        super().__init__(session, name, history_bytes, token)
        self.properties = properties
        self.priority = priority
        self.flows: list[Outflow] = []
        "The subscriptions of relays to it; two at most, while one relay is left for another."
        self.open_subgroups: dict[tuple[int, int], Subgroup] = {}
        self.new_group_wanted = False
        "A subscriber asks for a new group; it is reset when one begins."
        self._push = push
        self._forward = forward
        self._offered_to: Channel | None = None
        "The last one that was told of it."
        self._next_group = group_of_now() if first_group is None else first_group
        self._current: Subgroup | None = None
        self._datagram_group: int | None = None
        self._datagram_id = 0
        self._delivered = 0
        "Up to which object relays have all of it."
        self._on_new_group = on_new_group

    # -- writing -----------------------------------------------------------------------------------

    async def write(
        self, payload: bytes, *, new_group: bool = False, extensions: Sequence[KeyValue] = ()
    ) -> Location:
        """Send the next object of the current group, or the first of a new one.

        Where it lies in the track is returned. Waits while the relay is slower than you are, and
        raises what the relay had against the track, if it had.
        """
        payload = payload_of(payload)
        await self.room()
        if new_group or self._current is None:
            self._begin_group()
        assert self._current is not None  # noqa: S101 - it was begun
        return self._current.put(payload, None, tuple(extensions))

    async def datagram(
        self, payload: bytes, *, new_group: bool = False, extensions: Sequence[KeyValue] = ()
    ) -> Location:
        """Send the next object in a datagram: it arrives at once or not at all.

        DatagramTooLarge if it does not fit the path. A group has either datagrams or a stream, so
        the first one after `write` begins a new group.
        """
        payload = payload_of(payload)
        await self.room()
        await self._all_answered()  # a datagram that overtakes PUBLISH is lost
        if new_group or self._datagram_group is None:
            self.end_group()
            self._datagram_group, self._datagram_id = self._take_group(), 0
        entry = Entry(
            self.history.sequence + 1,
            self._datagram_group,
            None,
            self._datagram_id,
            payload,
            tuple(extensions),
        )
        for flow in list(self.flows):
            flow.send_datagram(entry)
        self._datagram_id += 1
        self.history.add(entry)
        return entry.location

    def group(
        self,
        group: int | None = None,
        subgroup: int = 0,
        *,
        priority: int | None = None,
        extensions: bool | None = None,
        last: bool | None = None,
    ) -> Subgroup:
        """A stream of a group, to write objects with ids of your own to, and to end yourself.

        `last` says that the largest object of the group will be one of its own; it is so for
        subgroup 0 where nothing is said. Several of them can be open at once.
        """
        self._check()
        number = self._take_group() if group is None else group
        self._next_group = max(self._next_group, number + 1)
        if (number, subgroup) in self.open_subgroups:
            raise LocalProtocolError(f"group {number}, subgroup {subgroup} is open already")
        made = Subgroup(
            self,
            number,
            subgroup,
            priority=priority,
            extensions=extensions,
            last=subgroup == 0 if last is None else last,
        )
        self.new_group_wanted = False
        return made

    def end_group(self) -> None:
        """End the current group: the next object begins another one."""
        if self._current is not None:
            self._current.end()
        self._current = self._datagram_group = None

    def _begin_group(self) -> None:
        self.end_group()
        self._current = self.group()

    def _take_group(self) -> int:
        number, self._next_group = self._next_group, self._next_group + 1
        self.new_group_wanted = False
        return number

    @property
    def ttl_us(self) -> int:
        """How long an object may wait to be sent; 0: for ever."""
        return (self.properties.delivery_timeout_ms or 0) * 1000

    async def _flows_have_room(self) -> None:
        while self._offered_to is None or not self._offered_to.alive:
            # The connection was lost, and the next relay has not allowed it yet.
            await self._session.channel()
            if self._offered_to is None or not self._offered_to.alive:
                self._changed.clear()
                await self._changed.wait()
            self._check()
        for flow in list(self.flows):
            if not flow.channel.has_room:
                await flow.channel.room()
                self._check()

    # -- who wants it ------------------------------------------------------------------------------

    @property
    def wanted(self) -> bool:
        """Whether a relay wants objects now."""
        return any(flow.forward and flow.answered for flow in self.flows)

    def flows_changed(self) -> None:
        """A stream has ended: relays that are being left may be left now."""
        for flow in list(self.flows):
            if flow.leaving and flow.idle:
                self._leave(flow)

    def wants_new_group(self, value: int) -> None:
        """A subscriber asks for a group with at least this number; 0: for any."""
        largest = self.history.largest
        if value and largest is not None and value <= largest.group:
            return
        self.new_group_wanted = True
        if self._on_new_group is not None:
            self._on_new_group(value)

    # -- from channel to channel -------------------------------------------------------------------

    def attach(self, channel: Channel) -> None:
        """Publish on a channel; what no relay may have of it is sent again.

        A relay that is left may be gone before it has passed on what it was sent last: relays know
        what they have been sent twice, and nobody knows what they have not.
        """
        self._offered_to = channel
        for flow in self.flows:
            if not flow.leaving:
                self._delivered = max(self._delivered, flow.arrivals.delivered)
            flow.leaving = True
        channel.outbound.offer(self, push=self._push, forward=self._forward or self.wanted)
        if (new := channel.outbound.outflows.get(self.full_name)) is not None:
            self._replay(new)
        self.flows_changed()
        self._changed.set()

    def _replay(self, flow: Outflow) -> None:
        lost = self.history.dropped_sequence - self._delivered
        if lost > 0:
            log.warning(
                "up to %d objects of %s may not have arrived when the connection was lost, and are "
                "no longer kept: history_bytes is %d",
                lost,
                track_text(self.full_name),
                self.history.limit,
            )
        closed: dict[tuple[int, int], None] = {}
        entries = list(self.history.since(self._delivered))
        last = {(entry.group, entry.subgroup) for entry in entries if entry.ends_group}
        for entry in entries:
            if entry.subgroup is None:
                continue
            key = entry.group, entry.subgroup
            subgroup = self.open_subgroups.get(key)
            if subgroup is not None:
                subgroup.send(flow, entry)
            else:
                # As it was sent before: relays add it to a stream that broke off.
                flow.send(entry, has_extensions=entry.has_extensions, end_of_group=key in last)
                closed[key] = None
        for group, number in closed:
            flow.finish(group, number)

    def lost(self, flow: Outflow) -> None:
        """The connection to a relay is closed."""
        if not flow.leaving:  # or else another relay has been sent the rest
            self._delivered = max(self._delivered, flow.arrivals.delivered)
        self._changed.set()

    def _leave(self, flow: Outflow) -> None:
        self.flows.remove(flow)

        def leave() -> None:
            flow.done(DoneCode.GOING_AWAY, "published elsewhere")
            flow.channel.outbound.withdraw(self)

        flow.channel.egress.when_flushed(leave)

    # -- the end -----------------------------------------------------------------------------------

    def _mark_end(self) -> None:
        if self.history.largest is not None:
            if self._current is None:
                self._begin_group()
            assert self._current is not None  # noqa: S101 - it was begun
            self._current.put(b"", None, (), ObjectStatus.END_OF_TRACK)
        self.end_group()
        for subgroup in list(self.open_subgroups.values()):
            subgroup.end()

    async def _end_on(self, channel: Channel) -> None:
        await channel.flushed()
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                await self._all_answered()
        if self._failure is not None:
            raise self._failure
        for flow in list(self.flows):
            flow.done(DoneCode.TRACK_ENDED)
            flow.channel.outbound.withdraw(self)
        channel.outbound.withdraw(self)
        await channel.acknowledged()

    async def _all_answered(self) -> None:
        """A short track may be written before the relay has said that it does not want it."""
        while any(not flow.answered for flow in self.flows):
            self._changed.clear()
            await self._changed.wait()
