"""A session that outlives the connections it is made of, whatever is spoken on them.

It has a channel, dials again when that is lost, and goes where a relay that leaves points: the new
channel is made first, tracks and subscriptions move to it, and then the old one is closed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from asyncio import FIRST_COMPLETED
from collections import deque
from contextlib import suppress
from time import time
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self

from laps.client.carrier import C, C_co
from laps.client.relay_watch import RelayWatch
from laps.client.tokens import AGAIN_S, TokenSource
from laps.client.urls import parse_url
from laps.errors import (
    ConfigError,
    HandshakeFailed,
    LapsError,
    SessionClosed,
    SessionUnauthorized,
    Unauthorized,
)
from laps.names import track_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.client.publication import Publication
    from laps.client.urls import Target
    from laps.types import TrackName

log = logging.getLogger(__name__)

# The first redial comes soon, later ones less often.
REDIAL_FIRST_S: Final = 0.1
REDIAL_MOST_S: Final = 5.0

# A relay that does not answer within this time after one was lost has company: the next is dialled.
HEAD_START_S: Final = 0.25

# A relay that sends us away again within this time is left less quickly.
MOVE_S: Final = 1.0

# What is left on a relay that we have left may take this long.
RETIRE_S: Final = 30.0


class Dials(Protocol[C_co]):
    """Who makes channels."""

    async def dial(self, target: Target) -> C_co:
        """A channel that can be used."""

    async def close(self) -> None:
        """End all channels, and free the ports."""


async def dial_first(
    dialler: Dials[C], targets: Sequence[Target], head_start_s: float | None = None
) -> tuple[Target, C]:
    """A channel to the first of these that answers, and which that is.

    Each is dialled when the one before has failed, or has not answered within its head start.
    """
    if len(targets) == 1:
        return targets[0], await dialler.dial(targets[0])
    problems: list[LapsError] = []
    dials: dict[asyncio.Task[C], Target] = {}
    rest = deque(targets)
    try:
        while rest or dials:
            if rest:
                target = rest.popleft()
                dials[asyncio.ensure_future(dialler.dial(target))] = target
            wait = head_start_s if rest else None
            done, _ = await asyncio.wait(dials, timeout=wait, return_when=FIRST_COMPLETED)
            for task in done:
                target = dials.pop(task)
                try:
                    return target, task.result()
                except LapsError as error:
                    problems.append(error)
                    log.info("%s", error)
    finally:
        for task in dials:
            if not task.cancel() and task.exception() is None:
                task.result().close()  # it has answered, too
    if all(isinstance(problem, Unauthorized) for problem in problems):
        raise problems[0]
    raise HandshakeFailed("none of the relays answers: " + "; ".join(map(str, problems)))


class LastingSession(Generic[C]):
    """What the sessions of all protocols share."""

    def __init__(
        self,
        dialler: Dials[C],
        target: Target,
        channel: C,
        reconnect_s: float,
        others: Sequence[Target] = (),
        token: TokenSource | None = None,
    ) -> None:
        """`others` are dialled, in this order, where the target does not answer.

        `token` is what the dialler shows to relays.
        """
        self.loop = asyncio.get_running_loop()
        self.url = target.url
        self._dialler = dialler
        self._target = target
        self._others = others
        self._reconnect_s = reconnect_s
        self._channel: C | None = channel
        self._arrived = asyncio.Event()
        self._arrived.set()
        self._error: SessionClosed | None = None
        self._tracks: list[Publication[C]] = []
        self._offering: set[TrackName] = set()
        "Tracks that wait until a relay can be told of them the first time."
        self._readers: set[Any] = set()
        self._token = token or TokenSource()
        self._renewed = asyncio.Event()
        "There are newer tokens than those that the relay was shown."
        self._renewing: asyncio.Task[None] | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._attaching: asyncio.Task[None] | None = None
        self._moved_at = -MOVE_S
        self._hurried = 0
        alone = all(other == target for other in others)
        self._watch = RelayWatch(channel, self._is_used, alone=alone)
        self._keeper = asyncio.ensure_future(self._keep(channel))
        self._expect(self._token)

    @property
    def relay_url(self) -> str:
        """Of the relay that is in use, or is dialled next; `url` is where the session began."""
        return self._target.url

    @property
    def connected(self) -> bool:
        """Whether there is a relay at the other end now."""
        return self._channel is not None and self._channel.alive

    @property
    def channel_in_use(self) -> C | None:
        """The connection that is in use, or was last; None while another is dialled."""
        return self._channel

    @property
    def may_return(self) -> bool:
        """Whether a lost connection is dialled again."""
        return self._error is None and self._reconnect_s > 0

    async def channel(self) -> C:
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
                ends = [track.end() for track in self._tracks if not track.failed]
                for problem in await asyncio.gather(*ends, return_exceptions=True):
                    if problem is not None:
                        raise problem
        finally:
            self._keeper.cancel()
            if self._renewing is not None:
                self._renewing.cancel()
            self._watch.close()
            self._finish(SessionClosed("the session was closed"))
            for task in (*self._retiring, *filter(None, (self._attaching,))):
                task.cancel()
            if self._channel is not None:
                self._channel.close()
            await self._dialler.close()

    def _check_new(self, name: TrackName) -> None:
        """ConfigError if a track is published already."""
        if name in self._offering or any(track.full_name == name for track in self._tracks):
            raise ConfigError(f"{track_text(name)} is published by this session already")

    async def _publish(self, track: Publication[C]) -> None:
        """Tell the relay of a track, as soon as it allows that."""
        self._offering.add(track.full_name)
        try:
            await track.token.current()
            channel = await self.channel()
            while not await channel.publishable():
                channel = await self.channel()
        finally:
            self._offering.discard(track.full_name)
        self._tracks.append(track)
        track.attach(channel)
        self._expect(track.token)

    def _is_used(self) -> bool:
        """Whether anything is published or read."""
        return bool(self._tracks or self._readers)

    def dropped(self, member: Any) -> None:
        """A track or a reader is over."""
        if member in self._tracks:
            self._tracks.remove(member)
        self._readers.discard(member)

    def _finish(self, error: SessionClosed) -> None:
        if self._error is None:
            self._error = error
            self._arrived.set()
            for track in list(self._tracks):
                track.fail(error)

    # -- tokens ------------------------------------------------------------------------------------

    def _expect(self, source: TokenSource) -> None:
        """See that a token is renewed before it ends."""
        if source.is_renewable and self._renewing is None:
            self._renewing = asyncio.ensure_future(self._renew_tokens())

    async def _renew_tokens(self) -> None:
        """Ask for tokens when those that there are come to their end."""
        while True:
            sources = self._sources()
            due = min((source.due for source in sources), default=time() + AGAIN_S)
            # Others may be added meanwhile, and sooner due.
            await asyncio.sleep(min(max(0.0, due - time()), AGAIN_S))
            changed = [source for source in sources if await self._renew(source)]
            if changed and self._channel is not None:
                self._show_again(self._channel, changed)

    def _sources(self) -> list[TokenSource]:
        """Where all tokens come from that are in use and can be renewed."""
        used = (self._token, *(user.token for user in (*self._tracks, *self._readers)))
        return [source for source in dict.fromkeys(used) if source.is_renewable]

    async def _renew(self, source: TokenSource) -> bool:
        """Whether there is another token."""
        if source.shown is None or not source.is_due:
            return False
        try:
            return await source.renew()
        except LapsError as error:
            log.warning("%s; the token is asked for again", error)
            return False

    def _show_again(self, channel: C, sources: Sequence[TokenSource]) -> None:
        """Show tokens to the relay that are newer than those it knows.

        MoQT has no message for the tokens of a session, so there is a new one, and everything moves
        to it before the old one is closed. Tokens of single requests go the same way.
        """
        self._renewed.set()

    # -- keeping it --------------------------------------------------------------------------------

    async def _keep(self, channel: C) -> None:
        """Have a channel, and another one when it is over or its relay leaves."""
        try:
            while True:
                url = await self._wait(channel)
                if url is None and channel.alive:
                    channel = await self._begin_anew(channel)
                    continue
                if url is not None and self._reconnect_s > 0:
                    new = await self._move(channel, url)
                    if new is not None:
                        channel = new
                        continue
                await asyncio.shield(channel.over)
                why = channel.why_closed()
                if isinstance(why, SessionUnauthorized):
                    self._token.refused(self._target.url, why)
                    if not self._token.may_retry(why):
                        raise why
                if self._reconnect_s <= 0:
                    raise why
                log.info("%s; dialling again", why)
                self._channel = None
                channel = await self._redial(why, silent=channel.given_up)
                await self._adopt(channel)
        except SessionClosed as error:
            self._finish(error)
        except LapsError as error:
            self._finish(SessionClosed(str(error)))

    async def _wait(self, channel: C) -> str | None:
        """Where a relay that leaves sends us; None if it is over, or there are newer tokens."""
        renewed = asyncio.ensure_future(self._renewed.wait())
        try:
            waiting = (channel.leaving, channel.over, renewed)
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            renewed.cancel()
        if channel.leaving.done() and not channel.leaving.cancelled():
            return channel.leaving.result()
        return None

    async def _begin_anew(self, old: C) -> C:
        """A session with newer tokens, at the same relay; the old one where there is none."""
        self._renewed.clear()
        try:
            new = await self._dial(self._target, old=old)
        except LapsError as problem:
            log.warning("no session with the newer token, the old one stays: %s", problem)
            return old
        await self._leave_for(old, new)
        return new

    async def _move(self, old: C, url: str) -> C | None:
        """To where the relay sends us; the old channel serves meanwhile. None: we stay."""
        target = parse_url(url) if url else self._next_target()
        log.info("the relay leaves; dialling %s", target.url)
        # One that says so to whoever comes is about to stop: it is given time to.
        self._hurried = self._hurried + 1 if self.loop.time() < self._moved_at + MOVE_S else 0
        if self._hurried:
            wait = min(REDIAL_FIRST_S * 2**self._hurried, MOVE_S)
            await asyncio.wait((old.over,), timeout=wait)
        new = await self._follow(old, target)
        if new is None:
            return None
        self._target = target
        self._moved_at = self.loop.time()
        await self._leave_for(old, new)
        return new

    async def _leave_for(self, old: C, new: C) -> None:
        """Move everything to a new channel, and close the old one when nothing is left on it."""
        await self._adopt(new)
        old.leave()
        task = asyncio.ensure_future(self._retire(old))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _next_target(self) -> Target:
        """Where to go from a relay that leaves and does not say where to."""
        return next((it for it in self._others if it != self._target), self._target)

    async def _follow(self, old: C, target: Target) -> C | None:
        """A channel to where the relay sends us; None if there is no way."""
        raise NotImplementedError

    async def _retire(self, channel: C) -> None:
        """Close a channel that has been left when nothing is open on it."""
        deadline = self.loop.time() + RETIRE_S
        while channel.alive and self.loop.time() < deadline:
            # What is open there is known to a dozen objects; none of them waits for this.
            await asyncio.sleep(0.05)
            if channel.idle:
                with suppress(SessionClosed):  # the relay was quicker to close it
                    await channel.acknowledged()
                break
        channel.close()

    async def _adopt(self, channel: C) -> None:
        for track in list(self._tracks):
            with suppress(LapsError):  # its PUBLISH is refused, and says so
                await track.token.current()
        self._renewed.clear()
        self._channel = channel
        self._watch.follow(channel)
        if self._attaching is not None:
            self._attaching.cancel()
        tracks = deque(self._tracks)
        while tracks and channel.may_publish():
            tracks.popleft().attach(channel)
        if tracks:
            self._attaching = asyncio.ensure_future(self._attach(channel, tracks))
        self._arrived.set()

    async def _attach(self, channel: C, tracks: deque[Publication[C]]) -> None:
        """Publish tracks on a channel as its relay allows; what is written to them waits."""
        while tracks and await channel.publishable():
            track = tracks.popleft()
            if track in self._tracks:
                track.attach(channel)

    async def _redial(self, why: SessionClosed | None, *, silent: bool = False) -> C:
        """A channel to where the last one was; SessionClosed if there is none to be had.

        A relay that was silent is dialled last: it may be long before it answers.
        """
        order = [other for other in self._others if other != self._target]
        order.insert(len(order) if silent else 0, self._target)
        try:
            return await self._dial(order[0], order[1:])
        except SessionUnauthorized:
            raise
        except LapsError as problem:
            lost = f"{why}; " if why is not None else ""
            raise SessionClosed(
                f"{lost}no relay was found for {self._reconnect_s:g} s: {problem}"
            ) from None

    async def _dial(self, target: Target, others: Sequence[Target] = (), old: C | None = None) -> C:
        """Dial until there is an answer: as long as was said, and not longer than `old` lives."""
        deadline = self.loop.time() + self._reconnect_s
        wait = REDIAL_FIRST_S
        targets = [target, *others]
        while True:
            try:
                self._target, channel = await dial_first(self._dialler, targets, HEAD_START_S)
                return channel
            except LapsError as error:
                if isinstance(error, Unauthorized) and not self._token.may_retry(error):
                    raise
                problem = error
            left = deadline - self.loop.time()
            if left <= 0 or (old is not None and not old.alive):
                raise problem
            log.info("%s; dialling again", problem)
            pause = min(left, wait * (0.5 + random.random() / 2))  # noqa: S311 - no secret
            if old is None:
                await asyncio.sleep(pause)
            else:
                await asyncio.wait((old.over,), timeout=pause)
            wait = min(2 * wait, REDIAL_MOST_S)
