"""One stream of a group, as a publisher writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.client.history import Entry
from laps.client.values import MAX_OBJECT_BYTES, payload_of
from laps.errors import LocalProtocolError, ObjectTooLarge
from laps.wire.moqt.codes import ResetCode
from laps.wire.moqt.data import ObjectStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.client.outflow import Outflow
    from laps.client.track import Track
    from laps.types import Location
    from laps.wire.moqt.messages import KeyValue


class Subgroup:
    """One stream of a group, for who decides about the numbers of objects; `Track.group` makes it.

    Objects of a subgroup have ascending ids.
    """

    def __init__(
        self,
        track: Track,
        group: int,
        subgroup: int,
        *,
        priority: int | None,
        extensions: bool | None,
        last: bool,
    ) -> None:
        self.track = track
        self.group = group
        self.subgroup = subgroup
        self.priority = priority
        self.has_extensions = extensions
        "Whether objects may have extensions; None: if the first one has."
        self.is_last = last
        "Whether the largest object of the group is one of these."
        self.next_id = 0
        self.ended = False
        self._newest: Entry | None = None

    async def write(
        self,
        payload: bytes,
        *,
        object_id: int | None = None,
        extensions: Sequence[KeyValue] = (),
    ) -> Location:
        """Send an object, as the next one or under an id of your own; where it lies in the track.

        Waits while the relay is slower than you are.
        """
        await self.track.room()
        return self.put(payload, object_id, tuple(extensions))

    def put(
        self,
        payload: bytes,
        object_id: int | None,
        extensions: tuple[KeyValue, ...] = (),
        status: ObjectStatus = ObjectStatus.NORMAL,
    ) -> Location:
        """As `write`, without waiting."""
        self._check(object_id, extensions)
        payload = payload_of(payload)
        if len(payload) > MAX_OBJECT_BYTES:
            raise ObjectTooLarge(
                f"an object of {len(payload)} bytes: {MAX_OBJECT_BYTES} at most "
                "(laps.client.MAX_OBJECT_BYTES); cut it into several"
            )
        track = self.track
        number = self.next_id if object_id is None else object_id
        self.next_id = number + 1
        entry = Entry(
            track.history.sequence + 1,
            self.group,
            self.subgroup,
            number,
            payload,
            extensions,
            self.priority,
            int(status),
            bool(self.has_extensions),
        )
        self._newest = entry
        track.history.add(entry)
        track.open_subgroups[self.group, self.subgroup] = self
        for flow in list(track.flows):
            self.send(flow, entry)
        return entry.location

    def send(self, flow: Outflow, entry: Entry) -> None:
        """Send one of its objects to a relay."""
        flow.send(entry, has_extensions=bool(self.has_extensions), end_of_group=self.is_last)

    def _check(self, object_id: int | None, extensions: tuple[KeyValue, ...]) -> None:
        if self.ended:
            raise LocalProtocolError(f"group {self.group}, subgroup {self.subgroup} has ended")
        if object_id is not None and object_id < self.next_id:
            raise LocalProtocolError(
                f"object id {object_id} comes behind {self.next_id - 1}: ids of a subgroup ascend"
            )
        if self.has_extensions is None:
            self.has_extensions = bool(extensions)
        if extensions and not self.has_extensions:
            raise LocalProtocolError(
                "this subgroup began without extensions: give them to its first object, "
                "or open it with extensions=True"
            )

    def end(self) -> None:
        """No more objects: the relay knows that it has all of them."""
        if not self.ended:
            self.ended = True
            if self._newest is not None:
                self._newest.ends_group = self.is_last
            self.track.open_subgroups.pop((self.group, self.subgroup), None)
            for flow in list(self.track.flows):
                flow.finish(self.group, self.subgroup)
            self.track.flows_changed()

    def reset(self, code: int = ResetCode.CANCELLED) -> None:
        """Give up what has not been sent yet."""
        if not self.ended:
            self.ended = True
            self.track.open_subgroups.pop((self.group, self.subgroup), None)
            for flow in list(self.track.flows):
                flow.reset(self.group, self.subgroup, code)
            self.track.flows_changed()
