"""Relays on this machine and in this network, found by mDNS (RFC 6762, RFC 6763).

A relay that takes clients announces itself under `_laps._udp.local.`, as far as it can be reached:
on loopback where it listens on loopback, on every interface where it listens on every address.

    1.2:1234 3f0c9a12._laps._udp.local.   its node id and the beginning of its certificate's SHA-256
    SRV   the port where clients connect
    A     where it listens; AAAA too
    TXT   v=1 | node=1.2:1234 | role=edge | alpn=moqt-16,moq-00,h3 | region=eu | sha256=3f0c9a12…

Whoever answers may be anybody: `read_found` takes what makes sense and leaves out the rest.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import ifaddr
from zeroconf import DNSQuestionType, InterfaceChoice, IPVersion, ServiceStateChange
from zeroconf import Error as MdnsError
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from laps.errors import InvalidText, LapsError
from laps.types import Address, format_node_id, parse_node_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from zeroconf import Zeroconf

    from laps.types import NodeId

log = logging.getLogger(__name__)
# It warns of every interface without a route and of every packet of a stranger that is malformed;
# what an operator can do something about is said here, in one line.
logging.getLogger("zeroconf").setLevel(logging.CRITICAL)

SERVICE_TYPE: Final = "_laps._udp.local."

# What the TXT record is laid out by. Another number is another layout, which we cannot read.
TXT_VERSION: Final = "1"

ROLES: Final = ("edge", "via", "stub", "control")

# A string of a TXT record has 255 bytes, its key among them; no word in it needs as many.
MAX_TEXT_BYTES: Final = 200
MAX_ALPNS: Final = 8
MAX_ALPN_BYTES: Final = 32

# Addresses of one relay that are told and tried: a machine has a few; each costs a dial.
MAX_HOSTS: Final = 8

# Relays that are looked at: more in one network is a flood, and costs a stranger nothing.
MAX_RELAYS: Final = 256

# What mDNS may take to open its sockets, and to say goodbye and close them.
START_S: Final = 1.0
CLOSE_S: Final = 1.0

# A goodbye is said so often, for networks that lose it. Loopback loses nothing.
GOODBYES: Final = 3
GOODBYE_INTERVAL_S: Final = 0.1

# How often the addresses of the machine are looked at again: a cable is plugged in, a laptop moves.
RESCAN_S: Final = 30.0

# How long is waited for the rest of an answer that came in part. Relays send all of it at once.
RESOLVE_MS: Final = 1000


# -- announcing ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a relay says of itself."""

    node_id: NodeId
    role: str
    address: Address
    "Where it listens for clients; perhaps every address of the machine."
    alpns: tuple[str, ...]
    region: str
    fingerprint: str
    "SHA-256 of its certificate, in hexadecimal."

    def properties(self) -> dict[str, str]:
        """The TXT record."""
        return {
            "v": TXT_VERSION,
            "node": format_node_id(self.node_id),
            "role": self.role,
            "alpn": ",".join(self.alpns),
            "region": self.region.encode()[:MAX_TEXT_BYTES].decode(errors="ignore"),
            "sha256": self.fingerprint,
        }


class Announcer:
    """Announces a relay from now on, in the background; that it cannot is one warning."""

    def __init__(self, announcement: Announcement) -> None:
        self._said = announcement
        # Nobody else has this name, so that there is no need to ask the network who has, for most
        # of a second: ids repeat from one network of relays to another, and 1:1 is everywhere.
        self._name = f"{format_node_id(announcement.node_id)} {announcement.fingerprint[:8]}"
        self._host = f"laps-{announcement.node_id:016x}-{announcement.fingerprint[:8]}.local."
        self._changed = asyncio.Event()
        self._task = asyncio.ensure_future(self._run())

    def update(self, fingerprint: str) -> None:
        """The relay shows another certificate."""
        self._said = replace(self._said, fingerprint=fingerprint)
        self._changed.set()

    async def close(self) -> None:
        """Take it back, and free the sockets."""
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        try:
            await self._announce()
        except Exception as error:  # whatever it is, the relay is of use without
            log.warning(
                "the relay is not announced by mDNS: %s: clients have to be told its URL "
                "(--no-discovery ends this warning)",
                _explain(error),
            )

    async def _announce(self) -> None:
        address = self._said.address
        zc = _open(interfaces_of(address))
        try:
            await _started(zc)
            if address.is_loopback:
                _confine_to_loopback(zc)
            hosts = hosts_of(address)
            await (
                await zc.async_register_service(self._service(hosts), cooperating_responders=True)
            )
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(RESCAN_S if address.is_wildcard else None):
                        await self._changed.wait()
                before, hosts = hosts, hosts_of(address)
                if hosts != before:
                    await zc.async_update_interfaces()
                elif not self._changed.is_set():
                    continue
                self._changed.clear()
                await (await zc.async_update_service(self._service(hosts)))
        finally:
            await _close(zc, goodbyes=1 if address.is_loopback else GOODBYES)

    def _service(self, hosts: Sequence[str]) -> AsyncServiceInfo:
        return AsyncServiceInfo(
            SERVICE_TYPE,
            f"{self._name}.{SERVICE_TYPE}",
            port=self._said.address.port,
            properties=self._said.properties(),
            server=self._host,
            parsed_addresses=list(hosts),
        )


def interfaces_of(address: Address) -> list[str] | InterfaceChoice:
    """Where a relay that listens there is announced.

    mDNS on loopback is IPv4, whatever is announced: there is no multicast on ::1.
    """
    if address.is_loopback:
        return ["127.0.0.1"]
    return InterfaceChoice.All if address.is_wildcard else [address.host]


def hosts_of(address: Address) -> tuple[str, ...]:
    """The addresses that a relay that listens there is reached by, IPv4 first."""
    if not address.is_wildcard:
        return (address.host,)
    ipv4 = [ip.ip for card in ifaddr.get_adapters() for ip in card.ips if isinstance(ip.ip, str)]
    ipv6 = [ip.ip[0] for card in ifaddr.get_adapters() for ip in card.ips if ip.is_IPv6]
    # Who listens on :: hears IPv4 too, where the system is not told otherwise.
    here = [*ipv4, *ipv6] if ":" in address.host else ipv4
    outside = [host for host in here if not ipaddress.ip_address(host).is_loopback]
    return _usable(outside or here)


def _usable(hosts: Iterable[str]) -> tuple[str, ...]:
    """Those that can be dialled: IPv6 addresses of a link need to be told which link."""
    kept: dict[str, None] = {}
    for host in hosts:
        with suppress(ValueError):
            ip = ipaddress.ip_address(host)
            of_a_link = ip.version == 6 and ip.is_link_local
            if not (ip.is_unspecified or ip.is_multicast or of_a_link):
                kept[str(ip)] = None
    return tuple(kept)[:MAX_HOSTS]


# -- looking ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """A relay that answered, in its own words: nothing of it is proven before it is dialled."""

    node: str
    "Its node id; empty where it said none that reads as one."
    role: str
    host: str
    "Its address, or one of them."
    port: int
    alpns: tuple[str, ...]
    region: str
    fingerprint: str | None
    "SHA-256 of its certificate, in hexadecimal."
    rtt_us: int | None = None
    "How far away it is; None where that was not measured or it does not answer."
    more_hosts: tuple[str, ...] = ()
    "Its other addresses."

    @property
    def address(self) -> Address:
        """Where to dial it."""
        return Address(self.host, self.port)

    @property
    def url(self) -> str:
        """Where a client finds it, with MoQT on QUIC."""
        return f"moqt://{self.address}"


async def discover(
    timeout_s: float, *, settle_s: float | None = None, fingerprint: str | None = None
) -> list[Found]:
    """The relays that answer within so many seconds, each once.

    It is over earlier when no more came for `settle_s` after the last one, and when the one with
    this certificate is there. LapsError where there is no mDNS to ask by.
    """
    looking = _Looking()
    try:
        await looking.ask()
        await looking.wait(timeout_s, settle_s, fingerprint)
    finally:
        await looking.close()
    return unique(looking.found.values())


class _Looking:
    """Asks, and collects answers."""

    def __init__(self) -> None:
        self.found: dict[str, Found] = {}
        self._asking: list[AsyncZeroconf] = []
        self._browsers: list[AsyncServiceBrowser] = []
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._left_out = 0
        self._new = asyncio.Event()

    async def ask(self) -> None:
        """Ask for answers to us alone and for answers to everybody; one of the two is enough.

        The first come at once, but a firewall may hold them back. The others may take a second,
        since nothing is said to everybody twice in one.
        """
        problems: list[str] = []
        for question, unicast in ((DNSQuestionType.QU, True), (DNSQuestionType.QM, False)):
            try:
                zc = _open(InterfaceChoice.All, unicast=unicast)
                self._asking.append(zc)
                await _started(zc)
            except (OSError, RuntimeError, MdnsError) as error:
                problems.append(_explain(error))
                continue
            browser = AsyncServiceBrowser(
                zc.zeroconf, SERVICE_TYPE, handlers=[self._heard], question_type=question
            )
            self._browsers.append(browser)
        if not self._browsers:
            raise LapsError(f"relays cannot be looked for by mDNS: {problems[0]}: give a URL")

    async def wait(self, timeout_s: float, settle_s: float | None, fingerprint: str | None) -> None:
        """Listen for so long."""
        now = asyncio.get_running_loop().time
        last = now() + timeout_s
        with suppress(TimeoutError):
            async with asyncio.timeout_at(last) as limit:
                while fingerprint is None or not self._is_found(fingerprint):
                    await self._new.wait()
                    self._new.clear()
                    if settle_s is not None:
                        limit.reschedule(min(last, now() + settle_s))
        if self._left_out:
            log.warning("%d relays and no more are looked at, of all that answer", MAX_RELAYS)

    def _is_found(self, fingerprint: str) -> bool:
        return any(relay.fingerprint == fingerprint for relay in self.found.values())

    async def close(self) -> None:
        """Free the sockets."""
        for browser in self._browsers:
            await browser.async_cancel()
        tasks = list(self._reading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for zc in self._asking:
            await _close(zc)

    def _heard(
        self,
        zeroconf: Zeroconf,
        service_type: str,
        name: str,
        state_change: ServiceStateChange,
    ) -> None:
        """A relay is there, says something else, or is gone; zeroconf calls by these names."""
        if (task := self._reading.pop(name, None)) is not None:
            task.cancel()
        if state_change is ServiceStateChange.Removed:
            self.found.pop(name, None)
        elif len(self._reading) < MAX_RELAYS:
            self._reading[name] = asyncio.ensure_future(self._read(zeroconf, name))
        else:
            self._left_out += 1

    async def _read(self, zc: Zeroconf, name: str) -> None:
        try:
            info = AsyncServiceInfo(SERVICE_TYPE, name)
            await info.async_request(zc, RESOLVE_MS)
            relay = read_found(info.properties, info.parsed_addresses(IPVersion.All), info.port)
        except (MdnsError, ValueError):
            return  # a stranger's name that is none, or a record that no client could read
        if relay is not None:
            self.found[name] = relay
            self._new.set()


def read_found(
    properties: Mapping[bytes, bytes | None], hosts: Sequence[str], port: int | None
) -> Found | None:
    """What a stranger said, as far as it makes sense; None if there is nothing to dial."""
    said: dict[bytes, bytes] = {}
    for key, value in properties.items():
        said.setdefault(key.lower(), value or b"")
    usable = _usable(hosts)
    version = _text(said.get(b"v", b"1"))
    if not usable or port is None or not 0 < port <= 65535 or version != TXT_VERSION:
        return None
    role = _text(said.get(b"role", b""))
    fingerprint = _text(said.get(b"sha256", b"")).lower()
    is_sha256 = len(fingerprint) == 64 and set(fingerprint) <= set("0123456789abcdef")
    return Found(
        node=_node(_text(said.get(b"node", b""))),
        role=role if role in ROLES else "",
        host=usable[0],
        port=port,
        alpns=_alpns(_text(said.get(b"alpn", b""))),
        region=_text(said.get(b"region", b"")),
        fingerprint=fingerprint if is_sha256 else None,
        more_hosts=usable[1:],
    )


def _text(value: bytes) -> str:
    """Text that a terminal shows as it is; empty for anything else."""
    if len(value) > MAX_TEXT_BYTES:
        return ""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() else ""


def _node(text: str) -> str:
    try:
        return format_node_id(parse_node_id(text))
    except InvalidText:
        return ""


def _alpns(text: str) -> tuple[str, ...]:
    names = (name for name in text.split(",") if name.isascii() and len(name) <= MAX_ALPN_BYTES)
    return tuple(filter(None, names))[:MAX_ALPNS]


def unique(found: Iterable[Found]) -> list[Found]:
    """Each relay once, with all the addresses it was heard by."""
    relays: dict[tuple[object, ...], Found] = {}
    for relay in found:
        who = relay.node or relay.fingerprint
        key = (relay.node, relay.fingerprint, relay.port, None if who else relay.host)
        known = relays.get(key)
        if known is None:
            relays[key] = relay
        else:
            hosts = (known.host, *known.more_hosts, relay.host, *relay.more_hosts)
            relays[key] = replace(known, more_hosts=_usable(hosts)[1:])
    return list(relays.values())


# -- mDNS itself -----------------------------------------------------------------------------------


def _open(interfaces: list[str] | InterfaceChoice, *, unicast: bool = False) -> AsyncZeroconf:
    if interfaces is not InterfaceChoice.All:
        return AsyncZeroconf(interfaces)
    try:
        return AsyncZeroconf(interfaces, unicast, IPVersion.All)
    except (OSError, RuntimeError):  # a machine without IPv6
        return AsyncZeroconf(interfaces, unicast)


async def _started(zc: AsyncZeroconf) -> None:
    # Whoever is cancelled here must not take the start with it, as `async_wait_for_start` has it: a
    # socket that is half in the hands of the event loop can be closed by nobody.
    if (running := zc.zeroconf.engine.running_future) is not None:
        await asyncio.wait((running,), timeout=START_S)
    if not zc.zeroconf.started:
        raise TimeoutError(f"the sockets were not ready within {START_S:g} s")
    if not zc.zeroconf.engine.senders:
        raise OSError("no network interface takes multicast")


def _confine_to_loopback(zc: AsyncZeroconf) -> None:
    """Hear no question from outside, so that nobody there is answered.

    The socket is bound to every address, and hears each group that anyone on the machine joined.
    """
    if sys.platform == "linux":
        for reader in zc.zeroconf.engine.readers:
            with suppress(OSError):  # before Linux 5.7 it takes privileges
                reader.sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")


async def _close(zc: AsyncZeroconf, *, goodbyes: int = 0) -> None:
    """Take back what was announced, and free the sockets whatever happens."""
    with suppress(Exception):  # what never started has nothing to take back
        try:
            async with asyncio.timeout(CLOSE_S):
                if (goodbye := zc.zeroconf.generate_unregister_all_services()) is not None:
                    for number in range(goodbyes):
                        if number:
                            await asyncio.sleep(GOODBYE_INTERVAL_S)
                        zc.zeroconf.async_send(goodbye)
                await zc.async_close()
        finally:
            zc.zeroconf.close()


def _explain(error: Exception) -> str:
    return str(error) or type(error).__name__
