"""The peers of a relay: one for each node, with all the links to it.

Data may use every link that carries it. Control uses one: the first that was established or, of
two established at about the same time by both sides dialling, the one that the lower node id
dialled. There is no second control link that the same side dialled (`admission`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from laps.auth.bounds import holds
from laps.errors import ConnectResponseNotReceived, LocalProtocolError
from laps.packed import Packed
from laps.relay.outbox import Outbox
from laps.tables import Table
from laps.types import DataDirection, NodeType, PeerMode, format_node_id
from laps.wire.peering import SubscribeNodeSetAdv, SubscribeNodeSetWd
from laps.wire.policy import SetTerms

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Set

    from laps.auth.bounds import NodePattern
    from laps.infobase.namespaces import Names
    from laps.infobase.nodes import SessionId
    from laps.relay.ports import Link
    from laps.relay.settings import RelayCounters, RelaySettings
    from laps.relay.timers import Timers
    from laps.routing.avoided import Avoided
    from laps.routing.flows import SnsUpdate
    from laps.sessions.peer import Effect, PeerSession, SendControl
    from laps.sessions.peer import Event as SessionEvent
    from laps.types import AnnounceInfo, NodeId, NodeInfo, SnsId
    from laps.wire.interest import SubscribeAgreed, SubscribeInterest
    from laps.wire.peering import Message

# Names of their own, as they are asked for at each message: members of enums take longer to find.
CONTROL_ONLY: Final = PeerMode.CONTROL
DATA_ONLY: Final = PeerMode.DATA
ONE_WAY: Final = DataDirection.UNIDIRECTIONAL
STUB: Final = NodeType.STUB

# Two links that both sides dialled within this time are established at the same time: longer than
# any round trip, shorter than any redial that follows a loss.
SAME_TIME_S: Final = 2.0

# Messages of a page are written together, as many as QUIC sends at once. That takes a millisecond
# or two, so a turn of the loop writes this much to each of a few links, and the next goes on.
PAGE_BYTES: Final = 16 * 1024
MOST_PUMPED: Final = 2

# What a page has looked at and not written takes less time than a message.
LOOK_BYTES: Final = 32


@dataclass(slots=True, eq=False)
class PeerLink:
    """A link whose two ends have introduced themselves, or are about to."""

    link: Link
    session: PeerSession
    peer: Peer | None = None
    mode: PeerMode = PeerMode.BOTH
    direction: DataDirection = DataDirection.BIDIRECTIONAL
    established_at: float = 0.0
    early: list[tuple[int, bytes, bool]] = field(default_factory=list)
    "Data that arrived before the response to our CONNECT."
    laid_down: bool | None = None
    "Whether its paths were laid down as carrying data; None: not at all."
    heard: dict[NodeId, NodeInfo] = field(default_factory=dict)
    "The nodes the peer has told us of on it."
    first_node_at: float | None = None
    "When the peer first sent a node on it."
    late: dict[NodeId, NodeInfo] = field(default_factory=dict)
    "The nodes received on it after the peer had moved control away, kept until that link closes."
    confirmed: Packed = field(default_factory=Packed)
    "The tracks that the peer itself has subscribed to on this link."
    offered: Table[Names, None] = field(default_factory=Table)
    "The namespaces and tracks that it has offered on it."
    interest: SubscribeInterest | None = None
    "Which subscribes the peer wants to hear of, as it has said on it."
    subscribes_told: int = 0
    "Advertisements of subscribes on it, since they were last counted; the next likewise."
    namespaces_told: int = 0
    withdrawing: list[SnsId] = field(default_factory=list)
    "Sets that are withdrawn when the last of their data has been sent."
    untold: SnsId | None = None
    "The set that the peer could not be told the terms of."
    outbox: Outbox = field(default_factory=Outbox)
    "What the peer is still to be sent on it."

    @property
    def has_control(self) -> bool:
        """Whether information bases may be exchanged on it."""
        return self.mode is not DATA_ONLY

    @property
    def has_data(self) -> bool:
        """Whether data may come or go on it."""
        return self.mode is not CONTROL_ONLY

    @property
    def sends_data(self) -> bool:
        """Whether we may send data on it: one direction is from the side that dialled."""
        one_way = self.direction is ONE_WAY
        return self.has_data and (self.link.dialled or not one_way)

    @property
    def receives_data(self) -> bool:
        """Whether the peer may send data on it."""
        one_way = self.direction is ONE_WAY
        return self.has_data and not (self.link.dialled and one_way)

    def hold(
        self,
        stream_id: int,
        data: bytes,
        fin: bool,
        settings: RelaySettings,
        timers: Timers,
        now: float,
    ) -> None:
        """Data has overtaken the CONNECT_RESPONSE, since QUIC keeps no order between streams."""
        if not self.early:
            timers.at(now + settings.hold_s, self._give_up_waiting)
        self.early.append((stream_id, data, fin))
        if sum(len(data) for _, data, _ in self.early) > settings.hold_bytes:
            self.session.require_established("so much data")

    def drop_early(self, stream_id: int) -> None:
        """A stream is reset: nothing follows what is held of it, not even its end."""
        self.early = [item for item in self.early if item[0] != stream_id]

    def take_early(self) -> list[tuple[int, bytes, bool]]:
        """What was held: the response is there."""
        early, self.early = self.early, []
        return early

    def _give_up_waiting(self, now: float) -> None:
        """Close the link if the CONNECT_RESPONSE has not followed the data in time."""
        if self.session.is_ahead:
            code = ConnectResponseNotReceived.code
            self.link.close(code, "data arrived, and no response after it in time")


if TYPE_CHECKING:
    GiveUp = Callable[[PeerLink, float], list[Effect | SessionEvent]]
    "What follows for a link whose introduction has waited for long enough."


@dataclass(frozen=True, slots=True)
class PeerArrived:
    """A link's other end has said who it is."""

    link_id: SessionId
    info: NodeInfo
    mode: PeerMode

    def __str__(self) -> str:
        node, kind = format_node_id(self.info.id), self.info.type.name.lower()
        return f"node {node} ({kind}) for {self.mode.name.lower()}"


@dataclass(slots=True, eq=False)
class Peer:
    """Another node that we have links to."""

    info: NodeInfo
    links: dict[SessionId, PeerLink] = field(default_factory=dict)
    control: PeerLink | None = None
    "The link that information bases are exchanged on."
    synced: PeerLink | None = None
    "The control link on which it has been told everything."
    told: dict[NodeId, NodeInfo] = field(default_factory=dict)
    "The nodes we have told it of."
    unadvertised: dict[NodeId, None] = field(default_factory=dict)
    "The nodes it is to be told of, where that is news, when there is room for it."
    srtt_us: int = 0
    "As laid down for the ways through it; it follows the nearest link's by steps worth telling."
    told_since: int = 0
    "The era of policy in which it was told everything from the beginning."
    interest: SubscribeInterest | None = None
    "What counts of what it has said of that on its links; None: it has said nothing."
    near: tuple[NodeId, ...] = ()
    "Nodes whose subscribes it wants to hear of too, to the tracks that it wants itself."
    unmatched: dict[tuple[tuple[int, ...], int], AnnounceInfo] = field(default_factory=dict)
    "What it has announced, and has not been told yet who wants it."
    owes_digest: bool = False
    "It is to be sent a digest of what we hold of its own, as soon as it has said what it wants."
    awaits_digest: bool = False
    "It is about to send one of what it holds of ours, and is not told our own before that."
    awaits_agreed: bool = False
    "It has been sent a digest, and has not said what agrees."
    agreed: SubscribeAgreed | None = None
    "What it still subscribes to, as it has said of whole buckets in this control session."
    confirm_at: float | None = None
    "When it has had the time to say again what it subscribes to; None: it needs none."

    @property
    def node_id(self) -> NodeId:
        """Its identity."""
        return self.info.id

    def knows(self, node_id: NodeId) -> bool:
        """Whether it has a way to a node: we told it, or it told us."""
        return node_id in self.told or self.has_said(node_id)

    def has_said(self, node_id: NodeId) -> bool:
        """Whether it has told us of a way to a node, which does not lead by us."""
        return any(node_id in link.heard for link in self.links.values())

    def has_left(self, peer_link: PeerLink, self_id: NodeId, now: float) -> bool:
        """Whether a node received on a link now was sent before the peer moved control away.

        Control moves to the link that the lower node id dialled, and QUIC keeps no order between
        connections: for a while after the first node on that link, one on the other is older.
        """
        lower_dials = self_id < self.node_id
        return peer_link.link.dialled != lower_dials and any(
            other.link.dialled == lower_dials
            and other.first_node_at is not None
            and now - other.first_node_at <= SAME_TIME_S
            for other in self.links.values()
        )

    @property
    def extended_link(self) -> PeerLink | None:
        """The link that extension messages to it may go by: the control link, or any."""
        links = [*([] if self.control is None else [self.control]), *self.links.values()]
        return next((peer_link for peer_link in links if peer_link.link.extended), None)

    @property
    def is_stub(self) -> bool:
        """Whether it is a child of ours."""
        return self.info.type is STUB

    @property
    def nearest_srtt_us(self) -> int:
        """How far away it is now, by the nearest of the links that data takes."""
        links = self.links.values()
        if len(links) == 1:
            return next(iter(links)).link.srtt_us
        able = [it.link.srtt_us for it in links if it.mode is not CONTROL_ONLY]
        return min(able or [it.link.srtt_us for it in links], default=0)

    @property
    def control_srtt_us(self) -> int:
        """How far away it is."""
        return 0 if self.control is None else self.control.link.srtt_us

    @property
    def sends_data(self) -> bool:
        """Whether we can send it data by any link."""
        return any(peer_link.sends_data for peer_link in self.links.values())

    @property
    def has_data(self) -> bool:
        """Whether data flows between us in any direction."""
        return any(peer_link.has_data for peer_link in self.links.values())

    def data_link(self, number: int, suspect: Set[SessionId]) -> SessionId | None:
        """The link for one of many flows, spread over those that carry data and are not suspect.

        Each flow ranks the links in an order of its own, so that one more link or one less moves
        only the flows that it gains or loses.
        """
        able = [link_id for link_id, peer_link in self.links.items() if peer_link.sends_data]
        if suspect:
            able = [link_id for link_id in able if link_id not in suspect] or able
        return max(able, key=lambda link_id: (_mix(number, link_id), link_id), default=None)

    def elect(self, self_id: NodeId) -> PeerLink | None:
        """The link that control ought to use."""
        able = sorted(
            (peer_link for peer_link in self.links.values() if peer_link.has_control),
            key=lambda peer_link: (peer_link.established_at, peer_link.link.id),
        )
        if not able:
            return None
        first = able[0]
        lower_dials = self_id < self.node_id
        for other in able[1:]:
            if (
                other.established_at - first.established_at <= SAME_TIME_S
                and other.link.dialled == lower_dials
                and first.link.dialled != lower_dials
            ):
                return other
        return first


class Links:
    """The links of a relay, the peers at their other ends, and what is said to them."""

    def __init__(self, counters: RelayCounters, avoided: Avoided) -> None:
        self.peers: dict[NodeId, Peer] = {}
        self.links: dict[SessionId, Link] = {}
        self.peer_links: dict[SessionId, PeerLink] = {}
        "Every link with its session, whether or not its peer has introduced itself."
        self.carried: tuple[NodePattern, ...] | None = None
        "The nodes that we may tell peers of, besides ourselves, by our own key; None: all."
        self._counters = counters
        self._avoided = avoided
        self._pumping: dict[PeerLink, None] = {}
        "Links that have room for more of what waits for them."

    def may_carry(self, node_id: NodeId) -> bool:
        """Whether peers take what we tell them of a node."""
        return holds(self.carried, node_id)

    def node_of(self, link_id: SessionId) -> NodeId | None:
        """The peer at the other end of a link, once it has introduced itself."""
        peer_link = self.peer_links.get(link_id)
        return None if peer_link is None or peer_link.peer is None else peer_link.peer.node_id

    def sends_data(self, node_id: NodeId) -> bool:
        """Whether data can be sent to a peer by any link."""
        peer = self.peers.get(node_id)
        return peer is not None and peer.sends_data

    def data_link(self, node_id: NodeId, number: int) -> SessionId | None:
        """The link that data of one of many flows takes to a peer."""
        peer = self.peers.get(node_id)
        return None if peer is None else peer.data_link(number, self._avoided.suspect)

    def data_peers(self) -> Iterator[tuple[NodeId, int]]:
        """The peers that data can be sent to, and the round trip to each."""
        for peer in self.peers.values():
            if peer.sends_data and not peer.is_stub:
                yield peer.node_id, peer.srtt_us

    def takes_terms(self, link_id: SessionId) -> bool:
        """Whether the peer at the other end of a link can be told how a flow is to go on."""
        peer_link = self.peer_links.get(link_id)
        return peer_link is not None and peer_link.link.extended

    def is_suspect(self, peer_link: PeerLink) -> bool:
        """Whether nothing is heard of the other end of a link."""
        return peer_link.link.id in self._avoided.suspect

    def is_heard(self, node_id: NodeId) -> bool:
        """Whether a node is a peer, and a link to it is not silent."""
        peer = self.peers.get(node_id)
        return peer is not None and not peer.links.keys() <= self._avoided.suspect

    def send(self, peer: Peer, message: Message) -> None:
        """Send a message to a peer, by its control link."""
        if peer.control is not None:
            self.send_on(peer.control, message)

    def send_on(self, peer_link: PeerLink, message: Message) -> None:
        """Send a message by one link."""
        said = self._encoded(peer_link, message)
        if said is not None:
            self.write(peer_link, said)

    def _encoded(self, peer_link: PeerLink, message: Message) -> SendControl | None:
        """One message that cannot be written does not keep others from it.

        But for a set: a peer that cannot be told its terms does not have it, or has it no more.
        """
        if isinstance(message, SubscribeNodeSetAdv) and message.sns_id == peer_link.untold:
            message = SubscribeNodeSetWd(message.sns_id)
            peer_link.untold = None
        try:
            return peer_link.session.send(message)
        except LocalProtocolError:
            self._counters.unsendable_messages += 1
            if isinstance(message, SetTerms):
                peer_link.untold = message.sns_id
            return None

    def has_room(self, peer_link: PeerLink) -> bool:
        """Whether a word that can wait is sent at once."""
        return not peer_link.outbox.has_words and peer_link.link.control_room > 0

    def say(
        self, peer_link: PeerLink, key: Hashable, message: Message, page: Hashable | None = None
    ) -> bool:
        """Send the latest about something, or keep it until there is room.

        False: too much is kept, and the page that it is part of has to be.
        """
        if self.has_room(peer_link):
            self.send_on(peer_link, message)
            return True
        return peer_link.outbox.keep_word(key, message, page)

    def page(
        self,
        peer_link: PeerLink,
        key: Hashable,
        page: Iterator[Message | None],
        *,
        urgent: bool = False,
        soon: bool = False,
    ) -> None:
        """Send many messages, as there is room for them; `soon`: when its turn has come."""
        peer_link.outbox.keep_page(key, page, urgent=urgent)
        if soon:
            self._pumping[peer_link] = None
        else:
            self.pump(peer_link)

    def pump(self, peer_link: PeerLink) -> None:
        """Send some of what waits, as far as there is room; `tick` goes on with it."""
        outbox, link = peer_link.outbox, peer_link.link
        room = min(link.control_room, PAGE_BYTES)
        stream_id, size, batch = 0, 0, []
        while size < room and outbox:
            if (message := outbox.take()) is None:
                size += LOOK_BYTES
                continue
            if (said := self._encoded(peer_link, message)) is not None:
                stream_id = said.stream_id
                batch.append(said.data)
                size += len(said.data)
        if batch:
            self._counters.control_sent += len(batch)
            link.send_control(stream_id, b"".join(batch))
        self._pumping.pop(peer_link, None)
        if outbox and link.control_room > 0:
            self._pumping[peer_link] = None

    def tick(self, now: float) -> None:
        """Send more of what waits, to some links in turn."""
        for peer_link in list(islice(self._pumping, MOST_PUMPED)):
            del self._pumping[peer_link]
            if self.peer_links.get(peer_link.link.id) is peer_link:
                self.pump(peer_link)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        return 0.0 if self._pumping else None

    def write(self, peer_link: PeerLink, effect: SendControl) -> None:
        """Write on the control stream of a link."""
        self._counters.control_sent += 1
        peer_link.link.send_control(effect.stream_id, effect.data)

    def send_sns(self, updates: Iterable[SnsUpdate]) -> None:
        """Advertise subscriber node sets, or withdraw them."""
        for update in updates:
            peer_link = self.peer_links.get(update.link)
            if peer_link is None:
                continue
            if not update.nodes and (peer_link.withdrawing or peer_link.link.pressed):
                self._withdraw_later(peer_link, update.sns_id)
                continue
            for message in set_messages(update):
                self.send_on(peer_link, message)

    def _withdraw_later(self, peer_link: PeerLink, sns_id: SnsId) -> None:
        """Withdraw a set when what waits to be sent has been: some of it is under that set.

        Control messages overtake data, and data whose set is unknown is not kept for long.
        """
        peer_link.withdrawing.append(sns_id)
        if len(peer_link.withdrawing) == 1:
            self._withdraw_when_sent(peer_link)

    def _withdraw_when_sent(self, peer_link: PeerLink) -> None:
        ready = len(peer_link.withdrawing)

        def withdraw() -> None:
            sets, peer_link.withdrawing = peer_link.withdrawing, []
            for sns_id in sets[:ready]:
                self.send_on(peer_link, SubscribeNodeSetWd(sns_id))
            # The others were added meanwhile, and more data before them.
            peer_link.withdrawing = sets[ready:]
            if peer_link.withdrawing:
                self._withdraw_when_sent(peer_link)

        peer_link.link.when_sent(withdraw)


def set_messages(update: SnsUpdate) -> Iterator[Message]:
    """What a peer is told of a set: what holds for it, where that is anything, and its nodes."""
    if not update.nodes:
        yield SubscribeNodeSetWd(update.sns_id)
        return
    if (it := update.onward) is not None:
        told = it.service, it.order, it.inside, it.avoid, it.ways, it.passed
        yield SetTerms(update.sns_id, *told)
    yield SubscribeNodeSetAdv(update.sns_id, update.nodes)


def _mix(number: int, link_id: int) -> int:
    return ((number * 0x9E3779B1) ^ (link_id * 0x85EBCA77)) * 0xC2B2AE3D & 0xFFFFFFFF
