"""What the admin API answers, as far as the dashboard reads it.

Fields have defaults: a relay of another version, that leaves one out or knows more, is shown too.
An answer of another shape is a `msgspec.ValidationError`, which `watching` puts in words.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

# Numbers that cannot be true are refused at the door: nothing behind it has to ask again.
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Time = Annotated[float, Meta(ge=0, le=1e15)]
Latitude = Annotated[float, Meta(ge=-90, le=90)]
Longitude = Annotated[float, Meta(ge=-180, le=180)]


class View(msgspec.Struct, frozen=True):
    """A part of an answer."""


class NodeView(View, frozen=True):
    """`/v1/node`: a relay about itself."""

    node: str
    role: str = ""
    region: str | None = ""
    latitude: Latitude | None = 0.0
    longitude: Longitude | None = 0.0
    version: str | None = ""
    since: Time | None = 0.0
    sent_bytes: Count = 0
    received_bytes: Count = 0
    draining: bool = False
    sizes: dict[str, Any] = {}


class Peer(View, frozen=True):
    """A row of `/v1/peers`: the relay's end of a link."""

    node: str
    role: str = ""
    mode: str | None = ""
    srtt_us: Time | None = None
    sent_bytes: Count = 0
    received_bytes: Count = 0
    sent_packets: Count = 0
    lost_packets: Count = 0
    queue_bytes: Count = 0


class Path(View, frozen=True):
    """A way to a node: `hops` lead from the peer to the node itself."""

    peer: str = ""
    hops: list[str] = []


class KnownNode(View, frozen=True):
    """A row of `/v1/nodes`: a node as another one knows it."""

    node: str
    role: str = ""
    region: str | None = ""
    latitude: Latitude | None = 0.0
    longitude: Longitude | None = 0.0
    best: Path | None = None


class Track(View, frozen=True):
    """A row of `/v1/tracks`: a track at one relay."""

    track: str
    namespace: str = ""
    name: str = ""
    origin: bool = False
    publishers: Count = 0
    subscribers: Count = 0
    ingress: list[str] = []
    egress: list[str] = []
    received_bytes: Count = 0
    sent_bytes: Count = 0


class Event(View, frozen=True):
    """A row of `/v1/events`: something that happened at a relay."""

    number: Count
    at: Time = 0.0
    event: str = ""
    subject: str = ""
    detail: str | None = ""
    reason: str | None = ""


class Arrival(View, frozen=True):
    """A line of `/v1/trace`: an object has begun to arrive."""

    at: Time
    group: Count
    object: Count
    subgroup: Count | None = None


class Peers(View, frozen=True):
    """`/v1/peers`."""

    peers: list[Peer] = []


class Nodes(View, frozen=True):
    """`/v1/nodes`."""

    nodes: list[KnownNode] = []


class Tracks(View, frozen=True):
    """`/v1/tracks`; `total` counts those beyond the limit too."""

    tracks: list[Track] = []
    total: Count = 0


class Events(View, frozen=True):
    """`/v1/events`."""

    events: list[Event] = []
