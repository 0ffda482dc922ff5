"""What only the network knows of a relay: addresses, bytes, packets, round trips, the process."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from laps.names import hash_text, track_texts
from laps.net.senses import resident_bytes
from laps.relay.views import nodes as node_views
from laps.relay.views.counters import counters as relay_counters
from laps.relay.views.counters import counts_of
from laps.relay.views.table import Row, Table
from laps.relay.views.words import (
    node_text,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from laps.net.clients import ClientConnection
    from laps.net.closes import Close
    from laps.net.link import QuicLink
    from laps.net.runner import Runner
    from laps.relay.views.counters import Counts
    from laps.tracks.track import LiveTrack
    from laps.types import NodeId

# So many connections are read between two chances for others: a few tenths of a millisecond.
CONNECTIONS_A_TURN: Final = 500


class Wall:
    """Seconds since 1970 for a time of the relay's clock, as of now."""

    def __init__(self) -> None:
        self.now = time.time()
        self._ahead = self.now - time.monotonic()

    def __call__(self, at: float) -> float:
        """To the millisecond."""
        return round(at + self._ahead, 3)


class Traffic:
    """What a relay has sent and received in all, since it began."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.received_bytes = 0

    def read(self, runner: Runner) -> Iterator[None]:
        """Add it up, a little at a time."""
        number = 0
        for endpoint in runner.endpoints():
            for sent, received in endpoint.traffic():
                self.sent_bytes += sent
                self.received_bytes += received
                number += 1
                if not number % CONNECTIONS_A_TURN:
                    yield


def node(runner: Runner, traffic: Traffic) -> Row:
    """The relay itself."""
    relay, config = runner.relay, runner.config.node
    plan = relay.plan
    return {
        "node": node_text(relay.id),
        "at": time.time(),
        "role": relay.role.value,
        "region": config.region,
        "tags": list(config.tags),
        "latitude": relay.self_info.latitude,
        "longitude": relay.self_info.longitude,
        "contact": relay.self_info.contact,
        "version": version("laps"),
        "since": round(runner.since, 3),
        "clients_address": _text(runner.client_address),
        "peers_address": _text(runner.peer_address),
        "sha256": runner.identity.fingerprint,
        "memory_bytes": resident_bytes(),
        "cpu_s": round(time.process_time(), 6),
        "sent_bytes": traffic.sent_bytes,
        "received_bytes": traffic.received_bytes,
        "draining": runner.stopping,
        "plan": None
        if not plan.sequence
        else {"tracks": len(plan.vias), "sequence": plan.sequence, "expires_at": plan.expires_at},
        "sizes": relay.sizes() | {"clients": len(runner.clients.connections)},
    }


def _text(value: object | None) -> str | None:
    return None if value is None else str(value)


def peers(runner: Runner, wall: Wall) -> Table:
    """The peers that have said who they are."""

    def row(node_id: NodeId) -> Row | None:
        peer = runner.relay.peers.get(node_id)
        if peer is None or not peer.links:
            return None
        known = [runner.links.get(link_id) for link_id in peer.links]
        links = [link for link in known if link is not None]
        control = None if peer.control is None else runner.links.get(peer.control.link.id)
        first = control or next(iter(links), None)
        return (
            node_views.peer(runner.relay, peer, wall)
            | {"address": "" if first is None else str(first)}
            | link_figures(links)
        )

    return Table.of(sorted(runner.relay.peers), row)


def link_figures(links: Iterable[QuicLink]) -> Row:
    """What the connections to a peer carry together, by the shortest way."""
    srtts = []
    sent = received = packets = lost = queue = dropped = 0
    for link in links:
        stats = link.connection.stats()
        srtts.append(stats.srtt_us)
        sent += stats.sent_bytes
        received += stats.received_bytes
        packets += stats.sent_packets
        lost += stats.lost_packets
        queue += link.egress.queued_bytes + link.connection.buffered_bytes
        dropped += link.egress.counters.dropped_groups
    return {
        "srtt_us": min(srtts, default=0),
        "sent_bytes": sent,
        "received_bytes": received,
        "sent_packets": packets,
        "lost_packets": lost,
        "queue_bytes": queue,
        "dropped_groups": dropped,
    }


# -- clients ---------------------------------------------------------------------------------------


def client_numbers(runner: Runner) -> dict[Hashable, int]:
    """The number of each client."""
    return {connection.client: connection.number for connection in runner.clients.connections}


def clients(runner: Runner, wall: Wall) -> Table:
    """The clients of this relay, those that came first first."""
    connections = runner.clients.connections
    return Table.of(list(connections), lambda it: client(it, wall) if it in connections else None)


def client(connection: ClientConnection, wall: Wall) -> Row:
    """One client."""
    transport, stats = connection.transport, connection.transport.stats()
    return {
        "client": connection.number,
        "protocol": connection.protocol,
        "transport": "webtransport" if connection.is_webtransport else "quic",
        "address": str(connection),
        "since": wall(transport.opened_at),
        "srtt_us": stats.srtt_us,
        "subscribes": len(connection.client.subscriptions),
        "publishes": len(connection.client.sources),
        "sent_bytes": stats.sent_bytes,
        "received_bytes": stats.received_bytes,
        "queue_bytes": connection.egress.queued_bytes + transport.buffered_bytes,
        "dropped_groups": connection.egress.counters.dropped_groups,
        "lost_packets": stats.lost_packets,
    }


def one_client(runner: Runner, number: int, wall: Wall) -> Row | None:
    """One client, with what it reads and publishes."""
    for connection in runner.clients.connections:
        if connection.number == number:
            it = connection.client
            return client(connection, wall) | {
                "subscriptions": [_named(item.track) for item in it.subscriptions.values()],
                "publications": [_named(item.track) for item in it.sources.values()],
            }
    return None


def _named(track: LiveTrack) -> Row:
    namespace, name = track_texts(track.name)
    return {"track": hash_text(track.hash.full_name_hash), "namespace": namespace, "name": name}


# -- what was counted ------------------------------------------------------------------------------


def counters(runner: Runner) -> Counts:
    """By room; sums of what is there and what is over, so that none goes down."""
    counted = relay_counters(runner.relay, runner.edge)
    quic: dict[str, int] = {}
    for endpoint in runner.endpoints():
        for name, value in counts_of(endpoint.counters).items():
            if not name.startswith("past_"):
                quic[name] = quic.get(name, 0) + value
    clients = runner.clients
    dropped = clients.past_dropped_groups
    dropped += sum(item.egress.counters.dropped_groups for item in clients.connections)
    counted["clients"] |= {"dropped_groups": dropped}
    return counted | {"quic": quic}


def closes(runner: Runner) -> Table:
    """The connections that ended, the last first."""

    def row(item: Close) -> dict[str, Any]:
        return {
            "at": round(item.at, 3),
            "kind": item.kind,
            "who": item.who,
            "address": item.address,
            "by_peer": item.by_peer,
            "code": item.code,
            "application": item.application,
            "reason": item.reason,
        }

    return Table.of(list(reversed(runner.closes.last)), row)
