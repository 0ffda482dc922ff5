"""Push-back: a publisher is slowed to the pace of its fastest subscriber, never to a slower one.

Each connection that data goes out by says whether too much waits on it. While all those that a
publisher's tracks go to say so, the publisher is not read from: its windows close, and it waits.
One that keeps up is enough for it to go on, and then the others fall behind within their bounds.

It is for the bursts that a relay, and a path, can work off, however busy the machine. Where hardly
anything moves for a while, the subscribers are too slow for the track: the publisher goes on, and
they lose old groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.edge.client import EdgeClient
from laps.routing.forwarding import FromClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.edge.context import Context
    from laps.tracks.ports import Pressed
    from laps.tracks.track import Track

# A publisher waits this long, and again as long as meanwhile at least one of the connections has
# sent so much: 8 Mbit/s, which is little for a relay and a lot for a subscriber that is too slow.
PATIENCE_S: Final = 0.5
MOVING_BYTES: Final = 512 * 1024


class Pressure:
    """Which publishers wait."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.paused: dict[EdgeClient, float] = {}
        "And since when."
        self._impatient: set[EdgeClient] = set()
        "Those that waited for nothing: they go on until somebody keeps up again."
        self.pauses = 0

    def changed(self, client: EdgeClient, now: float) -> None:
        """A connection is pressed, or no longer."""
        publishers = {
            publisher: None
            for subscription in client.subscriptions.values()
            for publisher in _publishers(subscription.track)
        }
        for publisher in publishers:
            self.review(publisher, now)

    def changed_track(self, track: Track, now: float) -> None:
        """A track goes to somebody else, or to somebody no longer."""
        for publisher in [it for it in _publishers(track) if it in self.paused]:
            self.review(publisher, now)

    def changed_link(self, now: float) -> None:
        """The connection to a peer is pressed, or no longer."""
        for publisher in list(self._context.clients):
            if publisher.publications:
                self.review(publisher, now)

    def review(self, publisher: EdgeClient, now: float) -> None:
        """Let a publisher wait, or go on."""
        pressed = self._is_pressed(publisher)
        if not pressed:
            self._impatient.discard(publisher)
        if pressed and publisher not in self._impatient:
            if publisher not in self.paused:
                self.pauses += 1
                publisher.link.pause()
                self._wait(publisher, now)
        elif self.paused.pop(publisher, None) is not None:
            publisher.link.resume()

    def forget(self, publisher: EdgeClient) -> None:
        """A publisher is gone."""
        self.paused.pop(publisher, None)
        self._impatient.discard(publisher)

    def _wait(self, publisher: EdgeClient, now: float) -> None:
        self.paused[publisher] = now
        sent = {link: link.sent_bytes for link in self._sinks(publisher)}

        def waited(later: float) -> None:
            if self.paused.get(publisher) != now:
                return
            if any(link.sent_bytes - sent[link] >= MOVING_BYTES for link in sent):
                self._wait(publisher, later)
                return
            self._impatient.add(publisher)
            del self.paused[publisher]
            publisher.link.resume()

        self._context.at(now + PATIENCE_S, waited)

    def _sinks(self, publisher: EdgeClient) -> Iterator[Pressed]:
        """The connections that a publisher's tracks go out by."""
        relay = self._context.relay
        for publication in publisher.publications.values():
            track = relay.tracks.get(publication.key)
            for client in () if track is None else track.subscribers:
                if isinstance(client, EdgeClient):
                    yield client
            flow = relay.fib.get(FromClient(publisher, publication.key))
            for link_id, _ in [] if flow is None else flow.current():
                if (link := relay.links.links.get(link_id)) is not None:
                    yield link

    def _is_pressed(self, publisher: EdgeClient) -> bool:
        """Whether all that its tracks go to is pressed, and there is something."""
        any_sink = False
        for link in self._sinks(publisher):
            if not link.pressed:
                return False
            any_sink = True
        return any_sink


def _publishers(track: Track) -> list[EdgeClient]:
    found = (publication.publisher for publication in track.answering)
    return [publisher for publisher in found if isinstance(publisher, EdgeClient)]
