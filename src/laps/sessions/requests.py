"""The requests of a MoQT session, of both sides: their ids, what is open, and what may follow.

Ids follow each other in steps of two, each side with its own parity. Each side also says how far
the other may count, and lets it count further as requests end.

`Requests` knows nothing of streams and bytes: it is given messages, checks them against what is
open, and completes what a draft leaves out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from laps.ranges import last_of
from laps.sessions.tokens import TokenCache
from laps.wire.buffer import VARINT_MAX
from laps.wire.moqt.codes import MoqtViolation, RequestCode, SessionCode, violation
from laps.wire.moqt.messages import (
    Fetch,
    FetchCancel,
    FetchOk,
    Publish,
    PublishNamespace,
    PublishOk,
    RequestError,
    RequestKind,
    RequestOk,
    RequestUpdate,
    StandaloneFetch,
    Subscribe,
    SubscribeNamespace,
    SubscribeOk,
    TrackStatus,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.names import Namespace
    from laps.types import TrackName
    from laps.wire.moqt.messages import PublishDone, Unsubscribe, UnsubscribeNamespace

KINDS: Final = {
    Subscribe: RequestKind.SUBSCRIBE,
    RequestUpdate: RequestKind.UPDATE,
    Publish: RequestKind.PUBLISH,
    Fetch: RequestKind.FETCH,
    TrackStatus: RequestKind.TRACK_STATUS,
    PublishNamespace: RequestKind.PUBLISH_NAMESPACE,
    SubscribeNamespace: RequestKind.SUBSCRIBE_NAMESPACE,
}

Request = (
    Subscribe
    | RequestUpdate
    | Publish
    | Fetch
    | TrackStatus
    | PublishNamespace
    | SubscribeNamespace
)
Answer = SubscribeOk | PublishOk | FetchOk | RequestOk | RequestError
R = TypeVar("R", bound=Request)

# What answers a request, besides an error; RequestOk where none stands here.
_ANSWERS: Final[dict[RequestKind, type]] = {
    RequestKind.SUBSCRIBE: SubscribeOk,
    RequestKind.PUBLISH: PublishOk,
    RequestKind.FETCH: FetchOk,
}

# Requests that end with their answer.
ENDED_BY_ANSWER: Final = (RequestKind.UPDATE, RequestKind.TRACK_STATUS)


@dataclass(slots=True)
class Pending:
    """A request, as long as it lives."""

    kind: RequestKind
    message: Request
    answered: bool = False
    stream_id: int | None = None
    "Where a SUBSCRIBE_NAMESPACE has a stream of its own: that stream."


class Waiting(NamedTuple):
    """What is sent when the other side allows its request."""

    request_id: int
    data: bytes
    stream_id: int | None
    "None: on the control stream."
    fin: bool = False


class Ledger(Protocol):
    """Counts what the other side has open."""

    def asked_in_vain(self) -> None:
        """A request was refused by the session itself, and goes no further."""

    def answered(self, request_id: int) -> None:
        """A request of either side has its answer."""

    def ended(self, request_id: int) -> None:
        """A request of either side is open no more."""


class NoLedger:
    """A `Ledger` of a session that nobody counts."""

    def asked_in_vain(self) -> None:
        """As `Ledger`."""

    def answered(self, request_id: int) -> None:
        """As `Ledger`."""

    def ended(self, request_id: int) -> None:
        """As `Ledger`."""


class RequestIds:
    """The ids of both sides."""

    def __init__(self, limit: int, *, is_client: bool) -> None:
        """`limit` is how many requests of the other side may be open at once."""
        self.most = 0
        "The first of ours that the other side does not allow."
        self.allowed = 2 * limit + is_client
        "The first of theirs that we do not allow."
        self.finished = 0
        "How many of theirs have ended."
        self._limit = limit
        self._next = 0 if is_client else 1
        self._first = self._expected = 1 if is_client else 0
        self._skipped: set[int] = set()
        self._blocked_at = -1
        self._other_waits = False
        "The other side has said that the limit holds it up, and has not been allowed more since."
        self._presumed = False
        "`most` is what we take for granted, and nobody has said."

    @property
    def left(self) -> int:
        """How many requests of ours the other side allows now."""
        return (self.most - self._next + 1) // 2

    def next(self) -> int:
        """The id of our next request."""
        request_id, self._next = self._next, self._next + 2
        return request_id

    def take(self, request_id: int, *, in_order: bool) -> None:
        """The other side has used an id.

        Some drafts send some requests on streams of their own, and QUIC keeps no order between
        streams: an id may come before a smaller one that is still under way.
        """
        if request_id % 2 != self._first % 2:
            problem = f"request id {request_id} is one of ours to use"
            raise MoqtViolation(SessionCode.INVALID_REQUEST_ID, problem)
        if request_id >= self.allowed:
            problem = f"request id {request_id} is past the limit of {self.allowed}"
            raise MoqtViolation(SessionCode.TOO_MANY_REQUESTS, problem)
        if request_id in self._skipped:
            self._skipped.discard(request_id)
            return
        if request_id < self._expected or (request_id > self._expected and in_order):
            problem = f"request id {request_id} where {self._expected} comes next"
            raise MoqtViolation(SessionCode.INVALID_REQUEST_ID, problem)
        self._skipped.update(range(self._expected, request_id, 2))
        self._expected = request_id + 2

    def has_been(self, request_id: int) -> bool:
        """Whether an id, of either side, has been used."""
        mine = request_id % 2 != self._first % 2
        return request_id < (self._next if mine else self._expected)

    def raised(self, most: int) -> None:
        """The other side allows more."""
        if most <= self.most and not self._presumed:
            raise violation(f"MAX_REQUEST_ID fell from {self.most} to {most}")
        self.most, self._presumed = most, False

    def presume(self) -> None:
        """The other side has never allowed any: take it that it does not count them."""
        self.most, self._presumed = VARINT_MAX, True

    def blocked_is_news(self) -> bool:
        """Whether the other side has not been told yet that this limit holds us up."""
        told, self._blocked_at = self._blocked_at, self.most
        return told != self.most

    def credit(self, *, blocked: bool) -> int | None:
        """A new limit for the other side: as many more as have ended, a good part at a time.

        One that waits (`blocked`: it says so now) is given every single one as soon as it ends: it
        may have nothing else to end.
        """
        self._other_waits = self._other_waits or blocked
        allowed = self._first + 2 * (self.finished + self._limit)
        enough = self._other_waits or allowed - self.allowed >= self._limit
        if allowed <= self.allowed or not enough:
            return None
        self.allowed = allowed
        self._other_waits = False
        return allowed


class Requests:
    """What both sides have asked for and is not ended."""

    def __init__(
        self,
        limit: int,
        token_cache_bytes: int,
        *,
        is_client: bool,
        ledger: Ledger | None = None,
    ) -> None:
        self._ledger = ledger or NoLedger()
        self.ids = RequestIds(limit, is_client=is_client)
        self.tokens = TokenCache(token_cache_bytes)
        self.incoming: dict[int, Pending] = {}
        "What the other side asked for, by request id."
        self.outgoing: dict[int, Pending] = {}
        "What we asked for, by request id."
        self.aliases: dict[int, int] = {}
        "Track aliases of the other side's objects: the request each belongs to."
        self.waiting: deque[Waiting] = deque()
        "What we say of requests that the other side does not allow yet."
        self._alias_tracks: dict[int, TrackName] = {}
        self._withdrawn_ids: set[int] = set()
        "Requests of ours that were withdrawn before the answer, which may still come."

    # -- what the other side says ------------------------------------------------------------------

    def asked(self, message: R, stream_id: int | None, *, in_order: bool) -> R | RequestError:
        """A request, with its tokens resolved, or the error that answers it."""
        request_id = message.request_id
        self.ids.take(request_id, in_order=in_order)
        kind = KINDS[type(message)]
        pending = self.incoming[request_id] = Pending(kind, message, stream_id=stream_id)
        message = replace(message, tokens=self.tokens.take(message.tokens))
        pending.message = message
        if isinstance(message, RequestUpdate):
            existing = message.existing_id
            if existing not in self.incoming and existing not in self.outgoing:
                self._require_been(existing, "an update of request {}, which has never been")
                # It has crossed the end of what it updates.
                reason = f"request {existing} has ended"
                self._ledger.asked_in_vain()
                return RequestError(request_id, RequestCode.DOES_NOT_EXIST, reason)
        if isinstance(message, SubscribeNamespace) and self._overlaps(message):
            reason = "there is a namespace subscription with a prefix in common already"
            self._ledger.asked_in_vain()
            return RequestError(request_id, RequestCode.PREFIX_OVERLAP, reason, kind=kind)
        if isinstance(message, Publish):
            self._take_alias(message.alias, request_id, message.track)
        return message

    def _overlaps(self, message: SubscribeNamespace) -> bool:
        return any(
            isinstance(other.message, SubscribeNamespace)
            and other_id != message.request_id
            and all(a == b for a, b in zip(other.message.prefix, message.prefix, strict=False))
            for other_id, other in self.incoming.items()
        )

    def answered(self, message: Answer) -> Answer | None:
        """An answer that knows what it answers; None if we have withdrawn the request."""
        request_id = message.request_id
        if request_id in self._withdrawn_ids:
            self._withdrawn_ids.discard(request_id)
            return None
        pending = self.outgoing.get(request_id)
        if pending is None or pending.answered:
            raise violation(f"an answer to request {request_id}, which waits for none")
        if not isinstance(message, (_ANSWERS.get(pending.kind, RequestOk), RequestError)):
            raise violation(f"{type(message).__name__} in answer to {pending.kind.value}")
        if isinstance(message, RequestOk | RequestError):
            if message.kind not in (None, pending.kind):
                raise violation(f"{message.kind} is answered, and {pending.kind} was asked")
            message = replace(message, kind=pending.kind)
        pending.answered = True
        if isinstance(message, FetchOk) and isinstance(pending.message, Fetch):
            wanted = pending.message.range
            if isinstance(wanted, StandaloneFetch) and last_of(message.end) < wanted.start:
                raise violation("FETCH_OK ends before what was asked for begins")
        if isinstance(message, SubscribeOk) and isinstance(pending.message, Subscribe):
            self._take_alias(message.alias, request_id, pending.message.track)
        if isinstance(message, RequestError) or pending.kind in ENDED_BY_ANSWER:
            del self.outgoing[request_id]
            self._ledger.ended(request_id)
        return message

    def answer(self, request_id: int) -> None:
        """We answer a request of theirs."""
        if (pending := self.incoming.get(request_id)) is not None:
            pending.answered = True
            self._ledger.answered(request_id)

    def is_withdrawn(self, message: Unsubscribe | FetchCancel) -> bool:
        """Whether a request ends with this; False if our own end of it has crossed theirs."""
        request_id = message.request_id
        wanted = RequestKind.FETCH if isinstance(message, FetchCancel) else RequestKind.SUBSCRIBE
        pending = self.incoming.get(request_id)
        if pending is None and wanted is RequestKind.SUBSCRIBE and request_id in self.outgoing:
            wanted, pending = RequestKind.PUBLISH, self.outgoing[request_id]
        if pending is None:
            self._require_been(request_id, "request {} has never been, and is withdrawn")
            return False
        if pending.kind is not wanted:
            raise violation(f"{type(message).__name__} for a {pending.kind.value}")
        return True

    def is_done(self, message: PublishDone) -> bool:
        """Whether a subscription ends with this, ours by SUBSCRIBE or theirs by PUBLISH."""
        request_id = message.request_id
        wanted = RequestKind.SUBSCRIBE
        pending = self.outgoing.get(request_id)
        if pending is None:
            wanted = RequestKind.PUBLISH
            pending = self.incoming.get(request_id)
        if pending is None:
            self._require_been(request_id, "PUBLISH_DONE for request {}, which has never been")
            return False
        if pending.kind is not wanted:
            raise violation(f"PUBLISH_DONE for a {pending.kind.value}")
        return True

    def find_published(
        self, table: dict[int, Pending], request_id: int | None, namespace: Namespace | None
    ) -> tuple[int, Namespace] | None:
        """The PUBLISH_NAMESPACE that a draft names by its request, or by its namespace."""
        for key, pending in table.items():
            if isinstance(pending.message, PublishNamespace) and (
                key == request_id or pending.message.namespace == namespace
            ):
                return key, pending.message.namespace
        if request_id is not None:
            self._require_been(request_id, "request {} has never been, and is withdrawn")
        return None

    def find_watched(self, message: UnsubscribeNamespace) -> tuple[int, Namespace] | None:
        """By its prefix, as draft 14 says, or by the request's id, as some clients do."""
        for request_id, pending in self.incoming.items():
            asked = pending.message
            if not isinstance(asked, SubscribeNamespace):
                continue
            if asked.prefix == message.prefix or (not message.prefix and request_id == message.id):
                return request_id, asked.prefix
        return None

    def _require_been(self, request_id: int, problem: str) -> None:
        if not self.ids.has_been(request_id):
            raise violation(problem.format(request_id))

    # -- what we say -------------------------------------------------------------------------------

    def released(self) -> Iterator[Waiting]:
        """What waited, and is allowed now."""
        while self.waiting and self.waiting[0].request_id < self.ids.most:
            yield self.waiting.popleft()

    def finish(self, request_id: int) -> bool:
        """A request has ended; whether it was theirs, which gives them room for another."""
        self._ledger.ended(request_id)
        mine = self.outgoing.pop(request_id, None)
        if mine is not None and not mine.answered and mine.stream_id is None:
            self._withdrawn_ids.add(request_id)
        if self.incoming.pop(request_id, None) is None:
            return False
        self.ids.finished += 1
        return True

    # -- aliases -----------------------------------------------------------------------------------

    def _take_alias(self, alias: int, request_id: int, track: TrackName) -> None:
        if self._alias_tracks.get(alias, track) != track:
            problem = f"track alias {alias} stands for another track already"
            raise MoqtViolation(SessionCode.DUPLICATE_TRACK_ALIAS, problem)
        other = self.aliases.get(alias)
        if other in self.incoming or other in self.outgoing:
            return  # the same track again, which is not for the alias to refuse
        self.aliases[alias] = request_id
        self._alias_tracks[alias] = track

    def move_alias(self, alias: int, request_id: int) -> None:
        """From now on an alias belongs to another request for its track."""
        self.aliases[alias] = request_id

    def drop_alias(self, alias: int, request_id: int | None = None) -> None:
        """Nothing more is expected under an alias, if it still belongs to the request."""
        if request_id is None or self.aliases.get(alias) == request_id:
            self.aliases.pop(alias, None)
            self._alias_tracks.pop(alias, None)
