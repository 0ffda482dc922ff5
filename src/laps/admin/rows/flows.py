"""How a relay forwards: its flows, and the subscriber node sets that they come and go under."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec.structs import asdict

from laps.admin.rows.sources import meters
from laps.admin.rows.table import Table
from laps.admin.rows.texts import node_text, node_texts
from laps.admin.schema.tracks import Flow, NodeSet, Origin, OutSet
from laps.names import hash_text
from laps.relay.stub import StubClient
from laps.routing.flows import FromClient, FromPeer

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from laps.infobase.nodes import SessionId
    from laps.relay.relay import Relay
    from laps.routing import flows
    from laps.types import SnsId, TrackKey

# This many are looked up between two chances for others: half a millisecond.
TURN: Final = 2000


class FlowIndex:
    """The track, and the number of open streams, of each flow."""

    def __init__(self) -> None:
        self.tracks: dict[flows.Flow, TrackKey] = {}
        "Those that are known: a peer's is once something has come by it."
        self.streams: Counter[flows.Flow] = Counter()

    def read(self, relay: Relay) -> Iterator[None]:
        """Look it up, a little at a time."""
        for number, meter in enumerate(meters(relay)):
            self.tracks |= dict.fromkeys(meter.flows, meter.key)
            if not number % TURN:
                yield
        streams = relay.data.open_streams()
        for first in range(0, len(streams), TURN):
            flows = (passing.flow for passing in streams[first : first + TURN])
            self.streams.update(flow for flow in flows if flow is not None)
            yield

    def track(self, flow: flows.Flow) -> TrackKey | None:
        """The hash of the track that a flow carries."""
        return flow.key.track if isinstance(flow.key, FromClient) else self.tracks.get(flow)


def fib(relay: Relay, index: FlowIndex, numbers: Mapping[Hashable, int]) -> Table[Flow]:
    """Every flow: where it comes from, for whom, and where it goes."""

    def row(flow: flows.Flow) -> Flow | None:
        if relay.fib.get(flow.key) is not flow:
            return None
        reached = {node for out in flow.outs.values() for node in out.nodes}
        key = index.track(flow)
        return Flow(
            source=_origin(relay, flow, numbers),
            track=None if key is None else hash_text(key),
            targets=node_texts(flow.targets),
            local=flow.local,
            out=[_out(relay, *item) for item in _outs(flow)],
            unreached=node_texts(flow.targets - reached),
        )

    return Table.of(list(relay.fib), row)


def _origin(relay: Relay, flow: flows.Flow, numbers: Mapping[Hashable, int]) -> Origin:
    match flow.key:
        case FromPeer(link, sns_id):
            return Origin(peer=_peer(relay, link), sns=sns_id)
        case FromClient(StubClient() as stub, _):
            return Origin(client=None, stub=node_text(stub.peer.node_id))
        case FromClient(client, _):
            return Origin(client=numbers.get(client))
        case _:  # this relay's own
            return Origin(client=None)


def sns(relay: Relay, index: FlowIndex) -> Table[NodeSet]:
    """Every subscriber node set, as peers send them to us and as we send them."""
    ingress, flows, stubs = relay.ingress.all(), list(relay.fib), list(relay.stubs)
    size = len(ingress) + sum(len(flow.outs) + len(flow.old) for flow in flows)
    size += sum(len(stub.sets) for stub in stubs)

    def rows() -> Iterator[NodeSet | None]:
        for link_id, sns_id, old in ingress:
            yield _in(relay, index, link_id, sns_id, old)
        for flow in flows:
            for item in _outs(flow):
                yield NodeSet(**asdict(_out(relay, *item)), direction="out")
        for stub in stubs:
            node = node_text(stub.peer.node_id)
            for sns_id in list(stub.sets.values()):
                yield NodeSet(peer=node, sns=sns_id, nodes=[node], direction="out")

    return Table(size, rows(), lambda row: row)


def _in(
    relay: Relay, index: FlowIndex, link_id: SessionId, sns_id: SnsId, old: bool
) -> NodeSet | None:
    flow = relay.fib.get(FromPeer(link_id, sns_id))
    if flow is None:
        return None
    nodes = {*flow.targets, relay.id} if flow.local else flow.targets
    return NodeSet(
        peer=_peer(relay, link_id),
        sns=sns_id,
        nodes=node_texts(nodes),
        streams=index.streams[flow],
        old=old,
        direction="in",
    )


def _outs(flow: flows.Flow) -> list[tuple[SessionId, SnsId, flows.OutSet, bool]]:
    now = [(link, out.sns_id, out, False) for link, out in flow.outs.items()]
    return now + [(link, sns_id, out, True) for (link, sns_id), out in flow.old.items()]


def _out(relay: Relay, link: SessionId, sns_id: SnsId, out: flows.OutSet, old: bool) -> OutSet:
    return OutSet(
        peer=_peer(relay, link),
        sns=sns_id,
        nodes=node_texts(out.nodes),
        streams=out.streams,
        old=old,
    )


def _peer(relay: Relay, link: SessionId) -> str | None:
    node = relay.links.node_of(link)
    return None if node is None else node_text(node)
