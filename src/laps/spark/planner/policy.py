"""What an operator wants of a plan, read from `policy.toml`.

    [plan]
    fan_out_per_region = 2        # copies that an o-relay may send into a region
    default_class = "silver"      # of tracks that no rule gives another

    [class.gold]
    stretch = 1.2                 # times the delay of the direct path, at most,
    slack_ms = 5                  # and so much on top

    [[rule]]                      # the first that matches a track counts
    tracks = "clinic/*"           # a pattern for namespace/name; * stands for slashes too
    class = "gold"
    inside = ["eu"]               # every relay and every transit of its paths is in these regions
    avoid = ["ca"]                # none is in these
    fan_out_per_region = 4

A track that no rule matches, or whose rule names no class, has the class that came with the track,
or the default.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from laps.errors import ConfigError, quote
from laps.files import (
    read_mapping,
    read_row,
    read_rows,
    refuse,
    require_known,
    suggest,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

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
    Meta(description='a list of regions, like ["eu", "us"]'),
]

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
    """[class.NAME]: how much longer than the direct path a detour may be."""

    stretch: _Stretch = 1.5
    slack_ms: _Slack = 0.0


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """[[rule]]: what holds for tracks with names of a pattern."""

    tracks: _Pattern
    service: _MaybeName = msgspec.field(name="class", default=None)
    inside: _Regions = ()
    avoid: _Regions = ()
    fan_out_per_region: _MaybeFanOut = None


# Conversation hardly bears a detour; what is watched bears some; what is stored bears any.
DEFAULT_CLASSES: Final = {
    "gold": Service(stretch=1.2, slack_ms=5),
    "silver": Service(stretch=1.5, slack_ms=20),
    "bronze": Service(stretch=3.0, slack_ms=100),
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
        rule = next((rule for rule in self.rules if fnmatchcase(track, rule.tracks)), None)
        return self.profile_under(rule, service)

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

    def to_mapping(self) -> dict[str, Any]:
        """As the file would have it, with nothing left out."""
        rules: list[dict[str, Any]] = [msgspec.to_builtins(rule) for rule in self.rules]
        for rule in rules:
            for key in ("class", "fan_out_per_region"):
                if rule[key] is None:
                    del rule[key]
        return {
            "plan": msgspec.to_builtins(self.goals),
            "class": {
                name: msgspec.to_builtins(service) for name, service in self.services.items()
            },
            "rule": rules,
        }

    @property
    def digest(self) -> str:
        """What tells one policy from another, whatever their comments and defaults look like."""
        text = json.dumps(self.to_mapping(), sort_keys=True, separators=(",", ":"))
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def require_regions(self, known: Collection[str], source: str) -> None:
        """ConfigError for a region that no node is in and no link transits."""
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
    require_known(mapping, ("plan", "class", "rule"), source)
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
    policy = Policy(goals, services, rules)
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
        services[name] = read_row(Service, table, f"{source}: [class.{name}]")
    return services


def _check_rule(rule: Rule, services: Mapping[str, Service], where: str) -> None:
    if rule.service is not None and rule.service not in services:
        refuse(where, "class", rule.service, f"is no class{suggest(rule.service, tuple(services))}")
    both = set(rule.inside) & set(rule.avoid)
    if both:
        problem = f"{quote(min(both))} is in inside too: a track cannot stay in it and out of it"
        refuse(where, "avoid", list(rule.avoid), problem)
