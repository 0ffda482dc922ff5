"""The namespace information base: what publishers at which node offer, by name.

    source -> (namespace, name) -> info     what goes when a node does
    (namespace, name) -> sources            who offers the same

Subscribes need only hashes; whoever asks for all namespaces below a prefix needs the names. As with
subscribes, each source counts what it says of a namespace, the newest word holds, and it is kept
for a while after a withdraw so that an old word that arrives late is not taken.

A search below a prefix looks at every name, which takes 10 ms with 100,000 of them: it is asked for
once by a client, and then changes are passed on as they come.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.infobase.sequences import SequenceCounters, Sequences
from laps.types import TrackName, sequence_newer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from laps.types import NamespaceInfo, NodeId

# As long as a word about a subscribe may be on its way, for the same reason.
RETENTION_S: Final = 60.0

# Namespaces come and go with publishers, far fewer than subscribers.
MAX_WITHDRAWN: Final = 100_000

Names = tuple[tuple[bytes, ...], bytes | None]


def track_of(names: Names | None) -> TrackName | None:
    """The track that is offered, if it is one and not all below a namespace."""
    if names is None or names[1] is None:
        return None
    return TrackName(names[0], names[1])


@dataclass(frozen=True, slots=True)
class NamespaceChange:
    """A word about a namespace that is news, and has to be passed on."""

    info: NamespaceInfo
    added: bool
    """False: withdrawn."""
    first: bool
    """No other source offered it before it was added, or does after it was withdrawn."""


class Namespaces:
    """What every node offers."""

    def __init__(self) -> None:
        self.counters = SequenceCounters()
        self._infos: dict[NodeId, dict[Names, NamespaceInfo]] = {}
        self._sources: dict[Names, set[NodeId]] = {}
        self._counts: Counter[tuple[bytes, ...]] = Counter()
        "How many entries of `_sources` have each namespace."
        self._withdrawn: Sequences[Names] = Sequences(RETENTION_S, MAX_WITHDRAWN, self.counters)

    # -- what is said ----------------------------------------------------------------------------

    def add(self, info: NamespaceInfo, now: float) -> NamespaceChange | None:
        """A node offers a namespace; None if that is no news."""
        source, names = info.source_node_id, (info.namespace, info.name)
        # As of subscribes: after a quick restart the number of the leave is used again.
        again = self._withdrawn.get(source, names) == info.sequence
        if not again and not self._is_newer(info, names, now):
            return None
        self._withdrawn.forget(source, names)
        self._infos.setdefault(source, {})[names] = info
        sources = self._sources.setdefault(names, set())
        first = not sources
        sources.add(source)
        self._counts[info.namespace] += first
        return NamespaceChange(info, added=True, first=first)

    def withdraw(self, info: NamespaceInfo, now: float) -> NamespaceChange | None:
        """A node offers a namespace no more; None if that is no news.

        It is news, to be passed on, also where the offer itself never arrived.
        """
        source, names = info.source_node_id, (info.namespace, info.name)
        if not self._is_newer(info, names, now):
            return None
        self._withdrawn.keep(source, names, info.sequence, now)
        infos = self._infos.get(source, {})
        if infos.pop(names, None) is None:
            return NamespaceChange(info, added=False, first=False)
        if not infos:
            del self._infos[source]
        return NamespaceChange(info, added=False, first=self._unindex(source, names))

    def purge_source(self, node_id: NodeId) -> list[NamespaceChange]:
        """A node is gone, and all it offered; whatever it says when it is back is taken."""
        self._withdrawn.forget_source(node_id)
        return [
            NamespaceChange(info, added=False, first=self._unindex(node_id, names))
            for names, info in self._infos.pop(node_id, {}).items()
        ]

    def expire(self, now: float) -> None:
        """Forget what was withdrawn long enough ago."""
        self._withdrawn.expire(now)

    @property
    def next_expiry(self) -> float | None:
        """When `expire` has something to do, or None."""
        return self._withdrawn.next_expiry

    # -- what is known ---------------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(map(len, self._infos.values()))

    def __iter__(self) -> Iterator[NamespaceInfo]:
        """Every offer, those of one source after another."""
        for source in tuple(self._infos):
            yield from self.of_source(source)

    def count(self, source: NodeId) -> int:
        """How much a node offers."""
        return len(self._infos.get(source, ()))

    def of(self, source: NodeId) -> tuple[Names, ...]:
        """The namespaces and names that a node offers."""
        return tuple(self._infos.get(source, ()))

    def of_source(self, node_id: NodeId) -> tuple[NamespaceInfo, ...]:
        """What a node offers."""
        return tuple(self._infos.get(node_id, {}).values())

    def get(self, source: NodeId, names: Names) -> NamespaceInfo | None:
        """What a node says of one namespace and name."""
        return self._infos.get(source, {}).get(names)

    def sequence(self, source: NodeId, names: Names) -> int | None:
        """The last sequence seen, also of what was withdrawn lately."""
        held = self.get(source, names)
        return self._withdrawn.get(source, names) if held is None else held.sequence

    def matching(self, prefix: tuple[bytes, ...]) -> list[NamespaceInfo]:
        """Every offer whose namespace begins with these parts, each source's apart."""
        depth = len(prefix)
        return [
            self._infos[source][names]
            for names, sources in self._sources.items()
            if names[0][:depth] == prefix
            for source in sorted(sources)
        ]

    def sources(self, names: Names) -> Collection[NodeId]:
        """The nodes that offer one namespace and name."""
        return self._sources.get(names, ())

    def has(self, namespace: tuple[bytes, ...]) -> bool:
        """Whether anybody offers a namespace, or a track of it."""
        return namespace in self._counts

    def names(self) -> list[Names]:
        """Everything that is offered, once each."""
        return list(self._sources)

    def offering(self, namespace: tuple[bytes, ...], name: bytes) -> list[NodeId]:
        """The nodes that offer a track, from the closest offer to the widest.

        By its name, or by a beginning of its namespace.
        """
        found = dict.fromkeys(sorted(self._sources.get((namespace, name), ())))
        for length in range(len(namespace), -1, -1):
            found |= dict.fromkeys(sorted(self._sources.get((namespace[:length], None), ())))
        return list(found)

    # -- how it works ----------------------------------------------------------------------------

    def _is_newer(self, info: NamespaceInfo, names: Names, now: float) -> bool:
        self._withdrawn.expire(now)
        last = self.sequence(info.source_node_id, names)
        newer = last is None or sequence_newer(info.sequence, last)
        self.counters.duplicates += not newer
        return newer

    def _unindex(self, source: NodeId, names: Names) -> bool:
        """Whether the names have no source any more."""
        sources = self._sources[names]
        sources.remove(source)
        if not sources:
            del self._sources[names]
            self._counts[names[0]] -= 1
            if not self._counts[names[0]]:
                del self._counts[names[0]]
        return not sources
