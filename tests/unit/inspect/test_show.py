"""Views as tables: the right facts in units that people read, within a page."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from laps.inspect import show
from laps.inspect.columns import VIEWS
from support.inspect_fake import AT, FakeNet, path

if TYPE_CHECKING:
    from laps.inspect.show import Shown

PEER = {
    "node": "1:2",
    "role": "via",
    "address": "127.0.0.1:47002",
    "mode": "both",
    "since": AT - 300,
    "srtt_us": 34_000,
    "sent_bytes": 1_200_000,
    "received_bytes": 900,
    "sent_packets": 1000,
    "lost_packets": 20,
    "queue_bytes": 0,
    "leads_to": 3,
}
ROWS: dict[str, dict[str, Any]] = {
    "peers": PEER,
    "subscribes": {
        "source": "1:3",
        "track": "00" * 8,
        "namespace": "demo",
        "name": "x",
        "sequence": 7,
    },
    "announces": {"source": "1:1", "client": None, "namespace": "demo", "name": None},
    "tracks": {
        "track": "ab" * 8,
        "namespace": "demo/rooms/with/a/long/namespace/of/many/parts",
        "name": "and-a-long-name-too",
        "publishers": 1,
        "subscribers": 12,
        "ingress": [],
        "egress": ["1:2", "1:3", "1:4", "1:5", "1:6"],
        "received_bytes": 5_000_000,
        "sent_bytes": 25_000_000,
        "cached_bytes": 4_000_000,
        "largest": [12, 34],
    },
    "fib": {
        "from": {"peer": "1:2", "sns": 7},
        "track": "ab" * 8,
        "targets": ["1:3", "1:4"],
        "local": True,
        "out": [{"peer": "1:3", "sns": 9, "nodes": ["1:3"], "streams": 1, "old": True}],
        "unreached": ["1:4"],
    },
    "clients": {
        "client": 3,
        "protocol": "moqt-16",
        "transport": "webtransport",
        "address": "127.0.0.1:47002",
        "since": AT - 86_400 * 3,
        "srtt_us": 800,
        "subscribes": 1,
        "publishes": 2,
        "sent_bytes": 1_000_000,
        "received_bytes": 1_000_000,
        "queue_bytes": 2_000,
        "dropped_groups": 1234,
    },
}


def net_of(view: str, *nodes: str) -> FakeNet:
    net = FakeNet()
    for node in nodes or ("1:1",):
        api = net.relay(node)
        api.views.setdefault(view, {"node": node, "at": AT, "total": 0, view: []})
        if view in ROWS:
            api.add(view, **ROWS[view])
    return net


def ask(net: FakeNet, view: str, limit: int | None = None, text: str = "") -> Shown:
    return asyncio.run(show.ask(net.relays(), VIEWS[view], limit, text))


def drawn(shown: Shown, limit: int = 100) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(show.table(shown, limit))
    return capture.get()


@pytest.mark.parametrize("view", ROWS)
def test_a_table_fits_a_page_with_the_node_ahead_of_it(view: str) -> None:
    text = drawn(ask(net_of(view, "1:1", "1:2"), view))
    assert text.splitlines()[0].startswith("node")
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text


def test_amounts_are_in_units_that_people_read() -> None:
    text = drawn(ask(net_of("peers"), "peers"))
    for fact in ("34 ms", "1.2 MB", "900 B", "2 %", "5 min", "1:2", "via"):
        assert fact in text
    assert not text.startswith("node")


def test_probe_timeouts_of_a_peer_take_a_column_once_there_are_some() -> None:
    assert "probes" not in drawn(ask(net_of("peers"), "peers"))
    net = net_of("peers")
    net.apis["1:1"].views["peers"]["peers"] = [{**PEER, "probe_timeouts": 1234}]
    shown = ask(net, "peers")
    assert "probes" in drawn(shown)
    assert "1,234" in drawn(shown)
    assert shown.to_mapping()["answers"][0]["peers"][0]["probe_timeouts"] == 1234


def test_a_client_that_was_sent_elsewhere_takes_a_column_once_there_is_one() -> None:
    net = net_of("clients")
    assert "sent to" not in drawn(ask(net, "clients"))
    api = net.relay("1:1")
    why = "alone here on demo t; 1:2 has subscribers for it"
    api.add("clients", **ROWS["clients"] | {"client": 4, "sent_to": "1:2", "sent_why": why})
    stays = {"client": 5, "sent_to": "1:3", "sent_why": "full", "stays": True}
    api.add("clients", **ROWS["clients"] | stays)
    shown = ask(net, "clients")
    column = {it.head: it for it in VIEWS["clients"].columns}["sent to"]
    assert [column.show(row) for row in shown.rows] == [
        "-",
        f"1:2: {why}",
        "1:3 and stays: full",
    ]


def test_rates_take_the_place_of_amounts_where_there_are_two_answers() -> None:
    before, after = net_of("peers"), net_of("peers")
    after.apis["1:1"].views["peers"] = {
        "node": "1:1",
        "at": AT + 2,
        "total": 1,
        "peers": [{**PEER, "sent_bytes": 1_500_000, "sent_packets": 1100, "lost_packets": 30}],
    }
    shown = show.with_rates(ask(after, "peers"), ask(before, "peers"))
    text = drawn(shown)
    assert "1.2 Mbit/s" in text
    assert "10 %" in text
    assert shown.to_mapping()["rates"][0]["sent_bytes"] == 150_000


def test_a_row_that_was_not_there_before_has_no_rate() -> None:
    shown = show.with_rates(ask(net_of("peers"), "peers"), ask(net_of("peers", "9:9"), "peers"))
    assert "bit/s" not in drawn(shown)


def test_a_row_that_began_again_has_no_rate_below_nothing() -> None:
    before, after = net_of("peers"), net_of("peers")
    after.apis["1:1"].views["peers"]["at"] = AT + 1
    after.apis["1:1"].views["peers"]["peers"] = [{**PEER, "sent_bytes": 0}]
    [row] = show.with_rates(ask(after, "peers"), ask(before, "peers")).rows
    assert row.rates is not None
    assert row.rates["sent_bytes"] == 0


def test_nodes_are_shown_once_however_many_relays_tell_of_them() -> None:
    net = FakeNet()
    for node, others in (("1:1", ("1:2", "1:3")), ("1:2", ("1:1", "1:3", "1:9"))):
        for other in others:
            net.relay(node).add("nodes", node=other, role="edge", best=path(other, srtt_us=4000))
    shown = ask(net, "nodes")
    assert [row.values.node for row in shown.rows] == ["1:1", "1:2", "1:3", "1:9"]
    # What only another relay knows has no way from the first.
    assert [bool(row.get("best")) for row in shown.rows] == [False, True, True, False]
    assert "as 1:1 sees them" in show.notes(shown, 100)[-1]


def test_a_control_server_is_called_so_and_does_not_say_where_nodes_are() -> None:
    net = FakeNet()
    net.relay("0:1", "control").add("nodes", node="1:1", role="edge", best=path("1:1"))
    net.relay("1:1").add("nodes", node="0:1", role="via", best=path("0:1"))
    shown = ask(net, "nodes")
    assert [(row.values.node, row.values.role) for row in shown.rows] == [
        ("1:1", "edge"),
        ("0:1", "control"),
    ]
    assert "as 1:1 sees them" in show.notes(shown, 100)[-1]


def test_paths_show_the_best_with_its_reason_and_those_not_taken() -> None:
    net = FakeNet()
    net.relay("1:1").add(
        "nodes",
        node="1:3",
        reason="fewest hops: 0 against 1 via 1:2",
        best=path("1:3"),
        alternates=[path("1:2", "1:2", "1:3", srtt_us=900, admitted=False)],
    )
    net.relay("1:1").add("nodes", node="1:7", reason="", best=None, alternates=[])
    text = drawn(ask(net, "paths"))
    for fact in ("fewest hops: 0 against 1", "1:2 1:3", "900 µs", "not admitted", "no path leads"):
        assert fact in text


def test_counters_are_a_row_each_and_are_filtered_by_text() -> None:
    net = FakeNet()
    net.relay("1:1").views["counters"] = {
        "relay": {"control_sent": 12, "refused": 0},
        "data": {"streams": 3456},
    }
    shown = ask(net, "counters", text="stream")
    assert [(row.values.counter, row.values.value) for row in shown.rows] == [("streams", 3456)]
    assert "3,456" in drawn(shown)


def test_of_events_the_last_are_shown_in_the_order_of_time() -> None:
    net = FakeNet()
    for node, at in (("1:1", AT - 30), ("1:2", AT - 20), ("1:1", AT - 10)):
        api = net.relay(node)
        api.views.setdefault("events", {"node": node, "at": AT, "total": 0, "events": []})
        api.add(
            "events", number=1, at=at, event=f"e{AT - at:.0f}", subject=node, detail="", reason=""
        )
    text = drawn(ask(net, "events"), limit=2)
    assert "e30" not in text
    assert text.index("e20") < text.index("e10")


def test_more_rows_than_are_shown_are_told_of() -> None:
    net = net_of("peers")
    net.apis["1:1"].views["peers"]["total"] = 5000
    assert show.notes(ask(net, "peers"), 1) == [
        "4,999 more: --limit 0 shows all, --filter TEXT those with a text"
    ]


def test_an_empty_view_says_so_and_an_old_set_is_explained() -> None:
    assert show.notes(ask(net_of("sns"), "sns"), 100) == ["no sns"]
    assert "waits for its last to end" in show.notes(ask(net_of("fib"), "fib"), 100)[-1]


def test_a_relay_that_does_not_answer_is_left_out_and_named() -> None:
    net = net_of("peers", "1:1", "1:2")
    net.apis["1:2"].gone = True
    mapping = ask(net, "peers").to_mapping()
    assert [answer["node"] for answer in mapping["answers"]] == ["1:1"]
    assert list(mapping["silent"]) == [net.apis["1:2"].url]


def test_the_overview_counts_each_relay_link_and_track_once() -> None:
    net = FakeNet()
    net.relay("1:2", "via")
    net.line("1:1", "1:2", "1:3")
    for node in ("1:1", "1:2"):
        net.relay(node).add("tracks", track="aa", namespace="demo", name="x")
        net.relay(node).add("tracks", track="bb", namespace="laps/telemetry/1:1", name="node")
    net.relay("1:1").add("nodes", node="7:7", role="edge")
    seen = asyncio.run(show.overview(net.relays()))
    assert seen.words() == (
        "4 relays (3 edge, 1 via), of which 3 could be asked; 2 links; 1 track and 1 of telemetry"
    )
    assert [row["node"] for row in seen.to_mapping()["relays"]] == ["1:2", "1:1", "1:3"]
