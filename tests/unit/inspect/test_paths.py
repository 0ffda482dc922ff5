"""The way from a node to another, as each relay on it says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from laps.admin.client import AdminError
from laps.inspect.drawing import draw_path
from laps.inspect.paths import explain_path
from support.inspect_fake import FakeNet, path

if TYPE_CHECKING:
    from laps.inspect.trees import PathStory


def knows(net: FakeNet, node: str, target: str, best: Any, *others: Any, reason: str = "") -> None:
    net.relay(node).views[f"nodes/{target}"] = {
        "node": target,
        "reason": reason or "only path",
        "best": best,
        "alternates": list(others),
    }


@pytest.fixture
def net() -> FakeNet:
    made = FakeNet()
    made.link("1:1", "1:2", 2000)
    made.link("1:2", "1:3", 3000)
    other = path("1:4", "1:4", "1:5", "1:3", srtt_us=8000)
    reason = "fewest hops: 1 against 2 via 1:4"
    knows(made, "1:1", "1:3", path("1:2", "1:2", "1:3"), other, reason=reason)
    knows(made, "1:2", "1:3", path("1:3"))
    return made


def explain(net: FakeNet, source: str, target: str, *without: str) -> PathStory:
    return asyncio.run(explain_path(net.relays(*without), source, target))


def steps(story: PathStory) -> list[tuple[str, str]]:
    return [(step.node, step.peer) for step in story.steps]


def test_each_relay_is_asked_for_the_next(net: FakeNet) -> None:
    story = explain(net, "1:1", "1:3")
    assert steps(story) == [("1:1", "1:2"), ("1:2", "1:3")]
    assert [step.sum_us for step in story.steps] == [2000, 5000]
    assert story.steps[0].reason == "fewest hops: 1 against 2 via 1:4"
    assert [way.peer for way in story.steps[0].alternates] == ["1:4"]
    assert story.notes == story.defects == []


def test_a_relay_that_knows_better_than_the_one_before_decides(net: FakeNet) -> None:
    net.link("1:2", "1:6")
    net.link("1:6", "1:3")
    knows(net, "1:2", "1:3", path("1:6", "1:6", "1:3"), reason="the plan says so")
    knows(net, "1:6", "1:3", path("1:3"))
    assert steps(explain(net, "1:1", "1:3")) == [("1:1", "1:2"), ("1:2", "1:6"), ("1:6", "1:3")]


def test_who_cannot_be_asked_is_passed_as_the_last_one_knows_the_way(net: FakeNet) -> None:
    story = explain(net, "1:1", "1:3", "1:2")
    assert steps(story) == [("1:1", "1:2"), ("1:2", "1:3")]
    assert [step.asked for step in story.steps] == [True, False]
    assert story.steps[1].reason == "as 1:1 knows the way"
    assert "not asked: 1:2" in story.notes[0]


def test_the_first_has_to_answer(net: FakeNet) -> None:
    with pytest.raises(AdminError, match=r"1:1 cannot be asked.*1:2, 1:3"):
        explain(net, "1:1", "1:3", "1:1")


def test_a_node_that_nobody_knows_is_an_error(net: FakeNet) -> None:
    with pytest.raises(AdminError, match="no way leads from 1:1 to 9:9: it knows no node 9:9"):
        explain(net, "1:1", "9:9")


def test_a_way_that_breaks_off_is_shown_up_to_there(net: FakeNet) -> None:
    del net.relay("1:2").views["nodes/1:3"]
    story = explain(net, "1:1", "1:3")
    assert steps(story) == [("1:1", "1:2")]
    assert story.notes == ["it ends here: 1:2 knows no node 1:3"]


def test_a_way_for_control_alone_carries_no_data(net: FakeNet) -> None:
    knows(net, "1:2", "1:3", path("1:3", carries_data=False))
    assert "for control alone" in explain(net, "1:1", "1:3").notes[0]


def test_a_loop_is_a_defect(net: FakeNet) -> None:
    knows(net, "1:2", "1:3", path("1:1", "1:1", "1:3"))
    story = explain(net, "1:1", "1:3")
    assert story.defects == ["a loop: 1:1 to 1:2 to 1:1"]


def test_a_node_to_itself_needs_no_way(net: FakeNet) -> None:
    assert "the same node" in explain(net, "1:1", "1:1").notes[0]


def test_the_drawing_and_the_values_have_the_facts(net: FakeNet) -> None:
    story = explain(net, "1:1", "1:3")
    console = Console(width=100)
    with console.capture() as capture:
        for part in draw_path(story):
            console.print(part)
    text = capture.get()
    assert "from 1:1 to 1:3" in text
    assert "1:3  +3.0 ms = 5.0 ms" in text
    assert "not 1:4 (1:4 1:5 1:3): 2 hops, 8.0 ms" in text
    assert story.to_mapping()["steps"][1]["peer"] == "1:3"
