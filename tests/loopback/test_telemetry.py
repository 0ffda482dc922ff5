"""Telemetry of real relays, each a process of its own, read by an application with pyarrow."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import signal
import subprocess
import textwrap
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

import laps
from laps.config import Config, override
from laps.errors import RequestRefused
from laps.net.runner import Runner
from laps.telemetry.records import KINDS
from laps.types import Location
from support.loopback import until
from support.programs import LAPS, READY
from support.telemetry import rows_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from laps.client import Session

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "telemetry.md"

# Everything happens soon: a peer that is gone without a word too.
SETTINGS = """
[telemetry]
interval_s = 0.2
{telemetry}
[relay]
node_advertise_s = 0.05
drain_s = 0.1
[clients]
drain_s = 0.1
[quic]
idle_timeout_s = 1.5
keepalive_s = 0.3
[discovery]
enabled = false
[node]
region = "{region}"
latitude = 52.5
capacity_bps = 1_000_000_000
"""

Row = dict[str, Any]

# Four programs that start one after the other take a while where the machine is busy.
TEST_LIMIT_S = 60.0


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """As `support.loopback.on_loop`, with more time."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        uvloop.run(asyncio.wait_for(test(*args, **kwargs), TEST_LIMIT_S))

    return run


class Relay:
    """A relay in a process of its own, that can be killed and started again."""

    def __init__(self, folder: Path, node: str, *args: str, telemetry: str = "") -> None:
        self.node = node
        self.clients = self.peers = "127.0.0.1:0"
        self.config = folder / f"{node.replace(':', '-')}.toml"
        self.log = self.config.with_suffix(".log")
        self.write(telemetry)
        self._args = args
        self._process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"moqt://{self.clients}"

    def write(self, telemetry: str) -> None:
        self.config.write_text(SETTINGS.format(region=f"r{self.node}", telemetry=telemetry))

    def start(self) -> None:
        """As before, on the same ports."""
        command = [LAPS, "relay", "-v", "--config", str(self.config), "--node-id", self.node]
        command += ["--listen", self.clients, "--peer-listen", self.peers, *self._args]
        with self.log.open("a") as errors:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        ready = READY.fullmatch(line)
        assert ready is not None, line or self.log.read_text()
        self.clients = self.clients if ready[1] == "none" else ready[1]
        self.peers = self.peers if ready[2] == "none" else ready[2]

    def send(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    async def end(self, number: int = signal.SIGTERM) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        status = await asyncio.to_thread(process.wait, 20)
        assert process.stdout is not None
        process.stdout.close()
        return status


class Reader:
    """Reads tracks of telemetry, and keeps their records."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.rows: dict[tuple[str, str], list[Row]] = {}
        self.places: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def follow(self, node: str, *kinds: str, start: Any = "start") -> None:
        for kind in kinds or KINDS:
            self.rows[node, kind], self.places[node, kind] = [], []
            self.tasks.append(asyncio.ensure_future(self._follow(node, kind, start)))

    async def _follow(self, node: str, kind: str, start: Any) -> None:
        async for obj in self.session.subscribe(f"laps/telemetry/{node}", kind, start=start):
            self.places[node, kind].append((obj.group, obj.id))
            self.rows[node, kind] += rows_of(obj.payload)

    def check(self) -> None:
        """None of the readers has failed."""
        for task in self.tasks:
            assert not task.done() or task.exception() is None, task

    async def until(self, condition: Callable[[], object]) -> None:
        def holds() -> bool:
            self.check()
            return bool(condition())

        await until(holds)

    def events(self, node: str, name: str) -> list[tuple[str, str, str]]:
        rows = self.rows[node, "events"]
        told = [row for row in rows if row["event"] == name]
        return [(row["subject"], row["detail"], row["reason"]) for row in told]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@asynccontextmanager
async def reading(relay: Relay) -> AsyncIterator[Reader]:
    async with laps.connect(relay.url) as session:
        reader = Reader(session)
        try:
            yield reader
        finally:
            await reader.stop()


class Region:
    """Two Edges with a Via between them, and a Stub of the second."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.near = self._relay("1:1")
        self.via = self._relay("1:2", "--type", "via", "--reflect", "--peer", self.near.peers)
        self.far = self._relay("1:3", "--peer", self.via.peers)
        self.stub = self._relay("1:4", "--type", "stub", "--peer", self.far.peers)
        self.nodes = ("1:1", "1:2", "1:3", "1:4")

    def _relay(self, node: str, *args: str) -> Relay:
        relay = Relay(self._folder, node, *args)
        self._stack.push_async_callback(relay.end)
        return relay


@asynccontextmanager
async def region(folder: Path) -> AsyncIterator[Region]:
    async with AsyncExitStack() as stack:
        yield Region(folder, stack)


def total(rows: list[Row], column: str) -> int:
    return sum(row[column] for row in rows)


def about(rows: list[Row], name: str) -> list[Row]:
    return [row for row in rows if (row["namespace"], row["track"]) == ("demo", name)]


@on_loop
async def test_a_client_at_one_edge_reads_every_relay_of_the_network(tmp_path: Path) -> None:
    async with region(tmp_path) as net, reading(net.near) as reader:
        for node in net.nodes:
            reader.follow(node)
        await reader.until(lambda: all(reader.rows[node, "node"] for node in net.nodes))
        async with (
            laps.connect(net.near.url) as publisher,
            laps.connect(net.far.url) as there,
            laps.connect(net.far.url) as again,
            laps.connect(net.stub.url) as home,
        ):
            track = await publisher.publish("demo", "t")
            subscribers = [session.subscribe("demo", "t") for session in (there, again, home)]
            for subscriber in subscribers:
                await subscriber.established()
            sent = [bytes([number]) * 10_000 for number in range(20)]
            for payload in sent:
                await track.write(payload, new_group=True)
            for subscriber in subscribers:
                assert [(await anext(subscriber)).payload for _ in sent] == sent
            size = sum(map(len, sent))

            def arrived(node: str) -> bool:
                rows = about(reader.rows[node, "tracks"], "t")
                return total(rows, "received_bytes") >= size

            await reader.until(lambda: all(arrived(node) for node in ("1:1", "1:3", "1:4")))
            key = about(reader.rows["1:1", "tracks"], "t")[0]["track_hash"]

            def of_track(node: str) -> list[Row]:
                return [r for r in reader.rows[node, "tracks"] if r["track_hash"] == key]

            await reader.until(lambda: total(of_track("1:2"), "received_bytes") >= size)
            expected = {  # copies, subscribers, egress, origin
                "1:1": (1, 0, ["1:2"], True),
                "1:2": (1, 0, ["1:3"], False),
                "1:3": (3, 3, [], False),
                "1:4": (1, 1, [], False),
            }
            for node, (copies, number, egress, origin) in expected.items():
                rows = of_track(node)
                received = total(rows, "received_bytes")
                assert size < received < 1.1 * size, node
                assert total(rows, "sent_bytes") == copies * received, node
                last = rows[-1]
                assert (last["subscribers"], last["egress"], last["origin"]) == (
                    number,
                    egress,
                    origin,
                ), node

        def carried(node: str) -> bool:
            rows = reader.rows[node, "node"]
            return min(total(rows, "received_bytes"), total(rows, "sent_bytes")) > size

        await reader.until(lambda: all(map(carried, net.nodes)))
        roles = {node: reader.rows[node, "node"][-1]["role"] for node in net.nodes}
        assert list(roles.values()) == ["edge", "via", "edge", "stub"]
        peers = {"1:1": {"1:2"}, "1:2": {"1:1", "1:3"}, "1:3": {"1:2", "1:4"}, "1:4": {"1:3"}}
        for node in net.nodes:
            rows = reader.rows[node, "node"]
            assert rows[-1]["region"] == f"r{node}"
            assert rows[-1]["latitude"] == 52.5
            assert rows[-1]["memory_bytes"] > 20_000_000
            assert rows[-1]["peers"] == len(peers[node])
            assert all(0 <= row["load"] <= 1 for row in rows)
            assert (max(row["clients"] for row in rows) > 0) is (node != "1:2")
            links = reader.rows[node, "links"]
            assert {row["peer"] for row in links} == peers[node]
            assert all(row["srtt_us"] > 0 for row in links)
            assert all(row["loss"] == 0.0 for row in links)
            known = [row["capacity_bps"] for row in links]
            assert known[-1] == 1_000_000_000
            assert reader.events(node, "started") == [(node, roles[node], "")]
            ups = {subject for subject, _, _ in reader.events(node, "peer_up")}
            assert ups == peers[node]
        passed = [row for row in reader.rows["1:1", "links"] if row["peer"] == "1:2"]
        assert total(passed, "sent_bytes") > size
        paths = reader.events("1:1", "path_changed")
        assert ("1:3", "nobody to 1:2", "only path") in paths


@on_loop
async def test_a_peer_that_is_killed_is_an_event_and_so_is_the_way_that_is_lost(
    tmp_path: Path,
) -> None:
    async with region(tmp_path) as net, reading(net.near) as reader:
        reader.follow("1:1", "events", "links")
        reader.follow("1:3", "events")
        await reader.until(lambda: ("1:3", "nobody to 1:2", "only path") in changed(reader))
        await reader.until(lambda: ("1:4", "stub for both", "") in reader.events("1:3", "peer_up"))
        await net.stub.end(signal.SIGKILL)
        await reader.until(lambda: reader.events("1:3", "peer_down"))
        ((subject, _, reason),) = reader.events("1:3", "peer_down")
        assert subject == "1:4"
        assert "idle timeout" in reason.lower() or "no answer" in reason.lower(), reason
        await net.via.end(signal.SIGKILL)
        await reader.until(lambda: reader.events("1:1", "peer_down"))
        lost = "no way leads there any more"
        await reader.until(lambda: ("1:3", "1:2 to nobody", lost) in changed(reader))
        assert reader.events("1:1", "peer_down")[0][0] == "1:2"


def changed(reader: Reader) -> list[tuple[str, str, str]]:
    return reader.events("1:1", "path_changed")


async def largest(session: Session, node: str) -> Location:
    info = await session.track_status(f"laps/telemetry/{node}", "node")
    assert info.largest is not None
    return info.largest


@on_loop
async def test_a_reader_that_was_away_fetches_what_it_has_missed(tmp_path: Path) -> None:
    async with region(tmp_path) as net, laps.connect(net.near.url) as session:
        for node in net.nodes:
            async with reading(net.near) as reader:
                reader.follow(node, "node")
                await reader.until(lambda node=node: len(reader.rows[node, "node"]) >= 5)  # type: ignore[misc]
                places = list(reader.places[node, "node"])
            last = Location(*places[-1])
            while await largest(session, node) < Location(last.group, last.object + 4):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            live = session.subscribe(f"laps/telemetry/{node}", "node")
            info = await live.established()
            assert info.largest is not None
            missed = session.fetch(
                f"laps/telemetry/{node}",
                "node",
                start=(last.group, last.object + 1),
                end=(info.largest.group, info.largest.object + 1),
            )
            rows = []
            async for obj in missed:
                places.append((obj.group, obj.id))
                rows += rows_of(obj.payload)
            assert len(rows) >= 4
            assert missed.unknown == []
            obj = await anext(live)
            places.append((obj.group, obj.id))
            # Numbers are dense: none is missing, and none is twice.
            group = places[0][0]
            assert places == [(group, number) for number in range(len(places))]
            live.close()


@on_loop
async def test_a_relay_that_is_started_again_goes_on_behind_and_says_so(tmp_path: Path) -> None:
    async with region(tmp_path) as net, reading(net.near) as reader:
        reader.follow("1:3")
        reader.follow("1:4", "node")
        await reader.until(lambda: len(reader.rows["1:3", "node"]) >= 3)
        await reader.until(lambda: reader.rows["1:4", "node"])
        assert await net.far.end() == 0
        await reader.until(lambda: reader.events("1:3", "stopping"))
        seen = {kind: len(reader.places["1:3", kind]) for kind in KINDS}
        stub = len(reader.rows["1:4", "node"])
        net.far.start()
        await reader.until(lambda: len(reader.events("1:3", "started")) == 2)
        await reader.until(lambda: len(reader.places["1:3", "node"]) > seen["node"] + 2)
        for kind in KINDS:
            places = reader.places["1:3", kind]
            assert places == sorted(set(places)), kind
        first, second = (row["at"] for row in _starts(reader))
        assert first < second
        # Its Stub has come back too, and what it says arrives by the new one.
        await reader.until(lambda: len(reader.rows["1:4", "node"]) > stub + 5)


def _starts(reader: Reader) -> list[Row]:
    return [row for row in reader.rows["1:3", "events"] if row["event"] == "started"]


@on_loop
async def test_sighup_turns_it_off_and_on(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        relay = Relay(tmp_path, "1:1")
        stack.push_async_callback(relay.end)
        async with laps.connect(relay.url) as session:
            objects = session.subscribe("laps/telemetry/1:1", "node", start="start")
            first = await anext(objects)
            relay.write("enabled = false")
            relay.send(signal.SIGHUP)
            async for _ in objects:
                pass  # it comes to its end
            with pytest.raises(RequestRefused, match="nobody publishes this track"):
                await session.track_status("laps/telemetry/1:1", "node")
            relay.write("enabled = true\nhistory_s = 60")
            relay.send(signal.SIGHUP)
            again = session.subscribe("laps/telemetry/1:1", "node")
            assert (await anext(again)).group > first.group
            events = session.fetch("laps/telemetry/1:1", "events")
            rows = [row async for obj in events for row in rows_of(obj.payload)]
            assert [row["event"] for row in rows] == ["reloaded", "reloaded"]


@on_loop
async def test_a_control_server_has_none_and_its_peers_tell_of_it() -> None:
    values: dict[str, Any] = {
        "peering.listen": "127.0.0.1:0",
        "clients.listen": "127.0.0.1:0",
        "telemetry.interval_s": 0.1,
        "relay.drain_s": 0.05,
        "relay.node_advertise_s": 0.05,
        "discovery.enabled": False,
    }
    server = Runner(override(Config(), values | {"node.id": "9:1", "node.type": "control"}, "t"))
    control = {"node.id": "9:2", "peering.control": [str(server.peer_address)]}
    edge = Runner(override(Config(), values | control, "t"))
    try:
        assert not len(server.relay.tracks)
        assert server._reporter is None
        async with laps.connect(f"moqt://{edge.client_address}") as session:
            async for obj in session.subscribe("laps/telemetry/9:2", "links", start="start"):
                if rows := rows_of(obj.payload):
                    assert [row["peer"] for row in rows] == ["9:1"]
                    break
    finally:
        await edge.close()
        await server.close()


@on_loop
async def test_a_relay_goes_on_when_telling_of_itself_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    values = {
        "node.id": "9:1",
        "peering.listen": "127.0.0.1:0",
        "clients.listen": "127.0.0.1:0",
        "telemetry.interval_s": 0.1,
        "relay.drain_s": 0.05,
        "discovery.enabled": False,
    }
    runner = Runner(override(Config(), values, "test"))
    try:
        assert runner._reporter is not None
        telemetry = runner._reporter.telemetry
        broken = monkeypatch.context()
        with broken as patch:
            patch.setattr(runner.relay.path_watch, "look", _fail)
            await until(lambda: "failed to tell of itself" in caplog.text)
        largest = telemetry._outputs["events"].track.largest
        before = largest()
        runner.relay.journal.note(0.0, "peer_up", "1:2")
        await until(lambda: largest() != before)
    finally:
        await runner.close()


def _fail(now: float) -> None:
    raise ZeroDivisionError


@on_loop
async def test_every_example_of_the_page_works(capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 2
    values = {"node.id": "1:1", "peering.listen": "127.0.0.1:0", "clients.listen": "127.0.0.1:0"}
    settings: dict[str, Any] = {"telemetry.interval_s": 0.1, "discovery.enabled": False}
    runner = Runner(override(Config(), values | settings, "test"))
    try:
        for example in examples:
            code = example.replace("127.0.0.1:33435", str(runner.client_address))
            names: dict[str, Any] = {}
            exec("async def run():\n" + textwrap.indent(code, "    "), names)
            await names["run"]()
    finally:
        await runner.close()
    printed = capsys.readouterr().out
    assert "laps/telemetry/1:1 is there" in printed
    assert "'memory_bytes':" in printed
    assert " seconds\n" in printed


def test_the_page_has_every_column_and_every_event() -> None:
    page = PAGE.read_text()
    for kind in KINDS.values():
        for column in kind.columns:
            assert f"`{column.name}`" in page, (kind.name, column.name)
    noted = set()
    for path in (ROOT / "src" / "laps").rglob("*.py"):
        noted |= set(re.findall(r'note\((?:\s*[\w.()]+,)?\s*"(\w+)"', path.read_text()))
    assert len(noted) >= 8
    assert {event for event in noted if f"`{event}`" not in page} == set()
