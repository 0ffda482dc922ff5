"""What happened at a relay, until it is told."""

from __future__ import annotations

from laps.relay.journal import MAX_OF_KIND, MAX_RECENT, MAX_TEXT, Journal


def test_events_are_taken_once_and_in_order() -> None:
    journal = Journal()
    journal.note(1.0, "peer_up", "1:2")
    journal.note(2.0, "peer_down", "1:2", reason="gone")
    assert [(event.at, event.name, event.reason) for event in journal.take(3.0)] == [
        (1.0, "peer_up", ""),
        (2.0, "peer_down", "gone"),
    ]
    assert journal.take(4.0) == []


def test_more_than_enough_of_a_kind_is_counted_and_leaves_room_for_the_others() -> None:
    journal = Journal()
    for number in range(MAX_OF_KIND + 5):
        journal.note(float(number), "path_changed", f"1:{number}")
    journal.note(9.0, "stopping", "1:1")
    assert len(journal) == MAX_OF_KIND + 1
    events = journal.take(10.0)
    assert events[-2].name == "stopping"
    assert (events[-1].name, events[-1].subject, events[-1].detail) == (
        "events_dropped",
        "path_changed",
        "5 more",
    )
    assert journal.dropped == 5
    journal.note(11.0, "path_changed", "1:1")
    assert [event.name for event in journal.take(12.0)] == ["path_changed"]


def test_words_of_others_are_cut() -> None:
    journal = Journal()
    journal.note(0.0, "client_closed", "s" * 9999, "d" * 9999, "r" * 9999)
    (event,) = journal.take(1.0)
    assert {len(text) for text in (event.subject, event.detail, event.reason)} == {MAX_TEXT}


def test_the_last_events_are_kept_and_numbered_whether_told_or_not() -> None:
    journal = Journal()
    for number in range(1, MAX_RECENT + 6):
        journal.note(float(number), "path_changed", f"1:{number}")
    journal.take(0.0)
    recent = journal.recent()
    assert [item.number for item in recent] == list(range(6, MAX_RECENT + 6))
    assert all(item.event.subject == f"1:{item.number}" for item in recent)
    assert [item.number for item in journal.recent(MAX_RECENT + 3)] == [
        MAX_RECENT + 4,
        MAX_RECENT + 5,
    ]
    assert journal.recent(MAX_RECENT + 5) == []
