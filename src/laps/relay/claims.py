"""What a peer may say, once it has proved who it is; what it may not is refused, counted and told.

1. A peer speaks for itself, and passes on what nodes said that its key lets it carry. A Stub
   carries nobody.
2. A way that it tells of leads by itself, to a node that it may carry.
3. It offers what is in its namespaces and its own telemetry, and is in the region that it has
   proved.
4. A node that is a control peer of ours speaks for itself. What others say of its subscribes, its
   namespaces and its metrics, among them where its clients connect, is hearsay: it is not taken.
   News may only have overtaken the node's own message, so the node is asked, by sending it what
   others say: what is not so it corrects. That is counted and told too, but it need not be a lie:
   after a fault relays may honestly believe what is no longer so. If the link of the node is
   silent or closes, the others count.
5. A track is ended, or begun anew, by a node that offers it, or did so lately.

Beyond that floods are not signed: what a peer passes on of a node that it may carry, and that is no
peer of ours, is believed until that node corrects it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from laps.relay.roles import Role
from laps.telemetry.records import namespace_of as telemetry_of
from laps.types import format_node_id, hash_bytes, sequence_newer
from laps.wire.extensions import (
    NamespaceInfoAdv,
    NamespaceInfoWd,
    NodeMetricsAdv,
    RelayRequest,
    RelayResponse,
    RepairRequest,
    RepairResponse,
)
from laps.wire.interest import SubscribeInterest
from laps.wire.peering import (
    AnnounceInfoAdv,
    AnnounceInfoWd,
    NodeInfoAdv,
    SubscribeInfoAdv,
    SubscribeInfoWd,
)
from laps.wire.policy import PolicyRefusal

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from laps.auth.grants import Namespace
    from laps.auth.peers import Proven
    from laps.relay.extensions import Extensions
    from laps.relay.interest import Interest
    from laps.relay.journal import Journal
    from laps.relay.peers import Links, Peer, PeerLink
    from laps.relay.proofs import PeerProofs
    from laps.relay.settings import RelayCounters
    from laps.relay.subscribes import SubscribeExchange
    from laps.types import NodeId, NodeInfo, TrackName
    from laps.wire.extensions import Travelling
    from laps.wire.peering import Message

# More than two neighbours of a node tell of it within a round trip; 500 bytes each.
MAX_HEARSAY: Final = 10_000

Flooded = SubscribeInfoAdv | SubscribeInfoWd | NamespaceInfoAdv | NamespaceInfoWd | NodeMetricsAdv
_FLOODED: Final = (
    SubscribeInfoAdv,
    SubscribeInfoWd,
    NamespaceInfoAdv,
    NamespaceInfoWd,
    NodeMetricsAdv,
)
_TRAVELLING: Final = (RelayRequest, RelayResponse, RepairRequest, RepairResponse, PolicyRefusal)


class Subject(NamedTuple):
    """What a flooded message is about."""

    source: NodeId
    what: str
    key: Hashable


class Claims:
    """Looks at each message of a peer before it is taken."""

    def __init__(
        self,
        self_id: NodeId,
        proofs: PeerProofs,
        links: Links,
        extensions: Extensions,
        subscribes: SubscribeExchange,
        interest: Interest,
        journal: Journal,
        counters: RelayCounters,
    ) -> None:
        self._self_id = self_id
        self._proofs = proofs
        self._links = links
        self._extensions = extensions
        self._subscribes = subscribes
        self._interest = interest
        self._journal = journal
        self._counters = counters
        self._hearsay: OrderedDict[Subject, tuple[PeerLink, Flooded]] = OrderedDict()
        "What others say of control peers of ours, until these say it themselves."

    def allow(self, peer_link: PeerLink, peer: Peer, message: Message, now: float) -> bool:
        """Whether a message is to be taken."""
        proven = self._proofs.proven(peer_link.link.id)
        if proven is None:
            return True
        problem = ""
        if isinstance(message, _FLOODED):
            problem = self._flooded_problem(peer, proven, message)
        elif isinstance(message, _TRAVELLING):
            problem = self._travelling_problem(peer, proven, message)
        elif isinstance(message, NodeInfoAdv):
            problem = _way_problem(peer, proven, message.node_info)
        elif isinstance(message, AnnounceInfoAdv | AnnounceInfoWd):
            problem = _announce_problem(peer, proven, message)
        elif isinstance(message, SubscribeInterest):
            problem = _interest_problem(proven, message)
        if problem:
            self._refuse(peer.node_id, problem, now)
            return False
        return not isinstance(message, _FLOODED) or self._is_first_hand(
            peer_link, peer, message, now
        )

    def allowed_ways(
        self, peer_link: PeerLink, peer: Peer, infos: Sequence[NodeInfo], now: float
    ) -> Sequence[NodeInfo]:
        """Those of many ways that a peer may tell of."""
        proven = self._proofs.proven(peer_link.link.id)
        if proven is None:
            return infos
        allowed = []
        for info in infos:
            if problem := _way_problem(peer, proven, info):
                self._refuse(peer.node_id, problem, now)
            else:
                allowed.append(info)
        return allowed

    # -- what is wrong -----------------------------------------------------------------------------

    def _flooded_problem(self, peer: Peer, proven: Proven, message: Flooded) -> str:
        subject, _ = _subject(message)
        if subject.source != peer.node_id:
            return self._source_problem(proven, subject.source, subject.what)
        match message:
            case NamespaceInfoAdv(info) if not _may_offer(proven, info.namespace):
                return "offers what is not in its namespaces"
            case NodeMetricsAdv(metrics) if metrics.region != proven.speaker.region:
                return "names another region than it has proved"
        return ""

    def _source_problem(self, proven: Proven, source: NodeId, what: str) -> str:
        # What is said of ourselves is not believed, but corrected where it is wrong.
        if source == self._self_id or proven.may_carry(source):
            return ""
        return f"speaks of {what} of node {format_node_id(source)}, which it may not carry"

    def _travelling_problem(self, peer: Peer, proven: Proven, message: Travelling) -> str:
        source = message.source_node_id
        if source == self._self_id == message.target_node_id:
            return f"sends us a {message.message_type.name} in our own name"
        if source == peer.node_id:
            return ""
        return self._source_problem(proven, source, f"a {message.message_type.name}")

    def serves(self, node_id: NodeId, track: TrackName) -> bool:
        """Whether a node may say that a track has ended: it offers it, or did so lately."""
        if not self._proofs.policy.required:
            return True
        peer = self._links.peers.get(node_id)
        if peer is not None and (peer.is_stub or self._subscribes.is_stub):
            # A Stub knows of no other node than its Edge, and the Edge of its own Stubs.
            links = (self._proofs.proven(link_id) for link_id in peer.links)
            return all(it is None or _may_offer(it, track.namespace) for it in links)
        namespaces, parts = self._extensions.namespaces, track.namespace
        offers = ((parts[:length], None) for length in range(len(parts) + 1))
        names = (parts, track.name), *offers
        return any(namespaces.sequence(node_id, each) is not None for each in names)

    def refuse_end(self, node_id: NodeId, now: float) -> None:
        """A node would end a track that it does not serve."""
        self._refuse(node_id, "ends a track that it does not offer", now)

    def _refuse(self, node_id: NodeId, problem: str, now: float) -> None:
        self._counters.refused_claims += 1
        self._journal.note(now, "claim_refused", format_node_id(node_id), reason=problem)

    # -- hearsay -----------------------------------------------------------------------------------

    def _is_first_hand(self, peer_link: PeerLink, peer: Peer, message: Flooded, now: float) -> bool:
        """Whether what a peer says of a node is the node's own word, or that cannot be had here."""
        subject, sequence = _subject(message)
        if subject.source == peer.node_id:
            self._compare(subject, sequence, now)
            return True
        source = self._links.peers.get(subject.source)
        control = None if source is None else source.control
        plain = isinstance(message, SubscribeInfoAdv | SubscribeInfoWd)
        if source is None or control is None or not (plain or control.link.extended):
            return True
        if self._links.is_suspect(control) or self._is_told_by_server(peer, message):
            return True
        held = self._known(subject)
        if subject in self._hearsay:
            held = _subject(self._hearsay[subject][1])[1]
        if held is None or sequence_newer(sequence, held):
            self._keep(subject, peer_link, message)
            self._links.say(control, ("hearsay", *subject), message)
        return False

    def _is_told_by_server(self, peer: Peer, message: Flooded) -> bool:
        """Whether a control server tells what a node has no reason to say to us itself."""
        if peer.interest is None or not peer.interest.serves:
            return False
        match message:
            case SubscribeInfoAdv(info) | SubscribeInfoWd(info):
                return not self._interest.is_said_by_source(info)
        return False

    def _known(self, subject: Subject) -> int | None:
        """The last sequence that a node itself has said."""
        source, what, key = subject
        if what == "metrics":
            metrics = self._extensions.metrics.get(source)
            return None if metrics is None else metrics.sequence
        if what == "a namespace":
            return self._extensions.namespaces.sequence(source, key)  # type: ignore[arg-type]
        return self._subscribes.sequence(source, key)  # type: ignore[arg-type]

    def _keep(self, subject: Subject, peer_link: PeerLink, message: Flooded) -> None:
        if isinstance(message, SubscribeInfoAdv | SubscribeInfoWd):
            # What is kept must not be a view of all that it arrived with.
            info = message.subscribe_info
            own = replace(info, subscribe_data=bytes(info.subscribe_data))
            message = type(message)(own)
        self._hearsay[subject] = peer_link, message
        self._hearsay.move_to_end(subject)
        if len(self._hearsay) > MAX_HEARSAY:
            self._hearsay.popitem(last=False)

    def _compare(self, subject: Subject, sequence: int, now: float) -> None:
        """A node says something itself: who said otherwise has lied, or did not know better."""
        peer_link, heard = self._hearsay.pop(subject, (None, None))
        if peer_link is None or heard is None or peer_link.peer is None:
            return
        if _subject(heard)[1] != sequence:
            self._counters.corrected_claims += 1
            node, source = format_node_id(peer_link.peer.node_id), format_node_id(subject.source)
            reason = f"speaks of {subject.what} of node {source}, which says otherwise"
            self._journal.note(now, "claim_corrected", node, reason=reason)

    def released(self, node_id: NodeId) -> list[tuple[PeerLink, Peer, Flooded]]:
        """A node is no control peer any more: what others said of it meanwhile counts."""
        subjects = [subject for subject in self._hearsay if subject.source == node_id]
        heard = [self._hearsay.pop(subject) for subject in subjects]
        return [(by, by.peer, message) for by, message in heard if by.peer is not None]

    def closed(self, peer_link: PeerLink) -> None:
        """A link is closed: what was heard by it does not count any more."""
        gone = [subject for subject, it in self._hearsay.items() if it[0] is peer_link]
        for subject in gone:
            del self._hearsay[subject]


def _subject(message: Flooded) -> tuple[Subject, int]:
    """What a flooded message is about, and its sequence."""
    match message:
        case SubscribeInfoAdv(info) | SubscribeInfoWd(info):
            key = info.track_hash.full_name_hash
            return Subject(info.source_node_id, "a subscribe", key), info.sequence
        case NamespaceInfoAdv(offer) | NamespaceInfoWd(offer):
            names = offer.namespace, offer.name
            return Subject(offer.source_node_id, "a namespace", names), offer.sequence
        case NodeMetricsAdv(metrics):
            return Subject(metrics.source_node_id, "metrics", None), metrics.sequence


def _way_problem(peer: Peer, proven: Proven, info: NodeInfo) -> str:
    node = format_node_id(info.id)
    if not info.path or info.path[-1].node_id != peer.node_id:
        return f"tells of a way to node {node} that does not lead by itself"
    if not proven.may_carry(info.id):
        return f"tells of a way to node {node}, which it may not carry"
    return ""


def _announce_problem(peer: Peer, proven: Proven, message: AnnounceInfoAdv | AnnounceInfoWd) -> str:
    info = message.announce_info
    if info.source_node_id != peer.node_id:
        return f"announces for node {format_node_id(info.source_node_id)}"
    bounds = (proven.bounds.namespaces, proven.speaker.namespaces)
    own = _is_below(info.namespace_hashes, (telemetry_of(peer.node_id),))
    if not own and not all(_is_below(info.namespace_hashes, allowed) for allowed in bounds):
        return "announces what is not in its namespaces"
    return ""


def _interest_problem(proven: Proven, message: SubscribeInterest) -> str:
    """Who is taken for a control server is told everything, and others may hear nothing without."""
    if message.serves and proven.speaker.role != Role.CONTROL.value:
        return f"says that it is a control server, and has proved the role {proven.speaker.role}"
    return ""


def _may_offer(proven: Proven, namespace: Namespace) -> bool:
    """Whether a namespace is a peer's to offer; its own telemetry is, whatever its key says."""
    own = telemetry_of(proven.speaker.node_id)
    return namespace[: len(own)] == own or proven.may_offer(namespace)


def _is_below(hashes: tuple[int, ...], allowed: tuple[Namespace, ...] | None) -> bool:
    """Whether a namespace, of which an announce has hashes only, is one that is allowed."""
    return allowed is None or any(
        hashes[: len(one)] == tuple(map(hash_bytes, one)) for one in allowed
    )
