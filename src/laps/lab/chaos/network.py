"""The network that chaos happens to: that of the lab, where no client depends on one relay.

Every client names a second relay of its region, and the Stub a second Edge. Without any one relay,
or either Control server, there is a way from every publisher to every subscriber.

| track   | published by            | at                                               |
|---------|-------------------------|--------------------------------------------------|
| voice   | MoQT                    | an Edge of the first region                      |
| ticks   | QUICR                   | an Edge of the second                            |
| sensor  | MoQT                    | the Stub                                         |
| twins   | MoQT, by two publishers | an Edge of the first and one of the last region  |
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from laps.lab.network import STUB_LOW, STUB_MS, Network, Publisher, Subscriber, standard
from laps.sim.topology import Link
from laps.types import parse_node_id

SIZES: Final = {"full": 3, "small": 2}
"How many regions each has."


def chaos_network(regions: int) -> Network:
    """Twelve relays in three regions, or nine in two."""
    last = regions
    base = standard(regions, 2)
    stub = f"{last}:{STUB_LOW}"
    second = Link(a=parse_node_id(stub), b=parse_node_id(f"{last}:2"), delay_ms=1.25 * STUB_MS)
    return replace(
        base,
        links=(*base.links, second),
        publishers=(
            Publisher(track="voice", kind="audio", **_at(1, 1)),
            Publisher(track="ticks", kind="sensor", protocol="quicr", **_at(2, 2)),
            Publisher(track="sensor", kind="sensor", node=stub, others=(f"{last}:1",)),
            Publisher(track="twins", kind="audio", **_at(1, 2)),
            Publisher(track="twins", kind="audio", **_at(last, 1)),
        ),
        subscribers=(
            Subscriber(track="voice", **_at(2, 1)),
            Subscriber(track="voice", protocol="quicr", **_at(last, 2)),
            Subscriber(track="voice", node=stub, others=(f"{last}:2",)),
            Subscriber(track="ticks", **_at(1, 1)),
            Subscriber(track="ticks", protocol="quicr", **_at(last, 1)),
            Subscriber(track="sensor", **_at(2, 2)),
            Subscriber(track="sensor", protocol="quicr", **_at(1, 2)),
            Subscriber(track="twins", **_at(2, 1)),
            Subscriber(track="twins", protocol="quicr", **_at(2, 2)),
        ),
    )


def _at(region: int, low: int) -> dict[str, Any]:
    """One Edge of a region, and the other one if that is lost."""
    return {"node": f"{region}:{low}", "others": (f"{region}:{3 - low}",)}
