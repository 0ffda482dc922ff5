"""Events of one cause are one line, with what followed."""

from __future__ import annotations

from typing import Any

import pytest

from laps.dashboard.incidents import FOLLOWS_S, KEPT, MAX_EVENTS, Incidents

Row = dict[str, Any]


def event(at: float, node: str, name: str, subject: str, detail: str = "", reason: str = "") -> Row:
    told = {"at": at, "node": node, "event": name, "subject": subject}
    return told | {"detail": detail, "reason": reason}


def told(*events: Row) -> list[Row]:
    incidents = Incidents()
    for row in events:
        incidents.add(row)
    return incidents.after(0)


def lines(*events: Row) -> list[tuple[str, str]]:
    return [(row["title"], row["effect"]) for row in told(*events)]


DEATH = [
    event(1.0, "1:1", "link_silent", "1:100"),
    event(1.1, "2:1", "link_silent", "1:100"),
    event(1.2, "1:1", "path_changed", "2:1", "1:100 to 2:100", "fewest hops"),
    event(1.3, "3:1", "path_changed", "1:1", "3:100 to 2:100", "fewest hops"),
    event(1.5, "2:1", "peer_down", "1:100", reason="silent"),
    event(2.0, "dashboard", "unreachable", "1:100"),
    event(4.0, "2:1", "repaired", "3 tracks", "after 2.5 s", "no object is lost"),
    event(4.2, "3:1", "repaired", "1 track", "after 2.5 s", "no object is lost"),
]


def test_a_relay_that_dies_is_one_line_with_its_effect() -> None:
    (row,) = told(*DEATH)
    assert row["title"] == "1:100 is gone"
    assert row["effect"] == (
        "2 relays noticed within 0.1 s · 2 paths changed · 4 tracks repaired · no object is lost"
    )
    assert (row["tone"], row["count"]) == ("bad", 8)
    assert row["events"] == DEATH


def test_objects_that_are_lost_are_in_the_line() -> None:
    lost = event(4.1, "2:1", "objects_lost", "demo t", "12 or more")
    (row,) = told(*DEATH, lost)
    assert row["effect"].endswith("4 tracks repaired · 12 or more objects lost")


def test_a_relay_that_is_back_is_a_line_of_its_own() -> None:
    back = [
        event(9.0, "1:100", "started", "1:100"),
        event(9.1, "1:100", "peer_up", "1:1"),
        event(9.1, "1:1", "peer_up", "1:100"),
        event(9.2, "2:1", "peer_up", "1:100"),
        event(9.5, "1:1", "path_changed", "2:1", "2:100 to 1:100"),
    ]
    made = lines(*DEATH, *back)
    assert [title for title, _ in made] == ["1:100 is gone", "1:100 is up"]
    assert made[1][1] == "2 peers · 1 path changed"


def test_two_that_lose_each_other_have_lost_their_link() -> None:
    made = lines(
        event(1.0, "1:1", "peer_down", "1:2"),
        event(1.1, "1:2", "peer_down", "1:1"),
        event(1.2, "1:1", "path_changed", "1:2", "1:2 to 1:3"),
    )
    assert made == [("1:1 and 1:2 lost each other", "1 path changed")]


def test_a_link_that_others_lose_too_was_the_relay() -> None:
    made = lines(
        event(1.0, "1:1", "peer_down", "1:2"),
        event(1.1, "1:2", "peer_down", "1:1"),
        event(1.2, "1:3", "peer_down", "1:2"),
    )
    assert [title for title, _ in made] == ["1:2 is gone"]


def test_a_relay_that_says_goodbye_was_stopped() -> None:
    made = lines(
        event(1.0, "1:1", "peer_leaving", "1:2"),
        event(1.0, "1:2", "stopping", "1:2"),
        event(1.5, "1:1", "peer_down", "1:2"),
        event(2.0, "dashboard", "unreachable", "1:2"),
    )
    assert [title for title, _ in made] == ["1:2 was stopped"]


def test_two_relays_that_die_together_are_two_lines() -> None:
    made = lines(
        event(1.0, "1:1", "peer_down", "1:100"),
        event(1.0, "1:1", "peer_down", "2:100"),
        event(1.2, "1:1", "path_changed", "2:1", "1:100 to 3:100"),
        event(1.2, "1:1", "path_changed", "3:1", "2:100 to 3:100"),
    )
    assert made == [
        ("1:100 is gone", "1 relay noticed · 1 path changed"),
        ("2:100 is gone", "1 relay noticed · 1 path changed"),
    ]


def test_the_same_relay_later_is_another_line() -> None:
    later = 1.0 + FOLLOWS_S + 1.0
    made = told(event(1.0, "1:1", "peer_down", "1:2"), event(later, "1:1", "peer_down", "1:2"))
    assert [row["at"] for row in made] == [1.0, later]


@pytest.mark.parametrize("name", ["path_changed", "repaired", "client_closed", "of_tomorrow"])
def test_what_has_no_cause_stands_alone(name: str) -> None:
    (row,) = told(event(1.0, "1:1", name, "x", "y"))
    assert (row["title"], row["effect"], row["count"]) == ("", "", 1)


def test_a_page_asks_for_what_has_changed() -> None:
    incidents = Incidents()
    incidents.add(DEATH[0])
    (row,) = incidents.after(0)
    assert incidents.after(row["number"]) == []
    incidents.add(event(1.0, "1:9", "client_closed", "moqt"))
    incidents.add(DEATH[1])
    changed = incidents.after(row["number"])
    assert [it["id"] for it in changed] == [1, 2]
    assert changed[0]["number"] > changed[1]["number"]


def test_all_of_it_is_bounded() -> None:
    incidents = Incidents()
    for number in range(MAX_EVENTS + 5):
        incidents.add(event(1.0, "1:1", "path_changed", str(number), "1:2 to 1:3"))
    assert len(incidents.after(0)) == MAX_EVENTS + 5
    for _ in range(MAX_EVENTS + 5):
        incidents.add(event(1.0, "1:1", "peer_down", "1:2"))
    assert incidents.after(0)[-1]["count"] == MAX_EVENTS + 5
    assert len(incidents.after(0)[-1]["events"]) == MAX_EVENTS
    for at in range(2 * KEPT):
        incidents.add(event(100.0 * at, "1:1", "client_closed", "moqt"))
    assert len(incidents.after(0)) == KEPT
