"""Objects at every relay at once: which way each came, and what each hop added."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from laps.admin.schema.tracks import Arrival, Missed
from laps.inspect import trace
from laps.inspect.relays import Where
from laps.inspect.trace import GRACE_S, Collector, Tracer, Until, quantile
from support.inspect_fake import TRACK, FakeNet, simple_line

if TYPE_CHECKING:
    from laps.admin.client import PageT
    from laps.inspect.trace import Traced

Line = Arrival | Missed


def line(at_ms: float, source: str | None, number: int = 0, group: int = 1, **fields: Any) -> Line:
    made = {"at": 1000 + at_ms / 1000, "group": group, "subgroup": 0, "object": number}
    return Arrival(**made | {"source": source, "bytes": 100} | fields)


def collected(
    *lines: tuple[str, Line], above: dict[str, str] | None = None
) -> tuple[Collector, list[Traced]]:
    collector = Collector()
    collector.above = above or {}
    for node, said in lines:
        collector.take(node, said, 0.0)
    return collector, list(collector.ripe(GRACE_S))


def delays(traced: Traced, above: dict[str, str] | None = None) -> dict[tuple[str, ...], int]:
    return {hop.link: round(hop.delay_us) for hop in traced.passages(above or {})}


def test_the_delay_of_a_hop_is_between_its_two_ends() -> None:
    collector, [traced] = collected(
        ("1:3", line(5, "1:2")), ("1:1", line(0, None)), ("1:2", line(2, "1:1"))
    )
    assert delays(traced) == {("1:1", "1:2"): 2000, ("1:2", "1:3"): 3000}
    [end] = collector.summary()["ends"]
    assert (end["from"], end["to"], end["p50_us"]) == ("1:1", "1:3", 5000)


def test_a_tree_has_a_way_to_each_end() -> None:
    collector, [traced] = collected(
        ("1:1", line(0, None)),
        ("1:2", line(1, "1:1")),
        ("1:3", line(3, "1:2")),
        ("1:4", line(7, "1:2")),
    )
    assert delays(traced) == {
        ("1:1", "1:2"): 1000,
        ("1:2", "1:3"): 2000,
        ("1:2", "1:4"): 6000,
    }
    assert {end["to"] for end in collector.summary()["ends"]} == {"1:3", "1:4"}


def test_a_relay_that_told_nothing_of_an_object_is_bridged() -> None:
    lines = ("1:1", line(0, None)), ("1:3", line(4, "1:2"))
    collector, [traced] = collected(*lines, above={"1:2": "1:1"})
    assert delays(traced, {"1:2": "1:1"}) == {("1:1", "1:2", "1:3"): 4000}
    [hop] = collector.summary()["hops"]
    assert (hop["from"], hop["through"], hop["to"]) == ("1:1", ["1:2"], "1:3")


def test_without_knowing_who_is_above_there_is_no_hop_but_the_whole_way() -> None:
    collector, [traced] = collected(("1:1", line(0, None)), ("1:3", line(4, "1:2")))
    assert delays(traced) == {}
    assert [(end["from"], end["to"]) for end in collector.summary()["ends"]] == [("1:1", "1:3")]


def test_a_ring_of_those_above_ends() -> None:
    above = {"1:2": "1:5", "1:5": "1:2"}
    _, [traced] = collected(("1:3", line(4, "1:2")), above=above)
    assert delays(traced, above) == {}


def test_clocks_that_differ_show_as_what_they_are() -> None:
    collector, [traced] = collected(("1:1", line(10, None)), ("1:2", line(4, "1:1")))
    assert delays(traced) == {("1:1", "1:2"): -6000}
    assert collector.summary()["hops"][0]["negative"] == 1


def test_an_object_waits_for_its_last_arrivals_and_no_longer() -> None:
    collector = Collector()
    collector.take("1:1", line(0, None), 0.0)
    assert list(collector.ripe(GRACE_S / 2)) == []
    collector.take("1:2", line(1, "1:1"), GRACE_S / 2)
    [traced] = collector.ripe(GRACE_S)
    assert set(traced.arrivals) == {"1:1", "1:2"}
    collector.take("1:3", line(9, "1:2"), GRACE_S * 2)
    assert list(collector.ripe(GRACE_S * 4)) == []
    assert collector.objects == 1


def test_objects_of_two_subgroups_and_in_datagrams_are_different_ones() -> None:
    _, objects = collected(
        ("1:1", line(0, None, subgroup=0)),
        ("1:1", line(0, None, subgroup=1)),
        ("1:1", line(0, None, subgroup=None)),
    )
    assert [traced.to_mapping({})["subgroup"] for traced in objects] == [0, 1, None]


def test_what_comes_again_is_counted_and_the_first_time_holds() -> None:
    collector, [traced] = collected(
        ("1:1", line(0, None)), ("1:2", line(1, "1:1")), ("1:2", line(8, "1:3"))
    )
    assert delays(traced) == {("1:1", "1:2"): 1000}
    assert collector.again == {("1:3", "1:2"): 1}


def test_what_the_far_end_does_not_tell_of_is_counted() -> None:
    collector, _ = collected(
        ("1:1", line(0, None, 0)), ("1:2", line(1, "1:1", 0)), ("1:1", line(2, None, 1))
    )
    [hop] = collector.summary()["hops"]
    assert (hop["objects"], hop["unseen"]) == (1, 1)


def test_what_a_relay_missed_and_the_end_of_the_track_are_noted() -> None:
    collector, _ = collected(
        ("1:1", Missed(missed=4)), ("1:1", Missed(missed=3)), ("1:1", line(0, None, status=4))
    )
    assert collector.missed == {"1:1": 7}
    assert collector.ended


@pytest.mark.parametrize(("share", "value"), [(0.5, 2), (0.99, 4), (0.25, 1), (1.0, 4)])
def test_a_quantile_is_a_value_that_was_seen(share: float, value: int) -> None:
    assert quantile([1, 2, 3, 4], share) == value


def test_programs_get_arrivals_and_hops() -> None:
    _, [traced] = collected(("1:1", line(0, None)), ("1:2", line(2, "1:1")))
    mapping = traced.to_mapping({})
    assert mapping["hops"] == [{"from": "1:1", "to": "1:2", "delay_us": 2000}]
    assert [item["node"] for item in mapping["arrivals"]] == ["1:1", "1:2"]


# -- until when ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are a moment apart, and nobody is looked for on this machine."""
    monkeypatch.setattr(trace, "LOOK_S", 0.02)
    monkeypatch.setattr(trace, "TURN_S", 0.005)

    async def nobody(relays: object, where: object) -> list[str]:
        return []

    monkeypatch.setattr(trace, "find_more", nobody)


class Followed:
    """A trace of a net's track, run to its end."""

    def __init__(self, net: FakeNet, until: Until) -> None:
        self.shown: list[Traced] = []
        self.told: list[str] = []

        async def run() -> str:
            relays = net.relays()
            made = Tracer(relays, Where(), TRACK, self.shown.append, self.told.append)
            self.collector = made.collector
            return await made.run(until)

        self.ended = asyncio.run(run())


def traced_line() -> FakeNet:
    net = simple_line()
    net.apis["1:1"].told = [line(0, None, 0), line(10, None, 1)]
    net.apis["1:2"].told = [line(1, "1:1", 0), line(11, "1:1", 1)]
    net.apis["1:3"].told = [line(2, "1:2", 0), line(12, "1:2", 1)]
    return net


def test_it_ends_when_nothing_comes_and_shows_what_there_was() -> None:
    followed = Followed(traced_line(), Until(idle_s=0.05))
    assert followed.ended == "nothing came for 0.05 s (--idle)"
    assert [traced.place for traced in followed.shown] == [(1, 0, 0), (1, 0, 1)]
    assert len(followed.collector.hops) == 2


def test_it_ends_after_a_time() -> None:
    assert Followed(traced_line(), Until(seconds=0.05)).ended == "0.05 s are over"


def test_it_ends_after_so_many_objects() -> None:
    followed = Followed(traced_line(), Until(objects=1))
    assert followed.ended == "1 object was seen"
    assert len(followed.shown) == followed.collector.objects == 1


def test_it_ends_when_the_publisher_says_that_the_track_is_over() -> None:
    net = traced_line()
    net.apis["1:1"].told.append(line(20, None, 2, status=4))
    assert "its publisher says so" in Followed(net, Until()).ended


def test_it_ends_when_nobody_publishes_any_more() -> None:
    net = traced_line()
    api = net.apis["1:1"]
    looks: list[int] = []
    plain = api.find

    async def find(page: type[PageT], name: str = "", **query: str | int) -> PageT | None:
        looks.append(1)
        return await plain(page, name if len(looks) < 2 else "gone")

    api.find = find  # type: ignore[method-assign]
    assert "nobody publishes it any more" in Followed(net, Until()).ended


def test_a_relay_that_goes_is_told_of_and_the_others_go_on() -> None:
    net = traced_line()
    net.apis["1:2"].gone = True
    followed = Followed(net, Until(idle_s=0.1))
    assert any(words.startswith("1:2 tells no more") for words in followed.told)
    assert followed.collector.objects == 2
