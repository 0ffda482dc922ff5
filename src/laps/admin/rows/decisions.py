"""What a relay decides by, and what it has decided: policy, probes, sessions on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.admin.rows.sources import name_of_track
from laps.admin.rows.table import Table
from laps.admin.rows.texts import node_text, node_texts
from laps.admin.schema.decisions import (
    Decision,
    Demand,
    PolicyLine,
    PolicyLines,
    Probe,
    Probes,
)
from laps.coordinates import distance_ms
from laps.names import hash_text, track_texts
from laps.relay.on_demand import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from laps.admin.rows.relay import Wall
    from laps.net.runner import Runner
    from laps.policy import Policy
    from laps.relay.on_demand import Session
    from laps.relay.probing import Probed
    from laps.relay.relay import Relay
    from laps.types import TrackKey

# -- policy ----------------------------------------------------------------------------------------


def policy(runner: Runner, wall: Wall) -> PolicyLines:
    """Where the policy comes from; `policy_lines` are the rows."""
    relay, in_force = runner.relay, runner.relay.weighing.policy.policy
    return PolicyLines(
        node=node_text(relay.id),
        at=wall.now,
        source=runner.policies.source,
        digest="" if in_force is None else in_force.digest,
        kept_away_subscribes=relay.counters.kept_away_subscribes,
    )


def policy_lines(relay: Relay) -> Table[PolicyLine]:
    """The policy in force, and after it what is refused now."""
    in_force = relay.weighing.policy.policy
    lines = [] if in_force is None else list(_lines(in_force))
    lines += _refused(relay)
    return Table.of(lines, lambda line: line)


def _lines(policy: Policy) -> Iterator[PolicyLine]:
    goals = policy.goals
    yield PolicyLine(
        kind="plan",
        what="all tracks",
        holds=f"class {goals.default_class}, fan-out {goals.fan_out_per_region} a region",
    )
    for name, service in policy.services.items():
        bounds = f"{service.stretch:g} times the fastest way and {service.slack_ms:g} ms"
        holds = f"order {service.order}; at most {bounds}; ways that lose at most "
        holds += f"{service.max_loss:.3g} and are at most {service.max_load:.3g} full"
        yield PolicyLine(kind="class", what=name, holds=holds)
    for rule in policy.rules:
        words = [
            f"class {rule.service}" if rule.service else "",
            _places("inside", rule.inside),
            _places("stays out of", rule.avoid),
            _places("told in", rule.told),
            "" if (most := rule.fan_out_per_region) is None else f"fan-out {most} a region",
        ]
        yield PolicyLine(kind="rule", what=rule.tracks, holds=_said(words))
    for way in policy.ways:
        which = [
            way.tracks,
            f"class {way.service}" if way.service else "",
            _places("from", way.of),
            _places("to", way.to),
        ]
        yield PolicyLine(kind="way", what=_said(which), holds=f"by {' '.join(way.vias)}")
    for placed in policy.nodes:
        yield PolicyLine(kind="node", what=" ".join(placed.nodes), holds=f"in {placed.region}")
    for link in policy.links:
        words = [_places("passes", link.transits), "closed" if link.closed else ""]
        yield PolicyLine(kind="link", what=" ".join(link.between), holds=_said(words))
    for peering in policy.peerings:
        holds = "may peer" if peering.allow else "may not peer"
        yield PolicyLine(kind="peering", what=" ".join(peering.between), holds=holds)
    if policy.vias:
        holds = f"may pass data on: {' '.join(policy.vias)}"
        yield PolicyLine(kind="vias", what="all tracks", holds=holds)


def _refused(relay: Relay) -> Iterator[PolicyLine]:
    for (key, node_id), reason in relay.refusals.told.items():
        what = f"{_track_text(relay, key)} to {node_text(node_id)}"
        yield PolicyLine(kind="refused", what=what, holds=reason)
    for key, node_id, reason in relay.refusals.all_reasons():
        what = f"{_track_text(relay, key)} of {node_text(node_id)}"
        yield PolicyLine(kind="refused_by", what=what, holds=reason)


def _track_text(relay: Relay, key: TrackKey) -> str:
    name = name_of_track(relay, key, relay.tracks.get(key))
    return hash_text(key) if name is None else " ".join(track_texts(name))


def _places(words: str, names: Iterable[str]) -> str:
    said = " or ".join(names)
    return said and f"{words} {said}"


def _said(words: Iterable[str]) -> str:
    return ", ".join(filter(None, words)) or "any"


# -- probes ----------------------------------------------------------------------------------------


def probes(relay: Relay, wall: Wall) -> Probes:
    """Where this relay is by round trips; `probe_rows` are the rows."""
    own = relay.places.own
    place, known = own.place, own.samples > 0
    return Probes(
        node=node_text(relay.id),
        at=wall.now,
        place=[round(it, 3) for it in (place.x_ms, place.y_ms, place.z_ms, place.height_ms)]
        if known
        else None,
        error=round(place.error, 3),
    )


def probe_rows(relay: Relay, wall: Wall) -> Table[Probe]:
    """The nodes that are probed."""

    def row(it: Probed) -> Probe | None:
        places, info = relay.places, relay.nodes.info(it.node_id)
        measured = relay.probing.of(it.node_id)
        there = places.coordinates(it.node_id)
        return Probe(
            node=node_text(it.node_id),
            role="" if info is None else info.type.name.lower(),
            contact=it.contact,
            rtt_us=None if it.rtt_ms is None else round(1000 * it.rtt_ms),
            loss=round(it.loss, 4),
            width_bps=0 if measured is None else measured.bandwidth_bps,
            estimate_us=None
            if there is None
            else round(1000 * distance_ms(places.own.place, there)),
            probed_at=None if it.probed_at is None else wall(it.probed_at),
            unanswered=it.unanswered,
            doubted=node_texts(places.doubted(it.node_id)),
        )

    return Table.of(list(relay.probing), row)


# -- demand ----------------------------------------------------------------------------------------


def demand(relay: Relay, wall: Wall) -> Demand:
    """How many sessions there are on demand; `decisions` are the rows."""
    return Demand(
        node=node_text(relay.id),
        at=wall.now,
        sessions=len(relay.demand.sessions.link_ids),
        most_sessions=relay.demand.sessions.most,
        spared_copies=relay.demand.spared_copies,
    )


def decisions(relay: Relay, wall: Wall) -> Table[Decision]:
    """The sessions, and after them the Vias that spare copies."""
    found = [_session(session, wall) for session in relay.demand.sessions]
    for (region, via), count in sorted(relay.demand.aggregating().items()):
        info = relay.nodes.info(via)
        found.append(
            Decision(
                kind="via",
                node=node_text(via),
                contact="" if info is None else info.contact,
                state="used",
                region=region,
                flows=count,
                why=f"one copy into {region}, and it sends it on",
            )
        )
    return Table.of(found, lambda row: row)


def _session(session: Session, wall: Wall) -> Decision:
    need, why = session.need, session.need.why
    waits = session.state is State.WAITING
    if waits:
        why = f"{session.said}; it was for: {why}"
    return Decision(
        kind="session",
        node="" if need.node_id is None else node_text(need.node_id),
        contact=need.contact,
        state=session.state.value,
        flows=need.gain,
        since=wall(session.since),
        again_at=wall(session.again_at) if waits else 0.0,
        why=why,
    )
