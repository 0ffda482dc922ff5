"""Tokens in files, and the option that names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from laps import cli_client, cli_pipeline, cli_plan
from laps.errors import ConfigError
from laps.token_files import TokenFile, read_option

if TYPE_CHECKING:
    from pathlib import Path


def test_token_file_gives_text_without_the_end_of_its_line_and_bytes_as_they_are(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    file.write_bytes(b" a.b.c\n")
    assert TokenFile(file)() == "a.b.c"
    file.write_bytes(b"\xd2\x84\n")
    assert TokenFile(str(file))() == b"\xd2\x84\n"


def test_token_file_says_when_it_has_changed(tmp_path: Path) -> None:
    file, other = TokenFile(tmp_path / "token"), tmp_path / "other"
    changed = [file.has_changed]  # there is none
    file.path.write_text("a.b.c")
    changed.append(file.has_changed)
    file()
    changed.append(file.has_changed)
    other.write_text("d.e.f")
    other.replace(file.path)
    changed.append(file.has_changed)
    assert file() == "d.e.f"
    file.path.unlink()
    assert [*changed, file.has_changed] == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "cannot be read: No such file or directory"),
        (b" \n", "is empty: it has to hold a token"),
        (b"x" * 70_000, "has more than 65536 bytes: is it a token?"),
    ],
)
def test_token_file_that_holds_none_is_named(
    tmp_path: Path, data: bytes | None, words: str
) -> None:
    file = tmp_path / "token"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(ConfigError) as refused:
        read_option(f"@{file}")
    assert str(refused.value).startswith('the token file "')
    assert str(refused.value).endswith(words)


def test_token_option_that_is_left_out_leaves_it_to_the_environment() -> None:
    assert read_option(None) is None


URL = "moqt://127.0.0.1:1"


@pytest.mark.parametrize(
    "command",
    [
        ("pub", URL, "demo", "t"),
        ("sub", URL, "demo", "t"),
        ("plan", "--topology", "t.toml", "--key", "k.pem", "--publish", URL),
        ("pipeline", "--relay", URL),
    ],
    ids=lambda command: command[0],
)
def test_token_on_the_command_line_is_refused_as_ps_shows_it(command: tuple[str, ...]) -> None:
    app = typer.Typer()
    for room in (cli_client, cli_pipeline, cli_plan):
        room.register(app)
    result = CliRunner().invoke(app, [*command, "--token", "swordfish"])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == (
        "--token: a token on the command line is seen by everybody on this machine: give --token "
        "@FILE, --token - for standard input, or set LAPS_TOKEN"
    )
    assert "@FILE|-" in CliRunner().invoke(app, [command[0], "--help"]).stdout
