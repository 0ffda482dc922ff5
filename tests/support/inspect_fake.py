"""Relays as `laps.inspect` sees them: answers of the admin API, without sockets.

net = FakeNet()
net.line("1:1", "1:2", "1:3")           # links between neighbours
net.flow("1:1", {"client": 1}, [("1:2", 7, ["1:3"])])
relays = net.relays()                   # what `laps.inspect` asks
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import msgspec

from laps.admin.client import NoAnswer, NotFound
from laps.inspect.names import track_of
from laps.inspect.relays import Relays

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from laps.admin.client import AdminClient, PageT
    from laps.admin.schema.tracks import Arrival, Missed

TRACK = track_of(["demo/t", "x"])
AT = 1_000_000.0

Answer = dict[str, Any]


class FakeApi:
    """One relay that answers."""

    def __init__(self, node: str, role: str = "edge", host: str = "127.0.0.1") -> None:
        self.node = node
        self.role = role
        self.host = host
        self.url = f"http://{host}:{33000 + int(node.rpartition(':')[2])}"
        self.views: dict[str, Answer] = {}
        self.told: list[Arrival | Missed] = []
        "Lines of a trace."
        self.gone = False
        self.asked: list[str] = []
        for name in ("nodes", "peers", "subscribes", "announces", "tracks", "fib", "clients"):
            self.views[name] = {"node": node, "at": AT, "total": 0, name: []}
        self.views["node"] = {
            "node": node,
            "at": AT,
            "since": AT - 300,
            "role": role,
            "region": "",
            "memory_bytes": 70_000_000,
            "sent_bytes": 1000,
            "received_bytes": 2000,
        }

    def add(self, view: str, **row: Any) -> None:
        answer = self.views[view]
        answer[view].append(row)
        answer["total"] += 1

    async def get(self, page: type[PageT], name: str = "", **query: str | int) -> PageT:
        view = page.path.removeprefix("/v1/").partition("{")[0] + name
        self.asked.append(view)
        if self.gone:
            raise NoAnswer(f"no relay answers at {self.url}")
        if view not in self.views:
            raise NotFound(f"no {view} is known to {self.node}")
        return msgspec.convert(self.views[view], page)

    async def find(self, page: type[PageT], name: str = "", **query: str | int) -> PageT | None:
        try:
            return await self.get(page, name, **query)
        except NotFound:
            return None

    async def trace(self, track: str) -> AsyncIterator[Arrival | Missed]:
        for line in self.told:
            yield line
        if self.gone:
            raise NoAnswer(f"no relay answers at {self.url}")
        await asyncio.Event().wait()  # until the reader leaves


def path(peer: str, *hops: str, srtt_us: int = 1000, **fields: Any) -> Answer:
    return {
        "peer": peer,
        "hops": list(hops) or [peer],
        "srtt_us": srtt_us,
        "carries_data": True,
        "admitted": True,
        **fields,
    }


class FakeNet:
    """Some relays, and one track."""

    def __init__(self) -> None:
        self.apis: dict[str, FakeApi] = {}

    def relay(self, node: str, role: str = "edge") -> FakeApi:
        return self.apis.setdefault(node, FakeApi(node, role))

    def link(self, a: str, b: str, srtt_us: int = 1000) -> None:
        for one, other in ((a, b), (b, a)):
            role = self.relay(other).role
            self.relay(one).add("peers", node=other, role=role, srtt_us=srtt_us)

    def line(self, *nodes: str) -> None:
        for a, b in pairwise(nodes):
            self.link(a, b)

    def flow(
        self,
        node: str,
        source: Answer,
        outs: Sequence[tuple[str, int, Sequence[str]]] = (),
        *,
        local: bool = False,
        known: bool = True,
        unreached: Sequence[str] = (),
        **out: Any,
    ) -> None:
        """A flow of the track; `known` where the relay knows that it is the track's."""
        targets = [target for _, _, nodes in outs for target in nodes]
        self.relay(node).add(
            "fib",
            **{"from": source},
            track=TRACK.hash if known else None,
            targets=[*targets, *unreached],
            local=local,
            out=[
                {"peer": peer, "sns": sns, "nodes": list(nodes), "streams": 1, "old": False, **out}
                for peer, sns, nodes in outs
            ],
            unreached=list(unreached),
        )

    def track(self, node: str, **fields: Any) -> Answer:
        """What a relay says of the track."""
        row: Answer = {
            "node": node,
            "at": AT,
            "track": TRACK.hash,
            "namespace": TRACK.namespace,
            "name": TRACK.name,
            "origin": False,
            "publishers": 0,
            "subscribers": 0,
            "ingress": [],
            "egress": [],
            "targets": [],
            "received_bytes": 0,
            "sent_bytes": 0,
            "hops": [],
            **fields,
        }
        self.relay(node).views[f"tracks/{TRACK.hash}"] = row
        return row

    def wants(self, at: str, *sources: str) -> None:
        for source in sources:
            self.relay(at).add(
                "subscribes", source=source, track=TRACK.hash, namespace="demo/t", name="x"
            )

    def relays(self, *without: str) -> Relays:
        asked = {node: api for node, api in self.apis.items() if node not in without}
        return Relays(cast("dict[str, AdminClient]", asked))


def simple_line() -> FakeNet:
    """1:1 publishes, 1:2 passes on, 1:3 has two subscribers."""
    net = FakeNet()
    for node, role in (("1:1", "edge"), ("1:2", "via"), ("1:3", "edge")):
        net.relay(node, role)
    net.link("1:1", "1:2", 2000)
    net.link("1:2", "1:3", 3000)
    net.track(
        "1:1",
        origin=True,
        publishers=1,
        hops=[
            {
                "node": "1:3",
                "peer": "1:2",
                "reason": "fewest hops: 1 against 2 via 1:4",
                "alternates": [path("1:4", "1:4", "1:5", "1:3", srtt_us=9000)],
            }
        ],
    )
    net.track("1:2", ingress=["1:1"], egress=["1:3"])
    net.track("1:3", subscribers=2, ingress=["1:2"])
    net.flow("1:1", {"client": 1}, [("1:2", 7, ["1:3"])])
    net.flow("1:2", {"peer": "1:1", "sns": 7}, [("1:3", 4, ["1:3"])])
    net.flow("1:3", {"peer": "1:2", "sns": 4}, local=True)
    net.wants("1:1", "1:3")
    return net
