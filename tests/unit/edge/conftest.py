"""Every relay in these tests is held to it that nobody is called back."""

from __future__ import annotations

import pytest

from support.reentry import guard_relays


@pytest.fixture(autouse=True)
def _nobody_is_called_back(monkeypatch: pytest.MonkeyPatch) -> None:
    guard_relays(monkeypatch)
