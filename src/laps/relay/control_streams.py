"""A link's control stream, when it ends or moves.

Without one a link is of no use: nothing that is said on it arrives. The side that dialled may open
another, and then the one before is reset. Our own dialler does so by dialling anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.errors import CloseCode
from laps.relay.peers import set_messages
from laps.sessions.peer import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laps.infobase.nodes import SessionId
    from laps.relay.introduction import Introduction
    from laps.relay.peers import Links, PeerLink
    from laps.relay.stub import StubClient
    from laps.relay.timers import Timers
    from laps.routing.forwarding import Fib


class ControlStreams:
    """Sees to it that each link has one."""

    def __init__(
        self,
        links: Links,
        fib: Fib,
        stubs: Mapping[SessionId, StubClient],
        introduction: Introduction,
        timers: Timers,
        wait_s: float,
    ) -> None:
        """`wait_s` is how long the side that dialled has to open another."""
        self._links = links
        self._fib = fib
        self._stubs = stubs
        self._introduction = introduction
        self._timers = timers
        self._wait_s = wait_s

    def ended(self, link_id: SessionId, stream_id: int, now: float) -> None:
        """A bidirectional stream has ended, in one direction or both."""
        peer_link = self._links.peer_links.get(link_id)
        if peer_link is None or not peer_link.session.is_control(stream_id):
            return
        link, session = peer_link.link, peer_link.session
        if session.state is State.AWAIT_RESPONSE:
            reason = "the control stream ended before the response to CONNECT"
            link.close(CloseCode.CONNECT_RESPONSE_NOT_RECEIVED, reason)
        elif link.dialled:
            link.close(CloseCode.GRACEFUL, "the peer ended the control stream")
        else:

            def give_up(now: float) -> None:
                if session.is_control(stream_id) and link_id in self._links.links:
                    reason = "the control stream ended, and no other followed"
                    link.close(CloseCode.GRACEFUL, reason)

            self._timers.at(now + self._wait_s, give_up)

    def moved(self, peer_link: PeerLink, now: float) -> None:
        """The peer uses another stream: what was under way on the last one may be lost."""
        peer, link_id = peer_link.peer, peer_link.link.id
        if peer is None:
            return
        if (stub := self._stubs.get(link_id)) is not None:
            stub.repeat()
        if peer.control is peer_link:
            self._introduction.begin_control(peer, now)
        sets = (it for update in self._fib.sets_on(link_id) for it in set_messages(update))
        self._links.page(peer_link, "sets", sets, urgent=True)
