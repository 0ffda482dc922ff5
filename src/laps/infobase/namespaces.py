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

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.infobase.sequences import SequenceCounters, Sequences
from laps.tables import Table
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
        self._infos: dict[NodeId, Table[Names, NamespaceInfo]] = {}
        self._sources: Table[Names, set[NodeId]] = Table()
        self._counts: Counter[tuple[bytes, ...]] = Counter()
        "How many entries of `_sources` have each namespace."
        self._purging: deque[tuple[NodeId, Table[Names, NamespaceInfo]]] = deque()
        "What nodes offered that are gone, as far as `_sources` still has it."
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
        infos = self._infos.get(source)
        if infos is None:
            infos = self._infos[source] = Table()
        infos[names] = info
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
        infos = self._infos.get(source)
        if infos is None or infos.pop(names, None) is None:
            return NamespaceChange(info, added=False, first=False)
        if not infos:
            del self._infos[source]
        return NamespaceChange(info, added=False, first=self._unindex(source, names))

    def purge_source(self, node_id: NodeId) -> None:
        """A node is gone, and all it offered; whatever it says when it is back is taken.

        It may have offered a great deal: `purged` tells what, some at a time.
        """
        self._withdrawn.forget_source(node_id)
        if infos := self._infos.pop(node_id, None):
            self._purging.append((node_id, infos))

    def purged(self, most: int) -> list[NamespaceChange]:
        """Some of what nodes that are gone had offered, and have not come back with."""
        found: list[NamespaceChange] = []
        while self._purging and len(found) < most:
            source, infos = self._purging[0]
            names, info = infos.popitem()
            if not infos:
                self._purging.popleft()
            if not self._holds(source, names):
                first = self._unindex(source, names)
                found.append(NamespaceChange(info, added=False, first=first))
        return found

    @property
    def is_purging(self) -> bool:
        """Whether `purged` has more to tell."""
        return bool(self._purging)

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

    def of(self, source: NodeId) -> Iterator[Names]:
        """The namespaces and names that a node offers; the table may change meanwhile."""
        return iter(self._infos.get(source, ()))

    def of_source(self, node_id: NodeId) -> Iterator[NamespaceInfo]:
        """What a node offers; the table may change meanwhile."""
        infos = self._infos.get(node_id)
        return iter(()) if infos is None else infos.values()

    def get(self, source: NodeId, names: Names) -> NamespaceInfo | None:
        """What a node says of one namespace and name."""
        infos = self._infos.get(source)
        return None if infos is None else infos.get(names)

    def sequence(self, source: NodeId, names: Names) -> int | None:
        """The last sequence seen, also of what was withdrawn lately."""
        held = self.get(source, names)
        return self._withdrawn.get(source, names) if held is None else held.sequence

    def matching(self, prefix: tuple[bytes, ...]) -> list[NamespaceInfo]:
        """Every offer whose namespace begins with these parts, each source's apart."""
        depth = len(prefix)
        found = [names for names in self._sources if names[0][:depth] == prefix]
        infos = (self.get(source, names) for names in found for source in self.sources(names))
        return [info for info in infos if info is not None]

    def sources(self, names: Names) -> Collection[NodeId]:
        """The nodes that offer one namespace and name, in order."""
        sources = sorted(self._sources.get(names, ()))
        if self._purging:
            sources = [source for source in sources if self._holds(source, names)]
        return sources

    def has(self, namespace: tuple[bytes, ...]) -> bool:
        """Whether anybody offers a namespace, or a track of it."""
        return namespace in self._counts

    def names(self) -> Iterator[Names]:
        """Everything that is offered, once each; the table may change meanwhile."""
        return iter(self._sources)

    def offering(self, namespace: tuple[bytes, ...], name: bytes) -> list[NodeId]:
        """The nodes that offer a track, from the closest offer to the widest.

        By its name, or by a beginning of its namespace.
        """
        found = dict.fromkeys(self.sources((namespace, name)))
        for length in range(len(namespace), -1, -1):
            found |= dict.fromkeys(self.sources((namespace[:length], None)))
        return list(found)

    # -- how it works ----------------------------------------------------------------------------

    def _holds(self, source: NodeId, names: Names) -> bool:
        return names in self._infos.get(source, ())

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
