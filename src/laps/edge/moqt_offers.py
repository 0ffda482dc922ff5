"""Tracks that a client was told of with PUBLISH, and of which it wants no objects, for now.

It has asked to hear of them with forward 0, or has answered so. Nothing is subscribed to for it:
the request stands so that it can take the track up, and hears when nobody publishes it any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.wire.moqt.codes import DoneCode
from laps.wire.moqt.messages import Publish, PublishDone

if TYPE_CHECKING:
    from laps.sessions.moqt import MoqtSession
    from laps.tracks.track import LiveTrack
    from laps.types import TrackName


class Offers:
    """The offers to one client."""

    def __init__(self, session: MoqtSession) -> None:
        self._session = session
        self._requests: dict[int, LiveTrack] = {}
        self._ids: dict[TrackName, int] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def tell(self, track: LiveTrack) -> None:
        """Tell of a track, once."""
        if track.name is None or track.name in self._ids or not self._session.can_request:
            return
        request = Publish(
            0, track.name, track.alias, track.largest(), False, None, (), track.properties
        )
        self.keep(self._session.request(request), track)

    def keep(self, request_id: int, track: LiveTrack) -> None:
        """A track that was offered is not wanted for now."""
        if track.name is not None:
            self._requests[request_id] = track
            self._ids[track.name] = request_id

    def take(self, request_id: int) -> LiveTrack | None:
        """The track of an offer, which stands no longer; None if there was none."""
        track = self._requests.pop(request_id, None)
        if track is not None and track.name is not None:
            del self._ids[track.name]
        return track

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._requests

    def gone(self, name: TrackName) -> None:
        """Nobody publishes a track any more."""
        request_id = self._ids.get(name)
        if request_id is not None:
            self.take(request_id)
            reason = "nobody publishes it any more"
            self._session.send(PublishDone(request_id, DoneCode.TRACK_ENDED, 0, reason))

    def clear(self) -> None:
        """The client is gone."""
        self._requests.clear()
        self._ids.clear()
