"""What policy keeps from the Stubs of an Edge: they are told why, as clients of the Edge are.

    a Stub subscribes   policy is against it here     ->  it is kept aside: POLICY_REFUSAL, with
                                                          the reason
    another policy      allows what is kept aside     ->  POLICY_REFUSAL without, and it counts
                        is against what was allowed   ->  it is cut off, and kept aside
    another relay       refuses the Edge, or no more  ->  the Stub is told so, too

To the Stub its Edge is the relay that refuses: its clients hear the Edge's reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.relay.refusals import TrackRefused
from laps.types import SubscribeInfo, format_node_id
from laps.wire.extensions import MAX_HOPS
from laps.wire.policy import MAX_REASON_LENGTH, PolicyRefusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from laps.infobase.nodes import SessionId
    from laps.relay.journal import Journal
    from laps.relay.reach import Reach
    from laps.relay.refusals import Refused
    from laps.relay.scope import Scope
    from laps.relay.stub import StubClient
    from laps.tracks.tracks import Tracks
    from laps.types import NodeId, TrackKey


class StubRefusals:
    """What Stubs are refused, and told of it."""

    def __init__(
        self,
        self_id: NodeId,
        stubs: Mapping[SessionId, StubClient],
        scope: Scope,
        refused: Refused,
        tracks: Tracks,
        reach: Reach,
        journal: Journal,
    ) -> None:
        self._self_id = self_id
        self._stubs = stubs
        self._scope = scope
        self._refused = refused
        self._tracks = tracks
        self._reach = reach
        self._journal = journal
        self._policy = scope.policy

    def keeps(self, stub: StubClient, info: SubscribeInfo, now: float) -> bool:
        """A Stub subscribes: whether policy keeps the track from it, and it has been told."""
        key, against = info.track_hash.full_name_hash, self._scope.against(info)
        if against is not None:
            stub.keep_aside(info)
            # It may ask again because it has missed the answer.
            self._tell(stub, key, f"policy: {against}", now)
        elif stub.kept_aside.pop(key, None) is not None:
            self._tell(stub, key, "", now)
        if key in self._refused.heard:
            self._tracks.events.append(TrackRefused(key))
        return against is not None

    def left(self, stub: StubClient, key: TrackKey) -> None:
        """A Stub does not want a track any more."""
        stub.kept_aside.pop(key, None)
        self._refused.left(stub.peer.node_id, key)

    def closed(self, stub: StubClient) -> None:
        """A Stub is gone."""
        self._refused.purge(stub.peer.node_id)

    @property
    def is_stale(self) -> bool:
        """Whether `review` has something to look at."""
        return bool(self._stubs) and self._policy is not self._scope.policy

    def review(self) -> Iterator[tuple[StubClient, SubscribeInfo]]:
        """The subscribes of Stubs of which another policy says something else: they count anew."""
        self._policy = self._scope.policy
        for stub in list(self._stubs.values()):
            for info in list(stub.kept_aside.values()):
                if self._scope.against(info) is None:
                    yield stub, info
            for track in self._tracks.subscribed(stub):
                found = self._tracks.get(track.full_name_hash)
                data = b"" if found is None else found.subscribe_data
                info = SubscribeInfo(0, self._self_id, track, data)
                if self._scope.against(info) is not None:
                    yield stub, info

    def changed(self, stub: StubClient, key: TrackKey, reason: str, now: float) -> None:
        """Other relays refuse a track that a Stub wants; without a reason they do not any more."""
        if self._refused.told.get((key, stub.peer.node_id), "") != reason:
            self._tell(stub, key, reason, now)

    def _tell(self, stub: StubClient, key: TrackKey, reason: str, now: float) -> None:
        node_id = stub.peer.node_id
        if not reason:
            self._refused.left(node_id, key)
        elif self._refused.told.get((key, node_id)) != reason:
            self._refused.told[key, node_id] = reason
            self._journal.note(now, "policy_refused", format_node_id(node_id), reason=reason)
        text = reason.encode()[:MAX_REASON_LENGTH].decode(errors="ignore")
        self._reach.send(node_id, PolicyRefusal(MAX_HOPS, self._self_id, node_id, key, text))
