"""What is made of the answers of relays, and how it is said."""

from __future__ import annotations

import pytest

from laps.admin.schema.network import Peer
from laps.admin.schema.relay import Node
from laps.cli_lab import milliseconds, percentage
from laps.errors import ConfigError
from laps.lab.screen import news, path_words, rate_words
from laps.lab.watching import Event, Sight, tree

HOPS = [("1:1", "1:100"), ("1:100", "2:100"), ("2:100", "2:1"), ("2:100", "2:2")]


def test_a_tree_in_a_line() -> None:
    assert tree(HOPS, "1:1") == "1:1 > 1:100 > 2:100 > (2:1, 2:2)"
    assert tree([], "1:1") == "1:1"
    assert tree([("a", "b"), ("b", "a")], "a") == "a > b > a"


def test_the_way_to_one_subscriber() -> None:
    assert path_words(HOPS, "1:1", "2:2") == "1:1>1:100>2:100>2:2"
    assert path_words(HOPS, "1:1", "9:9") == "9:9"
    assert path_words([("a", "b"), ("b", "a")], "c", "a") == "b>a"


def node(at: float, cpu_s: float, since: float = 1.0) -> Node:
    return Node(node="1:1", at=at, cpu_s=cpu_s, since=since)


def peer(sent_bytes: int, since: float = 1.0) -> Peer:
    return Peer(node="1:2", since=since, sent_bytes=sent_bytes)


def test_load_and_rates_are_of_the_time_between_two_looks() -> None:
    sight = Sight()
    sight.take(node(10, 1.0), [peer(1000)], [])
    assert (sight.load, sight.rates) == (0.0, {})
    sight.take(node(12, 1.5), [peer(2000)], [])
    assert sight.load == 0.25
    assert sight.rates == {"1:2": 4000.0}


def test_what_was_started_again_has_no_rate_yet() -> None:
    sight = Sight()
    sight.take(node(10, 1.0), [peer(5000)], [])
    sight.take(node(12, 1.5), [peer(100, since=11.0)], [])
    assert sight.rates == {}
    sight.take(node(14, 0.1, since=13.0), [peer(200, since=13.5)], [])
    assert sight.rates == {}
    sight.gone()
    assert (sight.node, sight.answered) == (None, False)


def changed(node: str, subject: str, detail: str = "1:100 to 1:2", at: float = 5.5) -> Event:
    return Event(at, node, "path_changed", subject, detail, "only path")


def test_events_are_told_in_words_and_alike_ones_together() -> None:
    down = Event(5.1, "1:1", "peer_down", "1:100", "", "Idle timeout")
    first = changed("1:2", "3:1", "nobody to 1:100")
    told = news(
        [down, changed("1:1", "2:1"), changed("1:1", "2:2"), first, changed("3:1", "1:1")], 5.0
    )
    assert [words for _, words in told] == [
        "1:1: peer 1:100 is gone: Idle timeout",
        "1:1: routes changed, 1:100 to 1:2, to 2:1, 2:2",
        "3:1: route to 1:1 changed, 1:100 to 1:2: only path",
    ]
    assert news([down], 6.0) == []


def test_rates_for_people() -> None:
    assert rate_words(2_340_000) == "2.34 Mbit/s"
    assert rate_words(4_600) == "4.6 kbit/s"


def test_durations_and_shares_as_people_write_them() -> None:
    assert (milliseconds("200ms"), milliseconds("0.2s"), milliseconds("0ms")) == (200, 200, 0)
    assert (percentage("2%"), percentage("0.5%"), percentage("100%")) == (0.02, 0.005, 1)
    for wrong in ("200", "-3ms", "11s", "fast", "2 s", "1m"):
        with pytest.raises(ConfigError, match="duration"):
            milliseconds(wrong)
    for wrong in ("2", "101%", "-1%", "0.02", "two%"):
        with pytest.raises(ConfigError, match="share"):
            percentage(wrong)
