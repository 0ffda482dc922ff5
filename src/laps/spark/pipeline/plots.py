"""Pictures of a report, as SVG that stands in a page: no script, no file beside it, no network.

Lines and letters have the colour of the page's own text, so they can be read on light and on dark.
"""

from __future__ import annotations

import io
import re
import warnings
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib import dates as mdates
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from laps.spark.pipeline.sections import milliseconds, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis

    from laps.spark.pipeline.report import Report, Row

_INK: Final = "#010203"
"Stands for the colour of the page's text until the picture is drawn; nothing else has it."

_FIRST: Final = "#3b82f6"
_SECOND: Final = "#f59e0b"

_OUTLINE: Final = [withStroke(linewidth=2, foreground="black")]
"Letters that can be read on every colour of a map."

_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",  # letters stay letters: small, and they can be searched
    "text.parse_math": False,  # a name with dollars in it is a name
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.alpha": 0.2,
    "grid.color": _INK,
    "legend.frameon": False,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "timezone": "UTC",
}


def pictures(report: Report) -> dict[str, str]:
    """Every picture that there is something to draw of, by its title."""
    views = report.views
    drawn = {
        "Delay over time": _draw(_delay, views["delay"]),
        "Round trips between relays": _draw(_matrix, views["matrix"], 4.5),
        "The busiest links": _draw(_links, views["links"], _height(views["links"])),
        "Fan-out": _draw(_fan_out, views["fan_out"]),
        "Audience by region": _draw(_regions, views["regions"], _height(views["regions"])),
        "Load of relays": _draw(_relays, views["relays"], _height(views["relays"])),
    }
    return {title: svg for title, svg in drawn.items() if svg}


def _draw(
    plot: Callable[[Axes, Sequence[Row]], None], rows: Sequence[Row], height: float = 3
) -> str:
    if not rows:
        return ""
    # The same rows give the same picture; another salt keeps the ids of two on a page apart.
    style = _STYLE | {"svg.hashsalt": plot.__name__}
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(7.5, height), layout="constrained")
        plot(figure.subplots(), rows)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    return re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)


def _delay(axes: Axes, rows: Sequence[Row]) -> None:
    times = [row["minute"] for row in rows]
    marker = "o" if len(rows) < 3 else ""  # a line of one point is not seen
    for name, title, color in (
        ("srtt_us_p50", "median link", _FIRST),
        ("srtt_us_p95", "p95", _SECOND),
    ):
        values = [row[name] / 1000 for row in rows]
        axes.plot(times, values, color=color, label=title, marker=marker, linewidth=1.5)
    axes.set_ylabel("sRTT, ms")
    axes.set_ylim(bottom=0)
    dates: Any = mdates  # its stubs have no types
    locator = dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    _legend(axes)


def _matrix(axes: Axes, rows: Sequence[Row]) -> None:
    nodes = sorted({row["node"] for row in rows} | {row["peer"] for row in rows})
    place = {node: index for index, node in enumerate(nodes)}
    grid = [[float("nan")] * len(nodes) for _ in nodes]
    for row in rows:
        grid[place[row["node"]]][place[row["peer"]]] = (row["srtt_us_p50"] or 0) / 1000
    axes.grid(visible=False)
    image = axes.imshow(grid, cmap="viridis", interpolation="nearest")
    names = [_short(node) for node in nodes]
    axes.set_xticks(range(len(nodes)), names, rotation=90)
    axes.set_yticks(range(len(nodes)), names)
    axes.set_xlabel("peer")
    axes.set_ylabel("relay")
    if len(nodes) <= 10:
        for row in rows:
            x, y = place[row["peer"]], place[row["node"]]
            text = milliseconds(row["srtt_us_p50"])
            axes.text(x, y, text, ha="center", va="center", color="white", path_effects=_OUTLINE)
    figure: Any = axes.figure
    figure.colorbar(image, ax=axes, label="sRTT, ms, median", shrink=0.8)


def _links(axes: Axes, rows: Sequence[Row]) -> None:
    names = [f"{_short(row['node'])} → {_short(row['peer'])}" for row in rows]
    used = [row["utilisation_p95"] for row in rows]
    if all(share is not None for share in used):
        axes.set_xlabel("used at p95, % of capacity")
        values = [share * 100 for share in used]
    else:
        axes.set_xlabel("sent at p95, Mbit/s")
        values = [(row["sent_bps_p95"] or 0) / 1e6 for row in rows]
    _bars(axes, names, values)


def _fan_out(axes: Axes, rows: Sequence[Row]) -> None:
    names, at_origin, at_relays = fan_out_bins(rows)
    for shift, values, title, color in (
        (-0.2, at_relays, "at all relays", _SECOND),
        (0.2, at_origin, "at o-relays", _FIRST),
    ):
        axes.bar(
            [place + shift for place in range(len(names))], values, 0.4, color=color, label=title
        )
    axes.set_xticks(range(len(names)), names)
    axes.set_xlabel("copies that a relay sends of a track")
    axes.set_ylabel("tracks")
    _whole(axes.yaxis)
    _legend(axes)


def fan_out_bins(rows: Sequence[Row]) -> tuple[list[str], list[int], list[int]]:
    """Up to eight copies each by itself, then twice as many each time: 9 to 16, 17 to 32 ..."""
    highest = max(row["copies"] for row in rows)
    bins = [(number, number) for number in range(min(highest, 8) + 1)]
    while bins[-1][1] < highest:
        bins.append((bins[-1][1] + 1, bins[-1][1] * 2))
    names = [str(low) if low == high else f"{low}-{high}" for low, high in bins]
    sums = [
        [sum(row[name] for row in rows if low <= row["copies"] <= high) for low, high in bins]
        for name in ("at_origin", "at_relays")
    ]
    return names, sums[0], sums[1]


def _regions(axes: Axes, rows: Sequence[Row]) -> None:
    names = [_short(row["region"] or "no region") for row in rows]
    _bars(axes, names, [row["peak"] for row in rows], color=_SECOND, label="at most")
    _bars(axes, names, [row["subscribers"] for row in rows], label="now", height=0.45)
    axes.set_xlabel("subscriptions")
    _whole(axes.xaxis)
    _legend(axes)


def _relays(axes: Axes, rows: Sequence[Row]) -> None:
    names = [_short(row["node"]) for row in rows]
    p95 = [(row["load_p95"] or 0) * 100 for row in rows]
    _bars(axes, names, p95, color=_SECOND, label="p95")
    _bars(axes, names, [(row["load"] or 0) * 100 for row in rows], label="now", height=0.45)
    axes.set_xlabel("load, % of a core")
    _legend(axes)


def _bars(
    axes: Axes,
    names: Sequence[str],
    values: Sequence[float],
    color: str = _FIRST,
    label: str | None = None,
    height: float = 0.8,
) -> None:
    places = range(len(names))
    axes.barh(places, values, height=height, color=color, label=label)
    axes.set_yticks(places, names)
    axes.set_ylim(len(names) - 0.5, -0.5)  # the first on top
    axes.grid(visible=False, axis="y")


def _legend(axes: Axes) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0)


def _whole(axis: XAxis | YAxis) -> None:
    """Count in whole things."""
    ticker: Any = MaxNLocator  # its stubs have no types
    axis.set_major_locator(ticker(integer=True))


def _height(rows: Sequence[Row]) -> float:
    return 1.1 + 0.3 * max(3, len(rows))


def _short(name: str) -> str:
    shown = printable(name)
    return shown if len(shown) <= 24 else f"{shown[:23]}…"
