"""Files that people write, read with words that say what to mend.

A table is declared as a class, and each of its fields is annotated with what it may be:

    id: Annotated[NodeId, Meta(description='a node id in quotes', extra={"parse": parse_id})]

`description` ends the sentence "must be ..." in a refusal. `parse` reads the values that TOML has
no type for; all others are msgspec's to check against the bounds. A refusal names the file, the
key, the value and the way out.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, get_type_hints

import msgspec

from laps.errors import ConfigError, InvalidText, quote

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

Row = TypeVar("Row", bound=msgspec.Struct)

# --- whole files -----------------------------------------------------------------------------


def read_toml(path: Path) -> dict[str, object]:
    """What a TOML file holds, or a refusal that names the file and the line."""
    try:
        return tomllib.loads(_read_text(path, "TOML"))
    except tomllib.TOMLDecodeError as error:
        words, _, place = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", place)
        where = f"{path}:{line[1]}" if line else str(path)
        raise ConfigError(f"{where}: not TOML: {words} at {place.rstrip(')')}") from None


def read_mapping(path: Path) -> dict[str, object]:
    """What a file holds: JSON where its name ends so, else TOML."""
    if path.suffix != ".json":
        return read_toml(path)
    try:
        mapping = json.loads(_read_text(path, "JSON"))
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None
    if not isinstance(mapping, dict):
        raise ConfigError(f"{path}: not a topology or a policy: must be a JSON object, of tables")
    return mapping


def _read_text(path: Path, kind: str) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not {kind}: not UTF-8 at byte {error.start}") from None


# --- tables ----------------------------------------------------------------------------------


def read_row(table: type[Row], row: object, where: str) -> Row:
    """One table of a file as a value, each key checked."""
    if not isinstance(row, dict):
        raise ConfigError(f"{where} = {quote(row)}: must be a table")
    fields = {field.encode_name: field for field in msgspec.structs.fields(table)}
    hints = get_type_hints(table, include_extras=True)
    values: dict[str, Any] = {}
    for key, value in row.items():
        if key not in fields:
            refuse(where, key, value, f"unknown key{suggest(key, tuple(fields))}")
        name = fields[key].name
        values[name] = convert(hints[name], value, f"{where}: {key} = {quote(value)}")
    for key, field in fields.items():
        if field.required and key not in row:
            (meta,) = hints[field.name].__metadata__
            raise ConfigError(f"{where}: {key} is missing: give {meta.description}")
    return table(**values)


def read_rows(table: type[Row], mapping: Mapping[str, object], name: str, source: str) -> list[Row]:
    """All tables of one name, `[[name]]` in TOML; none where the file has none."""
    rows = mapping.get(name, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        refuse(source, name, rows, f"must be tables: [[{name}]]")
    return [
        read_row(table, row, f"{source}: {name}[{number}]")
        for number, row in enumerate(rows, start=1)
    ]


def require_known(mapping: Mapping[str, object], known: Collection[str], source: str) -> None:
    """ConfigError for a table that nobody would read."""
    for name, content in mapping.items():
        if name not in known:
            refuse(source, name, content, f"unknown table{suggest(name, known)}")


def convert(wanted: Any, value: object, where: str) -> Any:
    """The value of an annotated field; `where` says in a refusal which it is, and how it reads."""
    (meta,) = wanted.__metadata__
    try:
        if meta.extra is not None:
            return meta.extra["parse"](value)
        return msgspec.convert(value, wanted)
    except InvalidText as error:
        problem = error.problem if error.text == value else str(error)
    except msgspec.ValidationError:
        problem = f"must be {meta.description}"
    raise ConfigError(f"{where}: {problem}")


# --- refusals --------------------------------------------------------------------------------


def refuse(where: str, key: str, value: object, problem: str) -> NoReturn:
    """ConfigError with the thing, the value and the way out."""
    raise ConfigError(f"{where}: {key} = {quote(value)}: {problem}")


def suggest(name: str, known: Collection[str], which: str = "known") -> str:
    """The known name that is meant, perhaps, and all of them; `which` says what they are."""
    close = difflib.get_close_matches(name, known, n=1)
    guess = f", did you mean {close[0]}?" if close else ";"
    return f"{guess} {which}: {', '.join(known)}"
