"""A session with a relay that speaks QUICR, as an application holds it.

It has the face of `laps.client.session.Session`. What QUICR has no words for is refused in ours.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NoReturn

from laps.client.lasting import LastingSession
from laps.client.quicr.channel import QuicrChannel
from laps.client.quicr.showing import Showing
from laps.client.quicr.subscription import INTENTS, QuicrSubscription
from laps.client.quicr.track import QuicrTrack
from laps.client.quicr.wildcard import QuicrSubscriptions
from laps.client.tokens import own_source
from laps.client.values import is_place
from laps.errors import ConfigError, InvalidText, LapsError
from laps.names import namespace_of, track_of, track_text
from laps.wire.moqt.messages import DEFAULT_PRIORITY, GroupOrder
from laps.wire.quicr.names import NameRefused, Pattern, encode_name

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from laps.client.lasting import Dials
    from laps.client.quicr.subscription import Offer, Start
    from laps.client.seen import Seen
    from laps.client.tokens import TokenLike, TokenSource
    from laps.client.urls import Target
    from laps.names import NamespaceLike
    from laps.types import TrackName
    from laps.wire.moqt.messages import KeyValue

log = logging.getLogger(__name__)

MIB: Final = 1024 * 1024

# A name that is text stands for what follows it, whatever the mask: it only must not be 0.
ALL: Final = 1


class QuicrSession(LastingSession[QuicrChannel]):
    """A session with a relay; `laps.connect("quicr://HOST:PORT")` makes it."""

    draft = 0
    "It speaks no draft of MoQT."

    def __init__(
        self,
        dialler: Dials[QuicrChannel],
        target: Target,
        channel: QuicrChannel,
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
        datagrams: bool | None = None,
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
    ) -> QuicrTrack:
        """Publish a track.

            track = await session.publish("demo/clock", "seconds")
            await track.write(b"12:00:00", new_group=True)
            await track.end()

        A track goes on its stream, by `write`, or in `datagrams`; where that is not said, the first
        object decides, and the relay hears of the track with it. `priority`, from 0, the most
        urgent, to 255, is told with datagrams, in steps of 32. Objects older than
        `delivery_timeout_s` are not sent any more, and relays let datagrams go by then.

        Groups count from `first_group`, and from the time of day where it is not said, so that a
        publisher that is started again goes on behind what relays have of it. The last
        `history_bytes` of what was written are kept, to send again what a lost connection lost.

        `token` is for this track, beside the session's: as `laps.connect` has it.
        """
        for option, said, way in (
            ("order", order is not GroupOrder.PUBLISHERS, "groups come in ascending order"),
            ("cache_s", cache_s is not None, "say delivery_timeout_s"),
            ("dynamic_groups", dynamic_groups, "begin groups when you like"),
            ("on_new_group", on_new_group is not None, "begin groups when you like"),
            ("extensions", bool(extensions), "put them into the objects"),
            ("push", not push, "a relay takes all that is published"),
            ("forward", not forward, "a relay takes all that is published"),
        ):
            if said:
                raise ConfigError(f"QUICR has no {option}: {way}, or connect with moqt://")
        full_name = track_of(namespace, name)
        self._check_new(full_name)
        track = QuicrTrack(
            self,
            _checked(full_name),
            priority=priority,
            datagrams=datagrams,
            delivery_timeout_s=delivery_timeout_s,
            first_group=first_group,
            history_bytes=history_bytes,
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
        markers: bool = False,
        strict: bool = False,
        datagrams: bool = False,
        token: TokenLike | None = None,
    ) -> QuicrSubscription:
        """The objects of a track as they are published.

            async for obj in session.subscribe("demo/clock", "seconds", start="start"):
                print(obj.group, obj.id, obj.payload)

        `start` is `latest`, behind the last object there is; `next`, with the next group; `start`,
        with all that relays still have; or a location (group, object). A track that nobody
        publishes yet is waited for.

        On a stream objects come in order and are not lost. In `datagrams` none waits for another:
        they are put in order unless `ordered=False`, nothing is waited for longer than
        `patience_s`, and `lost` counts what is missing. Up to `buffer_bytes` are held for you: then
        nothing more is read from the relay until you have taken some. `markers` also yields an
        object without payload that marks the end of the track.

        `gaps` of the subscription tells what is missing so far. With `strict` ObjectsMissing is
        raised at the first gap, in place of what comes after it. `token` is for this subscription,
        beside the session's.
        """
        if strict and not ordered:
            raise ConfigError("strict=True needs ordered=True: what is late is not missing")
        _check_start(start)
        if not wait:
            raise ConfigError(
                "QUICR relays do not say whether a track is published, so wait=False cannot be: "
                "connect with moqt://, or give up after a time of your own"
            )
        if priority != DEFAULT_PRIORITY:
            raise ConfigError("QUICR subscribers have no priority: connect with moqt://")
        made = QuicrSubscription(
            self,
            _checked(track_of(namespace, name)),
            start,
            ordered=ordered,
            patience_s=patience_s,
            buffer_bytes=buffer_bytes,
            markers=markers,
            strict=strict,
            datagrams=datagrams,
            token=own_source(token),
        )
        self._expect(made.token)
        self._readers.add(made)
        return made

    def subscribe_all(
        self,
        prefix: NamespaceLike = "",
        *,
        name: bytes | None = None,
        mask: int = 0,
        start: Start = "latest",
        ordered: bool = True,
        patience_s: float = 1.0,
        buffer_bytes: int = 8 * MIB,
        markers: bool = False,
        datagrams: bool = False,
        token: TokenLike | None = None,
    ) -> QuicrSubscriptions:
        """The tracks below a prefix, as they are found: a subscription for each.

            async for track in session.subscribe_all("demo/sensors"):
                asyncio.ensure_future(read(track))

        A binary `name` of 16 bytes stands for those that differ from it in the low-order bits that
        `mask` counts. Leaving the loop ends all subscriptions.
        """
        _check_start(start)
        if isinstance(start, tuple):
            raise ConfigError('a place is of one track: start with "latest", "next" or "start"')
        if name is None:
            parts = namespace_of(prefix, prefix=True)
            pattern = Pattern(b"/".join((*parts, b"")) or b"/", ALL)
        else:
            pattern = Pattern(name, mask)
        try:
            pattern.check()
        except NameRefused as problem:
            raise ConfigError(f"a name with a mask: {problem}") from None
        if not pattern.is_wild:
            raise ConfigError("mask 0 stands for one track: give a mask, or use subscribe")

        def make(
            track: TrackName, offer: Offer, in_datagrams: bool, seen: Seen | None
        ) -> QuicrSubscription:
            return QuicrSubscription(
                self,
                track,
                start,
                ordered=ordered,
                patience_s=patience_s,
                buffer_bytes=buffer_bytes,
                markers=markers,
                datagrams=in_datagrams,
                offered=offer,
                seen=seen,
            )

        made = QuicrSubscriptions(self, pattern, start, datagrams, make, own_source(token))
        self._expect(made.token)
        self._readers.add(made)
        return made

    def fetch(self, *_: Any, **__: Any) -> NoReturn:
        """As MoQT has it."""
        self._lacks("FETCH", 'subscribe with start="start"')

    def namespaces(self, *_: Any, **__: Any) -> NoReturn:
        """As MoQT has it."""
        self._lacks("namespaces to watch", "use subscribe_all")

    def tracks(self, *_: Any, **__: Any) -> NoReturn:
        """As MoQT has it."""
        self._lacks("tracks to watch", "use subscribe_all")

    async def track_status(self, *_: Any, **__: Any) -> NoReturn:
        """As MoQT has it."""
        self._lacks("TRACK_STATUS", "subscribe")

    def _lacks(self, what: str, way: str) -> NoReturn:
        url = "moqt" + self.url.removeprefix("quicr")
        raise LapsError(f"QUICR has no {what}: {way}, or connect with {url}")

    # -- keeping it --------------------------------------------------------------------------------

    def _show_again(self, channel: QuicrChannel, sources: Sequence[TokenSource]) -> None:
        """A newer AUTHORIZATION, for the connection or on the streams that showed the last one."""
        for source in sources:
            if source is not self._token:
                channel.show_again(source)
            elif source.shown is not None:
                Showing(channel, source.shown).answer.add_done_callback(_note)

    async def _follow(self, old: QuicrChannel, target: Target) -> QuicrChannel | None:
        """Where there is no way to where the relay points, we stay until it has left."""
        try:
            return await self._dial(target, old=old)
        except LapsError as problem:
            log.warning("the relay leaves, and the next one cannot be reached: %s", problem)
            return None


def _note(answer: asyncio.Future[str | None]) -> None:
    if not answer.cancelled() and answer.exception() is None and answer.result() is not None:
        log.warning("the relay does not take the newer token: %s", answer.result())


def _checked(track: TrackName) -> TrackName:
    try:
        encode_name(track)
    except NameRefused as problem:
        name = track_text(track)
        raise ConfigError(f"{name}: {problem} in QUICR: connect with moqt://") from None
    return track


def _check_start(start: object) -> None:
    if start in INTENTS or is_place(start):
        return
    if start == "current":
        raise ConfigError(
            'QUICR cannot begin with the current group: start with "latest", "next" or "start", '
            "or connect with moqt://"
        )
    problem = 'is not known: give "latest", "next", "start" or (group, object)'
    raise InvalidText("start", str(start), problem)
