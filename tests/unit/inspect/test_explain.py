"""The tree of a track, put together from what each relay says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from laps.admin.client import AdminError
from laps.inspect.drawing import draw_track
from laps.inspect.explain import explain_track
from laps.inspect.names import Wanted, track_of
from support.inspect_fake import AT, TRACK, FakeNet, path, simple_line

if TYPE_CHECKING:
    from laps.admin.client import PageT
    from laps.inspect.trees import Hop, TrackStory

Shape = tuple[str, list["Shape"]]


def explain(net: FakeNet, *without: str, wanted: Wanted = TRACK) -> TrackStory:
    return asyncio.run(explain_track(net.relays(*without), wanted, rate_s=0.0))


def shape(hop: Hop) -> Shape:
    return hop.node, [shape(below) for below in hop.below]


def shapes(story: TrackStory) -> list[Shape]:
    return [shape(root) for root in story.roots]


def hop_of(story: TrackStory, node: str) -> Hop:
    return next(hop for root in story.roots for hop in root.all() if hop.node == node)


def drawn(story: TrackStory) -> str:
    console = Console(width=100, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        for part in draw_track(story):
            console.print(part)
    return capture.get()


LINE: Shape = ("1:1", [("1:2", [("1:3", [])])])


# -- the tree --------------------------------------------------------------------------------------


def test_the_tree_goes_from_the_publisher_to_the_subscribers() -> None:
    story = explain(simple_line())
    assert shapes(story) == [LINE]
    assert story.notes == story.defects == []
    root, via, far = (hop_of(story, node) for node in ("1:1", "1:2", "1:3"))
    assert (root.publishers, far.subscribers) == (1, 2)
    assert (via.srtt_us, via.sum_us, far.srtt_us, far.sum_us) == (2000, 2000, 3000, 5000)
    assert [hop.role for hop in (root, via, far)] == ["edge", "via", "edge"]
    assert all(hop.asked for hop in (root, via, far))


def test_each_hop_says_why_and_what_was_not_taken() -> None:
    story = explain(simple_line())
    [why] = hop_of(story, "1:2").why
    assert why.targets == ("1:3",)
    assert why.reason == "fewest hops: 1 against 2 via 1:4"
    assert [(way.peer, way.hops, way.srtt_us) for way in why.alternates] == [
        ("1:4", ("1:4", "1:5", "1:3"), 9000)
    ]


def test_a_plan_that_decides_is_the_reason() -> None:
    net = simple_line()
    row = net.apis["1:1"].views[f"tracks/{TRACK.hash}"]
    row["hops"][0]["reason"] = "the plan says via 1:2"
    assert hop_of(explain(net), "1:2").why[0].reason == "the plan says via 1:2"


def test_a_session_on_demand_and_the_class_of_the_track_are_told() -> None:
    net = simple_line()
    row = next(it for it in net.apis["1:1"].views["peers"]["peers"] if it["node"] == "1:2")
    row["on_demand"] = "4 copies into east where 2 may go"
    net.apis["1:1"].views[f"tracks/{TRACK.hash}"]["service"] = "gold"
    story = explain(net)
    words = "a session on demand: 4 copies into east where 2 may go"
    assert hop_of(story, "1:2").notes == [words]
    assert hop_of(story, "1:3").notes == []
    assert ", class gold" in drawn(story)
    assert words in drawn(story)


def test_a_session_on_demand_is_told_where_data_comes_by_it_too() -> None:
    net = simple_line()
    row = next(it for it in net.apis["1:2"].views["peers"]["peers"] if it["node"] == "1:1")
    row["on_demand"] = "60 ms to it, and 20 would do"
    words = "a session on demand: 1:2 dialled it: 60 ms to it, and 20 would do"
    assert hop_of(explain(net), "1:2").notes == [words]


def test_what_policy_refuses_is_told_with_the_reason() -> None:
    net = simple_line()
    net.apis["1:1"].views["fib"]["fib"].clear()
    net.flow("1:1", {"client": 1}, [("1:2", 7, ["1:3"])], unreached=["1:5", "1:6"])
    net.wants("1:1", "1:5")
    reason = "policy: 1:5 is in west, and the track stays inside east"
    row = net.apis["1:1"].views[f"tracks/{TRACK.hash}"]
    row["hops"].append({"node": "1:5", "reason": reason})
    story = explain(net)
    assert hop_of(story, "1:1").notes == [
        f"not sent to 1:5: {reason}",
        "not sent to 1:6: no link leads there",
    ]
    assert f"1:5 gets nothing: 1:1 knows of it: {reason}" in story.notes


def test_targets_with_the_same_reason_are_told_together() -> None:
    net = simple_line()
    net.apis["1:1"].views["fib"]["fib"].clear()
    net.flow("1:1", {"client": 1}, [("1:2", 7, ["1:3", "1:4", "1:5"])])
    hops = [
        {"node": node, "peer": "1:2", "reason": reason, "alternates": []}
        for node, reason in (("1:3", "only path"), ("1:4", "only path"), ("1:5", "the plan"))
    ]
    net.apis["1:1"].views[f"tracks/{TRACK.hash}"]["hops"] = hops
    whys = hop_of(explain(net), "1:2").why
    assert {(why.reason, why.targets) for why in whys} == {
        ("only path", ("1:3", "1:4")),
        ("the plan", ("1:5",)),
    }


def test_where_a_relay_says_no_reason_its_way_to_the_node_has_one() -> None:
    net = simple_line()
    net.relay("1:2").views["nodes/1:3"] = {
        "node": "1:3",
        "reason": "only path",
        "best": path("1:3"),
        "alternates": [],
    }
    assert [why.reason for why in hop_of(explain(net), "1:3").why] == ["only path"]


def test_rates_come_from_two_answers() -> None:
    net = simple_line()
    api = net.apis["1:3"]
    key = f"tracks/{TRACK.hash}"
    answers = iter([AT, AT + 2])

    async def find(page: type[PageT], name: str = "", **query: str | int) -> PageT | None:
        if name == TRACK.hash:
            at = next(answers)
            api.views[key] |= {"at": at, "received_bytes": round(1000 * (at - AT))}
        return await type(api).find(api, page, name, **query)

    api.find = find  # type: ignore[method-assign]
    story = asyncio.run(explain_track(net.relays(), TRACK, rate_s=0.001))
    assert hop_of(story, "1:3").bytes_per_s == 1000
    assert "8.0 kbit/s" in drawn(story)


def test_the_set_tells_which_flow_goes_on_where_nobody_knows_the_track_yet() -> None:
    net = simple_line()
    net.apis["1:2"].views["fib"]["fib"].clear()
    net.flow("1:2", {"peer": "1:1", "sns": 8}, [("1:1", 1, ["1:1"])], known=False)
    net.flow("1:2", {"peer": "1:1", "sns": 7}, [("1:3", 4, ["1:3"])], known=False)
    assert shapes(explain(net)) == [LINE]


def test_two_publishers_at_two_relays_are_two_trees() -> None:
    net = FakeNet()
    net.line("1:1", "1:2", "1:3")
    for node in ("1:1", "1:3"):
        net.track(node, origin=True, publishers=1, subscribers=1)
    net.flow("1:1", {"client": 1}, [("1:2", 7, ["1:3"])], local=True)
    net.flow("1:3", {"client": 1}, [("1:2", 7, ["1:1"])], local=True)
    net.flow("1:2", {"peer": "1:1", "sns": 7}, [("1:3", 1, ["1:3"])])
    net.flow("1:2", {"peer": "1:3", "sns": 7}, [("1:1", 1, ["1:1"])])
    net.flow("1:3", {"peer": "1:2", "sns": 1}, local=True)
    net.flow("1:1", {"peer": "1:2", "sns": 1}, local=True)
    story = explain(net)
    assert shapes(story) == [LINE, ("1:3", [("1:2", [("1:1", [])])])]
    assert story.defects == []


def test_a_stub_that_publishes_is_the_root_and_one_that_reads_a_leaf() -> None:
    net = FakeNet()
    for stub in ("1:8", "1:9"):
        net.relay(stub, "stub")
    net.line("1:8", "1:1", "1:3", "1:9")
    net.track("1:8", origin=True, publishers=1)
    net.track("1:1", origin=True, publishers=1)
    net.track("1:3", subscribers=1, ingress=["1:1"])
    net.track("1:9", subscribers=1, ingress=["1:3"])
    net.flow("1:1", {"client": None, "stub": "1:8"}, [("1:3", 7, ["1:3"])])
    net.flow("1:3", {"peer": "1:1", "sns": 7}, local=True)
    net.flow("1:9", {"peer": "1:3", "sns": 2}, local=True)
    story = explain(net)
    assert shapes(story) == [("1:8", [("1:1", [("1:3", [("1:9", [])])])])]
    assert story.notes == []


# -- who cannot be asked ---------------------------------------------------------------------------


def test_a_relay_that_cannot_be_asked_is_passed_by_what_comes_from_it() -> None:
    story = explain(simple_line(), "1:2")
    assert shapes(story) == [LINE]
    assert not hop_of(story, "1:2").asked
    assert hop_of(story, "1:3").asked
    assert "not asked: 1:2" in story.notes[0]
    assert "1:2 via  +2.0 ms, not asked" in drawn(story)


def test_behind_the_last_that_could_be_asked_the_tree_follows_the_way_it_knows() -> None:
    net = simple_line()
    net.relay("1:1").views["nodes/1:3"] = {
        "node": "1:3",
        "role": "edge",
        "reason": "only path",
        "best": path("1:2", "1:2", "1:6", "1:3"),
        "alternates": [],
    }
    story = explain(net, "1:2", "1:3")
    assert shapes(story) == [("1:1", [("1:2", [("1:6", [("1:3", [])])])])]
    assert hop_of(story, "1:6").notes == ["as 1:1 knows the way"]


def test_a_way_that_nobody_knows_is_said_to_be_unknown() -> None:
    story = explain(simple_line(), "1:2", "1:3")
    assert shapes(story) == [("1:1", [("1:2", [])])]
    assert hop_of(story, "1:2").notes == ["how it goes on to 1:3 is not known"]


def test_a_publisher_behind_relays_that_cannot_be_asked_is_not_known() -> None:
    net = simple_line()
    net.wants("1:3", "1:7")
    story = explain(net, "1:1", "1:2")
    assert shapes(story) == [("1:2", [("1:3", [])])]
    assert hop_of(story, "1:2").notes == ["where it has it from is not known"]
    assert "whether 1:7, which wants it, gets it is not known" in story.notes


def test_a_relay_that_has_not_heard_of_a_set_yet_is_said_so() -> None:
    net = simple_line()
    net.apis["1:2"].views["fib"]["fib"].clear()
    story = explain(net)
    assert "has not heard of this set yet" in hop_of(story, "1:2").notes[0]


def test_a_relay_that_goes_while_it_is_asked_is_no_reason_to_fail() -> None:
    net = simple_line()
    net.apis["1:2"].gone = True
    story = explain(net)
    assert shapes(story) == [LINE]
    assert not hop_of(story, "1:2").asked


# -- what is to be said plainly --------------------------------------------------------------------


def test_a_track_that_nobody_knows_is_an_error_with_the_way_out() -> None:
    with pytest.raises(AdminError, match=r"no track other/t y is known .*1:1, 1:2, 1:3.*laps show"):
        explain(simple_line(), wanted=track_of(["other/t", "y"]))


def test_a_track_without_a_publisher_names_who_wants_it() -> None:
    net = FakeNet()
    net.track("1:3", subscribers=1)
    net.wants("1:3", "1:3")
    story = explain(net)
    assert story.roots == []
    assert story.notes == ["nobody publishes it; it is wanted at 1:3"]


def test_a_track_that_is_offered_and_not_wanted_does_not_flow() -> None:
    net = FakeNet()
    net.track("1:1")
    net.relay("1:1").add("announces", source="1:1", client=4, namespace="demo", name=None)
    net.relay("1:1").add("announces", source="1:2", client=4, namespace="demo/t", name="other")
    story = explain(net)
    assert story.notes == ["nobody subscribes to it, so nothing flows; 1:1 offers it"]


def test_a_track_without_subscribers_is_said_so() -> None:
    net = FakeNet()
    net.track("1:1", origin=True, publishers=1)
    net.flow("1:1", {"client": 1})
    story = explain(net)
    assert shapes(story) == [("1:1", [])]
    assert story.notes == ["nobody subscribes to it"]


def test_a_subscriber_that_no_path_reaches_is_named_with_the_reason() -> None:
    net = simple_line()
    net.apis["1:1"].views["fib"]["fib"].clear()
    net.flow("1:1", {"client": 1}, [("1:2", 7, ["1:3"])], unreached=["1:5"])
    net.wants("1:1", "1:5")
    net.track("1:6", subscribers=1)
    story = explain(net)
    assert "not sent to 1:5: no link leads there" in hop_of(story, "1:1").notes
    assert "1:5 gets nothing: 1:1 knows of it: no path leads there" in story.notes
    assert "1:6, with 1 subscriber, gets nothing: 1:1 has not heard of it" in story.notes


def test_a_loop_is_a_defect_and_does_not_go_on_for_ever() -> None:
    net = simple_line()
    net.apis["1:3"].views["fib"]["fib"].clear()
    net.flow("1:3", {"peer": "1:2", "sns": 4}, [("1:1", 9, ["1:5"])], local=True)
    net.flow("1:1", {"peer": "1:3", "sns": 9}, [("1:2", 8, ["1:5"])])
    story = explain(net)
    assert story.defects == ["a loop: 1:1 to 1:2 to 1:3 to 1:1"]
    assert "DEFECT: a loop" in drawn(story)


def test_a_double_copy_is_a_defect() -> None:
    net = simple_line()
    net.link("1:1", "1:3")
    net.flow("1:1", {"client": 2}, [("1:3", 5, ["1:3"])])
    net.flow("1:3", {"peer": "1:1", "sns": 5}, local=True)
    [defect] = explain(net).defects
    assert "a double copy: 1:3 has it from 1:1 and from 1:2" in defect


def test_an_old_way_that_finishes_its_streams_is_no_double_copy() -> None:
    net = simple_line()
    net.link("1:1", "1:3")
    net.flow("1:1", {"client": 2}, [("1:3", 5, ["1:3"])], old=True, streams=3)
    net.flow("1:1", {"client": 2}, [("1:3", 6, ["1:3"])], old=True, streams=0)
    net.flow("1:3", {"peer": "1:1", "sns": 5}, local=True)
    story = explain(net)
    assert story.defects == []
    old = story.roots[0].below[-1]
    assert (old.node, old.notes) == ("1:3", ["an old way: 3 streams end here, no new ones begin"])
    assert len(story.roots[0].below) == 2


def test_a_track_whose_name_reads_like_anothers_is_found_by_its_name() -> None:
    net = simple_line()
    odd = Wanted("0123456789abcdef", "demo/t", "x")
    for api in net.apis.values():
        api.add("tracks", track=TRACK.hash, namespace="demo/t", name="x")
    assert explain(net, wanted=odd).hash == TRACK.hash


# -- how it looks ----------------------------------------------------------------------------------


def test_the_drawing_has_the_facts() -> None:
    text = drawn(explain(simple_line()))
    assert f"track demo/t x ({TRACK.hash})" in text
    assert "1:1 edge  1 publisher" in text
    assert "1:3 edge  +3.0 ms = 5.0 ms, 2 subscribers" in text
    assert "fewest hops: 1 against 2 via 1:4" in text
    assert "not 1:4 (1:4 1:5 1:3): 2 hops, 9.0 ms" in text


def test_of_many_ways_not_taken_the_best_are_drawn_and_those_for_control_together() -> None:
    net = simple_line()
    others = [path(f"2:{n}", f"2:{n}", "1:3", srtt_us=n * 1000) for n in range(1, 7)]
    control = [path(f"0:{n}", f"0:{n}", "1:3", carries_data=False) for n in (1, 2)]
    row = net.apis["1:1"].views[f"tracks/{TRACK.hash}"]
    row["hops"][0]["alternates"] = [*others, *control]
    text = drawn(explain(net))
    assert "not 2:4 (2:4 1:3): 1 hop, 4.0 ms" in text
    assert "not 2:5" not in text
    assert "nor 2 others" in text
    assert "not 0:1 0:2: for control alone" in text
    assert len(explain(net).to_mapping()["trees"][0]["to"][0]["why"][0]["alternates"]) == 8


def test_programs_get_the_same_as_values() -> None:
    mapping = explain(simple_line()).to_mapping()
    [tree] = mapping["trees"]
    assert tree["to"][0]["to"][0]["node"] == "1:3"
    assert tree["to"][0]["why"][0]["alternates"][0]["hops"] == ["1:4", "1:5", "1:3"]
    assert mapping["defects"] == []
