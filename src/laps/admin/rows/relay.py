"""A relay itself: its identity and traffic, what its rooms have counted, what has happened."""

from __future__ import annotations

import time
from dataclasses import fields
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from laps.admin.rows.table import Table
from laps.admin.rows.texts import node_text
from laps.admin.schema.relay import Counters, Event, Node, Plan, Ready
from laps.net.senses import resident_bytes
from laps.wire.moqt.tolerance import Tolerance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laps.edge.settings import ClientCounters
    from laps.net.runner import Runner
    from laps.relay.journal import NumberedEvent
    from laps.relay.relay import Relay

# This many connections are read between two chances for others: a few tenths of a millisecond.
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


def node(runner: Runner, traffic: Traffic) -> Node:
    """The relay itself."""
    relay, config, plan = runner.relay, runner.config.node, runner.relay.router.plan
    return Node(
        node=node_text(relay.id),
        at=time.time(),
        role=relay.role.value,
        region=config.region,
        tags=list(config.tags),
        latitude=relay.self_info.latitude,
        longitude=relay.self_info.longitude,
        contact=relay.self_info.contact,
        version=version("laps"),
        since=round(runner.since, 3),
        clients_address=_text(runner.client_address),
        peers_address=_text(runner.peer_address),
        sha256=runner.identity.fingerprint,
        memory_bytes=resident_bytes(),
        cpu_s=round(time.process_time(), 6),
        sent_bytes=traffic.sent_bytes,
        received_bytes=traffic.received_bytes,
        draining=runner.stopping,
        plan=Plan(tracks=len(plan.vias), sequence=plan.sequence, expires_at=plan.expires_at)
        if plan.sequence
        else None,
        sizes=relay.sizes() | {"clients": len(runner.clients.connections)},
    )


def _text(value: object | None) -> str | None:
    return None if value is None else str(value)


def readiness(runner: Runner) -> Ready:
    """Whether new clients and peers are welcome, and why they had better go elsewhere."""
    reasons = []
    if runner.stopping:
        reasons.append("the relay is about to stop")
    peering = runner.config.peering
    wanted = [*peering.peers, *peering.control, *peering.data]
    if wanted and not runner.relay.peers:
        count = f"{len(wanted)} configured peers" if len(wanted) > 1 else "the configured peer"
        reasons.append(f"no connection to {'any of the ' if len(wanted) > 1 else ''}{count} yet")
    return Ready(ready=not reasons, reasons=reasons)


def events(relay: Relay, after: int, wall: Callable[[float], float]) -> Table[Event]:
    """What has happened lately, the oldest first."""

    def row(item: NumberedEvent) -> Event:
        event = item.event
        return Event(
            number=item.number,
            at=wall(event.at),
            event=event.name,
            subject=event.subject,
            detail=event.detail,
            reason=event.reason,
        )

    return Table.of(relay.journal.recent(after), row)


def counters(runner: Runner) -> Counters:
    """By room; of connections both those that are open and those that are closed."""
    relay, edge, clients = runner.relay, runner.edge, runner.clients
    quic: dict[str, int] = {}
    for endpoint in runner.endpoints():
        for name, value in _counts(endpoint.counters).items():
            if not name.startswith("past_"):
                quic[name] = quic.get(name, 0) + value
    dropped = clients.past_dropped_groups
    dropped += sum(item.egress.counters.dropped_groups for item in clients.connections)
    return Counters(
        relay=_counts(relay.counters) | _counts(relay.router.counters),
        nodes=_counts(relay.nodes.counters),
        subscribes=_counts(relay.subscribes.counters) | {"unreadable": relay.tracks.unreadable},
        announces=_counts(relay.tracks.announces.counters),
        metrics=_counts(relay.extensions.metrics.counters),
        namespaces=_counts(relay.extensions.namespaces.counters),
        extensions=_counts(relay.extensions.counters),
        data=_counts(relay.data.counters),
        live=_counts(relay.tracks.counters),
        cache=_counts(relay.tracks.cache.counters),
        fetches=_counts(edge.fetches.counters),
        repairs=_counts(relay.repairs.counters),
        clients=_counts(edge.counters) | _tolerated(edge.counters) | {"dropped_groups": dropped},
        quicr=_counts(edge.quicr),
        media=_counts(edge.quicr.media),
        probing=_counts(relay.probing.counters) | _counts(runner.prober.counters),
        demand=_counts(relay.demand.sessions.counters),
        moving=_counts(edge.moving.counters),
        journal={"dropped_events": relay.journal.dropped},
        quic=quic,
    )


def _tolerated(counted: ClientCounters) -> dict[str, int]:
    return {f"tolerated_{what}": counted.tolerated[what] for what in Tolerance}


def _counts(counted: Any) -> dict[str, int]:
    """The numbers of a dataclass of counters."""
    values = {field.name: getattr(counted, field.name) for field in fields(counted)}
    return {name: value for name, value in values.items() if isinstance(value, int)}
