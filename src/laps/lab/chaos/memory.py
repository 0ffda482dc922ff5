"""The memory of relays while others die: how much each process has, from its start to its end."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laps.lab.processes import Relay

EVERY_S: Final = 2.0

# A process is full of what it keeps after this long: what relays cache is kept for a minute.
FULL_S: Final = 90.0
# One that lived for less after that says nothing.
LEAST_S: Final = 90.0

# Caches and tables follow what happens; what is leaked comes on top of that in every minute.
MOST_GROWTH: Final = 0.10

MB: Final = 1e6


@dataclass(slots=True)
class Life:
    """One process of a relay."""

    node: str
    pid: int
    began: float
    samples: list[tuple[float, int]] = field(default_factory=list)
    "How old it was, and how many bytes it had."
    clients: list[tuple[float, int]] = field(default_factory=list)
    "How old it was, and how many clients it had, as far as it was asked."

    @property
    def age_s(self) -> float:
        """How old it was when it was looked at last."""
        return self.samples[-1][0] if self.samples else 0.0

    @property
    def is_long(self) -> bool:
        """Whether it lived long enough to say whether it grows."""
        return self.age_s >= FULL_S + LEAST_S

    @property
    def start_mb(self) -> float:
        """When it was full, or when it was first seen if it did not live that long."""
        full = [size for age, size in self.samples if age >= FULL_S] if self.is_long else []
        return _median(full[:5] or [self.samples[0][1]]) / MB

    @property
    def end_mb(self) -> float:
        """At the end."""
        return _median([size for _, size in self.samples[-5:]]) / MB

    @property
    def growth(self) -> float:
        """From one to the other.

        Clients of other relays that come meanwhile make it larger once, by up to 15 %, as does what
        they read. Then growth is what went on all the time: of three thirds of the time, each is
        larger than the one before.
        """
        if not self.has_more_clients:
            return self.end_mb / self.start_mb - 1
        full = [size for age, size in self.samples if age >= FULL_S]
        third = max(1, len(full) // 3)
        first, second, last = (_median(full[at:][:third]) for at in (0, third, -third))
        # The middles of two thirds are a third of the time apart.
        return min(second / first, last / second) ** 3 - 1

    @property
    def has_more_clients(self) -> bool:
        """Whether it had more clients at some time than when it was full."""
        before = [number for age, number in self.clients if age < FULL_S]
        return max((number for _, number in self.clients), default=0) > (before or [0])[-1]

    @property
    def has_grown(self) -> bool:
        """Whether it is larger than it should be."""
        return self.is_long and self.growth > MOST_GROWTH


class Memory:
    """What all relays of a lab have."""

    def __init__(self, relays: Mapping[str, Relay]) -> None:
        self._relays = relays
        self._lives: dict[tuple[str, int], Life] = {}

    def look(self, clients: Mapping[str, int] | None = None) -> None:
        """Note what each has now; `clients` is how many there are, of those that have said so."""
        now = time.monotonic()
        for name, relay in self._relays.items():
            if relay.process is None or not relay.runs or not relay.ready:
                continue
            pid = relay.process.pid
            life = self._lives.setdefault((name, pid), Life(name, pid, now))
            with suppress(OSError, IndexError):  # it ends just now
                life.samples.append((now - life.began, rss_bytes(pid)))
            if clients is not None and name in clients:
                life.clients.append((now - life.began, clients[name]))

    def longest(self) -> list[Life]:
        """The process of each relay that lived the longest."""
        found: dict[str, Life] = {}
        for life in self._lives.values():
            if life.samples and (life.node not in found or life.age_s > found[life.node].age_s):
                found[life.node] = life
        return [found[name] for name in self._relays if name in found]

    def grown(self) -> list[Life]:
        """Every process, not only the longest of its relay, that is larger than it should be."""
        return [life for life in self._lives.values() if life.has_grown]


def rss_bytes(pid: int) -> int:
    """The memory that a process has in use."""
    resident = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(resident) * os.sysconf("SC_PAGE_SIZE")


def _median(values: list[int]) -> float:
    return sorted(values)[len(values) // 2]
