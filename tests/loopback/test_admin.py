"""The admin API of real relays, asked over HTTP while tracks flow."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from laps import places
from laps.admin.client import AdminClient, Pool
from laps.admin.openapi import PAGES
from laps.admin.schema.network import OneNode
from laps.admin.schema.tracks import OneTrack, Tracks
from laps.errors import ListenError
from laps.routing.plan import NO_PLAN, Plan
from laps.types import TrackKey, TrackName, hash_track, parse_node_id
from support.admin import LISTS, Network, acquainted, check
from support.documents import ROOT
from support.loopback import on_loop, until
from support.programs import ANY, LAPS, relay_process

if TYPE_CHECKING:
    from pathlib import Path

    from support.admin import Shown

CLOCK = f"{hash_track(TrackName((b'demo',), b'clock')).full_name_hash:016x}"


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "place"))


class Scene:
    """A publisher at 1:1, a Via 1:2, and a subscriber at 1:3, with a track that flows."""

    origin: Shown
    via: Shown
    edge: Shown

    def __init__(self, network: Network) -> None:
        self._network = network

    async def play(self) -> Scene:
        network = self._network
        self.via = await network.start("1:2", node__type="via", relay__reflect=True)
        self.origin = await network.start("1:1", self.via)
        policy = str(ROOT / "examples" / "policy" / "seattle.toml")
        self.edge = await network.start("1:3", self.via, node__region="us", policy__file=policy)
        await acquainted(self.origin, self.via, self.edge)
        at_origin = await network.enter_async_context(self.origin.connect())
        at_edge = await network.enter_async_context(self.edge.connect())
        self.clock = await at_origin.publish("demo", "clock")
        self.objects = at_edge.subscribe("demo", "clock", start="start")
        # Else the first objects are fetched, and not sent on as they arrive.
        while not (await self.origin.ask(f"/v1/tracks/{CLOCK}"))["egress"]:
            pass
        await self.flow()
        return self

    async def flow(self, count: int = 3) -> None:
        for _ in range(count):
            await self.clock.write(b"tick" * 100, new_group=True)
            assert (await anext(self.objects)).payload == b"tick" * 100


@on_loop
async def test_every_row_of_every_view_is_as_described() -> None:
    async with Network() as network:
        scene = await Scene(network).play()
        while not await scene.edge.rows("probes"):
            pass
        seen: dict[str, int] = dict.fromkeys(LISTS, 0)
        for shown in (scene.origin, scene.via, scene.edge):
            check(await shown.ask("/v1/node"), "Node")
            for view, schema in LISTS.items():
                answer = await shown.ask(f"/v1/{view}")
                assert answer["node"] == (await shown.ask("/v1/node"))["node"]
                assert answer["at"] == pytest.approx(time.time(), abs=60)
                assert answer["total"] == len(answer[view])
                for row in answer[view]:
                    check(row, schema)
                seen[view] += answer["total"]
        # Nobody helps a publisher with one subscriber: test_deciding has rows of "demand".
        assert {view for view, rows in seen.items() if not rows} == {"origins", "demand", "closes"}


@on_loop
async def test_client_reads_every_page_as_the_relay_wrote_it() -> None:
    async with Network() as network:
        scene = await Scene(network).play()
        pool = Pool()
        network.push_async_callback(pool.close)
        for shown in (scene.origin, scene.via, scene.edge):
            client = AdminClient(f"http://{shown.admin.address}", pool=pool)
            for page in PAGES:
                if "{" not in page.path:
                    plain = await client.get_plain(page)
                    assert set(plain) == set(page.__struct_encode_fields__)
                    written = msgspec.json.encode(msgspec.convert(plain, page))
                    assert json.loads(written) == plain
            assert (await client.get(OneTrack, "demo clock")).track == CLOCK
            assert (await client.get(Tracks, q=CLOCK)).tracks[0].name == "clock"
            assert await client.find(OneNode, "9:9") is None


def test_client_is_used_as_the_page_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "admin.md").read_text()
    [block] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    with relay_process(tmp_path / "log", "--no-discovery") as relay:
        code = block.replace("127.0.0.1:33436", relay.admin)
        source = compile(code, "admin.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        asyncio.run(eval(source, {}))
    assert capsys.readouterr().out == "{}\n"


@on_loop
async def test_a_track_is_followed_from_relay_to_relay() -> None:
    async with Network() as network:
        scene = await Scene(network).play()
        at_origin = await scene.origin.ask(f"/v1/tracks/{quote('demo clock')}")
        assert (at_origin["namespace"], at_origin["name"]) == ("demo", "clock")
        assert at_origin["track"] == CLOCK
        assert at_origin["origin"]
        assert (at_origin["publishers"], at_origin["subscribers"]) == (1, 0)
        assert (at_origin["ingress"], at_origin["egress"]) == ([], ["1:2"])
        assert at_origin["targets"] == at_origin["wanted_by"] == ["1:3"]
        assert at_origin["received_bytes"] >= 1200
        assert at_origin["sent_bytes"] >= 1200
        check(at_origin, "OneTrack")
        (hop,) = at_origin["hops"]
        check(hop, "Hop")
        assert (hop["node"], hop["peer"], hop["reason"]) == ("1:3", "1:2", "only path")
        assert hop["path"]["hops"] == ["1:2", "1:3"]

        at_via = await scene.via.ask(f"/v1/tracks/{CLOCK}")
        assert (at_via["ingress"], at_via["egress"]) == (["1:1"], ["1:3"])
        assert not at_via["origin"]
        assert [hop["peer"] for hop in at_via["hops"]] == ["1:3"]

        at_edge = await scene.edge.ask(f"/v1/tracks/{CLOCK}")
        assert (at_edge["ingress"], at_edge["egress"], at_edge["subscribers"]) == (["1:2"], [], 1)
        assert at_edge["cached_groups"] >= 3
        assert at_edge["largest"] == at_origin["largest"]


@on_loop
async def test_flows_and_sets_agree_from_link_to_link() -> None:
    async with Network() as network:
        scene = await Scene(network).play()
        (flow,) = [row for row in await scene.origin.rows("fib") if row["track"] == CLOCK]
        (client,) = await scene.origin.rows("clients")
        assert flow["from"] == {"client": client["client"]}
        (out,) = flow["out"]
        assert (out["peer"], out["nodes"], out["old"]) == ("1:2", ["1:3"], False)
        origin = {"peer": "1:1", "sns": out["sns"]}
        (through,) = [row for row in await scene.via.rows("fib") if row["from"] == origin]
        assert (through["track"], through["targets"]) == (CLOCK, ["1:3"])
        told = {"direction": "in", "peer": "1:1", "sns": out["sns"], "nodes": ["1:3"]}
        assert any(told.items() <= row.items() for row in await scene.via.rows("sns"))
        (after,) = through["out"]
        origin = {"peer": "1:2", "sns": after["sns"]}
        (last,) = [row for row in await scene.edge.rows("fib") if row["from"] == origin]
        assert (last["local"], last["targets"], last["unreached"]) == (True, [], [])


@on_loop
async def test_clients_are_shown_with_what_they_read_and_publish() -> None:
    async with Network() as network:
        scene = await Scene(network).play()
        (publisher,) = await scene.origin.rows("clients")
        assert (publisher["protocol"], publisher["transport"]) == ("moqt-16", "quic")
        assert (publisher["publishes"], publisher["subscribes"]) == (1, 0)
        one = await scene.origin.ask(f"/v1/clients/{publisher['client']}")
        named = {"track": CLOCK, "namespace": "demo", "name": "clock"}
        assert (one["publications"], one["subscriptions"]) == ([named], [])
        check(one, "OneClient")
        (reader,) = await scene.edge.rows("clients")
        assert (await scene.edge.ask(f"/v1/clients/{reader['client']}"))["subscriptions"] == [named]
        assert await scene.via.rows("clients") == []
        offers = [row for row in await scene.origin.rows("announces") if row["namespace"] == "demo"]
        assert {(row["source"], row["client"]) for row in offers} == {("1:1", publisher["client"])}
        told = [row for row in await scene.edge.rows("announces") if row["namespace"] == "demo"]
        assert {(row["source"], row["client"]) for row in told} == {("1:1", None)}
        wanted = await scene.origin.rows("subscribes", q="clock")
        assert [(row["source"], row["track"]) for row in wanted] == [("1:3", CLOCK)]


@on_loop
async def test_nodes_are_shown_with_best_and_alternate_paths() -> None:
    async with Network() as network:
        via = await network.start("1:2", node__type="via", relay__reflect=True)
        far = await network.start("1:3", via, node__region="us")
        near = await network.start("1:1", via, far)
        await acquainted(near, via, far)
        relay = near.runner.relay
        await until(lambda: len(relay.nodes.candidates(far.runner.relay.id)) == 2)
        row = await near.ask("/v1/nodes/1:3")
        check(row, "OneNode")
        assert row["best"]["hops"] == ["1:3"]
        assert row["reason"] == "fewest hops: 0 against 1 via 1:2"
        assert [path["hops"] for path in row["alternates"]] == [["1:2", "1:3"]]
        # What is measured may change between two answers; both soon tell of one moment.
        while row not in [each | {"at": row["at"]} for each in await near.rows("nodes")]:
            row = await near.ask("/v1/nodes/1:3")
        peers = {row["node"]: row for row in await near.rows("peers")}
        assert (peers["1:2"]["role"], peers["1:2"]["mode"]) == ("via", "both")
        assert peers["1:2"]["address"] == str(via.runner.peer_address)
        assert peers["1:2"]["dialled"]
        assert peers["1:2"]["sent_packets"] > 0
        assert peers["1:2"]["leads_to"] >= 2


@on_loop
async def test_a_plan_is_an_event_and_the_reason_of_a_hop() -> None:
    async with Network() as network:
        scene = await Scene(network).play()
        key, edge = TrackKey(int(CLOCK, 16)), scene.edge.runner.relay.id
        vias = {key: {"us": (parse_node_id("1:2"),)}}
        scene.origin.runner.follow_plan(Plan(7, time.time() + 60, {edge: "us"}, vias))
        (hop,) = (await scene.origin.ask(f"/v1/tracks/{CLOCK}"))["hops"]
        assert hop["reason"] == "plan 7 says by 1:2"
        assert (await scene.origin.ask("/v1/node"))["plan"]["tracks"] == 1
        scene.origin.runner.follow_plan(NO_PLAN)
        events = await scene.origin.rows("events", q="plan")
        assert [(event["event"], event["subject"], event["detail"]) for event in events] == [
            ("plan_applied", "plan 7", "1 track"),
            ("plan_expired", "plan 7", "1 track"),
        ]
        numbers = [event["number"] for event in await scene.origin.rows("events")]
        assert numbers == list(range(1, len(numbers) + 1))
        assert await scene.origin.rows("events", after=numbers[-1]) == []


@on_loop
async def test_paths_that_change_are_events_without_telemetry_too() -> None:
    async with Network() as network:
        far = await network.start("1:2", telemetry__enabled=False)
        near = await network.start("1:1", far, telemetry__enabled=False)
        await acquainted(near, far)
        near.runner._measure()
        (event,) = await near.rows("events", q="path_changed")
        assert (event["subject"], event["detail"]) == ("1:2", "nobody to 1:2")


@on_loop
async def test_closes_say_whose_and_why() -> None:
    async with Network() as network:
        near = await network.start("1:1")
        far = await network.start("1:2", near)
        await acquainted(near, far)
        async with near.connect() as session:
            await session.publish("demo", "clock")
        await until(lambda: len(near.runner.closes.last) == 1)
        await far.runner.close()
        await until(lambda: len(near.runner.closes.last) == 2)
        peer, client = await near.rows("closes")
        check(peer, "Close")
        assert (peer["kind"], peer["who"], peer["by_peer"], peer["code"]) == (
            "peer",
            "1:2",
            True,
            1,
        )
        assert peer["reason"] == "the relay stops"
        assert (client["kind"], client["who"], client["by_peer"]) == ("client", "moqt-16", True)
        text = (await near.http.get("/metrics")).text
        assert 'laps_closed_connections_total{code="1",kind="peer"} 1.0' in text


@on_loop
async def test_prometheus_reads_the_metrics_and_names_follow_its_conventions() -> None:
    async with Network() as network:
        scene = await Scene(network).play()
        answer = await scene.origin.http.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = {f.name: f for f in text_string_to_metric_families(answer.text)}
        samples = [sample for family in families.values() for sample in family.samples]
        assert len({(s.name, tuple(sorted(s.labels.items()))) for s in samples}) == len(samples)
        for family in families.values():
            assert family.name.startswith(("laps_", "process_")), family.name
            assert family.documentation.endswith("."), family.name
            assert not family.name.endswith(("_us", "_ms")), family.name
        peer = {s.labels["peer"]: s.value for s in families["laps_peer_sent_bytes"].samples}
        (row,) = await scene.origin.rows("peers")
        assert set(peer) == {"1:2"}
        assert 0 < peer["1:2"] <= row["sent_bytes"]
        (clients,) = families["laps_clients"].samples
        assert clients.labels == {"protocol": "moqt-16", "transport": "quic"}
        assert {"process_cpu_seconds", "process_resident_memory_bytes"} <= set(families)
        counted = await scene.origin.ask("/v1/counters")
        for room, counts in counted.items():
            for name in counts:
                assert f"laps_{room}_{name}" in families
        assert not any("track" in sample.labels for sample in samples)


@on_loop
async def test_pages_of_a_list_make_the_whole() -> None:
    async with Network() as network:
        shown = await network.start("1:1")
        async with shown.connect() as session:
            for number in range(25):
                await session.publish("many", f"t{number:02}")
            offered = await shown.ask("/v1/announces?limit=0")
            whole = offered["announces"]
            assert offered["total"] == len(whole) >= 25
            paged = []
            for offset in range(0, len(whole), 10):
                page = await shown.ask(f"/v1/announces?limit=10&offset={offset}")
                assert page["total"] == len(whole)
                paged += page["announces"]
            assert paged == whole
            assert await shown.rows("announces", offset=len(whole)) == []
            some = await shown.ask("/v1/announces?q=T1&limit=3&offset=2")
            assert some["total"] == 10
            assert [row["name"] for row in some["announces"]] == ["t12", "t13", "t14"]


WRONG = {
    "/v1/nodes/9:9": (404, "no node 9:9 is known to 1:1"),
    "/v1/nodes/1:1": (404, "1:1 is this relay itself: ask for /v1/node"),
    "/v1/nodes/nobody": (400, 'node id "nobody" needs a colon: high:low, like 1.2:1234'),
    "/v1/tracks/no%20track": (404, "no track no track is known to 1:1"),
    "/v1/tracks/a/b%2Fc%20d": (404, "no track a/b/c d is known to 1:1"),
    "/v1/tracks/0123456789abcdef": (404, "no track 0123456789abcdef is known to 1:1"),
    "/v1/clients/7": (404, "no client 7 is connected to 1:1"),
    "/v1/clients/x": (400, 'client "x" must be a number, like 3'),
    "/v1/tracks?limit=-1": (400, 'limit="-1" must be a whole number, at least 0'),
    "/v1/tracks?offset=x": (400, 'offset="x" must be a whole number, at least 0'),
    "/v1/events?after=1.5": (400, 'after="1.5" must be a whole number, at least 0'),
    "/v2": (404, "there is no /v2 here: /openapi.json says what there is"),
    "/v1/peers/": (404, "there is no /v1/peers/ here: /openapi.json says what there is"),
}


@on_loop
async def test_what_is_not_there_or_wrong_is_said() -> None:
    async with Network() as network:
        shown = await network.start("1:1")
        for path, (status, words) in WRONG.items():
            answer = await shown.http.get(path)
            assert (answer.status_code, answer.json()) == (status, {"error": words})
            assert answer.headers["content-type"] == "application/json"


@on_loop
async def test_only_reading_is_possible_without_a_token_and_heads_are_answered() -> None:
    async with Network() as network:
        shown = await network.start("1:1")
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            answer = await shown.http.request(method, "/v1/tracks")
            assert answer.status_code == 403
            assert "nothing can be changed here" in answer.json()["error"]
        for path in ("/v1/node", "/v1/tracks", "/metrics", "/healthz", "/openapi.json"):
            answer = await shown.http.head(path)
            assert (answer.status_code, answer.content) == (200, b"")


@on_loop
async def test_a_token_is_asked_for_wherever_there_is_one(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("swordfish\n")
    async with Network() as network:
        for shown in (
            await network.start("1:1", token="swordfish"),
            await network.start("1:2", admin__token_file=str(secret)),
        ):
            for path in ("/v1/node", "/v1/tracks", "/metrics", "/openapi.json", "/nowhere"):
                for wrong in ({}, {"authorization": "Bearer swordfis"}, {"authorization": "x"}):
                    answer = await shown.http.get(path, headers=wrong)
                    assert answer.status_code == 401
                    assert answer.headers["www-authenticate"] == "Bearer"
                    assert "Authorization: Bearer TOKEN" in answer.json()["error"]
            for path in ("/healthz", "/readyz"):
                assert (await shown.http.get(path)).status_code == 200
            right = {"authorization": "Bearer swordfish", "host": "relay.example"}
            answer = await shown.http.get("/v1/node", headers=right)
            assert answer.status_code == 200
            assert "swordfish" not in answer.text


CHANGES = ("/v1/reload", "/v1/drain", "/v1/clients/1/close", "/v1/impair")


@on_loop
async def test_a_token_that_reads_changes_nothing_and_none_is_taken_from_a_url() -> None:
    async with Network() as network:
        shown = await network.start("1:1", token="swordfish", admin__read_token="guppy")
        http, reads = shown.http, {"authorization": "Bearer guppy"}
        writes = {"authorization": "Bearer swordfish"}
        assert (await http.get("/v1/node", headers=reads)).status_code == 200
        for path in CHANGES:
            answer = await http.post(path, headers=reads)
            assert (answer.status_code, "may look and change nothing" in answer.text) == (403, True)
            assert "guppy" not in answer.text
            for name in ("token", "access_token", "jwt"):
                answer = await http.post(path, params={name: "swordfish"})
                assert answer.status_code == 401
        assert (await http.get("/v1/node", params={"token": "guppy"})).status_code == 401
        answer = await http.post("/v1/tracks", headers=writes)
        assert (answer.status_code, answer.json()["error"]) == (
            *(405, "POST is not for /v1/tracks: /openapi.json says what is"),
        )


@on_loop
async def test_a_token_that_writes_closes_clients_and_impairs_links() -> None:
    async with Network() as network:
        via = await network.start("1:2", node__type="via")
        shown = await network.start("1:1", via, token="swordfish")
        http, writes = shown.http, {"authorization": "Bearer swordfish"}
        async with shown.connect() as session:
            await until(lambda: len(shown.runner.clients.connections) == 1)
            number = next(iter(shown.runner.clients.connections)).number
            before = session.channel_in_use
            answer = await http.post(f"/v1/clients/{number}/close", headers=writes)
            assert answer.json()["done"] == f"client {number} is closed"
            await until(lambda: session.channel_in_use is not before)
        assert (await http.post("/v1/clients/99/close", headers=writes)).status_code == 404
        peer = str(via.runner.peer_address)
        table = {peer: {"delay_ms": 20}}
        answer = await http.post("/v1/impair", headers=writes, json=table)
        assert answer.json()["done"] == "1 peers are impaired"
        for wrong in ("{", '{"x": {}}', f'{{"{peer}": {{"delay_ms": -1}}}}'):
            answer = await http.post("/v1/impair", headers=writes, content=wrong)
            assert answer.status_code == 400
            assert [one.delay_ms for one in shown.runner.config.impairment.peers] == [20]
        assert (await http.post("/v1/impair", headers=writes, json={})).status_code == 200
        assert not shown.runner.config.impairment.peers


def test_a_token_that_writes_reloads_and_drains_a_relay(tmp_path: Path) -> None:
    token, config = tmp_path / "token", tmp_path / "relay.toml"
    token.write_text("swordfish")
    text = f'[admin]\nlisten = "127.0.0.1:0"\ntoken_file = "{token}"\n'
    config.write_text(text)
    with relay_process(tmp_path / "log", "--config", str(config), "--no-discovery") as relay:

        def post(path: str, secret: str = "swordfish") -> tuple[int, str]:
            headers = {"authorization": f"Bearer {secret}"}
            answer = httpx.post(f"http://{relay.admin}{path}", headers=headers, trust_env=False)
            return answer.status_code, answer.text

        assert post("/v1/reload")[0] == 200
        config.write_text(text + "nonsense = 1\n")
        status, words = post("/v1/reload")
        assert (status, "the configuration stays as it is" in words) == (409, True)
        token.write_text("herring")
        assert post("/v1/drain")[0] == 401
        status, words = post("/v1/drain", "herring")
        assert (status, "stops" in words) == (200, True)
        assert relay.process.wait(20) == 0
        log = relay.log.read_text()
        assert "over the admin API: the relay sends its clients elsewhere and stops" in log
        assert not any(secret in log for secret in ("swordfish", "herring"))


@on_loop
async def test_without_a_token_no_web_page_reads_it_through_a_name_of_its_own() -> None:
    async with Network() as network:
        shown = await network.start("1:1")
        for host in (
            "evil.example",
            "127.0.0.1.evil.example:80",
            "192.0.2.1",
            "",
            "localhost.evil",
        ):
            answer = await shown.http.get("/v1/node", headers={"host": host})
            assert answer.status_code == 403
            assert "loopback" in answer.json()["error"]
        for host in ("localhost", "LOCALHOST:1", "127.0.0.1:80", "127.9.9.9", "[::1]:5", "[::1]"):
            assert (await shown.http.get("/v1/node", headers={"host": host})).status_code == 200


@on_loop
async def test_a_relay_is_ready_once_a_peer_is_there_and_until_it_leaves() -> None:
    async with Network() as network:
        far = await network.start("1:2")
        lonely = await network.start("1:1", peering__peers=["127.0.0.1:9"])
        assert (await lonely.http.get("/healthz")).json() == {"alive": True}
        answer = await lonely.http.get("/readyz")
        assert answer.status_code == 503
        assert answer.json() == {
            "ready": False,
            "reasons": ["no connection to the configured peer yet"],
        }
        near = await network.start("1:3", far, relay__drain_s=1.0)
        await acquainted(near, far)
        assert (await near.ask("/readyz")) == {"ready": True, "reasons": []}
        leaving = asyncio.ensure_future(near.runner.close())
        await until(lambda: near.runner.stopping)
        answer = await near.http.get("/readyz")
        assert (answer.status_code, answer.json()["reasons"][0]) == (
            503,
            "the relay is about to stop",
        )
        assert (await near.ask("/v1/node"))["draining"]
        await leaving


@on_loop
async def test_views_hold_while_clients_peers_and_tracks_come_and_go() -> None:
    async with Network() as network:
        scene = await Scene(network).play()
        paths = [f"/v1/{view}" for view in LISTS]
        paths += [
            "/v1/node",
            "/v1/counters",
            "/metrics",
            f"/v1/tracks/{CLOCK}",
            "/v1/tracks?q=churn",
        ]
        over = asyncio.Event()

        async def churn() -> None:
            for number in range(4):
                async with scene.origin.connect() as here, scene.edge.connect() as there:
                    track = await here.publish("churn", f"t{number}")
                    objects = there.subscribe("churn", f"t{number}", start="start")
                    await track.write(b"x", new_group=True)
                    await anext(objects)

        async def look(shown: Shown) -> int:
            asked = 0
            while not over.is_set():
                for path in paths:
                    answer = await shown.http.get(path)
                    assert answer.status_code == 200, (path, answer.text)
                    asked += 1
            return asked

        churning = asyncio.ensure_future(churn())
        churning.add_done_callback(lambda _: over.set())
        asked = await asyncio.gather(*(look(s) for s in (scene.origin, scene.via, scene.edge)))
        await churning
        assert all(count >= len(paths) for count in asked)


@on_loop
async def test_control_servers_and_stubs_are_shown_too() -> None:
    async with Network() as network:
        control = await network.start("1:9", node__type="control")
        edge = await network.start("1:1", peering__control=[str(control.runner.peer_address)])
        stub = await network.start("1:4", edge, node__type="stub")
        await until(lambda: len(edge.runner.relay.peers) == 2)
        peers = {row["node"]: row for row in await edge.rows("peers")}
        assert (peers["1:9"]["role"], peers["1:9"]["mode"]) == ("via", "control")
        assert peers["1:4"]["role"] == "stub"
        for shown, role in ((control, "control"), (stub, "stub")):
            assert (await shown.ask("/v1/node"))["role"] == role
            for view, schema in LISTS.items():
                for row in await shown.rows(view):
                    check(row, schema)
            assert list(text_string_to_metric_families((await shown.http.get("/metrics")).text))
        assert await control.rows("clients") == []


@on_loop
async def test_an_admin_that_is_closed_ends_connections_that_are_kept() -> None:
    async with Network() as network:
        shown = await network.start("1:1")
        await shown.ask("/v1/node")  # httpx keeps the connection
        await shown.admin.close()
        with pytest.raises(httpx.TransportError):
            await shown.http.get("/v1/node")
        assert places.read_words("relays") == []


@on_loop
async def test_the_usual_port_gives_way_and_one_that_was_asked_for_does_not() -> None:
    async with Network() as network:
        first = await network.start("1:1")
        taken = {"admin__listen": str(first.admin.address)}
        with pytest.raises(ListenError, match=r"admin: 127\.0\.0\.1:\d+ is in use"):
            await network.start("1:2", **taken)


def fetch(address: str, path: str) -> Any:
    answer = httpx.get(f"http://{address}{path}", trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_two_relays_of_one_machine_leave_word_and_are_found(tmp_path: Path) -> None:
    with (
        relay_process(tmp_path / "one", "--node-id", "1:1", "--no-discovery") as one,
        relay_process(tmp_path / "two", "--node-id", "1:2", "--no-discovery") as two,
    ):
        assert one.admin != two.admin
        words = {word["node"]: word for word in places.read_words("relays")}
        assert words == {
            "1:1": {"node": "1:1", "role": "edge", "admin": one.admin, "pid": one.process.pid},
            "1:2": {"node": "1:2", "role": "edge", "admin": two.admin, "pid": two.process.pid},
        }
        for word in words.values():
            assert fetch(word["admin"], "/v1/node")["node"] == word["node"]
        two.kill()
        assert [word["node"] for word in places.read_words("relays")] == ["1:1"]
    assert places.read_words("relays") == []


def test_a_relay_with_readers_that_stay_stops_in_time(tmp_path: Path) -> None:
    with (
        relay_process(tmp_path / "log", "--no-discovery") as relay,
        httpx.Client(base_url=f"http://{relay.admin}", trust_env=False) as http,
        http.stream("GET", "/v1/trace", params={"track": CLOCK}) as lines,
    ):
        assert lines.status_code == 200
        relay.process.send_signal(signal.SIGTERM)
        assert relay.process.wait(timeout=10) == 0
        assert b"".join(lines.iter_raw()).strip() == b""
    assert "Traceback" not in relay.log.read_text()


def test_no_admin_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    with relay_process(tmp_path / "log", "--no-discovery", "--no-admin") as relay:
        assert relay.admin == "none"
        assert places.read_words("relays") == []


def test_a_token_file_that_is_missing_or_empty_is_one_line_and_status_2(tmp_path: Path) -> None:
    for text, words in (
        (None, "cannot be read"),
        ("", "is empty: it has to hold a token"),
        ("a b", "must hold a token"),
    ):
        secret, config = tmp_path / "token", tmp_path / "relay.toml"
        config.write_text(f'[admin]\ntoken_file = "{secret}"\n[discovery]\nenabled = false\n')
        if text is not None:
            secret.write_text(text)
        command = [LAPS, "relay", "--config", str(config), "--listen", ANY, "--peer-listen", ANY]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert "admin.token_file" in done.stderr
        assert words in done.stderr


@pytest.mark.nightly
def test_the_bench_says_what_a_scrape_costs() -> None:
    command = [LAPS, "bench", "admin", "--tracks", "20", "--rounds", "2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    results = json.loads(done.stdout)
    assert done.returncode == (0 if all(result["holds"] for result in results) else 1)
    by_path = {result["case"]["path"]: result for result in results}
    assert by_path["/metrics"]["size_bytes"] > 1000
    assert by_path["/v1/tracks?limit=0"]["size_bytes"] > by_path["/v1/node"]["size_bytes"]


def test_another_address_than_loopback_without_a_token_is_refused() -> None:
    command = [LAPS, "relay", "--admin", "0.0.0.0:0", "--no-discovery"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert done.stderr.startswith('laps: --admin: admin.listen = "0.0.0.0:0": is not loopback')
