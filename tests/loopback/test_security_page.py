"""docs/security.md: the network of three organisations is built as the page says, and holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.documents import ROOT, Reader, blocks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PAGE = ROOT / "docs" / "security.md"
HEADING = "## Three organisations\n"


def test_commands_of_the_three_organisations_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAPS_TOKEN", raising=False)
    before, heading, _ = PAGE.read_text().partition(HEADING)
    assert heading
    section = [block for block in blocks(PAGE) if block.line > before.count("\n")]
    with Reader(tmp_path, [PAGE]) as reader:
        for block in section:
            reader.do(block)
        assert len(reader.done) == len(section) > 15
        for name in ("alpha", "beta", "gamma"):
            said = reader.saying(f"{name}/relay.toml")
            assert "auth=keys" in said
            assert not any(token in said for token in tokens(tmp_path))


def tokens(folder: Path) -> list[str]:
    """All that is secret, and must be in no log."""
    found = [path.read_text().strip() for path in folder.rglob("*.token")]
    assert len(found) == 4
    return found
