"""Clients that send faster than their share are left unread for a while, and what they begin and do
not finish is bounded over all of them.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from laps.edge.shares import Limit, OverLimit, Whose

if TYPE_CHECKING:
    from laps.edge.client import EdgeClient
    from laps.edge.context import Context


# Requests take a tenth of a millisecond and more: a turn with so many of one client is as long as a
# frame of video may be late. After that it is left unread for this long: 12,800 a second.
MOST_MESSAGES: Final = 64
TURN_S: Final = 0.005

# A client whose address has used up its time is tried again after this long: a hundred clients of
# such an address then take a few milliseconds of each second for nothing.
SPENT_S: Final = 0.05


class Shaping:
    """Who waits."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def took_in(self, client: EdgeClient, size: int, now: float) -> None:
        """Bytes came from a client whose share is so much a second."""
        share = client.share
        share.took_in(size, now)
        if not client.is_held and (wait_s := share.wait_s(now)):
            share.held_up(Limit.BYTES_IN, now)
            client.hold()
            self._expect(client, wait_s, now)

    def _expect(self, client: EdgeClient, wait_s: float, now: float) -> None:
        if wait_s < inf:
            self._context.at(now + wait_s, partial(self._go_on, client))

    def took_message(self, client: EdgeClient, now: float) -> bool:
        """A message of a client was acted on; whether the next is for another turn of the loop.

        A client may ask for a thousand things in one packet's time: others are not to wait for all.
        """
        if now - client.turn_at > TURN_S:
            client.turn_at, client.messages = now, 0
        client.messages += 1
        if client.messages < MOST_MESSAGES:
            return False
        if not client.is_held:
            client.hold()
            self._expect(client, TURN_S, now)
        return True

    def _go_on(self, client: EdgeClient, now: float) -> None:
        if client not in self._context.connected:
            return
        client.turn_at, client.messages = now, 0
        has_more = client.link.in_its_time(client.read_on, now)
        if has_more or has_more is None:
            self._expect(client, TURN_S if has_more else SPENT_S, now)
            return
        # Others of the same bearer may have used what has gathered since.
        if wait_s := client.share.wait_s(now):
            self._expect(client, wait_s, now)
        else:
            client.release()

    def pace(self, client: EdgeClient) -> None:
        """A client may count for others than before: send to it no faster than they allow."""
        if client.share.outflow != client.paced_by:
            client.paced_by = client.share.outflow
            client.link.pace(client.share)

    def messages_read(self, client: EdgeClient, now: float) -> None:
        """Messages of a client were read, and what is not whole of them is held."""
        while client.share.unseen:
            try:
                client.share.count_unseen(now)
            except OverLimit as over:
                if over.is_flood:
                    client.link.close(client.flood_code, str(over))
        if self._context.shares.half_messages.is_full:
            self._relieve(now)

    def _relieve(self, now: float) -> None:
        """All sessions together hold too much of messages: the one that holds most is closed."""
        shares = self._context.shares
        largest = max(self._context.connected, key=lambda it: it.session.held_bytes)
        words = (
            f"messages that are not whole have {shares.half_messages.size} bytes in all sessions "
            f"({largest.session.held_bytes} in this one): limits.half_message_bytes is "
            f"{shares.half_messages.most}"
        )
        shares.refused[Whose.RELAY, Limit.HALF_MESSAGES] += 1
        largest.session.let_go()
        largest.link.close(largest.held_code, words)
