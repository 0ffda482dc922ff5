"""Classes of service at this relay: the place that each track has, and that open streams take it.

The place of a track among those of one priority is

    that of the relay's own policy, where it knows the name of the track; or else
    that which the relay before this one says with the set that the track comes by; or else
    the ordinary one.

Peers are sent a flow by the terms of that flow, which the publisher's relay decides. Both may
change while streams are open: what waits of these, and what follows, has another place then.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from laps.relay.pieces import MOST_IN_A_TURN
from laps.routing.flows import FromPeer
from laps.routing.terms import ORDINARY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.relay.data import DataPlane
    from laps.routing.flows import Flow
    from laps.routing.forwarding import Fib
    from laps.routing.policy import PolicyInForce
    from laps.tracks.tracks import Tracks
    from laps.types import TrackKey, TrackName


class Classes:
    """Which place each track has."""

    def __init__(self, policy: PolicyInForce, fib: Fib, tracks: Tracks, data: DataPlane) -> None:
        self._policy = policy
        self._fib = fib
        self._tracks = tracks
        self._data = data
        self._shared = tracks.shared
        self._shared.classes = self
        self._looking: Iterator[TrackKey] | None = None
        "Tracks that have not been looked at since the policy changed."

    def of(self, key: TrackKey, name: TrackName | None) -> int:
        """As `tracks.ports.Classes`: the place of a track for clients of this relay."""
        if self._policy.policy is not None and name is not None:
            return self._policy.terms(name).order
        for source in self._shared.feeding.get(key, ()):
            if (flow := self._fib.get(source)) is not None:
                return flow.terms.order
        return ORDINARY

    def at(self, key: TrackKey) -> int:
        """The same, for who does not know the name."""
        track = self._tracks.get(key)
        return self.of(key, None if track is None else track.name)

    def changed(self) -> None:
        """Another policy is in force."""
        self._looking = self._tracks.keys()

    def tick(self, now: float) -> None:
        """As `Due.tick`."""
        while self._fib.reordered:
            flow = next(iter(self._fib.reordered))
            del self._fib.reordered[flow]
            self._reorder_flow(flow)
        keys = list(self._shared.reordered)
        self._shared.reordered.clear()
        if self._looking is not None:
            some = list(islice(self._looking, MOST_IN_A_TURN))
            self._looking = self._looking if some else None
            keys += some
        for key in keys:
            self._reorder(key)

    def deadline(self) -> float | None:
        """As `Due.deadline`."""
        waits = self._fib.reordered or self._shared.reordered or self._looking is not None
        return 0.0 if waits else None

    def _reorder_flow(self, flow: Flow) -> None:
        self._data.reorder(flow)
        if isinstance(flow.key, FromPeer) and flow.local and flow.track is not None:
            self._shared.reordered[flow.track] = None

    def _reorder(self, key: TrackKey) -> None:
        track = self._tracks.get(key)
        for subscriber in () if track is None else track.subscribers.values():
            subscriber.reorder()
