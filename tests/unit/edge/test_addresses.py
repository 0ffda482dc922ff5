"""Handshakes and sessions of one address, and of all."""

from __future__ import annotations

import pytest

from laps.auth.grants import Limits
from laps.config import LimitsConfig
from laps.edge.addresses import MANY_ADDRESSES, Addresses, IdleTime, Knock, TimeShare
from laps.edge.shares import OverLimit, Shares, ShareSettings
from laps.relay.journal import Journal

HOST = "192.0.2.1"


def addresses(
    sessions: int | None = None,
    each_s: int | None = None,
    all_s: int | None = None,
    exempt: bool = False,
) -> Addresses:
    settings = ShareSettings(
        address=Limits(sessions=sessions), address_handshakes_per_s=each_s, handshakes_per_s=all_s
    )
    networks = LimitsConfig().exempt if exempt else ()
    return Addresses(Shares(settings, Journal()), networks)


def test_handshakes_over_the_rate_have_to_prove_their_address_first() -> None:
    door = addresses(each_s=1)
    assert {door.knock(HOST, 0.0, proved=False) for _ in range(10)} == {Knock.ADMIT}
    assert door.knock(HOST, 0.0, proved=False) is Knock.PROVE
    # Whoever is there itself has a rate of its own, that others cannot use up in its name.
    assert {door.knock(HOST, 0.0, proved=True) for _ in range(10)} == {Knock.ADMIT}
    with pytest.raises(OverLimit, match="this address has 1 handshakes a second; ask again in 1 s"):
        door.knock(HOST, 0.0, proved=True)
    assert door.knock("192.0.2.2", 0.0, proved=False) is Knock.ADMIT
    assert door.knock(HOST, 1.0, proved=True) is Knock.ADMIT


def test_handshakes_of_all_addresses_are_dropped_over_the_rate() -> None:
    door = addresses(all_s=3)
    hosts = [f"192.0.2.{number}" for number in range(4)]
    knocks = [door.knock(host, 0.0, proved=False) for host in hosts]
    assert knocks == [Knock.ADMIT, Knock.ADMIT, Knock.ADMIT, Knock.DROP]
    assert door.knock(hosts[3], 0.5, proved=False) is Knock.ADMIT


def test_sessions_of_an_address_are_counted_when_they_arrive_and_leave() -> None:
    door = addresses(sessions=2)
    door.arrived(HOST, 0.0)
    door.arrived(HOST, 0.0)
    with pytest.raises(OverLimit, match="this address has 2 sessions; ask again in 1 s"):
        door.knock(HOST, 0.0, proved=True)
    with pytest.raises(OverLimit):
        door.arrived(HOST, 0.0)  # its handshake had begun before
    door.left(HOST)
    with pytest.raises(OverLimit):
        door.arrived(HOST, 0.0)
    for _ in range(3):
        door.left(HOST)
    door.arrived(HOST, 0.0)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2", True),
    ],
)
def test_addresses_of_one_host_count_together(one: str, other: str, same: bool) -> None:
    door = addresses(sessions=1)
    door.arrived(one, 0.0)
    assert (door.account(one) is door.account(other)) is same


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_addresses_of_this_machine_have_no_limits_by_default(host: str) -> None:
    door = addresses(sessions=1, each_s=1, exempt=True)
    for _ in range(50):
        assert door.knock(host, 0.0, proved=False) is Knock.ADMIT
        door.arrived(host, 0.0)
    assert door.account(host) is None
    assert door.knock("192.0.2.1", 0.0, proved=False) is Knock.ADMIT
    assert len(door) == 1


def test_addresses_that_have_nothing_are_forgotten() -> None:
    door = addresses(sessions=5, each_s=1)
    door.arrived("198.51.100.1", 0.0)
    for number in range(MANY_ADDRESSES + 10):
        host = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        door.knock(host, float(number), proved=False)
    assert len(door) < MANY_ADDRESSES
    assert door.account("198.51.100.1") is not None


# -- time ------------------------------------------------------------------------------------------


def taken(wants: float, others: float, share: float = 0.1, slower: float = 1.0) -> float:
    """What an address has of a relay's time, if it and others need so much of each second.

    What comes while the relay works is done next, so that a turn takes as long as there is work,
    or longer by a factor where other programs have the processor in between.
    """
    idle, now, worked, waited, had, turn = IdleTime(), 100.0, 0.0, 0.0, 0.0, 0.001
    time = TimeShare(share, idle)
    while now < 130.0:
        mine = 0.0 if time.is_spent(now) else wants * turn
        time.spend(mine, now)
        had, work = had + mine, mine + others * turn
        worked += work
        waited += work * (slower - 1)
        took = work * slower
        turn = min(0.02, max(0.001, took))  # what does not fit the socket's buffer is lost
        now += max(turn, took)
        idle.look(now, worked, waited)
    return had / 30.0


def test_time_of_an_address_is_its_share_while_others_need_theirs() -> None:
    assert taken(wants=1.0, others=1.0) == pytest.approx(0.1, abs=0.03)
    assert taken(wants=0.5, others=1.0) == pytest.approx(0.1, abs=0.03)
    assert taken(wants=0.05, others=1.0) == pytest.approx(0.05, abs=0.01)


def test_time_that_is_idle_is_anybodys() -> None:
    assert taken(wants=1.0, others=0.0) > 0.85
    assert taken(wants=0.5, others=0.3) == pytest.approx(0.5, abs=0.05)
    assert 0.2 < taken(wants=1.0, others=0.7) < 0.35


def test_time_that_other_programs_want_is_not_idle() -> None:
    """Half a core is needed here, and every turn takes half as long again: a quarter is left."""
    assert taken(wants=1.0, others=0.5, slower=1.5) < 0.15
    assert taken(wants=1.0, others=0.0, slower=1.5) > 0.4  # but alone it has enough


def test_time_that_was_not_idle_is_not_owed_for_long() -> None:
    idle = IdleTime()
    idle.look(100.0, 0.0, 0.0)
    idle.look(3700.0, 1200.0, 2400.0)
    assert idle.total_s == 0.0
    idle.look(3702.0, 1200.0, 2400.0)
    assert idle.total_s == pytest.approx(1.9)


def test_time_is_not_idle_because_the_clocks_of_two_looks_differ() -> None:
    idle = IdleTime()
    for turn in range(1000):  # busy all the time; every second look comes a millisecond late
        idle.look(100.0 + 0.01 * turn, 0.01 * turn + 0.001 * (turn % 2), 0.0)
    assert idle.total_s == pytest.approx(0.0, abs=0.002)
    idle.look(115.0, 10.0, 0.0)
    assert idle.total_s == pytest.approx(5.0, abs=0.002)


def test_time_is_measured_by_address_and_not_where_it_has_no_limit() -> None:
    settings = ShareSettings(address_time_share=0.1)
    door = Addresses(Shares(settings, Journal()), LimitsConfig().exempt)
    for host in (HOST, "127.0.0.1"):
        door.arrived(host, 0.0)
    assert door.meter(HOST) is door.meter(HOST) is not None
    assert door.meter("127.0.0.1") is None


def test_address_without_time_left_begins_no_handshake() -> None:
    door = Addresses(Shares(ShareSettings(address_time_share=0.1), Journal()))
    assert door.knock(HOST, 0.0, proved=True) is Knock.ADMIT
    meter = door.meter(HOST)
    assert meter is not None
    meter.spend(1.0, 0.0)
    # Anybody can write an address on a packet: its owner is not to be locked out by that.
    assert door.knock(HOST, 1.0, proved=False) is Knock.PROVE
    assert door.knock(HOST, 1.0, proved=True) is Knock.DROP
    assert door.knock("192.0.2.2", 1.0, proved=False) is Knock.ADMIT
    assert door.knock(HOST, 12.0, proved=True) is Knock.ADMIT


def test_address_whose_time_is_spent_may_come_while_the_relay_is_idle() -> None:
    door = Addresses(Shares(ShareSettings(address_time_share=0.1), Journal()))
    door.idle.look(0.0, 0.0, 0.0)
    door.knock(HOST, 0.0, proved=True)
    meter = door.meter(HOST)
    assert meter is not None
    meter.spend(1.0, 0.0)
    door.idle.look(0.5, 0.0, 0.0)
    assert door.knock(HOST, 0.5, proved=True) is Knock.ADMIT
