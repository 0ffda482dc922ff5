"""Which nodes that are no peers are probed, when, and what came of it.

A relay knows its peers by the links to them. Of other nodes it knows what they say and what others
say of them; how far they are from here, by the way that packets to them would take, only a probe
can tell (`wire.probe`). So some of them are candidates, and each is sent a short train of probes
now and then:

- the round trip is that of the fastest of a train, since the others queue after it;
- what is not answered within LOST_S is lost, and the loss is that of the last MOST_RESULTS;
- the probes of a train leave together, so what lies between their answers is what the narrowest
  place of the path takes for each. That is coarse, and coarser the busier either side is.

A shell sends the trains in `outgoing` and says what became of them: `sent`, `answered`. What it
cannot send, because a name has no address, it does not. How much is probed is bounded, in nodes
and in packets a second.

It may be that somebody names the address of another. So there is one candidate for an address,
however many nodes name it, and hosts where nobody has ever answered are probed ever more seldom,
under whatever names and ports.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from statistics import median_low
from typing import TYPE_CHECKING, Final, NamedTuple

from laps.types import Candidate, NodeType

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from laps.infobase.metrics import Metrics
    from laps.infobase.nodes import Nodes
    from laps.relay.peers import Links
    from laps.relay.settings import ProbeSettings
    from laps.routing.policy import PolicyInForce
    from laps.types import NodeId, NodeInfo

# Enough to see that one of some is lost, and small enough to be nobody's burden: 4.8 kB.
TRAIN: Final = 4
PROBE_BITS: Final = 8 * 1200

# Twice around the earth, and a relay that is busy.
LOST_S: Final = 3.0

# The loss is that of so many, eight trains: the last minutes.
MOST_RESULTS: Final = 32
# So many of them may be lost by chance.
BY_CHANCE: Final = 2
MOST_WIDTHS: Final = 8

# A new train counts a quarter.
SMOOTHING: Final = 0.25

# One node is not asked more often than this, even if it is the only one.
EACH_S: Final = 15.0
# One that did not answer is asked after twice the time, again and again, up to this.
MOST_EACH_S: Final = 900.0

# How often it is looked at who is a candidate, and of how many nodes at a time, at 3 µs each.
REVIEW_S: Final = 10.0
# The same while there is room for more, so that a relay that has just come knows its ways soon.
FILL_S: Final = 1.0
MOST_LOOKED_AT: Final = 500
# Of a full list a quarter makes room for others now and then, so that all nodes have their turn.
TURN_S: Final = 300.0
TURNING: Final = 4

# Answers closer together than this cannot be told apart from those that were read together.
LEAST_SPREAD_S: Final = 0.0002

# Hosts where nobody has answered yet are remembered, the latest of them.
MOST_SILENT: Final = 1000

NUMBERS: Final = 1 << 64


@dataclass(slots=True)
class ProbeCounters:
    """What was probed, for the operator."""

    probes_sent: int = 0
    probes_answered: int = 0
    probes_lost: int = 0
    probes_late: int = 0
    "Answers that came when the probe was taken for lost, or had been answered."
    place_doubts: int = 0
    "Pairs of nodes nearer to each other than light allows, if they are where they say."


@dataclass(slots=True, eq=False)
class Train:
    """Some probes to one node, sent together."""

    node_id: NodeId
    contact: str
    "Where the node says that others reach it."
    first: int
    "The number of the first probe; those of the others follow."
    size: int
    sent_at: float = 0.0
    arrived: dict[int, float] = field(default_factory=dict)
    "When each answer came."

    @property
    def numbers(self) -> Iterator[int]:
        """The numbers of its probes."""
        return ((self.first + it) % NUMBERS for it in range(self.size))


@dataclass(slots=True, eq=False)
class Probed:
    """A candidate, and what is known of it."""

    node_id: NodeId
    contact: str
    since_at: float
    again_at: float
    probed_at: float | None = None
    "When it was sent a train last."
    rtt_ms: float | None = None
    "Smoothed; None: no answer has come yet."
    unanswered: int = 0
    "Trains in a row that nobody answered."
    results: deque[bool] = field(default_factory=lambda: deque(maxlen=MOST_RESULTS))
    "Which of the last probes were answered."
    widths_bps: deque[int] = field(default_factory=lambda: deque(maxlen=MOST_WIDTHS))
    "What the last trains showed the path to carry."

    def waits(self, now: float) -> bool:
        """Whether nobody has answered yet, and it is not asked for now."""
        return self.rtt_ms is None and self.again_at > now

    @property
    def loss(self) -> float:
        """The share of the last probes that nobody answered."""
        return self.results.count(False) / len(self.results) if self.results else 0.0

    @property
    def least_loss(self) -> float:
        """What the path loses at least, whatever was lost by chance."""
        beyond = self.results.count(False) - BY_CHANCE
        return beyond / len(self.results) if beyond > 0 else 0.0


class _Silence(NamedTuple):
    """A host where nobody has ever answered."""

    trains: int
    again_at: float
    "When it may be sent the next one."


_NO_SILENCE: Final = _Silence(0, 0.0)


class Probing:
    """The candidates of one relay."""

    def __init__(
        self,
        self_id: NodeId,
        nodes: Nodes,
        links: Links,
        policy: PolicyInForce,
        metrics: Metrics,
        settings: ProbeSettings,
        rng: Random,
    ) -> None:
        self.counters = ProbeCounters()
        self.outgoing: deque[Train] = deque()
        "What the shell is to send, and takes."
        self.measured: deque[tuple[NodeId, float]] = deque()
        "Round trips in milliseconds, one for each train that was answered; `Places` takes them."
        self.wanted: set[NodeId] = set()
        "Nodes that are candidates before others, as somebody has use for them and says so here."
        self.vias: set[NodeId] = set()
        "The Vias that most nodes would be reached by, which come next."
        self._self_id = self_id
        self._nodes = nodes
        self._links = links
        self._policy = policy
        self._metrics = metrics
        self._settings = settings
        self._rng = rng
        self._candidates: dict[NodeId, Probed] = {}
        self._silent: dict[str, _Silence] = {}
        "By host; the one that was probed last is the last."
        self._unseen: Iterator[NodeId] = iter(())
        "Nodes that were not looked at in this round."
        self._waiting: dict[int, Train] = {}
        "By the number of each probe that is neither answered nor lost."
        self._flying: deque[Train] = deque()
        "In the order in which they were sent."
        self._number = rng.getrandbits(64)
        self._review_at = 0.0
        self._train_at = 0.0
        self._turned_at = 0.0

    def __len__(self) -> int:
        return len(self._candidates)

    def __iter__(self) -> Iterator[Probed]:
        """The candidates, in the order of their ids."""
        return iter(sorted(self._candidates.values(), key=lambda it: it.node_id))

    def configure(self, settings: ProbeSettings, now: float) -> None:
        """Probe more from now on, or less, or nothing."""
        self._settings = settings
        if not self._is_on:
            self._candidates.clear()
            self.outgoing.clear()
        while len(self._candidates) > settings.count:
            self._candidates.popitem()
        self._review_at = now

    def probed(self, node_id: NodeId) -> Probed | None:
        """What is known of a candidate; None where it is none."""
        return self._candidates.get(node_id)

    def of(self, node_id: NodeId) -> Candidate | None:
        """What probes have found of a node; None where none was answered."""
        it = self._candidates.get(node_id)
        if it is None or it.rtt_ms is None:
            return None
        return Candidate(node_id, round(1000 * it.rtt_ms), it.loss, self._width_bps(it))

    def best(self, most: int) -> tuple[Candidate, ...]:
        """The nearest of those that answered, in the order of their ids."""
        found = [it for node_id in self._candidates if (it := self.of(node_id)) is not None]
        near = nsmallest(most, found, key=lambda it: (it.loss >= 0.5, it.rtt_us, it.node_id))
        return tuple(sorted(near, key=lambda it: it.node_id))

    def _width_bps(self, it: Probed) -> int:
        """What the path to it carries, and no more than it has left of what it can send."""
        if not it.widths_bps:
            return 0
        width = median_low(it.widths_bps)
        metrics = self._metrics.get(it.node_id)
        if metrics is not None and metrics.capacity_bps:
            width = min(width, max(0, metrics.capacity_bps - metrics.egress_bps))
        return width // 1000 * 1000

    # -- what the shell says -----------------------------------------------------------------------

    def sent(self, train: Train, now: float) -> None:
        """A train is on its way."""
        it = self._candidates.get(train.node_id)
        if it is None or it.contact != train.contact:
            return
        train.sent_at = it.probed_at = now
        self.counters.probes_sent += train.size
        self._waiting.update(dict.fromkeys(train.numbers, train))
        self._flying.append(train)

    def answered(self, number: int, now: float) -> bool:
        """The answer to one of our probes came; False: nobody waits for it any more."""
        train = self._waiting.pop(number, None)
        if train is None or not 0 <= now - train.sent_at <= LOST_S:
            self.counters.probes_late += 1
            if train is not None:
                self._waiting[number] = train  # it is lost when its time comes
            return False
        self.counters.probes_answered += 1
        train.arrived[number] = now
        if len(train.arrived) == train.size:
            self._flying.remove(train)
            self._over(train)
        return True

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Take for lost what is, look who is a candidate, and make the next train."""
        while self._flying and self._flying[0].sent_at + LOST_S < now:
            train = self._flying.popleft()
            for number in train.numbers:
                self.counters.probes_lost += self._waiting.pop(number, None) is not None
            self._over(train)
        if not self._is_on:
            return
        if self._review_at <= now:
            self._review(now)
            is_full = len(self._candidates) >= self._settings.count
            self._review_at = now + (REVIEW_S if is_full else FILL_S)
        if self._train_at <= now:
            self._make_train(now)

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        # A moment later than lost: what comes at the very end counts.
        due = [self._flying[0].sent_at + LOST_S + 0.001] if self._flying else []
        if self._is_on:
            due.append(self._review_at)
            if self._candidates:
                first = min(it.again_at for it in self._candidates.values())
                due.append(max(self._train_at, first))
        return min(due, default=None)

    @property
    def _is_on(self) -> bool:
        return self._settings.enabled and self._settings.count > 0

    def _make_train(self, now: float) -> None:
        it = min(self._candidates.values(), key=lambda it: (it.again_at, it.node_id), default=None)
        if it is None or it.again_at > now:
            return
        # On average it is the rate that was asked for, and no two relays stay in step.
        self._train_at = now + TRAIN / self._settings.rate * self._rng.uniform(0.75, 1.25)
        wait_s = min(MOST_EACH_S, EACH_S * 2.0**it.unanswered)
        it.again_at = now + wait_s * self._rng.uniform(0.9, 1.1)
        self.outgoing.append(Train(it.node_id, it.contact, self._number, TRAIN))
        self._number = (self._number + TRAIN) % NUMBERS

    def _over(self, train: Train) -> None:
        """Nothing more is expected of a train."""
        it = self._candidates.get(train.node_id)
        if it is None or it.contact != train.contact:
            return
        arrived = sorted(train.arrived.values())
        it.results.extend([True] * len(arrived) + [False] * (train.size - len(arrived)))
        if not arrived:
            it.unanswered = min(it.unanswered + 1, 16)
            self._is_silent(it, train.sent_at)
            return
        it.unanswered = 0
        self._silent.pop(_host(it.contact), None)
        rtt_ms = 1000 * (arrived[0] - train.sent_at)
        it.rtt_ms = rtt_ms if it.rtt_ms is None else it.rtt_ms + SMOOTHING * (rtt_ms - it.rtt_ms)
        self.measured.append((it.node_id, rtt_ms))
        if len(arrived) > 2:
            spread_s = max(arrived[-1] - arrived[0], LEAST_SPREAD_S)
            it.widths_bps.append(round((len(arrived) - 1) * PROBE_BITS / spread_s))

    def _is_silent(self, it: Probed, at: float) -> None:
        """Nobody has answered at a host, and nobody has before: it is left alone for longer."""
        if it.rtt_ms is not None:
            return
        host = _host(it.contact)
        known = self._silent.pop(host, None)
        trains = 1 if known is None else min(known.trains + 1, 16)
        if len(self._silent) >= MOST_SILENT:
            del self._silent[next(iter(self._silent))]
        again_at = at + min(MOST_EACH_S, EACH_S * 2.0**trains)
        self._silent[host] = _Silence(trains, again_at)
        others = [
            other
            for other in self._candidates.values()
            if other is not it and other.rtt_ms is None and _host(other.contact) == host
        ]
        for other in others:
            other.again_at = max(other.again_at, again_at)
        if others:  # one of them may be there, and comes first
            it.again_at = max(it.again_at, again_at + EACH_S)

    # -- who is a candidate ------------------------------------------------------------------------

    def _review(self, now: float) -> None:
        for node_id, it in list(self._candidates.items()):
            info = self._nodes.info(node_id)
            if info is None or not self._may_probe(info) or info.contact != it.contact:
                del self._candidates[node_id]
        seen = set(islice(self._unseen, MOST_LOOKED_AT))
        if len(seen) < MOST_LOOKED_AT:
            self._unseen = iter(self._nodes)
            seen.update(islice(self._unseen, MOST_LOOKED_AT - len(seen)))
        seen |= self.wanted | self.vias
        seen -= self._candidates.keys()
        # To be rid of the nearest first is not wanted either: who came first goes first.
        infos = [info for node_id in seen if (info := self._nodes.info(node_id)) is not None]
        infos = [info for info in infos if self._may_probe(info)]
        contacts = {it.contact for it in self._candidates.values()}
        for info in nsmallest(self._settings.count, infos, key=lambda it: self._rank(it, now)):
            again_at = self._again_at(info)
            is_full = len(self._candidates) >= self._settings.count
            if info.contact in contacts or (is_full and again_at > now):
                continue
            if is_full and not self._make_room(info, now):
                break
            contacts.add(info.contact)
            self._candidates[info.id] = Probed(info.id, info.contact, now, max(now, again_at))

    def _may_probe(self, info: NodeInfo) -> bool:
        """Whether a node may be asked: a Stub is behind a NAT, and a peer is known by its link."""
        return (
            info.type is not NodeType.STUB
            and info.id != self._self_id
            and bool(info.contact)
            and info.id not in self._links.peers
            and self._policy.may_peer(info.id)
        )

    def _rank(self, info: NodeInfo, now: float) -> tuple[bool, bool, bool, float]:
        """The lowest are the most useful to know of; of those that are alike any."""
        is_via = info.type is NodeType.VIA
        is_silent = self._again_at(info) > now
        return is_silent, not self._is_wanted(info.id), not is_via, self._rng.random()

    def _again_at(self, info: NodeInfo) -> float:
        """When a node that is no candidate yet may be probed, for the silence of its host."""
        return self._silent.get(_host(info.contact), _NO_SILENCE).again_at

    def _is_wanted(self, node_id: NodeId) -> bool:
        return node_id in self.wanted or node_id in self.vias

    def _make_room(self, info: NodeInfo, now: float) -> bool:
        """Whether one that is less useful, or was there for long, leaves the list."""
        others = [it for it in self._candidates.values() if not self._is_wanted(it.node_id)]
        if not others:
            return False
        oldest = min(others, key=lambda it: (not it.waits(now), it.since_at, it.node_id))
        if not self._is_wanted(info.id) and not oldest.waits(now):
            if now - oldest.since_at < TURN_S or now - self._turned_at < TURN_S / TURNING:
                return False
            self._turned_at = now
        del self._candidates[oldest.node_id]
        return True


def _host(contact: str) -> str:
    """Whose machine it is: the contact without its port."""
    return contact.rpartition(":")[0] or contact
