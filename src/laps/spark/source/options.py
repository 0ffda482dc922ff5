"""What a person says to the source by `.option(…)`, read once and checked.

Spark folds the names of options to lower case, so they are known by that here, and shown as the
documentation writes them.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from laps.client.tokens import VARIABLE, read
from laps.client.urls import parse_url
from laps.errors import ConfigError, quote
from laps.names import namespace_of
from laps.spark.source.offsets import Positions, parse_offsets
from laps.token_files import TokenFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from laps.client.tokens import TokenLike
    from laps.types import TrackName

WAIT_S: Final = 10.0
"How long a track that nobody publishes is waited for: a relay that starts needs some of it."

SETTLE_MS: Final = 1000
"How long what is missing in the middle of a track is waited for: streams overtake one another."

ANY: Final = b"*"
"A part of a namespace that stands for any part."

READING: Final = (
    "relay",
    "namespace",
    "track",
    "startingOffsets",
    "endingOffsets",
    "maxObjectsPerTrigger",
    "failOnDataLoss",
    "settle_ms",
    "wait_s",
    "payload_format",
    "payload_schema",
    "insecure",
    "fingerprint",
    "token",
    "tokenFile",
)

T = TypeVar("T")


class PayloadFormat(StrEnum):
    """What payloads are made of."""

    RAW = "raw"
    TEXT = "text"
    JSON = "json"
    ARROW = "arrow"

    @property
    def has_schema(self) -> bool:
        """Whether payloads become columns of a given schema."""
        return self in (PayloadFormat.JSON, PayloadFormat.ARROW)


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose certificate is taken and what relays are shown, as `laps.connect` has it."""

    insecure: bool = False
    fingerprint: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    "Read where it is used, on each machine: by the driver, by executors, by the sink's publisher."

    def shown(self) -> TokenLike | None:
        """The token for one session."""
        return self.token if self.token_file is None else TokenFile(self.token_file)


Starting = Literal["earliest", "latest"] | Positions


@dataclass(frozen=True, slots=True)
class Wanted:
    """The tracks that are read: one, or all whose namespace begins as the pattern does."""

    namespace: tuple[bytes, ...]
    "Parts of `*` stand for any part."
    track: bytes | None

    @property
    def prefix(self) -> tuple[bytes, ...]:
        """The parts ahead of the first that stands for any."""
        return (*self.namespace, ANY)[: (*self.namespace, ANY).index(ANY)]

    @property
    def is_one(self) -> bool:
        """Whether it is one track, whose name is all said."""
        return self.track is not None and ANY not in self.namespace

    def matches(self, track: TrackName) -> bool:
        """Whether a track is one of them."""
        if self.track is not None and (
            track.name != self.track or len(track.namespace) != len(self.namespace)
        ):
            return False
        return len(track.namespace) >= len(self.namespace) and all(
            pattern in (ANY, part)
            for pattern, part in zip(self.namespace, track.namespace, strict=False)
        )

    def __str__(self) -> str:
        namespace = "/".join(part.decode() for part in self.namespace)
        return namespace if self.track is None else f"{namespace} {self.track.decode()}"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """All that was said to the source."""

    relays: tuple[str, ...]
    trust: Trust
    wanted: Wanted
    starting: Starting
    ending: Literal["latest"] | Positions = "latest"
    max_objects: int | None = None
    fail_on_data_loss: bool = True
    settle_s: float = SETTLE_MS / 1000
    wait_s: float = WAIT_S
    payload_format: PayloadFormat = PayloadFormat.RAW
    payload_schema: str | None = None


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Read and check the options of a stream, or of a bounded read."""
    said = {name.lower(): text for name, text in options.items()}
    check_names(said, READING)
    return ReadOptions(
        relays=parse_relays(require(said, "relay", "moqt://127.0.0.1:33435")),
        trust=parse_trust(said),
        wanted=_wanted(said),
        starting=_starting(said, "latest" if streaming else "earliest"),
        ending=_ending(said, streaming),
        max_objects=_max_objects(said),
        fail_on_data_loss=parse_bool("failOnDataLoss", said.get("failondataloss", "true")),
        settle_s=_number("settle_ms", said.get("settle_ms", str(SETTLE_MS))) / 1000,
        wait_s=_number("wait_s", said.get("wait_s", str(WAIT_S))),
        payload_format=parse_payload_format(said),
        payload_schema=_payload_schema(said),
    )


# -- what the sink reads too -----------------------------------------------------------------------


def check_names(said: Iterable[str], known: Iterable[str]) -> None:
    """ConfigError for an option that is not known, with the nearest that is."""
    folded = {name.lower(): name for name in known}
    for name in said:
        if name.lower() not in folded:
            near = get_close_matches(name.lower(), folded, n=1)
            way_out = (
                f"did you mean {folded[near[0]]}?"
                if near
                else f"there are {', '.join(folded.values())}"
            )
            raise ConfigError(f"option {quote(name)} is not known: {way_out}")


def require(said: Mapping[str, str], name: str, example: str) -> str:
    """An option that has to be given."""
    text = said.get(name.lower(), "").strip()
    if not text:
        problem = f'option {name} is missing: say it with .option("{name}", "{example}")'
        raise ConfigError(problem)
    return text


def parse_relays(text: str) -> tuple[str, ...]:
    """URLs with commas between, each of a relay that speaks MoQT."""
    relays = tuple(dict.fromkeys(url.strip() for url in text.split(",") if url.strip()))
    if not relays:
        problem = "names no relay: write it like moqt://127.0.0.1:33435"
        raise ConfigError(f"option relay {quote(text)} {problem}")
    for url in relays:
        if parse_url(url).quicr:
            raise ConfigError(
                f"option relay: {url} speaks QUICR, which has no FETCH to read a range again "
                f"with: use the same relay by moqt://{url.removeprefix('quicr://')}"
            )
    return relays


def parse_trust(said: Mapping[str, str]) -> Trust:
    """Whom to trust and what to show, by `insecure`, `fingerprint`, `token` and `tokenFile`."""
    fingerprint = said.get("fingerprint", "").strip() or None
    insecure = parse_bool("insecure", said.get("insecure", "false"))
    token = said.get("token", "").strip() or None
    file = said.get("tokenfile", "").strip() or None
    if token is not None and file is not None:
        raise ConfigError("options token and tokenFile are one too many: give one of them")
    if token is None and file is None:
        # The environment of the driver: executors, on other machines, have one of their own.
        token = os.environ.get(VARIABLE, "").strip() or None
    if token is not None:
        read(token)  # what cannot be a token is said at once, without it
    if file is not None:
        file = str(Path(file).absolute())  # executors may be elsewhere
    return Trust(insecure, fingerprint, token, file)


def parse_bool(name: str, text: str) -> bool:
    """`true` or `false`."""
    return _one_of(name, text.strip().lower(), {"true": True, "false": False})


def parse_payload_format(said: Mapping[str, str]) -> PayloadFormat:
    """What payloads are made of, by the option `payload_format`."""
    text = said.get("payload_format", PayloadFormat.RAW).strip().lower()
    return _one_of("payload_format", text, {form.value: form for form in PayloadFormat})


def _one_of(name: str, text: str, choices: Mapping[str, T]) -> T:
    if text not in choices:
        raise ConfigError(f"option {name} {quote(text)}: it is one of {', '.join(choices)}")
    return choices[text]


# -- the source's own ------------------------------------------------------------------------------


def _wanted(said: Mapping[str, str]) -> Wanted:
    if "namespace" not in said:
        require(said, "namespace", "plant/sensors")
    namespace = namespace_of(said["namespace"].strip("/"), prefix=True)
    track = said.get("track")
    if track == "":
        raise ConfigError(
            'option track is empty: leave it out to read every track below "namespace"'
        )
    if track is not None and not namespace:
        raise ConfigError(f"option track {quote(track)} needs its namespace: give it like plant/7")
    return Wanted(namespace, None if track is None else track.encode())


def _starting(said: Mapping[str, str], default: Literal["earliest", "latest"]) -> Starting:
    text = said.get("startingoffsets", default).strip()
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    return parse_offsets("startingOffsets", text, "earliest, latest")


def _ending(said: Mapping[str, str], streaming: bool) -> Literal["latest"] | Positions:
    if "endingoffsets" not in said:
        return "latest"
    if streaming:
        problem = "is for spark.read: a stream goes on; to stop at what there is, trigger it with"
        raise ConfigError(f"option endingOffsets {problem} availableNow=True")
    text = said["endingoffsets"].strip()
    return "latest" if text == "latest" else parse_offsets("endingOffsets", text, "latest")


def _max_objects(said: Mapping[str, str]) -> int | None:
    text = said.get("maxobjectspertrigger")
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        problem = "is not a number from 1: leave it out for no limit"
        raise ConfigError(f"option maxObjectsPerTrigger {quote(text)} {problem}")
    return number


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ConfigError(f"option {name} {quote(text)} is not a number from 0")
    return number


def _payload_schema(said: Mapping[str, str]) -> str | None:
    form = parse_payload_format(said)
    text = said.get("payload_schema", "").strip() or None
    if form.has_schema and text is None:
        raise ConfigError(
            f"payload_format {form} needs to know its columns: "
            '.option("payload_schema", "celsius double, at timestamp")'
        )
    if text is not None and not form.has_schema:
        raise ConfigError(
            f"option payload_schema is for payload_format json or arrow, not {form}: "
            "leave it out, or say which of them the payloads are"
        )
    return text
