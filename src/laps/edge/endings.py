"""How tracks end: subscribers hear of it after the last publisher, and after its last stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.edge.client import EdgeClient, EdgeSubscription
from laps.relay.stub import StubClient
from laps.types import hash_track
from laps.wire.moqt.codes import DoneCode
from laps.wire.moqt.messages import Publish, PublishDone

if TYPE_CHECKING:
    from laps.edge.context import Context
    from laps.edge.relay_queries import RelayQueries
    from laps.tracks.subscription import Subscriber
    from laps.tracks.track import Track
    from laps.types import NodeId, TrackName


# A relay that is dead is known to be so within this time, wherever it is; so long is it looked for
# whether another publisher of an ended track is still there.
LOOKS_S: Final = 5.0
LOOK_S: Final = 0.5


class Endings:
    """Tells subscribers, and relays with subscribers, that tracks have ended."""

    def __init__(self, context: Context, queries: RelayQueries) -> None:
        self._context = context
        self._queries = queries

    def publisher_ended(self, track: Track, done: PublishDone | None, now: float) -> None:
        """A publisher has ended a track: so it is for subscribers, if it was the last.

        Other relays look for themselves whether there is another publisher: one that we know of
        may be at a relay that is dead, and then nobody else tells them.
        """
        if track.answering:
            return
        if done is None:
            done = PublishDone(0, DoneCode.TRACK_ENDED)
        self._tell_relays(track, PublishDone(0, done.code, reason=done.reason))
        self._end_if_last(track, done, self._context.relay.id, _subscribers(track), now)

    def malformed(self, track: Track, done: PublishDone, now: float) -> None:
        """The only publisher of a track here sends what is not valid."""
        if not self._context.elsewhere(track):
            for client in list(self._context.clients):
                for serving in list(client.serving.values()):
                    serving.malformed(track, done.reason, now)
            self._tell_relays(track, done)
            self.end_track(track, done.code, done.reason, now)

    def ended_elsewhere(
        self, name: TrackName, done: PublishDone, source: NodeId, now: float
    ) -> None:
        """Another relay says that a track has ended; its last streams may arrive after that."""
        track = self._context.relay.tracks.get(hash_track(name).full_name_hash)
        if track is None:
            return
        peer = self._context.relay.peers.get(source)
        if peer is not None and peer.is_stub:
            self._tell_relays(track, done)  # to them it is a track of ours
        # Who comes meanwhile has asked for what its publisher may begin again.
        subscribers = _subscribers(track)
        self._context.at(
            now + self._context.settings.hold_s,
            lambda now: self._end_if_last(track, done, source, subscribers, now),
        )

    def _end_if_last(
        self,
        track: Track,
        done: PublishDone,
        source: NodeId,
        subscribers: frozenset[Subscriber],
        now: float,
        until: float | None = None,
    ) -> None:
        """End a track, unless it has another publisher; who is not heard of any more is none."""
        until = now + LOOKS_S if until is None else until
        if track.answering:
            return
        if all(node_id == source for node_id in self._context.elsewhere(track)):
            self._end(track, done.code, done.reason, subscribers, now)
        elif now < until:
            self._context.at(
                now + LOOK_S,
                lambda now: self._end_if_last(track, done, source, subscribers, now, until),
            )

    def begun_anew(self, track: Track) -> None:
        """A publisher here has begun a track anew: relays with subscribers are told."""
        if track.name is not None:
            self._tell_relays(track, Publish(0, track.name, track.alias))

    def begun_anew_elsewhere(self, name: TrackName) -> None:
        """Another relay says that a publisher has begun a track anew."""
        track = self._context.relay.tracks.get(hash_track(name).full_name_hash)
        if track is not None and not track.answering:
            track.start_over()
            if any(isinstance(client, StubClient) for client in track.subscribers):
                self._tell_stubs(track, Publish(0, name, track.alias))

    def end_track(self, track: Track, code: int, reason: str, now: float) -> None:
        """Tell the subscribers of a track, when the last of its streams is closed."""
        self._end(track, code, reason, _subscribers(track), now)

    def _end(
        self,
        track: Track,
        code: int,
        reason: str,
        subscribers: frozenset[Subscriber],
        now: float,
    ) -> None:
        self._tell_stubs(track, PublishDone(0, code, reason=reason))
        if track.ending is None:
            track.ending = (code, reason, subscribers)
        self.streams_closed(track, now)

    def streams_closed(self, track: Track, now: float) -> None:
        """No stream of a track that has ended may be open any more."""
        if track.ending is None or track.streams:
            return
        (code, reason, subscribers), track.ending = track.ending, None
        for client, subscription in list(track.subscribers.items()):
            # A subscription that waits for a publisher goes on waiting.
            if (
                isinstance(client, EdgeClient)
                and isinstance(subscription, EdgeSubscription)
                and subscription in subscribers
                and client.subscriptions.get(track.key) is subscription
                and not subscription.is_unanswered
            ):
                client.end(subscription, code, reason, now)

    def _tell_stubs(self, track: Track, news: PublishDone | Publish) -> None:
        """Tell the Stubs that subscribe what has become of a track."""
        stubs = [it.peer.node_id for it in track.subscribers if isinstance(it, StubClient)]
        if track.name is not None:
            self._queries.tell(track.name, stubs, news)

    def _tell_relays(self, track: Track, news: PublishDone | Publish) -> None:
        """Tell the relays with subscribers that a track of ours has ended, or begun anew."""
        relay = self._context.relay
        nodes = [node_id for node_id in relay.subscribes.sources(track.key) if node_id != relay.id]
        if track.name is not None:
            self._queries.tell(track.name, nodes, news)


def _subscribers(track: Track) -> frozenset[Subscriber]:
    return frozenset(track.subscribers.values())
