"""Our own tracks on one channel: offered to the relay, and what it asks about them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from laps.client.outflow import Outflow
from laps.client.tokens import refused
from laps.names import namespace_text, track_text
from laps.ranges import end_after, last_of
from laps.types import Location
from laps.wire.moqt.codes import RequestCode, ResetCode
from laps.wire.moqt.data import FetchHeader, encode_fetch_header
from laps.wire.moqt.fetch import EndOfRange, FetchWriter
from laps.wire.moqt.messages import (
    Fetch,
    FetchOk,
    GroupOrder,
    JoiningFetch,
    Publish,
    PublishNamespace,
    PublishNamespaceCancel,
    PublishNamespaceDone,
    PublishOk,
    RequestError,
    RequestOk,
    RequestUpdate,
    Subscribe,
    SubscribeOk,
    TrackStatus,
)
from laps.wire.moqt.objects import Object as WireObject
from laps.wire.moqt.translate import encode_extensions

if TYPE_CHECKING:
    from laps.client.channel import Channel
    from laps.client.history import Entry
    from laps.client.track import Track
    from laps.names import Namespace
    from laps.net.egress import EgressStream
    from laps.sessions.requests import Answer
    from laps.types import TrackName


# A relay that does not take PUBLISH, or not now, may still SUBSCRIBE.
_WAITS = (RequestCode.NOT_SUPPORTED, RequestCode.UNINTERESTED)


class Outbound:
    """What a channel offers."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.tracks: dict[TrackName, Track] = {}
        self.outflows: dict[TrackName, Outflow] = {}
        "Those that the relay has a subscription to."
        self._by_request: dict[int, Outflow] = {}
        self._namespaces: dict[Namespace, int] = {}
        "Those that were published, and the requests they were by."
        self._serving: dict[int, asyncio.Task[None]] = {}
        self._aliases = 0

    # -- offering ----------------------------------------------------------------------------------

    def offer(self, track: Track, *, push: bool, forward: bool) -> None:
        """Tell the relay of a track; with `push` it is sent without being asked for.

        It is one request: a relay that takes a track knows its namespace. One that does not take
        it, or does not answer, is told of the namespace, too.
        """
        name = track.full_name
        self.tracks[name] = track
        if push:
            alias = self._alias()
            history = track.history
            message = Publish(
                0,
                name,
                alias,
                history.largest,
                forward,
                properties=track.properties,
                tokens=track.token.in_moqt,
            )
            request_id = self.channel.request(message, self._publish_answered)
            outflow = self._add(track, request_id, alias)
            outflow.forward = forward
        else:
            self._offer_namespace(track)

    def _offer_namespace(self, track: Track) -> None:
        namespace = track.full_name.namespace
        if namespace not in self._namespaces:
            self._namespaces[namespace] = self.channel.request(
                PublishNamespace(0, namespace, track.token.in_moqt),
                lambda answer: self._namespace_answered(namespace, answer),
            )

    def _alias(self) -> int:
        self._aliases += 1
        return self._aliases

    def _add(self, track: Track, request_id: int, alias: int) -> Outflow:
        outflow = Outflow(self.channel, track, request_id, alias)
        self.outflows[track.full_name] = outflow
        self._by_request[request_id] = outflow
        track.flows.append(outflow)
        return outflow

    def _publish_answered(self, answer: Answer) -> None:
        outflow = self._by_request.get(answer.request_id)
        if outflow is None:
            return
        outflow.answered = True
        if isinstance(answer, PublishOk):
            outflow.apply(answer.filter, answer.forward, None)
            outflow.track.changed()
            if answer.new_group is not None:
                outflow.track.wants_new_group(answer.new_group)
        elif isinstance(answer, RequestError):
            self._drop(outflow)
            outflow.give_up()
            if self._is_left:
                pass  # it is published elsewhere
            elif answer.code in _WAITS:
                self._offer_namespace(outflow.track)
            else:
                what = f"publishing {track_text(outflow.track.full_name)}"
                outflow.track.fail(refused(what, answer.code, answer.reason))
            outflow.track.changed()

    def _namespace_answered(self, namespace: Namespace, answer: Answer) -> None:
        if not isinstance(answer, RequestError) or self._is_left:
            return
        for name, track in self.tracks.items():
            # Where the relay takes the track itself, it need not take the namespace.
            if name.namespace == namespace and name not in self.outflows:
                what = f"publishing the namespace {namespace_text(namespace)}"
                track.fail(refused(what, answer.code, answer.reason))

    def withdraw(self, track: Track) -> None:
        """A track is over, and with the last one its namespace."""
        name = track.full_name
        if self.tracks.get(name) is track:
            del self.tracks[name]
        outflow = self.outflows.get(name)
        if outflow is not None and outflow.track is track:
            self._drop(outflow)
        namespace = name.namespace
        if not any(other.namespace == namespace for other in self.tracks):
            request_id = self._namespaces.pop(namespace, None)
            if request_id is not None and self.channel.alive:
                self.channel.session.send(PublishNamespaceDone(request_id, namespace))

    def _drop(self, outflow: Outflow) -> None:
        if self.outflows.get(outflow.track.full_name) is outflow:
            del self.outflows[outflow.track.full_name]
        self._by_request.pop(outflow.request_id, None)
        if outflow in outflow.track.flows:
            outflow.track.flows.remove(outflow)

    # -- asked -------------------------------------------------------------------------------------

    def take(
        self,
        message: Subscribe | Fetch | TrackStatus | RequestUpdate | PublishNamespaceCancel,
    ) -> None:
        """The relay asks for something."""
        match message:
            case Subscribe():
                self._subscribe(message)
            case Fetch():
                self._fetch(message)
            case TrackStatus(request_id, name):
                track = self.tracks.get(name)
                if track is None:
                    self._unknown(request_id)
                else:
                    answer = RequestOk(
                        request_id, largest=track.history.largest, properties=track.properties
                    )
                    self.channel.session.send(answer)
            case RequestUpdate():
                self._update(message)
            case PublishNamespaceCancel(code, reason, _, namespace) if namespace is not None:
                cancelled = RequestError(-1, code, reason)
                self._namespaces.pop(namespace, None)
                self._namespace_answered(namespace, cancelled)

    def _unknown(self, request_id: int) -> None:
        self.channel.refuse(request_id, RequestCode.DOES_NOT_EXIST, "it is not published here")

    def _subscribe(self, message: Subscribe) -> None:
        track = self.tracks.get(message.track)
        if track is None:
            self._unknown(message.request_id)
            return
        if message.track in self.outflows:
            reason = "there is a subscription to the track already"
            self.channel.refuse(message.request_id, RequestCode.DUPLICATE_SUBSCRIPTION, reason)
            return
        alias, largest = self._alias(), track.history.largest
        outflow = self._add(track, message.request_id, alias)
        outflow.answered = True
        outflow.apply(message.filter, message.forward, largest)
        self.channel.session.send(
            SubscribeOk(message.request_id, alias, largest, properties=track.properties)
        )
        if message.new_group is not None:
            track.wants_new_group(message.new_group)
        track.changed()

    def _update(self, message: RequestUpdate) -> None:
        outflow = self._by_request.get(message.existing_id)
        largest = None
        if outflow is not None:
            largest = outflow.track.history.largest
            outflow.apply(message.filter, message.forward, largest)
            if message.new_group is not None:
                outflow.track.wants_new_group(message.new_group)
            outflow.track.changed()
        self.channel.session.send(RequestOk(message.request_id, largest=largest))

    def withdrawn(self, request_id: int) -> None:
        """The relay no longer wants a subscription, or a fetch."""
        task = self._serving.pop(request_id, None)
        if task is not None:
            task.cancel()
        outflow = self._by_request.get(request_id)
        if outflow is not None:
            outflow.give_up()
            self._drop(outflow)
            if outflow.track.full_name in self.tracks and not self._is_left:
                # What it knew of the track went with the request: it may want it again.
                self._offer_namespace(outflow.track)
            outflow.track.changed()

    # -- fetches -----------------------------------------------------------------------------------

    def _fetch(self, message: Fetch) -> None:
        wanted = message.range
        if isinstance(wanted, JoiningFetch):
            outflow = self._by_request.get(wanted.joining_id)
            if outflow is None:
                reason = f"request {wanted.joining_id} is no subscription"
                code = RequestCode.INVALID_JOINING_REQUEST_ID
                self.channel.refuse(message.request_id, code, reason)
                return
            track: Track | None = outflow.track
            # What the subscription was told of as the largest ends where it begins.
            end = outflow.start
            group = end.group - wanted.start if wanted.relative else wanted.start
            start = Location(max(0, group), 0)
        else:
            track, start, end = self.tracks.get(wanted.track), wanted.start, wanted.end
        if track is None:
            self._unknown(message.request_id)
            return
        largest = track.history.largest
        if largest is None or start > largest or last_of(end) < start:
            come = "nothing" if largest is None else f"group {largest.group}"
            reason = f"the track has come to {come}"
            self.channel.refuse(message.request_id, RequestCode.INVALID_RANGE, reason)
            return
        last = min(last_of(end), largest)
        if last_of(end) > largest:
            end = end_after(largest)
        order = message.order or GroupOrder.ASCENDING
        descending = order is GroupOrder.DESCENDING
        at_end = track.ended and last == largest
        self.channel.session.send(FetchOk(message.request_id, end, at_end, order, track.properties))
        stream = self.channel.egress.open((track.priority, 0, 0, -1 - message.request_id, 0, 0))
        self.channel.streams_begun += 1
        stream.write(encode_fetch_header(FetchHeader(message.request_id)))
        entries = track.history.between(start, last, descending=descending)
        task = asyncio.ensure_future(
            self._serve(message.request_id, stream, track, entries, start, descending)
        )
        self._serving[message.request_id] = task

    async def _serve(
        self,
        request_id: int,
        stream: EgressStream,
        track: Track,
        entries: list[Entry],
        start: Location,
        descending: bool,
    ) -> None:
        dialect = self.channel.dialect
        writer = FetchWriter(dialect, track.priority)
        gone = track.history.dropped_up_to
        marks = dialect.marks_unknown_ranges and not descending
        try:
            if marks and gone is not None and start <= gone:
                stream.write(writer.encode(EndOfRange(gone.group, gone.object, unknown=True)))
            for entry in entries:
                await self.channel.room()
                if stream.over:
                    return
                stream.write(
                    writer.encode(
                        WireObject(
                            entry.group,
                            entry.subgroup,
                            entry.id,
                            entry.priority,
                            entry.status,
                            encode_extensions(entry.extensions, dialect),
                            entry.payload,
                            datagram=entry.subgroup is None,
                        )
                    )
                )
            stream.finish()
        except asyncio.CancelledError:
            if not stream.over and self.channel.alive:
                stream.reset(ResetCode.CANCELLED)
            raise
        finally:
            self._serving.pop(request_id, None)
            self.channel.session.finish(request_id)

    # -- time, and the end -------------------------------------------------------------------------

    def tick(self) -> None:
        """About once a second."""
        for outflow in self.outflows.values():
            outflow.arrivals.mark(outflow.track.history.sequence)
            if not outflow.answered:
                if outflow.overdue and self.channel.may_publish():
                    self._offer_namespace(outflow.track)
                outflow.overdue = True

    @property
    def _is_left(self) -> bool:
        """Whether all tracks have another channel to go to: what is refused here is not."""
        return self.channel.superseded.is_set()

    @property
    def idle(self) -> bool:
        """Whether nothing of ours is open on the channel."""
        return not self.outflows and not self._serving

    def closed(self) -> None:
        """The connection is over."""
        for task in self._serving.values():
            task.cancel()
        for outflow in list(self.outflows.values()):
            outflow.track.lost(outflow)
            self._drop(outflow)
        self.tracks.clear()
