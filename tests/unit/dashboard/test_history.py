"""The last ten minutes."""

from __future__ import annotations

from typing import Any

from laps.admin.schema.relay import Event
from laps.dashboard.history import KEPT_SAMPLES, MAX_LINKS, History
from laps.dashboard.relays import Relay


def node(name: str, sent: int = 0, delivered: int = 0) -> dict[str, Any]:
    return {"id": name, "measured": True, "sent_bps": sent, "delivered_bps": delivered}


def event(number: int, at: float, name: str, **more: Any) -> Event:
    return Event(number=number, at=at, event=name, **more)


def link(name: str, **row: Any) -> dict[str, Any]:
    return {"id": name, "state": "live", "srtt_us": 9, "packets": 0.0, "lost": 0.0} | row


def test_a_sample_adds_up_what_is_delivered_and_lost() -> None:
    history = History()
    links = [
        link("a b", packets=90.0, lost=1.0),
        link("b c", packets=10.0),
        link("c d", state="dead"),
    ]
    history.sample([node("a", 5, 2), node("b", 7, 3), {"id": "c", "state": "dead"}], links, 1.0)
    (sample,) = history.samples_after(0)
    assert (sample["delivered_bps"], sample["loss"]) == (5, 0.01)
    assert (sample["relays"], sample["links"]) == ({"a": 5, "b": 7}, {"a b": 9, "b c": 9})


def test_where_nothing_is_measured_a_sample_says_so() -> None:
    history = History()
    history.sample([], [], 1.0)
    (sample,) = history.samples_after(0)
    assert (sample["delivered_bps"], sample["loss"]) == (None, None)


def test_ten_minutes_are_kept_and_a_page_asks_for_what_it_has_not() -> None:
    history = History()
    for second in range(KEPT_SAMPLES + 7):
        history.sample([node("a")], [], float(second))
    assert next(row["at"] for row in history.samples_after(0)) == 7.0
    assert len(history.samples_after(0)) == KEPT_SAMPLES
    assert [row["number"] for row in history.samples_after(KEPT_SAMPLES + 5)] == [606, 607]


def test_of_many_links_the_slowest_are_kept() -> None:
    history = History()
    history.sample([], [link(str(n), srtt_us=n + 1) for n in range(MAX_LINKS + 3)], 1.0)
    kept = history.samples_after(0)[0]["links"]
    assert len(kept) == MAX_LINKS
    assert min(kept.values()) == 4


def test_events_of_all_relays_are_one_list_by_their_time() -> None:
    history = History()
    one, two = Relay("http://one", 0.0), Relay("http://two", 0.0)
    one.hold_events([event(1, 10.0, "peer_up"), event(2, 30.0, "peer_down", subject="1:2")])
    two.hold_events([event(1, 20.0, "started")])
    history.collect([one, two])
    history.collect([one, two])
    told = [row for incident in history.incidents.after(0) for row in incident["events"]]
    assert [row["event"] for row in told] == ["peer_up", "started", "peer_down"]
    assert told[2]["detail"] == ""
