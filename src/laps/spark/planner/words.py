"""Amounts for people to read."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"))


def bits(bps: float) -> str:
    """A rate: 1.5 Gbit/s."""
    for size, unit in _UNITS:
        if bps >= size:
            return f"{bps / size:.4g} {unit}"
    return f"{bps:.4g} bit/s"


def load(bps: float, limit: float) -> str:
    """What something has of what it can: 2 of 1.5 Gbit/s."""
    one, other = bits(bps), bits(limit)
    amount, _, unit = one.partition(" ")
    return f"{amount if other.endswith(unit) else one} of {other}"


def delay(srtt_us: float) -> str:
    """The delay of a path, half its sum of sRTT: 12.5 ms."""
    return f"{srtt_us / 2000:.4g} ms"


def count(number: int, one: str, many: str = "") -> str:
    """1 pair, 2 pairs."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
