"""Control servers share the subscribes: which of them hold that of a track, and who reaches whom.

Every node ranks the servers by a hash of each with the track (rendezvous hashing), and the first
`REPLICAS` of those that the subscriber's relay has sessions with hold its subscribe. One server
more or less moves only the share that it gains or loses.
"""

from __future__ import annotations

from itertools import combinations
from struct import Struct
from typing import TYPE_CHECKING, Final

from laps.types import hash_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from laps.types import NodeId, TrackKey

# One may die without a word being lost, and another holds its share before the next does.
REPLICAS: Final = 2

_PAIR: Final = Struct(">QQ")


def responsible(key: TrackKey, servers: Collection[NodeId]) -> Collection[NodeId]:
    """Those of some servers that hold the subscribes to a track."""
    if len(servers) <= REPLICAS:
        return servers
    ranked = sorted(servers, key=lambda server: (-weight(server, key), server))
    return ranked[:REPLICAS]


def weight(server: NodeId, key: TrackKey) -> int:
    """How much a track is a server's: the highest is responsible."""
    return hash_bytes(_PAIR.pack(server, key))


def are_joined(servers: Collection[NodeId], peers: Mapping[NodeId, Collection[NodeId]]) -> bool:
    """Whether servers exchange subscribes each with each, or by others of them.

    `peers` are the servers that each says it has sessions with.
    """
    if not servers:
        return False
    ways: dict[NodeId, set[NodeId]] = {it: set() for it in servers}
    for server in servers:
        for other in ways.keys() & set(peers.get(server, ())):
            ways[server].add(other)
            ways[other].add(server)
    first = next(iter(servers))
    seen, queue = {first}, [first]
    while queue:
        new = ways[queue.pop()] - seen
        seen |= new
        queue += new
    return len(seen) == len(ways)


def are_all_joined(servers: Collection[NodeId], peers: Mapping[NodeId, Collection[NodeId]]) -> bool:
    """Whether each of some servers has a session with each of the others, as either says."""
    pairs = combinations(servers, 2)
    return all(a in peers.get(b, ()) or b in peers.get(a, ()) for a, b in pairs)
