"""What pages and rows are made of: kinds of numbers, marks of a field, the page and the list."""

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta


class Series(msgspec.Struct, frozen=True):
    """Marks a field that Prometheus scrapes."""

    kind: Literal["counter", "gauge"]
    name: str = ""
    "What the series is called, where that is not the name of the field."
    help: str = ""
    "Its HELP line, where that is not the description of the field."
    per: float = 1
    "How many of the field's unit make one of the series' unit."


class Label(msgspec.Struct, frozen=True):
    """Marks a field that is a label of `laps_node_info`."""


COUNTER = Series("counter")
GAUGE = Series("gauge")
LABEL = Label()


def says(words: str) -> Meta:
    """What a field means, in one sentence."""
    return Meta(description=words)


# Numbers that cannot be true are refused where an answer is decoded, and nobody after that has to
# ask again.
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Id = Annotated[int, Meta(ge=0)]
Time = Annotated[float, Meta(ge=0, le=1e15)]
Latitude = Annotated[float, Meta(ge=-90, le=90)]
Longitude = Annotated[float, Meta(ge=-180, le=180)]

At = Annotated[Time, says("When it was so, in seconds since 1970.")]
Answering = Annotated[str, says("The relay that answers.")]
Total = Annotated[Count, says("How many rows there are in all.")]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an answer."""


class Page(Row, frozen=True, kw_only=True):
    """A whole answer."""

    path: ClassVar[str]
    "Where it is served; a part in braces is the name of one thing."


class ListPage(Page, frozen=True, kw_only=True):
    """A list of rows, which are its last field but one, and how many there are in all.

    That order is what lets a list be sent while its rows are still being made.
    """

    node: Answering = ""
    at: At = 0.0

    @classmethod
    def list_name(cls) -> str:
        """The field that holds the rows."""
        return cls.__struct_fields__[-2]

    @property
    def rows(self) -> list[Row]:
        """The rows."""
        found: list[Row] = getattr(self, self.list_name())
        return found
