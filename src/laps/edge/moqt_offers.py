"""What a MoQT client is told of: namespaces that it watches, and tracks offered with PUBLISH.

A track that was offered may be of no interest for now: the client has asked to hear of it with
forward 0, or has answered so. Nothing is subscribed to for it: the request stands so that it can
take the track up, and hears when nobody publishes it any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.edge.client import Watch
from laps.wire.moqt.codes import DoneCode
from laps.wire.moqt.messages import NamespaceOptions, Publish, PublishDone

if TYPE_CHECKING:
    from laps.sessions.moqt import MoqtSession
    from laps.tracks.track import Track
    from laps.types import TrackName
    from laps.wire.moqt.messages import SubscribeNamespace


class Offers:
    """The offers to one client."""

    def __init__(self, session: MoqtSession) -> None:
        self._session = session
        self._names: dict[int, TrackName] = {}
        self._ids: dict[TrackName, int] = {}

    def __len__(self) -> int:
        return len(self._names)

    def tell(self, track: Track) -> None:
        """Tell of a track, once."""
        if track.name is None or track.name in self._ids or not self._session.can_request:
            return
        request = Publish(
            0, track.name, track.alias, track.largest(), False, None, (), track.properties
        )
        self.keep(self._session.request(request), track.name)

    def keep(self, request_id: int, name: TrackName) -> None:
        """A track that was offered is not wanted for now."""
        self._names[request_id] = name
        self._ids[name] = request_id

    def take(self, request_id: int) -> TrackName | None:
        """The track of an offer, which stands no longer; None if there was none."""
        name = self._names.pop(request_id, None)
        if name is not None:
            del self._ids[name]
        return name

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._names

    def gone(self, name: TrackName) -> None:
        """Nobody publishes a track any more."""
        request_id = self._ids.get(name)
        if request_id is not None:
            self.take(request_id)
            reason = "nobody publishes it any more"
            self._session.send(PublishDone(request_id, DoneCode.TRACK_ENDED, 0, reason))

    def clear(self) -> None:
        """The client is gone."""
        self._names.clear()
        self._ids.clear()


def watch_of(message: SubscribeNamespace) -> Watch:
    """What a SUBSCRIBE_NAMESPACE asks to hear of."""
    options = message.options
    return Watch(
        message.request_id,
        message.prefix,
        namespaces=options is not NamespaceOptions.PUBLISH,
        tracks=options is not NamespaceOptions.NAMESPACE,
        forward=message.forward,
    )


def watch_no_more(watching: dict[int, Watch], prefix: tuple[bytes, ...]) -> list[int]:
    """UNSUBSCRIBE_NAMESPACE: the requests that its namespaces were told by."""
    closed = [it for it in watching.values() if it.prefix == prefix]
    for watch in closed:
        del watching[watch.request_id]
    return [told_by for it in closed for told_by in it.told.values() if told_by is not None]
