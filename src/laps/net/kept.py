"""What a relay keeps that begins again in the same process: who it is, and where it is found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laps.net.tls import Identity
    from laps.types import Address, NodeId


@dataclass(frozen=True, slots=True)
class Kept:
    """What it had picked itself, where its configuration leaves that open."""

    node_id: NodeId | None = None
    identity: Identity | None = None
    peer_address: Address | None = None
    client_address: Address | None = None

    def for_peers(self, listen: Address) -> Address:
        """Where relays dial it."""
        return _again(listen, self.peer_address)

    def for_clients(self, listen: Address) -> Address:
        """Where clients connect."""
        return _again(listen, self.client_address)


def _again(listen: Address, bound: Address | None) -> Address:
    """The same port, where any free one will do."""
    return listen if bound is None or listen.port else replace(listen, port=bound.port)
