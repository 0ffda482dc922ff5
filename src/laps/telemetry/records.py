"""The kinds of telemetry and the columns of each: what relays write and the pipeline reads.

A relay publishes each kind on a track of its own, `laps/telemetry/<node>` and the kind's name, and
an object a second on it: an Arrow IPC stream of one record batch. A kind with nothing to say is
silent; each group begins with an object, which may be without rows. Amounts are of the time since
the record before, `interval_us`, not since the relay began: a reader need not know the record
before.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from laps.types import TrackName, format_node_id

if TYPE_CHECKING:
    from laps.types import NodeId

NAMESPACE: Final = (b"laps", b"telemetry")
"What the tracks of every relay are below; the node's id follows as text, like 1:1."


class Type(StrEnum):
    """The types of columns, by their names in Spark's own schemas."""

    TIMESTAMP = "timestamp"  # microseconds, UTC
    STRING = "string"
    STRINGS = "array<string>"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "bigint"
    DOUBLE = "double"


@dataclass(frozen=True, slots=True)
class Column:
    """A column, which never holds null."""

    name: str
    type: Type
    meaning: str


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of record."""

    name: str
    columns: tuple[Column, ...]

    @property
    def ddl(self) -> str:
        """Its schema as Spark writes one."""
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)


_AT = Column("at", Type.TIMESTAMP, "when it was so, by the relay's clock")
_NODE = Column("node", Type.STRING, "the relay that says it")
_INTERVAL = Column("interval_us", Type.LONG, "the time that amounts are of")

LINKS: Final = Kind(
    "links",
    (
        _AT,
        _NODE,
        Column("peer", Type.STRING, "the relay at the other end"),
        _INTERVAL,
        Column("srtt_us", Type.LONG, "the smoothed round trip time"),
        Column("loss", Type.DOUBLE, "the share of packets lost, 0 to 1"),
        Column("sent_bytes", Type.LONG, "sent to the peer"),
        Column("received_bytes", Type.LONG, "received from it"),
        Column("queue_bytes", Type.LONG, "what waits to be sent now"),
        Column("capacity_bps", Type.LONG, "the less of what both ends can send; 0: neither says"),
    ),
)

TRACKS: Final = Kind(
    "tracks",
    (
        _AT,
        _NODE,
        Column("namespace", Type.STRING, "its parts joined by slashes; empty where not known"),
        Column("track", Type.STRING, "the name; empty where not known"),
        Column("track_hash", Type.LONG, "the hash of the full name, as a signed number"),
        _INTERVAL,
        Column("origin", Type.BOOLEAN, "whether its publisher is a client of this relay"),
        Column("subscribers", Type.INT, "clients of this relay that read it"),
        Column("egress", Type.STRINGS, "the peers that copies go to, in order"),
        Column("received_bytes", Type.LONG, "that came in, once"),
        Column("sent_bytes", Type.LONG, "that went out, to peers and clients in all"),
    ),
)

NODE: Final = Kind(
    "node",
    (
        _AT,
        _NODE,
        Column("role", Type.STRING, "edge, via, stub or control"),
        Column("region", Type.STRING, "as configured; may be empty"),
        Column("latitude", Type.DOUBLE, "degrees"),
        Column("longitude", Type.DOUBLE, "degrees"),
        _INTERVAL,
        Column("load", Type.DOUBLE, "the share of a core that it works, 0 to 1"),
        Column("memory_bytes", Type.LONG, "resident"),
        Column("capacity_bps", Type.LONG, "what the machine can send; 0: not said"),
        Column("sent_bytes", Type.LONG, "sent to peers and clients"),
        Column("received_bytes", Type.LONG, "received from them"),
        Column("clients", Type.INT, "connected now"),
        Column("peers", Type.INT, "connected now"),
        Column("tracks", Type.INT, "that it carries now"),
        Column("cache_bytes", Type.LONG, "kept of tracks"),
        Column("dropped", Type.LONG, "groups dropped for slow readers"),
        Column("version", Type.STRING, "of the program"),
    ),
)

EVENTS: Final = Kind(
    "events",
    (
        _AT,
        _NODE,
        Column("event", Type.STRING, "started, peer_up, peer_down, path_changed, …"),
        Column("subject", Type.STRING, "the node, the track or the client it is about"),
        Column("detail", Type.STRING, "what changed, like the peer of the path before and now"),
        Column("reason", Type.STRING, "why"),
    ),
)

KINDS: Final = {kind.name: kind for kind in (LINKS, TRACKS, NODE, EVENTS)}


def is_telemetry(namespace: tuple[bytes, ...]) -> bool:
    """Whether a namespace is where relays speak of themselves, and nobody else."""
    return namespace[: len(NAMESPACE)] == NAMESPACE


def namespace_of(node_id: NodeId) -> tuple[bytes, ...]:
    """Where the tracks of a node are."""
    return (*NAMESPACE, format_node_id(node_id).encode())


def tracks_of(node_id: NodeId) -> list[TrackName]:
    """The tracks of a node, in the order of the kinds."""
    return [TrackName(namespace_of(node_id), name.encode()) for name in KINDS]
