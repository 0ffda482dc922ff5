"""The drafts of MoQT that are spoken, and which of them relays speak with each other."""

from __future__ import annotations

from typing import Final

from laps.wire.moqt.draft import Dialect
from laps.wire.moqt.draft14 import DRAFT14
from laps.wire.moqt.draft16 import DRAFT16

DIALECTS: Final = {dialect.draft: dialect for dialect in (DRAFT14, DRAFT16)}

BETWEEN_RELAYS: Final = next(dialect for dialect in DIALECTS.values() if dialect.is_carried)
"""What relays speak with each other: the objects of other drafts are translated."""

BY_SETUP: Final = DRAFT14
"""Spoken where the ALPN names no draft: its version is agreed upon in the setup."""

BY_ALPN: Final = tuple(item for item in DIALECTS.values() if not item.version_in_setup)
"""Those that the ALPN names."""

__all__ = ["BETWEEN_RELAYS", "BY_ALPN", "BY_SETUP", "DIALECTS", "DRAFT14", "DRAFT16", "Dialect"]
