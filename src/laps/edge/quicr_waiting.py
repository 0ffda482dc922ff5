"""Control streams of a QuicrClient that wait for an origin, and the media that comes meanwhile.

A publisher may send fragments before its PUBLISH_INTENT is answered. They are held: until the
origin has granted it, when they go on as if they came then, or until it has not, when they are
dropped. Beyond the bounds the oldest objects go first, whole: what comes later is worth more.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from laps.auth.refusals import AuthError
from laps.edge.decisions import Depending
from laps.edge.quicr_access import words_of
from laps.sessions.quicr import Closed
from laps.types import Location
from laps.wire.quicr.messages import (
    Authorization,
    Fin,
    Fragment,
    PublishIntent,
    StartPoint,
    Subscribe,
    SubscribeCancel,
)

if TYPE_CHECKING:
    from laps.edge.decisions import Decision
    from laps.edge.edge import Edge
    from laps.edge.quicr_access import QuicrAccess
    from laps.sessions.quicr import ControlStream, Event, QuicrSession
    from laps.wire.quicr.messages import Message


@dataclass(slots=True, eq=False)
class Waiting:
    """A SUBSCRIBE or PUBLISH_INTENT that waits."""

    stream: ControlStream
    opening: Subscribe | PublishIntent
    decision: Decision
    held: deque[StartPoint | Fragment | Fin] = field(default_factory=deque)
    "What was published meanwhile."
    skips: Location | None = None
    "An object whose beginning was dropped, so that the rest is."
    has_ended: bool = False
    "The publisher has closed its stream: that was all."


class WaitingClient(Depending, Protocol):
    """The client whose streams wait."""

    access: QuicrAccess
    session: QuicrSession

    def asked(self, stream: ControlStream, message: Message, now: float) -> None:
        """Take what opened a stream, once more."""

    def fail(self, stream: ControlStream, reason: str) -> None:
        """Refuse what opened a stream."""

    def published(self, stream: ControlStream, message: Message, now: float) -> bool:
        """Media on a stream; False if nothing is published there."""

    def stream_closed(self, stream: ControlStream, well: bool, now: float) -> None:
        """The client has ended a stream."""


class WaitingStreams:
    """The control streams of one client that wait."""

    def __init__(self, edge: Edge) -> None:
        self._settings = edge.settings
        self._counters = edge.quicr
        self._all: dict[int, Waiting] = {}
        "By control stream."
        self._bytes = 0
        "Of all that is held."
        self._fragments = 0

    def add(
        self,
        client: Depending,
        stream: ControlStream,
        opening: Subscribe | PublishIntent,
        decision: Decision,
    ) -> None:
        """A stream waits; what is held of it stays so, if it has waited for another decision."""
        decision.waiting[client] = None
        if (known := self._all.get(stream.id)) is not None:
            known.decision = decision
        else:
            self._all[stream.id] = Waiting(stream, opening, decision)

    def takes(self, client: WaitingClient, event: Event, now: float) -> bool:
        """Whether something was said on a stream that waits: it has been dealt with then."""
        waiting = self._all.get(event.stream.id)
        if waiting is None:
            return False
        if isinstance(event, Closed):
            waiting.has_ended = event.well and isinstance(waiting.opening, PublishIntent)
            if not waiting.has_ended:
                self._withdraw(client, waiting)
            return True
        match event.message:
            case Authorization():
                self._shown(client, waiting, event.message, now)
            case SubscribeCancel():
                self._withdraw(client, waiting)
            case Fragment() | StartPoint() | Fin():
                self._hold(waiting, event.message)
            case _:
                pass  # SUBSCRIBE again: it is answered once
        return True

    def decided(self, client: WaitingClient, decision: Decision, now: float) -> None:
        """An origin has answered."""
        for waiting in [it for it in self._all.values() if it.decision is decision]:
            client.asked(waiting.stream, waiting.opening, now)
            if waiting.decision is decision:  # and not another that it waits for now
                self._go_on(client, waiting, now)

    def clear(self) -> None:
        """The client has left."""
        for waiting in list(self._all.values()):
            self._drop(waiting)

    def _shown(
        self, client: WaitingClient, waiting: Waiting, message: Authorization, now: float
    ) -> None:
        """A newer token, for what waits: the origin is asked about that instead."""
        decision = waiting.decision
        try:
            client.access.shown(waiting.stream, message, now)
        except AuthError as error:
            self._drop(waiting)
            client.access.withdrawn(waiting.stream.id)
            client.fail(waiting.stream, words_of(error))
            return
        client.asked(waiting.stream, waiting.opening, now)
        if waiting.decision is decision and not client.access.waits(waiting.stream.id):
            self._go_on(client, waiting, now)

    def _go_on(self, client: WaitingClient, waiting: Waiting, now: float) -> None:
        """What was held goes on, if it is granted."""
        stream, held = waiting.stream, list(waiting.held)
        waiting.held.clear()
        self._all.pop(stream.id, None)
        for message in held:
            self._release(message)
            if not client.published(stream, message, now):
                self._counters.early_dropped += isinstance(message, Fragment)
        if waiting.has_ended:
            client.stream_closed(stream, True, now)

    def _withdraw(self, client: WaitingClient, waiting: Waiting) -> None:
        """It is not wanted any more, before it was granted."""
        self._drop(waiting)
        client.access.withdrawn(waiting.stream.id)
        decision = waiting.decision
        if not any(it.decision is decision for it in self._all.values()):
            decision.waiting.pop(client, None)
        client.session.close(waiting.stream)

    # -- what is held ------------------------------------------------------------------------------

    def _hold(self, waiting: Waiting, message: StartPoint | Fragment | Fin) -> None:
        if isinstance(message, Fragment):
            place = Location(message.group, message.object_id)
            if waiting.skips == place:
                self._counters.early_dropped += 1
                return
            self._bytes += len(message.data)
        waiting.skips = None
        self._fragments += 1
        waiting.held.append(message)
        settings = self._settings
        while self._bytes > settings.hold_bytes or self._fragments > settings.hold_fragments:
            self._drop_oldest(waiting)

    def _drop_oldest(self, waiting: Waiting) -> None:
        """Drop the oldest object of a stream, and what stands before it."""
        held = waiting.held
        place: Location | None = None
        while held:
            first = held[0]
            if isinstance(first, Fragment):
                if place not in (None, Location(first.group, first.object_id)):
                    return
                place = Location(first.group, first.object_id)
                waiting.skips = None if first.last else place
                self._counters.early_dropped += 1
            self._release(held.popleft())

    def _release(self, message: StartPoint | Fragment | Fin) -> None:
        self._fragments -= 1
        if isinstance(message, Fragment):
            self._bytes -= len(message.data)

    def _drop(self, waiting: Waiting) -> None:
        self._all.pop(waiting.stream.id, None)
        for message in waiting.held:
            self._release(message)
            self._counters.early_dropped += isinstance(message, Fragment)
        waiting.held.clear()
