"""The network as a whole, from what relays say."""

from __future__ import annotations

from typing import Any

from laps.admin.schema.network import KnownNode, Path, Peer
from laps.admin.schema.relay import Node
from laps.admin.schema.tracks import Track, Tracks
from laps.dashboard.picture import Topology, matching, tracks_of, tree_of
from laps.dashboard.relays import Relay


def relay(node: str, role: str = "edge", *peers: Peer, url: str = "") -> Relay:
    made = Relay(url or f"http://{node}", 0.0)
    made.answered(Node(node=node, role=role, latitude=1.0, longitude=2.0), list(peers), 5.0, 0.0)
    return made


def again(one: Relay, *peers: Peer) -> None:
    """A second later."""
    assert one.node is not None
    one.answered(one.node, list(peers), 6.0, 1.0)


def states(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["id"]: row["state"] for row in rows}


def test_nodes_are_those_asked_and_those_told_of_in_the_order_people_count() -> None:
    one, ten = relay("1:1", "edge", Peer(node="1:50", role="stub")), relay("1:10", "via")
    one.nodes = [
        KnownNode(node="1:9", role="via", latitude=3.0, longitude=4.0),
        KnownNode(node="1:10"),
    ]
    rows = Topology().nodes([ten, one])
    assert [row["id"] for row in rows] == ["1:1", "1:9", "1:10", "1:50"]
    assert [row["state"] for row in rows] == ["live", "unasked", "live", "unasked"]
    assert rows[1]["latitude"] == 3.0
    assert rows[3]["role"] == "stub"


def test_ids_that_are_none_are_shown_all_the_same() -> None:
    strange = ["", ":", "1", "x:y", "1:" + "9" * 5_000, "<b>"]
    rows = Topology().nodes([relay("1:1", "edge", *(Peer(node=node) for node in strange))])
    assert {row["id"] for row in rows} == {"1:1", *strange}


def test_a_node_without_a_place_has_none() -> None:
    one = Relay("http://one", 0.0)
    one.answered(Node(node="1:1"), [], 1.0, 1.0)
    assert Topology().nodes([one])[0]["latitude"] is None


def test_a_relay_that_never_answered_is_no_node() -> None:
    assert Topology().nodes([Relay("http://one", 0.0)]) == []


def test_of_two_addresses_of_one_node_the_one_that_answers_counts() -> None:
    old, new = relay("1:1", url="http://old"), relay("1:1", url="http://new")
    old.failed("gone", 9.0)
    for order in ([old, new], [new, old]):
        (row,) = Topology().nodes(order)
        assert (row["state"], row["url"]) == ("live", "http://new")


def test_a_link_is_put_together_from_both_ends() -> None:
    one = relay("1:1", "edge", Peer(node="1:2", mode="both", srtt_us=9000))
    two = relay("1:2", "edge", Peer(node="1:1", mode="both", srtt_us=8000, lost_packets=0))
    end = Peer(node="1:2", mode="both", srtt_us=9000, sent_bytes=100, received_bytes=10)
    again(one, end)
    again(two, Peer(node="1:1", mode="both", srtt_us=8000, sent_bytes=12, received_bytes=99))
    (row,) = Topology().links([two, one])
    assert (row["id"], row["a"], row["b"]) == ("1:1 1:2", "1:1", "1:2")
    assert (row["ab_bps"], row["ba_bps"]) == (800, 96)
    assert (row["srtt_us"], row["mode"], row["state"]) == (8000, "both", "live")


def test_two_nodes_that_peer_for_control_and_for_data_peer_for_both() -> None:
    one = relay("1:1", "edge", Peer(node="1:2", mode="control"), Peer(node="1:2", mode="data"))
    assert Topology().links([one])[0]["mode"] == "both"


def test_a_link_that_nobody_configured_says_why_it_is_there_whichever_end_dialled() -> None:
    one, two = relay("1:1", "edge", Peer(node="1:2")), relay("1:2", "via", Peer(node="1:1"))
    assert Topology().links([one, two])[0]["on_demand"] == ""
    why = "4 copies into east where 2 may go"
    again(two, Peer(node="1:1", on_demand=why))
    assert Topology().links([one, two])[0]["on_demand"] == why


def test_the_links_of_a_relay_that_died_stay_dashed_until_it_lives() -> None:
    topology = Topology()
    one, two = relay("1:1", "edge", Peer(node="1:2")), relay("1:2", "edge", Peer(node="1:1"))
    assert states(topology.links([one, two])) == {"1:1 1:2": "live"}
    two.failed("gone", 9.0)
    assert states(topology.links([one, two])) == {"1:1 1:2": "dead"}
    again(one)  # it has noticed too
    for _ in range(2):
        assert states(topology.links([one, two])) == {"1:1 1:2": "dead"}
    again(two)
    assert topology.links([one, two]) == []
    again(one, Peer(node="1:2"))
    assert states(topology.links([one, two])) == {"1:1 1:2": "live"}


def test_links_between_others_are_heard_of_in_paths() -> None:
    one = relay("1:1", "edge", Peer(node="1:2"))
    one.nodes = [KnownNode(node="1:4", best=Path(peer="1:2", hops=["1:2", "1:3", "1:4"]))]
    heard = {"1:1 1:2": "live", "1:2 1:3": "heard", "1:3 1:4": "heard"}
    assert states(Topology().links([one])) == heard
    three = relay("1:3", "edge", Peer(node="1:2"))  # it is asked, and has no such link to 1:4
    assert states(Topology().links([one, three])) == {"1:1 1:2": "live", "1:2 1:3": "live"}


def named(track: str, namespace: str, name: str, **more: Any) -> Track:
    return Track(track=track, namespace=namespace, name=name, **more)


def carry(one: Relay, *tracks: Track) -> Relay:
    one.hold_tracks(Tracks(tracks=list(tracks), total=len(tracks)), 0.0)
    return one


def test_a_tree_has_what_either_end_of_a_copy_says() -> None:
    one = carry(relay("1:1"), Track(track="aa", origin=True, egress=["1:2"], received_bytes=9))
    via = carry(
        relay("1:2", "via"), Track(track="aa", ingress=["1:1"], egress=["1:3", "1:4", "1:4"])
    )
    far = carry(relay("1:5"), Track(track="aa", subscribers=2, ingress=["1:4"]))
    tree = tree_of([one, via, far], "aa")
    copies = {(link["from"], link["to"]): link["copies"] for link in tree["links"]}
    ways = {("1:1", "1:2"): 1, ("1:2", "1:3"): 1, ("1:2", "1:4"): 2, ("1:4", "1:5"): 1}
    assert copies == ways
    parts = {node["id"]: (node["origin"], node["subscribers"]) for node in tree["nodes"]}
    rest = dict.fromkeys(("1:2", "1:3", "1:4"), (False, 0))
    assert parts == {"1:1": (True, 0), "1:5": (False, 2)} | rest


def test_who_stands_ready_to_send_a_track_that_it_has_not_is_no_part_of_its_tree() -> None:
    one = carry(relay("1:1"), Track(track="aa", origin=True, egress=["1:2"], received_bytes=9))
    ready = carry(relay("1:4"), Track(track="aa", origin=True, publishers=1, egress=["1:2"]))
    waiting = carry(relay("1:5"), Track(track="aa", subscribers=1))
    via = carry(relay("1:2", "via"), Track(track="aa", ingress=["1:1", "1:4"]))
    tree = tree_of([one, ready, waiting, via], "aa")
    assert [node["id"] for node in tree["nodes"]] == ["1:1", "1:2", "1:5"]
    assert [link["from"] for link in tree["links"]] == ["1:1"]
    alone = tree_of([ready], "aa")
    assert [link["from"] for link in alone["links"]] == ["1:4"]


def test_a_stub_is_no_subscriber_of_its_edge_in_a_tree() -> None:
    edge = carry(relay("1:1"), Track(track="aa", origin=True, subscribers=2, received_bytes=9))
    stub = carry(relay("1:2", "stub"), Track(track="aa", subscribers=3, ingress=["1:1"]))
    tree = tree_of([edge, stub], "aa")
    assert [(node["id"], node["subscribers"]) for node in tree["nodes"]] == [("1:1", 1), ("1:2", 3)]
    assert tree["links"] == [{"from": "1:1", "to": "1:2", "copies": 1}]
    assert tracks_of([edge, stub])[0]["subscribers"] == 4


def test_a_tree_that_is_gone_is_empty() -> None:
    one = carry(relay("1:1"), Track(track="aa", egress=["1:2"]))
    assert tree_of([one], "bb")["nodes"] == []
    one.failed("gone", 9.0)
    assert tree_of([one], "aa")["nodes"] == []


def test_tracks_are_named_by_who_knows_the_name_and_the_fastest_is_first() -> None:
    edge = relay("1:1")
    carry(edge, named("aa", "demo", "slow", publishers=1), named("bb", "demo", "fast"))
    grown = [named("aa", "demo", "slow", received_bytes=5), Track(track="bb", received_bytes=9)]
    edge.hold_tracks(Tracks(tracks=grown, total=2), 1.0)
    via = carry(relay("1:2", "via"), Track(track="bb", subscribers=1))
    other = carry(relay("1:3"), named("bb", "demo", "fast", subscribers=2))
    rows = tracks_of([edge, via, other])
    assert [(row["name"], row["rate_bps"]) for row in rows] == [("fast", 72), ("slow", 40)]
    assert (rows[0]["relays"], rows[0]["subscribers"]) == (3, 3)


def test_a_track_has_the_class_that_its_publisher_s_relay_says() -> None:
    one, two = relay("1:1"), relay("1:2")
    one.hold_tracks(Tracks(tracks=[Track(track="aa")]), 0.0)
    two.hold_tracks(Tracks(tracks=[Track(track="aa", service="gold")]), 0.0)
    for order in ([one, two], [two, one]):
        assert [row["service"] for row in tracks_of(order)] == ["gold"]


def test_a_search_wants_each_word_in_the_name_or_the_hash() -> None:
    one = carry(relay("1:1"), named("aa", "demo/Rooms", "video"), named("bb", "demo", "audio"))
    rows = tracks_of([one])

    def found(words: str) -> list[str]:
        return [row["track"] for row in matching(rows, words)]

    assert sorted(found(" ")) == ["aa", "bb"]
    assert found("DEMO rooms") == ["aa"]
    assert found("bb") == ["bb"]
    assert found("rooms audio") == []
