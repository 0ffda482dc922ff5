"""Virtual time passes as the queue says, and the same way each time."""

from laps.sim.clock import Clock


def test_calls_come_by_time_and_then_in_the_order_they_were_made() -> None:
    clock, said = Clock(1), list[tuple[float, str]]()

    def say(what: str) -> None:
        said.append((clock.now, what))

    clock.at(2.0, say, "b")
    clock.after(1.0, say, "a")
    clock.at(2.0, say, "c")
    clock.run(1.5)
    assert said == [(1.0, "a")]
    assert clock.now == 1.5
    clock.run(2.0)
    assert said == [(1.0, "a"), (2.0, "b"), (2.0, "c")]
    assert clock.events == 3


def test_a_call_for_the_past_is_made_now() -> None:
    clock, said = Clock(1), list[float]()
    clock.run(5.0)
    clock.at(1.0, lambda: said.append(clock.now))
    clock.run(5.0)
    assert said == [5.0]


def test_a_clock_is_idle_when_only_chores_are_left() -> None:
    clock, chores, done = Clock(1), list[float](), list[float]()
    clock.every(1.0, lambda: chores.append(clock.now))
    assert clock.run_until_idle(limit=10.0)
    clock.after(2.5, lambda: done.append(clock.now))
    assert clock.run_until_idle(limit=10.0)
    assert (chores, done) == ([1.0, 2.0], [2.5])


def test_a_limit_ends_what_never_becomes_idle() -> None:
    clock = Clock(1)

    def again() -> None:
        clock.after(1.0, again)

    again()
    assert not clock.run_until_idle(limit=3.5)
    assert clock.now == 3.5


def test_a_seed_decides_chance() -> None:
    assert Clock(7).rng.random() == Clock(7).rng.random() != Clock(8).rng.random()
