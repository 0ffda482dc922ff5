"""The messages of draft 16 about namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.errors import LocalProtocolError
from laps.wire.buffer import encode_varint
from laps.wire.moqt import messages as m
from laps.wire.moqt import parameters16 as p
from laps.wire.moqt.codes import violation
from laps.wire.moqt.fields import (
    decode_namespace,
    decode_reason,
    encode_namespace,
    encode_reason,
)
from laps.wire.moqt.keyvalues import TOKEN

if TYPE_CHECKING:
    from laps.wire.buffer import Cursor
    from laps.wire.moqt.tolerance import MessageCursor

# PUBLISH_NAMESPACE
# request id(var-int) | namespace | parameters


def decode_publish_namespace(cursor: MessageCursor) -> m.PublishNamespace:
    """PUBLISH_NAMESPACE."""
    request_id = cursor.varint("the request id")
    namespace = decode_namespace(cursor, "the namespace", empty_fields=False)
    return m.PublishNamespace(request_id, namespace, p.read_parameters(cursor, TOKEN).tokens)


def encode_publish_namespace(message: m.PublishNamespace) -> bytes:
    """PUBLISH_NAMESPACE."""
    namespace = encode_namespace(message.namespace, empty_fields=False)
    parameters = p.write_parameters(tokens=message.tokens)
    return b"".join((encode_varint(message.request_id), namespace, parameters))


# PUBLISH_NAMESPACE_DONE
# request id(var-int)
#
# PUBLISH_NAMESPACE_CANCEL
# request id(var-int) | code(var-int) | reason


def _encode_known_id(request_id: int | None) -> bytes:
    if request_id is None:
        raise LocalProtocolError("draft 16 names the request, and there is no id")
    return encode_varint(request_id)


def decode_publish_namespace_done(cursor: Cursor) -> m.PublishNamespaceDone:
    """PUBLISH_NAMESPACE_DONE."""
    return m.PublishNamespaceDone(cursor.varint("the request id"))


def encode_publish_namespace_done(message: m.PublishNamespaceDone) -> bytes:
    """PUBLISH_NAMESPACE_DONE."""
    return _encode_known_id(message.request_id)


def decode_publish_namespace_cancel(cursor: Cursor) -> m.PublishNamespaceCancel:
    """PUBLISH_NAMESPACE_CANCEL."""
    request_id, code = cursor.varint("the request id"), cursor.varint("the error code")
    return m.PublishNamespaceCancel(code, decode_reason(cursor), request_id)


def encode_publish_namespace_cancel(message: m.PublishNamespaceCancel) -> bytes:
    """PUBLISH_NAMESPACE_CANCEL."""
    request_id, code = _encode_known_id(message.request_id), encode_varint(message.code)
    return b"".join((request_id, code, encode_reason(message.reason)))


# SUBSCRIBE_NAMESPACE
# request id(var-int) | prefix(namespace), perhaps of no fields | options(var-int) | parameters


def decode_subscribe_namespace(cursor: MessageCursor) -> m.SubscribeNamespace:
    """SUBSCRIBE_NAMESPACE."""
    request_id = cursor.varint("the request id")
    prefix = decode_namespace(cursor, "the prefix", least=0, empty_fields=False)
    options = cursor.varint("the options")
    if options not in set(m.NamespaceOptions):
        raise violation(f"options {options:#x} are unknown")
    said = p.read_parameters(cursor, TOKEN, p.FORWARD)
    forward = p.decode_forward(said)
    return m.SubscribeNamespace(
        request_id, prefix, m.NamespaceOptions(options), forward, said.tokens
    )


def encode_subscribe_namespace(message: m.SubscribeNamespace) -> bytes:
    """SUBSCRIBE_NAMESPACE."""
    prefix = encode_namespace(message.prefix, least=0, empty_fields=False)
    forward = p.encode_forward(message.forward)
    parameters = p.write_parameters(forward, tokens=message.tokens)
    options = encode_varint(message.options)
    return b"".join((encode_varint(message.request_id), prefix, options, parameters))


# NAMESPACE, NAMESPACE_DONE
# suffix(namespace), of no fields where the prefix is all of it


def decode_namespace_added(cursor: Cursor) -> m.NamespaceAdded:
    """NAMESPACE."""
    return m.NamespaceAdded(decode_namespace(cursor, "the suffix", least=0, empty_fields=False))


def decode_namespace_done(cursor: Cursor) -> m.NamespaceDone:
    """NAMESPACE_DONE."""
    return m.NamespaceDone(decode_namespace(cursor, "the suffix", least=0, empty_fields=False))


def encode_suffix(message: m.NamespaceAdded | m.NamespaceDone) -> bytes:
    """NAMESPACE and NAMESPACE_DONE."""
    return encode_namespace(message.suffix, least=0, empty_fields=False)
