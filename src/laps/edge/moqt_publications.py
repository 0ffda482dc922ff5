"""The tracks that a MoQT client publishes, by its PUBLISH or because we subscribed to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.auth.grants import Action
from laps.edge.shares import Limit
from laps.tracks.publication import PublicationState
from laps.types import announce_info
from laps.wire.moqt.carried_subscribe import carried_subscribe
from laps.wire.moqt.codes import DoneCode, RequestCode
from laps.wire.moqt.messages import (
    DEFAULT_PRIORITY,
    UNFILTERED,
    Filter,
    FilterType,
    PublishDone,
    PublishOk,
    RequestError,
    RequestUpdate,
    Subscribe,
    Unsubscribe,
)

if TYPE_CHECKING:
    from laps.edge.client import EdgeClient
    from laps.edge.edge import Edge
    from laps.sessions.moqt import MoqtSession
    from laps.tracks.publication import Publication
    from laps.tracks.track import Track
    from laps.types import TrackHash, TrackKey, TrackName
    from laps.wire.moqt.messages import Publish, SubscribeOk


class MoqtPublications:
    """What one MoQT client publishes."""

    def __init__(self, edge: Edge, client: EdgeClient, session: MoqtSession) -> None:
        self._edge = edge
        self._client = client
        self._session = session

    def of_alias(self, alias: int) -> Publication | None:
        """What the client's streams call by an alias."""
        request_id = self._session.aliases.get(alias)
        return None if request_id is None else self._client.publications.get(request_id)

    # -- it publishes by itself --------------------------------------------------------------------

    def publish(self, message: Publish, now: float) -> bool:
        """PUBLISH; False if it is refused."""
        client, session = self._client, self._session
        track = self._edge.context.track(message.track, now)
        before = self._of(track.key)
        if before is not None and before.by_publish and before.done is None:
            session.drop_alias(message.alias, message.request_id)
            reason = "this session publishes the track already"
            client.refuse(message.request_id, RequestCode.DUPLICATE_SUBSCRIPTION, reason, now)
            return False
        if before is not None:  # our SUBSCRIBE has crossed its PUBLISH, or it publishes again
            self._forget(before, now)
            self._unsubscribe(before)
        session.move_alias(message.alias, message.request_id)
        track.cached.belongs_to(client.share.cache_owner)
        publication = track.publish(client, message.request_id)
        client.publications[message.request_id] = publication
        # One that sends at once may go on, for the cache; one that waits is told when to send.
        publication.lazy, publication.forward = not message.forward, message.forward
        track.cached.history.published_here(all_of_it=message.forward)
        self._describe(track, publication, message, now)
        publication.accepted = False
        self._edge.context.announce(client, message.track.namespace, message.track.name, now)
        publication.accepted = True
        session.send(PublishOk(message.request_id, forward=publication.forward))
        self._edge.subscribing.settle(track, now)
        return True

    def namespace_done(self, namespace: tuple[bytes, ...], now: float) -> None:
        """What is subscribed to goes on when its namespace is withdrawn: only new tracks do not."""
        relay = self._edge.relay
        for publication in self._client.publications.values():
            name = self._track(publication).name
            if publication.by_publish or publication.kept is not None or name is None:
                continue
            if name.namespace[: len(namespace)] == namespace:
                publication.kept = announce_info(relay.id, name.namespace, name.name)
                relay.announce(self._client, publication.kept, now)
        self._edge.context.unannounce(self._client, namespace, None, now)

    # -- it is asked -------------------------------------------------------------------------------

    def ask(self, track: TrackHash) -> None:
        """Somebody wants a track that the client can publish."""
        found = self._edge.relay.tracks.get(track.full_name_hash)
        publication = self._of(track.full_name_hash)
        if found is None or publication is None:
            return
        if publication.by_publish:
            self._set_forward(publication, forward=True)
        elif self._client.is_leaving:
            publication.advance(PublicationState.REFUSED)
            publication.refusal = RequestError(
                -1, RequestCode.DOES_NOT_EXIST, "its publisher is leaving"
            )
        elif found.name is not None and not self._may_publish(found.name):
            publication.advance(PublicationState.REFUSED)
            reason = "its publisher has no token for it"
            publication.refusal = RequestError(-1, RequestCode.UNAUTHORIZED, reason)
        elif not self._client.share.has_room(Limit.TRACKS):
            publication.advance(PublicationState.REFUSED)
            reason = "its publisher has as many tracks as it may have"
            publication.refusal = RequestError(-1, RequestCode.INTERNAL_ERROR, reason)
        elif found.name is not None and publication.request_id < 0:
            wanted = (it.new_group for it in found.waiting if it.new_group is not None)
            largest = Filter(FilterType.LARGEST_OBJECT)
            asked = carried_subscribe(found.subscribe_data) or Subscribe(0, found.name)
            new_group = next(wanted, asked.new_group)
            request = Subscribe(0, found.name, largest, asked.priority, new_group=new_group)
            publication.request_id = self._session.request(request)
            self._client.share.hold(publication.request_id, Limit.TRACKS)
            found.cached.belongs_to(self._client.share.cache_owner)
            self._client.publications[publication.request_id] = publication
            found.cached.history.published_here(all_of_it=False)

    def release(self, track: TrackHash) -> None:
        """Nobody wants the track any more."""
        publication = self._of(track.full_name_hash)
        if publication is None:
            return
        if publication.by_publish:
            self._set_forward(publication, forward=False)
        else:
            self._close(publication)
            self._unsubscribe(publication)

    def accepted(self, message: SubscribeOk, now: float) -> bool:
        """The client publishes what we asked for; False if we no longer want it."""
        publication = self._client.publications.get(message.request_id)
        if publication is None:
            return False
        if publication.state is PublicationState.ASKED:
            publication.advance(PublicationState.PUBLISHING)
        track = self._track(publication)
        self._describe(track, publication, message, now)
        self._edge.subscribing.settle(track, now)
        return True

    def refused(self, message: RequestError, now: float) -> None:
        """The client does not publish what we asked for."""
        publication = self._client.publications.get(message.request_id)
        if publication is not None and publication.state is PublicationState.ASKED:
            del self._client.publications[message.request_id]
            publication.advance(PublicationState.REFUSED)
            publication.refusal = message
            self._ask_again_later(publication, now)
            self._edge.subscribing.settle(self._track(publication), now)

    # -- its end -----------------------------------------------------------------------------------

    def done(self, message: PublishDone, now: float) -> None:
        """PUBLISH_DONE."""
        publication = self._client.publications.get(message.request_id)
        if publication is None:
            return
        publication.done = message
        if publication.state in (PublicationState.ASKED, PublicationState.PUBLISHING):
            publication.advance(PublicationState.ENDING)
        self._maybe_ended(publication, now)

    def malformed(self, publication: Publication, reason: str, now: float) -> None:
        """Its objects are not valid: its session is about to be closed, and the track with it."""
        track = self._track(publication)
        if track.answering == [publication]:
            done = PublishDone(0, DoneCode.MALFORMED_TRACK, reason=reason)
            self._edge.endings.malformed(track, done, now)

    def contradicted(self, publication: Publication, reason: str, now: float) -> None:
        """Its track contradicts itself: nothing more of it is wanted, and its session goes on."""
        self.malformed(publication, reason, now)
        self._stop(publication, now)

    def review(self, now: float) -> None:
        """End what the client may not publish any more; its subscribers hear that it has ended."""
        access = self._client.access
        for publication in list(self._client.publications.values()):
            track = self._track(publication)
            if track.name is None or publication.done is not None:
                continue
            action = Action.PUBLISH if publication.by_publish else Action.PUBLISH_NAMESPACE
            own = publication.request_id if publication.by_publish else None
            error = access.still(own, action, track.name.namespace, track.name.name, now)
            if error is not None:
                publication.done = PublishDone(0, DoneCode.UNAUTHORIZED, reason=str(error))
                self._stop(publication, now)
                self._edge.endings.publisher_ended(track, publication.done, now)

    def _may_publish(self, name: TrackName) -> bool:
        """Whether a track below a namespace of the client's is asked for: it may not have all."""
        return self._client.access.has(Action.PUBLISH_NAMESPACE, name.namespace, name.name)

    def _stop(self, publication: Publication, now: float) -> None:
        """Take nothing more of a track."""
        track = self._track(publication)
        self._forget(publication, now)
        if publication.request_id in self._session.incoming:  # a PUBLISH; else our own SUBSCRIBE
            self._session.send(Unsubscribe(publication.request_id))
        self._unsubscribe(publication)
        self._ask_again_later(publication, now)
        if publication.by_publish and track.name is not None:
            name = track.name
            self._edge.context.unannounce(self._client, name.namespace, name.name, now)

    def stream_opened(self, publication: Publication) -> None:
        """A stream of the track begins."""
        publication.streams += 1
        publication.open_streams += 1

    def stream_closed(self, publication: Publication, now: float) -> None:
        """A stream of the track has ended."""
        publication.open_streams -= 1
        if publication.done is not None:
            self._maybe_ended(publication, now)

    def _maybe_ended(self, publication: Publication, now: float) -> None:
        """PUBLISH_DONE may overtake the last streams: it counts them, so that we can wait.

        Some publishers count none; then a while has to do.
        """
        done = publication.done
        if done is None or publication.open_streams:
            return
        if 0 < done.stream_count <= publication.streams:
            self._ended(publication, now)
            return

        def lingered(now: float) -> None:
            if not publication.open_streams:
                self._ended(publication, now)

        self._edge.context.at(now + self._edge.settings.linger_s, lingered)

    def _ended(self, publication: Publication, now: float) -> None:
        """Nothing more comes of a track that has ended."""
        if self._client.publications.get(publication.request_id) is not publication:
            return
        track = self._track(publication)
        self._forget(publication, now)
        self._ask_again_later(publication, now)
        if publication.by_publish and track.name is not None:
            name = track.name
            self._edge.context.unannounce(self._client, name.namespace, name.name, now)
        if not self._renews(publication, now):
            self._edge.endings.publisher_ended(track, publication.done, now)

    def _renews(self, publication: Publication, now: float) -> bool:
        """Whether only our subscription has expired, and is made again: nobody need know."""
        if publication.done is None or publication.done.code != DoneCode.EXPIRED:
            return False
        publication.ask_again_at = now
        self._edge.relay.review(publication.key, now)
        return publication.state is PublicationState.ASKED

    def _ask_again_later(self, publication: Publication, now: float) -> None:
        """It may have the track another time, if it still offers it and somebody wants it then."""
        publication.back_off(now)
        if publication.wanted:
            self._edge.context.at(
                publication.ask_again_at,
                lambda now: self._edge.relay.review(publication.key, now),
            )

    # -- how it works ------------------------------------------------------------------------------

    def _of(self, key: TrackKey) -> Publication | None:
        track = self._edge.relay.tracks.get(key)
        publication = None if track is None else track.publishers.get(self._client)
        if publication is None or publication.state is PublicationState.ENDED:
            return None
        return publication

    def _track(self, publication: Publication) -> Track:
        track = self._edge.relay.tracks.get(publication.key)
        assert track is not None  # noqa: S101 - it is kept while it has publishers
        return track

    def _describe(
        self, track: Track, publication: Publication, message: Publish | SubscribeOk, now: float
    ) -> None:
        properties, largest = message.properties, message.largest
        publication.alias = message.alias
        track.describe(properties)
        if track.begins_anew(publication, largest, now):
            track.start_over()
            self._edge.endings.begun_anew(track)
        publication.largest = largest
        if properties.priority is not None:
            publication.priority = properties.priority
        publication.ttl_us = min(0xFFFFFFFF, (properties.delivery_timeout_ms or 0) * 1000)

    def _close(self, publication: Publication) -> None:
        self._client.publications.pop(publication.request_id, None)
        self._track(publication).end_publication(publication)
        if publication.alias is not None:
            self._session.drop_alias(publication.alias, publication.request_id)

    def _forget(self, publication: Publication, now: float) -> None:
        self._close(publication)
        if publication.kept is not None:
            self._edge.relay.unannounce(self._client, publication.kept, now)

    def _unsubscribe(self, publication: Publication) -> None:
        """Unless it was refused, or has ended."""
        if publication.request_id in self._session.outgoing:
            self._session.send(Unsubscribe(publication.request_id))

    def _set_forward(self, publication: Publication, *, forward: bool) -> None:
        """Tell a publisher that waits for it to send, or to stop."""
        if not publication.lazy or publication.forward is forward:
            return
        publication.forward = forward
        if publication.accepted:
            update = RequestUpdate(0, publication.request_id, UNFILTERED, DEFAULT_PRIORITY, forward)
            self._session.request(update)
