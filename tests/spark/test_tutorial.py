"""docs/tutorial.md, done from beginning to end as a reader would."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from support.chromium import driven_chromium, is_installed
from support.documents import ROOT, Reader

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

PAGE = ROOT / "docs" / "tutorial.md"


def a_note_from_the_browser(reader: Reader) -> None:
    """Open the page, see the temperature, and publish a note; where there is a browser."""
    if not is_installed():
        return
    (sha256,) = re.findall(r"node=1:1 .*sha256=(\w+)", reader.saying("relay --node-id 1:1"))
    with driven_chromium() as browser:
        page = browser.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(reader.here(f"http://127.0.0.1:8000/#{sha256}"))
        expect(page.locator("#state")).to_have_text("Connected.")
        expect(page.locator("#degrees")).to_have_text(re.compile(r"^-?\d"))
        page.locator("#note").fill("The soup is ready")
        page.get_by_role("button", name="Publish").click()
        expect(page.locator("#state")).to_have_text("Published: The soup is ready")
        (terminal,) = (one for one in reader.beside if "kitchen notes" in one.command)
        terminal.wait_for("The soup is ready")
        assert not problems


def test_every_command_of_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    with Reader(tmp_path, [PAGE], a_note_from_the_browser=a_note_from_the_browser) as reader:
        reader.read(PAGE)
        assert "readings" in reader.saying("kitchen summary")
        assert len(reader.done) > 15
