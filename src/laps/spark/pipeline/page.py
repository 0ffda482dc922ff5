"""A report as one page of HTML: pictures and tables, with nothing beside it."""

from __future__ import annotations

import os
import tempfile
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from laps.errors import LapsError
from laps.spark.pipeline.plots import pictures
from laps.spark.pipeline.sections import SECTIONS, columns_of, summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.spark.pipeline.report import Report, Row
    from laps.spark.pipeline.sections import Section

_HEAD: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>LAPS: the network</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
  color: light-dark(#1f2328, #d1d7e0); background: light-dark(#fff, #15191f); }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { font-weight: 600; }
ul { list-style: none; padding: 0; }
svg { width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .2rem .7rem .2rem 0; text-align: left; white-space: nowrap;
  border-bottom: 1px solid light-dark(#d1d9e0, #3d444d); }
.number { text-align: right; }
</style>
"""


def page(report: Report) -> str:
    """The whole page."""
    lines = "".join(f"<li>{escape(line)}</li>\n" for line in summary(report))
    figures = "".join(
        f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>\n"
        for title, svg in pictures(report).items()
    )
    tables = "".join(_section(section, report.views[section.view]) for section in SECTIONS)
    return (
        f"{_HEAD}<h1>The network</h1>\n<ul>\n{lines}</ul>\n"
        f'<div class="pictures">\n{figures}</div>\n{tables}</html>\n'
    )


def write_page(report: Report, path: Path) -> None:
    """Write the page; who looks at the file meanwhile sees the old one or the new one."""
    text = page(report)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise LapsError(f"the page cannot be written to {path}: {error.strerror}") from None


def _section(section: Section, rows: Sequence[Row]) -> str:
    title = f"<h2>{escape(section.title)}</h2>\n"
    if not rows:
        return f"{title}<p>{escape(section.empty)}</p>\n"
    columns = columns_of(section, rows)
    number = {column: ' class="number"' if column.is_number else "" for column in columns}
    head = "".join(f"<th{number[c]}>{escape(c.title)}</th>" for c in columns)
    body = "".join(
        "<tr>" + "".join(f"<td{number[c]}>{escape(c.text(row))}</td>" for c in columns) + "</tr>\n"
        for row in rows
    )
    return f'{title}<div class="wide"><table>\n<tr>{head}</tr>\n{body}</table></div>\n'
