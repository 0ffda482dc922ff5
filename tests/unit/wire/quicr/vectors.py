"""The golden bytes of tests/vectors/quicr, and what their README says they mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laps.types import Location
from laps.wire.quicr import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

VECTORS = Path(__file__).parents[3] / "vectors" / "quicr"

Meaning = dict[str, str]


@dataclass
class Case:
    name: str
    data: bytes
    meaning: Meaning

    @property
    def canonical(self) -> bool:
        return self.meaning.get("encode") != "no"


def read_cases(path: Path) -> list[Case]:
    cases = []
    for block in path.read_text("utf-8").split("\n== ")[1:]:
        name, *lines = (line.partition("#")[0].strip() for line in block.splitlines())
        means = lines.index("means")
        pairs = (line.partition("=") for line in lines[means + 1 :] if line)
        meaning = {key.strip(): value.strip() for key, _, value in pairs}
        cases.append(Case(f"{path.stem}: {name}", bytes.fromhex("".join(lines[:means])), meaning))
    return cases


CASES = [case for path in sorted(VECTORS.glob("*.txt")) for case in read_cases(path)]


def with_key(key: str) -> list[Case]:
    cases = [case for case in CASES if key in case.meaning]
    assert cases
    return cases


# --- values ----------------------------------------------------------------------------------


def number(text: str) -> int:
    if not text.startswith("2^"):
        return int(text)
    power, _, less = text[2:].partition("-")
    return (1 << int(power)) - int(less or 0)


def flag(text: str) -> bool:
    return {"yes": True, "no": False}[text]


def location(text: str) -> Location:
    group, _, object_id = text.partition("/")
    return Location(int(group), int(object_id))


READERS: dict[str, Callable[[str], Any]] = {
    "name": bytes.fromhex,
    "intent": lambda text: m.Intent[text],
    "response": lambda text: m.Response[text],
    "reason": str,
    "address": str,
    "datagram_capable": flag,
    "last": flag,
    "data": bytes.fromhex,
    "start": location,
    "final": location,
    "token": bytes.fromhex,
    "holds": lambda text: m.Holds[text],
}


def message(meaning: Meaning) -> m.Message:
    fields = {
        key: READERS.get(key, number)(text)
        for key, text in meaning.items()
        if key not in ("message", "encode")
    }
    said: m.Message = getattr(m, meaning["message"])(**fields)
    return said


def fragment(meaning: Meaning) -> m.Fragment:
    return m.Fragment(
        number(meaning["group"]),
        number(meaning.get("object_id", "0")),
        number(meaning.get("offset", "0")),
        bytes.fromhex(meaning.get("data", "")),
        flag(meaning.get("last", "no")),
    )


def terms(meaning: Meaning) -> m.Terms:
    return m.Terms(
        number(meaning.get("best_before_ms", "0")),
        number(meaning.get("priority", "4")),
        flag(meaning.get("discardable", "no")),
        number(meaning.get("objects_before", "0")),
    )
