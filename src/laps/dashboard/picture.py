"""The network as a whole, put together from what each relay says. No clock, no sockets."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from laps.admin.schema.network import KnownNode, Peer
    from laps.admin.schema.relay import Node
    from laps.dashboard.relays import Relay

    Row = dict[str, Any]


class Topology:
    """Nodes and links. It remembers the links of relays that died, to draw them dashed."""

    def __init__(self) -> None:
        self._links: dict[str, Row] = {}

    def nodes(self, relays: Sequence[Relay]) -> list[Row]:
        """A row for each node: those that are asked, then those that others only tell of."""
        rows: dict[str, Row] = {}
        # Where two addresses are one node, that which answers counts.
        for relay in sorted(relays, key=lambda relay: relay.answers):
            if relay.node is not None:
                rows[relay.id] = _asked(relay, relay.node)
        for known in _told(relays):
            if known.node not in rows:
                rows[known.node] = _place(known) | {"state": "unasked"}
        for relay in relays:
            for peer in relay.peers if relay.answers else ():
                if peer.node not in rows:  # a Stub is known to its Edge alone
                    rows[peer.node] = {"id": peer.node, "role": peer.role, "state": "unasked"}
        return sorted(rows.values(), key=lambda row: _order(row["id"]))

    def links(self, relays: Sequence[Relay]) -> list[Row]:
        """A row for each pair of nodes that are peers, or were when one of them died."""
        live = {relay.id: relay for relay in relays if relay.answers}
        dead = {relay.id for relay in relays if not relay.answers} - live.keys() - {""}
        rows: dict[str, Row] = {}
        for relay in live.values():
            for peer in relay.peers:
                self._add_end(rows, relay, peer)
        for row in rows.values():
            if row["a"] in dead or row["b"] in dead:
                row |= {"state": "dead", "ab_bps": 0, "ba_bps": 0}
        for key, row in self._links.items():
            if key not in rows and (row["a"] in dead or row["b"] in dead):
                rows[key] = row | {"state": "dead", "ab_bps": 0, "ba_bps": 0}
        self._links = dict(rows)
        for a, b in _hops(relays):
            if a not in live and b not in live:
                rows.setdefault(_key(a, b), _link(a, b) | {"state": "heard"})
        return sorted(rows.values(), key=lambda row: row["id"])

    @staticmethod
    def _add_end(rows: dict[str, Row], relay: Relay, peer: Peer) -> None:
        row = rows.setdefault(_key(relay.id, peer.node), _link(relay.id, peer.node))
        out, back = ("ab_bps", "ba_bps") if row["a"] == relay.id else ("ba_bps", "ab_bps")
        rate = relay.rates.get
        row[out] = max(row[out], round(8 * rate(("sent", peer.node))))
        row[back] = max(row[back], round(8 * rate(("received", peer.node))))
        if peer.srtt_us:
            row["srtt_us"] = min(row["srtt_us"] or peer.srtt_us, peer.srtt_us)
        row["packets"] += rate(("packets", peer.node))
        row["lost"] += rate(("lost", peer.node))
        row["queue_bytes"] = max(row["queue_bytes"], peer.queue_bytes)
        row["on_demand"] = row["on_demand"] or peer.on_demand
        if row["mode"] != "both":
            same = row["mode"] in ("", peer.mode)
            row["mode"] = peer.mode if same else "both"


def _asked(relay: Relay, node: Node) -> Row:
    return _place(node) | {
        "state": "live" if relay.answers else "dead",
        "since": relay.since,
        "words": relay.words,
        "url": relay.url,
        "version": node.version,
        "draining": node.draining,
        "clients": node.sizes.get("clients"),
        "measured": relay.answers and relay.rates.known,
        "sent_bps": round(8 * relay.rates.get("sent")) if relay.answers else 0,
        "received_bps": round(8 * relay.rates.get("received")) if relay.answers else 0,
        "delivered_bps": round(8 * relay.sent_to_clients()) if relay.answers else 0,
    }


def _place(node: Node | KnownNode) -> Row:
    """Who and where. A relay whose operator gave no place says 0, 0, where there is only sea."""
    placed = (node.latitude, node.longitude) != (0.0, 0.0)
    return {
        "id": node.node,
        "role": node.role,
        "region": node.region,
        "latitude": node.latitude if placed else None,
        "longitude": node.longitude if placed else None,
    }


def _told(relays: Iterable[Relay]) -> list[KnownNode]:
    return [known for relay in relays if relay.answers for known in relay.nodes]


def _hops(relays: Iterable[Relay]) -> set[tuple[str, str]]:
    """The links between others, as the paths of relays tell of them."""
    pairs: set[tuple[str, str]] = set()
    for known in _told(relays):
        hops = known.best.hops if known.best is not None else []
        pairs.update((a, b) for a, b in pairwise(hops) if a != b)
    return pairs


def _link(one: str, other: str) -> Row:
    a, b = sorted((one, other), key=_order)
    zero: Row = {"ab_bps": 0, "ba_bps": 0, "packets": 0.0, "lost": 0.0, "queue_bytes": 0}
    words: Row = {"state": "live", "mode": "", "on_demand": ""}
    return {"id": f"{a} {b}", "a": a, "b": b, "srtt_us": None} | words | zero


def _key(one: str, other: str) -> str:
    return " ".join(sorted((one, other), key=_order))


def _order(node: str) -> tuple[tuple[int, int | str], ...]:
    """Node ids as people count: 1:2 comes before 1:10."""
    parts = node.replace(".", ":").split(":")
    return tuple(
        (0, int(part)) if part.isdecimal() and len(part) < 20 else (1, part) for part in parts
    )


# -- tracks ----------------------------------------------------------------------------------------


# Where relays publish what they say of themselves: tracks like others, and seldom looked for.
OWN = "laps/telemetry"


def tracks_of(relays: Sequence[Relay]) -> list[Row]:
    """A row for each track anywhere in the network, the fastest first."""
    rows: dict[str, Row] = {}
    for relay in relays:
        for key, track in relay.tracks.items():
            row = rows.get(key)
            if row is None:
                row = rows[key] = {"track": key, "namespace": "", "name": "", "service": ""}
                row |= {"rate_bps": 0, "publishers": 0, "subscribers": 0}
                row |= {"relays": 0, "lost_objects": 0}
            if track.name or track.namespace:
                row["namespace"], row["name"] = track.namespace, track.name
            row["service"] = row["service"] or track.service
            # Each relay on the way receives it once: the fastest is what its publisher sends.
            row["rate_bps"] = max(row["rate_bps"], round(8 * relay.track_rates.get(key)))
            row["publishers"] += track.publishers
            row["subscribers"] += track.subscribers
            row["relays"] += 1
            row["lost_objects"] += track.lost_objects
    for key, _ in _stub_copies(relays):
        rows[key]["subscribers"] = max(0, rows[key]["subscribers"] - 1)
    return sorted(rows.values(), key=_fastest)


def _stub_copies(relays: Iterable[Relay]) -> list[tuple[str, str]]:
    """Tracks that a Stub takes from an Edge, and the Edge: there it counts as a subscriber."""
    return [
        (key, edge)
        for relay in relays
        if relay.node is not None and relay.node.role == "stub"
        for key, track in relay.tracks.items()
        for edge in track.ingress
    ]


def _fastest(row: Row) -> tuple[int, str, str, str]:
    return -row["rate_bps"], row["namespace"], row["name"], row["track"]


def matching(tracks: Iterable[Row], words: str) -> list[Row]:
    """The tracks that have each of the words in their name or hash."""
    wanted = words.casefold().split()
    if not wanted:
        return list(tracks)
    return [
        row
        for row in tracks
        for text in [f"{row['namespace']} {row['name']} {row['track']}".casefold()]
        if all(word in text for word in wanted)
    ]


def tree_of(relays: Sequence[Relay], track: str) -> Row:
    """The way of a track now: from where to where it is copied, and where it is published and read.

    A copy counts if the relay that sends it says so, or the one that receives it: of two ends one
    may not be asked.
    """
    held = [(relay.id, seen) for relay in relays if (seen := relay.tracks.get(track)) is not None]
    # Who has announced a namespace above it stands ready to send it, and has nothing to send.
    idle = {node for node, seen in held if not (seen.received_bytes or seen.ingress)}
    if len(idle) == len(held):
        idle = set()  # no relay has anything yet: those that may are all there is to show
    copies: dict[tuple[str, str], int] = {}
    nodes: dict[str, Row] = {}
    for node, seen in held:
        if node in idle and not seen.subscribers:
            continue
        nodes[node] = {
            "id": node,
            "origin": seen.origin,
            "publishers": seen.publishers,
            "subscribers": seen.subscribers,
        }
        for peer in set(() if node in idle else seen.egress):
            copies[node, peer] = seen.egress.count(peer)
        for peer in set(seen.ingress) - idle:
            copies.setdefault((peer, node), 1)
    for key, edge in _stub_copies(relays):
        if key == track and edge in nodes:
            nodes[edge]["subscribers"] = max(0, nodes[edge]["subscribers"] - 1)
    for pair in copies:
        for node in pair:
            empty = {"id": node, "origin": False, "publishers": 0, "subscribers": 0}
            nodes.setdefault(node, empty)
    links = [{"from": a, "to": b, "copies": count} for (a, b), count in sorted(copies.items())]
    return {"track": track, "nodes": sorted(nodes.values(), key=lambda n: n["id"]), "links": links}
