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

# What an object takes beside its bytes, roughly: it counts where bytes are bounded.
OBJECT_BYTES = 200


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
    """A namespace that somebody publishes, or no longer does."""

    namespace: Namespace
    added: bool

    def __str__(self) -> str:
        return namespace_text(self.namespace)


@dataclass(frozen=True, slots=True)
class TrackEvent:
    """A track that somebody publishes, or no longer does."""

    track: TrackName
    added: bool

    def __str__(self) -> str:
        return track_text(self.track)


@dataclass(frozen=True, slots=True)
class TrackInfo:
    """What a relay says of a track."""

    largest: Location | None
    "The largest location that was published; None if nothing was, or nobody said."
    properties: TrackProperties
