"""What came of a lab: a mapping for programs, words for people, and whether all was well."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from laps.lab.traffic import percentile
from laps.lab.watching import tree

if TYPE_CHECKING:
    from laps.lab.running import Lab
    from laps.lab.traffic import Reader


def summary(lab: Lab) -> dict[str, Any]:
    """Everything there is to know of a lab, for JSON."""
    return {
        "at": time.time(),
        "seconds": round(time.time() - lab.began, 3),
        "phase": lab.phase,
        "url": lab.url or None,
        "dashboard": lab.dashboard or None,
        "relays": [_relay(lab, name) for name in lab.relays],
        "links": _links(lab),
        "tracks": [_track(lab, number) for number in range(len(lab.writers))],
        "subscribers": [_subscriber(lab, reader) for reader in lab.readers],
        "faults": [{"at": fault.at, "what": fault.words} for fault in lab.faults],
        "events": [
            {
                "at": event.at,
                "node": event.node,
                "event": event.event,
                "subject": event.subject,
                "detail": event.detail,
                "reason": event.reason,
            }
            for event in lab.watch.events
            if event.is_news
        ],
        "problems": problems(lab),
    }


def problems(lab: Lab) -> list[str]:
    """What was not received, by whom; empty: all was well."""
    found: list[str] = []
    if lab.flowing > time.time():
        return found  # it was stopped before anything counted
    for writer in lab.writers:
        if not writer.written:
            why = writer.error or "its relay takes nothing"
            found.append(f"{writer.spec.track}: nothing was published at {writer.spec.node}: {why}")
    for reader in lab.readers:
        account, who = reader.account, f"subscriber of {reader.spec}"
        written = lab.written(reader.spec.track)
        if account.first is None:
            if written:
                found.append(f"{who}: received nothing{_because(reader)}")
            continue
        if runs := lab.lost(reader):
            count = sum(map(len, runs))
            numbers = ", ".join(_run(run) for run in runs[:5])
            more = ", …" if len(runs) > 5 else ""
            wanted = (written if lab.over else account.following) - account.first
            what = f"lost {count} of {wanted} objects, numbers {numbers}{more}"
            if account.fetched:
                what += f"; {account.fetched} of them could be fetched afterwards"
            found.append(f"{who}: {what}{_because(reader)}")
        if account.duplicates:
            found.append(f"{who}: {account.duplicates} objects came twice")
        if account.late:
            found.append(f"{who}: {account.late} objects came out of order")
    return found


def _because(reader: Reader) -> str:
    return f" ({reader.error})" if reader.error else ""


def _run(run: range) -> str:
    return str(run.start) if len(run) == 1 else f"{run.start}-{run.stop - 1}"


def _relay(lab: Lab, name: str) -> dict[str, Any]:
    relay, sight = lab.relays[name], lab.watch.sights[name]
    node = relay.node
    return {
        "node": name,
        "role": node.type,
        "region": node.region,
        "state": relay.state,
        "admin": relay.admin,
        "clients_address": relay.url("moqt").partition("//")[2],
        "pid": relay.process.pid if relay.process is not None else None,
        "load": round(sight.load, 4),
        "clients": sight.clients,
        "peers": len(sight.peers),
    }


def _links(lab: Lab) -> list[dict[str, Any]]:
    made = []
    for a, b, link in lab.links:
        sight = lab.watch.sights[a]
        row = next((peer for peer in sight.peers if peer.node == b), None)
        back = lab.watch.sights[b].rates
        ways = [
            (near.ways[far.address])
            for near, far in ((lab.relays[a], lab.relays[b]), (lab.relays[b], lab.relays[a]))
            if far.address in near.ways
        ]
        made.append(
            {
                "a": a,
                "b": b,
                "mode": link.mode.name.lower(),
                "delay_ms": ways[0].delay_ms,
                "drop": ways[0].drop,
                "up": row is not None,
                "srtt_us": row.srtt_us if row else None,
                "sent_packets": row.sent_packets if row else 0,
                "lost_packets": row.lost_packets if row else 0,
                "a_to_b_bps": round(sight.rates.get(b, 0.0)),
                "b_to_a_bps": round(back.get(a, 0.0)),
            }
        )
    return made


def _track(lab: Lab, number: int) -> dict[str, Any]:
    writer = lab.writers[number]
    track = writer.spec.track
    hops = lab.routes.get(track, [])
    return {
        "track": track,
        "kind": writer.spec.kind,
        "publisher": writer.spec.node,
        "protocol": writer.spec.protocol,
        "written": writer.written,
        "subscribers": sum(reader.spec.track == track for reader in lab.readers),
        "copies": [
            {"from": near, "to": far, "copies": hops.count((near, far))}
            for near, far in sorted(set(hops))
        ],
        "way": tree(hops, writer.spec.node),
    }


def _subscriber(lab: Lab, reader: Reader) -> dict[str, Any]:
    account = reader.account
    p50, p99 = percentile(reader.latencies, 0.5), percentile(reader.latencies, 0.99)
    lost = lab.lost(reader)
    return {
        "track": reader.spec.track,
        "node": reader.spec.node,
        "protocol": reader.spec.protocol,
        "first": account.first,
        "received": account.received,
        "bytes": account.bytes,
        "lost": sum(map(len, lost)),
        "fetched": account.fetched,
        "lost_numbers": [[run.start, run.stop - 1] for run in lost],
        "duplicates": account.duplicates,
        "out_of_order": account.late,
        "latency_p50_ms": None if p50 is None else round(1000 * p50, 3),
        "latency_p99_ms": None if p99 is None else round(1000 * p99, 3),
    }
