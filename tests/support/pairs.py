"""Who publishes what somebody wants, and who of them may miss nothing while things change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.routing.policy import terms_of
from laps.sim.invariants import matches
from laps.types import format_node_id
from support.policies import has_way, missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.policy import Policy
    from laps.sim.clients import Publisher, Subscriber
    from laps.sim.network import Network


class Pairs:
    """Who publishes what somebody wants, and which of them had a way all the time."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._steady = set(self._all())
        self.since = network.now

    def look(self, policy: Policy | None) -> None:
        """Those that have no allowed way now are not looked at any more."""
        self._steady = {
            it
            for it in self._steady
            if self._has_way(policy, *it) and not _is_told_to_some(policy, it[1])
        }

    def leave(self, subscriber: Subscriber) -> None:
        """One comes or goes: what it misses is its own matter."""
        self._steady = {it for it in self._steady if it[1] is not subscriber}

    def check_steady(self, until: float) -> list[str]:
        """Whoever had a way all the time has missed nothing."""
        found = []
        for publisher, subscriber in sorted(
            self._steady, key=lambda it: (it[0].number, it[1].number)
        ):
            made, lost = missing(publisher, subscriber, self.since, until)
            if not made or lost:
                found.append(f"{_text(publisher, subscriber)}: {lost} of {made} lost on the way")
        return found

    def check_last(self, policy: Policy, since: float, until: float) -> list[str]:
        """Who may have a track has all of it, and who may not has nothing of it."""
        found = []
        for publisher, subscriber in self._all():
            made, lost = missing(publisher, subscriber, since, until)
            text = _text(publisher, subscriber)
            if self._has_way(policy, publisher, subscriber):
                if (not made or lost) and not _is_told_to_some(policy, subscriber):
                    found.append(f"{text}: {lost} of {made} missing")
            elif lost != made:
                found.append(f"{text}: {made - lost} of {made} came, and no way is allowed")
        return found

    def _all(self) -> Iterator[tuple[Publisher, Subscriber]]:
        for publisher in self._network.publishers:
            for subscriber in self._network.subscribers:
                ends = publisher.spec.node, subscriber.spec.node
                # What a Stub has is the matter of its Edge, which may be another every time.
                is_stub = any(self._network.nodes[it].spec.type == "stub" for it in ends)
                if matches(publisher, subscriber) and not is_stub and ends[0] != ends[1]:
                    yield publisher, subscriber

    def _has_way(self, policy: Policy | None, publisher: Publisher, subscriber: Subscriber) -> bool:
        track = "/".join((*subscriber.spec.namespace, subscriber.spec.name))
        places = publisher.spec.node, subscriber.spec.node
        return has_way(self._network, policy, track, *places)


def _is_told_to_some(policy: Policy | None, subscriber: Subscriber) -> bool:
    """Whether only relays in some regions hear of a subscribe, which may not be the publisher's."""
    track = "/".join((*subscriber.spec.namespace, subscriber.spec.name))
    return policy is not None and terms_of(policy, track).told is not None


def _text(publisher: Publisher, subscriber: Subscriber) -> str:
    track = "/".join((*subscriber.spec.namespace, subscriber.spec.name))
    a, b = format_node_id(publisher.spec.node), format_node_id(subscriber.spec.node)
    return f"{track} from {a} to {b}"
