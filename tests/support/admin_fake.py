"""Relays that are nothing but an admin API, as docs/admin.md says it, for the dashboard's tests."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = dict[str, Any]


@dataclass
class FakeRelay:
    """One of them. Tests change what it says, and whether it does."""

    node: str
    role: str = "edge"
    region: str = ""
    place: tuple[float, float] = (0.0, 0.0)
    token: str = ""
    answers: bool = True
    since: float = 1_000.0
    sent_bytes: int = 0
    peers: dict[str, Row] = field(default_factory=dict)
    nodes: list[Row] = field(default_factory=list)
    tracks: dict[str, Row] = field(default_factory=dict)
    events: list[Row] = field(default_factory=list)
    said: dict[str, Any] = field(default_factory=dict)
    "Answers that stand instead of those made of the above, by path; bytes as they are."
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Its address, by which `FakeRelays` finds it."""
        return f"http://{self.node.replace(':', '.')}.test:1"

    def link(self, other: FakeRelay, *, srtt_us: int = 10_000, mode: str = "both") -> None:
        """Make two relays peers."""
        for one, peer in ((self, other), (other, self)):
            row: Row = {"node": peer.node, "role": peer.role, "mode": mode, "srtt_us": srtt_us}
            counts = ("sent_bytes", "received_bytes", "sent_packets", "lost_packets", "queue_bytes")
            one.peers[peer.node] = row | dict.fromkeys(counts, 0)

    def carry(self, track: str, name: str = "", **row: Any) -> None:
        """Have a track: `track` is its hash, `name` its namespace and name with a space between."""
        namespace, _, last = name.rpartition(" ")
        made: Row = {"track": track, "namespace": namespace, "name": last, "origin": False}
        made |= {"publishers": 0, "subscribers": 0, "ingress": [], "egress": []}
        self.tracks[track] = made | {"received_bytes": 0, "sent_bytes": 0} | row

    def happen(self, event: str, subject: str, at: float = 1_001.0, **row: Any) -> None:
        """Have something happen."""
        number = len(self.events) + 1
        told: Row = {"number": number, "at": at, "event": event, "subject": subject}
        self.events.append(told | {"detail": "", "reason": ""} | row)

    def answer(self, path: str, params: httpx.QueryParams, bearer: str) -> tuple[int, Any]:
        """Status and body."""
        self.asked.append(path)
        if self.token and bearer != f"Bearer {self.token}":
            return 401, {"error": "this relay wants a token"}
        if path in self.said:
            return 200, self.said[path]
        view = path.removeprefix("/v1/")
        if view == "node":
            return 200, self._node()
        after = int(params.get("after", -1))
        rows = {
            "peers": list(self.peers.values()),
            "nodes": self.nodes,
            "tracks": list(self.tracks.values()),
            "events": [event for event in self.events if event["number"] > after],
            "clients": [],
            "closes": [],
        }.get(view)
        if view == "counters":
            return 200, {"relay": {"control_sent": 12}}
        if rows is None:
            return 404, {"error": f"there is no view {path}"}
        return 200, {"node": self.node, "at": 1_000.0, "total": len(rows), view: rows}

    def _node(self) -> Row:
        latitude, longitude = self.place
        made: Row = {"node": self.node, "role": self.role, "region": self.region}
        made |= {"latitude": latitude, "longitude": longitude, "version": "0.1.0"}
        made |= {"since": self.since, "sent_bytes": self.sent_bytes, "received_bytes": 0}
        return made | {"draining": False, "sizes": {"clients": 0}}


class FakeRelays(httpx.AsyncBaseTransport):
    """What the dashboard asks instead of a network."""

    def __init__(self, relays: Iterable[FakeRelay]) -> None:
        self.relays = {httpx.URL(relay.url).host: relay for relay in relays}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        relay = self.relays.get(request.url.host)
        if relay is None or not relay.answers:
            raise httpx.ConnectError("refused", request=request)
        bearer = request.headers.get("authorization", "")
        status, body = relay.answer(request.url.path, request.url.params, bearer)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return httpx.Response(status, content=content, request=request)
