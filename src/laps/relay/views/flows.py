"""How a relay forwards: its flows, and the subscriber node sets that they come and go under."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from laps.infobase.nodes import SessionId
from laps.names import hash_text
from laps.relay.stub import StubClient
from laps.relay.views.table import Row, Table
from laps.relay.views.words import (
    node_text,
    node_texts,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from laps.relay.relay import Relay
    from laps.routing.forwarding import Flow, OutSet
    from laps.types import SnsId

# So much is done between two chances for others: half a millisecond.
TURN: Final = 2000


class Flowing:
    """What has to be looked up the other way round: the track, and the streams, of each flow."""

    def __init__(self) -> None:
        self.tracks: dict[Flow, int] = {}
        "Those that are known: a peer's is when something has come by it."
        self.streams: Counter[Flow] = Counter()

    def read(self, relay: Relay) -> Iterator[None]:
        """Look it up, a little at a time."""
        live = relay.live
        meters = [track.meter for track in live.tracks.values() if track.meter.flows]
        for number, meter in enumerate([*meters, *live.transit.values()]):
            self.tracks |= dict.fromkeys(meter.flows, meter.key)
            if not number % TURN:
                yield
        streams = relay.data.open_streams()
        for first in range(0, len(streams), TURN):
            flows = (passing.flow for passing in streams[first : first + TURN])
            self.streams.update(flow for flow in flows if flow is not None)
            yield

    def track(self, flow: Flow) -> int | None:
        """The hash of the track that a flow carries."""
        if isinstance(flow.key, tuple) and not isinstance(flow.key[0], int):
            return int(flow.key[1])
        return self.tracks.get(flow)


def fib(relay: Relay, flowing: Flowing, numbers: Mapping[Hashable, int]) -> Table:
    """Every flow: where it comes from, for whom, and where it goes."""

    def row(flow: Flow) -> Row | None:
        if relay.fib.get(flow.key) is not flow:
            return None
        reached = {node for out in flow.outs.values() for node in out.nodes}
        key = flowing.track(flow)
        return {
            "from": _from(relay, flow, numbers),
            "track": None if key is None else hash_text(key),
            "targets": node_texts(flow.targets),
            "local": flow.local,
            "out": [_out(relay, *item) for item in _outs(flow)],
            "unreached": node_texts(flow.targets - reached),
        }

    return Table.of(list(relay.fib), row)


def _from(relay: Relay, flow: Flow, numbers: Mapping[Hashable, int]) -> Row:
    source, number = flow.key if isinstance(flow.key, tuple) else (flow.key, None)
    if isinstance(source, int):
        return {"peer": _peer(relay, source), "sns": number}
    if isinstance(source, StubClient):
        return {"client": None, "stub": node_text(source.peer.node_id)}
    return {"client": numbers.get(source)}


def sns(relay: Relay, flowing: Flowing) -> Table:
    """Every subscriber node set, as peers tell us and as we tell them."""
    ingress, flows, stubs = relay.ingress_sets(), list(relay.fib), list(relay.stubs)
    size = len(ingress) + sum(len(flow.outs) + len(flow.old) for flow in flows)
    size += sum(len(stub.sets) for stub in stubs)

    def rows() -> Iterator[Row | None]:
        for link_id, sns_id, old in ingress:
            yield _in(relay, flowing, link_id, sns_id, old)
        for flow in flows:
            for item in _outs(flow):
                yield _out(relay, *item) | {"direction": "out"}
        for stub in stubs:
            node = node_text(stub.peer.node_id)
            for sns_id in list(stub.sets.values()):
                row = {"peer": node, "sns": sns_id, "nodes": [node], "streams": None}
                yield row | {"old": False, "direction": "out"}

    return Table(size, rows(), lambda row: row)


def _in(relay: Relay, flowing: Flowing, link_id: SessionId, sns_id: SnsId, old: bool) -> Row | None:
    flow = relay.fib.get((link_id, sns_id))
    if flow is None:
        return None
    nodes = {*flow.targets, relay.id} if flow.local else flow.targets
    return {
        "peer": _peer(relay, link_id),
        "direction": "in",
        "sns": sns_id,
        "nodes": node_texts(nodes),
        "streams": flowing.streams[flow],
        "old": old,
    }


def _outs(flow: Flow) -> list[tuple[SessionId, SnsId, OutSet, bool]]:
    now = [(link, out.sns_id, out, False) for link, out in flow.outs.items()]
    return now + [(link, sns_id, out, True) for (link, sns_id), out in flow.old.items()]


def _out(relay: Relay, link: SessionId, sns_id: SnsId, out: OutSet, old: bool) -> Row:
    return {
        "peer": _peer(relay, link),
        "sns": sns_id,
        "nodes": node_texts(out.nodes),
        "streams": out.streams,
        "old": old,
    }


def _peer(relay: Relay, link: int) -> str | None:
    node = relay.node_of(SessionId(link))
    return None if node is None else node_text(node)
