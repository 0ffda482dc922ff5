"""Amounts as people read and write them: 1.2 Mbit/s, 34 ms, 5 min, 15m.

How many figures an amount has depends on who reads it:

- two at least, for somebody who watches (`size`, `rate`, `delay`, `duration`);
- three in a report (`figures`, `prefixed`);
- four in a plan, where the fourth may be why it was chosen (`bits`, `path_delay`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

NOTHING: Final = "-"
"What stands where nothing is known."

_PREFIXES: Final = ("", "k", "M", "G", "T", "P")

SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
"The units in which people write a length of time."

# --- for somebody who watches ----------------------------------------------------------------


def size(count: float | None) -> str:
    """Bytes: 512 B, 1.2 kB, 34 MB."""
    return NOTHING if count is None else _scaled(count, "B")


def rate(bytes_per_s: float | None) -> str:
    """Bytes a second, in bits: 1.2 Mbit/s."""
    return NOTHING if bytes_per_s is None else _scaled(8 * bytes_per_s, "bit/s")


def number(count: float | None) -> str:
    """A count: 1,234."""
    return NOTHING if count is None else f"{count:,.0f}"


def per_second(count: float | None) -> str:
    """How often something happens: 12/s."""
    if count is None:
        return NOTHING
    return f"{count:,.0f}/s" if count >= 10 or count == round(count) else f"{count:.1f}/s"


def share(part: float | None) -> str:
    """A share of one: 12 %."""
    if part is None:
        return NOTHING
    percent = 100 * part
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.2g} %"


def delay(microseconds: float | None) -> str:
    """A short time: 340 µs, 1.2 ms, 34 ms, 1.5 s."""
    if microseconds is None:
        return NOTHING
    sign, us = ("-" if microseconds < 0 else ""), abs(microseconds)
    if us < 1_000:
        return f"{sign}{us:.0f} µs"
    if us < 1_000_000:
        return f"{sign}{_digits(us / 1_000)} ms"
    return f"{sign}{_digits(us / 1_000_000)} s"


def duration(seconds: float | None) -> str:
    """A long time: 12 s, 5 min, 3 h, 2 d."""
    if seconds is None:
        return NOTHING
    seconds = max(0.0, seconds)
    for limit, step, unit in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{seconds / step:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def many(count: int, one: str, more: str = "") -> str:
    """A count with its noun: 1 pair, 2 pairs."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def _scaled(value: float, unit: str) -> str:
    # What would round to 1000 has the next prefix.
    value, prefix = _prefix(value, 999.5)
    return f"{_digits(value) if prefix else f'{value:.0f}'} {prefix}{unit}"


def _prefix(value: float, limit: float) -> tuple[float, str]:
    """The value below `limit`, with the prefix that makes up for it."""
    step = 0
    while abs(value) >= limit and step < len(_PREFIXES) - 1:
        value /= 1000
        step += 1
    return value, _PREFIXES[step]


def _digits(value: float) -> str:
    """Two digits at least, and none that say nothing."""
    return f"{value:.1f}" if abs(value) < 9.95 else f"{value:.0f}"


# --- in a report -----------------------------------------------------------------------------


def figures(value: float | None) -> str:
    """A number in three figures: 1.23, 45.6, 789, 1234."""
    if value is None:
        return NOTHING
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def prefixed(value: float | None) -> str:
    """A number in three figures and a prefix: 1.23 M."""
    if value is None:
        return NOTHING
    value, prefix = _prefix(value, 1000)
    return f"{figures(value)} {prefix}".rstrip()


# --- in a plan -------------------------------------------------------------------------------


def bits(bps: float) -> str:
    """A rate: 1.5 Gbit/s."""
    value, prefix = _prefix(bps, 1000)
    return f"{value:.4g} {prefix}bit/s"


def load(bps: float, limit: float) -> str:
    """What something has of what it can: 2 of 1.5 Gbit/s."""
    one, other = bits(bps), bits(limit)
    amount, _, unit = one.partition(" ")
    return f"{amount if other.endswith(unit) else one} of {other}"


def path_delay(srtt_us: float) -> str:
    """The delay of a path, half its sum of sRTT: 12.5 ms."""
    return f"{srtt_us / 2000:.4g} ms"


# --- from text -------------------------------------------------------------------------------


def read_duration(text: str, units: Collection[str] = tuple(SECONDS)) -> float | None:
    """The seconds in a length of time as a person writes it, 500ms or 15m; None if it is none."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)([a-z]+)", text, re.ASCII)
    if found is None or found[2] not in units:
        return None
    return float(found[1]) * SECONDS[found[2]]


def read_share(text: str) -> float | None:
    """The share of one in a percentage as a person writes it, 2%; None if it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)%", text, re.ASCII)
    if found is None or float(found[1]) > 100:
        return None
    return float(found[1]) / 100
