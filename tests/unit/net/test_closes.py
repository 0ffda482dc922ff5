"""Connections that ended."""

from __future__ import annotations

from laps.errors import ConnectionClosed
from laps.net.closes import MAX_CLOSES, MAX_CODES, OTHER, Closes


def closed(code: int, *, application: bool = True) -> ConnectionClosed:
    return ConnectionClosed(code, "why", by_peer=True, application=application)


def test_the_last_ones_are_kept() -> None:
    closes = Closes()
    for code in range(MAX_CLOSES + 5):
        closes.add("client", "moqt-16", "127.0.0.1:1", closed(code))
    assert [close.code for close in closes.last] == list(range(5, MAX_CLOSES + 5))
    last = closes.last[-1]
    assert (last.kind, last.who, last.address) == ("client", "moqt-16", "127.0.0.1:1")
    assert (last.by_peer, last.reason) == (True, "why")


def test_codes_are_counted_and_those_of_quic_apart() -> None:
    closes = Closes()
    for close in (closed(1), closed(1), closed(1, application=False)):
        closes.add("peer", "1:2", "", close)
    assert closes.counts == {("peer", "1"): 2, ("peer", "quic-1"): 1}


def test_whoever_closes_with_ever_other_codes_makes_no_more_series() -> None:
    closes = Closes()
    for code in range(10 * MAX_CODES):
        closes.add("client", "", "", closed(code))
    assert len(closes.counts) == MAX_CODES + 1
    assert closes.counts["client", OTHER] == 9 * MAX_CODES
