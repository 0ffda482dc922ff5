"""The message parameters and the track extensions of draft 16.

A parameter is for the one it is sent to; an extension is of the track, and relays pass it on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from laps.errors import InvalidEncoding, LocalProtocolError
from laps.wire.buffer import Cursor
from laps.wire.moqt import messages as m
from laps.wire.moqt.codes import MoqtViolation, SessionCode, violation
from laps.wire.moqt.fields import (
    checked_flag,
    checked_order,
    checked_priority,
    decode_filter,
    decode_location,
    encode_filter,
    encode_location,
)
from laps.wire.moqt.keyvalues import (
    TOKEN,
    Parameters,
    decode_pairs,
    decode_parameters,
    encode_pairs,
    encode_parameters,
)
from laps.wire.moqt.tolerance import Tolerance

if TYPE_CHECKING:
    from collections.abc import Collection

    from laps.types import Location
    from laps.wire.moqt.tolerance import MessageCursor

    Parameter = tuple[int, int | bytes | None]

# --- parameters ------------------------------------------------------------------------------

DELIVERY_TIMEOUT: Final = 0x02
EXPIRES: Final = 0x08
LARGEST_OBJECT: Final = 0x09
FORWARD: Final = 0x10
PRIORITY: Final = 0x20
FILTER: Final = 0x21
GROUP_ORDER: Final = 0x22
NEW_GROUP: Final = 0x32

SUBSCRIPTION: Final = (DELIVERY_TIMEOUT, FORWARD, PRIORITY, FILTER, GROUP_ORDER, NEW_GROUP)
"What SUBSCRIBE and PUBLISH_OK say of a subscription."
TRACK_STATE: Final = (EXPIRES, LARGEST_OBJECT)
"What SUBSCRIBE_OK and the answer to TRACK_STATUS say of a track."
_KNOWN: Final = frozenset({TOKEN, *SUBSCRIPTION, *TRACK_STATE})


def read_parameters(cursor: MessageCursor, *belonging: int) -> Parameters:
    """The parameters of a message that belong there; any other must at least be known."""
    if not cursor.remaining:
        problem = "the message ends inside the number of parameters"
        cursor.tolerate(Tolerance.NO_PARAMETERS, problem)
        return Parameters({})
    return decode_parameters(cursor, belonging, _KNOWN, delta=True, refuse_unknown=True)


def write_parameters(*pairs: Parameter, tokens: Collection[m.Token] = ()) -> bytes:
    """Parameters with their count; those of None are left out."""
    return encode_parameters(pairs, tokens, delta=True)


def decode_timeout(cursor: MessageCursor, value: int | None) -> int | None:
    """A delivery timeout, which is never 0: if it is, there is none."""
    if value == 0:
        cursor.tolerate(Tolerance.ZERO_TIMEOUT, "the delivery timeout is 0")
        return None
    return value


def encode_timeout(value: int | None) -> int | None:
    """A delivery timeout, which is never 0."""
    if value == 0:
        raise LocalProtocolError("the delivery timeout is 0")
    return value


def decode_priority(value: int | None) -> int | None:
    """A priority, which fits a byte."""
    if value is not None and value > 0xFF:
        raise violation(f"priority {value} is above 255")
    return value


def encode_priority(value: int | None) -> int | None:
    """A priority, which fits a byte."""
    return None if value is None else checked_priority(value)


def decode_filter_parameter(data: bytes | None) -> m.Filter | None:
    """A subscription filter that fills its parameter."""
    if data is None:
        return None
    cursor = Cursor(memoryview(data), whole=True)
    filter_ = decode_filter(cursor)
    if cursor.remaining:
        raise violation(f"the subscription filter ends {cursor.remaining} bytes early")
    return filter_


def decode_largest(parameters: Parameters) -> Location | None:
    """The largest object of a track."""
    data = parameters.data(LARGEST_OBJECT)
    if data is None:
        return None
    cursor = Cursor(memoryview(data), whole=True)
    try:
        largest = decode_location(cursor, "the largest object")
        if cursor.remaining:
            raise InvalidEncoding(f"the largest object ends {cursor.remaining} bytes early")
    except InvalidEncoding as error:
        raise MoqtViolation(SessionCode.KEY_VALUE_FORMATTING_ERROR, str(error)) from None
    return largest


def encode_state(largest: Location | None, expires_ms: int | None) -> tuple[Parameter, Parameter]:
    """What is said of a track; that it does not expire goes without saying."""
    location = None if largest is None else encode_location(largest)
    return (EXPIRES, expires_ms or None), (LARGEST_OBJECT, location)


def decode_expires(parameters: Parameters) -> int | None:
    """When a subscription expires: 0 says as little as nothing."""
    return parameters.number(EXPIRES) or None


def decode_forward(parameters: Parameters) -> bool:
    """Whether objects are forwarded: they are where it is not said."""
    value = parameters.number(FORWARD)
    return value is None or checked_flag(value, "forward")


def encode_forward(forward: bool) -> Parameter:
    """Whether objects are forwarded, said only if they are not."""
    return FORWARD, None if forward else 0


def decode_subscription(cursor: MessageCursor, parameters: Parameters) -> dict[str, Any]:
    """What `SUBSCRIPTION` lists, as fields of `Subscribe` and `PublishOk`."""
    order = parameters.number(GROUP_ORDER)
    priority = decode_priority(parameters.number(PRIORITY))
    return {
        "filter": decode_filter_parameter(parameters.data(FILTER)) or m.UNFILTERED,
        "priority": m.DEFAULT_PRIORITY if priority is None else priority,
        "order": m.GroupOrder.PUBLISHERS if order is None else checked_order(order),
        "forward": decode_forward(parameters),
        "delivery_timeout_ms": decode_timeout(cursor, parameters.number(DELIVERY_TIMEOUT)),
        "new_group": parameters.number(NEW_GROUP),
    }


def encode_subscription(message: m.Subscribe | m.PublishOk) -> list[Parameter]:
    """What `SUBSCRIPTION` lists; the defaults go without saying."""
    priority = checked_priority(message.priority)
    return [
        (DELIVERY_TIMEOUT, encode_timeout(message.delivery_timeout_ms)),
        encode_forward(message.forward),
        (PRIORITY, None if priority == m.DEFAULT_PRIORITY else priority),
        (FILTER, None if message.filter == m.UNFILTERED else encode_filter(message.filter)),
        (GROUP_ORDER, message.order or None),
        (NEW_GROUP, message.new_group),
    ]


# --- track extensions ------------------------------------------------------------------------

# extensions, to the end of the message
# key-value pairs

_EXT_DELIVERY_TIMEOUT = 0x02
_EXT_MAX_CACHE = 0x04
_EXT_PRIORITY = 0x0E
_EXT_GROUP_ORDER = 0x22
_EXT_DYNAMIC_GROUPS = 0x30
_KNOWN_EXTENSIONS: Final = frozenset(
    {_EXT_DELIVERY_TIMEOUT, _EXT_MAX_CACHE, _EXT_PRIORITY, _EXT_GROUP_ORDER, _EXT_DYNAMIC_GROUPS}
)


def decode_properties(cursor: MessageCursor) -> m.TrackProperties:
    """The extensions of a track, up to the end of the message."""
    known: dict[int, int] = {}
    others: list[m.KeyValue] = []
    for type_, value in decode_pairs(cursor, delta=True):
        if type_ not in _KNOWN_EXTENSIONS or not isinstance(value, int):
            others.append((type_, value))
        elif type_ in known:
            raise violation(f"track extension {type_:#x} comes twice")
        else:
            known[type_] = value
    order = known.get(_EXT_GROUP_ORDER)
    return m.TrackProperties(
        decode_timeout(cursor, known.get(_EXT_DELIVERY_TIMEOUT)),
        known.get(_EXT_MAX_CACHE),
        decode_priority(known.get(_EXT_PRIORITY)),
        m.GroupOrder.PUBLISHERS if order is None else checked_order(order),
        checked_flag(known.get(_EXT_DYNAMIC_GROUPS, 0), "dynamic groups"),
        tuple(others),
    )


def encode_properties(properties: m.TrackProperties) -> bytes:
    """The extensions of a track, those we do not know among them."""
    known = (
        (_EXT_DELIVERY_TIMEOUT, encode_timeout(properties.delivery_timeout_ms)),
        (_EXT_MAX_CACHE, properties.max_cache_ms),
        (_EXT_PRIORITY, encode_priority(properties.priority)),
        (_EXT_GROUP_ORDER, properties.order or None),
        (_EXT_DYNAMIC_GROUPS, 1 if properties.dynamic_groups else None),
    )
    pairs = [(type_, value) for type_, value in known if value is not None]
    return encode_pairs([*pairs, *properties.extensions], delta=True)
