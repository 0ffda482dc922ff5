"""The clients of a relay, the origins that decide about them, and the connections that ended."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from msgspec.structs import asdict

from laps.admin.rows.sources import measured
from laps.admin.rows.table import Table
from laps.admin.rows.texts import node_text
from laps.admin.schema.clients import Client, Close, OneClient, OriginState
from laps.admin.schema.tracks import Named
from laps.edge.asking import OriginCounters
from laps.edge.moving import Standing
from laps.names import hash_text, namespace_text, track_texts

if TYPE_CHECKING:
    from collections.abc import Hashable

    from laps.admin.rows.relay import Wall
    from laps.auth import origins as configured
    from laps.edge.client import EdgeClient
    from laps.net import closes as ended
    from laps.net.clients import ClientConnection
    from laps.net.runner import Runner
    from laps.relay.relay import Relay
    from laps.tracks.track import Track

MEASURED: Final = measured(Client)


def client_numbers(runner: Runner) -> dict[Hashable, int]:
    """The number of each client."""
    return {connection.client: connection.number for connection in runner.clients.connections}


def clients(runner: Runner, wall: Wall) -> Table[Client]:
    """The clients of this relay, those that came first first."""
    connections = runner.clients.connections
    return Table.of(list(connections), lambda it: client(it, wall) if it in connections else None)


def client(connection: ClientConnection, wall: Wall) -> Client:
    """One client."""
    transport, stats = connection.transport, connection.transport.stats()
    case = connection.client.edge.moving.case(connection.client)
    asked = case if case is not None and case.was_asked else None
    return Client(
        client=connection.number,
        protocol=connection.protocol,
        transport=transport_of(connection),
        address=str(connection),
        since=wall(transport.opened_at),
        subscribes=len(connection.client.subscriptions),
        publishes=len(connection.client.publications),
        bearer=connection.client.share.bearer,
        over_limit=connection.client.share.over,
        queue_bytes=connection.egress.queued_bytes + transport.buffered_bytes,
        dropped_groups=connection.egress.counters.dropped_groups,
        sent_to="" if asked is None or asked.target is None else node_text(asked.target),
        sent_why="" if asked is None else asked.why,
        stays=asked is not None and asked.standing is Standing.STAYS,
        **{name: getattr(stats, name) for name in MEASURED},
    )


def transport_of(connection: ClientConnection) -> str:
    """What the protocol of a client runs on."""
    return "webtransport" if connection.is_webtransport else "quic"


def one_client(runner: Runner, number: int, wall: Wall) -> OneClient | None:
    """One client, with what it reads and publishes."""
    for connection in runner.clients.connections:
        if connection.number == number:
            it = connection.client
            return OneClient(
                **asdict(client(connection, wall)),
                node=node_text(runner.relay.id),
                at=wall.now,
                subscriptions=[_named(item.track) for item in it.subscriptions.values()],
                publications=_published(runner.relay, it),
            )
    return None


def _published(relay: Relay, client: EdgeClient) -> list[Named]:
    tracks = (relay.tracks.get(item.key) for item in client.publications.values())
    return [_named(track) for track in tracks if track is not None]


def _named(track: Track) -> Named:
    namespace, name = track_texts(track.name)
    return Named(track=hash_text(track.key), namespace=namespace, name=name)


def closes(runner: Runner) -> Table[Close]:
    """The connections that ended, the last first."""

    def row(item: ended.Close) -> Close:
        return Close(
            at=round(item.at, 3),
            kind=item.kind,
            who=item.who,
            address=item.address,
            by_peer=item.by_peer,
            code=item.code,
            application=item.application,
            reason=item.reason,
        )

    return Table.of(list(reversed(runner.closes.last)), row)


def origins(runner: Runner) -> Table[OriginState]:
    """The origins, in the order of the configuration."""
    asking = runner.edge.origins

    def row(item: configured.Origin) -> OriginState:
        return OriginState(
            origin=item.name,
            decides="keys" if item.api is None else "api",
            namespaces=[namespace_text(it) for it in item.namespaces],
            ids=list(item.ids),
            waiting=asking.waiting(item.name),
            **dataclasses.asdict(asking.counters.get(item.name) or OriginCounters()),
        )

    return Table.of(list(runner.edge.context.authority.origins), row)
