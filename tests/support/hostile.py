"""Hostile clients for tests: the attacks of `laps bench hostile`, in processes of their own.

with attacking(port, "reset storm") as attacker:
    ...
    attacker.ask()["sent"]
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from laps.bench.hostile_clients import ATTACKS, SOURCE
from laps.bench.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ATTACKS", "SOURCE", "attacking"]


@contextmanager
def attacking(port: int, attack: str) -> Iterator[Process]:
    """Attack the relay at a port of loopback while the block runs."""
    with Process("laps.bench.hostile_clients", attack, str(port)) as attacker:
        attacker.line()
        yield attacker
