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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.edge.client import AnyClient
    from laps.edge.edge import Edge
    from laps.tracks.ports import Pressed
    from laps.tracks.track import LiveTrack

# A publisher waits this long, and again as long as meanwhile at least one of the connections has
# sent so much: 8 Mbit/s, which is little for a relay and a lot for a subscriber that is too slow.
PATIENCE_S: Final = 0.5
MOVING_BYTES: Final = 512 * 1024


class Pressure:
    """Which publishers wait."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self.paused: dict[AnyClient, float] = {}
        "And since when."
        self._impatient: set[AnyClient] = set()
        "Those that waited in vain: they go on until somebody keeps up again."
        self.pauses = 0

    def changed(self, client: AnyClient, now: float) -> None:
        """A connection is pressed, or no longer."""
        publishers = {
            publisher: None
            for delivery in client.subscriptions.values()
            for publisher in self._edge.sources(delivery.track)
        }
        for publisher in publishers:
            self.review(publisher, now)

    def changed_track(self, track: LiveTrack, now: float) -> None:
        """A track goes to somebody else, or to somebody no longer."""
        for publisher in [p for p in self._edge.sources(track) if p in self.paused]:
            self.review(publisher, now)

    def changed_link(self, now: float) -> None:
        """The connection to a peer is pressed, or no longer."""
        for publisher in list(self._edge.clients):
            if publisher.sources:
                self.review(publisher, now)

    def review(self, publisher: AnyClient, now: float) -> None:
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

    def forget(self, publisher: AnyClient) -> None:
        """A publisher is gone."""
        self.paused.pop(publisher, None)
        self._impatient.discard(publisher)

    def _wait(self, publisher: AnyClient, now: float) -> None:
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

        self._edge.at(now + PATIENCE_S, waited)

    def _sinks(self, publisher: AnyClient) -> Iterator[Pressed]:
        for source in publisher.sources.values():
            yield from self._edge.sinks(publisher, source.track)

    def _is_pressed(self, publisher: AnyClient) -> bool:
        """Whether all that its tracks go to is pressed, and there is something."""
        any_sink = False
        for link in self._sinks(publisher):
            if not link.pressed:
                return False
            any_sink = True
        return any_sink
