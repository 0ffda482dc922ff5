"""What each message of an introduced peer leads to.

a control message    infobase (what changed?) -> routing (so what?) -> links
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.relay.limits import Limits
from laps.relay.refusals import onward_of
from laps.wire.extensions import (
    GoAway,
    NodeSilent,
    RelayRequest,
    RelayResponse,
    RepairRequest,
    RepairResponse,
    SetPressed,
    SetSilent,
)
from laps.wire.interest import SubscribeAgreed, SubscribeDigest, SubscribeInterest
from laps.wire.node_lists import NodeListAdv, NodeListWd
from laps.wire.peering import (
    AnnounceInfoAdv,
    AnnounceInfoWd,
    NodeInfoAdv,
    NodeInfoWd,
    SubscribeInfoAdv,
    SubscribeInfoWd,
    SubscribeNodeSetAdv,
    SubscribeNodeSetWd,
)
from laps.wire.policy import PolicyRefusal, SetTerms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laps.infobase.nodes import Nodes, SessionId
    from laps.infobase.subscribes import Subscribes
    from laps.relay.claims import Claims
    from laps.relay.data import DataPlane
    from laps.relay.demand import Demand
    from laps.relay.digests import Digests
    from laps.relay.exchange import Exchange
    from laps.relay.extensions import Extensions
    from laps.relay.ingress import IngressSets
    from laps.relay.interest import Interest
    from laps.relay.paths import Paths
    from laps.relay.peers import Peer, PeerLink
    from laps.relay.ports import Link
    from laps.relay.pressure import Pressure
    from laps.relay.reach import Reach
    from laps.relay.refusals import Refusals
    from laps.relay.repairs import Repairs
    from laps.relay.roles import Rules
    from laps.relay.settings import PeerLimits, RelayCounters
    from laps.relay.stub import StubClient
    from laps.relay.subscribes import SubscribeExchange
    from laps.relay.suspicion import Suspicion
    from laps.tracks.tracks import Tracks
    from laps.types import NodeInfo
    from laps.wire.peering import Message


Asked = SubscribeInterest | SubscribeDigest | SubscribeAgreed
OfInterest = AnnounceInfoAdv | AnnounceInfoWd | Asked


class Receiving:
    """Hands a message to those it is for; one that has no place is counted."""

    def __init__(
        self,
        rules: Rules,
        counters: RelayCounters,
        limits: PeerLimits,
        claims: Claims,
        nodes: Nodes,
        subscribed: Subscribes,
        stubs: Mapping[SessionId, StubClient],
        paths: Paths,
        subscribes: SubscribeExchange,
        tracks: Tracks,
        ingress: IngressSets,
        data: DataPlane,
        reach: Reach,
        repairs: Repairs,
        suspicion: Suspicion,
        pressure: Pressure,
        extensions: Extensions,
        refusals: Refusals,
        demand: Demand,
        exchange: Exchange,
        interest: Interest,
        digests: Digests,
    ) -> None:
        self._rules = rules
        self._counters = counters
        self._claims = claims
        self._limits = Limits(
            limits, counters, nodes, subscribed, extensions.namespaces, tracks, ingress, interest
        )
        self._stubs = stubs
        self._paths = paths
        self._subscribes = subscribes
        self._tracks = tracks
        self._ingress = ingress
        self._data = data
        self._reach = reach
        self._repairs = repairs
        self._suspicion = suspicion
        self._pressure = pressure
        self._extensions = extensions
        self._refusals = refusals
        self._demand = demand
        self._interest = interest
        self._digests = digests
        self._exchange = exchange

    def receive(self, peer_link: PeerLink, peer: Peer, message: Message, now: float) -> None:
        """A control message has arrived."""
        stub = self._stubs.get(peer_link.link.id)
        self._limits.check(peer_link, peer, message, stub)
        if self._claims.allow(peer_link, peer, message, now):
            self._take(peer_link, peer, message, stub, now)

    def _take(
        self,
        peer_link: PeerLink,
        peer: Peer,
        message: Message,
        stub: StubClient | None,
        now: float,
    ) -> None:
        link = peer_link.link
        takes_control = peer_link.has_control
        match message:
            case NodeInfoAdv() | NodeInfoWd() | NodeListAdv() | NodeListWd() if (
                takes_control and not peer.is_stub
            ):
                self._hear_of_nodes(peer_link, peer, message, now)
            case SubscribeInfoAdv(info) | SubscribeInfoWd(info) if takes_control:
                added = isinstance(message, SubscribeInfoAdv)
                self._subscribes.receive(peer_link, peer, info, stub, added=added, now=now)
            case (
                AnnounceInfoAdv()
                | AnnounceInfoWd()
                | SubscribeInterest()
                | SubscribeDigest()
                | SubscribeAgreed()
            ) if takes_control:
                self._hear_of_interest(peer_link, peer, message, stub, now)
            case SetTerms() | SubscribeNodeSetAdv() | SubscribeNodeSetWd() if self._takes_data(
                peer_link
            ):
                self._hear_of_set(link, message, now)
            case RelayRequest() | RelayResponse() if takes_control:
                self._reach.receive(message, peer.node_id)
            case RepairRequest() | RepairResponse() | PolicyRefusal() if takes_control:
                if self._reach.pass_on(message, peer.node_id):
                    pass
                elif isinstance(message, PolicyRefusal):
                    self._refusals.heard(message, now)
                else:
                    self._repairs.receive(message, now)
            case SetSilent() | NodeSilent():
                self._hear_of_silence(peer_link, message, now)
            case SetPressed(sns_id, urgency):
                self._pressure.peer_said(link.id, sns_id, urgency, now)
            case GoAway():
                self._paths.changed(self._extensions.peer_leaves(peer, message, now), now)
                self._demand.peer_leaves(peer.node_id, message.contact, now)
            case _:
                taken = self._extensions.receive(peer, message, now, stub, peer_link)
                self._counters.unwanted_messages += not taken
        self._data.egress.drop_abandoned(now)

    def _hear_of_interest(
        self,
        peer_link: PeerLink,
        peer: Peer,
        message: OfInterest,
        stub: StubClient | None,
        now: float,
    ) -> None:
        """What a peer offers, wants to hear of, and holds already."""
        match message:
            case AnnounceInfoAdv(info) | AnnounceInfoWd(info) if stub is not None:
                added, taken = isinstance(message, AnnounceInfoAdv), True
                change = self._tracks.announce if added else self._tracks.unannounce
                self._subscribes.review_all(change(stub, info) or (), now)
            case AnnounceInfoAdv(info) | AnnounceInfoWd(info):
                added = isinstance(message, AnnounceInfoAdv)
                taken = self._interest.announced(peer, info, added=added)
                self._exchange.tell_matching(peer)
            case SubscribeInterest():
                taken = self._interest.heard(peer_link, peer, message, now)
                self._digests.heard_interest(peer)
            case SubscribeDigest():
                taken = self._digests.received(peer, message)
            case SubscribeAgreed():
                taken = self._digests.agreed(peer, message)
        self._counters.unwanted_messages += not taken

    def _hear_of_nodes(
        self,
        peer_link: PeerLink,
        peer: Peer,
        message: NodeInfoAdv | NodeInfoWd | NodeListAdv | NodeListWd,
        now: float,
    ) -> None:
        infos: Sequence[NodeInfo]
        match message:
            case NodeInfoAdv(info) | NodeInfoWd(info):
                infos = (info,)
            case NodeListAdv(infos):
                infos = self._claims.allowed_ways(peer_link, peer, infos, now)
            case NodeListWd(infos):
                pass
        added = isinstance(message, NodeInfoAdv | NodeListAdv)
        self._paths.nodes_said(peer, peer_link, infos, added=added, now=now)

    def _hear_of_set(
        self, link: Link, message: SetTerms | SubscribeNodeSetAdv | SubscribeNodeSetWd, now: float
    ) -> None:
        match message:
            case SetTerms(sns_id):
                self._ingress.terms_said(link.id, sns_id, onward_of(message))
            case SubscribeNodeSetAdv(sns_id, nodes):
                self._ingress.advertised(link.id, sns_id, nodes, now)
                self._data.sns_known(link, sns_id, now)
                self._reach.serve_joining(now)
            case SubscribeNodeSetWd(sns_id):
                known = self._ingress.withdrawn(link.id, sns_id, now)
                self._counters.unknown_sns_withdraws += not known

    def _hear_of_silence(
        self, peer_link: PeerLink, message: SetSilent | NodeSilent, now: float
    ) -> None:
        if isinstance(message, NodeSilent):
            self._suspicion.peer_said(message.node_id, now)
        elif self._takes_data(peer_link):
            self._suspicion.set_silent(peer_link.link.id, message.sns_id, now)

    def _takes_data(self, peer_link: PeerLink) -> bool:
        return self._rules.carries_data and peer_link.receives_data
