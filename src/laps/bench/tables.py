"""The table that every benchmark prints its figures in."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rich import box
from rich.table import Table


def table_of_figures(title: str, caption: str) -> Table:
    """A table without columns yet: the title above it, what the figures mean below."""
    return Table(
        title=title,
        caption=caption,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0, 0, 1),
    )


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was measured, and what the project asks of it."""

    case: str
    what: str
    figure: float
    unit: str
    least: float | None = None
    most: float | None = None

    def holds(self) -> bool:
        """Whether it is as wanted, or nothing is."""
        low = self.least is not None and self.figure < self.least
        return not (low or (self.most is not None and self.figure > self.most))


def as_mapping(figures: list[Figure]) -> list[dict[str, object]]:
    """The results for a program."""
    return [asdict(figure) | {"holds": figure.holds()} for figure in figures]


def table_of(figures: list[Figure], title: str, caption: str) -> Table:
    """The results for a person."""
    made = table_of_figures(title, caption)
    made.add_column("", no_wrap=True)
    made.add_column("figure", justify="right", no_wrap=True)
    made.add_column("", no_wrap=True)
    made.add_column("wanted", justify="right", no_wrap=True)
    made.add_column("", no_wrap=True)
    case = ""
    for figure in figures:
        if figure.case != case:
            case = figure.case
            made.add_row(f"[bold]{case}[/bold]")
        made.add_row(
            f"  {figure.what}",
            _number(figure.figure),
            figure.unit,
            _wanted(figure),
            "" if _wanted(figure) == "" else "met" if figure.holds() else "[bold]missed[/bold]",
        )
    return made


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2f}"


def _wanted(figure: Figure) -> str:
    if figure.least is not None:
        return f"≥ {figure.least:,g}"
    return "" if figure.most is None else f"≤ {figure.most:,g}"
