"""Which targets would be spared a crossing of regions."""

from __future__ import annotations

import pytest

from laps.relay.detours import detours
from laps.types import NodeId

WEST, SOUTH, EAST, NOWHERE = (NodeId(number) for number in (10, 20, 30, 40))
REGIONS = {1: "west", 2: "south", 3: "east"}


def region_of(node_id: NodeId) -> str:
    return REGIONS.get(node_id // 10, "")


def at(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, numbers))


@pytest.mark.parametrize(
    ("ways", "found"),
    [
        pytest.param({31: at(31)}, {}, id="straight"),
        pytest.param({31: at(11, 31)}, {}, id="by way of its own region"),
        pytest.param({31: at(21, 31)}, {31: 1}, id="by another region"),
        pytest.param({31: at(21, 22, 31)}, {31: 1}, id="within that region it goes on"),
        pytest.param({12: at(21, 12)}, {12: 1}, id="out and back"),
        pytest.param({31: at(21, 11, 31)}, {31: 2}, id="to and fro"),
        pytest.param({31: at(21, 31), 21: at(21)}, {}, id="the first copy is paid for"),
        pytest.param({31: at(21, 31), 32: at(21, 32)}, {}, id="two share it"),
        pytest.param({31: at(21, 31), 32: at(22, 32)}, {31: 1, 32: 1}, id="two, each its own"),
        pytest.param({31: at(21, 31), 22: at(22)}, {31: 1}, id="another copy goes there"),
        pytest.param({31: at(41, 31)}, {}, id="nobody knows where it passes"),
        pytest.param({}, {}, id="nothing"),
    ],
)
def test_detours(ways: dict[int, tuple[NodeId, ...]], found: dict[int, int]) -> None:
    wanted = {NodeId(target): fewer for target, fewer in found.items()}
    assert detours(WEST, {NodeId(it): way for it, way in ways.items()}, region_of) == wanted
