"""Tracks that come and go below a prefix, as an application hears of them.

A relay offers each with PUBLISH. It is accepted with forward 0: no object is sent for it, and its
end is told with PUBLISH_DONE. Who wants the objects subscribes to the track.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from laps.client.values import TrackEvent
from laps.client.watching import Watching
from laps.errors import RequestRefused
from laps.types import TrackName
from laps.wire.moqt.messages import NamespaceOptions, TrackStatus, Unsubscribe

if TYPE_CHECKING:
    from laps.client.channel import Channel
    from laps.client.session import Session
    from laps.names import Namespace

# Nobody publishes it, so that a relay knows the answer; it comes behind all that was said before.
_NOTHING: Final = TrackName((b"laps", b"nothing"), b"nothing")


class Tracks(Watching[TrackName, TrackEvent]):
    """What `Session.tracks` returns: an asynchronous iterator of events."""

    options = NamespaceOptions.PUBLISH
    things = "tracks"

    def __init__(self, session: Session, prefix: Namespace) -> None:
        self._listed = asyncio.Event()
        super().__init__(session, prefix)

    @property
    def known(self) -> tuple[TrackName, ...]:
        """The tracks that are there now."""
        return tuple(self._known)

    async def listed(self) -> None:
        """Wait until the relay has told of all tracks that it knew when it was asked."""
        listed = asyncio.ensure_future(self._listed.wait())
        try:
            await asyncio.wait((listed, self._task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            listed.cancel()
        if not self._listed.is_set() and self._error is not None:
            raise self._error

    def _event(self, key: TrackName, added: bool) -> TrackEvent:
        return TrackEvent(key, added)

    def _attach(self, channel: Channel) -> None:
        channel.offers.append(self._told)

    def _detach(self, channel: Channel) -> None:
        channel.offers.remove(self._told)
        if channel.alive:
            for request_id, track in list(channel.offered.items()):
                if self._is_below(track):
                    del channel.offered[request_id]
                    channel.session.send(Unsubscribe(request_id))

    async def _accepted(self, channel: Channel) -> None:
        with suppress(RequestRefused):
            await channel.ask(TrackStatus(0, _NOTHING), "nothing")
        self._listed.set()

    def _told(self, track: TrackName, added: bool) -> bool:
        """A track was offered, or is gone; whether that is of interest."""
        if not self._is_below(track):
            return False
        self._changed(track, added)
        return True

    def _is_below(self, track: TrackName) -> bool:
        return track.namespace[: len(self.prefix)] == self.prefix
