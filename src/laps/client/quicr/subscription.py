"""A subscription in QUICR as an application sees it: objects one after the other.

Each channel that it lives on has a `Feed`, by a SUBSCRIBE of its own; `Merge` makes one of them:

    the first            as the application wants it to begin
    after a lost one     catch_up: relays send what they have, and what was given, or came before
                         the first one began, is left out
    after an expired one the same; immediate comes first, where the publisher may have begun anew:
                         if it begins ahead of what has come, it has, and so do we
    where a relay leaves immediate, beside the old one, which serves until it has come to where
                         the new one begins; catch_up if it does not get there
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Literal

from laps.client.following import Following
from laps.client.gaps import Gaps
from laps.client.quicr.asking import Again, Lost, Refused
from laps.client.quicr.feed import Feed
from laps.client.quicr.merging import Merge
from laps.client.quicr.ordering import DatagramOrder, Missing
from laps.client.quicr.showing import refused
from laps.client.tokens import NO_TOKEN
from laps.client.values import Object, TrackInfo
from laps.names import track_text
from laps.types import Location
from laps.wire.moqt.data import ObjectStatus
from laps.wire.moqt.messages import TrackProperties
from laps.wire.quicr.messages import Intent, Response
from laps.wire.quicr.names import encode_name

if TYPE_CHECKING:
    from laps.client.quicr.asking import Outcome
    from laps.client.quicr.channel import QuicrChannel
    from laps.client.quicr.session import QuicrSession
    from laps.client.seen import Seen
    from laps.client.tokens import TokenSource
    from laps.sessions.quicr import ControlStream
    from laps.types import TrackName

    Offer = tuple[QuicrChannel, ControlStream]

log = logging.getLogger(__name__)

Start = Literal["latest", "next", "start"] | Location | tuple[int, int]

# A relay that is left, and brings nothing for so long, has brought all that it had.
QUIET_S: Final = 2.0

# What the relay has ended, or reset, is asked for again: soon, and then less often.
RETRY_FIRST_S: Final = 0.05
RETRY_MOST_S: Final = 1.0

INTENTS: Final = {"latest": Intent.IMMEDIATE, "next": Intent.WAIT_UP, "start": Intent.CATCH_UP}


class QuicrSubscription(Following):
    """The objects of a track, as `subscribe` returns them: an asynchronous iterator.

    It ends with the track. To end it sooner, leave the loop, or `close` it.
    """

    def __init__(
        self,
        session: QuicrSession,
        track: TrackName,
        start: Start,
        *,
        ordered: bool,
        patience_s: float,
        buffer_bytes: int,
        markers: bool,
        datagrams: bool,
        strict: bool = False,
        token: TokenSource = NO_TOKEN,
        offered: Offer | None = None,
        seen: Seen | None = None,
    ) -> None:
        """`offered` is a stream that the relay has opened for the track.

        `seen` is what another one has been given of it.
        """
        self._name = encode_name(track)
        self._intent = Intent.CATCH_UP if isinstance(start, tuple) else INTENTS[start]
        self._ordered = ordered
        self._patience = patience_s
        self._datagrams = datagrams
        self._merge = Merge()
        self._missing = Missing()
        self._feeds: list[Feed] = []
        "The newest last; those before it are of channels that are being left."
        self._catching_up = False
        "The newest feed gives all that relays have: what it does not, nobody does."
        self._quietly = False
        "The feeds before it had nothing more to say."
        self._begin: Location | None = None
        "Where the first feed begins, if it is not from the start: what lies ahead is not wanted."
        self._goes_on = True
        "Nothing but a connection was lost: or else the publisher may have begun anew."
        self._probing = False
        "The newest feed is to tell whether the publisher has begun anew."
        self._offered: Feed | None = None
        self._retry = RETRY_FIRST_S
        self._timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[bool] = session.loop.create_future()
        "True if the track is over, and all of it given; False if that takes another feed."
        minimum = Location(*start) if isinstance(start, tuple) else Location(0, 0)
        super().__init__(
            session,
            track,
            minimum,
            buffer_bytes=buffer_bytes,
            markers=markers,
            strict=strict,
            token=token,
        )
        if seen is not None:
            self._seen = seen
            self._gaps = Gaps(seen)
        if offered is not None:
            self._accept(*offered)

    @property
    def lost(self) -> int:
        """How many objects are known to be missing: they were sent in datagrams, and not come."""
        return self._missing.count

    @property
    def live(self) -> bool:
        """Whether there may be more of it."""
        return not self._intake.ended

    @property
    def has_ended(self) -> bool:
        """Whether the track has ended, and not only the interest in it."""
        return self._ended.done()

    @property
    def seen(self) -> Seen:
        """What was given of it."""
        return self._seen

    def is_on(self, channel: QuicrChannel) -> bool:
        """Whether it has asked for the track on a channel."""
        return any(feed.channel is channel for feed in self._feeds)

    # -- feeds -------------------------------------------------------------------------------------

    def _accept(self, channel: QuicrChannel, stream: ControlStream) -> None:
        branch = self._merge.open()
        order = self._order(self._intent)
        feed = Feed.accept(channel, self, branch, stream, order, ordered=self._ordered)
        self._offered = feed
        self._add(feed)
        self.granted(feed)

    def _subscribe(self, channel: QuicrChannel) -> Feed:
        """Ask for the track: as is fit for what has come of it."""
        covered = self._merge.covered
        self._catching_up = covered is not None and not self._older() and not self._probing
        intent = self._intent
        if covered is not None:
            intent = Intent.CATCH_UP if self._catching_up else Intent.IMMEDIATE
        elif intent is Intent.CATCH_UP:
            self._catching_up = True
        self._quietly = False
        feed = Feed.subscribe(
            channel,
            self,
            self._merge.open(),
            self._name,
            intent,
            self._order(intent),
            ordered=self._ordered,
        )
        if self._begin is not None:
            feed.floor = self._begin
        if self._catching_up and self._goes_on:
            feed.since = self._since()
        self._add(feed)
        feed.token = self.token
        feed.begin()
        return feed

    def _since(self) -> Location | None:
        """Where to go on, so that relays need not send what has been given."""
        since = self._minimum if self._merge.covered is None else self._merge.covered
        if (missing := self._missing.first) is not None:
            since = min(since, missing)
        return since if since > Location(0, 0) else None

    def _order(self, intent: Intent) -> DatagramOrder | None:
        if not self._datagrams:
            return None
        return DatagramOrder(
            self._merge.covered,
            self._missing,
            patience_s=self._patience,
            catching_up=intent is Intent.CATCH_UP,
        )

    def _add(self, feed: Feed) -> None:
        self._feeds.append(feed)
        self._attach()
        feed.outcome.add_done_callback(lambda _: self._settle())

    def _attach(self) -> None:
        pools = dict.fromkeys(feed.channel.pool for feed in self._feeds)
        self._intake.buffer.attach(*pools)

    def _older(self) -> list[Feed]:
        """Feeds that still bring something."""
        return [feed for feed in self._feeds if not feed.over]

    def _drop(self, feed: Feed) -> None:
        if feed in self._feeds:
            self._feeds.remove(feed)
            feed.close()
            self._merge.drop(feed.branch)
            self._attach()

    def _leave(self) -> None:
        for feed in list(self._feeds):
            feed.close()
        self._feeds.clear()
        if self._timer is not None:
            self._timer.cancel()

    # -- as `feed.Consumer` ------------------------------------------------------------------------

    def granted(self, feed: Feed) -> None:
        """As `Consumer`."""
        if not self._established.done():
            self._established.set_result(TrackInfo(None, TrackProperties()))
        self._settle()

    def objects(self, feed: Feed, items: list[Object]) -> None:
        """As `Consumer`."""
        if items:
            self._retry = RETRY_FIRST_S
            items = self._asked_for(feed, items)
        if feed.start is not None and self._has_probed(feed, feed.start):
            self._intake.buffer.take(sum(item.cost for item in items))  # they come again
            return
        if not self._ordered:
            self.deliver(items)
            items = []
        if feed.start is not None:
            items = self._merge.add(feed.branch, feed.start, feed.position, items)
        self.deliver(items)
        if len(self._feeds) > 1 or not feed.branch.joined:
            self._settle()

    def _asked_for(self, feed: Feed, items: list[Object]) -> list[Object]:
        """Those that do not lie ahead of where the first feed began."""
        if items[0].location >= feed.floor:  # nearly always
            return items
        wanted = [item for item in items if item.location >= feed.floor]
        cost = sum(item.cost for item in items) - sum(item.cost for item in wanted)
        self._intake.buffer.take(cost)
        return wanted

    def _has_probed(self, feed: Feed, start: Location) -> bool:
        """Note where the first feed begins; True if one has told what it was to tell."""
        if self._begin is None and self._intent is not Intent.CATCH_UP:
            self._begin = start
        covered = self._merge.covered
        if not self._probing or covered is None or feed is not self._feeds[-1]:
            return False
        self._probing = False
        if start < covered:
            log.info("%s begins anew", track_text(self.track))
            self._begin = self._merge.covered = Location(0, 0)
            self._seen.start(self._begin)
        feed.conclude(Again("it is known where the track is", at_once=True))
        return True

    def _is_wanted(self, item: Object) -> bool:
        self._missing.came(item.location)
        return super()._is_wanted(item)

    def _stuck(self) -> None:
        if self._intake.buffer.is_far_over:
            self.deliver(self._merge.jump())
            for feed in list(self._feeds):
                feed.hurry()

    # -- from channel to channel -------------------------------------------------------------------

    async def _follow(self) -> bool:
        feed, self._offered = self._offered, None
        if feed is None:
            await self.token.current()
            feed = self._subscribe(await self._session.channel())
        await feed.channel.until(feed.outcome, self._ended)
        if not self._ended.done() and not feed.over:
            return False  # there is another channel: this feed serves until that one does
        if self._ended.done() or feed.has_ended:
            if await self._ended:  # what comes before it may still be on its way
                self._mark_end()
                return True
            self._ended = self._session.loop.create_future()
        self._drop(feed)
        if not feed.outcome.cancelled():
            await self._judge(feed.outcome.result())
        return False

    async def _judge(self, outcome: Outcome) -> None:
        expired = isinstance(outcome, Again) and outcome.expired
        self._probing = expired and self._begin is not None
        self._goes_on = isinstance(outcome, Lost)
        match outcome:
            case Refused(reason):
                what = f"a subscription to {track_text(self.track)}"
                raise refused(what, Response.FAIL, reason)
            case Again(reason, at_once) if not at_once:
                log.info("%s: %s; subscribing again", track_text(self.track), reason)
                await asyncio.sleep(self._retry)
                self._retry = min(2 * self._retry, RETRY_MOST_S)
            case _:
                pass

    def _settle(self) -> None:
        """See whether the newest feed may take over, and whether the track is over."""
        if not self._feeds or self._ended.done():
            return
        *older, newest = self._feeds
        for feed in older:
            if feed.over:
                if feed.has_ended and feed.branch.joined:
                    self._end_track()
                    return
                self._drop(feed)
        waits = self._waits(newest)
        if not waits and newest.start is not None and not newest.branch.joined:
            if not self._catching_up and not self._follows(newest.start):
                if newest.has_ended:
                    self._ended.set_result(False)
                newest.conclude(Again("something is missing", at_once=True))
                return
            while not newest.branch.joined:
                self.deliver(self._merge.jump())
        if newest.branch.joined:
            for feed in self._feeds[:-1]:
                self._drop(feed)
        if newest.has_ended and (newest.branch.joined or not waits):
            self._end_track()

    def _waits(self, newest: Feed) -> bool:
        """Whether feeds before the newest may still bring what comes before it."""
        older = self._feeds[:-1]
        if not older or not newest.answered:
            return bool(older)
        now = self._session.loop.time()
        heard_at = max(newest.granted_at, *(feed.heard_at for feed in older))
        if now < heard_at + QUIET_S:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._session.loop.call_at(heard_at + QUIET_S, self._settle)
            return True
        self._quietly = True
        for feed in older:
            self._drop(feed)
        return False

    def _follows(self, start: Location) -> bool:
        """Whether a group begins where the last one seems to have ended."""
        covered = self._merge.covered
        return self._quietly and covered is not None and start == Location(covered.group + 1, 0)

    def _end_track(self) -> None:
        while any(branch.held for branch in self._merge.branches):
            self.deliver(self._merge.jump())
        if not self._ended.done():
            self._ended.set_result(True)

    def _mark_end(self) -> None:
        if self._markers:
            place = self._merge.covered or Location(0, 0)
            item = Object(*place, b"", status=ObjectStatus.END_OF_TRACK)
            self._intake.push([item])
            self._intake.buffer.put(item.cost)
