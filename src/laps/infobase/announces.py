"""The announce information base: what the clients and Stubs of this relay can publish.

    (namespace hashes, name hash) -> origins      where a subscribe finds its publishers
    origin -> (namespace hashes, name hash)       what goes when a client or Stub does

An announce without a name stands for everything below its namespace, one with a name for that
track alone. So the announces that match a track are those of each of its namespace's beginnings,
and that of its whole name: one look-up for each, however many announces there are.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.types import AnnounceInfo

K = TypeVar("K", bound=Hashable)

_Names = tuple[tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class AnnounceChange:
    """An announce came, or went."""

    info: AnnounceInfo
    added: bool
    """False: withdrawn."""


@dataclass(slots=True)
class AnnounceCounters:
    """What origins said that changed nothing, for the operator."""

    duplicates: int = 0
    unknown_withdraws: int = 0


class Announces(Generic[K]):
    """Announces by their origin, whatever key the relay has for a client or a Stub."""

    def __init__(self, *, watched: bool = False) -> None:
        """`watched`: somebody takes what has `moved`."""
        self.counters = AnnounceCounters()
        self.moved: dict[_Names, AnnounceInfo] = {}
        "What somebody has begun to offer, or nobody offers any more, until it is told."
        self._watched = watched
        self._origins: dict[_Names, dict[K, None]] = {}
        self._infos: dict[K, dict[_Names, AnnounceInfo]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._infos.values()))

    def __contains__(self, origin: object) -> bool:
        """Whether an origin announces anything."""
        return origin in self._infos

    def count(self, origin: K) -> int:
        """How much an origin announces."""
        return len(self._infos.get(origin, ()))

    def of(self, origin: K) -> list[AnnounceInfo]:
        """What an origin announces."""
        return list(self._infos.get(origin, {}).values())

    def has(self, origin: K, info: AnnounceInfo) -> bool:
        """Whether an origin announces this."""
        return (info.namespace_hashes, info.name_hash) in self._infos.get(origin, ())

    def __iter__(self) -> Iterator[tuple[K, AnnounceInfo]]:
        """Every announce with its origin."""
        for origin, infos in tuple(self._infos.items()):
            for info in tuple(infos.values()):
                yield origin, info

    def add(self, origin: K, info: AnnounceInfo) -> AnnounceChange | None:
        """An origin announces; None if it had announced the same."""
        names = info.namespace_hashes, info.name_hash
        infos = self._infos.setdefault(origin, {})
        if names in infos:
            self.counters.duplicates += 1
            return None
        infos[names] = info
        if self._watched and names not in self._origins:
            self.moved[names] = info
        self._origins.setdefault(names, {})[origin] = None
        return AnnounceChange(info, added=True)

    def withdraw(self, origin: K, info: AnnounceInfo) -> AnnounceChange | None:
        """An origin takes an announce back; None if it had not announced it."""
        names = info.namespace_hashes, info.name_hash
        infos = self._infos.get(origin, {})
        held = infos.pop(names, None)
        if held is None:
            self.counters.unknown_withdraws += 1
            return None
        if not infos:
            del self._infos[origin]
        self._unindex(origin, held)
        return AnnounceChange(held, added=False)

    def drop_origin(self, origin: K) -> list[AnnounceChange]:
        """A client or a Stub is gone, and all that it announced."""
        infos = self._infos.pop(origin, {})
        for info in infos.values():
            self._unindex(origin, info)
        return [AnnounceChange(info, added=False) for info in infos.values()]

    def match(self, namespace_hashes: tuple[int, ...], name_hash: int) -> list[K]:
        """The origins that announced a track, each once, from the closest announce to the widest.

        Part by part, in order, exact. An announce of fewer parts matches what begins with them,
        one that has a name only that name in that very namespace.
        """
        found = dict(self._origins.get((namespace_hashes, name_hash), {}))
        for length in range(len(namespace_hashes), -1, -1):
            found |= self._origins.get((namespace_hashes[:length], 0), {})
        return list(found)

    def names(self) -> Iterator[AnnounceInfo]:
        """All that is offered, once each, in the words of one who does; it may change meanwhile."""
        for names in list(self._origins):
            origin = next(iter(self._origins.get(names, ())), None)
            if origin is not None:
                yield self._infos[origin][names]

    def is_offered(self, info: AnnounceInfo) -> bool:
        """Whether anybody offers this."""
        return (info.namespace_hashes, info.name_hash) in self._origins

    def offering(self, info: AnnounceInfo) -> list[K]:
        """Those who offer just this."""
        return list(self._origins.get((info.namespace_hashes, info.name_hash), ()))

    def take_moved(self) -> list[AnnounceInfo]:
        """What has begun to be offered since the last time, or is not any more."""
        moved, self.moved = self.moved, {}
        return list(moved.values())

    def _unindex(self, origin: K, info: AnnounceInfo) -> None:
        names = info.namespace_hashes, info.name_hash
        origins = self._origins[names]
        del origins[origin]
        if not origins:
            del self._origins[names]
            if self._watched:
                self.moved[names] = info
