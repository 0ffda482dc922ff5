"""The streams that we send to peers, under our own sets: how they begin there, and how they end.

A stream runs under one set for each link that its flow takes. When its flow goes another way the
set stays for as long as streams run under it; and those that may not go there any more are ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.relay.framing import Wrapped
from laps.relay.passing import DROPPED
from laps.routing.flows import ToNode
from laps.tracks.streams import SOURCE_LOST

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.infobase.nodes import SessionId
    from laps.relay.passing import OpenStreams, Passing
    from laps.relay.peers import Links
    from laps.routing.flows import Flow, FlowKey
    from laps.routing.forwarding import Fib
    from laps.tracks.tracks import Tracks
    from laps.types import SnsId, TrackKey


class EgressSets:
    """Which streams run under which sets of ours."""

    def __init__(self, fib: Fib, links: Links, tracks: Tracks, streams: OpenStreams) -> None:
        self.pressing: dict[FlowKey, None] = {}
        "Flows of which streams began on links that are pressed."
        self._fib = fib
        self._links = links
        self._shared = tracks.shared
        self._streams = streams

    def open(
        self, passing: Passing, key: TrackKey, priority: int, ttl_us: int, *, wrapped: bool
    ) -> None:
        """A stream begins on each link that its flow takes."""
        flow = passing.flow
        if flow is None:
            return
        for link_id, sns_id in flow.current():
            link = self._links.links.get(link_id)
            if link is None:
                continue
            opened = link.open_stream(priority, ttl_us, flow.terms.order)
            out = Wrapped(opened, sns_id, key, priority, ttl_us) if wrapped else opened
            passing.outs.append(out)
            passing.sets.append((flow, link_id, sns_id, opened))
            self._fib.stream_opened(flow, link_id)
            self._streams.sent(flow, passing)
            if link.pressed_for(flow.terms.order):
                self.pressing[flow.key] = None

    def leave(self, passing: Passing) -> None:
        """A stream has ended: it runs under its sets no more."""
        sets, passing.sets = passing.sets, []
        if sets and passing.flow is not None:
            self._streams.not_sent(passing.flow, passing)
        for flow, link_id, sns_id, _ in sets:
            self._left(flow, link_id, sns_id)

    def _left(self, flow: Flow, link_id: SessionId, sns_id: SnsId) -> None:
        update = self._fib.stream_closed(flow, link_id, sns_id)
        if update is not None:
            self._links.send_sns((update,))

    def drop_abandoned(self, now: float) -> None:
        """End streams that nobody wants any more, or that may not go that way; others go on."""
        if not self._fib.abandoned:
            return
        abandoned = dict(self._fib.abandoned)
        flows = dict.fromkeys(flow for flow, _, _ in abandoned)
        self._fib.abandoned.clear()
        for passing in [it for flow in flows for it in self._streams.under(flow)]:
            gone = [item for item in passing.sets if item[:3] in abandoned]
            if not gone:
                continue
            self.settle((passing,))
            passing.sets = [item for item in passing.sets if item[:3] not in abandoned]
            for flow, link_id, sns_id, out in gone:
                if not out.over:
                    if abandoned[flow, link_id, sns_id]:
                        out.abort(SOURCE_LOST)
                    else:
                        out.reset(DROPPED, now)
                self._left(flow, link_id, sns_id)
            passing.outs[:] = [out for out in passing.outs if not out.over]
            if not passing.sets and passing.flow is not None:
                self._streams.not_sent(passing.flow, passing)
                if isinstance(passing.flow.key, ToNode):  # whoever writes finds that it is over
                    self._links.send_sns(self._fib.remove(passing.flow.key))

    def settle(self, streams: Iterable[Passing]) -> None:
        """Have the meters of their tracks show what has arrived of streams by now."""
        moved = self._shared.moved
        for passing in streams:
            if passing.settle() and moved is not None and passing.meter is not None:
                moved[passing.meter] = None
