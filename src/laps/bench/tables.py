"""The table that every benchmark prints its figures in."""

from __future__ import annotations

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
