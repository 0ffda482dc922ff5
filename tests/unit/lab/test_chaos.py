"""What happens in `laps lab chaos`, and what is made of it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest

from laps.lab.chaos.faults import MOST_DROP, Fault, control_faults, link_faults, relay_faults
from laps.lab.chaos.memory import FULL_S, LEAST_S, Life
from laps.lab.chaos.network import SIZES, chaos_network
from laps.lab.chaos.running import Happened
from laps.types import PeerMode, format_node_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laps.lab.network import Network

MANY = 500
SEQUENCES = [relay_faults, control_faults, link_faults]


def roles(network: Network) -> dict[str, str]:
    return {format_node_id(node.id): node.type for node in network.nodes}


@pytest.fixture(params=SIZES)
def network(request: pytest.FixtureRequest) -> Network:
    return chaos_network(SIZES[request.param])


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_the_same_seed_gives_the_same_faults(
    network: Network, sequence: Callable[[Network, int], Iterator[Fault]]
) -> None:
    one, same, other = (list(islice(sequence(network, seed), MANY)) for seed in (7, 7, 8))
    assert one == same
    assert one != other


def test_every_relay_is_killed_frozen_and_restarted(network: Network) -> None:
    relays = {name for name, role in roles(network).items() if role != "control"}
    servers = set(roles(network)) - relays
    for sequence, wanted in ((relay_faults, relays), (control_faults, servers)):
        hit: dict[str, set[str]] = {}
        for fault in islice(sequence(network, 1), MANY):
            hit.setdefault(fault.kind, set()).update(fault.nodes)
        assert hit == {"kill": wanted, "freeze": wanted, "roll": wanted}


def test_links_that_carry_data_lose_no_more_than_one_datagram_in_twenty(network: Network) -> None:
    pairs = {
        (format_node_id(link.a), format_node_id(link.b))
        for link in network.links
        if link.mode is not PeerMode.CONTROL
    }
    faults = list(islice(link_faults(network, 1), MANY))
    assert {fault.nodes for fault in faults} == pairs
    assert max(fault.amount for fault in faults if fault.kind == "drop") <= MOST_DROP == 0.05


def test_no_client_depends_on_one_relay(network: Network) -> None:
    kinds = roles(network)
    clients = [(it.node, *it.others) for it in network.publishers]
    clients += [(it.node, *it.others) for it in network.subscribers]
    for client in clients:
        places = set(client)
        assert len(places) == 2
        assert len({place.partition(":")[0] for place in places}) == 1
        assert all(kinds[place] in ("edge", "stub") for place in places)
    (stub,) = (name for name, kind in kinds.items() if kind == "stub")
    dialled = [format_node_id(link.b) for link in network.links if format_node_id(link.a) == stub]
    assert len(set(dialled)) == 2


def test_tracks_of_both_protocols_are_read_by_both(network: Network) -> None:
    published = {publisher.track: publisher.protocol for publisher in network.publishers}
    assert set(published.values()) == {"moqt", "quicr"}
    for track in published:
        read = {it.protocol for it in network.subscribers if it.track == track}
        assert read == {"moqt", "quicr"}
    twins = [it.node for it in network.publishers if it.track == "twins"]
    assert len({node.partition(":")[0] for node in twins}) == 2


def test_a_fault_is_told_with_its_time_and_what_it_cost() -> None:
    kill = Fault("kill", ("1:100",), 1.0, 2.04)
    told = str(Happened(83.2, kill, 0.612, "voice at 3:2 (quicr)", ()))
    assert told == "1:23 kill 1:100 for 2.0 s: longest pause 0.61 s, voice at 3:2 (quicr)"
    late = str(Happened(3.0, kill, 0.6, "voice at 3:2 (quicr)", ("ticks at 1:1 (moqt)",)))
    assert late.endswith("; not there yet for ticks at 1:1 (moqt)")
    assert str(Fault("drop", ("1:1", "1:2"), 0, 5, 0.05)) == "drop 5.0 % at 1:1 1:2 for 5.0 s"
    assert str(Fault("roll", ("1:1", "1:2"), 0, 0.5)) == "restart 1:1, 1:2"


def life(seconds: float, *sizes_mb: float) -> Life:
    """A process that had these sizes, evenly over its time."""
    made = Life("1:1", 1, 0.0)
    for number, size in enumerate(sizes_mb):
        made.samples.append((seconds * number / (len(sizes_mb) - 1), int(size * 1e6)))
    return made


def test_memory_counts_from_when_caches_are_full() -> None:
    seconds = FULL_S + LEAST_S
    grown = [50.0] * 50 + [100.0] * 50
    assert not life(seconds, *grown).has_grown
    assert life(seconds, *grown, *[120.0] * 50).has_grown
    assert not life(seconds / 2, *grown, *[120.0] * 50).has_grown
    assert life(seconds, 50, *[100.0] * 100).growth == 0.0


def test_memory_of_a_relay_that_gets_clients_grows_once() -> None:
    seconds = FULL_S + LEAST_S
    grown = life(seconds, *[100.0] * 80, *[115.0] * 20)
    assert grown.has_grown
    grown.clients = [(FULL_S / 2, 3), (FULL_S + 10, 2)]
    assert grown.has_grown  # though nobody came
    grown.clients.append((FULL_S + 20, 5))
    assert not grown.has_grown


def test_memory_that_is_leaked_is_found_though_clients_come() -> None:
    leaky = life(FULL_S + LEAST_S, *(100.0 + 0.3 * number for number in range(100)))
    leaky.clients = [(0.0, 0), (FULL_S + 10, 5)]
    assert leaky.has_grown
    assert leaky.growth == pytest.approx(0.13, abs=0.02)
