"""Control servers, and what is told to whom of subscribes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.admin.rows.table import Table
from laps.admin.rows.texts import node_text, node_texts
from laps.admin.schema.control import Control, ControlPeer
from laps.relay.roles import Role
from laps.relay.servers import REPLICAS, responsible

if TYPE_CHECKING:
    from laps.admin.rows.relay import Wall
    from laps.relay.peers import Peer
    from laps.relay.relay import Relay
    from laps.types import NodeId, TrackKey


def control(relay: Relay, wall: Wall) -> Control:
    """What this relay is sent and why; `peers` are the rows."""
    own, interest = _own(relay), relay.interest
    return Control(
        node=node_text(relay.id),
        at=wall.now,
        hears=own.hears,
        why=own.why,
        servers=own.servers,
        subscribes=len(relay.subscribes),
        replicas=min(REPLICAS, len(own.servers)) if interest.is_served else 0,
    )


def peers(relay: Relay) -> Table[ControlPeer]:
    """This relay, the control servers that are known, and the peers with control sessions."""
    known = relay.interest.known_servers
    able = [it.node_id for it in relay.peers.values() if it.control is not None and not it.is_stub]
    found = [relay.id, *sorted({*known, *able})]
    return Table.of(found, lambda it: _own(relay) if it == relay.id else _peer(relay, it))


def _own(relay: Relay) -> ControlPeer:
    interest = relay.interest
    is_filtered = interest.shares or interest.is_served
    return ControlPeer(
        node=node_text(relay.id),
        serves=relay.role is Role.CONTROL,
        hears="share" if interest.shares else "offered" if interest.is_served else "all",
        why="" if is_filtered else interest.why,
        servers=node_texts(interest.concern.servers),
        announces=len(relay.tracks.announces),
        holds=relay.subscribes.count(relay.id),
    )


def _peer(relay: Relay, node_id: NodeId) -> ControlPeer:
    peer, interest = relay.peers.get(node_id), relay.interest
    said = None if peer is None else peer.interest
    return ControlPeer(
        node=node_text(node_id),
        serves=node_id in interest.known_servers,
        hears=_hears(peer),
        servers=[] if said is None else node_texts(said.servers),
        announces=interest.concern.offers.count(node_id),
        holds=relay.subscribes.count(node_id),
    )


def _hears(peer: Peer | None) -> str:
    if peer is None or peer.control is None:
        return "nothing"
    if peer.interest is None:
        return "later" if peer.control.link.extended else "all"
    return peer.interest.wants.name.lower()


def keepers(relay: Relay, key: TrackKey) -> list[str]:
    """The control servers that hold the subscribes of this relay to a track."""
    if not relay.interest.is_served:
        return []
    return node_texts(responsible(key, relay.interest.concern.servers))
