"""The control messages of MoQT, apart from how a draft writes them.

A field holds what draft 16 can say; `None` means that nothing was said. Where draft 14 says a thing
in another place (a fixed field, a parameter), its codec puts it here all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final

from laps.types import Location, TrackName

if TYPE_CHECKING:
    from laps.names import Namespace

KeyValue = tuple[int, int | bytes]
"A type and its value: a number where the type is even, bytes where it is odd."

DEFAULT_PRIORITY: Final = 128
MAX_REASON_BYTES: Final = 1024
MAX_URI_BYTES: Final = 8192
UNKNOWN_STREAM_COUNT: Final = (1 << 62) - 1
FIRST: Final = Location(0, 0)


class GroupOrder(IntEnum):
    """Which groups go first."""

    PUBLISHERS = 0
    "As the publisher likes it."
    ASCENDING = 1
    DESCENDING = 2


class FilterType(IntEnum):
    """Where a subscription begins."""

    NEXT_GROUP = 1
    LARGEST_OBJECT = 2
    ABSOLUTE_START = 3
    ABSOLUTE_RANGE = 4


@dataclass(frozen=True, slots=True)
class Filter:
    """Which objects of a track a subscription is for."""

    type: FilterType
    start: Location = FIRST
    "Of absolute filters."
    end_group: int | None = None
    "The last group, of an absolute range."


UNFILTERED: Final = Filter(FilterType.ABSOLUTE_START)


class TokenAlias(IntEnum):
    """What is done with a token."""

    DELETE = 0
    REGISTER = 1
    USE_ALIAS = 2
    USE_VALUE = 3


@dataclass(frozen=True, slots=True)
class Token:
    """An authorization token, or a name for one."""

    alias_type: TokenAlias
    alias: int | None = None
    type: int | None = None
    value: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TrackProperties:
    """What a publisher says of a track, for every subscriber: kept and passed on by relays."""

    delivery_timeout_ms: int | None = None
    max_cache_ms: int | None = None
    priority: int | None = None
    "Of objects that name none; 128 where it is not said."
    order: GroupOrder = GroupOrder.PUBLISHERS
    dynamic_groups: bool = False
    extensions: tuple[KeyValue, ...] = ()
    "Those that are not ours to understand, in ascending order of type."


# --- setup -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientSetup:
    """CLIENT_SETUP."""

    versions: tuple[int, ...] = ()
    "Draft 14: those the client speaks, in its order. Later drafts are named by the ALPN."
    path: bytes | None = field(default=None, repr=False)
    "Its query may hold a token."
    authority: bytes | None = None
    max_request_id: int = 0
    max_token_cache_bytes: int = 0
    tokens: tuple[Token, ...] = ()
    implementation: bytes | None = None


@dataclass(frozen=True, slots=True)
class ServerSetup:
    """SERVER_SETUP."""

    version: int | None = None
    "Draft 14 only."
    path: bytes | None = None
    "A server must not say it: kept so that a session can refuse it."
    authority: bytes | None = None
    "As with the path."
    max_request_id: int = 0
    max_token_cache_bytes: int = 0
    tokens: tuple[Token, ...] = ()
    implementation: bytes | None = None


@dataclass(frozen=True, slots=True)
class Goaway:
    """GOAWAY."""

    uri: bytes = b""


@dataclass(frozen=True, slots=True)
class MaxRequestId:
    """MAX_REQUEST_ID: the first request id that is not allowed."""

    max_request_id: int


@dataclass(frozen=True, slots=True)
class RequestsBlocked:
    """REQUESTS_BLOCKED."""

    max_request_id: int


# --- requests and their answers --------------------------------------------------------------


class RequestKind(Enum):
    """What a request asks for; draft 14 has messages of its own for the answers to each."""

    SUBSCRIBE = "subscribe"
    UPDATE = "update"
    PUBLISH = "publish"
    FETCH = "fetch"
    TRACK_STATUS = "track status"
    PUBLISH_NAMESPACE = "publish namespace"
    SUBSCRIBE_NAMESPACE = "subscribe namespace"


@dataclass(frozen=True, slots=True)
class RequestOk:
    """REQUEST_OK: to an update, a track status, or either request about namespaces."""

    request_id: int
    kind: RequestKind | None = None
    "None where the draft does not say; the session knows what it asked."
    largest: Location | None = None
    expires_ms: int | None = None
    properties: TrackProperties = TrackProperties()
    "To a track status."


@dataclass(frozen=True, slots=True)
class RequestError:
    """REQUEST_ERROR, and the errors of each request in draft 14."""

    request_id: int
    code: int
    "A `RequestCode`, or a number that is none."
    reason: str = ""
    retry_ms: int | None = None
    "When it may be asked again; None if it should not be."
    kind: RequestKind | None = None


@dataclass(frozen=True, slots=True)
class Subscribe:
    """SUBSCRIBE."""

    request_id: int
    track: TrackName
    filter: Filter = UNFILTERED
    priority: int = DEFAULT_PRIORITY
    order: GroupOrder = GroupOrder.PUBLISHERS
    forward: bool = True
    delivery_timeout_ms: int | None = None
    new_group: int | None = None
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class SubscribeOk:
    """SUBSCRIBE_OK."""

    request_id: int
    alias: int
    largest: Location | None = None
    expires_ms: int | None = None
    properties: TrackProperties = TrackProperties()


@dataclass(frozen=True, slots=True)
class RequestUpdate:
    """REQUEST_UPDATE, and draft 14's SUBSCRIBE_UPDATE."""

    request_id: int
    existing_id: int
    filter: Filter | None = None
    priority: int | None = None
    forward: bool | None = None
    delivery_timeout_ms: int | None = None
    new_group: int | None = None
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """UNSUBSCRIBE."""

    request_id: int


@dataclass(frozen=True, slots=True)
class Publish:
    """PUBLISH."""

    request_id: int
    track: TrackName
    alias: int
    largest: Location | None = None
    forward: bool = True
    expires_ms: int | None = None
    tokens: tuple[Token, ...] = ()
    properties: TrackProperties = TrackProperties()


@dataclass(frozen=True, slots=True)
class PublishOk:
    """PUBLISH_OK."""

    request_id: int
    forward: bool = True
    filter: Filter = UNFILTERED
    priority: int = DEFAULT_PRIORITY
    order: GroupOrder = GroupOrder.PUBLISHERS
    delivery_timeout_ms: int | None = None
    expires_ms: int | None = None
    new_group: int | None = None


@dataclass(frozen=True, slots=True)
class PublishDone:
    """PUBLISH_DONE."""

    request_id: int
    code: int
    "A `DoneCode`, or a number that is none."
    stream_count: int = UNKNOWN_STREAM_COUNT
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StandaloneFetch:
    """A range of a track."""

    track: TrackName
    start: Location
    end: Location
    "One past the last object; an object of 0 means the whole group."


@dataclass(frozen=True, slots=True)
class JoiningFetch:
    """What comes before a subscription."""

    joining_id: int
    "The request id of the subscription."
    start: int
    "A group, or how many groups back."
    relative: bool


@dataclass(frozen=True, slots=True)
class Fetch:
    """FETCH."""

    request_id: int
    range: StandaloneFetch | JoiningFetch
    priority: int = DEFAULT_PRIORITY
    order: GroupOrder = GroupOrder.ASCENDING
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchOk:
    """FETCH_OK."""

    request_id: int
    end: Location
    end_of_track: bool = False
    order: GroupOrder = GroupOrder.ASCENDING
    "Draft 14 says it again."
    properties: TrackProperties = TrackProperties()


@dataclass(frozen=True, slots=True)
class FetchCancel:
    """FETCH_CANCEL."""

    request_id: int


@dataclass(frozen=True, slots=True)
class TrackStatus:
    """TRACK_STATUS."""

    request_id: int
    track: TrackName
    tokens: tuple[Token, ...] = ()


# --- namespaces ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PublishNamespace:
    """PUBLISH_NAMESPACE."""

    request_id: int
    namespace: Namespace
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishNamespaceDone:
    """PUBLISH_NAMESPACE_DONE: draft 14 names the namespace, draft 16 the request."""

    request_id: int | None = None
    namespace: Namespace | None = None


@dataclass(frozen=True, slots=True)
class PublishNamespaceCancel:
    """PUBLISH_NAMESPACE_CANCEL: draft 14 names the namespace, draft 16 the request."""

    code: int
    reason: str = ""
    request_id: int | None = None
    namespace: Namespace | None = None


class NamespaceOptions(IntEnum):
    """What a SUBSCRIBE_NAMESPACE wants to hear of."""

    PUBLISH = 0
    NAMESPACE = 1
    BOTH = 2


@dataclass(frozen=True, slots=True)
class SubscribeNamespace:
    """SUBSCRIBE_NAMESPACE; in draft 16 it opens a stream of its own."""

    request_id: int
    prefix: Namespace
    options: NamespaceOptions = NamespaceOptions.BOTH
    forward: bool = True
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class UnsubscribeNamespace:
    """UNSUBSCRIBE_NAMESPACE: draft 14 only; draft 16 ends the stream."""

    prefix: Namespace
    id: int | None = None
    "What some clients send instead of the prefix: the id of their SUBSCRIBE_NAMESPACE."


@dataclass(frozen=True, slots=True)
class NamespaceAdded:
    """NAMESPACE: draft 16, on the stream of its SUBSCRIBE_NAMESPACE."""

    suffix: Namespace


@dataclass(frozen=True, slots=True)
class NamespaceDone:
    """NAMESPACE_DONE: draft 16, on the stream of its SUBSCRIBE_NAMESPACE."""

    suffix: Namespace


Message = (
    ClientSetup
    | ServerSetup
    | Goaway
    | MaxRequestId
    | RequestsBlocked
    | RequestOk
    | RequestError
    | Subscribe
    | SubscribeOk
    | RequestUpdate
    | Unsubscribe
    | Publish
    | PublishOk
    | PublishDone
    | Fetch
    | FetchOk
    | FetchCancel
    | TrackStatus
    | PublishNamespace
    | PublishNamespaceDone
    | PublishNamespaceCancel
    | SubscribeNamespace
    | UnsubscribeNamespace
    | NamespaceAdded
    | NamespaceDone
)
