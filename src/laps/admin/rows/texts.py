"""The names of tracks and nodes as text, as people and JSON have them, and back."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from laps.types import TrackName, format_node_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from laps.types import NodeId

# A relay names the same few nodes in each of thousands of rows.
node_text = lru_cache(maxsize=4096)(format_node_id)


def node_texts(nodes: Iterable[NodeId]) -> list[str]:
    """Nodes in the order of their ids."""
    return [node_text(node) for node in sorted(nodes)]


def hash_text(full_name_hash: int) -> str:
    """The hash of a track: 16 hexadecimal digits."""
    return f"{full_name_hash:016x}"


def read_hash(text: str) -> int | None:
    """What `hash_text` wrote, or None."""
    return int(text, 16) if re.fullmatch("[0-9a-fA-F]{16}", text) else None


def bytes_text(data: bytes) -> str:
    r"""A name as text, with \xff for bytes that are not."""
    return data.decode(errors="backslashreplace")


def namespace_text(namespace: tuple[bytes, ...]) -> str:
    """The parts of a namespace, joined by slashes."""
    return "/".join(map(bytes_text, namespace))


def track_texts(name: TrackName | None) -> tuple[str, str]:
    """Namespace and name; both empty where only the hash is known."""
    return ("", "") if name is None else (namespace_text(name.namespace), bytes_text(name.name))


def read_track(text: str) -> Iterator[TrackName]:
    """The tracks that `NAMESPACE NAME` may mean: any space may be the one between the two."""
    for space in re.finditer(" ", text):
        namespace, name = text[: space.start()], text[space.end() :]
        plain = TrackName(tuple(map(str.encode, namespace.split("/"))), name.encode())
        yield plain
        meant = TrackName(tuple(map(_unescaped, namespace.split("/"))), _unescaped(name))
        if meant != plain:
            yield meant


def _unescaped(text: str) -> bytes:
    return re.sub(
        rb"\\x([0-9a-f]{2})", lambda match: bytes.fromhex(match[1].decode()), text.encode()
    )
