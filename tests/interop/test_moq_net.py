"""@moq/net 0.3.4 in a real Chromium: drafts 14 and 16 over WebTransport."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from interop.scenes import a_track_passes

if TYPE_CHECKING:
    from interop.clients import Start
    from interop.relays import Relay

pytestmark = [pytest.mark.browser, pytest.mark.parametrize("draft", ["14", "16"])]


def test_a_track_passes_between_browsers(
    draft: str, ends: tuple[Relay, Relay], room: str, moq_net: Start
) -> None:
    source, sink = a_track_passes(moq_net, moq_net, ends, room, draft=draft)
    source.tell("close")
    sink.until("withdrawn")


def test_a_browser_reads_what_a_program_writes(
    draft: str, one_relay: Relay, room: str, moq_net: Start, moqrs: Start
) -> None:
    ends = one_relay, one_relay
    a_track_passes(moqrs, moq_net, ends, room, ("raw", "web"), draft=draft)


def test_a_program_reads_what_a_browser_writes(
    draft: str, one_relay: Relay, room: str, moq_net: Start, moqrs: Start
) -> None:
    ends = one_relay, one_relay
    a_track_passes(moq_net, moqrs, ends, room, ("web", "raw"), draft=draft)
