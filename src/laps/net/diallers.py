"""The sockets that peers are dialled from, and whom a relay takes a peer for.

Connections to one peer that run side by side leave from ports of their own: routers on the way
spread packets over equal paths by addresses and ports, and take the same path for the same ones.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING, Final

from laps.errors import ConfigError, LapsError
from laps.net import tls
from laps.net.quic import Endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.config import Config
    from laps.net.connection import Connection
    from laps.net.quic import Accept
    from laps.types import Address

ANYWHERE: Final = {socket.AF_INET: "0.0.0.0", socket.AF_INET6: "::"}  # noqa: S104 - to dial from

# Nobody has them: they stand for whatever is far away, to learn by which address we go there.
_ELSEWHERE: Final = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}


class Diallers:
    """The endpoints that dial: for each family of addresses, one for each parallel connection."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._endpoints: dict[tuple[socket.AddressFamily, int], Endpoint] = {}

    @property
    def endpoints(self) -> list[Endpoint]:
        """Those that there are by now."""
        return list(self._endpoints.values())

    def configure(self, config: Config) -> None:
        """Take what counts at once of a changed configuration."""
        self._config = config
        for endpoint in self._endpoints.values():
            endpoint.impair(config.impairment.peers)

    async def connect(
        self,
        peer: Address,
        number: int,
        alpn: Sequence[str],
        accept: Accept,
        *,
        is_named: bool = False,
    ) -> Connection:
        """Dial a peer, one of the connections to it, by any family that it has an address of.

        `is_named`: it is known which node has to be there.
        """
        trust = trust_of(peer, self._config, is_named=is_named)
        families = await _families(peer)
        for family in families:
            try:
                endpoint = self._endpoint(family, number)
                return await endpoint.connect(peer.host, peer.port, alpn, trust, accept)
            except (LapsError, OSError):
                if family is families[-1]:
                    raise
        raise ConfigError(f'host "{peer.host}" has no address')

    def endpoint(self, family: socket.AddressFamily) -> Endpoint:
        """The one that peers are dialled from, for what belongs to no connection."""
        return self._endpoint(family, 0)

    def _endpoint(self, family: socket.AddressFamily, number: int) -> Endpoint:
        endpoint = self._endpoints.get((family, number))
        if endpoint is None:
            endpoint = Endpoint.dialler(ANYWHERE[family], self._config.quic)
            endpoint.impair(self._config.impairment.peers)
            self._endpoints[family, number] = endpoint
        return endpoint


async def _families(peer: Address) -> list[socket.AddressFamily]:
    """The kinds of addresses that a host has, in the order that the system prefers."""
    try:
        literal = ipaddress.ip_address(peer.host)
    except ValueError:
        pass
    else:
        return [socket.AF_INET6 if literal.version == 6 else socket.AF_INET]
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(peer.host, peer.port, type=socket.SOCK_DGRAM)
    except socket.gaierror as error:
        raise ConfigError(f'host "{peer.host}" is not known: {error.strerror}') from error
    return list(dict.fromkeys(info[0] for info in infos if info[0] in ANYWHERE))


def trust_of(peer: Address, config: Config, *, is_named: bool = False) -> tls.Trust:
    """The certificate that is named for a peer, or what the authorities signed.

    Where nothing is said: anyone on this machine, and elsewhere whom the system trusts. Where the
    node is named that has to be there, and has to prove it, its proof is for the certificate that
    it shows: any will do.
    """
    peering = config.peering
    fingerprint = dict(peering.fingerprints).get(peer)
    is_named |= peer in dict(peering.nodes)
    proves = config.requires_peer_auth and is_named and not peering.trusted
    anyone = (peer.is_loopback or proves) and peering.authorities is None
    return tls.Trust(fingerprint, anyone, peering.authorities)


def address_towards(peers: Sequence[Address], *, ipv6: bool) -> str | None:
    """The address that packets to peers leave from, or to anywhere; None where no way leads out.

    Nothing is sent: the system only looks up its routes.
    """
    families = [socket.AF_INET6, socket.AF_INET] if ipv6 else [socket.AF_INET]
    hosts = [peer.host for peer in peers]
    for host in (*hosts, *(_ELSEWHERE[family] for family in families)):
        try:
            version = ipaddress.ip_address(host).version
        except ValueError:
            continue  # a name: it is looked up when it is dialled
        family = socket.AF_INET6 if version == 6 else socket.AF_INET
        if family not in families:
            continue
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            try:
                sock.connect((host, 9))
            except OSError:
                continue
            return str(sock.getsockname()[0])
    return None
