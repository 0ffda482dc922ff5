"""Relays on real sockets whose admin API can be asked."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

import httpx

import laps
from laps.admin.openapi import PAGES, schemas
from laps.admin.schema.fields import ListPage
from laps.admin.server import Admin
from laps.config import Config, override
from laps.net.runner import Runner
from support.loopback import until

if TYPE_CHECKING:
    from laps.client import Connecting

Json = dict[str, Any]

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class Shown:
    """A relay, its admin API, and who asks it."""

    def __init__(self, runner: Runner, admin: Admin, http: httpx.AsyncClient) -> None:
        self.runner = runner
        self.admin = admin
        self.http = http

    async def ask(self, path: str) -> Json:
        answer = await self.http.get(path)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    async def rows(self, view: str, **parameters: Any) -> list[Json]:
        answer = await self.http.get(f"/v1/{view}", params=parameters)
        assert answer.status_code == 200, answer.text
        rows: list[Json] = answer.json()[view]
        return rows

    def connect(self) -> Connecting:
        return laps.connect(f"moqt://{self.runner.client_address}")


class Network(AsyncExitStack):
    """Relays that are started one by one and end together."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self

    async def start(self, node: str, *peers: Shown, token: str = "", **values: Any) -> Shown:
        own = {
            "node.id": node,
            "node.region": "eu",
            "peering.listen": "127.0.0.1:0",
            "clients.listen": "127.0.0.1:0",
            "peering.peers": [str(peer.runner.peer_address) for peer in peers],
            "relay.node_advertise_s": 0.05,
            "relay.drain_s": 0.1,
            "clients.drain_s": 0.1,
            "telemetry.interval_s": 0.1,
            "discovery.enabled": False,
            "admin.listen": "127.0.0.1:0",
            "admin.token": token,
        }
        given = {key.replace("__", "."): value for key, value in values.items()}
        runner = Runner(override(Config(), own | given, "a test"))
        self.push_async_callback(runner.close)
        admin = Admin(runner, runner.config.admin)
        self.push_async_callback(admin.close)
        http = httpx.AsyncClient(base_url=f"http://{admin.address}", trust_env=False)
        await self.enter_async_context(http)
        return Shown(runner, admin, http)


async def acquainted(*relays: Shown) -> None:
    """All of them know all others."""
    ids = {shown.runner.relay.id for shown in relays}
    await until(
        lambda: all(
            ids - {shown.runner.relay.id} <= set(shown.runner.relay.nodes) for shown in relays
        )
    )


SCHEMAS = schemas()

# The lists that there are, and what their rows are called in the description.
LISTS: dict[str, str] = {
    name: SCHEMAS[page.__name__]["properties"][name]["items"]["$ref"].rpartition("/")[2]
    for page in PAGES
    if issubclass(page, ListPage) and (name := page.list_name())
}


def check(row: Json, schema: str) -> None:
    """Hold a row against what the description says of it."""
    _check(row, {"$ref": f"#/components/schemas/{schema}"}, schema)


def _check(value: Any, schema: Json, where: str) -> None:
    if "anyOf" in schema:
        names = [each.get("type") for each in schema["anyOf"]]
        if value is None and "null" in names:
            return
        [schema] = [each for each in schema["anyOf"] if each.get("type") != "null"]
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    known = TYPES[schema["type"]]
    assert type(value) in known, (where, value)
    if "properties" in schema:
        assert set(schema["required"]) <= set(value), (where, value)
        assert set(value) <= set(schema["properties"]), (where, value)
        for name in value:
            _check(value[name], schema["properties"][name], f"{where}.{name}")
    for item in value if isinstance(schema.get("items"), dict) else ():
        _check(item, schema["items"], where)
