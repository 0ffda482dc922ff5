"""Sends the probes of a relay and takes their answers (`relay.probing`, `wire.probe`).

They leave from the socket that peers are dialled from, so they take the way that a connection
would take, through the same NAT and with the same impairment. What is probed is the contact that a
node has told. A name is looked up in the background, and the train waits for its next turn.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from laps.errors import InvalidText, LapsError
from laps.types import Address
from laps.wire.probe import decode_answer, encode_probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.net.diallers import Diallers
    from laps.net.handshake import Address as SocketAddress
    from laps.relay.probing import Probing, Train

# How long the address of a name holds, and how many are kept: those of some candidates.
NAME_S: Final = 300.0
MOST_NAMES: Final = 1000


@dataclass(slots=True)
class ProberCounters:
    """What came of probes outside of what was measured, for the operator."""

    probes_unsendable: int = 0
    "Trains to a contact that is no address, or a name that nobody knows."
    probe_answers_forged: int = 0
    "Answers that belong to no probe to the address that they came from."


class Prober:
    """The sockets of a relay's probes."""

    def __init__(self, probing: Probing, diallers: Diallers, arm: Callable[[], None]) -> None:
        """`arm` is called when something was measured."""
        self.counters = ProberCounters()
        self._probing = probing
        self._diallers = diallers
        self._arm = arm
        self._secret = os.urandom(32)
        self._names: dict[Address, tuple[float, SocketAddress | None]] = {}
        "What names stand for, or that nobody knows, and until when that holds."
        self._asking: dict[Address, asyncio.Task[None]] = {}

    def perform(self) -> None:
        """Send what the relay wants to be sent."""
        outgoing = self._probing.outgoing
        while outgoing:
            self._send(outgoing.popleft())

    def close(self) -> None:
        """Look up no more names."""
        for task in self._asking.values():
            task.cancel()

    def _send(self, train: Train) -> None:
        to = self._address_of(train.contact)
        if to is None:
            return
        family = socket.AF_INET6 if ":" in to[0] else socket.AF_INET
        try:
            endpoint = self._diallers.endpoint(family)
        except LapsError:
            self.counters.probes_unsendable += 1
            return
        endpoint.on_negotiation = self._negotiated
        key = self._key(to)
        if endpoint.send_bare([encode_probe(number, key) for number in train.numbers], to):
            self._probing.sent(train, monotonic())

    def _negotiated(self, data: bytes, addr: SocketAddress, now: float) -> None:
        number = decode_answer(data, self._key(addr))
        if number is None:
            self.counters.probe_answers_forged += 1
        elif self._probing.answered(number, now):
            self._arm()

    def _key(self, addr: SocketAddress) -> bytes:
        """A secret for each address: what comes from another is no answer."""
        family = socket.AF_INET6 if ":" in addr[0] else socket.AF_INET
        place = socket.inet_pton(family, addr[0].partition("%")[0]) + addr[1].to_bytes(2, "big")
        return hmac.digest(self._secret, place, hashlib.sha256)

    # -- addresses ---------------------------------------------------------------------------------

    def _address_of(self, contact: str) -> SocketAddress | None:
        """Where a contact is; None: nowhere, or it is being looked up."""
        try:
            address = Address.parse(contact)
        except InvalidText:
            self.counters.probes_unsendable += 1
            return None
        try:
            ip = ipaddress.ip_address(address.host)
        except ValueError:
            return self._look_up(address)
        if not address.is_dialable or ip.is_multicast:
            self.counters.probes_unsendable += 1
            return None
        return (str(ip), address.port) if ip.version == 4 else (str(ip), address.port, 0, 0)

    def _look_up(self, address: Address) -> SocketAddress | None:
        until, found = self._names.get(address, (0.0, None))
        if monotonic() < until:
            self.counters.probes_unsendable += found is None
            return found
        if address not in self._asking:
            self._asking[address] = asyncio.ensure_future(self._ask(address))
        return found

    async def _ask(self, address: Address) -> None:
        found: SocketAddress | None = None
        try:
            with suppress(OSError, UnicodeError):
                infos = await asyncio.get_running_loop().getaddrinfo(
                    address.host, address.port, type=socket.SOCK_DGRAM
                )
                places = [it[4] for it in infos if _is_sendable(it[4][0])]
                found = next(iter(places), None)  # type: ignore[assignment] # it is IP
        finally:
            del self._asking[address]
        if len(self._names) >= MOST_NAMES:
            self._names.clear()
        self._names[address] = monotonic() + NAME_S, found


def _is_sendable(host: str | int) -> bool:
    ip = ipaddress.ip_address(host)
    return not (ip.is_multicast or ip.is_unspecified)
