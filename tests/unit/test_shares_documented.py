"""The table of bounds in docs/security.md has every limit that there is, with its default."""

from __future__ import annotations

import re
from pathlib import Path

from laps.auth.grants import Limits
from laps.config import Config, LimitsConfig

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def rows() -> dict[str, str]:
    """The defaults, by settings."""
    section = PAGE.read_text().split("\n## Shares\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| ")]
    return {setting: default for _, default, text, *_ in cells for setting in _codes(text)}


def _codes(text: str) -> list[str]:
    return [f"token.{it}" if "in the token" in text else it for it in re.findall("`([^`]+)`", text)]


def test_table_of_bounds_has_every_limit_of_the_configuration() -> None:
    assert {f"limits.{key}" for key in LimitsConfig.__struct_fields__} <= set(rows())


def test_table_of_bounds_has_every_limit_of_a_token() -> None:
    assert {f"token.{name}" for name in Limits.__slots__} <= set(rows())


def test_table_of_bounds_names_settings_that_are_there_with_their_defaults() -> None:
    config = Config()
    for setting, default in rows().items():
        section, key = setting.split(".")
        if section == "token":
            assert key in Limits.__slots__
            continue
        value = getattr(getattr(config, section), key)
        numbers = [float(it.replace(",", "")) for it in re.findall(r"[\d,]*\.?\d+", default)]
        if isinstance(value, int | float) and numbers:
            assert {value, value / 2**20} & set(numbers), (setting, default, value)
        elif isinstance(value, int):
            assert value == 0, (setting, default, value)
            assert default.strip() == "none"
