"""The types of the extension messages, and what their bodies have in common."""

from enum import IntEnum

from laps.errors import InvalidEncoding
from laps.wire.buffer import Cursor, encode_varint


class ExtensionType(IntEnum):
    """Message types far from the document's own, 1 to 11, so that it can grow."""

    NODE_METRICS = 64
    NAMESPACE_INFO_ADV = 65
    NAMESPACE_INFO_WD = 66
    GOAWAY = 67
    RELAY_REQUEST = 68
    RELAY_RESPONSE = 69
    REPAIR_REQUEST = 70
    REPAIR_RESPONSE = 71
    SET_SILENT = 72
    SET_PRESSED = 73
    AUTHORIZATION = 74
    NODE_SILENT = 75
    SET_TERMS = 76
    POLICY_REFUSAL = 77
    SUBSCRIBE_INTEREST = 78
    SUBSCRIBE_DIGEST = 79
    NODE_LIST_ADV = 80
    NODE_LIST_WD = 81
    SUBSCRIBE_AGREED = 82


def check_most(what: str, size: int, most: int) -> None:
    """InvalidEncoding if there is more of something than there may be."""
    if size > most:
        raise InvalidEncoding(f"{what} {size} is more than {most}")


def check_fraction(value: float, field: str) -> None:
    """InvalidEncoding if a share is none."""
    # Written so that NaN fails as well.
    if not 0 <= value <= 1:
        raise InvalidEncoding(f"{field} {value} is outside 0 to 1")


def decode_count(cursor: Cursor, field: str, item_size: int, most: int) -> int:
    """A count, once it is sure that so many items can follow."""
    count = cursor.varint(field)
    check_most(field, count, most)
    if count * item_size > cursor.remaining:
        problem = f"{count} needs {count * item_size} bytes and {cursor.remaining} are left"
        raise InvalidEncoding(f"{field} {problem}")
    return count


def encode_bytes(data: bytes) -> bytes:
    """With their length in front."""
    return encode_varint(len(data)) + data


def encode_text(text: str, field: str, most: int) -> bytes:
    """UTF-8 with its length in front."""
    data = text.encode()
    check_most(f"{field}_len", len(data), most)
    return encode_bytes(data)


def decode_text(cursor: Cursor, field: str, most: int) -> str:
    """What `encode_text` wrote."""
    size = cursor.varint(f"{field}_len")
    check_most(f"{field}_len", size, most)
    try:
        return str(cursor.take(size, field), "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidEncoding(f"{field} is not UTF-8 at its byte {error.start}") from None
