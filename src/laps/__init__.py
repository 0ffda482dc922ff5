"""LAPS: a network of relays that carries live tracks from publishers to subscribers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laps.client.connect import connect

__all__ = ["__version__", "connect"]

__version__: str


def __getattr__(name: str) -> object:
    """Load the client when it is first asked for: a relay never needs it."""
    if name == "connect":
        from laps.client import connect

        return connect
    if name == "__version__":
        from importlib.metadata import version

        return version("laps")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
