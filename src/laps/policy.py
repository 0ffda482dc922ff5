"""What an operator wants of the network, read from `policy.toml`: by relays, and by the planner.

    [plan]
    fan_out_per_region = 2        # copies that an o-relay may send into a region
    default_class = "silver"      # of tracks that no rule gives another

    [class.gold]
    stretch = 1.2                 # times the delay of the fastest path, at most,
    slack_ms = 5                  # and so much on top
    order = 0                     # gold leaves a relay before what has a higher number
    max_loss = 0.01               # a path that loses more, or passes a relay that is fuller, is
    max_load = 0.8                # taken only where no other is acceptable

    [[rule]]                      # the first that matches a track counts
    tracks = "clinic/*"           # a pattern for namespace/name; * stands for slashes too
    class = "gold"
    inside = ["eu"]               # every relay and every transit of its paths is in these regions
    avoid = ["ca"]                # none is in these
    told = ["eu"]                 # who hears of subscribes; without it: those that may carry it
    fan_out_per_region = 4

    [[way]]                       # the Vias that tracks pass, in order; the first that matches
    tracks = "clinic/*"           # without it: of any name
    class = "gold"                # without it: of any class
    from = ["eu"]                 # regions of publishers' relays; without it: all
    to = ["us"]                   # regions of s-relays; without it: all
    vias = ["3:1", "3:2"]

    [[node]]                      # where nodes are, whatever they say themselves
    nodes = ["1:*"]
    region = "eu"

    [[link]]                      # what is between two nodes, or two regions
    between = ["us-east", "us-west"]
    transits = ["ca"]             # where IP carries the packets
    closed = true                 # no data takes it

    [[peering]]                   # the first that matches two nodes counts
    between = ["eu", "ca"]
    allow = false

    [vias]
    nodes = ["eu", "9:*"]         # who may pass data on for others; without it everybody

A track that no rule matches, or whose rule names no class, has the class that came with the track,
or the default. A place is a node (`1:2`), all with a first half (`1:*`), all (`*`), or a region.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from laps.auth.bounds import read_node_pattern
from laps.errors import ConfigError, InvalidText, quote
from laps.files import (
    read_mapping,
    read_row,
    read_rows,
    refuse,
    require_known,
    suggest,
)
from laps.types import MAX_NAME_BYTES, MAX_REGIONS, MAX_VIAS, parse_node_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from laps.auth.bounds import NodePattern
    from laps.types import NodeId

    RegionOf = Callable[[NodeId], str]
    "Where a node is; empty where nobody knows."

_FanOut = Annotated[
    int, Meta(ge=0, le=1_000_000, description="a whole number from 0 (always a Via) to 1000000")
]
_MaybeFanOut = Annotated[
    int | None,
    Meta(
        description="a whole number from 0 (always a Via) to 1000000",
        extra={"parse": lambda value: msgspec.convert(value, _FanOut)},
    ),
]
# A weight counts in thousandths, so that plans compare costs that are whole numbers.
_Weight = Annotated[float, Meta(ge=0, le=1000, description="a number from 0 to 1000")]
# Seven bits of a mask are for Vias, and one for hub and spoke.
_Candidates = Annotated[int, Meta(ge=1, le=7, description="a whole number from 1 to 7")]
_Stretch = Annotated[float, Meta(ge=1, le=1000, description="a number from 1 to 1000")]
_Slack = Annotated[float, Meta(ge=0, le=60_000, description="a number from 0 to 60000")]
_Name = Annotated[str, Meta(min_length=1, description="a name in quotes")]
_MaybeName = Annotated[
    str | None,
    Meta(
        description="the name of a class, in quotes",
        extra={"parse": lambda value: msgspec.convert(value, _Name)},
    ),
]
_Pattern = Annotated[
    str, Meta(min_length=1, description='a pattern for namespace/name, like "clinic/*"')
]
_Regions = Annotated[
    tuple[Annotated[str, Meta(min_length=1)], ...],
    Meta(max_length=MAX_REGIONS, description='a list of up to 64 regions, like ["eu", "us"]'),
]

_Order = Annotated[int, Meta(ge=0, le=3, description="a whole number from 0 (first) to 3")]
_Share = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
_Flag = Annotated[bool, Meta(description="true or false")]
_AnyPattern = Annotated[str, Meta(description='a pattern for namespace/name, like "clinic/*"')]
_Place = Annotated[str, Meta(min_length=1)]
_Nodes = Annotated[
    tuple[_Place, ...], Meta(description='a list of nodes or regions, like ["1:2", "2:*", "eu"]')
]
_Vias = Annotated[
    tuple[_Place, ...],
    Meta(
        max_length=MAX_VIAS,
        description='a list of up to 32 node ids in order, like ["3:1", "3:2"]',
    ),
]
_Pair = Annotated[
    tuple[_Place, _Place], Meta(description='two nodes or regions, like ["1:*", "eu"]')
]

TABLES: Final = ("plan", "class", "rule", "way", "node", "link", "peering", "vias")

MAX_PROFILES: Final = 127
"As many as the profile of a track, a signed byte, can tell apart."


class Goals(msgspec.Struct, frozen=True, kw_only=True):
    """[plan]: what is minimised, and within what."""

    fan_out_per_region: _FanOut = 2
    # A copy that crosses between regions is what costs; one that leaves a publisher's relay is work
    # for it, a tenth as dear.
    long_haul_weight: _Weight = 1.0
    origin_egress_weight: _Weight = 0.1
    candidates: _Candidates = 3
    default_class: _Name = "silver"


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """[class.NAME]: what its tracks bear."""

    stretch: _Stretch = 1.5
    slack_ms: _Slack = 0.0
    order: _Order = 1
    max_loss: _Share = 0.05
    max_load: _Share = 0.9


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """[[rule]]: what holds for tracks with names of a pattern."""

    tracks: _Pattern
    service: _MaybeName = msgspec.field(name="class", default=None)
    inside: _Regions = ()
    avoid: _Regions = ()
    told: _Regions = ()
    fan_out_per_region: _MaybeFanOut = None


class NamedWay(msgspec.Struct, frozen=True, kw_only=True):
    """[[way]]: the Vias that tracks pass."""

    vias: _Vias
    tracks: _AnyPattern = ""
    service: _MaybeName = msgspec.field(name="class", default=None)
    of: _Regions = msgspec.field(name="from", default=())
    to: _Regions = ()


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """[[node]]: where nodes are."""

    nodes: _Nodes
    region: _Name


class Between(msgspec.Struct, frozen=True, kw_only=True):
    """[[link]]: what is between two places."""

    between: _Pair
    transits: _Regions = ()
    closed: _Flag = False


class Peering(msgspec.Struct, frozen=True, kw_only=True):
    """[[peering]]: whether nodes of two places may be peers."""

    between: _Pair
    allow: _Flag


class Vias(msgspec.Struct, frozen=True, kw_only=True):
    """[vias]: who may pass data on for others."""

    nodes: _Nodes = ()


# Conversation hardly bears a detour; what is watched bears some; what is stored bears any.
DEFAULT_CLASSES: Final = {
    "gold": Service(stretch=1.2, slack_ms=5, order=0, max_loss=0.01, max_load=0.8),
    "silver": Service(stretch=1.5, slack_ms=20),
    "bronze": Service(stretch=3.0, slack_ms=100, order=2, max_loss=0.2, max_load=1.0),
}


@dataclass(frozen=True, slots=True)
class Profile:
    """A class of service together with the rules of regions and fan-out: what a track may do."""

    service: str
    """The name of the class."""
    stretch: float
    """How many times the delay of the direct path a track may take, to the thousandth."""
    slack_us: int
    """And so many microseconds on top."""
    fan_out: int
    """Copies that an o-relay may send into a region."""
    inside: tuple[str, ...] = ()
    """Regions that the track stays in; none means anywhere."""
    avoid: tuple[str, ...] = ()
    """Regions that the track stays out of."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The whole file, with what it leaves out."""

    goals: Goals
    services: Mapping[str, Service]
    rules: tuple[Rule, ...] = ()
    ways: tuple[NamedWay, ...] = ()
    nodes: tuple[Placed, ...] = ()
    links: tuple[Between, ...] = ()
    peerings: tuple[Peering, ...] = ()
    vias: tuple[str, ...] = ()

    # -- tracks ------------------------------------------------------------------------------------

    @property
    def binds(self) -> bool:
        """Whether some tracks are bound to regions."""
        return any(rule.inside or rule.avoid for rule in self.rules)

    @property
    def scopes(self) -> bool:
        """Whether some tracks are not heard of everywhere."""
        return self.binds or any(rule.told for rule in self.rules)

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """Every combination that a track may have: by class alone, then those of each rule."""
        names = sorted(self.services, key=lambda name: name != self.goals.default_class)
        found = [self._profile(name, None) for name in names]
        for rule in self.rules:
            of_rule = names if rule.service is None else [rule.service]
            found += [self._profile(name, rule) for name in of_rule]
        return tuple(dict.fromkeys(found))

    def profile_of(self, track: str, service: str | None = None) -> Profile:
        """What holds for a track, by its `namespace/name` and the class that came with it."""
        return self.profile_under(self.rule_of(track), service)

    def rule_of(self, track: str) -> Rule | None:
        """The rule that counts for a track."""
        return next((rule for rule in self.rules if fnmatchcase(track, rule.tracks)), None)

    def way_of(self, track: str, service: str, of: str, to: str) -> tuple[NodeId, ...] | None:
        """The Vias that a track passes from one region to another; None: whatever is best."""
        for way in self.ways:
            if way.tracks and not fnmatchcase(track, way.tracks):
                continue
            if way.service not in (None, service):
                continue
            if (not way.of or of in way.of) and (not way.to or to in way.to):
                return self.vias_of(way)
        return None

    @staticmethod
    def vias_of(way: NamedWay) -> tuple[NodeId, ...]:
        """The nodes that a way passes."""
        return tuple(map(parse_node_id, way.vias))

    def profile_under(self, rule: Rule | None, service: str | None = None) -> Profile:
        """What holds for a track that a rule matches, or none."""
        by_rule = None if rule is None else rule.service
        return self._profile(by_rule or service or self.goals.default_class, rule)

    def _profile(self, name: str, rule: Rule | None) -> Profile:
        service = self.services[name]
        fan_out = None if rule is None else rule.fan_out_per_region
        return Profile(
            service=name,
            stretch=round(service.stretch, 3),
            slack_us=round(service.slack_ms * 1000),
            fan_out=self.goals.fan_out_per_region if fan_out is None else fan_out,
            inside=() if rule is None else tuple(sorted(set(rule.inside))),
            avoid=() if rule is None else tuple(sorted(set(rule.avoid))),
        )

    # -- nodes and links ---------------------------------------------------------------------------

    @property
    def limits(self) -> bool:
        """Whether some links carry no data, or some nodes do so for nobody else."""
        return bool(self.vias or self.peerings or any(link.closed for link in self.links))

    def region_of(self, node_id: NodeId) -> str | None:
        """Where a node is, whatever it says; None: where it says."""
        for placed in self.nodes:
            if any(_holds(place, node_id, _nowhere) for place in placed.nodes):
                return placed.region
        return None

    def may_be_via(self, node_id: NodeId, region_of: RegionOf) -> bool:
        """Whether a node may pass data on for others."""
        return not self.vias or any(_holds(place, node_id, region_of) for place in self.vias)

    def may_peer(self, a: NodeId, b: NodeId, region_of: RegionOf) -> bool:
        """Whether two nodes may be peers."""
        for peering in self.peerings:
            if _are(peering.between, a, b, region_of):
                return peering.allow
        return True

    def is_closed(self, a: NodeId, b: NodeId, region_of: RegionOf) -> bool:
        """Whether no data may take the link between two nodes."""
        return any(link.closed and _are(link.between, a, b, region_of) for link in self.links)

    def transits(self, a: NodeId, b: NodeId, region_of: RegionOf) -> tuple[str, ...]:
        """The regions that packets between two nodes pass, besides those of the two."""
        regions = [link.transits for link in self.links if _are(link.between, a, b, region_of)]
        return tuple(dict.fromkeys(region for some in regions for region in some))

    # -- the file ----------------------------------------------------------------------------------

    def to_mapping(self) -> dict[str, Any]:
        """As the file would have it, with nothing left out."""
        mapping: dict[str, Any] = {
            "plan": msgspec.to_builtins(self.goals),
            "class": {
                name: msgspec.to_builtins(service) for name, service in self.services.items()
            },
            "rule": _rows(self.rules),
        }
        others = {
            "way": _rows(self.ways),
            "node": _rows(self.nodes),
            "link": _rows(self.links),
            "peering": _rows(self.peerings),
            "vias": {"nodes": list(self.vias)} if self.vias else {},
        }
        return mapping | {name: rows for name, rows in others.items() if rows}

    @property
    def digest(self) -> str:
        """What tells one policy from another, whatever their comments and defaults look like."""
        text = json.dumps(self.to_mapping(), sort_keys=True, separators=(",", ":"))
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def regions_named(self) -> Iterator[tuple[str, str]]:
        """Every region that the file names, with the table that does."""
        for number, rule in enumerate(self.rules, start=1):
            for region in dict.fromkeys((*rule.inside, *rule.avoid, *rule.told)):
                yield f"rule[{number}]", region
        for number, way in enumerate(self.ways, start=1):
            yield from ((f"way[{number}]", region) for region in (*way.of, *way.to))
        places = [(f"link[{it}]", link.between) for it, link in enumerate(self.links, start=1)]
        places += [(f"peering[{it}]", one.between) for it, one in enumerate(self.peerings, start=1)]
        for where, named in (*places, ("[vias]", self.vias)):
            yield from ((where, it) for it in dict.fromkeys(named) if not _names_nodes(it))

    def require_regions(self, known: Collection[str], source: str) -> None:
        """ConfigError for a region that no node is in and no link transits, as far as is known."""
        said = {region for link in self.links for region in link.transits}
        known = {*known, *said, *(placed.region for placed in self.nodes)}
        for number, rule in enumerate(self.rules, start=1):
            for key, names in (("inside", rule.inside), ("avoid", rule.avoid)):
                for name in names:
                    if name not in known:
                        there = tuple(sorted(filter(None, known)))
                        problem = (
                            f"{quote(name)} is no region of the network: no node is in it and no "
                            f"link transits it{suggest(name, there)}"
                        )
                        refuse(f"{source}: rule[{number}]", key, list(names), problem)


def load_policy(path: Path) -> Policy:
    """Read a file, or say in one line what to mend in it."""
    return policy_from_mapping(read_mapping(path), str(path))


def policy_from_mapping(mapping: Mapping[str, object], source: str) -> Policy:
    """Read the tables of a parsed file; `source` names it in a refusal."""
    require_known(mapping, TABLES, source)
    goals = read_row(Goals, mapping.get("plan", {}), f"{source}: [plan]")
    if not round(goals.long_haul_weight, 3) and not round(goals.origin_egress_weight, 3):
        problem = "both weights are 0: give one of them, or there is nothing to minimise"
        refuse(f"{source}: [plan]", "long_haul_weight", goals.long_haul_weight, problem)
    services = _services(mapping.get("class", {}), source)
    if goals.default_class not in services:
        problem = f"is no class{suggest(goals.default_class, tuple(services))}"
        refuse(f"{source}: [plan]", "default_class", goals.default_class, problem)
    rules = tuple(read_rows(Rule, mapping, "rule", source))
    for number, rule in enumerate(rules, start=1):
        _check_rule(rule, services, f"{source}: rule[{number}]")
    ways = tuple(read_rows(NamedWay, mapping, "way", source))
    for number, way in enumerate(ways, start=1):
        _check_way(way, services, f"{source}: way[{number}]")
    nodes = tuple(read_rows(Placed, mapping, "node", source))
    for number, placed in enumerate(nodes, start=1):
        _check_places(placed.nodes, f"{source}: node[{number}]", "nodes", regions=False)
    links = tuple(read_rows(Between, mapping, "link", source))
    for number, link in enumerate(links, start=1):
        _check_places(link.between, f"{source}: link[{number}]", "between")
    peerings = tuple(read_rows(Peering, mapping, "peering", source))
    for number, peering in enumerate(peerings, start=1):
        _check_places(peering.between, f"{source}: peering[{number}]", "between")
    vias = read_row(Vias, mapping.get("vias", {}), f"{source}: [vias]").nodes
    _check_places(vias, f"{source}: [vias]", "nodes")
    policy = Policy(goals, services, rules, ways, nodes, links, peerings, vias)
    if len(policy.profiles) > MAX_PROFILES:
        raise ConfigError(
            f"{source}: rules and classes make {len(policy.profiles)} combinations: there can be "
            f"{MAX_PROFILES}; give more rules a class, or the same one"
        )
    return policy


def _services(tables: object, source: str) -> dict[str, Service]:
    if not isinstance(tables, dict):
        refuse(source, "class", tables, "must be tables: [class.gold]")
    services = dict(DEFAULT_CLASSES)
    for name, table in tables.items():
        _check_names((name,), f"{source}: [class]", "class")
        services[name] = read_row(Service, table, f"{source}: [class.{name}]")
    return services


def _check_rule(rule: Rule, services: Mapping[str, Service], where: str) -> None:
    if rule.service is not None and rule.service not in services:
        refuse(where, "class", rule.service, f"is no class{suggest(rule.service, tuple(services))}")
    _check_names(rule.inside, where, "inside")
    _check_names(rule.avoid, where, "avoid")
    both = set(rule.inside) & set(rule.avoid)
    if both:
        problem = f"{quote(min(both))} is in inside too: a track cannot stay in it and out of it"
        refuse(where, "avoid", list(rule.avoid), problem)


def _check_names(names: Collection[str], where: str, key: str) -> None:
    """Other relays are told of these: what they cannot be told, they could not keep to."""
    for name in names:
        try:
            fits = len(name.encode()) <= MAX_NAME_BYTES
        except UnicodeEncodeError:  # JSON can have half a character
            fits = False
        if not fits:
            refuse(where, key, name, f"must be UTF-8 of at most {MAX_NAME_BYTES} bytes")


def _check_way(way: NamedWay, services: Mapping[str, Service], where: str) -> None:
    if way.service is not None and way.service not in services:
        refuse(where, "class", way.service, f"is no class{suggest(way.service, tuple(services))}")
    for via in way.vias:
        try:
            parse_node_id(via)
        except InvalidText as error:
            refuse(where, "vias", via, error.problem)
    if len(set(way.vias)) != len(way.vias):
        refuse(where, "vias", list(way.vias), "names a node twice: data would turn back to it")


def _check_places(places: Collection[str], where: str, key: str, *, regions: bool = True) -> None:
    for place in places:
        if regions and not _names_nodes(place):
            continue
        try:
            read_node_pattern(place)
        except InvalidText as error:
            refuse(where, key, place, error.problem)


# --- places ----------------------------------------------------------------------------------


def _names_nodes(place: str) -> bool:
    return place == "*" or ":" in place


# A policy has places by the dozen.
@lru_cache(maxsize=1024)
def _pattern(place: str) -> NodePattern | None:
    """The nodes that a place names; None for a region."""
    return read_node_pattern(place) if _names_nodes(place) else None


def _holds(place: str, node_id: NodeId, region_of: RegionOf) -> bool:
    """Whether a node is in a place."""
    pattern = _pattern(place)
    return region_of(node_id) == place if pattern is None else pattern.has(node_id)


def _are(between: tuple[str, str], a: NodeId, b: NodeId, region_of: RegionOf) -> bool:
    """Whether of two nodes one is in one place and the other in the other, either way round."""
    return any(
        _holds(between[0], one, region_of) and _holds(between[1], other, region_of)
        for one, other in ((a, b), (b, a))
    )


def _nowhere(_: NodeId) -> str:
    return ""


def _rows(rows: Collection[msgspec.Struct]) -> list[dict[str, Any]]:
    """The tables of one name, without what was not given."""
    tables: list[dict[str, Any]] = [msgspec.to_builtins(row) for row in rows]
    return [{key: it for key, it in table.items() if it is not None} for table in tables]
