"""What every pair of clients is put through."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from interop.clients import Client, Start

# The objects of each group. aiomoqt waits for more than it needs where an object comes in parts.
SMALL = (("first", "second"), ("third",), ("fourth", "fifth", "last"))
LARGE = (*SMALL, ("x" * 20_000, "after it"))
TRACK = "chat"


class End(Protocol):
    """Where a client connects: a relay, perhaps with a token in its URL."""

    @property
    def fingerprint(self) -> str:
        """The hash of its certificate."""

    def url(self, transport: str) -> str:
        """`raw` or `web`."""


def a_track_passes(
    publisher: Start,
    subscriber: Start,
    ends: tuple[End, End],
    namespace: str,
    transports: tuple[str, str] = ("web", "web"),
    groups: Sequence[Sequence[str]] = LARGE,
    **settings: str,
) -> tuple[Client, Client]:
    """One publishes, the other subscribes and gets every object, group for group."""
    here, there = ends
    what = {"namespace": namespace, "track": TRACK, "groups": json.dumps(groups), **settings}
    source = publisher("publish", here.url(transports[0]), fingerprint=here.fingerprint, **what)
    source.until("announced")
    sink = subscriber("subscribe", there.url(transports[1]), fingerprint=there.fingerprint, **what)
    sink.until("subscribed")
    source.until("demand")
    for group_id, payloads in enumerate(groups):
        source.tell("go")
        came = [sink.until("object") for _ in payloads]
        assert [(e["group"], e["payload"]) for e in came] == [(group_id, p) for p in payloads]
    source.tell("finish")
    sink.until("end")
    return source, sink
