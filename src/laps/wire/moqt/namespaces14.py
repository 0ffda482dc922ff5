"""The messages of draft 14 about namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.errors import LocalProtocolError
from laps.wire.buffer import encode_varint
from laps.wire.moqt import messages as m
from laps.wire.moqt.codes14 import request_code_from_14, request_code_to_14
from laps.wire.moqt.fields import (
    decode_namespace,
    decode_reason,
    encode_namespace,
    encode_reason,
)
from laps.wire.moqt.keyvalues import TOKEN
from laps.wire.moqt.parameters14 import read_parameters, write_parameters

if TYPE_CHECKING:
    from laps.names import Namespace
    from laps.wire.buffer import Cursor

# PUBLISH_NAMESPACE
# request id(var-int) | namespace | parameters


def decode_publish_namespace(cursor: Cursor) -> m.PublishNamespace:
    """PUBLISH_NAMESPACE."""
    request_id = cursor.varint("the request id")
    namespace = decode_namespace(cursor, "the namespace", empty_fields=True)
    return m.PublishNamespace(request_id, namespace, read_parameters(cursor, TOKEN).tokens)


def encode_publish_namespace(message: m.PublishNamespace) -> bytes:
    """PUBLISH_NAMESPACE."""
    namespace = encode_namespace(message.namespace, empty_fields=True)
    parameters = write_parameters(tokens=message.tokens)
    return b"".join((encode_varint(message.request_id), namespace, parameters))


# PUBLISH_NAMESPACE_DONE
# namespace
#
# PUBLISH_NAMESPACE_CANCEL
# namespace | code(var-int) | reason

_ANSWERED = m.RequestKind.PUBLISH_NAMESPACE


def _encode_known(namespace: Namespace | None) -> bytes:
    if namespace is None:
        raise LocalProtocolError("draft 14 names the namespace, and there is none")
    return encode_namespace(namespace, empty_fields=True)


def decode_publish_namespace_done(cursor: Cursor) -> m.PublishNamespaceDone:
    """PUBLISH_NAMESPACE_DONE."""
    namespace = decode_namespace(cursor, "the namespace", empty_fields=True)
    return m.PublishNamespaceDone(namespace=namespace)


def encode_publish_namespace_done(message: m.PublishNamespaceDone) -> bytes:
    """PUBLISH_NAMESPACE_DONE."""
    return _encode_known(message.namespace)


def decode_publish_namespace_cancel(cursor: Cursor) -> m.PublishNamespaceCancel:
    """PUBLISH_NAMESPACE_CANCEL."""
    namespace = decode_namespace(cursor, "the namespace", empty_fields=True)
    code = request_code_from_14(cursor.varint("the error code"), _ANSWERED)
    return m.PublishNamespaceCancel(code, decode_reason(cursor), namespace=namespace)


def encode_publish_namespace_cancel(message: m.PublishNamespaceCancel) -> bytes:
    """PUBLISH_NAMESPACE_CANCEL."""
    namespace = _encode_known(message.namespace)
    code = encode_varint(request_code_to_14(message.code, _ANSWERED))
    return b"".join((namespace, code, encode_reason(message.reason)))


# SUBSCRIBE_NAMESPACE
# request id(var-int) | prefix(namespace) | parameters
#
# UNSUBSCRIBE_NAMESPACE
# prefix(namespace)
#
# Draft 14 wants a prefix of one field at least. Clients of moq-rs ask for everything with one of
# none, as draft 16 then allows, so it is read and written here too.


def decode_subscribe_namespace(cursor: Cursor) -> m.SubscribeNamespace:
    """SUBSCRIBE_NAMESPACE."""
    request_id = cursor.varint("the request id")
    prefix = decode_namespace(cursor, "the prefix", least=0, empty_fields=True)
    tokens = read_parameters(cursor, TOKEN).tokens
    return m.SubscribeNamespace(request_id, prefix, tokens=tokens)


def encode_subscribe_namespace(message: m.SubscribeNamespace) -> bytes:
    """SUBSCRIBE_NAMESPACE."""
    prefix = encode_namespace(message.prefix, least=0, empty_fields=True)
    parameters = write_parameters(tokens=message.tokens)
    return b"".join((encode_varint(message.request_id), prefix, parameters))


def decode_unsubscribe_namespace(cursor: Cursor) -> m.UnsubscribeNamespace:
    """UNSUBSCRIBE_NAMESPACE.

    A number alone is no prefix, unless it is 0: it is a request id, from a client that takes this
    message for a later draft's.
    """
    alone = cursor.offset
    number = cursor.varint("the number of fields")
    if not cursor.remaining:
        return m.UnsubscribeNamespace((), number)
    cursor.offset = alone
    return m.UnsubscribeNamespace(
        decode_namespace(cursor, "the prefix", least=0, empty_fields=True)
    )


def encode_unsubscribe_namespace(message: m.UnsubscribeNamespace) -> bytes:
    """UNSUBSCRIBE_NAMESPACE."""
    if message.id is not None and not message.prefix:
        return encode_varint(message.id)
    return encode_namespace(message.prefix, least=0, empty_fields=True)
