"""Whom a relay's death concerns."""

from laps.lab.aftermath import reached_from

WAYS = [("1:1", "1:100"), ("1:100", "2:100"), ("2:1", "2:100"), ("3:1", "3:2")]


def test_relays_are_reached_by_any_number_of_links_in_either_direction() -> None:
    assert reached_from("2:1", WAYS) == {"1:1", "1:100", "2:100", "2:1"}
    assert reached_from("3:2", WAYS) == {"3:1", "3:2"}
    assert reached_from("9:9", WAYS) == {"9:9"}
