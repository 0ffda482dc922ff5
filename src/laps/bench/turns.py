"""How long one relay is busy in a turn of its loop, when a lot happens at once.

While a relay works on one thing, everything else that it carries waits. Each case here is something
that concerns very much: it is told to a relay in memory, and the relay is called until it has
nothing left to do, as its loop does. What is reported is the longest single call, and apart from
it the longest pause of Python's garbage collector, held as in a relay (`net/collector.py`). Both
are time of the processor: a call never waits for anything, and what else the machine does meanwhile
is not the relay's. The longest by the clock stands beside it.

    a million subscribes  each in a message of its own
    an announce           a publisher offers one namespace among a million tracks, and all of them
    a lost neighbour      in a mesh of 100, with 10,000 tracks that went there
    a lost million        the link is closed by which the subscribes of all nodes arrived
    joins                 1,000 s-relays subscribe to one track, each in a message of its own
    expiry                a million groups in the cache grow too old at the same time

This module is also the program of each case: `python -m laps.bench.turns joins 1000`.
"""

from __future__ import annotations

import gc
import json
import sys
from dataclasses import asdict, dataclass, field
from itertools import count
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Final

from laps.bench import process
from laps.bench.infobase import made_up
from laps.bench.tables import table_of_figures
from laps.edge.edge import Edge
from laps.edge.settings import EdgeSettings
from laps.errors import LapsError
from laps.infobase.nodes import SessionId
from laps.net.collector import LOOK_S, Collector
from laps.relay.relay import Relay
from laps.relay.roles import Role
from laps.relay.settings import RelaySettings
from laps.tables import Table as LargeTable
from laps.tracks.ports import Answers, Unhurried
from laps.types import (
    AnnounceInfo,
    DataDirection,
    NodeId,
    NodeInfo,
    NodePathItem,
    NodeType,
    PeerMode,
    SubscribeInfo,
    TrackName,
    hash_bytes,
    hash_track,
)
from laps.wire.control import encode
from laps.wire.peering import Connect, NodeInfoAdv, NodeInfoWd, SubscribeInfoAdv
from laps.wire.subscribe import encode_subscribe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.table import Table

    from laps.tracks.ports import OutStream
    from laps.types import TrackHash
    from laps.wire.peering import Message

# A frame of video at 50 a second: what waits longer is late.
MOST_MS: Final = 20.0

ROOM: Final = b"room-000007"


@dataclass(frozen=True, slots=True)
class Result:
    """What one case took."""

    case: str
    size: int
    longest_ms: float
    "The longest call."
    total_ms: float
    calls: int
    sent_mb: float
    "Control messages that the relay sent."
    collector_ms: float
    "The longest pause of the garbage collector, which the others do not contain."
    wall_ms: float
    "The longest call by the clock: on a machine that does nothing else it is the same."

    def holds(self) -> bool:
        """Whether it is what the project asks of itself."""
        return max(self.longest_ms, self.collector_ms) <= MOST_MS


def measure(progress: Callable[[str], None] = lambda _: None) -> list[Result]:
    """Run every case, each in a process of its own; `progress` is told what is under way."""
    results = []
    for name, (_, size) in CASES.items():
        progress(f"{name}, {size:,}")
        results += _run(name, size)
    return results


def as_mapping(results: Sequence[Result]) -> list[dict[str, object]]:
    """The results for a program."""
    return [{**asdict(result), "holds": result.holds()} for result in results]


def table(results: Sequence[Result]) -> Table:
    """The results for a person."""
    table = table_of_figures(
        "The longest that one relay is busy at a time",
        f"The project asks of itself at most {MOST_MS:g} ms.",
    )
    table.add_column("", no_wrap=True)
    for name in (
        "of",
        "longest, ms",
        "all, ms",
        "calls",
        "sent, MB",
        "collector, ms",
        "by the clock",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        table.add_row(
            result.case,
            f"{result.size:,}",
            f"{result.longest_ms:,.1f}",
            f"{result.total_ms:,.0f}",
            f"{result.calls:,}",
            f"{result.sent_mb:,.2f}",
            f"{result.collector_ms:,.1f}",
            f"{result.wall_ms:,.1f}",
        )
    return table


def _run(name: str, size: int) -> list[Result]:
    return [Result(**found) for found in process.run(__name__, name, name, size)]


# -- what a case is made of ------------------------------------------------------------------------


class _Out:
    """A stream that nobody reads."""

    over = False

    def write(self, data: bytes | memoryview, now: float) -> bool:
        return True

    def finish(self, data: bytes | memoryview, now: float) -> bool:
        self.over = True
        return True

    def reset(self, code: int, now: float) -> None:
        self.over = True

    def reorder(self, order: int) -> None:
        pass

    def abort(self, code: int) -> None:
        self.over = True


@dataclass(slots=True, eq=False)
class _Link:
    """A link whose other end takes everything."""

    id: SessionId
    srtt_us: int = 1000
    dialled: bool = False
    extended: bool = False
    remote: str = ""
    certificate: str = ""
    expected: NodeId | None = None
    opened_at: float = 0.0
    pressed: bool = False
    sent_bytes: int = 0
    control_room: float = float("inf")

    def pressed_for(self, order: int) -> bool:
        return self.pressed

    def crowded_for(self, order: int) -> bool:
        return self.pressed

    def open_control(self) -> int:
        return 0

    def send_control(self, stream_id: int, data: bytes) -> None:
        self.sent_bytes += len(data)

    def open_stream(self, priority: int, ttl_us: int, order: int) -> _Out:
        return _Out()

    def when_sent(self, call: Callable[[], None]) -> None:
        call()

    def send_datagram(self, data: bytes, priority: int, order: int) -> None:
        pass

    def end_stream(self, stream_id: int, code: int) -> None:
        pass

    def probe(self) -> None:
        pass

    def close(self, code: int, reason: str) -> None:
        raise LapsError(f"the relay closes a link: {reason}")


@dataclass(slots=True, eq=False)
class _Publisher(Unhurried):
    """A client that is asked for tracks."""

    echoes: bool = False
    answers: Answers = Answers.NEVER
    asked: LargeTable[int, None] = field(default_factory=LargeTable)

    def subscribe(self, track: TrackHash, subscribe_data: bytes) -> None:
        self.asked[track.full_name_hash] = None

    def unsubscribe(self, track: TrackHash) -> None:
        self.asked.pop(track.full_name_hash, None)

    def open_stream(self, track: TrackHash, priority: int, ttl_us: int) -> OutStream:
        return _Out()

    def send_datagram(self, track: TrackHash, data: bytes, priority: int) -> None:
        pass


class _World:
    """A relay, the peers that a case has it hear, and a clock that goes on while it works."""

    def __init__(self) -> None:
        info = NodeInfo(NodeId(9 << 32), NodeType.EDGE)
        self.relay = Relay(info, Role.EDGE, RelaySettings(), epoch=0)
        self.edge = Edge(self.relay, EdgeSettings())
        self.now = 0.0
        self.links: dict[NodeId, _Link] = {}
        self._numbers = count(1)
        self._pause = self._paused = self._pause_began = 0.0
        self._reset()
        gc.callbacks.append(self._collected)
        self._collector = Collector()
        self._look_at = perf_counter() + LOOK_S

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        now, wall = thread_time(), perf_counter()
        if phase == "start":
            self._pause_began, self._wait_began = now, wall
        else:
            self._paused += now - self._pause_began
            self._waited += wall - self._wait_began
            self._pause = max(self._pause, now - self._pause_began)

    def _reset(self) -> None:
        self._longest = self._total = self._pause = self._paused = self._pause_began = 0.0
        self._wall = self._waited = self._wait_began = 0.0
        self._calls = 0
        self._sent = sum(link.sent_bytes for link in self.links.values())

    def peer(self, node_id: NodeId) -> None:
        """A peer is there, and has introduced itself."""
        link = self.links[node_id] = _Link(SessionId(next(self._numbers)))
        self.relay.link_opened(link, self.now)
        info = NodeInfo(node_id, NodeType.EDGE)
        self.say(node_id, Connect(PeerMode.BOTH, DataDirection.BIDIRECTIONAL, info))

    def say(self, node_id: NodeId, *messages: Message) -> None:
        data = b"".join(map(encode, messages))
        self.relay.link_data(self.links[node_id], 0, data, False, self.now)

    def tell(self, node_id: NodeId, messages: Iterable[SubscribeInfo]) -> None:
        """Many subscribes, in no hurry."""
        for info in messages:
            self.call(lambda info=info: self.say(node_id, SubscribeInfoAdv(info)))  # type: ignore[misc]

    def call(self, call: Callable[[], None]) -> None:
        """Something happens; what follows from it is done at once or by the loop."""
        self._timed(call)
        self.settle(self._timed)

    def settle(self, run: Callable[[Callable[[], None]], None] | None = None) -> None:
        """Call the relay as long as it wants to be called now."""
        while self._is_due():
            run(self._turn) if run is not None else self._turn()
            self.now += 0.0001

    def _is_due(self) -> bool:
        due = (self.relay.deadline(), self.edge.deadline())
        return any(at is not None and at <= self.now for at in due)

    def _turn(self) -> None:
        self.relay.tick(self.now)
        self.edge.tick(self.now)
        while self.relay.events:
            self.edge.observe(self.relay.events.popleft(), self.now)

    def _timed(self, call: Callable[[], None]) -> None:
        began, started = perf_counter(), thread_time()
        paused, waited = self._paused, self._waited
        call()
        spent = thread_time() - started - (self._paused - paused)
        wall = perf_counter() - began - (self._waited - waited)
        self._longest = max(self._longest, spent)
        self._wall = max(self._wall, wall)
        self._total += spent
        self._calls += 1
        if perf_counter() >= self._look_at:
            started = thread_time()
            self._collector.look()
            self._pause = max(self._pause, thread_time() - started)
            self._look_at = perf_counter() + LOOK_S

    def wait(self, seconds: float) -> None:
        """Time passes, and what falls due is done."""
        end = self.now + seconds
        while True:
            due = [at for at in (self.relay.deadline(), self.edge.deadline()) if at is not None]
            if not due or min(due) > end:
                break
            self.now = max(self.now, min(due))
            self.settle(self._timed)
        self.now = end

    def ready(self, seconds: float = 6.0) -> None:
        """Everything is set up, and has settled: count from here."""
        self.wait(seconds)
        self._collector.look()
        self._reset()

    def result(self, case: str, size: int) -> Result:
        sent = sum(link.sent_bytes for link in self.links.values()) - self._sent
        times = self._longest, self._total, self._pause, self._wall
        longest, total, pause, wall = (it * 1e3 for it in times)
        calls = self._calls
        self._reset()
        return Result(case, size, longest, total, calls, sent / 1e6, pause, wall)


def _node(number: int) -> NodeId:
    return NodeId(1 << 48 | number)


def _beyond(world: _World, peer: NodeId, nodes: int) -> None:
    """A peer tells of nodes beyond it."""
    by = NodePathItem(peer, 1000)
    for number in range(nodes):
        world.say(peer, NodeInfoAdv(NodeInfo(_node(number), NodeType.EDGE, path=(by,))))


def _announce(*parts: bytes) -> AnnounceInfo:
    return AnnounceInfo(NodeId(0), tuple(map(hash_bytes, parts)), 0)


# -- the cases -------------------------------------------------------------------------------------


def _announces(size: int) -> list[Result]:
    world, peer = _World(), NodeId(1)
    world.peer(peer)
    _beyond(world, peer, 1000)
    world.ready()
    world.tell(peer, made_up(size, 1000, size))
    results = [world.result("subscribes arrive", size)]
    world.ready()
    for case, parts in (("announce of a room", (ROOM,)), ("announce of all", ())):
        publisher = _Publisher()
        info = _announce(b"conference.example", *parts)
        world.call(lambda p=publisher, i=info: world.relay.announce(p, i, world.now))  # type: ignore[misc]
        found = world.result(case, size)
        if len(publisher.asked) != (20 if parts and size > 160 else size):
            raise LapsError(f"{case}: {len(publisher.asked):,} tracks were asked for")
        results.append(found)
    return results


def _neighbour(size: int) -> list[Result]:
    world, nodes = _World(), [NodeId(1 << 32 | number) for number in range(1, 100)]
    lost = nodes[50]
    for node_id in nodes:
        world.peer(node_id)
    for peer in nodes:
        by = NodePathItem(peer, 1000)
        for node_id in nodes:
            if node_id != peer:
                world.say(peer, NodeInfoAdv(NodeInfo(node_id, NodeType.EDGE, path=(by,))))
    publisher = _Publisher()
    world.relay.announce(publisher, _announce(b"conference.example"), world.now)
    for number in range(size):
        name = TrackName((b"conference.example",), b"cam-%07d" % number)
        hashes, data = hash_track(name), encode_subscribe(name)
        for wanting in (lost, nodes[number % 50]):
            info = SubscribeInfo(1, wanting, hashes, data)
            world.tell(wanting, [info])
    world.ready()
    link = world.links[lost]
    world.call(lambda: world.relay.link_closed(link, world.now))
    world.wait(0.5)
    results = [world.result("a neighbour is lost", size)]
    for peer in nodes:
        if peer != lost:
            by = NodePathItem(peer, 1000)
            gone = NodeInfoWd(NodeInfo(lost, NodeType.EDGE, path=(by,)))
            world.call(lambda p=peer, m=gone: world.say(p, m))  # type: ignore[misc]
    world.wait(5.0)
    return [*results, world.result("nobody leads to it any more", size)]


def _million(size: int) -> list[Result]:
    world, peer = _World(), NodeId(1)
    world.peer(peer)
    _beyond(world, peer, 100)
    world.tell(peer, made_up(size, 100, size))
    world.ready()
    link = world.links[peer]
    world.call(lambda: world.relay.link_closed(link, world.now))
    world.wait(5.0)
    if len(world.relay.subscribes):
        raise LapsError(f"{len(world.relay.subscribes):,} subscribes are left")
    return [world.result("subscribes lost at once", size)]


def _joins(size: int) -> list[Result]:
    world, peer = _World(), NodeId(1)
    world.peer(peer)
    _beyond(world, peer, size)
    name = TrackName((b"conference.example",), b"cam")
    publisher = _Publisher()
    world.relay.announce(publisher, _announce(b"conference.example"), world.now)
    world.ready()
    hashes, data = hash_track(name), encode_subscribe(name)
    for number in range(size):
        join = SubscribeInfoAdv(SubscribeInfo(1, _node(number), hashes, data))
        world.call(lambda m=join: world.say(peer, m))  # type: ignore[misc]
        world.wait(0.001)
    world.wait(1.0)
    return [world.result("s-relays join a track", size)]


def _expiry(size: int) -> list[Result]:
    world = _World()
    tracks, each = max(1, size // 100), 100
    for number in range(tracks):
        name = TrackName((b"conference.example",), b"cam-%07d" % number)
        track = world.relay.tracks.track(hash_track(name), world.now, name)
        for group in range(each):
            track.cached.group(group, world.now).add_datagram(0, b"x", world.now)
    world.ready(0.0)
    world.wait(30.0)
    results = [world.result("nothing expires, 30 s", size)]
    world.wait(60.0)
    if len(world.relay.tracks):
        raise LapsError(f"{len(world.relay.tracks):,} tracks are left")
    return [*results, world.result("groups expire at once", size)]


CASES: Final[dict[str, tuple[Callable[[int], list[Result]], int]]] = {
    "announces": (_announces, 1_000_000),
    "neighbour": (_neighbour, 10_000),
    "million": (_million, 1_000_000),
    "joins": (_joins, 1_000),
    "expiry": (_expiry, 1_000_000),
}


def _main(name: str, size: str) -> None:
    results = CASES[name][0](int(size))
    sys.stdout.write(json.dumps([asdict(result) for result in results]) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
