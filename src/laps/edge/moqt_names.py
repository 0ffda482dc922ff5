"""Names that a MoQT client may not use here, whatever its draft allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.telemetry.records import is_telemetry
from laps.wire.moqt.codes import RequestCode
from laps.wire.moqt.messages import (
    Fetch,
    Publish,
    PublishNamespace,
    StandaloneFetch,
    Subscribe,
    TrackStatus,
)

if TYPE_CHECKING:
    from laps.edge.context import Context
    from laps.types import TrackName
    from laps.wire.moqt.messages import Message


def name_refusal(message: Message, context: Context) -> tuple[int, RequestCode, str] | None:
    """The request, code and reason to refuse a message with; None where its name is fine.

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
        case PublishNamespace(request_id, namespace):
            pass
        case _:
            return None
    if isinstance(message, Publish | PublishNamespace) and is_telemetry(namespace):
        reason = "what is below laps/telemetry is published by relays, about themselves"
        return request_id, RequestCode.UNAUTHORIZED, reason
    if track is not None and (full := context.no_room_for(track)) is not None:
        return request_id, RequestCode.INTERNAL_ERROR, full
    if all(namespace) and namespace:
        return None
    reason = "a namespace here has at least one field, and no empty ones"
    return request_id, RequestCode.NOT_SUPPORTED, reason
