"""The delays of `laps bench control` over time, with what happened to the servers marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import matplotlib
from matplotlib.figure import Figure

from laps.bench.control import share_of
from laps.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from laps.bench.control import Result

# Colours that people who see few of them tell apart.
_DOTS, _LINE, _MARK = "#9aa0a6", "#3b7dc4", "#d2402f"
# A picture of more dots is a blot, and an SVG of them too large to open: the longest stay.
MOST_DOTS: Final = 20_000


def draw(result: Result, path: Path) -> None:
    """Write a picture, PNG or SVG by the name of the file."""
    figure = Figure(figsize=(12, 5), layout="constrained")
    axes = figure.add_subplot()
    began = result.stretches[0].begin if result.stretches else 0.0
    seconds: dict[int, list[float]] = {}
    for at, delay in result.samples:
        seconds.setdefault(int(at - began), []).append(1000 * delay)
    longest = sorted(result.samples, key=lambda it: -it[1])[:MOST_DOTS]
    # Less than a hundredth of a millisecond is not measured, and has no place on this axis.
    shown = [(at - began, max(0.01, 1000 * delay)) for at, delay in longest]
    if shown:
        label = "a change" if len(shown) == len(result.samples) else "a change, the longest"
        axes.plot(*zip(*shown, strict=True), ".", color=_DOTS, markersize=2, label=label)
        p99 = [max(0.01, share_of(sorted(seconds[it]), 0.99)) for it in sorted(seconds)]
        axes.plot([it + 0.5 for it in sorted(seconds)], p99, color=_LINE, label="p99 of a second")
    for stretch in result.stretches[1:]:
        axes.axvline(stretch.begin - began, color=_MARK, linewidth=1)
        place = stretch.begin - began, 0.98
        axes.annotate(
            f" {stretch.name}", place, xycoords=("data", "axes fraction"), color=_MARK, va="top"
        )
    asked = result.asked
    axes.set_title(
        f"{asked.servers} control servers, {asked.edges} Edges, {asked.tracks:,} tracks, "
        f"{asked.rate:g} changes a second",
        fontsize=11,
    )
    axes.set_yscale("log")
    axes.set_xlabel("when it was made, s")
    axes.set_ylabel("until the publisher's Edge knows, ms")
    if shown:
        axes.legend(loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Names of elements and the time of day would differ from run to run.
    with matplotlib.rc_context({"svg.hashsalt": "laps"}):
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        try:
            figure.savefig(path, dpi=110, metadata=metadata)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
