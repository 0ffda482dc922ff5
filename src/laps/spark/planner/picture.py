"""A plan as a picture: the network today and with the plan, and the links with the most to carry.

Nodes stand where they are on the map, or, where nobody said, in a circle of regions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import matplotlib
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from laps import units
from laps.errors import ConfigError
from laps.spark.planner.loads import capacities, resource_name

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from laps.spark.planner.network import Longs, Network
    from laps.spark.planner.plan import Plan
    from laps.spark.planner.summary import Figures

FORMATS: Final = (".png", ".svg")

# Colours that people who see few of them tell apart.
_IDLE, _BUSY, _OVER = "#d5d5d5", "#3b7dc4", "#d2402f"
_TODAY, _PLAN = "#9aa0a6", "#3b7dc4"
_BARS: Final = 12
# Beyond that a name beside each node is a blot.
_NAMED: Final = 60


def draw(plan: Plan, path: Path) -> None:
    """Write a picture, PNG or SVG by the name of the file; the same for the same plan."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: a picture is a PNG or an SVG: end its name in .png or .svg")
    network = plan.problem.network
    figure = Figure(figsize=(15, 8.5), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(2, 1.15))
    places = positions(network)
    largest = max(_largest(plan.today, network), _largest(plan.planned, network), 1)
    for column, (title, figures) in enumerate((("today", plan.today), ("plan", plan.planned))):
        axes = figure.add_subplot(grid[0, column])
        _draw_network(axes, network, places, figures.loads, largest)
        axes.set_title(f"{title}: {_caption(figures)}", fontsize=11)
    _draw_bars(figure.add_subplot(grid[1, :]), plan)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Names of elements and the time of day would differ from run to run.
    with matplotlib.rc_context({"svg.hashsalt": "laps"}):
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        try:
            figure.savefig(path, dpi=110, metadata=metadata)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def positions(network: Network) -> NDArray[np.float64]:
    """[node]: where it is drawn, x and y."""
    told = np.array([(node.longitude, node.latitude) for node in network.nodes], np.float64)
    if len(np.unique(told, axis=0)) > 1 and told.any(axis=1).mean() > 0.5:
        # Some may not say where they are: they stand with the others of their region.
        for number in np.flatnonzero(~told.any(axis=1)):
            same = (network.region == network.region[number]) & told.any(axis=1)
            told[number] = told[same].mean(axis=0) if same.any() else told[number]
        return told
    found = np.empty((network.size, 2))
    count = len(network.regions)
    for region in range(count):
        turn = 2 * math.pi * region / count
        centre = np.array([math.cos(turn), math.sin(turn)]) * (10 if count > 1 else 0)
        nodes = np.flatnonzero(network.region == region)
        nodes = nodes[np.lexsort((network.rank[nodes], ~network.is_via[nodes]))]
        spread = 4.5 / max(1.0, count / 6)
        for place, number in enumerate(nodes):
            around = 2 * math.pi * place / len(nodes) + turn
            reach = spread * (0.45 if network.is_via[number] else 1.0) if len(nodes) > 1 else 0
            found[number] = centre + reach * np.array([math.cos(around), math.sin(around)])
    return found


def _caption(figures: Figures) -> str:
    over = f", {units.many(len(figures.overloaded), 'overload')}" if figures.overloaded else ""
    return (
        f"{units.many(figures.long_haul_copies, 'long-haul copy', 'long-haul copies')} "
        f"({units.bits(figures.long_haul_bps)}), p95 {figures.p95_delay_us / 1000:.4g} ms{over}"
    )


def _links(figures: Figures, network: Network) -> Longs:
    """[link]: what it carries in the direction that has more."""
    both = figures.loads[network.size :].reshape(2, -1)
    most: Longs = both.max(axis=0) if both.size else np.empty(0, np.int64)
    return most


def _largest(figures: Figures, network: Network) -> int:
    carried = _links(figures, network)
    return int(carried.max()) if len(carried) else 0


def _draw_network(
    axes: Axes, network: Network, places: NDArray[np.float64], loads: Longs, largest: int
) -> None:
    limits = capacities(network)
    over = (limits > 0) & (loads > limits)
    both = loads[network.size :].reshape(2, -1)
    order = np.argsort(both.max(axis=0), kind="stable")
    lines: list[Any] = []
    widths, colours = [], []
    for link in order:
        carried = int(both[:, link].max())
        ends = places[[network.link_a[link], network.link_b[link]]]
        too_much = over[network.size :].reshape(2, -1)[:, link].any()
        lines.append(ends)
        widths.append(0.6 + 6 * carried / largest if carried else 0.4)
        colours.append(_OVER if too_much else _BUSY if carried else _IDLE)
    axes.add_collection(LineCollection(lines, linewidths=widths, colors=colours, zorder=1))
    for is_kind, marker, size in ((network.is_via, "s", 46), (~network.is_via, "o", 22)):
        full = over[: network.size][is_kind]
        axes.scatter(
            places[is_kind, 0],
            places[is_kind, 1],
            s=size if network.size <= _NAMED else size / 4,
            marker=marker,
            c=[_OVER if one else "#202124" for one in full] or "#202124",
            zorder=2,
        )
    if network.size <= _NAMED:
        for number, node in enumerate(network.nodes):
            axes.annotate(
                node.id, places[number], xytext=(5, 4), textcoords="offset points", fontsize=7
            )
    axes.margins(0.08)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_bars(axes: Axes, plan: Plan) -> None:
    """The links with the most to carry, today or with the plan."""
    network = plan.problem.network
    today, planned = plan.today.loads[network.size :], plan.planned.loads[network.size :]
    limits = capacities(network)[network.size :]
    most = np.maximum(today, planned)
    busy = np.argsort(-most, kind="stable")[:_BARS]
    busy = busy[most[busy] > 0]
    rows = np.arange(len(busy))
    axes.barh(rows - 0.2, today[busy] / 1e6, 0.38, color=_TODAY, label="today")
    axes.barh(rows + 0.2, planned[busy] / 1e6, 0.38, color=_PLAN, label="plan")
    known = limits[busy] > 0
    axes.scatter(
        limits[busy][known] / 1e6, rows[known], marker="|", s=220, c=_OVER, label="capacity"
    )
    names = [resource_name(network, network.size + int(link)) for link in busy]
    axes.set_yticks(rows, [name.removeprefix("link ") for name in names], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("Mbit/s on the busiest links")
    if len(busy):
        axes.legend(loc="lower right", fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
