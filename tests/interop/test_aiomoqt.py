"""aiomoqt 0.5.3, draft 14: the six cases of its interop client, and objects through relays."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from interop.scenes import SMALL, a_track_passes

if TYPE_CHECKING:
    from pathlib import Path

    from interop.clients import Start
    from interop.relays import Relay

CASES = (
    "setup-only",
    "announce-only",
    "publish-namespace-done",
    "subscribe-error",
    "announce-subscribe",
    "subscribe-before-announce",
)


def test_it_has_no_other_cases(aiomoqt_python: Path) -> None:
    assert interop_client(aiomoqt_python, "--list").stdout.split() == list(CASES)


@pytest.mark.parametrize("transport", ["raw", "web"])
@pytest.mark.parametrize("case", CASES)
def test_case(case: str, transport: str, one_relay: Relay, aiomoqt_python: Path) -> None:
    url = one_relay.url(transport)
    done = interop_client(aiomoqt_python, "--relay", url, "--test", case, "--tls-disable-verify")
    assert f"ok 1 - {case}\n" in done.stdout
    assert "not ok" not in done.stdout, done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize("sent_as", ["subgroups", "datagrams"])
def test_objects_pass(sent_as: str, ends: tuple[Relay, Relay], room: str, aiomoqt: Start) -> None:
    a_track_passes(aiomoqt, aiomoqt, ends, room, groups=SMALL, sent_as=sent_as)


def interop_client(python: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), "-m", "aiomoqt.examples.moq_interop_client", *args],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
