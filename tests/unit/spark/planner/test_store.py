"""Plans on disk: read again as they were, explained from their folder alone, drawn, signed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from laps.client.plans import open_plan, sign_plan
from laps.errors import ConfigError
from laps.policy import load_policy, policy_from_mapping
from laps.spark.planner import store
from laps.spark.planner.demand import demand_of
from laps.spark.planner.document import document_of
from laps.spark.planner.explain import explain
from laps.spark.planner.layout import signed, unsigned
from laps.spark.planner.network import network
from laps.spark.planner.picture import draw, positions
from laps.spark.planner.plan import Plan, make_plan
from laps.spark.planner.problem import pose
from laps.spark.planner.sources import problem_of
from laps.spark.planner.topology import load_topology, topology_from_mapping
from laps.steering import plan_of
from laps.types import TrackKey, parse_node_id

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = Path(__file__).parents[4] / "examples" / "plan"


@pytest.fixture(scope="module")
def example() -> Plan:
    topology = load_topology(EXAMPLES / "topology.toml")
    policy = load_policy(EXAMPLES / "policy.toml")
    tracks = demand_of(topology, policy)
    return make_plan(pose(network(topology.nodes, topology.links), policy, tracks))


@pytest.fixture
def folder(example: Plan, tmp_path: Path) -> Path:
    store.write_plan(tmp_path / "plan", example)
    return tmp_path / "plan"


# -- tables ----------------------------------------------------------------------------------------


def test_the_tables_have_the_columns_of_the_page(folder: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "plan.md").read_text()
    rows = dict(
        line.strip("|").split("|")[:2]
        for line in page[page.index("## Tables") :].splitlines()
        if line.startswith("| `")
    )
    for words, columns in rows.items():
        name = words.split("`")[1]
        if name.endswith(".json"):
            assert (folder / name).exists()
            continue
        path = next((folder / name).glob("*.parquet")) if name.endswith("/") else folder / name
        found = pq.read_schema(path)
        outside = columns
        while "(" in outside:
            outside = outside[: outside.index("(")] + outside[outside.index(")") + 1 :]
        assert found.names == [column.split()[0] for column in outside.split(", ")], name


def test_a_plan_is_in_its_folder_with_the_reason_of_each_assignment(
    example: Plan, folder: Path
) -> None:
    rows = pq.read_table(folder / "plan").to_pylist()
    assert len(rows) == len(example.assignments) == 11
    (audio,) = [row for row in rows if row["name"] == "audio" and row["region"] == "eu"]
    assert audio["via"] == "3:2"
    assert audio["class"] == "bronze"
    assert audio["reason"].startswith("via 3:1 comes first, but via 3:1 would have 52 of 40 Mbit/s")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary == json.loads(json.dumps(example.to_mapping()))


def test_a_folder_of_a_plan_can_be_planned_from_again(example: Plan, folder: Path) -> None:
    policy = store.read_policy(folder)
    assert policy == example.problem.policy
    # A class that came with a publisher is not in the tables: the example's is made a rule of.
    mapping = policy.to_mapping()
    mapping["rule"].append({"tracks": "chat/*", "class": "bronze"})
    again = make_plan(
        problem_of(folder, policy_from_mapping(mapping, "policy.json"), "policy.json", None)
    )
    assert again.planned.to_mapping() == example.planned.to_mapping()
    assert again.cost == pytest.approx(example.cost)


def test_tables_and_a_topology_go_together_by_node_id(folder: Path) -> None:
    policy = store.read_policy(folder)
    wider = (EXAMPLES / "topology.toml").read_text().replace("capacity_mbit = 40", "")
    path = folder / "wider.toml"
    # In another order, so that numbers differ.
    path.write_text('[[nodes]]\nid = "9:9"\n' + wider)
    plan = make_plan(problem_of(folder, policy, "policy.toml", load_topology(path)))
    eu = {one.track: one.via for one in plan.assignments if one.region == "eu"}
    label = {plan.problem.tracks[track].label: via for track, via in eu.items()}
    assert label["sports/final/audio"] == "3:1"
    small = topology_from_mapping({"nodes": [{"id": "1:1"}]}, "small.toml")
    with pytest.raises(ConfigError, match=r"small.toml: node \S+ is missing, which .* has tracks"):
        problem_of(folder, policy, "policy.toml", small)


def test_what_was_there_before_is_gone(example: Plan, folder: Path) -> None:
    for table in ("plan", "infeasible", "tracks", "subscriptions"):
        stale = folder / table / "bucket-00007.parquet"
        stale.write_bytes((folder / table / "bucket-00000.parquet").read_bytes())
    store.write_plan(folder, example)
    assert len(pq.read_table(folder / "plan")) == 11
    assert [path.name for path in (folder / "infeasible").iterdir()] == ["bucket-00000.parquet"]
    assert store.count_subscriptions(folder) == 23


def test_hashes_are_signed_in_tables_and_not_elsewhere() -> None:
    for number in (0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
        assert -(1 << 63) <= signed(number) < 1 << 63
        assert unsigned(signed(number)) == number


def replaced(folder: Path, table: str, **columns: Sequence[object]) -> None:
    path = folder / table
    path = path / "bucket-00000.parquet" if path.is_dir() else folder / f"{table}.parquet"
    rows = pq.read_table(path)
    for name, values in columns.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, name, pa.array(values, rows.schema.field(name).type))
    pq.write_table(rows, path)


def test_tables_that_do_not_go_together_are_named(folder: Path) -> None:
    policy = store.read_policy(folder)

    def refusal() -> str:
        with pytest.raises(ConfigError) as caught:
            problem_of(folder, policy, "policy.toml", None)
        return str(caught.value)

    whole = {path: path.read_bytes() for path in folder.rglob("*.parquet")}

    def restore() -> None:
        for path, data in whole.items():
            path.write_bytes(data)

    replaced(folder, "links", a=[99] + [0] * 19)
    assert refusal() == f"{folder}/links.parquet: link 99 to 1: there are nodes 0 to 14"
    restore()
    replaced(folder, "tracks", origin=[0] * 5)
    assert "is at 1:1, a via: clients are at edges" in refusal()
    restore()
    replaced(folder, "subscriptions", relay=[77] * 23)
    assert "is at node 77: there are 0 to 14" in refusal()
    restore()
    (folder / "names.parquet").unlink()
    replaced(folder, "tracks", profile=[100] * 5)
    assert "has profile 100: the policy has profiles 0 to" in refusal()
    restore()
    replaced(folder, "tracks", track=list(range(5)))
    assert refusal().endswith(f"is not in {folder}/tracks")
    restore()
    pq.write_table(
        pq.read_table(folder / "links.parquet").drop(["srtt_us"]), folder / "links.parquet"
    )
    assert "links.parquet: column srtt_us is missing; there are a, b, " in refusal()
    (folder / "links.parquet").unlink()
    assert f"{folder}: the table links cannot be read: " in refusal()


def test_a_folder_without_tables_is_told_what_should_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there are none: give a folder"):
        problem_of(tmp_path, policy_from_mapping({}, ""), "", None)


# -- explaining ------------------------------------------------------------------------------------


def test_a_track_is_explained_option_by_option(folder: Path) -> None:
    found = explain(folder, "sports/final/audio")
    assert (found.origin.id, found.profile.service) == ("1:2", "bronze")
    europe = next(region for region in found.regions if region.name == "eu")
    assert europe.relays == ("3:3", "3:4", "3:5")
    said = {verdict.label: (verdict.constraint, verdict.why) for verdict in europe.verdicts}
    assert said == {
        "3:1": ("capacity", "via 3:1 would have 52 of 40 Mbit/s"),
        "3:2": ("", "taken"),
        "1:1": ("", "costs 3.1 against 1.1"),
        "direct": ("fan-out", "3 copies from the o-relay, 2 allowed"),
    }
    taken = europe.taken
    assert taken is not None
    assert (taken.long_haul_copies, taken.origin_egress, taken.cost) == (1, 1, 1.1)
    # 1:2 to 1:1 to 2:1 to 3:2 to 3:5, and 9 % more than the direct path to 3:3.
    assert taken.delay_us == 2 * (3 + 32 + 41 + 5) * 1000
    mapping = found.to_mapping()
    assert json.loads(json.dumps(mapping)) == mapping


def test_a_track_is_found_by_its_hash_too(folder: Path) -> None:
    by_name = explain(folder, "gov/briefing/video")
    by_hash = explain(folder, f"{by_name.track.hash:016X}")
    assert by_hash.to_mapping() == by_name.to_mapping()
    assert by_name.profile.avoid == ("ca",)
    # Without a table of names a name still leads to its hash.
    names = (folder / "names.parquet").read_bytes()
    (folder / "names.parquet").unlink()
    assert explain(folder, "gov/briefing/video").track.hash == by_name.track.hash
    # One with a slash in the last part is known by that table alone.
    (folder / "names.parquet").write_bytes(names)
    replaced(folder, "names", namespace=["a"] * 5, name=["b/c", *"defg"])
    first = pq.read_table(folder / "names.parquet")["track"][0].as_py()
    assert explain(folder, "a/b/c").track.hash == unsigned(first)


def test_a_track_is_found_in_the_one_bucket_that_has_it(folder: Path) -> None:
    before = explain(folder, "sports/final/video").to_mapping()
    for table in ("tracks", "subscriptions", "plan"):
        rows = pq.read_table(folder / table)
        numbers = [unsigned(track) % 4 for track in rows["track"].to_pylist()]
        for bucket in range(4):
            keep = pa.array([number == bucket for number in numbers])
            pq.write_table(rows.filter(keep), folder / table / f"bucket-{bucket:05d}.parquet")
    assert explain(folder, "sports/final/video").to_mapping() == before


def test_why_a_track_is_infeasible_is_explained_from_the_folder_too(tmp_path: Path) -> None:
    topology = load_topology(EXAMPLES / "topology.toml")
    strict = policy_from_mapping(
        {"rule": [{"tracks": "clinic/*", "inside": ["us-east", "us-west"]}]}, "policy.toml"
    )
    plan = make_plan(
        pose(network(topology.nodes, topology.links), strict, demand_of(topology, strict))
    )
    store.write_plan(tmp_path, plan)
    (one,) = plan.infeasible
    (row,) = pq.read_table(tmp_path / "infeasible").to_pylist()
    assert (row["name"], row["region"], row["constraint"]) == ("vitals", "eu", "region rules")
    (region,) = explain(tmp_path, "clinic/ward-7/vitals").regions
    assert region.taken is None
    assert region.infeasible == one.reason == row["reason"]
    assert "3:3 is in eu, outside of us-east, us-west" in region.infeasible


def test_a_track_that_the_plan_does_not_have_is_named(folder: Path, tmp_path: Path) -> None:
    def refusal(name: str, place: Path = folder) -> str:
        with pytest.raises(ConfigError) as caught:
            explain(place, name)
        return str(caught.value)

    assert 'no track "sports/final/vide" with subscribers, did you mean sports/final/video?' in (
        refusal("sports/final/vide")
    )
    assert refusal("sports") == (
        '"sports" is no track: write it as namespace/name, or the 16 digits of its hash'
    )
    assert "policy.json: No such file or directory: give the folder that" in refusal(
        "a/b", tmp_path
    )


# -- pictures --------------------------------------------------------------------------------------


def test_a_picture_is_drawn_the_same_each_time(example: Plan, tmp_path: Path) -> None:
    draw(example, tmp_path / "one.svg")
    draw(example, tmp_path / "sub" / "two.svg")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "sub" / "two.svg").read_bytes()
    assert (tmp_path / "one.svg").read_text().startswith("<?xml")
    draw(example, tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="a picture is a PNG or an SVG"):
        draw(example, tmp_path / "one.gif")


def test_nodes_stand_on_the_map_or_in_a_circle_of_regions(example: Plan) -> None:
    places = positions(example.problem.network)
    assert places[0].tolist() == [-122.3, 47.6]
    nowhere = topology_from_mapping(
        {"nodes": [{"id": f"1:{n}", "region": "ab"[n % 2]} for n in range(6)]}, ""
    )
    circle = positions(network(nowhere.nodes, ()))
    assert len({tuple(place) for place in circle.round(6).tolist()}) == 6


def test_a_network_without_links_or_places_can_be_drawn(tmp_path: Path) -> None:
    topology = topology_from_mapping(
        {
            "nodes": [{"id": "1:1"}],
            "publishers": [{"node": "1:1", "namespace": ["a"]}],
            "subscribers": [{"node": "1:1", "namespace": ["a"]}],
        },
        "",
    )
    policy = policy_from_mapping({}, "")
    plan = make_plan(pose(network(topology.nodes, ()), policy, demand_of(topology, policy)))
    draw(plan, tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 0


# -- the document ----------------------------------------------------------------------------------


def test_relays_read_out_of_the_document_what_was_planned(example: Plan) -> None:
    key = Ed25519PrivateKey.generate()
    now = time.time()
    document = document_of(example, now=now, valid_s=60)
    followed = plan_of(open_plan(sign_plan(document, key), key.public_key()))
    assert followed.sequence == int(now * 1000)
    assert followed.expires_at == now + 60
    tracks, nodes = example.problem.tracks, example.problem.network.nodes
    pairs = example.problem.pairs
    for one in example.assignments:
        for relay in pairs.relays[one.pair]:
            node = parse_node_id(nodes[relay].id)
            expected = (parse_node_id(one.via),) if one.via else ()
            assert followed.way_for(TrackKey(tracks[one.track].hash), node) == expected
    assert document.policy == example.problem.policy.digest
    assert document.tracks[0].name == "sports/final/video"
