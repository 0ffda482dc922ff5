"""A client's SUBSCRIBE, as it travels between relays: whole, with all its parameters.

It is inside subscribe information, as a message of draft 16 whatever the client speaks. Its request
id means nothing beyond the client's session, and is 0. Its tokens stay at the relay that they were
shown to: whoever has a token can use it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from laps.errors import RemoteProtocolError
from laps.wire.buffer import Incomplete
from laps.wire.moqt.dialect import BETWEEN_RELAYS
from laps.wire.moqt.messages import PublishOk, Subscribe

if TYPE_CHECKING:
    from laps.types import TrackName


def carry_subscribe(message: Subscribe) -> bytes:
    """The SUBSCRIBE of a client, for other relays."""
    return BETWEEN_RELAYS.encode(replace(message, request_id=0, tokens=()))


def accepted_as(message: PublishOk, track: TrackName) -> Subscribe:
    """The SUBSCRIBE that a client might have sent in place of its PUBLISH_OK."""
    return Subscribe(
        0,
        track,
        message.filter,
        message.priority,
        message.order,
        delivery_timeout_ms=message.delivery_timeout_ms,
        new_group=message.new_group,
    )


def carried_subscribe(data: bytes | memoryview) -> Subscribe | None:
    """The SUBSCRIBE that a relay sent; None if it is none that can be read."""
    try:
        kind, body, _ = BETWEEN_RELAYS.split(bytes(data), 0)
        message = BETWEEN_RELAYS.decode(kind, body)
    except (RemoteProtocolError, Incomplete):
        return None
    return message if isinstance(message, Subscribe) else None
