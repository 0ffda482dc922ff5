"""A whole network under a seed: its nodes, cables and clients, and what goes wrong with them.

    network = Network(topology, seed=7)
    network.settle()
    network.crash(node_id)
    network.settle()                    # runs until nothing changes, or says what still does

The same topology and seed give the same run, event by event.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

from laps.errors import LapsError
from laps.relay.settings import RelaySettings
from laps.sim.calling import Calling
from laps.sim.clients import Publisher, Subscriber
from laps.sim.clock import Clock
from laps.sim.dialling import Dialler
from laps.sim.lanes import Conditions, message_name
from laps.sim.links import Cable
from laps.sim.node import SimNode
from laps.sim.topology import Link
from laps.sim.trace import Trace
from laps.sim.underlay import Underlay
from laps.tracks.cache import CacheLimits
from laps.types import NodeId, format_node_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from laps.policy import Policy
    from laps.sim.lanes import Traffic
    from laps.sim.topology import Topology

    _Wire = tuple[float, float, float, float]
    "Of every cable: split, noise, extended, control_bytes."

# Nodes start within this time of each other.
START_S: Final = 0.5

# Round trip times are looked at this often.
MEASURE_S: Final = 1.0

# Nodes measure how they are this often, as net does; what they tell of it is rarer.
TELL_S: Final = 2.0

# Silence for this long is rest, if nothing is under way: longer than most control messages take.
QUIET_S: Final = 2.0
SETTLE_STEP_S: Final = 0.25

BYTES_PER_MBIT: Final = 125_000

# Enough for the groups under way; a thousand relays share the memory of one machine.
CACHE: Final = CacheLimits(total_bytes=1 << 20, track_bytes=1 << 16, age_s=10.0)


class NotSettled(LapsError):  # noqa: N818 - as in laps.errors, the name says what happened
    """A network that ought to have come to rest has not."""


@dataclass(slots=True)
class Disturbance:
    """Something that happened to the network, and when it had dealt with it."""

    time: float
    what: str
    settled_at: float

    @property
    def convergence_s(self) -> float:
        """From then to the last control message or link that changed because of it."""
        return max(0.0, self.settled_at - self.time)


class Network:
    """Relays, cables and clients, with nothing started yet."""

    def __init__(
        self,
        topology: Topology,
        seed: int,
        *,
        split: float = 0.2,
        noise: float = 0.01,
        extended: float = 0.0,
        control_bytes: float = inf,
        settings: RelaySettings | None = None,
        load: Callable[[], float] | None = None,
    ) -> None:
        """`split` and `noise` are those of `Conditions`, the next two those of `Cable`.

        With a `load` every node tells the others how it is, by what that returns.
        """
        self.topology = topology
        self.clock = Clock(seed)
        self.trace = Trace()
        self.nodes: dict[NodeId, SimNode] = {}
        "By their ids in the topology."
        self.cables: list[Cable] = []
        self.cable_ends: list[tuple[NodeId, NodeId]] = []
        self.disturbances: list[Disturbance] = []
        self._changed_at = 0.0
        defaults = settings or RelaySettings(cache=CACHE)
        for spec in topology.nodes:
            chosen = _with_reflect(defaults, reflect=spec.reflect)
            self.nodes[spec.id] = SimNode(spec, self.clock, chosen, self.trace, self._changed)
        self.underlay = Underlay(self.clock, self.nodes, noise)
        for node in self.nodes.values():
            node.underlay, node.load = self.underlay, load
        wire = split, noise, extended, control_bytes
        for link in topology.links:
            self._lay(link, *wire)
        if defaults.demand.sessions:
            for node in self.nodes.values():
                node.calling = Calling(node, self._node_at, partial(self._cable, wire))
        self.publishers = [
            Publisher(number, spec, self.nodes[spec.node])
            for number, spec in enumerate(topology.publishers)
        ]
        self.subscribers = [
            Subscriber(number, spec, self.nodes[spec.node])
            for number, spec in enumerate(topology.subscribers)
        ]
        for publisher in self.publishers:
            self.nodes[publisher.spec.node].publishers.append(publisher)
        for subscriber in self.subscribers:
            self.nodes[subscriber.spec.node].subscribers.append(subscriber)
        for node in self.nodes.values():
            self.clock.after(START_S * self.clock.rng.random(), node.start)
        self.clock.every(MEASURE_S, self._measure)
        if load is not None:
            for node in self.nodes.values():
                self.clock.after(TELL_S * self.clock.rng.random(), self._tell, node)
        self._disturbed("start")

    def _lay(
        self, link: Link, split: float, noise: float, extended: float, control_bytes: float
    ) -> None:
        cable = self._join(link, split, noise, extended, control_bytes)
        ends = self.nodes[link.a], self.nodes[link.b]
        for side, name in enumerate("ab"):
            if link.dial in (name, "both"):
                ends[side].diallers.append(Dialler(cable, side, ends, link.mode))

    def _join(
        self, link: Link, split: float, noise: float, extended: float, control_bytes: float
    ) -> Cable:
        there, back = (_conditions(link, split, noise) for _ in "ab")
        if any(self.nodes[node_id].spec.plain for node_id in (link.a, link.b)):
            extended = 0.0
        cable = Cable(self.clock, there, back, extended=extended, control_bytes=control_bytes)
        cable.sides = link.a, link.b
        self.cables.append(cable)
        self.cable_ends.append((link.a, link.b))
        self.underlay.lay(cable, link.a, link.b)
        for node_id in cable.sides:
            self.nodes[node_id].cables.append(cable)
        return cable

    def _cable(self, wire: _Wire, a: NodeId, b: NodeId) -> Cable | None:
        """What joins two nodes, laid now if nothing does; None where no packet gets there."""
        if known := self.between(a, b):
            return known[0]
        delay_s = self.underlay.delay_s(a, b)
        if delay_s is None:
            return None
        return self._join(Link(a=a, b=b, delay_ms=1000 * delay_s), *wire)

    def _node_at(self, contact: str) -> SimNode | None:
        return next((it for it in self.nodes.values() if it.contact == contact), None)

    # -- what goes wrong -------------------------------------------------------------------------

    def crash(self, node_id: NodeId, *, noticed: bool = False) -> None:
        """A node stops without a word; its peers find out at once if they notice."""
        self._disturbed(f"crash {format_node_id(node_id)}")
        self.nodes[node_id].crash(noticed=noticed)

    def stop(self, node_id: NodeId) -> None:
        """A node is stopped by its operator, and says goodbye."""
        self._disturbed(f"stop {format_node_id(node_id)}")
        self.nodes[node_id].stop()

    def restart(self, node_id: NodeId) -> None:
        """A node that is down comes back, knowing nothing; one that is up goes down first."""
        self._disturbed(f"restart {format_node_id(node_id)}")
        node = self.nodes[node_id]
        if node.relay is not None:
            node.crash(noticed=True)
        node.start()

    def renew(self, node_id: NodeId) -> None:
        """A node comes back as another, with an id of its own, and its clients with it.

        It is still called what it was called in the topology.
        """
        self._disturbed(f"renew {format_node_id(node_id)}")
        node = self.nodes[node_id]
        if node.relay is not None:
            node.crash(noticed=True)
        node.become_another()
        node.start()

    def cut(self, a: NodeId, b: NodeId) -> None:
        """Everything between two nodes is lost, and nobody is told."""
        self._disturbed(f"cut {_pair(a, b)}")
        for cable in self.between(a, b):
            cable.cut()

    def heal(self, a: NodeId, b: NodeId) -> None:
        """What was cut carries again."""
        self._disturbed(f"heal {_pair(a, b)}")
        for cable in self.between(a, b):
            cable.heal()

    def flap(self, a: NodeId, b: NodeId) -> None:
        """The connections between two nodes break, and both know."""
        self._disturbed(f"flap {_pair(a, b)}")
        for cable in self.between(a, b):
            for end in list(cable.ends):
                end.end("the connection broke")

    def set_delay(self, a: NodeId, b: NodeId, delay_s: float) -> None:
        """The way between two nodes becomes longer or shorter."""
        self._disturbed(f"delay {_pair(a, b)} {delay_s * 1000:g} ms")
        for cable in self.between(a, b):
            for lane in cable.lanes:
                lane.conditions.delay_s = delay_s

    def set_loss(self, a: NodeId, b: NodeId, loss: float) -> None:
        """The way between two nodes loses more, or less."""
        self._disturbed(f"loss {_pair(a, b)} {loss:g}")
        for cable in self.between(a, b):
            for lane in cable.lanes:
                lane.conditions.loss = loss

    def freeze(self, node_id: NodeId) -> None:
        """A node stands still: it neither reads nor sends, and its timers do not run."""
        self._disturbed(f"freeze {format_node_id(node_id)}")
        self.nodes[node_id].freeze()

    def thaw(self, node_id: NodeId) -> None:
        """A node that stood still goes on, and reads what has arrived."""
        self._disturbed(f"thaw {format_node_id(node_id)}")
        self.nodes[node_id].thaw()

    def jump(self, node_id: NodeId, seconds: float) -> None:
        """The clock of a node goes forward at once, as on a machine that slept."""
        self._disturbed(f"jump {format_node_id(node_id)} {seconds:g} s")
        self.nodes[node_id].jump(seconds)

    def split(self, *node_ids: NodeId) -> None:
        """Every link between these nodes and the rest is cut."""
        self._disturbed(f"split {_group(node_ids)}")
        for cable in self._around(node_ids):
            cable.cut()

    def join(self, *node_ids: NodeId) -> None:
        """Every link between these nodes and the rest carries again."""
        self._disturbed(f"join {_group(node_ids)}")
        for cable in self._around(node_ids):
            cable.heal()

    def _around(self, node_ids: Collection[NodeId]) -> list[Cable]:
        return [
            cable
            for cable, (a, b) in zip(self.cables, self.cable_ends, strict=True)
            if (a in node_ids) != (b in node_ids)
        ]

    def between(self, a: NodeId, b: NodeId) -> list[Cable]:
        """The cables that join two nodes."""
        return [
            cable
            for cable, ends in zip(self.cables, self.cable_ends, strict=True)
            if ends in ((a, b), (b, a))
        ]

    # -- what operators do ------------------------------------------------------------------------

    def follow_policy(self, policy: Policy | None) -> None:
        """Every relay keeps to another policy, or to none."""
        self._disturbed("policy")
        for node in self.nodes.values():
            node.follow(policy)

    # -- clients ---------------------------------------------------------------------------------

    def dismiss_clients(self) -> None:
        """Every publisher and subscriber leaves for good."""
        self._disturbed("the clients leave")
        for node in self.nodes.values():
            for client in node.clients:
                client.leave()
            node.publishers.clear()
            node.subscribers.clear()

    def part(self) -> None:
        """Every connection ends, and nobody dials any more."""
        self._disturbed("the nodes part")
        for node in self.nodes.values():
            for dialler in node.diallers:
                dialler.stop()
            node.diallers.clear()
        for cable in self.cables:
            for end in list(cable.ends):
                end.end("everybody leaves")

    # -- time ------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self.clock.now

    def run(self, seconds: float) -> None:
        """Let some time pass."""
        self.clock.run(self.now + seconds)

    def settle(self, limit_s: float = 120.0) -> float:
        """Run until nothing changes; how long the last disturbance took."""
        limit = self.now + limit_s
        self.run(SETTLE_STEP_S)
        while any(self.moving()):
            if self.now >= limit:
                what = "; ".join([*islice(self.moving(), 8), *self._busy()])
                raise NotSettled(f"after {limit_s:g} s at {self.now:.3f}: {what}")
            self.run(SETTLE_STEP_S)
        last = self.disturbances[-1]
        last.settled_at = self.changed_at
        return last.convergence_s

    @property
    def changed_at(self) -> float:
        """When the last control message was sent, or a link or node went up or down."""
        messages = (lane.traffic.last_control_at for cable in self.cables for lane in cable.lanes)
        return max(self._changed_at, max(messages, default=0.0))

    def moving(self) -> Iterator[str]:
        """What keeps the network from being at rest."""
        for cable, (a, b) in zip(self.cables, self.cable_ends, strict=True):
            for end in cable.ends:
                if not (end.is_over or end.is_answered or end.host.is_frozen):
                    yield f"{_pair(a, b)}: a connection waits for its idle timeout"
            for lane, way in zip(cable.lanes, ((a, b), (b, a)), strict=True):
                traffic = lane.traffic
                quiet_at = max(traffic.last_control_at + QUIET_S, traffic.control_until)
                if quiet_at > self.now:
                    last = message_name(traffic.last_control)
                    yield f"{_pair(*way)}: control messages, {last} the last"
        for node in self.nodes.values():
            if node.relay is not None and not (node.is_frozen or node.relay.is_idle()):
                yield f"{node.name}: the relay is not idle"
            for dialler in node.diallers:
                if dialler.is_due:
                    yield f"{node.name}: dials"
        if self._changed_at > self.now - QUIET_S:
            yield "links opened or closed a moment ago"

    def _busy(self) -> Iterator[str]:
        """What relays have that are not idle."""
        for node in self.nodes.values():
            if node.relay is not None and not (node.is_frozen or node.relay.is_idle()):
                yield f"{node.name} has {node.relay.sizes()}"

    # -- what can be seen ------------------------------------------------------------------------

    def traffic(self) -> Iterator[tuple[NodeId, NodeId, Traffic]]:
        """From, to, and what was sent."""
        for cable, (a, b) in zip(self.cables, self.cable_ends, strict=True):
            yield a, b, cable.lanes[0].traffic
            yield b, a, cable.lanes[1].traffic

    @property
    def control_messages(self) -> int:
        """All that were sent so far."""
        return sum(traffic.control_messages.total() for _, _, traffic in self.traffic())

    def _changed(self) -> None:
        self._changed_at = self.now

    def _disturbed(self, what: str) -> None:
        if self.disturbances:
            self.disturbances[-1].settled_at = self.changed_at
        self.disturbances.append(Disturbance(self.now, what, self.now))
        self._changed()

    def _tell(self, node: SimNode) -> None:
        self.clock.after(TELL_S, self._tell, node)
        node.tell()

    def _measure(self) -> None:
        for node in self.nodes.values():
            node.measure()


def _conditions(link: Link, split: float, noise: float) -> Conditions:
    rate = inf if link.bandwidth_mbit is None else link.bandwidth_mbit * BYTES_PER_MBIT
    return Conditions(
        delay_s=link.delay_ms / 1000,
        jitter_s=link.jitter_ms / 1000,
        loss=link.loss,
        bytes_per_s=rate,
        split=split,
        noise=noise,
    )


def _with_reflect(settings: RelaySettings, *, reflect: bool) -> RelaySettings:
    return replace(settings, reflect=reflect) if reflect else settings


def _group(node_ids: Collection[NodeId]) -> str:
    return "+".join(map(format_node_id, node_ids))


def _pair(a: NodeId, b: NodeId) -> str:
    return f"{format_node_id(a)}-{format_node_id(b)}"
