"""Relays that announce themselves by mDNS on loopback, and who finds them.

Other relays may be announced on the machine at the same time: each test looks for its own, by the
certificate that each made for itself.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ifaddr
import pytest
from zeroconf.asyncio import AsyncZeroconf

from laps.client.nearest import measure, nearest
from laps.config import Config, override
from laps.net import discovery
from laps.net.discovery import Announcement, Announcer, discover
from laps.net.runner import Runner
from laps.net.tls import self_signed
from laps.types import Address, format_node_id, parse_node_id
from support.loopback import on_loop
from support.programs import ANY, LAPS, relay_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from laps.net.discovery import Found

MDNS = ("224.0.0.251", 5353)
# A PTR record of the service, to be forgotten in 0 seconds: name | type(2) | class(2) | ttl(4)
GOODBYE = b"\x05_laps\x04_udp\x05local\x00\x00\x0c\x00\x01\x00\x00\x00\x00"
GROUP = socket.inet_aton(MDNS[0]) + socket.inet_aton("127.0.0.1")

# A program that hangs fails its test; none takes a tenth of it.
LIMIT_S = 60

# Somebody who is there is found in a tenth of a second; who waits for nobody waits for all of it.
PATIENCE_S = 10.0
VAIN_S = 1.5


def obstacle() -> str:
    """What keeps mDNS from working on loopback here; found out by sending something."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as hearing,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as speaking,
    ):
        try:
            port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            port.bind(("", MDNS[1]))
            hearing.bind(("", 0))
            hearing.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, GROUP)
            hearing.settimeout(2.0)
            speaking.bind(("127.0.0.1", 0))
            speaking.setsockopt(
                socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1")
            )
            speaking.sendto(b"anybody?", (MDNS[0], hearing.getsockname()[1]))
            hearing.recv(100)
        except OSError as error:
            return str(error)
    return ""


@pytest.fixture(scope="module", autouse=True)
def _mdns() -> None:
    if problem := obstacle():
        pytest.skip(f"multicast does not work on loopback: {problem}")


@asynccontextmanager
async def relaying(**changes: object) -> AsyncIterator[Runner]:
    quiet = {"clients.listen": ANY, "peering.listen": ANY, "relay.drain_s": 0.05}
    settings = {key.replace("__", "."): value for key, value in changes.items()}
    runner = Runner(override(Config(), {**quiet, **settings}, "test"))
    try:
        yield runner
    finally:
        await runner.close()


async def find(fingerprint: str, timeout_s: float = PATIENCE_S) -> Found | None:
    found = await discover(timeout_s, fingerprint=fingerprint)
    return next((relay for relay in found if relay.fingerprint == fingerprint), None)


def laps(*args: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [LAPS, *args], input=given, capture_output=True, timeout=LIMIT_S, check=False
    )


# -- in one process --------------------------------------------------------------------------------


@on_loop
async def test_a_relay_is_found_with_all_that_it_says() -> None:
    async with relaying(node__region="here", clients__drafts=[16]) as runner:
        address = runner.client_address
        assert address is not None
        found = await find(runner.identity.fingerprint)
        assert found is not None
        assert found.node == format_node_id(runner.relay.id)
        assert (found.role, found.region) == ("edge", "here")
        assert (found.address, found.more_hosts) == (address, ())
        assert "moqt-16" in found.alpns
        assert "moq-00" not in found.alpns


@on_loop
async def test_a_relay_on_the_other_loopback_is_found_too() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    async with relaying(clients__listen="[::1]:0") as runner:
        found = await find(runner.identity.fingerprint)
        assert found is not None
        assert found.address == runner.client_address


@on_loop
async def test_two_relays_are_found_measured_and_one_is_taken_by_its_certificate() -> None:
    # The same id, as in two networks that know nothing of each other.
    async with relaying(node__id="4:4") as one, relaying(node__id="4:4") as other:
        ours = {one.identity.fingerprint, other.identity.fingerprint}
        found: list[Found] = []
        while not ours <= {relay.fingerprint for relay in found}:
            found = await discover(0.5)
        mine = [relay for relay in found if relay.fingerprint in ours]
        assert len(mine) == 2
        measured = await measure(mine)
        assert {relay.address for relay in measured} == {one.client_address, other.client_address}
        for relay in measured:
            assert relay.rtt_us is not None
            assert relay.rtt_us > 0
        taken = await nearest(fingerprint=other.identity.fingerprint)
        assert taken.address == other.client_address


@on_loop
async def test_only_the_announced_certificate_is_taken_and_the_silent_come_last() -> None:
    async with relaying() as runner:
        found = await find(runner.identity.fingerprint)
        assert found is not None
        impostor = replace(found, fingerprint="00" * 32)
        undisclosed = replace(found, fingerprint=None, alpns=())
        elsewhere = replace(found, host="127.0.0.9", more_hosts=(found.host,))
        measured = await measure([impostor, found, undisclosed, elsewhere])
        assert measured[-1] == impostor
        assert all(relay.rtt_us is not None for relay in measured[:-1])
        assert all(relay.host == found.host for relay in measured)


@on_loop
async def test_a_relay_that_stops_is_not_found_any_more_and_leaves_nothing_behind() -> None:
    before = asyncio.all_tasks()
    async with relaying() as runner:
        assert await find(runner.identity.fingerprint) is not None
    assert await find(runner.identity.fingerprint, VAIN_S) is None
    assert asyncio.all_tasks() == before


@on_loop
async def test_who_listens_hears_a_goodbye() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as hearing:
        hearing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        hearing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        hearing.setblocking(False)
        hearing.bind(("", MDNS[1]))
        hearing.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, GROUP)
        async with relaying() as runner:
            ours = runner.identity.fingerprint[:8].encode()
            assert await find(runner.identity.fingerprint) is not None
        data = b""
        while not (GOODBYE in data and ours in data):
            data = await asyncio.get_running_loop().sock_recv(hearing, 9000)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no socket is tied to an interface")
@on_loop
async def test_a_relay_on_loopback_answers_nobody_from_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses = [ip.ip for card in ifaddr.get_adapters() for ip in card.ips]
    outside = [ip for ip in addresses if isinstance(ip, str) and not ip.startswith("127.")]
    if not outside:
        pytest.skip("this machine has no network but loopback")
    # Somebody has the machine take in what is said outside; it reaches every program that listens.
    async with AsyncZeroconf(outside[:1]), relaying() as runner:
        assert await find(runner.identity.fingerprint) is not None
        # Both times for an answer to us alone: others on this machine may be answering each other.
        monkeypatch.setattr(discovery, "_open", lambda *_, **__: AsyncZeroconf(outside[:1], True))
        assert await find(runner.identity.fingerprint, VAIN_S) is None


@on_loop
async def test_a_new_certificate_is_announced() -> None:
    async with relaying() as runner:
        assert await find(runner.identity.fingerprint) is not None
        runner.identity = self_signed(["127.0.0.1"])
        runner._show()
        found = await find(runner.identity.fingerprint)
        assert found is not None
        assert (await measure([found]))[0].rtt_us is not None


@on_loop
async def test_a_relay_on_every_address_is_found_by_those_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Announced on every interface, found by loopback if need be; addresses may change."""
    addresses = [("192.0.2.1",), ("192.0.2.2", "192.0.2.3")]
    monkeypatch.setattr(discovery, "hosts_of", lambda _: addresses[0])
    monkeypatch.setattr(discovery, "RESCAN_S", 0.01)
    sha256 = self_signed(["a"]).fingerprint
    said = Announcement(parse_node_id("4:5"), "edge", Address("0.0.0.0", 4433), ("h3",), "", sha256)
    announcer = Announcer(said)
    try:
        found = await find(sha256)
        assert found is not None
        assert (found.host, found.port) == ("192.0.2.1", 4433)
        addresses.pop(0)
        while found is None or found.host == "192.0.2.1":
            found = await find(sha256)
        assert {found.host, *found.more_hosts} == {"192.0.2.2", "192.0.2.3"}
    finally:
        await announcer.close()


@pytest.mark.parametrize("role", ["via", "control"])
@on_loop
async def test_a_relay_without_clients_is_not_announced(role: str) -> None:
    async with relaying(node__type=role) as runner:
        assert runner._announcer is None


@on_loop
async def test_many_relays_come_and_go_at_once() -> None:
    before = asyncio.all_tasks()
    for _ in range(10):
        async with relaying():
            pass
    async with relaying():
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


# -- as a person does it ---------------------------------------------------------------------------


def discovered(*args: str) -> tuple[list[dict[str, Any]], subprocess.CompletedProcess[bytes]]:
    shown = laps("discover", "--json", *args)
    return json.loads(shown.stdout), shown


def test_programs_are_told_of_a_relay_until_it_stops(tmp_path: Path) -> None:
    with relay_process(tmp_path / "log", "--node-id", "4:6") as relay:
        found, shown = discovered()
        assert shown.returncode == 0, shown.stderr.decode()
        assert shown.stderr == b""
        (mine,) = (entry for entry in found if entry["sha256"] == relay.sha256)
        host, _, port = relay.clients.rpartition(":")
        assert mine["node"] == "4:6"
        assert mine["role"] == "edge"
        assert (mine["host"], mine["port"]) == (host, int(port))
        assert mine["url"] == f"moqt://{relay.clients}"
        assert "moqt-16" in mine["protocols"]
        assert mine["rtt_us"] > 0
        people = laps("discover", "--timeout", "1")
        assert people.returncode == 0
        assert re.search(rf"4:6 +edge +{re.escape(relay.clients)}", people.stdout.decode())
    found, _ = discovered("--timeout", str(VAIN_S))
    assert relay.sha256 not in {entry["sha256"] for entry in found}


def test_a_relay_that_does_not_want_to_be_found_is_not(tmp_path: Path) -> None:
    with relay_process(tmp_path / "log", "--no-discovery") as relay:
        found, shown = discovered("--timeout", str(VAIN_S))
        assert relay.sha256 not in {entry["sha256"] for entry in found}
        if not found:
            assert shown.returncode == 1
            assert b"laps: no relay was found by mDNS within 1.5 s: start one" in shown.stderr
            assert shown.stderr.count(b"\n") == 1
        nobody = laps("sub", "demo/tests", "found", "--fingerprint", relay.sha256)
        assert nobody.returncode == 1
        assert b"was found by mDNS within 2 s: give the URL of one" in nobody.stderr
        assert nobody.stderr.count(b"\n") == 1


@pytest.fixture(scope="module")
def sha256(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with relay_process(tmp_path_factory.mktemp("relay") / "log", "--node-id", "4:7") as relay:
        yield relay.sha256


def test_without_a_url_a_line_is_carried_by_the_relay_that_is_found(sha256: str) -> None:
    where = ("demo/tests", "found", "--fingerprint", sha256)
    sent = laps("pub", *where, given=b"a line\n")
    assert sent.returncode == 0, sent.stderr.decode()
    assert re.fullmatch(rb"laps: by mDNS: node 4:7 at moqt://127\.0\.0\.1:\d+\n", sent.stderr)
    read = laps("sub", "--from", "start", *where)
    assert (read.stdout, read.returncode) == (b"a line\n", 0)
    assert read.stderr == sent.stderr


@pytest.mark.parametrize("draft", ["14", "16"])
def test_options_may_stand_anywhere_between_the_arguments(sha256: str, draft: str) -> None:
    options = ("--draft", draft, "--fingerprint", sha256)
    sent = laps("pub", *options[:2], "demo/tests", *options[2:], f"draft{draft}", given=b"x\n")
    assert sent.returncode == 0, sent.stderr.decode()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("pub",), b"Missing argument 'NAMESPACE'"),
        (("pub", "demo"), b"Missing argument 'TRACK'"),
        (("sub", "moqt://127.0.0.1:1", "demo"), b"Missing argument 'TRACK'"),
        (("sub", "a//b", "c"), b'namespace "a//b" has an empty part'),
    ],
)
def test_what_is_missing_is_named(args: tuple[str, ...], words: bytes) -> None:
    refused = laps(*args)
    assert refused.returncode == 2
    assert words in refused.stderr


def test_help_shows_how_it_is_used() -> None:
    assert b"Example: laps discover" in laps("discover", "--help").stdout
    assert b"[URL]" in laps("pub", "--help").stdout
    assert b"--no-discovery" in laps("relay", "--help").stdout
