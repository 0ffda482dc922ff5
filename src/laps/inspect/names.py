"""Which track, or which nodes, a person means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laps.errors import ConfigError
from laps.names import hash_text, read_bytes, read_hash, read_namespace
from laps.types import TrackName, format_node_id, hash_track, parse_node_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NODE = re.compile(r"\d+(\.\d+)?:\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A track that somebody asks about."""

    hash: str
    "16 hexadecimal digits, as the admin API writes them."
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.namespace} {self.name}" if self.namespace or self.name else self.hash

    @property
    def key(self) -> int:
        """The hash as a number."""
        return int(self.hash, 16)


def node_text(text: str) -> str:
    """A node id as relays write it; ConfigError if it is none."""
    return format_node_id(parse_node_id(text))


def by_number(nodes: Iterable[str]) -> tuple[str, ...]:
    """Node ids in their order, each once: 1:10 comes after 1:9."""
    return tuple(sorted(set(nodes), key=parse_node_id))


def is_nodes(words: Sequence[str]) -> bool:
    """Whether two words are two nodes, and not a namespace and a name."""
    return len(words) == 2 and all(_NODE.fullmatch(word) for word in words)


def track_of(words: Sequence[str]) -> Wanted:
    """The track that one word or two stand for."""
    if len(words) == 1:
        [text] = words
        if read_hash(text) is not None:
            return Wanted(text.lower())
        namespace, space, name = text.rpartition(" ")
        if not space:
            raise ConfigError(
                f'track "{text}" has no name: write NAMESPACE and NAME, like demo/camera video, or '
                "the 16 digits of its hash, as `laps show tracks` has them"
            )
        return _named(namespace, name)
    if len(words) == 2:
        return _named(*words)
    raise ConfigError(
        f"a track is a namespace and a name, or 16 digits, and not {len(words)} words: put quotes "
        "around a name with spaces"
    )


def _named(namespace: str, name: str) -> Wanted:
    track = TrackName(read_namespace(namespace), read_bytes(name))
    return Wanted(hash_text(hash_track(track).full_name_hash), namespace, name)
