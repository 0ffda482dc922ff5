"""Rows become objects: of which track, in which group, and what is in them."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.errors import InvalidText
from laps.names import track_text
from laps.spark.sink.encoding import encode_json
from laps.spark.sink.objects import OBJECTS, BadRow, Partition, extension_pairs
from laps.spark.sink.options import Columns, SinkOptions
from laps.spark.source.options import PayloadFormat

PAYLOAD = Columns("payload", (), None, None, None, None, ())


def columns(**changes: Any) -> Columns:
    names = ("payload", "published", "namespace", "track", "priority", "extensions", "group_by")
    return Columns(**({name: getattr(PAYLOAD, name) for name in names} | changes))


def options(**changes: Any) -> SinkOptions:
    return SinkOptions((), **({"namespace": "plant", "track": "celsius"} | changes))


def made(
    found: Columns, *batches: pa.RecordBatch, settings: SinkOptions | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """The objects, each with its track."""
    partition = Partition(settings or options(), found)
    items: list[dict[str, Any]] = []
    for batch in batches:
        for objects in partition.objects(batch):
            assert objects.schema == OBJECTS
            items += objects.to_pylist()
    return [(track_text(partition.tracks[item.pop("track")]), item) for item in items]


def test_each_row_is_an_object() -> None:
    batch = pa.record_batch({"payload": [b"a", b"", b"c"]})
    plain = {"begins": False, "priority": None, "extensions": None}
    assert made(PAYLOAD, batch) == [
        ("plant celsius", {**plain, "payload": payload}) for payload in (b"a", b"", b"c")
    ]


def test_text_is_published_as_utf_8() -> None:
    batch = pa.record_batch({"payload": ["é", "ab"]})
    assert [item["payload"] for _, item in made(PAYLOAD, batch)] == ["é".encode(), b"ab"]


def test_nothing_comes_of_no_rows() -> None:
    partition = Partition(options(), PAYLOAD)
    assert not list(partition.objects(pa.record_batch({"payload": pa.array([], pa.binary())})))
    assert not partition.tracks


def test_a_column_says_which_track_row_by_row() -> None:
    batch = pa.record_batch(
        {
            "payload": [b"1", b"2", b"3", b"4", b"5"],
            "namespace": pa.array([["a", "b"], None, ["a", "b"], ["c"], None]),
            "track": ["x", "y", None, "x", None],
        }
    )
    found = columns(namespace="namespace", track="track")
    tracks = [(track, item["payload"]) for track, item in made(found, batch)]
    assert sorted(tracks) == [
        ("a/b celsius", b"3"),
        ("a/b x", b"1"),
        ("c x", b"4"),
        ("plant celsius", b"5"),
        ("plant y", b"2"),
    ]


def test_rows_of_a_track_keep_their_order() -> None:
    rows = [("x", n) if n % 3 else ("y", n) for n in range(20)]
    batch = pa.record_batch(
        {"payload": [b"%d" % n for _, n in rows], "track": [track for track, _ in rows]}
    )
    items = made(columns(track="track"), batch.slice(0, 7), batch.slice(7))
    for track in ("x", "y"):
        got = [int(item["payload"]) for name, item in items if name == f"plant {track}"]
        assert got == [n for name, n in rows if name == track]


@given(
    rows=st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 2)), min_size=1, max_size=30),
    cuts=st.lists(st.integers(1, 29), max_size=4),
)
def test_a_group_begins_where_the_key_of_its_track_changes(
    rows: list[tuple[str, int]], cuts: list[int]
) -> None:
    batch = pa.record_batch(
        {
            "payload": [b"%d" % n for n in range(len(rows))],
            "track": [track for track, _ in rows],
            "window": pa.array([{"start": key, "end": key + 1} for _, key in rows]),
        }
    )
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    parts = [batch.slice(a, b - a) for a, b in pairwise(edges)]
    items = made(columns(track="track", group_by=("window",)), *parts)
    begins = {int(item["payload"]): item["begins"] for _, item in items}
    last: dict[str, int] = {}
    for n, (track, key) in enumerate(rows):
        assert begins[n] is (last.get(track) != key)
        last[track] = key


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([1, 1, None, None, 2]),
        pa.array([[1], [1], None, None, [1, 2]]),
        pa.array([{"a": 1}, {"a": 1}, {"a": None}, {"a": None}, None]),
        pa.array([True, True, None, None, False]),
        pa.array([Decimal("1.5"), Decimal("1.5"), None, None, Decimal("2.5")]),
        pa.array(
            [[("a", 1)], [("a", 1)], None, None, [("b", 1)]], pa.map_(pa.string(), pa.int64())
        ),
    ],
    ids=lambda keys: str(keys.type),
)
def test_a_key_may_be_of_any_type(keys: pa.Array) -> None:
    batch = pa.record_batch({"payload": [b"x"] * 5, "key": keys})
    items = made(columns(group_by=("key",)), batch.slice(0, 2), batch.slice(2))
    assert [item["begins"] for _, item in items] == [True, False, True, False, True]


def test_priority_and_extensions_go_with_a_row() -> None:
    kind = pa.map_(pa.int32(), pa.binary())
    batch = pa.record_batch(
        {
            "payload": [b"a", b"b"],
            "priority": pa.array([7, None], pa.int64()),
            "extensions": pa.array([[(3, b"odd"), (2, b"\x01\x00")], None], kind),
        }
    )
    (_, first), (_, second) = made(columns(priority="priority", extensions="extensions"), batch)
    assert (first["priority"], first["extensions"]) == (7, [(3, b"odd"), (2, b"\x01\x00")])
    assert (second["priority"], second["extensions"]) == (None, None)
    assert extension_pairs(first["extensions"]) == ((2, 256), (3, b"odd"))


def extensions(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.map_(pa.int64(), pa.binary()))


@pytest.mark.parametrize(
    ("column", "values", "problem"),
    [
        ("payload", pa.array([b"a", None]), "column payload is null in row 1 of"),
        ("payload", pa.array([b"a", bytes(101)]), "row 1 .* has 101 bytes: .* allows 100"),
        ("track", pa.array(["a", None]), "column track is null in row 1 of .*option"),
        ("namespace", pa.array(["a", None]), "column namespace is null in row 1"),
        ("namespace", pa.array([["a"], ["b", None]]), "column namespace is null in row 1"),
        ("priority", pa.array([0, 256]), "priority is 256 in row 1 .* to 255"),
        ("priority", pa.array([0, -1]), "priority is -1 in row 1"),
        ("extensions", extensions([[], [(2, bytes(9))]]), "type 2 in row 1 .* 62 bits"),
        ("extensions", extensions([[], [(4, b"\xff" * 8)]]), "type 4 in row 1 .* 62 bits"),
        ("extensions", extensions([[], [(-1, b"")]]), "type -1 in row 1 .* from 0"),
        ("extensions", extensions([[], [(3, None)]]), "type 3 in row 1 .* null"),
        ("extensions", extensions([[], [(3, bytes(65_536))]]), "type 3 in row 1 .* 65536 bytes"),
    ],
)
def test_a_row_that_cannot_be_published_is_named(
    column: str, values: pa.Array, problem: str
) -> None:
    table = {"payload": pa.array([b"a", b"b"]), column: values}
    found = PAYLOAD if column == "payload" else columns(**{column: column})
    # What a column says is not said by an option, too.
    settings = options(
        max_object_bytes=100, **({column: None} if column in ("namespace", "track") else {})
    )
    with pytest.raises(BadRow, match=problem):
        made(found, pa.record_batch(table), settings=settings)


def test_rows_are_counted_over_the_whole_partition() -> None:
    batches = [pa.record_batch({"payload": [b"a"] * 5}), pa.record_batch({"payload": [b"a", None]})]
    with pytest.raises(BadRow, match="row 6 of the partition"):
        made(PAYLOAD, *batches)


def test_a_name_that_is_none_is_refused() -> None:
    batch = pa.record_batch({"payload": [b"a"], "namespace": ["a//b"]})
    with pytest.raises(InvalidText, match="has an empty part"):
        made(columns(namespace="namespace"), batch)


# -- JSON ------------------------------------------------------------------------------------------


def test_a_row_becomes_a_json_object() -> None:
    zone = pa.timestamp("us", "Europe/Paris")
    at = dt.datetime(2026, 3, 1, 12, 0, 0, 250_000, dt.UTC)
    batch = pa.record_batch(
        {
            "n": pa.array([1, None]),
            "window": pa.array(
                [{"start": at, "end": None}, None], pa.struct({"start": zone, "end": zone})
            ),
            "price": pa.array([Decimal("1.50"), None]),
            "raw": pa.array([b"\x00\x01", None]),
            "on": pa.array([dt.date(2026, 3, 1), None]),
            "by": pa.array(
                [[(7, [{"m": [("k", at)]}])], None],
                pa.map_(pa.int64(), pa.list_(pa.struct({"m": pa.map_(pa.string(), zone)}))),
            ),
            "nan": pa.array([float("nan"), 0.5]),
        }
    )
    first, second = map(json.loads, encode_json(batch))
    time = "2026-03-01T12:00:00.250000Z"
    assert first == {
        "n": 1,
        "window": {"start": time, "end": None},
        "price": 1.5,
        "raw": "AAE=",
        "on": "2026-03-01",
        "by": {"7": [{"m": {"k": time}}]},
        "nan": None,
    }
    assert second == dict.fromkeys(first) | {"nan": 0.5}


def test_json_is_made_of_the_columns_that_are_published() -> None:
    batch = pa.record_batch({"track": ["x"], "hour": [3], "celsius": [21.5]})
    found = columns(payload=None, published=("hour", "celsius"), track="track")
    settings = options(payload_format=PayloadFormat.JSON)
    assert [item["payload"] for _, item in made(found, batch, settings=settings)] == [
        b'{"hour":3,"celsius":21.5}'
    ]


# -- Arrow -----------------------------------------------------------------------------------------


def rows_of(payload: bytes) -> list[dict[str, Any]]:
    with pa.ipc.open_stream(payload) as reader:
        rows: list[dict[str, Any]] = reader.read_all().to_pylist()
        return rows


def arrow(**changes: Any) -> SinkOptions:
    return options(payload_format=PayloadFormat.ARROW, **changes)


def test_rows_that_go_to_the_same_place_are_one_arrow_object() -> None:
    batch = pa.record_batch(
        {
            "track": ["x", "y", "x", "x", "x", "x"],
            "hour": [1, 1, 1, 1, 2, 2],
            "priority": pa.array([1, 1, 1, 2, 2, 2]),
            "n": [0, 1, 2, 3, 4, 5],
        }
    )
    found = columns(
        payload=None, published=("n",), track="track", priority="priority", group_by=("hour",)
    )
    items = [
        (track, item["begins"], item["priority"], [row["n"] for row in rows_of(item["payload"])])
        for track, item in made(found, batch, settings=arrow())
    ]
    assert items == [
        ("plant x", True, 1, [0, 2]),
        ("plant x", False, 2, [3]),
        ("plant x", True, 2, [4, 5]),
        ("plant y", True, 1, [1]),
    ]


def test_an_arrow_object_has_a_bound_in_rows_and_in_bytes() -> None:
    found = columns(payload=None, published=("n",))
    batch = pa.record_batch({"n": list(range(10))})
    sizes = [
        len(rows_of(item["payload"]))
        for _, item in made(found, batch, settings=arrow(arrow_rows=4))
    ]
    assert sizes == [4, 4, 2]

    texts = pa.record_batch({"n": ["x" * 1000 for _ in range(8)]})
    items = made(found, texts, settings=arrow(max_object_bytes=3000))
    assert all(len(item["payload"]) <= 3000 for _, item in items)
    assert [row for _, item in items for row in rows_of(item["payload"])] == texts.to_pylist()
    with pytest.raises(BadRow, match=r"row 0 .* allows 900"):
        made(found, texts, settings=arrow(max_object_bytes=900))


def test_arrow_objects_have_their_times_in_utc() -> None:
    at = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    batch = pa.record_batch({"at": pa.array([at], pa.timestamp("us", "Asia/Tokyo"))})
    found = columns(payload=None, published=("at",))
    ((_, item),) = made(found, batch, settings=arrow())
    with pa.ipc.open_stream(item["payload"]) as reader:
        assert reader.schema.field("at").type == pa.timestamp("us", "UTC")
        assert reader.read_all().to_pylist() == [{"at": at}]


def test_different_extensions_are_different_arrow_objects() -> None:
    kind = pa.map_(pa.int64(), pa.binary())
    values = pa.array([[(3, b"a")], [(3, b"a")], [(3, b"b")], None], kind)
    batch = pa.record_batch({"n": [0, 1, 2, 3], "extensions": values})
    found = columns(payload=None, published=("n",), extensions="extensions")
    items = made(found, batch, settings=arrow())
    assert [item["extensions"] for _, item in items] == [[(3, b"a")], [(3, b"b")], None]
