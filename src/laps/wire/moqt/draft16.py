"""The control messages of draft-ietf-moq-transport-16.

What is optional is a parameter; what a publisher says of a track stands in extensions after the
parameters, up to the end of the message.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from laps.wire.buffer import encode_varint
from laps.wire.moqt import messages as m
from laps.wire.moqt import namespaces16
from laps.wire.moqt import parameters16 as p
from laps.wire.moqt.codec import (
    Codec,
    decode_fetch_cancel,
    decode_max_request_id,
    decode_requests_blocked,
    decode_unsubscribe,
    encode_maximum,
    encode_request_id,
)
from laps.wire.moqt.codes import RequestCode, violation
from laps.wire.moqt.data import DEFAULT_PRIORITY_BIT, SUBGROUP_TYPES
from laps.wire.moqt.draft import Dialect
from laps.wire.moqt.fields import (
    checked_flag,
    checked_order,
    checked_priority,
    decode_flag,
    decode_goaway,
    decode_location,
    decode_range,
    decode_reason,
    decode_track,
    encode_filter,
    encode_goaway,
    encode_location,
    encode_range,
    encode_reason,
    encode_track,
)
from laps.wire.moqt.keyvalues import TOKEN
from laps.wire.moqt.setup import decode_setup_parameters, encode_setup_parameters

if TYPE_CHECKING:
    from laps.wire.buffer import Cursor
    from laps.wire.moqt.tolerance import MessageCursor


class MessageType(IntEnum):
    """The control messages of draft 16."""

    REQUEST_UPDATE = 0x02
    SUBSCRIBE = 0x03
    SUBSCRIBE_OK = 0x04
    REQUEST_ERROR = 0x05
    PUBLISH_NAMESPACE = 0x06
    REQUEST_OK = 0x07
    NAMESPACE = 0x08
    PUBLISH_NAMESPACE_DONE = 0x09
    UNSUBSCRIBE = 0x0A
    PUBLISH_DONE = 0x0B
    PUBLISH_NAMESPACE_CANCEL = 0x0C
    TRACK_STATUS = 0x0D
    NAMESPACE_DONE = 0x0E
    GOAWAY = 0x10
    SUBSCRIBE_NAMESPACE = 0x11
    MAX_REQUEST_ID = 0x15
    FETCH = 0x16
    FETCH_CANCEL = 0x17
    FETCH_OK = 0x18
    REQUESTS_BLOCKED = 0x1A
    PUBLISH = 0x1D
    PUBLISH_OK = 0x1E
    CLIENT_SETUP = 0x20
    SERVER_SETUP = 0x21


# --- setup -----------------------------------------------------------------------------------

# CLIENT_SETUP, SERVER_SETUP
# setup parameters


def _decode_client_setup(cursor: Cursor) -> m.ClientSetup:
    setup = m.ClientSetup(**decode_setup_parameters(cursor, delta=True))
    for token in setup.tokens:
        if token.alias_type in (m.TokenAlias.DELETE, m.TokenAlias.USE_ALIAS):
            raise violation(f"a token to {token.alias_type.name} comes ahead of any alias")
    return setup


def _decode_server_setup(cursor: Cursor) -> m.ServerSetup:
    return m.ServerSetup(**decode_setup_parameters(cursor, delta=True))


def _encode_setup(message: m.ClientSetup | m.ServerSetup) -> bytes:
    return encode_setup_parameters(message, delta=True)


# --- answers to any request ------------------------------------------------------------------

# REQUEST_OK
# request id(var-int) | parameters
#
# The draft leaves open whether EXPIRES belongs here: it is read, as one of SUBSCRIBE_OK's.


def _decode_request_ok(cursor: MessageCursor) -> m.RequestOk:
    request_id = cursor.varint("the request id")
    said = p.read_parameters(cursor, *p.TRACK_STATE)
    return m.RequestOk(request_id, None, p.decode_largest(said), p.decode_expires(said))


def _encode_request_ok(message: m.RequestOk) -> bytes:
    state = p.encode_state(message.largest, message.expires_ms)
    return encode_varint(message.request_id) + p.write_parameters(*state)


# REQUEST_ERROR
# request id(var-int) | code(var-int) | retry interval(var-int), plus 1, or 0: never | reason


def _decode_request_error(cursor: Cursor) -> m.RequestError:
    request_id = cursor.varint("the request id")
    code, retry = cursor.varint("the error code"), cursor.varint("the retry interval")
    return m.RequestError(request_id, code, decode_reason(cursor), retry - 1 if retry else None)


def _encode_request_error(message: m.RequestError) -> bytes:
    retry = 0 if message.retry_ms is None else message.retry_ms + 1
    code = message.code
    if code == RequestCode.UNKNOWN_STATUS_IN_RANGE:
        code = RequestCode.INTERNAL_ERROR
    fields = map(encode_varint, (message.request_id, code, retry))
    return b"".join((*fields, encode_reason(message.reason)))


# --- subscriptions ---------------------------------------------------------------------------

# SUBSCRIBE
# request id(var-int) | track | parameters


def _decode_subscribe(cursor: MessageCursor) -> m.Subscribe:
    request_id = cursor.varint("the request id")
    track = decode_track(cursor, empty_fields=False)
    said = p.read_parameters(cursor, TOKEN, *p.SUBSCRIPTION)
    return m.Subscribe(request_id, track, tokens=said.tokens, **p.decode_subscription(cursor, said))


def _encode_subscribe(message: m.Subscribe) -> bytes:
    track = encode_track(message.track, empty_fields=False)
    parameters = p.write_parameters(*p.encode_subscription(message), tokens=message.tokens)
    return b"".join((encode_varint(message.request_id), track, parameters))


# SUBSCRIBE_OK
# request id(var-int) | track alias(var-int) | parameters | extensions


def _decode_subscribe_ok(cursor: MessageCursor) -> m.SubscribeOk:
    request_id, alias = cursor.varint("the request id"), cursor.varint("the track alias")
    said = p.read_parameters(cursor, *p.TRACK_STATE)
    largest, expires_ms = p.decode_largest(said), p.decode_expires(said)
    return m.SubscribeOk(request_id, alias, largest, expires_ms, p.decode_properties(cursor))


def _encode_subscribe_ok(message: m.SubscribeOk) -> bytes:
    parameters = p.write_parameters(*p.encode_state(message.largest, message.expires_ms))
    ids = encode_varint(message.request_id) + encode_varint(message.alias)
    return b"".join((ids, parameters, p.encode_properties(message.properties)))


# REQUEST_UPDATE
# request id(var-int) | existing request id(var-int) | parameters

_UPDATE = (TOKEN, p.DELIVERY_TIMEOUT, p.FORWARD, p.PRIORITY, p.FILTER, p.NEW_GROUP)


def _decode_request_update(cursor: MessageCursor) -> m.RequestUpdate:
    request_id, existing_id = cursor.varint("the request id"), cursor.varint("the existing id")
    said = p.read_parameters(cursor, *_UPDATE)
    forward = said.number(p.FORWARD)
    return m.RequestUpdate(
        request_id,
        existing_id,
        p.decode_filter_parameter(said.data(p.FILTER)),
        p.decode_priority(said.number(p.PRIORITY)),
        None if forward is None else checked_flag(forward, "forward"),
        p.decode_timeout(cursor, said.number(p.DELIVERY_TIMEOUT)),
        said.number(p.NEW_GROUP),
        said.tokens,
    )


def _encode_request_update(message: m.RequestUpdate) -> bytes:
    parameters = p.write_parameters(
        (p.DELIVERY_TIMEOUT, p.encode_timeout(message.delivery_timeout_ms)),
        (p.FORWARD, None if message.forward is None else int(message.forward)),
        (p.PRIORITY, p.encode_priority(message.priority)),
        (p.FILTER, None if message.filter is None else encode_filter(message.filter)),
        (p.NEW_GROUP, message.new_group),
        tokens=message.tokens,
    )
    ids = encode_varint(message.request_id) + encode_varint(message.existing_id)
    return ids + parameters


# PUBLISH
# request id(var-int) | track | track alias(var-int) | parameters | extensions


def _decode_publish(cursor: MessageCursor) -> m.Publish:
    request_id = cursor.varint("the request id")
    track = decode_track(cursor, empty_fields=False)
    alias = cursor.varint("the track alias")
    said = p.read_parameters(cursor, TOKEN, p.FORWARD, *p.TRACK_STATE)
    largest, expires_ms = p.decode_largest(said), p.decode_expires(said)
    forward, properties = p.decode_forward(said), p.decode_properties(cursor)
    return m.Publish(
        request_id, track, alias, largest, forward, expires_ms, said.tokens, properties
    )


def _encode_publish(message: m.Publish) -> bytes:
    track = encode_track(message.track, empty_fields=False)
    state = p.encode_state(message.largest, message.expires_ms)
    forward = p.encode_forward(message.forward)
    parameters = p.write_parameters(forward, *state, tokens=message.tokens)
    head = (encode_varint(message.request_id), track, encode_varint(message.alias))
    return b"".join((*head, parameters, p.encode_properties(message.properties)))


# PUBLISH_OK
# request id(var-int) | parameters
#
# FORWARD is written whatever it says: libquicr takes one that is left out for 0, and the publisher
# would never begin.


def _decode_publish_ok(cursor: MessageCursor) -> m.PublishOk:
    request_id = cursor.varint("the request id")
    said = p.read_parameters(cursor, p.EXPIRES, *p.SUBSCRIPTION)
    expires_ms = p.decode_expires(said)
    return m.PublishOk(request_id, expires_ms=expires_ms, **p.decode_subscription(cursor, said))


def _encode_publish_ok(message: m.PublishOk) -> bytes:
    expires = (p.EXPIRES, message.expires_ms or None)
    wanted = dict(p.encode_subscription(message)) | {p.FORWARD: int(message.forward)}
    parameters = p.write_parameters(expires, *wanted.items())
    return encode_varint(message.request_id) + parameters


# PUBLISH_DONE
# request id(var-int) | status code(var-int) | stream count(var-int) | reason


def _decode_publish_done(cursor: Cursor) -> m.PublishDone:
    request_id, code = cursor.varint("the request id"), cursor.varint("the status code")
    return m.PublishDone(request_id, code, cursor.varint("the stream count"), decode_reason(cursor))


def _encode_publish_done(message: m.PublishDone) -> bytes:
    fields = map(encode_varint, (message.request_id, message.code, message.stream_count))
    return b"".join((*fields, encode_reason(message.reason)))


# --- fetches and track status ----------------------------------------------------------------

# FETCH
# request id(var-int) | range | parameters


def _decode_fetch(cursor: MessageCursor) -> m.Fetch:
    request_id = cursor.varint("the request id")
    range_ = decode_range(cursor, empty_fields=False)
    said = p.read_parameters(cursor, TOKEN, p.PRIORITY, p.GROUP_ORDER)
    priority, order = p.decode_priority(said.number(p.PRIORITY)), said.number(p.GROUP_ORDER)
    return m.Fetch(
        request_id,
        range_,
        m.DEFAULT_PRIORITY if priority is None else priority,
        m.GroupOrder.ASCENDING if order is None else checked_order(order),
        said.tokens,
    )


def _encode_fetch(message: m.Fetch) -> bytes:
    priority = checked_priority(message.priority)
    descending = message.order is m.GroupOrder.DESCENDING
    parameters = p.write_parameters(
        (p.PRIORITY, None if priority == m.DEFAULT_PRIORITY else priority),
        (p.GROUP_ORDER, m.GroupOrder.DESCENDING if descending else None),
        tokens=message.tokens,
    )
    range_ = encode_range(message, empty_fields=False)
    return b"".join((encode_varint(message.request_id), range_, parameters))


# FETCH_OK
# request id(var-int) | end of track(1) | end(location) | parameters | extensions


def _decode_fetch_ok(cursor: MessageCursor) -> m.FetchOk:
    request_id = cursor.varint("the request id")
    end_of_track = decode_flag(cursor, "end of track")
    end = decode_location(cursor, "the end")
    p.read_parameters(cursor)
    return m.FetchOk(request_id, end, end_of_track, properties=p.decode_properties(cursor))


def _encode_fetch_ok(message: m.FetchOk) -> bytes:
    head = (encode_varint(message.request_id), message.end_of_track.to_bytes(1))
    extensions = p.encode_properties(message.properties)
    return b"".join((*head, encode_location(message.end), p.write_parameters(), extensions))


# TRACK_STATUS
# request id(var-int) | track | parameters


def _decode_track_status(cursor: MessageCursor) -> m.TrackStatus:
    request_id = cursor.varint("the request id")
    track = decode_track(cursor, empty_fields=False)
    return m.TrackStatus(request_id, track, p.read_parameters(cursor, TOKEN).tokens)


def _encode_track_status(message: m.TrackStatus) -> bytes:
    track = encode_track(message.track, empty_fields=False)
    parameters = p.write_parameters(tokens=message.tokens)
    return b"".join((encode_varint(message.request_id), track, parameters))


# --- the table -------------------------------------------------------------------------------

_T = MessageType

CODECS: Final = (
    Codec(_T.CLIENT_SETUP, m.ClientSetup, _encode_setup, _decode_client_setup),
    Codec(_T.SERVER_SETUP, m.ServerSetup, _encode_setup, _decode_server_setup),
    Codec(_T.GOAWAY, m.Goaway, encode_goaway, decode_goaway),
    Codec(_T.MAX_REQUEST_ID, m.MaxRequestId, encode_maximum, decode_max_request_id),
    Codec(_T.REQUESTS_BLOCKED, m.RequestsBlocked, encode_maximum, decode_requests_blocked),
    Codec(_T.REQUEST_OK, m.RequestOk, _encode_request_ok, _decode_request_ok),
    Codec(_T.REQUEST_ERROR, m.RequestError, _encode_request_error, _decode_request_error),
    Codec(_T.SUBSCRIBE, m.Subscribe, _encode_subscribe, _decode_subscribe),
    Codec(_T.SUBSCRIBE_OK, m.SubscribeOk, _encode_subscribe_ok, _decode_subscribe_ok),
    Codec(_T.REQUEST_UPDATE, m.RequestUpdate, _encode_request_update, _decode_request_update),
    Codec(_T.UNSUBSCRIBE, m.Unsubscribe, encode_request_id, decode_unsubscribe),
    Codec(_T.PUBLISH, m.Publish, _encode_publish, _decode_publish),
    Codec(_T.PUBLISH_OK, m.PublishOk, _encode_publish_ok, _decode_publish_ok),
    Codec(_T.PUBLISH_DONE, m.PublishDone, _encode_publish_done, _decode_publish_done),
    Codec(_T.FETCH, m.Fetch, _encode_fetch, _decode_fetch),
    Codec(_T.FETCH_OK, m.FetchOk, _encode_fetch_ok, _decode_fetch_ok),
    Codec(_T.FETCH_CANCEL, m.FetchCancel, encode_request_id, decode_fetch_cancel),
    Codec(_T.TRACK_STATUS, m.TrackStatus, _encode_track_status, _decode_track_status),
    Codec(
        _T.PUBLISH_NAMESPACE,
        m.PublishNamespace,
        namespaces16.encode_publish_namespace,
        namespaces16.decode_publish_namespace,
    ),
    Codec(
        _T.PUBLISH_NAMESPACE_DONE,
        m.PublishNamespaceDone,
        namespaces16.encode_publish_namespace_done,
        namespaces16.decode_publish_namespace_done,
    ),
    Codec(
        _T.PUBLISH_NAMESPACE_CANCEL,
        m.PublishNamespaceCancel,
        namespaces16.encode_publish_namespace_cancel,
        namespaces16.decode_publish_namespace_cancel,
    ),
    Codec(
        _T.SUBSCRIBE_NAMESPACE,
        m.SubscribeNamespace,
        namespaces16.encode_subscribe_namespace,
        namespaces16.decode_subscribe_namespace,
    ),
    Codec(
        _T.NAMESPACE,
        m.NamespaceAdded,
        namespaces16.encode_suffix,
        namespaces16.decode_namespace_added,
    ),
    Codec(
        _T.NAMESPACE_DONE,
        m.NamespaceDone,
        namespaces16.encode_suffix,
        namespaces16.decode_namespace_done,
    ),
)

DRAFT16: Final = Dialect(
    draft=16,
    alpn="moqt-16",
    types=MessageType,
    codecs=CODECS,
    version_in_setup=False,
    namespaces_on_streams=True,
    answers_updates=True,
    updates_may_widen=True,
    asks_for_new_groups=True,
    is_carried=True,
    subgroup_types=SUBGROUP_TYPES | {type_ | DEFAULT_PRIORITY_BIT for type_ in SUBGROUP_TYPES},
    datagram_types=frozenset(
        {*range(0x10)}
        | {type_ for type_ in range(0x20, 0x30) if not type_ & 0x02}  # not END_OF_GROUP
    ),
    may_omit_priority=True,
    statuses=frozenset({0, 3, 4}),
    bare_statuses=frozenset({3, 4}),
    extension_deltas=True,
    fetch_flags=True,
    marks_unknown_ranges=True,
)
