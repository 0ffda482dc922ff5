"""The control messages of draft-ietf-moq-transport-14.

What every message of a kind has is a fixed field; parameters are few, and those nobody knows are
ignored. What draft 16 can say beyond that (an expiry in PUBLISH, when to ask again, extensions of a
track, a request for a new group) is left out.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from laps.errors import LocalProtocolError
from laps.wire.buffer import encode_varint
from laps.wire.moqt import messages as m
from laps.wire.moqt import namespaces14, subscriptions14
from laps.wire.moqt.codec import (
    Codec,
    decode_fetch_cancel,
    decode_max_request_id,
    decode_requests_blocked,
    decode_unsubscribe,
    encode_maximum,
    encode_request_id,
)
from laps.wire.moqt.codes import violation
from laps.wire.moqt.codes14 import request_code_from_14, request_code_to_14
from laps.wire.moqt.data import SUBGROUP_TYPES
from laps.wire.moqt.draft import Dialect
from laps.wire.moqt.fields import (
    checked_order,
    decode_flag,
    decode_goaway,
    decode_location,
    decode_range,
    decode_reason,
    encode_goaway,
    encode_location,
    encode_range,
    encode_reason,
)
from laps.wire.moqt.keyvalues import TOKEN
from laps.wire.moqt.parameters14 import (
    MAX_CACHE,
    read_parameters,
    read_properties,
    write_parameters,
)
from laps.wire.moqt.setup import decode_setup_parameters, encode_setup_parameters
from laps.wire.moqt.subscriptions14 import encode_decided, encode_priority

if TYPE_CHECKING:
    from laps.wire.buffer import Cursor


class MessageType(IntEnum):
    """The control messages of draft 14."""

    SUBSCRIBE_UPDATE = 0x02
    SUBSCRIBE = 0x03
    SUBSCRIBE_OK = 0x04
    SUBSCRIBE_ERROR = 0x05
    PUBLISH_NAMESPACE = 0x06
    PUBLISH_NAMESPACE_OK = 0x07
    PUBLISH_NAMESPACE_ERROR = 0x08
    PUBLISH_NAMESPACE_DONE = 0x09
    UNSUBSCRIBE = 0x0A
    PUBLISH_DONE = 0x0B
    PUBLISH_NAMESPACE_CANCEL = 0x0C
    TRACK_STATUS = 0x0D
    TRACK_STATUS_OK = 0x0E
    TRACK_STATUS_ERROR = 0x0F
    GOAWAY = 0x10
    SUBSCRIBE_NAMESPACE = 0x11
    SUBSCRIBE_NAMESPACE_OK = 0x12
    SUBSCRIBE_NAMESPACE_ERROR = 0x13
    UNSUBSCRIBE_NAMESPACE = 0x14
    MAX_REQUEST_ID = 0x15
    FETCH = 0x16
    FETCH_CANCEL = 0x17
    FETCH_OK = 0x18
    FETCH_ERROR = 0x19
    REQUESTS_BLOCKED = 0x1A
    PUBLISH = 0x1D
    PUBLISH_OK = 0x1E
    PUBLISH_ERROR = 0x1F
    CLIENT_SETUP = 0x20
    SERVER_SETUP = 0x21


# --- setup -----------------------------------------------------------------------------------

# CLIENT_SETUP
# count(var-int) | [ version(var-int) ] | setup parameters
#
# SERVER_SETUP
# version(var-int) | setup parameters


def _decode_client_setup(cursor: Cursor) -> m.ClientSetup:
    count = cursor.varint("the number of versions")
    if count > cursor.remaining:
        raise violation(f"there is no room for {count} versions")
    versions = tuple(cursor.varint("a version") for _ in range(count))
    return m.ClientSetup(versions, **decode_setup_parameters(cursor, delta=False))


def _encode_client_setup(message: m.ClientSetup) -> bytes:
    if not message.versions:
        raise LocalProtocolError("draft 14 has the client name versions, and there is none")
    versions = map(encode_varint, (len(message.versions), *message.versions))
    return b"".join((*versions, encode_setup_parameters(message, delta=False)))


def _decode_server_setup(cursor: Cursor) -> m.ServerSetup:
    version = cursor.varint("the version")
    setup = m.ServerSetup(version, **decode_setup_parameters(cursor, delta=False))
    # Draft 14 gives AUTHORITY and MOQT_IMPLEMENTATION one number, and a server has no authority.
    if setup.authority is not None and setup.implementation is None:
        return replace(setup, authority=None, implementation=setup.authority)
    return setup


def _encode_server_setup(message: m.ServerSetup) -> bytes:
    if message.version is None:
        raise LocalProtocolError("draft 14 has the server choose a version, and there is none")
    return encode_varint(message.version) + encode_setup_parameters(message, delta=False)


# --- fetches ---------------------------------------------------------------------------------

# FETCH
# request id(var-int) | priority(1) | group order(1) | range | parameters


def _decode_fetch(cursor: Cursor) -> m.Fetch:
    request_id, priority = cursor.varint("the request id"), cursor.u8("the priority")
    order = checked_order(cursor.u8("the group order"), least=0)
    range_ = decode_range(cursor, empty_fields=True)
    return m.Fetch(request_id, range_, priority, order, read_parameters(cursor, TOKEN).tokens)


def _encode_fetch(message: m.Fetch) -> bytes:
    return b"".join(
        (
            encode_varint(message.request_id),
            encode_priority(message.priority),
            message.order.to_bytes(1),
            encode_range(message, empty_fields=True),
            write_parameters(tokens=message.tokens),
        )
    )


# FETCH_OK
# request id(var-int) | group order(1) | end of track(1) | end(location) | parameters


def _decode_fetch_ok(cursor: Cursor) -> m.FetchOk:
    request_id = cursor.varint("the request id")
    order = checked_order(cursor.u8("the group order"))
    end_of_track = decode_flag(cursor, "end of track")
    end = decode_location(cursor, "the end")
    properties = read_properties(read_parameters(cursor, MAX_CACHE))
    return m.FetchOk(request_id, end, end_of_track, order, properties)


def _encode_fetch_ok(message: m.FetchOk) -> bytes:
    max_cache = (MAX_CACHE, message.properties.max_cache_ms)
    return b"".join(
        (
            encode_varint(message.request_id),
            encode_decided(message.order),
            message.end_of_track.to_bytes(1),
            encode_location(message.end),
            write_parameters(max_cache),
        )
    )


# --- answers ---------------------------------------------------------------------------------

# SUBSCRIBE_ERROR and the like, one for each kind of request
# request id(var-int) | code(var-int) | reason


def _decode_error(kind: m.RequestKind, cursor: Cursor) -> m.RequestError:
    request_id = cursor.varint("the request id")
    code = request_code_from_14(cursor.varint("the error code"), kind)
    return m.RequestError(request_id, code, decode_reason(cursor), kind=kind)


def _encode_error(kind: m.RequestKind, message: m.RequestError) -> bytes:
    code = encode_varint(request_code_to_14(message.code, kind))
    return b"".join((encode_varint(message.request_id), code, encode_reason(message.reason)))


# PUBLISH_NAMESPACE_OK, SUBSCRIBE_NAMESPACE_OK
# request id(var-int)


def _decode_ok(kind: m.RequestKind, cursor: Cursor) -> m.RequestOk:
    return m.RequestOk(cursor.varint("the request id"), kind)


def _encode_ok(message: m.RequestOk) -> bytes:
    return encode_varint(message.request_id)


# --- the table -------------------------------------------------------------------------------

_T = MessageType
_K = m.RequestKind


def _error_codec(type_: MessageType, kind: m.RequestKind) -> Codec:
    encode, decode = partial(_encode_error, kind), partial(_decode_error, kind)
    return Codec(type_, m.RequestError, encode, decode, kind)


def _ok_codec(type_: MessageType, kind: m.RequestKind) -> Codec:
    return Codec(type_, m.RequestOk, _encode_ok, partial(_decode_ok, kind), kind)


CODECS: Final = (
    Codec(_T.CLIENT_SETUP, m.ClientSetup, _encode_client_setup, _decode_client_setup),
    Codec(_T.SERVER_SETUP, m.ServerSetup, _encode_server_setup, _decode_server_setup),
    Codec(_T.GOAWAY, m.Goaway, encode_goaway, decode_goaway),
    Codec(_T.MAX_REQUEST_ID, m.MaxRequestId, encode_maximum, decode_max_request_id),
    Codec(_T.REQUESTS_BLOCKED, m.RequestsBlocked, encode_maximum, decode_requests_blocked),
    Codec(
        _T.SUBSCRIBE,
        m.Subscribe,
        subscriptions14.encode_subscribe,
        subscriptions14.decode_subscribe,
    ),
    Codec(
        _T.SUBSCRIBE_OK,
        m.SubscribeOk,
        subscriptions14.encode_subscribe_ok,
        subscriptions14.decode_subscribe_ok,
    ),
    Codec(
        _T.SUBSCRIBE_UPDATE,
        m.RequestUpdate,
        subscriptions14.encode_subscribe_update,
        subscriptions14.decode_subscribe_update,
    ),
    Codec(_T.UNSUBSCRIBE, m.Unsubscribe, encode_request_id, decode_unsubscribe),
    Codec(_T.PUBLISH, m.Publish, subscriptions14.encode_publish, subscriptions14.decode_publish),
    Codec(
        _T.PUBLISH_OK,
        m.PublishOk,
        subscriptions14.encode_publish_ok,
        subscriptions14.decode_publish_ok,
    ),
    Codec(
        _T.PUBLISH_DONE,
        m.PublishDone,
        subscriptions14.encode_publish_done,
        subscriptions14.decode_publish_done,
    ),
    Codec(_T.FETCH, m.Fetch, _encode_fetch, _decode_fetch),
    Codec(_T.FETCH_OK, m.FetchOk, _encode_fetch_ok, _decode_fetch_ok),
    Codec(_T.FETCH_CANCEL, m.FetchCancel, encode_request_id, decode_fetch_cancel),
    Codec(
        _T.TRACK_STATUS,
        m.TrackStatus,
        subscriptions14.encode_track_status,
        subscriptions14.decode_track_status,
    ),
    Codec(
        _T.TRACK_STATUS_OK,
        m.RequestOk,
        subscriptions14.encode_track_status_ok,
        subscriptions14.decode_track_status_ok,
        _K.TRACK_STATUS,
    ),
    _ok_codec(_T.PUBLISH_NAMESPACE_OK, _K.PUBLISH_NAMESPACE),
    _ok_codec(_T.SUBSCRIBE_NAMESPACE_OK, _K.SUBSCRIBE_NAMESPACE),
    _error_codec(_T.SUBSCRIBE_ERROR, _K.SUBSCRIBE),
    _error_codec(_T.PUBLISH_ERROR, _K.PUBLISH),
    _error_codec(_T.FETCH_ERROR, _K.FETCH),
    _error_codec(_T.TRACK_STATUS_ERROR, _K.TRACK_STATUS),
    _error_codec(_T.PUBLISH_NAMESPACE_ERROR, _K.PUBLISH_NAMESPACE),
    _error_codec(_T.SUBSCRIBE_NAMESPACE_ERROR, _K.SUBSCRIBE_NAMESPACE),
    Codec(
        _T.PUBLISH_NAMESPACE,
        m.PublishNamespace,
        namespaces14.encode_publish_namespace,
        namespaces14.decode_publish_namespace,
    ),
    Codec(
        _T.PUBLISH_NAMESPACE_DONE,
        m.PublishNamespaceDone,
        namespaces14.encode_publish_namespace_done,
        namespaces14.decode_publish_namespace_done,
    ),
    Codec(
        _T.PUBLISH_NAMESPACE_CANCEL,
        m.PublishNamespaceCancel,
        namespaces14.encode_publish_namespace_cancel,
        namespaces14.decode_publish_namespace_cancel,
    ),
    Codec(
        _T.SUBSCRIBE_NAMESPACE,
        m.SubscribeNamespace,
        namespaces14.encode_subscribe_namespace,
        namespaces14.decode_subscribe_namespace,
    ),
    Codec(
        _T.UNSUBSCRIBE_NAMESPACE,
        m.UnsubscribeNamespace,
        namespaces14.encode_unsubscribe_namespace,
        namespaces14.decode_unsubscribe_namespace,
    ),
)

DRAFT14: Final = Dialect(
    draft=14,
    alpn="moq-00",
    types=MessageType,
    codecs=CODECS,
    version_in_setup=True,
    namespaces_on_streams=False,
    answers_updates=False,
    updates_may_widen=False,
    asks_for_new_groups=False,
    is_carried=False,
    subgroup_types=SUBGROUP_TYPES,
    datagram_types=frozenset({*range(0x08), 0x20, 0x21}),
    may_omit_priority=False,
    statuses=frozenset({0, 1, 3, 4}),
    bare_statuses=frozenset({1}),
    extension_deltas=False,
    fetch_flags=False,
    marks_unknown_ranges=False,
)
