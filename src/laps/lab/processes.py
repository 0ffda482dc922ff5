"""The relays of a lab as processes: their configuration, their start, their end.

Every port is chosen before the first relay starts, since relays dial each other by address; one
that somebody takes meanwhile is found out when the relay does not start, and others are chosen.
No relay outlives the lab: the kernel ends it with the process that started it.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import random
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from laps.errors import LapsError
from laps.lab.apart import Apart
from laps.types import PeerMode, format_node_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from laps.lab.network import Network
    from laps.sim.topology import Node

HOST: Final = "127.0.0.1"

# Below what Linux gives to whoever asks for any port, so that a relay that is started again finds
# its ports free.
PORTS: Final = range(20_000, 32_000)

# Twelve relays at once on two cores take some seconds; a machine that is busy takes longer.
READY_S: Final = 60.0
# Past this a relay that was asked to stop is ended.
STOP_S: Final = 6.0

# A lab shows what happens in seconds, so its relays are more eager than others: they tell of nodes
# and miss a dead peer sooner, and do not stay long when they stop.
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "relay": {"node_advertise_s": 0.25, "drain_s": 0.3},
    "clients": {"drain_s": 0.5},
    "quic": {"idle_timeout_s": 3.0, "keepalive_s": 0.5},
    "discovery": {"enabled": False},
    "demand": {"idle_s": 5.0},
    # Subscribers stay where a lab puts them, unless its file has it otherwise.
    "moving": {"per_minute": 0},
}

_PR_SET_PDEATHSIG: Final = 1


class PortTaken(LapsError):  # noqa: N818 - it says what happened
    """A relay did not start because somebody else has its port by now."""


@dataclass(slots=True)
class Way:
    """How a link is impaired, as its dialler's configuration says it."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    drop: float = 0.0
    bandwidth_mbit: float = 0.0
    "0: as wide as it is."

    def to_toml(self) -> str:
        """An inline table."""
        said = f"delay_ms = {self.delay_ms}, jitter_ms = {self.jitter_ms}, drop = {self.drop}"
        if self.bandwidth_mbit:
            said += f", bandwidth_mbit = {self.bandwidth_mbit}"
        return f"{{ {said} }}"


@dataclass(slots=True)
class Relay:
    """One relay: what it is, where it listens, and its process while it runs."""

    node: Node
    folder: Path
    clients_port: int
    peers_port: int
    admin_port: int
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: SETTINGS)
    peers: list[str] = field(default_factory=list)
    control: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    ways: dict[str, Way] = field(default_factory=dict)
    "Those of its links, by the address that is dialled."
    others: dict[str, Way] = field(default_factory=dict)
    "Those to relays that it may dial or probe besides."
    process: asyncio.subprocess.Process | None = None
    ready: bool = False
    dials: bool = False
    "Whether it knows whom to dial yet."

    @property
    def name(self) -> str:
        """Its node id, as people write it."""
        return format_node_id(self.node.id)

    @property
    def runs(self) -> bool:
        """Whether it has a process that has not ended."""
        return self.process is not None and self.process.returncode is None

    @property
    def state(self) -> str:
        """A word for people."""
        if not self.runs:
            return "down"
        return "up" if self.ready else "starting"

    @property
    def address(self) -> str:
        """Where other relays dial it."""
        return f"{HOST}:{self.peers_port}"

    @property
    def admin(self) -> str:
        """The URL of its admin API."""
        return f"http://{HOST}:{self.admin_port}"

    def url(self, protocol: str) -> str:
        """Where clients reach it."""
        return f"{protocol}://{HOST}:{self.clients_port}"

    @property
    def log(self) -> Path:
        """What it says on standard error."""
        return self.folder / f"{self.name.replace(':', '-')}.log"

    @property
    def _config(self) -> Path:
        return self.log.with_suffix(".toml")

    def write_config(self) -> None:
        """Write down what it is to read when it starts, or on SIGHUP."""
        node = self.node
        sections = {name: dict(values) for name, values in self.settings.items()}
        sections["node"] = {
            "id": self.name,
            "type": node.type,
            "region": node.region,
            "latitude": node.latitude,
            "longitude": node.longitude,
        }
        sections["peering"] = {"listen": self.address}
        if self.dials:
            lists = {"peers": self.peers, "control": self.control, "data": self.data}
            sections["peering"] |= lists
        sections["clients"]["listen"] = f"{HOST}:{self.clients_port}"
        sections["admin"] = {"listen": f"{HOST}:{self.admin_port}"}
        if node.reflect:
            sections["relay"]["reflect"] = True
        written = _toml(sections) + "\n[impairment.peers]\n"
        for peer, way in (self.others | self.ways).items():
            written += f"{json.dumps(peer)} = {way.to_toml()}\n"
        # In one step: the relay may be reading it.
        fresh = self._config.with_suffix(".new")
        fresh.write_text(written)
        fresh.replace(self._config)

    async def start(self) -> None:
        """Start the process, and wait until it says that it listens."""
        self.write_config()
        self.ready = False
        self.process = await spawn(self.log, "relay", "-v", "--config", str(self._config))
        try:
            async with asyncio.timeout(READY_S):
                line = await first_line(self.process)
        except TimeoutError:
            raise LapsError(
                f"relay {self.name} did not start within {READY_S:g} s: see {self.log}"
            ) from None
        if not line.startswith("ready "):
            await self.process.wait()
            said = self.log.read_text(errors="replace").strip().rpartition("\n")[2]
            failure = PortTaken if " is in use" in said else LapsError
            raise failure(f"relay {self.name} did not start: {said or 'it said nothing'}")
        self.ready = True

    def dial(self) -> None:
        """Let it dial its peers, now that they listen.

        Who dials nobody waits a second to try again, and what was sent in vain counts as lost on
        that connection: it would begin slowly.
        """
        self.dials = True
        self.reload()

    def reload(self) -> None:
        """Write the configuration down again, and make a relay that runs read it."""
        self.write_config()
        if self.runs and self.ready and self.process is not None:
            self.process.send_signal(signal.SIGHUP)

    async def kill(self) -> None:
        """End it without a word to anybody."""
        if self.runs and self.process is not None:
            self.process.kill()
            await self.process.wait()
        self.ready = False

    def freeze(self) -> None:
        """Let it stand still: it has its memory and its ports, and does nothing."""
        if self.runs and self.process is not None:
            self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        if self.runs and self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    async def stop(self) -> None:
        """Ask it to stop, and end it if it does not."""
        process = self.process
        if process is None or process.returncode is not None:
            return
        if not self.ready:  # it has nothing to take leave of, and perhaps no ear for signals yet
            await self.kill()
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            await self.kill()
        self.ready = False


async def spawn(log: Path, *args: str) -> asyncio.subprocess.Process:
    """A `laps` of its own, which says on a pipe where it listens, and ends when we do."""
    parent = os.getpid()
    with log.open("ab") as errors:
        return await asyncio.create_subprocess_exec(
            *program(),
            *args,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            # Ctrl-C is for the lab, which tells its processes in its own order.
            start_new_session=True,
            preexec_fn=lambda: _die_with(parent),
        )


async def first_line(process: asyncio.subprocess.Process) -> str:
    """What it says when it is ready; empty if it ends before."""
    return "" if process.stdout is None else (await process.stdout.readline()).decode()


def program() -> list[str]:
    """How `laps` is started by this Python."""
    script = Path(sys.executable).with_name("laps")
    if script.exists():
        return [sys.executable, str(script)]
    return [sys.executable, "-c", "from laps.cli import main; main()"]


_libc = ctypes.CDLL(None)


def _die_with(parent: int) -> None:
    """In the new process: end when the one that started us does, however that ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already
        os.kill(os.getpid(), signal.SIGKILL)


def relays_of(
    network: Network,
    folder: Path,
    port: int = 0,
    settings: Mapping[str, Mapping[str, Any]] = SETTINGS,
) -> dict[str, Relay]:
    """The relays of a network, not started, on ports that are free now.

    Clients reach the first Edge at `port`, if nobody has it.
    """
    ports = iter(free_ports(3 * len(network.nodes)))
    made = {
        node.id: Relay(node, folder, next(ports), next(ports), next(ports), settings)
        for node in network.nodes
    }
    edges = [relay for relay in made.values() if relay.node.type == "edge"]
    if port and edges and _is_free(port):
        edges[0].clients_port = port
    for link in network.links:
        for near, far, end in ((link.a, link.b, "a"), (link.b, link.a, "b")):
            if link.dial not in (end, "both"):
                continue
            relay, target = made[near], made[far].address
            lists = {PeerMode.BOTH: relay.peers, PeerMode.DATA: relay.data}
            lists.get(link.mode, relay.control).append(target)
            width = link.bandwidth_mbit or 0.0
            relay.ways[target] = Way(link.delay_ms, link.jitter_ms, link.loss, width)
    apart = Apart(network)
    for near, relay in made.items():
        relay.others = {
            other.address: Way(apart.ms(near, far)) for far, other in made.items() if far != near
        }
    return {relay.name: relay for relay in made.values()}


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now, neither for UDP nor for TCP."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(found) == count:
            break
        if _is_free(port):
            found.append(port)
    if len(found) < count:
        raise LapsError(f"of the ports {PORTS[0]} to {PORTS[-1]}, {count} free ones are needed")
    return found


def _is_free(port: int) -> bool:
    try:
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            with socket.socket(socket.AF_INET, kind) as probe:
                probe.bind((HOST, port))
    except OSError:
        return False
    return True


def _toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Strings, numbers, switches and lists of strings, which TOML writes as JSON does."""
    return "\n".join(_section(name, values) for name, values in sections.items())


def _section(name: str, values: Mapping[str, Any]) -> str:
    lines: Iterable[str] = (
        f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()
    )
    return "\n".join([f"[{name}]", *lines, ""])
