"""The policy that a relay follows, with what it knows of the network: which ways a track may take.

`laps.policy` has what an operator wrote. Here it meets the nodes: where each is, by the policy or
by its own word; and a question is answered with the reason against, or None. What is not known is
not allowed to a track that is bound to regions: a node that has not said where it is might be
anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.names import bytes_text, namespace_text
from laps.routing.terms import FREE, Terms
from laps.types import format_node_id

if TYPE_CHECKING:
    from collections.abc import Collection

    from laps.infobase.metrics import Metrics
    from laps.policy import Policy
    from laps.routing.terms import Way
    from laps.types import NodeId, TrackName

# A relay names its tracks again and again; each takes some hundred bytes here.
MOST_NAMED: Final = 10_000
# Pairs of nodes of which it was asked what lies between.
MOST_PAIRS: Final = 100_000

# Plans and policies themselves reach every relay, or none could be mended.
STEERING: Final = (b"laps",)

UNKNOWN: Final = Terms(is_unknown=True)
"""Of a track whose name is not known, where some tracks are bound to regions."""


class PolicyInForce:
    """What the policy says of tracks, nodes and links; without a policy everything is allowed."""

    def __init__(self, self_id: NodeId, region: str, metrics: Metrics) -> None:
        """`region` is our own, and may be empty."""
        self.policy: Policy | None = None
        self.version = 0
        "Goes up with each policy, and when a node is in another region."
        self.binds = False
        "Whether some tracks are bound to regions."
        self.scopes = False
        "Whether some tracks are not heard of everywhere."
        self.limits = False
        "Whether some nodes or links may not carry any track, or not for others."
        self._self_id = self_id
        self._region = region
        self._metrics = metrics
        self._terms: dict[TrackName, Terms] = {}
        self._between: dict[tuple[NodeId, NodeId], tuple[str | None, tuple[str, ...]]] = {}

    def follow(self, policy: Policy | None) -> None:
        """Another policy is in force, or none."""
        self.policy = policy
        self.version += 1
        self._terms.clear()
        self._between.clear()
        self.binds = policy is not None and policy.binds
        self.scopes = policy is not None and policy.scopes
        self.limits = policy is not None and policy.limits

    def moved(self) -> None:
        """A node is in another region than before."""
        self.version += 1
        self._between.clear()

    # -- tracks ------------------------------------------------------------------------------------

    def terms(self, name: TrackName | None) -> Terms:
        """What holds for a track; None: its name is not known."""
        policy = self.policy
        if policy is None:
            return FREE
        if name is None:
            return UNKNOWN if self.scopes else FREE
        if name.namespace == STEERING:
            return FREE
        if (known := self._terms.get(name)) is None:
            if len(self._terms) >= MOST_NAMED:
                self._terms.clear()
            known = self._terms[name] = terms_of(policy, track_pattern_text(name))
        return known

    def named_way(self, name: TrackName | None, terms: Terms, node_id: NodeId) -> Way | None:
        """The Vias that the policy names for a track on its way to a node, in order.

        A relay that is one of them itself is past those before it, and the way ends at the node.
        """
        if self.policy is None or name is None:
            return None
        regions = self.region_of(self._self_id), self.region_of(node_id)
        way = self.policy.way_of(track_pattern_text(name), terms.service, *regions)
        if way is not None and self._self_id in way:
            way = way[way.index(self._self_id) + 1 :] or None
        if way is not None and node_id in way:
            way = way[: way.index(node_id)]
        return way

    # -- nodes and links ---------------------------------------------------------------------------

    def region_of(self, node_id: NodeId) -> str:
        """Where a node is: by the policy, or else by its own word; empty where nobody says."""
        if self.policy is not None and (said := self.policy.region_of(node_id)) is not None:
            return said
        if node_id == self._self_id:
            return self._region
        metrics = self._metrics.get(node_id)
        return "" if metrics is None else metrics.region

    def may_peer(self, node_id: NodeId) -> bool:
        """Whether a node may be a peer of this one."""
        return self.against_peer(node_id) is None

    def against_peer(self, node_id: NodeId, region: str = "") -> str | None:
        """Why a node may not be a peer of this one; `region` is what it has proved of itself."""
        policy = self.policy
        if policy is None:
            return None

        def region_of(other: NodeId) -> str:
            return self.region_of(other) or (region if other == node_id else "")

        if policy.may_peer(self._self_id, node_id, region_of):
            return None
        return f"policy lets {_pair(self._self_id, node_id)} not peer"

    def may_be_via(self, node_id: NodeId) -> bool:
        """Whether a node may pass data on for others."""
        return self.policy is None or self.policy.may_be_via(node_id, self.region_of)

    def against_node(self, terms: Terms, node_id: NodeId) -> str | None:
        """Why a track may not go to a node; None if it may."""
        if not (terms.inside or terms.avoid):
            return "the name of the track is not known" if terms.is_unknown else None
        region, who = self.region_of(node_id), format_node_id(node_id)
        if not region:
            return f"where {who} is is not known, and {_bound(terms)}"
        if terms.inside and region not in terms.inside:
            return f"{who} is in {region}, and {_bound(terms)}"
        if region in terms.avoid:
            return f"{who} is in {region}, and {_bound(terms)}"
        return None

    def against_link(self, terms: Terms, a: NodeId, b: NodeId) -> str | None:
        """Why a track may not take the link between two nodes; None if it may."""
        if self.policy is None:
            return None
        closed, transits = self._link(a, b)
        if closed is not None:
            return closed
        for region in transits if terms.inside or terms.avoid else ():
            if region in terms.avoid or (terms.inside and region not in terms.inside):
                return f"{_pair(a, b)} passes {region}, and {_bound(terms)}"
        return None

    def against_via(self, node_id: NodeId) -> str | None:
        """Why a node may not pass data on for others; None if it may."""
        if self.limits and not self.may_be_via(node_id):
            return f"{format_node_id(node_id)} is none of the Vias that policy names"
        return None

    def against_way(self, terms: Terms, way: Way) -> str | None:
        """Why a track may not take a way from here; None if it may."""
        if not (terms.is_bound or self.limits):
            return None
        if (against := self.against_node(terms, self._self_id)) is not None:
            return against
        here = self._self_id
        for number, node_id in enumerate(way, start=1):
            against = self.against_node(terms, node_id) or self.against_link(terms, here, node_id)
            if against is None and number < len(way):
                against = self.against_via(node_id)
            if against is not None:
                return against
            here = node_id
        return None

    # -- who hears of subscribes -------------------------------------------------------------------

    def may_be_told(self, terms: Terms, node_id: NodeId) -> bool:
        """Whether a relay may hear who subscribes to a track.

        A relay whose place is not known hears nothing of tracks that are bound.
        """
        return is_told(terms, self.region_of(node_id))

    # -- how it works ------------------------------------------------------------------------------

    def _link(self, a: NodeId, b: NodeId) -> tuple[str | None, tuple[str, ...]]:
        known = self._between.get((a, b))
        policy = self.policy
        if known is not None or policy is None:
            return known or (None, ())
        closed = None
        if policy.is_closed(a, b, self.region_of):
            closed = f"policy closes {_pair(a, b)}"
        elif not policy.may_peer(a, b, self.region_of):
            closed = f"policy lets {_pair(a, b)} not peer"
        if len(self._between) >= MOST_PAIRS:
            self._between.clear()
        found = self._between[a, b] = closed, policy.transits(a, b, self.region_of)
        return found


def track_pattern_text(name: TrackName) -> str:
    """A track as the patterns of policies name it."""
    return f"{namespace_text(name.namespace)}/{bytes_text(name.name)}"


def terms_of(policy: Policy, track: str) -> Terms:
    """What a policy says of a track, by its `namespace/name`."""
    rule = policy.rule_of(track)
    profile = policy.profile_under(rule)
    service = policy.services[profile.service]
    return Terms(
        service=profile.service,
        order=service.order,
        inside=profile.inside,
        avoid=profile.avoid,
        told=None if rule is None or not rule.told else tuple(sorted(set(rule.told))),
        max_loss=service.max_loss,
        max_load=service.max_load,
        stretch=profile.stretch,
        slack_us=profile.slack_us,
        fan_out=profile.fan_out,
    )


def is_told(terms: Terms, region: str) -> bool:
    """Whether relays in a region may hear who subscribes to a track; it is empty if not known."""
    if terms.is_unknown:
        return False
    if terms.told is None and not (terms.inside or terms.avoid):
        return True
    if not region:
        return False
    if terms.told is not None:
        return region in terms.told
    return region not in terms.avoid and (not terms.inside or region in terms.inside)


def _bound(terms: Terms) -> str:
    """Where a track has to stay, for a sentence."""
    words = []
    if terms.inside:
        words.append(f"stays inside {_either(terms.inside)}")
    if terms.avoid:
        words.append(f"stays out of {_either(terms.avoid)}")
    return f"the track {' and '.join(words)}"


def _either(regions: Collection[str]) -> str:
    return " or ".join(regions)


def _pair(a: NodeId, b: NodeId) -> str:
    return f"{format_node_id(a)}-{format_node_id(b)}"
