"""Lists of nodes: what NODE_INFO_ADV and NODE_INFO_WD say of one node, said of many at once.

A relay that comes up is told of every node there is by each of its peers, and a link that is lost
changes the ways to very many. Each message costs both sides some work whatever is in it.
"""

from functools import lru_cache
from typing import Final

from laps.types import NodeInfo
from laps.wire.buffer import Cursor
from laps.wire.extension_fields import ExtensionType, encode_bytes
from laps.wire.peering import Codec, Message, decode_node_info, encode_node_info

# What is said of a node comes again in other lists, as a session begins anew: a few megabytes.
MOST_REMEMBERED: Final = 8192
MAX_REMEMBERED_LENGTH: Final = 256


class NodeListAdv(Message, frozen=True):
    """Nodes that can be reached by the sender."""

    message_type = ExtensionType.NODE_LIST_ADV
    node_infos: tuple[NodeInfo, ...]


class NodeListWd(Message, frozen=True):
    """Nodes that can no longer be reached by the sender."""

    message_type = ExtensionType.NODE_LIST_WD
    node_infos: tuple[NodeInfo, ...]


NodeList = NodeListAdv | NodeListWd


# NODE_LIST_ADV, NODE_LIST_WD
# [ node_info_len(var-int) | node_info(node_info_len) ], to the end of the message


def _encode_list(message: NodeList) -> bytes:
    return b"".join(encode_bytes(encode_node_info(info)) for info in message.node_infos)


def _decode_list(cursor: Cursor) -> tuple[NodeInfo, ...]:
    infos = []
    while cursor.remaining:
        size = cursor.varint("node_info_len")
        body = cursor.take(size, "node_info")
        remembered = size <= MAX_REMEMBERED_LENGTH
        infos.append(_decode_remembered(bytes(body)) if remembered else _decode_info(body))
    return tuple(infos)


def _decode_info(body: bytes | memoryview) -> NodeInfo:
    # It runs to the end of its bytes, so nothing can be left over.
    return decode_node_info(Cursor(memoryview(body), whole=True))


_decode_remembered = lru_cache(maxsize=MOST_REMEMBERED)(_decode_info)

NODE_LIST_CODECS: Final = (
    Codec(NodeListAdv, _encode_list, lambda body: NodeListAdv(_decode_list(body))),
    Codec(NodeListWd, _encode_list, lambda body: NodeListWd(_decode_list(body))),
)
