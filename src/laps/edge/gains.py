"""What it would save to have a client at another Edge: long-haul copies, track by track.

    nobody else here wants it, it comes from afar,      one copy less
    and the other Edge has subscribers for it
    others here want it too, and the other Edge has     one copy more
    neither subscribers nor its publisher
    anything else                                       as many as before

Policy has to allow each of its tracks at the other Edge. Of a track that is bound to regions, or
where some ways are closed, that Edge has to have the track already: then a way leads there.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from laps.names import track_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from laps.edge.client import EdgeClient
    from laps.edge.neighbours import Neighbours
    from laps.relay.relay import Relay
    from laps.tracks.track import Track
    from laps.types import NodeId


class Gain(NamedTuple):
    """What a client's move to a node would do."""

    node_id: NodeId
    copies: int
    "Long-haul copies that it saves; less than 0 where it costs some."
    tracks: tuple[str, ...] = ()
    "Tracks of which one is saved, by name."


class Gains:
    """Weighs the moves of clients of one relay."""

    def __init__(self, relay: Relay, neighbours: Neighbours) -> None:
        self._relay = relay
        self._neighbours = neighbours

    def of(self, client: EdgeClient, nodes: Iterable[NodeId]) -> Mapping[NodeId, Gain]:
        """What each of some nodes would save that policy allows all of its tracks at."""
        left, policy = list(nodes), self._relay.weighing.policy
        is_free = not (policy.binds or policy.limits)
        copies: Counter[NodeId] = Counter()
        saved: dict[NodeId, list[str]] = {node_id: [] for node_id in left}
        for key in list(client.subscriptions):
            track = self._relay.tracks.get(key)
            if track is None:
                continue
            having = {it for it in left if self._relay.subscribes.holds(it, key)}
            if not is_free:
                left = [it for it in left if self._is_allowed(track, it, has_it=it in having)]
            if not left:
                break
            if track.is_wanted_besides(client):
                if lacking := set(left) - having:
                    copies.subtract(lacking - self._offering(track))
            elif having and self._neighbours.comes_from_afar(track):
                copies.update(having.intersection(left))
                for node_id in having.intersection(left):
                    saved[node_id].append("" if track.name is None else track_text(track.name))
        return {it: Gain(it, copies[it], tuple(saved[it])) for it in left}

    def _is_allowed(self, track: Track, node_id: NodeId, *, has_it: bool) -> bool:
        policy = self._relay.weighing.policy
        terms = policy.terms(track.name)
        if policy.against_node(terms, node_id) is not None:
            return False
        return has_it or not (terms.is_bound or policy.limits)

    def _offering(self, track: Track) -> set[NodeId]:
        """Those that publish a track."""
        if track.name is None:
            return set()
        names = self._relay.extensions.namespaces
        return set(names.offering(track.name.namespace, track.name.name))
