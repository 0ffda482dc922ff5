"""Where clients come from: how many handshakes and sessions one address may have.

A handshake is the first thing that costs a relay something, and whoever sends its first packet may
name any address as its own. So handshakes of an address that has not been proved have a rate of
their own: over it the address has to be proved (Retry), and only then is it refused. Nobody is kept
out by packets that others send in its name.

IPv6 addresses count by their first 64 bits, since a host can have all of the rest.
"""

from __future__ import annotations

import ipaddress
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from laps.auth.grants import NO_LIMITS
from laps.buckets import Bucket
from laps.edge.shares import Account, Limit, OverLimit, Whose
from laps.types import is_in_network

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.auth.grants import Limits
    from laps.edge.shares import Shares
    from laps.types import Network

# A whole office comes at once when its relay has been restarted.
HANDSHAKE_BURST_S: Final = 10.0

# What an address may take of the relay's time at once: a large frame, a page that is opened.
TIME_BURST_S: Final = 0.1

# A second in which nothing was to be done is worth this many to whoever is held up: a client alone
# then has more than nine tenths of the time, and an hour of idleness is forgotten within a burst.
IDLE_WORTH: Final = 10.0

# Of the time that was counted as idle and was not, this much is taken off later.
MOST_OWED_S: Final = 0.1

# With more of them than this, addresses that have nothing and owe nothing are forgotten.
MANY_ADDRESSES: Final = 10_000


class Knock(Enum):
    """What becomes of the first packet of a handshake."""

    ADMIT = "admit"
    PROVE = "prove"
    "Its address has to be proved first."
    DROP = "drop"
    "The relay has too many, or its address no time: whoever sends it does so again before long."


class IdleTime:
    """How long a relay has had nothing to do, since it began: that time is anybody's."""

    __slots__ = ("_began", "total_s")

    def __init__(self) -> None:
        self.total_s = 0.0
        self._began: float | None = None
        "What of the time had not been needed when it was first looked at."

    def look(self, now: float, ran_s: float, waited_s: float) -> None:
        """Count what was idle up to now.

        `ran_s` is how long the relay has had the processor, `waited_s` how long it has waited for
        it. Waiting counts twice: other programs want the time that looks idle, and whoever is given
        it makes everybody else at the relay wait.

        The clocks may differ by a little between two looks. What was counted too much is taken off
        later.
        """
        unneeded_s = now - ran_s - 2 * waited_s
        if self._began is None:
            self._began = unneeded_s
        idle_s = unneeded_s - self._began
        self.total_s = max(self.total_s, idle_s)
        # After a busy hour, idle time counts again at once.
        self._began = min(self._began, unneeded_s - self.total_s + MOST_OWED_S)


class TimeShare:
    """What one address takes of a relay's time by what it sends: a `net.quic.Meter`.

    It has a part of all time, and whatever is idle besides: alone it has nearly all there is, and
    beside others that need theirs just its part.
    """

    __slots__ = ("_bucket", "_idle", "_idle_s")

    def __init__(self, share: float, idle: IdleTime) -> None:
        self._bucket = Bucket(share, TIME_BURST_S)
        self._idle = idle
        self._idle_s = idle.total_s

    def spend(self, seconds: float, now: float) -> None:
        """It has kept the relay busy."""
        self._bucket.spend(seconds, now)

    def is_spent(self, now: float) -> bool:
        """Whether it has to wait, so that what it sends is lost and QUIC slows it down."""
        idle_s, self._idle_s = self._idle.total_s - self._idle_s, self._idle.total_s
        if idle_s:
            self._bucket.spend(-IDLE_WORTH * idle_s, now)
        return self._bucket.wait_s(now) > 0


class _Address:
    """What one address has."""

    __slots__ = ("account", "proved", "taken", "unproved")

    def __init__(
        self, name: str, limits: Limits, handshakes_per_s: int | None, taken: TimeShare | None
    ) -> None:
        self.account = Account(Whose.ADDRESS, name, limits)
        self.taken = taken
        self.proved = self.unproved = None
        if handshakes_per_s is not None:
            burst = handshakes_per_s * HANDSHAKE_BURST_S
            self.proved, self.unproved = (Bucket(handshakes_per_s, burst) for _ in range(2))

    def is_idle(self, now: float) -> bool:
        buckets = (self.proved, self.unproved, self.account.requests)
        full = all(bucket is None or bucket.is_full(now) for bucket in buckets)
        return full and self.account.is_idle


class Addresses:
    """The addresses that clients come from; a `net.quic.Door`."""

    def __init__(self, shares: Shares, exempt: Sequence[Network] = ()) -> None:
        """Clients in the networks of `exempt` have no limits by address."""
        settings = shares.settings
        self._shares = shares
        self._exempt = tuple(exempt)
        self._limits, self._handshakes = settings.address, settings.address_handshakes_per_s
        self._is_limited = self._limits != NO_LIMITS or self._handshakes is not None
        self._is_limited = self._is_limited or settings.address_time_share is not None
        rate = settings.handshakes_per_s
        self._all = None if rate is None else Bucket(rate, rate)
        self.idle = IdleTime()
        self._time_share = settings.address_time_share
        self._known: dict[str, _Address] = {}
        self._many = MANY_ADDRESSES

    def __len__(self) -> int:
        return len(self._known)

    def knock(self, host: str, now: float, *, proved: bool) -> Knock:
        """The first packet of a handshake; OverLimit if it is refused, of a proved address only."""
        address = self._of(host, now)
        if address is not None:
            # A handshake takes milliseconds: whoever has had its time gets no more by new ones.
            if address.taken is not None and address.taken.is_spent(now):
                return Knock.DROP if proved else Knock.PROVE
            refusal = self._refusal(address, now, proved=proved)
            if refusal is not None and not proved:
                return Knock.PROVE
            if refusal is not None:
                self._shares.refuse(address.account, refusal, now)
                raise refusal
        if self._all is not None and not self._all.take(1, now):
            self._shares.refused[Whose.RELAY, Limit.HANDSHAKES] += 1
            return Knock.DROP
        return Knock.ADMIT

    def arrived(self, host: str, now: float) -> None:
        """A handshake is complete; OverLimit if the address has as many sessions as it may."""
        address = self._of(host, now)
        if address is None:
            return
        try:
            address.account.check(Limit.SESSIONS)
        except OverLimit as over:
            self._shares.refuse(address.account, over, now)
            raise
        finally:  # it counts until it has left, refused or not
            address.account.counts[Limit.SESSIONS] += 1

    def left(self, host: str) -> None:
        """A connection that had arrived is closed."""
        if (known := self._find(host)) is not None:
            known.account.counts[Limit.SESSIONS] -= 1

    def meter(self, host: str) -> TimeShare | None:
        """What measures the time that an address that has arrived takes; None: nobody does."""
        known = self._find(host)
        return None if known is None else known.taken

    def account(self, host: str) -> Account | None:
        """What clients at an address that has arrived count for; None where nothing is counted."""
        known = self._find(host)
        return None if known is None else known.account

    def _refusal(self, address: _Address, now: float, *, proved: bool) -> OverLimit | None:
        account = address.account
        try:
            account.check(Limit.SESSIONS)
        except OverLimit as over:
            return over
        bucket = address.proved if proved else address.unproved
        if bucket is None or bucket.take(1, now):
            return None
        words = f"this address has {self._handshakes} handshakes a second"
        return OverLimit(Limit.HANDSHAKES, words, bucket.wait_s(now, 1))

    def _of(self, host: str, now: float) -> _Address | None:
        if not self._is_limited or not host or is_in_network(host, self._exempt):
            return None
        key = _key(host)
        known = self._known.get(key)
        if known is None:
            self._tidy(now)
            share = self._time_share
            taken = None if share is None else TimeShare(share, self.idle)
            known = self._known[key] = _Address(key, self._limits, self._handshakes, taken)
        return known

    def _find(self, host: str) -> _Address | None:
        if not self._known or not host or is_in_network(host, self._exempt):
            return None
        return self._known.get(_key(host))

    def _tidy(self, now: float) -> None:
        if len(self._known) < self._many:
            return
        for key in [key for key, address in self._known.items() if address.is_idle(now)]:
            del self._known[key]
        self._many = max(MANY_ADDRESSES, 2 * len(self._known))


@lru_cache(maxsize=4096)
def _key(host: str) -> str:
    """What an address counts as: itself, or the network of a host with many."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{ipaddress.ip_network((address, 64), strict=False)}"
