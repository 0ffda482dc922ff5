"""`laps bench control` in small: real control servers, light Edges, and nothing is missed."""

from __future__ import annotations

from laps.bench.control import Asked, measure


def test_bench_control_misses_nothing_when_a_server_is_killed_and_another_joins() -> None:
    asked = Asked(
        servers=3, edges=4, tracks=200, rate=100.0, seconds=1.0, kill=True, add=True, restart=False
    )
    result = measure(asked)
    compared = {it.what: it.figure for it in result.figures if it.case == "compared"}
    assert result.holds(), compared
    assert compared["missed by the publisher's Edge"] == 0
    assert compared["left over at the publisher's Edge"] == 0
    assert [it.name for it in result.stretches] == [
        "changes",
        "a server is killed",
        "a server is added",
    ]
    assert result.samples
