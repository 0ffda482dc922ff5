r"""The names of tracks and namespaces as text, and back.

A namespace is written with slashes, and a track as its namespace, a space and its name. Bytes that
are no text are written `\xff`. A name may hold a space, a slash or a backslash of its own: text is
for people, and one text may stand for several names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from laps.errors import InvalidText
from laps.types import TrackName

if TYPE_CHECKING:
    from collections.abc import Iterator

Namespace = tuple[bytes, ...]

NamespaceLike = str | bytes | Sequence[str | bytes]
"`demo/clock`, or a sequence with each part as text or bytes."

BINARY_NAMESPACE: Final = (b"quicr",)
"Where the tracks are that QUICR names by 16 bytes, each under their hexadecimal digits."

# What MoQT allows a namespace alone, and together with a name.
MAX_NAMESPACE_FIELDS: Final = 32
MAX_FULL_NAME_BYTES: Final = 4096

# --- to text ---------------------------------------------------------------------------------


# What a terminal or a page acts on, or shows as nothing, where a name should be seen: controls,
# what turns the direction of writing, ends of lines and what has no width. Joiners belong to words.
_HIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    r"""Text of others for a person to see: what would not be seen as it is, as \xe2\x80\xae."""
    return _HIDDEN.sub(lambda found: "".join(f"\\x{byte:02x}" for byte in found[0].encode()), text)


def bytes_text(data: bytes) -> str:
    r"""A name as text, with \xff for bytes that are not, or that cannot be seen."""
    return visible(data.decode(errors="backslashreplace"))


def namespace_text(namespace: Namespace) -> str:
    """The parts of a namespace, joined by slashes."""
    return "/".join(map(bytes_text, namespace))


def track_text(track: TrackName) -> str:
    """A track for a person to read."""
    return f"{namespace_text(track.namespace)} {bytes_text(track.name)}"


def track_texts(name: TrackName | None) -> tuple[str, str]:
    """Namespace and name; both empty where nobody here has said them."""
    return ("", "") if name is None else (namespace_text(name.namespace), bytes_text(name.name))


def hash_text(full_name_hash: int) -> str:
    """The hash of a track: 16 hexadecimal digits."""
    return f"{full_name_hash:016x}"


# --- from text -------------------------------------------------------------------------------


def read_hash(text: str) -> int | None:
    """What `hash_text` wrote, or None."""
    return int(text, 16) if re.fullmatch("[0-9a-fA-F]{16}", text) else None


def read_bytes(text: str) -> bytes:
    """What `bytes_text` wrote."""
    return re.sub(
        rb"\\x([0-9a-fA-F]{2})", lambda match: bytes.fromhex(match[1].decode()), text.encode()
    )


def read_namespace(text: str) -> Namespace:
    """What `namespace_text` wrote."""
    return tuple(map(read_bytes, text.split("/"))) if text else ()


def read_track(text: str) -> Iterator[TrackName]:
    """The tracks that `NAMESPACE NAME` may mean: any space may be the one between the two."""
    for space in re.finditer(" ", text):
        namespace, name = text[: space.start()], text[space.end() :]
        plain = TrackName(tuple(map(str.encode, namespace.split("/"))), name.encode())
        yield plain
        meant = TrackName(tuple(map(read_bytes, namespace.split("/"))), read_bytes(name))
        if meant != plain:
            yield meant


# --- what applications write -----------------------------------------------------------------


def namespace_of(value: NamespaceLike, *, prefix: bool = False) -> Namespace:
    """A namespace from what an application writes; a prefix may be empty.

    Text is taken as it is, with no escapes: who has bytes gives bytes.
    """
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
