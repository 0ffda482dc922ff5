"""Amounts as people read them: 1.2 Mbit/s, 34 ms, 5 min."""

from __future__ import annotations

from typing import Final

NOTHING: Final = "-"
"What stands where nothing is known."

_STEPS: Final = ("", "k", "M", "G", "T", "P")


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


def _scaled(value: float, unit: str) -> str:
    step = 0
    while abs(value) >= 999.5 and step < len(_STEPS) - 1:
        value /= 1000
        step += 1
    return f"{_digits(value) if step else f'{value:.0f}'} {_STEPS[step]}{unit}"


def _digits(value: float) -> str:
    """Two digits at least, and none that say nothing."""
    return f"{value:.1f}" if abs(value) < 9.95 else f"{value:.0f}"
