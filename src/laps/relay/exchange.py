"""What a relay tells its control peers of nodes and subscribes.

- A node is advertised to a control peer unless that peer is the node, or is in the path. A node
  that no data can reach from here is not advertised where data would follow: over a peering that
  carries data.
- The subscribes of a node go where the node is advertised, right after the advertisement, and to
  whoever advertises it to us: it may know the node by a peering for data alone. Whoever no longer
  knows a way to a node forgets its subscribes; whoever is told of it again, or tells of it again,
  is told of them again. So there is nothing to repair after a partition.
- All of it is sent as the link has room for it (`outbox`), but for withdrawals of nodes.
- A peer that has extensions is told of many nodes in lists.
- Advertisements gather for a while. Withdrawals do not wait, and neither does the news that our way
  to a node now leads through the peer that we had advertised it to, or has become longer: whoever
  still believes in the old one may send us what we send to him, and a loop would last as long.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import islice, repeat
from typing import TYPE_CHECKING, Final

from laps.relay.pieces import in_pieces
from laps.types import NodeType
from laps.wire.node_lists import NodeListAdv, NodeListWd
from laps.wire.peering import (
    MAX_PATH_NODES,
    NodeInfoAdv,
    NodeInfoWd,
    SubscribeInfoAdv,
    SubscribeInfoWd,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator

    from laps.infobase.nodes import Choice, Nodes, PathCandidate
    from laps.infobase.subscribes import Subscribes
    from laps.relay.digests import Digests
    from laps.relay.extensions import Extensions
    from laps.relay.interest import Interest
    from laps.relay.peers import Links, Peer
    from laps.relay.scope import Scope
    from laps.types import NodeId, NodeInfo, SubscribeInfo
    from laps.wire.interest import SubscribeAgreed
    from laps.wire.peering import Message

# A name of its own, as it is asked for at each node: a member of an enum takes longer to find.
STUB: Final = NodeType.STUB

# A round trip that changed by less than a tenth, or by less than a millisecond, is the same.
SRTT_CHANGE: Final = 0.1
SRTT_CHANGE_US: Final = 1000

# A microsecond each. A network of many nodes is told to one peer after another.
MOST_IN_A_TURN: Final = 2_000

# Of a peer that takes lists: about as many bytes as a page writes at once.
MOST_LISTED: Final = 100


class Exchange:
    """The advertisements and withdrawals that go out."""

    def __init__(
        self,
        self_info: NodeInfo,
        nodes: Nodes,
        subscribes: Subscribes,
        links: Links,
        extensions: Extensions,
        scope: Scope,
        interest: Interest,
        digests: Digests,
        gather_s: float,
    ) -> None:
        self._self_info = self_info
        self._is_stub = self_info.type is STUB
        "Nobody learns of nodes or their subscribes from a Stub: an Edge takes all for its own."
        self._nodes = nodes
        self._subscribes = subscribes
        self._links = links
        self._extensions = extensions
        self._scope = scope
        self._interest = interest
        self._concern = interest.concern
        self._digests = digests
        self._gather_s = gather_s
        self._gathered: dict[NodeId, None] = {}
        self._is_leaving = False
        self._flush_at: float | None = None
        "When what has gathered is to be sent."
        self._telling: deque[tuple[Peer, dict[NodeId, None]]] = deque()
        "Peers that are still to be sent it."
        self._met: dict[NodeId, dict[NodeId, None]] = {}
        "By node: peers that have been told of it, and are to hear what concerns them of it."
        self._matching: deque[Iterator[None]] = deque()
        "What nodes subscribe to that peers have been told of, for those that it concerns."
        self._made: dict[NodeId, tuple[PathCandidate, NodeInfo]] = {}
        "What peers are told of a node, and the best path that it is made of."

    # -- nodes -------------------------------------------------------------------------------------

    def nodes_changed(self, node_ids: Iterable[NodeId], now: float) -> None:
        """The best paths to these nodes may be others: withdraw now, advertise soon."""
        if self._is_stub:
            return
        choices = {node_id: self._nodes.best(node_id) for node_id in node_ids}
        for peer in self._control_peers():
            gone, longer = [], []
            for node_id, choice in choices.items():
                if (told := peer.told.get(node_id)) is None:
                    continue
                if choice is None or not self._may_tell(peer, node_id, choice):
                    gone.append(node_id)
                elif choice.path.hops >= len(told.path):
                    longer.append(node_id)
            # Bad news travels fast.
            self._withdraw(peer, gone)
            if longer:
                self._advertise(peer, longer)
        for node_id in [node_id for node_id, choice in choices.items() if choice is None]:
            self._made.pop(node_id, None)
        self.gather(choices, now)

    def share(self, most: int) -> int:
        """How many nodes may be told to every peer, if this many may be told to one."""
        return max(1, most // max(1, len(self._links.peers)))

    def gather(self, node_ids: Iterable[NodeId], now: float) -> None:
        """What is told of these nodes may be another, though not the way: advertise it soon."""
        if self._is_stub:
            return
        self._gathered.update(dict.fromkeys(node_ids))
        if self._gathered and self._flush_at is None:
            self._flush_at = now + self._gather_s

    def tick(self, now: float) -> None:
        """Advertise what has gathered, where it is news."""
        if self._flush_at is not None and now >= self._flush_at:
            gathered, self._gathered, self._flush_at = self._gathered, {}, None
            self._telling += [(peer, gathered) for peer in self._control_peers()]
        left = MOST_IN_A_TURN
        while self._telling and left > 0:
            peer, gathered = self._telling.popleft()
            if self._links.peers.get(peer.node_id) is peer:
                self._advertise(peer, gathered, soon=True)
            left -= len(gathered)
        self._scope_changed()
        self._tell_untold()

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        more = self._concern.untold or self._concern.nearer or not self._digests.is_idle
        if more or self._telling or self._met or self._matching or self._scope.is_stale:
            return 0.0
        return self._flush_at

    def sync(self, peer: Peer) -> None:
        """Tell a peer everything, at the beginning of a control session."""
        peer.told.clear()
        self._scope.begins(peer)
        if peer.control is not None and self._concern.hears_all(peer):
            own = self._self_info.id
            peer.control.outbox.keep_page(_page(own), self._subscribes_of(peer, own))
        self._advertise(peer, self._nodes)

    def _advertise(self, peer: Peer, node_ids: Iterable[NodeId], *, soon: bool = False) -> None:
        """Tell a peer of nodes, where it is news, and what those new to it subscribe to.

        Where it is one of many that are told, it is told when its turn has come.
        """
        if peer.control is not None and self._is_led(peer):
            peer.unadvertised.update(dict.fromkeys(node_ids))
            page = self._advertisements(peer)
            self._links.page(peer.control, "nodes", page, urgent=True, soon=soon)

    def _advertisements(self, peer: Peer) -> Iterator[Message | None]:
        most = MOST_LISTED if peer.control is not None and peer.control.link.extended else 1
        while peer.unadvertised:
            looked = list(islice(peer.unadvertised, most))
            infos, new = [], []
            for node_id in looked:
                del peer.unadvertised[node_id]
                info, before = self._advertisement(peer, node_id), peer.told.get(node_id)
                # Round trips are laid down by steps that are worth speaking of: any change is news,
                # or two such steps would add up, and nodes beyond one link be told different ones.
                if info is None or info is before or info == before:
                    continue
                peer.told[node_id] = info
                infos.append(info)
                if before is None:
                    new.append(node_id)
            if infos:
                yield NodeInfoAdv(infos[0]) if len(infos) == 1 else NodeListAdv(tuple(infos))
            for node_id in new:
                self._begin_telling(peer, node_id)
                self._extensions.telling.advertised(peer, node_id)
            yield from repeat(None, len(looked) - len(infos))
        peer.unadvertised = {}  # a dict keeps the room of all that it ever held

    def _begin_telling(self, peer: Peer, source: NodeId) -> None:
        """A peer has just been told of a node: what it subscribes to waits for room."""
        # What comes from now on of a node that has said nothing is passed on as it comes.
        if peer.control is None or not self._subscribes.count(source):
            return
        if self._concern.hears_all(peer):
            page = self._subscribes_of(peer, source)
            peer.control.outbox.keep_page(_page(source), page)
        elif self._concern.hears_some(peer):
            self._met.setdefault(source, {})[peer.node_id] = None

    def _tell_subscribes(
        self,
        peer: Peer,
        source: NodeId,
        before: Collection[NodeId] | None = None,
        agreed: SubscribeAgreed | None = None,
    ) -> None:
        """Tell a peer all that a node subscribes to, or what concerns the peer of it."""
        if peer.control is None:
            return
        if self._concern.hears_all(peer):
            # What moved between servers, or is not agreed, is no page of all: words that wait for
            # it would be lost.
            is_part = bool(before) or agreed is not None
            key = _moved(source) if is_part else _page(source)
            if is_part and peer.control.outbox.drop_page(key):
                # The servers are others again, before it was told what moved the last time.
                key, before, agreed = _page(source), None, None
            page = self._subscribes_of(peer, source, before, agreed)
            self._links.page(peer.control, key, page)
        elif self._concern.hears_some(peer):
            self._met.setdefault(source, {})[peer.node_id] = None

    def _subscribes_of(
        self,
        peer: Peer,
        source: NodeId,
        before: Collection[NodeId] | None = None,
        agreed: SubscribeAgreed | None = None,
    ) -> Iterator[Message | None]:
        """What a node subscribes to, of a server's share what was not its own among others.

        What the peer has been found to hold is not told again.
        """
        is_told = self._interest.speaks_of(source, peer) and self._may_speak_of(source)
        servers = self._concern.servers
        for key in self._subscribes.of(source) if is_told else ():
            # While this waited for room, either may have gone, or servers have come or gone.
            if source != self._self_info.id and not peer.knows(source):
                return
            before = before if self._concern.servers is servers else None
            info = self._subscribes.get(source, key)
            is_known = agreed is not None and agreed.covers(key)
            is_for = not is_known and self._concern.is_shared_with(peer, key, before)
            yield self._adv_for(peer, info) if info is not None and is_for else None

    def _withdraw(self, peer: Peer, node_ids: Iterable[NodeId]) -> None:
        # It does not wait for room: whoever believes in the paths may send data in a circle.
        infos = [peer.told.pop(node_id) for node_id in node_ids]
        if len(infos) > 1 and peer.control is not None and peer.control.link.extended:
            for start in range(0, len(infos), MOST_LISTED):
                self._links.send(peer, NodeListWd(tuple(infos[start : start + MOST_LISTED])))
        else:
            for info in infos:
                self._links.send(peer, NodeInfoWd(info))

    def _advertisement(self, peer: Peer, node_id: NodeId) -> NodeInfo | None:
        """What to tell a peer of a node; None: nothing."""
        choice = self._nodes.best(node_id)
        if choice is None or not self._may_tell(peer, node_id, choice):
            return None
        path, made = choice.path, self._made.get(node_id)
        if made is not None and made[0] is path:
            return made[1]
        info = path.info
        info = info.passed_on(self._self_info.id, path.srtt_us - info.sum_srtt_us)
        self._made[node_id] = path, info
        return info

    def _may_tell(self, peer: Peer, node_id: NodeId, choice: Choice) -> bool:
        path, info, peer_id = choice.path, choice.path.info, peer.info.id
        if node_id == peer_id or info.type is STUB or info.has_passed(peer_id):
            return False
        if not self._links.may_carry(node_id) or len(info.path) >= MAX_PATH_NODES:
            return False
        return path.carries_data or not peer.has_data

    def _control_peers(self) -> list[Peer]:
        peers = self._links.peers.values()
        return [peer for peer in peers if peer.control is not None and not peer.is_stub]

    def leave(self) -> bool:
        """We are about to stop: peers that do not know GOAWAY are led to nodes by other ways.

        Whether there is any that had a way by us.
        """
        self._is_leaving, any_told = True, False
        for peer in self._control_peers():
            if self._is_led(peer):
                continue
            any_told = any_told or bool(peer.told)
            self._withdraw(peer, list(peer.told))
        return any_told

    def _is_led(self, peer: Peer) -> bool:
        """Whether a peer is told of nodes: until we leave, and then if it knows that we do."""
        knows = peer.control is not None and peer.control.link.extended
        return knows or not self._is_leaving

    # -- subscribes --------------------------------------------------------------------------------

    def flood(
        self,
        info: SubscribeInfo,
        *,
        added: bool,
        heard_from: Peer | None,
        known: bool = False,
        stateless: bool = False,
    ) -> None:
        """Pass a subscribe, or its withdrawal, to every control peer that is to have it.

        A word that changes what was `known` goes to its source too, if it is not from there: it
        corrects what is not so. The document sends no first advertisement back; with extensions
        that goes too, so that two relays with one id find each other.

        A relay without subscribe state cannot send it later, so it does not wait for the node to
        be advertised.
        """
        source = info.source_node_id
        itself = self._links.peers.get(source)
        if itself is not None and itself is not heard_from and not itself.is_stub:
            control = itself.control
            if known or (control is not None and control.link.extended):
                self._say(itself, info, added=added)
        if self._interest.is_served and source != self._self_info.id:
            return  # servers pass it on
        for peer in self._concern.concerned(info).values():
            if peer is heard_from:
                continue
            if source == self._self_info.id or peer.knows(source) or stateless:
                self._say(peer, info, added=added)
        if itself is not None and added:
            for near in self._concern.of_near(info):
                self._say(itself, near, added=True)

    def tell_matching(self, peer: Peer) -> None:
        """Tell a peer who wants what it has announced lately."""
        if peer.control is not None and peer.unmatched:
            self._links.page(peer.control, "offered", self._matching_of(peer), soon=True)

    def _matching_of(self, peer: Peer) -> Iterator[Message | None]:
        for source, key in self._concern.matching(peer):
            info = self._subscribes.get(source, key)
            yield None if info is None else self._if_for(peer, info)

    def _if_for(self, peer: Peer, info: SubscribeInfo) -> Message | None:
        """The advertisement of a subscribe to what a peer offers, if it may be told of it."""
        source = info.source_node_id
        is_own = source == self._self_info.id
        if source == peer.node_id or (self._interest.is_served and not is_own):
            return None
        if not (is_own or peer.knows(source)) or not self._is_offered(peer, info):
            return None
        return self._adv_for(peer, info)

    def _tell_untold(self) -> None:
        """Peers hear of more than before, or of nodes that are new to them."""
        while self._concern.untold:
            peer, before = self._concern.untold.popitem()
            own = () if peer.awaits_digest else (self._self_info.id,)
            for source in (*own, *peer.told):
                self._tell_subscribes(peer, source, before)
        while self._digests.compared:
            peer, agreed = self._digests.compared.popitem()
            self._tell_subscribes(peer, self._self_info.id, agreed=agreed)
        while self._concern.nearer:
            peer, nodes = self._concern.nearer.popitem()
            if peer.control is not None:
                self._links.page(peer.control, "near", self._near_of(peer, nodes), soon=True)
        met, self._met = self._met, {}
        self._matching += [self._of_met(source, peers) for source, peers in met.items()]
        for _ in in_pieces(self._matching):
            pass

    def _near_of(self, peer: Peer, nodes: Iterable[NodeId]) -> Iterator[Message | None]:
        """What nodes want of that which a peer near them wants as well."""
        own, is_served = self._self_info.id, self._interest.is_served
        for source in nodes:
            for key in self._subscribes.of(source) if source == own or not is_served else ():
                info = self._subscribes.get(source, key)
                is_for = self._subscribes.holds(peer.node_id, key)
                is_for = is_for and (source == own or peer.knows(source))
                yield self._adv_for(peer, info) if info is not None and is_for else None

    def _is_offered(self, peer: Peer, info: SubscribeInfo) -> bool:
        return peer.node_id in self._concern.offering(info)

    def _adv_for(self, peer: Peer, info: SubscribeInfo) -> Message | None:
        may_tell = self._may_speak_of(info.source_node_id)
        may_tell = may_tell and self._scope.may_tell(peer, info, added=True)
        return SubscribeInfoAdv(info) if may_tell else None

    def _of_met(self, source: NodeId, peers: Collection[NodeId]) -> Iterator[None]:
        """Go through what a node wants once for all peers that it is new to."""
        if self._interest.is_served and source != self._self_info.id:
            return
        for key in self._subscribes.of(source):
            info = self._subscribes.get(source, key)
            concerned = {} if info is None else self._concern.concerned(info)
            for node_id in peers if len(peers) < len(concerned) else tuple(concerned):
                peer = concerned.get(node_id)
                if info is not None and peer is not None and node_id in peers:
                    self._say(peer, info, added=True)
            yield None

    def answer(self, peer: Peer, info: SubscribeInfo, *, added: bool) -> None:
        """A peer sent something older than what is held: send it that.

        A source that was restarted may have begun with a number that is not newer than its last
        one. What it hears now passes on to it, and it goes on after that number.
        """
        source, key = info.source_node_id, info.track_hash.full_name_hash
        if (held := self._subscribes.get(source, key)) is not None:
            if held.sequence != info.sequence or not added:
                self._say(peer, held, added=True)
        else:
            sequence = self._subscribes.sequence(source, key)
            if sequence is not None and sequence != info.sequence:
                self._say(peer, replace(info, sequence=sequence), added=False)

    def _say(self, peer: Peer, info: SubscribeInfo, *, added: bool) -> None:
        """Send the latest of one subscribe, as soon as there is room."""
        source = info.source_node_id
        if (control := peer.control) is None or not self._may_speak_of(source):
            return
        if not self._scope.may_tell(peer, info, added=added):
            return
        if not self._links.has_room(control):
            # What waits must not be a view of all that it arrived with.
            info = replace(info, subscribe_data=bytes(info.subscribe_data))
        message = SubscribeInfoAdv(info) if added else SubscribeInfoWd(info)
        page = _page(source) if added else None
        if not self._links.say(control, (source, info.track_hash.full_name_hash), message, page):
            self._tell_subscribes(peer, source)

    def _scope_changed(self) -> None:
        """Policy is another: peers are told of what they may hear of now."""
        peers = self._control_peers()
        if self._scope.changed(peers) and not self._is_stub:
            for peer in peers:
                for source in (self._self_info.id, *peer.told):
                    self._tell_subscribes(peer, source)

    def _may_speak_of(self, source: NodeId) -> bool:
        return source == self._self_info.id or self._links.may_carry(source)

    def node_claimed(self, peer: Peer, node_id: NodeId) -> None:
        """A peer now knows a node by a way of its own, perhaps one that carries no subscribes."""
        if not self._is_stub and node_id not in peer.told and node_id != peer.node_id:
            self._tell_subscribes(peer, node_id)


def _page(source: NodeId) -> Hashable:
    return "subscribes", source


def _moved(source: NodeId) -> Hashable:
    return "moved subscribes", source


def srtt_changed(old_us: int, new_us: int) -> bool:
    """Whether a round trip has changed enough to speak of it."""
    change = abs(new_us - old_us)
    return change > SRTT_CHANGE_US and change > SRTT_CHANGE * old_us
