"""Sessions on demand, state by state; the shell is a list of what it was told to do."""

from __future__ import annotations

from laps.relay.on_demand import (
    AGAIN_FIRST_S,
    AGAIN_MOST_S,
    HOLD_S,
    LASTING_S,
    Dial,
    HangUp,
    Need,
    OnDemand,
    State,
)
from laps.relay.settings import DemandSettings
from laps.types import PeerMode, parse_node_id
from support.relays import App, Net

VIA = parse_node_id("2:9")
WHY = "4 copies into east where 2 may go"
IDLE_S = 5.0


class World:
    """The sessions of one relay, with a link to a node that they may be about."""

    def __init__(self, most: int = 2) -> None:
        self.net = Net()
        self.relay, self.via = self.net.relay("1:1"), self.net.relay("2:9")
        self.net.wire(self.relay, self.via)
        self.net.settle()
        self.sessions: OnDemand = self.relay.demand.sessions
        self.settings = DemandSettings(sessions=most, idle_s=IDLE_S)
        self.sessions.configure(self.settings, self.now)
        (self.link_id,) = self.relay.peers[VIA].links

    @property
    def now(self) -> float:
        return self.net.now

    def need(self, *contacts: str, gain: int = 1) -> None:
        needs = [Need(it, VIA if it == "via" else None, WHY, gain, at_once=True) for it in contacts]
        self.sessions.needs({need.contact: need for need in needs}, self.now)

    def wait(self, seconds: float, *contacts: str) -> None:
        """So long, with looks at what is needed each second."""
        for _ in range(round(seconds)):
            self.net.now += 1.0
            self.need(*contacts)
            self.sessions.tick(self.now)

    def calls(self) -> list[Dial | HangUp]:
        found = list(self.sessions.calls)
        self.sessions.calls.clear()
        return found

    def states(self) -> dict[str, State]:
        return {it.need.contact: it.state for it in self.sessions}


def test_what_is_needed_is_dialled_at_once_and_the_most_useful_first() -> None:
    world = World(most=2)
    needs = [
        Need(name, None, WHY, gain, at_once=True) for name, gain in (("a", 1), ("b", 3), ("c", 2))
    ]
    world.sessions.needs({need.contact: need for need in needs}, world.now)
    assert world.calls() == [Dial("b", None, PeerMode.DATA), Dial("c", None, PeerMode.DATA)]
    assert world.states() == {"b": State.DIALLING, "c": State.DIALLING}


def test_what_round_trips_ask_for_is_dialled_when_they_have_settled() -> None:
    world = World()
    needs = {"far": Need("far", None, "60 ms to it, and 20 would do", 1)}
    for _ in range(round(LASTING_S)):
        world.sessions.needs(needs, world.now)
        assert world.calls() == []
        world.net.now += 1.0
    world.sessions.needs(needs, world.now)
    assert world.calls() == [Dial("far", None, PeerMode.DATA)]


def test_what_round_trips_ask_for_now_and_then_is_not_dialled() -> None:
    world = World()
    needs = {"far": Need("far", None, "60 ms to it, and 20 would do", 1)}
    for second in range(60):
        world.sessions.needs(needs if second % 5 else {}, world.now)
        world.net.now += 1.0
    assert world.calls() == []


def test_one_that_is_not_needed_rests_and_is_closed_after_some_quiet() -> None:
    world = World()
    world.need("via")
    world.sessions.opened("via", world.link_id, world.now)
    assert world.sessions.why(world.link_id) == WHY
    world.wait(60, "via")
    assert world.states() == {"via": State.UP}
    world.wait(HOLD_S + 1)
    assert world.states() == {"via": State.RESTING}
    assert world.link_id in world.relay.weighing.avoided.resting
    world.calls()
    world.wait(IDLE_S)
    assert world.calls() == [HangUp("via")]
    assert world.states() == {"via": State.WAITING}
    assert world.link_id not in world.relay.weighing.avoided.resting
    assert world.sessions.link_ids == frozenset()


def test_one_that_rests_and_is_needed_again_goes_on_without_a_dial() -> None:
    world = World()
    world.need("via")
    world.sessions.opened("via", world.link_id, world.now)
    world.wait(HOLD_S + 2)
    assert world.states() == {"via": State.RESTING}
    world.calls()
    world.wait(1, "via")
    assert world.states() == {"via": State.UP}
    assert world.calls() == []
    assert world.link_id not in world.relay.weighing.avoided.resting


def test_one_by_which_data_comes_stays_though_it_is_not_needed_here() -> None:
    world = World()
    app, sub = App(), App()
    world.net.announce(world.via, app, "a")
    world.net.subscribe(world.relay, sub, "a/x")
    world.need("via")
    world.sessions.opened("via", world.link_id, world.now)
    world.wait(HOLD_S + 10 * IDLE_S)
    assert world.states() == {"via": State.RESTING}
    world.net.unsubscribe(world.relay, sub, "a/x")
    world.net.run(10.0)
    world.wait(IDLE_S + 1)
    assert world.states() == {"via": State.WAITING}


def test_who_is_dialled_in_vain_is_left_alone_for_ever_longer() -> None:
    world = World()
    waits = []
    for _ in range(3):
        world.need("far")
        assert world.calls() == [Dial("far", None, PeerMode.DATA)]
        world.sessions.ended("far", "refused", world.now)
        assert world.sessions.cannot_help("far")
        before = world.now
        while world.states()["far"] is State.WAITING:
            world.wait(1)
        waits.append(world.now - before)
    assert waits == [AGAIN_FIRST_S, 2 * AGAIN_FIRST_S, 4 * AGAIN_FIRST_S]
    session = next(iter(world.sessions))
    for _ in range(10):
        session.state = State.UP
        world.sessions.ended("far", "refused", world.now)
    assert session.again_s == AGAIN_MOST_S


def test_one_that_was_used_waits_no_longer_than_the_first_time() -> None:
    world = World()
    app, sub = App(), App()
    world.net.announce(world.via, app, "a")
    for _ in range(3):
        while world.states().get("via") in (None, State.WAITING, State.READY):
            world.wait(1, "via")
        world.sessions.opened("via", world.link_id, world.now)
        world.net.subscribe(world.relay, sub, "a/x")
        world.net.run(1.0)
        world.wait(30, "via")
        world.net.unsubscribe(world.relay, sub, "a/x")
        world.net.run(10.0)
        world.wait(HOLD_S + IDLE_S + 2)
        assert world.states() == {"via": State.WAITING}
        (session,) = world.sessions
        assert session.again_s == AGAIN_FIRST_S
        world.wait(AGAIN_FIRST_S + 1)


def test_one_that_was_needed_but_never_used_was_dialled_in_vain() -> None:
    world = World()
    world.need("via")
    world.sessions.opened("via", world.link_id, world.now)
    world.wait(60, "via")
    world.wait(HOLD_S + IDLE_S + 2)
    (session,) = world.sessions
    assert (session.state, session.again_s) == (State.WAITING, 2 * AGAIN_FIRST_S)


def test_one_that_rests_makes_room_and_one_that_is_needed_less_gives_way() -> None:
    world = World(most=1)

    def want(seconds: int, **gains: int) -> None:
        for _ in range(seconds):
            world.net.now += 1.0
            needs = {it: Need(it, None, WHY, gain, at_once=True) for it, gain in gains.items()}
            world.sessions.needs(needs, world.now)
            world.sessions.tick(world.now)

    want(1, via=2)
    world.sessions.opened("via", world.link_id, world.now)
    world.calls()
    want(60, via=2, far=3)
    assert world.states() == {"via": State.UP}, "half as much more is no reason to change"
    want(round(HOLD_S) + 2, via=2, far=5)
    assert world.states() == {"via": State.RESTING}
    want(3, via=2, far=5)
    assert world.calls() == [HangUp("via"), Dial("far", None, PeerMode.DATA)]
    assert world.states() == {"via": State.WAITING, "far": State.DIALLING}


def test_needs_say_whether_one_that_was_let_go_is_used_again() -> None:
    world = World()
    needs = {"via": Need("via", VIA, WHY, 1, at_once=True)}
    assert not world.sessions.needs(needs, world.now)
    world.sessions.opened("via", world.link_id, world.now)
    world.wait(HOLD_S + 2)
    assert world.sessions.needs(needs, world.now)
    assert not world.sessions.needs(needs, world.now)


def test_one_that_waits_keeps_no_other_from_being_dialled() -> None:
    world = World(most=1)
    needs = {name: Need(name, None, WHY, gain, at_once=True) for name, gain in (("a", 9), ("b", 1))}
    world.sessions.needs(needs, world.now)
    world.sessions.ended("a", "refused", world.now)
    world.net.now += 10.0
    world.sessions.needs(needs, world.now)
    assert [call[0] for call in world.calls()] == ["a", "b"]


def test_one_that_nobody_has_needed_for_long_is_forgotten() -> None:
    world = World()
    world.need("far")
    world.sessions.ended("far", "refused", world.now)
    world.wait(AGAIN_FIRST_S + 1)
    assert world.states() == {"far": State.READY}
    world.wait(AGAIN_MOST_S + 1)
    assert world.states() == {}


def test_a_dial_that_nobody_wants_any_more_is_given_up() -> None:
    world = World()
    world.need("far")
    world.calls()
    world.wait(HOLD_S + 1)
    assert world.calls() == [HangUp("far")]


def test_dials_are_bounded_in_number_and_in_time() -> None:
    world = World(most=3)
    world.need(*"abcdefgh")
    assert len(world.calls()) == 3
    dialled = 0
    for _ in range(60):
        for session in world.sessions:
            if session.state is State.DIALLING:
                world.sessions.ended(session.need.contact, "refused", world.now)
        world.wait(1, *"abcdefghijklmnopqrstuvwxyz")
        dialled += sum(isinstance(call, Dial) for call in world.calls())
        assert sum(it is State.DIALLING for it in world.states().values()) <= 3
    assert dialled <= 15  # twelve a minute, and as many at once as there may be sessions


def test_switched_off_it_lets_all_go() -> None:
    world = World()
    world.need("via", "far")
    world.sessions.opened("via", world.link_id, world.now)
    world.calls()
    world.sessions.configure(DemandSettings(), world.now)
    assert world.calls() == [HangUp("far"), HangUp("via")]
    world.wait(60, "via", "far")
    assert world.calls() == []
    assert world.sessions.cannot_help("other")


def test_what_the_shell_says_of_a_session_that_is_gone_is_nothing() -> None:
    world = World()
    world.sessions.opened("nobody", world.link_id, world.now)
    world.sessions.ended("nobody", "why not", world.now)
    assert world.states() == {}


def test_what_happened_is_in_the_journal_with_its_reason() -> None:
    world = World()
    world.need("via")
    world.sessions.ended("via", "refused", world.now)
    events = [it.event for it in world.relay.journal.recent(0)]
    said = [(it.name, it.subject, it.reason) for it in events if it.name.startswith("session")]
    assert said == [("session_on_demand", "2:9", WHY), ("session_released", "2:9", "refused")]
    counters = world.sessions.counters
    assert (counters.sessions_dialled, counters.sessions_ended) == (1, 1)
