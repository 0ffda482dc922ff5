"""Every relay in these tests is held to it that nobody is called back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.reentry import guard_relays
from support.relays import Net

if TYPE_CHECKING:
    from laps.relay.relay import Relay
    from support.relays import Puppet


@pytest.fixture(autouse=True)
def _nobody_is_called_back(monkeypatch: pytest.MonkeyPatch) -> None:
    guard_relays(monkeypatch)


@pytest.fixture
def net() -> Net:
    return Net()


@pytest.fixture
def relay(net: Net) -> Relay:
    return net.relay("1:1")


@pytest.fixture
def peer(net: Net, relay: Relay) -> Puppet:
    """One that the relay is linked with, and that says what a test has it say."""
    puppet = net.puppet("2:1")
    net.wire(puppet, relay)
    return puppet
