"""The names of namespaces and tracks, as applications write them."""

from __future__ import annotations

from collections.abc import Sequence

from laps.errors import InvalidText
from laps.types import TrackName
from laps.wire.moqt.messages import MAX_FULL_NAME_BYTES, MAX_NAMESPACE_FIELDS, Namespace

NamespaceLike = str | bytes | Sequence[str | bytes]
"`demo/clock`, or a sequence with each part as text or bytes."


def namespace_of(value: NamespaceLike, *, prefix: bool = False) -> Namespace:
    """A namespace from what an application writes; a prefix may be empty."""
    text = value if isinstance(value, str) else repr(value)
    if isinstance(value, str):
        parts = tuple(part.encode() for part in value.split("/")) if value else ()
    elif isinstance(value, bytes):
        parts = (value,)
    else:
        parts = tuple(part.encode() if isinstance(part, str) else bytes(part) for part in value)
    if not parts and not prefix:
        raise InvalidText("namespace", text, "is empty: write it like demo/clock")
    if not all(parts):
        raise InvalidText("namespace", text, "has an empty part: write it like demo/clock")
    if len(parts) > MAX_NAMESPACE_FIELDS:
        problem = f"has {len(parts)} parts: there can be {MAX_NAMESPACE_FIELDS}"
        raise InvalidText("namespace", text, problem)
    if sum(map(len, parts)) > MAX_FULL_NAME_BYTES:
        problem = f"is too long: a namespace and a name have {MAX_FULL_NAME_BYTES} bytes in all"
        raise InvalidText("namespace", text, problem)
    return parts


def track_of(namespace: NamespaceLike, name: str | bytes) -> TrackName:
    """The full name of a track."""
    parts = namespace_of(namespace)
    encoded = name.encode() if isinstance(name, str) else bytes(name)
    size = sum(map(len, parts)) + len(encoded)
    if size > MAX_FULL_NAME_BYTES:
        problem = f"makes {size} bytes with its namespace: there can be {MAX_FULL_NAME_BYTES}"
        raise InvalidText("track name", repr(name), problem)
    return TrackName(parts, encoded)


def show_namespace(namespace: Namespace) -> str:
    """A namespace for a person to read."""
    return "/".join(part.decode("utf-8", "backslashreplace") for part in namespace)


def show_track(track: TrackName) -> str:
    """A track for a person to read."""
    return f"{show_namespace(track.namespace)} {track.name.decode('utf-8', 'backslashreplace')}"
