"""How much of a relay one bearer, one address and all clients together may have.

    Shares            all accounts, and what was refused; the Edge owns it
    Account           what a bearer, an address or the relay has now, and may have
    ClientShare       one client: the accounts that it counts for, and what each request holds there

A bearer is whoever shows a token with limits: the token's id (`jti`) and its key, or, where it has
no id, its subject and its key. All sessions of a bearer count together, whatever they speak. A
session counts for every bearer whose token it uses, a request for the bearer that it depends on.

What there may be so much of at a time is refused when there is more of it, with the time after
which to ask again. What there may be so much of in a second is refused too if it is requests, and
shaped if it is bytes: not read for a while, or sent later.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Final

from laps.auth.grants import NO_LIMITS, Action, Grant, Limits
from laps.buckets import Bucket
from laps.errors import LapsError
from laps.sessions.half_messages import HalfMessages
from laps.tracks.cache_owner import CacheOwner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.relay.journal import Journal

# Requests come in bursts, when a page is opened: four seconds of them at once are no flood.
REQUEST_BURST_S: Final = 4.0

# Bytes come in frames. A quarter of a second of them, and a frame of video at least, pass unshaped.
BYTE_BURST_S: Final = 0.25
LEAST_BURST_BYTES: Final = 64 * 1024

# Something that there is too much of ends when somebody ends it, and nobody knows when.
RETRY_S: Final = 1.0

# The operator is told once in this time of each account.
NOTE_S: Final = 60.0

# With more accounts than this, those that nobody uses are forgotten.
MANY_ACCOUNTS: Final = 1000


class Limit(StrEnum):
    """What is limited; the values are names of `Limits`, and labels of a metric."""

    SESSIONS = "sessions"
    HANDSHAKES = "handshakes_per_s"
    REQUESTS = "requests_per_s"
    OPEN_REQUESTS = "open_requests"
    TRACKS = "tracks"
    SUBSCRIPTIONS = "subscriptions"
    NAMESPACES = "namespaces"
    NAME_BYTES = "name_bytes"
    HALF_MESSAGES = "half_message_bytes"
    BYTES_IN = "bytes_in_per_s"
    BYTES_OUT = "bytes_out_per_s"


class Whose(StrEnum):
    """Who has an account; the values are labels of a metric."""

    BEARER = "bearer"
    ADDRESS = "address"
    RELAY = "relay"


_HOLDS: Final = {
    Action.PUBLISH: Limit.TRACKS,
    Action.SUBSCRIBE: Limit.SUBSCRIPTIONS,
    Action.PUBLISH_NAMESPACE: Limit.NAMESPACES,
    Action.SUBSCRIBE_NAMESPACE: Limit.NAMESPACES,
}
"What a request holds as long as it lasts, besides being one."

_WORDS: Final = {
    Limit.SESSIONS: "sessions",
    Limit.OPEN_REQUESTS: "requests without an answer",
    Limit.TRACKS: "published tracks",
    Limit.SUBSCRIPTIONS: "subscriptions",
    Limit.NAMESPACES: "namespaces, published and watched",
}


class OverLimit(LapsError):  # noqa: N818 - as in errors.py
    """Somebody has as much as its share is. The words say what, and when to ask again."""

    def __init__(
        self, limit: Limit, words: str, retry_s: float | None, *, is_flood: bool = False
    ) -> None:
        super().__init__(limit, words)
        self.limit = limit
        self.words = words
        self.retry_s = retry_s
        "When it may be asked for again; None: it will be refused again."
        self.is_flood = is_flood
        "It does not wait for that time: its session is to be closed."

    def __str__(self) -> str:
        if self.retry_s is None:
            return self.words
        return f"{self.words}; ask again in {self.retry_s:.3g} s"

    @property
    def retry_ms(self) -> int | None:
        """As REQUEST_ERROR has it."""
        return None if self.retry_s is None else max(1, round(self.retry_s * 1000))


class Account:
    """What one bearer, one address or the relay has, and may have."""

    def __init__(self, whose: Whose, name: str, limits: Limits) -> None:
        """`name` is for the operator."""
        self.whose = whose
        self.name = name
        self.limits = limits
        self.counts: Counter[Limit] = Counter()
        "What it has at the moment."
        self.requests = _bucket(limits.requests_per_s, REQUEST_BURST_S)
        self.refusals = _bucket(limits.requests_per_s, REQUEST_BURST_S)
        "Refused requests: whoever has had as many of these as it may have requests is flooding."
        self.bytes_in = _bucket(limits.bytes_in_per_s, BYTE_BURST_S, LEAST_BURST_BYTES)
        self.bytes_out = _bucket(limits.bytes_out_per_s, BYTE_BURST_S, LEAST_BURST_BYTES)
        self.cache = None if limits.cache_bytes is None else CacheOwner(limits.cache_bytes)
        "What it publishes that is kept; None where that has no bound of its own."
        self.noted_at = -inf
        "When the operator was last told that it is over a limit."

    @property
    def is_idle(self) -> bool:
        """Whether nothing is counted in it, so that it can be forgotten."""
        return not +self.counts and (self.cache is None or not self.cache.size)

    def check(self, limit: Limit, more: int = 1) -> None:
        """OverLimit if there is no room for more."""
        most = getattr(self.limits, limit)
        if most is not None and self.counts[limit] + more > most:
            raise OverLimit(limit, f"{self._owner} has {most} {_WORDS[limit]}", RETRY_S)

    def check_rate(self, now: float) -> None:
        """A request; OverLimit if it is one too many in a second."""
        if self.requests is None or self.requests.take(1, now):
            return
        is_flood = self.refusals is not None and not self.refusals.take(1, now)
        wait_s = self.requests.wait_s(now, 1)
        words = f"{self._owner} has {self.limits.requests_per_s} requests a second"
        raise OverLimit(Limit.REQUESTS, words, None if wait_s == inf else wait_s, is_flood=is_flood)

    @property
    def _owner(self) -> str:
        return "this token" if self.whose is Whose.BEARER else f"this {self.whose}"


def _bucket(rate: int | None, burst_s: float, least: float = 0.0) -> Bucket | None:
    return None if rate is None else Bucket(rate, max(1.0, rate * burst_s, least))


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """What an operator decides about shares; without them nothing has a bound here."""

    address: Limits = NO_LIMITS
    "Of each address that clients come from."
    address_handshakes_per_s: int | None = None
    address_time_share: float | None = None
    "The part of the relay's time that what one address sends may take while others need it."
    relay: Limits = NO_LIMITS
    "Of all clients together."
    handshakes_per_s: int | None = None
    name_bytes: int | None = None
    "Of a namespace and a track's name together."
    half_message_bytes: int | None = None
    "Of messages that have begun to arrive, on all streams of all clients."


class Shares:
    """All accounts of a relay."""

    def __init__(self, settings: ShareSettings, journal: Journal) -> None:
        self.settings = settings
        self.refused: Counter[tuple[str, str]] = Counter()
        "By whose limit it was, and which."
        self.shaped: Counter[tuple[str, str]] = Counter()
        "How often somebody had to wait, by the same."
        self.half_messages = HalfMessages(settings.half_message_bytes)
        limited = settings.relay != NO_LIMITS
        self.relay = Account(Whose.RELAY, "relay", settings.relay) if limited else None
        self._journal = journal
        self._bearers: dict[tuple[object, ...], Account] = {}
        self._many = MANY_ACCOUNTS

    def bearer(self, grant: Grant | None) -> Account | None:
        """The account of whoever shows a token; None where the token has no limits."""
        if grant is None or grant.limits is NO_LIMITS or grant.limits == NO_LIMITS:
            return None
        who = ("id", grant.id) if grant.id else ("subject", grant.subject)
        # A token with other limits has an account of its own.
        key = (grant.key_id, grant.key_fingerprint, *who, grant.limits)
        account = self._bearers.get(key)
        if account is None:
            self._tidy()
            name = grant.subject or grant.id or grant.key_id
            account = self._bearers[key] = Account(Whose.BEARER, name, grant.limits)
        return account

    def client(self, address: Account | None = None) -> ClientShare:
        """The share of a new client, that comes from an address."""
        return ClientShare(self, address)

    def refuse(self, account: Account, over: OverLimit, now: float) -> None:
        """Somebody was over a limit: count it, and tell the operator now and then."""
        self.refused[account.whose, over.limit] += 1
        self.note(account, over.limit, over.words, now)

    def shape(self, account: Account, limit: Limit, now: float) -> None:
        """Somebody has to wait."""
        self.shaped[account.whose, limit] += 1
        most = getattr(account.limits, limit)
        self.note(account, limit, f"it is held to {most} bytes a second", now)

    def note(self, account: Account, limit: Limit, words: str, now: float) -> None:
        """Tell the operator, once for each account in a while.

        An address stays in the list of clients: whoever reads telemetry need not know it.
        """
        if now - account.noted_at >= NOTE_S:
            account.noted_at = now
            name = account.name if account.whose is Whose.BEARER else ""
            self._journal.note(now, "over_limit", f"{account.whose} {name}".strip(), limit, words)

    def check_name(self, namespace: tuple[bytes, ...], name: bytes | None, now: float) -> None:
        """OverLimit if a name is too long."""
        most = self.settings.name_bytes
        if most is None:
            return
        size = sum(map(len, namespace)) + len(name or b"")
        if size > most:
            words = f"the name has {size} bytes: {most} at most (limits.name_bytes)"
            self.refused[Whose.RELAY, Limit.NAME_BYTES] += 1
            raise OverLimit(Limit.NAME_BYTES, words, None)

    def _tidy(self) -> None:
        if len(self._bearers) < self._many:
            return
        for key in [key for key, account in self._bearers.items() if account.is_idle]:
            del self._bearers[key]
        self._many = max(MANY_ACCOUNTS, 2 * len(self._bearers))


@dataclass(slots=True)
class _Held:
    """What one request holds."""

    accounts: tuple[Account, ...]
    holds: Limit | None
    is_open: bool


class ClientShare:
    """What one client has of the relay: a `sessions.requests.Ledger`."""

    __slots__ = (
        "_bearers",
        "_common",
        "_held",
        "_shares",
        "inflow",
        "outflow",
        "over",
        "unseen",
    )

    def __init__(self, shares: Shares, address: Account | None) -> None:
        self._shares = shares
        self._common = tuple(it for it in (shares.relay, address) if it is not None)
        "Accounts that it counts for whatever it shows."
        self._bearers: dict[Account, None] = {}
        self._held: dict[int, _Held] = {}
        "By request id, or by control stream."
        self.inflow: tuple[Account, ...] = ()
        "Accounts that bound how fast it is read from."
        self.outflow: tuple[Account, ...] = ()
        "Accounts that bound how fast it is sent to."
        self.over = 0
        "How often it was refused something, or had to wait."
        self.unseen = 0
        "Requests that its session refused by itself."
        self._review()

    @property
    def bearer(self) -> str:
        """Who it is, for the operator: of its tokens with limits the first."""
        return next((account.name for account in self._bearers), "")

    @property
    def cache_owner(self) -> CacheOwner | None:
        """Whose what it publishes is in the cache: the bearer's, or else its address's."""
        accounts = (*self._bearers, *self._common)
        return next((it.cache for it in accounts if it.cache is not None), None)

    def check_name(self, namespace: tuple[bytes, ...], name: bytes | None, now: float) -> None:
        """As `Shares.check_name`."""
        self._shares.check_name(namespace, name, now)

    # -- bearers -----------------------------------------------------------------------------------

    def join(self, grants: Iterable[Grant], now: float) -> bool:
        """The session uses tokens; OverLimit if a bearer has too many sessions.

        Whether bounds on bytes may be others than before.
        """
        before = len(self._bearers)
        for grant in grants:
            account = self._shares.bearer(grant)
            if account is not None and account not in self._bearers:
                self._check(account, Limit.SESSIONS, now)
                account.counts[Limit.SESSIONS] += 1
                self._bearers[account] = None
        if len(self._bearers) == before:
            return False
        self._review()
        return True

    def keep(self, grants: Iterable[Grant]) -> None:
        """Only these tokens are valid: the session no longer counts for the bearers of others."""
        if not self._bearers:
            return
        valid = {self._shares.bearer(grant) for grant in grants}
        for account in [it for it in self._bearers if it not in valid]:
            account.counts[Limit.SESSIONS] -= 1
            del self._bearers[account]
        self._review()

    def _review(self) -> None:
        accounts = (*self._common, *self._bearers)
        self.inflow = tuple(it for it in accounts if it.bytes_in is not None)
        self.outflow = tuple(it for it in accounts if it.bytes_out is not None)

    # -- requests ----------------------------------------------------------------------------------

    def ask(self, request_id: int, action: Action, grant: Grant | None, now: float) -> None:
        """A request of the client's; OverLimit if it is one too many."""
        account = self._shares.bearer(grant)
        accounts = self._common if account is None else (*self._common, account)
        for it in accounts:
            self._check_rate(it, now)
        holds = _HOLDS.get(action)
        if request_id in self._held:
            return  # it is updated
        for it in accounts:
            self._check(it, Limit.OPEN_REQUESTS, now)
            if holds is not None:
                self._check(it, holds, now)
        self._hold(request_id, accounts, holds, is_open=True)

    def ask_more(self, request_id: int, now: float) -> None:
        """A request about an earlier one; OverLimit if it is one too many in a second."""
        held = self._held.get(request_id)
        for account in (*self._common, *self._bearers) if held is None else held.accounts:
            self._check_rate(account, now)

    def has_room(self, limit: Limit) -> bool:
        """Whether the relay may begin something for the client by itself; if not, it is counted."""
        for account in (*self._common, *self._bearers):
            try:
                account.check(limit)
            except OverLimit:
                self.over += 1
                self._shares.refused[account.whose, limit] += 1
                return False
        return True

    def hold(self, request_id: int, limit: Limit) -> None:
        """Something begins that the relay asks of the client, or offers to it."""
        self._hold(request_id, (*self._common, *self._bearers), limit, is_open=False)

    def count_unseen(self, now: float) -> None:
        """Requests that the session refused by itself count as well; OverLimit."""
        while self.unseen:
            self.unseen -= 1
            self.ask_more(-1, now)

    def asked_in_vain(self) -> None:
        """As `Ledger.asked_in_vain`."""
        self.unseen += 1

    def answered(self, request_id: int) -> None:
        """As `Ledger.answered`."""
        held = self._held.get(request_id)
        if held is not None and held.is_open:
            held.is_open = False
            for account in held.accounts:
                account.counts[Limit.OPEN_REQUESTS] -= 1
            if held.holds is None:
                del self._held[request_id]

    def ended(self, request_id: int) -> None:
        """As `Ledger.ended`."""
        held = self._held.pop(request_id, None)
        if held is None:
            return
        for account in held.accounts:
            account.counts[Limit.OPEN_REQUESTS] -= held.is_open
            if held.holds is not None:
                account.counts[held.holds] -= 1

    def close(self) -> None:
        """The client has left, with all that it held."""
        for request_id in list(self._held):
            self.ended(request_id)
        self.keep(())

    def _hold(
        self,
        request_id: int,
        accounts: tuple[Account, ...],
        holds: Limit | None,
        *,
        is_open: bool,
    ) -> None:
        if not accounts or request_id in self._held:
            return
        for account in accounts:
            account.counts[Limit.OPEN_REQUESTS] += is_open
            if holds is not None:
                account.counts[holds] += 1
        self._held[request_id] = _Held(accounts, holds, is_open)

    def _check(self, account: Account, limit: Limit, now: float) -> None:
        try:
            account.check(limit)
        except OverLimit as over:
            self._refuse(account, over, now)
            raise

    def _check_rate(self, account: Account, now: float) -> None:
        try:
            account.check_rate(now)
        except OverLimit as over:
            self._refuse(account, over, now)
            raise

    def _refuse(self, account: Account, over: OverLimit, now: float) -> None:
        self.over += 1
        self._shares.refuse(account, over, now)

    # -- bytes -------------------------------------------------------------------------------------

    def took_in(self, size: int, now: float) -> None:
        """Bytes came from the client."""
        for account in self.inflow:
            if account.bytes_in is not None:
                account.bytes_in.spend(size, now)

    def wait_s(self, now: float) -> float:
        """How long nothing is to be read from the client."""
        longest = 0.0
        for account in self.inflow:
            if account.bytes_in is not None:
                longest = max(longest, account.bytes_in.wait_s(now))
        return longest

    def held_up(self, limit: Limit, now: float) -> None:
        """The client has to wait: count it for those whose share it is."""
        self.over += 1
        for account in self.inflow if limit is Limit.BYTES_IN else self.outflow:
            bucket = account.bytes_in if limit is Limit.BYTES_IN else account.bytes_out
            if bucket is not None and bucket.wait_s(now):
                self._shares.shape(account, limit, now)
