"""What the Stubs of an Edge are told of namespaces: all that others than itself offer.

A Stub hears of them in the Edge's name, when the first node begins to offer one and when the last
no longer does.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from laps.types import NamespaceInfo, next_sequence
from laps.wire.extensions import NamespaceInfoAdv, NamespaceInfoWd

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from laps.infobase.namespaces import Names, Namespaces
    from laps.relay.peers import Links, Peer
    from laps.types import NodeId
    from laps.wire.peering import Message


# A Stub remembers for a minute what was withdrawn: more than is withdrawn within it.
MAX_WITHDRAWN: Final = 10_000


class StubNamespaces:
    """The namespaces that each Stub knows of by us."""

    def __init__(
        self,
        self_id: NodeId,
        links: Links,
        namespaces: Namespaces,
        publishers: Mapping[Names, Mapping[Hashable, Peer | None]],
        epoch: int,
    ) -> None:
        """`publishers` are those here, each with the Stub that it is at, if it is at one."""
        self._self_id = self_id
        self._links = links
        self._namespaces = namespaces
        self._publishers = publishers
        self._epoch = epoch
        self._sequences: dict[Names, int] = {}
        "The last that Stubs were told of each namespace; what was said last is at the end."
        self._told: dict[NodeId, set[Names]] = {}
        "What each Stub has been told that others offer."

    def begin(self, peer: Peer, now: float) -> None:
        """A Stub is there: tell it what there is."""
        self._told[peer.node_id] = set()
        self._tell_all(peer, now)

    def left(self, node_id: NodeId) -> None:
        """A Stub is gone; numbers that no Stub remembers begin anew, with the time."""
        self._told.pop(node_id, None)
        if not self._told:
            self._sequences.clear()

    def __len__(self) -> int:
        """How much Stubs know of by us."""
        return sum(map(len, self._told.values()))

    @property
    def has_any(self) -> bool:
        """Whether there is any Stub."""
        return bool(self._told)

    def changed(self, names: Names, now: float) -> None:
        """What is offered has changed: tell the Stubs, each of what others than itself offer."""
        for peer in self._links.peers.values():
            if peer.is_stub and (message := self._review(peer, names, now)) is not None:
                self._say(peer, names, message, now)

    def _tell_all(self, peer: Peer, now: float) -> None:
        if peer.control is not None:
            self._links.page(peer.control, "namespaces", self._all(peer, now))

    def _all(self, peer: Peer, now: float) -> Iterator[Message]:
        for names in self._namespaces.names():
            if (message := self._review(peer, names, now)) is not None:
                yield message

    def _say(self, peer: Peer, names: Names, message: Message, now: float) -> None:
        control = peer.control
        if control is None:
            return
        if isinstance(message, NamespaceInfoWd) or self._links.has_room(control):
            self._links.say(control, names, message)
        else:
            self._told[peer.node_id].discard(names)
            self._tell_all(peer, now)

    def _review(self, peer: Peer, names: Names, now: float) -> Message | None:
        """What a Stub is to be told of a namespace, if it is news; it counts as told then."""
        told = self._told.get(peer.node_id)
        if told is None:
            return None  # it is told everything when its control session begins
        elsewhere = any(source != self._self_id for source in self._namespaces.sources(names))
        here = self._publishers.get(names, {}).values()
        offered = elsewhere or any(place is not peer for place in here)
        if offered is (names in told):
            return None
        if offered:
            told.add(names)
        else:
            told.discard(names)
        if peer.control is None or not peer.control.link.extended:
            return None
        sequence = next_sequence(self._sequences.pop(names, None), self._epoch + int(now))
        self._sequences[names] = sequence
        if not offered and len(self._sequences) > 2 * len(told) + MAX_WITHDRAWN:
            self._forget_oldest()
        info = NamespaceInfo(sequence, self._self_id, *names)
        return NamespaceInfoAdv(info) if offered else NamespaceInfoWd(info)

    def _forget_oldest(self) -> None:
        """Give up half of the numbers of what no Stub is told any more."""
        left = (names for names in self._sequences if not self._is_told(names))
        for names in list(islice(left, MAX_WITHDRAWN // 2)):
            del self._sequences[names]

    def _is_told(self, names: Names) -> bool:
        return any(names in told for told in self._told.values())
