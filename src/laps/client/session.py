"""A session with a relay that speaks MoQT, as an application holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.client.channel import Channel
from laps.client.fetching import Fetching
from laps.client.lasting import LastingSession
from laps.client.namespaces import Namespaces
from laps.client.subscription import STARTS, Subscription
from laps.client.tokens import own_source
from laps.client.track import Track
from laps.client.tracks import Tracks
from laps.client.values import MAX_OBJECT_BYTES, TrackInfo, is_place
from laps.errors import ConfigError, InvalidText, LapsError
from laps.names import namespace_of, track_of, track_text
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

    from laps.client.lasting import Dials
    from laps.client.subscription import Start
    from laps.client.tokens import TokenLike, TokenSource
    from laps.client.urls import Target
    from laps.names import NamespaceLike
    from laps.wire.moqt.messages import KeyValue

MIB: Final = 1024 * 1024


class Session(LastingSession[Channel]):
    """A session with a relay; `laps.connect` makes it."""

    def __init__(
        self,
        dialler: Dials[Channel],
        target: Target,
        channel: Channel,
        *,
        reconnect_s: float,
        others: Sequence[Target] = (),
        token: TokenSource | None = None,
    ) -> None:
        super().__init__(dialler, target, channel, reconnect_s, others, token)

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
        token: TokenLike | None = None,
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

        `token` is for this track, beside the session's: as `laps.connect` has it.
        """
        full_name = track_of(namespace, name)
        self._check_new(full_name)
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
            token=own_source(token),
        )
        await self._publish(track)
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
        max_object_bytes: int = MAX_OBJECT_BYTES,
        markers: bool = False,
        strict: bool = False,
        token: TokenLike | None = None,
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
        from the relay until you have taken some. An object is put together in memory: one of more
        than `max_object_bytes` raises ObjectTooLarge. `markers` also yields objects without payload
        that mark the end of a group or of the track.

        `gaps` of the subscription tells what is missing so far. With `strict` ObjectsMissing is
        raised at the first gap, in place of what comes after it. `token` is for this subscription,
        beside the session's.
        """
        _check_start(start)
        if strict and not ordered:
            raise ConfigError("strict=True needs ordered=True: what is late is not missing")
        made = Subscription(
            self,
            track_of(namespace, name),
            start,
            ordered=ordered,
            patience_s=patience_s,
            wait=wait,
            priority=priority,
            buffer_bytes=buffer_bytes,
            max_object_bytes=max_object_bytes,
            markers=markers,
            strict=strict,
            token=own_source(token),
        )
        self._expect(made.token)
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
        max_object_bytes: int = MAX_OBJECT_BYTES,
        token: TokenLike | None = None,
    ) -> Fetching:
        """Objects that have been published, in order.

            objects = [obj async for obj in session.fetch("demo/clock", "seconds", end=(5, 0))]

        `end` is one past the last object; an object of 0 means all of the group, and None all that
        there is. RequestRefused is raised if there is nothing. `token` is for this request, beside
        the session's.
        """
        last = Location(VARINT_MAX - 1, 0) if end is None else Location(*end)
        return Fetching(
            self,
            track_of(namespace, name),
            Location(*start),
            last,
            descending=descending,
            buffer_bytes=buffer_bytes,
            max_object_bytes=max_object_bytes,
            token=own_source(token),
        )

    def namespaces(self, prefix: NamespaceLike = "") -> Namespaces:
        """The namespaces below a prefix, as they come and go.

        async for event in session.namespaces("demo"):
            print(event, "is there" if event.added else "is gone")
        """
        made = Namespaces(self, namespace_of(prefix, prefix=True))
        self._readers.add(made)
        return made

    def tracks(self, prefix: NamespaceLike = "") -> Tracks:
        """The tracks below a prefix that are published one by one, as they come and go.

            async for event in session.tracks("demo"):
                print(event, "is there" if event.added else "is gone")

        Their objects are not sent; subscribe to those that you want. What is published with
        `push=False` is told by its namespace only, and not by its name.
        """
        made = Tracks(self, namespace_of(prefix, prefix=True))
        self._readers.add(made)
        return made

    async def track_status(self, namespace: NamespaceLike, name: str | bytes) -> TrackInfo:
        """How far a track has come; RequestRefused if nobody publishes it."""
        track = track_of(namespace, name)
        channel = await self.channel()
        answer = await channel.ask(TrackStatus(0, track), f"the status of {track_text(track)}")
        if not isinstance(answer, RequestOk):
            raise LapsError(f"{type(answer).__name__} in answer to TRACK_STATUS")
        return TrackInfo(answer.largest, answer.properties)

    # -- the session itself ------------------------------------------------------------------------

    @property
    def draft(self) -> int:
        """The draft of MoQT that is spoken with the relay now; 0 while there is none."""
        return 0 if self._channel is None else self._channel.dialect.draft

    async def _follow(self, old: Channel, target: Target) -> Channel:
        """A relay that leaves has said where to go: there is no other place."""
        self._target = target
        return await self._redial(None)


def _check_start(start: object) -> None:
    """Types tell it sooner; not everybody checks them."""
    if start in STARTS or is_place(start):
        return
    known = ", ".join(f'"{name}"' for name in STARTS)
    raise InvalidText("start", str(start), f"is not known: give {known} or (group, object)")


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
