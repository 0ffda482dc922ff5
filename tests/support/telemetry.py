"""Relays in memory that speak of themselves, and readers of what they say.

net = TelemetryNet()
relay = net.relay("1:1")
said = net.report(relay)                     # a round a second from now on
reader = net.app(relay)
reader.subscribe("laps/telemetry/1:1/node")
net.run(3)
records(reader.objects)                      # [{"node": "1:1", …}, …]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from laps.edge.telemetry import Telemetry, TelemetrySettings
from laps.relay.ports import LinkReading, NodeReading
from laps.relay.roles import Role
from laps.types import format_node_id
from laps.wire.moqt.fetch import EndOfRange
from support.moqt import MoqtNet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from laps.relay.relay import Relay
    from support.moqt import App
    from support.relays import Clock

BEGAN_US = 1_700_000_000_000_000
"The time of day when a network begins."
FIRST = BEGAN_US // 1000
"The group that begins with it,"
END = (FIRST + 10**9, 0)
"and one that is never reached."


def rows_of(payload: bytes) -> list[dict[str, Any]]:
    """The records of an object."""
    with pa.ipc.open_stream(payload) as stream:
        rows: list[dict[str, Any]] = stream.read_all().to_pylist()
    return rows


def records(objects: Iterable[tuple[int, int, bytes]]) -> list[dict[str, Any]]:
    """The records of objects that a client got."""
    return [row for _, _, payload in objects for row in rows_of(payload)]


def fetched(app: App) -> list[dict[str, Any]]:
    """The records of the range that a client has fetched."""
    return [row for item in app.fetched.objects for row in rows_of(item.payload)]


def unknown(app: App) -> list[tuple[int, int]]:
    """Where ranges end of which the relay does not know."""
    marks = [item for item in app.fetched.items if isinstance(item, EndOfRange)]
    assert all(mark.unknown for mark in marks)
    return [(mark.group, mark.object_id) for mark in marks]


class Readings:
    """A `relay.ports.Senses` that says what a test wants."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self.node = NodeReading(0.25, 64_000_000, 1000, 2000, 0)
        self.links: list[LinkReading] = []
        self.dropped = 0
        "Groups that each peer did not keep up with."

    def read(self) -> Iterator[None]:
        self.links = [
            LinkReading(peer, 1500, 0, 100, 200, 0.0, self.dropped) for peer in self._relay.peers
        ]
        yield


class Reporting:
    """A relay's telemetry, and its timer."""

    def __init__(self, net: TelemetryNet, relay: Relay, settings: TelemetrySettings) -> None:
        self.senses = Readings(relay)
        self.telemetry = Telemetry(relay, net.edge(relay), self.senses, settings)
        self.node = format_node_id(relay.id)
        self.interval_s = 1.0
        self.steps = 0
        "Of the last round."
        self._net = net
        self._next: float | None = None
        self.start()

    def start(self) -> None:
        self.telemetry.start(self._net.now, self._wall_us)
        self._next = self._net.now + self.interval_s
        self._net.run()

    def stop(self, reason: str = "off") -> None:
        self._next = None
        self.telemetry.stop(self._net.now, reason)
        self._net.run()

    def name(self, kind: str) -> str:
        """The track of a kind."""
        return f"laps/telemetry/{self.node}/{kind}"

    @property
    def oldest(self) -> int:
        """The first group that is kept."""
        return min(self.telemetry._outputs["node"].track.cached.groups)

    @property
    def _wall_us(self) -> int:
        return BEGAN_US + round((self._net.now - self._net.began) * 1e6)

    # As `Clock`.

    def deadline(self) -> float | None:
        return self._next

    def tick(self, now: float) -> None:
        if self._next is not None and self._next <= now:
            self._next = now + self.interval_s
            self.steps = sum(1 for _ in self.telemetry.round(now, self._wall_us))


class TelemetryNet(MoqtNet):
    """Relays that speak of themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.reporting: list[Reporting] = []
        self.began = self.now

    def report(self, relay: Relay, **settings: Any) -> Reporting:
        made = Reporting(self, relay, TelemetrySettings(**settings))
        self.reporting.append(made)
        return made

    def clocks(self) -> list[Clock]:
        return [*super().clocks(), *self.reporting]

    def lone(self, **settings: Any) -> tuple[Relay, Reporting]:
        """A relay without peers."""
        relay = self.relay("1:1")
        return relay, self.report(relay, **settings)


class Region:
    """An Edge, a Via that keeps no subscribes, an Edge beyond it, and a Stub of that one."""

    def __init__(self, net: TelemetryNet) -> None:
        self.net = net
        self.near, self.far = net.relay("1:1"), net.relay("1:3")
        self.via, self.stub = net.relay("1:2", Role.VIA), net.relay("1:4", Role.STUB)
        self.relays = (self.near, self.via, self.far, self.stub)
        self.said = [net.report(relay) for relay in self.relays]
        self.first = net.wire(self.near, self.via, extended=True)
        net.wire(self.far, self.via, extended=True)
        net.wire(self.stub, self.far, extended=True)
        net.run(10)
