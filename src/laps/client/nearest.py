"""How near the relays are that mDNS found, and which of them to take.

async with laps.connect(await nearby()) as session: ...
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from laps.config import QuicConfig
from laps.errors import LapsError
from laps.net.discovery import discover
from laps.net.quic import Endpoint
from laps.net.tls import Trust
from laps.net.webtransport import HTTP3_ALPN
from laps.types import Address
from laps.wire.moqt.dialect import DIALECTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.errors import ConnectionClosed
    from laps.net.connection import Connection
    from laps.net.discovery import Found

# How long is waited for the first answer. A relay that has just spoken may wait a second before it
# answers (RFC 6762 section 6), and takes part in the second round of questions at the latest.
DISCOVER_S: Final = 2.0

# Relays answer within an eighth of a second of each other, unless they have just spoken.
SETTLE_S: Final = 0.4

# Handshakes that are under way at once, what one may take, and all of them: a relay of this network
# answers in milliseconds, and what strangers announce may not answer at all.
DIALS_AT_ONCE: Final = 8
DIAL_S: Final = 1.0
MEASURE_S: Final = 3.0

# A handshake takes longer than the way there and back: it keeps both sides busy. Two pings show it.
PINGS: Final = 2
PING_S: Final = 0.2

# What a busy machine adds to the way. Of relays that are as near as that the least id is taken, so
# that a publisher and a subscriber in one place meet.
SAME_US: Final = 1000

# So many are kept for a session to go to.
MOST: Final = 5

_ANYWHERE: Final = {4: "0.0.0.0", 6: "::"}  # noqa: S104 - to dial from


async def nearest(drafts: Sequence[int] = (16, 14), fingerprint: str | None = None) -> Found:
    """The nearest relay that speaks one of these drafts, or the one with this certificate.

    LapsError says what to do where there is none.
    """
    return (await nearby(drafts, fingerprint))[0]


async def nearby(drafts: Sequence[int] = (16, 14), fingerprint: str | None = None) -> list[Found]:
    """The relays that speak one of these drafts, the nearest first, and at least one.

    They are for `laps.connect`: when the relay in use dies, the session goes to the next.
    """
    wanted = None if fingerprint is None else fingerprint.replace(":", "").lower()
    found = await discover(DISCOVER_S, settle_s=SETTLE_S, fingerprint=wanted)
    if wanted is not None:
        found = [relay for relay in found if relay.fingerprint == wanted]
    if not found:
        which = "relay" if wanted is None else f"relay with the certificate {fingerprint}"
        raise LapsError(
            f"no {which} was found by mDNS within {DISCOVER_S:g} s: give the URL of one, like "
            "moqt://127.0.0.1:33435, or start one with `laps relay`"
        )
    measured = await measure([relay for relay in found if _speaks(relay, drafts)])
    if not measured:
        spoken = " or ".join(map(str, drafts))
        raise LapsError(f"no relay that mDNS found speaks MoQT draft {spoken}: give a URL")
    if (relay := select(measured)) is None:
        where = ", ".join(str(relay.address) for relay in measured[:3])
        raise LapsError(f"no relay that mDNS found answers, not at {where}: give a URL")
    others = [it for it in measured if it.rtt_us is not None and it is not relay]
    return [relay, *others[: MOST - 1]]


def select(measured: Sequence[Found]) -> Found | None:
    """The nearest; of several as near one on this machine, and of those the one of the least id."""
    answered = [(relay.rtt_us, relay) for relay in measured if relay.rtt_us is not None]
    if not answered:
        return None
    least_us = min(rtt_us for rtt_us, _ in answered)
    near = [relay for rtt_us, relay in answered if rtt_us <= least_us + SAME_US]
    return min(near, key=lambda r: (not r.address.is_loopback, r.node, r.host, r.port))


def _speaks(relay: Found, drafts: Sequence[int]) -> bool:
    """Whether it says so, or does not say what it speaks."""
    names = {DIALECTS[draft].alpn for draft in drafts if draft in DIALECTS}
    return not relay.alpns or not names or not names.isdisjoint(relay.alpns)


async def measure(found: Sequence[Found]) -> list[Found]:
    """Dial each once; the nearest first, and last those that do not answer."""
    gauge = _Gauge()
    tasks = [asyncio.ensure_future(gauge.measure(relay)) for relay in found]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=MEASURE_S)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await gauge.close()
    measured = [
        relay if isinstance(result, BaseException) else result
        for relay, result in zip(found, results, strict=True)
    ]
    return sorted(measured, key=by_distance)


def by_distance(relay: Found) -> tuple[bool, int, str, str, int]:
    """The order of relays: nearest first, unreachable last, and always the same."""
    return (relay.rtt_us is None, relay.rtt_us or 0, relay.node, relay.host, relay.port)


class _Deaf:
    """The receiver of a connection whose words nobody waits for."""

    def stream_data(self, stream_id: int, data: bytes, fin: bool) -> None:
        """As `Receiver`."""

    def stream_reset(self, stream_id: int, code: int) -> None:
        """As `Receiver`."""

    def stop_sending(self, stream_id: int, code: int) -> None:
        """As `Receiver`."""

    def datagram(self, data: bytes) -> None:
        """As `Receiver`."""

    def writable(self) -> None:
        """As `Receiver`."""

    def closed(self, close: ConnectionClosed) -> None:
        """As `Receiver`."""


class _Gauge:
    """Dials relays by all of their addresses, from a socket for each kind of address."""

    def __init__(self) -> None:
        self._quic = msgspec.structs.replace(QuicConfig(), handshake_timeout_s=DIAL_S)
        self._endpoints: dict[int, Endpoint] = {}
        self._turns = asyncio.Semaphore(DIALS_AT_ONCE)

    async def measure(self, relay: Found) -> Found:
        """The relay by the address that answers first, with its distance."""
        hosts = (relay.host, *relay.more_hosts)
        tasks = [asyncio.ensure_future(self._dial(relay, host)) for host in hosts]
        try:
            for task in asyncio.as_completed(tasks):
                with suppress(LapsError, OSError):
                    return await task
            return relay
        finally:
            for dial in tasks:
                dial.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _dial(self, relay: Found, host: str) -> Found:
        async with self._turns:
            endpoint = self._endpoint(6 if ":" in host else 4)
            alpns = relay.alpns or (*(dialect.alpn for dialect in DIALECTS.values()), HTTP3_ALPN)
            local = Address(host, relay.port).is_loopback
            trust = Trust(fingerprint=relay.fingerprint, anyone=local)
            connection = await endpoint.connect(host, relay.port, alpns, trust, lambda _: _Deaf())
            rtt_us = await _round_trip_us(connection)
            connection.close(0, "measured")
        others = tuple(other for other in (relay.host, *relay.more_hosts) if other != host)
        return replace(relay, host=host, more_hosts=others, rtt_us=rtt_us)

    def _endpoint(self, version: int) -> Endpoint:
        if version not in self._endpoints:
            self._endpoints[version] = Endpoint.dialler(_ANYWHERE[version], self._quic)
        return self._endpoints[version]

    async def close(self) -> None:
        """Free the sockets."""
        for endpoint in self._endpoints.values():
            await endpoint.close(0, "measured")


async def _round_trip_us(connection: Connection) -> int:
    least_us = connection.stats().srtt_us
    with suppress(TimeoutError):
        async with asyncio.timeout(PING_S):
            for _ in range(PINGS):
                heard = connection.last_heard
                connection.ping()
                while connection.last_heard == heard:  # noqa: ASYNC110 - nobody tells of an answer
                    await asyncio.sleep(0.001)
                least_us = min(least_us, connection.stats().latest_rtt_us)
    return least_us
