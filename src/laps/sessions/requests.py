"""Requests of a MoQT session: what they are, and the ids they go by.

Ids follow each other in steps of two, each side with its own parity. Each side also says how far
the other may count, and lets it count further as requests end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from laps.wire.moqt.codes import MoqtViolation, SessionCode, violation
from laps.wire.moqt.messages import (
    Fetch,
    FetchOk,
    Publish,
    PublishNamespace,
    PublishOk,
    RequestError,
    RequestKind,
    RequestOk,
    RequestUpdate,
    Subscribe,
    SubscribeNamespace,
    SubscribeOk,
    TrackStatus,
)

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


@dataclass(slots=True)
class Pending:
    """A request, as long as it lives."""

    kind: RequestKind
    message: Request
    answered: bool = False
    stream_id: int | None = None
    "Draft 16: where a SUBSCRIBE_NAMESPACE was said, and is answered."


class RequestIds:
    """The ids of both sides."""

    def __init__(self, limit: int, *, is_client: bool) -> None:
        """`limit` is how many requests of the other side may be open at once."""
        self.most = 0
        "The first of ours that the other side does not allow."
        self.allowed = 2 * limit + is_client
        "The first of theirs that we do not allow."
        self.finished = 0
        "How many of theirs are over."
        self._limit = limit
        self._next = 0 if is_client else 1
        self._first = self._expected = 1 if is_client else 0
        self._skipped: set[int] = set()
        self._blocked_at = -1

    def next(self) -> int:
        """The id of our next request."""
        request_id, self._next = self._next, self._next + 2
        return request_id

    def take(self, request_id: int, *, in_order: bool) -> None:
        """The other side has used an id.

        Draft 16 sends some requests on streams of their own, and QUIC keeps no order between
        streams: an id may be ahead of one that is still under way.
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
        if most <= self.most:
            raise violation(f"MAX_REQUEST_ID fell from {self.most} to {most}")
        self.most = most

    def blocked_is_news(self) -> bool:
        """Whether the other side has not been told yet that this limit holds us up."""
        told, self._blocked_at = self._blocked_at, self.most
        return told != self.most

    def credit(self, *, always: bool) -> int | None:
        """A new limit for the other side: as many more as have ended, a good part at a time."""
        allowed = self._first + 2 * (self.finished + self._limit)
        enough = always or allowed - self.allowed >= self._limit
        if allowed <= self.allowed or not enough:
            return None
        self.allowed = allowed
        return allowed
