"""One relay as the dashboard sees it, with the time as an argument."""

from __future__ import annotations

from laps.admin.schema.network import Peer
from laps.admin.schema.relay import Event, Node
from laps.admin.schema.tracks import Track, Tracks
from laps.dashboard.relays import MAX_NEWS, Rates, Relay


def answer(
    relay: Relay, now: float, *, since: float = 1.0, sent: int = 0, to_peer: int = 0
) -> None:
    node = Node(node="1:1", role="edge", since=since, sent_bytes=sent)
    relay.answered(node, [Peer(node="1:2", sent_bytes=to_peer)], 1_000 + now, now)


def test_a_rate_is_of_two_readings_and_the_time_between() -> None:
    rates = Rates()
    rates.read({"a": 100}, 10.0)
    assert rates.get("a") == 0.0
    rates.read({"a": 300, "b": 7}, 12.0)
    assert rates.get("a") == 100.0
    assert rates.get("b") == 0.0  # seen once
    rates.read({"a": 40}, 13.0)
    assert rates.get("a") == 0.0  # went back: it began anew
    rates.read({"a": 50}, 14.0)
    assert rates.get("a") == 10.0


def test_one_reading_is_no_rate() -> None:
    rates = Rates()
    rates.read({"a": 100}, 10.0)
    assert not rates.known


def test_after_two_readings_rates_are_known() -> None:
    rates = Rates()
    for now in (10.0, 11.0):
        rates.read({"a": 100}, now)
    assert rates.known


def test_two_readings_at_one_moment_have_no_rate() -> None:
    rates = Rates()
    rates.read({"a": 100}, 10.0)
    rates.read({"a": 300}, 10.0)
    assert rates.get("a") == 0.0


def test_a_weight_evens_out_bursts() -> None:
    rates = Rates(weight=0.5)
    for second, total in enumerate((0, 100, 100)):
        rates.read({"a": total}, float(second))
    assert rates.get("a") == 50.0


def test_what_goes_to_clients_is_what_does_not_go_to_peers() -> None:
    relay = Relay("http://one", 0.0)
    answer(relay, 1.0)
    answer(relay, 2.0, sent=1000, to_peer=300)
    assert relay.sent_to_clients() == 700.0
    relay.node = Node(node="1:1", role="via")
    assert relay.sent_to_clients() == 0.0


def test_silence_has_a_beginning_and_is_no_part_of_a_rate() -> None:
    relay = Relay("http://one", 999.0)
    assert (relay.answers, relay.since, relay.id) == (False, 999.0, "")
    answer(relay, 1.0)
    assert (relay.answers, relay.since, relay.words) == (True, 1001.0, "")
    relay.failed("cannot be reached", 1005.0)
    relay.failed("cannot be reached", 1006.0)
    assert (relay.answers, relay.since, relay.words) == (False, 1005.0, "cannot be reached")
    assert relay.id == "1:1"  # it is drawn in grey, where it was
    answer(relay, 60.0, sent=6000)
    assert (relay.answers, relay.since) == (True, 1060.0)
    assert relay.rates.get("sent") == 0.0
    answer(relay, 61.0, sent=7000)
    assert relay.rates.get("sent") == 1000.0


def test_the_tracks_of_a_dead_relay_are_carried_no_more() -> None:
    relay = Relay("http://one", 0.0)
    answer(relay, 1.0)
    relay.hold_tracks(Tracks(tracks=[Track(track="aa")], total=1), 1.0)
    version = relay.tracks_version
    relay.failed("gone", 2.0)
    assert relay.tracks == {}
    assert relay.tracks_version > version


def test_a_relay_that_was_started_again_counts_its_events_from_one() -> None:
    relay = Relay("http://one", 0.0)
    answer(relay, 1.0)
    relay.hold_events([Event(number=1), Event(number=2)])
    assert relay.last_event == 2
    assert [event.number for event in relay.take_news()] == [1, 2]
    assert relay.take_news() == []
    answer(relay, 2.0)
    assert relay.last_event == 2
    answer(relay, 3.0, since=50.0)
    assert relay.last_event == -1


def test_news_that_nobody_takes_are_bounded() -> None:
    relay = Relay("http://one", 0.0)
    relay.hold_events(Event(number=number) for number in range(MAX_NEWS + 5))
    assert next(event.number for event in relay.take_news()) == 5


def test_an_answer_that_is_late_makes_no_peak_of_the_next_one() -> None:
    rates = Rates()
    rates.read({"a": 0}, 1.0, 1.0)
    rates.read({"a": 100}, 5.9, 2.0)  # counted at 2.0, and read much later
    rates.read({"a": 500}, 6.0, 5.95)
    assert rates.get("a") == 100.0


def test_what_goes_to_clients_has_no_peak_when_peers_come_and_go() -> None:
    relay = Relay("http://one", 0.0)

    def say(now: float, sent: int, **peers: int) -> float:
        node = Node(node="1:1", role="edge", since=1.0, sent_bytes=sent)
        said = [Peer(node=name, sent_bytes=count) for name, count in peers.items()]
        relay.answered(node, said, now, now)
        return relay.sent_to_clients()

    say(1.0, 0, b=0)
    assert say(2.0, 1_010, b=1_000) == 10.0
    assert say(3.0, 6_020, b=2_000, c=4_000) == 10.0  # what went to c is known from now on
    assert say(4.0, 7_030, b=2_500, c=4_500) == 10.0
    assert say(5.0, 9_040, c=5_000) == 10.0  # and what went to b before it left is not
    assert say(6.0, 9_160, c=5_100) == 20.0
    assert say(7.0, 9_280, c=100) == 20.0  # it was started again
