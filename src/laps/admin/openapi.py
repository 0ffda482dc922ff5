"""`/openapi.json`: OpenAPI 3.1, generated from the structs of the pages."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import Any, Final

import msgspec

from laps.admin.auth import OPEN_PATHS
from laps.admin.schema.clients import Clients, Closes, OneClient, Origins
from laps.admin.schema.control import Control
from laps.admin.schema.decisions import ClassesOfService, Demand, PolicyLines, Probes
from laps.admin.schema.fields import ListPage, Page
from laps.admin.schema.network import Announces, Nodes, OneNode, Peers, Subscribes
from laps.admin.schema.relay import Alive, Counters, Done, Error, Events, Node, Ready
from laps.admin.schema.tracks import Arrival, Cache, Fib, Missed, NodeSets, OneTrack, Tracks

Schema = dict[str, Any]

PAGES: Final[tuple[type[Page], ...]] = (
    Node,
    Counters,
    Alive,
    Ready,
    *(Peers, Nodes, Subscribes, Announces, Tracks, Fib, NodeSets, Cache, Clients, Origins),
    *(PolicyLines, Probes, ClassesOfService, Demand, Control),
    *(Closes, Events),
    *(OneNode, OneTrack, OneClient),
)

_NAMES: Final = {
    "node": "its id, like 1:2",
    "track": "its hash, 16 hexadecimal digits, or its namespace, a space and its name",
    "client": "its number",
}

_TEXT: Final = {"type": "string"}
_WHOLE: Final = {"type": "integer"}


def description() -> dict[str, Any]:
    """All of it."""
    lines = {"anyOf": [_ref(Arrival), _ref(Missed)]}
    track = _parameter("track", "its hash, or its namespace, a space and its name", _TEXT)
    paths = {page.path: _page(page) for page in PAGES} | {
        "/openapi.json": _path("This.", {"type": "object"}),
        "/metrics": _path("The same for Prometheus.", _TEXT, media="text/plain"),
        "/v1/trace": _path(
            "A line for each object of a track as it begins to arrive, while it is open.",
            lines,
            [track | {"required": True}],
            media="application/jsonl",
        ),
        "/v1/reload": _change("Reads the configuration again, as SIGHUP does."),
        "/v1/drain": _change("Sends clients elsewhere and ends the relay, as SIGTERM does."),
        "/v1/clients/{client}/close": _change(
            "Closes the session of a client.",
            parameters=[_parameter("client", _NAMES["client"], _TEXT, "path") | {"required": True}],
        ),
        "/v1/impair": _change(
            "Makes the paths to peers worse, as [impairment] does; an empty table mends them.",
            body={"type": "object"},
        ),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "laps relay", "version": version("laps")},
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _change(
    words: str, *, body: Schema | None = None, parameters: list[Schema] | None = None
) -> Schema:
    """A path that changes something: with the write token only."""
    made: Schema = _path(words, _ref(Done), parameters)["get"]
    wrong = made["responses"]["401"]
    made["responses"] |= {"403": wrong, "409": wrong}
    made["security"] = [{"token": []}]
    if body is not None:
        made["responses"] |= {"400": wrong}
        made["requestBody"] = {"content": {"application/json": {"schema": body}}}
    return {"post": made}


def schemas() -> dict[str, Schema]:
    """Each page and row by its name; the fields that a relay always sends are required."""
    types = (*PAGES, Arrival, Missed, Done, Error)
    _, found = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    for schema in found.values():
        # A default is for readers of another version. What has none may be left out, as UNSET.
        schema["required"] += [
            name
            for name, field in schema["properties"].items()
            if field.pop("default", msgspec.UNSET) is not msgspec.UNSET
        ]
    return found


def _page(page: type[Page]) -> Schema:
    parameters = _paging(page) if issubclass(page, ListPage) else []
    for name in re.findall(r"\{(\w+)\}", page.path):
        named = _parameter(name, _NAMES[name], _TEXT, place="path")
        parameters.append(named | {"required": True})
    return _path(str(page.__doc__), _ref(page), parameters, guarded=page.path not in OPEN_PATHS)


def _ref(kind: type[msgspec.Struct]) -> Schema:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _paging(page: type[ListPage]) -> list[Schema]:
    after = [_parameter("after", "leaves out events up to this number", _WHOLE)]
    return [
        _parameter("limit", "at most this many rows; 0: all", {**_WHOLE, "default": 1000}),
        _parameter("offset", "leaves out this many rows", {**_WHOLE, "default": 0}),
        _parameter("q", "only rows that contain this text", _TEXT),
        *(after if page is Events else []),
    ]


def _parameter(name: str, words: str, schema: Schema, place: str = "query") -> Schema:
    return {"name": name, "in": place, "description": words, "schema": schema}


def _path(
    words: str,
    schema: Schema,
    parameters: list[Schema] | None = None,
    *,
    media: str = "application/json",
    guarded: bool = True,
) -> Schema:
    wrong = {"description": "why not", "content": {"application/json": {"schema": _ref(Error)}}}
    answers = {"200": {"description": words, "content": {media: {"schema": schema}}}}
    if guarded:
        answers |= {"401": wrong}
    if parameters:
        answers |= {"400": wrong}
        if any(item.get("required") for item in parameters):
            answers |= {"404": wrong}
    return {
        "get": {
            "summary": words,
            "parameters": parameters or [],
            "responses": answers,
            "security": [{"token": []}, {}] if guarded else [{}],
        }
    }
