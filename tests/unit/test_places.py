"""Where the programs of a machine leave word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from laps import places
from laps.places import PlaceRefused, leave_word, read_words, shared_secret, take_back

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "place"
    monkeypatch.setenv(places.VARIABLE, str(folder))
    return folder


def test_a_word_is_found_until_it_is_taken_back(place: Path) -> None:
    assert read_words("relays") == []
    path = leave_word("relays", {"node": "1:1"})
    assert path == place / "relays" / f"{os.getpid()}.json"
    assert read_words("relays") == [{"node": "1:1", "pid": os.getpid()}]
    leave_word("relays", {"node": "1:2"})
    assert [word["node"] for word in read_words("relays")] == ["1:2"]
    assert read_words("labs") == []
    take_back("relays")
    take_back("relays")
    assert read_words("relays") == []


def test_nobody_else_can_read_or_write_there(place: Path) -> None:
    path = leave_word("relays", {})
    assert place.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_the_words_of_who_is_gone_are_removed(place: Path) -> None:
    leave_word("relays", {"node": "1:1"})
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    dead = place / "relays" / f"{gone.pid}.json"
    dead.write_text('{"node": "9:9"}')
    (place / "relays" / "no number.json").write_text("{}")
    assert [word["node"] for word in read_words("relays")] == ["1:1"]
    assert not dead.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '"text"'])
def test_what_is_no_word_is_passed_over(place: Path, text: str) -> None:
    leave_word("relays", {}).write_text(text)
    assert read_words("relays") == []


def test_a_place_that_others_can_write_to_is_refused(place: Path) -> None:
    place.mkdir()
    (place / "relays").mkdir()
    place.chmod(0o777)
    for use in (lambda: leave_word("relays", {}), lambda: read_words("relays")):
        with pytest.raises(PlaceRefused, match="others can write there: chmod 700"):
            use()


def test_a_place_that_leads_elsewhere_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    place.symlink_to(tmp_path / "theirs")
    with pytest.raises(PlaceRefused, match="is not a directory of ours"):
        leave_word("relays", {})


def test_a_place_that_cannot_be_made_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "file" / "place"))
    with pytest.raises(PlaceRefused, match="set LAPS_PLACE to another"):
        leave_word("relays", {})


def test_without_a_variable_it_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(places.VARIABLE)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert str(places.place()) == "/run/user/7/laps"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert str(places.place()) == f"/tmp/laps-{os.getuid()}"


def test_words_are_json_that_others_can_read(place: Path) -> None:
    path = leave_word("relays", {"node": "1:1", "admin": "127.0.0.1:1"})
    assert json.loads(path.read_text()) == {
        "node": "1:1",
        "admin": "127.0.0.1:1",
        "pid": os.getpid(),
    }


def test_the_secret_stays_the_same_and_is_ours_alone(place: Path) -> None:
    secret = shared_secret()
    assert len(secret) == 32
    assert shared_secret() == secret
    assert (place / "secret").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in place.iterdir()] == ["secret"]


def test_a_secret_that_was_cut_short_is_refused(place: Path) -> None:
    shared_secret()
    (place / "secret").write_bytes(b"short")
    with pytest.raises(PlaceRefused, match="is not 32 bytes long: remove it"):
        shared_secret()
