"""Two peers that have met before compare what one holds of the other, and tell what has changed.

    the one that holds                            the one whose subscribes they are
    says that a digest follows              ->    does not tell its own yet
    sums up what it holds of the peer       ->    sums up its own in the same way
                                            <-    says which sums agree
    takes those as said again               <-    tells what is in the others

A sum is that of one bucket: the exclusive or of a hash of each track in it with the sequence of the
subscribe. Both sides go through their tables in pieces, and what changes meanwhile is told as ever.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Final

from laps.relay.pieces import in_pieces
from laps.types import hash_bytes
from laps.wire.interest import MAX_BITS, MIN_BITS, SubscribeAgreed, SubscribeDigest, Wants

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.infobase.subscribes import Subscribes
    from laps.relay.interest import Interest
    from laps.relay.peers import Links, Peer
    from laps.types import NodeId, TrackKey

# Fewer are told again sooner than they are compared.
LEAST: Final = 64

# So many to a bucket, about: one that has changed has these told again.
TO_A_BUCKET: Final = 128

_ENTRY: Final = Struct(">QH")


class Sums:
    """The sums of the buckets of some subscribes."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.sums = [0] * (1 << bits)

    def add(self, key: TrackKey, sequence: int) -> None:
        """One more of them."""
        self.sums[key & len(self.sums) - 1] ^= hash_bytes(_ENTRY.pack(key, sequence))


def bits_for(count: int) -> int:
    """How many buckets there are to so many subscribes, as a power of two."""
    return min(MAX_BITS, max(MIN_BITS, (count // TO_A_BUCKET).bit_length()))


class Digests:
    """What one relay compares with its peers."""

    def __init__(
        self, self_id: NodeId, links: Links, subscribes: Subscribes, interest: Interest
    ) -> None:
        self.compared: dict[Peer, SubscribeAgreed] = {}
        "Peers that are to be told what is not agreed of our own."
        self._self_id = self_id
        self._links = links
        self._subscribes = subscribes
        self._interest = interest
        self._work: deque[Iterator[None]] = deque()

    # -- what we hold of a peer --------------------------------------------------------------------

    def begin(self, peer: Peer) -> None:
        """A control session begins: whether the peer is to wait for a digest of its own."""
        peer.agreed, peer.awaits_digest, peer.awaits_agreed = None, False, False
        self.compared.pop(peer, None)
        is_able = peer.control is not None and peer.control.link.extended and not peer.is_stub
        peer.owes_digest = is_able and self._subscribes.count(peer.node_id) >= LEAST

    def heard_interest(self, peer: Peer) -> None:
        """A peer has said what it wants: it knows by now what we do."""
        said = peer.interest
        if peer.owes_digest and said is not None and said.wants is not Wants.LATER:
            peer.owes_digest = False
            if self._interest.wants_of(peer) is not Wants.OFFERED:
                self._work.append(self._sum_up(peer))

    def _sum_up(self, peer: Peer) -> Iterator[None]:
        control, source = peer.control, peer.node_id
        sums = Sums(bits_for(self._subscribes.count(source)))
        for key in self._subscribes.of(source):
            held = self._subscribes.get(source, key)
            # What servers told us of it, it does not tell us itself.
            if held is not None and self._interest.is_said_by_source(held):
                sums.add(key, held.sequence)
            yield None
        if control is not None and peer.control is control:
            peer.awaits_agreed = True
            self._links.send_on(control, SubscribeDigest(sums.bits, tuple(sums.sums)))

    def agreed(self, peer: Peer, message: SubscribeAgreed) -> bool:
        """A peer says what holds; whether it was asked."""
        if not peer.awaits_agreed:
            return False
        peer.awaits_agreed = False
        peer.agreed = message
        return True

    # -- what a peer holds of us -------------------------------------------------------------------

    def received(self, peer: Peer, message: SubscribeDigest) -> bool:
        """What a peer holds of our own; whether we wait for it."""
        if not peer.awaits_digest:
            return False
        self._work.append(self._compare(peer, message))
        return True

    def _compare(self, peer: Peer, message: SubscribeDigest) -> Iterator[None]:
        control, concern = peer.control, self._interest.concern
        sums = Sums(message.bits)
        for key in self._subscribes.of(self._self_id):
            sequence = self._subscribes.sequence(self._self_id, key)
            if sequence is not None and concern.is_shared_with(peer, key):
                sums.add(key, sequence)
            yield None
        if control is None or peer.control is not control:
            return
        bitmap = bytearray(len(sums.sums) >> 3)
        for number, (ours, theirs) in enumerate(zip(sums.sums, message.sums, strict=True)):
            bitmap[number >> 3] |= (ours == theirs) << (number & 7)
        peer.awaits_digest = False
        agreed = self.compared[peer] = SubscribeAgreed(message.bits, bytes(bitmap))
        self._links.send_on(control, agreed)

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Go on with what is summed up."""
        for _ in in_pieces(self._work):
            pass

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        return 0.0 if self._work else None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is compared."""
        return not (self._work or self.compared)
