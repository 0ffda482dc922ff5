"""Who is silent is asked, then suspect, then dead; who stood still itself accuses nobody."""

import random

import pytest

from laps.net.liveness import ANSWER_S, ASK_S, LOOK_S, REFUSALS, Life, Liveness

DEAD_S = 1.0


class World:
    """A connection that is looked at in time."""

    def __init__(
        self, srtt_s: float = 0.02, dead_after_s: float = DEAD_S, *, listens: bool = False
    ) -> None:
        self.now = self.heard_at = 100.0
        self.srtt_s = srtt_s
        self.life = Liveness(self.now, dead_after_s, listens=listens)
        self.asked: list[float] = []

    def look(self, *, needed: bool = True, refusals: int = 0) -> Life:
        seen = self.life.look(
            self.now, self.heard_at, self.srtt_s, needed=needed, refusals=refusals
        )
        if seen.ask:
            self.asked.append(self.now)
        return seen.life

    def wait(self, seconds: float, *, needed: bool = True) -> Life:
        for _ in range(round(seconds / LOOK_S)):
            self.now += LOOK_S
            self.look(needed=needed)
        return self.life.life

    def hear(self) -> None:
        self.heard_at = self.now


def test_who_is_heard_is_never_asked() -> None:
    world = World()
    for _ in range(100):
        world.now += LOOK_S
        world.hear()
        assert world.look() is Life.ALIVE
    assert world.asked == []


def test_silence_where_nothing_depends_on_it_says_nothing() -> None:
    world = World()
    assert world.wait(60, needed=False) is Life.ALIVE
    assert world.asked == []
    # From now on something does: it is asked at once, and has the time that anybody has to answer.
    assert world.wait(LOOK_S) is Life.ALIVE
    assert len(world.asked) == 1
    assert world.wait(ANSWER_S - LOOK_S) is Life.ALIVE


def test_silence_is_asked_about_then_suspect_then_death_in_under_a_second_and_a_bit() -> None:
    world = World()
    began = world.now
    while world.look() is Life.ALIVE:
        world.now += LOOK_S
    suspect_after = world.now - began
    assert ASK_S + ANSWER_S <= suspect_after <= ASK_S + ANSWER_S + 2 * world.srtt_s + 2 * LOOK_S
    assert len(world.asked) >= 3  # so that one that is lost accuses nobody
    while world.look() is Life.SUSPECT:
        world.now += LOOK_S
    assert world.life.life is Life.DEAD
    assert DEAD_S <= world.now - began <= DEAD_S + 2 * LOOK_S


def test_a_suspect_that_is_heard_is_alive_again() -> None:
    world = World()
    assert world.wait(0.7) is Life.SUSPECT
    world.hear()
    assert world.look() is Life.ALIVE
    assert world.wait(ASK_S) is Life.ALIVE


def test_a_suspect_stays_one_and_is_asked_when_nothing_depends_on_it_any_more() -> None:
    world = World()
    assert world.wait(0.7) is Life.SUSPECT
    asked = len(world.asked)
    assert world.wait(0.2, needed=False) is Life.SUSPECT
    assert len(world.asked) == asked + 2
    assert world.wait(0.3, needed=False) is Life.DEAD


def test_a_long_way_is_given_its_round_trips() -> None:
    world = World(srtt_s=0.6)
    assert world.wait(1.6) is Life.ALIVE
    assert world.wait(0.3) is Life.DEAD  # longer than `dead_after_s` by then


@pytest.mark.parametrize("away_s", [0.5, 3.0, 3600.0])
def test_who_stood_still_itself_accuses_nobody(away_s: float) -> None:
    world = World()
    assert world.wait(0.1) is Life.ALIVE
    world.now += away_s
    assert world.look() is Life.ALIVE
    world.now += 0.01
    world.hear()  # what came meanwhile is read after the timer
    assert world.look() is Life.ALIVE


def test_who_stood_still_asks_everybody_since_they_may_have_given_it_up() -> None:
    """A peer that closed an idle connection meanwhile says nothing, and nobody would notice."""
    world = World()
    assert world.wait(5.0, needed=False) is Life.ALIVE
    world.now += DEAD_S
    assert world.look(needed=False) is Life.ALIVE
    assert len(world.asked) == 1
    assert world.wait(ANSWER_S + LOOK_S, needed=False) is Life.SUSPECT
    assert world.wait(DEAD_S, needed=False) is Life.DEAD


def test_what_came_while_we_stood_still_is_no_answer() -> None:
    world = World()
    world.now += 3 * DEAD_S
    world.look(needed=False)
    world.now += 0.01
    world.hear()
    assert world.wait(2 * DEAD_S, needed=False) is Life.DEAD


def test_who_answers_one_that_stood_still_is_left_alone_again() -> None:
    world = World()
    world.now += DEAD_S
    world.look(needed=False)
    assert world.wait(ASK_S, needed=False) is Life.ALIVE
    assert world.asked
    world.now += world.srtt_s
    world.hear()
    asked = len(world.asked)
    assert world.wait(60, needed=False) is Life.ALIVE
    assert len(world.asked) == asked


def test_who_others_found_silent_is_suspect_until_it_answers() -> None:
    world = World()
    assert world.wait(5.0, needed=False) is Life.ALIVE
    world.life.doubt()
    assert world.look(needed=False) is Life.SUSPECT
    assert len(world.asked) == 1
    world.now += world.srtt_s
    world.hear()
    assert world.look(needed=False) is Life.ALIVE
    world.life.doubt()
    assert world.wait(DEAD_S, needed=False) is Life.DEAD
    world.life.doubt()
    assert world.look(needed=False) is Life.DEAD


def test_an_operator_may_be_more_patient() -> None:
    world = World(dead_after_s=5.0)
    assert world.wait(4.8) is Life.SUSPECT
    assert world.wait(0.4) is Life.DEAD


def test_a_path_that_loses_a_twentieth_and_a_machine_that_is_late_kill_nobody() -> None:
    """An idle link that is asked, and answers what arrives: QUIC would ask more often still."""
    rng = random.Random(1)
    world = World(srtt_s=0.08)
    answers: list[float] = []
    suspected = 0
    for _ in range(100_000):
        world.now += LOOK_S + rng.random() * 0.05
        arrived = [at for at in answers if at <= world.now]
        if arrived:
            world.heard_at = max(arrived)
            answers = [at for at in answers if at > world.now]
        before = len(world.asked)
        life = world.look()
        assert life is not Life.DEAD
        suspected += life is Life.SUSPECT
        if len(world.asked) > before and rng.random() > 2 * 0.05:
            answers.append(world.now + 0.08 + rng.random() * 0.1)
    assert suspected < 100  # of 10,000 seconds, and each is a detour, nothing more


def test_a_refusal_makes_who_is_silent_suspect_and_several_mean_that_it_is_dead() -> None:
    world = World(listens=True)
    assert world.wait(ASK_S) is Life.ALIVE
    for refusals in range(1, REFUSALS):
        world.now += LOOK_S
        assert world.look(refusals=refusals) is Life.SUSPECT
    assert world.look(refusals=REFUSALS) is Life.DEAD


def test_a_peer_that_has_dialled_us_has_its_time_though_its_machine_refuses() -> None:
    world = World(listens=False)
    assert world.wait(ASK_S) is Life.ALIVE
    assert world.look(refusals=10 * REFUSALS) is Life.SUSPECT
    world.hear()
    assert world.look() is Life.ALIVE


def test_who_is_heard_is_alive_whatever_its_machine_refuses() -> None:
    world = World(listens=True)
    world.now += LOOK_S
    world.hear()
    assert world.look(refusals=10 * REFUSALS) is Life.ALIVE
