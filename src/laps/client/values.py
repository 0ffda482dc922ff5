"""What an application is given: objects, namespaces, and what a relay says of a track."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laps.names import namespace_text, track_text
from laps.types import Location
from laps.wire.moqt.data import ObjectStatus
from laps.wire.moqt.translate import decode_extensions

if TYPE_CHECKING:
    from laps.names import Namespace
    from laps.types import TrackName
    from laps.wire.moqt import objects as wire
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import (
        KeyValue,
        TrackProperties,
    )

# The largest object of MoQT that is written, and that is read unless somebody wants less. It is put
# together in memory at both ends; relays pass it on as it comes.
MAX_OBJECT_BYTES = 1 << 32

# What an object takes beside its bytes, roughly: it counts where bytes are bounded.
OBJECT_BYTES = 200


def is_place(value: object) -> bool:
    """Whether it reads as a location."""
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and all(isinstance(part, int) and part >= 0 for part in value)
    )


def payload_of(value: object) -> bytes:
    """What an object holds; TypeError, with the way out, for what is no bytes."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    way = ': write it as text.encode("utf-8")' if isinstance(value, str) else ""
    raise TypeError(f"an object is made of bytes, and this is {type(value).__name__}{way}")


@dataclass(slots=True)
class Object:
    """An object of a track."""

    group: int
    id: int
    payload: bytes
    subgroup: int | None = 0
    "None of an object that came in a datagram."
    extensions: tuple[KeyValue, ...] = ()
    "Extension headers: a type and its value, a number if the type is even and bytes if it is odd."
    status: ObjectStatus = ObjectStatus.NORMAL
    "NORMAL, or what an object without payload marks."
    priority: int | None = None
    "The publisher's; None: the track's own."

    @property
    def location(self) -> Location:
        """Its place in the track."""
        return Location(self.group, self.id)

    @property
    def cost(self) -> int:
        """The memory it takes, about."""
        return len(self.payload) + OBJECT_BYTES


_NORMAL = ObjectStatus.NORMAL


def object_from(item: wire.Object, dialect: Dialect) -> Object:
    """An object as the application sees it."""
    extensions = item.extensions
    return Object(
        item.group,
        item.object_id,
        item.payload,
        None if item.datagram else item.subgroup,
        tuple(decode_extensions(extensions, dialect)) if extensions else (),
        ObjectStatus(item.status) if item.status else _NORMAL,
        item.priority,
    )


@dataclass(frozen=True, slots=True)
class NamespaceEvent:
    """A namespace that somebody publishes, or no longer does; `str` of it is `demo/clock`."""

    namespace: Namespace
    "Its parts, each as bytes."
    added: bool
    "False: nobody publishes it any more."

    def __str__(self) -> str:
        return namespace_text(self.namespace)


@dataclass(frozen=True, slots=True)
class TrackEvent:
    """A track that somebody publishes, or no longer does; `str` of it is `demo/clock seconds`."""

    track: TrackName
    "Its `namespace`, whose parts are bytes, and its `name`, bytes too."
    added: bool
    "False: nobody publishes it any more."

    def __str__(self) -> str:
        return track_text(self.track)


@dataclass(frozen=True, slots=True)
class TrackInfo:
    """What a relay says of a track."""

    largest: Location | None
    "The largest location that was published; None if nothing was, or nobody said."
    properties: TrackProperties
    "What its publisher has said of it: priority, order, timeouts, extension headers."
