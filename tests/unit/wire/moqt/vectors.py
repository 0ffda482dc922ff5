"""The golden bytes of tests/vectors/moqt, and what their README says they mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laps.types import Location, TrackName
from laps.wire.moqt import messages as m
from laps.wire.moqt.dialect import DRAFT14, DRAFT16, Dialect
from laps.wire.moqt.fetch import EndOfRange, FetchItem
from laps.wire.moqt.objects import Object

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.names import Namespace

VECTORS = Path(__file__).parents[3] / "vectors" / "moqt"

Meaning = dict[str, str]


@dataclass
class Case:
    name: str
    dialect: Dialect
    data: bytes
    meaning: Meaning

    @property
    def canonical(self) -> bool:
        return self.meaning.get("encode") != "no"


def read_cases(path: Path) -> list[Case]:
    dialect = DRAFT14 if path.stem.startswith("draft14") else DRAFT16
    cases = []
    for block in path.read_text().split("\n== ")[1:]:
        name, *lines = (line.partition("#")[0].strip() for line in block.splitlines())
        means = lines.index("means")
        pairs = (line.partition("=") for line in lines[means + 1 :] if line)
        meaning = {key.strip(): value.strip() for key, _, value in pairs}
        data = bytes.fromhex("".join(lines[:means]))
        cases.append(Case(f"{path.stem}: {name}", dialect, data, meaning))
    return cases


CASES = [case for path in sorted(VECTORS.glob("*.txt")) for case in read_cases(path)]


def with_key(key: str) -> list[Case]:
    return [case for case in CASES if key in case.meaning]


# --- values ----------------------------------------------------------------------------------


def number(text: str) -> int:
    return int(text, 0)


def flag(text: str) -> bool:
    return {"yes": True, "no": False}[text]


def location(text: str) -> Location:
    return Location(*map(int, text.split("/")))


def namespace(text: str) -> Namespace:
    return tuple(part.encode() for part in text.split())


def track(text: str) -> TrackName:
    fields, _, name = text.partition("/")
    return TrackName(namespace(fields), name.strip().encode())


def filter_(text: str) -> m.Filter:
    type_, *rest = text.split()
    start = location(rest[0]) if rest else m.FIRST
    return m.Filter(m.FilterType[type_], start, int(rest[1]) if rest[1:] else None)


def tokens(text: str) -> tuple[m.Token, ...]:
    def optional(column: str, read: Callable[[str], Any]) -> Any:
        return None if column == "-" else read(column)

    rows = (row.split() for row in text.split(";"))
    return tuple(
        m.Token(m.TokenAlias[kind], optional(a, int), optional(t, int), optional(v, bytes.fromhex))
        for kind, a, t, v in rows
    )


def extensions(text: str) -> tuple[m.KeyValue, ...]:
    pairs = ((number(type_), value) for type_, _, value in (p.partition("=") for p in text.split()))
    return tuple((t, bytes.fromhex(value) if t % 2 else number(value)) for t, value in pairs)


def range_(text: str) -> m.StandaloneFetch | m.JoiningFetch:
    kind, _, rest = text.partition(" ")
    if kind == "standalone":
        name, _, places = rest.partition(" from ")
        start, _, end = places.partition(" to ")
        return m.StandaloneFetch(track(name), location(start), location(end))
    joining_id, start = rest.split()
    return m.JoiningFetch(int(joining_id), int(start), kind == "relative")


READERS: dict[str, Callable[[str], Any]] = {
    "versions": lambda text: tuple(map(number, text.split())),
    "path": str.encode,
    "authority": str.encode,
    "implementation": str.encode,
    "uri": str.encode,
    "tokens": tokens,
    "kind": lambda text: m.RequestKind[text],
    "largest": location,
    "end": location,
    "track": track,
    "filter": filter_,
    "order": lambda text: m.GroupOrder[text],
    "options": lambda text: m.NamespaceOptions[text],
    "forward": flag,
    "end_of_track": flag,
    "dynamic_groups": flag,
    "extensions": extensions,
    "reason": str,
    "range": range_,
    "namespace": namespace,
    "prefix": namespace,
    "suffix": namespace,
}


def message(meaning: Meaning) -> m.Message:
    fields: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    for key, text in meaning.items():
        if key in ("message", "encode", "tolerated"):
            continue
        prefix, _, name = key.rpartition(".")
        (properties if prefix else fields)[name] = READERS.get(name, number)(text)
    if properties:
        fields["properties"] = m.TrackProperties(**properties)
    read: m.Message = getattr(m, meaning["message"])(**fields)
    return read


def subgroup_objects(meaning: Meaning) -> list[tuple[int, int, bytes, bytes]]:
    rows = (row.split(":") for row in meaning["objects"].split())
    return [(int(id_), int(s), bytes.fromhex(x), bytes.fromhex(d)) for id_, s, x, d in rows]


def fetch_items(meaning: Meaning) -> list[FetchItem]:
    items: list[FetchItem] = []
    for row in meaning["objects"].split():
        kind, *rest = row.split(":")
        if kind in ("missing", "unknown"):
            items.append(EndOfRange(int(rest[0]), int(rest[1]), kind == "unknown"))
            continue
        subgroup, id_, priority, status, raw, payload = rest
        datagram = subgroup == "datagram"
        items.append(
            Object(
                int(kind),
                None if datagram else int(subgroup),
                int(id_),
                int(priority),
                int(status),
                bytes.fromhex(raw),
                bytes.fromhex(payload),
                datagram,
            )
        )
    return items
