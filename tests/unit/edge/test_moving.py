"""Clients are moved where their content is, and away from relays that are full: each rule of it.

A publisher in the west, and Edges in the east that each have a copy from there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from laps.edge import moving
from laps.edge.moving import FOLLOW_S, Standing
from laps.edge.settings import MovingSettings
from laps.policy import policy_from_mapping
from laps.relay.roles import Role
from laps.sessions import moqt_setup
from laps.types import NodeMetrics
from laps.wire.moqt.messages import Goaway, Unsubscribe
from support.moqt import MoqtNet
from support.moqt_streams import DRAFTS, Obj
from support.quicr import QuicrApp

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from laps.wire.moqt.dialect import Dialect
    from support.moqt import App

SETTINGS = MovingSettings(per_minute=6, settled_s=9.0, near_ms=10.0)
LASTING_S = 5.0 + moving.BOTH_S
"A gain has to last longer than relays want what clients have left."
FAST_S = LASTING_S + 3.0
"By then the relay with the higher id has moved its client."
SLOW_S = LASTING_S + moving.PATIENCE * SETTINGS.settled_s + 3.0
"And by then the one with the lower id."
FULL = 0.95


class Coast:
    """The publisher's relay 9:1 in the west, and Edges 1:1, 1:2 … in the east."""

    def __init__(
        self, edges: int = 2, settings: MovingSettings = SETTINGS, *, far_ms: float = 60.0
    ) -> None:
        self.net = MoqtNet()
        self.west = self.net.relay("9:1", region="west")
        numbers = range(1, edges + 1)
        self.east = [self.net.relay(f"1:{number}", region="east") for number in numbers]
        self.relays = [self.west, *self.east]
        self.loads = dict.fromkeys(self.relays, 0.1)
        self.addresses = {
            relay: f"192.0.2.{number}:443" for number, relay in enumerate(self.relays)
        }
        for relay in self.relays:
            self.net.edge(relay, moving=settings)
        for relay in self.east:
            self.net.wire(relay, self.west, far_ms, extended=True)
        for number, relay in enumerate(self.east):
            for other in self.east[:number]:
                self.net.wire(relay, other, 2, extended=True)
        self.net.settle()
        self.pub = self.net.app(self.west)
        self.aliases: dict[str, int] = {}
        self._groups = 0
        self.run(1.0)

    def tell(self) -> None:
        """Every relay says how it is, as its shell does."""
        for relay in self.relays:
            said = NodeMetrics(
                0,
                relay.id,
                self.loads[relay],
                0,
                0,
                relay.settings.region,
                client_address=self.addresses[relay],
            )
            relay.extensions.measured(said, self.net.now)

    def run(self, seconds: float) -> None:
        """Let time pass, while tracks carry something."""
        while seconds > 0:
            self.tell()
            self._groups += 1
            for alias in self.aliases.values():
                self.pub.stream(alias, self._groups, Obj(0, b"x"))
            self.net.run(min(1.0, seconds))
            seconds -= 1.0

    def publish(self, *tracks: str) -> None:
        for track in tracks:
            self.aliases[track] = self.pub.publish(track)

    def viewer(self, number: int, *tracks: str) -> App:
        """A client of the Edge 1:number that reads some tracks."""
        app = self.net.app(self.east[number - 1])
        for track in tracks:
            app.subscribe(track)
        return app

    def counters(self, number: int) -> Any:
        return self.net.edges[self.east[number - 1]].moving.counters

    def events(self, relay: Relay, name: str) -> list[tuple[str, str, str]]:
        found = [it.event for it in relay.journal.recent() if it.event.name == name]
        return [(it.subject, it.detail, it.reason) for it in found]


def sent_to(app: App) -> list[bytes]:
    return [message.uri for message in app.heard_of(Goaway)]


TO_FIRST = [b"moqt://192.0.2.1:443"]
TO_SECOND = [b"moqt://192.0.2.2:443"]


@pytest.mark.parametrize("dialect", DRAFTS, ids=repr)
@pytest.mark.parametrize(("webtransport", "scheme"), [(False, b"moqt"), (True, b"https")])
def test_moving_names_the_relay_in_each_draft(
    dialect: Dialect, webtransport: bool, scheme: bytes
) -> None:
    coast = Coast()
    coast.publish("demo/t")
    coast.viewer(1, "demo/t")
    app = coast.net.app(coast.east[1], dialect, webtransport=webtransport)
    app.subscribe("demo/t")
    coast.run(FAST_S)
    assert sent_to(app) == [scheme + b"://192.0.2.1:443"]


# -- where their content is ------------------------------------------------------------------------


def test_moving_sends_a_lone_client_where_its_track_is_wanted_too() -> None:
    coast = Coast()
    coast.publish("demo/t")
    there, here = coast.viewer(1, "demo/t"), coast.viewer(2, "demo/t")
    coast.run(SETTINGS.settled_s - 2.0)
    assert sent_to(here) == [], "it has not settled"
    coast.run(6.0)
    assert sent_to(here) == TO_FIRST
    assert sent_to(there) == [], "the one with the lower id attracts"
    second = coast.east[1]
    why = "alone here on demo t; 1:1 has subscribers for it"
    assert coast.events(second, "client_moved") == [("1:1", "192.0.2.1:443", why)]
    case = coast.net.edges[second].moving.case(here.client)
    assert case is not None
    assert (case.standing, case.why) == (Standing.ASKED, why)
    here.leave()
    assert coast.counters(2) == moving.MovingCounters(asked_for_content=1, followed=1)
    coast.run(SLOW_S + 10.0)
    assert sent_to(there) == [], "nobody is left at the other relay"
    assert coast.events(second, "client_stays") == []


def test_moving_sends_a_quicr_client_too() -> None:
    coast = Coast()
    coast.publish("demo/t")
    coast.viewer(1, "demo/t")
    media = QuicrApp(coast.net, coast.east[1]).subscribe("demo/t")
    coast.run(FAST_S)
    assert media.redirects == ["192.0.2.1:443"]
    coast.run(FOLLOW_S + 2.0)
    assert media.redirects == ["192.0.2.1:443"]
    assert coast.counters(2).stayed == 1


def test_moving_from_the_lower_id_waits_for_the_other_and_comes_if_that_cannot() -> None:
    coast = Coast()
    coast.publish("demo/t")
    here = coast.viewer(1, "demo/t")
    # It publishes as well: it stays where it is.
    coast.viewer(2, "demo/t").publish("demo/own")
    coast.run(SLOW_S - 6.0)
    assert sent_to(here) == []
    coast.run(8.0)
    assert sent_to(here) == TO_SECOND


def test_moving_takes_nobody_from_others_who_want_the_same_here() -> None:
    coast = Coast()
    coast.publish("demo/t")
    coast.viewer(1, "demo/t")
    pair = [coast.viewer(2, "demo/t"), coast.viewer(2, "demo/t")]
    coast.run(SLOW_S)
    assert [sent_to(app) for app in pair] == [[], []]


def test_moving_lone_clients_of_many_relays_meet_at_one() -> None:
    coast = Coast(4)
    coast.publish("demo/t")
    apps = [coast.viewer(number, "demo/t") for number in (1, 2, 3, 4)]
    coast.run(FAST_S)
    assert [sent_to(app) for app in apps] == [[], TO_FIRST, TO_FIRST, TO_FIRST]


def test_moving_counts_what_a_move_costs() -> None:
    """One copy less of `a`, and one more of `b`, which others here go on wanting."""
    coast = Coast()
    coast.publish("demo/a", "demo/b", "demo/c")
    coast.viewer(1, "demo/a")
    torn = coast.viewer(2, "demo/a", "demo/b")
    coast.viewer(2, "demo/b")
    coast.run(SLOW_S)
    assert sent_to(torn) == []
    coast.viewer(1, "demo/b")
    coast.run(FAST_S)
    assert sent_to(torn) == TO_FIRST, "now both are there"


def test_moving_does_not_count_what_only_it_wants_and_takes_along() -> None:
    coast = Coast()
    coast.publish("demo/a", "demo/b")
    coast.viewer(1, "demo/a")
    app = coast.viewer(2, "demo/a", "demo/b")
    coast.run(FAST_S)
    assert sent_to(app) == TO_FIRST


def test_moving_goes_where_most_is_saved() -> None:
    coast = Coast(3)
    coast.publish("demo/a", "demo/b")
    coast.viewer(1, "demo/a").publish("demo/x")
    coast.viewer(2, "demo/a", "demo/b").publish("demo/y")
    app = coast.viewer(3, "demo/a", "demo/b")
    coast.run(FAST_S)
    assert sent_to(app) == TO_SECOND
    (_, _, why) = coast.events(coast.east[2], "client_moved")[0]
    assert why == "alone here on 2 tracks, demo a among them; 1:2 has subscribers for them"


def test_moving_leaves_what_comes_from_near_alone() -> None:
    coast = Coast()
    near = coast.net.app(coast.east[0])
    coast.aliases = {}
    alias = near.publish("demo/near")
    coast.viewer(1, "demo/near")
    app = coast.viewer(2, "demo/near")
    for group in range(40):
        near.stream(alias, group, Obj(0, b"x"))
        coast.run(1.0)
    assert sent_to(app) == []


def test_moving_leaves_a_track_alone_that_is_passed_on_from_here() -> None:
    """1:1 has its copy by way of 1:2: one long haul already."""
    coast = Coast()
    coast.publish("demo/t")
    for wire in coast.net.wires:
        if {wire.here.relay, wire.there.relay} == {coast.west, coast.east[0]}:
            wire.cut()
    coast.run(5.0)
    apps = [coast.viewer(1, "demo/t"), coast.viewer(2, "demo/t")]
    coast.run(SLOW_S + 5.0)
    assert [sent_to(app) for app in apps] == [[], []]
    assert apps[0].places, "it has the track"


def test_moving_counts_round_trips_where_nobody_says_where_he_is() -> None:
    coast = Coast(far_ms=60.0)
    for relay in coast.relays:
        relay.weighing.policy._region = ""
    coast.net.run(0.0)
    coast.publish("demo/t")
    coast.viewer(1, "demo/t")
    app = coast.viewer(2, "demo/t")
    for _ in range(round(FAST_S)):
        for relay in coast.relays:
            said = NodeMetrics(0, relay.id, 0.1, 0, 0, "", client_address=coast.addresses[relay])
            relay.extensions.measured(said, coast.net.now)
        coast.pub.stream(coast.aliases["demo/t"], round(coast.net.now) + 1000, Obj(0, b"x"))
        coast.net.run(1.0)
    assert sent_to(app) == TO_FIRST


@pytest.mark.parametrize("what", ["stub", "via"])
def test_moving_is_for_edges(what: str) -> None:
    net = MoqtNet()
    relay = net.relay("1:1", Role(what))
    edge = net.edge(relay, moving=SETTINGS)
    net.app(relay)
    assert edge.moving.deadline() is None


def test_moving_does_not_take_a_track_from_a_stub() -> None:
    coast = Coast()
    coast.publish("demo/t")
    stub = coast.net.relay("7:7", Role.STUB)
    coast.net.edge(stub)
    coast.net.wire(stub, coast.east[1], 10, extended=True)
    coast.net.settle()
    coast.viewer(1, "demo/t")
    app = coast.viewer(2, "demo/t")
    coast.net.app(stub).subscribe("demo/t")
    coast.run(SLOW_S)
    assert sent_to(app) == []


# -- who may not be moved, and where to ------------------------------------------------------------


def test_moving_is_not_for_clients_that_publish_offer_read_relays_or_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coast = Coast()
    coast.publish("demo/t", "laps/news")
    for _ in range(5):
        coast.viewer(1, "demo/t", "laps/news")
    edge = coast.net.edges[coast.east[1]]
    offers = coast.viewer(2, "demo/t")
    offers.publish_namespace("mine")
    coast.run(SLOW_S)
    assert sent_to(offers) == []
    offers.leave()
    reads = coast.viewer(2, "demo/t", "laps/news")
    coast.run(SLOW_S)
    assert sent_to(reads) == [], "it asks the relay about the relays"
    reads.leave()
    leaves = coast.viewer(2, "demo/t")
    leaves.say(Goaway(b""))
    coast.run(SLOW_S)
    assert sent_to(leaves) == []
    leaves.leave()
    monkeypatch.setattr(moqt_setup, "IMPLEMENTATION", b"moq-lite-js")
    lite = coast.viewer(2, "demo/t")
    coast.run(SLOW_S)
    assert sent_to(lite) == [], "it would not come back"
    assert edge.moving.counters == moving.MovingCounters()


def test_moving_goes_nowhere_that_policy_forbids_and_to_the_next_instead() -> None:
    coast = Coast(3)
    coast.publish("demo/t")
    policy = policy_from_mapping(
        {
            "rule": [{"tracks": "demo/*", "inside": ["west", "east"]}],
            "node": [{"nodes": ["1:1"], "region": "north"}],
        },
        "a test",
    )
    for relay in coast.relays:
        relay.follow_policy(policy, coast.net.now)
    coast.viewer(2, "demo/t")
    # As if it had got it before the policy came.
    third = coast.viewer(3, "demo/t")
    coast.run(FAST_S)
    assert sent_to(third) == TO_SECOND


def test_moving_a_bound_track_only_where_it_is_already() -> None:
    coast = Coast()
    coast.publish("demo/t", "bound/t")
    policy = policy_from_mapping(
        {"rule": [{"tracks": "bound/*", "inside": ["west", "east"]}]}, "a test"
    )
    for relay in coast.relays:
        relay.follow_policy(policy, coast.net.now)
    coast.viewer(1, "demo/t")
    app = coast.viewer(2, "demo/t", "bound/t")
    coast.run(SLOW_S)
    assert sent_to(app) == [], "perhaps no way leads there"
    coast.viewer(1, "bound/t")
    coast.run(FAST_S)
    assert sent_to(app) == TO_FIRST


def test_moving_with_a_prefix_stays_where_policy_binds() -> None:
    coast = Coast()
    coast.publish("demo/t")
    coast.viewer(1, "demo/t")
    app = coast.viewer(2, "demo/t")
    app.watch("other")
    policy = policy_from_mapping({"rule": [{"tracks": "other/*", "inside": ["east"]}]}, "a test")
    coast.east[1].follow_policy(policy, coast.net.now)
    coast.run(FAST_S)
    assert sent_to(app) == []
    coast.east[1].follow_policy(None, coast.net.now)
    coast.run(FAST_S)
    assert sent_to(app) == TO_FIRST


def test_moving_goes_to_nobody_who_is_full_leaves_or_takes_no_clients() -> None:
    coast = Coast()
    coast.publish("demo/t")
    first = coast.east[0]
    coast.viewer(1, "demo/t").publish("demo/own")
    app = coast.viewer(2, "demo/t")
    coast.loads[first] = 0.7  # less than its limit, and not well below it
    coast.run(SLOW_S)
    assert sent_to(app) == []
    coast.loads[first], coast.addresses[first] = 0.1, ""
    coast.run(SLOW_S)
    assert sent_to(app) == []
    coast.addresses[first] = "192.0.2.1:443"
    coast.run(2.0)
    first.drain(coast.net.now)
    coast.run(3.0)
    assert sent_to(app) == []


def test_moving_does_not_send_to_a_relay_that_leaves_at_this_moment() -> None:
    coast = Coast()
    coast.publish("demo/t")
    coast.viewer(1, "demo/t")
    app = coast.viewer(2, "demo/t")
    second = coast.net.edges[coast.east[1]]
    coast.run(SETTINGS.settled_s - 1.0)
    case = second.moving.case(app.client)
    assert case is not None
    assert case.standing is Standing.DRAWN
    coast.east[0].extensions.drain(coast.net.now)
    coast.run(3.0)
    assert sent_to(app) == []
    assert not case.target


def test_moving_to_loopback_is_for_clients_of_the_same_machine() -> None:
    coast = Coast()
    coast.publish("demo/t")
    coast.addresses[coast.east[0]] = "127.0.0.1:443"
    coast.viewer(1, "demo/t").publish("demo/own")
    app = coast.viewer(2, "demo/t")
    coast.run(FAST_S + 5.0)
    assert sent_to(app) == []
    coast.addresses[coast.east[1]] = "127.0.0.1:444"
    coast.run(FAST_S + 5.0)
    assert sent_to(app) == [b"moqt://127.0.0.1:443"]


# -- how many, and when ----------------------------------------------------------------------------


def test_moving_keeps_to_the_limit_of_a_minute() -> None:
    coast = Coast(settings=replace(SETTINGS, per_minute=2))
    tracks = [f"demo/{number}" for number in range(5)]
    coast.publish(*tracks)
    coast.viewer(1, *tracks)
    apps = [coast.viewer(2, track) for track in tracks]
    coast.run(30.0)
    assert sum(len(sent_to(app)) for app in apps) == 2
    coast.run(60.0)
    assert sum(len(sent_to(app)) for app in apps) == 4


def test_moving_weighs_anew_when_nobody_is_left_at_the_other_relay() -> None:
    coast = Coast()
    coast.publish("demo/t")
    there, app = coast.viewer(1, "demo/t"), coast.viewer(2, "demo/t")
    coast.run(2.0)
    case = coast.net.edges[coast.east[1]].moving.case(app.client)
    assert case is not None
    assert case.target
    there.leave()
    coast.run(6.0)  # the network hears of it some seconds later
    assert not case.target
    coast.run(FAST_S)
    assert sent_to(app) == []
    coast.viewer(1, "demo/t")
    coast.run(LASTING_S - 1.0)
    assert sent_to(app) == [], "it has settled, and the gain has yet to last"
    coast.run(3.0)
    assert sent_to(app) == TO_FIRST


def test_moving_that_is_turned_off_by_a_reload_asks_nobody_any_more() -> None:
    coast = Coast()
    coast.publish("demo/a", "demo/b")
    coast.viewer(1, "demo/a", "demo/b")
    first = coast.viewer(2, "demo/a")
    coast.run(FAST_S)
    assert sent_to(first) == TO_FIRST
    edge = coast.net.edges[coast.east[1]]
    second = coast.viewer(2, "demo/b")
    coast.run(4.0)
    edge.moving.configure(replace(SETTINGS, per_minute=0), coast.net.now)
    coast.run(SLOW_S)
    assert sent_to(second) == []
    assert edge.moving.counters.stayed == 1, "who was asked before is still looked at"
    assert edge.moving.deadline() is None
    edge.moving.configure(SETTINGS, coast.net.now)
    coast.run(1.0)
    assert sent_to(second) == [], "what it would save is weighed anew"
    coast.run(FAST_S)
    assert sent_to(second) == TO_FIRST


# -- who stays -------------------------------------------------------------------------------------


def test_moving_leaves_who_stays_alone_and_a_drain_says_no_second_goaway() -> None:
    coast = Coast()
    coast.publish("demo/t")
    coast.viewer(1, "demo/t")
    app, other = coast.viewer(2, "demo/t"), coast.viewer(2, "demo/t")
    other.leave()
    coast.run(FAST_S)
    assert sent_to(app) == TO_FIRST
    coast.run(FOLLOW_S)
    (stays,) = coast.events(coast.east[1], "client_stays")
    assert stays[0] == "1:1"
    assert stays[2].startswith("asked 10 s ago: alone here on demo t")
    count = len(app.places)
    coast.run(30.0)
    assert len(app.places) > count, "it is served on"
    fresh = coast.net.app(coast.east[1])
    edge = coast.net.edges[coast.east[1]]
    edge.drain(coast.net.now)
    coast.net.run(1.0)
    assert sent_to(app) == TO_FIRST
    assert sent_to(fresh) == [b""]
    coast.run(3.0)
    edge.close()
    coast.net.run(0.1)
    assert app.closed == fresh.closed
    assert app.closed is not None
    assert not edge.moving._cases


def test_moving_takes_who_wants_nothing_here_any_more_for_gone() -> None:
    """It reads elsewhere, and lets what was sent to it here come in."""
    coast = Coast()
    coast.publish("demo/t")
    coast.viewer(1, "demo/t")
    app = coast.net.app(coast.east[1])
    request = app.subscribe("demo/t")
    coast.run(FAST_S)
    assert sent_to(app) == TO_FIRST
    app.say(Unsubscribe(request))
    coast.run(FOLLOW_S + 2.0)
    app.leave()
    assert coast.counters(2) == moving.MovingCounters(asked_for_content=1, followed=1)


def test_moving_ends_when_the_relay_stops() -> None:
    coast = Coast()
    coast.publish("demo/t")
    coast.viewer(1, "demo/t")
    app = coast.viewer(2, "demo/t")
    coast.run(SETTINGS.settled_s - 2.0)
    coast.net.edges[coast.east[1]].drain(coast.net.now)
    coast.run(SLOW_S)
    assert sent_to(app) == [b""]


# -- relays that are full --------------------------------------------------------------------------


def test_moving_away_from_a_relay_that_is_full_until_it_is_well_below() -> None:
    coast = Coast(settings=replace(SETTINGS, per_minute=3))
    coast.publish("demo/t")
    first = coast.east[0]
    apps = [coast.viewer(1, "demo/t") for _ in range(8)]
    coast.run(FAST_S)
    assert not any(map(sent_to, apps))
    coast.loads[first] = FULL
    coast.run(6.0)
    assert not any(map(sent_to, apps)), "it may be a burst"
    coast.run(20.0)
    asked = [app for app in apps if sent_to(app)]
    assert len(asked) == 3, "no more in a minute"
    assert {uri for app in asked for uri in sent_to(app)} == set(TO_SECOND)
    words = coast.events(first, "client_moved")[0][2]
    assert words == "this relay is 95% full, 1:2 10%"
    coast.loads[first] = 0.7
    coast.run(70.0)
    assert len([app for app in apps if sent_to(app)]) > 3, "less than the limit, but not well below"
    coast.loads[first] = 0.5
    coast.run(20.0)
    count = len([app for app in apps if sent_to(app)])
    coast.run(130.0)
    assert len([app for app in apps if sent_to(app)]) == count
    assert coast.counters(1).asked_for_load == count


def test_moving_from_a_full_relay_counts_whoever_it_has_asked_as_gone() -> None:
    coast = Coast(settings=replace(SETTINGS, per_minute=60))
    coast.publish("demo/t")
    apps = [coast.viewer(1, "demo/t") for _ in range(8)]
    coast.run(FAST_S)
    coast.loads[coast.east[0]] = FULL
    for _ in range(40):
        coast.run(0.5)
        if any(map(sent_to, apps)):
            break
    coast.run(6.0)
    # The load is what it was; five eighths of 95 % are less than 60 %.
    assert len([app for app in apps if sent_to(app)]) == 3


def test_moving_from_a_full_relay_with_many_clients_is_not_held_to_a_few_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moving, "FULL_PART", 2)
    coast = Coast(settings=replace(SETTINGS, per_minute=1))
    coast.publish("demo/t")
    apps = [coast.viewer(1, "demo/t") for _ in range(8)]
    coast.run(FAST_S)
    coast.loads[coast.east[0]] = FULL
    coast.run(70.0)
    assert len([app for app in apps if sent_to(app)]) >= 4


def test_moving_sends_nobody_from_a_full_relay_to_another_that_is_full() -> None:
    coast = Coast(3)
    coast.publish("demo/t")
    first, second, third = coast.east
    apps = [coast.viewer(1, "demo/t") for _ in range(2)]
    coast.loads.update({first: FULL, second: FULL, third: 0.65})
    coast.run(90.0)
    assert not any(map(sent_to, apps))
    coast.loads[third] = 0.2
    coast.run(40.0)
    assert {uri for app in apps for uri in sent_to(app)} == {b"moqt://192.0.2.3:443"}


def test_moving_for_load_waits_until_a_client_has_settled() -> None:
    coast = Coast()
    coast.publish("demo/t")
    coast.loads[coast.east[0]] = FULL
    coast.run(30.0)
    app = coast.viewer(1, "demo/t")
    coast.run(SETTINGS.settled_s - 1.0)
    assert sent_to(app) == []
    coast.run(3.0)
    assert sent_to(app) == TO_SECOND


# -- bounds ----------------------------------------------------------------------------------------


def test_moving_looks_at_some_clients_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "MOST_AT_ONCE", 4)
    monkeypatch.setattr(moving, "NEXT_S", 1.0)
    coast = Coast(settings=replace(SETTINGS, per_minute=100))
    tracks = [f"demo/{number}" for number in range(10)]
    coast.publish(*tracks)
    coast.viewer(1, *tracks)
    apps = [coast.viewer(2, track) for track in tracks]
    edge = coast.net.edges[coast.east[1]]
    coast.run(1.0)
    assert 0 < len(edge.moving._cases) < 10
    coast.run(FAST_S + 20.0)
    assert all(sent_to(app) == TO_FIRST for app in apps)


def test_moving_leaves_a_client_with_very_many_tracks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "MOST_TRACKS", 2)
    coast = Coast()
    coast.publish("demo/a", "demo/b", "demo/c")
    coast.viewer(1, "demo/a", "demo/b", "demo/c").publish("demo/own")
    app = coast.viewer(2, "demo/a", "demo/b", "demo/c")
    coast.run(FAST_S)
    assert sent_to(app) == []


def test_moving_forgets_clients_that_are_gone() -> None:
    coast = Coast()
    coast.publish("demo/t")
    coast.viewer(1, "demo/t")
    app = coast.viewer(2, "demo/t")
    coast.run(3.0)
    app.leave()
    coast.run(1.0)
    edge = coast.net.edges[coast.east[1]]
    assert not edge.moving._cases
    assert edge.moving.deadline() is None
