"""The messages of draft 14 about subscriptions, and TRACK_STATUS, which is written like one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.errors import LocalProtocolError
from laps.wire.buffer import encode_varint
from laps.wire.moqt import messages as m
from laps.wire.moqt.codes import violation
from laps.wire.moqt.codes14 import done_code_from_14, done_code_to_14
from laps.wire.moqt.fields import (
    checked_end_group,
    checked_order,
    checked_priority,
    decode_filter,
    decode_flag,
    decode_location,
    decode_reason,
    decode_track,
    encode_filter,
    encode_location,
    encode_reason,
    encode_track,
)
from laps.wire.moqt.keyvalues import TOKEN
from laps.wire.moqt.parameters14 import (
    DELIVERY_TIMEOUT,
    MAX_CACHE,
    read_parameters,
    read_properties,
    read_timeout,
    write_parameters,
    write_properties,
)

if TYPE_CHECKING:
    from laps.types import Location
    from laps.wire.buffer import Cursor


def _decode_largest(cursor: Cursor) -> Location | None:
    exists = decode_flag(cursor, "content exists")
    return decode_location(cursor, "the largest location") if exists else None


def _encode_largest(largest: Location | None) -> bytes:
    return b"\0" if largest is None else b"\1" + encode_location(largest)


def encode_priority(priority: int) -> bytes:
    """A priority, which fits its byte."""
    return checked_priority(priority).to_bytes(1)


def encode_decided(order: m.GroupOrder) -> bytes:
    """Write an order where the draft wants one of two: a publisher with no wish has ascending."""
    return (order or m.GroupOrder.ASCENDING).to_bytes(1)


# SUBSCRIBE, TRACK_STATUS
# request id(var-int) | track | priority(1) | group order(1) | forward(1) | filter | parameters


def decode_subscribe(cursor: Cursor) -> m.Subscribe:
    """SUBSCRIBE."""
    request_id = cursor.varint("the request id")
    track = decode_track(cursor, empty_fields=True)
    priority = cursor.u8("the priority")
    order = checked_order(cursor.u8("the group order"), least=0)
    forward = decode_flag(cursor, "forward")
    filter_ = decode_filter(cursor)
    said = read_parameters(cursor, TOKEN, DELIVERY_TIMEOUT)
    return m.Subscribe(
        request_id,
        track,
        filter_,
        priority,
        order,
        forward,
        delivery_timeout_ms=read_timeout(said),
        tokens=said.tokens,
    )


def encode_subscribe(message: m.Subscribe) -> bytes:
    """SUBSCRIBE."""
    return b"".join(
        (
            encode_varint(message.request_id),
            encode_track(message.track, empty_fields=True),
            encode_priority(message.priority),
            message.order.to_bytes(1),
            message.forward.to_bytes(1),
            encode_filter(message.filter),
            write_parameters(
                (DELIVERY_TIMEOUT, message.delivery_timeout_ms), tokens=message.tokens
            ),
        )
    )


def decode_track_status(cursor: Cursor) -> m.TrackStatus:
    """TRACK_STATUS."""
    message = decode_subscribe(cursor)
    return m.TrackStatus(message.request_id, message.track, message.tokens)


_NO_RANGE = m.Filter(m.FilterType.LARGEST_OBJECT)


def encode_track_status(message: m.TrackStatus) -> bytes:
    """TRACK_STATUS."""
    request_id, track = message.request_id, message.track
    return encode_subscribe(m.Subscribe(request_id, track, _NO_RANGE, tokens=message.tokens))


# SUBSCRIBE_OK, TRACK_STATUS_OK
# request id(var-int) | track alias(var-int), 0 of a track status | expires(var-int), 0: never
# | group order(1) | content exists(1) | largest(location), if it does | parameters


def decode_subscribe_ok(cursor: Cursor) -> m.SubscribeOk:
    """SUBSCRIBE_OK."""
    request_id, alias = cursor.varint("the request id"), cursor.varint("the track alias")
    expires_ms = cursor.varint("expires") or None
    order = checked_order(cursor.u8("the group order"))
    largest = _decode_largest(cursor)
    said = read_parameters(cursor, DELIVERY_TIMEOUT, MAX_CACHE)
    return m.SubscribeOk(request_id, alias, largest, expires_ms, read_properties(said, order))


def encode_subscribe_ok(message: m.SubscribeOk) -> bytes:
    """SUBSCRIBE_OK."""
    return b"".join(
        (
            encode_varint(message.request_id),
            encode_varint(message.alias),
            encode_varint(message.expires_ms or 0),
            encode_decided(message.properties.order),
            _encode_largest(message.largest),
            write_properties(message.properties),
        )
    )


def decode_track_status_ok(cursor: Cursor) -> m.RequestOk:
    """TRACK_STATUS_OK."""
    ok = decode_subscribe_ok(cursor)
    kind = m.RequestKind.TRACK_STATUS
    return m.RequestOk(ok.request_id, kind, ok.largest, ok.expires_ms, ok.properties)


def encode_track_status_ok(message: m.RequestOk) -> bytes:
    """TRACK_STATUS_OK."""
    largest, expires_ms = message.largest, message.expires_ms
    return encode_subscribe_ok(
        m.SubscribeOk(message.request_id, 0, largest, expires_ms, message.properties)
    )


# SUBSCRIBE_UPDATE
# request id(var-int) | subscription's request id(var-int) | start(location)
# | end group(var-int), plus 1, or 0: open | priority(1) | forward(1) | parameters


def decode_subscribe_update(cursor: Cursor) -> m.RequestUpdate:
    """SUBSCRIBE_UPDATE."""
    request_id, existing_id = cursor.varint("the request id"), cursor.varint("the subscription")
    start = decode_location(cursor, "the start")
    end = cursor.varint("the end group")
    if 0 < end <= start.group:
        raise violation(f"end group {end - 1} lies before start group {start.group}")
    filter_ = m.Filter(m.FilterType.ABSOLUTE_START, start)
    if end:
        filter_ = m.Filter(m.FilterType.ABSOLUTE_RANGE, start, end - 1)
    priority, forward = cursor.u8("the priority"), decode_flag(cursor, "forward")
    said = read_parameters(cursor, TOKEN, DELIVERY_TIMEOUT)
    return m.RequestUpdate(
        request_id,
        existing_id,
        filter_,
        priority,
        forward,
        delivery_timeout_ms=read_timeout(said),
        tokens=said.tokens,
    )


def encode_subscribe_update(message: m.RequestUpdate) -> bytes:
    """SUBSCRIBE_UPDATE."""
    filter_, priority, forward = message.filter, message.priority, message.forward
    if filter_ is None or priority is None or forward is None:
        raise LocalProtocolError("draft 14 repeats filter, priority and forward, changed or not")
    if filter_.type < m.FilterType.ABSOLUTE_START:
        raise LocalProtocolError(f"draft 14 updates to places, not to {filter_.type.name}")
    ranged = filter_.type is m.FilterType.ABSOLUTE_RANGE
    return b"".join(
        (
            encode_varint(message.request_id),
            encode_varint(message.existing_id),
            encode_location(filter_.start),
            encode_varint(checked_end_group(filter_) + 1 if ranged else 0),
            encode_priority(priority),
            forward.to_bytes(1),
            write_parameters(
                (DELIVERY_TIMEOUT, message.delivery_timeout_ms), tokens=message.tokens
            ),
        )
    )


# PUBLISH
# request id(var-int) | track | track alias(var-int) | group order(1) | content exists(1)
# | largest(location), if it does | forward(1) | parameters


def decode_publish(cursor: Cursor) -> m.Publish:
    """PUBLISH."""
    request_id = cursor.varint("the request id")
    track = decode_track(cursor, empty_fields=True)
    alias = cursor.varint("the track alias")
    order = checked_order(cursor.u8("the group order"))
    largest = _decode_largest(cursor)
    forward = decode_flag(cursor, "forward")
    said = read_parameters(cursor, TOKEN, DELIVERY_TIMEOUT, MAX_CACHE)
    properties = read_properties(said, order)
    return m.Publish(request_id, track, alias, largest, forward, None, said.tokens, properties)


def encode_publish(message: m.Publish) -> bytes:
    """PUBLISH."""
    return b"".join(
        (
            encode_varint(message.request_id),
            encode_track(message.track, empty_fields=True),
            encode_varint(message.alias),
            encode_decided(message.properties.order),
            _encode_largest(message.largest),
            message.forward.to_bytes(1),
            write_properties(message.properties, message.tokens),
        )
    )


# PUBLISH_OK
# request id(var-int) | forward(1) | priority(1) | group order(1) | filter | parameters


def decode_publish_ok(cursor: Cursor) -> m.PublishOk:
    """PUBLISH_OK."""
    request_id = cursor.varint("the request id")
    forward, priority = decode_flag(cursor, "forward"), cursor.u8("the priority")
    order = checked_order(cursor.u8("the group order"))
    filter_ = decode_filter(cursor)
    timeout_ms = read_timeout(read_parameters(cursor, DELIVERY_TIMEOUT))
    return m.PublishOk(request_id, forward, filter_, priority, order, timeout_ms)


def encode_publish_ok(message: m.PublishOk) -> bytes:
    """PUBLISH_OK."""
    return b"".join(
        (
            encode_varint(message.request_id),
            message.forward.to_bytes(1),
            encode_priority(message.priority),
            encode_decided(message.order),
            encode_filter(message.filter),
            write_parameters((DELIVERY_TIMEOUT, message.delivery_timeout_ms)),
        )
    )


# PUBLISH_DONE
# request id(var-int) | status code(var-int) | stream count(var-int) | reason


def decode_publish_done(cursor: Cursor) -> m.PublishDone:
    """PUBLISH_DONE."""
    request_id = cursor.varint("the request id")
    code = done_code_from_14(cursor.varint("the status code"))
    return m.PublishDone(request_id, code, cursor.varint("the stream count"), decode_reason(cursor))


def encode_publish_done(message: m.PublishDone) -> bytes:
    """PUBLISH_DONE."""
    code = done_code_to_14(message.code)
    fields = map(encode_varint, (message.request_id, code, message.stream_count))
    return b"".join((*fields, encode_reason(message.reason)))
