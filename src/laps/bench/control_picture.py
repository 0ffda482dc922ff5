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
# A picture of more dots is a blot, and an SVG of them too large to open.
MOST_DOTS: Final = 5_000


def draw(result: Result, path: Path) -> None:
    """Write a picture, PNG or SVG by the name of the file."""
    figure = Figure(figsize=(12, 5), layout="constrained")
    axes = figure.add_subplot()
    began = result.stretches[0].begin if result.stretches else 0.0
    seconds: dict[int, list[float]] = {}
    for at, delay in result.samples:
        seconds.setdefault(int(at - began), []).append(1000 * delay)
    some = result.samples[:: 1 + len(result.samples) // MOST_DOTS]
    # Less than a hundredth of a millisecond is not measured, and has no place on this axis.
    shown = [(at - began, max(0.01, 1000 * delay)) for at, delay in some]
    if shown:
        label = "a change" if len(some) == len(result.samples) else "a change, some of them"
        axes.plot(*zip(*shown, strict=True), ".", color=_DOTS, markersize=2, label=label)
    for share, name, width in ((0.5, "p50 of a second", 1), (0.99, "p99 of a second", 2)):
        values = [max(0.01, share_of(sorted(seconds[it]), share)) for it in sorted(seconds)]
        places = [it + 0.5 for it in sorted(seconds)]
        axes.plot(places, values, color=_LINE, linewidth=width, label=name)
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
