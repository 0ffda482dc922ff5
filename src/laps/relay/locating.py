"""Where nodes are by their round trips, and whether that can be where they say.

A round trip between two nodes is taken from the first of these that has it:

1. what this relay measured itself, on a link or with probes
2. what one of the two says of the other in NODE_METRICS, by link or by probe
3. the network coordinates of the two, where both know where they are
4. the latitude and longitude that the two were given, and what cables usually take

No packet is faster than light in a vacuum. Two nodes that say they are further apart than the round
trip between them allows are not both where they say: that is a proof, whatever the path. Which of
the two it is shows when there are more such pairs, and one node is in all of them. A round trip
that others measured is their word, and one to a load balancer is to the balancer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

from laps.coordinates import Vivaldi, distance_ms, least_ms, on_globe_km, usual_ms
from laps.infobase.metrics import coordinates_moved
from laps.relay.probing import Probing
from laps.routing.conditions import fullness
from laps.types import NodeType, format_node_id
from laps.wire.metric_fields import MAX_CANDIDATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from laps.infobase.metrics import Metrics
    from laps.infobase.nodes import Nodes
    from laps.relay.journal import Journal
    from laps.relay.peers import Links
    from laps.relay.settings import ProbeSettings
    from laps.routing.graph import Graph
    from laps.routing.policy import PolicyInForce
    from laps.types import Coordinates, NodeId, NodeMetrics

# A peer is measured all the time; the place of a node moves slowly.
PEERS_S: Final = 5.0

# What other nodes measured is looked at now and then, some nodes at a time.
CLAIMS_S: Final = 30.0
MOST_CLAIMS: Final = 100

# A place is typed to the nearest city, and clocks have their grain.
TOLERANCE: Final = 0.9
TOLERANCE_MS: Final = 0.5

# One pair may be the mistake of either; three that have one node in common are that node's.
PAIRS: Final = 3
MOST_PAIRS: Final = 1000
# A round trip that was seen once, and for this long never again, may have been measured wrong.
PROOF_S: Final = 600.0

# Who is less sure of its coordinates than this does not count.
SURE: Final = 0.5

# A Via this full is named only after all others.
FULL: Final = 0.8
BEST_VIAS: Final = 3
# Two Vias are alike as long as one is no more than this many times the burden of the other: round
# trips vary, and every other order would be news to the whole network.
ALIKE: Final = 1.2


class Known(Protocol):
    """What is known of the network, for the ways through it."""

    metrics: Metrics
    policy: PolicyInForce
    graph: Graph


class Places:
    """Where this relay and the others are."""

    def __init__(
        self,
        self_id: NodeId,
        said: tuple[float, float],
        nodes: Nodes,
        links: Links,
        known: Known,
        journal: Journal,
        settings: ProbeSettings,
        seed: int,
    ) -> None:
        """`said` is our own latitude and longitude, as configured."""
        rng = Random(seed ^ self_id)  # noqa: S311 - no secret
        self.probing = Probing(self_id, nodes, links, known.policy, known.metrics, settings, rng)
        self.own = Vivaldi(rng)
        self._self_id = self_id
        self._said = said
        self._nodes = nodes
        self._links = links
        self._metrics = known.metrics
        self._graph = known.graph
        self._journal = journal
        self._settings = settings
        self._best_vias: tuple[NodeId, ...] = ()
        "As others were told last."
        self._told: Coordinates | None = None
        "Our place as others were told last."
        self._doubts: dict[NodeId, set[NodeId]] = {}
        "Who is nearer to whom than both can be, either way round."
        self._proofs: dict[tuple[NodeId, NodeId], tuple[float, float]] = {}
        "The round trip that shows it, in milliseconds, and when it was seen."
        self._named: set[NodeId] = set()
        "Nodes that were reported to be elsewhere than they say."
        self._claims: Iterator[NodeMetrics] = iter(())
        self._peers_at = PEERS_S
        self._claims_at = CLAIMS_S

    def configure(self, settings: ProbeSettings, now: float) -> None:
        """Measure from now on, or no more."""
        self._settings = settings
        self.probing.configure(settings, now)

    # -- what others ask ---------------------------------------------------------------------------

    def round_trip(self, a: NodeId, b: NodeId) -> float | None:
        """About how many seconds a round trip between two nodes takes; None: nobody can tell."""
        if a == b:
            return 0.0
        measured = self._measured_ms(a, b)
        if measured is None:
            measured = self._measured_ms(b, a)
        if measured is None:
            measured = self._estimated_ms(a, b)
        return None if measured is None else measured / 1000

    def coordinates(self, node_id: NodeId) -> Coordinates | None:
        """Where a node is by round trips, as it says; ours as we know."""
        if node_id == self._self_id:
            return self.own.place
        metrics = self._metrics.get(node_id)
        return None if metrics is None else metrics.coordinates

    def best_vias(self, node_id: NodeId) -> tuple[NodeId, ...]:
        """The Vias that a node would be reached by, best first, as it says."""
        metrics = self._metrics.get(node_id)
        return () if metrics is None else metrics.best_vias

    def loss(self, node_id: NodeId) -> float:
        """What the path to a node that is no peer loses at least, as probes show."""
        probed = self.probing.probed(node_id)
        return 0.0 if probed is None else probed.least_loss

    def width_bps(self, node_id: NodeId) -> int:
        """What the path to a node that is no peer carries at least, as probes show; 0: unknown."""
        found = self.probing.of(node_id)
        return 0 if found is None else found.bandwidth_bps

    def want(self, node_ids: Iterable[NodeId]) -> None:
        """Have these nodes probed before others, the first of them above all."""
        self.probing.wanted = set(islice(node_ids, max(1, self._settings.count // 2)))

    def said(self, node_id: NodeId) -> tuple[float, float] | None:
        """The latitude and longitude that a node was given; None where it was given none."""
        place = self._said
        if node_id != self._self_id:
            info = self._nodes.info(node_id)
            place = (0.0, 0.0) if info is None else (info.latitude, info.longitude)
        return None if place == (0.0, 0.0) else place

    def doubted(self, node_id: NodeId) -> tuple[NodeId, ...]:
        """The nodes that one is nearer to than both can be."""
        return tuple(sorted(self._doubts.get(node_id, ())))

    def is_elsewhere(self, node_id: NodeId) -> bool:
        """Whether a node is not where it says: several that agree among themselves show it."""
        pairs = self._doubts.get(node_id, ())
        return len(pairs) >= PAIRS and all(len(self._doubts[it]) < len(pairs) for it in pairs)

    def complete(self, metrics: NodeMetrics) -> NodeMetrics:
        """Our own metrics, with what is known here of other nodes and of our place."""
        best_vias = self._best_vias = self._choose_vias(metrics)
        if not self._settings.enabled:
            return replace(metrics, best_vias=best_vias)
        return replace(
            metrics,
            best_vias=best_vias,
            coordinates=self._place_to_tell(),
            candidates=self.probing.best(MAX_CANDIDATES),
        )

    def _choose_vias(self, metrics: NodeMetrics) -> tuple[NodeId, ...]:
        """Our best Vias, and the same as last time where others are hardly better."""
        burdens = {
            it.node_id: self._burden(it.node_id, it.srtt_us)
            for it in metrics.reachability
            if self._is_via(it.node_id)
        }
        best = tuple(sorted(burdens, key=lambda it: (burdens[it], it))[:BEST_VIAS])
        before = self._best_vias
        if len(before) != len(best) or not burdens.keys() >= set(before):
            return best
        pairs = zip(before, best, strict=True)
        are_alike = all(
            burdens[a][0] == burdens[b][0] and burdens[a][1] <= ALIKE * burdens[b][1]
            for a, b in pairs
        )
        return before if are_alike else best

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Probe, and measure what is due."""
        self.probing.tick(now)
        self._take_probes(now)
        if not self._settings.enabled:
            return
        if self._peers_at <= now:
            self._peers_at = now + PEERS_S
            self._measure_peers(now)
        if self._claims_at <= now:
            self._claims_at = now + CLAIMS_S
            self._look_at_claims(now)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        due = self.probing.deadline()
        if not self._settings.enabled:
            return due
        if self.probing.measured:
            return 0.0
        mine = min(self._peers_at, self._claims_at)
        return mine if due is None else min(due, mine)

    def _take_probes(self, now: float) -> None:
        measured = self.probing.measured
        while measured:
            node_id, rtt_ms = measured.popleft()
            self._sample(node_id, rtt_ms, now)

    def _measure_peers(self, now: float) -> None:
        self.probing.vias = self._named_vias()
        for peer in self._links.peers.values():
            if not peer.is_stub and peer.nearest_srtt_us:
                self._sample(peer.node_id, peer.nearest_srtt_us / 1000, now)

    def _named_vias(self) -> set[NodeId]:
        """The Vias that most nodes would be reached by: as peers they lead to many."""
        some = islice(self._metrics, MOST_CLAIMS)
        first = Counter(it.best_vias[0] for it in some if it.best_vias)
        return {node_id for node_id, _ in first.most_common(max(1, self._settings.count // 2))}

    def _sample(self, node_id: NodeId, rtt_ms: float, now: float) -> None:
        if (place := self.coordinates(node_id)) is not None:
            self.own.sample(place, rtt_ms)
        self._check(self._self_id, node_id, rtt_ms, now)

    def _look_at_claims(self, now: float) -> None:
        """What some other nodes measured, for who is nearer than it can be."""
        some = list(islice(self._claims, MOST_CLAIMS))
        if len(some) < MOST_CLAIMS:
            self._claims = iter(self._metrics)
        for metrics in some:
            source = metrics.source_node_id
            if source == self._self_id or self.said(source) is None:
                continue
            for link in metrics.reachability:
                self._check(source, link.node_id, link.srtt_us / 1000, now)
            for it in metrics.candidates:
                self._check(source, it.node_id, it.rtt_us / 1000, now)
        for node_id in [it for it in self._doubts if self._is_gone(it)]:
            self._forget(node_id)

    # -- round trips -------------------------------------------------------------------------------

    def _measured_ms(self, a: NodeId, b: NodeId) -> float | None:
        """As one measured to the other."""
        if a == self._self_id:
            peer = self._links.peers.get(b)
            if peer is not None and peer.nearest_srtt_us:
                return peer.nearest_srtt_us / 1000
            it = self.probing.probed(b)
            return None if it is None else it.rtt_ms
        link = self._graph.links_of(a).get(b)
        if link is not None and link[0]:
            return link[0] / 1000
        metrics = self._metrics.get(a)
        found = () if metrics is None else metrics.candidates
        return next((it.rtt_us / 1000 for it in found if it.node_id == b), None)

    def _estimated_ms(self, a: NodeId, b: NodeId) -> float | None:
        one, other = self.coordinates(a), self.coordinates(b)
        if one is not None and other is not None and max(one.error, other.error) <= SURE:
            return distance_ms(one, other)
        said = self.said(a), self.said(b)
        if said[0] is None or said[1] is None:
            return None
        return usual_ms(on_globe_km(said[0], said[1]))

    def _is_via(self, node_id: NodeId) -> bool:
        peer = self._links.peers.get(node_id)
        return peer is not None and peer.info.type is NodeType.VIA and peer.sends_data

    def _burden(self, node_id: NodeId, srtt_us: int) -> tuple[bool, float]:
        """What speaks against being reached by a Via: how far it is, and how full."""
        metrics = self._metrics.get(node_id)
        load = 0.0 if metrics is None else fullness(metrics)
        return load > FULL, srtt_us * (1 + load)

    def _place_to_tell(self) -> Coordinates | None:
        """Our place; the same as last time where it has hardly moved, so that it is no news."""
        place = self.own.place
        if self._told is None or coordinates_moved(self._told, place):
            self._told = place
        return self._told

    # -- who says that it is elsewhere -------------------------------------------------------------

    def _check(self, a: NodeId, b: NodeId, rtt_ms: float, now: float) -> None:
        """Whether two nodes can be where they say, a round trip apart."""
        places = self.said(a), self.said(b)
        if places[0] is None or places[1] is None or rtt_ms <= 0:
            return
        km = on_globe_km(places[0], places[1])
        least = least_ms(km)
        pair = (a, b) if a < b else (b, a)
        near_ms, seen_at = self._proofs.get(pair, (rtt_ms, now))
        if rtt_ms > near_ms and now - seen_at < PROOF_S:
            rtt_ms = near_ms  # it was less, and nobody is nearer by chance
        else:
            seen_at = now
        if rtt_ms >= TOLERANCE * least - TOLERANCE_MS:
            self._settle(*pair)
        elif pair in self._proofs:
            self._proofs[pair] = rtt_ms, seen_at
        elif len(self._proofs) < MOST_PAIRS:
            self._proofs[pair] = rtt_ms, seen_at
            reason = (
                f"a round trip between {format_node_id(a)} and {format_node_id(b)} takes "
                f"{rtt_ms:.3g} ms, and light needs {least:.3g} ms for the {km:,.0f} km that "
                "they say"
            )
            self._doubt(*pair, reason, now)

    def _doubt(self, a: NodeId, b: NodeId, reason: str, now: float) -> None:
        """Two nodes cannot both be where they say."""
        self._doubts.setdefault(a, set()).add(b)
        self._doubts.setdefault(b, set()).add(a)
        self.probing.counters.place_doubts += 1
        for node_id in (a, b):
            if node_id not in self._named and self.is_elsewhere(node_id):
                self._named.add(node_id)
                others = " ".join(map(format_node_id, self.doubted(node_id)))
                detail = f"it is not where it says: it is too near to {others}"
                self._journal.note(now, "place_false", format_node_id(node_id), detail, reason)
                return
        if self._named.isdisjoint((a, b)):
            detail = "one of the two is not where it says"
            who = f"{format_node_id(a)} {format_node_id(b)}"
            self._journal.note(now, "place_doubted", who, detail, reason)

    def _settle(self, a: NodeId, b: NodeId) -> None:
        """Two nodes can be where they say."""
        if self._proofs.pop((a, b) if a < b else (b, a), None) is None:
            return
        for one, other in ((a, b), (b, a)):
            self._doubts[one].discard(other)
            if not self._doubts[one]:
                del self._doubts[one]
        self._named = {it for it in self._named if self.is_elsewhere(it)}

    def _is_gone(self, node_id: NodeId) -> bool:
        return node_id != self._self_id and self._nodes.best(node_id) is None

    def _forget(self, node_id: NodeId) -> None:
        for other in self.doubted(node_id):
            self._settle(node_id, other)
