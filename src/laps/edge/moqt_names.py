"""Names that a MoQT client may not use here, whatever its draft allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from laps.edge.shares import OverLimit
from laps.telemetry.records import is_telemetry
from laps.wire.moqt.codes import RequestCode
from laps.wire.moqt.messages import (
    Fetch,
    Publish,
    PublishNamespace,
    StandaloneFetch,
    Subscribe,
    SubscribeNamespace,
    TrackStatus,
)

if TYPE_CHECKING:
    from laps.edge.context import Context
    from laps.types import TrackName
    from laps.wire.moqt.messages import Message


# Of tracks that a relay has no room for: some are forgotten each second.
_NO_ROOM_MS: Final = 1000


class Refusal(NamedTuple):
    """How a request is refused."""

    request_id: int
    code: RequestCode
    reason: str
    retry_ms: int | None = None
    "When it may be asked again; None: it will be refused again."


def over_limit(request_id: int, over: OverLimit) -> Refusal:
    """What is over a limit; both drafts have no nearer code, and draft 14 no time but in words."""
    return Refusal(request_id, RequestCode.INTERNAL_ERROR, str(over), over.retry_ms)


def name_refusal(message: Message, context: Context, now: float) -> Refusal | None:
    """How to refuse a message because of its name; None where its name is fine.

    Draft 14 allows names that draft 16, which relays speak with each other, does not.
    """
    track: TrackName | None = None
    match message:
        case Subscribe(request_id, track) | Publish(request_id, track):
            namespace = track.namespace
        case TrackStatus(request_id, track):
            namespace = track.namespace
        case Fetch(request_id, StandaloneFetch(track)):
            namespace = track.namespace
        case PublishNamespace(request_id, namespace) | SubscribeNamespace(request_id, namespace):
            pass
        case _:
            return None
    try:
        context.shares.check_name(namespace, None if track is None else track.name, now)
    except OverLimit as over:
        return over_limit(request_id, over)
    if isinstance(message, SubscribeNamespace):
        return None  # it names a prefix, which may be empty
    if isinstance(message, Publish | PublishNamespace) and is_telemetry(namespace):
        reason = "what is below laps/telemetry is published by relays, about themselves"
        return Refusal(request_id, RequestCode.UNAUTHORIZED, reason)
    if track is not None and (full := context.no_room_for(track)) is not None:
        return Refusal(request_id, RequestCode.INTERNAL_ERROR, full, _NO_ROOM_MS)
    if all(namespace) and namespace:
        return None
    reason = "a namespace here has at least one field, and no empty ones"
    return Refusal(request_id, RequestCode.NOT_SUPPORTED, reason)
