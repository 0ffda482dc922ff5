"""Push-back: a publisher waits for those who read what it sends, and not for those who do not.

Each connection that data goes out by says whether too much waits on it. While all those that a
publisher's tracks go to say so, the publisher is not read from: its windows close, and it waits.
One that keeps up is enough for it to go on, and then the others fall behind within their bounds.

Before one of them has to drop something, it is waited for as well, if it reads: it may have had
less of the processor than the others, and takes what waits for it as soon as it has its turn.

It is for the bursts that a relay, and a path, can work off, however busy the machine. Where hardly
anything moves for a while, the subscriber is too slow for the track: the publisher goes on, and
the subscriber loses old groups.
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

# A publisher waits this long, and again as long as meanwhile at least one of the connections, or
# the one that it waits for, has sent so much: 8 Mbit/s, which is little for a relay and a lot for a
# subscriber that is too slow.
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
        self._pressed: dict[Pressed, tuple[float, int]] = {}
        "Since when connections have been pressed, and what they had sent by then."
        self._slow: set[Pressed] = set()
        "Those that were waited for and hardly moved: until nothing presses on them, nobody waits."
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
        if self._has_to_wait(publisher, now):
            if publisher not in self.paused:
                self.pauses += 1
                publisher.link.pause()
                self._wait(publisher, now)
        elif self.paused.pop(publisher, None) is not None:
            publisher.link.resume()

    def forget(self, client: EdgeClient) -> None:
        """A client is gone."""
        self.paused.pop(client, None)
        self._impatient.discard(client)
        self._ease(client)

    def _ease(self, sink: Pressed) -> None:
        self._pressed.pop(sink, None)
        self._slow.discard(sink)

    def _wait(self, publisher: EdgeClient, now: float) -> None:
        self.paused[publisher] = now
        sent = {link: link.sent_bytes for link in self._sinks(publisher)}

        def waited(later: float) -> None:
            if self.paused.get(publisher) != now:
                return
            stuck = {link for link in sent if link.sent_bytes - sent[link] < MOVING_BYTES}
            self._slow.update(link for link in stuck if link in self._pressed)
            if len(stuck) == len(sent):
                self._impatient.add(publisher)
            if self._has_to_wait(publisher, later):
                self._wait(publisher, later)
            else:
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

    def _has_to_wait(self, publisher: EdgeClient, now: float) -> bool:
        """Whether all that its tracks go to is pressed, or one that reads is about to lose."""
        sinks = list(self._sinks(publisher))
        for sink in sinks:
            if not sink.pressed:
                self._ease(sink)
            elif sink not in self._pressed:
                self._pressed[sink] = now, sink.sent_bytes
        if not sinks or any(not sink.pressed for sink in sinks):
            self._impatient.discard(publisher)
        elif publisher not in self._impatient:
            return True
        return any(sink.crowded and self._reads(sink, now) for sink in sinks)

    def _reads(self, sink: Pressed, now: float) -> bool:
        """Whether a connection that is pressed has moved since, as far as it had the time."""
        if sink in self._slow or sink not in self._pressed:
            return False
        since, sent = self._pressed[sink]
        turns = int((now - since) / PATIENCE_S)
        return sink.sent_bytes - sent >= turns * MOVING_BYTES


def _publishers(track: Track) -> list[EdgeClient]:
    found = (publication.publisher for publication in track.answering)
    return [publisher for publisher in found if isinstance(publisher, EdgeClient)]
