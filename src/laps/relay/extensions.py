"""What a relay does with the extensions of ALPN `laps-x1`: metrics, namespaces and leaving.

- Metrics and namespaces travel as subscribes do: from the node they are of, to every control peer
  that is told of that node, and right after its advertisement; never back to where they came from.
  The node itself receives what comes from elsewhere, and corrects what is not so.
  Whoever no longer knows a way to a node forgets what it said.
- Every relay but a Stub keeps them, a Via too: there are few of them, and a peer that comes later
  is told.
- A Stub tells its Edge what its publishers offer, and the Edge offers it as its own, as it does
  with announces. It hears from its Edge of all namespaces there are, with the Edge as their source,
  and of metrics nothing.
- A peer whose control link has no extensions is passed by. What is beyond it is not heard of.
- GOAWAY is between two relays and goes no further.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from laps.errors import InvalidEncoding
from laps.infobase.metrics import MetricsChange, metrics_changed
from laps.infobase.namespaces import NamespaceChange, Namespaces
from laps.infobase.nodes import MOST_CHOSEN
from laps.relay.pacing import Pace, urgency_of
from laps.relay.pieces import MOST_IN_A_TURN, MOST_TOLD, in_pieces
from laps.relay.roles import Role
from laps.relay.stub_namespaces import StubNamespaces
from laps.relay.telling import Telling
from laps.types import NamespaceInfo, next_sequence, sequence_newer
from laps.wire.extensions import (
    MAX_REACHABILITY,
    GoAway,
    NamespaceInfoAdv,
    NamespaceInfoWd,
    NodeMetricsAdv,
    check_full_name,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from laps.infobase.metrics import Metrics
    from laps.infobase.namespaces import Names
    from laps.infobase.nodes import Nodes, SessionId
    from laps.relay.corrections import Corrections
    from laps.relay.peers import Links, Peer, PeerLink
    from laps.relay.settings import ExtensionSettings
    from laps.routing.avoided import Avoided
    from laps.types import NodeId, NodeMetrics
    from laps.wire.peering import Message


@dataclass(slots=True)
class ExtensionCounters:
    """What the operator may want to know of them."""

    goaways_received: int = 0
    names_too_long: int = 0
    "Offered here, and not told to others: no message can carry the name."


@dataclass(frozen=True, slots=True)
class PeerLeaving:
    """A peer has said GOAWAY: time to dial its contact, if it named one."""

    node_id: NodeId
    contact: str
    leaves_at: float


ExtensionEvent = PeerLeaving | NamespaceChange | MetricsChange


@dataclass(slots=True)
class _Confirming:
    """A node whose control link has just come up, saying what it offers."""

    control: PeerLink
    due: float


class Extensions:
    """Metrics, namespaces and leaving, at one relay."""

    def __init__(
        self,
        self_id: NodeId,
        role: Role,
        nodes: Nodes,
        avoided: Avoided,
        links: Links,
        events: deque[Any],
        settings: ExtensionSettings,
        corrections: Corrections,
        metrics: Metrics,
        epoch: int,
    ) -> None:
        """`nodes` selects with `avoided`; `events` receives what the shell may want to know.

        `epoch` is the time of day, for sequence numbers.
        """
        self.settings = settings
        self.counters = ExtensionCounters()
        self.metrics = metrics
        self.namespaces = Namespaces()
        self._self_id = self_id
        self._is_stub = role is Role.STUB
        self._nodes = nodes
        self._avoided = avoided
        self._links = links
        self._events = events
        self._corrections = corrections
        self._epoch = epoch
        self.telling = Telling(self_id, links, self.metrics, self.namespaces)
        self._lost: set[NodeId] = set()
        "Peers of which a link was lost, while some way leads to them."
        self._confirming: dict[NodeId, _Confirming] = {}
        self._publishers: dict[Names, dict[Hashable, Peer | None]] = {}
        "Who offers what, and the Stub that it is at if it is not here itself."
        self._offered: dict[Hashable, dict[Names, None]] = {}
        "What each of them offers."
        self._stubs = StubNamespaces(self_id, links, self.namespaces, self._publishers, epoch)
        self._unconfirmed: deque[Iterator[NamespaceInfo | None]] = deque()
        "What nodes no longer offer that came again: each is looked at once."
        self._closed: deque[Hashable] = deque()
        "Publishers that are gone, and had offered more than is told in a turn."
        self._measured: NodeMetrics | None = None
        self._pace = Pace(nodes, settings)
        self._metrics_at: float | None = None
        self._goaway: GoAway | None = None

    # -- peers -------------------------------------------------------------------------------------

    def begin(self, peer: Peer, now: float) -> None:
        """A control link is up: tell what is our own, and hear what is the peer's.

        On a Stub this is for the one Edge that it speaks with.
        """
        control = peer.control
        if control is None or not control.link.extended or peer.is_stub:
            return
        self.telling.begin(peer, control)
        if self._goaway is not None:
            self._links.send_on(control, self._goaway)
        if not self._is_stub:
            due = now + self.settings.confirm_s
            self._confirming[peer.node_id] = _Confirming(control, due)

    def begin_stub(self, peer: Peer, now: float) -> None:
        """A Stub is there: tell it what there is."""
        self._stubs.begin(peer, now)

    def receive(
        self,
        peer: Peer,
        message: Message,
        now: float,
        stub: Hashable = None,
        link: PeerLink | None = None,
    ) -> bool:
        """Take a message; False if it is not an extension's, or has no place here.

        `stub` is the client that a Stub is to us, if the peer is one. Without `link` it came by the
        one that control uses.
        """
        match message:
            case NodeMetricsAdv(metrics):
                return self._metrics_heard(peer, metrics, now)
            case NamespaceInfoAdv(info) if stub is not None:
                self.announce(stub, info.namespace, info.name, now, peer)
            case NamespaceInfoWd(info) if stub is not None:
                self.unannounce(stub, info.namespace, info.name, now, peer)
            case NamespaceInfoAdv(info):
                if (by := link or peer.control) is not None and info.source_node_id == peer.node_id:
                    by.offered[info.namespace, info.name] = None
                    self._confirm_later(peer, (info.namespace, info.name), now)
                return self._namespace_heard(peer, info, added=True, now=now)
            case NamespaceInfoWd(info):
                for each in peer.links.values() if info.source_node_id == peer.node_id else ():
                    each.offered.pop((info.namespace, info.name), None)
                return self._namespace_heard(peer, info, added=False, now=now)
            case _:
                return False
        return True

    def link_closed(self, link_id: SessionId) -> None:
        """A link is about to be over; its peer still has it."""
        self._avoided.discard(link_id)
        for peer in self._links.peers.values():
            if link_id not in peer.links:
                continue
            if not peer.is_stub:
                self._lost.add(peer.node_id)
            elif len(peer.links) == 1:
                self._stubs.left(peer.node_id)

    def purge(self, node_id: NodeId, now: float) -> None:
        """No way leads to a node any more."""
        self.telling.purge(node_id)
        self._lost.discard(node_id)
        self._confirming.pop(node_id, None)
        if (gone := self.metrics.purge_source(node_id)) is not None:
            self._events.append(gone)
        self.namespaces.purge_source(node_id)
        self._forget_some(now)

    def _forget_some(self, now: float) -> None:
        """Say what nodes had offered that are gone, some of it."""
        for change in self.namespaces.purged(MOST_IN_A_TURN):
            self._events.append(change)
            if self._stubs.has_any:
                self._stubs.changed((change.info.namespace, change.info.name), now)

    @property
    def told_to_stubs(self) -> int:
        """How much Stubs know of by us."""
        return len(self._stubs)

    # -- our own -----------------------------------------------------------------------------------

    def announce(
        self,
        client: Hashable,
        namespace: tuple[bytes, ...],
        name: bytes | None,
        now: float,
        heard_from: Peer | None = None,
    ) -> None:
        """A publisher offers a namespace or a track; the first here is told to the network.

        `heard_from` is the Stub it is at, if it is not here itself.
        """
        try:
            check_full_name(namespace, name)
        except InvalidEncoding:
            self.counters.names_too_long += 1
            return
        publishers = self._publishers.setdefault((namespace, name), {})
        first = not publishers
        publishers[client] = heard_from
        self._offered.setdefault(client, {})[namespace, name] = None
        if first:
            self._tell_own((namespace, name), heard_from, added=True, now=now)
        else:
            self._stubs.changed((namespace, name), now)

    def unannounce(
        self,
        client: Hashable,
        namespace: tuple[bytes, ...],
        name: bytes | None,
        now: float,
        heard_from: Peer | None = None,
    ) -> None:
        """A publisher offers it no more; the last here is told to the network."""
        names = namespace, name
        publishers = self._publishers.get(names, {})
        if client not in publishers:
            return
        del publishers[client]
        del self._offered[client][names]
        if not self._offered[client]:
            del self._offered[client]
        if not publishers:
            del self._publishers[names]
            self._tell_own(names, heard_from, added=False, now=now)
        else:
            self._stubs.changed(names, now)

    def client_closed(self, client: Hashable, now: float) -> None:
        """A publisher, or a Stub, is gone with all it offered; a great deal is left for later."""
        if client in self._offered:
            self._closed.append(client)
            self._withdraw_some(now)

    def _withdraw_some(self, now: float) -> None:
        left = max(1, MOST_TOLD // max(1, len(self._links.peers)))
        while self._closed and left > 0:
            client = self._closed[0]
            for namespace, name in list(islice(self._offered.get(client, ()), left)):
                self.unannounce(client, namespace, name, now)
                left -= 1
            if client not in self._offered:
                self._closed.popleft()

    def measured(self, metrics: NodeMetrics, now: float) -> None:
        """How we are doing, told if it is news, and not too often; the sequence is ours to give."""
        if self._is_stub:
            return
        # The nearest are the ones worth choosing; in order, so that the same is seen as the same.
        near = sorted(metrics.reachability, key=lambda item: (item.srtt_us, item.node_id))
        kept = tuple(sorted(near[:MAX_REACHABILITY], key=lambda item: item.node_id))
        self._measured = replace(metrics, source_node_id=self._self_id, reachability=kept)
        if not self._has_news():
            return
        urgency = urgency_of(self.metrics.get(self._self_id), self._measured)
        self._metrics_at = self._pace.due_at(urgency, now)
        if self._metrics_at <= now:
            self._tell_metrics(now)

    def drain(self, now: float, contact: str = "") -> float:
        """Tell every peer that we leave, and where to go instead; when links may be closed."""
        self._goaway = GoAway(round(self.settings.grace_s * 1000), contact)
        links = [link for peer in self._links.peers.values() if (link := peer.extended_link)]
        for link in links:
            self._links.send_on(link, self._goaway)
        return now + self.settings.grace_s if links else now

    def offers(self) -> list[tuple[Names, Hashable, NodeId]]:
        """What is offered here: the names, the publisher, and the node that it is at."""
        return [
            (names, client, self._self_id if stub is None else stub.node_id)
            for names, clients in self._publishers.items()
            for client, stub in clients.items()
        ]

    # -- who stays ---------------------------------------------------------------------------------

    def is_leaving(self, node_id: NodeId) -> bool:
        """Whether a peer has said GOAWAY and is still there."""
        peer = self._links.peers.get(node_id)
        return peer is not None and any(link_id in self._avoided.leaving for link_id in peer.links)

    def is_lost(self, node_id: NodeId) -> bool:
        """Whether a node was a peer and no link to it is left, though others lead to it."""
        return node_id in self._lost and node_id not in self._links.peers

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what has fallen due."""
        if self._metrics_at is not None and self._metrics_at <= now:
            self._metrics_at = None
            if self._has_news():
                self._tell_metrics(now)
        for node_id in [n for n, confirming in self._confirming.items() if confirming.due <= now]:
            self._confirm(node_id, self._confirming.pop(node_id), now)
        self.namespaces.expire(now)
        self._forget_some(now)
        self._withdraw_some(now)
        self._withdraw_unconfirmed(now)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        if self._closed or self._unconfirmed or self.namespaces.is_purging:
            return 0.0
        due = self._metrics_at
        if (at := self.namespaces.next_expiry) is not None and (due is None or at < due):
            due = at
        for confirming in self._confirming.values():
            if due is None or confirming.due < due:
                due = confirming.due
        return due

    def is_idle(self) -> bool:
        """Whether nothing is about to be said or dropped."""
        waiting = self._closed or self._unconfirmed or self.namespaces.is_purging
        return self._metrics_at is None and not self._confirming and not waiting

    # -- what comes in -----------------------------------------------------------------------------

    def _is_wanted(self, peer: Peer, source: NodeId) -> bool:
        """Whether what a node says is for us: we know a way to it."""
        if self._is_stub:
            return source == peer.node_id
        return not peer.is_stub and source != self._self_id and self._nodes.best(source) is not None

    def _metrics_heard(self, peer: Peer, metrics: NodeMetrics, now: float) -> bool:
        source = metrics.source_node_id
        if source == self._self_id:
            own = self.metrics.get(source)
            is_newer = own is not None and sequence_newer(metrics.sequence, own.sequence)
            if is_newer and self._corrections.may("metrics", now):
                self._tell_metrics(now, metrics.sequence)  # said before a restart: go on after it
            return True
        if self._is_stub or not self._is_wanted(peer, source):
            return False
        if (change := self.metrics.add(metrics)) is not None:
            self._events.append(change)
            self.telling.flood(NodeMetricsAdv(metrics), source, heard_from=peer)
        elif (held := self.metrics.get(source)) and held.sequence != metrics.sequence:
            self.telling.say(peer, source, NodeMetricsAdv(held))
        return True

    def _namespace_heard(self, peer: Peer, info: NamespaceInfo, *, added: bool, now: float) -> bool:
        source = info.source_node_id
        if source == self._self_id and not self._is_stub:
            self._correct_namespace(info, added=added, now=now)
            return True
        if not self._is_wanted(peer, source):
            return False
        if not self._take(info, added=added, heard_from=peer, now=now) and not self._is_stub:
            self._answer(peer, info, added=added)
        return True

    def _answer(self, peer: Peer, info: NamespaceInfo, *, added: bool) -> None:
        """A peer sent something older than what is held: send it that, for the source to know."""
        source, names = info.source_node_id, (info.namespace, info.name)
        if (held := self.namespaces.get(source, names)) is not None:
            if held.sequence != info.sequence or not added:
                self.telling.say(peer, source, NamespaceInfoAdv(held))
        else:
            sequence = self.namespaces.sequence(source, names)
            if sequence is not None and sequence != info.sequence:
                self.telling.say(peer, source, NamespaceInfoWd(replace(info, sequence=sequence)))

    def _correct_namespace(self, info: NamespaceInfo, *, added: bool, now: float) -> None:
        """Somebody speaks of what is offered here: if it is not so, or not from us, say what is."""
        held = self.namespaces.get(self._self_id, (info.namespace, info.name))
        agrees = (held is not None) is added and (held is None or held.sequence == info.sequence)
        if not agrees and self._corrections.may((info.namespace, info.name), now):
            truth = replace(info, sequence=(info.sequence + 1) & 0xFFFF)
            self._take(truth, added=held is not None, heard_from=None, now=now)

    def _take(
        self, info: NamespaceInfo, *, added: bool, heard_from: Peer | None, now: float
    ) -> bool:
        """Whether it was news."""
        take = self.namespaces.add if added else self.namespaces.withdraw
        if (change := take(info, now)) is None:
            return False
        self._events.append(change)
        message = NamespaceInfoAdv(info) if added else NamespaceInfoWd(info)
        self.telling.flood(message, info.source_node_id, heard_from)
        self._stubs.changed((info.namespace, info.name), now)
        return True

    def _confirm_later(self, peer: Peer, names: Names, now: float) -> None:
        """While a node repeats what is known, it is not done with saying what it offers."""
        confirming = self._confirming.get(peer.node_id)
        if confirming is not None and self.namespaces.get(peer.node_id, names) is not None:
            confirming.due = now + self.settings.confirm_s

    def _confirm(self, node_id: NodeId, confirming: _Confirming, now: float) -> None:
        """What a node no longer says, some time after it came, is withdrawn on its behalf."""
        peer = self._links.peers.get(node_id)
        if peer is None or peer.control is not confirming.control:
            return
        self._unconfirmed.append(self._unsaid(peer))

    def _unsaid(self, peer: Peer) -> Iterator[NamespaceInfo | None]:
        """What a node offered and no longer does; None for each that it does."""
        for info in self.namespaces.of_source(peer.node_id):
            if self._links.peers.get(peer.node_id) is not peer:
                return
            # The two sides need not agree which link control uses: what was said on any counts.
            names = info.namespace, info.name
            said = any(names in link.offered for link in peer.links.values())
            yield None if said else self.namespaces.get(peer.node_id, names)

    def _withdraw_unconfirmed(self, now: float) -> None:
        for info in in_pieces(self._unconfirmed):
            # Told to the node itself too: it may be that its words are late.
            gone = replace(info, sequence=(info.sequence + 1) & 0xFFFF)
            self._take(gone, added=False, heard_from=None, now=now)

    def peer_leaves(self, peer: Peer, goaway: GoAway, now: float) -> set[NodeId]:
        """From now on other ways are taken, where there are any; the nodes that are touched."""
        self.counters.goaways_received += 1
        self._avoided.leave(peer.links)
        touched: set[NodeId] = set()
        for link_id in peer.links:
            self._nodes.reselect(link_id, MOST_CHOSEN)
            touched.update(self._nodes.via(link_id))
        self._events.append(PeerLeaving(peer.node_id, goaway.contact, now + goaway.grace_ms / 1000))
        return touched

    # -- what goes out -----------------------------------------------------------------------------

    def _tell_own(self, names: Names, heard_from: Peer | None, *, added: bool, now: float) -> None:
        last = self.namespaces.sequence(self._self_id, names)
        sequence = next_sequence(last, self._epoch + int(now))
        info = NamespaceInfo(sequence, self._self_id, *names)
        self._take(info, added=added, heard_from=heard_from, now=now)

    def _has_news(self) -> bool:
        told = self.metrics.get(self._self_id)
        measured = self._measured
        return measured is not None and (told is None or metrics_changed(told, measured))

    def _tell_metrics(self, now: float, after: int | None = None) -> None:
        if self._measured is None:
            return
        told = self.metrics.get(self._self_id)
        last = after if after is not None or told is None else told.sequence
        sequence = next_sequence(last, self._epoch + int(now))
        metrics = replace(self._measured, sequence=sequence)
        self._pace.told(metrics, now)
        self._metrics_at = None
        if (change := self.metrics.add(metrics)) is not None:
            self._events.append(change)
            self.telling.flood(NodeMetricsAdv(metrics), self._self_id, heard_from=None)
