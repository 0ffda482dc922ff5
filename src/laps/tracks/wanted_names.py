"""The namespaces that somebody wants tracks of, by the beginnings of their names.

    hashes of the first parts -> namespaces that begin with them

An announce names the hashes of its parts, a subscribe the hash of its whole namespace and, in the
SUBSCRIBE itself, the parts. Each namespace is read once, when the first of its tracks is wanted, so
that an announce finds what it offers without a look at anything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.tables import PART, Table
from laps.types import hash_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator


class WantedNames:
    """The names of the namespaces that tracks are wanted of."""

    def __init__(self) -> None:
        self._parts: Table[int, tuple[int, ...]] = Table()
        "By the hash of a namespace: the hashes of its parts."
        self._below: Table[tuple[int, ...], int | dict[int, None] | Table[int, None]] = Table()
        "Most beginnings are those of one namespace."

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, namespace_hash: int) -> bool:
        return namespace_hash in self._parts

    def add(self, namespace_hash: int, namespace: tuple[bytes, ...]) -> None:
        """A track of a namespace is wanted, the first that is."""
        parts = self._parts[namespace_hash] = tuple(map(hash_bytes, namespace))
        for length in range(len(parts) + 1):
            prefix = parts if length == len(parts) else parts[:length]
            found = self._below.get(prefix)
            if found is None:
                self._below[prefix] = namespace_hash
            elif isinstance(found, int):
                self._below[prefix] = {found: None, namespace_hash: None}
            else:
                found[namespace_hash] = None
                if len(found) == PART and isinstance(found, dict):
                    self._below[prefix] = Table(found)

    def discard(self, namespace_hash: int) -> None:
        """None of its tracks is wanted any more."""
        parts = self._parts.pop(namespace_hash, None)
        for length in range(0 if parts is None else len(parts) + 1):
            prefix = () if parts is None else parts[:length]
            found = self._below[prefix]
            if isinstance(found, int):
                del self._below[prefix]
            else:
                del found[namespace_hash]
                if not found:
                    del self._below[prefix]

    def below(self, parts: tuple[int, ...]) -> Iterator[int]:
        """The namespaces that begin with these parts; the table may change meanwhile."""
        found = self._below.get(parts, ())
        if isinstance(found, Table):
            return iter(found)
        return iter((found,) if isinstance(found, int) else tuple(found))

    def parts(self, namespace_hash: int) -> tuple[int, ...] | None:
        """The hashes of the parts of a namespace."""
        return self._parts.get(namespace_hash)
