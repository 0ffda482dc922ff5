"""Every container of a relay is counted, so that what is left over shows.

It looks at relays at work, from the Relay and its Edge on, through whatever they hold: each
container that belongs to a class of ours is given one entry more, and `contents` has to count it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import pytest

from laps.relay.peers import PeerLink
from laps.relay.sizes import KEPT, contents
from laps.sim.families import disturb, failover, let_happen
from laps.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.edge.edge import Edge
    from laps.relay.relay import Relay
    from laps.sim.network import Network

# A class whose containers go with it, and why it is itself not left over.
GOES_WITH: Final = {
    "BoundaryScanner": "a cached stream",
    "CachedGroup": "the cache, which is bounded",
    "CachedStream": "the cache, which is bounded",
    "CachedTrack": "its track",
    "ControlDecoder": "a link, and its codecs are fixed",
    "Cut": "the stream that it cuts",
    "Dialect": "the program: its tables are fixed",
    "Flow": "Fib._flows, which is counted",
    "History": "its track, or Tracks.histories, which is bounded",
    "InOrder": "its track",
    "IncomingStream": "Track.streams, or OpenStreams, which is counted",
    "Meter": "its track, or Tracks.transit, which is counted",
    "Numbers": "a group of the cache, which is bounded",
    "Origins": "the configuration",
    "Packed": "Subscribes._records, or PackedSets: both are counted by their rows",
    "PackedSets": "Subscribes, and is counted by its rows",
    "Passing": "OpenStreams, which is counted",
    "PeerSession": "a link, and its codecs are fixed",
    "Positions": "its track",
    "SnsIds": "Fib._ids, which counts them",
    "SortedNumbers": "a row of PackedSets, which is counted",
    "Track": "the cache, or who wants or publishes it, which are counted",
    "Waiting": "the stream that waits",
    "_NodeStream": "what is sent on it, which is counted",
    "_StubStream": "what is sent on it, which is counted",
    "_Queue": "HeldData._queues, which is counted",
    "_Repair": "Repairs._open, which is counted",
    "_Session": "Nodes._sessions, which is counted",
    "_Wait": "Pressure.waiting, which is counted",
}

MUTABLE: Final = (dict, set, list, deque, Table)


@pytest.fixture(scope="module")
def networks() -> list[Network]:
    """At work, with streams and repairs under way; with Stubs, and with extensions."""
    some = disturb(2)
    some.run(1.3)
    other, faults = failover(4, any_node=True)
    other.settle()
    let_happen(other, faults[: len(faults) // 2])
    other.run(0.7)
    return [some, other]


def attributes(thing: object) -> Iterator[tuple[str, object]]:
    yield from getattr(thing, "__dict__", {}).items()
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(thing, name):
                yield name, getattr(thing, name)


def containers(*roots: object) -> Iterator[tuple[str, object]]:
    """All that can be reached, by class and attribute, each once."""
    seen: set[int] = set()
    waiting: list[object] = list(roots)
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, dict | Table):
            waiting += [it for item in thing.items() for it in item]
        elif isinstance(thing, tuple | frozenset | set | list | deque):
            waiting += thing
        elif type(thing).__module__.startswith("laps.") and not is_outside(thing):
            for name, value in attributes(thing):
                waiting.append(value)
                if isinstance(value, MUTABLE):
                    yield f"{type(thing).__name__}.{name}", value


def is_outside(thing: object) -> bool:
    return type(thing).__module__.startswith(("laps.sim.", "laps.net."))


def is_counted(container: object, relay: Relay, edge: Edge | None) -> bool:
    """Whether one entry more shows; where an entry of this kind makes it fail, it is looked at."""
    before = sum(contents(relay, edge, with_peers=False).values())
    extra = object()
    if isinstance(container, dict | Table):
        container[extra] = extra
    elif isinstance(container, set):
        container.add(extra)
    elif isinstance(container, list | deque):
        container.append(extra)
    try:
        return sum(contents(relay, edge, with_peers=False).values()) > before
    except (AttributeError, TypeError):
        return True
    finally:
        if isinstance(container, dict | Table):
            del container[extra]
        elif isinstance(container, set):
            container.remove(extra)
        elif isinstance(container, list | deque):
            container.pop()


def forgotten(networks: list[Network]) -> set[str]:
    """The containers that nobody counts."""
    counted: dict[str, bool] = {}
    for network in networks:
        for node in network.nodes.values():
            for title, container in containers(node.relay, node.edge):
                excused = title in KEPT or title.partition(".")[0] in GOES_WITH
                if node.relay is not None and not excused and title not in counted:
                    counted[title] = is_counted(container, node.relay, node.edge)
    return {title for title, is_so in counted.items() if not is_so}


def test_no_container_of_a_relay_is_forgotten(networks: list[Network]) -> None:
    assert forgotten(networks) == set()


def test_a_container_that_is_forgotten_is_found(
    networks: list[Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in something that a link holds."""

    class Extra:
        def __init__(self) -> None:
            self.more: dict[int, int] = {}

    monkeypatch.setattr(Extra, "__module__", "laps.relay.extra")
    node = next(node for node in networks[0].nodes.values() if node.relay is not None)
    assert node.relay is not None
    link = next(iter(node.relay.links.peer_links.values()))
    assert isinstance(link, PeerLink)
    link.early.append((3, Extra(), False))  # type: ignore[arg-type] # never read
    try:
        assert forgotten(networks) == {"Extra.more"}
    finally:
        link.early.pop()


def test_what_is_excused_is_there(networks: list[Network]) -> None:
    """An excuse for something that is no more would hide the next of that name."""
    titles = {
        title
        for network in networks
        for node in network.nodes.values()
        for title, _ in containers(node.relay, node.edge)
    }
    assert titles >= KEPT
    # Not in every run.
    rare = {"Cut", "Numbers", "SortedNumbers", "_Queue", "_Repair", "_StubStream", "_Wait"}
    assert {title.partition(".")[0] for title in titles} >= set(GOES_WITH) - rare
