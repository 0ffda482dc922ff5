"""A session with a relay, as an application holds it: it outlives the connections it is made of."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final, Self

from laps.client.fetching import Fetching
from laps.client.names import namespace_of, show_track, track_of
from laps.client.namespaces import Namespaces
from laps.client.subscription import Subscription
from laps.client.track import Track
from laps.client.urls import parse_url
from laps.client.values import TrackInfo
from laps.errors import ConfigError, LapsError, SessionClosed
from laps.types import Location
from laps.wire.buffer import VARINT_MAX
from laps.wire.moqt.messages import (
    DEFAULT_PRIORITY,
    GroupOrder,
    RequestOk,
    TrackProperties,
    TrackStatus,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laps.client.channel import Channel
    from laps.client.dialling import Dialler
    from laps.client.names import NamespaceLike
    from laps.client.subscription import Start
    from laps.client.urls import Target
    from laps.wire.moqt.messages import Goaway, KeyValue

log = logging.getLogger(__name__)

MIB: Final = 1024 * 1024

# The first redial comes soon, later ones less often.
REDIAL_FIRST_S: Final = 0.1
REDIAL_MOST_S: Final = 5.0

# A relay that sends us away again within this time is left less quickly.
MOVE_S: Final = 1.0

# What is left on a relay that we have left may take this long.
RETIRE_S: Final = 30.0


class Session:
    """A session with a relay; `laps.connect` makes it."""

    def __init__(
        self, dialler: Dialler, target: Target, channel: Channel, *, reconnect_s: float
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.url = target.url
        self._dialler = dialler
        self._target = target
        self._reconnect_s = reconnect_s
        self._channel: Channel | None = channel
        self._arrived = asyncio.Event()
        self._arrived.set()
        self._error: SessionClosed | None = None
        self._tracks: list[Track] = []
        self._readers: set[Subscription | Namespaces] = set()
        self._retiring: set[asyncio.Task[None]] = set()
        self._moved_at = -MOVE_S
        self._hurried = 0
        self._keeper = asyncio.ensure_future(self._keep(channel))

    # -- publishing --------------------------------------------------------------------------------

    async def publish(
        self,
        namespace: NamespaceLike,
        name: str | bytes,
        *,
        priority: int = DEFAULT_PRIORITY,
        order: GroupOrder = GroupOrder.PUBLISHERS,
        delivery_timeout_s: float | None = None,
        cache_s: float | None = None,
        dynamic_groups: bool = False,
        on_new_group: Callable[[int], None] | None = None,
        extensions: Sequence[KeyValue] = (),
        first_group: int | None = None,
        history_bytes: int = 16 * MIB,
        push: bool = True,
        forward: bool = True,
    ) -> Track:
        """Publish a track.

            track = await session.publish("demo/clock", "seconds")
            await track.write(b"12:00:00", new_group=True)
            await track.end()

        `priority` is from 0, the most urgent, to 255. Objects older than `delivery_timeout_s` are
        not sent any more, and relays keep them for `cache_s` at most. With `dynamic_groups`
        subscribers may ask for a new group: `on_new_group` is called, and `new_group_wanted` set.

        Groups count from `first_group`, and from the time of day where it is not said, so that a
        publisher that is started again goes on behind what relays have of it. The last
        `history_bytes` of what was written are kept for relays that ask for it.

        With `push` the relay is sent objects without having asked, as fits most; without, it is
        told of the namespace only and has to subscribe. With `forward=False` nothing is sent until
        the relay wants it: `Track.wait_wanted`.
        """
        full_name = track_of(namespace, name)
        if any(track.full_name == full_name for track in self._tracks):
            raise ConfigError(f"{show_track(full_name)} is published by this session already")
        properties = TrackProperties(
            delivery_timeout_ms=_milliseconds(delivery_timeout_s),
            max_cache_ms=_milliseconds(cache_s),
            priority=None if priority == DEFAULT_PRIORITY else priority,
            order=order,
            dynamic_groups=dynamic_groups,
            extensions=tuple(extensions),
        )
        track = Track(
            self,
            full_name,
            properties=properties,
            priority=priority,
            push=push,
            forward=forward,
            first_group=first_group,
            history_bytes=history_bytes,
            on_new_group=on_new_group,
        )
        channel = await self.channel()
        self._tracks.append(track)
        track.attach(channel)
        return track

    # -- reading -----------------------------------------------------------------------------------

    def subscribe(
        self,
        namespace: NamespaceLike,
        name: str | bytes,
        *,
        start: Start = "latest",
        ordered: bool = True,
        patience_s: float = 1.0,
        wait: bool = True,
        priority: int = DEFAULT_PRIORITY,
        buffer_bytes: int = 8 * MIB,
        markers: bool = False,
    ) -> Subscription:
        """The objects of a track as they are published.

            async for obj in session.subscribe("demo/clock", "seconds", start="start"):
                print(obj.group, obj.id, obj.payload)

        `start` is `latest`, behind the last object there is; `next`, with the next group;
        `current`, with the group that is being published; `start`, with all that relays still have;
        or a location (group, object).

        Groups come in ascending order unless `ordered=False`, and none is waited for longer than
        `patience_s`. With `wait` the track may be published later; without, RequestRefused is
        raised if nobody does now. Up to `buffer_bytes` are held for you: then nothing more is read
        from the relay until you have taken some. `markers` also yields objects without payload
        that mark the end of a group or of the track.
        """
        made = Subscription(
            self,
            track_of(namespace, name),
            start,
            ordered=ordered,
            patience_s=patience_s,
            wait=wait,
            priority=priority,
            buffer_bytes=buffer_bytes,
            markers=markers,
        )
        self._readers.add(made)
        return made

    def fetch(
        self,
        namespace: NamespaceLike,
        name: str | bytes,
        *,
        start: Location | tuple[int, int] = (0, 0),
        end: Location | tuple[int, int] | None = None,
        descending: bool = False,
        buffer_bytes: int = 8 * MIB,
    ) -> Fetching:
        """Objects that have been published, in order.

            objects = [obj async for obj in session.fetch("demo/clock", "seconds", end=(5, 0))]

        `end` is one past the last object; an object of 0 means all of the group, and None all that
        there is. RequestRefused is raised if there is nothing.
        """
        last = Location(VARINT_MAX - 1, 0) if end is None else Location(*end)
        return Fetching(
            self,
            track_of(namespace, name),
            Location(*start),
            last,
            descending=descending,
            buffer_bytes=buffer_bytes,
        )

    def namespaces(self, prefix: NamespaceLike = "") -> Namespaces:
        """The namespaces below a prefix, as they come and go.

        async for event in session.namespaces("demo"):
            print(event, "is there" if event.added else "is gone")
        """
        made = Namespaces(self, namespace_of(prefix, prefix=True))
        self._readers.add(made)
        return made

    async def track_status(self, namespace: NamespaceLike, name: str | bytes) -> TrackInfo:
        """How far a track has come; RequestRefused if nobody publishes it."""
        track = track_of(namespace, name)
        channel = await self.channel()
        answer = await channel.ask(TrackStatus(0, track), f"the status of {show_track(track)}")
        if not isinstance(answer, RequestOk):
            raise LapsError(f"{type(answer).__name__} in answer to TRACK_STATUS")
        return TrackInfo(answer.largest, answer.properties)

    # -- the session itself ------------------------------------------------------------------------

    @property
    def draft(self) -> int:
        """The draft of MoQT that is spoken with the relay now; 0 while there is none."""
        return 0 if self._channel is None else self._channel.dialect.draft

    @property
    def connected(self) -> bool:
        """Whether there is a relay at the other end now."""
        return self._channel is not None and self._channel.alive

    @property
    def may_return(self) -> bool:
        """Whether a lost connection is dialled again."""
        return self._error is None and self._reconnect_s > 0

    async def channel(self) -> Channel:
        """The connection that is in use, or the next one; SessionClosed if none will be."""
        while True:
            if self._error is not None:
                raise self._error
            channel = self._channel
            if channel is not None and channel.alive:
                return channel
            self._arrived.clear()
            await self._arrived.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(end_tracks=kind is None)

    async def close(self, *, end_tracks: bool = True) -> None:
        """End the session; tracks are ended first, so that subscribers have all of them."""
        try:
            if end_tracks:
                for track in list(self._tracks):
                    if not track.failed:
                        await track.end()
        finally:
            self._keeper.cancel()
            self._finish(SessionClosed("the session was closed"))
            for task in self._retiring:
                task.cancel()
            if self._channel is not None:
                self._channel.close()
            await self._dialler.close()

    def dropped(self, member: Track | Subscription | Namespaces) -> None:
        """Something is over."""
        if isinstance(member, Track):
            if member in self._tracks:
                self._tracks.remove(member)
        else:
            self._readers.discard(member)

    def _finish(self, error: SessionClosed) -> None:
        if self._error is None:
            self._error = error
            self._arrived.set()
            for track in list(self._tracks):
                track.fail(error)

    # -- keeping it --------------------------------------------------------------------------------

    async def _keep(self, channel: Channel) -> None:
        """Have a channel, and another one when it is over or its relay leaves."""
        try:
            while True:
                goaway = await self._wait(channel)
                if goaway is not None and self._reconnect_s > 0:
                    channel = await self._move(channel, goaway)
                    continue
                await asyncio.shield(channel.over)
                why = channel.why_closed()
                if self._reconnect_s <= 0:
                    raise why
                log.info("%s; dialling again", why)
                self._channel = None
                channel = await self._redial(why)
                self._adopt(channel)
        except SessionClosed as error:
            self._finish(error)
        except LapsError as error:
            self._finish(SessionClosed(str(error)))

    async def _wait(self, channel: Channel) -> Goaway | None:
        """The relay's word that it leaves; None if the channel is over without it."""
        await asyncio.wait((channel.leaving, channel.over), return_when=asyncio.FIRST_COMPLETED)
        if channel.leaving.done() and not channel.leaving.cancelled():
            return channel.leaving.result()
        return None

    async def _move(self, old: Channel, goaway: Goaway) -> Channel:
        """To where the relay sends us; the old channel serves meanwhile."""
        if goaway.uri:
            self._target = parse_url(goaway.uri.decode("utf-8", "replace"))
        log.info("the relay leaves; dialling %s", self._target.url)
        # One that says so to whoever comes is about to stop: it is given time to.
        self._hurried = self._hurried + 1 if self.loop.time() < self._moved_at + MOVE_S else 0
        if self._hurried:
            wait = min(REDIAL_FIRST_S * 2**self._hurried, MOVE_S)
            await asyncio.wait((old.over,), timeout=wait)
        new = await self._redial(None)
        self._moved_at = self.loop.time()
        self._adopt(new)
        old.superseded.set()
        task = asyncio.ensure_future(self._retire(old))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        return new

    async def _retire(self, channel: Channel) -> None:
        """Close a channel that has been left when nothing is open on it."""
        deadline = self.loop.time() + RETIRE_S
        while channel.alive and self.loop.time() < deadline:
            # What is open there is known to a dozen objects; none of them waits for this.
            await asyncio.sleep(0.05)
            if channel.outbound.idle and not channel.inbound.inflows:
                await channel.acknowledged()
                break
        channel.close()

    def _adopt(self, channel: Channel) -> None:
        self._channel = channel
        for track in list(self._tracks):
            track.attach(channel)
        self._arrived.set()

    async def _redial(self, why: SessionClosed | None) -> Channel:
        """Dial until there is an answer, or for as long as was said."""
        deadline = self.loop.time() + self._reconnect_s
        wait = REDIAL_FIRST_S
        while True:
            try:
                return await self._dialler.dial(self._target)
            except LapsError as error:
                problem = error
            left = deadline - self.loop.time()
            if left <= 0:
                lost = f"{why}; " if why is not None else ""
                raise SessionClosed(
                    f"{lost}no relay was found for {self._reconnect_s:g} s: {problem}"
                )
            log.info("%s; dialling again", problem)
            await asyncio.sleep(min(left, wait * (0.5 + random.random() / 2)))  # noqa: S311
            wait = min(2 * wait, REDIAL_MOST_S)


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
