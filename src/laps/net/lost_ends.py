"""Ends of streams that qh3 loses for good, and how a reader has them all the same.

    data of a stream     lost      repeated, and acknowledged
    its end, apart       lost      never repeated: the stream has all of its data, and no end

So the core does where the last data and an end without data are both lost. The end cannot be
written a second time. What can be had is a reset: packets were lost, what they held has been
repeated, all packets up to then have arrived, and the core still knows the stream: its end was in
none of them. `END_LOST` is the code of a reset which says that all of the data has arrived, and
means the end. Readers of other makes see a stream that was given up after the last of its data.

Only streams in one direction are looked at: of others the core does not tell that their end has
arrived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from qh3._hazmat import QuicConnectionCore

END_LOST: Final = 0x4C_46_49_4E

# What was lost is repeated at once, but for pacing, which spreads packets over a round trip.
ROUND_TRIPS: Final = 2
LEAST_S: Final = 0.05


class LostEnds:
    """The streams of one connection whose end is written, and not known to have arrived."""

    __slots__ = ("_doubted", "_losses", "_mark", "_open", "due")

    def __init__(self) -> None:
        self.due: float | None = None
        "When it is worth a look though nothing has come."
        self._open: dict[int, None] = {}
        self._losses = 0
        "How many packets had been lost when it was looked last."
        self._doubted: set[int] = set()
        "Those whose end may have been in one of them."
        self._mark: int | None = None
        "The last of the packets that what was lost is repeated in; None where that is not known."

    def __len__(self) -> int:
        return len(self._open)

    def written(self, stream_id: int, core: QuicConnectionCore) -> None:
        """The end of a stream is on its way."""
        if stream_id & 2:
            if not self._open:
                self._losses = core.loss_total
            self._open[stream_id] = None

    def over(self, stream_id: int) -> None:
        """A stream has ended, or was reset."""
        self._open.pop(stream_id, None)
        if not self._open:
            self.due = None

    def find(self, core: QuicConnectionCore, now: float, *, all_sent: bool) -> list[int]:
        """The streams whose end will not be sent again; `all_sent`: nothing waits to be sent."""
        if (losses := core.loss_total) != self._losses:
            self._losses, self._mark = losses, None
            self._doubted = set(self._open)
            self._look_later(core, now)
        self._doubted &= self._open.keys()
        if not self._doubted:
            self.due = None
            return []
        packets = core.outstanding_application_packets
        if self.due is not None and now >= self.due:
            if not all_sent:
                self._look_later(core, now)
                return []
            # Where the peer's window is closed, the rest of a stream and its end are still to come.
            self._doubted = {it for it in self._doubted if not core.get_send_buffer_size(it)}
            self._mark, self.due = packets[-1][0] if packets else -1, None
            core.send_ping(0)  # some packets are acknowledged only with those after them
        if self._mark is None or (packets and packets[0][0] <= self._mark):
            return []
        if not all_sent:  # a frame of a stream may be prepared, and the core fails without that
            return []
        found = sorted(self._doubted)
        self._doubted.clear()
        return found

    def _look_later(self, core: QuicConnectionCore, now: float) -> None:
        self.due = now + max(LEAST_S, ROUND_TRIPS * (core.smoothed_rtt or 0.0))
