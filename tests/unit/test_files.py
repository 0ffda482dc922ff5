from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import pytest
from msgspec import Meta

from laps.errors import ConfigError
from laps.files import read_mapping, read_row, read_rows, require_known, suggest
from laps.types import Address

if TYPE_CHECKING:
    from pathlib import Path


def parse_addresses(value: object) -> tuple[Address, ...]:
    return tuple(map(Address.parse, msgspec.convert(value, list[str])))


class Table(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="a string")]
    size: Annotated[int, Meta(ge=1, description="a whole number from 1")] = 1
    peers: Annotated[
        tuple[Address, ...], Meta(description="a list", extra={"parse": parse_addresses})
    ] = ()
    kind: Annotated[str, Meta(description="a kind")] = msgspec.field(name="class", default="")


def test_files_rows_are_read_with_defaults_and_names_of_their_own() -> None:
    row = read_row(Table, {"name": "a", "class": "b"}, "x.toml: [t]")
    assert row == Table(name="a", kind="b")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([], "t.toml: [t] = []: must be a table"),
        ({}, "t.toml: [t]: name is missing: give a string"),
        ({"name": 1}, "t.toml: [t]: name = 1: must be a string"),
        ({"name": "a", "size": 0}, "t.toml: [t]: size = 0: must be a whole number from 1"),
        (
            {"name": "a", "sise": 0},
            (
                "t.toml: [t]: sise = 0: unknown key, did you mean size? "
                "known: name, size, peers, class"
            ),
        ),
        (
            {"name": "a", "peers": ["h:1", "h"]},
            (
                't.toml: [t]: peers = ["h:1", "h"]: address "h" needs a port: host:port, like '
                "127.0.0.1:33434"
            ),
        ),
    ],
)
def test_files_refusals_name_the_key_the_value_and_the_way_out(row: object, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_row(Table, row, "t.toml: [t]")
    assert str(caught.value) == words


def test_files_tables_are_numbered_from_1() -> None:
    with pytest.raises(ConfigError, match=r"^t\.toml: t\[2\]: name is missing"):
        read_rows(Table, {"t": [{"name": "a"}, {}]}, "t", "t.toml")
    assert read_rows(Table, {}, "t", "t.toml") == []


def test_files_tables_that_nobody_reads_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown table, did you mean nodes\?"):
        require_known({"node": []}, ("nodes", "links"), "t.toml")


def test_files_suggest_what_is_known() -> None:
    assert suggest("zzz", ("nodes",), "known here") == "; known here: nodes"


def test_files_are_json_where_their_name_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}')
    (tmp_path / "a.toml").write_text("a = 1")
    assert read_mapping(tmp_path / "a.json") == read_mapping(tmp_path / "a.toml") == {"a": 1}
    (tmp_path / "b.json").write_text("[1]")
    with pytest.raises(ConfigError, match="must be a JSON object"):
        read_mapping(tmp_path / "b.json")
    (tmp_path / "b.toml").write_text("a = 1\nb =")
    with pytest.raises(ConfigError, match=r"b\.toml: not TOML: "):
        read_mapping(tmp_path / "b.toml")
