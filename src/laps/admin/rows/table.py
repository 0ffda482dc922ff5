"""A view that is a list: its keys now, each row when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a view, before they are made."""

    size: int
    keys: Iterable[Any]
    "In the order of the rows; gone through once, and the tables behind it may change meanwhile."
    row: Callable[[Any], Row | None]
    "None where it is no longer there."

    @classmethod
    def of(cls, keys: Collection[Any], row: Callable[[Any], Row | None]) -> Self:
        """A table whose keys are there already."""
        return cls(len(keys), keys, row)


def contains(value: object, text: str) -> bool:
    """Whether a text is in a value, or in what the value holds; `text` is in lower case."""
    if isinstance(value, str):
        return text in value.lower()
    if isinstance(value, dict):
        return any(contains(item, text) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(contains(item, text) for item in value)
    return isinstance(value, int) and not isinstance(value, bool) and text == str(value)
