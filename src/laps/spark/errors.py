"""What goes wrong with reading tracks, in the words of who reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.errors import LapsError

if TYPE_CHECKING:
    from laps.types import Location


class DataLost(LapsError):  # noqa: N818 - a name says what happened
    """Objects that were to be read are no longer held by any relay."""


def show(place: Location) -> str:
    """A location for a person to read."""
    return f"({place.group}, {place.object})"


def data_lost(track: str, wanted: str, held: str) -> DataLost:
    """The error, with the way out."""
    return DataLost(
        f'objects of track "{track}" are lost: {wanted} was to be read, and {held}. '
        'Go on without them by .option("failOnDataLoss", "false"), or give relays more room in '
        "[cache]"
    )
