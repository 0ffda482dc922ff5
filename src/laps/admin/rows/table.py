"""A list before its rows are made: its keys now, each row when its turn comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable


RowT = TypeVar("RowT", bound=msgspec.Struct, covariant=True)


@dataclass(frozen=True, slots=True)
class Table(Generic[RowT]):
    """The rows of a list, before they are made."""

    size: int
    keys: Iterable[Any]
    "In the order of the rows; gone through once, and what they lead to may change meanwhile."
    row: Callable[[Any], RowT | None]
    "None where it is no longer there."

    @classmethod
    def of(cls, keys: Collection[Any], row: Callable[[Any], RowT | None]) -> Self:
        """A table whose keys are there already."""
        return cls(len(keys), keys, row)


def contains(value: object, text: str) -> bool:
    """Whether a text is in a value, or in what the value holds; `text` is in lower case."""
    if isinstance(value, str):
        return text in value.lower()
    if isinstance(value, int):
        return not isinstance(value, bool) and text == str(value)
    held: Iterable[object] = ()
    if isinstance(value, msgspec.Struct):
        held = msgspec.structs.astuple(value)
    elif isinstance(value, dict):
        held = value.values()
    elif isinstance(value, list | tuple):
        held = value
    for item in held:  # noqa: SIM110 - a search goes through every row, and `any` takes longer
        if contains(item, text):
            return True
    return False
