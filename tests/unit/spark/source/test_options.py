"""The options of the source: what is understood, and what is said of the rest."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from laps.errors import ConfigError
from laps.spark.source.offsets import Position
from laps.spark.source.options import (
    PayloadFormat,
    ReadOptions,
    Trust,
    Wanted,
    parse_relays,
    read_options,
)
from laps.types import Location, TrackName

BASE = {"relay": "moqt://127.0.0.1:33435", "namespace": "plant/sensors"}


def said(*, streaming: bool = True, **options: str) -> ReadOptions:
    return read_options(BASE | options, streaming=streaming)


def refusal(*, streaming: bool = True, **options: str) -> str:
    with pytest.raises(ConfigError) as caught:
        said(streaming=streaming, **options)
    return str(caught.value)


def test_what_is_not_said_has_its_default() -> None:
    options = said()
    assert options == ReadOptions(
        relays=("moqt://127.0.0.1:33435",),
        trust=Trust(),
        wanted=Wanted((b"plant", b"sensors"), None),
        starting="latest",
    )
    assert (options.settle_s, options.wait_s) == (1.0, 10.0)
    assert said(streaming=False).starting == "earliest"
    assert pickle.loads(pickle.dumps(options)) == options


def test_everything_can_be_said_in_any_case() -> None:
    options = read_options(
        {
            "RELAY": " moqt://a:1 , https://b:2/moq,moqt://a:1",
            "Namespace": "/plant/7/",
            "track": "celsius",
            "startingoffsets": '{"plant/7 celsius": [12, 0]}',
            "EndingOffsets": '{"plant/7 celsius": [13, 0]}',
            "maxobjectspertrigger": "10",
            "failOnDataLoss": "FALSE",
            "settle_ms": "250",
            "wait_s": "0.5",
            "payload_format": "JSON",
            "payload_schema": "celsius double",
            "insecure": "true",
            "fingerprint": "aa",
        },
        streaming=False,
    )
    track = TrackName((b"plant", b"7"), b"celsius")
    assert options == ReadOptions(
        relays=("moqt://a:1", "https://b:2/moq"),
        trust=Trust(insecure=True, fingerprint="aa"),
        wanted=Wanted((b"plant", b"7"), b"celsius"),
        starting={track: Position(Location(12, 0))},
        ending={track: Position(Location(13, 0))},
        max_objects=10,
        fail_on_data_loss=False,
        settle_s=0.25,
        wait_s=0.5,
        payload_format=PayloadFormat.JSON,
        payload_schema="celsius double",
    )


def test_an_unknown_option_is_named_with_the_nearest() -> None:
    assert refusal(startingOfsets="earliest") == (
        'option "startingofsets" is not known: did you mean startingOffsets?'
    )
    assert "there are relay, namespace, track," in refusal(colour="blue")


@pytest.mark.parametrize("name", ["relay", "namespace"])
def test_what_has_to_be_said_is_asked_for(name: str) -> None:
    options = {key: value for key, value in BASE.items() if key != name}
    with pytest.raises(ConfigError, match=f"option {name} is missing: say it with"):
        read_options(options, streaming=True)


def test_quicr_is_refused_with_the_reason_and_the_way_out() -> None:
    problem = refusal(relay="moqt://a:1,quicr://b:33435")
    assert "quicr://b:33435 speaks QUICR, which has no FETCH" in problem
    assert "moqt://b:33435" in problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (",", "names no relay"),
        ("127.0.0.1:33435", "scheme"),
        ("moqt://", "names no host"),
        ("http://a", "is not known"),
    ],
)
def test_relays_that_are_none(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_relays(text)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"maxObjectsPerTrigger": "0"}, 'maxObjectsPerTrigger "0" is not a number from 1'),
        ({"maxObjectsPerTrigger": "many"}, "is not a number from 1"),
        ({"settle_ms": "-1"}, 'settle_ms "-1" is not a number from 0'),
        ({"wait_s": "inf"}, "is not a number from 0"),
        ({"failOnDataLoss": "maybe"}, 'failOnDataLoss "maybe": it is one of true, false'),
        ({"insecure": "1"}, "insecure"),
        ({"payload_format": "csv"}, 'payload_format "csv": it is one of raw, text, json, arrow'),
        ({"payload_format": "json"}, "payload_format json needs to know its columns"),
        ({"payload_format": "arrow"}, "payload_format arrow needs to know its columns"),
        ({"payload_schema": "a int"}, "is for payload_format json or arrow, not raw"),
        ({"payload_format": "text", "payload_schema": "a int"}, "not text"),
        ({"startingOffsets": "first"}, "is neither earliest, latest nor JSON"),
        ({"endingOffsets": "latest"}, "endingOffsets is for spark.read"),
        ({"track": ""}, "option track is empty"),
        ({"namespace": "", "track": "t"}, "needs its namespace"),
        ({"namespace": "a//b"}, "has an empty part"),
    ],
)
def test_values_that_are_none(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_options(BASE | options, streaming=True)
    assert problem in str(caught.value)


def track(namespace: str, name: str) -> TrackName:
    return TrackName(tuple(part.encode() for part in namespace.split("/")), name.encode())


@pytest.mark.parametrize(
    ("namespace", "name", "prefix", "one", "matching", "others"),
    [
        ("plant/7", "c", "plant/7", True, ["plant/7 c"], ["plant/7 d", "plant/7/x c", "plant c"]),
        (
            "plant",
            None,
            "plant",
            False,
            ["plant c", "plant/7 c", "plant/7/8 d"],
            ["plants c", "other/plant c"],
        ),
        (
            "laps/*/x",
            "links",
            "laps",
            False,
            ["laps/1:1/x links", "laps/*/x links"],
            ["laps/1:1/x node", "laps/1:1/y links", "laps/1/x/y links", "laps/1 links"],
        ),
        ("laps/*", None, "laps", False, ["laps/1 a", "laps/2/3 b"], ["laps a"]),
        ("", None, "", False, ["a b", "c/d e"], []),
    ],
)
def test_which_tracks_are_wanted(
    namespace: str, name: str | None, prefix: str, one: bool, matching: list[str], others: list[str]
) -> None:
    options = {"relay": BASE["relay"], "namespace": namespace}
    wanted = read_options(options | ({"track": name} if name else {}), streaming=True).wanted
    assert wanted.is_one is one
    assert b"/".join(wanted.prefix).decode() == prefix
    assert all(wanted.matches(track(*text.split())) for text in matching)
    assert not any(wanted.matches(track(*text.split())) for text in others)


def test_token_is_read_from_an_option_a_file_or_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LAPS_TOKEN", raising=False)
    assert said().trust.shown() is None
    assert said(token=" a.b.c\n").trust.shown() == "a.b.c"
    monkeypatch.setenv("LAPS_TOKEN", "d.e.f")
    assert said().trust.shown() == "d.e.f"
    by_file = said(tokenFile="here/token").trust
    assert by_file.token is None
    assert by_file.token_file == str(Path("here/token").absolute())


def test_token_is_in_no_repr_and_in_no_refusal() -> None:
    assert "a.b.c" not in repr(said(token="a.b.c"))
    for options in ({"token": "a.b.c", "tokenFile": "x"}, {"token": "swörd"}, {"tokn": "a.b.c"}):
        with pytest.raises(ConfigError) as refused:
            read_options(BASE | options, streaming=True)
        assert not any(text in str(refused.value) for text in ("a.b.c", "swörd"))
