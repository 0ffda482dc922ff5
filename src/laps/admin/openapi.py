"""The description of the API for machines: OpenAPI 3.1, made of the fields of each view.

The fields stand here once; tests hold the rows of running relays against them.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

Schema = dict[str, Any]

TEXT: Final = {"type": "string"}
MAYBE_TEXT: Final = {"type": ["string", "null"]}
WHOLE: Final = {"type": "integer"}
MAYBE_WHOLE: Final = {"type": ["integer", "null"]}
NUMBER: Final = {"type": "number"}
MAYBE_NUMBER: Final = {"type": ["number", "null"]}
TIME: Final = {"type": "number", "description": "seconds since 1970"}
FLAG: Final = {"type": "boolean"}
TEXTS: Final = {"type": "array", "items": TEXT}
NODES: Final = {"type": "array", "items": TEXT, "description": "node ids, like 1:2"}
OBJECT: Final = {"type": "object"}
MAYBE_OBJECT: Final = {"type": ["object", "null"]}
COUNTS: Final = {"type": "object", "additionalProperties": WHOLE}


def _list_of(name: str) -> Schema:
    return {"type": "array", "items": _ref(name)}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_NAMED: Final = {"track": TEXT, "namespace": TEXT, "name": TEXT}

SCHEMAS: Final[dict[str, dict[str, Schema]]] = {
    "Node": {
        "node": TEXT,
        "at": TIME,
        "role": TEXT,
        "region": TEXT,
        "tags": TEXTS,
        "latitude": NUMBER,
        "longitude": NUMBER,
        "contact": TEXT,
        "version": TEXT,
        "since": TIME,
        "clients_address": MAYBE_TEXT,
        "peers_address": MAYBE_TEXT,
        "sha256": TEXT,
        "memory_bytes": WHOLE,
        "cpu_s": NUMBER,
        "sent_bytes": WHOLE,
        "received_bytes": WHOLE,
        "draining": FLAG,
        "plan": MAYBE_OBJECT,
        "sizes": COUNTS,
    },
    "Peer": {
        "node": TEXT,
        "role": TEXT,
        "address": TEXT,
        "mode": TEXT,
        "dialled": FLAG,
        "extended": FLAG,
        "leaving": FLAG,
        "since": TIME,
        "connections": WHOLE,
        "srtt_us": WHOLE,
        "sent_bytes": WHOLE,
        "received_bytes": WHOLE,
        "sent_packets": WHOLE,
        "lost_packets": WHOLE,
        "queue_bytes": WHOLE,
        "dropped_groups": WHOLE,
        "leads_to": WHOLE,
    },
    "Path": {
        "peer": TEXT,
        "hops": NODES,
        "srtt_us": WHOLE,
        "carries_data": FLAG,
        "admitted": FLAG,
        "since": TIME,
    },
    "KnownNode": {
        "node": TEXT,
        "role": TEXT,
        "region": TEXT,
        "contact": TEXT,
        "latitude": NUMBER,
        "longitude": NUMBER,
        "clients_address": TEXT,
        "load": MAYBE_NUMBER,
        "leaving": FLAG,
        "reason": TEXT,
        "best": {"oneOf": [_ref("Path"), {"type": "null"}]},
        "alternates": _list_of("Path"),
    },
    "Subscribe": {"source": TEXT, **_NAMED, "sequence": WHOLE},
    "Announce": {"source": TEXT, "client": MAYBE_WHOLE, "namespace": TEXT, "name": MAYBE_TEXT},
    "Track": {
        **_NAMED,
        "origin": FLAG,
        "publishers": WHOLE,
        "subscribers": WHOLE,
        "ingress": NODES,
        "egress": NODES,
        "targets": NODES,
        "received_bytes": WHOLE,
        "sent_bytes": WHOLE,
        "cached_bytes": WHOLE,
        "cached_groups": WHOLE,
        "largest": {"type": ["array", "null"], "items": WHOLE, "description": "[group, object]"},
    },
    "Hop": {
        "node": TEXT,
        "peer": MAYBE_TEXT,
        "from": MAYBE_TEXT,
        "reason": TEXT,
        "path": {"oneOf": [_ref("Path"), {"type": "null"}]},
        "alternates": _list_of("Path"),
    },
    "Flow": {
        "from": OBJECT,
        "track": MAYBE_TEXT,
        "targets": NODES,
        "local": FLAG,
        "out": {"type": "array", "items": OBJECT},
        "unreached": NODES,
    },
    "NodeSet": {
        "peer": MAYBE_TEXT,
        "direction": TEXT,
        "sns": WHOLE,
        "nodes": NODES,
        "streams": MAYBE_WHOLE,
        "old": FLAG,
    },
    "CachedTrack": {
        **_NAMED,
        "bytes": WHOLE,
        "groups": WHOLE,
        "first_group": WHOLE,
        "last_group": WHOLE,
    },
    "Client": {
        "client": WHOLE,
        "protocol": TEXT,
        "transport": TEXT,
        "address": TEXT,
        "since": TIME,
        "srtt_us": WHOLE,
        "subscribes": WHOLE,
        "publishes": WHOLE,
        "sent_bytes": WHOLE,
        "received_bytes": WHOLE,
        "queue_bytes": WHOLE,
        "dropped_groups": WHOLE,
        "lost_packets": WHOLE,
    },
    "Close": {
        "at": TIME,
        "kind": TEXT,
        "who": TEXT,
        "address": TEXT,
        "by_peer": FLAG,
        "code": WHOLE,
        "application": FLAG,
        "reason": TEXT,
    },
    "Event": {
        "number": WHOLE,
        "at": TIME,
        "event": TEXT,
        "subject": TEXT,
        "detail": TEXT,
        "reason": TEXT,
    },
    "Named": _NAMED,
    "Arrival": {
        "at": TIME,
        "group": WHOLE,
        "subgroup": WHOLE,
        "object": WHOLE,
        "from": MAYBE_TEXT,
        "bytes": WHOLE,
    },
    "Error": {"error": TEXT},
}

# What lists there are: their rows, and what each is.
LISTS: Final = {
    "peers": ("Peer", "The relays that this one is connected to."),
    "nodes": ("KnownNode", "Every node that is known, with the paths to it, best first."),
    "subscribes": ("Subscribe", "Who, on which node, wants which track."),
    "announces": ("Announce", "What publishers offer, here and elsewhere."),
    "tracks": ("Track", "The tracks that are published, wanted or passed on here."),
    "fib": ("Flow", "The flows through this relay: where each comes from and goes."),
    "sns": ("NodeSet", "The subscriber node sets, as peers tell us and as we tell them."),
    "cache": ("CachedTrack", "What is kept of tracks."),
    "clients": ("Client", "The clients of this relay."),
    "closes": ("Close", "The last connections that ended, and why; the last first."),
    "events": ("Event", "What has happened lately; the oldest first."),
}

# What one thing has besides a row of its list.
DETAILS: Final[dict[str, dict[str, Schema]]] = {
    "nodes": {"at": TIME},
    "tracks": {"at": TIME, "node": TEXT, "wanted_by": NODES, "hops": _list_of("Hop")},
    "clients": {
        "at": TIME,
        "node": TEXT,
        "subscriptions": _list_of("Named"),
        "publications": _list_of("Named"),
    },
}

_ONES: Final = {
    "nodes": ("node", "its id, like 1:2"),
    "tracks": ("track", "its hash, 16 hexadecimal digits, or its namespace, a space and its name"),
    "clients": ("client", "its number"),
}


def description() -> dict[str, Any]:
    """All of it."""
    paths: dict[str, Any] = {
        "/v1/node": _path("The relay itself.", _ref("Node")),
        "/v1/counters": _path(
            "What each room has counted.", {"type": "object", "additionalProperties": COUNTS}
        ),
        "/healthz": _path("Whether the relay lives.", OBJECT, guarded=False),
        "/readyz": _path("Whether it is of use now; 503 and why, if not.", OBJECT, guarded=False),
        "/openapi.json": _path("This.", OBJECT),
        "/metrics": _path("The same for Prometheus.", TEXT, media="text/plain"),
        "/v1/trace": _path(
            "A line for each object of a track as it begins to arrive, while it is open.",
            _ref("Arrival"),
            [_parameter("track", "its hash, or its namespace, a space and its name", TEXT)],
            media="application/jsonl",
        ),
    }
    for name, (row, words) in LISTS.items():
        paths[f"/v1/{name}"] = _path(words, _list(name, row), _paging(name))
    for name, (parameter, words) in _ONES.items():
        row, _ = LISTS[name]
        schema = {"allOf": [_ref(row), _object(DETAILS[name])]}
        known = _parameter(parameter, words, TEXT, place="path")
        paths[f"/v1/{name}/{{{parameter}}}"] = _path(f"One of {name}.", schema, [known])
    return {
        "openapi": "3.1.0",
        "info": {"title": "laps relay", "version": version("laps")},
        "paths": paths,
        "components": {
            "schemas": {name: _object(fields) for name, fields in SCHEMAS.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _object(fields: dict[str, Schema]) -> Schema:
    return {"type": "object", "properties": fields, "required": list(fields)}


def _list(name: str, row: str) -> Schema:
    return _object({"node": TEXT, "at": TIME, "total": WHOLE, name: _list_of(row)})


def _paging(name: str) -> list[Schema]:
    after = [_parameter("after", "leaves out events up to this number", WHOLE)]
    return [
        _parameter("limit", "at most so many rows; 0: all", {**WHOLE, "default": 1000}),
        _parameter("offset", "leaves out so many rows", {**WHOLE, "default": 0}),
        _parameter("q", "only rows that contain this text", TEXT),
        *(after if name == "events" else []),
    ]


def _parameter(name: str, words: str, schema: Schema, place: str = "query") -> Schema:
    described = {"name": name, "in": place, "description": words, "schema": schema}
    return described | ({"required": True} if place == "path" or name == "track" else {})


def _path(
    words: str,
    schema: Schema,
    parameters: list[Schema] | None = None,
    *,
    media: str = "application/json",
    guarded: bool = True,
) -> Schema:
    wrong = {"description": "why not", "content": {"application/json": {"schema": _ref("Error")}}}
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
