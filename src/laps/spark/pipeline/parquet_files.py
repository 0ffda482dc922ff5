"""The Parquet files of a table: where they are, what times they hold, which to merge."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from laps.errors import ConfigError, quote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyarrow.parquet import FileMetaData

SMALL_BYTES: Final = 32 << 20
"A file below this is merged with others; a batch of a quiet network has some kilobytes."

TARGET_BYTES: Final = 128 << 20
"How large a merged file gets: large enough to read at full speed, and a task's worth of work."

TIMES: Final = ("minute", "at")
"The column that says what time a row is of, where a table has one."

_SCHEMES: Final = {"s3": "s3a", "s3a": "s3a", "s3n": "s3a", "gs": "gs"} | {
    scheme: scheme for scheme in ("abfs", "abfss", "hdfs")
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where tables are, by the names that Spark and the library of the log have for it."""

    spark: str
    delta: str
    local: Path | None

    @classmethod
    def of(cls, path: str | Path) -> Place:
        """From a path, or a URL of a kind that both of them can write."""
        text = str(path).rstrip("/") or "/"
        scheme, colon, rest = text.partition("://")
        if not colon or scheme == "file":
            local = Path(rest if colon else text).expanduser().absolute()
            return cls(f"file:{local}", str(local), local)
        if scheme not in _SCHEMES:
            known = ", ".join(f"{name}://" for name in sorted(set(_SCHEMES.values())))
            raise ConfigError(f"{quote(text)} is no place for tables: take a path, or {known}")
        log_scheme = "s3" if _SCHEMES[scheme] == "s3a" else scheme
        return cls(f"{_SCHEMES[scheme]}://{rest}", f"{log_scheme}://{rest}", None)

    def __truediv__(self, name: str) -> Place:
        local = None if self.local is None else self.local / name
        return Place(f"{self.spark}/{name}", f"{self.delta}/{name}", local)

    def __str__(self) -> str:
        return self.spark if self.local is None else str(self.local)


@dataclass(frozen=True, slots=True)
class File:
    """A file that counts, as the log speaks of it."""

    path: str
    size: int
    rows: int
    first: datetime | None
    last: datetime | None

    def may_hold(self, since: datetime | None, until: datetime | None) -> bool:
        """Whether rows of that time can be in it, `until` excluded."""
        if since is not None and self.last is not None and self.last < since:
            return False
        return not (until is not None and self.first is not None and self.first >= until)


def time_column(names: Iterable[str]) -> str | None:
    """The column that says what time a row is of."""
    have = set(names)
    return next((name for name in TIMES if name in have), None)


def bounds(footer: FileMetaData) -> dict[str, Any]:
    """The first and last time in a file, as a log has them: what readers skip files by."""
    names = [footer.schema.column(index).path for index in range(footer.num_columns)]
    if (time := time_column(names)) is None:
        return {}
    index = names.index(time)
    seen = [
        footer.row_group(group).column(index).statistics for group in range(footer.num_row_groups)
    ]
    if any(stats is None or not stats.has_min_max for stats in seen):
        return {}
    first, last = min(stats.min for stats in seen), max(stats.max for stats in seen)
    return {"minValues": {time: _iso(first)}, "maxValues": {time: _iso(last)}}


def to_merge(files: Iterable[File], least_files: int, target_bytes: int) -> list[File]:
    """The next small files to make one of, neighbours in time; none if there are too few."""
    limit = min(SMALL_BYTES, target_bytes)
    small = sorted((file for file in files if file.size < limit), key=_age)
    if len(small) < least_files:
        return []
    taken: list[File] = []
    size = 0
    for file in small:
        if size + file.size > target_bytes:
            if len(taken) > 1:
                break
            taken, size = [], 0
        taken.append(file)
        size += file.size
    return taken if len(taken) > 1 else []


def remove_empty_folders(root: Path, before: datetime) -> None:
    """Remove the folders of batches whose files are gone: a disk keeps them, a store has none.

    One that has changed since `before` may be that of a batch which is about to be written.
    """
    for folder, _, _ in os.walk(root, topdown=False):
        path = Path(folder)
        if path == root or "_delta_log" in path.relative_to(root).parts:
            continue
        with suppress(OSError):  # it has something in it
            if path.stat().st_mtime < before.timestamp():
                path.rmdir()


def _age(file: File) -> tuple[float, str]:
    return (0.0 if file.first is None else file.first.timestamp()), file.path


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
