"""A subscription as an application sees it: objects one after the other, whatever happens below.

Each channel that it lives on has a `Lane`. A lane begins behind the largest object that the relay
has; what is wanted of the time before is fetched, and the lane is held until that has passed:

    SUBSCRIBE -> SUBSCRIBE_OK with the largest object
                 FETCH from where we are up to it      -> objects
                 what the lane has brought meanwhile   -> objects, from here on as they come

So it begins, so it goes on after the connection was lost, and so it moves when the relay leaves;
then the old lane serves until the new one has caught up.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

from laps.client.fetching import ATTEMPTS, FetchRun
from laps.client.following import Following
from laps.client.lane import Ended, Failed, Lane, Lost, Overrun
from laps.client.slots import Need
from laps.client.tokens import refused
from laps.client.values import TrackInfo
from laps.errors import SessionClosed
from laps.names import track_text
from laps.ranges import after, end_after, last_of
from laps.types import Location
from laps.wire.buffer import VARINT_MAX
from laps.wire.moqt.codes import DoneCode, RequestCode
from laps.wire.moqt.messages import (
    Fetch,
    FetchOk,
    Filter,
    FilterType,
    JoiningFetch,
    RequestError,
    StandaloneFetch,
    Subscribe,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from laps.client.channel import Channel
    from laps.client.lane import Outcome
    from laps.client.session import Session
    from laps.client.tokens import TokenSource
    from laps.client.values import Object
    from laps.types import TrackName
    from laps.wire.moqt.messages import SubscribeOk

log = logging.getLogger(__name__)

Start = Literal["latest", "next", "current", "start"] | Location | tuple[int, int]
STARTS: Final = ("latest", "next", "current", "start")

RETRY_FIRST_S: Final = 0.05
RETRY_MOST_S: Final = 1.0
# A relay that does not know how far a track has come has this long to be sent the next object,
FIRST_S: Final = 2.0
# and then longer: perhaps nothing is published.
FIRST_MOST_S: Final = 60.0
# A relay that waits this long for a publisher before it says that there is none is asked again at
# once: between two questions a publisher could come and go unseen.
HELD_S: Final = 0.5

# Answers to SUBSCRIBE that another time may change.
_LATER: Final = (RequestCode.DOES_NOT_EXIST, RequestCode.TIMEOUT)
# Ends of a subscription that are the track's,
_ENDS: Final = (DoneCode.TRACK_ENDED, DoneCode.SUBSCRIPTION_ENDED)
# and some that are not.
_AGAIN: Final = (DoneCode.GOING_AWAY, DoneCode.EXPIRED)
# Answers to FETCH that mean: there is nothing of that.
_NOTHING: Final = (RequestCode.INVALID_RANGE, RequestCode.DOES_NOT_EXIST)


class Subscription(Following):
    """The objects of a track, as `Session.subscribe` returns them: an asynchronous iterator.

    It ends with the track. To end it sooner, leave the loop, or `close` it.
    """

    def __init__(
        self,
        session: Session,
        track: TrackName,
        start: Start,
        *,
        ordered: bool,
        patience_s: float,
        wait: bool,
        priority: int,
        buffer_bytes: int,
        max_object_bytes: int,
        markers: bool,
        strict: bool,
        token: TokenSource,
    ) -> None:
        self._max_object_bytes = max_object_bytes
        self._start = Location(*start) if isinstance(start, tuple) else start
        self._ordered = ordered
        self._patience = patience_s
        self._wait = wait
        self._priority = priority
        self._begun = False
        self._over = False
        "The track has ended, and the relay has given all that it had of it."
        self._missed = False
        "The track was not there at first: all of it is wanted."
        self._resume = Location(0, 0)
        "Where to go on."
        self._first_s = FIRST_S
        self._lane: Lane | None = None
        self._next_lane: Lane | None = None
        "One that is being prepared."
        minimum = self._start if isinstance(self._start, Location) else Location(0, 0)
        super().__init__(
            session,
            track,
            minimum,
            buffer_bytes=buffer_bytes,
            markers=markers,
            strict=strict,
            token=token,
        )

    # -- objects -----------------------------------------------------------------------------------

    def _leave(self) -> None:
        for lane in (self._lane, self._next_lane):
            if lane is not None:
                lane.close()
        self._lane = self._next_lane = None

    def _open_groups(self) -> Collection[int]:
        lanes = [lane for lane in (self._lane, self._next_lane) if lane is not None]
        if len(lanes) == 1:
            return lanes[0].sequencer.open_groups
        return {group for lane in lanes for group in lane.sequencer.open_groups}

    def stream_closed(self, group: int, subgroup: int | None, *, complete: bool) -> None:
        """As `Consumer`."""
        self._gaps.closed(group, subgroup, complete=complete)

    def cut_off(self) -> None:
        """As `Consumer`."""
        self._gaps.cut_off()

    def _unknown(self, first: Location, last: Location) -> None:
        """The relay does not know what there was."""
        self._gaps.lost(first, last)
        self._is_missing()
        self._break_off()

    def _fetched(self, items: list[Object]) -> None:
        self._intake.buffer.put(sum(item.cost for item in items))
        self.deliver(items)
        if items:
            self._resume = Location(items[-1].group, items[-1].id + 1)

    def _stuck(self) -> None:
        lane = self._next_lane or self._lane
        if lane is None or not self._intake.buffer.is_far_over:
            return
        if lane.sequencer.held:
            lane.overrun()
        else:
            lane.hurry()

    # -- from channel to channel -------------------------------------------------------------------

    async def _follow(self) -> bool:
        preparing = asyncio.ensure_future(self._prepare())
        old = self._lane
        try:
            if old is not None:
                await asyncio.wait((preparing, old.outcome), return_when=asyncio.FIRST_COMPLETED)
                if old.outcome.done() and _is_end_of_track(old.outcome.result()):
                    return True
            lane = await preparing
        finally:
            preparing.cancel()
        if lane is None:
            return self._over
        self._lane, self._next_lane = lane, None
        if old is not None:
            old.close()
        if (group := self._seen.unfinished()) is not None:
            # Its rest may come by a longer way than the next group does.
            lane.sequencer.go_on(group)
        lane.release()
        outcome = await self._outcome(lane)
        if outcome is None:
            return False  # there is another channel: this lane serves until that one does
        self._remember(lane)
        lane.close()
        self._lane = None
        return self._judge(outcome)

    async def _prepare(self) -> Lane | None:
        """A lane that has caught up; None if the channel was lost meanwhile."""
        channel = await self._session.channel()
        lane = await self._subscribe(channel)
        if lane is None:
            return None
        try:
            if await self._catch_up(lane):
                self._intake.buffer.attach(channel.inbound.pool)
                return lane
        except BaseException:
            lane.close()
            raise
        lane.close()
        return None

    async def _outcome(self, lane: Lane) -> Outcome | None:
        await lane.channel.until(lane.outcome)
        return lane.outcome.result() if lane.outcome.done() else None

    def _judge(self, outcome: Outcome) -> bool:
        match outcome:
            case Lost() | Overrun():
                return False
            case Failed(error):
                raise error
            case Ended() if _is_end_of_track(outcome):
                return True
            case Ended(code) if code in _AGAIN:
                return False
            case Ended(code, reason):
                raise refused(f"the rest of {track_text(self.track)}", code, reason)

    def _remember(self, lane: Lane) -> None:
        """Keep in mind where a lane has come to."""
        self._resume = self._seen.resume_at(lane.sequencer.unfinished)

    async def _subscribe(self, channel: Channel) -> Lane | None:
        """A lane that the relay has accepted; None if the channel was lost meanwhile."""
        what = f"a subscription to {track_text(self.track)}"
        wait = RETRY_FIRST_S
        filter_type = (
            FilterType.NEXT_GROUP
            if self._start == "next" and not self._begun and not self._missed
            else FilterType.LARGEST_OBJECT
        )
        while channel.alive and not channel.superseded.is_set():
            await self.token.current()
            if not await channel.slots.take(Need.SUBSCRIBE):
                return None
            message = Subscribe(
                0,
                self.track,
                Filter(filter_type),
                self._priority,
                tokens=self.token.in_moqt,
            )
            lane = self._next_lane = Lane(
                channel,
                self,
                message,
                ordered=self._ordered,
                patience_s=self._patience,
                max_object_bytes=self._max_object_bytes,
            )
            accepted = False
            asked_at = monotonic()
            try:
                answer = await lane.answer
                accepted = not isinstance(answer, RequestError)
            except SessionClosed:
                return None
            finally:
                if not accepted:
                    lane.close()
            if not isinstance(answer, RequestError):
                self._begin(answer)
                return lane
            if answer.code in _LATER and await self._has_ended(channel):
                return None
            if answer.code not in _LATER or not self._wait:
                raise refused(what, answer.code, answer.reason)
            if not self._begun:
                self._missed = True
                filter_type = FilterType.LARGEST_OBJECT
            if answer.retry_ms:
                await asyncio.sleep(answer.retry_ms / 1000)
            elif monotonic() - asked_at < HELD_S:
                await asyncio.sleep(wait)
                wait = min(2 * wait, RETRY_MOST_S)
            await channel.slots.repeat()
        return None

    async def _has_ended(self, channel: Channel) -> bool:
        """Nobody publishes the track now: take what the relay has of it; whether that is all.

        It may also have ended while we were on our way from another relay.
        """
        goes_on = self._begun
        if not goes_on:
            if not (self._start == "start" or isinstance(self._start, Location)):
                return False
            self._begun = True
            self._resume = self._minimum
            self._seen.start(self._resume)
            self._gaps.start(None if self._start == "start" else self._resume)
        elif self._seen.largest is None:
            return False
        elif self._lane is not None:
            self._remember(self._lane)
        self._intake.buffer.attach(channel.inbound.pool)
        wanted = StandaloneFetch(self.track, self._resume, Location(VARINT_MAX - 1, 0))
        if not await channel.slots.take(Need.PASSING):
            return False
        self._gaps.fetch(wanted.start, Location(VARINT_MAX, 0))
        run = FetchRun(
            channel,
            Fetch(0, wanted, self._priority, tokens=self.token.in_moqt),
            self._fetched,
            self._max_object_bytes,
            None if goes_on else self._unknown,  # it may come yet
        )
        try:
            result = await run.result
        finally:
            run.close()
        self._gaps.fetch_ended(
            after(last_of(result.end)) if isinstance(result, FetchOk) else wanted.start
        )
        self._over = isinstance(result, FetchOk) and result.end_of_track
        return self._over

    def _begin(self, answer: SubscribeOk) -> None:
        """The relay has accepted: settle where to begin, the first time."""
        if not self._established.done():
            self._established.set_result(TrackInfo(answer.largest, answer.properties))
        if self._begun:
            return
        self._begun = True
        largest, start = answer.largest, self._start
        if isinstance(start, Location):
            begin = start
        elif start == "start" or self._missed or largest is None:
            begin = Location(0, 0)
        elif start == "current":
            begin = Location(largest.group, 0)
        elif start == "next":
            begin = Location(largest.group + 1, 0)
        else:
            begin = after(largest)
        self._seen.start(begin)
        self._gaps.start(None if begin == Location(0, 0) else begin)
        self._resume = begin

    async def _catch_up(self, lane: Lane) -> bool:
        """Fetch what lies between where we are and where a lane begins; False to try again."""
        answer = lane.answer.result()
        largest = None if isinstance(answer, RequestError) else answer.largest
        if self._lane is not None:
            self._remember(self._lane)
        joins = largest is not None
        if self._seen.largest is not None and (largest is None or self._is_inside(largest)):
            if not await self._has_begun(lane, largest):
                return False
            largest, joins = lane.first.result(), False
        if largest is None:
            return True
        if self._seen.is_forgotten(largest):
            log.info("%s has begun anew, at group %d", track_text(self.track), largest.group)
            self._resume = Location(0, 0)
            self._seen.start(self._resume)
            self._gaps.start(None)
        if not joins and largest == self._resume:
            return True  # it goes on where we are
        for attempt in range(ATTEMPTS):
            if self._resume > largest or await self._fetch(
                lane, largest, joins=joins and attempt == 0
            ):
                return True
            if lane.outcome.done() and isinstance(lane.outcome.result(), Lost | Overrun):
                return False
        raise SessionClosed(f"what came before of {track_text(self.track)} could not be fetched")

    def _is_inside(self, largest: Location) -> bool:
        """Whether we are as far as the relay, inside of a group whose end is not known.

        The rest of the group may pass a relay by that joins the track just now.
        """
        is_forgotten = self._seen.is_forgotten(largest)
        return self._resume.object > 0 and self._resume > largest and not is_forgotten

    async def _has_begun(self, lane: Lane, largest: Location | None) -> bool:
        """Wait for the first object of a lane, before which all is to be fetched; False: ask again.

        A relay that has just started has heard of the track, and not how far it has come. Asked
        again it may know, and what it was not sent can be fetched then.
        """
        if largest is None:
            wait_s, self._first_s = self._first_s, min(2 * self._first_s, FIRST_MOST_S)
            arriving = (lane.first, lane.outcome)
            await asyncio.wait(arriving, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        else:
            await lane.channel.until(lane.first, lane.outcome)
        if not lane.first.done():
            return False
        self._first_s = FIRST_S
        if self._lane is not None:
            self._remember(self._lane)
        return True

    async def _fetch(self, lane: Lane, largest: Location, *, joins: bool) -> bool:
        """Whether everything up to `largest` has arrived."""
        resume = self._resume
        wanted: JoiningFetch | StandaloneFetch
        if joins and not resume.object:
            wanted = JoiningFetch(lane.inflow.request_id, resume.group, relative=False)
        else:
            wanted = StandaloneFetch(self.track, resume, end_after(largest))
        priority = max(0, self._priority - 1)  # before the lane, which has to be held meanwhile
        self._intake.buffer.attach(lane.channel.inbound.pool)
        if not await lane.channel.slots.take(Need.PASSING):
            return False
        message = Fetch(0, wanted, priority, tokens=self.token.in_moqt)
        self._gaps.fetch(resume, largest)
        run = FetchRun(lane.channel, message, self._fetched, self._max_object_bytes, self._unknown)
        try:
            await asyncio.wait((run.result, lane.outcome), return_when=asyncio.FIRST_COMPLETED)
            if not run.result.done() and not isinstance(lane.outcome.result(), Lost):
                await run.result  # the lane is closed; the FETCH goes on
            result = run.result.result() if run.result.done() else None
        finally:
            run.close()
        if isinstance(result, RequestError) and result.code not in _NOTHING:
            if result.code == RequestCode.INVALID_JOINING_REQUEST_ID and joins:
                return False  # the track ended before the relay read the FETCH
            what = f"what came before of {track_text(self.track)}"
            raise refused(what, result.code, result.reason)
        if isinstance(result, RequestError) and self._seen.largest is not None:
            self._unknown(resume, largest)
        overrun = lane.outcome.done() and isinstance(lane.outcome.result(), Overrun)
        return result is not None and not overrun


def _is_end_of_track(outcome: Outcome) -> bool:
    return isinstance(outcome, Ended) and outcome.code in _ENDS
