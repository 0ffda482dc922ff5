"""moq-rs 0.5.1, a Rust client: it offers every draft it knows, and the relay takes one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from interop.scenes import SMALL, a_track_passes

if TYPE_CHECKING:
    from interop.clients import Start
    from interop.relays import Relay


@pytest.mark.parametrize("transport", ["raw", "web"])
def test_a_track_passes(transport: str, ends: tuple[Relay, Relay], room: str, moqrs: Start) -> None:
    a_track_passes(moqrs, moqrs, ends, room, (transport, transport))


def test_raw_quic_and_webtransport_meet(one_relay: Relay, room: str, moqrs: Start) -> None:
    ends = one_relay, one_relay
    a_track_passes(moqrs, moqrs, ends, room, ("raw", "web"))


def test_a_namespace_is_withdrawn_where_it_was_announced(
    ends: tuple[Relay, Relay], room: str, moqrs: Start
) -> None:
    source, sink = a_track_passes(moqrs, moqrs, ends, room, ("raw", "raw"))
    source.tell("close")
    sink.until("withdrawn")


def test_drafts_meet_in_the_relay(
    ends: tuple[Relay, Relay], room: str, moqrs: Start, aiomoqt: Start
) -> None:
    """aiomoqt speaks draft 14 and nothing else; moq-rs whatever the relay likes best."""
    a_track_passes(aiomoqt, moqrs, ends, room, ("web", "raw"), SMALL)


def test_drafts_meet_the_other_way_round(
    ends: tuple[Relay, Relay], room: str, moqrs: Start, aiomoqt: Start
) -> None:
    a_track_passes(moqrs, aiomoqt, ends, room, ("raw", "web"), SMALL)
