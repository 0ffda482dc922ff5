"""A row of a draft's table, and the messages that both drafts write alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from laps.wire.buffer import encode_varint
from laps.wire.moqt import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.wire.buffer import Cursor
    from laps.wire.moqt.tolerance import MessageCursor


class Codec(NamedTuple):
    """How the payload of one message is written and read."""

    message_type: int
    message: type[m.Message]
    encode: Callable[[Any], bytes]
    """The payload, or `LocalProtocolError`."""
    decode: Callable[[MessageCursor], m.Message]
    """The message, from a cursor over the whole payload."""
    kind: m.RequestKind | None = None
    """The request that this message answers, where the draft has a type for each."""


# MAX_REQUEST_ID, REQUESTS_BLOCKED
# maximum request id(var-int)


def encode_maximum(message: m.MaxRequestId | m.RequestsBlocked) -> bytes:
    """A message that is a maximum request id."""
    return encode_varint(message.max_request_id)


def decode_max_request_id(cursor: Cursor) -> m.MaxRequestId:
    """MAX_REQUEST_ID."""
    return m.MaxRequestId(cursor.varint("the maximum request id"))


def decode_requests_blocked(cursor: Cursor) -> m.RequestsBlocked:
    """REQUESTS_BLOCKED."""
    return m.RequestsBlocked(cursor.varint("the maximum request id"))


# UNSUBSCRIBE, FETCH_CANCEL
# request id(var-int)


def encode_request_id(message: m.Unsubscribe | m.FetchCancel) -> bytes:
    """A message that is a request id."""
    return encode_varint(message.request_id)


def decode_unsubscribe(cursor: Cursor) -> m.Unsubscribe:
    """UNSUBSCRIBE."""
    return m.Unsubscribe(cursor.varint("the request id"))


def decode_fetch_cancel(cursor: Cursor) -> m.FetchCancel:
    """FETCH_CANCEL."""
    return m.FetchCancel(cursor.varint("the request id"))
