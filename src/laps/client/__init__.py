"""What an application imports: publish and subscribe tracks through a relay.

    import laps

    async with laps.connect("moqt://127.0.0.1:33435") as session:
        track = await session.publish("demo/clock", "seconds")
        await track.write(b"12:00:00")

    async with laps.connect("https://relay.example/moq") as session:
        async for obj in session.subscribe("demo/clock", "seconds"):
            print(obj.group, obj.id, obj.payload)

`quicr://127.0.0.1:33435` speaks QUICR instead of MoQT, with the same methods.

Errors are `laps.errors.LapsError`: ConfigError for what was written wrong, HandshakeFailed where no
relay answers, RequestRefused where it says no, SessionClosed when it is gone.
"""

from laps.client.connect import Connecting, connect
from laps.client.fetching import Fetching
from laps.client.gaps import Gap
from laps.client.namespaces import Namespaces
from laps.client.quicr.session import QuicrSession
from laps.client.quicr.subscription import QuicrSubscription
from laps.client.quicr.track import QuicrTrack
from laps.client.quicr.wildcard import QuicrSubscriptions
from laps.client.session import Session
from laps.client.subgroup import Subgroup
from laps.client.subscription import Start, Subscription
from laps.client.track import Track
from laps.client.tracks import Tracks
from laps.client.values import MAX_OBJECT_BYTES, NamespaceEvent, Object, TrackEvent, TrackInfo
from laps.config import QuicConfig
from laps.errors import ObjectsMissing, ObjectTooLarge, RequestRefused, SessionClosed
from laps.names import Namespace, NamespaceLike
from laps.types import Location, TrackName
from laps.wire.moqt.codes import RequestCode
from laps.wire.moqt.data import ObjectStatus
from laps.wire.moqt.messages import GroupOrder, KeyValue, TrackProperties

__all__ = [
    "MAX_OBJECT_BYTES",
    "Connecting",
    "Fetching",
    "Gap",
    "GroupOrder",
    "KeyValue",
    "Location",
    "Namespace",
    "NamespaceEvent",
    "NamespaceLike",
    "Namespaces",
    "Object",
    "ObjectStatus",
    "ObjectTooLarge",
    "ObjectsMissing",
    "QuicConfig",
    "QuicrSession",
    "QuicrSubscription",
    "QuicrSubscriptions",
    "QuicrTrack",
    "RequestCode",
    "RequestRefused",
    "Session",
    "SessionClosed",
    "Start",
    "Subgroup",
    "Subscription",
    "Track",
    "TrackEvent",
    "TrackInfo",
    "TrackName",
    "TrackProperties",
    "Tracks",
    "connect",
]
